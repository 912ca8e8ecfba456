"""Exponents: exact powers, coverage of the interval, a naive twin, errors."""

import numpy as np
import pytest
from scipy import stats

from scalinglimits.fits import fit_exponent


def test_pure_powers_are_exact():
    x = np.array([16.0, 32, 64, 128])
    fit = fit_exponent(x, 3 * x**-0.5)
    assert fit.value == pytest.approx(-0.5, abs=1e-12)
    assert fit.prefactor == pytest.approx(3)
    np.testing.assert_allclose(fit(x), 3 * x**-0.5)
    assert fit.high - fit.low < 1e-10


def test_agrees_with_linear_regression():
    rng = np.random.default_rng(0)
    x = np.repeat([8.0, 16, 32], 4)
    y = np.exp(0.7 * np.log(x) + 0.1 * rng.standard_normal(12))
    fit, line = fit_exponent(x, y), stats.linregress(np.log(x), np.log(y))
    assert fit.value == pytest.approx(line.slope)
    assert fit.standard_error == pytest.approx(line.stderr)


def test_errors_are_weights():
    x, y = np.array([1.0, 2, 4, 8]), np.array([1.0, 2.1, 3.9, 8.3])
    s = np.array([0.1, 0.1, 0.2, 0.5])
    fit = fit_exponent(x, y, s)
    slope, _ = np.polyfit(np.log(x), np.log(y), 1, w=y / s)
    assert fit.value == pytest.approx(slope)


def test_coverage():
    # n = 4000 intervals; with α = 1e-5 (4.42 standard deviations) the count of misses is within
    # 4000·0.05 ± 4.42·√(4000·0.05·0.95) = 200 ± 61.
    rng = np.random.default_rng(1)
    x = np.repeat([8.0, 16, 32], 3)
    misses = 0
    for _ in range(4000):
        fit = fit_exponent(x, np.exp(0.3 * rng.standard_normal(9)))
        misses += 0.0 not in fit
    assert abs(misses - 200) <= 61


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        ([1, 2, 3], [1, 2], {}, "`y` must have the shape of `x`"),
        ([1, 2, 3], [1, 0, 2], {}, "`y` must be a list of positive, finite numbers"),
        ([1, -2, 3], [1, 1, 2], {}, "`x` must be a list of positive, finite numbers"),
        ([2, 2, 2], [1, 1, 2], {}, "`x` must have at least 3 points, two of them different"),
        ([1, 2, 4], [1, 1, 2], {"confidence": 1}, "`confidence` must be strictly between 0 and 1"),
        (
            [1, 2, 4],
            [1, 1, 2],
            {"standard_errors": [1, 1]},
            "`standard_errors` must have the shape",
        ),
    ],
)
def test_errors(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        fit_exponent(x, y, **options)
