r"""Vectors with non-Gaussian entries in a space of finite width.

Vectors of a law that is not invariant under rotations tie the implicit basis of a space to its
neurons. Let `V = [v_1 ... v_s]` be all such vectors, and `N = V M` orthonormal, with coordinates
`C`. All other known vectors are uniform in what is orthogonal to `N`. So a new vector `v` of actual
entries has coordinates

    C <N, v> + rho t,    rho^2 = <v, v> - |<N, v>|^2,

with `t` a uniform direction orthogonal to `C`, among `m - s` dimensions of which `k - s` are known.
The vectors themselves are never kept: they are sampled again, block of rows by block of rows, from
their seeds.

Reference: "Infinite-width limit of deep linear neural networks" (L), remark v.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MAX_SAMPLED_ENTRIES", "Anchors"]

MAX_SAMPLED_ENTRIES = 10**9
_BLOCK_ROWS = 2**16
_DEPENDENT = 1e-10


class _Draw(NamedTuple):
    law: Any
    vectors: int
    seed: int


class Anchors:
    """Orthonormal vectors whose entries are known exactly, and their coordinates.

    Args:
        width: number of neurons.
    """

    def __init__(self, width: int) -> None:
        """No vector at first."""
        self.width = width
        self.directions = np.zeros((0, 0))
        self._mix = np.zeros((0, 0))
        self._draws: list[_Draw] = []

    @property
    def count(self) -> int:
        """Dimension of the span of the vectors drawn."""
        return self._mix.shape[1]

    def draw(
        self, count: int, law: Any, dimension: int, generator: np.random.Generator
    ) -> tuple[np.ndarray, int]:
        """Coordinates of `count` new vectors.

        Args:
            count: how many vectors.
            law: law of their entries.
            dimension: number of basis vectors known to the space.
            generator: source of randomness.

        Returns:
            Array of shape `(new dimension, count)`, and the new dimension.

        Raises:
            ValueError: if that takes too many samples, or the law gives no finite numbers.
        """
        before = self._mix.shape[0]
        if self.width * (before + count) > MAX_SAMPLED_ENTRIES:
            raise ValueError(
                "`entries` must be None (Gaussian) when width times number of vectors exceeds "
                f"{MAX_SAMPLED_ENTRIES}; got width {self.width} and {before + count} vectors"
            )
        self._draws.append(_Draw(law, count, int(generator.integers(0, 2**63))))
        gram = self._gram()
        block = np.zeros((dimension + count, count))
        for i in range(count):
            column, dimension = self._add(gram[: before + i + 1, before + i], dimension, generator)
            block[: column.shape[0], i] = column
        return block[:dimension], dimension

    def rows(self, count: int) -> np.ndarray:
        """Entries of the orthonormal vectors at the first neurons, over the root of the width.

        Args:
            count: number of neurons.

        Returns:
            Array of shape `(count, self.count)`.
        """
        blocks = [self._block(start) for start in range(0, count, _BLOCK_ROWS)]
        sampled = np.vstack(blocks)[:count] if blocks else np.zeros((0, self._mix.shape[0]))
        return sampled @ self._mix / math.sqrt(self.width)

    def _add(
        self, products: np.ndarray, dimension: int, generator: np.random.Generator
    ) -> tuple[np.ndarray, int]:
        """Coordinates of one vector, given its inner products with all before it and itself."""
        known, independent = products[:-1], self.count
        along = self._mix.T @ known
        rest = float(products[-1] - along @ along)
        coordinates = self.directions @ along
        self._mix = np.vstack([self._mix, np.zeros((1, independent))])
        if rest <= _DEPENDENT * max(1.0, float(products[-1])) or independent == self.width:
            return coordinates, dimension
        length = math.sqrt(rest)
        direction = self._uniform_direction(dimension, generator)
        dimension = direction.shape[0]
        combination = np.append(-(self._mix[:-1] @ along), 1.0) / length
        self._mix = np.column_stack([self._mix, combination])
        padded = np.zeros((dimension, independent + 1))
        padded[: self.directions.shape[0], :independent] = self.directions
        padded[:, independent] = direction
        self.directions = padded
        out = length * direction
        out[: coordinates.shape[0]] += coordinates
        return out, dimension

    def _uniform_direction(self, dimension: int, generator: np.random.Generator) -> np.ndarray:
        """Uniform among what is orthogonal to the anchors; may use one new basis vector."""
        direction = np.zeros(dimension + (dimension < self.width))
        if dimension > self.count:
            known = generator.standard_normal(dimension)
            length = self.directions.shape[0]
            for _ in range(2):
                known[:length] -= self.directions @ (self.directions.T @ known[:length])
            direction[:dimension] = known
        if dimension < self.width:
            direction[dimension] = math.sqrt(generator.chisquare(self.width - dimension))
        return direction / np.linalg.norm(direction)

    def _gram(self) -> np.ndarray:
        total = 0.0
        for start in range(0, self.width, _BLOCK_ROWS):
            block = self._block(start)
            total = total + block.T @ block
        return np.asarray(total) / self.width

    def _block(self, start: int) -> np.ndarray:
        """Entries of all vectors at the neurons from `start`, sampled again from their seeds."""
        size = min(_BLOCK_ROWS, self.width - start)
        parts = []
        for draw in self._draws:
            generator = np.random.default_rng([draw.seed, start // _BLOCK_ROWS])
            sampled = draw.law.sample((size, draw.vectors), generator)
            parts.append(np.asarray(sampled, dtype=np.float64))
        return np.hstack(parts)
