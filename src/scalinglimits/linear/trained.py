r"""The trained part of a hidden matrix, in coordinates.

Every step of descent adds an outer product. While there are few of them against the dimensions,
they are kept as they are (a deep network has many directions and few steps); after that an array is
cheaper. With heavy-ball momentum, the velocity is another combination of the same products.
"""

from __future__ import annotations

__all__ = ["TrainedMatrix", "add_outer", "add_product", "grown", "outer", "padded"]

import numpy as np


class TrainedMatrix:
    """A sum of outer products of coordinate vectors, kept as factors or as an array.

    Vectors of different lengths belong together: missing coordinates are zero.

    Args:
        momentum: of heavy-ball momentum.

    Example:
        >>> matrix = TrainedMatrix()
        >>> matrix.move(np.array([1.0, 2.0]), np.array([3.0]), 0.5)
        >>> matrix.dense((2, 2))
        array([[1.5, 0. ],
               [3. , 0. ]])
    """

    __slots__ = (
        "_array",
        "_coefficients",
        "_gram",
        "_left",
        "_momentum",
        "_right",
        "_speeds",
        "_velocity",
    )

    def __init__(self, momentum: float = 0.0) -> None:
        """Zero at first."""
        self._momentum = momentum
        self._array: np.ndarray | None = None
        self._velocity = np.zeros((0, 0))
        self._left = np.zeros((0, 0), order="F")
        self._right = np.zeros((0, 0), order="F")
        # Inner products of the outer products, to know the norm of their sum.
        self._gram = np.zeros((0, 0))
        self._coefficients = np.zeros(0)
        self._speeds = np.zeros(0)

    @property
    def square(self) -> float:
        """The sum of all squared coordinates."""
        if self._array is None:
            t, c = len(self._coefficients), self._coefficients
            return max(float(c @ self._gram[:t, :t] @ c), 0.0)
        flat = self._array.ravel()
        return float(flat @ flat)

    def move(self, left: np.ndarray, right: np.ndarray, factor: float) -> None:
        """Add `factor left right^T`, or with momentum add it to the velocity, and that.

        Args:
            left: shape `(k,)` or `(k, c)`.
            right: shape `(l,)` or `(l, c)`.
            factor: the factor.
        """
        if self._array is None:
            self._append(left, right)
            fresh = len(self._coefficients) - len(self._speeds)
            self._speeds = np.append(self._momentum * self._speeds, [factor] * fresh)
            self._coefficients += self._speeds
            if 2 * len(self._speeds) > min(len(left), len(right)):
                self._become_dense()
        elif self._momentum == 0.0:
            self._array = add_outer(self._array, left, right, factor)
        else:
            self._velocity *= self._momentum
            self._velocity = add_outer(self._velocity, left, right, factor)
            self._array = grown(self._array, self._velocity.shape)
            part = tuple(slice(k) for k in self._velocity.shape)
            self._array[part] += self._velocity

    def add_product(self, vector: np.ndarray, out: np.ndarray, transpose: bool = False) -> None:
        """Add the product with a vector or a block, or that of the transpose, to `out`."""
        if self._array is not None:
            add_product(self._array, vector, out, transpose)
        elif len(self._coefficients):
            left, right = (self._right, self._left) if transpose else (self._left, self._right)
            t = len(self._coefficients)
            rows, columns = min(len(left), len(out)), min(len(right), len(vector))
            inner = right[:columns, :t].T @ vector[:columns]
            out[:rows] += left[:rows, :t] @ (inner.T * self._coefficients).T

    def dense(self, shape: tuple[int, int]) -> np.ndarray:
        """The array, with zeros added or without its end.

        Args:
            shape: the shape.

        Returns:
            A new array.
        """
        if self._array is not None:
            return padded(self._array, shape)
        return self._combination(shape, self._coefficients)

    def between(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The product `left W right^T`, for rows of coordinates.

        Args:
            left: shape `(p, k)`.
            right: shape `(q, l)`.

        Returns:
            Array of shape `(p, q)`.
        """
        out = np.zeros((left.shape[1], right.shape[0]))
        self.add_product(right.T, out)
        return left @ out

    def copy(self) -> TrainedMatrix:
        """A copy that does not change with this one."""
        other = TrainedMatrix(self._momentum)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, np.ndarray) else value)
        return other

    @classmethod
    def from_array(cls, array: np.ndarray) -> TrainedMatrix:
        """A matrix of given coordinates.

        Args:
            array: shape `(k, l)`.

        Returns:
            The matrix, which holds a copy.
        """
        out = cls()
        out._array = array.copy()
        return out

    def _append(self, left: np.ndarray, right: np.ndarray) -> None:
        columns, rows = (x[:, None] if x.ndim == 1 else x for x in (left, right))
        first = len(self._coefficients)
        t = first + columns.shape[1]
        self._left = grown(self._left, (len(left), t))
        self._right = grown(self._right, (len(right), t))
        self._left[: len(left), first:t] = columns
        self._right[: len(right), first:t] = rows
        products = self._left[: len(left), :t].T @ columns
        products *= self._right[: len(right), :t].T @ rows
        self._gram = grown(self._gram, (t, t))
        self._gram[:t, first:t] = products
        self._gram[first:t, :t] = products.T
        self._coefficients = np.append(self._coefficients, np.zeros(t - first))

    def _become_dense(self) -> None:
        shape = (self._left.shape[0], self._right.shape[0])
        self._array = self._combination(shape, self._coefficients)
        if self._momentum > 0.0:
            self._velocity = self._combination(shape, self._speeds)
        self._left = self._right = self._gram = np.zeros((0, 0))
        self._coefficients = self._speeds = np.zeros(0)

    def _combination(self, shape: tuple[int, int], coefficients: np.ndarray) -> np.ndarray:
        t = len(coefficients)
        left = padded(self._left[:, :t], (shape[0], t))
        right = padded(self._right[:, :t], (shape[1], t))
        return np.asarray((left * coefficients) @ right.T)


def add_product(
    array: np.ndarray, vector: np.ndarray, out: np.ndarray, transpose: bool = False
) -> None:
    """Add the product of an array, or of its transpose, with a vector or a block to `out`."""
    if transpose:
        array = array.T
    rows, columns = min(array.shape[0], len(out)), min(array.shape[1], len(vector))
    out[:rows] += array[:rows, :columns] @ vector[:columns]


def add_outer(array: np.ndarray, left: np.ndarray, right: np.ndarray, factor: float) -> np.ndarray:
    """Add `factor left right^T` in place, growing the array if it is too small."""
    array = grown(array, (left.shape[0], right.shape[0]))
    array[: left.shape[0], : right.shape[0]] += outer(left, right, factor)
    return array


def outer(left: np.ndarray, right: np.ndarray, factor: float) -> np.ndarray:
    """The product `factor left right^T` of vectors or blocks."""
    if left.ndim == 1:
        return np.multiply.outer(factor * left, right)
    return (factor * left) @ right.T


def padded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of exactly that shape, with zeros or without the end."""
    out = np.zeros(shape)
    part = tuple(slice(min(a, b)) for a, b in zip(array.shape, shape, strict=True))
    out[part] = array[part]
    return out


def grown(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array, or if it is smaller than that shape in some axis, a larger copy with zeros."""
    if all(have >= want for have, want in zip(array.shape, shape, strict=True)):
        return array
    # Room to grow, since the next product often brings a new vector.
    roomy = tuple(
        have if have >= want else want + want // 4 + 8
        for have, want in zip(array.shape, shape, strict=True)
    )
    out = np.zeros(roomy, order="F" if array.flags.f_contiguous else "C")
    out[tuple(slice(k) for k in array.shape)] = array
    return out
