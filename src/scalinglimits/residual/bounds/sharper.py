r"""Bounds of our own on the norm ratio, sharper than R's, with their proofs.

**From above, any dominated entries.** Let the even moments of the entries be at most those of
:math:`N(0, r)`. Then for integers :math:`s` the conditional mean of
:math:`F^s = (\|h_{k+1}\|/\|h_k\|)^{2s}` is at most its value :math:`M(s)` for Gaussian weights of
variance :math:`r`, because :math:`F = \|u + \alpha\sqrt{x/d}\,X\|^2` expands into monomials in
the independent symmetric entries of :math:`X`, of which only even powers survive, all with
non-negative coefficients; likewise for :math:`x`. So :math:`E\rho^{2s} \le M(s)^L`, and Markov's
inequality gives, for every :math:`\delta` and :math:`s`,

.. math:: P\Bigl(\log\rho^2 \ge \frac{L\log M(s) + \log(1/\delta)}{s}\Bigr) \le \delta .

**From below, any entries.** Two bounds, of which the better is taken. *Cantelli*: R's own
argument with the moments of a step computed instead of estimated, and Cantelli's inequality for
Chebyshev's: with :math:`\mu \le E(Y-Y^2)`, :math:`v \ge \mathrm{Var}(Y-Y^2)` and
:math:`p_\eta \ge P(Y<-\eta)`,

.. math:: P\Bigl(\log\rho^2 \le L\mu - \sqrt{Lv(1/\delta'-1)}\Bigr) \le \delta,
    \qquad \delta' = \delta - Lp_{1/2} .

*Inverse moments*: on :math:`Y \ge -\eta`, Taylor's formula and :math:`E Y^3 \ge 0` give

.. math:: E\bigl[(1+Y)^{-s};\,Y\ge-\eta\bigr] \le N(s) = 1 - sE Y + \tfrac{s(s+1)}{2}E Y^2
    + \tbinom{s+3}{4}(1-\eta)^{-s-4}E Y^4

(cutting off :math:`Y<-\eta` only raises :math:`E Y` and :math:`E Y^3`), so
:math:`E[\rho^{-2s};\,\text{all } Y\ge-\eta] \le N(s)^L` and, by Markov's inequality,

.. math:: P\Bigl(\log\rho^2 \le -\frac{L\log N(s)+\log(1/\delta')}{s}\Bigr) \le \delta,
    \qquad \delta' = \delta - Lp_\eta .

**Gaussian entries, homogeneous** :math:`\sigma`: the quantiles themselves.
"""

from __future__ import annotations

__all__ = ["exact_norm_interval", "sharper_norm_lower_bound", "sharper_norm_upper_bound"]

import math

import numpy as np
from scipy.special import gammaln

from scalinglimits.laws import Normal, Rademacher, TruncatedNormal, Uniform
from scalinglimits.residual.assumptions import (
    Assumption,
    entry_assumption,
    mean_square_assumptions,
)
from scalinglimits.residual.bounds._steps import (
    crossing_probability,
    log_mean,
    log_variance,
    step_moments,
)
from scalinglimits.residual.bounds.record import Bound, Setting, check_delta
from scalinglimits.residual.norm_law import (
    NormLaw,
    chi_square_rule,
    factor_rule,
    log_factor_moment,
    product_rule,
)

_HIGHEST_ORDER = 23
"""The rules of 24 nodes integrate the polynomials F^s exactly up to here."""
_CUTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
"""Values of η that are tried."""


def sharper_norm_upper_bound(setting: Setting, delta: float) -> Bound:
    r"""Bound the norm of the last hidden state from above by its moments.

    .. math::

        \log\frac{\|h_L\|^2}{\|h_0\|^2} <
        \min_{s=1,2,…}\frac{L\log M(s) + \log(1/\delta)}{s}

    with :math:`M(s) = E F^s` of the Gaussian step; see the module's text for the proof. It holds
    for normal, truncated normal, uniform and Rademacher entries, for every width, depth and
    :math:`\delta`, and needs no condition on :math:`\alpha`.

    Args:
        setting: the networks.
        delta: probability of failure.

    Returns:
        The bound on the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1.

    Example:
        >>> bound = sharper_norm_upper_bound(Setting(100, 1000, beta=0.5), delta=0.25)
        >>> round(bound.norm_upper, 3)
        1.437
    """
    delta = check_delta(delta)
    constants, d = setting.constants, setting.width
    finite = Assumption(
        "A2 (finite)", "|σ(x)/x| bounded", constants.quotient[1], math.inf,
        math.isfinite(constants.quotient[1]),
    )  # fmt: skip
    assumptions = (entry_assumption(constants, independent=setting.independent), finite)
    value, order = math.inf, 0
    if finite.holds:
        logs, weights = _dominating_rule(setting)
        for s in range(1, _orders(setting) + 1):
            exponent = setting.depth * log_factor_moment(logs, weights, s) - math.log(delta)
            if exponent / s < value:
                value, order = exponent / s, s
    value = math.exp(value) if value < 709 else math.inf
    return Bound(
        theorem="Moment bound",
        quantity="‖h_L‖²/‖h_0‖²",
        lower=0.0,
        upper=value,
        delta=delta,
        assumptions=assumptions,
        consequence=(
            f"The hidden state is at most {math.sqrt(value):.3g} times its start "
            f"(moment {2 * order} of the norm, width {d})."
        ),
    )


