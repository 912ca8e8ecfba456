r"""In-place initialisation of one tensor, in the style of :mod:`torch.nn.init`.

Entries have mean 0 and variance scale/N exactly, whatever the distribution, with N the average
of the fans that ``mode`` names; see :mod:`scalinglimits.laws.fans`.

Reference:
    Su, "Rethinking the dimension-averaging strategy for non-square matrices in initialization".
"""

from __future__ import annotations

import math

import torch

from scalinglimits.init._checks import (
    check_distribution,
    check_mode,
    check_scale,
    check_tensor,
    resolve_seed,
    warn_underflow,
)
from scalinglimits.init._draws import draw_
from scalinglimits.init.axes import Axes
from scalinglimits.laws import EntryLaw
from scalinglimits.laws.fans import average_fan

__all__ = ["variance_scaling_"]

_DENSE = Axes()


def variance_scaling_(
    tensor: torch.Tensor,
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str | EntryLaw = "normal",
    *,
    axes: Axes = _DENSE,
    seed: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    r"""Fill a tensor with entries of mean 0 and variance scale/N.

    Half-precision tensors are drawn in float32 and rounded. A distributed tensor (tensor
    parallelism, FSDP2) receives its part of the draw of the whole tensor, so the weights do not
    depend on the number of processes. Empty tensors and those on the meta device are left alone.

    Args:
        tensor: What to fill, in place.
        scale: The factor of the variance; 2 with ``fan_in`` is He's for ReLU, 0 gives zeros.
        mode: Which average N of the fans: ``fan_in``, ``fan_out``, ``fan_avg``,
            ``fan_geo_avg`` or ``fan_quad_avg``.
        distribution: ``normal``; ``truncated_normal``, cut at two of its deviations and
            rescaled; ``uniform``; ``rademacher`` (signs); ``orthogonal`` (scaled to the same
            variance; one matrix for each block of ``axes``); or a law of one entry.
        axes: The meaning of the axes, dense or convolution by default; `layer_axes` knows that
            of a layer.
        seed: A seed that gives the same values on every device.
        generator: A generator, which moves on by one number; values are drawn on its device.
            With neither, PyTorch's default generator seeds the draw.

    Returns:
        The tensor.

    Raises:
        TypeError: If the tensor is complex, integer or of a type below half precision, or
            another argument is of the wrong kind.
        ValueError: If the mode or distribution is unknown, the scale negative, an axis out of
            range, both ``seed`` and ``generator`` are given, or neither for a distributed
            tensor.

    Example:
        >>> weight = torch.empty(256, 64)
        >>> _ = variance_scaling_(weight, mode="fan_geo_avg", distribution="orthogonal", seed=0)
        >>> torch.allclose(weight.T @ weight, 2 * torch.eye(64), atol=1e-5)
        True
    """
    check_tensor("tensor", tensor)
    scale = check_scale("scale", scale)
    mode, distribution = check_mode(mode), check_distribution(distribution)
    if not isinstance(axes, Axes):
        raise TypeError(f"`axes` must be an Axes; got {axes!r}")
    shape = tuple(tensor.shape)
    if len(shape) < 2 and axes == _DENSE:
        raise ValueError(
            f"`tensor` must have at least 2 axes for its two fans; got shape {shape}: give "
            f"axes=Axes(in_axis=0, out_axis=()) for a vector that sums its inputs"
        )
    fan_in, fan_out = axes.fans(shape)
    root, device = resolve_seed(seed, generator, [tensor])
    if tensor.numel() == 0:
        return tensor
    std = math.sqrt(scale / average_fan(fan_in, fan_out, mode))
    warn_underflow("variance_scaling_", std, tensor.dtype)
    draw_(tensor, distribution, std, axes, root, device)
    return tensor
