r"""An orthogonal matrix of any width, sampled on demand by its products.

Notation. `O` is Haar distributed among the `m x n` matrices with orthonormal columns (`m >= n`) or
orthonormal rows (`m <= n`); it is a corner of a Haar orthogonal matrix of size `N = max(m, n)`, and
the smaller space is completed by a hidden one of `N - min(m, n)` dimensions. All answers together
say that `O` maps orthonormal vectors `H` to orthonormal vectors `F`. For a unit vector `h`
orthogonal to `H`, `O h` is then uniform among the unit vectors orthogonal to `F`: the direction of
a Gaussian vector, once its part in `F` is taken away. The transpose is the same with the roles
exchanged.

In terms of right queries `p_i`, left queries `q_j` and their images `y_i`, `x_j`: `H` is an
orthonormal basis of the span of the `p_i` and the `x_j`, because `O x_j = q_j`.

Reference: M. L. Eaton, *Group invariance applications in statistics* (1989), chapter 7;
`docs/random-matrices.md`.
"""

from __future__ import annotations

import math

import numpy as np

from scalinglimits.matrices._storage import Columns
from scalinglimits.matrices.base import RandomMatrix
from scalinglimits.matrices.haar_blocks import HaarBlock, grow_gaussian, semidefinite_cholesky
from scalinglimits.matrices.spaces import NeuronSpace, child_generator

__all__ = ["HaarMatrix"]


