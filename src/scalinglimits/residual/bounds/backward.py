r"""Bounds of R on the gradient: Propositions 6 and 7, Corollary 8.

For :math:`b = p_L/\|p_L\|` independent of the layers' weights (A3) and :math:`q_k(z)` the forward
derivative in the direction :math:`z \sim N(0, I)`,

.. math::

    \frac{\|p_0-p_L\|^2}{\|p_L\|^2} = E_z\bigl(b^\top(q_L(z)-z)\bigr)^2, \qquad
    q_L(z) - z = \alpha\sum_k V_{k+1}\,\frac{\partial g}{\partial h}\,q_k(z),

and :math:`E(b^\top V_{k+1}u)^2 = \|u\|^2/d` while cross terms vanish. So the mean is
:math:`\frac1d E\|q_L(z)-z\|^2`, between :math:`(1+m_\pm\alpha^2)^L-1`.
"""

from __future__ import annotations

__all__ = ["gradient_change_bound", "gradient_change_mean", "gradient_regime"]

import math

from scalinglimits.residual.assumptions import (
    Assumption,
    backward_assumptions,
    entry_assumption,
)
from scalinglimits.residual.bounds.record import Bound, Setting, check_delta


def gradient_change_bound(setting: Setting, delta: float) -> Bound:
    r"""Bound the change of the gradient from above (R, Proposition 6).

    .. math::

        \frac{\|p_0-p_L\|^2}{\|p_L\|^2} \le \frac{2L\alpha^2}{\delta}
        \qquad\text{if } L\alpha^2 \le 1 .

    Args:
        setting: the networks, with one output.
        delta: probability of failure.

    Returns:
        The bound on the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1.

    Example:
        >>> bound = gradient_change_bound(Setting(40, 1000, beta=1.0), delta=0.1)
        >>> round(bound.upper, 4), bound.guaranteed
        (0.02, True)
    """
    delta = check_delta(delta)
    T = setting.horizon
    value = 2 * T / delta
    return Bound(
        theorem="R, Proposition 6",
        quantity="‖p_0−p_L‖²/‖p_L‖²",
        lower=0.0,
        upper=value,
        delta=delta,
        assumptions=(
            *_common(setting),
            backward_assumptions(setting.constants)[1],
            Assumption.at_most("horizon", "Lα² ≤ 1", T, 1.0),
        ),
        consequence=(
            "The gradient flows back unchanged." if value < 1 else "The change is of bounded size."
        ),
    )


def gradient_change_mean(setting: Setting) -> Bound:
    r"""Bound the mean square of the gradient's change on both sides (R, Proposition 7).

    .. math::

        \Bigl(1+\frac{\alpha^2}{2}\Bigr)^L - 1 \le E\frac{\|p_0-p_L\|^2}{\|p_L\|^2}
        \le (1+\alpha^2)^L - 1

    with R's ½ and 1 replaced by what the branch has. For res-3 both are ½ and the mean is exact
    (for entries without atoms). The mean of :math:`\|p_0\|^2/\|p_L\|^2` is one more.

    Args:
        setting: the networks, with one output.

    Returns:
        The bound on the expectation.

    Example:
        >>> bound = gradient_change_mean(Setting(40, 100, beta=0.5))
        >>> round(bound.lower, 4) == round(bound.upper, 4) == 0.6467
        True
    """
    low, high = setting.constants.backward_mean_square
    finite = Assumption("A4 (finite)", "E‖∂g·q‖²/‖q‖² finite", high, math.inf, math.isfinite(high))
    return Bound(
        theorem="R, Proposition 7",
        quantity="E‖p_0−p_L‖²/‖p_L‖²",
        lower=_growth(low, setting),
        upper=_growth(high, setting),
        delta=None,
        assumptions=(*_common(setting), finite),
        consequence="At β = ½ the mean stays between two positive numbers at every depth.",
    )


def gradient_regime(setting: Setting, delta: float) -> Bound:
    r"""Say what becomes of the gradient, at this depth (R, Corollary 8).

    Args:
        setting: the networks, with one output.
        delta: probability of failure, used at :math:`\beta > ½` alone.

    Returns:
        At :math:`\beta > ½` Proposition 6, else Proposition 7.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1, or the depth is 1.

    Example:
        >>> gradient_regime(Setting(40, 1000, beta=0.25), delta=0.1).consequence
        'Explosion: the mean square of the gradient tends to infinity as L grows.'
    """
    delta = check_delta(delta)
    if setting.depth == 1:
        raise ValueError("`setting` must have a depth above 1; got 1")
    beta = -math.log(setting.alpha) / math.log(setting.depth)
    if beta > 0.5 + 1e-9:
        bound, part = gradient_change_bound(setting, delta), "i"
        words = "Identity: ‖p_0−p_L‖/‖p_L‖ tends to 0 in probability as L grows."
    elif beta < 0.5 - 1e-9:
        bound, part = gradient_change_mean(setting), "ii"
        words = "Explosion: the mean square of the gradient tends to infinity as L grows."
    else:
        bound, part = gradient_change_mean(setting), "iii"
        low, high = (math.expm1(m) for m in setting.constants.backward_mean_square)
        words = f"Fluctuation: the mean square tends to between {low:.3g} and {high:.3g}."
    return Bound(
        f"R, Corollary 8 ({part})", bound.quantity, bound.lower, bound.upper,
        bound.delta, bound.assumptions, words,
    )  # fmt: skip


def _common(setting: Setting) -> tuple[Assumption, ...]:
    return (
        entry_assumption(setting.constants, independent=setting.independent),
        Assumption.at_most("A3", "outputs of the network = 1", setting.out_features, 1),
    )


def _growth(mean_square: float, setting: Setting) -> float:
    exponent = setting.depth * math.log1p(mean_square * setting.alpha**2)
    return math.expm1(exponent) if exponent < 709 else math.inf
