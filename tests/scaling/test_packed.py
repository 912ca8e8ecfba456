"""Queries that share their tensor with keys and values take the attention multiplier as well."""

from __future__ import annotations

import pytest
import torch
from scaling_models import GPT
from torch import nn
from training_runs import OPTIMIZERS, train

from scalinglimits.scaling import make_plan

BASE, TARGET, FACTOR = (8, 1), (32, 3), 0.5  # heads grow by 4


def _build(**kwargs):
    return lambda width, depth: GPT(width, depth, packed=True, **kwargs)


def _powers(build, base=(8, 2), target=(32, 2), **kwargs):
    """What each parameter of the second block takes of the multiplier, as a power of it."""
    options = {"depth_rule": "none", **kwargs}
    plan = make_plan(build, base, target, **options)
    without = make_plan(build, base, target, **{**options, "attention": "ignore"})
    ratios = {n: e.init / without[n].init for n, e in plan.entries.items()}
    powers = {0.5: 1.0, 0.5**0.5: 0.5, 2**0.5: -0.5, 1.0: 0.0}
    found = {
        n: next(p for r, p in powers.items() if abs(r / x - 1) < 1e-9) for n, x in ratios.items()
    }
    for name, power in found.items():
        assert plan[name].reason.count("attention multiplier") == bool(power)
    return {name: power for name, power in found.items() if power}


def _expect(powers, shared, undoing):
    assert {n for n, p in powers.items() if p == 0.5} == set(shared)
    assert {n for n, p in powers.items() if p == -0.5} == set(undoing)
    assert len(powers) == len(shared) + len(undoing)


def _named(*rests, prefix="blocks", blocks=2):
    return [f"{prefix}.{i}.{rest}" for i in range(blocks) for rest in rests]


@pytest.mark.parametrize(
    ("kwargs", "shared"),
    [
        ({}, ["qkv.weight", "qkv.bias"]),
        ({"kv_heads": 1}, ["qkv.weight", "qkv.bias"]),
        ({"manual": True}, ["qkv.weight", "qkv.bias"]),
        ({"manual": True, "kv_heads": 1, "bias": "none"}, ["qkv.weight"]),
        ({"bias": "split"}, ["qkv.weight", "q_bias", "v_bias"]),
        ({"bias": "split", "manual": True}, ["qkv.weight", "q_bias", "v_bias"]),
        ({"after": nn.Dropout}, ["qkv.weight", "qkv.bias"]),
    ],
    ids=str,
)
def test_packed_projections(kwargs, shared):
    if kwargs.get("after"):
        kwargs = {"after": lambda width: nn.Dropout()}
    powers = _powers(_build(**{"kv_heads": 2, **kwargs}))
    _expect(powers, _named(*(f"attention.{n}" for n in shared)), _named("attention.o.weight"))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"bias": False}, {"add_bias_kv": True}], ids=str)
