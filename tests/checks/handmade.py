"""A scaling by hand, from shapes and lists of names: the twin of a plan, and a place for faults."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass(frozen=True)
class Multipliers:
    """Of one parameter, relative to the base model."""

    init: float = 1.0
    lr: float = 1.0
    eps: float = 1.0


@dataclass
class HandMade:
    """Adam with µP in width and branches of size depth^−alpha.

    `fault` takes pattern, the ratios of fan-in, fan-out and depth, and the right multipliers, and
    returns others.
    """

    build: Callable
    base: tuple[int, int]
    lr: float = 1e-3
    eps: float = 1e-8
    alpha: float = 1.0
    readouts: frozenset = frozenset({"head.weight"})
    embeddings: frozenset = frozenset({"embedding.weight"})
    queries: frozenset = frozenset()
    branch_outputs: frozenset = frozenset()
    fault: Callable | None = None
    _cache: dict = field(default_factory=dict)

    def __call__(self, model: nn.Module, width: int, depth: int, seed: int):
        base = self._base()
        ell = depth / self.base[1]
        generator = torch.Generator().manual_seed(seed)
        groups = []
        for name, p in model.named_parameters():
            pattern = re.sub(r"(blocks|stage1|stage2)\.\d+", r"\1.*", name)
            shape, mean, std = base[pattern]
            right = self._right(pattern, p, shape, ell)
            chosen = right
            if self.fault is not None:
                ratios = self._ratios(pattern, p.shape, shape)
                chosen = self.fault(pattern, *ratios, ell, right)
            with torch.no_grad():
                noise = torch.randn(p.shape, generator=generator) * std + mean
                p.copy_(noise * chosen.init)
            groups.append(
                {"params": [p], "lr": self.lr * chosen.lr, "eps": max(self.eps * chosen.eps, 1e-30)}
            )
        return groups

    def _base(self):
        if not self._cache:
            with torch.random.fork_rng([]):
                torch.manual_seed(0)
                model = self.build(*self.base)
            for name, p in model.named_parameters():
                pattern = re.sub(r"(blocks|stage1|stage2)\.\d+", r"\1.*", name)
                std = float(p.detach().std(correction=0)) if p.numel() > 1 else 0.0
                self._cache[pattern] = (p.shape, float(p.detach().mean()) if std == 0 else 0.0, std)
        return self._cache

    def _ratios(self, pattern, shape, base):
        if len(shape) < 2 or pattern in ("token", "positions"):
            return 1.0, shape[-1] / base[-1]
        if pattern in self.embeddings:
            return 1.0, shape[1] / base[1]
        return shape[1] / base[1], shape[0] / base[0]

    def _right(self, pattern, p, base, ell):
        r_in, r_out = self._ratios(pattern, p.shape, base)
        init, lr = r_in**-0.5, 1 / r_in
        if pattern in self.readouts:
            init = 1 / r_in
        grad = 1 / r_out
        if pattern in self.queries:
            c = r_in**-0.5
            init, lr, grad = init * c, lr * c, grad / c
        if "*" in pattern:
            lr *= ell ** (self.alpha - 1)
            grad *= ell**-self.alpha
            if pattern in self.branch_outputs:
                c = ell**-self.alpha
                init, lr, grad = init * c, lr * c, grad / c
        assert math.isfinite(init * lr * grad)
        return Multipliers(init, lr, grad)
