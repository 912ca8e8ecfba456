r"""Activations of residual branches, and what the theory must know of them.

Notation: :math:`\sigma` acts entry by entry. It is *positively homogeneous* when
:math:`\sigma(cx) = c\,\sigma(x)` for :math:`c > 0`, that is
:math:`\sigma(x) = a_+ x_+ - a_- (-x)_+` with slopes :math:`(a_+, a_-)`: ReLU has (1, 0), the
identity (1, 1), the parametric ReLU (1, s). Condition of R, Table 1, for res-1 and res-2:
:math:`|x|/\sqrt 2 \le |\sigma(x)| \le |x|`.
"""

from __future__ import annotations

__all__ = ["ACTIVATIONS", "Activation", "ParametricReLU", "resolve_activation"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_PROBES = (-3.7, -1.3, -0.2, 0.0, 0.4, 1.9, 5.1)
_SCALES = (2.0**-20, 2.0**-3, 2.0, 2.0**12)


@dataclass(frozen=True)
class ParametricReLU:
    r"""The parametric ReLU with a fixed slope, :math:`\sigma(x) = x_+ - s\,(-x)_+`.

    Args:
        slope: :math:`s`, the slope on the negative side. R asks for
            :math:`s \in [1/\sqrt 2, 1]`; other finite slopes are taken too.

    Raises:
        ValueError: if ``slope`` is not finite.

    Example:
        >>> import torch
        >>> ParametricReLU(0.75)(torch.tensor([-2.0, 2.0]))
        tensor([-1.5000,  2.0000])
    """

    slope: float = 1 / math.sqrt(2)

    def __post_init__(self) -> None:
        if not math.isfinite(self.slope):
            raise ValueError(f"`slope` must be a finite number; got {self.slope!r}")

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the activation to each entry of ``x``."""
        return functional.leaky_relu(x, self.slope)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "identity": ParametricReLU(1.0),
    "abs": torch.abs,
    "leaky_relu": ParametricReLU(0.01),
    "parametric_relu": ParametricReLU(),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "elu": functional.elu,
    "selu": functional.selu,
    "softplus": functional.softplus,
    "erf": torch.erf,
    "sin": torch.sin,
}
"""Activations that can be chosen by name."""


@dataclass(frozen=True)
class Activation:
    """An activation with its name and, where it is positively homogeneous, its two slopes.

    Args:
        name: what reports call it.
        function: the entry-wise map.
        slopes: :math:`(a_+, a_-)` if the function is positively homogeneous, else None.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    slopes: tuple[float, float] | None

    def derivative(self, x: Tensor) -> Tensor:
        """Return the derivative at each entry of ``x``, by automatic differentiation.

        Args:
            x: points, any shape.

        Returns:
            Derivatives, the shape of ``x``.
        """
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(self.function(leaf).sum(), leaf)
        return slope


def resolve_activation(activation: str | Callable[[Tensor], Tensor]) -> Activation:
    """Turn a name or an entry-wise callable into an :class:`Activation`.

    Args:
        activation: a key of :data:`ACTIVATIONS`, a function or an ``nn.Module``.

    Returns:
        The activation; homogeneous slopes are found by probing the function in float64.

    Raises:
        ValueError: if the name is unknown, or the callable does not act entry by entry or
            overwrites its argument.
        TypeError: if it is neither a name nor callable.

    Example:
        >>> resolve_activation("relu").slopes
        (1.0, 0.0)
        >>> resolve_activation("tanh").slopes is None
        True
    """
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"`activation` must be one of {', '.join(sorted(ACTIVATIONS))}, or a callable; "
                f"got {activation!r}"
            )
        function, name = ACTIVATIONS[activation], activation
    elif callable(activation):
        function = activation
        name = (
            repr(activation)
            if isinstance(activation, ParametricReLU | nn.Module)
            else getattr(activation, "__name__", repr(activation))
        )
    else:
        raise TypeError(f"`activation` must be a name or a callable; got {activation!r}")
    return Activation(name, function, _homogeneous_slopes(function))


def _homogeneous_slopes(function: Callable[[Tensor], Tensor]) -> tuple[float, float] | None:
    """Return the slopes on either side of 0 if the function is positively homogeneous."""
    parameter = next(function.parameters(), None) if isinstance(function, nn.Module) else None
    dtype, device = (
        (torch.float64, torch.device("cpu"))
        if parameter is None
        else (parameter.dtype, parameter.device)
    )
    if device.type == "meta":
        return None
    with torch.no_grad(), device:  # whatever device the caller has made the default
        probes = torch.tensor(_PROBES, dtype=dtype)
        column = probes[:, None].clone()
        try:
            values = function(column)
        except RuntimeError as fault:  # such as a slope for each channel
            raise ValueError(f"`activation` must act entry by entry; got {fault}") from fault
        if not isinstance(values, Tensor) or values.shape != column.shape:
            raise ValueError(
                "`activation` must map a tensor to a tensor of the same shape; got "
                f"{tuple(getattr(values, 'shape', ()))} for {tuple(column.shape)}"
            )
        if not torch.equal(column[:, 0], probes):
            raise ValueError(
                f"`activation` must not overwrite its argument; got {function!r} (inplace=True?)"
            )
        half = len(probes) // 2  # in other company an entry must keep its value
        parts = torch.cat([function(probes[:half]), function(probes[half:])])
        if not torch.allclose(values[:, 0], parts, equal_nan=True):
            raise ValueError(f"`activation` must act entry by entry; got {function!r}")
        for scale in _SCALES:
            if not torch.allclose(function(scale * probes[:, None]), scale * values, atol=0.0):
                return None
        ends = function(torch.tensor([[1.0], [-1.0]], dtype=dtype))
    # + 0.0 turns −0.0 into 0.0
    return float(ends[0, 0]) + 0.0, -float(ends[1, 0]) + 0.0
