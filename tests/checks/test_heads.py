"""Heads that grow: their size is seen however attention is written, and plans for them hold."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scalinglimits.checks import scaling_check
from scalinglimits.checks.heads import head_size

HEADS = 2


def _logits(kind):
    x, w = torch.ones(2, 3, 5), torch.ones(5, 5, requires_grad=True)
    q, k = (x @ w, x @ w)
    if kind == "masked":
        scores = q @ k.mT / 2 + torch.ones(3, 3)
        return scores.masked_fill(torch.ones(3, 3).triu(1) > 0, -1e9)
    if kind == "capped":
        return 30 * torch.tanh(q @ k.mT / 30)
    if kind == "added":
        return torch.baddbmm(torch.zeros(2, 3, 3), q, k.mT)
    if kind == "one head":
        return torch.einsum("bid,bjd->bij", q, k)
    if kind == "keys fixed":
        return q @ x.mT
    if kind == "half":
        return (q @ k.mT).half()
    if kind == "router":
        return F.linear(F.softmax(q @ k.mT, -1) @ x, w[:3])
    if kind == "experts":
        return torch.einsum("bid,bde->bie", q, torch.ones(2, 5, 3, requires_grad=True))
    return q.sum(-1, keepdim=True) * torch.ones(3)


@pytest.mark.parametrize("kind", ["masked", "capped", "added", "one head", "keys fixed", "half"])
def test_products_of_queries_and_keys(kind):
    assert head_size(_logits(kind)) == 5


@pytest.mark.parametrize("kind", ["router", "experts", "no product"])
def test_other_softmaxes(kind):
    assert head_size(_logits(kind)) is None


def test_without_derivatives():
    assert head_size(torch.ones(2, 3, 3)) is None


class Attention(nn.Module):
    """Attention with `HEADS` heads, whatever the width."""

    def __init__(self, width, packed, fused):
        super().__init__()
        self.fused, self.dim = fused, width // HEADS
        sizes = (3,) if packed else (1, 1, 1)
        self.inner = nn.ModuleList(nn.Linear(width, n * width) for n in sizes)
        self.outer = nn.Linear(width, width)

    def forward(self, x):
        parts = torch.cat([layer(x) for layer in self.inner], -1).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (HEADS, self.dim)).transpose(1, 2) for p in parts)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.mT / self.dim**0.5).softmax(-1) @ v
        return self.outer(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, packed, fused):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, packed, fused)

    def forward(self, h):
        return h + self.attention(self.norm(h))


class Net(nn.Module):
    def __init__(self, width, depth, packed, fused):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.blocks = nn.ModuleList(Block(width, packed, fused) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 20)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def _check(packed, fused, **kwargs):
    tokens = torch.randint(20, (16, 9), generator=torch.Generator().manual_seed(0))

    def build(width, depth):
        return Net(width, depth, packed, fused)

    def step(model, batch):
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    options = {"widths": (64, 128, 256), "depths": (2,), "lr": 3e-3, "max_seeds": 16, **kwargs}
    return scaling_check(build, step, [tokens], **options)


@pytest.mark.parametrize(
    ("packed", "fused"),
    [(True, True), (True, False), (False, False)],
    ids=["packed-fused", "packed-written", "separate-written"],
)
def test_plans_for_growing_heads(packed, fused):
    """Fixed seeds; the queries carry the multiplier c, or a packed tensor its root."""
    found = _check(packed, fused)
    assert found.verdict == "holds"
    rows = {(f.kind, f.name): f.exponent for f in found.findings if f.step == 0}
    share = rows["share", "blocks.*.attention.inner.0.weight"]
    assert share == pytest.approx(-0.25 if packed else -0.5, abs=0.05)
    assert rows["share", "blocks.*.attention.outer.weight"] == pytest.approx(0, abs=0.1)
    assert rows["logits", "blocks.*.attention"] == pytest.approx(-0.5, abs=0.1)


@pytest.mark.parametrize("fused", [True, False])
def test_logits_without_the_multiplier_fail(fused):
    found = _check(True, fused, attention="ignore", widths=(32, 64, 128))
    assert found.verdict == "fails"
    failed = {(f.kind, f.name) for f in found.findings if f.verdict == "fails"}
    assert ("logits", "blocks.*.attention") in failed
