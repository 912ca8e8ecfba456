"""Argument checks of the package: each returns the plain value or raises before any work."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["check_array", "check_choice", "check_count", "check_real", "check_sequence"]


def check_count(name: str, value: Any, minimum: int = 0) -> int:
    """An integer of at least `minimum`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{name}` must be an integer; got {value!r}")
    if value < minimum:
        raise ValueError(f"`{name}` must be at least {minimum}; got {value}")
    return operator.index(value)


def check_real(
    name: str, value: Any, *, minimum: float = -math.inf, above: float | None = None
) -> float:
    """A finite number, at least `minimum` and, if asked for, greater than `above`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a real number; got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {number}")
    if above is not None and number <= above:
        raise ValueError(f"`{name}` must be greater than {above:g}; got {number}")
    if number < minimum:
        raise ValueError(f"`{name}` must be at least {minimum:g}; got {number}")
    return number


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """One of some strings."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {list(choices)}; got {value!r}")
    return str(value)


def check_array(name: str, value: Any, dimensions: tuple[int, ...]) -> np.ndarray:
    """A new, read-only array of finite double-precision numbers with as many axes as allowed."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"`{name}` must be an array of real numbers; got {value!r}") from None
    if array.ndim not in dimensions:
        allowed = " or ".join(map(str, dimensions))
        raise ValueError(f"`{name}` must have {allowed} axes; got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"`{name}` must be finite; got NaN or infinite entries")
    array.setflags(write=False)
    return array


def check_sequence(name: str, value: Any, length: int) -> tuple[Any, ...]:
    """A sequence of a given length."""
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise TypeError(f"`{name}` must be a sequence of length {length}; got {value!r}")
    if len(value) != length:
        raise ValueError(f"`{name}` must have length {length}; got {len(value)}")
    return tuple(value)
