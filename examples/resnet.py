"""A convolutional residual network with batch norm on real images.

The images are scikit-learn's 1,797 handwritten digits of 8 × 8 pixels; set the environment
variable IMAGE_FILE to an `.npz` file with arrays `x` (images, channels, height, width) and `y`.

    scalinglimits check examples/resnet.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, CLASSES = 32, 10
LEARNING_RATE = 0.005


class Block(nn.Module):
    """Two convolutions whose result is added to the stream, normalised before each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add the branch."""
        inner = self.conv1(F.relu(self.norm1(x)))
        return x + self.conv2(F.relu(self.norm2(inner)))


class ResNet(nn.Module):
    """Two stages of blocks, the second with twice the channels at half the resolution."""

    def __init__(self, width: int, depth: int, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stage1 = nn.ModuleList(Block(width) for _ in range(depth))
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2, bias=False)
        self.stage2 = nn.ModuleList(Block(2 * width) for _ in range(depth))
        self.norm = nn.BatchNorm2d(2 * width)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the classes."""
        x = self.stem(images)
        for block in self.stage1:
            x = block(x)
        x = self.down(x)
        for block in self.stage2:
            x = block(x)
        return self.head(F.relu(self.norm(x)).mean((2, 3)))


def build(width: int, depth: int, channels: int = 1) -> nn.Module:
    """Return a model with `depth` blocks in each stage."""
    return ResNet(width, depth, channels)


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
