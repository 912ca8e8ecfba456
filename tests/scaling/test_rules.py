"""The rules as tables, and by experiment."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scaling_models import Residual

from scalinglimits.scaling import OPTIMIZERS, WIDTH_RULES, make_plan
from scalinglimits.scaling.rules import (
    Growth,
    absorbed_rate,
    block_gradient,
    block_rate,
    decay_multiplier,
    muon_shape_factor,
)

INPUT, HIDDEN, READOUT = Growth(1, 4), Growth(4, 4), Growth(4, 1)
# Deviation, SGD, Adam, gradient, for a width four times the base's.
TABLE = {
    ("mup", "input"): (INPUT, 1, 4, 1, 1 / 4),
    ("mup", "hidden"): (HIDDEN, 1 / 2, 1, 1 / 4, 1 / 4),
    ("mup", "readout"): (READOUT, 1 / 4, 1 / 4, 1 / 4, 1),
    ("standard", "input"): (INPUT, 1, 1, 1, 1),
    ("standard", "hidden"): (HIDDEN, 1 / 2, 1, 1, 1),
    ("standard", "readout"): (READOUT, 1 / 2, 1, 1, 1),
    ("ntk", "input"): (INPUT, 1, 1, 1 / 2, 1 / 2),
    ("ntk", "hidden"): (HIDDEN, 1 / 2, 1 / 4, 1 / 8, 1 / 2),
    ("ntk", "readout"): (READOUT, 1 / 2, 1 / 4, 1 / 4, 1),
}


@pytest.mark.parametrize(("rule", "role"), TABLE)
def test_width_rules(rule, role):
    growth, init, sgd, adam, gradient = TABLE[rule, role]
    chosen = WIDTH_RULES[rule]
    assert chosen.init(growth) == pytest.approx(init)
    assert chosen.rates["sgd"](growth) == pytest.approx(sgd)
    assert chosen.rates["sign"](growth) == pytest.approx(adam)
    assert chosen.gradient(growth) == pytest.approx(gradient)


@pytest.mark.parametrize("rule", WIDTH_RULES)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_there_and_back_is_one(rule, optimizer):
    there, back = (
        make_plan(Residual, base, target, optimizer=optimizer, width_rule=rule, eps_rule="gradient")
        for base, target in (((8, 2), (32, 8)), ((32, 8), (8, 2)))
    )
    names = {"embed.weight", "blocks.0.up.weight", "blocks.0.down.weight", "norm.bias"}
    for name in {*names, "head.weight", "head.bias"}:
        for what in ("init", "lr", "weight_decay", "eps"):
            product = getattr(there[name], what) * getattr(back[name], what)
            assert product == pytest.approx(1.0), (name, what)


@pytest.mark.parametrize("growth", [INPUT, HIDDEN, READOUT])
def test_spectral_norm_of_updates_is_the_condition(growth):
    """‖ΔW‖₂ = √(p/n), from each family's update, at a pair of sizes with the growth."""
    base = (64.0, 32.0)
    target = (base[0] * growth.fan_in, base[1] * growth.fan_out)
    growth = Growth(growth.fan_in, growth.fan_out, base, target)
    wanted = math.sqrt(target[1] / target[0]) / math.sqrt(base[1] / base[0])
    rates = WIDTH_RULES["spectral"].rates
    entries = math.sqrt(target[0] * target[1] / (base[0] * base[1]))
    gradient = 1 / wanted  # the dual norm
    assert rates["spectral"](growth) == pytest.approx(wanted)
    assert rates["sign"](growth) * entries == pytest.approx(wanted)
    assert rates["sgd"](growth) * gradient == pytest.approx(wanted)
    init = WIDTH_RULES["spectral"].init(growth)
    assert rates["relative"](growth) * init * entries == pytest.approx(wanted)
    spread = [math.sqrt(n) + math.sqrt(p) for n, p in (base, target)]
    assert init * spread[1] / spread[0] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("family", "alpha", "rate"),
    [("sign", 1.0, 1.0), ("sign", 0.5, 0.25), ("sgd", 1.0, 16.0), ("sgd", 0.5, 1.0)],
)
def test_depth_rules(family, alpha, rate):
    assert block_rate(family, 16, alpha) == pytest.approx(rate)
    # A branch output with the scale absorbed: 1/ℓ whatever α is.
    assert block_rate(family, 16, alpha) * absorbed_rate(family, 16**-alpha) == pytest.approx(
        1 / 16
    )
    assert block_gradient(16, alpha) == pytest.approx(16**-alpha)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_decay_keeps_its_share(name):
    optimizer = OPTIMIZERS[name]
    factor = decay_multiplier(optimizer, "coupled", lr=0.25, init=0.5, grad=0.125)
    if optimizer.decoupled or optimizer.family == "sgd":
        assert 0.25 * factor == 1
    else:  # wd·W keeps its size relative to the gradient
        assert factor * 0.5 / 0.125 == 1
    assert decay_multiplier(optimizer, "fixed", 0.25, 0.5, 0.125) == 1


