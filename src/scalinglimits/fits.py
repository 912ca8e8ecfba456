r"""Exponents of growth with confidence intervals.

A quantity that grows as $y = c\,x^e$ is a line on logarithmic axes. The replicates at each size
(seeds) tell its scatter; least squares on all of them gives the exponent $e$, and Student's $t$
with $n-2$ degrees of freedom its interval. Curvature that a pure power does not explain widens the
interval as scatter does.
"""

from __future__ import annotations

__all__ = ["ExponentFit", "fit_exponent"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats


@dataclass(frozen=True)
class ExponentFit:
    """A fitted power law.

    Attributes:
        exponent: the slope of log y against log x.
        stderr: its standard error.
        dof: degrees of freedom behind it.
        log_prefactor: natural logarithm of c, so that y = c·x^exponent.
        confidence: level of the interval.
        lower: lower end of the interval.
        upper: upper end of the interval.
        count: number of points.
    """

    exponent: float
    stderr: float
    dof: int
    log_prefactor: float
    confidence: float
    lower: float
    upper: float
    count: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the confidence interval at another level.

        Args:
            confidence: in (0, 1).

        Returns:
            Lower and upper end.

        Raises:
            ValueError: if `confidence` is not in (0, 1).
        """
        half = _quantile(confidence, self.dof) * self.stderr
        return self.exponent - half, self.exponent + half

    def __call__(self, x: NDArray[np.floating] | float) -> NDArray[np.floating]:
        """Return the fitted line at sizes x."""
        return np.exp(self.log_prefactor) * np.asarray(x, float) ** self.exponent


def fit_exponent(
    x: Sequence[float] | NDArray[np.floating],
    y: Sequence[float] | NDArray[np.floating],
    *,
    weights: Sequence[float] | NDArray[np.floating] | None = None,
    confidence: float = 0.95,
) -> ExponentFit:
    """Fit y = c·x^e, with a confidence interval for e.

    Args:
        x: sizes, positive, shape (n,); a size that was measured with r seeds appears r times.
        y: measurements, positive, shape (n,).
        weights: inverse variances of log y up to a factor, shape (n,); equal by default.
        confidence: level of the interval.

    Returns:
        The fit.

    Raises:
        ValueError: if the lengths differ, a value is not positive, there are fewer than three
            points or fewer than two sizes, or `confidence` is not in (0, 1).

    Example:
        >>> fit = fit_exponent([32, 64, 128] * 2, [3.2, 6.5, 12.7, 3.1, 6.4, 13.0])
        >>> round(fit.exponent, 2), fit.lower < 1 < fit.upper
        (1.01, True)
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, float)
    if x.ndim != 1 or x.shape != y.shape or w.shape != x.shape:
        raise ValueError(
            f"`x`, `y` and `weights` must be vectors of one length; "
            f"got shapes {x.shape}, {y.shape}, {w.shape}"
        )
    for name, values in (("x", x), ("y", y), ("weights", w)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            bad = values[~(np.isfinite(values) & (values > 0))][0]
            raise ValueError(f"`{name}` must be positive and finite; got {bad}")
    if len(x) < 3 or len(np.unique(x)) < 2:
        raise ValueError(
            f"`x` must have at least three points at two sizes or more; "
            f"got {len(x)} points at {len(np.unique(x))}"
        )
    u, v = np.log(x), np.log(y)
    u_mean, v_mean = np.average(u, weights=w), np.average(v, weights=w)
    spread = float(np.sum(w * (u - u_mean) ** 2))
    slope = float(np.sum(w * (u - u_mean) * (v - v_mean)) / spread)
    intercept = float(v_mean - slope * u_mean)
    dof = len(x) - 2
    residual = float(np.sum(w * (v - intercept - slope * u) ** 2))
    stderr = float(np.sqrt(residual / dof / spread))
    half = _quantile(confidence, dof) * stderr
    return ExponentFit(
        exponent=slope,
        stderr=stderr,
        dof=dof,
        log_prefactor=intercept,
        confidence=confidence,
        lower=slope - half,
        upper=slope + half,
        count=len(x),
    )


def _quantile(confidence: float, dof: int) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must be in (0, 1); got {confidence}")
    return float(stats.t.ppf((1 + confidence) / 2, dof))
