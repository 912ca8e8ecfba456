r"""Residual networks whose weights are drawn by a law across depth.

Notation of R, equation (4), with :math:`L` the depth and :math:`d` the width:

.. math::

    h_0 = A x, \qquad h_{k+1} = h_k + \alpha\, V_{k+1}\, g(h_k, W_{k+1}), \qquad y = B h_L,

with :math:`\alpha = L^{-\beta}` the branch scale. The branches of R, Table 1, are
res-1: :math:`g = \sigma(h)`, res-2: :math:`g = \sigma(Wh)` and res-3:
:math:`g = \mathrm{ReLU}(Wh)`. Entries of :math:`\sqrt d\,V` and :math:`\sqrt d\,W` have unit
variance.
"""

from __future__ import annotations

__all__ = ["BRANCHES", "ResidualNetwork", "branch_scale_from_beta"]

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from scalinglimits.laws import DepthLaw, Independent, Normal
from scalinglimits.laws.streams import root_seed, substream
from scalinglimits.residual._checks import depth_law, positive_integer
from scalinglimits.residual.activations import ParametricReLU, resolve_activation

BRANCHES = ("res-1", "res-2", "res-3")
"""Names of the branches of R, Table 1."""


def branch_scale_from_beta(beta: float, depth: int) -> float:
    r"""Return the branch scale :math:`\alpha = L^{-\beta}`.

    Args:
        beta: the scaling exponent :math:`\beta`, any finite number.
        depth: the number of residual layers :math:`L`.

    Returns:
        :math:`\alpha`.

    Raises:
        ValueError: if ``beta`` is not finite, or so large that the scale is out of float64's range.

    Example:
        >>> branch_scale_from_beta(0.5, 100)
        0.1
    """
    if not math.isfinite(beta):
        raise ValueError(f"`beta` must be a finite number; got {beta!r}")
    try:
        scale = float(depth) ** -float(beta)
    except OverflowError:
        scale = math.inf
    if not 0 < scale < math.inf:
        raise ValueError(f"`beta` must give a scale within float64; got {beta!r} at depth {depth}")
    return scale


