"""Brownian paths, solvers, and the limits of networks with independent weights."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from scalinglimits.laws import FractionalIncrements, Independent, Rademacher, Uniform
from scalinglimits.residual import ResidualNetwork, limit_norm_law
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.sde import (
    SDE,
    BrownianPath,
    EulerMaruyama,
    KernelSDE,
    MatrixSDE,
    Milstein,
    NormSDE,
    coupled_network,
    gaussian_kernel,
    integrate,
    limit_sde,
)

DOUBLE = torch.float64


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# --- paths ---


@pytest.mark.parametrize("steps", [7, 14, 56, 1, 448])
def test_refining_does_not_change_the_path(steps):
    path = BrownianPath((3, 2), steps=56, seed=1, dtype=DOUBLE)
    before = path.increments(56)
    fine = path.increments(steps).cumsum(0)
    ends = torch.linspace(0, 1, 8, dtype=DOUBLE)[1:] if steps % 7 == 0 else None
    if ends is not None:
        pick = torch.arange(1, 8)
        torch.testing.assert_close(
            fine[pick * (steps // 7) - 1], before.cumsum(0)[pick * 8 - 1], atol=1e-13, rtol=0
        )
    torch.testing.assert_close(fine[-1], before.sum(0), atol=1e-13, rtol=0)
    assert torch.equal(path.increments(56), before)


def test_a_path_is_a_function_of_its_seed_alone():
    one, two = (BrownianPath((2,), steps=40, seed=5) for _ in range(2))
    one.increments(640)
    assert torch.equal(one.increments(80), two.increments(80))
    assert not torch.equal(two.increments(80), BrownianPath((2,), 40, seed=6).increments(80))


def test_blocks_are_the_increments():
    path = BrownianPath((2,), steps=50, seed=0, dtype=DOUBLE)
    for steps in (50, 200, 25, 1, 10):
        assert torch.equal(torch.cat(list(path.blocks(steps))), path.increments(steps))


@pytest.mark.parametrize("level", [0, 1, 3])
def test_increments_are_independent_and_of_the_right_variance(level):
    # exact: increments are linear in the normals; 40,000 places estimate the covariance of 16
    # steps. Entries of the sample covariance have deviation below √2/200; 6 of them: α < 1e-5.
    steps = 2 << level
    path = BrownianPath((40_000,), steps=2, seed=2, horizon=2.0, dtype=DOUBLE)
    x = path.increments(steps) * math.sqrt(steps / 2.0)
    covariance = x @ x.T / x.shape[1]
    assert float((covariance - torch.eye(steps)).abs().max()) < 6 * math.sqrt(2) / 200


def test_path_errors():
    with pytest.raises(ValueError, match="`steps` must be a positive integer; got 0"):
        BrownianPath((2,), 0)
    with pytest.raises(ValueError, match="`shape` must be a positive integer; got 0"):
        BrownianPath((0,), 4)
    with pytest.raises(ValueError, match="`horizon` must be a positive finite number; got 0"):
        BrownianPath((2,), 4, horizon=0)
    with pytest.raises(ValueError, match="`steps` must divide the base grid of 10 steps times"):
        BrownianPath((2,), 10).increments(30)


# --- solvers ---


@pytest.mark.parametrize("solver", [EulerMaruyama(), Milstein()])
def test_strong_order_is_the_solvers_own(solver):
    sde = NormSDE(width=2, strength=1.0)
    path = BrownianPath((4000,), steps=16, seed=3, dtype=DOUBLE)
    end = path.increments(16).sum(0)
    truth = sde.exact(torch.ones(4000, dtype=DOUBLE), 1.0, end)
    errors = []
    for steps in (16, 256):
        y = integrate(sde, torch.ones(4000, dtype=DOUBLE), path, steps=steps, solver=solver)
        errors.append(float((y - truth).abs().mean()))
    order = math.log(errors[0] / errors[1]) / math.log(16)
    assert order == pytest.approx(solver.strong_order, abs=0.05)


def test_weak_order_of_euler_in_the_mean():
    # E of the scheme is (1 + a h)^n exactly; against e^a the order is 1
    sde = NormSDE(width=4, strength=1.0)
    a = 0.5 * 0.75
    errors = [abs((1 + a / n) ** n - math.exp(a)) for n in (100, 1000)]
    assert math.log10(errors[0] / errors[1]) == pytest.approx(EulerMaruyama.weak_order, abs=0.01)
    assert float(sde.drift(0.0, torch.ones(1))) == pytest.approx(a)


def test_milstein_refuses_noise_that_does_not_commute():
    sde = limit_sde(width=3, branch="res-1")
    path = BrownianPath((3, 3), 4)
    with pytest.raises(ValueError, match="`sde` must have diagonal noise for Milstein's method"):
        integrate(sde, torch.ones(1, 3), path, solver=Milstein())


def test_integrate_errors_and_a_drift():
    class Growth(SDE):
        def drift(self, t, y):
            return y * t

        def apply_diffusion(self, t, y, dB):
            return 0.0 * dB

    path = BrownianPath((2,), 4, dtype=DOUBLE)
    states = integrate(Growth(), torch.ones(2, dtype=DOUBLE), path, save="all")
    expected = np.cumprod([1.0, 1.0, 1 + 1 / 16, 1 + 2 / 16, 1 + 3 / 16])
    np.testing.assert_allclose(states[:, 0], expected)
    with pytest.raises(ValueError, match="`save` must be 'last' or 'all'; got 'some'"):
        integrate(Growth(), torch.ones(2), path, save="some")
    with pytest.raises(ValueError, match="`steps` must divide the base grid"):
        integrate(Growth(), torch.ones(2), path, steps=3)


# --- limits ---


def test_res1_network_is_the_scheme_on_the_same_path():
    sde = limit_sde(width=6, branch="res-1", activation="tanh", variance=2.0)
    path = BrownianPath((6, 6), steps=20, seed=4, dtype=DOUBLE)
    x = torch.randn(5, 6, generator=seeded(), dtype=DOUBLE)
    for depth in (10, 20, 80):
        network = coupled_network(sde, path, depth)
        assert network.branch_scale == pytest.approx(math.sqrt(2 / depth))
        with torch.no_grad():
            states = network.hidden_states(x)
        torch.testing.assert_close(integrate(sde, x, path, steps=depth, save="all"), states)
    weights = coupled_network(sde, path, 80).V.detach().flatten() * math.sqrt(6)
    assert float(weights.var()) == pytest.approx(1.0, abs=0.15)  # R's N(0, 2/d) with α = √(1/L)


def test_coupled_network_errors():
    sde = limit_sde(width=6, branch="res-1")
    with pytest.raises(TypeError, match="`sde` must be the limit of res-1; got KernelSDE"):
        coupled_network(limit_sde(width=6), BrownianPath((6, 6), 4), 4)
    with pytest.raises(ValueError, match=r"`path` must have shape \(6, 6\) and horizon 1"):
        coupled_network(sde, BrownianPath((6,), 4), 4)
    with pytest.raises(ValueError, match=r"`path` must have shape \(6, 6\) and horizon 1"):
        coupled_network(sde, BrownianPath((6, 6), 4, horizon=2.0), 4)


def test_limit_of_a_network_and_its_sense():
    network = ResidualNetwork(8, 16, 100, 1, beta=0.5, generator=seeded(), branch="res-1")
    sde = limit_sde(network)
    assert isinstance(sde, MatrixSDE)
    assert sde.strength == pytest.approx(1.0)
    assert sde.sense.startswith("strong")
    law = Independent(Uniform())
    uniform = ResidualNetwork(8, 16, 100, 1, generator=seeded(), branch="res-1", weights=law)
    assert limit_sde(uniform).sense.startswith("weak")
    kernel = limit_sde(ResidualNetwork(8, 16, 100, 1, generator=seeded(), weights=law))
    assert isinstance(kernel, KernelSDE)
    assert "kernel is that of Gaussian W" in kernel.sense


def test_limit_sde_errors():
    rough = ResidualNetwork(8, 4, 10, 1, generator=seeded(), weights=FractionalIncrements(0.7))
    with pytest.raises(ValueError, match="`network` must have weights that are independent over"):
        limit_sde(rough)
    with pytest.raises(TypeError, match="`network` must be a ResidualNetwork; got int"):
        limit_sde(3)
    with pytest.raises(ValueError, match="`network` or `width` must be given, and not both"):
        limit_sde()
    with pytest.raises(ValueError, match="`activation` must be Lipschitz continuous"):
        limit_sde(width=4, branch="res-1", activation=lambda x: x**2)
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'r'"):
        limit_sde(width=4, branch="r")
    with pytest.raises(ValueError, match="`variance` must be a positive finite number; got -1"):
        limit_sde(width=4, variance=-1)
    with pytest.raises(ValueError, match="`horizon` must be a positive finite number; got inf"):
        limit_sde(width=4, horizon=math.inf)


@pytest.mark.parametrize("activation", ["relu", "parametric_relu", "identity", "abs", "tanh"])
def test_kernel_against_sampling(activation):
    sigma = resolve_activation(activation)
    h = torch.randn(3, 7, generator=seeded(1), dtype=DOUBLE)
    W = torch.randn(200_000, 7, generator=seeded(2), dtype=DOUBLE) / math.sqrt(7)
    g = sigma.function(W @ h.T)
    sampled = g.T @ g / len(g)
    kernel = gaussian_kernel(h, sigma)
    # 200,000 rows: 6 standard errors of a product of such variables
    error = 6 * float((g[:, :, None] * g[:, None, :]).std(0).max()) / math.sqrt(len(g))
    torch.testing.assert_close(kernel, sampled, atol=error, rtol=0)
    assert float(torch.linalg.eigvalsh(kernel).min()) > 0


def test_kernel_of_parallel_inputs_keeps_them_parallel():
    sde = limit_sde(width=5)
    x = torch.randn(1, 5, generator=seeded(), dtype=DOUBLE)
    start = torch.cat([x, 2 * x, torch.randn(1, 5, generator=seeded(3), dtype=DOUBLE)])
    path = BrownianPath(sde.noise_shape(3), 20, dtype=DOUBLE)
    end = integrate(sde, start, path)
    torch.testing.assert_close(end[1], 2 * end[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("branch", "activation"), [("res-3", None), ("res-2", None)])
def test_law_of_the_norm_in_the_limit(branch, activation):
    # 4000 paths, 200 steps, width 12; α = 1e-5, seed 0
    sde = limit_sde(width=12, branch=branch, activation=activation)
    path = BrownianPath((4000, 1, 12), steps=200, seed=0, dtype=DOUBLE)
    end = integrate(sde, torch.ones(4000, 1, 12, dtype=DOUBLE), path)
    ratios = (end.norm(dim=-1) / math.sqrt(12)).flatten().numpy()
    law = limit_norm_law(12, branch=branch, activation=activation)
    assert stats.kstest(ratios, law.cdf).pvalue > 1e-5
    assert stats.kstest(ratios * 1.1, law.cdf).pvalue < 1e-5
    norm = NormSDE(12, (sde.activation.slopes[0] ** 2 + sde.activation.slopes[1] ** 2) / 2)
    B = torch.randn(100_000, generator=seeded(), dtype=DOUBLE)
    exact = norm.exact(torch.ones(1, dtype=DOUBLE), 1.0, B).numpy()
    assert stats.kstest(exact, law.cdf).pvalue > 1e-5


def dense_states(start, depth, count, entries, seed):
    """States of ``count`` dense res-3 networks after ``depth`` layers at β = ½."""
    d = start.shape[1]
    generator = seeded(seed)
    h = start.expand(count, *start.shape)
    for _ in range(depth):
        V, W = (
            entries.sample((count, d, d), generator, dtype=torch.float32).to(DOUBLE) / math.sqrt(d)
            for _ in range(2)
        )
        h = h + depth**-0.5 * torch.relu(h @ W.mT) @ V.mT
    return h


def features(h):
    """Log-norms of two inputs and the correlation between them."""
    norms = h.norm(dim=-1)
    correlation = (h[:, 0] * h[:, 1]).sum(-1) / norms.prod(-1)
    return norms[:, 0].log(), norms[:, 1].log(), correlation, (norms[:, 0] / norms[:, 1]).log()


@pytest.mark.parametrize("entries", [None, Rademacher()])
def test_joint_law_of_two_inputs_against_dense_networks(entries):
    # 3000 networks of 60 layers and 3000 paths of 60 steps, width 10; two-sample KS, α = 1e-5.
    # One-input features hold for all entries; for two inputs of Rademacher W the kernel is that of
    # Gaussian W up to the fourth cumulant, too little to be seen here.
    from scalinglimits.laws import Normal

    sde = limit_sde(width=10)
    start = torch.randn(2, 10, generator=seeded(7), dtype=DOUBLE)
    path = BrownianPath((3000, 2, 10), steps=60, seed=8, dtype=DOUBLE)
    limit = integrate(sde, start.expand(3000, 2, 10), path)
    dense = dense_states(start, 60, 3000, entries or Normal(), seed=9)
    for one, two in zip(features(limit), features(dense), strict=True):
        assert stats.ks_2samp(one.numpy(), two.numpy()).pvalue > 1e-5
    # a wrong joint law must fail: independent noises for the two inputs
    apart = torch.stack([limit[:, 0], limit[:, 1].roll(1, 0)], dim=1)
    assert stats.ks_2samp(features(apart)[2].numpy(), features(dense)[2].numpy()).pvalue < 1e-5


def test_non_gaussian_res1_has_the_same_law():
    # 3000 networks with Rademacher V, 60 layers, against the diffusion; α = 1e-5
    sde = limit_sde(width=6, branch="res-1", activation="tanh")
    start = torch.randn(1, 6, generator=seeded(1), dtype=DOUBLE)
    path = BrownianPath((3000, 6, 6), steps=60, seed=2, dtype=DOUBLE)
    limit = integrate(sde, start.expand(3000, 1, 6), path).norm(dim=-1).flatten()
    h = start.expand(3000, 1, 6)
    generator = seeded(3)
    for _ in range(60):
        V = Rademacher().sample((3000, 6, 6), generator, dtype=torch.float32).to(DOUBLE)
        h = h + 60**-0.5 * torch.tanh(h) @ V / math.sqrt(6)
    assert stats.ks_2samp(limit.numpy(), h.norm(dim=-1).flatten().numpy()).pvalue > 1e-5
