"""The residual network as a module: parameters, their draw, copies, compilation, training."""

from __future__ import annotations

import copy
import io
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from scalinglimits.laws import (
    DepthLaw,
    FractionalIncrements,
    Independent,
    Normal,
    Rademacher,
    SmoothProcess,
    Uniform,
)
from scalinglimits.residual import BRANCHES, ParametricReLU, ResidualNetwork


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def build(branch="res-3", *, seed=0, **options):
    sizes = {"in_features": 5, "width": 6, "depth": 4, "out_features": 3} | options
    return ResidualNetwork(**sizes, branch=branch, generator=seeded(seed))


class Tied(DepthLaw):
    """All layers share one draw, returned as a view of it without memory of its own."""

    def sample(self, depth, shape, generator=None, *, dtype=None, device=None):
        one = torch.randn(shape, generator=generator, dtype=dtype)
        return one.to(device).expand(depth, *shape)

    def autocovariance(self, depth):
        return np.ones(depth)


class Faulty(Tied):
    def __init__(self, draw):
        self.draw = draw

    def sample(self, depth, shape, generator=None, *, dtype=None, device=None):
        return self.draw(depth, shape)


# --- parameters and their draw


@pytest.mark.parametrize("branch", BRANCHES)
def test_shapes(branch):
    network = build(branch)
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    expected = {"input_weight": (6, 5), "V": (4, 6, 6), "W": (4, 6, 6), "output_weight": (3, 6)}
    if branch == "res-1":
        del expected["W"]
    assert shapes == expected
    assert network(torch.ones(5)).shape == (3,)
    assert network(torch.ones(7, 2, 5)).shape == (7, 2, 3)
    assert network.hidden_states(torch.ones(7, 5)).shape == (5, 7, 6)


@pytest.mark.parametrize(
    "weights", [Independent(Normal()), Independent(Uniform()), SmoothProcess(0.01)]
)
def test_variances(weights):
    # n = 16,000 to 32,000 entries each, α = 1e-5 (4.42 deviations) with the Gaussian's kurtosis;
    # layers of this smooth process are independent to 1e-5 (length scale: a fifth of a layer).
    network = ResidualNetwork(
        200, width=80, depth=20, out_features=200, weights=weights, generator=seeded(1)
    )
    fans = {"input_weight": 200, "V": 80, "W": 80, "output_weight": 80}
    for name, parameter in network.state_dict().items():
        if name not in fans:
            continue
        n = min(parameter.numel(), 32_000)
        scaled = float(parameter.square().mean()) * fans[name]
        assert abs(scaled - 1) < 4.42 * math.sqrt(2 / n), name
        assert abs(float(parameter.mean())) * math.sqrt(fans[name]) < 4.42 / math.sqrt(n), name


def test_entries_of_the_law_reach_the_outer_weights():
    network = build(weights=Independent(Rademacher()))
    for parameter in network.parameters():
        expected = torch.full_like(parameter, parameter.shape[-1] ** -0.5)
        assert torch.allclose(parameter.abs(), expected)


def test_each_parameter_has_its_own_stream():
    one, three, wider = build("res-1"), build("res-3"), build("res-3", out_features=9)
    deeper_input = build("res-3", in_features=11)
    for name in ("input_weight", "V", "output_weight"):
        assert torch.equal(getattr(one, name), getattr(three, name)), name
    assert torch.equal(three.W, wider.W)
    assert torch.equal(three.V, deeper_input.V)
    assert not torch.equal(three.V, three.W)


def test_same_seed_same_weights():
    first, second, other = build(), build(), build(seed=1)
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name))
        assert not torch.equal(parameter, other.get_parameter(name))


def test_default_generator_is_torchs():
    torch.manual_seed(3)
    first = ResidualNetwork(5, width=6, depth=4, out_features=3)
    second = ResidualNetwork(5, width=6, depth=4, out_features=3)
    torch.manual_seed(3)
    again = ResidualNetwork(5, width=6, depth=4, out_features=3)
    assert torch.equal(first.V, again.V)
    assert not torch.equal(first.V, second.V)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype(dtype):
    network = build(dtype=dtype)
    assert all(p.dtype == dtype for p in network.parameters())
    assert network(torch.ones(2, 5, dtype=dtype)).dtype == dtype


def test_law_may_return_an_expanded_view():
    network = build(weights=Tied(), beta=1.0)
    assert torch.equal(network.V[0], network.V[3])
    assert network.V.is_contiguous()


# --- the branch scale


def test_default_beta_is_the_critical_exponent_of_the_law():
    assert build().branch_scale == pytest.approx(4**-0.5)
    assert build(weights=FractionalIncrements(0.8)).beta == pytest.approx(0.8)
    assert build(weights=FractionalIncrements(0.2)).beta == pytest.approx(0.5)
    assert build(weights=SmoothProcess()).beta == pytest.approx(1.0)


def test_scale_by_beta_or_by_itself():
    assert build(beta=0.25).branch_scale == 4**-0.25
    assert build(branch_scale=0.125).branch_scale == 0.125
    assert build(branch_scale=0.125).beta == pytest.approx(1.5)


