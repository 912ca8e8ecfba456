"""Names of repeated blocks: models of different depth match by pattern.

A stack is a place in the names of modules at which more depth means more indices: `blocks.0`,
`blocks.1`, …, or `layer_0`, `layer_1`, …. In a pattern its index is written `*`; other indices,
such as those of an MLP's layers, stay. A flat sequence has other layers ahead of its blocks and
behind them: their indices are those that they have in the shallow model.
"""

from __future__ import annotations

__all__ = ["Stacks", "stack_of"]

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

_INDEXED = re.compile(r"^(.*?)(\d+)$")


class Flat(NamedTuple):
    """A stack among other layers.

    Attributes:
        place: its pattern.
        before: number of layers with parameters ahead of the blocks.
        after: number of those behind.
        last: index of the last block in the shallow model.
    """

    place: str
    before: int
    after: int
    last: int


class _Run(NamedTuple):
    """The blocks of a flat stack in one model, and by how much what is behind has moved."""

    blocks: frozenset[int]
    shift: int


@dataclass(frozen=True)
class Stacks:
    """The stacks of a model.

    Attributes:
        places: patterns such as `blocks.*` or `encoder.layer_*`.
        flats: those among them that hold other layers, too.
    """

    places: frozenset[str] = frozenset()
    flats: tuple[Flat, ...] = ()
    _runs: tuple[tuple[str, _Run], ...] = ()

    @classmethod
    def find(
        cls, shallow: Mapping[str, tuple[int, ...]], deep: Mapping[str, tuple[int, ...]]
    ) -> Stacks:
        """Find the stacks by comparing a model with a deeper one.

        Args:
            shallow: shapes of a model's parameters, by name.
            deep: those of a deeper one.

        Returns:
            The places that have more indices in the deeper model, and equal blocks there (the first
            may differ, as where a stage changes its resolution), or equal blocks between layers
            that both models have.

        Example:
            >>> shallow, deep = {"h.0.mlp.0": (4, 4)}, {"h.0.mlp.0": (4, 4), "h.1.mlp.0": (4, 4)}
            >>> Stacks.find(shallow, deep).places
            frozenset({'h.*'})
        """
        places: frozenset[str] = frozenset()
        flats: list[Flat] = []
        # Stacks inside stacks are found once the outer index is written as *.
        for _ in range(4):
            few, many = _blocks(shallow, places), _blocks(deep, places)
            # A place that only new blocks have, such as their own MLP's layers, is no stack.
            grown = [p for p in many if p in few and len(many[p]) > len(few[p])]
            found = {place for place in grown if _alike(many[place])}
            for place in grown:
                flat = None if place in found else _flat(place, few[place], many[place])
                if flat is not None:
                    flats.append(flat)
                    found.add(place)
            if not found:
                break
            places |= found
        return cls(places, tuple(flats))

    def of(self, names: Iterable[str]) -> Stacks:
        """Return the same stacks for one model, whose depth tells which indices are blocks.

        Args:
            names: of the model's parameters.

        Returns:
            The stacks.

        Example:
            >>> shallow = {"0.w": (4, 2), "1.w": (4, 4), "2.w": (1, 4)}
            >>> deep = {"0.w": (4, 2), "1.w": (4, 4), "2.w": (4, 4), "3.w": (1, 4)}
            >>> stacks = Stacks.find(shallow, deep).of(deep)
            >>> [stacks.pattern(name) for name in deep]
            ['0.w', '*.w', '*.w', '2.w']
        """
        names, runs = list(names), []
        for flat in self.flats:
            child = re.compile(re.escape(flat.place[:-1]) + r"(\d+)(?:\.|$)")
            indices = sorted({int(match[1]) for match in map(child.match, names) if match})
            blocks = indices[flat.before : len(indices) - flat.after]
            if blocks:
                runs.append((flat.place, _Run(frozenset(blocks), blocks[-1] - flat.last)))
        return replace(self, _runs=tuple(runs))

    def pattern(self, name: str) -> str:
        """Return a name with the indices of stacks replaced by `*`.

        Args:
            name: of a module or parameter.

        Returns:
            The pattern.

        Example:
            >>> Stacks(frozenset({"h.*"})).pattern("h.11.mlp.0.weight")
            'h.*.mlp.0.weight'
        """
        return _pattern(self.places, self._runs, name)


def stack_of(pattern: str) -> str:
    """Return the stack that a pattern lies in.

    Args:
        pattern: of a module or parameter.

    Returns:
        The pattern up to its last `*`, or "".

    Example:
        >>> stack_of("blocks.*.mlp.0.weight")
        'blocks.*'
    """
    parts = pattern.split(".")
    last = max((i for i, part in enumerate(parts) if "*" in part), default=-1)
    return ".".join(parts[: last + 1])


@lru_cache(maxsize=100_000)
def _pattern(places: frozenset[str], runs: tuple[tuple[str, _Run], ...], name: str) -> str:
    done = ""
    for part in name.split("."):
        step = _starred(done, part)
        run = dict(runs).get(step)
        if run is not None:
            done = _joined(done, _in_run(part, run))
        else:
            done = step if step in places else _joined(done, part)
    return done


def _in_run(part: str, run: _Run) -> str:
    match = _INDEXED.match(part)
    if match is None:
        return part
    index = int(match[2])
    if index in run.blocks:
        return f"{match[1]}*"
    return f"{match[1]}{index - run.shift}" if index > max(run.blocks) else part


_Block = dict[str, tuple[int, ...]]


def _blocks(
    shapes: Mapping[str, tuple[int, ...]], places: frozenset[str]
) -> dict[str, dict[int, _Block]]:
    """At each place that is no stack yet: index to shapes by the rest of the name."""
    seen: dict[str, dict[int, _Block]] = {}
    for name, shape in shapes.items():
        done, parts = "", name.split(".")
        for position, part in enumerate(parts):
            match = _INDEXED.match(part)
            step = _starred(done, part)
            if match and step not in places:
                rest = ".".join(parts[position + 1 :])
                seen.setdefault(step, {}).setdefault(int(match[2]), {})[rest] = shape
            done = step if step in places else _joined(done, part)
    return seen


def _alike(blocks: dict[int, _Block]) -> bool:
    """Whether all blocks but perhaps the first have the same parameters."""
    _, second, *others = (blocks[index] for index in sorted(blocks))
    return all(other == second for other in others) and bool(second)


def _flat(place: str, few: dict[int, _Block], many: dict[int, _Block]) -> Flat | None:
    """A stack of equal blocks in a row, as many layers ahead of and behind it in both models."""
    if "*" in place[:-1]:
        return None

    def kind(block: _Block) -> frozenset[tuple[str, tuple[int, ...]]]:
        return frozenset(block.items())

    more = Counter(map(kind, many.values()))
    more.subtract(map(kind, few.values()))
    grown = [each for each, count in more.items() if count > 0]
    ends = []
    for blocks in (few, many):
        order = sorted(blocks)
        row = [position for position, i in enumerate(order) if [kind(blocks[i])] == grown]
        if not row or row != list(range(row[0], row[-1] + 1)):
            return None
        ends.append((row[0], len(order) - 1 - row[-1], order[row[-1]]))
    (before, after, last), (*around, _) = ends
    return Flat(place, before, after, last) if [before, after] == around else None


def _starred(done: str, part: str) -> str:
    match = _INDEXED.match(part)
    return _joined(done, f"{match[1]}*" if match else part)


def _joined(done: str, part: str) -> str:
    return f"{done}.{part}" if done else part
