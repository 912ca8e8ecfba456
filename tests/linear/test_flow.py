"""Gradient flow: against descent with tiny steps, in orders, and to the end."""

import math

import numpy as np
import pytest

from scalinglimits.laws import Normal
from scalinglimits.linear import EmpiricalData, GaussianData, LinearNetwork, gradient_flow, train
from scalinglimits.linear._runge_kutta import Stepper

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)) / 2
Y = RNG.standard_normal(4)
Y2 = RNG.standard_normal((4, 2))
DATA = EmpiricalData(X, Y)

NETWORKS = {
    "three layers": {},
    "two layers": {"hidden": 0},
    "deep": {"hidden": 3},
    "haar": {"hidden": 2, "matrices": "haar"},
    "residual": {"hidden": 2, "residual_scale": 0.5},
    "outputs": {"out_features": 2},
    "scale": {"scale": 2.0},
    "ntk": {"parametrization": "ntk"},
    "integrable": {"parametrization": "integrable"},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_descent_converges_to_the_flow_at_order_one(name):
    network = LinearNetwork(6, **NETWORKS[name])
    data = DATA if network.out_features == 1 else EmpiricalData(X, Y2)
    flow = gradient_flow(network, data, times=[1.0], seed=0, rtol=1e-10)
    errors = []
    for steps in (50, 100, 200):
        run = train(network, data, step_size=1.0 / steps, steps=steps, seed=0)
        errors.append(np.linalg.norm(run.predictor[-1] - flow.predictor[-1]))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 1.0, atol=0.05)


def test_flow_at_finite_width_stays_near_the_limit():
    wide = gradient_flow(LinearNetwork(6, width=10**14), DATA, times=[1.0], seed=0)
    limit = gradient_flow(LinearNetwork(6), DATA, times=[1.0])
    assert 0.0 < np.max(np.abs(wide.predictor - limit.predictor)) < 1e-5


def test_flow_of_an_explicit_network():
    """All products of a dense network are known: two tolerances, one network."""
    network = LinearNetwork(6, hidden=2, width=8, matrices=Normal())
    loose = gradient_flow(network, DATA, times=[0.5, 1.0], seed=1, rtol=1e-6)
    tight = gradient_flow(network, DATA, times=[0.5, 1.0], seed=1, rtol=1e-11)
    tiny = train(network, DATA, step_size=1e-4, steps=10_000, seed=1)
    np.testing.assert_allclose(loose.predictor, tight.predictor, atol=1e-5)
    np.testing.assert_allclose(tiny.predictor[[5000, 10_000]], tight.predictor, atol=1e-3)


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8])
def test_error_estimate(rtol):
    exact = gradient_flow(LinearNetwork(6), DATA, times=[2.0, 5.0], rtol=1e-12)
    flow = gradient_flow(LinearNetwork(6), DATA, times=[2.0, 5.0], rtol=rtol)
    errors = np.linalg.norm(flow.predictor - exact.predictor, axis=1)
    assert np.all(errors < flow.error_estimate)
    assert np.all(flow.error_estimate < 1e4 * rtol)


def test_kernel_limit_in_closed_form():
    network = LinearNetwork(6, hidden=2, parametrization="ntk")
    flow = gradient_flow(network, DATA, times=[0.0, 0.7, 3.0], seed=3, rtol=1e-11)
    start = flow.predictor[0]
    values, vectors = np.linalg.eigh(X.T @ X / 4)
    end = DATA.minimum_norm() + start - np.linalg.pinv(X) @ X @ start
    for time, predictor in zip(flow.times, flow.predictor, strict=True):
        decay = vectors @ np.diag(np.exp(-4.0 * values * time)) @ vectors.T
        np.testing.assert_allclose(predictor, end + decay @ (start - end), atol=1e-8)


def test_balance():
    """Of two layers, both squares grow at the same speed: |U|^2 - |V|^2 is kept."""
    flow = gradient_flow(LinearNetwork(6, hidden=0), DATA, t_end=4.0, rtol=1e-10)
    np.testing.assert_allclose(flow.u_square - flow.v_square, 5.0, atol=1e-7)


