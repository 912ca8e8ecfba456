"""Propagation at the ends of the number range: huge, tiny and vanishing signals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalinglimits.residual import ResidualNetwork, propagate

FIELDS = ("log_hidden", "log_hidden_change", "log_backward", "log_backward_change")


def build(branch="res-3", activation=None, *, width=10, depth=200, dtype=torch.float32, **options):
    return ResidualNetwork(
        5, width=width, depth=depth, out_features=1, branch=branch, activation=activation,
        dtype=dtype, generator=torch.Generator().manual_seed(0), **options,
    )  # fmt: skip


def scaled(network, factor):
    with torch.no_grad():
        network.V.mul_(factor)
        if network.W is not None:
            network.W.mul_(factor)
    return network


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def renormalising_twin(network, x, alpha):
    """Log-norms in float64, divided by the norm after each layer: (h_k/h_0), (p_k/p_L)."""
    cast = torch.float64
    V, W = network.V.detach().to(cast), network.W
    W = None if W is None else W.detach().to(cast)
    h = network.input_weight.detach().to(cast) @ x.to(cast)
    slope = 0.0 if network.branch == "res-3" else 1 / math.sqrt(2)
    h, log, hidden, masks = h / h.norm(), 0.0, [0.0], []
    for k in range(network.depth):
        z = h if W is None else W[k] @ h
        masks.append(slope + (1 - slope) * (z > 0).to(cast))
        h = h + alpha * (V[k] @ (masks[-1] * z))
        log += math.log(h.norm())
        hidden.append(log)
        h = h / h.norm()
    p = network.output_weight.detach()[0].to(cast)
    p, log, backward = p / p.norm(), 0.0, [0.0]
    for k in reversed(range(network.depth)):
        q = masks[k] * (V[k].T @ p)
        p = p + alpha * (q if W is None else W[k].T @ q)
        log += math.log(p.norm())
        backward.append(log)
        p = p / p.norm()
    return np.array(hidden), np.array(backward[::-1])


@pytest.mark.parametrize("branch", ["res-1", "res-2", "res-3"])
@pytest.mark.parametrize(
    ("beta", "factor"),
    [(-0.5, 1.0), (-3.0, 1.0), (-20.0, 1.0), (-40.0, 1.0), (0.5, 1e6), (0.5, 1e-6)],
)
def test_ratios_beyond_the_format(branch, beta, factor):
    network, x = scaled(build(branch), factor), draw(3, 5)
    single = propagate(network, x, beta=beta)
    hidden, backward = zip(
        *(renormalising_twin(network, row, 200.0**-beta) for row in x), strict=True
    )
    reach = abs(hidden[0][-1]) / math.log(10)
    assert reach > 900 or factor < 1 or beta == -0.5
    # float32 decides some signs of W h differently: one layer in a few thousand
    np.testing.assert_allclose(single.log_hidden[0], hidden, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(single.log_backward[0], backward, rtol=1e-5, atol=1e-4)
    double = propagate(network.double(), x, beta=beta)
    np.testing.assert_allclose(double.log_hidden[0], hidden, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(double.log_backward[0], backward, rtol=1e-11, atol=1e-11)
    if reach > 300:  # the start does not count
        late = double.log_hidden[0] > 50
        np.testing.assert_allclose(double.log_hidden_change[0][late], np.array(hidden)[late])


def test_ratio_of_ten_to_the_3000():
    network = build(depth=1000)
    record = propagate(network, draw(2, 5), beta=-1.0)
    assert np.isfinite(record.log_hidden).all()
    assert np.isfinite(record.log_backward).all()
    assert record.log_ratios["hidden_ratio"].min() > 2000 * math.log(10)


@pytest.mark.parametrize("beta", [-15.0, -18.0, 15.0, 18.0])
def test_branch_scale_beyond_single_precision(beta):
    # α = 200^18 = 2.6e41 and its inverse do not fit in float32: such columns run in float64
    network, x = build(), draw(2, 5)
    single, double = propagate(network, x, beta=beta), propagate(network.double(), x, beta=beta)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(single, name), getattr(double, name), rtol=1e-5)


def test_one_layer_beyond_double_precision():
    message = "`beta` must leave one layer within the range of float64; got branch scales from"
    with pytest.raises(ValueError, match=message):
        propagate(build(), draw(1, 5), beta=-133.0)


@pytest.mark.parametrize("beta", [2.0, 4.0, 6.0, 8.0])
@pytest.mark.parametrize(
    ("branch", "activation"), [("res-1", None), ("res-2", "tanh"), ("res-3", None)]
)
def test_tiny_changes_keep_five_digits(branch, activation, beta):
    # α = 1000^-8 = 1e-24: squares of the change underflow in float32
    network, x = build(branch, activation, depth=1000), draw(3, 5)
    single = propagate(network, x, beta=beta, layers=[1, 10, 500, 999])
    double = propagate(network.double(), x, beta=beta, layers=[1, 10, 500, 999])
    for name in ("log_hidden_change", "log_backward_change"):
        np.testing.assert_allclose(getattr(single, name), getattr(double, name), atol=1e-5)
    # log‖h_L‖/‖h_0‖ itself is of the size of the change: absolute error 1e-5 of that
    change = np.exp(double.log_hidden_change)
    assert (np.abs(single.log_hidden - double.log_hidden) <= 1e-5 * change).all()


def test_small_change_is_its_first_order():
    network, x = build(depth=50, width=6, dtype=torch.float64), draw(1, 5)
    h_0 = network.input_weight.detach() @ x[0].double()
    branches = network.V.detach() @ torch.relu(network.W.detach() @ h_0)[..., None]
    first = float(branches.sum(0).norm() / h_0.norm())
    record = propagate(network, x, beta=7.0)
    assert record.log_ratios["hidden_change"][0, 0] == pytest.approx(
        math.log(first) - 7 * math.log(50), abs=1e-9
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vanishing_signal_keeps_its_digits(dtype):
    # h_k = 2^-k h_0 exactly: 2^-1000 is far below float32
    network = build("res-1", "identity", depth=1000, dtype=dtype, branch_scale=0.25)
    with torch.no_grad():
        network.V.copy_(-2 * torch.eye(10).expand(1000, 10, 10))
    record = propagate(network, draw(2, 5))
    k = np.arange(1001)
    np.testing.assert_allclose(record.log_hidden, np.tile(-k * math.log(2), (1, 2, 1)), rtol=1e-5)
    np.testing.assert_allclose(record.log_backward[0, 0], -(1000 - k) * math.log(2), rtol=1e-5)
    change = np.exp(record.log_hidden_change[0, 0])
    np.testing.assert_allclose(change, 1 - 0.5**k, rtol=1e-6)


def test_signal_that_becomes_zero():
    network = build("res-1", "identity", depth=20, branch_scale=0.5)
    with torch.no_grad():
        network.V.copy_(-2 * torch.eye(10).expand(20, 10, 10))
    record = propagate(network, draw(2, 5))
    assert np.isneginf(record.log_hidden[..., 1:]).all()
    np.testing.assert_allclose(record.log_hidden_change[..., 1:], 0, atol=1e-6)
    assert np.isneginf(record.log_backward[..., :-1]).all()


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_width_one_is_a_product(beta):
    network = build("res-2", "identity", width=1, depth=2000, dtype=torch.float64)
    factors = 1 + 2000**-beta * (network.V * network.W).detach().numpy().ravel()
    walk = np.concatenate([[0], np.log(np.abs(factors)).cumsum()])
    double = propagate(network, draw(1, 5), beta=beta)
    np.testing.assert_allclose(double.log_hidden[0, 0], walk, rtol=1e-9, atol=1e-9)
    single = propagate(network.float(), draw(1, 5), beta=beta)
    np.testing.assert_allclose(single.log_hidden[0, 0], walk, rtol=1e-3, atol=1e-2)
    assert walk.min() < -5


@pytest.mark.parametrize("factor", [1e15, 1e-15])
def test_inputs_of_any_size(factor):
    # Squares of the entries leave float32, the entries do not
    network, x = build(), draw(2, 5)
    one, other = propagate(network, x), propagate(network, 1e10 * factor * x)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)


@pytest.mark.parametrize("branch", ["res-1", "res-2"])
@pytest.mark.parametrize("activation", ["gelu", "silu", "selu", "softplus"])
def test_overflow_of_other_activations_is_infinite(branch, activation):
    network = scaled(build(branch, activation), 1e4)
    record = propagate(network, draw(2, 5), beta=0.0)
    for name in FIELDS:
        assert not np.isnan(getattr(record, name)).any(), name
    assert np.isposinf(record.log_ratios["hidden_ratio"]).all()
    assert np.isposinf(record.log_ratios["hidden_change"]).all()
    assert np.isfinite(record.log_hidden[..., 1]).all()
    quartiles = record.summary().set_index("ratio").loc["hidden_ratio", "median"]
    assert math.isinf(quartiles)


def test_bounded_activation_at_large_weights():
    network = scaled(build("res-2", "tanh"), 1e6)
    record = propagate(network, draw(2, 5), beta=0.0)
    assert np.isfinite(record.log_hidden).all()
