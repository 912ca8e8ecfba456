"""Checks of arguments that several modules of this package share."""

from __future__ import annotations

__all__ = ["positive_integer"]


def positive_integer(name: str, value: int) -> int:
    """Return ``value`` as an int, or raise a ValueError that names the argument."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ValueError(f"`{name}` must be a positive integer; got {value!r}")
    return value.__index__()
