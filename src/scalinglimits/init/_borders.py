"""How many terms reach an output of a convolution on an image that ends somewhere.

Fans ignore borders. With every weight set to one and an image of ones, a layer counts its own
terms, padding and stride included; each term also joins an input element to an output element,
so the mean number of outputs fed by an input follows from the sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.utils import parametrize

__all__ = ["counted_fans"]

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


def counted_fans(module: nn.Module, shape: Sequence[int]) -> tuple[float, float] | None:
    """Return the mean fans of a convolution on inputs of this shape, borders included.

    Args:
        module: The layer.
        shape: The shape of its input.

    Returns:
        The two fans, or None if the layer is not a plain convolution.
    """
    if not isinstance(module, _CONVOLUTIONS) or parametrize.is_parametrized(module):
        return None
    counter = copy.deepcopy(module).to(torch.float32)
    with torch.no_grad():
        counter.weight.fill_(1.0)
        if counter.bias is not None:
            counter.bias.zero_()
        batched = len(shape) == counter.weight.ndim
        ones = torch.ones((1, *shape[1:]) if batched else tuple(shape), device=module.weight.device)
        counts: torch.Tensor = counter(ones)
    fan_in = float(counts.double().mean())
    return fan_in, fan_in * counts.numel() / ones.numel()
