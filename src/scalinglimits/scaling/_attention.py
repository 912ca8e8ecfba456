r"""Attention: the head dimension at each size, and the parameters that end in the queries.

Queries and keys of order-one entries that have learned to agree give a product of order
:math:`d_{head}`; models divide it by :math:`\sqrt{d_{head}}`. When heads grow, the queries take
another factor :math:`\sqrt{d_{base}/d_{head}}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from scalinglimits.scaling._bench import Bench
from scalinglimits.scaling._branches import last_affine
from scalinglimits.scaling._stacks import Stacks

__all__ = ["HeadSize", "find_queries", "head_sizes"]


@dataclass(frozen=True)
class HeadSize:
    """One attention: its head dimension, and the scale it is given (None for 1/√d)."""

    dim: int
    scale: float | None = None

    @property
    def temperature(self) -> float:
        """What the model multiplies products of queries and keys by."""
        return self.scale if self.scale is not None else 1 / math.sqrt(self.dim)


def head_sizes(bench: Bench) -> list[HeadSize]:
    """Return the head dimensions of all attentions, in the order in which they run."""
    return [HeadSize(call.queries.shape[-1], call.scale) for call in bench.trace().attention]


def find_queries(bench: Bench, stacks: Stacks) -> set[str] | None:
    """Return the parameters to which a multiplier of all queries can be moved; None if none are.

    They are those in which the queries are affine, last of all, and that the keys do not feel.
    """
    trace = bench.trace()
    found: set[str] = set()
    known: dict[frozenset[str], set[str]] = {}
    before = 0
    for number, call in enumerate(trace.attention):
        near = [n for n, use in trace.last_use.items() if before < use <= call.when]
        before = call.when
        kind = frozenset(stacks.template(name) for name in near)
        if kind not in known:  # one block stands for all that look like it
            picked = _ends(bench, number, near, trace.last_use)
            if picked is None:
                picked = _ends(bench, number, list(bench.parameters), trace.last_use)
            if picked is None:
                return None
            known[kind] = {stacks.template(name) for name in picked}
        found |= {n for n in bench.parameters if stacks.template(n) in known[kind]}
    return found


def _ends(bench: Bench, number: int, names: list[str], order: dict[str, int]) -> list[str] | None:
    def operands(factors: dict[str, float]) -> tuple[torch.Tensor, torch.Tensor]:
        with bench.scaled(factors):
            call = bench.trace(attentions=number + 1).attention[number]
        return call.queries.detach().clone(), call.keys.detach().clone()

    queries, keys = operands({})
    own = []
    for name in names:
        moved, still = operands({name: 2.0})
        if not torch.equal(moved, queries) and torch.equal(still, keys):
            own.append(name)
    picked = last_affine(lambda factors: operands(factors)[0], own, order)
    if not picked or bool(operands(dict.fromkeys(picked, 0.0))[0].abs().max() > 0):
        return None
    return picked
