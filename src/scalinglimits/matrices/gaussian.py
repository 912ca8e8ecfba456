r"""A Gaussian matrix of any width, sampled on demand by its products.

Notation. `G` is `m x n` with standard Gaussian entries; the matrix is `sqrt(v) G`. In orthonormal
coordinates, right queries `P` (orthonormal too) have images `Y = G P / sqrt(m)`, left queries `Q`
have images `X = G^T Q / sqrt(n)`. Given all answers so far, for a unit vector `p` orthogonal to
`P`,

    G p / sqrt(m) = Q kappa X^T p + (I - Q Q^T) g,    kappa = sqrt(n / m),

where `g` is a fresh Gaussian vector of the codomain: `N(0, 1/m)` on its known basis vectors, and of
length `chi_{m-k} / sqrt(m)` along a new one. The transpose is the same with the roles exchanged. At
infinite width `g` is just the new basis vector, and what appears is the matrix Lambda of the
infinite-width limit.

References: E. Bolthausen, "An iterative construction of solutions of the TAP equations" (2014),
for Gaussian conditioning; "Infinite-width limit of deep linear neural networks" (L), (2.9);
`docs/random-matrices.md`.
"""

from __future__ import annotations

import math

import numpy as np

from scalinglimits.matrices._storage import Columns
from scalinglimits.matrices.base import RandomMatrix
from scalinglimits.matrices.haar_blocks import grow_gaussian, semidefinite_cholesky
from scalinglimits.matrices.spaces import NeuronSpace

__all__ = ["GaussianMatrix"]


class _Side:
    """Queries from one side: orthonormal vectors of a space and their images in the other."""

    __slots__ = ("gain", "images", "kappa", "queries", "source", "target")

    def __init__(self, source: NeuronSpace, target: NeuronSpace, gain: float, kappa: float) -> None:
        self.source = source
        self.target = target
        self.gain = gain
        self.kappa = kappa
        self.queries = Columns()
        self.images = Columns()