def test_beta_of_a_scale_that_has_none():
    assert math.isnan(build(depth=1).beta)
    network = build()
    network.branch_scale = 0.0
    assert math.isnan(network.beta)


@pytest.mark.parametrize("branch", BRANCHES)
def test_forward_is_the_recursion(branch):
    network = build(branch, dtype=torch.float64, beta=0.3)
    sigma = functional.relu if branch == "res-3" else ParametricReLU()
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    h = network.input_weight @ x
    states = [h]
    for k in range(4):
        z = h if network.W is None else network.W[k] @ h
        h = h + 4**-0.3 * network.V[k] @ sigma(z)
        states.append(h)
    assert torch.allclose(network.hidden_states(x), torch.stack(states), rtol=0, atol=1e-14)
    assert torch.allclose(network(x), network.output_weight @ h, rtol=0, atol=1e-14)


def test_repr_says_what_it_is():
    assert "branch='res-3', branch_scale=0.5, weights=Independent" in repr(build())


# --- copies, state, compilation: the scale is never lost


def other_scale():
    return build(branch_scale=0.321)


def test_deepcopy_keeps_the_scale():
    network = other_scale()
    twin = copy.deepcopy(network)
    assert twin.branch_scale == 0.321
    assert torch.equal(twin(torch.ones(5)), network(torch.ones(5)))


@pytest.mark.parametrize("how", ["argument", "context"])
def test_meta_then_empty_then_drawn(how):
    options = {"branch_scale": 0.321, "weights": FractionalIncrements(0.7)}
    if how == "argument":
        network = build(device="meta", **options)
    else:
        with torch.device("meta"):
            network = build(**options)
    assert all(p.is_meta for p in network.parameters())
    network.to_empty(device="cpu")
    assert network.branch_scale == 0.321
    network.reset_parameters(seeded())
    drawn = build(**options)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, drawn.get_parameter(name))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("start", ["cpu", "meta"])
def test_state_dict_round_trip(assign, start):
    network, x = other_scale(), torch.ones(5)
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    twin = build(seed=5, device=start)
    if start == "meta" and not assign:
        twin.to_empty(device="cpu")
    twin.load_state_dict(state, strict=True, assign=assign)
    assert twin.branch_scale == 0.321
    assert torch.equal(twin(x), network(x))


def test_state_dict_inside_another_module():
    outer = nn.Sequential(nn.Linear(5, 5), other_scale())
    twin = nn.Sequential(nn.Linear(5, 5), build(seed=2))
    twin.load_state_dict(outer.state_dict())
    assert twin[1].branch_scale == 0.321


def test_state_on_the_meta_device_leaves_the_scale():
    with torch.device("meta"):
        state = other_scale().state_dict()
    network = build(device="meta", branch_scale=0.2)
    network.set_extra_state(state["_extra_state"].to("meta"))
    assert network.branch_scale == 0.2


def test_half_and_double_keep_the_scale():
    network = other_scale().double()
    assert network.branch_scale == 0.321
    assert network.bfloat16().branch_scale == 0.321


def test_functional_call():
    network, x = other_scale(), torch.ones(5)
    doubled = {name: 2 * p.detach() for name, p in network.named_parameters()}
    result = torch.func.functional_call(network, doubled, (x,))
    twin = copy.deepcopy(network)
    twin.load_state_dict(doubled, strict=False)
    assert torch.equal(result, twin(x))


