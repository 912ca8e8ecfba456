r"""Neuron spaces: where the vectors of a layer of any width live.

The activations of a layer of `m` neurons are vectors of `R^m` with the inner product

    <a, b> = (1/m) sum_i a_i b_i,

so that a vector of i.i.d. unit-variance entries has length close to one. A space keeps an
orthonormal basis `e_1, ..., e_k` of the vectors met so far, and every vector is known by its
coordinates in that basis. The basis itself is implicit: its direction in `R^m` is uniform (Haar),
independent of all coordinates, and only read by `NeuronSpace.rows`. What a program needs are
coordinates of fresh random vectors: with Gaussian entries they are `N(0, 1/m)` on the basis vectors
already known, and of length `chi_{m-k} / sqrt(m)` along one new basis vector; at infinite width,
one on the new vector and zero elsewhere.

References: "Infinite-width limit of deep linear neural networks" (L), (2.7), (2.12), (2.13) and
remark v; `docs/random-matrices.md`.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from scalinglimits.matrices._anchors import Anchors
from scalinglimits.matrices._neurons import FiniteNeurons, InfiniteNeurons
from scalinglimits.matrices.haar_blocks import bartlett_factor

__all__ = ["MAX_WIDTH", "EntryLaw", "NeuronSpace"]

MAX_WIDTH = 10**18


class EntryLaw(Protocol):
    """A law of centred, unit-variance entries, such as those of `scalinglimits.laws`."""

    def sample(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        """Draw i.i.d. entries: an array of that shape."""


class NeuronSpace:
    """The vectors of a layer of `width` neurons, in coordinates.

    A vector is an array of at most `dimension` coordinates; missing ones are zero, so vectors
    made early stay valid as the dimension grows. A block of vectors is a `(k, c)` array, one
    vector a column.

    Args:
        width: number of neurons, from 1 to 10^18, or `math.inf`.
        generator: a NumPy generator or an integer seed. Needed at finite width, and to read
            actual weights at infinite width. Two spaces with the same seed would draw the same
            numbers: give them different seeds, or one generator.
        explicit: the coordinates are the neurons' values divided by the square root of the width,
            so that `dimension` is the width at once. Needed by `DenseMatrix`.
        relative_width: at infinite width, the limit of the ratio of this space's width to the
            others'. At finite width it is the width.

    Raises:
        TypeError: if `width` is not an integer or `math.inf`.
        ValueError: if an argument is out of range.

    Example:
        >>> space = NeuronSpace(math.inf)
        >>> space.draw(2)
        array([[1., 0.],
               [0., 1.]])
        >>> finite = NeuronSpace(10**12, generator=0)
        >>> finite.draw(2).round(4) + 0.0
        array([[1., 0.],
               [0., 1.]])
    """

    def __init__(
        self,
        width: float,
        *,
        generator: np.random.Generator | int | None = None,
        explicit: bool = False,
        relative_width: float | None = None,
    ) -> None:
        """Start with no vector known, or in an explicit space with all neurons."""
        self.width = _checked_width(width)
        self.is_finite = self.width != math.inf
        if self.is_finite and generator is None:
            raise ValueError(
                "`generator` must be a NumPy generator or a seed at finite width; got None"
            )
        if explicit and not self.is_finite:
            raise ValueError("`explicit` must be False at infinite width; got True")
        self.relative_width = _checked_relative_width(self.width, relative_width)
        self.explicit = explicit
        self.dimension = int(self.width) if explicit else 0
        self.generator: np.random.Generator | None = None
        self._neurons: FiniteNeurons | InfiniteNeurons | None = None
        self._row_generator: np.random.Generator | None = None
        if generator is not None:
            self.generator = np.random.default_rng(generator)
            # Reading weights must not change what is drawn later: it has its own stream.
            self._row_generator = child_generator(self.generator)
        self._root = math.sqrt(self.width)
        self._anchors = Anchors(int(self.width)) if self.is_finite and not explicit else None
        self._laws: dict[int, EntryLaw] = {}

    def __repr__(self) -> str:
        """Width and number of basis vectors."""
        return f"NeuronSpace(width={self.width}, dimension={self.dimension})"

    def draw(
        self,
        count: int = 1,
        entries: EntryLaw | None = None,
        *,
        generator: np.random.Generator | None = None,
    ) -> np.ndarray:
        """Coordinates of fresh vectors with i.i.d. entries of unit variance.

        Independent of all that was drawn before. From an empty space, `count` Gaussian vectors
        are Bartlett's triangular factor, and the identity at infinite width (L, 2.7).

        Args:
            count: how many vectors.
            entries: law of the entries; `None` is the standard Gaussian. Another law is exact at
                every width it accepts: at finite width the vectors are sampled in full, block by
                block, so the work is proportional to the width.
            generator: source of randomness; `None` is the space's own.

        Returns:
            Array of shape `(dimension, count)`, the dimension being that after the draw.

        Raises:
            ValueError: if `count` is negative, if a law other than the Gaussian is asked for at
                a width too large to sample, or after the space's rows have been read.
        """
        if count < 0:
            raise ValueError(f"`count` must be non-negative; got {count}")
        if not self.is_finite:
            return self._draw_infinite(count, entries)
        source = self.generator if generator is None else generator
        assert source is not None
        if self.explicit:
            shape = (self.dimension, count)
            if entries is None:
                return source.standard_normal(shape) / self._root
            return np.asarray(entries.sample(shape, source), dtype=np.float64) / self._root
        if entries is not None:
            return self._draw_law(count, entries, source)
        return self._draw_gaussian(count, source)

    def pad(self, vectors: np.ndarray) -> np.ndarray:
        """A copy of the vectors with `dimension` coordinates, the missing ones zero.

        Args:
            vectors: shape `(k,)` or `(k, c)` with `k` at most `dimension`.

        Returns:
            Array of shape `(dimension,)` or `(dimension, c)`.

        Raises:
            ValueError: if the vectors have more coordinates than the space.
        """
        vectors = self.coordinates(vectors)
        padded = np.zeros((self.dimension, *vectors.shape[1:]))
        padded[: vectors.shape[0]] = vectors
        return padded

    def inner(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Inner products `<a, b> = (1/m) sum_i a_i b_i` of vectors or of the columns of blocks.

        Args:
            left: shape `(k,)` or `(k, c)`.
            right: shape `(l,)` or `(l, d)`.

        Returns:
            Scalar, or array of shape `(c,)`, `(d,)` or `(c, d)`.
        """
        left, right = self.coordinates(left), self.coordinates(right)
        common = min(left.shape[0], right.shape[0])
        return left[:common].T @ right[:common]

    def coordinates(self, vectors: np.ndarray) -> np.ndarray:
        """Check that an array can hold coordinates of this space's vectors.

        Args:
            vectors: shape `(k,)` or `(k, c)` with `k` at most `dimension`.

        Returns:
            The same array, in double precision.

        Raises:
            ValueError: if it has another number of axes, or too many coordinates.
        """
        array = np.asarray(vectors, dtype=np.float64)
        if array.ndim not in (1, 2) or array.shape[0] > self.dimension:
            raise ValueError(
                f"`vectors` must have shape (k,) or (k, c) with k at most the dimension "
                f"{self.dimension}; got {array.shape}"
            )
        return array

    def rows(self, count: int) -> np.ndarray:
        """Entries of the basis vectors at the first `count` neurons.

        The entries of a vector of coordinates `c` at those neurons are `rows @ c`. Reading is
        consistent: more rows later, or more basis vectors, leave what was read as it is.

        Args:
            count: number of neurons, at most the width.

        Returns:
            Array of shape `(count, dimension)`.

        Raises:
            ValueError: if there are fewer neurons, or the space has no generator.
        """
        if count < 0 or count > self.width:
            raise ValueError(f"`count` must be between 0 and the width {self.width}; got {count}")
        if self.explicit:
            return self._root * np.eye(count, self.dimension)
        if self._row_generator is None:
            raise ValueError(
                "`generator` must be given to the space before weights are read; got None"
            )
        if self._neurons is None:
            if self._anchors is not None:
                self._neurons = FiniteNeurons(int(self.width), self._anchors)
            else:
                self._neurons = InfiniteNeurons(self._laws)
        return self._neurons.rows(count, self.dimension, self._row_generator)

    def _draw_infinite(self, count: int, entries: EntryLaw | None) -> np.ndarray:
        first = self.dimension
        self.dimension += count
        block = np.zeros((self.dimension, count))
        for i in range(count):
            block[first + i, i] = 1.0
            if entries is not None:
                self._laws[first + i] = entries
        return block

    def _draw_gaussian(self, count: int, generator: np.random.Generator) -> np.ndarray:
        known = self.dimension
        hidden = bartlett_factor(int(self.width) - known, count, generator)
        self.dimension += hidden.shape[0]
        block = np.empty((self.dimension, count))
        block[:known] = generator.standard_normal((known, count))
        block[known:] = hidden
        block /= self._root
        return block

    def _draw_law(
        self, count: int, entries: EntryLaw, generator: np.random.Generator
    ) -> np.ndarray:
        if self._neurons is not None:
            raise ValueError(
                "`entries` must be None once weights of a space of finite width have been read; "
                f"got {entries!r}"
            )
        assert self._anchors is not None
        block, self.dimension = self._anchors.draw(count, entries, self.dimension, generator)
        return block


def child_generator(generator: np.random.Generator) -> np.random.Generator:
    """An independent stream seeded from a generator of any kind."""
    return np.random.default_rng(generator.integers(0, 2**63, size=4).tolist())


def _checked_width(width: float) -> float:
    if isinstance(width, float) and math.isinf(width) and width > 0:
        return math.inf
    if isinstance(width, bool) or not isinstance(width, int | np.integer):
        raise TypeError(f"`width` must be an integer or math.inf; got {width!r}")
    if not 1 <= width <= MAX_WIDTH:
        raise ValueError(f"`width` must be between 1 and 10**18, or math.inf; got {width}")
    return int(width)


def _checked_relative_width(width: float, relative_width: float | None) -> float:
    if width != math.inf:
        if relative_width is not None:
            raise ValueError(
                f"`relative_width` must be None at finite width; got {relative_width!r}"
            )
        return float(width)
    if relative_width is None:
        return 1.0
    if not (0.0 < relative_width < math.inf):
        raise ValueError(f"`relative_width` must be positive and finite; got {relative_width!r}")
    return float(relative_width)
