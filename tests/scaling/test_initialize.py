"""Drawing and rescaling weights by a plan."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from scaling_models import GPT, Recurrent, Residual, Scanned, mlp
from torch import nn
from torch.nn.utils import parametrizations

from scalinglimits.laws import FractionalIncrements, Independent, SmoothProcess, fgn_autocovariance
from scalinglimits.laws.entries import Rademacher
from scalinglimits.scaling import make_plan


@pytest.fixture(scope="module")
def plan():
    return make_plan(Residual, (16, 2), (64, 8))


def custom(width, depth):
    """Layers drawn in every way."""
    net = nn.Sequential(*(nn.Linear(width, width) for _ in range(7)), nn.Linear(width, 2))
    nn.init.normal_(net[0].weight, std=0.3)
    nn.init.trunc_normal_(net[1].weight, std=0.02, a=-0.04, b=0.04)
    nn.init.orthogonal_(net[2].weight, gain=1.5)
    nn.init.xavier_uniform_(net[3].weight)
    with torch.no_grad():
        net[4].weight.copy_(torch.randn(width, width) / 3)
        net[5].weight.normal_().mul_(0.1).div_(2)
        net[6].weight.copy_(torch.randn(width, width).tanh() / width**0.5)  # no readable law
    nn.init.constant_(net[0].bias, 0.25)
    return net


def test_laws_are_read_from_the_constructor():
    plan = make_plan(custom, (64, 1), (256, 1), depth_rule="none")
    laws = [plan[f"{i}.weight"].law for i in range(8)]
    kinds = [
        "normal",
        "truncated",
        "orthogonal",
        "uniform",
        "normal",
        "normal",
        "normal",
        "uniform",
    ]
    assert [law.kind for law in laws] == kinds
    stds = [0.3, 0.02 * 0.8796257, 1.5 / 8, 1 / 8, 1 / 3, 0.05, laws[6].std, 1 / math.sqrt(192)]
    assert [law.std for law in laws] == pytest.approx(stds)
    assert laws[6].std == pytest.approx(0.6279 / 8, rel=0.05)  # measured
    assert (plan["0.bias"].law.kind, plan["0.bias"].law.mean) == ("constant", 0.25)
    model = plan.initialize_(custom(256, 1), seed=0)
    for i, layer in enumerate(model):
        wanted = plan[f"{i}.weight"].law.std * plan[f"{i}.weight"].init
        assert float(layer.weight.detach().std()) == pytest.approx(wanted, rel=0.05)
    matrix = model[2].weight
    torch.testing.assert_close(
        matrix @ matrix.T, matrix[0] @ matrix[0] * torch.eye(256), atol=1e-4, rtol=0
    )
    assert float(model[1].weight.detach().abs().max()) <= 0.5 * 0.04 * 1.0001
    assert float(model[3].weight.detach().abs().max()) <= 0.5 * math.sqrt(3) / 8 * 1.0001
    assert (model[0].bias == 0.25).all()


def test_deviation_is_the_base_models_times_the_plans(plan):
    model = plan.initialize_(Residual(64, 8), seed=0)
    for name, parameter in model.named_parameters():
        entry = plan[name]
        wanted = entry.law.size * entry.init
        size = float(parameter.detach().square().mean().sqrt())
        spread = 5 / math.sqrt(2 * parameter.numel()) if entry.law.std else 1e-6
        assert abs(size - wanted) <= spread * wanted, name


def test_draws_depend_on_names_and_seed_alone(plan):
    first = plan.initialize_(Residual(64, 8), seed=3)
    second = Residual(64, 8)
    for block in second.blocks:
        block._modules = dict(reversed(block._modules.items()))  # another order of parameters
    plan.initialize_(second, generator=torch.Generator().manual_seed(1))
    plan.initialize_(second, seed=3)
    for name, parameter in second.named_parameters():
        assert torch.equal(parameter, first.get_parameter(name))
    other = plan.initialize_(Residual(64, 8), seed=4)
    assert not torch.equal(other.head.weight, first.head.weight)
    deeper = plan.retarget((64, 9)).initialize_(Residual(64, 9), seed=3)
    torch.testing.assert_close(deeper.embed.weight, first.embed.weight)


def test_a_generator_gives_the_seed(plan):
    models = [
        plan.initialize_(Residual(64, 8), generator=torch.Generator().manual_seed(s))
        for s in (0, 0, 1)
    ]
    assert torch.equal(models[0].head.weight, models[1].head.weight)
    assert not torch.equal(models[0].head.weight, models[2].head.weight)


def test_rescaling_gives_the_plans_deviations_once(plan):
    model = Residual(64, 8)
    before = copy.deepcopy(model)
    plan.rescale_(model)
    for name, parameter in model.named_parameters():
        entry = plan[name]
        factor = entry.law.size * entry.init / entry.natural.size if entry.natural.size else 1.0
        torch.testing.assert_close(parameter, before.get_parameter(name) * factor)
    with pytest.raises(ValueError, match=r"it was rescaled before"):
        plan.rescale_(model)
    with pytest.raises(ValueError, match=r"it was rescaled before"):
        plan.rescale_(copy.deepcopy(model))
    loaded = Residual(64, 8)
    loaded.load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match=r"it was rescaled before"):
        plan.rescale_(loaded)
    trained = Residual(64, 8)
    with torch.no_grad():
        trained.head.weight.mul_(7)
    with pytest.raises(ValueError, match=r"`head.weight` has size .* it is no fresh model"):
        plan.rescale_(trained)
    torch.testing.assert_close(trained.blocks[0].up.weight, trained.blocks[0].up.weight)


def test_depth_dependent_initialisation_is_not_scaled_twice():
    """A constructor that divides by the square root of the depth gets only what is missing."""

    def build(width, depth):
        model = Residual(width, depth)
        for block in model.blocks:
            nn.init.normal_(block.down.weight, std=0.02 / math.sqrt(2 * depth))
        return model

    plan = make_plan(build, (16, 2), (16, 32))
    model = plan.rescale_(build(16, 32))
    wanted = 0.02 / math.sqrt(4) / 16
    assert float(model.blocks[3].down.weight.detach().std()) == pytest.approx(wanted, rel=0.15)


def test_weight_norm_before_or_after_the_plan():
    def normalised(width, depth):
        net = mlp(width, depth)
        for layer in net:
            if isinstance(layer, nn.Linear):
                parametrizations.weight_norm(layer)
        return net

    inside = make_plan(normalised, (16, 2), (64, 2))
    outside = make_plan(mlp, (16, 2), (64, 2))
    g, v = (f"2.parametrizations.weight.original{i}" for i in (0, 1))
    assert inside.role(g) == "vector"
    assert (inside[g].init, inside[g].lr) == (1, 1)  # σ√n does not grow
    assert (inside[v].init, inside[v].lr) == (0.5, 0.25)
    assert inside["6.parametrizations.weight.original0"].lr == 0.5
    plain = outside.initialize_(mlp(64, 2), seed=0)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    for plan in (inside, outside):
        model = plan.initialize_(normalised(64, 2), seed=0)
        torch.testing.assert_close(model(x), plain(x))
        rates = {
            name: group["lr"]
            for group in plan.param_groups(model, lr=1.0)
            for name in group["names"]
        }
        assert rates == {name: inside[name].lr for name, _ in model.named_parameters()}
    fresh = normalised(64, 2)
    before = fresh[6].weight.detach().clone()
    outside.rescale_(fresh)
    torch.testing.assert_close(fresh[6].weight, before * 0.5)


@pytest.mark.parametrize("hurst", [0.5, 0.8])
def test_weights_across_depth_follow_their_law(hurst):
    plan = make_plan(Residual, (32, 2), (32, 6), weights_across_depth=FractionalIncrements(hurst))
    assert plan.settings["alpha"] == hurst
    assert plan["blocks.0.down.weight"].init == pytest.approx(3**-hurst)
    assert plan["blocks.0.up.weight"].lr == pytest.approx(3 ** (hurst - 1))
    model = plan.initialize_(Residual(32, 6), seed=0)
    stack = torch.stack([block.up.weight.detach().flatten() for block in model.blocks])
    stack = stack / (plan["blocks.0.up.weight"].law.std)
    measured = (stack @ stack.T / stack.shape[1]).numpy()
    gamma = fgn_autocovariance(6, hurst)
    for i in range(6):
        for j in range(6):
            # 2048 coordinates: six standard errors of a covariance.
            assert abs(measured[i, j] - gamma[abs(i - j)]) < 6 * math.sqrt(2 / 2048)
    again = plan.initialize_(Residual(32, 6), seed=0)
    assert torch.equal(again.blocks[4].up.weight, model.blocks[4].up.weight)
    kinds = {plan[n].init for n in plan.names(role="norm")}
    assert kinds == {1.0}


def test_critical_exponent_of_a_law_replaces_the_depth_rule():
    options = {"depth_rule": "completep"}
    assert make_plan(Residual, (8, 2), (8, 4), **options).settings["alpha"] == 1
    law = FractionalIncrements(0.3)  # rougher than noise: saturates at one half
    plan = make_plan(Residual, (8, 2), (8, 4), weights_across_depth=law, **options)
    assert plan.settings["alpha"] == 0.5
    smooth = make_plan(Residual, (8, 2), (8, 4), weights_across_depth=SmoothProcess(0.2))
    assert smooth.settings["alpha"] == 1
    rough = make_plan(Residual, (8, 2), (8, 4), weights_across_depth=Independent(Rademacher()))
    model = rough.initialize_(Residual(8, 4), seed=0)
    assert len(model.blocks[0].up.weight.abs().unique()) == 1


def test_stacked_tensors_and_recurrent_layers_across_depth():
    law = FractionalIncrements(0.7)
    plan = make_plan(Scanned, (16, 2), (16, 6), weights_across_depth=law, branch_outputs=["outer"])
    model = plan.initialize_(Scanned(16, 6), seed=0)
    stack = model.inner.detach().flatten(1)
    lag = float((stack[:-1] * stack[1:]).mean() / stack.square().mean())
    assert lag == pytest.approx(fgn_autocovariance(2, 0.7)[1], abs=0.15)
    plan = make_plan(
        Recurrent, (16, 2), (16, 4), weights_across_depth=law, branch_outputs=["lstm.weight_hh_l*"]
    )
    model = plan.initialize_(Recurrent(16, 4), seed=0)
    assert not torch.equal(model.lstm.weight_ih_l0, model.lstm.weight_hh_l0)


def test_values_with_a_structure_are_kept():
    def build(width, depth):
        model = GPT(width, depth, heads=width // 4)
        with torch.no_grad():
            model.positions.copy_(torch.linspace(0, 1, 8)[:, None].expand(8, width))
        return model

    plan = make_plan(build, (8, 1), (16, 1))
    assert plan["positions"].law.kind == "kept"
    model = plan.initialize_(build(16, 1), seed=0)
    assert torch.equal(model.positions[:, 0], torch.linspace(0, 1, 8))


def test_errors(plan):
    model = Residual(64, 8)
    with pytest.raises(ValueError, match=r"`seed` must be given, or `generator`, but not both"):
        plan.initialize_(model)
    with pytest.raises(TypeError, match=r"`seed` must be an integer; got 1.5"):
        plan.initialize_(model, seed=1.5)
    with pytest.raises(ValueError, match=r"`blocks.0.norm.weight` is \\(16,\\)|target's size"):
        plan.initialize_(Residual(16, 8), seed=0)
    with pytest.raises(ValueError, match=r"the plan has no `blocks.8"):
        plan.rescale_(Residual(64, 9))
    with pytest.raises(ValueError, match=r"it has no `blocks.7"):
        plan.rescale_(Residual(64, 7))
    with torch.device("meta"):
        model = Residual(64, 8)
    with pytest.raises(ValueError, match=r"on the meta device: call `to_empty` first"):
        plan.initialize_(model, seed=0)


def test_models_that_draw_nothing_on_the_meta_device():
    """Some libraries skip their initialisation there; the laws come from elsewhere then."""

    def build(width, depth):
        model = Residual(width, depth)
        if not model.head.weight.is_meta:
            nn.init.trunc_normal_(model.head.weight, std=0.02, a=-0.04, b=0.04)
            for block in model.blocks:
                nn.init.normal_(block.up.weight, std=0.02)
        return model

    plan = make_plan(build, (16, 2), (64, 8))
    for name in ("head.weight", "blocks.7.up.weight"):
        entry = plan[name]
        assert entry.law == entry.natural
        assert entry.law.std == pytest.approx(0.02 * (0.8796257 if name[0] == "h" else 1))
    model = plan.rescale_(build(64, 8))
    assert float(model.blocks[0].up.weight.detach().std()) == pytest.approx(0.01, rel=0.05)
    with pytest.raises(ValueError, match=r"it was rescaled before"):
        plan.rescale_(model)
