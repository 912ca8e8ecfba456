"""Names of repeated blocks: models of different depth match by pattern.

A stack is a place in the names of modules at which more depth means more indices: `blocks.0`,
`blocks.1`, …, or `layer_0`, `layer_1`, …. In a pattern its index is written `*`; other indices,
such as those of an MLP's layers, stay.
"""

from __future__ import annotations

__all__ = ["Stacks"]

import re
from collections.abc import Iterable
from dataclasses import dataclass

_INDEXED = re.compile(r"^(.*?)(\d+)$")


@dataclass(frozen=True)
class Stacks:
    """The stacks of a model.

    Attributes:
        places: patterns such as `blocks.*` or `encoder.layer_*`.
    """

    places: frozenset[str] = frozenset()

    @classmethod
    def find(cls, shallow: Iterable[str], deep: Iterable[str]) -> Stacks:
        """Find the stacks by comparing a model with a deeper one.

        Args:
            shallow: names of the modules and parameters of a model.
            deep: those of a deeper one.

        Returns:
            The places that have more indices in the deeper model.

        Example:
            >>> Stacks.find(["h.0.mlp.0", "h.0.mlp.1"], ["h.0.mlp.0", "h.1.mlp.1"]).places
            frozenset({'h.*'})
        """
        shallow, deep = list(shallow), list(deep)
        places: frozenset[str] = frozenset()
        # Stacks inside stacks are found once the outer index is written as *.
        for _ in range(4):
            few, many = _indices(shallow, places), _indices(deep, places)
            # A place that only new blocks have, such as their own MLP's layers, is no stack.
            found = {place for place in many if place in few and len(many[place]) > len(few[place])}
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
        done = ""
        for part in name.split("."):
            step = _starred(done, part)
            done = step if step in self.places else _joined(done, part)
        return done

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


def _indices(names: Iterable[str], places: frozenset[str]) -> dict[str, set[str]]:
    """Indices seen at each place that is no stack yet."""
    stacks = Stacks(places)
    seen: dict[str, set[str]] = {}
    for name in names:
        done = ""
        for part in name.split("."):
            match = _INDEXED.match(part)
            step = _starred(done, part)
            if match and step not in places:
                seen.setdefault(step, set()).add(match[2])
            done = stacks.pattern(_joined(done, part)) if step not in places else step
    return seen


def _starred(done: str, part: str) -> str:
    match = _INDEXED.match(part)
    return _joined(done, f"{match[1]}*" if match else part)


def _joined(done: str, part: str) -> str:
    return f"{done}.{part}" if done else part
