"""What a check is given: sizes, `build` and `batches`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from scalinglimits.checks.names import Stacks

__all__ = ["check_build", "check_sizes", "positive", "take_batches"]


def check_sizes(name: str, sizes: Sequence[int]) -> list[int]:
    """Return sizes as increasing integers."""
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence):
        raise TypeError(f"`{name}` must be a sequence of integers; got {sizes!r}")
    values = list(sizes)
    if not values or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in values):
        raise ValueError(f"`{name}` must be positive integers; got {values}")
    if len(set(values)) < len(values):
        raise ValueError(f"`{name}` must differ from each other; got {values}")
    return sorted(values)


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
    raise ValueError(f"`batches` must yield at least {count} batches; it ended after {len(taken)}")


def check_build(
    build: Callable[[int, int], nn.Module], widths: Sequence[int], depths: Sequence[int]
) -> Stacks:
    """Build small models, refuse a `build` that is no function of width and depth."""
    shapes: dict[tuple[int, int], dict[str, tuple[int, ...]]] = {}
    sizes = [(widths[0], depths[0])] * 2
    sizes += [(widths[1], depths[0])] if len(widths) > 1 else []
    sizes += [(widths[0], depths[1])] if len(depths) > 1 else []
    for width, depth in sizes:
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            try:
                model = build(width, depth)
            except Exception as error:
                error.add_note(f"raised by `build` at width {width}, depth {depth}")
                raise
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"`build` must return a torch.nn.Module; got {type(model).__name__} at width "
                f"{width}, depth {depth}"
            )
        found = {name: tuple(p.shape) for name, p in model.named_parameters()}
        if not found:
            raise ValueError(f"`build` must return a model with parameters; got none at {width}")
        if shapes.setdefault((width, depth), found) != found:
            raise ValueError(
                f"`build` must give the same parameters each time; got different ones in two calls "
                f"at width {width}, depth {depth}"
            )
    base = shapes[sizes[0]]
    for axis, size in zip(("width", "depth"), ((1, 0), (0, 1)), strict=True):
        values = widths if axis == "width" else depths
        if len(values) == 1:
            continue
        other = shapes[widths[size[0]], depths[size[1]]]
        if other == base:
            raise ValueError(
                f"`build` must use its {axis}; got the same parameters at {values[0]} and "
                f"{values[1]}"
            )
        if axis == "width" and other.keys() != base.keys():
            raise ValueError(
                "`build` must give parameters of the same names at every width; got "
                f"{sorted(other.keys() ^ base.keys())[0]!r} at one of {values[0]} and {values[1]}"
            )
    if len(depths) == 1:
        return _stacks_of_one_depth(build, widths[0], depths[0], base)
    return Stacks.find(base, shapes[widths[0], depths[1]])


def _stacks_of_one_depth(
    build: Callable[[int, int], nn.Module],
    width: int,
    depth: int,
    shapes: dict[str, tuple[int, ...]],
) -> Stacks:
    """Look at one more block than wanted, so that equal blocks are measured together."""
    with torch.random.fork_rng([]):
        try:
            deeper = build(width, depth + 1)
        except Exception:  # a model may exist at this depth only
            return Stacks()
    return Stacks.find(shapes, {name: tuple(p.shape) for name, p in deeper.named_parameters()})