class GaussianMatrix(RandomMatrix):
    """A matrix of i.i.d. Gaussian entries, of any width, known by its products.

    Exact in law at every finite width, deterministic at infinite width (products of deterministic
    vectors). The cost of a product depends on how many products came before, not on the width.

    Args:
        domain: space of the vectors it multiplies.
        codomain: space of the products.
        variance: see `RandomMatrix`.
        scale: factor of the variance.
        tolerance: a vector whose part outside the span of the earlier queries is at most this
            fraction of its length counts as inside, so that the dimensions stop growing.
        generator: a NumPy generator or a seed; `None` takes a stream of its own from the
            codomain's generator.

    Raises:
        ValueError: see `RandomMatrix`; and if the tolerance is outside `[0, 1)`.

    Example:
        >>> import math
        >>> left, right = NeuronSpace(math.inf), NeuronSpace(math.inf)
        >>> u = right.draw()[:, 0]
        >>> matrix = GaussianMatrix(right, left)
        >>> matrix.matvec(u)
        array([1.])
        >>> matrix.rmatvec(matrix.matvec(u))
        array([1., 1.])
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
        kappa = math.sqrt(domain.relative_width) / math.sqrt(codomain.relative_width)
        self._right = _Side(domain, codomain, self.forward_gain, kappa)
        self._left = _Side(codomain, domain, self.backward_gain, 1.0 / kappa)
        self._innovations = np.zeros((0, 0))
        self._read = False

    @property
    def rank_known(self) -> int:
        """Number of right queries plus number of left queries."""
        return self._right.queries.count + self._left.queries.count

    @property
    def query_bases(self) -> tuple[np.ndarray, np.ndarray]:
        """Orthonormal coordinates of the right queries (domain) and left queries (codomain)."""
        return (
            self._right.queries.view(self.domain.dimension).copy(),
            self._left.queries.view(self.codomain.dimension).copy(),
        )

    def matvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W a`; see `RandomMatrix.matvec`."""
        return self._product(self._right, self._left, self.domain.coordinates(vectors))

    def rmatvec(self, vectors: np.ndarray) -> np.ndarray:
        """The product `W^T b`; see `RandomMatrix.rmatvec`."""
        return self._product(self._left, self._right, self.codomain.coordinates(vectors))

    def entries(self, rows: int, columns: int | None = None) -> np.ndarray:
        """Actual entries given all products so far; see `RandomMatrix.entries`.

        At finite width the entries tell more of the matrix than products may take back: after
        they are read, a product in a new direction is an error.
        """
        columns = rows if columns is None else columns
        out, into = self.codomain.rows(rows), self.domain.rows(columns)
        if self.generator is None:
            raise ValueError("`generator` must be given before entries are read; got None")
        self._innovations = grow_gaussian(self._innovations, rows, columns, self.generator)
        fresh = self._innovations[:rows, :columns]
        if not self.codomain.is_finite:
            return fresh.copy()
        self._read = True
        m, n = self.shape
        right, left = self._right, self._left
        p = into @ right.queries.view(self.domain.dimension) / math.sqrt(n)
        q = out @ left.queries.view(self.codomain.dimension) / math.sqrt(m)
        y = out @ right.images.view(self.codomain.dimension)
        x = into @ left.images.view(self.domain.dimension)
        overlap = self.domain.inner(
            left.images.view(self.domain.dimension), right.queries.view(self.domain.dimension)
        )
        left_factor = semidefinite_cholesky(np.eye(rows) - q @ q.T, int(m) - q.shape[1])
        right_factor = semidefinite_cholesky(np.eye(columns) - p @ p.T, int(n) - p.shape[1])
        fresh = fresh[: left_factor.shape[1], : right_factor.shape[1]]
        known = y @ p.T + q @ (x.T - math.sqrt(n) * overlap @ p.T)
        return known + left_factor @ fresh @ right_factor.T

    def _product(self, side: _Side, other: _Side, vectors: np.ndarray) -> np.ndarray:
        """Answer one query or a block of them from one side."""
        queries = side.queries.view(side.source.dimension)
        length = vectors.shape[0]
        along = queries[:length].T @ vectors
        if queries.shape[1] == side.source.width:
            return self._known(side, along)
        rest = queries @ along
        np.negative(rest, out=rest)
        rest[:length] += vectors
        if vectors.ndim == 1:
            if math.sqrt(rest @ rest) <= self.tolerance * math.sqrt(vectors @ vectors):
                return self._known(side, along)
            return self._new(side, other, vectors, along, rest)
        norms = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
        rests = np.sqrt(np.einsum("ij,ij->j", rest, rest))
        unknown = np.flatnonzero(rests > self.tolerance * norms)
        if unknown.size == 0:
            return self._known(side, along)
        answers = self._known(side, along)
        columns = [self._product(side, other, vectors[:, j]) for j in unknown]
        out = np.zeros((side.target.dimension, vectors.shape[1]))
        out[: answers.shape[0]] = answers
        for j, column in zip(unknown, columns, strict=True):
            out[:, j] = 0.0
            out[: column.shape[0], j] = column
        return out

    def _known(self, side: _Side, along: np.ndarray) -> np.ndarray:
        """Products of combinations of earlier queries."""
        out = side.images.view(side.target.dimension) @ along
        if side.gain != 1.0:
            out *= side.gain
        return out

    def _new(
        self,
        side: _Side,
        other: _Side,
        vector: np.ndarray,
        along: np.ndarray,
        rest: np.ndarray,
    ) -> np.ndarray:
        """Product with a vector that has a part `rest` outside the span of earlier queries."""
        queries = side.queries.view(side.source.dimension)
        # Once more: `rest` is only as orthogonal as `vector` is long.
        again = queries.T @ rest
        before = math.sqrt(rest @ rest)
        rest -= queries @ again
        rho = math.sqrt(rest @ rest)
        along += again
        # A second pass that removes most of it shows that `rest` was rounding error.
        if rho < 0.5 * before or rho <= self.tolerance * math.sqrt(vector @ vector):
            return self._known(side, along)
        if self._read:
            raise RuntimeError(
                "the matrix has no products in new directions once its entries have been read"
            )
        rest /= rho
        image = self._image(side, other, rest)
        side.queries.append(rest)
        side.images.append(image)
        return self._known(side, np.append(along, rho))

    def _image(self, side: _Side, other: _Side, query: np.ndarray) -> np.ndarray:
        """Image of a unit vector orthogonal to earlier queries, given all answers."""
        target = side.target
        overlaps = other.images.view(side.source.dimension).T @ query
        fresh = target.draw(1, generator=self.generator)[:, 0]
        known = other.queries.view(target.dimension)
        if target.is_finite:
            overlaps *= side.kappa
            overlaps -= known.T @ fresh
            fresh += known @ overlaps
            return fresh
        # The new basis vector is orthogonal to all that is known.
        fresh += known @ (side.kappa * overlaps)
        return fresh
