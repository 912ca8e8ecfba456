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
    return [HeadSize(q.shape[-1], scale) for q, _, scale in bench.trace().attention]


def find_queries(bench: Bench) -> list[str] | None:
    """Return the parameters to which a multiplier of all queries can be moved; None if none are.

    They are those in which the queries are affine, last of all, and that the keys do not feel.
    """
    first = bench.trace()
    found: list[str] = []
    for call in range(len(first.attention)):

        def queries(factors: dict[str, float], call: int = call) -> torch.Tensor:
            with bench.scaled(factors):
                return bench.trace().attention[call][0].detach().clone()

        def keys(factors: dict[str, float], call: int = call) -> torch.Tensor:
            with bench.scaled(factors):
                return bench.trace().attention[call][1].detach().clone()

        still, moving = keys({}), queries({})
        names = [
            name
            for name in bench.parameters
            if not torch.equal(queries({name: 2.0}), moving)
            and torch.equal(keys({name: 2.0}), still)
        ]
        picked = last_affine(queries, names, first.last_use)
        if not picked or bool(queries(dict.fromkeys(picked, 0.0)).abs().max() > 0):
            return None
        found += [name for name in picked if name not in found]
    return found
