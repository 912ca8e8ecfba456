r"""Bounds of R on the hidden states: Propositions 2 and 3, Corollary 4.

One step multiplies the squared norm by :math:`1 + Y_1 + Y_2` with

.. math::

    Y_1 = \alpha^2\frac{\|Vg\|^2}{\|h\|^2}, \qquad
    Y_2 = 2\alpha\frac{\langle h, Vg\rangle}{\|h\|^2}, \qquad
    E Y_1 \in [\tfrac{\alpha^2}{2}, \alpha^2], \quad E Y_2 = E Y_1Y_2 = 0 .

The derivations, and what is corrected in them, are in docs/limits.md.
"""

from __future__ import annotations

__all__ = [
    "change_interval",
    "hidden_change_bound",
    "hidden_change_mean",
    "hidden_norm_lower_bound",
    "hidden_norm_upper_bound",
    "hidden_regime",
    "nontrivial_width",
]

import math

from scalinglimits.residual.assumptions import (
    Assumption,
    entry_assumption,
    mean_square_assumptions,
)
from scalinglimits.residual.bounds._steps import crossing_probability, log_mean, log_variance
from scalinglimits.residual.bounds.record import Bound, Setting, check_delta


def hidden_change_bound(setting: Setting, delta: float, *, sharp: bool = False) -> Bound:
    r"""Bound the change of the hidden state from above (R, Proposition 2).

    .. math::

        \frac{\|h_L-h_0\|^2}{\|h_0\|^2} \le \frac{2L\alpha^2}{\delta}
        \qquad\text{if } L\alpha^2 \le 1 .

    Args:
        setting: the networks.
        delta: probability of failure.
        sharp: what the proof has before its last estimate: :math:`((1+m\alpha^2)^L - 1)/\delta`
            with :math:`m` the branch's own bound on :math:`E\|g\|^2/\|h\|^2`. It needs neither
            :math:`L\alpha^2 \le 1` nor :math:`m \le 1`.

    Returns:
        The bound on the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1.

    Example:
        >>> bound = hidden_change_bound(Setting(40, 1000, beta=1.0), delta=0.1)
        >>> round(bound.upper, 4), bound.guaranteed
        (0.02, True)
    """
    delta = check_delta(delta)
    T = setting.horizon
    a1, upper = _entries(setting), mean_square_assumptions(setting.constants)[1]
    assumptions: tuple[Assumption, ...]
    if sharp:
        value = _growth(setting.constants.mean_square[1], setting) / delta
        assumptions = (a1, _finite_mean_square(setting))
    else:
        value = 2 * T / delta
        assumptions = (a1, upper, Assumption.at_most("horizon", "Lα² ≤ 1", T, 1.0))
    return Bound(
        theorem="R, Proposition 2" + (" (sharp)" if sharp else ""),
        quantity="‖h_L−h_0‖²/‖h_0‖²",
        lower=0.0,
        upper=value,
        delta=delta,
        assumptions=assumptions,
        consequence=(
            "The network is near the identity." if value < 1 else "The change is of bounded size."
        ),
    )


def hidden_change_mean(setting: Setting) -> Bound:
    r"""Bound the mean square of the change of the hidden state on both sides.

    .. math::

        (1+m_-\alpha^2)^L - 1 \le E\frac{\|h_L-h_0\|^2}{\|h_0\|^2} \le (1+m_+\alpha^2)^L - 1

    with :math:`m_\pm` the branch's bounds on :math:`E\|g\|^2/\|h\|^2`; R has ½ and 1. For res-3
    and for homogeneous res-2 they agree, and the mean is exact. Since
    :math:`E\|h_L\|^2 = \|h_0\|^2 + E\|h_L-h_0\|^2`, one plus the bound holds for the norm.

    Args:
        setting: the networks.

    Returns:
        The bound on the expectation.

    Example:
        >>> bound = hidden_change_mean(Setting(40, 100, beta=0.5))
        >>> round(bound.lower, 4) == round(bound.upper, 4) == 0.6467
        True
    """
    low, high = setting.constants.mean_square
    return Bound(
        theorem="R, proof of Proposition 2",
        quantity="E‖h_L−h_0‖²/‖h_0‖²",
        lower=_growth(low, setting),
        upper=_growth(high, setting),
        delta=None,
        assumptions=(_entries(setting), _finite_mean_square(setting)),
        consequence="At β = ½ the mean stays between two positive numbers at every depth.",
    )


