"""Propagation of signal and gradient against automatic differentiation, layer by layer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from scalinglimits.laws import Independent, Uniform
from scalinglimits.residual import ParametricReLU, ResidualNetwork, propagate, propagate_stacks
from scalinglimits.residual.activations import resolve_activation

DEPTH, WIDTH, INPUTS = 12, 7, 4
BETAS = [-0.3, 0.0, 0.5, 1.0]
FIELDS = ("log_hidden", "log_hidden_change", "log_backward", "log_backward_change")
CASES = [("res-3", None), ("res-3", nn.ReLU())] + [
    (branch, activation)
    for branch in ("res-1", "res-2")
    for activation in (
        None,
        "relu",
        "identity",
        "abs",
        ParametricReLU(0.75),
        nn.PReLU(init=0.8, dtype=torch.float64),
        lambda x: 2 * functional.relu(x) - 0.5 * functional.relu(-x),
        "tanh",
        "gelu",
        "silu",
        "sin",
    )
]


def build(branch="res-3", activation=None, *, dtype=torch.float64, seed=0, **options):
    sizes = {"in_features": 5, "width": WIDTH, "depth": DEPTH, "out_features": 3} | options
    generator = torch.Generator().manual_seed(seed)
    return ResidualNetwork(
        **sizes, branch=branch, activation=activation, dtype=dtype, generator=generator
    )


def draw(*shape, seed=1, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def twin(network, x, output_gradient, alpha):
    """Norm ratios of one input by automatic differentiation: the four fields, one per layer."""
    sigma = network.activation
    h = [(network.input_weight @ x).detach().requires_grad_(True)]
    for k in range(network.depth):
        z = h[-1] if network.W is None else network.W[k] @ h[-1]
        h.append(h[-1] + alpha * (network.V[k] @ sigma(z)))
    loss = output_gradient @ (network.output_weight @ h[-1])
    p = torch.autograd.grad(loss, h)
    norm = torch.linalg.vector_norm
    return torch.stack(
        [
            torch.stack([norm(v) / norm(h[0]) for v in h]),
            torch.stack([norm(v - h[0]) / norm(h[0]) for v in h]),
            torch.stack([norm(v) / norm(p[-1]) for v in p]),
            torch.stack([norm(v - p[-1]) / norm(p[-1]) for v in p]),
        ]
    ).detach()


@pytest.mark.parametrize(("branch", "activation"), CASES)
def test_equals_automatic_differentiation(branch, activation):
    network = build(branch, activation)
    x, gradient = draw(INPUTS, 5), draw(INPUTS, 3, seed=2)
    record = propagate(network, x, beta=BETAS, output_gradient=gradient)
    assert record.log_hidden.shape == (len(BETAS), INPUTS, DEPTH + 1)
    for i, beta in enumerate(BETAS):
        for j in range(INPUTS):
            expected = twin(network, x[j], gradient[j], DEPTH**-beta).numpy()
            for name, values in zip(FIELDS, expected, strict=True):
                ratios = np.exp(getattr(record, name)[i, j])
                np.testing.assert_allclose(ratios, values, rtol=1e-12, atol=1e-14, err_msg=name)


def test_scale_of_the_network_itself():
    network = build()
    network.branch_scale = 0.37
    own = propagate(network, draw(2, 5))
    assert own.branch_scale.tolist() == [0.37]
    assert own.beta[0] == pytest.approx(-math.log(0.37) / math.log(DEPTH))
    same = propagate(network, draw(2, 5), beta=own.beta[0])
    np.testing.assert_allclose(own.log_hidden, same.log_hidden, atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_scale_that_has_no_exponent(scale):
    network, x, gradient = build(), draw(1, 5), draw(1, 3, seed=2)
    network.branch_scale = scale
    record = propagate(network, x, output_gradient=gradient)
    assert math.isnan(record.beta[0])
    expected = twin(network, x[0], gradient[0], scale)
    np.testing.assert_allclose(np.exp(record.log_hidden[0, 0]), expected[0], rtol=1e-12)
    np.testing.assert_allclose(np.exp(record.log_backward[0, 0]), expected[2], rtol=1e-12)


def test_depth_one_and_width_one():
    network = build("res-2", "identity", depth=1, width=1)
    record = propagate(network, draw(3, 5))
    assert math.isnan(record.beta[0])
    factor = abs(1 + float((network.V * network.W).detach()))
    np.testing.assert_allclose(np.exp(record.log_ratios["hidden_ratio"]), factor, rtol=1e-14)
    np.testing.assert_allclose(np.exp(record.log_ratios["gradient_ratio"]), factor, rtol=1e-14)


def test_start_of_the_logarithms():
    record = propagate(build(), draw(2, 5))
    assert (record.log_hidden[..., 0] == 0).all()
    assert (record.log_backward[..., -1] == 0).all()
    assert np.isneginf(record.log_hidden_change[..., 0]).all()
    assert np.isneginf(record.log_backward_change[..., -1]).all()


def test_recorded_layers():
    network, x = build(), draw(2, 5)
    every = propagate(network, x, beta=BETAS)
    ends = propagate(network, x, beta=BETAS, layers="ends", output_gradient=torch.ones(2, 3))
    some = propagate(network, x, beta=BETAS, layers=(7, 3, 3, np.int64(5)))
    assert every.layers.tolist() == list(range(DEPTH + 1))
    assert ends.layers.tolist() == [0, DEPTH]
    assert some.layers.tolist() == [0, 3, 5, 7, DEPTH]
    np.testing.assert_array_equal(some.log_hidden, every.log_hidden[..., some.layers])
    np.testing.assert_array_equal(ends.log_hidden, every.log_hidden[..., [0, -1]])
    for name in ("hidden_change", "hidden_ratio"):
        np.testing.assert_array_equal(every.log_ratios[name], ends.log_ratios[name])


def test_without_backward_pass():
    network, x = build(), draw(2, 5)
    record = propagate(network, x, backward=False)
    assert record.log_backward.shape == (1, 2, 0)
    assert set(record.log_ratios) == {"hidden_change", "hidden_ratio"}
    assert list(record.to_frame().columns)[-2:] == ["log_hidden", "log_hidden_change"]
    np.testing.assert_array_equal(record.log_hidden, propagate(network, x).log_hidden)


@pytest.mark.parametrize(("branch", "activation"), [("res-3", None), ("res-2", "tanh")])
@pytest.mark.parametrize("max_memory", [1, 3 * DEPTH * WIDTH * 8])
def test_blocks_of_columns_change_nothing(branch, activation, max_memory):
    network, x = build(branch, activation, dtype=torch.float32), draw(5, 5)
    options = {"beta": [0.2, 0.5, 0.9], "output_gradient": draw(5, 3, seed=2)}
    whole = propagate(network, x, **options)
    blocks = propagate(network, x, **options, max_memory=max_memory)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), atol=2e-6)


def test_output_gradient_one_output_needs_none():
    network, x = build(out_features=1), draw(2, 5)
    given = propagate(network, x, output_gradient=torch.full((2, 1), -7.0))
    np.testing.assert_allclose(propagate(network, x).log_backward, given.log_backward, atol=1e-12)


def test_output_gradient_is_drawn_from_the_generator():
    network, x = build(), draw(2, 5)
    seeds = [propagate(network, x, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    np.testing.assert_array_equal(seeds[0].log_backward, seeds[1].log_backward)
    assert not np.array_equal(seeds[0].log_backward, seeds[2].log_backward)
    drawn = torch.randn((2, 3), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = propagate(network, x, output_gradient=drawn)
    np.testing.assert_array_equal(seeds[0].log_backward, given.log_backward)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_inputs_may_be_arrays(kind):
    network, x = build(), np.arange(1, 11).reshape(2, 5)
    record = propagate(network, x.astype(kind), backward=False)
    expected = propagate(network, torch.as_tensor(x, dtype=torch.float64), backward=False)
    np.testing.assert_allclose(record.log_hidden, expected.log_hidden, atol=1e-6)
    h_0 = network.input_weight.detach().numpy() @ x.T
    np.testing.assert_allclose(record.hidden_norm, np.linalg.norm(h_0, axis=0), rtol=1e-6)


@pytest.mark.parametrize("activation", [None, nn.PReLU(init=0.8, dtype=torch.bfloat16)])
def test_half_precision_networks_are_measured_in_single(activation):
    network = build("res-2", activation, dtype=torch.bfloat16)
    record = propagate(network, draw(2, 5), backward=False)
    same = propagate(network.float(), draw(2, 5), backward=False)
    np.testing.assert_array_equal(record.log_hidden, same.log_hidden)


def test_network_is_left_as_it_was():
    network, x = build("res-1", torch.tanh), draw(2, 5)
    state = {k: v.clone() for k, v in network.state_dict().items()}
    propagate(network, x, output_gradient=torch.ones(2, 3))
    assert all(torch.equal(v, state[k]) for k, v in network.state_dict().items())
    assert all(p.grad is None for p in network.parameters())
    assert torch.equal(x, draw(2, 5))


def test_stacks_alone():
    network = build()
    h_0, p_L = draw(WIDTH, 2), draw(WIDTH, 2, seed=3)
    record = propagate_stacks(
        network.V, network.W, h_0, p_L,
        branch_scale=np.array([0.3]), beta=np.array([np.nan]),
        activation=resolve_activation("relu"),
    )  # fmt: skip
    network.input_weight = nn.Parameter(h_0)
    network.in_features = 2
    network.branch_scale = 0.3
    expected = propagate(network, torch.eye(2), backward=False)
    np.testing.assert_allclose(record.log_hidden, expected.log_hidden, atol=1e-13)


def test_frame_and_summary():
    record = propagate(build(), draw(9, 5), beta=[0.5, 1.0], layers=[4])
    frame = record.to_frame()
    assert len(frame) == 2 * 9 * 3
    row = frame[(frame.beta == 1.0) & (frame.input == 7) & (frame.layer == 4)]
    assert row.log_backward_change.item() == record.log_backward_change[1, 7, 1]
    assert row.branch_scale.item() == record.branch_scale[1]
    summary = record.summary().set_index(["beta", "ratio"])
    assert len(summary) == 2 * 4
    values = np.sort(record.log_ratios["gradient_ratio"][0]) / math.log(10)
    assert summary.loc[(0.5, "gradient_ratio")].tolist() == [values[2], values[4], values[6]]


def test_device_is_that_of_the_network():
    network = build(dtype=torch.float32)
    record = propagate(network.to("cpu"), draw(2, 5), generator=torch.Generator("cpu"))
    assert isinstance(record.log_hidden, np.ndarray)
    assert record.log_hidden.dtype == np.float64


def test_uniform_weights():
    generator = torch.Generator().manual_seed(0)
    network = ResidualNetwork(
        5, width=WIDTH, depth=DEPTH, out_features=1, weights=Independent(Uniform()),
        generator=generator, dtype=torch.float64,
    )  # fmt: skip
    x = draw(1, 5)
    record = propagate(network, x)
    expected = twin(network, x[0], torch.ones(1, dtype=torch.float64), DEPTH**-0.5)
    np.testing.assert_allclose(np.exp(record.log_backward[0, 0]), expected[2], rtol=1e-12)


# --- errors


def test_network_must_be_one():
    with pytest.raises(TypeError, match="`network` must be a ResidualNetwork; got Linear"):
        propagate(nn.Linear(5, 5), draw(2, 5))


@pytest.mark.parametrize("shape", [(5,), (2, 4), (0, 5), (2, 3, 5)])
def test_shape_of_inputs(shape):
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(n_inputs, 5\); got"):
        propagate(build(), torch.ones(shape))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_inputs_must_be_finite(value):
    x = draw(2, 5)
    x[1, 2] = value
    with pytest.raises(ValueError, match="`inputs` must be finite; got NaN or infinity"):
        propagate(build(), x)


def test_inputs_must_not_vanish():
    x = draw(2, 5)
    x[1] = 0
    message = "`inputs` must give a finite non-zero start vector .* got norm 0.0 for input 1"
    with pytest.raises(ValueError, match=message):
        propagate(build(), x)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_output_gradient_must_be_a_direction(value):
    gradient = torch.full((2, 3), value)
    with pytest.raises(ValueError, match="`output_gradient` must give a finite non-zero start"):
        propagate(build(), draw(2, 5), output_gradient=gradient)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 2)])
def test_shape_of_the_output_gradient(shape):
    with pytest.raises(ValueError, match=r"`output_gradient` must have shape \(2, 3\); got"):
        propagate(build(), draw(2, 5), output_gradient=torch.ones(shape))


@pytest.mark.parametrize("beta", [math.nan, [0.5, math.inf], [], [[0.5]]])
def test_beta_must_be_finite_numbers(beta):
    with pytest.raises(ValueError, match="`beta` must be one or many finite numbers; got"):
        propagate(build(), draw(2, 5), beta=beta)


@pytest.mark.parametrize("layers", ["some", [0.5], [None], 3])
def test_layers_must_be_indices(layers):
    with pytest.raises(ValueError, match="`layers` must be 'all', 'ends' or indices; got"):
        propagate(build(), draw(2, 5), layers=layers)


@pytest.mark.parametrize("layers", [[-1], [DEPTH + 1]])
def test_layers_must_be_there(layers):
    with pytest.raises(ValueError, match="`layers` must lie between 0 and the depth 12; got"):
        propagate(build(), draw(2, 5), layers=layers)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["V", "W"])
def test_weights_must_be_finite(name, value):
    network = build()
    with torch.no_grad():
        getattr(network, name)[3, 0, 0] = value
    with pytest.raises(ValueError, match="`network` must have finite weights; got NaN or"):
        propagate(network, draw(2, 5))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("V", (3, 7, 6)), ("V", (7, 7)), ("W", (2, 7, 7)), ("h_0", (6, 2)), ("p_L", (7, 3))],
)
def test_shapes_of_stacks(name, shape):
    stacks = {
        "V": torch.ones(3, 7, 7),
        "W": torch.ones(3, 7, 7),
        "h_0": torch.ones(7, 2),
        "p_L": torch.ones(7, 2),
        name: torch.ones(shape),
    }
    with pytest.raises(ValueError, match=r"`[VWhp_0L]+` must have shape .*; got"):
        propagate_stacks(
            *stacks.values(),
            branch_scale=np.ones(1), beta=np.zeros(1), activation=resolve_activation("relu"),
        )  # fmt: skip
