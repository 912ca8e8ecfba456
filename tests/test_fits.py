"""Exponents: exact powers, coverage of the interval, a naive twin, errors."""

import numpy as np
import pytest
from scipy import stats

from scalinglimits.fits import fit_exponent


def test_pure_powers_are_exact():
    x = np.array([16.0, 32, 64, 128])
    fit = fit_exponent(x, 3 * x**-0.5)
    assert fit.exponent == pytest.approx(-0.5, abs=1e-12)
    assert np.exp(fit.log_prefactor) == pytest.approx(3)
    np.testing.assert_allclose(fit(x), 3 * x**-0.5)
    assert fit.upper - fit.lower < 1e-10


def test_agrees_with_linear_regression():
    rng = np.random.default_rng(0)
    x = np.repeat([8.0, 16, 32], 4)
    y = np.exp(0.7 * np.log(x) + 0.1 * rng.standard_normal(12))
    fit, line = fit_exponent(x, y), stats.linregress(np.log(x), np.log(y))
    assert fit.exponent == pytest.approx(line.slope)
    assert fit.stderr == pytest.approx(line.stderr)
    assert fit.interval(fit.confidence) == pytest.approx((fit.lower, fit.upper))


def test_weights_are_inverse_variances():
    x, y = np.array([1.0, 2, 4, 4]), np.array([1.0, 2, 4, 5])
    doubled = fit_exponent(x[[0, 1, 2, 2, 3]], y[[0, 1, 2, 2, 3]])
    weighted = fit_exponent(x, y, weights=[1, 1, 2, 1])
    assert weighted.exponent == pytest.approx(doubled.exponent)


def test_coverage():
    # n = 4000 intervals; with α = 1e-5 (4.42 standard deviations) the count of misses is within
    # 4000·0.05 ± 4.42·√(4000·0.05·0.95) = 200 ± 61.
    rng = np.random.default_rng(1)
    x = np.repeat([8.0, 16, 32], 3)
    misses = 0
    for _ in range(4000):
        fit = fit_exponent(x, np.exp(0.3 * rng.standard_normal(9)))
        misses += not fit.lower <= 0 <= fit.upper
    assert abs(misses - 200) <= 61


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        ([1, 2, 3], [1, 2], {}, "`x`, `y` and `weights` must be vectors of one length"),
        ([1, 2, 3], [1, 0, 2], {}, "`y` must be positive and finite; got 0.0"),
        ([1, -2, 3], [1, 1, 2], {}, "`x` must be positive and finite; got -2.0"),
        ([2, 2, 2], [1, 1, 2], {}, "`x` must have at least three points at two sizes"),
        ([1, 2, 4], [1, 1, 2], {"confidence": 1}, r"`confidence` must be in \(0, 1\); got 1"),
    ],
)
def test_errors(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        fit_exponent(x, y, **options)
