r"""The explicit form: one random hidden matrix as a banded one, at any width.

Ask a Gaussian matrix `Z` for `Z e_1`, `Z^T f_1`, `Z e_2`, `Z^T f_2`, ..., where `e_1, ..., e_d`
span the columns of `U(0)`, `f_1, ..., f_o` those of `V(0)`, and every answer brings one new vector,
the next `e` or `f`. In the two bases the answers are a matrix Lambda with independent entries in a
band,

    Lambda_{j+o, j} = chi_{m_1-o-j+1} / sqrt(m_1),      (what is new in Z e_j)
    Lambda_{i, i+d} = chi_{m_0-d-i+1} / sqrt(m_1),      (what is new in Z^T f_i)
    Lambda_{ij} ~ N(0, 1/m_1)  between them,  zero outside,

until a space is exhausted. So a finite network is the recursion (2.10) with this random Lambda, in
law exactly, and at infinite width it is the matrix of (2.9). Coordinates far down the band are tiny
(L, footnote 5): the band is cut where they are below the square root of the tolerance, which leaves
an error of about the tolerance.

Reference: "Infinite-width limit of deep linear neural networks" (L), (2.7) to (2.10);
`docs/linear.md`.
"""

from __future__ import annotations

__all__ = ["Band", "band_limit", "band_matrix", "first_vectors"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._streams import BAND, stream
from ._validate import check_count
from .network import LinearNetwork


@dataclass(frozen=True)
class Band:
    """Sizes of the explicit form of a network with one hidden matrix.

    Attributes:
        rows: number of basis vectors `f_i` that are kept.
        columns: number of basis vectors `e_j` that are kept.
        inputs: number `min(d, m_0)` of vectors of `U(0)`.
        outputs: number `min(o, m_1)` of vectors of `V(0)`.
        exhausted: whether these are all vectors there are, so that nothing is cut.
    """

    rows: int
    columns: int
    inputs: int
    outputs: int
    exhausted: bool


def band_limit(network: LinearNetwork, size: int) -> Band:
    """Sizes of the explicit form, cut at about `size` basis vectors.

    Args:
        network: a network with one hidden matrix.
        size: number of rows and columns.

    Returns:
        The sizes.
    """
    m0, m1 = network.widths
    inputs = int(min(network.in_features, m0))
    outputs = int(min(network.out_features, m1))
    # Each side grows only as long as the other one asks.
    most_columns = min(m0, m1 + inputs)
    most_rows = min(m1, most_columns + outputs)
    most_columns = min(most_columns, most_rows + inputs)
    columns, rows = int(min(size, most_columns)), int(min(size, most_rows))
    return Band(rows, columns, inputs, outputs, size >= max(most_columns, most_rows))


def band_matrix(network: LinearNetwork, size: int, seed: int | None = None) -> np.ndarray:
    """The matrix Lambda, `Z / sqrt(m_0)` in the two bases.

    Args:
        network: a network with one hidden Gaussian matrix.
        size: number of rows and columns; at small width there may be fewer.
        seed: seed of the entries; not needed at infinite width.

    Returns:
        Array of shape `(rows, columns)`.

    Raises:
        ValueError: if a seed is missing at finite width.

    Example:
        >>> band_matrix(LinearNetwork(2), 4)
        array([[0., 0., 1., 0.],
               [1., 0., 0., 1.],
               [0., 1., 0., 0.],
               [0., 0., 1., 0.]])
        >>> finite = band_matrix(LinearNetwork(2, width=10**12), 4, seed=0)
        >>> bool(np.max(np.abs(finite - band_matrix(LinearNetwork(2), 4))) < 1e-5)
        True
    """
    size = check_count("size", size, 1)
    band = band_limit(network, size)
    d, o = band.inputs, band.outputs
    m0, m1 = network.ratios
    # Room for the whole band of all rows; what is outside is cut off at the end.
    length = max(band.rows, band.columns)
    full = np.zeros((length + o, length + d))
    index = np.arange(length)
    if not network.is_finite:
        full[index + o, index] = 1.0
        full[index, index + d] = math.sqrt(m0 / m1)
        return full[: band.rows, : band.columns].copy()
    # Streams of their own, drawn in the order of the rows, so that a longer band goes on.
    inside, lower, upper = (_generator(seed, part) for part in range(3))
    columns = index[:, None] + np.arange(1 - o, d)
    rows = np.broadcast_to(index[:, None], columns.shape)
    used = columns >= 0
    full[rows[used], columns[used]] = inside.standard_normal(columns.shape)[used]
    full[index + o, index] = np.sqrt(lower.chisquare(np.maximum(m1 - o - index, 1.0)))
    full[index, index + d] = np.sqrt(upper.chisquare(np.maximum(m0 - d - index, 1.0)))
    full /= math.sqrt(m1)
    return full[: band.rows, : band.columns].copy()


def first_vectors(
    network: LinearNetwork, size: int, seed: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The arrays `A(0)` and `B(0)` (L, 2.7), triangular and random at finite width.

    Args:
        network: a network with one hidden matrix.
        size: as in `band_matrix`.
        seed: seed of the entries; not needed at infinite width.

    Returns:
        Arrays of shape `(columns, d)` and `(rows, o)`.
    """
    band = band_limit(network, size)
    sizes: Sequence[tuple[int, int, float]] = (
        (band.columns, network.in_features, network.widths[0]),
        (band.rows, network.out_features, network.widths[1]),
    )
    out = []
    for side, (length, count, width) in enumerate(sizes):
        array = np.zeros((length, count))
        if network.is_finite:
            generator = _generator(seed, 3 + side)
            k = int(min(count, width))
            corner = np.triu(generator.standard_normal((k, count)), 1)
            index = np.arange(k)
            corner[index, index] = np.sqrt(generator.chisquare(width - index))
            array[:k] = (corner / math.sqrt(width))[:length]
        else:
            array[:count] = np.eye(count)[:length]
        out.append(array)
    return out[0], out[1]


def _generator(seed: int | None, part: int) -> np.random.Generator:
    if seed is None:
        raise ValueError("`seed` must be given at finite width; got None")
    generator = stream(seed, BAND, part)
    assert generator is not None
    return generator