def test_to_the_minimum_norm_interpolator():
    flow = gradient_flow(LinearNetwork(6), DATA, t_end=math.inf, stop_at=1e-13, rtol=1e-9)
    assert flow.status == "stopped"
    np.testing.assert_allclose(flow.predictor[-1], DATA.minimum_norm(), atol=1e-5)
    assert np.all(np.diff(flow.times) > 0.0)
    assert len(flow.times) == flow.stop_step + 1
    assert flow.evaluations > 6 * flow.stop_step


def test_layer_speeds():
    frozen = gradient_flow(
        LinearNetwork(6), DATA, times=[1.0], layer_speeds=[1.0, 0.0, 1.0], rtol=1e-8
    )
    assert frozen.w_square[-1, 0] == 0.0
    assert frozen.v_square[-1] != 1.0


def test_other_losses():
    data = EmpiricalData(X, np.sign(Y))
    flow = gradient_flow(LinearNetwork(6), data, times=[1.0], loss="logistic", rtol=1e-10)
    run = train(LinearNetwork(6), data, step_size=1e-3, steps=1000, loss="logistic")
    np.testing.assert_allclose(run.predictor[-1], flow.predictor[-1], atol=1e-3)
    population = GaussianData(np.eye(6), np.ones(6) / 3)
    flow = gradient_flow(LinearNetwork(6), population, times=[3.0], loss="huber", rtol=1e-6)
    assert flow.loss[-1] < 0.1


def test_step_limit():
    flow = gradient_flow(LinearNetwork(6), DATA, t_end=100.0, max_steps=5)
    assert flow.status == "step_limit"
    assert flow.stop_step == 5
    assert len(flow.times) == 6


def test_stops_at_once():
    flow = gradient_flow(LinearNetwork(6), DATA, t_end=1.0, stop_at=1e9)
    assert flow.status == "stopped"
    assert flow.stop_step == 0


def test_blow_up_is_reported():
    """A loss that pushes the predictor away ever faster: the flow ends at a finite time."""
    flow = gradient_flow(LinearNetwork(6), DATA, t_end=100.0, loss=lambda p, y: -((p + 1) ** 3))
    assert flow.status == "diverged"
    assert flow.state is None
    assert np.all(np.isfinite(flow.predictor))


class _Rotation:
    """A circle, as a field of the stepper."""

    def __init__(self, arrays):
        self.arrays = arrays
        (y,) = arrays
        self.slopes = [np.array([-y[1], y[0]])]


def test_stepper_order():
    """A hundredth of the tolerance gives about a hundredth of the global error."""
    errors = []
    for rtol in (1e-6, 1e-8, 1e-10):
        stepper = Stepper(_Rotation, [np.array([1.0, 0.0])], rtol)
        while stepper.time < 10.0:
            stepper.advance(10.0)
        errors.append(np.linalg.norm(stepper.point.arrays[0] - [math.cos(10), math.sin(10)]))
    assert errors[0] < 1e-4
    assert 10 < errors[0] / errors[1] < 1000
    assert 10 < errors[1] / errors[2] < 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`times` must be given, or `t_end` instead"),
        ({"times": [1.0], "t_end": 1.0}, "`times` must be given, or `t_end` instead"),
        ({"times": [1.0, 0.5]}, "`times` must be increasing and non-negative"),
        ({"times": [-1.0]}, "`times` must be increasing and non-negative"),
        ({"times": []}, "`times` must be increasing and non-negative"),
        ({"t_end": 0.0}, "`t_end` must be greater than 0"),
        ({"t_end": math.inf}, "`t_end` must be finite"),
        ({"t_end": 1.0, "rtol": 0.0}, "`rtol` must be greater than 0"),
        ({"t_end": 1.0, "max_steps": 0}, "`max_steps` must be at least 1"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        gradient_flow(LinearNetwork(6), DATA, **options)


def test_errors_of_data_and_network():
    with pytest.raises(TypeError, match="`data` must be a measure, the same at all times"):
        gradient_flow(LinearNetwork(6), [DATA], t_end=1.0)
    standard = LinearNetwork(6, parametrization="standard")
    with pytest.raises(ValueError, match="`network` must have a flow"):
        gradient_flow(standard, DATA, t_end=1.0, seed=0)
