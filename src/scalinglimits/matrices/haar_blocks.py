r"""Corners of a Haar orthogonal matrix, sampled without the matrix.

Let `O` be a Haar distributed orthogonal matrix of size `m`, possibly as large as `10**18`. Its
upper left corner of any shape is sampled exactly, and grows by rows or by columns as needed.

Method. Suppose that the first `q` rows of the first `k` columns are known: a block `B`. The next
`c` columns of `O` are the orthonormalisation of `(I - F F^T) G`, where `F` holds the first `k`
columns and `G` is an `m x c` Gaussian matrix. In an orthonormal basis of the complement of `F`,
that is an `(m - k) x c` Gaussian matrix, of which the first `q` rows of `O` see `L z`, with
`L L^T = I - B B^T` and `z` Gaussian, of `r = rank L = min(q, m - k)` rows. What they do not see
only counts through its Gram matrix, a Wishart matrix with `m - k - r` degrees of freedom, sampled
by Bartlett's triangular factor `T`. With `R` the triangular factor of `[z; T]`, the new block is
`L z R^{-1}`. New rows are new columns of the transpose, which is Haar distributed too.

Reference: M. L. Eaton, *Group invariance applications in statistics* (1989), chapter 7.
"""

from __future__ import annotations

import numpy as np

__all__ = ["ZERO_PIVOT", "HaarBlock", "bartlett_factor", "grow_gaussian", "semidefinite_cholesky"]

ZERO_PIVOT = 1e-10


class HaarBlock:
    """The upper left corner of a Haar orthogonal matrix of a given size, grown on demand.

    Args:
        size: number of rows (and columns) of the orthogonal matrix.

    Example:
        >>> block = HaarBlock(6)
        >>> corner = block.grow(6, 4, np.random.default_rng(0))
        >>> bool(np.allclose(corner.T @ corner, np.eye(4)))
        True
        >>> bool(np.all(block.grow(6, 6, np.random.default_rng(1))[:, :4] == corner))
        True
    """

    def __init__(self, size: int) -> None:
        """Nothing is known at first."""
        if size < 0:
            raise ValueError(f"`size` must be non-negative; got {size}")
        self.size = size
        self._block = np.zeros((0, 0))

    def grow(self, rows: int, columns: int, generator: np.random.Generator) -> np.ndarray:
        """The corner of shape `(rows, columns)`; what was known of it does not change.

        Args:
            rows: number of rows, at most the size.
            columns: number of columns, at most the size.
            generator: source of the entries that are new.

        Returns:
            Array of shape `(rows, columns)`.

        Raises:
            ValueError: if the corner is larger than the matrix.
        """
        if rows > self.size or columns > self.size:
            raise ValueError(
                f"`rows` and `columns` must be at most the size {self.size}; got {rows}, {columns}"
            )
        have_rows, have_columns = self._block.shape
        if columns > have_columns:
            new = _next_columns(self._block, columns - have_columns, self.size, generator)
            self._block = np.hstack([self._block, new])
        if rows > have_rows:
            new = _next_columns(self._block.T, rows - have_rows, self.size, generator)
            self._block = np.vstack([self._block, new.T])
        return self._block[:rows, :columns]


def bartlett_factor(degrees: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Triangular `T` such that `T^T T` has the law of `G^T G`, `G` Gaussian of `degrees` rows.

    Args:
        degrees: number of rows of `G`, zero included.
        count: number of columns of `G`.
        generator: source of randomness.

    Returns:
        Array of shape `(min(degrees, count), count)`: the square root of a chi-square of
        `degrees - i` degrees of freedom on the diagonal, standard Gaussians above, zeros below.
    """
    rows = int(min(degrees, count))
    factor = np.triu(generator.standard_normal((rows, count)), 1)
    index = np.arange(rows)
    factor[index, index] = np.sqrt(generator.chisquare(degrees - index))
    return factor


def semidefinite_cholesky(matrix: np.ndarray, max_rank: int) -> np.ndarray:
    """Lower triangular factor of a positive semidefinite matrix, without its zero columns.

    The factor of an upper left corner is the corner of the factor, so that what was sampled with
    the factor of a corner stays when the corner grows.

    Args:
        matrix: symmetric, shape `(q, q)`, with diagonal at most one.
        max_rank: a bound of its rank; what rounding leaves after that many pivots is not one.

    Returns:
        Array of shape `(q, r)`, `r` the rank.
    """
    size = matrix.shape[0]
    factor = np.zeros((size, size))
    rank = 0
    for i in range(size):
        if rank == max_rank:
            break
        row = factor[i, :rank]
        pivot = matrix[i, i] - row @ row
        if pivot <= ZERO_PIVOT:
            continue
        column = matrix[i:, i] - factor[i:, :rank] @ row
        factor[i:, rank] = column / np.sqrt(pivot)
        rank += 1
    return factor[:, :rank]


def grow_gaussian(
    block: np.ndarray, rows: int, columns: int, generator: np.random.Generator
) -> np.ndarray:
    """Add Gaussian rows and columns to a block until it has at least the given shape.

    Args:
        block: shape `(q, k)`.
        rows: least number of rows.
        columns: least number of columns.
        generator: source of the new entries.

    Returns:
        Array of shape `(max(q, rows), max(k, columns))` with `block` in its upper left corner.
    """
    have_rows, have_columns = block.shape
    if columns > have_columns:
        block = np.hstack([block, generator.standard_normal((have_rows, columns - have_columns))])
    if rows > have_rows:
        block = np.vstack([block, generator.standard_normal((rows - have_rows, block.shape[1]))])
    return block


def _next_columns(
    block: np.ndarray, count: int, size: int, generator: np.random.Generator
) -> np.ndarray:
    """The next `count` columns of a Haar matrix, in the rows of `block`; shape `(q, count)`."""
    rows, known = block.shape
    if rows == 0:
        return np.zeros((0, count))
    rank = min(rows, size - known)
    z = generator.standard_normal((rows, count))
    left, singular, _ = np.linalg.svd(block, full_matrices=False)
    # `rows - rank` singular values are one: the rows see nothing of the complement there.
    blind = left[:, : rows - rank]
    z -= blind @ (blind.T @ z)
    unseen = bartlett_factor(size - known - rank, count, generator)
    _, factor = np.linalg.qr(np.vstack([z, unseen]))
    factor *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)[:, None]
    # L = (I - B B^T)^(1/2), applied through the singular vectors of B.
    shrink = 1.0 - np.sqrt(np.clip(1.0 - singular**2, 0.0, None))
    seen = z - left @ (shrink[:, None] * (left.T @ z))
    return np.linalg.solve(factor.T, seen.T).T
