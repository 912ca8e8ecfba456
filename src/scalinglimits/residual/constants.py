r"""Constants of a residual branch that the theorems ask for, in closed form where there is one.

Notation of R: a branch :math:`V g(h, W)` of width :math:`d`, :math:`x = \|g\|^2/\|h\|^2`. The
entries :math:`\xi` of :math:`\sqrt d\,V` and :math:`\sqrt d\,W` are independent, symmetric, of
variance 1 and :math:`s^2`-sub-Gaussian. The assumptions A2 and A4 ask for

.. math::

    \tfrac12 \le E[x \mid h] \le 1, \qquad E[x^4 \mid h] \le C, \qquad
    \tfrac12\|q\|^2 \le E\bigl[\|(\partial g/\partial h)\,q\|^2\bigr] \le \|q\|^2 .

**Moments.** For a unit vector :math:`u` let :math:`X = \sum_j \xi_j u_j`. Only even powers of each
:math:`\xi_j` survive in :math:`E X^{2k}`, all with coefficients of one sign. So if
:math:`E\xi^{2k} \le r^k(2k-1)!!` for :math:`k \le 4`, then :math:`E X^{2k} \le r^k(2k-1)!!`: the
moments of :math:`N(0, r)` dominate, in every direction. For the normal, truncated normal, uniform
and Rademacher laws :math:`r = 1`. The rows of :math:`W` are independent copies, so the moments of
:math:`x = \frac1d\sum_i \sigma(X_i)^2` follow from those of one :math:`X`; for slopes
:math:`(a_+, a_-)` symmetry gives :math:`E\sigma(X)^{2k} = \frac12(a_+^{2k}+a_-^{2k})\,E X^{2k}`.

Reference:
    R, Table 1 and Propositions 1 and 5.
"""

from __future__ import annotations

