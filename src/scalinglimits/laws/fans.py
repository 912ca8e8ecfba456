r"""Fans of a weight, and the five ways to average them into one.

A dense map of fan-in :math:`m` and fan-out :math:`n`, with independent entries of mean 0 and
variance :math:`t`, multiplies the second moment by :math:`mt` forward and by :math:`nt`
backward. No :math:`t` makes both one unless :math:`m = n`. With :math:`t = 1/N`:

================  ========================  =====================================================
mode              :math:`N`                 what it does
================  ========================  =====================================================
``fan_in``        :math:`m`                 keeps the forward signal
``fan_out``       :math:`n`                 keeps the backward signal
``fan_avg``       :math:`(m+n)/2`           Xavier's compromise
``fan_geo_avg``   :math:`\sqrt{mn}`         keeps both, end to end, when widths return to their
                                            start; minimises :math:`(\log mt)^2 + (\log nt)^2`
``fan_quad_avg``  :math:`(m^2+n^2)/(m+n)`   minimises :math:`(mt-1)^2 + (nt-1)^2`, layer by layer
================  ========================  =====================================================

``fan_quad_avg`` ≥ ``fan_avg`` ≥ ``fan_geo_avg``, with equality only for :math:`m = n`.

Reference:
    Su, "Rethinking the dimension-averaging strategy for non-square matrices in initialization".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from scalinglimits.laws._validate import check_positive, check_shape

__all__ = ["MODES", "AxisLike", "Fans", "average_fan", "fans", "normalize_axes"]

AxisLike = int | Sequence[int]
"""One axis or several, counted from the end when negative; an empty sequence has size one."""

MODES = ("fan_in", "fan_out", "fan_avg", "fan_geo_avg", "fan_quad_avg")
"""The names of the averages."""


class Fans(NamedTuple):
    """The two fans of a weight, averaged over output and input elements, borders ignored."""

    fan_in: float
    """The number of terms summed into one output element."""
    fan_out: float
    """The number of output elements that one input element feeds."""


def fans(
    shape: Sequence[int], in_axis: AxisLike, out_axis: AxisLike, batch_axis: AxisLike = ()
) -> Fans:
    """Return the fans of a weight of this shape.

    Axes that are neither input, output nor batch are a receptive field, as in a convolution:
    they count for both fans. Batch axes are independent maps stacked in one array, such as the
    layers of a scanned model: they count for none.

    Args:
        shape: The shape of the weight.
        in_axis: The axis or axes of the inputs.
        out_axis: The axis or axes of the outputs.
        batch_axis: The axis or axes of independent copies.

    Returns:
        The two fans.

    Raises:
        TypeError: If the shape or an axis is not made of integers.
        ValueError: If the shape has a negative entry, or an axis is out of range or used twice.

    Example:
        >>> fans((256, 64), in_axis=1, out_axis=0)
        Fans(fan_in=64.0, fan_out=256.0)
        >>> fans((128, 64, 3, 3), in_axis=1, out_axis=0)
        Fans(fan_in=576.0, fan_out=1152.0)
        >>> fans((12, 64, 256), in_axis=-2, out_axis=-1, batch_axis=0)
        Fans(fan_in=64.0, fan_out=256.0)
    """
    sizes = check_shape("shape", shape)
    axes = normalize_axes(len(sizes), in_axis=in_axis, out_axis=out_axis, batch_axis=batch_axis)
    inputs, outputs = (math.prod(sizes[axis] for axis in group) for group in axes[:2])
    used = {axis for group in axes for axis in group}
    field = math.prod(size for axis, size in enumerate(sizes) if axis not in used)
    return Fans(float(inputs * field), float(outputs * field))


def average_fan(fan_in: float, fan_out: float, mode: str) -> float:
    r"""Return the average :math:`N` of two fans, for a variance of scale/N.

    Args:
        fan_in: The number :math:`m` of terms summed into one output element.
        fan_out: The number :math:`n` of output elements that one input element feeds.
        mode: One of `MODES`.

    Returns:
        The average, as in the table of this module.

    Raises:
        TypeError: If a fan is not a real number or the mode is not a string.
        ValueError: If a fan is not positive and finite, or the mode is unknown.

    Example:
        >>> [average_fan(2, 8, mode) for mode in MODES]
        [2.0, 8.0, 5.0, 4.0, 6.8]
    """
    m, n = check_positive("fan_in", fan_in), check_positive("fan_out", fan_out)
    if not isinstance(mode, str):
        raise TypeError(f"`mode` must be a string; got {mode!r}")
    if mode == "fan_in":
        return m
    if mode == "fan_out":
        return n
    if mode == "fan_avg":
        return 0.5 * (m + n)
    if mode == "fan_geo_avg":
        return math.sqrt(m * n)
    if mode == "fan_quad_avg":
        # (m² + n²)/(m + n) = (m + n)/2 + (m − n)²/(2(m + n)): no square of a large fan.
        return 0.5 * (m + n) + 0.5 * (m - n) * ((m - n) / (m + n))
    raise ValueError(f"`mode` must be one of {', '.join(MODES)}; got {mode!r}")


def normalize_axes(
    ndim: int, *, in_axis: AxisLike, out_axis: AxisLike, batch_axis: AxisLike = ()
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the three groups of axes, counted from the start, after checking them.

    Args:
        ndim: The number of axes of the weight.
        in_axis: The axis or axes of the inputs.
        out_axis: The axis or axes of the outputs.
        batch_axis: The axis or axes of independent copies.

    Returns:
        Input, output and batch axes, each a tuple of numbers in [0, ndim).

    Raises:
        TypeError: If an axis is not an integer.
        ValueError: If an axis is out of range or used twice.

    Example:
        >>> normalize_axes(3, in_axis=-2, out_axis=-1, batch_axis=0)
        ((1,), (2,), (0,))
    """
    groups = []
    seen: dict[int, str] = {}
    for name, given in (("in_axis", in_axis), ("out_axis", out_axis), ("batch_axis", batch_axis)):
        group = []
        for axis in _as_tuple(name, given):
            if not -ndim <= axis < ndim:
                raise ValueError(
                    f"`{name}` must lie in [{-ndim}, {ndim}) for a weight of {ndim} axes; "
                    f"got {axis}"
                )
            axis %= ndim
            if axis in seen:
                raise ValueError(f"`{name}` must differ from `{seen[axis]}`; both have axis {axis}")
            seen[axis] = name
            group.append(axis)
        groups.append(tuple(group))
    return groups[0], groups[1], groups[2]


def _as_tuple(name: str, axes: AxisLike) -> tuple[int, ...]:
    values = axes if isinstance(axes, Sequence) and not isinstance(axes, str) else (axes,)
    try:
        return tuple(operator.index(axis) for axis in values)
    except TypeError:
        raise TypeError(
            f"`{name}` must be an integer or a sequence of integers; got {axes!r}"
        ) from None
