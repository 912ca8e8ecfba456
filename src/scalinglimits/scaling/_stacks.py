"""Blocks that repeat with depth, found by index in the names of two models of different depth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scalinglimits.scaling._builds import Snapshot
from scalinglimits.scaling._names import split_weight_norm

__all__ = ["Stack", "Stacks", "correspond", "find_stacks", "split_block"]

# Layers of torch.nn.LSTM and its kin are numbered within the name of a parameter.
_RECURRENT = re.compile(r"((?:weight|bias)_[ih][hr])_l(\d+)(_reverse)?$")

_LEAF = frozenset({"weight", "bias", ""})
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Stack:
    """Children of `prefix` that repeat with depth: their indices in a model."""

    prefix: str
    indices: tuple[int, ...]

    def split(self, name: str) -> tuple[int, str] | None:
        """Return the index and the rest of a name in this stack, None if it is outside."""
        found = split_block(name, self.prefix)
        return found if found is not None and found[0] in self.indices else None


@dataclass(frozen=True)
class Stacks:
    """All stacks of one model."""

    stacks: tuple[Stack, ...]

    def locate(self, name: str) -> tuple[Stack, int, str] | None:
        """Return stack, position in it and rest of the name; the outermost stack wins."""
        for stack in self.stacks:
            found = stack.split(name)
            if found is not None:
                return stack, stack.indices.index(found[0]), found[1]
        return None

    def numbers(self, name: str) -> bool:
        """Whether an index of a stack is part of the name, so that depth may shift it."""
        return any(split_block(name, stack.prefix) is not None for stack in self.stacks)

    def template(self, name: str) -> str:
        """Return the name with its block's index replaced by a star."""
        found = self.locate(name)
        return name if found is None else ".".join(_join(found[0].prefix, "*", found[2]))

    def get(self, prefix: str) -> Stack | None:
        return next((stack for stack in self.stacks if stack.prefix == prefix), None)


def find_stacks(one: Snapshot, other: Snapshot) -> tuple[Stacks, Stacks]:
    """Compare models of different depth and equal width; return the stacks of each."""
    found_one: list[Stack] = []
    found_other: list[Stack] = []
    for prefix in sorted(_prefixes(one.shapes) & _prefixes(other.shapes), key=len):
        if any(stack.split(prefix + ".x") for stack in found_one):
            continue  # inside a block already
        first, second = _children(one.shapes, prefix), _children(other.shapes, prefix)
        if len(first) == len(second):
            continue
        blocks = _blocks(first, second)
        found_one.append(Stack(prefix, blocks[0]))
        found_other.append(Stack(prefix, blocks[1]))
    return Stacks(tuple(found_one)), Stacks(tuple(found_other))


def correspond(
    target: Iterable[str], target_stacks: Stacks, base: Iterable[str], base_stacks: Stacks
) -> dict[str, str]:
    """Return, for each target name, the base parameter that it corresponds to.

    Blocks correspond by position (first to first, last to last), other parameters by order.
    """
    outside = [name for name in base if base_stacks.locate(name) is None]
    inside: dict[tuple[str, str], dict[int, str]] = {}
    for name in base:
        found = base_stacks.locate(name)
        if found is not None:
            inside.setdefault((found[0].prefix, found[2]), {})[found[1]] = name
    result: dict[str, str] = {}
    position = 0
    for name in target:
        found = target_stacks.locate(name)
        if found is None:
            if position >= len(outside):
                raise ValueError(f"`build` must repeat blocks only; base has nothing like `{name}`")
            result[name] = outside[position]
            position += 1
            continue
        stack, place, rest = found
        choices = inside.get((stack.prefix, rest))
        if not choices:
            raise ValueError(f"`base` must have a block with `{rest}` in `{stack.prefix}`")
        near = min(choices, key=lambda i, place=place: (abs(i - place), i))  # type: ignore[misc]
        result[name] = choices[near]
    if position != len(outside):
        raise ValueError(
            f"`build` must repeat blocks only; the target has nothing like `{outside[position]}`"
        )
    return result


def _blocks(
    first: dict[int, dict[str, tuple[int, ...]]], second: dict[int, dict[str, tuple[int, ...]]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    deeper, shallower = (first, second) if len(first) > len(second) else (second, first)
    shaped = _growing(deeper, shallower, lambda child: tuple(sorted(child.items())))
    growing: set[frozenset[str]] = set()
    if not shaped:
        named = _growing(deeper, shallower, lambda child: tuple(sorted(child)))
        growing = {frozenset(signature) for signature in named}
    else:
        growing = {frozenset(suffix for suffix, _ in signature) for signature in shaped}

    def belongs(child: dict[str, tuple[int, ...]]) -> bool:
        if tuple(sorted(child.items())) in shaped:
            return True
        # The first block of a stage may have a shortcut besides; a bare layer must match.
        composite = not {split_weight_norm(rest)[0] for rest in child} <= _LEAF
        return any((composite or not shaped) and names <= set(child) for names in growing)

    return (
        tuple(i for i, child in sorted(first.items()) if belongs(child)),
        tuple(i for i, child in sorted(second.items()) if belongs(child)),
    )


def _growing(deeper, shallower, signature) -> set[tuple]:  # type: ignore[no-untyped-def]
    more = Counter(signature(child) for child in deeper.values())
    more.subtract(signature(child) for child in shallower.values())
    return {key for key, count in more.items() if count > 0}


def _prefixes(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        parts = _dotted(name).split(".")
        found.update(".".join(parts[:i]) for i, part in enumerate(parts) if part.isdigit())
    return found


def _children(shapes: Shapes, prefix: str) -> dict[int, dict[str, tuple[int, ...]]]:
    children: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        found = split_block(name, prefix)
        if found is not None:
            children.setdefault(found[0], {})[found[1]] = shape
    return children


def split_block(name: str, prefix: str) -> tuple[int, str] | None:
    """Return the index that follows `prefix` in a name, and the rest of it; None without one."""
    name = _dotted(name)
    start = f"{prefix}." if prefix else ""
    if not name.startswith(start):
        return None
    index, _, rest = name[len(start) :].partition(".")
    return (int(index), rest) if index.isdigit() else None


def _dotted(name: str) -> str:
    path, dot, leaf = name.rpartition(".")
    found = _RECURRENT.match(leaf)
    if found is None:
        return name
    kind, index, reverse = found.groups()
    return f"{path}{dot}{index}.{kind}{reverse or ''}"


def _join(*parts: str) -> list[str]:
    return [part for part in parts if part]
