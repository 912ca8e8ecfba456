"""Estimation of the Hurst index: against dense algebra, coverage, consistency, errors."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import linalg, optimize, stats

from scalinglimits.laws import (
    _toeplitz,
    estimate_hurst,
    fgn_autocovariance,
    fractional_gaussian_noise,
)
from scalinglimits.laws._toeplitz import FgnCovariance, durbin_levinson, log_prediction_variance

HURSTS = [0.003, 0.1, 0.5, 0.7, 0.9, 0.999]


def dense(n, hurst):
    return linalg.toeplitz(fgn_autocovariance(n, hurst))


def dense_log_likelihood(series, hurst, mean):
    """The profile log-likelihood by dense algebra, with explicit contrasts: the naive twin."""
    count, n = series.shape
    covariance = dense(n, hurst)
    if mean == "constant":
        contrasts = linalg.null_space(np.ones((1, n)))
        series, covariance = series @ contrasts, contrasts.T @ covariance @ contrasts
    size = series.size
    factor = linalg.cholesky(covariance, lower=True)
    residuals = linalg.solve_triangular(factor, series.T, lower=True)
    variance = np.sum(residuals**2) / size
    log_det = 2.0 * np.sum(np.log(np.diag(factor)))
    return -0.5 * size * (math.log(2 * math.pi * variance) + 1.0) - 0.5 * count * log_det


def check_against_dense(n, hurst, tolerance):
    covariance, matrix = FgnCovariance(n, hurst), dense(n, hurst)
    series = np.random.default_rng(0).standard_normal((3, n))
    factor = linalg.cho_factor(matrix, lower=True)
    solution = linalg.cho_solve(factor, series.T)
    log_det = 2.0 * np.sum(np.log(np.diag(factor[0])))
    assert covariance.log_det == pytest.approx(log_det, abs=tolerance)
    form = covariance.quadratic_form(series)
    assert form == pytest.approx(np.sum(series.T * solution), rel=1e-10)
    np.testing.assert_allclose(
        covariance.solve(series[0]), solution[:, 0], atol=1e-10 * np.abs(solution).max()
    )


@pytest.mark.parametrize("hurst", HURSTS)
@pytest.mark.parametrize("n", [1, 2, 3, 6, 100, 701])
def test_determinant_and_inverse_by_recursion(n, hurst):
    check_against_dense(n, hurst, 1e-9)


@pytest.mark.parametrize("hurst", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
@pytest.mark.parametrize("n", [1500, 2000])
def test_determinant_and_inverse_by_extrapolation(n, hurst, monkeypatch):
    monkeypatch.setattr(_toeplitz, "_LARGEST_EXACT", 512)
    check_against_dense(n, hurst, 1e-8)


@pytest.mark.parametrize("hurst", [0.003, 0.01, 0.05, 0.2, 0.7, 0.99])
def test_extrapolated_determinant_of_a_large_matrix(hurst):
    n = 20_000
    gamma = fgn_autocovariance(n, hurst)
    log_dets = np.cumsum(durbin_levinson(gamma)[1])
    known = log_dets[: _toeplitz._LARGEST_EXACT]
    assert _toeplitz._extrapolated_log_det(n, hurst, known) == pytest.approx(log_dets[-1], abs=1e-8)


def test_recursion_predicts_an_autoregression():
    # gamma(k) = r^k: the best predictor is r times the last value, with variance 1 - r^2.
    predictor, log_variances = durbin_levinson(0.6 ** np.arange(8))
    np.testing.assert_allclose(predictor, [0.6, 0, 0, 0, 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(np.exp(log_variances), [1.0] + [0.64] * 7)


@pytest.mark.parametrize("hurst", [0.05, 0.3, 0.5, 0.8, 0.99])
def test_prediction_variance_is_the_mean_log_spectrum(hurst):
    with mpmath.workdps(30):
        h = mpmath.mpf(hurst)
        power = 2 * h + 1

        def log_density(omega):
            share = omega / (2 * mpmath.pi)
            images = mpmath.zeta(power, share) + mpmath.zeta(power, 1 - share)
            constant = 2 * mpmath.sin(mpmath.pi * h) * mpmath.gamma(power)
            return mpmath.log(
                constant * 2 * mpmath.sin(omega / 2) ** 2 * (2 * mpmath.pi) ** -power * images
            )

        exact = mpmath.quad(log_density, [0, 0.1, 1, mpmath.pi]) / mpmath.pi
    assert log_prediction_variance(hurst) == pytest.approx(float(exact), abs=1e-13)


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize(("count", "n", "hurst"), [(1, 80, 0.3), (7, 30, 0.8), (200, 5, 0.6)])
def test_estimate_is_the_maximum_of_the_dense_likelihood(count, n, hurst, mean):
    rng = np.random.default_rng(8)
    series = 3.0 * fractional_gaussian_noise(n, hurst, count, generator=rng)
    if mean == "constant":
        series += 100.0 * rng.standard_normal((count, 1))
    estimate = estimate_hurst(series, mean=mean)
    best = optimize.minimize_scalar(
        lambda h: -dense_log_likelihood(series, h, mean),
        bounds=(0.001, 0.999),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert estimate.hurst == pytest.approx(best.x, abs=1e-5)
    assert estimate.log_likelihood == pytest.approx(-best.fun, abs=1e-7)
    drop = 0.5 * stats.chi2.ppf(0.95, 1)
    for end in estimate.interval:
        assert -best.fun - dense_log_likelihood(series, end, mean) == pytest.approx(drop, abs=0.02)
    step = 1e-3
    slopes = [dense_log_likelihood(series, best.x + k * step, mean) for k in (-1, 0, 1)]
    curvature = (slopes[0] - 2 * slopes[1] + slopes[2]) / step**2
    assert estimate.standard_error == pytest.approx((-curvature) ** -0.5, rel=0.02)
    assert (estimate.n_series, estimate.length, estimate.confidence) == (count, n, 0.95)


@pytest.mark.parametrize(
    ("count", "n", "hurst", "mean"),
    [(60, 6, 0.7, "zero"), (60, 6, 0.3, "constant"), (3, 64, 0.6, "constant")],
)
def test_interval_covers(count, n, hurst, mean):
    # 300 repetitions, seed 9, alpha = 1e-5 below the nominal 95 %.
    rng, repetitions, hits = np.random.default_rng(9), 300, 0
    for _ in range(repetitions):
        series = fractional_gaussian_noise(n, hurst, count, generator=rng)
        low, high = estimate_hurst(series, mean=mean).interval
        hits += low <= hurst <= high
    assert stats.binom.cdf(hits, repetitions, 0.95) > 1e-5


def test_a_wider_confidence_gives_a_wider_interval():
    series = fractional_gaussian_noise(50, 0.6, 10, generator=np.random.default_rng(0))
    ends = [estimate_hurst(series, confidence=level).interval for level in (0.5, 0.9, 0.999)]
    assert ends[2][0] < ends[1][0] < ends[0][0] < ends[0][1] < ends[1][1] < ends[2][1]


@pytest.mark.parametrize(("count", "n"), [(1000, 6), (10, 1000), (1, 20_000)])
@pytest.mark.parametrize("hurst", [0.2, 0.8])
def test_estimate_is_near_the_truth(count, n, hurst):
    # seed 1, alpha = 1e-5: 4.5 standard errors of an asymptotically normal estimate.
    rng = np.random.default_rng(1)
    series = 2.0 * fractional_gaussian_noise(n, hurst, count, generator=rng)
    estimate = estimate_hurst(series)
    assert abs(estimate.hurst - hurst) < 4.5 * estimate.standard_error < 0.1
    assert estimate.variance == pytest.approx(4.0, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("hurst", [0.2, 0.9])
def test_a_hundred_thousand_values(hurst):
    series = fractional_gaussian_noise(10**5, hurst, 2, generator=np.random.default_rng(1))
    estimate = estimate_hurst(series)
    assert abs(estimate.hurst - hurst) < 4.5 * estimate.standard_error < 0.01


def test_scale_and_framework_do_not_matter():
    series = fractional_gaussian_noise(20, 0.7, 30, generator=np.random.default_rng(0))
    base = estimate_hurst(series)
    for factor in (1e-200, 1e200):
        scaled = estimate_hurst(factor**0.5 * series)
        assert scaled.hurst == pytest.approx(base.hurst, abs=1e-6)
        assert scaled.variance == pytest.approx(factor * base.variance)
    tensor = estimate_hurst(torch.from_numpy(series).requires_grad_())
    assert tensor == base


def test_weights_with_depth_first():
    weights = fractional_gaussian_noise(
        6, 0.8, (40, 25), generator=torch.Generator().manual_seed(0), axis=0
    )
    estimate = estimate_hurst(weights.reshape(6, -1).T)
    assert (estimate.n_series, estimate.length) == (1000, 6)
    assert estimate.interval[0] < 0.8 < estimate.interval[1]


def test_data_beyond_the_range_end_at_its_border():
    estimate = estimate_hurst(np.linspace(1.0, 1.001, 50))
    assert estimate.hurst == estimate.interval[1] == 0.999
    assert math.isinf(estimate.standard_error)
    rough = np.diff(np.diff(np.random.default_rng(0).standard_normal(50)))
    estimate = estimate_hurst(rough)
    assert estimate.hurst == estimate.interval[0] == 0.001


@pytest.mark.parametrize(
    ("samples", "options", "error", "message"),
    [
        (np.ones((2, 3, 4)), {}, ValueError, r"`samples` must have shape .*got 3 dimensions"),
        (3.0, {}, ValueError, r"`samples` must have shape .*got 0 dimensions"),
        (np.array(["a", "b"]), {}, TypeError, "`samples` must be real numbers; got dtype <U1"),
        (np.ones(3) * 1j, {}, TypeError, "`samples` must be real numbers; got dtype complex128"),
        ([1.0, math.nan], {}, ValueError, "`samples` must be finite"),
        ([1.0], {}, ValueError, "at least 2 values with mean='zero'; got shape"),
        (np.ones((0, 5)), {}, ValueError, r"at least 2 values .*got shape \(0, 5\)"),
        ([1.0, 2.0], {"mean": "constant"}, ValueError, "at least 3 values with mean='constant'"),
        (np.zeros((3, 4)), {}, ValueError, "`samples` must vary; got constant series"),
        (
            np.full((3, 4), 0.1),
            {"mean": "constant"},
            ValueError,
            "`samples` must vary; got constant series",
        ),
        ([1.0, 2.0], {"mean": "none"}, ValueError, "`mean` must be 'zero' or 'constant'"),
        ([1.0, 2.0], {"confidence": 1.0}, ValueError, "`confidence` must be strictly between"),
        ([1.0, 2.0], {"confidence": "95%"}, TypeError, "`confidence` must be a real number"),
    ],
)
def test_bad_arguments(samples, options, error, message):
    with pytest.raises(error, match=message):
        estimate_hurst(samples, **options)
