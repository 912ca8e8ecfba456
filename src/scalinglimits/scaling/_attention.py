r"""Attention: the head dimension at each size, and the parameters that take its multiplier.

Queries and keys of order-one entries that have learned to agree give a product of order
:math:`d_{head}`; models divide it by :math:`\sqrt{d_{head}}`. When heads grow, their products take
another factor :math:`c = \sqrt{d_{base}/d_{head}}`.

Parameters that make queries alone take it whole. Where queries, keys and values are parts of one
packed tensor, which has one learning rate,

.. math:: c\,\langle q, k\rangle = \langle \sqrt c\,q, \sqrt c\,k\rangle,
          \qquad O\,A\,v = (O/\sqrt c)\,A\,(\sqrt c\,v):

the packed tensor takes :math:`\sqrt c`, the weight :math:`O` behind the attention
:math:`1/\sqrt c`. As a function of the weights before absorption this is the same network.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from scalinglimits.scaling._bench import Bench
from scalinglimits.scaling._branches import last_affine
from scalinglimits.scaling._stacks import Stacks
from scalinglimits.scaling._trace import AttentionCall

__all__ = ["HeadSize", "find_queries", "head_sizes"]

_QUERIES, _KEYS = 0, 1
_TOLERANCE = 1e-9  # factors are powers of two, so that all but structure is exact


@dataclass(frozen=True)
class HeadSize:
    """One attention: its head dimension, and what it multiplies products by."""

    dim: int
    scale: float


def head_sizes(bench: Bench) -> list[HeadSize]:
    """Return the head dimensions of all attentions, in the order in which they run."""
    return [HeadSize(call.queries.shape[-1], call.scale) for call in bench.trace().attention]


def find_queries(bench: Bench, stacks: Stacks) -> dict[str, float] | None:
    """Return the parameters that take a multiplier c of all logits, each with its power of c.

    None if no parameters can. The power is 1 in those that make queries alone; ½ in those that
    queries and keys share, and then -½ in what multiplies the attention's output, if the values
    share them too.
    """
    calls: dict[tuple[frozenset[str], ...], list[AttentionCall]] = {}
    trace = bench.trace()
    before = 0
    for number, call in enumerate(trace.attention):
        near = [n for n, uses in trace.uses.items() if any(before < u <= call.when for u in uses)]
        before = call.when
        used = {stacks.template(name) for name in near}
        # One block stands for all that look like it, and for its own repetitions.
        ends = next((ends for ends in calls if used >= frozenset().union(*ends)), None)
        for names in (near, list(bench.parameters)):
            if ends is None or not any(ends):
                found = _ends(bench, number, names, trace.last_use)
                ends = tuple(frozenset(map(stacks.template, each)) for each in found)
        assert ends is not None
        if not any(ends):
            return None
        calls.setdefault(ends, []).append(call)
    powers: dict[str, float] = {}
    for (alone, shared), alike in calls.items():
        some = _powers(bench, stacks, trace.last_use, alike, alone, 1.0) or _powers(
            bench, stacks, trace.last_use, alike, shared, 0.5
        )
        if some is None:
            return None
        powers |= some
    return powers


def _ends(
    bench: Bench, number: int, names: list[str], order: dict[str, int]
) -> tuple[list[str], list[str]]:
    """Parameters that end in queries and that keys do not feel; those that both end in."""
    known: dict[frozenset[tuple[str, float]], list[torch.Tensor]] = {}

    def operands(factors: dict[str, float]) -> list[torch.Tensor]:
        key = frozenset(factors.items())
        if key not in known:
            with bench.scaled(factors):
                call = bench.trace(attentions=number + 1).attention[number]
            given = (call.queries, call.keys, call.values)
            known[key] = [x.detach().clone() for x in given if x is not None]
        return known[key]

    def last(operand: int, names: list[str]) -> list[str]:
        return last_affine(lambda factors: operands(factors)[operand], names, order)

    still = operands({})
    moved = {name: operands({name: 2.0}) for name in names}
    felt = [[n for n in names if not torch.equal(moved[n][i], x)] for i, x in enumerate(still)]
    alone = last(_QUERIES, [name for name in felt[_QUERIES] if name not in felt[_KEYS]])
    if alone and not operands(dict.fromkeys(alone, 0.0))[_QUERIES].any():
        return alone, []
    ends = [last(i, felt[i]) for i in range(len(still))]
    shared = set(ends[_QUERIES]) & set(ends[_KEYS])
    for others in ends:  # the biases of each, too
        if shared & set(others):
            shared |= set(others)
    return [], [name for name in names if name in shared]


def _powers(
    bench: Bench,
    stacks: Stacks,
    order: dict[str, int],
    calls: list[AttentionCall],
    templates: frozenset[str],
    power: float,
) -> dict[str, float] | None:
    """The powers by which parameters take a multiplier of these calls' logits; None if they cannot.

    They can if doubling them, and dividing the logits by what that makes of them, leaves all that
    lies behind the attention as it was.
    """
    if not templates:
        return None

    def members(chosen: Iterable[str], factor: float) -> dict[str, float]:
        return {n: factor for n in bench.parameters if stacks.template(n) in chosen}

    still = bench.results({})
    behind = bench.results({}, results={calls[-1].when: 2.0})
    seen = [i for i, (x, y) in enumerate(zip(still, behind, strict=True)) if not torch.equal(x, y)]
    undone = {call.product: 2.0 ** (-1 / power) for call in calls}

    def same(undoing: tuple[str, ...]) -> bool:
        factors = members(templates, 2.0) | members(undoing, 0.5)
        found = bench.results(factors, operands=undone)
        return all(_equal(found[i], still[i]) for i in seen)

    powers = members(templates, power)
    if not seen:  # nothing to judge by
        return powers if power == 1.0 else None
    if same(()):
        return powers
    if power == 1.0:
        return None
    later = sorted((n for n in order if order[n] > calls[-1].when), key=lambda n: order[n])
    for template in dict.fromkeys(map(stacks.template, later)):
        if template not in templates and same((template,)):
            return powers | members((template,), -power)
    return None


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= _TOLERANCE * other.abs().max())
