"""Sizes of a model: (width, depth) or a mapping of named axes, and the calls that take them."""

from __future__ import annotations

__all__ = ["DEPTH_NAMES", "Size", "parse_size"]

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

DEPTH_NAMES = ("depth", "layers", "n_layers", "num_layers", "n_layer", "num_hidden_layers")
"""Names of an axis that is the depth, if the user does not say which one is."""


@dataclass(frozen=True)
class Size:
    """A size: named axes, and whether functions take them by position.

    Attributes:
        axes: names and numbers, in the user's order.
        depth_axis: the name of the depth; "" without one.
        positional: whether functions are called with (width, depth) instead of keywords.

    Example:
        >>> size = parse_size("base", {"width": 64, "layers": 2, "heads": 4})
        >>> size.depth, size.widths, str(size)
        (2, {'width': 64, 'heads': 4}, 'width=64, layers=2, heads=4')
    """

    axes: tuple[tuple[str, int], ...]
    depth_axis: str
    positional: bool

    @property
    def values(self) -> dict[str, int]:
        """Name to number."""
        return dict(self.axes)

    @property
    def depth(self) -> int | None:
        """The depth; None without one."""
        return self.values.get(self.depth_axis)

    @property
    def widths(self) -> dict[str, int]:
        """Name to number of all axes but the depth."""
        return {name: value for name, value in self.axes if name != self.depth_axis}

    def at_depth(self, depth: int | None) -> Size:
        """Return the size with another depth.

        Args:
            depth: the new one; None leaves it.

        Returns:
            The size.
        """
        return self if depth is None else self.with_values({self.depth_axis: depth})

    def with_values(self, values: Mapping[str, int]) -> Size:
        """Return the size with other numbers on some axes.

        Args:
            values: name to number; names that the size does not have are left out.

        Returns:
            The size.
        """
        return replace(self, axes=tuple((k, values.get(k, v)) for k, v in self.axes))

    def build(self, build: Callable[..., Any]) -> Any:
        """Call the user's `build`.

        Args:
            build: takes width and depth, or the axes as keywords.

        Returns:
            What it returns; a compiled module as it is without compilation, so that its operations
            can be watched one by one.
        """
        if self.positional:
            return _uncompiled(build(*(value for _, value in self.axes)))
        return _uncompiled(build(**self.values))

    def plain(self) -> list[int] | dict[str, int]:
        """Return a value for JSON, which :func:`parse_size` reads.

        Returns:
            A list of width and depth, or a dictionary.
        """
        return [v for _, v in self.axes] if self.positional else self.values

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.axes)


def parse_size(name: str, value: object, depth_axis: str | None = None) -> Size:
    """Read a size given by the user.

    Args:
        name: of the argument, for messages.
        value: (width, depth), or a mapping of axes to numbers.
        depth_axis: which axis of a mapping is the depth; None looks for one of `DEPTH_NAMES`.

    Returns:
        The size.

    Raises:
        TypeError: if a number is no integer.
        ValueError: if `value` is neither, a number is not positive, or `depth_axis` is no axis.
    """
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


def _uncompiled(model: Any) -> Any:
    """Undo `torch.compile` and `Module.compile` of a model and of its parts."""
    model = getattr(model, "_orig_mod", model)
    for module in model.modules() if isinstance(model, nn.Module) else ():
        if getattr(module, "_compiled_call_impl", None) is not None:
            module._compiled_call_impl = None
        for name, child in module.named_children():
            if hasattr(child, "_orig_mod"):
                setattr(module, name, child._orig_mod)
    return model


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