__all__ = ["BranchConstants", "branch_constants", "even_moments", "lipschitz_constant"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from scalinglimits.laws import EntryLaw, Normal, Rademacher, TruncatedNormal, Uniform
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import Activation, resolve_activation
from scalinglimits.residual.model import BRANCHES, branch_activation

_ODD_FACTORIALS = np.array([1.0, 3.0, 15.0, 105.0])
"""The moments :math:`(2k-1)!!` of the standard normal law, k = 1 … 4."""
_COARSE = 2.0**-8
_ZOOMS, _ZOOM_POINTS = 7, 33
_NEAR, _FAR = 2.0**8, 2.0**16


@dataclass(frozen=True)
class BranchConstants:
    r"""What the theorems need to know of a branch.

    Attributes:
        mean_square: bounds on :math:`E[\|g\|^2\mid h]/\|h\|^2`, over all :math:`h`.
        eighth_moment: :math:`C`, a bound on :math:`E[\|g\|^8\mid h]/\|h\|^8`.
        ratio_moments: bounds on :math:`E[x^k\mid h]`, k = 1 … 4; the last is :math:`C`.
        output_moments: bounds on :math:`E(\|Vg\|^2/\|g\|^2)^k`, k = 1 … 4.
        backward_mean_square: bounds on :math:`E\|(\partial g/\partial h)q\|^2/\|q\|^2`.
        lipschitz: the Lipschitz constant of :math:`\sigma`; inf if there is none.
        quotient: bounds on :math:`|\sigma(x)/x|`.
        slopes: :math:`(a_+, a_-)` of a positively homogeneous :math:`\sigma`, else None.
        sub_gaussian: :math:`s^2`.
        domination: :math:`r`: moments of the entries up to the eighth are at most those of
            :math:`N(0, r)`.
        exact: whether :math:`C` is attained (Gaussian entries, homogeneous :math:`\sigma`).
    """

    mean_square: tuple[float, float]
    eighth_moment: float
    ratio_moments: tuple[float, ...]
    output_moments: tuple[float, ...]
    backward_mean_square: tuple[float, float]
    lipschitz: float
    quotient: tuple[float, float]
    slopes: tuple[float, float] | None
    sub_gaussian: float
    domination: float
    exact: bool


def branch_constants(
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    entries: EntryLaw | None = None,
    *,
    width: int,
) -> BranchConstants:
    r"""Compute the constants of a branch (R, Propositions 1 and 5).

    For a positively homogeneous :math:`\sigma` everything is a closed formula of its slopes. For
    another :math:`\sigma` the ranges of :math:`\sigma(x)/x` and of :math:`\sigma'` are read off a
    grid (nine digits), and the formulas of slopes at the ends of the range bound the moments.

    Args:
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch; None is its default.
        entries: law of the entries of :math:`\sqrt d\,V` and :math:`\sqrt d\,W`; None is the
            normal law.
        width: :math:`d`.

    Returns:
        The constants.

    Raises:
        ValueError: if the branch is unknown, the activation does not fit it or the width is not
            a positive integer.
        TypeError: if ``entries`` is not an entry law.

    Example:
        >>> constants = branch_constants("res-3", width=100)
        >>> constants.mean_square, round(constants.eighth_moment, 4)
        ((0.5, 0.5), 0.0829)
        >>> branch_constants("res-1", width=100).eighth_moment
        1.0
    """
    if branch not in BRANCHES:
        raise ValueError(f"`branch` must be one of {', '.join(BRANCHES)}; got {branch!r}")
    width = positive_integer("width", width)
    law = Normal() if entries is None else entries
    moments = even_moments(law)
    domination = float(np.max((moments / _ODD_FACTORIALS) ** (1 / np.arange(1, 5))))
    resolved = resolve_activation(branch_activation(branch, activation))
    quotient, slope = _ranges(resolved)
    powers = domination ** np.arange(1, 5) * _ODD_FACTORIALS  # of one row
    powers[0] = 1.0
    output = _mean_moments(powers, width)
    if branch == "res-1":
        mean_square = (quotient[0] ** 2, quotient[1] ** 2)
        backward = (slope[0] ** 2, slope[1] ** 2)
        ratio = quotient[1] ** (2.0 * np.arange(1, 5))
    elif resolved.slopes is not None:
        halves = [(resolved.slopes[0] ** (2 * k) + resolved.slopes[1] ** (2 * k)) / 2
                  for k in range(1, 5)]  # fmt: skip
        mean_square = backward = (halves[0], halves[0])
        ratio = _mean_moments(np.array(halves) * powers, width)
    else:
        mean_square = (quotient[0] ** 2, quotient[1] ** 2)
        backward = (slope[0] ** 2, slope[1] ** 2)
        ratio = _mean_moments(quotient[1] ** (2.0 * np.arange(1, 5)) * powers, width)
    return BranchConstants(
        mean_square=mean_square,
        eighth_moment=float(ratio[3]),
        ratio_moments=tuple(ratio.tolist()),
        output_moments=tuple(output.tolist()),
        backward_mean_square=backward,
        lipschitz=lipschitz_constant(resolved.function),
        quotient=quotient,
        slopes=resolved.slopes,
        sub_gaussian=float(law.sub_gaussian),
        domination=domination,
        exact=branch != "res-1" and resolved.slopes is not None and isinstance(law, Normal),
    )


def even_moments(entries: EntryLaw) -> np.ndarray:
    r"""Return :math:`E\xi^{2k}`, k = 1 … 4, or upper bounds on them.

    Closed formulas for the four laws of the package. For another law the first two are its own
    and the others follow from sub-Gaussianity: :math:`(t\xi)^{2k}/(2k)! \le \cosh t\xi` and
    :math:`E\cosh t\xi \le e^{s^2t^2/2}` give, at :math:`t^2 = 2k/s^2`,
    :math:`E\xi^{2k} \le (2k)!\,(e s^2/2k)^k`.

    Args:
        entries: the law of one entry.

    Returns:
        Array of shape (4,).

    Raises:
        TypeError: if ``entries`` is not an entry law.

    Example:
        >>> from scalinglimits.laws import Uniform
        >>> even_moments(Uniform()).round(4).tolist()
        [1.0, 1.8, 3.8571, 9.0]
    """
    k = np.arange(1, 5)
    if isinstance(entries, Normal):
        return _ODD_FACTORIALS.copy()
    if isinstance(entries, Uniform):
        return 3.0**k / (2 * k + 1)
    if isinstance(entries, Rademacher):
        return np.ones(4)
    if isinstance(entries, TruncatedNormal):
        shares = special.gammainc(k + 0.5, entries.cut**2 / 2)
        shares /= special.gammainc(0.5, entries.cut**2 / 2)
        moments: np.ndarray = _ODD_FACTORIALS * shares / shares[0] ** k
        return moments
    if not isinstance(entries, EntryLaw):
        raise TypeError(f"`entries` must be an EntryLaw; got {entries!r}")
    bounds = special.factorial(2 * k) * (math.e * entries.sub_gaussian / (2 * k)) ** k
    bounds[:2] = 1.0, entries.fourth_moment
    return np.asarray(bounds, dtype=np.float64)


@torch.no_grad()
def lipschitz_constant(activation: str | Callable[[Tensor], Tensor]) -> float:
    r"""Estimate the Lipschitz constant of an activation; infinity if there seems to be none.

    The largest difference quotient over a uniform grid on [-8, 8], refined where it is steepest,
    and a geometric grid beyond. A quotient that still grows after six refinements (a jump, a
    root) or as the grid is extended (a square) stands for an infinite constant. A positively
    homogeneous activation has its larger slope.

    Args:
        activation: a name or an entry-wise callable.

    Returns:
        The constant.

    Raises:
        ValueError: if the activation is unknown or does not act entry by entry.
        TypeError: if it is neither a name nor callable.

    Example:
        >>> lipschitz_constant("relu"), round(lipschitz_constant("tanh"), 4)
        (1.0, 1.0)
        >>> lipschitz_constant(lambda x: x**2)
        inf
    """
    resolved = resolve_activation(activation)
    if resolved.slopes is not None:
        return max(abs(slope) for slope in resolved.slopes)

    def quotients(points: Tensor) -> Tensor:
        return (resolved.function(points).diff() / points.diff()).abs().nan_to_num(math.inf)

    points = _grid(_COARSE)
    slopes = [0.0]
    for _ in range(_ZOOMS):
        steep = quotients(points)
        place = int(steep.argmax())
        slopes.append(max(float(steep[place]), slopes[-1]))
        low, high = float(points[max(place - 1, 0)]), float(points[place + 1])
        points = torch.linspace(low, high, _ZOOM_POINTS, dtype=torch.float64)
    near, far = (float(quotients(_outer(end)).max()) for end in (_NEAR, _FAR))
    grows = slopes[-1] > 1.2 * slopes[-2] or far > 1.2 * max(near, slopes[-1])
    return math.inf if grows else max(slopes[-1], far)


def _ranges(activation: Activation) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ranges of |σ(x)/x| and |σ'(x)|."""
    if activation.slopes is not None:
        sizes = [abs(slope) for slope in activation.slopes]
        both = (min(sizes), max(sizes))
        return both, both
    x = torch.cat([_grid(_COARSE), _outer(_FAR), -_outer(_FAR), 2.0 ** -_exponents(8, 20)])
    x = torch.cat([x, -x[-13:]])
    x = x[x != 0]
    with torch.no_grad():
        quotients = (activation.function(x) / x).abs()
        at_zero = float(activation.function(torch.zeros(1, dtype=x.dtype)))
    try:
        slopes = activation.derivative(x).abs()
    except RuntimeError:  # not built of differentiable operations
        slopes = torch.tensor([0.0, math.inf])
    top = math.inf if at_zero != 0 else float(quotients.max())
    # A quotient seen to fall towards 0 at the end of the grid has the bound 0.
    low = float(quotients.min())
    flat = float(slopes.min())
    return (low if low > 1e-3 else 0.0, top), (flat if flat > 1e-3 else 0.0, float(slopes.max()))


def _mean_moments(moments: np.ndarray | Sequence[float], count: int) -> np.ndarray:
    """Return moments 1 … 4 of the mean of ``count`` independent copies, from those of one."""
    one, two, three, four = moments
    n = float(count)
    pairs, triples = n * (n - 1), n * (n - 1) * (n - 2)
    sums = [
        n * one,
        n * two + pairs * one**2,
        n * three + 3 * pairs * two * one + triples * one**3,
        n * four
        + pairs * (4 * three * one + 3 * two**2)
        + triples * 6 * two * one**2
        + triples * (n - 3) * one**4,
    ]
    return np.array(sums) / n ** np.arange(1, 5)


def _grid(step: float) -> Tensor:
    # The offset keeps the points off the kinks and jumps, which lie at round numbers.
    return torch.arange(-8.0, 8.0, step, dtype=torch.float64) + step / 3


def _outer(end: float) -> Tensor:
    return 2.0 ** torch.arange(3.0, math.log2(end), 0.125, dtype=torch.float64)


def _exponents(start: float, stop: float) -> Tensor:
    return torch.arange(start, stop + 1, 1.0, dtype=torch.float64)
