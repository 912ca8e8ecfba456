"""The distribution function of the exact law: against samples, closed formulas and itself."""

import math

import numpy as np
import pytest
from scipy import special, stats

from scalinglimits.residual import limit_norm_law, norm_ratio_samples
from scalinglimits.residual.norm_law import (
    NormLaw,
    chi_square_rule,
    log_normality,
    ratio_rule,
)


@pytest.mark.parametrize(
    ("width", "depth", "beta", "branch", "activation"),
    [
        (40, 20, 0.5, "res-3", None),
        (16, 50, 0.3, "res-3", None),
        (30, 10, 0.5, "res-2", "identity"),
        (30, 10, 0.5, "res-2", None),
    ],
)
def test_cdf_agrees_with_samples(width, depth, beta, branch, activation):
    law = NormLaw(width, depth, beta=beta, branch=branch, activation=activation)
    samples = norm_ratio_samples(
        width, depth, beta, 40_000, branch=branch, activation=activation, log=True, n_jobs=1
    )
    # n = 40,000, α = 1e-5, seed 0
    assert stats.kstest(samples, law.cdf).pvalue > 1e-5
    assert stats.kstest(samples + 3 * law.cumulants()[1] ** 0.5 / 100, law.cdf).pvalue < 1e-2


def test_moments_agree_with_products():
    # E F = 1 + cα², E F² = 1 + 2cα² + 4cα²/d + α⁴ E r⁴ (1 + 2/d)
    d, L, alpha = 20, 7, 0.4
    law = NormLaw(d, L, branch_scale=alpha)
    r4 = 0.25 + 1.25 / d
    second = 1 + alpha**2 + 2 * alpha**2 / d + alpha**4 * r4 * (1 + 2 / d)
    assert law.log_moment(1) == pytest.approx(L * math.log1p(alpha**2 / 2), rel=1e-12)
    assert law.log_moment(2) == pytest.approx(L * math.log(second), rel=1e-12)


@pytest.mark.parametrize("s", [-1.5, 0.5, 3.0, 10.5])
def test_moments_agree_with_the_noncentral_chi_square(s):
    # Given r, F d/(α² r²) is noncentral χ²_d; its moments are a Poisson mixture of χ² moments.
    d, alpha = 24, 0.5
    law = NormLaw(d, 1, branch_scale=alpha, branch="res-2", activation="identity")
    x, w = chi_square_rule(d, 40)
    total = 0.0
    for r2, weight in zip(x / d, w, strict=True):
        scale = alpha**2 * r2 / d
        j = np.arange(int(4 / scale) + 400)
        poisson = stats.poisson.pmf(j, 1 / (2 * scale))
        terms = np.exp(s * np.log(2 * scale) + special.gammaln(d / 2 + j + s)
                       - special.gammaln(d / 2 + j))  # fmt: skip
        total += weight * float(poisson @ terms)
    assert law.log_moment(s) == pytest.approx(math.log(total), rel=1e-8)


def test_ratio_rule_has_the_moments_of_the_mixture():
    d = 30
    x, w = ratio_rule(d, (1.0, 0.5))
    y = stats.binom.pmf(np.arange(d + 1), d, 0.5)
    n = np.arange(d + 1)
    mean = (n + 0.25 * (d - n)) / d
    variance = 2 * (n + 0.0625 * (d - n)) / d**2
    assert w @ x == pytest.approx(y @ mean, rel=1e-12)
    assert w @ x**2 == pytest.approx(y @ (mean**2 + variance), rel=1e-12)
    assert w.sum() == pytest.approx(1.0)


def test_quantiles_invert_the_distribution_function():
    law = NormLaw(100, 1000, beta=0.5)
    p = np.array([[1e-6, 0.25], [0.5, 1 - 1e-6]])
    np.testing.assert_allclose(law.cdf(law.ppf(p)), p, atol=1e-10)
    with pytest.raises(ValueError, match="`probability` must be strictly between 0 and 1; got 1"):
        law.ppf(1)


def test_density_is_the_slope_of_the_distribution_function():
    law = NormLaw(40, 20, beta=0.5)
    x = np.linspace(-0.4, 0.9, 2001)
    slope = np.gradient(law.cdf(x), x)
    np.testing.assert_allclose(law.pdf(x)[1:-1], slope[1:-1], atol=1e-4)
    assert law.pdf(50.0) == 0


def test_limit_law_is_approached_at_rate_one_over_depth():
    records = [log_normality(64, depth) for depth in (100, 1000, 10_000)]
    for name in ("skewness", "excess_kurtosis", "distance", "distance_to_limit"):
        values = [getattr(record, name) for record in records]
        assert values[0] / values[1] == pytest.approx(10, rel=0.05), name
        assert values[1] / values[2] == pytest.approx(10, rel=0.01), name
    law = limit_norm_law(64)
    assert records[2].mean == pytest.approx(math.log(law.median()), rel=1e-4)
    assert records[2].sample_size > 1e10


@pytest.mark.parametrize("width", [40, 100, 1000])
def test_skewness_has_the_derived_size(width):
    # docs/limits.md: skewness ≈ 1.5 · 2^{3/2} (3/4 − 5/d) √T / (L √d) for res-3
    depth = 4000
    predicted = 1.5 * 2**1.5 * (0.75 - 5 / width) / (depth * math.sqrt(width))
    assert log_normality(width, depth).skewness == pytest.approx(predicted, rel=0.02)


def test_two_layers_are_visibly_not_log_normal():
    record = log_normality(64, 2)
    assert record.skewness > 0.05
    assert record.sample_size < 1e5


def test_errors():
    with pytest.raises(ValueError, match="`beta` or `branch_scale` must be given, and not both"):
        NormLaw(40, 10)
    with pytest.raises(ValueError, match="`branch_scale` must be a positive finite number; got -1"):
        NormLaw(40, 10, branch_scale=-1)
    with pytest.raises(ValueError, match="`branch` must be 'res-2' or 'res-3'; got 'res-1'"):
        NormLaw(40, 10, beta=0.5, branch="res-1")
    with pytest.raises(ValueError, match="`activation` must be positively homogeneous; got 'tanh'"):
        NormLaw(40, 10, beta=0.5, branch="res-2", activation="tanh")
    with pytest.raises(ValueError, match="`width` must be larger for the rules to be accurate"):
        NormLaw(2, 1, beta=0.5)
