"""Roles of parameters, from how their fans grow between builds of several widths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from scalinglimits.scaling._builds import Snapshot
from scalinglimits.scaling._fans import Use, use_by_axes, use_by_module
from scalinglimits.scaling._names import split_weight_norm

__all__ = ["check_overrides", "override_of", "role_of", "uses_of"]

Axes = tuple[tuple[int, ...], tuple[int, ...]] | str


def uses_of(
    name: str,
    snapshots: tuple[Snapshot, ...],
    given: Axes | None,
    traced: Axes | None,
    blocks_axis: int | None,
) -> list[Use]:
    """Return how a parameter acts in models of several widths.

    Raises:
        ValueError: If neither its owner, nor its operations, nor the user says it.
    """
    shapes = [snapshot.shapes[name] for snapshot in snapshots]
    if given is not None:
        return [_by_axes(shape, given) for shape in shapes]
    if blocks_axis is None:
        uses = [use_by_module(s.model, name, s.shapes[name]) for s in snapshots]
        if uses[0].kind != "unknown":
            return uses
    else:
        shapes = [shape[:blocks_axis] + shape[blocks_axis + 1 :] for shape in shapes]
        if len(shapes[0]) <= 1:
            return [Use("vector", 1.0, float(math.prod(shape))) for shape in shapes]
    growing = [i for i in range(len(shapes[0])) if len({shape[i] for shape in shapes}) > 1]
    if not growing:
        return [Use("fixed")] * len(shapes)
    if traced is not None and blocks_axis is None:
        return [_by_axes(shape, traced) for shape in shapes]
    if len(growing) == 2:
        ratios = [{shape[i] / shapes[0][i] for i in growing} for shape in shapes]
        if all(len(ratio) == 1 for ratio in ratios):  # the two directions scale alike
            return [
                Use("matrix", float(shape[growing[1]]), float(shape[growing[0]]))
                for shape in shapes
            ]
    raise ValueError(
        f"the role of `{name}` {shapes[0]} is unknown: pass "
        f"`fans={{{name!r}: (in_axes, out_axes)}}` or `fans={{{name!r}: 'vector'}}`"
    )


def role_of(name: str, uses: list[Use], tied: bool) -> str:
    """Return the role: what grows, and what the parameter is."""
    kind = uses[0].kind
    grows_in = len({use.fan_in for use in uses}) > 1
    grows_out = len({use.fan_out for use in uses}) > 1
    if split_weight_norm(name)[1] == "g":
        return "vector"
    if kind == "embedding":
        return "tied" if tied else "embedding" if grows_out else "fixed"
    if kind in ("bias", "norm", "vector"):
        return kind
    if grows_in:
        return "hidden" if grows_out else "readout"
    return "input" if grows_out else "fixed"


def override_of(name: str, template: str, overrides: Mapping[str, Any]) -> Any:
    """Return the value of the first pattern that fits a name or its template."""
    for pattern, value in overrides.items():
        if fnmatchcase(name, pattern) or template == pattern:
            return value
    return None


def check_overrides(what: str, patterns: Any, names: Mapping[str, str]) -> None:
    """Raise if a pattern fits no parameter."""
    for pattern in patterns:
        if not any(fnmatchcase(n, pattern) or t == pattern for n, t in names.items()):
            raise ValueError(f"`{what}` must name parameters; {pattern!r} matches none")


def _by_axes(shape: tuple[int, ...], axes: Axes) -> Use:
    if axes == "vector":
        return Use("vector", 1.0, float(math.prod(shape)))
    if isinstance(axes, str) or len(axes) != 2:
        raise ValueError(f"`fans` must be (in_axes, out_axes) or 'vector'; got {axes!r}")
    return use_by_axes(shape, axes[0], axes[1])