def test_muon_shape_factor_is_that_of_the_optimizer():
    matrix = torch.nn.Parameter(torch.zeros(48, 16))
    for name, adjust in (("muon", "original"), ("muon-rms", "match_rms_adamw")):
        moves = []
        for weight in (
            matrix.detach().clone().requires_grad_(),
            torch.zeros(16, 16).requires_grad_(),
        ):
            optimizer = torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, adjust_lr_fn=adjust)
            weight.grad = torch.eye(*weight.shape)
            optimizer.step()
            moves.append(float(torch.linalg.matrix_norm(weight.detach(), 2)))
        factors = [muon_shape_factor(name, shape) for shape in ((48, 16), (16, 16))]
        assert moves[0] / moves[1] == pytest.approx(factors[0] / factors[1], rel=0.02)


def _change(optimizer, rule, size, suffix, lr=1e-3):
    """The change of the output by training one kind of parameter, and its first gradient."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 6, generator=generator, dtype=torch.float64)
    y = 4 * x[:, :3]  # larger than the initial output, whose share falls with width
    plan = make_plan(Residual, (32, 4), size, optimizer=optimizer, depth_rule=rule)
    changes, gradients = [], []
    for seed in range(3):
        model = plan.initialize_(Residual(*size).double(), seed=seed)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.endswith(suffix))
        groups = plan.param_groups(model, lr=lr)
        groups = [{**g, "params": [p for p in g["params"] if p.requires_grad]} for g in groups]
        kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
        stepper = kind([g for g in groups if g["params"]])
        before = model(x).detach()
        for _ in range(3):
            stepper.zero_grad()
            (model(x) - y).square().mean().backward()
            if len(gradients) == len(changes):
                sizes = [
                    p.grad.square().mean().sqrt() for p in model.parameters() if p.requires_grad
                ]
                gradients.append(float(torch.stack(sizes).mean()))
            stepper.step()
        changes.append(float((model(x).detach() - before).square().mean().sqrt()))
    eps = next(e.grad for n, e in plan.entries.items() if n.endswith(suffix))
    return sum(changes) / 3, sum(gradients) / 3, eps


@pytest.mark.parametrize(
    ("optimizer", "alpha"), list(itertools.product(("adam", "sgd"), (1.0, 0.5)))
)
@pytest.mark.parametrize("suffix", ["up.weight", "down.weight"])
def test_each_kind_moves_the_output_alike_at_every_depth(optimizer, alpha, suffix):
    shallow, deep = (_change(optimizer, alpha, (32, d), suffix) for d in (4, 64))
    # An exponent wrong by one half would be a factor of 4.
    assert 0.55 < deep[0] / shallow[0] < 1.8
    assert 0.5 < deep[1] / shallow[1] / deep[2] < 2.0  # the gradient follows its law


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("suffix", ["up.weight", "down.weight", "embed.weight", "head.weight"])
def test_each_kind_moves_the_output_alike_at_every_width(optimizer, suffix):
    narrow, wide = (_change(optimizer, "completep", (w, 4), suffix) for w in (32, 512))
    assert 0.55 < wide[0] / narrow[0] < 1.8
    assert 0.5 < wide[1] / narrow[1] / wide[2] < 2.0