class ResidualNetwork(nn.Module):
    r"""A residual network with stacked weights, drawn by a law across depth.

    .. math::

        h_0 = A x, \qquad h_{k+1} = h_k + \alpha\, V_{k+1}\, g(h_k, W_{k+1}), \qquad y = B h_L

    The parameters are ``input_weight`` :math:`A` of shape (width, in_features), ``V`` of shape
    (depth, width, width), ``W`` of the same shape (absent in res-1) and ``output_weight``
    :math:`B` of shape (out_features, width). Their entries have variance 1 / in_features for
    :math:`A` and 1 / width for the others. Each parameter is drawn from a stream of its own.

    The branch scale is not a parameter. It is the attribute ``branch_scale``, a number that
    ``deepcopy``, ``to_empty`` and ``torch.compile`` keep and that ``state_dict`` carries.

    Args:
        in_features: size of the input :math:`x`.
        width: size :math:`d` of the hidden states.
        depth: number :math:`L` of residual layers.
        out_features: size of the output.
        branch: "res-1", "res-2" or "res-3".
        activation: a name of :data:`~scalinglimits.residual.ACTIVATIONS` or an entry-wise
            callable; None is ReLU for res-3, which allows no other, and
            :class:`~scalinglimits.residual.ParametricReLU` for the others.
        beta: the branch scale is :math:`\alpha = L^{-\beta}`. If neither ``beta`` nor
            ``branch_scale`` is given, ``beta`` is the critical exponent of the weights' law.
        branch_scale: :math:`\alpha` itself, instead of ``beta``.
        weights: the law across depth of the entries of V and W, scaled to unit variance.
        generator: where the seed of the draw comes from; None is torch's default generator.
        dtype: of the parameters.
        device: of the parameters; on "meta" nothing is drawn.

    Raises:
        ValueError: if a size is not a positive integer, ``beta`` or ``branch_scale`` is not
            finite or both are given, the branch or the activation is unknown, or the law
            returns a stack of the wrong shape.
        TypeError: if ``weights`` is not a law across depth.

    Example:
        >>> import torch
        >>> from scalinglimits.laws import FractionalIncrements
        >>> from scalinglimits.residual import ResidualNetwork
        >>> network = ResidualNetwork(
        ...     64, width=40, depth=100, out_features=10, weights=FractionalIncrements(0.8),
        ...     generator=torch.Generator().manual_seed(0),
        ... )
        >>> network(torch.ones(2, 64)).shape
        torch.Size([2, 10])
        >>> round(network.branch_scale, 4)
        0.0251
    """

    branch_scale: float
    W: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        width: int,
        depth: int,
        out_features: int,
        *,
        branch: str = "res-3",
        activation: str | Callable[[Tensor], Tensor] | None = None,
        beta: float | None = None,
        branch_scale: float | None = None,
        weights: DepthLaw | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.in_features = positive_integer("in_features", in_features)
        self.width = positive_integer("width", width)
        self.depth = positive_integer("depth", depth)
        self.out_features = positive_integer("out_features", out_features)
        self.activation = branch_activation(branch, activation)
        self.branch = branch
        self.weights = Independent(Normal()) if weights is None else depth_law(weights)
        self.branch_scale = self._choose_branch_scale(beta, branch_scale)
        like: dict[str, Any] = {"dtype": dtype, "device": device}
        square = (self.depth, self.width, self.width)
        self.input_weight = nn.Parameter(torch.empty(self.width, self.in_features, **like))
        self.V = nn.Parameter(torch.empty(square, **like))
        self.register_parameter(
            "W", None if branch == "res-1" else nn.Parameter(torch.empty(square, **like))
        )
        self.output_weight = nn.Parameter(torch.empty(self.out_features, self.width, **like))
        self.reset_parameters(generator)

    @property
    def beta(self) -> float:
        r"""The exponent :math:`\beta` with :math:`\alpha = L^{-\beta}` .

        It is NaN if there is none: at depth 1, or for a scale set to 0 or below.
        """
        if self.depth == 1 or self.branch_scale <= 0:
            return math.nan
        return -math.log(self.branch_scale) / math.log(self.depth)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters anew, each from its own stream; on the meta device do nothing.

        Args:
            generator: where the seed comes from; None is torch's default generator.

        Raises:
            ValueError: if the law across depth returns a stack of the wrong shape.
        """
        if self.V.is_meta:
            return
        root = root_seed(generator)
        device = "cpu" if generator is None else generator.device
        entries = getattr(self.weights, "entries", Normal())
        with torch.no_grad():
            for name, parameter in self.named_parameters(recurse=False):
                like: dict[str, Any] = {
                    "generator": substream(root, name, device=device),
                    "dtype": parameter.dtype,
                    "device": parameter.device,
                }
                if name in ("V", "W"):
                    draw = self.weights.sample(self.depth, tuple(parameter.shape[1:]), **like)
                else:
                    draw = entries.sample(tuple(parameter.shape), **like)
                if not isinstance(draw, Tensor) or draw.shape != parameter.shape:
                    raise ValueError(
                        f"`weights` must sample a tensor of shape {tuple(parameter.shape)} for "
                        f"{name}; got {tuple(getattr(draw, 'shape', ()))} from {self.weights!r}"
                    )
                parameter.copy_(draw).mul_(parameter.shape[-1] ** -0.5)

    def hidden_states(self, x: Tensor) -> Tensor:
        """Return all hidden states.

        Args:
            x: inputs of shape (..., in_features).

        Returns:
            The states :math:`h_0, …, h_L`, of shape (depth + 1, ..., width).
        """
        states = [nn.functional.linear(x, self.input_weight)]
        for V_k, W_k in self._layers():
            states.append(self._residual(states[-1], V_k, W_k))
        return torch.stack(states)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the network.

        Args:
            x: inputs of shape (..., in_features).

        Returns:
            Outputs of shape (..., out_features).
        """
        h = nn.functional.linear(x, self.input_weight)
        for V_k, W_k in self._layers():
            h = self._residual(h, V_k, W_k)
        return nn.functional.linear(h, self.output_weight)

    def extra_repr(self) -> str:
        """Return the sizes, the branch and its scale for ``repr``."""
        return (
            f"{self.in_features}, width={self.width}, depth={self.depth}, "
            f"out_features={self.out_features}, branch={self.branch!r}, "
            f"branch_scale={self.branch_scale:.6g}, weights={self.weights!r}"
        )

    def get_extra_state(self) -> Tensor:
        """Return the branch scale, which ``state_dict`` saves."""
        return torch.tensor(self.branch_scale, dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the branch scale that ``state_dict`` saved.

        Args:
            state: what :meth:`get_extra_state` returned.
        """
        if not state.is_meta:
            self.branch_scale = float(state)

    def _layers(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        # Unbound once: indexing V[k] would build a gradient of the whole stack for each layer.
        W = [None] * self.depth if self.W is None else self.W.unbind(0)
        return zip(self.V.unbind(0), W, strict=True)

    def _residual(self, h: Tensor, V: Tensor, W: Tensor | None) -> Tensor:
        z = h if W is None else nn.functional.linear(h, W)
        return h + self.branch_scale * nn.functional.linear(self.activation(z), V)

    def _choose_branch_scale(self, beta: float | None, branch_scale: float | None) -> float:
        if branch_scale is not None:
            if beta is not None:
                raise ValueError("`beta` must not be given beside `branch_scale`; got both")
            if not (math.isfinite(branch_scale) and branch_scale > 0):
                raise ValueError(
                    f"`branch_scale` must be a positive finite number; got {branch_scale!r}"
                )
            return float(branch_scale)
        if beta is None:
            beta = self.weights.critical_beta
            if beta is None:
                raise ValueError(
                    "`beta` must be given, since the law of the weights states no critical "
                    f"exponent; got None and {self.weights!r}"
                )
        return branch_scale_from_beta(beta, self.depth)


def branch_activation(
    branch: str, activation: str | Callable[[Tensor], Tensor] | None
) -> Callable[[Tensor], Tensor]:
    """Return the activation of a branch: the default, or the one asked for, checked.

    Args:
        branch: a name of :data:`BRANCHES`.
        activation: a name, an entry-wise callable, or None for the branch's default.

    Returns:
        An entry-wise callable.

    Raises:
        ValueError: if the branch or the activation is unknown, or res-3 is asked for another
            activation than ReLU.
    """
    if branch not in BRANCHES:
        raise ValueError(f"`branch` must be one of {', '.join(BRANCHES)}; got {branch!r}")
    if activation is None:
        return resolve_activation("relu").function if branch == "res-3" else ParametricReLU()
    resolved = resolve_activation(activation)
    if branch == "res-3" and resolved.slopes != (1.0, 0.0):
        raise ValueError(
            f"`activation` must be 'relu' (or None) for res-3; got {activation!r}: "
            "choose branch='res-2' for another one"
        )
    return resolved.function