def test_vmap_over_an_ensemble():
    networks = [build(seed=s, branch_scale=0.321) for s in range(3)]
    parameters, buffers = torch.func.stack_module_state(networks)

    def call(p, b, x):
        return torch.func.functional_call(networks[0], (p, b), (x,))

    x = torch.ones(5)
    stacked = torch.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    assert torch.allclose(stacked, torch.stack([n(x) for n in networks]), atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_network_honours_a_changed_scale():
    torch.compiler.reset()
    network, x = build(branch_scale=0.321), torch.ones(2, 5)
    compiled = torch.compile(network, backend="aot_eager")
    assert torch.allclose(compiled(x), network(x))
    before = network(x)
    for scale in (0.1, 0.9):
        network.branch_scale = scale
        assert torch.allclose(compiled(x), network(x))
        assert not torch.allclose(network(x), before)
    compiled(x).square().sum().backward()
    gradient = network.V.grad.clone()
    network.zero_grad()
    network(x).square().sum().backward()
    assert torch.allclose(gradient, network.V.grad)
    torch.compiler.reset()


# --- training


class Block(nn.Module):
    def __init__(self, V, W, scale):
        super().__init__()
        self.outer = nn.Linear(*V.shape, bias=False, dtype=V.dtype)
        self.inner = nn.Linear(*V.shape, bias=False, dtype=V.dtype)
        self.scale = scale
        with torch.no_grad():
            self.outer.weight.copy_(V)
            self.inner.weight.copy_(W)

    def forward(self, h):
        return h + self.scale * self.outer(torch.relu(self.inner(h)))


def test_gradients_are_those_of_a_loop_over_linear_layers():
    network = build(dtype=torch.float64, depth=7)
    blocks = [Block(V, W, network.branch_scale) for V, W in zip(network.V, network.W, strict=True)]
    x = torch.randn(9, 5, dtype=torch.float64, generator=seeded(4))
    network(x).square().sum().backward()
    h = functional.linear(x, network.input_weight.detach())
    for block in blocks:
        h = block(h)
    functional.linear(h, network.output_weight.detach()).square().sum().backward()
    for k, block in enumerate(blocks):
        assert network.V.grad[k].abs().max() > 0
        assert network.W.grad[k].abs().max() > 0
        assert torch.allclose(network.V.grad[k], block.outer.weight.grad, rtol=1e-12)
        assert torch.allclose(network.W.grad[k], block.inner.weight.grad, rtol=1e-12)


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_few_steps_reduce_the_loss(branch):
    network = build(branch, depth=20, width=16)
    x, y = torch.randn(32, 5, generator=seeded(1)), torch.randn(32, 3, generator=seeded(2))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    losses = []
    for _ in range(15):
        loss = functional.mse_loss(network(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_learnable_activation_belongs_to_the_network():
    network = build("res-2", activation=nn.PReLU(init=0.8))
    assert "activation.weight" in dict(network.named_parameters())
    network(torch.ones(2, 5)).sum().backward()
    assert network.activation.weight.grad.abs() > 0
    twin = build("res-2", activation=ParametricReLU(0.8))
    assert torch.equal(network(torch.ones(5)), twin(torch.ones(5)))


@pytest.mark.parametrize("activation", ["gelu", functional.gelu, nn.GELU()])
def test_activation_by_name_function_or_module(activation):
    network = build("res-2", activation=activation)
    twin = build("res-2", activation="gelu")
    assert torch.equal(network(torch.ones(5)), twin(torch.ones(5)))


@pytest.mark.parametrize("activation", ["relu", torch.relu, nn.ReLU()])
def test_res_3_takes_relu_in_any_form(activation):
    assert torch.equal(build(activation=activation)(torch.ones(5)), build()(torch.ones(5)))


# --- errors


@pytest.mark.parametrize("name", ["in_features", "width", "depth", "out_features"])
@pytest.mark.parametrize("value", [0, -1, True, 2.5, "4", None, torch.tensor([1, 2])])
def test_sizes_must_be_positive_integers(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer; got"):
        build(**{name: value})


@pytest.mark.parametrize("value", [np.int64(4), torch.tensor(4)])
def test_sizes_may_be_integers_of_other_libraries(value):
    assert build(width=value).width == 4
    assert type(build(depth=value).depth) is int


@pytest.mark.parametrize("beta", [math.nan, math.inf, -math.inf])
def test_beta_must_be_finite(beta):
    with pytest.raises(ValueError, match="`beta` must be a finite number; got"):
        build(beta=beta)


@pytest.mark.parametrize("beta", [-1000.0, 1000.0])
def test_beta_must_leave_a_scale(beta):
    with pytest.raises(ValueError, match="`beta` must give a scale within float64; got"):
        build(beta=beta)


@pytest.mark.parametrize("scale", [math.nan, math.inf, 0.0, -0.5])
def test_branch_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="`branch_scale` must be a positive finite number; got"):
        build(branch_scale=scale)


def test_beta_and_scale_exclude_each_other():
    with pytest.raises(ValueError, match="`beta` must not be given beside `branch_scale`"):
        build(beta=0.5, branch_scale=0.5)


def test_unknown_branch():
    with pytest.raises(ValueError, match="`branch` must be one of res-1, res-2, res-3; got 'r'"):
        build("r")


@pytest.mark.parametrize("activation", ["tanh", "leaky_relu", torch.tanh])
def test_res_3_refuses_other_activations(activation):
    with pytest.raises(ValueError, match=r"`activation` must be 'relu' .* for res-3; got"):
        build(activation=activation)


@pytest.mark.parametrize("weights", [0.7, Normal(), "fractional", FractionalIncrements])
def test_weights_must_be_a_law(weights):
    with pytest.raises(TypeError, match="`weights` must be a law across depth, such as"):
        build(weights=weights)


def test_law_without_critical_exponent_needs_a_beta():
    with pytest.raises(ValueError, match="`beta` must be given, since the law of the weights"):
        build(weights=Tied())


@pytest.mark.parametrize(
    "draw",
    [
        lambda depth, shape: torch.zeros(depth - 1, *shape),
        lambda depth, shape: torch.zeros(*shape),
        lambda depth, shape: np.zeros((depth, *shape)),
        lambda depth, shape: None,
    ],
)
def test_law_must_sample_a_tensor_of_the_stacks_shape(draw):
    message = r"`weights` must sample a tensor of shape \(4, 6, 6\) for V; got"
    with pytest.raises(ValueError, match=message):
        build(weights=Faulty(draw), beta=0.5)


def test_a_law_that_returns_its_own_tensor_is_not_changed():
    stack = torch.ones(4, 6, 6)
    build(weights=Faulty(lambda depth, shape: stack), beta=0.5)
    assert torch.equal(stack, torch.ones(4, 6, 6))
