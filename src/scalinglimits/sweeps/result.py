"""The record that a sweep returns: one entry a cell, as a table or as stacked arrays."""

from __future__ import annotations

__all__ = ["CellResult", "SweepError", "SweepResult"]

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalinglimits.sweeps.grid import canonical_json

if TYPE_CHECKING:
    import pandas as pd


class SweepError(RuntimeError):
    """A cell of a sweep failed; the message holds its configuration and its traceback."""


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class CellResult:
    """One cell and what came of it.

    Attributes:
        config: The configuration.
        replicate: Index of the replicate.
        seed: The seed that the function got.
        status: `"done"`, `"failed"`, or `"pending"` in a store whose sweep was interrupted.
        error: The traceback of a failed cell, else None.
        seconds: Run time; None while pending.
        values: What the function returned, name to number, string, boolean, None or array.
    """

    config: Mapping[str, Any]
    replicate: int
    seed: int
    status: str
    error: str | None
    seconds: float | None
    values: Mapping[str, Any]


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class SweepResult:
    """All cells of a sweep, in the grid's order.

    Attributes:
        name: The sweep's name in its store.
        function: Qualified name of the function.
        seed: The root seed.
        cells: One record a cell.

    Example:
        >>> from scalinglimits.sweeps import sweep
        >>> def power(base, exponent, seed):
        ...     return {"value": base**exponent}
        >>> result = sweep(power, {"base": [2, 3], "exponent": [1, 2, 3]})
        >>> result.array("value")[..., 0]
        array([[ 2,  4,  8],
               [ 3,  9, 27]])
        >>> result.axes["exponent"]
        (1, 2, 3)
    """

    name: str
    function: str
    seed: int
    cells: tuple[CellResult, ...]

    @property
    def failed(self) -> tuple[CellResult, ...]:
        """The cells that failed."""
        return tuple(cell for cell in self.cells if cell.status == "failed")

    @property
    def pending(self) -> tuple[CellResult, ...]:
        """The cells that have not run: empty unless the sweep was interrupted."""
        return tuple(cell for cell in self.cells if cell.status == "pending")

    def raise_if_failed(self) -> None:
        """Raise if any cell failed.

        Raises:
            SweepError: With the number of failed cells and the first one's traceback.
        """
        failed = self.failed
        if failed:
            raise SweepError(
                f"{len(failed)} of {len(self.cells)} cells of the sweep {self.name!r} failed; "
                f"the first with {dict(failed[0].config)}, replicate {failed[0].replicate}:\n"
                f"{failed[0].error}"
            )

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The axes of a product grid: each name's values, and last the replicates.

        Raises:
            ValueError: If the cells are not a full product.
        """
        return {name: tuple(values.values()) for name, values in self._labels().items()}

    def array(self, name: str) -> np.ndarray:
        """Stack one result over the grid.

        Args:
            name: Name of a result, the same shape in every cell.

        Returns:
            Array of shape (values of the first name, ..., values of the last name, replicates)
            followed by the shape of the result.

        Raises:
            KeyError: If a cell has no result of this name.
            ValueError: If the cells are not a full product, some have not succeeded, or the
                result's shape is not the same everywhere.
        """
        labels = self._labels()
        unfinished = len(self.failed) + len(self.pending)
        if unfinished:
            raise ValueError(
                f"every cell must be done to stack them; got {len(self.failed)} failed and "
                f"{len(self.pending)} pending of {len(self.cells)}"
            )
        for cell in self.cells:
            if name not in cell.values:
                raise KeyError(f"`name` must be one of {list(cell.values)}; got {name!r}")
        entries = [np.asarray(cell.values[name]) for cell in self.cells]
        shapes = sorted({entry.shape for entry in entries})
        if len(shapes) > 1:
            raise ValueError(f"{name!r} must have one shape in all cells; got {shapes}")
        # The cells of a store or of an explicit list may come in another order than the product's.
        positions = {
            axis: {text: i for i, text in enumerate(texts)} for axis, texts in labels.items()
        }
        sizes = tuple(len(texts) for texts in labels.values())
        order = np.empty(len(self.cells), dtype=np.intp)
        for source, cell in enumerate(self.cells):
            coordinates = _coordinates(cell)
            place = tuple(positions[axis][canonical_json(coordinates[axis])] for axis in labels)
            order[np.ravel_multi_index(place, sizes)] = source
        stacked = np.stack([entries[source] for source in order])
        return stacked.reshape(sizes + shapes[0])

    def to_frame(self, *, arrays: bool = False) -> pd.DataFrame:
        """Make a table with one row a cell.

        Args:
            arrays: Whether array results are included too, as a column of objects.

        Returns:
            DataFrame with the columns: configuration, `replicate`, `seed`, `status`, `error`,
            `seconds`, results. What a cell does not have is missing.
        """
        import pandas as pd

        # Dictionaries as ordered sets: names in the order of first appearance.
        names = dict.fromkeys(name for cell in self.cells for name in cell.config)
        results = dict.fromkeys(
            name
            for cell in self.cells
            for name, value in cell.values.items()
            if arrays or not isinstance(value, np.ndarray)
        )
        columns: dict[str, list[Any]] = {}
        for name in names:
            columns[name] = [cell.config.get(name) for cell in self.cells]
        for name in ("replicate", "seed", "status", "error", "seconds"):
            columns[name] = [getattr(cell, name) for cell in self.cells]
        for name in results:
            columns[name] = [_table_entry(cell.values.get(name), arrays) for cell in self.cells]
        return pd.DataFrame(columns)

    def _labels(self) -> dict[str, dict[str, Any]]:
        """Each axis' values by their canonical JSON, in the order of first appearance."""
        labels: dict[str, dict[str, Any]] = {}
        for cell in self.cells:
            for axis, value in _coordinates(cell).items():
                labels.setdefault(axis, {}).setdefault(canonical_json(value), value)
        size = math.prod(len(texts) for texts in labels.values())
        same_names = all(len(_coordinates(cell)) == len(labels) for cell in self.cells)
        if size != len(self.cells) or not same_names:
            raise ValueError(
                "the cells must be a full product of their values to be stacked; "
                f"got {len(self.cells)} cells of {size}"
            )
        return labels


def _coordinates(cell: CellResult) -> dict[str, Any]:
    return {**cell.config, "replicate": cell.replicate}


def _table_entry(value: Any, arrays: bool) -> Any:
    """Leave out an array that stands under a name which is a scalar in other cells."""
    return None if isinstance(value, np.ndarray) and not arrays else value
