"""Planted faults: the check fails, and names the guilty parameter; the right plan does not fail."""

import pytest
import torch
from planted import Planted, load_example
from torch import nn

from scalinglimits.checks import scaling_check

WIDTHS = {"widths": (32, 64, 128), "depths": (2,), "seeds": 4, "max_seeds": 4, "steps": 1}
DEPTHS = {"widths": (32,), "depths": (2, 4, 8), "seeds": 3, "max_seeds": 3, "steps": 1}

GPT, VIT = load_example("gpt"), load_example("vit")
DOWN, QUERY = "blocks.*.mlp.down.weight", "blocks.*.attention.query.weight"
OUTPUT, UP = "blocks.*.attention.output.weight", "blocks.*.mlp.up.weight"

# Name: model, faults, axis, the guilty, words of the hint.
FAULTS = {
    "readout scaled twice": (
        GPT, {"head.weight": {"init": -1, "lr": -1}}, WIDTHS, "head.weight", "scaled twice",
    ),
    "readout not scaled": (
        GPT, {"head.weight": {"init": 0.5, "lr": 1}}, WIDTHS, "head.weight", "not scaled",
    ),
    "hidden learning rate forgotten": (GPT, {UP: {"lr": 1}}, WIDTHS, UP, "rate not scaled"),
    "hidden learning rate scaled twice": (GPT, {UP: {"lr": -1}}, WIDTHS, UP, "scaled twice"),
    "fans of the first layer swapped": (
        VIT, {"patches.weight": {"init": -0.5}}, WIDTHS, "patches.weight", "fans swapped",
    ),
    "embedding scaled as hidden": (
        GPT,
        {"embedding.weight": {"init": -0.5, "lr": -1}},
        WIDTHS,
        "embedding.weight",
        "hidden matrix",
    ),
    "attention 1/√d with growing heads": (
        GPT, {QUERY: {"init": 0.5, "lr": 0.5}}, WIDTHS, QUERY, "must be 1/d",
    ),
    "branch scale forgotten": (
        GPT, {DOWN: {"init_depth": 1, "lr_depth": 1}}, DEPTHS, DOWN, "branch scale forgotten",
    ),
    "branch scale doubled by a 1/√(2L) initialisation": (
        GPT,
        {DOWN: {"init_depth": -0.5}, OUTPUT: {"init_depth": -0.5}},
        DEPTHS,
        DOWN,
        "applied twice",
    ),
    "depth learning rate forgotten": (
        GPT, {DOWN: {"lr_depth": 1}}, DEPTHS, DOWN, "not scaled with depth",
    ),
}  # fmt: skip


def tied(width, depth):
    return GPT.build(width, depth, tied=True)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_and_named(name):
    model, faults, sizes, guilty, words = FAULTS[name]
    setup = Planted(model.build, (32, 2), faults)
    check = scaling_check(
        model.build, model.step, model.batches, plan=setup, depth_exponent=1.0, **sizes
    )
    assert check.verdict == "fails", str(check)
    assert check.suspects[0] == guilty, str(check)
    assert words in str(check)


@pytest.mark.parametrize(("model", "sizes"), [(GPT, WIDTHS), (GPT, DEPTHS), (VIT, WIDTHS)])
def test_without_fault_nothing_fails(model, sizes):
    setup = Planted(model.build, (32, 2))
    check = scaling_check(
        model.build, model.step, model.batches, plan=setup, depth_exponent=1.0, **sizes
    )
    assert not check.failures, str(check)


def test_tied_head_scaled_twice():
    right = Planted(tied, (32, 2))
    wrong = Planted(tied, (32, 2), {"norm.weight": {"init": -1, "lr": -1}})
    checks = [
        scaling_check(tied, GPT.step, GPT.batches, plan=setup, **WIDTHS) for setup in (right, wrong)
    ]
    assert not checks[0].failures, str(checks[0])
    assert checks[1].verdict == "fails"
    assert set(checks[1].suspects) & {"embedding.weight", "norm.weight"}
    assert any("tied head scaled twice" in finding.text for finding in checks[1].failures)


def test_unscaled_epsilon_freezes_the_updates():
    setup = Planted(GPT.build, (32, 2), eps=1e-2, unscale_eps=True)
    check = scaling_check(GPT.build, GPT.step, GPT.batches, plan=setup, **WIDTHS)
    assert check.verdict == "fails"
    assert UP in check.suspects
    assert "the gradient is smaller than the optimizer's ε" in str(check)


def test_standard_scaling():
    check = scaling_check(GPT.build, GPT.step, GPT.batches, plan=None, **WIDTHS)
    assert check.verdict == "fails"
    assert {"head.weight", UP, DOWN, QUERY} <= set(check.suspects)


class Small(nn.Module):
    """A residual MLP, cheap enough for hundreds of checks."""

    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width, bias=False))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@pytest.mark.slow
def test_false_alarms_over_seeds():
    # n = 200 checks with different seeds; a false alarm has probability 0.01 at most, so that
    # more than 11 would be an event of probability < 1e-5.
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))

    def step(model, x):
        return nn.functional.cross_entropy(model(x), torch.arange(8) % 3)

    alarms = 0
    for seed in range(200):
        check = scaling_check(
            Small,
            step,
            [x],
            plan="mup",
            widths=(16, 32, 64),
            depths=(2,),
            seeds=3,
            max_seeds=3,
            seed=100 * seed,
            steps=2,
        )
        alarms += check.verdict == "fails"
    assert alarms <= 11
