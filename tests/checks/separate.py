"""A transformer whose sizes are axes of their own."""

import torch
from torch import nn
from torch.nn import functional as F

GENERATOR = torch.Generator().manual_seed(0)
BATCH = (
    torch.randn(2, 6, 4, generator=GENERATOR),
    torch.randint(3, (2, 6), generator=GENERATOR),
)


class Attention(nn.Module):
    def __init__(self, width, heads, head_size):
        super().__init__()
        self.heads, inner = heads, heads * head_size
        self.q, self.k, self.v = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, head_size, ffn):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, head_size)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Its inputs are real numbers, its outputs three classes at each position."""

    def __init__(self, width, depth, heads=4, head_size=8, ffn=64):
        super().__init__()
        self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList(Block(width, heads, head_size, ffn) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def step(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())