def hidden_norm_lower_bound(setting: Setting, delta: float) -> Bound:
    r"""Bound the norm of the last hidden state from below (R, Proposition 3 i).

    .. math::

        \frac{\|h_L\|^2}{\|h_0\|^2} >
        \exp\Bigl(\frac{3L\alpha^2}{8} - \sqrt{\frac{11L\alpha^2}{d\delta}}\Bigr)

    if :math:`d \ge 64`, :math:`\alpha^2 \le 2/((\sqrt Cs^4+4\sqrt C+16s^4)d)` and R's condition
    (5), :math:`2L\exp(-d/(64\alpha^2s^2)) \le \delta/11`. The proof of (5) takes a Jensen
    inequality in the wrong direction for res-2 and res-3, where :math:`\|g\|/\|h\|` is random.
    So the assumptions hold three more, under which the proof is complete: that
    :math:`L\,P(Y_2 < -½) \le \delta/11` by a moment bound, and that the mean and the variance of
    a step are what the proof uses. In practice they ask no more than R's.

    Args:
        setting: the networks.
        delta: probability of failure.

    Returns:
        The bound on the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1.

    Example:
        >>> bound = hidden_norm_lower_bound(Setting(100, 1000, beta=0.5), delta=0.25)
        >>> round(bound.norm_lower, 3), bound.guaranteed
        (0.866, True)
    """
    delta = check_delta(delta)
    T, d, L, alpha = setting.horizon, setting.width, setting.depth, setting.alpha
    constants = setting.constants
    s2 = constants.sub_gaussian
    root_C = math.sqrt(constants.eighth_moment)
    largest = 2 / ((root_C * s2**2 + 4 * root_C + 16 * s2**2) * d)
    crossing = 2 * L * math.exp(-d / (64 * alpha**2 * s2))
    value = _exp(3 * T / 8 - math.sqrt(11 * T / (d * delta)))
    assumptions = (
        _entries(setting),
        *mean_square_assumptions(constants),
        Assumption.at_least("width", "d ≥ 64", d, 64),
        Assumption.at_most("branch scale", "α² ≤ 2/((√C s⁴+4√C+16s⁴)d)", alpha**2, largest),
        Assumption.at_most("R (5)", "2L exp(−d/(64α²s²)) ≤ δ/11", crossing, delta / 11),
        Assumption.at_most(
            "R (5), repaired",
            "L P(Y < −½) ≤ δ/11",
            L * crossing_probability(constants, d, alpha),
            delta / 11,
        ),
        Assumption.at_least(
            "step mean", "E(Y−Y²) ≥ 3α²/8", log_mean(constants, d, alpha), 3 * alpha**2 / 8
        ),
        Assumption.at_most(
            "step variance",
            "Var(Y−Y²) ≤ 10α²/d",
            log_variance(constants, d, alpha),
            10 * alpha**2 / d,
        ),
    )
    return Bound(
        theorem="R, Proposition 3 (i)",
        quantity="‖h_L‖²/‖h_0‖²",
        lower=value,
        upper=math.inf,
        delta=delta,
        assumptions=assumptions,
        consequence=(
            "The hidden state has grown."
            if value > 1
            else f"The hidden state has not shrunk below {math.sqrt(value):.3g} times its start."
        ),
    )


def hidden_norm_upper_bound(setting: Setting, delta: float) -> Bound:
    r"""Bound the norm of the last hidden state from above (R, Proposition 3 ii).

    .. math::

        \frac{\|h_L\|^2}{\|h_0\|^2} <
        \exp\Bigl(L\alpha^2 + \sqrt{\frac{5L\alpha^2}{d\delta}}\Bigr)
        \qquad\text{if } \alpha^2 \le \frac{1}{\sqrt C(d+128s^4)} .

    Args:
        setting: the networks.
        delta: probability of failure.

    Returns:
        The bound on the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1.

    Example:
        >>> bound = hidden_norm_upper_bound(Setting(100, 1000, beta=0.5), delta=0.25)
        >>> round(bound.norm_upper, 3), bound.guaranteed
        (2.062, True)
    """
    delta = check_delta(delta)
    T, d, alpha = setting.horizon, setting.width, setting.alpha
    constants = setting.constants
    largest = 1 / (math.sqrt(constants.eighth_moment) * (d + 128 * constants.sub_gaussian**2))
    _, upper, eighth = mean_square_assumptions(constants)
    value = _exp(T + math.sqrt(5 * T / (d * delta)))
    return Bound(
        theorem="R, Proposition 3 (ii)",
        quantity="‖h_L‖²/‖h_0‖²",
        lower=0.0,
        upper=value,
        delta=delta,
        assumptions=(
            _entries(setting),
            upper,
            eighth,
            Assumption.at_most("branch scale", "α² ≤ 1/(√C(d+128s⁴))", alpha**2, largest),
        ),
        consequence=f"The hidden state is at most {math.sqrt(value):.3g} times its start.",
    )


