"""Fractional Gaussian noise: exact covariance by linearity, right values, reproducibility."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from scalinglimits.laws import (
    _circulant,
    fgn_autocovariance,
    fractional_brownian_motion,
    fractional_gaussian_noise,
)
from scalinglimits.laws.fractional import _fgn_amplitudes

HURSTS = [1e-6, 0.01, 0.1, 0.3, 0.49, 0.5, 0.51, 0.7, 0.9, 0.99, 1 - 1e-6]


def exact_autocovariance(lag, hurst):
    with mpmath.workdps(60):
        power = 2 * mpmath.mpf(hurst)
        terms = [mpmath.mpf(abs(lag + shift)) ** power for shift in (1, 0, -1)]
        return float((terms[0] - 2 * terms[1] + terms[2]) / 2)


def covariance_of(transform, width):
    """The covariance of a map that is linear in its noise, from the images of basis vectors."""
    image = np.asarray(transform(np.eye(width)))
    return image.T @ image


@pytest.mark.parametrize("hurst", HURSTS)
def test_autocovariance_has_full_relative_precision(hurst):
    lags = [0, 1, 2, 3, 4, 7, 15, 16, 17, 100, 4321, 10**6 - 1]
    gamma = fgn_autocovariance(10**6, hurst)
    exact = np.array([exact_autocovariance(lag, hurst) for lag in lags])
    np.testing.assert_allclose(gamma[lags], exact, rtol=2e-14, atol=0.0)


def test_autocovariance_at_large_lag_where_the_closed_formula_fails():
    # H = 0.99, lag 10^6: the closed formula in float64 gives about -0.197.
    value = fgn_autocovariance(10**6 + 1, 0.99)[10**6]
    assert value == pytest.approx(exact_autocovariance(10**6, 0.99), rel=1e-14)
    assert value == pytest.approx(0.99 * 0.98 * (1e6) ** -0.02, rel=1e-9)


@pytest.mark.parametrize("hurst", HURSTS)
def test_first_lag(hurst):
    assert fgn_autocovariance(2, hurst)[1] == pytest.approx(2 ** (2 * hurst - 1) - 1, abs=1e-15)


def test_autocovariance_shapes():
    for n in (1, 2, 3, 16, 17):
        assert fgn_autocovariance(n, 0.7).shape == (n,)
    assert fgn_autocovariance(np.int32(3), np.float32(0.75)).dtype == np.float64


@pytest.mark.parametrize("hurst", [*HURSTS, *np.linspace(0.03, 0.97, 20)])
@pytest.mark.parametrize("n", [*range(2, 10), 64])
def test_covariance_is_exact(n, hurst):
    amplitudes = _fgn_amplitudes(n, float(hurst))
    exact = toeplitz(fgn_autocovariance(n, hurst))
    width = len(amplitudes)
    covariance = covariance_of(
        lambda noise: _circulant.paths_from_noise(noise, amplitudes)[:, :n], width
    )
    np.testing.assert_allclose(covariance, exact, atol=1e-12)
    covariance = covariance_of(
        lambda noise: _circulant.tensor_paths_from_noise(
            torch.from_numpy(noise), torch.tensor(amplitudes)
        )[:, :n],
        width,
    )
    np.testing.assert_allclose(covariance, exact, atol=1e-12)


def test_covariance_is_exact_when_the_circulant_is_longer_than_needed():
    n = 127  # prime, so that the fast length is greater
    amplitudes = _fgn_amplitudes(n, 0.9)
    assert len(amplitudes) > 2 * n
    covariance = covariance_of(
        lambda noise: _circulant.paths_from_noise(noise, amplitudes)[:, :n],
        len(amplitudes),
    )
    np.testing.assert_allclose(covariance, toeplitz(fgn_autocovariance(n, 0.9)), atol=1e-12)


def middle_eigenvalues(n, hurst, middle=None):
    row = fgn_autocovariance(n + 1, hurst)
    if middle is not None:
        row[n] = middle
    return _circulant.circulant_eigenvalues(row)


@pytest.mark.parametrize(("n", "hurst", "least"), [(1000, 0.9, 0.1795), (2, 0.99, 0.0123)])
def test_least_eigenvalue(n, hurst, least):
    assert middle_eigenvalues(n, hurst).min() == pytest.approx(least, abs=5e-5)


@pytest.mark.parametrize("hurst", [*HURSTS, *np.linspace(0.02, 0.98, 49)])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_eigenvalues_are_not_negative(n, hurst):
    assert middle_eigenvalues(n, hurst).min() >= -1e-13 * n


def test_zero_in_the_middle_of_the_circulant_would_be_wrong():
    assert middle_eigenvalues(2, 0.9, middle=0.0).min() == pytest.approx(-0.48, abs=5e-3)


@pytest.mark.parametrize("hurst", [0.2, 0.5, 0.9])
def test_sample_variance_is_one(hurst):
    # 200 paths, seed 1. The sum of squares is a quadratic form in normal numbers: mean 200 n,
    # variance 2 * 200 * sum of squared covariances; 5 deviations, alpha < 1e-5 (Laurent and
    # Massart's bound with the largest eigenvalue, here at most a tenth of the deviation).
    n, count = 1000, 200
    draw = fractional_gaussian_noise(n, hurst, count, generator=np.random.default_rng(1))
    spread = math.sqrt(2 * count * np.sum(toeplitz(fgn_autocovariance(n, hurst)) ** 2))
    assert abs(np.sum(draw**2) - count * n) < 5.5 * spread


def make_generators():
    return [np.random.default_rng(5), torch.Generator().manual_seed(5)]


@pytest.mark.parametrize("hurst", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
@pytest.mark.parametrize("axis", [-1, 0])
def test_drawing_in_two_calls_is_drawing_at_once(hurst, kind, axis):
    for n in [*range(1, 41), 257]:
        whole = fractional_gaussian_noise(
            n, hurst, 11, generator=make_generators()[kind], axis=axis
        )
        generator = make_generators()[kind]
        parts = [
            np.asarray(fractional_gaussian_noise(n, hurst, k, generator=generator, axis=axis))
            for k in (3, 1, 0, 7)
        ]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1 + axis), np.asarray(whole))


@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 7, 33, 100])
def test_block_size_does_not_matter(kind, dtype, n, monkeypatch):
    types = [np.dtype(dtype), getattr(torch, dtype)]
    draws = []
    for numbers in (1, 300, 1000, 1 << 20):
        monkeypatch.setattr(_circulant, "_BLOCK_NUMBERS", numbers)
        monkeypatch.setattr(_circulant, "_LEAST_ROWS", 1 + numbers % 7)
        draws.append(
            fractional_gaussian_noise(
                n, 0.8, (4, 5), generator=make_generators()[kind], dtype=types[kind]
            )
        )
    for draw in draws[1:]:
        np.testing.assert_array_equal(np.asarray(draw), np.asarray(draws[0]))


@pytest.mark.parametrize("hurst", [0.5, 0.8])
@pytest.mark.parametrize("kind", [0, 1], ids=["numpy", "torch"])
def test_time_first_is_the_transpose_and_contiguous(hurst, kind):
    last = fractional_gaussian_noise(50, hurst, (3, 4), generator=make_generators()[kind])
    first = fractional_gaussian_noise(50, hurst, (3, 4), generator=make_generators()[kind], axis=0)
    assert tuple(first.shape) == (50, 3, 4)
    np.testing.assert_array_equal(np.moveaxis(np.asarray(first), 0, -1), np.asarray(last))
    assert np.asarray(first).flags.c_contiguous
    assert np.asarray(last).flags.c_contiguous


def test_precisions_agree():
    exact = fractional_gaussian_noise(
        1000, 0.8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float32
    )
    half = fractional_gaussian_noise(
        1000, 0.8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float16
    )
    assert torch.equal(half, exact.half())
    assert exact.dtype == torch.float32


def test_single_precision_transform_is_that_of_double_precision():
    noise = np.random.default_rng(0).standard_normal((3, 2000)).astype(np.float32)
    amplitudes = _fgn_amplitudes(1000, 0.9)
    single = _circulant.paths_from_noise(noise, amplitudes.astype(np.float32))
    double = _circulant.paths_from_noise(noise.astype(np.float64), amplitudes)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=2e-5)


@pytest.mark.parametrize("hurst", [0.3, 0.5])
@pytest.mark.parametrize("axis", [-1, 0])
def test_device_engine_gives_the_host_engine_values(hurst, axis, monkeypatch):
    # The engine for accelerators, run on the CPU: the same noise must give the same paths.
    options = {"dtype": torch.float64, "axis": axis}
    for sampler in (fractional_gaussian_noise, fractional_brownian_motion):
        host = sampler(24, hurst, (2, 3), generator=torch.Generator().manual_seed(1), **options)
        with monkeypatch.context() as patch:
            patch.setattr("scalinglimits.laws._random._TorchSource.on_host", False)
            device = sampler(
                24, hurst, (2, 3), generator=torch.Generator().manual_seed(1), **options
            )
        torch.testing.assert_close(device, host, rtol=0.0, atol=1e-13)


def test_a_cpu_generator_delivers_to_another_device():
    draw = fractional_gaussian_noise(8, 0.7, 2, generator=torch.Generator(), device="meta")
    assert draw.device.type == "meta"
    assert tuple(draw.shape) == (2, 8)


@pytest.mark.parametrize("size", [(), 0, 3, (2, 3), (2, 0)], ids=repr)
@pytest.mark.parametrize("n", [1, 2, 10])
def test_shapes(n, size):
    expected = (size,) if isinstance(size, int) else size
    for generator in make_generators():
        noise = fractional_gaussian_noise(n, 0.7, size, generator=generator)
        motion = fractional_brownian_motion(n, 0.7, size, generator=generator)
        assert tuple(noise.shape) == (*expected, n)
        assert tuple(motion.shape) == (*expected, n + 1)
        assert tuple(
            fractional_gaussian_noise(n, 0.7, size, generator=generator, axis=0).shape
        ) == (n, *expected)


@pytest.mark.parametrize("hurst", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("axis", [-1, 0])
def test_motion_is_the_scaled_sum_of_the_noise(hurst, axis):
    noise = fractional_gaussian_noise(40, hurst, 5, generator=np.random.default_rng(2))
    expected = np.concatenate([np.zeros((5, 1)), np.cumsum(noise, axis=1)], axis=1)
    motion = fractional_brownian_motion(40, hurst, 5, generator=np.random.default_rng(2), axis=axis)
    np.testing.assert_allclose(np.moveaxis(motion, axis, -1), expected, atol=1e-12)
    motion = fractional_brownian_motion(
        40, hurst, 5, horizon=2.0, generator=np.random.default_rng(2), axis=axis
    )
    np.testing.assert_allclose(
        np.moveaxis(motion, axis, -1), expected * (2.0 / 40) ** hurst, atol=1e-12
    )


def test_motion_in_single_precision_does_not_drift():
    single = fractional_brownian_motion(
        10**5, 0.9, generator=np.random.default_rng(0), dtype=np.float32
    )
    noise = fractional_gaussian_noise(
        10**5, 0.9, generator=np.random.default_rng(0), dtype=np.float32
    )
    exact = np.cumsum(noise, dtype=np.float64)
    np.testing.assert_allclose(single[1:], exact, rtol=1e-6, atol=1e-2)


def test_a_million_steps_and_numpy_scalars():
    draw = fractional_gaussian_noise(
        np.int64(10**6), np.float64(0.99), generator=np.random.default_rng(0), dtype=np.float32
    )
    assert draw.shape == (10**6,)
    assert np.isfinite(draw).all()


@pytest.mark.parametrize(
    ("hurst", "error", "message"),
    [
        (0.0, ValueError, "`hurst` must be strictly between 0 and 1; got 0.0"),
        (1.0, ValueError, "`hurst` must be strictly between 0 and 1; got 1.0"),
        (1, ValueError, "`hurst` must be strictly between 0 and 1; got 1.0"),
        (-0.5, ValueError, "`hurst` must be strictly between 0 and 1; got -0.5"),
        (math.nan, ValueError, "`hurst` must be finite; got nan"),
        (True, TypeError, "`hurst` must be a real number; got True"),
        (np.True_, TypeError, "`hurst` must be a real number; got np.True_"),
        ("0.5", TypeError, "`hurst` must be a real number; got '0.5'"),
        (None, TypeError, "`hurst` must be a real number; got None"),
    ],
)
def test_bad_hurst(hurst, error, message):
    for call in (fgn_autocovariance, fractional_gaussian_noise, fractional_brownian_motion):
        with pytest.raises(error, match=message):
            call(4, hurst)


@pytest.mark.parametrize(
    ("n", "error", "message"),
    [
        (0, ValueError, "`n` must be at least 1; got 0"),
        (-3, ValueError, "`n` must be at least 1; got -3"),
        (2.0, TypeError, "`n` must be an integer; got 2.0"),
        (True, TypeError, "`n` must be an integer; got True"),
        (np.arange(2), TypeError, "`n` must be an integer; got array"),
    ],
)
def test_bad_length(n, error, message):
    for call in (fgn_autocovariance, fractional_gaussian_noise, fractional_brownian_motion):
        with pytest.raises(error, match=message):
            call(n, 0.7)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="`axis` must be -1 or 0; got 1"):
        fractional_gaussian_noise(4, 0.7, axis=1)
    with pytest.raises(ValueError, match="`axis` must be -1 or 0; got False"):
        fractional_brownian_motion(4, 0.7, axis=False)
    with pytest.raises(ValueError, match="`size` must be at least 0; got -2"):
        fractional_gaussian_noise(4, 0.7, (3, -2))
    with pytest.raises(ValueError, match=r"`horizon` must be positive; got 0\.0"):
        fractional_brownian_motion(4, 0.7, horizon=0.0)
    with pytest.raises(TypeError, match=r"`generator` must be a numpy\.random\.Generator"):
        fractional_gaussian_noise(4, 0.7, generator=3)
