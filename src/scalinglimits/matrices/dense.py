r"""A matrix held in full, with entries of any law.

Between explicit spaces, where coordinates are the neurons' values, the products are those of the
array. It is the plain twin of the matrices sampled on demand, and shows that the limit does not
depend on the law of the entries.

Reference: "Infinite-width limit of deep linear neural networks" (L), remark iv.
"""

from __future__ import annotations

import math

import numpy as np

from scalinglimits.matrices.base import RandomMatrix
from scalinglimits.matrices.spaces import EntryLaw, NeuronSpace

__all__ = ["DenseMatrix"]


class DenseMatrix(RandomMatrix):
    """A matrix of i.i.d. entries of a given law, held in full, between explicit spaces.

    Args:
        domain: explicit space of the vectors it multiplies.
        codomain: explicit space of the products.
        variance: see `RandomMatrix`.
        scale: factor of the variance.
        entries: law of the entries, of unit variance; `None` is the standard Gaussian.
        generator: a NumPy generator or a seed; `None` takes a stream of its own from the
            codomain's generator.

    Raises:
        ValueError: see `RandomMatrix`; and if a space is not explicit.

    Example:
        >>> space = NeuronSpace(3, generator=0, explicit=True)
        >>> matrix = DenseMatrix(space, space, generator=1)
        >>> block = matrix.matvec(np.eye(3))
        >>> bool(np.allclose(matrix.entries(3) * np.sqrt(matrix.variance), block))
        True
    """

    def __init__(
        self,
        domain: NeuronSpace,
        codomain: NeuronSpace,
        variance: str | float = "fan_in",
        *,
        scale: float = 1.0,
        entries: EntryLaw | None = None,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        """Sample the entries."""
        super().__init__(domain, codomain, variance, scale=scale, generator=generator)
        for name, space in (("domain", domain), ("codomain", codomain)):
            if not space.explicit:
                raise ValueError(
                    f"`{name}` must be an explicit space for a dense matrix; got {space}"
                )
        assert self.generator is not None
        m, n = int(codomain.width), int(domain.width)
        if entries is None:
            sampled = self.generator.standard_normal((m, n))
        else:
            sampled = np.asarray(entries.sample((m, n), self.generator), dtype=np.float64)
        self._entries = sampled
        # Coordinates are values over the root of the width, on either side.
        self._forward = math.sqrt(self.variance) * math.sqrt(n / m)
        self._backward = math.sqrt(self.variance) * math.sqrt(m / n)

    @property
    def rank_known(self) -> int:
        """The smaller width: all is known."""
        return min(self._entries.shape)

    def matvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W a`; see `RandomMatrix.matvec`."""
        vectors = self.domain.coordinates(vectors)
        return self._forward * (self._entries[:, : vectors.shape[0]] @ vectors)

    def rmatvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W^T b`; see `RandomMatrix.rmatvec`."""
        vectors = self.codomain.coordinates(vectors)
        return self._backward * (self._entries[: vectors.shape[0]].T @ vectors)

    def entries(self, rows: int, columns: int | None = None) -> np.ndarray:
        """Actual entries; see `RandomMatrix.entries`."""
        columns = rows if columns is None else columns
        m, n = self._entries.shape
        if not (0 <= rows <= m and 0 <= columns <= n):
            raise ValueError(
                f"`rows` and `columns` must be between 0 and the widths {m}, {n}; "
                f"got {rows}, {columns}"
            )
        return self._entries[:rows, :columns].copy()