def test_multihead_attention(weights, kwargs):
    """Fused, or written out when the weights are asked for."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True, **kwargs)

        def forward(self, h):
            return h + self.attention(h, h, h, need_weights=weights)[0]

    def build(width, depth):
        return nn.Sequential(nn.Linear(6, width), *(Block(width) for _ in range(depth)))

    shared = ["in_proj_weight"]
    shared += ["in_proj_bias"] if kwargs.get("bias", True) else []
    shared += ["bias_k", "bias_v"] if "add_bias_kv" in kwargs else []
    powers = _powers(build, example=torch.ones(2, 5, 6))
    blocks = [f"{i}.attention." for i in (1, 2)]
    _expect(
        powers, [b + n for b in blocks for n in shared], [b + "out_proj.weight" for b in blocks]
    )


def test_encoder_and_decoder():
    """Self-attention and attention to another sequence, each of the two."""

    class Net(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.embed, self.memory = nn.Linear(6, width), nn.Linear(6, width)
            layer = nn.TransformerEncoderLayer(width, 2, width, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
            layer = nn.TransformerDecoderLayer(width, 2, width, batch_first=True)
            self.decoder = nn.TransformerDecoder(layer, depth)

        def forward(self, x):
            return self.decoder(self.embed(x), self.encoder(self.memory(x)))

    powers = _powers(Net)
    shared, undoing = [], []
    for part, kinds in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "multihead_attn"))):
        names = {
            rest: _named(*(f"{kind}.{rest}" for kind in kinds), prefix=f"{part}.layers")
            for rest in ("in_proj_weight", "in_proj_bias", "out_proj.weight")
        }
        shared += names["in_proj_weight"] + names["in_proj_bias"]
        undoing += names["out_proj.weight"]
    _expect(powers, shared, undoing)


def test_values_of_their_own_need_no_undoing():
    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.qk, self.v, self.o = (nn.Linear(width, n * width) for n in (2, 1, 1))

        def forward(self, x):
            q, k = self.qk(x).chunk(2, -1)
            return x + self.o(nn.functional.scaled_dot_product_attention(q, k, self.v(x)))

    def build(width, depth):
        return nn.Sequential(nn.Linear(6, width), *(Attention(width) for _ in range(depth)))

    powers = _powers(build, example=torch.ones(2, 5, 6))
    assert powers == {f"{i}.qk.{p}": 0.5 for i in (1, 2) for p in ("weight", "bias")}


def test_one_block_used_again_and_again():
    class Repeated(GPT):
        def __init__(self, width, depth):
            super().__init__(width, 1, kv_heads=2, packed=True)
            self.repetitions = depth

        def forward(self, tokens):
            h = self.tokens(tokens) + self.positions
            for _ in range(self.repetitions):
                h = self.blocks[0](h)
            return self.head(self.norm(h))

    names = _named("attention.qkv.weight", "attention.qkv.bias", blocks=1)
    _expect(_powers(Repeated), names, _named("attention.o.weight", blocks=1))


def test_queries_of_their_own_are_preferred():
    class Normed(GPT):
        def __init__(self, width, depth):
            super().__init__(width, depth, kv_heads=2, packed=True)
            for block in self.blocks:
                block.attention.norm = nn.RMSNorm(width // 2)

    def project(attention, x):
        y = attention.qkv(x).unflatten(-1, (3, 2, -1))
        return torch.cat([attention.norm(y[..., :1, :, :]), y[..., 1:, :, :]], -3).flatten(-3)

    class Net(Normed):
        def __init__(self, width, depth):
            super().__init__(width, depth)
            for block in self.blocks:
                block.attention.project = lambda x, a=block.attention: project(a, x)

    assert _powers(Net) == dict.fromkeys(_named("attention.norm.weight"), 1.0)


@pytest.mark.parametrize(
    "after", [nn.LayerNorm, lambda width: nn.Tanh()], ids=["normalised", "bent"]
)
def test_values_that_nothing_can_undo_are_an_error(after):
    build = _build(kv_heads=2, after=after)
    with pytest.raises(ValueError, match=r"the model itself must multiply its queries by 0.5"):
        make_plan(build, (8, 2), (32, 2))
    plan = make_plan(build, (8, 2), (32, 2), attention="explicit")
    assert "must multiply its queries by 0.5" in plan.notes[0]


def test_a_projection_with_another_purpose_is_an_error():
    """The queries also gate the output: a multiplier of them would change the gate."""

    class Gated(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.q, self.kv, self.o = (nn.Linear(width, n * width) for n in (1, 2, 1))

        def forward(self, x):
            q, (k, v) = self.q(x), self.kv(x).chunk(2, -1)
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            return x + self.o(y * torch.sigmoid(q))

    def build(width, depth):
        return nn.Sequential(nn.Linear(6, width), *(Gated(width) for _ in range(depth)))

    with pytest.raises(ValueError, match=r"`attention` must be 'explicit' or 'ignore': heads grow"):
        make_plan(build, (8, 2), (32, 2), example=torch.ones(2, 5, 6))


def test_functions_that_return_nothing():
    def run(model):
        model(torch.zeros(2, 8, dtype=torch.long))

    powers = _powers(_build(kv_heads=2), example=run)
    assert powers == _powers(_build(kv_heads=2))


def test_the_derivation():
    plan = make_plan(_build(kv_heads=2), BASE, TARGET)
    shared = "root of the attention multiplier, shared by queries and keys ×0.707107 is moved into"
    undone = "inverse root of the attention multiplier, which undoes it for the values ×1.41421 is"
    assert shared in plan.explain("blocks.1.attention.qkv.weight")
    steps = plan.explain("blocks.1.attention.o.weight")
    assert undone in steps
    assert "branch scale ×0.333333" in steps
    entry = plan["blocks.1.attention.o.weight"]  # width ×4, the multiplier's root, depth ×3
    assert entry.init == pytest.approx(0.5 * 2**0.5 / 3)
    assert entry.lr == pytest.approx(0.25 * 2**0.5 / 3)
    assert "multiplier" not in plan["blocks.1.attention.o.bias"].reason


@pytest.mark.parametrize(
    ("name", "kv_heads"), [*((name, 2) for name in OPTIMIZERS), ("sgd", 1), ("adamw", 1)]
)
def test_the_packed_form_trains_the_network_with_multiplied_logits(name, kv_heads):
    """The twin multiplies its logits; its weights are ordinary ones."""
    kind, settings = OPTIMIZERS[name]
    build, twin = (_build(kv_heads=kv_heads, multiplier=m) for m in (1.0, FACTOR))
    absorbed = make_plan(build, BASE, TARGET, optimizer=name)
    explicit = make_plan(build, BASE, TARGET, optimizer=name, attention="explicit")
    assert f"must multiply its queries by {FACTOR}" in explicit.notes[0]
    first = explicit.initialize_(twin(*TARGET).double(), seed=1)
    second = build(*TARGET).double()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        for parameter_name, parameter in second.named_parameters():
            parameter.mul_(absorbed[parameter_name].init / explicit[parameter_name].init)
    losses, logits = train(explicit, first, lambda m, t: m(t), kind, settings)
    others, same = train(absorbed, second, lambda m, t: m(t), kind, settings)
    assert losses[-1] < losses[0]
    torch.testing.assert_close(others, losses, rtol=1e-9, atol=0)
    torch.testing.assert_close(same, logits, rtol=1e-7, atol=1e-10)


def test_without_the_multiplier_training_differs():
    """The test above can fail: by the plan that ignores the multiplier the losses differ."""
    build = _build(kv_heads=2)
    losses = []
    for attention in ("absorb", "ignore"):
        plan = make_plan(build, BASE, TARGET, attention=attention)
        model = plan.initialize_(build(*TARGET).double(), seed=1)
        losses.append(train(plan, model, lambda m, t: m(t), *OPTIMIZERS["adamw"])[0][-1])
    assert abs(losses[0] - losses[1]) > 1e-4


def test_multipliers_left_to_the_model():
    plan = make_plan(_build(kv_heads=2), (8, 2), (32, 2), absorb=False)
    multipliers = plan.forward_multipliers
    assert multipliers.pop("head.weight") == 0.25
    assert multipliers == pytest.approx(
        {
            **dict.fromkeys(_named("attention.qkv.weight", "attention.qkv.bias"), 0.5**0.5),
            **dict.fromkeys(_named("attention.o.weight"), 2**0.5),
        }
    )
