"""How often dense networks violate each bound: at most δ, with a binomial margin."""

import math

import pytest
import torch
from scipy import stats

from scalinglimits.laws import Normal, Rademacher, Uniform
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.bounds import (
    Setting,
    gradient_change_bound,
    gradient_change_mean,
    hidden_change_bound,
    hidden_change_mean,
    hidden_norm_lower_bound,
    hidden_norm_upper_bound,
    sharper_norm_lower_bound,
    sharper_norm_upper_bound,
)
from scalinglimits.residual.model import branch_activation

ALPHA_TEST = 1e-5
LAWS = [Normal(), Uniform(), Rademacher()]
BOUNDS = {
    "norm": [
        hidden_norm_lower_bound,
        hidden_norm_upper_bound,
        sharper_norm_lower_bound,
        sharper_norm_upper_bound,
    ],
    "change": [hidden_change_bound],
    "gradient_change": [gradient_change_bound],
}


def dense_ratios(setting, count, seed):
    """Squared ratios of ``count`` dense networks, one input each, from the recurrences."""
    d, alpha = setting.width, setting.alpha
    generator = torch.Generator().manual_seed(seed)
    sigma = resolve_activation(branch_activation(setting.branch, setting.activation))

    def draw():
        weight = setting.entries.sample((count, d, d), generator, dtype=torch.float32)
        return weight * d**-0.5

    h = torch.randn(d, generator=generator).expand(count, d)
    start, kept = h, []
    for _ in range(setting.depth):
        V = draw()
        if setting.branch == "res-1":
            W, z = None, h
        else:
            W = draw()
            z = torch.einsum("nij,nj->ni", W, h)
        kept.append((V, W, sigma.derivative(z)))
        h = h + alpha * torch.einsum("nij,nj->ni", V, sigma.function(z))
    b = torch.randn(d, generator=generator).expand(count, d)
    p = b
    for V, W, slope in reversed(kept):
        q = slope * torch.einsum("nji,nj->ni", V, p)
        p = p + alpha * (q if W is None else torch.einsum("nji,nj->ni", W, q))

    def ratio(a, base):
        return (a.double() ** 2).sum(-1) / (base.double() ** 2).sum(-1)

    return {
        "norm": ratio(h, start),
        "change": ratio(h - start, start),
        "gradient_change": ratio(p - b, b),
    }


def check_frequencies(setting, ratios, deltas):
    for quantity, bounds in BOUNDS.items():
        values = ratios[quantity]
        for bound in bounds:
            for delta in deltas:
                result = bound(setting, delta)
                assert result.guaranteed, str(result)
                outside = int(((values < result.lower) | (values > result.upper)).sum())
                # 0 violations never fail; else the binomial law with p = δ
                assert stats.binom.sf(outside - 1, len(values), delta) > ALPHA_TEST, (
                    f"{result} violated {outside} times of {len(values)}"
                )


@pytest.mark.parametrize("entries", LAWS)
@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
def test_violation_frequency_in_dense_networks(branch, entries):
    # d = 64 and α² = 1/1000 meet every theorem's assumptions; 60 networks of 50 layers
    setting = Setting(64, 50, branch=branch, entries=entries, branch_scale=1000**-0.5)
    check_frequencies(setting, dense_ratios(setting, 60, seed=3), (0.5, 0.2, 0.02))


@pytest.mark.slow
@pytest.mark.parametrize("entries", LAWS)
@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
@pytest.mark.parametrize(("width", "depth", "scale"), [(64, 300, 800**-0.5), (100, 100, 0.02)])
def test_violation_frequency_over_a_table(branch, entries, width, depth, scale):
    setting = Setting(width, depth, branch=branch, entries=entries, branch_scale=scale)
    parts = [dense_ratios(setting, 40, seed=seed) for seed in range(10)]
    ratios = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    check_frequencies(setting, ratios, (0.5, 0.2, 0.05, 0.01))


@pytest.mark.parametrize("entries", LAWS)
@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
def test_mean_squares_lie_in_proposition_7(branch, entries):
    # 4000 networks, width 16, depth 16, Lα² = 1; 4.5 standard errors are α < 1e-5
    setting = Setting(16, 16, 0.5, branch=branch, entries=entries)
    ratios = dense_ratios(setting, 4000, seed=5)
    for bound, values in (
        (hidden_change_mean(setting), ratios["change"]),
        (gradient_change_mean(setting), ratios["gradient_change"]),
    ):
        error = 4.5 * float(values.std()) / math.sqrt(len(values))
        assert bound.lower - error <= float(values.mean()) <= bound.upper + error
        if branch == "res-3":
            assert bound.lower == bound.upper  # so the mean is (1+α²/2)^L − 1
            assert abs(1 + float(values.mean()) - (1 + 1 / 32) ** 16) < error


def test_a_bound_pushed_past_its_truth_is_caught():
    # the same check must fail for a wrong theorem: half of R's exponent from above
    setting = Setting(64, 50, branch_scale=1000**-0.5)
    values = dense_ratios(setting, 60, seed=3)["norm"]
    upper = math.exp(setting.horizon / 4)
    outside = int((values > upper).sum())
    assert stats.binom.sf(outside - 1, len(values), 0.02) < ALPHA_TEST