def sharper_norm_lower_bound(setting: Setting, delta: float) -> Bound:
    r"""Bound the norm of the last hidden state from below by the moments of a step.

    The better of

    .. math::

        \log\frac{\|h_L\|^2}{\|h_0\|^2} > L\mu - \sqrt{L v\,(1/\delta' - 1)}
        \quad\text{and}\quad
        \log\frac{\|h_L\|^2}{\|h_0\|^2} > -\frac{L\log N(s) + \log(1/\delta')}{s}

    with the letters of the module's text, which has the proof; the second is for small
    :math:`\delta`. It needs neither :math:`d \ge 64` nor R's condition on :math:`\alpha`; where
    steps are too large, :math:`\delta' \le 0` and the bound fails.

    Args:
        setting: the networks.
        delta: probability of failure.

    Returns:
        The bound on the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1.

    Example:
        >>> bound = sharper_norm_lower_bound(Setting(100, 1000, beta=0.5), delta=0.25)
        >>> round(bound.norm_lower, 3)
        1.135
        >>> round(sharper_norm_lower_bound(Setting(100, 1000, beta=0.5), delta=1e-3).norm_lower, 3)
        0.972
    """
    delta = check_delta(delta)
    constants, d, alpha, L = setting.constants, setting.width, setting.alpha, setting.depth
    eighth = mean_square_assumptions(constants)[2]
    crossing = L * crossing_probability(constants, d, alpha)
    value, theorem = -math.inf, "Cantelli bound"
    if eighth.holds:
        if crossing < delta:
            v = log_variance(constants, d, alpha)
            spread = math.sqrt(L * v * (1 / (delta - crossing) - 1))
            value = L * log_mean(constants, d, alpha) - spread
        inverse = _inverse_moment_exponent(setting, delta)
        if inverse > value:
            value, theorem = inverse, "Inverse moment bound"
    value = math.exp(min(value, 709.0))
    return Bound(
        theorem=theorem,
        quantity="‖h_L‖²/‖h_0‖²",
        lower=value,
        upper=math.inf,
        delta=delta,
        assumptions=(
            entry_assumption(constants, independent=setting.independent),
            eighth,
            Assumption("crossing", "L P(Y < −½) < δ", crossing, delta, crossing < delta),
        ),
        consequence=f"The hidden state is at least {math.sqrt(value):.3g} times its start.",
    )


def _inverse_moment_exponent(setting: Setting, delta: float) -> float:
    """Return the best −(L log N(s) + log(1/δ'))/s over s and η."""
    constants, d, alpha, L = setting.constants, setting.width, setting.alpha, setting.depth
    mean = alpha**2 * constants.mean_square[0]
    second, fourth = step_moments(constants, d, alpha)
    s = np.geomspace(0.1, 1e4, 400)
    best = -math.inf
    for eta in _CUTS:
        left = delta - L * crossing_probability(constants, d, alpha, eta)
        if left <= 0:
            continue
        log_remainder = gammaln(s + 4) - gammaln(s) - math.log(24) - (s + 4) * math.log1p(-eta)
        excess = s * (s + 1) / 2 * second - s * mean
        excess += fourth * np.exp(np.minimum(log_remainder, 600.0))
        best = max(best, float(np.max(-(L * np.log1p(excess) - math.log(left)) / s)))
    return best


def exact_norm_interval(setting: Setting, delta: float) -> Bound:
    r"""Return the interval that holds the norm ratio with probability exactly 1-δ.

    Its ends are the quantiles :math:`\delta/2` and :math:`1-\delta/2` of the exact law.

    Args:
        setting: the networks: res-3 or homogeneous res-2, Gaussian entries.
        delta: probability outside, half on either side.

    Returns:
        The interval of the squared ratio.

    Raises:
        ValueError: if ``delta`` is not strictly between 0 and 1, the entries are not Gaussian
            or independent, or the branch has no exact law.

    Example:
        >>> interval = exact_norm_interval(Setting(100, 1000, beta=0.5), delta=0.5)
        >>> round(interval.norm_lower, 3), round(interval.norm_upper, 3)
        (1.218, 1.34)
    """
    delta = check_delta(delta)
    if not (isinstance(setting.entries, Normal) and setting.independent):
        raise ValueError(
            f"`setting` must have independent Gaussian entries; got {setting.entries!r}"
        )
    law = NormLaw(
        setting.width,
        setting.depth,
        branch_scale=setting.alpha,
        branch=setting.branch,
        activation=setting.activation,
    )
    low, high = np.exp(2 * law.ppf([delta / 2, 1 - delta / 2])).tolist()
    return Bound(
        theorem="Exact law",
        quantity="‖h_L‖²/‖h_0‖²",
        lower=low,
        upper=high,
        delta=delta,
        assumptions=(entry_assumption(setting.constants),),
        consequence="No interval with these tails is narrower.",
    )


def _dominating_rule(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Return the rule of log F for the Gaussian step that dominates the setting's."""
    constants, r = setting.constants, setting.constants.domination
    bound = constants.quotient[1]
    if setting.branch == "res-1":
        fixed = (np.array([bound**2]), np.ones(1))
        return product_rule(setting.width, setting.alpha * math.sqrt(r), fixed)
    slopes = constants.slopes
    if slopes is None:  # σ² ≤ b²x²: the linear branch of slope b dominates
        x, w = chi_square_rule(setting.width, _HIGHEST_ORDER + 1)
        return product_rule(setting.width, setting.alpha * r, (bound**2 * x / setting.width, w))
    return factor_rule(setting.width, setting.alpha * r, slopes)


def _orders(setting: Setting) -> int:
    """Return up to which order the moments of the entries are known to be dominated."""
    entries = setting.entries
    if isinstance(entries, Normal | Uniform | Rademacher | TruncatedNormal):
        return _HIGHEST_ORDER
    return 4
