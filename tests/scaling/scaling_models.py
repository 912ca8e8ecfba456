"""Models of many kinds, written as users write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def mlp(width, depth):
    hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), *hidden, nn.Linear(width, 3))


class Block(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width, bias=bias)

    def forward(self, h):
        return h + self.down(torch.tanh(self.up(self.norm(h))))


class Residual(nn.Module):
    """A residual network of feed-forward blocks."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Attention(nn.Module):
    """Grouped-query attention; `manual` writes it out, `inverse` divides by d, not √d."""

    def __init__(self, width, heads, kv_heads, manual=False, inverse=False):
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.groups = heads // kv_heads
        self.manual, self.inverse = manual, inverse
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * kv_heads * self.dim, bias=False)
        self.o = nn.Linear(width, width)

    def forward(self, x):
        q = self.q(x).unflatten(-1, (-1, self.dim)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (-1, 2, self.dim)).permute(3, 0, 2, 1, 4)
        k, v = (t.repeat_interleave(self.groups, 1) for t in (k, v))
        if self.manual:
            scores = (q @ k.transpose(-2, -1)) / self.dim**0.5
            y = scores.softmax(-1) @ v
        else:
            scale = 1 / self.dim if self.inverse else None
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return self.o(y.transpose(1, 2).flatten(2))


class PackedAttention(nn.Module):
    """Queries, keys and values of one matrix, with rotation of positions.

    `multiplier` is what the model itself multiplies logits by; `bias` is ``"split"`` for biases of
    queries and values only; `after` is what the output of the attention passes first.
    """

    def __init__(
        self,
        width,
        heads=2,
        kv_heads=2,
        manual=False,
        bias="whole",
        after=None,
        multiplier=1.0,
    ):
        super().__init__()
        self.dim, self.manual, self.multiplier = width // heads, manual, multiplier
        self.sizes = [n * self.dim for n in (heads, kv_heads, kv_heads)]
        self.groups = heads // kv_heads
        self.qkv = nn.Linear(width, sum(self.sizes), bias=bias == "whole")
        if bias == "split":
            self.q_bias = nn.Parameter(torch.zeros(self.sizes[0]))
            self.v_bias = nn.Parameter(torch.zeros(self.sizes[2]))
        self.after = after(width) if after else nn.Identity()
        self.o = nn.Linear(width, width)

    def project(self, x):
        if not hasattr(self, "q_bias"):
            return self.qkv(x)
        bias = torch.cat([self.q_bias, torch.zeros_like(self.v_bias), self.v_bias])
        return F.linear(x, self.qkv.weight, bias)

    def forward(self, x):
        parts = self.project(x).split(self.sizes, -1)
        q, k, v = (p.unflatten(-1, (-1, self.dim)).transpose(1, 2) for p in parts)
        q, k = rotate(q) * self.multiplier, rotate(k)
        k, v = (t.repeat_interleave(self.groups, 1) for t in (k, v))
        if self.manual:
            y = (q @ k.transpose(-2, -1) / self.dim**0.5).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(self.after(y.transpose(1, 2).flatten(2)))


def rotate(x):
    angle = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)[:, None]
    first, second = x.chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class GatedBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, packed=False, **kwargs):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        kind = PackedAttention if packed else Attention
        self.attention = kind(width, heads, kv_heads, **kwargs)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h):
        h = h + self.attention(self.norm1(h))
        x = self.norm2(h)
        return h + self.down(F.silu(self.gate(x)) * self.up(x))


class GPT(nn.Module):
    def __init__(self, width, depth, heads=2, kv_heads=1, tied=False, **kwargs):
        super().__init__()
        self.tokens = nn.Embedding(20, width)
        self.positions = nn.Parameter(0.02 * torch.randn(8, width))
        self.blocks = nn.ModuleList(
            GatedBlock(width, heads, kv_heads, **kwargs) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 20, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        h = self.tokens(tokens) + self.positions
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Separate(nn.Module):
    """Attention and an MLP whose sizes are axes of their own."""

    def __init__(self, width, depth, heads, head_size, ffn):
        super().__init__()
        inner = heads * head_size
        self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {name: nn.Linear(width, inner, bias=False) for name in "qkv"}
                | {"out": nn.Linear(inner, width, bias=False)}
                | {"up": nn.Linear(width, ffn), "down": nn.Linear(ffn, width)}
            )
            for _ in range(depth)
        )
        self.heads = heads

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            q, k, v = (block[n](x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for n in "qkv")
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + block["out"](mixed.transpose(1, 2).flatten(2))
            x = x + block["down"](torch.relu(block["up"](x)))
        return self.head(x)


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, last_relu):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.last_relu = last_relu
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        h = self.shortcut(x) if hasattr(self, "shortcut") else x
        h = h + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h) if self.last_relu else h


def resnet(width, depth, last_relu=True):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.Sequential(*(ConvBlock(width, width, last_relu) for _ in range(depth))),
        nn.Sequential(
            *(ConvBlock((1 + (i > 0)) * width, 2 * width, last_relu) for i in range(depth))
        ),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 4),
    )


class Encoder(nn.Module):
    def __init__(self, width, depth, norm_first=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, width // 8, 2 * width, batch_first=True, norm_first=norm_first
        )
        self.embed = nn.Linear(6, width)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


class OuterSum(nn.Module):
    """Branches in lists; the sums, and one norm a branch, in the parent."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        h = self.embed(x)
        for norm, branch in zip(self.norms, self.branches, strict=True):
            h = h + branch(norm(h))
        return self.head(h)


class Parallel(nn.Module):
    """Two branches side by side in a block."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, 1, 1)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h):
        x = self.norm(h)
        return h + self.attention(x) + self.down(torch.tanh(self.up(x)))


class ParallelNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.blocks = nn.Sequential(*(Parallel(width) for _ in range(depth)))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


class Recurrent(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.lstm = nn.LSTM(width, width, num_layers=depth, batch_first=True)
        self.head = nn.Linear(width, 20)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


class RowMajor(nn.Module):
    """A linear map kept as (in, out), as some libraries do."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * inputs**-0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


def row_major(width, depth):
    hidden = [m for _ in range(depth) for m in (RowMajor(width, width), nn.ReLU())]
    return nn.Sequential(RowMajor(6, width), nn.ReLU(), *hidden, RowMajor(width, 3))


class Scanned(nn.Module):
    """All layers in one tensor."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.inner = nn.Parameter(torch.randn(depth, width, width) * width**-0.5)
        self.outer = nn.Parameter(torch.randn(depth, width, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(depth, width))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        h = self.embed(x)
        for inner, outer, bias in zip(self.inner, self.outer, self.bias, strict=True):
            h = h + torch.relu(h @ inner + bias) @ outer
        return self.head(h)


class Lists(nn.Module):
    """Weights in parameter lists, as in a paper's formula."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.inner = nn.ParameterList(torch.randn(width, width) / width**0.5 for _ in range(depth))
        self.outer = nn.ParameterList(torch.randn(width, width) / width**0.5 for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        h = self.embed(x)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            h = h + torch.relu(h @ inner.T) @ outer.T
        return self.head(h)
