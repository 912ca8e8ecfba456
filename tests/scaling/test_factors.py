"""The exponent by which a model divides its logits is seen, wherever it divides."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scalinglimits.scaling import make_plan

TOTALS = {"1/d": 0.5, "1/√d": 0.25, "1": 0.125}
"""The deviation of the queries where width and heads grow by 4, by what the model multiplies by."""


def _logits(kind, q, k, d):
    """Scores of (batch, heads, time, d), scaled in many ways."""
    match kind:
        case "queries":
            return (q / d) @ k.mT
        case "in place":
            return q.clone().mul_(1 / d) @ k.mT
        case "product":
            return q @ k.mT / d
        case "halves":
            return (q / d**0.5) @ (k * d**-0.5).mT
        case "tensor":
            return q @ k.mT / torch.full([], d, dtype=q.dtype, device=q.device)
        case "einsum":
            return torch.einsum("bhid,bhjd->bhij", q, k) * (1 / d)
        case "added":
            bias = torch.ones(1, dtype=q.dtype, device=q.device)
            flat = torch.baddbmm(bias, q.flatten(0, 1), k.flatten(0, 1).mT, alpha=1 / d)
            return flat.unflatten(0, q.shape[:2])
        case "masked":
            scores = (q @ k.mT).div(d)
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            return scores.masked_fill(mask, -1e9) + torch.zeros_like(scores)
        case "capped":
            return 5 * torch.tanh(q @ k.mT / d / 5)
        case "rotated":
            turned = torch.cat([-q[..., d // 2 :], q[..., : d // 2]], -1) / d
            return (q / d * 0.6 + turned * torch.full_like(turned, 0.8)) @ k.mT
        case "partly rotated":
            turned, rest = q[..., :d], q[..., d:]  # of nothing, in this model
            return torch.cat([turned, rest * rest], -1) / d @ k.mT
        case "root":
            return q @ k.mT / d**0.5
        case "none":
            return torch.neg(q) @ k.mT
    raise AssertionError(kind)


class Attention(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.dim, self.kind = width // 2, kind

    def forward(self, x):
        heads = (layer(x).unflatten(-1, (2, -1)) for layer in (self.q, self.k, self.v))
        q, k, v = (h.transpose(1, 2) for h in heads)
        if self.kind == "fused":
            y = F.scaled_dot_product_attention(q * self.dim**-0.5, k, v)
        elif self.kind == "fused, scaled":
            y = F.scaled_dot_product_attention(q * self.dim**-0.5, k, v, scale=1.0)
        else:
            y = _logits(self.kind, q, k, self.dim).softmax(-1) @ v
        return x + self.o(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("kind", "total"),
    [
        *((kind, "1/d") for kind in ("queries", "in place", "product", "halves", "tensor")),
        *((kind, "1/d") for kind in ("einsum", "added", "masked", "capped", "rotated")),
        ("partly rotated", "1/d"),
        ("fused", "1/d"),
        ("root", "1/√d"),
        ("fused, scaled", "1/√d"),
        ("none", "1"),
    ],
)
def test_scales_of_logits(kind, total):
    def build(width, depth):
        return nn.Sequential(nn.Linear(6, width), *(Attention(width, kind) for _ in range(depth)))

    options = {"depth_rule": "none", "example": torch.ones(2, 5, 6)}
    plan = make_plan(build, (16, 2), (64, 2), **options)
    assert plan["2.q.weight"].init == pytest.approx(TOTALS[total])
