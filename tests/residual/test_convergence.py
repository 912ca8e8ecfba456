"""Orders of convergence in the depth."""

import math

import numpy as np
import pytest

from scalinglimits.residual.convergence import depth_convergence, fit_order, weak_convergence


def test_strong_order_of_the_sde():
    record = depth_convergence(
        "sde", [16, 32, 64, 128], width=12, activation="tanh", n_inputs=2, replicates=60, seed=1
    )
    for fit in (record.states, record.gradient):
        assert fit.theory == 0.5
        assert fit.order == pytest.approx(0.5, abs=0.05)
        assert fit.interval[0] < fit.order < fit.interval[1]
    frame = record.to_frame()
    assert len(frame) == 8
    assert (np.diff(record.states.mean) < 0).all()
    assert (record.states.standard_error < 0.1 * record.states.mean).all()


def test_a_kink_halves_the_order_of_the_gradient_alone():
    record = depth_convergence(
        "sde", [16, 32, 64, 128], width=12, activation="relu", n_inputs=2, replicates=60, seed=2
    )
    assert record.states.order == pytest.approx(0.5, abs=0.05)
    assert record.gradient.theory == 0.25
    assert record.gradient.order == pytest.approx(0.25, abs=0.1)  # and not ½


@pytest.mark.parametrize("branch", ["res-1", "res-2"])
def test_order_of_the_ode(branch):
    record = depth_convergence(
        "ode", [64, 128, 256, 512], width=8, branch=branch, activation="tanh", replicates=2,
        length_scale=0.3,
    )  # fmt: skip
    for fit in (record.states, record.gradient):
        assert fit.theory == 1.0
        assert fit.order == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
def test_order_of_the_ode_with_relu():
    record = depth_convergence("ode", [128, 256, 512, 1024], width=16, branch="res-3",
                               replicates=2)  # fmt: skip
    assert record.states.order == pytest.approx(1.0, abs=0.05)
    assert record.gradient.order == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("moment", [1, 2, 5])
def test_weak_order(moment):
    fit = weak_convergence([100, 1000, 10_000], width=40, moment=moment)
    assert fit.theory == 1.0
    assert fit.order == pytest.approx(1.0, abs=0.05)
    assert math.isnan(fit.standard_error[0])


def test_fit_recovers_a_given_order_and_covers_it():
    rng = np.random.default_rng(0)
    depths = [10, 20, 40, 80]
    errors = np.array(depths) ** -0.7 * np.exp(0.1 * rng.standard_normal((200, 4)))
    fit = fit_order(depths, errors, 0.7)
    assert fit.order == pytest.approx(0.7, abs=0.02)
    assert fit.interval[0] < 0.7 < fit.interval[1]
    # coverage of the 95 % interval with 10 replicates: 200 trials, binomial α = 1e-5
    hits = 0
    for _ in range(200):
        noisy = np.array(depths) ** -0.7 * np.exp(0.1 * rng.standard_normal((10, 4)))
        low, high = fit_order(depths, noisy, 0.7).interval
        hits += low < 0.7 < high
    assert hits > 170


def test_errors():
    with pytest.raises(ValueError, match="`kind` must be 'sde', 'ode' or 'young'; got 'pde'"):
        depth_convergence("pde", [2, 4], width=2)
    with pytest.raises(ValueError, match="`depths` must hold two different depths at least"):
        depth_convergence("sde", [4, 4], width=2)
    with pytest.raises(ValueError, match="`depths` must be a positive integer; got 0"):
        depth_convergence("sde", [0, 4], width=2)
    with pytest.raises(ValueError, match="`branch` must be 'res-1' for 'sde'"):
        depth_convergence("sde", [2, 4], width=2, branch="res-3")
    with pytest.raises(ValueError, match="`depths` must divide the reference of 10 steps"):
        depth_convergence("sde", [3, 5], width=2, reference=10)
    with pytest.raises(ValueError, match="`moment` must be a positive integer; got 0"):
        weak_convergence([10, 100], width=40, moment=0)
