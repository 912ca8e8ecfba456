r"""The exact law of the norm ratio as a distribution: its quantiles, cumulants and moments.

Notation of :mod:`scalinglimits.residual.exact`: Gaussian weights, slopes :math:`(a_+, a_-)`,
:math:`\log(\|h_L\|/\|h_0\|) = \frac12\sum_k \log F_k` with independent factors

.. math::

    F = \Bigl(1 + \frac{\alpha r z}{\sqrt d}\Bigr)^2 + \frac{\alpha^2 r^2 q}{d}, \qquad
    r^2 = \frac{a_+^2\chi^2_n + a_-^2\chi^2_{d-n}}{d}.

One layer is a product rule: Gauss--Hermite in :math:`z`, Gauss--Laguerre in :math:`q`, and the
Gauss rule of the law of :math:`r^2`, found by the Lanczos process from its mixture over
:math:`n`. The rules are exact for polynomials, so :math:`E F^s` is exact for integers
:math:`s \le 23`. Depth enters as a power: the characteristic function of the sum is
:math:`\varphi(\omega)^L`, whose cosine series is the distribution function (Fang and Oosterlee,
SIAM Journal on Scientific Computing 31, 2008). Nothing is drawn.

Reference:
    R, section 2.2: "determining the exact distribution of the ratio".
"""

from __future__ import annotations

__all__ = ["LogNormality", "NormLaw", "log_normality"]

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from torch import Tensor

from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.model import branch_activation, branch_scale_from_beta

_NODES = 24
"""Nodes of each one-dimensional rule."""
_CHECK_NODES = 32
_HALF_WINDOW = 12.0
"""Half the window of the cosine series, in standard deviations (and a share for skewness)."""
_RESOLVED = 6.0
"""Frequencies, over one layer's deviation, that rules of 24 nodes resolve: there φ is 1e-8."""
_NEGLIGIBLE = 1e-14
_ACCURACY = 1e-7


