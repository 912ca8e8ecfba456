"""Further sizes at which a model is looked at, to see what grows."""

from __future__ import annotations

from scalinglimits.scaling.sizes import Size

__all__ = ["PROBES", "moving_axes", "probe_depth", "probe_width"]

# How much wider the probe is: best wide enough to leave what base and target are rounded up to.
PROBES = (8, 4, 2)


def moving_axes(base: Size, target: Size) -> tuple[str, ...]:
    """Return the axes other than depth that grow: the width, or all, where none does yet."""
    start, end = base.widths, target.widths
    moving = tuple(key for key in start if start[key] != end[key])
    return moving or (("width",) if "width" in start else tuple(start))


def probe_width(base: Size, target: Size, moving: tuple[str, ...], factor: int = PROBES[0]) -> Size:
    """Return a further size, wider than both along the axes that grow."""
    start, end = base.widths, target.widths
    return target.with_values({key: factor * max(start[key], end[key]) for key in moving})


def probe_depth(base: Size, target: Size) -> int | None:
    """Return a depth that differs from the target's: the base's where that does."""
    if base.depth is None or target.depth is None:
        return None
    return base.depth if base.depth != target.depth else 2 * base.depth
