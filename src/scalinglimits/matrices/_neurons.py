r"""Actual weights of the first neurons, read from an implicit basis.

At infinite width the basis vectors have independent entries, Gaussian or of the law they were
drawn with (L, 2.12 and remark v). At finite width they are `sqrt(m)` times a Haar frame, given
the vectors of non-Gaussian law: with `N` the rows of those, `C` their coordinates and `D` an
orthonormal basis of the coordinates orthogonal to `C`,

    rows / sqrt(m) = N C^T + S W D^T,    S S^T = I - N N^T,

where `W` is the corner of a Haar matrix of size `m - s`. `S` is lower triangular, so that more rows
later change nothing above.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scalinglimits.matrices._anchors import Anchors
from scalinglimits.matrices.haar_blocks import ZERO_PIVOT, HaarBlock

__all__ = ["FiniteNeurons", "InfiniteNeurons"]


class InfiniteNeurons:
    """Rows of independent entries.

    Args:
        laws: law of the entries of some basis vectors; the others are Gaussian.
    """

    def __init__(self, laws: dict[int, Any]) -> None:
        """Nothing is read at first."""
        self._laws = laws
        self._rows = np.zeros((0, 0))

    def rows(self, count: int, dimension: int, generator: np.random.Generator) -> np.ndarray:
        """Entries of the first `dimension` basis vectors at the first `count` neurons."""
        have_rows, have_columns = self._rows.shape
        if dimension > have_columns:
            new = self._sample(have_rows, have_columns, dimension, generator)
            self._rows = np.hstack([self._rows, new])
        if count > have_rows:
            new = self._sample(count - have_rows, 0, self._rows.shape[1], generator)
            self._rows = np.vstack([self._rows, new])
        return self._rows[:count, :dimension]

    def _sample(
        self, count: int, start: int, stop: int, generator: np.random.Generator
    ) -> np.ndarray:
        block = generator.standard_normal((count, stop - start))
        for column in range(start, stop):
            law = self._laws.get(column)
            if law is not None:
                block[:, column - start] = law.sample((count, 1), generator)[:, 0]
        return block


class FiniteNeurons:
    """Rows of a Haar frame, some directions of which have known entries.

    Args:
        width: number of neurons.
        anchors: the vectors of known entries; no more may be added.
    """

    def __init__(self, width: int, anchors: Anchors) -> None:
        """Nothing is read at first."""
        self._root = math.sqrt(width)
        self._anchors = anchors
        self._block = HaarBlock(width - anchors.count)

    def rows(self, count: int, dimension: int, generator: np.random.Generator) -> np.ndarray:
        """Entries of the first `dimension` basis vectors at the first `count` neurons."""
        if self._anchors.count == 0:
            return self._root * self._block.grow(count, dimension, generator)
        known = self._anchors.rows(count)
        directions = np.zeros((dimension, self._anchors.count))
        directions[: self._anchors.directions.shape[0]] = self._anchors.directions
        others = _complement(directions, self._anchors.directions.shape[0])
        corner = self._block.grow(
            min(count, self._block.size), min(others.shape[1], self._block.size), generator
        )
        return self._root * (known @ directions.T + _apply_factor(known, corner) @ others.T)


def _apply_factor(known: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """The product `S W`, `S` the lower triangular factor of `I - N N^T`, in one pass over the rows.

    After the pivots above a row `n_i`, what remains of the matrix is `I - N K N^T` below. Rows that
    have nothing left have a zero pivot; `S` has no column for them.

    Args:
        known: the rows `N`, shape `(q, s)`.
        corner: `W`, with at least as many rows as `S` has columns.

    Returns:
        Array of shape `(q, c)`.
    """
    count, span = known.shape
    out = np.zeros((count, corner.shape[1]))
    remaining = np.eye(span)
    carried = np.zeros((span, corner.shape[1]))
    rank = 0
    for i in range(count):
        row = known[i]
        out[i] = -(row @ carried)
        image = remaining @ row
        pivot = 1.0 - row @ image
        if pivot <= ZERO_PIVOT or rank == corner.shape[0]:
            continue
        root = math.sqrt(pivot)
        out[i] += root * corner[rank]
        carried += np.outer(image, corner[rank] / root)
        remaining += np.outer(image, image / pivot)
        rank += 1
    return out


def _complement(directions: np.ndarray, support: int) -> np.ndarray:
    """Orthonormal basis of what is orthogonal to columns that vanish from row `support` on.

    Its first columns depend on those rows only, so that it grows without changing.
    """
    dimension, count = directions.shape
    basis = np.zeros((dimension, dimension - count))
    full, _ = np.linalg.qr(directions[:support], mode="complete")
    inside = support - count
    basis[:support, :inside] = full[:, count:]
    index = np.arange(dimension - support)
    basis[support + index, inside + index] = 1.0
    return basis
