"""A GPT on real text: grouped-query attention, rotary positions, SwiGLU, RMSNorm.

The text is the opening of Lewis Carroll's "Alice's Adventures in Wonderland" (1865, public
domain), read byte by byte; set the environment variable TEXT_FILE to a larger file of your own.
The number of heads is fixed, so the size of a head grows with the width.

    scalinglimits check examples/gpt.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEADS, KEY_VALUE_HEADS = 4, 2
CONTEXT, BATCH, VOCABULARY = 16, 4, 256
LEARNING_RATE = 0.005


class Attention(nn.Module):
    """Causal attention in which pairs of query heads share a key and a value head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = width // HEADS
        shared = KEY_VALUE_HEADS * self.head
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, shared, bias=False)
        self.value = nn.Linear(width, shared, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; x has shape (batch, time, width)."""
        batch, time, width = x.shape
        q = rotate(self.query(x).view(batch, time, HEADS, self.head).transpose(1, 2))
        k = rotate(self.key(x).view(batch, time, KEY_VALUE_HEADS, self.head).transpose(1, 2))
        v = self.value(x).view(batch, time, KEY_VALUE_HEADS, self.head).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, width))


class SwiGLU(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the MLP to the last axis."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention, then an MLP, each added to the stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.mlp = Attention(width), SwiGLU(width)

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """The language model; its head may be the embedding itself."""

    def __init__(self, width: int, depth: int, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
            nn.init.normal_(self.head.weight, std=width**-0.5)  # logits of order one

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, time, vocabulary)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def rotate(x: Tensor) -> Tensor:
    """Turn pairs of coordinates by angles that grow with the position."""
    half, time = x.shape[-1] // 2, x.shape[-2]
    frequency = 10_000 ** -(torch.arange(half, device=x.device) / half)
    angle = torch.arange(time, device=x.device)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def build(width: int, depth: int, tied: bool = False) -> nn.Module:
    """Return a model; `width` is a multiple of 8, so that heads are even."""
    if width % (2 * HEADS):
        raise ValueError(f"`width` must be a multiple of {2 * HEADS}; got {width}")
    return GPT(width, depth, tied)


def step(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the mean cross-entropy of the next byte."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def batches(path: str | Path | None = None, seed: int = 0) -> Iterator[Tensor]:
    """Yield random windows of the text, for ever."""
    path = path or os.environ.get("TEXT_FILE")
    builtin = resources.files("scalinglimits.data") / "alice.txt"
    text = torch.tensor(list((Path(path) if path else builtin).read_bytes()))
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
        yield text[starts[:, None] + torch.arange(CONTEXT + 1)]
