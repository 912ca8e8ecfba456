r"""Moments of one step: what the proofs of Proposition 3 and of its sharper forms share.

Given :math:`h`, with :math:`x = \|g\|^2/\|h\|^2`, :math:`Q = \|Vg\|^2/\|g\|^2` and
:math:`\psi = \sqrt d\,\langle h, Vg\rangle/(\|h\|\|g\|)`,

.. math:: Y = Y_1 + Y_2, \qquad Y_1 = \alpha^2xQ, \qquad Y_2 = 2\alpha\sqrt{x/d}\,\psi .

:math:`\psi` is symmetric given :math:`(x, Q)`, so odd powers of :math:`Y_2` vanish in every
expectation; :math:`E\psi^{2k} \le r^k(2k-1)!!` and :math:`E\psi^2 = EQ = 1`.
"""

from __future__ import annotations

__all__ = ["crossing_probability", "log_mean", "log_variance", "step_moments"]

import math

from scalinglimits.residual.constants import BranchConstants


def log_mean(constants: BranchConstants, d: int, alpha: float) -> float:
    r"""Return a lower bound on :math:`E(Y - Y^2)`.

    :math:`E Y - E Y_1^2 - E Y_2^2 \ge \alpha^2 m(1 - 4/d) - \alpha^4\,E x^2\,E Q^2`, where
    :math:`m` is the lower bound on :math:`E x` (the coefficient is positive for d > 4).
    """
    x, Q = constants.ratio_moments, constants.output_moments
    low, high = constants.mean_square
    m = low if d > 4 else high
    return alpha**2 * m * (1 - 4 / d) - alpha**4 * x[1] * Q[1]


def step_moments(constants: BranchConstants, d: int, alpha: float) -> tuple[float, float]:
    r"""Return upper bounds on :math:`E Y^2` and :math:`E Y^4`.

    :math:`E Y^2 = E Y_1^2 + E Y_2^2` and :math:`E Y^4 = E Y_1^4 + 6E Y_1^2Y_2^2 + E Y_2^4`.
    """
    x, Q, r = constants.ratio_moments, constants.output_moments, constants.domination
    second = alpha**4 * x[1] * Q[1] + 4 * alpha**2 * constants.mean_square[1] / d
    mixed = 4 * alpha**6 / d * x[2] * math.sqrt(3 * r**2 * Q[3])  # E Y₁²Y₂², Cauchy–Schwarz
    fourth = alpha**8 * x[3] * Q[3] + 6 * mixed + 48 * r**2 * alpha**4 * x[1] / d**2
    return second, fourth


def log_variance(constants: BranchConstants, d: int, alpha: float) -> float:
    r"""Return an upper bound on :math:`\mathrm{Var}(Y - Y^2)`.

    It is :math:`\mathrm{Var}\,Y - 2\,\mathrm{Cov}(Y, Y^2) + \mathrm{Var}\,Y^2`, at most
    :math:`E Y^2 - (E Y)^2 + 2\,E Y\,E Y^2 + E Y^4` since :math:`E Y^3 \ge 0`.
    """
    low, high = constants.mean_square
    second, fourth = step_moments(constants, d, alpha)
    return second - (alpha**2 * low) ** 2 + 2 * alpha**2 * high * second + fourth


def crossing_probability(
    constants: BranchConstants, d: int, alpha: float, eta: float = 0.5
) -> float:
    r"""Return an upper bound on :math:`P(Y < -\eta \mid h)`.

    :math:`Y \ge Y_2`, which is symmetric: :math:`P(Y_2 < -\eta) \le ½\,\eta^{-8}\,E Y_2^8
    = ½\,(2/\eta)^8\alpha^8 E x^4\,E\psi^8/d^4`. Where :math:`x \le b` for certain,
    :math:`Y_2` is sub-Gaussian and :math:`P \le \exp(-d\eta^2/(8\alpha^2s^2b))` may be smaller.
    """
    r, x = constants.domination, constants.ratio_moments
    moment = 0.5 * (2 / eta) ** 8 * alpha**8 * x[3] * 105 * r**4 / d**4
    if x[3] == x[0] ** 4:  # x does not vary: res-1
        s2 = constants.sub_gaussian
        return min(moment, math.exp(-d * eta**2 / (8 * alpha**2 * s2 * x[0])), 1.0)
    return min(moment, 1.0)
