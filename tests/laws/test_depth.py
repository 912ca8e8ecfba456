"""Laws across depth: one conformance table that each new law joins."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from scalinglimits.laws import (
    DepthLaw,
    FractionalIncrements,
    Independent,
    Normal,
    Rademacher,
    SmoothIncrements,
    SmoothProcess,
    Uniform,
    _circulant,
    _smooth,
)

LAWS = [
    Independent(),
    Independent(Uniform()),
    Independent(Rademacher()),
    FractionalIncrements(0.2),
    FractionalIncrements(0.5),
    FractionalIncrements(0.9),
    SmoothProcess(),
    SmoothProcess(length_scale=0.001),
    SmoothProcess(length_scale=20.0),
    SmoothIncrements(),
    SmoothIncrements(length_scale=0.001),
    SmoothIncrements(length_scale=20.0),
]


class Custom(DepthLaw):
    """What a user writes: `sample` and `autocovariance`."""

    def __repr__(self):
        return "Custom()"

    def sample(self, depth, shape, generator=None, *, dtype=None, device=None):
        return Normal().sample((1, *shape), generator, dtype=dtype, device=device).repeat(depth, 0)

    def autocovariance(self, depth):
        return np.ones(depth)


@pytest.mark.parametrize("law", [*LAWS, Custom()], ids=repr)
@pytest.mark.parametrize("depth", [1, 2, 30])
def test_autocovariance_is_that_of_unit_variances(law, depth):
    gamma = law.autocovariance(depth)
    assert (gamma.shape, gamma.dtype) == ((depth,), np.float64)
    assert gamma[0] == 1.0
    assert np.linalg.eigvalsh(toeplitz(gamma)).min() > -1e-13 * depth


@pytest.mark.parametrize("law", [*LAWS, Custom()], ids=repr)
def test_sample_covariance(law):
    # n = 20,000 coordinates, seed 4. Each of the 21 entries of the covariance of 6 layers is a
    # mean of products with variance at most 2; 6 deviations, alpha < 1e-5 in all.
    depth, count = 6, 20_000
    draw = law.sample(depth, (count,), np.random.default_rng(4))
    gap = draw @ draw.T / count - toeplitz(law.autocovariance(depth))
    assert np.abs(gap).max() < 6 * math.sqrt(2 / count)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("shape", [(), 0, 3, (2, 3), (2, 0)], ids=repr)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_shapes_types_and_layout(law, shape, depth):
    expected = (depth, shape) if isinstance(shape, int) else (depth, *shape)
    for dtype in (np.float32, np.float64):
        draw = law.sample(depth, shape, np.random.default_rng(0), dtype=dtype)
        assert (draw.shape, draw.dtype) == (expected, dtype)
        assert draw.flags.c_contiguous
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        draw = law.sample(depth, shape, torch.Generator().manual_seed(0), dtype=dtype)
        assert (tuple(draw.shape), draw.dtype) == (expected, dtype)
        assert draw.is_contiguous()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_same_seed_same_values(law):
    first, second = (law.sample(9, (4, 5), np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    first, second = (law.sample(9, (4, 5), torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_laws_are_values(law):
    assert law == eval(repr(law))
    assert len({law, eval(repr(law))}) == 1


def test_constants():
    assert Independent().critical_beta == 0.5
    assert [FractionalIncrements(h).critical_beta for h in (0.2, 0.8)] == [0.5, 0.8]
    assert SmoothProcess().critical_beta == SmoothIncrements().critical_beta == 1.0
    assert all(law.sub_gaussian == 1.0 for law in LAWS)
    assert Custom().critical_beta is None
    assert Custom().sub_gaussian is None


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_critical_beta_is_the_growth_of_the_sum(law):
    # E (xi_1 + ... + xi_L)^2 grows as L^{2 beta} (for H < 1/2 slower, as L^{2H}).
    short, long = 20_000, 40_000
    squares = []
    for depth in (short, long):
        gamma = law.autocovariance(depth)
        squares.append(depth + 2.0 * np.sum((depth - np.arange(1, depth)) * gamma[1:]))
    exponent = 0.5 * math.log2(squares[1] / squares[0])
    hurst = getattr(law, "hurst", law.critical_beta)
    assert exponent == pytest.approx(hurst, abs=1e-3)


SCALES = [1e-4, 0.01, 0.05, 0.1, 1.0, 10.0, 1000.0]


@pytest.mark.parametrize("increments", [False, True])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("depth", [1, 2, 5, 100])
def test_smooth_covariance_is_exact_both_ways(depth, scale, increments):
    law = SmoothIncrements(scale) if increments else SmoothProcess(scale)
    exact = toeplitz(law.autocovariance(depth))
    factor = _smooth.wave_factor(depth, scale, increments)
    assert (factor is None) == (scale < 0.05)
    if factor is not None:
        np.testing.assert_allclose(factor @ factor.T, exact, atol=1e-13)
    if depth * scale < 200:
        amplitudes = _smooth.grid_amplitudes(depth, scale, increments)
        paths = _circulant.paths_from_noise(np.eye(len(amplitudes)), amplitudes)
        np.testing.assert_allclose(paths[:, :depth].T @ paths[:, :depth], exact, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-7, 0.003, 0.1, 100.0])
def test_increment_autocovariance_keeps_its_digits(scale):
    depth = 100_000
    gamma = SmoothIncrements(scale).autocovariance(depth)
    with mpmath.workdps(60):
        steps = depth * mpmath.mpf(scale)
        for lag in (0, 1, 2, 10, 999, depth - 1):
            kernel = [mpmath.exp(-((lag + k) ** 2) / (2 * steps**2)) for k in (-1, 0, 1)]
            scale_2 = 2 - 2 * mpmath.exp(-1 / (2 * steps**2))
            exact = float((2 * kernel[1] - kernel[0] - kernel[2]) / scale_2)
            assert gamma[lag] == pytest.approx(exact, abs=1e-12)


def test_smooth_increments_are_scaled_differences_of_the_process():
    depth, scale = 50, 0.1
    covariance = toeplitz(_smooth.value_autocovariance(depth + 1, scale * depth / (depth + 1)))
    difference = np.diff(np.diff(covariance, axis=0), axis=1)
    expected = difference / difference[0, 0]
    law = SmoothIncrements(scale)
    np.testing.assert_allclose(toeplitz(law.autocovariance(depth)), expected, atol=1e-11)


def test_great_depth_needs_few_waves():
    factor = _smooth.wave_factor(10_000, 0.1, False)
    assert factor is not None
    assert factor.shape[1] < 60
    np.testing.assert_allclose(np.sum(factor**2, axis=1), 1.0, atol=1e-14)


def test_fractional_increments_are_fractional_noise_with_time_first():
    law = FractionalIncrements(0.7)
    draw = law.sample(20, (3,), np.random.default_rng(0))
    again = law.sample(20, (3,), np.random.default_rng(0), dtype=np.float64)
    np.testing.assert_array_equal(draw, again)
    assert not np.array_equal(draw[:, 0], draw[:, 1])


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(
    ("depth", "shape", "error", "message"),
    [
        (0, (2,), ValueError, "`depth` must be at least 1; got 0"),
        (2.5, (2,), TypeError, "`depth` must be an integer; got 2.5"),
        (True, (2,), TypeError, "`depth` must be an integer; got True"),
        (3, (2, -1), ValueError, "`shape` must be at least 0; got -1"),
    ],
)
def test_bad_arguments(law, depth, shape, error, message):
    with pytest.raises(error, match=message):
        law.sample(depth, shape, np.random.default_rng(0))
    if "depth" in message:
        with pytest.raises(error, match=message):
            law.autocovariance(depth)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_bad_generator(law):
    with pytest.raises(TypeError, match=r"`generator` must be a numpy\.random\.Generator"):
        law.sample(3, (2,), 17)


@pytest.mark.parametrize("kind", [SmoothProcess, SmoothIncrements])
@pytest.mark.parametrize(
    ("scale", "error", "message"),
    [
        (0.0, ValueError, "`length_scale` must be positive; got 0.0"),
        (-1, ValueError, "`length_scale` must be positive; got -1.0"),
        (math.nan, ValueError, "`length_scale` must be finite; got nan"),
        ("0.1", TypeError, "`length_scale` must be a real number; got '0.1'"),
    ],
)
def test_bad_length_scale(kind, scale, error, message):
    with pytest.raises(error, match=message):
        kind(length_scale=scale)


def test_bad_hurst_and_entries():
    with pytest.raises(ValueError, match=r"`hurst` must be strictly between 0 and 1; got 1\.0"):
        FractionalIncrements(1.0)
    with pytest.raises(TypeError, match="`entries` must be an EntryLaw; got 'normal'"):
        Independent("normal")
