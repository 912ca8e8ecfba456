"""Time to plan a Llama of 70 billion parameters on the meta device.

``ratio`` is how many times faster it is than the limit of 20 s.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from scalinglimits.scaling import make_plan

__all__ = ["main"]

BASE = {"width": 256, "depth": 4, "heads": 2, "kv_heads": 1}
TARGET = {"width": 8192, "depth": 80, "heads": 64, "kv_heads": 8}
VOCABULARY = 128_256
LIMIT_S = 20.0


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.dim = width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.dim, bias=False)
        self.v = nn.Linear(width, kv_heads * self.dim, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [f(x).unflatten(-1, (-1, self.dim)) for f in (self.q, self.k, self.v)]
        q, k, v = (t.transpose(1, 2) for t in heads)
        q, k = self._rotate(q), self._rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        half = self.dim // 2
        rates = 10000.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
        angles = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None] * rates
        a, b = x[..., :half], x[..., half:]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1
        )


class Block(nn.Module):
    """Attention and a gated feed-forward network, each behind a normalisation."""

    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        inner = width * 7 // 2
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        h = h + self.attention(self.norm1(h))
        x = self.norm2(h)
        return h + self.down(F.silu(self.gate(x)) * self.up(x))


class Llama(nn.Module):
    """A decoder with an untied head."""

    def __init__(self, width: int, depth: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.embedding(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def transformers_llama() -> Callable[..., Any] | None:
    """The same model as `transformers` builds it, where that is installed."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return None

    def build(width: int, depth: int, heads: int, kv_heads: int) -> Any:
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=width,
                intermediate_size=width * 7 // 2,
                num_hidden_layers=depth,
                num_attention_heads=heads,
                num_key_value_heads=kv_heads,
                vocab_size=VOCABULARY,
            )
        )

    return build


def main() -> list[dict[str, Any]]:
    """Time a plan, and the plan of another target, for each way to build the model.

    Returns:
        One record a row: ``name``, ``seconds``, ``ratio`` of the limit of 20 s to the time.

    Raises:
        RuntimeError: If a plan takes longer than the limit.
    """
    rows = []
    builds = {"torch": Llama, "transformers": transformers_llama()}
    for name, build in builds.items():
        if build is None:
            continue
        start = time.perf_counter()
        plan = make_plan(build, BASE, TARGET)
        seconds = time.perf_counter() - start
        count = sum(torch.Size(entry.shape).numel() for entry in plan.entries.values())
        start = time.perf_counter()
        plan.retarget({**TARGET, "depth": 40})
        again = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        what = f"Llama of {count / 1e9:.1f} billion parameters, {name} (peak {peak:.1f} GiB)"
        rows.append({"name": what, "seconds": seconds, "ratio": LIMIT_S / seconds})
        rows.append({"name": "the same, another target", "seconds": again})
        if seconds > LIMIT_S:
            raise RuntimeError(f"{what}: {seconds:.1f} s is above {LIMIT_S:g} s")
    return rows