class NormLaw:
    r"""The law of :math:`\log(\|h_L\|/\|h_0\|)` for Gaussian weights, without sampling.

    Args:
        width: :math:`d`, at least about 8: below, the factor comes too near 0 for the rules.
        depth: :math:`L`.
        beta: :math:`\alpha = L^{-\beta}`; give this or ``branch_scale``.
        branch_scale: :math:`\alpha`.
        branch: "res-3" or "res-2".
        activation: of res-2, positively homogeneous.

    Raises:
        ValueError: if a size is not a positive integer, not exactly one of ``beta`` and
            ``branch_scale`` is given, the branch has no such law, or the width is too small for
            the rules at this scale.

    Example:
        >>> law = NormLaw(100, 1000, beta=0.5)
        >>> np.exp(law.ppf([0.25, 0.75])).round(4).tolist()
        [1.218, 1.3399]
    """

    def __init__(
        self,
        width: int,
        depth: int,
        *,
        beta: float | None = None,
        branch_scale: float | None = None,
        branch: str = "res-3",
        activation: str | Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.width = positive_integer("width", width)
        self.depth = positive_integer("depth", depth)
        if (beta is None) == (branch_scale is None):
            raise ValueError(
                "`beta` or `branch_scale` must be given, and not both; got "
                f"{beta!r} and {branch_scale!r}"
            )
        if branch_scale is None:
            branch_scale = branch_scale_from_beta(float(beta), self.depth)  # type: ignore[arg-type]
        elif not (math.isfinite(branch_scale) and branch_scale > 0):
            raise ValueError(
                f"`branch_scale` must be a positive finite number; got {branch_scale!r}"
            )
        if branch not in ("res-2", "res-3"):
            raise ValueError(f"`branch` must be 'res-2' or 'res-3'; got {branch!r}")
        slopes = resolve_activation(branch_activation(branch, activation)).slopes
        if slopes is None:
            raise ValueError(f"`activation` must be positively homogeneous; got {activation!r}")
        self.branch_scale = float(branch_scale)
        self.slopes = slopes
        self._logs, self._weights = factor_rule(self.width, self.branch_scale, slopes)
        logs, weights = factor_rule(self.width, self.branch_scale, slopes, _CHECK_NODES)
        mean, spread = self._mean_spread(self._logs, self._weights)
        other = self._mean_spread(logs, weights)
        if abs(mean - other[0]) + abs(spread - other[1]) > _ACCURACY * spread:
            raise ValueError(
                f"`width` must be larger for the rules to be accurate at branch scale "
                f"{self.branch_scale:.3g}; got {self.width}"
            )

    def log_moment(self, s: float) -> float:
        r"""Return :math:`\log E(\|h_L\|/\|h_0\|)^{2s}` .

        Args:
            s: the order; above -d/2, where the moment is infinite.

        Returns:
            The logarithm, :math:`L\log E F^s`.
        """
        return self.depth * log_factor_moment(self._logs, self._weights, s)

    def cumulants(self) -> np.ndarray:
        r"""Return the first four cumulants of :math:`\log(\|h_L\|/\|h_0\|)` .

        Returns:
            Array of shape (4,): mean, variance, third and fourth.
        """
        x = self._logs / 2
        mean = self._weights @ x
        second, third, fourth = (self._weights @ (x - mean) ** k for k in (2, 3, 4))
        result: np.ndarray = self.depth * np.array([mean, second, third, fourth - 3 * second**2])
        return result

    def cdf(self, log_ratio: ArrayLike) -> np.ndarray:
        r"""Return :math:`P(\log(\|h_L\|/\|h_0\|) \le x)` .

        Args:
            log_ratio: points x.

        Returns:
            Probabilities, the shape of ``log_ratio``.
        """
        start, length, coefficients = self._cosine_series
        y = np.clip((np.asarray(log_ratio, dtype=np.float64) - start) / length, 0.0, 1.0)
        k = np.arange(1, len(coefficients))
        waves = np.sin(np.pi * np.multiply.outer(y, k))
        total = coefficients[0] / 2 * y + waves @ (coefficients[1:] / (np.pi * k))
        return np.clip(total * length, 0.0, 1.0)

    def pdf(self, log_ratio: ArrayLike) -> np.ndarray:
        r"""Return the density of :math:`\log(\|h_L\|/\|h_0\|)`; divided by the ratio, the ratio's.

        Args:
            log_ratio: points x.

        Returns:
            Densities, the shape of ``log_ratio``.
        """
        start, length, coefficients = self._cosine_series
        y = (np.asarray(log_ratio, dtype=np.float64) - start) / length
        waves = np.cos(np.pi * np.multiply.outer(y, np.arange(1, len(coefficients))))
        density = coefficients[0] / 2 + waves @ coefficients[1:]
        return np.where((y >= 0) & (y <= 1), np.maximum(density, 0.0), 0.0)

    def ppf(self, probability: ArrayLike) -> np.ndarray:
        r"""Return quantiles of :math:`\log(\|h_L\|/\|h_0\|)` by bisection.

        Args:
            probability: strictly between 0 and 1.

        Returns:
            Quantiles, the shape of ``probability``.

        Raises:
            ValueError: if a probability is not strictly between 0 and 1.
        """
        p = np.asarray(probability, dtype=np.float64)
        if not bool(np.all((p > 0) & (p < 1))):
            raise ValueError(f"`probability` must be strictly between 0 and 1; got {probability!r}")
        start, length, _ = self._cosine_series
        low, high = np.full(p.shape, start), np.full(p.shape, start + length)
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        result: np.ndarray = (low + high) / 2
        return result

    @staticmethod
    def _mean_spread(logs: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
        mean = float(weights @ logs) / 2
        return mean, math.sqrt(float(weights @ (logs / 2 - mean) ** 2))

    @functools.cached_property
    def _cosine_series(self) -> tuple[float, float, np.ndarray]:
        mean, variance, third, _ = self.cumulants()
        spread = math.sqrt(variance)
        half = spread * (_HALF_WINDOW + 6 * abs(third) / spread**3)
        start, length = mean - half, 2 * half
        coefficients: list[np.ndarray] = []
        most = math.ceil(_RESOLVED * length / (math.pi * spread / math.sqrt(self.depth)))
        for first in range(0, most, 64):
            omega = np.pi / length * np.arange(first, min(first + 64, most))
            phi = np.expm1(1j * np.multiply.outer(omega, self._logs / 2)) @ self._weights
            power = np.exp(self.depth * np.log1p(phi))
            coefficients.append(2 / length * (power * np.exp(-1j * omega * start)).real)
            if abs(power[-1]) < _NEGLIGIBLE:
                break
        return start, length, np.concatenate(coefficients)


@dataclass(frozen=True)
class LogNormality:
    r"""How far :math:`\|h_L\|/\|h_0\|` is from log-normal.

    Attributes:
        width: :math:`d`.
        depth: :math:`L`.
        mean: of the logarithm.
        deviation: standard deviation of the logarithm.
        skewness: of the logarithm; 0 for a log-normal law.
        excess_kurtosis: of the logarithm; 0 for a log-normal law.
        distance: Kolmogorov--Smirnov distance to the log-normal law of the same mean and
            deviation: to the nearest one, nearly.
        distance_to_limit: the same distance to the limit law,
            :math:`N(cT(1-2/d)/2, cT/d)` for the logarithm.
    """

    width: int
    depth: int
    mean: float
    deviation: float
    skewness: float
    excess_kurtosis: float
    distance: float
    distance_to_limit: float

    @property
    def sample_size(self) -> float:
        """Networks that a Kolmogorov–Smirnov test at 5 % needs to notice ``distance``."""
        return (1.358 / self.distance) ** 2


def log_normality(
    width: int,
    depth: int,
    beta: float = 0.5,
    *,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> LogNormality:
    r"""Measure how far the norm ratio is from log-normal, exactly.

    It is log-normal in the limit of depth (:math:`\beta = ½`) and at no finite depth: the
    logarithm of the ratio is a sum of independent non-Gaussian terms, and by Cramér's theorem
    such a sum is Gaussian only if each term is.

    Args:
        width: :math:`d`.
        depth: :math:`L`.
        beta: :math:`\alpha = L^{-\beta}`.
        branch: "res-3" or "res-2".
        activation: of res-2, positively homogeneous.

    Returns:
        The record.

    Raises:
        ValueError: as :class:`NormLaw`.

    Example:
        >>> record = log_normality(100, 1000)
        >>> abs(record.skewness) < 1e-3, record.distance < 1e-4
        (True, True)
    """
    law = NormLaw(width, depth, beta=beta, branch=branch, activation=activation)
    mean, variance, third, fourth = law.cumulants()
    spread = math.sqrt(variance)
    grid = mean + spread * np.linspace(-6, 6, 2401)
    exact = law.cdf(grid)
    c = (law.slopes[0] ** 2 + law.slopes[1] ** 2) / 2
    horizon = depth * law.branch_scale**2
    limit_mean, limit_spread = c * horizon * (1 - 2 / width) / 2, math.sqrt(c * horizon / width)
    return LogNormality(
        width=law.width,
        depth=law.depth,
        mean=float(mean),
        deviation=spread,
        skewness=float(third / spread**3),
        excess_kurtosis=float(fourth / variance**2),
        distance=float(np.abs(exact - special.ndtr((grid - mean) / spread)).max()),
        distance_to_limit=float(
            np.abs(exact - special.ndtr((grid - limit_mean) / limit_spread)).max()
        ),
    )


def factor_rule(
    width: int, alpha: float, slopes: tuple[float, float], nodes: int = _NODES
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return a quadrature rule for the law of :math:`\log F`, the log-factor of one layer.

    Args:
        width: :math:`d`.
        alpha: :math:`\alpha`.
        slopes: :math:`(a_+, a_-)`.
        nodes: of each of the three one-dimensional rules.

    Returns:
        Values of :math:`\log F` and their weights, which sum to 1.
    """
    return product_rule(width, alpha, ratio_rule(width, slopes, nodes), nodes)


def product_rule(
    width: int, alpha: float, ratio: tuple[np.ndarray, np.ndarray], nodes: int = _NODES
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the rule of :math:`\log F` from that of :math:`r^2` .

    Args:
        width: :math:`d`.
        alpha: :math:`\alpha`.
        ratio: nodes and weights of the law of :math:`r^2`.
        nodes: of the rules of :math:`z` and :math:`q`.

    Returns:
        Values of :math:`\log F` and their weights, which sum to 1.
    """
    r_squared, w_r = ratio
    k = np.arange(nodes)
    z, w_z = _gauss(np.zeros(nodes), np.sqrt(k[1:]))
    q, w_q = chi_square_rule(width - 1, nodes)
    step = alpha**2 * np.maximum(r_squared, 0.0)[:, None, None] / width
    along = np.sqrt(step) * z[:, None]
    u = along * (2 + along) + step * q
    logs = np.log1p(np.maximum(u, np.expm1(-700.0)))
    weights = w_r[:, None, None] * w_z[:, None] * w_q
    return logs.ravel(), (weights / weights.sum()).ravel()


def ratio_rule(
    width: int, slopes: tuple[float, float], nodes: int = _NODES
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the Gauss rule of :math:`r^2 = (a_+^2\chi^2_n + a_-^2\chi^2_{d-n})/d` .

    Args:
        width: :math:`d`.
        slopes: :math:`(a_+, a_-)`.
        nodes: of the rule.

    Returns:
        Nodes and weights.
    """
    high, low = sorted((slopes[0] ** 2, slopes[1] ** 2), reverse=True)
    if high == low:
        x, w = chi_square_rule(width, nodes)
        return high * x / width, w
    n = np.arange(width + 1)
    log_binomial = special.gammaln(width + 1) - special.gammaln(n + 1)
    log_binomial -= special.gammaln(width - n + 1) + width * math.log(2)
    kept = n[log_binomial > -45.0]
    points, masses = [], []
    for count in kept.tolist():
        x, w = chi_square_rule(count, nodes)
        y, v = chi_square_rule(width - count, nodes) if low else (np.zeros(1), np.ones(1))
        points.append((high * x[:, None] + low * y).ravel() / width)
        masses.append(math.exp(log_binomial[count]) * (w[:, None] * v).ravel())
    return _lanczos(np.concatenate(points), np.concatenate(masses), nodes)


def chi_square_rule(degrees: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the Gauss rule of :math:`\chi^2_n`, which is 0 for n = 0.

    Args:
        degrees: n.
        nodes: of the rule.

    Returns:
        Nodes and weights.
    """
    if degrees == 0:
        return np.zeros(1), np.ones(1)
    k, shape = np.arange(nodes), degrees / 2
    x, w = _gauss(2 * k + shape, np.sqrt(k[1:] * (k[1:] + shape - 1)))
    return 2 * x, w


def log_factor_moment(logs: np.ndarray, weights: np.ndarray, s: float) -> float:
    r"""Return :math:`\log E F^s` by a rule.

    Args:
        logs: values of :math:`\log F`.
        weights: of the rule.
        s: the order.

    Returns:
        The logarithm, without overflow.
    """
    exponents = s * logs
    top = float(exponents.max())
    if top > 1.0:
        return top + math.log(float(weights @ np.exp(exponents - top)))
    return math.log1p(float(weights @ np.expm1(exponents)))


def _gauss(diagonal: np.ndarray, off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gauss rule of a Jacobi matrix (Golub and Welsch), of total weight 1."""
    matrix = np.diag(diagonal.astype(np.float64)) + np.diag(off, 1) + np.diag(off, -1)
    nodes, vectors = np.linalg.eigh(matrix)
    return nodes, vectors[0] ** 2


def _lanczos(points: np.ndarray, masses: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gauss rule of a discrete law."""
    centre = float(masses @ points / masses.sum())
    spread = math.sqrt(float(masses @ (points - centre) ** 2 / masses.sum()))
    x = (points - centre) / spread
    basis = [np.sqrt(masses / masses.sum())]
    diagonal, off = [], []
    for _ in range(min(nodes, len(points))):
        image = x * basis[-1]
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):  # twice is enough
            for vector in basis:
                image = image - (image @ vector) * vector
        norm = float(np.linalg.norm(image))
        if norm < 1e-13:
            break
        off.append(norm)
        basis.append(image / norm)
    rule, weights = _gauss(np.array(diagonal), np.array(off[: len(diagonal) - 1]))
    return centre + spread * rule, weights
