"""Sizes of a model: (width, depth) or a mapping of named axes, and the calls that build it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DEPTH_NAMES", "PROBES", "Size", "parse_size", "probe_depth", "probe_width"]

DEPTH_NAMES = ("depth", "layers", "n_layers", "num_layers", "n_layer", "num_hidden_layers")


# How much wider the probe is: best wide enough to leave what base and target are rounded up to.
PROBES = (8, 4, 2)


@dataclass(frozen=True)
class Size:
    """A size: named axes, and whether `build` takes them by position."""

    axes: tuple[tuple[str, int], ...]
    depth_axis: str
    positional: bool

    @property
    def values(self) -> dict[str, int]:
        return dict(self.axes)

    @property
    def depth(self) -> int | None:
        return self.values.get(self.depth_axis)

    @property
    def widths(self) -> dict[str, int]:
        return {name: value for name, value in self.axes if name != self.depth_axis}

    def at_depth(self, depth: int | None) -> Size:
        axes = tuple(
            (k, depth if k == self.depth_axis and depth is not None else v) for k, v in self.axes
        )
        return Size(axes, self.depth_axis, self.positional)

    def with_widths(self, widths: Mapping[str, int]) -> Size:
        axes = tuple((k, widths.get(k, v)) for k, v in self.axes)
        return Size(axes, self.depth_axis, self.positional)

    def build(self, build: Callable[..., Any]) -> Any:
        if self.positional:
            return build(*(value for _, value in self.axes))
        return build(**self.values)

    def plain(self) -> list[int] | dict[str, int]:
        """A value for JSON and messages."""
        return [v for _, v in self.axes] if self.positional else self.values

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.axes)


def parse_size(name: str, value: object, depth_axis: str | None = None) -> Size:
    """Read a size given by the user."""
    if isinstance(value, Mapping):
        axes = tuple((str(key), _count(name, entry)) for key, entry in value.items())
        if not axes:
            raise ValueError(f"`{name}` must name at least one axis; got {value!r}")
        names = [key for key, _ in axes]
        if depth_axis is None:
            found = [key for key in names if key in DEPTH_NAMES]
            depth_axis = found[0] if found else ""
        elif depth_axis not in names:
            raise ValueError(f"`depth_axis` must be an axis of `{name}`; got {depth_axis!r}")
        return Size(axes, depth_axis, positional=False)
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        width, depth = (_count(name, entry) for entry in value)
        return Size((("width", width), ("depth", depth)), "depth", positional=True)
    raise ValueError(f"`{name}` must be (width, depth) or a mapping of axes; got {value!r}")


def probe_width(base: Size, target: Size, factor: int = PROBES[0]) -> Size:
    """Return a further size, wider than both, that grows along the same axes."""
    start, end = base.widths, target.widths
    moving = [key for key in start if start[key] != end[key]]
    if not moving:
        moving = ["width"] if "width" in start else list(start)
    return target.with_widths({key: factor * max(start[key], end[key]) for key in moving})


def probe_depth(base: Size, target: Size) -> int | None:
    """Return a depth that differs from the target's: the base's where that does."""
    if base.depth is None or target.depth is None:
        return None
    return base.depth if base.depth != target.depth else 2 * base.depth


def _count(name: str, value: object) -> int:
    if isinstance(value, bool):
        raise TypeError(f"`{name}` must hold integers; got {value!r}")
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"`{name}` must hold integers; got {value!r}") from None
    if count < 1:
        raise ValueError(f"`{name}` must hold sizes of at least 1; got {count}")
    return count
