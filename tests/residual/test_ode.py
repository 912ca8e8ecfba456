"""Smooth weights at any time, and the neural ODE."""

import math

import numpy as np
import pytest
import torch

from scalinglimits.laws import FractionalIncrements, SmoothIncrements, SmoothProcess
from scalinglimits.residual import ResidualNetwork
from scalinglimits.residual.ode import SampledPath, WavePath, flow, limit_ode

DOUBLE = torch.float64


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_waves_have_the_kernel_exactly():
    # the value at t is linear in the factors: its covariance needs no sampling
    path = WavePath((1,), 0.1, variance=2.0)
    times = np.array([0.0, 0.05, 0.3, 0.77, 1.0])
    count = len(path._factors)
    path._factors = np.eye(count)
    path.shape = (count,)
    rows = np.stack([path.at(t) for t in times])
    kernel = 2 * np.exp(-(np.subtract.outer(times, times) ** 2) / (2 * 0.01))
    np.testing.assert_allclose(rows @ rows.T, kernel, atol=1e-12)


def test_waves_of_the_derivative():
    path = WavePath((1,), 0.2, derivative=True)
    count = len(path._factors)
    path._factors, path.shape = np.eye(count), (count,)
    times = np.linspace(0, 1, 5)
    rows = np.stack([path.at(t) for t in times])
    lag = np.subtract.outer(times, times) / 0.2
    np.testing.assert_allclose(rows @ rows.T, (1 - lag**2) * np.exp(-(lag**2) / 2), atol=1e-12)


def test_solution_of_a_linear_equation_with_fixed_weights_is_the_exponential():
    class Fixed:
        def at(self, t):
            return np.array([[0.0, 1.0], [-1.0, 0.0]]) * math.pi / 2

    ode = limit_ode(width=2, branch="res-1", activation="identity")
    ode = type(ode)(2, "res-1", ode.activation, Fixed(), None)
    solution = ode.solve(torch.tensor([[1.0, 0.0]]))
    np.testing.assert_allclose(solution.states(1.0), [[0.0, -1.0]], atol=1e-7)  # a quarter turn
    p = solution.gradients(torch.tensor([[0.0, 1.0]]))
    np.testing.assert_allclose(p(0.0), [[-1.0, 0.0]], atol=1e-7)


@pytest.mark.parametrize("branch", ["res-1", "res-2"])
def test_gradient_of_the_flow(branch):
    ode = limit_ode(width=3, branch=branch, activation="tanh", seed=1,
                    weights=SmoothProcess(1.0))  # fmt: skip
    start = torch.randn(1, 3, generator=seeded(), dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: flow(ode, x, rtol=1e-11, atol=1e-12), (start,), eps=1e-5, atol=1e-6
    )


def test_gradients_agree_with_a_deep_networks_backpropagation():
    ode = limit_ode(width=6, branch="res-2", activation="tanh", weights=SmoothProcess(0.5))
    x = torch.randn(3, 6, generator=seeded(), dtype=DOUBLE)
    b = torch.randn(3, 6, generator=seeded(1), dtype=DOUBLE)
    leaf = x.clone().requires_grad_(True)
    h = ode.network(4000).hidden_states(leaf)
    (p_0,) = torch.autograd.grad((h[-1] * b).sum(), leaf)
    p = ode.solve(x).gradients(b)
    torch.testing.assert_close(p(0.0), p_0, rtol=3e-3, atol=3e-3)
    torch.testing.assert_close(p(1.0), b)


def test_limit_of_a_given_network_joins_its_weights():
    network = ResidualNetwork(
        5, 5, 400, 1, branch="res-2", activation="tanh", weights=SmoothProcess(0.3),
        generator=seeded(), dtype=DOUBLE,
    )  # fmt: skip
    ode = limit_ode(network)
    assert ode.speed == pytest.approx(1.0)
    np.testing.assert_allclose(ode.V.at(0.25), network.V[100].detach().numpy(), atol=1e-12)
    with torch.no_grad():
        states = network.hidden_states(torch.ones(1, 5, dtype=DOUBLE))
    end = ode.solve(states[0]).states(1.0)
    assert float((end - states[-1]).norm() / states[0].norm()) < 0.02


def test_limit_of_increments_is_the_derivative():
    ode = limit_ode(width=3, branch="res-1", weights=SmoothIncrements(0.2), seed=0)
    draws = np.stack([ode.V.at(t) for t in np.linspace(0, 1, 200)])
    assert 0.4 < 3 * float((draws**2).mean()) < 2.0


def test_stability_by_exponent():
    # R, Propositions 12 and 13: the change tends to 0, stays, or explodes
    ode = limit_ode(width=6, branch="res-1", activation="identity", seed=3,
                    weights=SmoothProcess(2.0))  # fmt: skip
    assert np.linalg.eigvals(ode.V.at(0.0)).real.max() > 0.3
    x = torch.ones(1, 6, dtype=DOUBLE)

    def change(beta, depth):
        with torch.no_grad():
            h = ode.network(depth, beta=beta).hidden_states(x)
        return float((h - h[0]).norm(dim=-1).max() / h[0].norm())

    assert change(1.5, 1600) / change(1.5, 400) == pytest.approx(0.5, abs=0.05)  # L^(1−β)
    assert change(1.0, 1600) == pytest.approx(change(1.0, 400), rel=0.02)
    assert change(0.5, 1600) > 1e3 * change(0.5, 100)


def test_errors():
    with pytest.raises(ValueError, match="`network` or `width` must be given, and not both"):
        limit_ode()
    with pytest.raises(TypeError, match="`network` must be a ResidualNetwork; got str"):
        limit_ode("network")
    with pytest.raises(ValueError, match="`weights` must be SmoothProcess or SmoothIncrements"):
        limit_ode(width=4, weights=FractionalIncrements(0.7))
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'x'"):
        limit_ode(width=4, branch="x")
    with pytest.raises(ValueError, match="`activation` must be Lipschitz continuous"):
        limit_ode(width=4, branch="res-1", activation=lambda x: x**2)
    with pytest.raises(ValueError, match="`length_scale` must be a positive finite number; got 0"):
        WavePath((1,), 0)
    with pytest.raises(ValueError, match="`values` must have at least 4 layers; got 2"):
        SampledPath(np.zeros((2, 1, 1)))
    ode = limit_ode(width=4, branch="res-1")
    with pytest.raises(ValueError, match=r"`start` must have shape \(n, 4\); got \(3,\)"):
        ode.solve(torch.ones(3))
    solution = ode.solve(torch.ones(1, 4))
    with pytest.raises(ValueError, match=r"`last` must have shape \(1, 4\); got \(2, 4\)"):
        solution.gradients(torch.ones(2, 4))
    with pytest.raises(ValueError, match="`depth` must be a positive integer; got 0"):
        ode.network(0)
