r"""The regime of a residual network at initialisation, before it is built.

R, Corollaries 4 and 8 and section 4.1: with branch scale :math:`L^{-\beta}` the network tends to
the identity for :math:`\beta > \beta_c`, explodes for :math:`\beta < \beta_c`, and is non-trivial
at :math:`\beta_c`, which depends on the weights' law across depth.
"""

from __future__ import annotations

__all__ = ["Regime", "Verdict", "classify_change", "regime"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from scalinglimits.laws import DepthLaw, Independent, Normal
from scalinglimits.residual._checks import depth_law, positive_integer
from scalinglimits.residual.model import branch_scale_from_beta
from scalinglimits.residual.response import limit_exponent, response_moments

Verdict = Literal["identity", "non-trivial", "explosion"]

"""What a residual network is at initialisation."""

_IDENTITY = 0.1
"""Change, measured or of first order, below which a network counts as the identity."""
_EXPLOSION = 10.0
"""Measured change above which a network counts as exploding."""
_FIRST_ORDER_EXPLOSION = 3.0
"""The same of the first-order change: independent weights then have a mean square of exp(9)."""
_TARGET = math.sqrt(0.5)
"""First-order change of the recommended exponent: that of independent res-3 at β = ½."""


@dataclass(frozen=True)
class Regime:
    r"""What a depth, an exponent and a law of the weights make of a network.

    Attributes:
        verdict: "identity", "non-trivial" or "explosion" at this depth.
        limit: the same as the depth tends to infinity at this exponent.
        change: first-order root mean square of :math:`\|h_L-h_0\|/\|h_0\|`.
        gradient_change: the same of :math:`\|p_0-p_L\|/\|p_L\|`.
        critical_beta: the exponent that separates the two limits.
        suggested_beta: the exponent to choose at this depth.
        reason: the verdict in words.
    """

    verdict: Verdict
    limit: Verdict
    change: float
    gradient_change: float
    critical_beta: float
    suggested_beta: float
    reason: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}"


def classify_change(change: float) -> Verdict:
    r"""Name the regime of a measured :math:`\|h_L-h_0\|/\|h_0\|`.

    Args:
        change: the ratio, at least 0.

    Returns:
        "identity" below 0.1, "explosion" above 10, else "non-trivial".

    Raises:
        ValueError: if the ratio is negative or NaN.

    Example:
        >>> classify_change(0.8)
        'non-trivial'
    """
    if not change >= 0:
        raise ValueError(f"`change` must be a number of at least 0; got {change!r}")
    if change < _IDENTITY:
        return "identity"
    return "explosion" if change > _EXPLOSION else "non-trivial"


def regime(
    width: int,
    depth: int,
    beta: float,
    weights: DepthLaw | None = None,
    *,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> Regime:
    r"""Say whether a residual network is identity, non-trivial or exploding, and why.

    .. math:: x = L^{-\beta}\sqrt{S_L}

    is the first-order size of the change of the signal, exact in mean square while it is small
    (:func:`response_moments`). Below 0.1 the network is called the identity, above 3 exploding.

    Args:
        width: size d of the hidden states.
        depth: number L of layers.
        beta: exponent of the branch scale.
        weights: law across depth; None is independent Gaussian. For a law that states no critical
            exponent, that of :math:`S_L` over the next octave of depth is taken.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch, positively homogeneous.

    Returns:
        The verdict with its numbers, and the exponent to choose: the one whose first-order change
        is :math:`\sqrt{1/2}`, which is ½ for independent weights in res-3 and tends to the
        critical exponent as the depth grows.

    Raises:
        TypeError: if ``weights`` is not a law across depth.
        ValueError: if a size is not a positive integer, ``beta`` is not finite, or branch or
            activation do not fit.

    Example:
        >>> from scalinglimits.laws import FractionalIncrements
        >>> from scalinglimits.residual import regime
        >>> regime(40, 1000, 0.5).verdict
        'non-trivial'
        >>> regime(40, 1000, 0.5, FractionalIncrements(0.9)).verdict
        'explosion'
    """
    depth = positive_integer("depth", depth)
    alpha = branch_scale_from_beta(beta, depth)
    law: DepthLaw = Independent(Normal()) if weights is None else depth_law(weights)
    moments = response_moments(law, depth, width=width, branch=branch, activation=activation)
    size, gradient_size = math.sqrt(moments.hidden[0]), math.sqrt(moments.gradient[0])
    change, gradient_change = alpha * size, alpha * gradient_size
    critical = law.critical_beta
    if critical is None:
        critical = _local_exponent(law, depth, width, branch, activation)
    else:
        critical = limit_exponent(critical, branch, activation)
    verdict: Verdict = (
        "identity"
        if change < _IDENTITY
        else "explosion"
        if change > _FIRST_ORDER_EXPLOSION
        else "non-trivial"
    )
    limit: Verdict = (
        "identity" if beta > critical else "explosion" if beta < critical else "non-trivial"
    )
    suggested = math.log(size / _TARGET) / math.log(depth) if depth > 1 else critical
    words = {
        "identity": "the layers together hardly change the signal",
        "non-trivial": "the layers together change the signal by its own order of size",
        "explosion": "each layer's change is amplified by the next ones",
    }
    reason = (
        f"{words[verdict]} (first-order ‖h_L−h_0‖/‖h_0‖ = {change:.3g}, gradient "
        f"{gradient_change:.3g}). β = {beta:.4g}, critical β = {critical:.4g} for {law!r}: "
        f"{limit} as the depth grows. At depth {depth} choose β = {suggested:.3f}."
    )
    return Regime(verdict, limit, change, gradient_change, critical, suggested, reason)


def _local_exponent(
    law: DepthLaw,
    depth: int,
    width: int,
    branch: str,
    activation: str | Callable[[Tensor], Tensor] | None,
) -> float:
    """Return half the exponent with which the first-order mean square grows at this depth."""
    depths = [depth, 2 * depth]
    moments = response_moments(law, depths, width=width, branch=branch, activation=activation)
    return math.log2(moments.hidden[1] / moments.hidden[0]) / 2