class _Side:
    """A space, completed by a hidden one to the larger width, and orthonormal vectors of it."""

    def __init__(
        self, space: NeuronSpace, size: float, generator: np.random.Generator | None
    ) -> None:
        self.space = space
        width = space.width if space.is_finite else space.relative_width
        missing = size - width
        self.share = math.sqrt(width / size)
        self.vectors = Columns()
        self.hidden: NeuronSpace | None = None
        self.hidden_vectors = Columns()
        if missing > 0:
            self.hidden_share = math.sqrt(missing / size)
            self.hidden = (
                NeuronSpace(missing, generator=generator)
                if space.is_finite
                else NeuronSpace(math.inf, relative_width=missing)
            )

    def view(self) -> np.ndarray:
        """The part of the vectors in the space."""
        return self.vectors.view(self.space.dimension)

    def hidden_view(self) -> np.ndarray:
        """Their part in the hidden space."""
        return self.hidden_vectors.view(0 if self.hidden is None else self.hidden.dimension)

    def append(self, vector: np.ndarray, hidden: np.ndarray) -> None:
        """Add a vector."""
        self.vectors.append(vector)
        self.hidden_vectors.append(hidden)

    def uniform(self, generator: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
        """A uniform direction orthogonal to the vectors, in the space and in the hidden one."""
        vector = self.share * self.space.draw(1, generator=generator)[:, 0]
        hidden = np.zeros(0)
        if self.hidden is not None:
            hidden = self.hidden_share * self.hidden.draw(1, generator=generator)[:, 0]
        if not self.space.is_finite:
            return vector, hidden
        return self._orthogonal(vector, hidden)

    def _orthogonal(self, vector: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known, behind = self.view(), self.hidden_view()
        for _ in range(3):
            along = known.T @ vector
            if self.hidden is not None:
                along += behind.T @ hidden
                hidden = hidden - behind @ along
            vector = vector - known @ along
            length = math.sqrt(vector @ vector + hidden @ hidden)
            # Normalise each time: what is left can be much shorter than what is taken away.
            vector, hidden = vector / length, hidden / length
        return vector, hidden


class HaarMatrix(RandomMatrix):
    """A Haar orthogonal (or semi-orthogonal) matrix, of any width, known by its products.

    The matrix is `sqrt(v N) O`, `N` the larger width, so that its entries have variance `v`; with
    `variance="fan_max"` its nonzero singular values are one. Exact in law at every finite width.

    Args:
        domain: space of the vectors it multiplies.
        codomain: space of the products.
        variance: see `RandomMatrix`.
        scale: factor of the variance.
        tolerance: a vector whose part outside the known span is at most this fraction of its
            length counts as inside.
        generator: a NumPy generator or a seed; `None` takes a stream of its own from the
            codomain's generator.

    Raises:
        ValueError: see `RandomMatrix`; and if the tolerance is outside `[0, 1)`.

    Example:
        >>> space = NeuronSpace(10**9, generator=0)
        >>> matrix = HaarMatrix(space, space, generator=1)
        >>> v = space.draw()[:, 0]
        >>> bool(np.allclose(matrix.rmatvec(matrix.matvec(v)), space.pad(v)))
        True
    """

    def __init__(
        self,
        domain: NeuronSpace,
        codomain: NeuronSpace,
        variance: str | float = "fan_in",
        *,
        scale: float = 1.0,
        tolerance: float = 1e-12,
        generator: np.random.Generator | int | None = None,
    ) -> None:
        """Nothing of the matrix is known at first."""
        super().__init__(domain, codomain, variance, scale=scale, generator=generator)
        if not 0.0 <= tolerance < 1.0:
            raise ValueError(f"`tolerance` must be in [0, 1); got {tolerance!r}")
        self.tolerance = tolerance
        n, m = domain.relative_width, codomain.relative_width
        self._full_rank = max(domain.width, codomain.width)
        self._size = self._full_rank if domain.is_finite else max(m, n)
        child = None if self.generator is None else child_generator(self.generator)
        self._into = _Side(domain, self._size, child)
        self._out = _Side(codomain, self._size, child)
        # From orthonormal coordinates to inner products that are means over neurons.
        self._forward = self.forward_gain * math.sqrt(self._size / m)
        self._backward = self.backward_gain * math.sqrt(self._size / n)
        self._corner: HaarBlock | None = None
        self._innovations = np.zeros((0, 0))

    @property
    def rank_known(self) -> int:
        """Number of orthonormal vectors whose images are known."""
        return self._into.vectors.count

    @property
    def query_bases(self) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of the vectors `H` (domain) and of their images `F` (codomain).

        Orthonormal, but for the parts in the space that completes the smaller width.
        """
        return self._into.view().copy(), self._out.view().copy()

    def matvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W a`; see `RandomMatrix.matvec`."""
        vectors = self.domain.coordinates(vectors)
        return self._forward * self._product(self._into, self._out, vectors)

    def rmatvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W^T b`; see `RandomMatrix.rmatvec`."""
        vectors = self.codomain.coordinates(vectors)
        return self._backward * self._product(self._out, self._into, vectors)

    def entries(self, rows: int, columns: int | None = None) -> np.ndarray:
        """Actual entries given all products so far; see `RandomMatrix.entries`.

        At finite width the entries tell more of the matrix than products may take back: after
        they are read, a product in a new direction is an error.
        """
        columns = rows if columns is None else columns
        out, into = self.codomain.rows(rows), self.domain.rows(columns)
        if self.generator is None:
            raise ValueError("`generator` must be given before entries are read; got None")
        if not self.codomain.is_finite:
            self._innovations = grow_gaussian(self._innovations, rows, columns, self.generator)
            return self._innovations[:rows, :columns].copy()
        f = out @ self._out.view() / math.sqrt(self.codomain.width)
        h = into @ self._into.view() / math.sqrt(self.domain.width)
        if self._corner is None:
            self._corner = HaarBlock(int(self._full_rank) - self.rank_known)
        left = semidefinite_cholesky(np.eye(rows) - f @ f.T, self._corner.size)
        right = semidefinite_cholesky(np.eye(columns) - h @ h.T, self._corner.size)
        corner = self._corner.grow(left.shape[1], right.shape[1], self.generator)
        return math.sqrt(self._full_rank) * (f @ h.T + left @ corner @ right.T)

    def _product(self, source: _Side, target: _Side, vectors: np.ndarray) -> np.ndarray:
        """`O a` or `O^T b`, in orthonormal coordinates."""
        known = source.view()
        length = vectors.shape[0]
        along = known[:length].T @ vectors
        if self.rank_known == self._full_rank:
            return target.view() @ along
        rest = known @ along
        np.negative(rest, out=rest)
        rest[:length] += vectors
        hidden = -(source.hidden_view() @ along)
        if vectors.ndim == 1:
            size = math.sqrt(rest @ rest + hidden @ hidden)
            if size <= self.tolerance * math.sqrt(vectors @ vectors):
                return target.view() @ along
            return self._new(source, target, vectors, along, rest, hidden)
        sizes = np.sqrt(np.sum(rest**2, axis=0) + np.sum(hidden**2, axis=0))
        norms = np.sqrt(np.sum(vectors**2, axis=0))
        unknown = np.flatnonzero(sizes > self.tolerance * norms)
        answers = target.view() @ along
        if unknown.size == 0:
            return answers
        columns = [self._product(source, target, vectors[:, j]) for j in unknown]
        result = np.zeros((target.space.dimension, vectors.shape[1]))
        result[: answers.shape[0]] = answers
        for j, column in zip(unknown, columns, strict=True):
            result[:, j] = 0.0
            result[: column.shape[0], j] = column
        return result

    def _new(
        self,
        source: _Side,
        target: _Side,
        vector: np.ndarray,
        along: np.ndarray,
        rest: np.ndarray,
        hidden: np.ndarray,
    ) -> np.ndarray:
        """Product with a vector that has a part outside the known span."""
        known, behind = source.view(), source.hidden_view()
        before = math.sqrt(rest @ rest + hidden @ hidden)
        again = known.T @ rest + behind.T @ hidden
        rest -= known @ again
        hidden -= behind @ again
        rho = math.sqrt(rest @ rest + hidden @ hidden)
        along += again
        # A second pass that removes most of it shows that the rest was rounding error.
        if rho < 0.5 * before or rho <= self.tolerance * math.sqrt(vector @ vector):
            return target.view() @ along
        if self._corner is not None:
            raise RuntimeError(
                "the matrix has no products in new directions once its entries have been read"
            )
        image, image_hidden = target.uniform(self.generator)
        source.append(rest / rho, hidden / rho)
        target.append(image, image_hidden)
        return target.view() @ np.append(along, rho)
