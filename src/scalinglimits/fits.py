r"""Exponents of growth, with confidence intervals.

A quantity that behaves like `C x^p` is a line of slope `p` in logarithms. With standard errors the
points are weighted by them, otherwise their scatter says how sure the slope is.

Reference: G. A. F. Seber and A. J. Lee, *Linear Regression Analysis* (2003), chapters 3 and 10.
"""

from __future__ import annotations

__all__ = ["GrowthExponent", "fit_exponent"]

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


@dataclass(frozen=True)
class GrowthExponent:
    """A fit of `prefactor * x**value`.

    Attributes:
        value: the exponent.
        standard_error: its standard error.
        low: lower end of the confidence interval.
        high: upper end of the confidence interval.
        confidence: level of the interval.
        prefactor: value of the fit at `x = 1`.
        count: number of points.
    """

    value: float
    standard_error: float
    low: float
    high: float
    confidence: float
    prefactor: float
    count: int

    def __contains__(self, exponent: float) -> bool:
        """Whether an exponent is in the confidence interval."""
        return self.low <= exponent <= self.high

    def __call__(self, x: ArrayLike) -> np.ndarray:
        """The fit at `x`."""
        return self.prefactor * np.asarray(x, dtype=np.float64) ** self.value


def fit_exponent(
    x: ArrayLike,
    y: ArrayLike,
    standard_errors: ArrayLike | None = None,
    confidence: float = 0.95,
) -> GrowthExponent:
    r"""Fit the exponent of `y ~ C x^p` by linear regression of `log y` on `log x`.

    With standard errors `s_i` of the values, point `i` has weight `(y_i / s_i)^2` and the interval
    is Gaussian; if the points scatter more than their errors say, it is widened accordingly.
    Without, all points count the same and the interval is Student's, with two degrees of freedom
    fewer than points.

    Args:
        x: sizes, positive, at least two different ones.
        y: values, positive, of the same shape.
        standard_errors: of the values, positive; `None` if they are not known, and then at least
            three points are needed.
        confidence: level of the confidence interval.

    Returns:
        The exponent.

    Raises:
        ValueError: if shapes do not agree, there are too few points, or a number is not positive.

    Example:
        >>> fit = fit_exponent([1, 10, 100, 1000], [2.0, 0.21, 0.019, 0.002])
        >>> round(fit.value, 2), -1 in fit
        (-1.0, True)
    """
    sizes, values = _positive("x", x), _positive("y", y)
    errors = None if standard_errors is None else _positive("standard_errors", standard_errors)
    if values.shape != sizes.shape:
        raise ValueError(f"`y` must have the shape of `x`, {sizes.shape}; got {values.shape}")
    if errors is not None and errors.shape != sizes.shape:
        raise ValueError(
            f"`standard_errors` must have the shape of `x`, {sizes.shape}; got {errors.shape}"
        )
    least = 3 if errors is None else 2
    if len(sizes) < least or len(np.unique(sizes)) < 2:
        raise ValueError(
            f"`x` must have at least {least} points, two of them different; got {sizes.tolist()}"
        )
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"`confidence` must be strictly between 0 and 1; got {confidence}")
    horizontal, vertical = np.log(sizes), np.log(values)
    weights = np.ones_like(values) if errors is None else (values / errors) ** 2
    centre = weights @ horizontal / weights.sum()
    middle = weights @ vertical / weights.sum()
    spread = float(weights @ (horizontal - centre) ** 2)
    slope = float(weights @ ((horizontal - centre) * (vertical - middle))) / spread
    residual = vertical - middle - slope * (horizontal - centre)
    freedom = len(sizes) - 2
    scatter = float(weights @ residual**2) / freedom if freedom > 0 else 0.0
    tail = 0.5 + 0.5 * confidence
    if errors is None:
        quantile = float(special.stdtrit(freedom, tail))
    else:
        quantile, scatter = float(special.ndtri(tail)), max(1.0, scatter)
    error = math.sqrt(scatter / spread)
    return GrowthExponent(
        slope,
        error,
        slope - quantile * error,
        slope + quantile * error,
        confidence,
        math.exp(middle - slope * centre),
        len(sizes),
    )


def _positive(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)) or np.any(array <= 0.0):
        raise ValueError(f"`{name}` must be a list of positive, finite numbers; got {values!r}")
    return array
