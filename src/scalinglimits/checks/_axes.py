"""Along what a model grows: axes, each varied alone with the others at their base."""

from __future__ import annotations

__all__ = ["AxesLike", "Axes", "Axis", "parse_axes", "rows_along"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from scalinglimits.scaling.sizes import Size, parse_size

AxesLike = Mapping[str | tuple[str, ...], int | Sequence[int | tuple[int, ...]]]
"""Name of an axis, or names of axes that grow together, to their numbers."""

_Numbers = dict[tuple[str, ...], list[tuple[int, ...]]]

WIDTHS, DEPTHS = (32, 64, 128), (2, 4, 8)
# Columns of the records, which axes are columns of too.
_COLUMNS = (
    *("kind", "name", "use", "step", "value", "seed"),
    *("scaling", "lr", "run", "replicate", "loss", "log2_lr", "lower", "upper", "edge"),
)


@dataclass(frozen=True)
class Axis:
    """One axis, or several that grow together.

    Attributes:
        names: its name, and those of the axes that grow with it.
        sizes: by increasing number; the first is the base.
        is_depth: whether it is the depth.
    """

    names: tuple[str, ...]
    sizes: tuple[Size, ...]
    is_depth: bool

    @property
    def name(self) -> str:
        """What findings call it: its first name."""
        return self.names[0]

    @property
    def label(self) -> str:
        """All its names."""
        return ", ".join(self.names)

    @property
    def values(self) -> list[int]:
        """The numbers of its first name, against which exponents are fitted."""
        return [size.values[self.name] for size in self.sizes]


@dataclass(frozen=True)
class Axes:
    """All axes of a model, and its base size.

    Attributes:
        base: the smallest size.
        all: every axis, those that are held constant included.
    """

    base: Size
    all: tuple[Axis, ...]

    @property
    def along(self) -> list[Axis]:
        """The axes that grow."""
        return [axis for axis in self.all if len(axis.sizes) > 1]

    @property
    def depth(self) -> Axis | None:
        """The depth, if it grows."""
        return next((axis for axis in self.along if axis.is_depth), None)

    @property
    def names(self) -> list[str]:
        """The columns that tell a size."""
        return list(self.base.values)

    @property
    def sizes(self) -> list[Size]:
        """All sizes, the base first."""
        return [self.base, *(size for axis in self.along for size in axis.sizes[1:])]

    @property
    def widest(self) -> Size:
        """The last size of the first axis that grows and is no depth; the base without one."""
        return next((axis.sizes[-1] for axis in self.along if not axis.is_depth), self.base)

    def plain(self) -> dict[str, dict[str, list[int]]]:
        """Axis to names to numbers, for a record's settings."""
        return {
            axis.name: {n: [size.values[n] for size in axis.sizes] for n in axis.names}
            for axis in self.all
        }


def parse_axes(
    axes: AxesLike | None,
    widths: Sequence[int] | None,
    depths: Sequence[int] | None,
    depth_axis: str | None,
) -> Axes:
    """Read what the user gives: widths and depths, or a mapping of axes."""
    if axes is None:
        if depth_axis is not None:
            raise ValueError(f"`depth_axis` must come with `axes`; got {depth_axis!r} alone")
        numbers: _Numbers = {
            ("width",): _rows("widths", WIDTHS if widths is None else widths),
            ("depth",): _rows("depths", DEPTHS if depths is None else depths),
        }
        base = parse_size("widths", [rows[0][0] for rows in numbers.values()])
    else:
        if widths is not None or depths is not None:
            raise ValueError(
                "`axes` must come without `widths` and `depths`, which it may hold as 'width' and "
                f"'depth'; got widths={widths!r}, depths={depths!r}"
            )
        numbers = _read(axes)
        first: dict[str, int] = {}
        for names, rows in numbers.items():
            first |= zip(names, rows[0], strict=True)
        base = parse_size("axes", first, depth_axis)
    found = []
    for names, rows in numbers.items():
        if base.depth_axis in names and len(names) > 1 and len(rows) > 1:
            raise ValueError(f"`axes` must let {base.depth_axis!r} grow alone; got {names}")
        sizes = [base.with_values(dict(zip(names, row, strict=True))) for row in rows]
        found.append(Axis(names, tuple(sizes), base.depth_axis in names))
    made = Axes(base, tuple(found))
    if not made.along:
        given = "`axes`" if axes is not None else "`widths` or `depths`"
        raise ValueError(f"{given} must have at least two sizes; got one each: {base}")
    return made


def rows_along(
    frame: pd.DataFrame, axes: Mapping[str, Mapping[str, Sequence[int]]], axis: str
) -> pd.DataFrame:
    """Return the rows of a record at which all other axes are at their base.

    Args:
        frame: with a column for each name.
        axes: as a record's settings tell them.
        axis: the one that grows.
    """
    if axis not in axes:
        raise ValueError(f"`axis` must be one of {', '.join(axes)}; got {axis!r}")
    for name, columns in axes.items():
        for column, values in columns.items() if name != axis else ():
            frame = frame[frame[column] == values[0]]
    return frame


def _read(axes: AxesLike) -> _Numbers:
    if not isinstance(axes, Mapping):
        raise TypeError(f"`axes` must be a mapping of names to numbers; got {axes!r}")
    if not axes:
        raise ValueError("`axes` must name at least one axis; got {}")
    numbers: _Numbers = {}
    known: set[str] = set()
    for key, given in axes.items():
        names = (key,) if isinstance(key, str) else key
        if not isinstance(names, tuple) or not names:
            raise TypeError(f"`axes` must have names or tuples of names as keys; got {key!r}")
        for name in names:
            if not isinstance(name, str) or not name.isidentifier() or name in _COLUMNS:
                raise ValueError(
                    f"`axes` must have names that `build` takes, and none of {', '.join(_COLUMNS)};"
                    f" got {name!r}"
                )
            if name in known:
                raise ValueError(f"`axes` must name each axis once; got {name!r} twice")
            known.add(name)
        label = f"axes[{key!r}]"
        if isinstance(key, str):
            numbers[names] = _rows(label, [given] if isinstance(given, int) else given)
        else:
            numbers[names] = _grouped_rows(label, names, given)
    return numbers


def _rows(label: str, given: Any) -> list[tuple[int, ...]]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise TypeError(f"`{label}` must be a sequence of integers; got {given!r}")
    values = list(given)
    if not values or not all(map(_positive, values)):
        raise ValueError(f"`{label}` must be positive integers; got {values}")
    if len(set(values)) < len(values):
        raise ValueError(f"`{label}` must differ from each other; got {values}")
    return [(value,) for value in sorted(values)]


def _grouped_rows(label: str, names: tuple[str, ...], given: Any) -> list[tuple[int, ...]]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or not given:
        raise TypeError(f"`{label}` must be a sequence of tuples of integers; got {given!r}")
    for row in given:
        if not isinstance(row, (tuple, list)) or len(row) != len(names):
            raise ValueError(
                f"`{label}` must give {len(names)} numbers for each size, one for each name; got "
                f"{row!r}"
            )
        if not all(map(_positive, row)):
            raise ValueError(f"`{label}` must be positive integers; got {row!r}")
    rows = sorted(tuple(row) for row in given)
    if len({row[0] for row in rows}) < len(rows):
        raise ValueError(f"`{label}` must differ from each other in {names[0]!r}; got {rows}")
    for small, large in pairwise(rows):
        if any(a > b for a, b in zip(small, large, strict=True)):
            raise ValueError(f"`{label}` must be numbers that grow together; got {small}, {large}")
    return rows


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
