"""A residual stack of LSTM layers on real text.

The text is the opening of Lewis Carroll's "Alice's Adventures in Wonderland" (1865, public
domain), read byte by byte; set the environment variable TEXT_FILE to a larger file of your own.

    scalinglimits check examples/lstm.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CONTEXT, BATCH, VOCABULARY = 16, 4, 256
LEARNING_RATE = 0.005


class Block(nn.Module):
    """An LSTM layer on the normalised stream; a linear map of its states is added to it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch; x has shape (batch, time, width)."""
        states, _ = self.lstm(self.norm(x))
        return x + self.output(states)


class Model(nn.Module):
    """The language model."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of shape (batch, time, vocabulary)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(width: int, depth: int) -> nn.Module:
    """Return a model with `depth` LSTM layers."""
    return Model(width, depth)


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
