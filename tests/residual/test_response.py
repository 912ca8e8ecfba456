"""First-order moments against double sums, brute force and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalinglimits.laws import (
    DepthLaw,
    FractionalIncrements,
    Independent,
    Normal,
    SmoothIncrements,
    SmoothProcess,
    Uniform,
)
from scalinglimits.residual import ParametricReLU, ResidualNetwork, propagate, response_moments
from scalinglimits.residual.response import limit_exponent

LAWS = [
    Independent(Normal()),
    Independent(Uniform()),
    FractionalIncrements(0.3),
    FractionalIncrements(0.8),
    SmoothProcess(0.2),
    SmoothIncrements(0.2),
]
BRANCHES = [
    ("res-1", None, (1.0, 1 / math.sqrt(2))),
    ("res-1", "relu", (1.0, 0.0)),
    ("res-2", None, (1.0, 1 / math.sqrt(2))),
    ("res-2", ParametricReLU(-0.4), (1.0, -0.4)),
    ("res-2", "identity", (1.0, 1.0)),
    ("res-3", None, (1.0, 0.0)),
]


def double_sum(gamma, branch, slopes, width):
    """S_L term by term, with σ(u) = ((a + b)u + (a − b)|u|)/2 and its derivative."""
    even, odd = (slopes[0] - slopes[1]) / 2, (slopes[0] + slopes[1]) / 2
    hidden = gradient = 0.0
    for k in range(len(gamma)):
        for l in range(len(gamma)):  # noqa: E741
            rho = min(1.0, max(-1.0, gamma[abs(k - l)]))
            both = 2 / math.pi * (math.sqrt(1 - rho**2) + rho * math.asin(rho))
            kappa = odd**2 * rho + even**2 * both
            kappa_dot = odd**2 + even**2 * 2 / math.pi * math.asin(rho)
            if branch == "res-1":
                kappa = sum(s**2 for s in slopes) / 2
                hidden, gradient = hidden + rho * kappa, gradient + rho * kappa
            else:
                hidden += rho * kappa
                gradient += rho * ((1 - 1 / width) * rho * kappa_dot + kappa / width)
    return hidden, gradient


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(("branch", "activation", "slopes"), BRANCHES)
def test_equals_the_double_sum(law, branch, activation, slopes):
    depths = [1, 2, 13, 30]
    moments = response_moments(law, depths, width=5, branch=branch, activation=activation)
    expected = [double_sum(law.autocovariance(n), branch, slopes, 5) for n in depths]
    np.testing.assert_allclose(moments.hidden, np.array(expected)[:, 0], rtol=1e-12)
    np.testing.assert_allclose(moments.gradient, np.array(expected)[:, 1], rtol=1e-12)
    assert moments.depths.tolist() == depths


@pytest.mark.parametrize(
    "law", [Independent(Normal()), FractionalIncrements(0.3), FractionalIncrements(0.8),
            SmoothProcess(0.2)], ids=repr,
)  # fmt: skip
@pytest.mark.parametrize(("branch", "activation", "slopes"), [BRANCHES[i] for i in (0, 2, 5)])
@pytest.mark.parametrize("width", [2, 5])
def test_equals_brute_force(law, branch, activation, slopes, width):
    # n = 20,000 draws of the weights and of the start's direction, α = 1e-5 (4.42 errors)
    n, depth = 20_000, 6
    rng = np.random.default_rng(7)
    V, W = (law.sample(depth, (n, width, width), rng) / math.sqrt(width) for _ in range(2))
    h, p = rng.standard_normal((2, n, width))
    z = np.broadcast_to(h, (depth, n, width))
    if branch != "res-1":
        z = np.einsum("lnij,nj->lni", W, h)
    slope = np.where(z > 0, *slopes)
    hidden = np.einsum("lnij,lnj->ni", V, slope * z)
    q = slope * np.einsum("lnij,ni->lnj", V, p)
    gradient = q.sum(0) if branch == "res-1" else np.einsum("lnij,lni->nj", W, q)
    moments = response_moments(law, depth, width=width, branch=branch, activation=activation)
    for start, change, theory in [
        (h, hidden, moments.hidden[0]),
        (p, gradient, moments.gradient[0]),
    ]:
        # a control variate that is exact: E‖change‖² = theory·‖start‖², start's norm drawn
        squares = (change**2).sum(1) / (start**2).sum(1)
        error = squares.std() / math.sqrt(n)
        assert abs(squares.mean() - theory) < 4.42 * error
        assert error < 0.03 * theory


def test_is_what_networks_do_at_large_beta():
    # 300 networks at β = 4: the mean square change over α² (4.42 errors)
    law = FractionalIncrements(0.8)
    squares = []
    for seed in range(300):
        network = ResidualNetwork(
            4, width=6, depth=10, out_features=1, weights=law, beta=4.0,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        record = propagate(network, torch.ones(1, 4), layers="ends")
        ratios = record.log_ratios
        logs = [ratios["hidden_change"][0, 0], ratios["gradient_change"][0, 0]]
        squares.append(np.exp(2 * np.array(logs)) / network.branch_scale**2)
    moments = response_moments(law, 10, width=6)
    theory = np.array([moments.hidden[0], moments.gradient[0]])
    error = np.std(squares, axis=0) / math.sqrt(300)
    assert (np.abs(np.mean(squares, axis=0) - theory) < 4.42 * error).all()


def test_independent_layers_add_up():
    moments = response_moments(Independent(Normal()), [1, 10, 1000], width=40)
    np.testing.assert_allclose(moments.hidden, [0.5, 5.0, 500.0])
    np.testing.assert_allclose(moments.gradient, [0.5, 5.0, 500.0])


def test_identity_of_equal_layers():
    # γ = 1: the change is L·V σ(W h), hence S_L = L²/2
    moments = response_moments(SmoothProcess(1e6), 50, width=40)
    np.testing.assert_allclose(moments.hidden, 50**2 / 2, rtol=1e-6)
    np.testing.assert_allclose(moments.gradient, 50**2 / 2, rtol=1e-6)


def local_exponent(hurst, width, depth=10**6):
    moments = response_moments(FractionalIncrements(hurst), [depth, 2 * depth], width=width)
    return (np.log2(v[1] / v[0]) / 2 for v in (moments.hidden, moments.gradient))


@pytest.mark.parametrize(
    ("hurst", "tolerance"),
    [(0.1, 1e-3), (0.3, 1e-3), (0.5, 1e-3), (0.6, 0.02), (0.7, 0.005), (0.8, 0.003), (0.95, 0.02)],
)
def test_signals_exponent_tends_to_the_critical_one(hurst, tolerance):
    hidden, _ = local_exponent(hurst, 40)
    assert abs(hidden - max(hurst, 0.5)) < tolerance


@pytest.mark.parametrize(
    ("hurst", "tolerance"), [(0.3, 1e-3), (0.5, 1e-3), (0.6, 1e-3), (0.9, 0.01), (0.97, 0.01)]
)
def test_wide_gradients_exponent(hurst, tolerance):
    _, gradient = local_exponent(hurst, 10**15)
    assert abs(gradient - max(0.5, 2 * hurst - 1)) < tolerance
    _, narrow = local_exponent(hurst, 1)
    assert abs(narrow - max(hurst, 0.5)) < 0.03


@pytest.mark.parametrize(
    ("hurst", "tolerance"), [(0.3, 1e-3), (0.6, 1e-3), (0.7, 0.01), (0.9, 0.01), (0.97, 0.01)]
)
def test_exponent_of_linear_branches(hurst, tolerance):
    depth, law = 10**6, FractionalIncrements(hurst)
    moments = response_moments(
        law, [depth, 2 * depth], width=40, branch="res-2", activation="identity"
    )
    expected = limit_exponent(law.critical_beta, "res-2", "identity")
    assert expected == pytest.approx(max(0.5, 2 * hurst - 1))
    for values in (moments.hidden, moments.gradient):
        assert abs(np.log2(values[1] / values[0]) / 2 - expected) < tolerance


def test_exponent_comes_closer_with_depth():
    distances = [next(local_exponent(0.6, 40, depth)) - 0.6 for depth in (10**2, 10**4, 10**6)]
    assert distances[0] < distances[1] < distances[2] < 0


def test_first_layers_of_a_deeper_network():
    law = SmoothProcess(0.1)
    part = response_moments(law, [10, 100], width=8, total_depth=100)
    alone = response_moments(law, [10, 100], width=8)
    assert part.hidden[1] == alone.hidden[1]
    assert part.hidden[0] > 3 * alone.hidden[0]  # 10 layers of 100 are nearly equal
    gamma = law.autocovariance(100)[:10]
    expected = double_sum(gamma, "res-3", (1.0, 0.0), 8)
    assert part.hidden[0] == pytest.approx(expected[0])
    fractional = FractionalIncrements(0.8)
    same = response_moments(fractional, [10], width=8, total_depth=100)
    assert same.hidden == pytest.approx(response_moments(fractional, [10], width=8).hidden)


def test_balanced_beta_makes_the_change_one():
    moments = response_moments(FractionalIncrements(0.7), [10, 1000], width=40)
    hidden, gradient = moments.balanced_beta()
    depths = moments.depths.astype(float)
    np.testing.assert_allclose(depths ** (-2 * hidden) * moments.hidden, 1)
    np.testing.assert_allclose(depths ** (-2 * gradient) * moments.gradient, 1)


def test_one_depth_gives_one_number():
    moments = response_moments(Independent(Normal()), 7, width=3)
    assert moments.depths.shape == moments.hidden.shape == moments.gradient.shape == (1,)


# --- errors


@pytest.mark.parametrize("depths", [0, [3, -1], [2.5], True])
def test_depths_must_be_positive_integers(depths):
    with pytest.raises(ValueError, match="`depths` must be a positive integer; got"):
        response_moments(Independent(Normal()), depths, width=3)


def test_width_must_be_a_positive_integer():
    with pytest.raises(ValueError, match="`width` must be a positive integer; got 0"):
        response_moments(Independent(Normal()), 3, width=0)


@pytest.mark.parametrize("total", [0, True, 2.5])
def test_total_depth_must_be_a_positive_integer(total):
    with pytest.raises(ValueError, match="`total_depth` must be a positive integer; got"):
        response_moments(Independent(Normal()), 3, width=3, total_depth=total)


def test_total_depth_must_hold_the_depths():
    with pytest.raises(ValueError, match="`total_depth` must be at least the greatest of `depths`"):
        response_moments(Independent(Normal()), [3, 9], width=3, total_depth=8)


@pytest.mark.parametrize("weights", [0.7, Normal(), DepthLaw])
def test_weights_must_be_a_law(weights):
    with pytest.raises(TypeError, match="`weights` must be a law across depth, such as"):
        response_moments(weights, 3, width=3)


def test_activation_must_be_homogeneous():
    with pytest.raises(ValueError, match="`activation` must be positively homogeneous; got 'tanh'"):
        response_moments(Independent(Normal()), 3, width=3, branch="res-2", activation="tanh")
