"""What a check is given: numbers, `build` and `batches`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from scalinglimits.checks._axes import Axes, Axis
from scalinglimits.checks.names import Stacks
from scalinglimits.scaling.sizes import Size

__all__ = ["check_build", "positive", "take_batches"]


def positive(name: str, value: float, *, integer: bool = False) -> None:
    """Refuse what is no positive number."""
    kinds = int if integer else (int, float)
    kind = "integer" if integer else "number"
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"`{name}` must be a positive {kind}; got {value!r}")
    if not 0 < value < float("inf"):
        raise ValueError(f"`{name}` must be a positive {kind}; got {value}")


def take_batches(batches: Iterable[Any] | Callable[[], Iterable[Any]], count: int) -> list[Any]:
    """Return the first batches."""
    source = batches() if callable(batches) else batches
    if not isinstance(source, Iterable):
        raise TypeError(
            "`batches` must be an iterable of batches or a function that returns one; "
            f"got {type(source).__name__}"
        )
    taken: list[Any] = []
    for batch in source:
        taken.append(batch)
        if len(taken) == count:
            return taken
    least = f"{count} batches" if count > 1 else "one batch"
    raise ValueError(f"`batches` must yield at least {least}; it ended after {len(taken)}")


def check_build(build: Callable[..., nn.Module], axes: Axes) -> Stacks:
    """Build small models, refuse a `build` that is no function of its axes; find its stacks."""
    shapes: dict[Size, dict[str, tuple[int, ...]]] = {}
    for size in [axes.base, axes.base, *(axis.sizes[1] for axis in axes.along)]:
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            try:
                model = size.build(build)
            except Exception as error:
                error.add_note(f"raised by `build` at {size}")
                raise
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"`build` must return a torch.nn.Module; got {type(model).__name__} at {size}"
            )
        found = {name: tuple(p.shape) for name, p in model.named_parameters()}
        if not found:
            raise ValueError(f"`build` must return a model with parameters; got none at {size}")
        if shapes.setdefault(size, found) != found:
            raise ValueError(
                "`build` must give the same parameters each time; got different ones in two calls "
                f"at {size}"
            )
    base = shapes[axes.base]
    for axis in axes.along:
        _check_growth(axis, base, shapes[axis.sizes[1]])
    if axes.depth is None:
        return _stacks_of_one_depth(build, axes.base, base)
    return Stacks.find(base, shapes[axes.depth.sizes[1]])


def _check_growth(
    axis: Axis, small: dict[str, tuple[int, ...]], large: dict[str, tuple[int, ...]]
) -> None:
    first, second = axis.values[:2]
    named = not axis.sizes[0].positional
    if small == large:
        advice = (
            "; let an axis that changes no shape, such as heads that share a fixed width, grow "
            "together with another"
        )
        raise ValueError(
            f"`build` must use its {axis.label}; got the same parameters at {first} and "
            f"{second}{advice if named else ''}"
        )
    if not axis.is_depth and large.keys() != small.keys():
        advice = f"; if {axis.name} is the depth, pass depth_axis={axis.name!r}"
        raise ValueError(
            f"`build` must give parameters of the same names at every {axis.name}; got "
            f"{sorted(large.keys() ^ small.keys())[0]!r} at one of {first} and {second}"
            f"{advice if named else ''}"
        )


def _stacks_of_one_depth(
    build: Callable[..., nn.Module], base: Size, shapes: dict[str, tuple[int, ...]]
) -> Stacks:
    """Look at one more block than wanted, so that equal blocks are measured together."""
    if base.depth is None:
        return Stacks()
    with torch.random.fork_rng([]):
        try:
            deeper = base.at_depth(base.depth + 1).build(build)
        except Exception:  # a model may exist at this depth only
            return Stacks()
    return Stacks.find(shapes, {name: tuple(p.shape) for name, p in deeper.named_parameters()})
