"""Argument checks shared by the laws: each returns the plain Python value or raises."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import SupportsIndex

__all__ = ["check_count", "check_hurst", "check_positive", "check_real", "check_shape"]


def check_count(name: str, value: object, minimum: int = 1) -> int:
    """Return ``value`` as an ``int`` of at least ``minimum``.

    Args:
        name: The argument's name, for the message.
        value: What the caller passed; NumPy integers are welcome, booleans are not.
        minimum: The smallest admissible value.

    Returns:
        The count.

    Raises:
        TypeError: If ``value`` is not an integer.
        ValueError: If ``value`` is below ``minimum``.
    """
    if _is_boolean(value) or not isinstance(value, SupportsIndex):
        raise TypeError(f"`{name}` must be an integer; got {value!r}")
    try:
        count = operator.index(value)
    except TypeError:  # arrays and tensors have __index__, but only scalars answer it
        raise TypeError(f"`{name}` must be an integer; got {value!r}") from None
    if count < minimum:
        raise ValueError(f"`{name}` must be at least {minimum}; got {count}")
    return count


def check_real(name: str, value: object) -> float:
    """Return ``value`` as a finite ``float``.

    Args:
        name: The argument's name, for the message.
        value: What the caller passed; NumPy scalars are welcome, booleans are not.

    Returns:
        The number.

    Raises:
        TypeError: If ``value`` is not a real number.
        ValueError: If ``value`` is infinite or not a number.
    """
    if _is_boolean(value) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a real number; got {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be finite; got {number}")
    return number


def check_positive(name: str, value: object) -> float:
    """Return ``value`` as a finite, positive ``float``.

    Args:
        name: The argument's name, for the message.
        value: What the caller passed.

    Returns:
        The number.

    Raises:
        TypeError: If ``value`` is not a real number.
        ValueError: If ``value`` is not positive and finite.
    """
    number = check_real(name, value)
    if number <= 0.0:
        raise ValueError(f"`{name}` must be positive; got {number}")
    return number


def check_hurst(value: object) -> float:
    """Return a Hurst index as a ``float`` strictly between 0 and 1.

    Args:
        value: What the caller passed.

    Returns:
        The index.

    Raises:
        TypeError: If ``value`` is not a real number.
        ValueError: If ``value`` is outside (0, 1).
    """
    number = check_real("hurst", value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"`hurst` must be strictly between 0 and 1; got {number}")
    return number


def check_shape(name: str, value: object) -> tuple[int, ...]:
    """Return a shape as a tuple of non-negative ``int``; one integer is a shape of one axis.

    Args:
        name: The argument's name, for the message.
        value: An integer or a sequence of integers.

    Returns:
        The shape.

    Raises:
        TypeError: If ``value`` is neither an integer nor a sequence of integers.
        ValueError: If an entry is negative.
    """
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return tuple(check_count(name, entry, minimum=0) for entry in value)
    return (check_count(name, value, minimum=0),)


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")
