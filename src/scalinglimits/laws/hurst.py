r"""The Hurst index of observed sequences, by exact maximum likelihood.

Model: :math:`m` independent series :math:`x_i` of :math:`n` values, each normal with mean 0 (or
a constant mean of its own) and covariance :math:`\sigma^2 T(H)`,
:math:`T(H)_{jk} = \gamma(j-k)` that of fractional Gaussian noise. With :math:`\sigma^2` at its
best value :math:`\hat\sigma^2 = q/(mn)`, :math:`q = \sum_i x_i^\top T(H)^{-1}x_i`,

.. math:: \ell(H) = -\tfrac{mn}2\bigl(\log 2\pi\hat\sigma^2 + 1\bigr) - \tfrac m2\log\det T(H).

Series may be as short as two values when there are many of them: the coordinates of trained
weights followed through six layers tell their Hurst index. With unknown means the likelihood is
that of the contrasts (restricted likelihood), which unknown means do not bias:
:math:`mn` becomes :math:`m(n-1)`, :math:`q` loses
:math:`\sum_i(1^\top T^{-1}x_i)^2/(1^\top T^{-1}1)`, and :math:`\ell` loses
:math:`\tfrac m2\log(1^\top T^{-1}1/n)`.

Reference:
    "Scaling ResNets in the Large-depth Regime", section 4: the regularity of the weights
    across depth decides the critical branch scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import optimize, special

from scalinglimits.laws._toeplitz import FgnCovariance
from scalinglimits.laws._validate import check_real

if TYPE_CHECKING:
    import torch

__all__ = ["HurstEstimate", "estimate_hurst"]

_LOWEST, _HIGHEST = 0.001, 0.999
"""The search range: outside, the likelihood is flat to within what data can tell."""
_MOST_COMPRESSED = 256
"""The greatest length for which many series are replaced by a triangular factor."""


@dataclass(frozen=True)
class HurstEstimate:
    """A Hurst index estimated from data.

    Attributes:
        hurst: The estimate.
        standard_error: From the observed information; infinite if the likelihood has no maximum
            inside the search range.
        interval: The profile-likelihood confidence interval (low, high).
        confidence: The interval's confidence level.
        log_likelihood: The log-likelihood at the estimate (natural logarithm).
        variance: The estimated variance of one value.
        n_series: How many series were given.
        length: How many values each has.
    """

    hurst: float
    standard_error: float
    interval: tuple[float, float]
    confidence: float
    log_likelihood: float
    variance: float
    n_series: int
    length: int


def estimate_hurst(
    samples: np.ndarray | torch.Tensor,
    *,
    mean: Literal["zero", "constant"] = "zero",
    confidence: float = 0.95,
) -> HurstEstimate:
    r"""Estimate the Hurst index of fractional Gaussian noise from one or many series.

    The cost is that of about 25 evaluations of the likelihood: milliseconds each for lengths up
    to thousands, some 0.3 seconds at length 100,000.

    Args:
        samples: Independent series along the rows, of shape (n_series, length); or a single
            series of shape (length,). Weights stacked with depth first, of shape (L, ...),
            become ``weights.reshape(L, -1).T``.
        mean: ``"zero"`` if the series are centred by their law, as weights at initialisation
            are; ``"constant"`` if each has an unknown mean.
        confidence: The confidence level of the interval.

    Returns:
        The estimate with its uncertainty. Both ends of the interval and the estimate lie in
        [0.001, 0.999].

    Raises:
        TypeError: If ``samples`` is not numeric or ``confidence`` not a real number.
        ValueError: If ``samples`` has another shape, values that are not finite, too few values
            (2 a series, or 3 with unknown means) or no variation; or if ``mean`` is unknown or
            ``confidence`` outside (0, 1).

    Example:
        >>> import numpy as np
        >>> from scalinglimits.laws import fractional_gaussian_noise
        >>> rng = np.random.default_rng(0)
        >>> estimate = estimate_hurst(fractional_gaussian_noise(6, 0.8, 1000, generator=rng))
        >>> estimate.interval[0] < 0.8 < estimate.interval[1], estimate.standard_error < 0.02
        (True, True)
    """
    series = _as_series(samples)
    if mean not in ("zero", "constant"):
        raise ValueError(f"`mean` must be 'zero' or 'constant'; got {mean!r}")
    confidence = check_real("confidence", confidence)
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"`confidence` must be strictly between 0 and 1; got {confidence}")
    count, length = series.shape
    shortest = 2 if mean == "zero" else 3
    if count == 0 or length < shortest:
        raise ValueError(
            f"`samples` must have series of at least {shortest} values with mean={mean!r}; "
            f"got shape {series.shape}"
        )
    # Fixed means drop out of the contrasts anyway; taking them off first saves digits.
    centred = series - series.mean(axis=1, keepdims=True) if mean == "constant" else series
    size = float(np.abs(centred).max())
    if size <= 1e-14 * float(np.abs(series).max()):
        raise ValueError("`samples` must vary; got constant series")

    profile = _Profile(centred / size, constant_mean=mean == "constant")
    best = _maximum(profile)
    error = _standard_error(profile, best, count * length)
    # The chi-square quantile with one degree of freedom.
    drop = special.erfinv(confidence) ** 2
    low, high = (_crossing(profile, best, error, drop, side) for side in (-1, 1))
    return HurstEstimate(
        hurst=best,
        standard_error=error,
        interval=(low, high),
        confidence=confidence,
        log_likelihood=profile(best) - profile.freedom * math.log(size),
        variance=profile.variance(best) * size**2,
        n_series=count,
        length=length,
    )


class _Profile:
    """The log-likelihood as a function of the Hurst index alone."""

    def __init__(self, series: np.ndarray, *, constant_mean: bool) -> None:
        self.count, self.length = series.shape
        self.freedom = self.count * (self.length - constant_mean)
        self._constant_mean = constant_mean
        if self.count > 2 * self.length and self.length <= _MOST_COMPRESSED:
            # The likelihood knows the series through X^T X = R^T R only.
            series = np.asarray(np.linalg.qr(series, mode="r"))
        self._series = np.ascontiguousarray(series)
        self._known: dict[float, tuple[float, float]] = {}

    def __call__(self, hurst: float) -> float:
        return self._evaluate(hurst)[0]

    def variance(self, hurst: float) -> float:
        return self._evaluate(hurst)[1]

    def _evaluate(self, hurst: float) -> tuple[float, float]:
        hurst = float(hurst)
        if hurst not in self._known:
            covariance = FgnCovariance(self.length, hurst)
            form, log_det = covariance.quadratic_form(self._series), covariance.log_det
            if self._constant_mean:
                weights = covariance.solve(np.ones(self.length))
                weight = float(weights.sum())
                form -= float(np.sum((self._series @ weights) ** 2)) / weight
                log_det += math.log(weight / self.length)
            variance = form / self.freedom
            value = -0.5 * self.freedom * (math.log(2.0 * math.pi * variance) + 1.0)
            self._known[hurst] = (value - 0.5 * self.count * log_det, variance)
        return self._known[hurst]


def _maximum(profile: Callable[[float], float]) -> float:
    result = optimize.minimize_scalar(
        lambda hurst: -profile(hurst),
        bounds=(_LOWEST, _HIGHEST),
        method="bounded",
        options={"xatol": 1e-7},
    )
    # The bounded search stops short of the ends, where a maximum may well be.
    return max((float(result.x), _LOWEST, _HIGHEST), key=profile)


def _standard_error(profile: Callable[[float], float], best: float, values: int) -> float:
    if best in (_LOWEST, _HIGHEST):
        return math.inf
    step = min(0.5 / math.sqrt(values), 0.01, best - _LOWEST, _HIGHEST - best)
    curvature = (profile(best + step) - 2.0 * profile(best) + profile(best - step)) / step**2
    return 1.0 / math.sqrt(-curvature) if curvature < 0.0 else math.inf


def _crossing(
    profile: Callable[[float], float], best: float, error: float, drop: float, side: int
) -> float:
    """Return where the log-likelihood has fallen by ``drop``, or the end of the search range."""
    end = _LOWEST if side < 0 else _HIGHEST

    def excess(hurst: float) -> float:
        return profile(hurst) - profile(best) + drop

    inner, reach = best, min(1.2 * math.sqrt(2.0 * drop) * error, 1.0)
    while inner != end:
        outer = best + side * reach
        if side * (outer - end) >= 0.0:
            outer = end
        if excess(outer) <= 0.0:
            root: Any = optimize.brentq(excess, inner, outer, xtol=1e-4 * reach)
            return float(root)
        inner, reach = outer, 2.0 * reach
    return end


def _as_series(samples: object) -> np.ndarray:
    if hasattr(samples, "detach"):  # a tensor, on whatever device and in whatever precision
        samples = samples.detach().cpu().double().numpy()
    values = np.asarray(samples)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"`samples` must be real numbers; got dtype {values.dtype}")
    if values.ndim not in (1, 2):
        raise ValueError(
            "`samples` must have shape (n_series, length) or (length,); "
            f"got {values.ndim} dimensions"
        )
    series = np.atleast_2d(values.astype(np.float64))
    if not np.isfinite(series).all():
        raise ValueError("`samples` must be finite; got infinite or missing values")
    return series
