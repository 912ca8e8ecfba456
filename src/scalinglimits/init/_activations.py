r"""What a layer without weights does to second moments.

For an elementwise function :math:`\sigma` and a Gaussian input of second moment q, the forward
gain is :math:`E\,\sigma(z)^2/q` and the backward gain :math:`E\,\sigma'(z)^2`, with
:math:`z \sim N(0, q)`.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import nn

__all__ = ["weightless_gains"]

_ELEMENTWISE = tuple(
    getattr(nn, name)
    for name in (
        "CELU",
        "ELU",
        "GELU",
        "Hardshrink",
        "Hardsigmoid",
        "Hardswish",
        "Hardtanh",
        "LeakyReLU",
        "LogSigmoid",
        "Mish",
        "PReLU",
        "ReLU",
        "ReLU6",
        "SELU",
        "SiLU",
        "Sigmoid",
        "Softplus",
        "Softshrink",
        "Softsign",
        "Tanh",
        "Tanhshrink",
    )
)
_PASSING = (nn.Identity, nn.Flatten, nn.Unflatten)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_REACH = 10.0
_POINTS = 40_000  # even: no point at 0, where slopes jump


def weightless_gains(module: nn.Module, second_moment: float) -> tuple[float, float] | None:
    """Return the forward and backward gain of a layer without weights.

    Args:
        module: The layer.
        second_moment: That of its Gaussian input.

    Returns:
        The two gains, or None if they are not known.
    """
    if isinstance(module, _PASSING):
        return 1.0, 1.0
    if isinstance(module, _DROPOUTS):
        keep = 1.0 - module.p if module.training else 1.0
        return (1.0 / keep, 1.0 / keep) if keep > 0.0 else None
    if isinstance(module, nn.PReLU) and module.num_parameters > 1:
        return None
    if not isinstance(module, _ELEMENTWISE) or not 0.0 < second_moment < math.inf:
        return None
    grid = torch.linspace(-_REACH, _REACH, _POINTS, dtype=torch.float64)
    density = torch.exp(-0.5 * grid**2)
    density /= density.sum()
    points = (math.sqrt(second_moment) * grid).requires_grad_()
    twin = copy.deepcopy(module).to(device="cpu", dtype=torch.float64)
    with torch.enable_grad():
        values = twin(points * 1.0)  # a copy, which an in-place function may overwrite
        (slopes,) = torch.autograd.grad(values.sum(), points)
    forward = float((density * values.detach() ** 2).sum()) / second_moment
    return forward, float((density * slopes**2).sum())
