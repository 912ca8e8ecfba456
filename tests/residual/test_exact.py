"""The exact law of the norm ratio, both ways round: dense networks and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from scalinglimits.laws import Independent, Uniform
from scalinglimits.residual import (
    ParametricReLU,
    ResidualNetwork,
    limit_norm_law,
    norm_ratio_samples,
    propagate,
)

ALPHA = 1e-5  # level of every test below
Z = 4.42  # the same, in standard deviations of a Gaussian (two-sided)
BRANCHES = [
    ("res-3", None, (1.0, 0.0)),
    ("res-2", ParametricReLU(0.75), (1.0, 0.75)),
    ("res-2", "leaky_relu", (1.0, 0.01)),
    ("res-2", "abs", (1.0, -1.0)),
    ("res-2", None, (1.0, 1 / math.sqrt(2))),
]


def dense_log_ratios(n, width, depth, alpha, slopes, seed=0):
    """Log-ratios of n networks whose every weight is drawn: the naive twin."""
    rng = np.random.default_rng(seed)
    h_0 = rng.standard_normal(width)  # the direction must not matter
    h = np.tile(h_0, (n, 1))
    log = np.zeros(n)
    for _ in range(depth):
        V, W = rng.standard_normal((2, n, width, width), dtype=np.float32) / math.sqrt(width)
        z = np.einsum("nij,nj->ni", W, h)
        h = h + alpha * np.einsum("nij,nj->ni", V, np.where(z > 0, slopes[0] * z, slopes[1] * z))
        norm = np.linalg.norm(h, axis=1)
        log += np.log(norm)
        h = h / norm[:, None]
    return log - math.log(np.linalg.norm(h_0))


def factors_without_the_orthogonal_part(n, width, depth, alpha, seed=0):
    """A wrong law: only the component of the branch along the hidden state."""
    rng = np.random.default_rng(seed)
    shape = (n, depth)
    r = np.sqrt(rng.chisquare(np.maximum(rng.binomial(width, 0.5, shape), 1e-9)) / width)
    z = rng.standard_normal(shape)
    return np.log(np.abs(1 + alpha * r * z / math.sqrt(width))).sum(axis=1)


@pytest.mark.parametrize(("branch", "activation", "slopes"), BRANCHES[:3])
@pytest.mark.parametrize("width", [3, 10])
@pytest.mark.parametrize("depth", [5, 30])
def test_same_law_as_dense_networks(branch, activation, slopes, width, depth):
    n = 4000  # of each
    alpha = depth**-0.5
    dense = dense_log_ratios(n, width, depth, alpha, slopes, seed=1)
    options = {"branch": branch, "activation": activation, "log": True, "n_jobs": 1}
    exact = norm_ratio_samples(width, depth, 0.5, n, **options)
    assert stats.ks_2samp(dense, exact).pvalue > ALPHA
    # The same sample refuses a law of 1.5 times the branch scale.
    beta = 0.5 - math.log(1.5) / math.log(depth)
    wrong = norm_ratio_samples(width, depth, beta, n, **options)
    assert stats.ks_2samp(dense, wrong).pvalue < ALPHA


@pytest.mark.parametrize("width", [1, 2])
def test_same_law_at_the_smallest_widths(width):
    dense = dense_log_ratios(20_000, width, 6, 1.0, (1.0, 0.5), seed=2)
    exact = norm_ratio_samples(
        width, 6, 0.0, 20_000, branch="res-2", activation=ParametricReLU(0.5), log=True
    )
    assert stats.ks_2samp(dense, exact).pvalue > ALPHA


def test_same_law_as_the_model():
    # n = 600 networks of the class itself
    ratios = []
    for seed in range(600):
        network = ResidualNetwork(
            3, width=8, depth=6, out_features=1, generator=torch.Generator().manual_seed(seed)
        )
        record = propagate(network, torch.ones(1, 3), layers="ends", backward=False)
        ratios.append(record.log_ratios["hidden_ratio"][0, 0])
    exact = norm_ratio_samples(8, 6, 0.5, 20_000, log=True, n_jobs=1)
    assert stats.ks_2samp(ratios, exact).pvalue > ALPHA


def test_law_without_the_orthogonal_part_is_refused():
    # negative control at the size of the positive ones
    dense = dense_log_ratios(4000, 10, 30, 30**-0.5, (1.0, 0.0), seed=1)
    wrong = factors_without_the_orthogonal_part(4000, 10, 30, 30**-0.5)
    assert stats.ks_2samp(dense, wrong).pvalue < ALPHA


@pytest.mark.parametrize(("branch", "activation", "slopes"), BRANCHES)
@pytest.mark.parametrize("width", [1, 3, 10, 1000])
def test_two_moments_of_one_layers_factor(branch, activation, slopes, width):
    # F = 1 + 2αrz/√d + α²r²Q/d with Q ~ χ²_d, α = 1 at depth 1
    n = 100_000
    options = {"branch": branch, "activation": activation, "n_jobs": 1}
    factor = norm_ratio_samples(width, 1, 0.0, n, **options) ** 2
    c, fourth = sum(s**2 for s in slopes) / 2, sum(s**4 for s in slopes) / 2
    spread = (3 * fourth - c**2) / width  # of r²
    variance = 4 * c / width + 2 * (c**2 + spread) / width + spread
    error = Z * math.sqrt(variance / n)
    assert abs(factor.mean() - (1 + c)) < error
    squares = (factor - 1 - c) ** 2
    assert abs(squares.mean() - variance) < Z * squares.std() / math.sqrt(n)


@pytest.mark.parametrize("depth", [1, 7, 200])
def test_first_moment_of_the_square(depth):
    # E‖h_L‖²/‖h_0‖² = (1 + α²/2)^L; n = 200,000
    n = 20_000 if depth == 200 else 200_000
    squares = norm_ratio_samples(20, depth, 0.5, n, seed=1, n_jobs=1) ** 2
    expected = (1 + 1 / (2 * depth)) ** depth
    assert abs(squares.mean() - expected) < Z * squares.std() / math.sqrt(n)


def test_result_does_not_depend_on_the_threads():
    one, three, default = (
        norm_ratio_samples(10, 20, 0.5, 1000, seed=4, n_jobs=n) for n in (1, 3, None)
    )
    np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(one, default)
    assert not np.array_equal(one, norm_ratio_samples(10, 20, 0.5, 1000, seed=5, n_jobs=1))


def test_more_replicates_keep_the_first_blocks():
    few, many = (norm_ratio_samples(10, 20, 0.5, n, n_jobs=1) for n in (256, 1000))
    np.testing.assert_array_equal(few, many[:256])


def test_logarithms_do_not_overflow():
    logs = norm_ratio_samples(10, 1000, -1.0, 300, log=True, n_jobs=1)
    assert logs.shape == (300,)
    assert np.isfinite(logs).all()
    assert logs.min() > 2000 * math.log(10)
    few = norm_ratio_samples(10, 50, 0.5, 300, n_jobs=1)
    np.testing.assert_array_equal(
        np.log(few), np.log(np.exp(norm_ratio_samples(10, 50, 0.5, 300, log=True, n_jobs=1)))
    )


def test_shrinking_factors_keep_their_digits():
    # At width 1 the factor is (1 + αrz)², of any smallness: log of it by hand
    logs = norm_ratio_samples(1, 1, 0.0, 500_000, branch="res-2", activation="identity", log=True)
    assert np.isfinite(logs).all()
    assert logs.min() < -10
    # |1 + WV| with a density at −1: P(|1 + WV| < t) = 2 f(1) t, f(1) = K_0(1)/π = 0.1340
    t = 1e-3
    expected = 2 * 0.13401 * t * len(logs)
    assert abs((logs < math.log(t)).sum() - expected) < Z * math.sqrt(expected)


# --- the limit


@pytest.mark.parametrize(("branch", "activation", "slopes"), BRANCHES)
@pytest.mark.parametrize("horizon", [0.3, 1.0, 4.0])
def test_moments_of_the_limit(branch, activation, slopes, horizon):
    law = limit_norm_law(50, branch=branch, activation=activation, horizon=horizon)
    c = sum(s**2 for s in slopes) / 2
    mean, deviation = c * horizon * (1 - 2 / 50) / 2, math.sqrt(c * horizon / 50)
    assert law.median() == pytest.approx(math.exp(mean))
    assert law.ppf(stats.norm.cdf(1)) == pytest.approx(math.exp(mean + deviation))
    # ‖h_L‖² itself: E = exp(cT), the limit of (1 + cT/L)^L
    assert law.moment(2) == pytest.approx(math.exp(c * horizon))


def test_figure_2():
    law = limit_norm_law(100)
    quartiles = [round(float(q), 3) for q in law.ppf([0.25, 0.75])]
    assert quartiles == [1.218, 1.34]
    assert math.log(law.median()) == pytest.approx(0.245)
    assert law.kwds["s"] == pytest.approx(0.0707, abs=1e-4)
    # the document's figure, of 10,000 networks
    low, high = np.quantile(norm_ratio_samples(100, 1000, 0.5, 10_000), [0.25, 0.75])
    assert 1.21 <= low <= 1.23
    assert 1.33 <= high <= 1.35


def test_large_depth_is_the_limit_and_small_depth_is_not():
    n, law = 10_000, limit_norm_law(10)
    deep = norm_ratio_samples(10, 1000, 0.5, n, n_jobs=1)
    assert stats.kstest(deep, law.cdf).pvalue > ALPHA
    shallow = norm_ratio_samples(10, 3, 0.5, n, n_jobs=1)
    assert stats.kstest(shallow, law.cdf).pvalue < ALPHA


def test_horizon_is_depth_times_the_squared_scale():
    beta = 0.5 - math.log(2) / math.log(1000) / 2  # Lα² = 2
    deep = norm_ratio_samples(30, 1000, beta, 3000, n_jobs=1)
    assert stats.kstest(deep, limit_norm_law(30, horizon=2.0).cdf).pvalue > ALPHA
    assert stats.kstest(deep, limit_norm_law(30).cdf).pvalue < ALPHA


@pytest.mark.slow
def test_figure_2_by_networks_with_uniform_weights():
    # 250 networks of d = 100, L = 1000, uniform weights: the Gaussian's law at this depth
    ratios = []
    for seed in range(250):
        network = ResidualNetwork(
            64, width=100, depth=1000, out_features=1, weights=Independent(Uniform()), beta=0.5,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        x = torch.rand(1, 64, generator=torch.Generator().manual_seed(seed))
        record = propagate(network, x, layers="ends", backward=False)
        ratios.append(math.exp(record.log_ratios["hidden_ratio"][0, 0]))
    exact = norm_ratio_samples(100, 1000, 0.5, 10_000)
    assert stats.ks_2samp(ratios, exact).pvalue > ALPHA
    quartiles = np.quantile(ratios, [0.25, 0.75])
    # standard error of a quartile, √(3/16n)/f, of the log-normal: 0.0061 of the logarithm
    np.testing.assert_allclose(np.log(quartiles), np.log([1.2177, 1.3397]), atol=Z * 0.0061)


# --- errors


@pytest.mark.parametrize("name", ["width", "depth", "replicates"])
@pytest.mark.parametrize("value", [0, -3, True, 2.5])
def test_sizes_must_be_positive_integers(name, value):
    sizes = {"width": 4, "depth": 3, "replicates": 2} | {name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; got"):
        norm_ratio_samples(beta=0.5, **sizes)


def test_width_of_the_limit():
    with pytest.raises(ValueError, match="`width` must be a positive integer; got 0"):
        limit_norm_law(0)


@pytest.mark.parametrize("value", [0, -2, 1.5])
def test_threads_must_be_positive(value):
    with pytest.raises(ValueError, match="`n_jobs` must be a positive integer; got"):
        norm_ratio_samples(4, 3, 0.5, 2, n_jobs=value)


def test_beta_must_be_finite():
    with pytest.raises(ValueError, match="`beta` must be a finite number; got nan"):
        norm_ratio_samples(4, 3, math.nan, 2)


@pytest.mark.parametrize("horizon", [0.0, -1.0, math.nan, math.inf])
def test_horizon_must_be_positive(horizon):
    with pytest.raises(ValueError, match="`horizon` must be a positive finite number; got"):
        limit_norm_law(4, horizon=horizon)


@pytest.mark.parametrize("branch", ["res-1", "res-4"])
def test_branch_must_have_a_law_of_the_norm(branch):
    message = f"`branch` must be 'res-2' or 'res-3'; got '{branch}'"
    with pytest.raises(ValueError, match=message):
        norm_ratio_samples(4, 3, 0.5, 2, branch=branch)
    with pytest.raises(ValueError, match=message):
        limit_norm_law(4, branch=branch)


def test_activation_must_be_homogeneous():
    with pytest.raises(ValueError, match="`activation` must be positively homogeneous; got 'tanh'"):
        norm_ratio_samples(4, 3, 0.5, 2, branch="res-2", activation="tanh")
