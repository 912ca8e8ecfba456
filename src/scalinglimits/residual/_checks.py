"""Checks of arguments that several modules of this package share."""

from __future__ import annotations

__all__ = ["depth_law", "positive_integer"]

import operator

from scalinglimits.laws import DepthLaw


def positive_integer(name: str, value: int) -> int:
    """Return ``value`` as an int, or raise a ValueError that names the argument."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"`{name}` must be a positive integer; got {value!r}")
    return number


def depth_law(weights: DepthLaw) -> DepthLaw:
    """Return ``weights``, or raise a TypeError that says what a law across depth is."""
    if not isinstance(weights, DepthLaw):
        raise TypeError(
            "`weights` must be a law across depth, such as Independent(Uniform()) or "
            f"FractionalIncrements(0.7); got {weights!r}"
        )
    return weights
