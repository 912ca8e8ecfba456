"""The theorems as numbers: right values, assumptions, refusals."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from scalinglimits.laws import (
    FractionalIncrements,
    Normal,
    Rademacher,
    SmoothProcess,
    TruncatedNormal,
    Uniform,
)
from scalinglimits.residual.assumptions import check_assumptions
from scalinglimits.residual.bounds import (
    Setting,
    change_interval,
    exact_norm_interval,
    gradient_change_bound,
    gradient_change_mean,
    gradient_regime,
    hidden_change_bound,
    hidden_change_mean,
    hidden_norm_lower_bound,
    hidden_norm_upper_bound,
    hidden_regime,
    linear_explosion_bound,
    nontrivial_width,
    sharper_norm_lower_bound,
    sharper_norm_upper_bound,
    smooth_change_bound,
    tightness,
)
from scalinglimits.residual.bounds._steps import crossing_probability
from scalinglimits.residual.constants import branch_constants, even_moments, lipschitz_constant
from scalinglimits.residual.model import ResidualNetwork

ENTRIES = [Normal(), Uniform(), Rademacher(), TruncatedNormal(2.0)]
ALL_DELTA = [
    hidden_change_bound,
    hidden_norm_lower_bound,
    hidden_norm_upper_bound,
    hidden_regime,
    gradient_change_bound,
    gradient_regime,
    sharper_norm_lower_bound,
    sharper_norm_upper_bound,
    exact_norm_interval,
]
REFERENCE = Setting(width=100, depth=1000, beta=0.5)


def test_the_documents_numbers():
    lower = hidden_norm_lower_bound(REFERENCE, 0.25)
    upper = hidden_norm_upper_bound(REFERENCE, 0.25)
    assert round(lower.norm_lower, 3) == 0.866
    assert round(upper.norm_upper, 3) == 2.062
    assert lower.guaranteed
    assert upper.guaranteed


@pytest.mark.parametrize("delta", [0.05, 0.25, 0.9])
def test_width_at_which_the_lower_bound_becomes_nontrivial(delta):
    def exponent(d):
        return 3 / 8 - math.sqrt(11 / (d * delta))

    d = nontrivial_width(delta)
    assert exponent(d * 1.001) > 0 > exponent(d * 0.999)
    assert exponent(99 / (64 * delta)) == pytest.approx(3 / 8 - 8 / 3)  # R's printed width
    assert nontrivial_width(delta, two_sided=True) == 2 * d
    assert nontrivial_width(delta, horizon=2.0) == d / 2


def test_even_moments_in_closed_form():
    x = np.linspace(-math.sqrt(3), math.sqrt(3), 200_001)
    powers = [np.trapezoid(x ** (2 * k), x) / (2 * math.sqrt(3)) for k in range(1, 5)]
    np.testing.assert_allclose(even_moments(Uniform()), powers, rtol=1e-8)
    law = TruncatedNormal(2.0)
    x = np.linspace(-law.bound, law.bound, 200_001)
    density = np.exp(-((x * law.cut / law.bound) ** 2) / 2)
    density /= np.trapezoid(density, x)
    powers = [np.trapezoid(density * x ** (2 * k), x) for k in range(1, 5)]
    np.testing.assert_allclose(even_moments(law), powers, rtol=1e-7)
    assert even_moments(law)[1] == pytest.approx(law.fourth_moment)


def test_truncated_normal_moments_stay_below_the_normal_ones_at_every_order_used():
    for cut in (0.1, 1.0, 2.0, 4.0):
        law = TruncatedNormal(cut)
        x, w = np.polynomial.legendre.leggauss(400)
        density = w * np.exp(-((x * cut) ** 2) / 2)
        density /= density.sum()
        for k in range(1, 24):
            moment = density @ (x * law.bound) ** (2 * k)
            assert moment <= np.prod(np.arange(1.0, 2 * k, 2)) * (1 + 1e-9)


def test_a_custom_law_gets_the_sub_gaussian_moment_bound():
    class Custom(Uniform.__mro__[1]):
        sub_gaussian, fourth_moment = 1.5, 3.5

        def sample(self, shape, generator=None, *, dtype=None, device=None):
            return torch.zeros(shape)

        def cdf(self, values):
            return np.zeros(3)

    moments = even_moments(Custom())
    assert moments[:2].tolist() == [1.0, 3.5]
    assert moments[2] == pytest.approx(720 * (math.e * 1.5 / 6) ** 3)
    assert branch_constants("res-3", entries=Custom(), width=64).domination > 1
    with pytest.raises(TypeError, match="`entries` must be an EntryLaw; got 'normal'"):
        even_moments("normal")


@pytest.mark.parametrize("width", [1, 7, 100])
def test_eighth_moment_of_gaussian_branches(width):
    d = width
    linear = (1 + 2 / d) * (1 + 4 / d) * (1 + 6 / d)  # E(χ²_d/d)⁴
    assert branch_constants("res-2", "identity", width=d).eighth_moment == pytest.approx(linear)
    n = np.arange(d + 1)
    relu = stats.binom.pmf(n, d, 0.5) @ (n * (n + 2.0) * (n + 4) * (n + 6)) / d**4
    constants = branch_constants("res-3", width=d)
    assert constants.eighth_moment == pytest.approx(relu)
    assert constants.exact
    assert branch_constants("res-1", width=d).eighth_moment == pytest.approx(1.0)


def test_rademacher_moments_are_below_the_constant_by_enumeration():
    # all 2^9 matrices of width 3, direction (1, 1, 1): exact moments of x
    signs = np.array(np.meshgrid(*[[-1, 1]] * 9)).reshape(9, -1).T.reshape(-1, 3, 3) / math.sqrt(3)
    x = (np.maximum(signs @ np.ones(3), 0) ** 2).sum(-1) / 3
    constants = branch_constants("res-3", entries=Rademacher(), width=3)
    moments = [float(np.mean(x**k)) for k in range(1, 5)]
    assert moments[0] == pytest.approx(constants.ratio_moments[0])
    assert all(np.array(moments[1:]) <= np.array(constants.ratio_moments[1:]))


def test_lipschitz_constants():
    assert lipschitz_constant("relu") == 1.0
    assert lipschitz_constant("selu") == pytest.approx(1.7581, abs=1e-2)
    assert lipschitz_constant(lambda x: torch.tanh(1000 * x)) == pytest.approx(1000, rel=1e-2)
    assert lipschitz_constant(lambda x: torch.sin(3 * x) + 1) == pytest.approx(3, rel=1e-3)
    for bad in (
        lambda x: x**2,
        lambda x: x.abs().sqrt(),
        lambda x: (x > 0.5).to(x.dtype),
        torch.exp,
        torch.sign,
    ):
        assert lipschitz_constant(bad) == math.inf


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
def test_assumptions_hold_and_agree_with_measurement(branch, entries):
    check = check_assumptions(branch, entries=entries, width=64)
    assert check.holds
    table = check.to_frame().set_index("name")
    # 400 draws of a mean of 64 terms: 0.05 is above 5 deviations
    slack = 0.05
    assert table.loc["A2 (lower)", "measured_low"] > table.loc["A2 (lower)", "value"] - slack
    assert table.loc["A2 (upper)", "measured_high"] < table.loc["A2 (upper)", "value"] + slack
    assert table.loc["A2 (eighth)", "measured_high"] < table.loc["A2 (eighth)", "value"] + slack
    assert table.loc["A4 (lower)", "measured_low"] > table.loc["A4 (lower)", "value"] - 2 * slack


def test_assumptions_that_fail_are_named():
    assert check_assumptions("res-2", "tanh", width=16).failed == ("A2 (lower)", "A4 (lower)")
    assert check_assumptions("res-1", "relu", width=16).failed == ("A2 (lower)", "A4 (lower)")
    assert check_assumptions("res-3", width=16, out_features=3).failed == ("A3",)
    square = check_assumptions("res-1", lambda x: x**2, width=16)
    assert "A6" in square.failed
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'res'"):
        check_assumptions("res", width=16)
    with pytest.raises(ValueError, match="`width` must be a positive integer; got 0"):
        check_assumptions(width=0)
    with pytest.raises(ValueError, match="`samples` must be a positive integer; got 0"):
        check_assumptions(width=4, samples=0)


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
@pytest.mark.parametrize("width", [64, 100, 1000, 10**5])
def test_the_repaired_conditions_follow_from_the_documents(branch, entries, width):
    # at the largest branch scale that R allows, Lα² = 10 and δ = 1e-5
    constants = branch_constants(branch, entries=entries, width=width)
    root_C = math.sqrt(constants.eighth_moment)
    alpha2 = 2 / ((root_C + 4 * root_C + 16) * width)
    for shrink in (1.0, 0.1, 1e-4):
        setting = Setting(width, math.floor(10 / (alpha2 * shrink)), branch=branch,
                          entries=entries, branch_scale=math.sqrt(alpha2 * shrink))  # fmt: skip
        assert hidden_norm_lower_bound(setting, 1e-5).guaranteed


def test_the_documents_tail_bound_is_false_where_the_branch_is_random():
    # exact log P(Y₂ < −½) for Gaussian res-3: a mixture over x = χ²_n/d of normal tails
    d, alpha2 = 64, 1e-3
    y = np.linspace(0, 30 * d, 40_001)[1:]
    tails = special.log_ndtr(-np.sqrt(d / (16 * alpha2 * y / d)))
    logs = [
        math.log(math.comb(d, n) / 2**d) + special.logsumexp(stats.chi2.logpdf(y, n) + tails)
        for n in range(1, d + 1)
    ]
    exact = special.logsumexp(logs) + math.log(y[1] - y[0])
    assert exact == pytest.approx(-438.8, abs=0.5)
    assert exact > math.log(2) - d / (64 * alpha2)  # R's (5) claims −999
    ours = crossing_probability(branch_constants(width=d), d, math.sqrt(alpha2))
    assert exact < math.log(ours)


@pytest.mark.parametrize("bound", ALL_DELTA)
@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, math.nan, "a"])
def test_delta_must_be_a_probability(bound, delta):
    with pytest.raises(ValueError, match="`delta` must be strictly between 0 and 1; got"):
        bound(REFERENCE, delta)


def test_a_failed_assumption_is_said_and_refused():
    explosive = hidden_change_bound(Setting(40, 100, beta=0.25), 0.1)
    assert not explosive.guaranteed
    assert "NOT GUARANTEED: horizon: Lα² ≤ 1 FAILS (10 against 1)" in str(explosive)
    with pytest.raises(ValueError, match="must satisfy the assumptions of R, Proposition 2; got"):
        explosive.require()
    assert hidden_change_bound(REFERENCE, 0.1).require().upper == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("setting", "bound", "name"),
    [
        (Setting(40, 1000, 0.5), hidden_norm_lower_bound, "width"),
        (Setting(100, 100, 0.5), hidden_norm_lower_bound, "branch scale"),
        (Setting(100, 20, 0.5), hidden_norm_upper_bound, "branch scale"),
        (Setting(100, 1000, 0.5, branch="res-2", activation="tanh"),
         hidden_norm_lower_bound, "A2 (lower)"),
        (Setting(100, 1000, 0.5, branch="res-2", activation="softplus"),
         hidden_change_bound, "A2 (upper)"),
        (Setting(100, 1000, 0.5, branch="res-2", activation="selu"),
         gradient_change_bound, "A4 (upper)"),
        (Setting(100, 1000, 0.5, out_features=2), gradient_change_bound, "A3"),
        (Setting(100, 1000, 0.5, independent=False), hidden_change_bound, "A1"),
        (Setting(8, 2, branch_scale=2.0), sharper_norm_lower_bound, "crossing"),
        (Setting(100, 1000, 0.5, branch="res-1", activation="softplus"),
         sharper_norm_upper_bound, "A2 (finite)"),
    ],
)  # fmt: skip
def test_each_assumption_can_fail(setting, bound, name):
    result = bound(setting, 0.1)
    assert not result.guaranteed
    assert name in [assumption.name for assumption in result.failed]


def test_only_the_parts_of_an_assumption_that_a_proof_uses_are_asked_for():
    tanh = Setting(100, 1000, 0.5, branch="res-2", activation="tanh")
    assert hidden_change_bound(tanh, 0.1).guaranteed  # needs no lower bound on E‖g‖²
    assert hidden_norm_upper_bound(tanh, 0.1).guaranteed


def test_regimes():
    identity = hidden_regime(Setting(100, 10_000, 1.0), 0.1)
    assert identity.theorem.endswith("(i)")
    assert identity.upper == pytest.approx(2e-3)
    explosion = hidden_regime(Setting(100, 10**8, 0.4), 0.1)
    assert explosion.guaranteed
    assert explosion.lower > 1
    critical = hidden_regime(REFERENCE, 0.25)
    assert critical.lower == 0
    assert critical.upper == pytest.approx((math.exp(0.5 + math.sqrt(10 / 25) / 2) + 1) ** 2)
    assert gradient_regime(Setting(100, 100, 0.4), 0.1).theorem.endswith("(ii)")
    assert gradient_regime(Setting(100, 100, 1.0), 0.1).upper == pytest.approx(0.2)
    assert "0.649 and 0.649" in gradient_regime(REFERENCE, 0.1).consequence
    for regime in (hidden_regime, gradient_regime):
        with pytest.raises(ValueError, match="`setting` must have a depth above 1; got 1"):
            regime(Setting(10, 1, 0.5), 0.1)


def test_change_interval_is_the_triangle_inequality():
    low, high = change_interval(hidden_norm_upper_bound(REFERENCE, 0.25))
    assert low == 0
    assert math.sqrt(high) == pytest.approx(3.062, abs=1e-3)
    with pytest.raises(ValueError, match="`bound` must be about"):
        change_interval(gradient_change_mean(REFERENCE))


def test_means_are_exact_where_the_branch_is():
    assert hidden_change_mean(REFERENCE).lower == hidden_change_mean(REFERENCE).upper
    res1 = hidden_change_mean(Setting(100, 1000, 0.5, branch="res-1"))
    assert res1.lower == pytest.approx(math.expm1(1000 * math.log1p(0.0005)))
    assert res1.upper == pytest.approx(math.expm1(1000 * math.log1p(0.001)))
    huge = gradient_change_mean(Setting(10, 1000, -1.0))
    assert huge.upper == math.inf


def test_sharp_form_of_proposition_2():
    plain = hidden_change_bound(REFERENCE, 0.1)
    sharp = hidden_change_bound(REFERENCE, 0.1, sharp=True)
    assert sharp.upper == pytest.approx((1.0005**1000 - 1) / 0.1)
    assert sharp.upper < plain.upper
    assert hidden_change_bound(Setting(40, 100, 0.25), 0.1, sharp=True).guaranteed


@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-3, 1e-6])
def test_order_of_bounds_and_quantiles(delta):
    frame = tightness([64, 300], [1000, 20_000], [delta])
    ordered = frame[
        ["lower", "sharper_lower", "exact_lower", "exact_upper", "sharper_upper", "upper"]
    ].to_numpy()
    assert (np.diff(ordered, axis=1) > 0).all()


def test_sharper_upper_bound_is_chernoffs_at_an_integer():
    bound = sharper_norm_upper_bound(REFERENCE, 0.25)
    # as the depth grows log ρ² is N(μ, v), whose Chernoff bound is μ + √(2 v log 4)
    limit = 0.5 * 0.98 + math.sqrt(2 * 0.02 * math.log(4))
    assert math.log(bound.upper) == pytest.approx(limit, abs=0.005)


def test_exact_interval_needs_gaussian_entries():
    with pytest.raises(ValueError, match="`setting` must have independent Gaussian entries; got"):
        exact_norm_interval(Setting(100, 100, 0.5, entries=Uniform()), 0.1)


def test_setting_of_a_network_and_its_errors():
    seeded = torch.Generator().manual_seed(0)
    network = ResidualNetwork(8, 16, 10, 1, beta=0.5, generator=seeded)
    setting = Setting.of(network)
    assert setting == Setting(16, 10, branch_scale=network.branch_scale,
                              activation=network.activation)  # fmt: skip
    rough = ResidualNetwork(8, 16, 10, 1, weights=FractionalIncrements(0.7), generator=seeded)
    assert not hidden_change_bound(Setting.of(rough), 0.1).guaranteed
    with pytest.raises(TypeError, match="`network` must be a ResidualNetwork; got int"):
        Setting.of(3)
    with pytest.raises(ValueError, match="`beta` or `branch_scale` must be given, and not both"):
        Setting(10, 10)
    with pytest.raises(ValueError, match="`branch_scale` must be a positive finite number; got 0"):
        Setting(10, 10, branch_scale=0)
    with pytest.raises(ValueError, match="`depth` must be a positive integer; got 0"):
        Setting(10, 0, 0.5)
    with pytest.raises(ValueError, match="`horizon` must be a positive finite number; got 0"):
        nontrivial_width(0.1, horizon=0)


def smooth(beta, *, depth=300, branch="res-3", activation=None, scale=0.5, seed=0):
    return ResidualNetwork(
        6, 12, depth, 1, branch=branch, activation=activation, beta=beta,
        weights=SmoothProcess(scale), generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    )  # fmt: skip


@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
@pytest.mark.parametrize("beta", [1.0, 1.5])
def test_smooth_change_bound_holds_at_every_layer(branch, beta):
    network = smooth(beta, branch=branch)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        h = network.hidden_states(x)
    change = ((h - h[0]).norm(dim=-1) / h[0].norm(dim=-1)).max()
    bound = smooth_change_bound(network)
    assert bound.guaranteed
    assert float(change) <= bound.upper
    if beta > 1:
        deeper = smooth_change_bound(smooth(beta, depth=1200, branch=branch))
        assert deeper.upper == pytest.approx(bound.upper * 4 ** (1 - beta), rel=0.5)


def test_smooth_change_bound_speaks_of_beta():
    assert not smooth_change_bound(smooth(0.5)).guaranteed
    assert not smooth_change_bound(smooth(1.5, branch="res-1", activation="softplus")).guaranteed
    with pytest.raises(TypeError, match="`network` must be a ResidualNetwork; got str"):
        smooth_change_bound("network")


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_linear_explosion_bound_holds_and_grows(seed):
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lowers = []
    for depth in (200, 3200):
        network = smooth(0.3, depth=depth, branch="res-1", activation="identity", seed=seed,
                         scale=2.0)  # fmt: skip
        bound = linear_explosion_bound(network, x)
        assert bound.guaranteed
        with torch.no_grad():
            h = network.hidden_states(x).norm(dim=-1)
        assert float((h.max(dim=0).values / h[0]).min()) >= bound.lower
        lowers.append(bound.lower)
    assert lowers[1] > 2 * lowers[0]


def test_linear_explosion_bound_errors_and_refusals():
    x = torch.ones(1, 6)
    assert not linear_explosion_bound(smooth(0.3, branch="res-1"), x).guaranteed
    # seed 2 draws a first layer without a positive eigenvalue
    no_eigenvalue = smooth(0.3, branch="res-1", activation="identity", seed=2, scale=2.0)
    assert [a.name for a in linear_explosion_bound(no_eigenvalue, x).failed] == ["eigenvalue"]
    late = linear_explosion_bound(smooth(1.0, branch="res-1", activation="identity"), x)
    assert [a.name for a in late.failed] == ["branch scale"]
    network = smooth(0.3, branch="res-1", activation="identity")
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(n_inputs, 6\)"):
        linear_explosion_bound(network, torch.ones(6))
    with pytest.raises(ValueError, match="`inputs` must give a non-zero hidden state"):
        linear_explosion_bound(network, torch.zeros(1, 6))
