"""Growing column storage for coordinates of vectors of a neuron space.

Appending a column or a coordinate must not copy what is there, so capacity doubles and the unused
part stays zero: a view with more rows than a column had when it was appended is the same vector,
padded with zeros.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Columns"]

_FIRST_CAPACITY = 32


class Columns:
    """A list of vectors of growing length, stored as the columns of one array.

    Example:
        >>> columns = Columns()
        >>> columns.append(np.array([1.0, 2.0]))
        >>> columns.view(3)
        array([[1.],
               [2.],
               [0.]])
    """

    __slots__ = ("_data", "count")

    def __init__(self) -> None:
        """Start empty."""
        self._data = np.zeros((_FIRST_CAPACITY, _FIRST_CAPACITY), order="F")
        self.count = 0

    def view(self, rows: int) -> np.ndarray:
        """The stored columns as a `(rows, count)` array; not a copy.

        Args:
            rows: at least the length of the longest column.
        """
        if rows > self._data.shape[0]:
            self._reserve(rows, self.count)
        return self._data[:rows, : self.count]

    def append(self, column: np.ndarray) -> None:
        """Add one column.

        Args:
            column: shape `(k,)`.
        """
        rows = column.shape[0]
        if rows > self._data.shape[0] or self.count == self._data.shape[1]:
            self._reserve(rows, self.count + 1)
        self._data[:rows, self.count] = column
        self.count += 1

    def _reserve(self, rows: int, columns: int) -> None:
        old = self._data
        shape = tuple(
            have if have >= want else max(2 * have, want)
            for have, want in zip(old.shape, (rows, columns), strict=True)
        )
        self._data = np.zeros(shape, order="F")
        self._data[: old.shape[0], : old.shape[1]] = old
