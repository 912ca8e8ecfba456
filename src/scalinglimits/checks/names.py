"""Names of repeated blocks: models of different depth match by pattern.

A stack is a place in the names of modules at which more depth means more indices: `blocks.0`,
`blocks.1`, …, or `layer_0`, `layer_1`, …. In a pattern its index is written `*`; other indices,
such as those of an MLP's layers, stay.
"""

from __future__ import annotations

__all__ = ["Stacks", "stack_of"]

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_INDEXED = re.compile(r"^(.*?)(\d+)$")


@dataclass(frozen=True)
class Stacks:
    """The stacks of a model.

    Attributes:
        places: patterns such as `blocks.*` or `encoder.layer_*`.
    """

    places: frozenset[str] = frozenset()

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
            may differ, as where a stage changes its resolution).

        Example:
            >>> shallow, deep = {"h.0.mlp.0": (4, 4)}, {"h.0.mlp.0": (4, 4), "h.1.mlp.0": (4, 4)}
            >>> Stacks.find(shallow, deep).places
            frozenset({'h.*'})
        """
        places: frozenset[str] = frozenset()
        # Stacks inside stacks are found once the outer index is written as *.
        for _ in range(4):
            few, many = _blocks(shallow, places), _blocks(deep, places)
            # A place that only new blocks have, such as their own MLP's layers, is no stack.
            found = {
                place
                for place in many
                if place in few and len(many[place]) > len(few[place]) and _alike(many[place])
            }
            if not found:
                break
            places |= found
        return cls(places)

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
        return _pattern(self.places, name)

    def block(self, name: str) -> str | None:
        """Return the block that a name lies in, or None.

        Args:
            name: of a module or parameter.

        Returns:
            The name of the outermost block: `h.11` for `h.11.mlp.0.weight`.
        """
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            head = ".".join(parts[:length])
            if self.pattern(head) in self.places:
                return head
        return None


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
def _pattern(places: frozenset[str], name: str) -> str:
    done = ""
    for part in name.split("."):
        step = _starred(done, part)
        done = step if step in places else _joined(done, part)
    return done


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


def _starred(done: str, part: str) -> str:
    match = _INDEXED.match(part)
    return _joined(done, f"{match[1]}*" if match else part)


def _joined(done: str, part: str) -> str:
    return f"{done}.{part}" if done else part