def hidden_regime(setting: Setting, delta: float) -> Bound:
    r"""Say what becomes of the hidden state, at this depth (R, Corollary 4).

    At :math:`\beta > ½` Proposition 2, at :math:`\beta < ½` Proposition 3 (i), and at
    :math:`\beta = ½` both parts of Proposition 3, each with probability of failure
    :math:`\delta/2`.

    Args:
        setting: the networks.
        delta: probability of failure.

    Returns:
        A bound on :math:`\|h_L-h_0\|^2/\|h_0\|^2`.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1, or the depth is 1, where
            :math:`\beta` means nothing.

    Example:
        >>> bound = hidden_regime(Setting(10_000, 10**6, beta=0.5), delta=0.25)
        >>> round(bound.lower, 3), round(bound.upper, 3), bound.guaranteed
        (0.023, 7.299, True)
    """
    delta = check_delta(delta)
    if setting.depth == 1:
        raise ValueError("`setting` must have a depth above 1; got 1")
    beta = -math.log(setting.alpha) / math.log(setting.depth)
    if beta > 0.5 + 1e-9:
        bound = hidden_change_bound(setting, delta)
        words = "Identity: ‖h_L−h_0‖/‖h_0‖ tends to 0 in probability as L grows."
        return _renamed(bound, "R, Corollary 4 (i)", bound.lower, bound.upper, words)
    if beta < 0.5 - 1e-9:
        bound = hidden_norm_lower_bound(setting, delta)
        words = "Explosion: ‖h_L‖/‖h_0‖ tends to infinity in probability as L grows."
        return _renamed(bound, "R, Corollary 4 (ii)", change_interval(bound)[0], math.inf, words)
    below, above = (
        bound(setting, delta / 2) for bound in (hidden_norm_lower_bound, hidden_norm_upper_bound)
    )
    words = "Fluctuation: the change is of one size at every depth."
    both = Bound(
        theorem="R, Corollary 4 (iii)",
        quantity="‖h_L‖²/‖h_0‖²",
        lower=below.lower,
        upper=above.upper,
        delta=delta,
        assumptions=(*below.assumptions, above.assumptions[-1]),
        consequence=words,
    )
    return _renamed(both, both.theorem, *change_interval(both), words)


def change_interval(bound: Bound) -> tuple[float, float]:
    r"""Turn bounds on the norm ratio into bounds on the change.

    The triangle inequality, and no more, gives for :math:`\rho = \|h_L\|/\|h_0\|`

    .. math:: (\rho-1)^2 \le \frac{\|h_L-h_0\|^2}{\|h_0\|^2} \le (\rho+1)^2 .

    Args:
        bound: on :math:`\rho^2`.

    Returns:
        Bounds on :math:`\|h_L-h_0\|^2/\|h_0\|^2`.

    Raises:
        ValueError: if ``bound`` is about another quantity.

    Example:
        >>> low, high = change_interval(hidden_norm_upper_bound(Setting(100, 1000, 0.5), 0.25))
        >>> low, round(high, 3)
        (0.0, 9.375)
    """
    if bound.quantity != "‖h_L‖²/‖h_0‖²":
        raise ValueError(f"`bound` must be about ‖h_L‖²/‖h_0‖²; got {bound.quantity}")
    low = max(bound.norm_lower - 1, 1 - bound.norm_upper, 0.0) ** 2
    return low, (bound.norm_upper + 1) ** 2


def nontrivial_width(delta: float, *, horizon: float = 1.0, two_sided: bool = False) -> float:
    r"""Return the width above which Proposition 3 (i) shows that the norm has grown.

    :math:`\exp(3T/8 - \sqrt{11T/(d\delta)}) > 1` is :math:`d > 704/(9\delta T)`. R prints
    :math:`99/(64\delta)`, at which the exponent is :math:`3/8 - 8/3 < 0`.

    Args:
        delta: probability of failure.
        horizon: :math:`T = L\alpha^2`.
        two_sided: Corollary 4 (iii), which needs both bounds at once, each at
            :math:`\delta/2`: twice the width.

    Returns:
        The width.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1, or ``horizon`` not positive.

    Example:
        >>> round(nontrivial_width(0.25), 1)
        312.9
    """
    delta = check_delta(delta)
    if not (math.isfinite(horizon) and horizon > 0):
        raise ValueError(f"`horizon` must be a positive finite number; got {horizon!r}")
    return (2 if two_sided else 1) * 704 / (9 * delta * horizon)


def _entries(setting: Setting) -> Assumption:
    return entry_assumption(setting.constants, independent=setting.independent)


def _finite_mean_square(setting: Setting) -> Assumption:
    high = setting.constants.mean_square[1]
    return Assumption("A2 (finite)", "E‖g‖²/‖h‖² finite", high, math.inf, math.isfinite(high))


def _growth(mean_square: float, setting: Setting) -> float:
    """Return (1 + m α²)^L − 1."""
    exponent = setting.depth * math.log1p(mean_square * setting.alpha**2)
    return math.expm1(exponent) if exponent < 709 else math.inf


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 709 else math.inf


def _renamed(bound: Bound, theorem: str, lower: float, upper: float, words: str) -> Bound:
    return Bound(theorem, "‖h_L−h_0‖²/‖h_0‖²", lower, upper, bound.delta, bound.assumptions, words)
