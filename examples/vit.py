"""A vision transformer on real images: patches, a class token, packed query-key-value.

The images are scikit-learn's 1,797 handwritten digits of 8 × 8 pixels; set the environment
variable IMAGE_FILE to an `.npz` file with arrays `x` (images, channels, height, width) and `y`.
Heads have a fixed size; their number grows with the width.

    scalinglimits check examples/vit.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, CLASSES, PATCH, HEAD = 32, 10, 2, 8
LEARNING_RATE = 0.005


class Attention(nn.Module):
    """Attention of all patches to all patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; x has shape (batch, tokens, width)."""
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, HEAD).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv.unbind(0))
        return self.projection(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """Attention, then an MLP, each added to the stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """The classifier, which reads its answer from the class token."""

    def __init__(self, width: int, depth: int, channels: int, size: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // PATCH) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the classes."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def build(width: int, depth: int, channels: int = 1, size: int = 8) -> nn.Module:
    """Return a model; `width` is a multiple of the size of a head."""
    if width % HEAD:
        raise ValueError(f"`width` must be a multiple of {HEAD}; got {width}")
    return ViT(width, depth, channels, size)


def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean cross-entropy."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def batches(path: str | Path | None = None, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random images and their labels, for ever."""
    path = path or os.environ.get("IMAGE_FILE")
    if path:
        with np.load(path) as arrays:
            x, y = arrays["x"], arrays["y"]
    else:
        from scalinglimits.data import load_digits

        x, y = load_digits()
        x = x.reshape(-1, 1, 8, 8)
    images, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)
    images = (images - images.mean()) / images.std()
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        yield images[chosen], labels[chosen]
