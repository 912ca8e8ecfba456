"""Roles, blocks, branch outputs and queries are found in models written in many ways."""

from __future__ import annotations

import pytest
import torch
from scaling_models import (
    GPT,
    Encoder,
    Lists,
    OuterSum,
    ParallelNet,
    Recurrent,
    Residual,
    Scanned,
    mlp,
    resnet,
    row_major,
)
from torch import nn

from scalinglimits.scaling import make_plan


def _roles(build, base=(8, 2), target=(32, 2), **kwargs):
    plan = make_plan(build, base, target, depth_rule="none", **kwargs)
    return {name: entry.role for name, entry in plan.entries.items()}


def _ends(plan):
    return {name for name, entry in plan.entries.items() if entry.branch_output}


def test_roles_of_a_transformer():
    roles = _roles(GPT, attention="ignore")
    assert roles["tokens.weight"] == "embedding"
    assert roles["positions"] == "vector"
    assert roles["blocks.0.norm1.weight"] == "norm"
    assert roles["blocks.0.attention.kv.weight"] == "hidden"
    assert roles["blocks.0.attention.q.bias"] == "bias"
    assert roles["head.weight"] == "readout"
    assert roles["norm.bias"] == "bias"


def test_grouped_queries_grow_by_their_own_ratio():
    def build(width, depth):
        return GPT(width, depth, heads=width // 4, kv_heads=1)

    plan = make_plan(build, (8, 2), (32, 2))
    kv = plan["blocks.0.attention.kv.weight"]
    assert kv.shape == (8, 32)  # the keys' width does not grow: they read, as a readout does
    assert (kv.role, kv.init, kv.lr) == ("readout", 0.25, 0.25)
    assert plan["blocks.0.attention.q.weight"].lr == 0.25


def test_convolutions():
    def build(width, depth):
        return nn.Sequential(
            nn.Conv2d(3, width, 3),
            nn.Conv2d(width, width, 3, groups=width),  # depthwise
            nn.Conv2d(width, 2 * width, 3, groups=4),
            nn.ConvTranspose2d(2 * width, width, 3, groups=2),
            nn.Identity(),
            nn.Conv2d(width, 2, 1),
        )

    plan = make_plan(build, (16, 1), (64, 1), depth_rule="none", optimizer="sgd")
    got = {n: (e.role, e.init, e.lr) for n, e in plan.entries.items() if n.endswith("weight")}
    assert got == {
        "0.weight": ("input", 1, 4),
        "1.weight": ("vector", 1, 4),
        "2.weight": ("hidden", 0.5, 1),
        "3.weight": ("hidden", 0.5, 1),
        "5.weight": ("readout", 0.25, 0.25),
    }


def test_recurrent_gates_and_packed_projections():
    roles = _roles(Recurrent)
    assert roles["lstm.weight_ih_l0"] == roles["lstm.weight_hh_l1"] == "hidden"
    assert roles["lstm.bias_hh_l0"] == "bias"
    plan = make_plan(Encoder, (16, 2), (64, 2))
    entry = plan["encoder.layers.0.self_attn.in_proj_weight"]
    assert (entry.role, entry.lr) == ("hidden", 0.25)

    class Mixed(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.cell, self.product = nn.GRUCell(5, width), nn.Bilinear(width, width, 3)

        def forward(self, x):
            h = self.cell(x)
            return self.product(h, h)

    roles = _roles(Mixed, example=torch.zeros(2, 5))
    assert roles["cell.weight_ih"] == "input"
    assert roles["cell.weight_hh"] == "hidden"
    assert roles["product.weight"] == "readout"


def test_any_axis_order():
    roles = _roles(row_major)
    assert [roles[f"{i}.weight"] for i in (0, 2, 6)] == ["input", "hidden", "readout"]


def test_stacked_layers():
    plan = make_plan(Scanned, (8, 2), (32, 8), branch_outputs=["outer"])
    inner, outer = plan["inner"], plan["outer"]
    assert (inner.role, inner.lr, inner.blocks, inner.blocks_axis) == ("hidden", 0.25, 8, 0)
    assert outer.lr == pytest.approx(0.25 / 4)
    assert (plan["bias"].role, plan["bias"].lr) == ("vector", 1)


@pytest.mark.parametrize(
    ("build", "ends"),
    [
        (Residual, {"blocks.*.down.weight", "blocks.*.down.bias"}),
        (
            GPT,
            {f"blocks.*.{p}.{q}" for p in ("attention.o", "down") for q in ("weight", "bias")},
        ),
        (resnet, {f"{s}.*.bn2.{q}" for s in (1, 2) for q in ("weight", "bias")}),
        (
            lambda w, d: resnet(w, d, last_relu=False),
            {f"{s}.*.bn2.{q}" for s in (1, 2) for q in ("weight", "bias")},
        ),
        (
            Encoder,
            {
                f"encoder.layers.*.{p}.{q}"
                for p in ("self_attn.out_proj", "linear2")
                for q in ("weight", "bias")
            },
        ),
        (Lists, {"outer.*"}),
        (OuterSum, {"branches.*.2.weight", "branches.*.2.bias"}),
        (
            ParallelNet,
            {f"blocks.*.{p}.{q}" for p in ("attention.o", "down") for q in ("weight", "bias")},
        ),
    ],
    ids=["mlp", "gpt", "resnet", "preact", "encoder", "lists", "outer", "parallel"],
)
def test_branch_outputs(build, ends):
    plan = make_plan(build, (8, 2), (8, 6), attention="ignore")
    assert _ends(plan) == {end.replace("*", str(i)) for end in ends for i in range(6)}
    for name in _ends(plan):
        assert plan[name].init == pytest.approx(1 / 3)
        assert plan[name].lr == pytest.approx(1 / 3)


def test_branch_outputs_that_start_at_zero():
    def build(width, depth):
        model = Residual(width, depth)
        for block in model.blocks:
            nn.init.zeros_(block.down.weight)
        return model

    plan = make_plan(build, (8, 2), (8, 4))
    assert "blocks.1.down.weight" in _ends(plan)


def test_branch_outputs_given():
    plan = make_plan(Residual, (8, 2), (8, 4), branch_outputs=["blocks.*.up.*"])
    assert _ends(plan) == {f"blocks.{i}.up.{p}" for i in range(4) for p in ("weight", "bias")}
    with pytest.raises(ValueError, match=r"`branch_outputs` must name parameters; 'none'"):
        make_plan(Residual, (8, 2), (8, 4), branch_outputs=["none"])


def test_gains_of_one_plus_a_weight():
    """Behind a branch they silence nothing and end nothing; of the stream they are a branch."""

    class Gained(nn.Module):
        def __init__(self, width, of_stream):
            super().__init__()
            self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
            self.gain, self.of_stream = nn.Parameter(torch.zeros(width)), of_stream

        def forward(self, h):
            branch = self.outer(torch.tanh(self.inner(h)))
            if self.of_stream:
                return h * (1 + self.gain) + branch
            return h + branch * (1 + self.gain)

    def build(of_stream):
        return lambda width, depth: nn.Sequential(
            nn.Linear(6, width), *(Gained(width, of_stream) for _ in range(depth))
        )

    ends = {f"{i}.outer.{p}" for i in range(1, 5) for p in ("weight", "bias")}
    plan = make_plan(build(False), (8, 2), (8, 4))
    assert _ends(plan) == ends
    assert plan["1.gain"].lr == 1.0
    assert _ends(make_plan(build(True), (8, 2), (8, 4))) == ends | {
        f"{i}.gain" for i in range(1, 5)
    }


def test_no_branch_is_an_error():
    message = r"pass depth_rule=\"none\", on the command line --depth-rule none .* got 'completep'"
    with pytest.raises(ValueError, match=message):
        make_plan(mlp, (8, 2), (8, 4))
    with pytest.raises(ValueError, match=message):  # the stream itself is normalised
        make_plan(lambda w, d: Encoder(w, d, norm_first=False), (8, 2), (8, 4))
    make_plan(mlp, (8, 2), (8, 4), depth_rule="none")
    make_plan(mlp, (8, 2), (8, 2))


@pytest.mark.parametrize("manual", [False, True])
def test_queries_take_the_multiplier_where_heads_grow(manual):
    def build(width, depth):
        return GPT(width, depth, manual=manual)

    plan = make_plan(build, (8, 2), (32, 2))
    for part in ("weight", "bias"):
        entry = plan[f"blocks.1.attention.q.{part}"]
        assert "attention multiplier absorbed" in entry.reason
    assert plan["blocks.1.attention.q.weight"].init == 0.25
    assert "attention" not in plan["blocks.1.attention.kv.weight"].reason
    fixed = make_plan(lambda w, d: GPT(w, d, heads=w // 4, manual=manual), (8, 2), (32, 2))
    assert fixed["blocks.1.attention.q.weight"].init == 0.5


def test_a_model_that_divides_by_the_head_dimension_needs_no_multiplier():
    plan = make_plan(lambda w, d: GPT(w, d, inverse=True), (8, 2), (32, 2))
    assert plan["blocks.1.attention.q.weight"].init == 0.5


@pytest.mark.parametrize("by_name", [True, False])
def test_tied_readouts(by_name):
    class Functional(GPT):
        def forward(self, tokens):
            h = self.tokens(tokens) + self.positions
            for block in self.blocks:
                h = block(h)
            return nn.functional.linear(self.norm(h), self.tokens.weight)

    def build(width, depth):
        if by_name:
            return GPT(width, depth, tied=True)
        model = Functional(width, depth)
        del model.head
        return model

    plan = make_plan(build, (8, 2), (32, 2), attention="ignore")
    tied = plan["tokens.weight"]
    assert (tied.role, tied.init, tied.lr) == ("tied", 1, 1)
    for part in ("norm.weight", "norm.bias"):
        assert (plan[part].init, plan[part].lr) == (0.25, 0.25)
    if by_name:
        assert tied.aliases == ("head.weight",)
        assert plan["head.weight"] is tied


def test_a_tied_readout_without_a_gain_is_an_error():
    class Plain(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.tokens, self.head = nn.Embedding(9, width), nn.Linear(width, 9, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.tokens(tokens)))

    with pytest.raises(ValueError, match=r"no gain ahead of the tied readout `tokens.weight`"):
        make_plan(Plain, (8, 1), (32, 1))
    plan = make_plan(Plain, (8, 1), (32, 1), absorb=False)
    assert plan.forward_multipliers == {"tokens.weight": 0.25}


def test_growth_by_coincidence_is_reported():
    def build(width, depth):
        inner = 64 * -(-width // 64)  # rounded up
        return nn.Sequential(nn.Linear(6, width), nn.Linear(width, inner), nn.Linear(inner, 3))

    plan = make_plan(build, (16, 1), (32, 1), depth_rule="none")
    assert "by coincidence base and target both have 64" in "".join(plan.notes)


def test_mixed_dtypes_and_functions_as_examples():
    def run(model):
        loss = model(torch.zeros(4, 6)).square().mean()
        assert loss.dtype == torch.float32
        return loss

    plan = make_plan(Residual, (8, 2), (16, 4), example=run)
    assert plan["blocks.1.down.weight"].branch_output
    inputs = {"x": torch.ones(4, 6)}
    assert make_plan(Residual, (8, 2), (16, 4), example=inputs).entries == plan.entries
    assert make_plan(Residual, (8, 2), (16, 4), example=(torch.ones(4, 6),)) == plan


def test_a_probe_that_the_build_refuses_is_made_smaller():
    def build(width, depth):
        if width > 40:
            raise ValueError("too wide")
        return mlp(width, depth)

    assert make_plan(build, (8, 2), (16, 2)).role("2.weight") == "hidden"
