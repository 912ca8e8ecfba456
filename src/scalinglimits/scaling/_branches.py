r"""Branch outputs of residual blocks, by trying: zero, keep and double each parameter.

A block maps the stream :math:`h` to :math:`h + \sum_j B_j`. It is affine in the last parameter
of a branch once the branches behind it are silent. So, from the last branch to the first:

1. the affine parameters are those with :math:`f(0) - 2f(p) + f(2p) = 0`;
2. of those that multiply one another, with a non-zero mixed second difference
   :math:`f(2p,2q) - f(2p,q) - f(p,2q) + f(p,q)`, the one used last is the branch's output;
3. zero these, and begin again, until the stream passes the block unchanged by its parameters;
4. of the zeroed, those without which it does so as well are no ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch

from scalinglimits.scaling._bench import Bench
from scalinglimits.scaling._stacks import Stacks

__all__ = ["find_branch_outputs", "last_affine"]

Function = Callable[[dict[str, float]], torch.Tensor]
# In float64: rounding is 1e-16 of the values, curvature of a generic function of order one.
_TOLERANCE = 1e-9
_LOCAL_STEP, _LOCAL_TOLERANCE = 1e-6, 2e-14


def find_branch_outputs(bench: Bench, stacks: Stacks) -> set[tuple[str, str]]:
    """Return (stack prefix, rest of the name) of each parameter that ends a branch."""
    members: dict[str, list[str]] = {}
    for name in bench.parameters:
        found = stacks.locate(name)
        if found is not None:
            stack, place, _ = found
            block = ".".join(x for x in (stack.prefix, str(stack.indices[place])) if x)
            members.setdefault(block, []).append(name)
    modules = {name for name, _ in bench.model.named_modules()}
    called = [name for name in members if name in modules and bench.inputs_of([name])]
    outputs: set[tuple[str, str]] = set()
    if called:
        outputs |= _search(bench, stacks, members, called, bench.inputs_of)
    # Parameters kept in lists are no modules: a block begins with the operand of its first use.
    listed = [name for name in members if name not in called]

    def operands(names: Sequence[str]) -> list[tuple[str, torch.Tensor]]:
        return bench.operands_of({name: members[name] for name in names})

    if listed:
        outputs |= _search(bench, stacks, members, listed, operands)
    return outputs


def _search(
    bench: Bench,
    stacks: Stacks,
    members: dict[str, list[str]],
    blocks: list[str],
    streams: Callable[[Sequence[str]], list[tuple[str, torch.Tensor]]],
) -> set[tuple[str, str]]:
    """Examine each kind of block once, by the stream that reaches the block after it."""
    order = bench.trace().last_use
    outputs: set[tuple[str, str]] = set()
    done: set[tuple[str, tuple[str, ...]]] = set()
    for here, following in pairwise([name for name, _ in streams(blocks)]):
        located = [stacks.locate(name) for name in members[here]]
        prefix = next(found[0].prefix for found in located if found)
        rests = tuple(sorted(found[2] for found in located if found))
        if (prefix, rests) in done:
            continue

        def stream(factors: dict[str, float], following: str = following) -> torch.Tensor:
            with bench.scaled(factors):
                return dict(streams([following]))[following]

        picked = _peel(stream, members[here], order)
        if picked:
            done.add((prefix, rests))
            outputs |= {(prefix, stacks.locate(name)[2]) for name in picked}  # type: ignore[index]
    return outputs


def last_affine(
    function: Function, names: Iterable[str], order: dict[str, int], zeroed: Sequence[str] = ()
) -> list[str]:
    """Return the parameters in which the function is affine and that no other one follows."""
    off = dict.fromkeys(zeroed, 0.0)
    affine = [name for name in names if name not in off and _is_affine(function, name, off)]
    return _lasts(function, affine, order, off, 2.0, _TOLERANCE)


def _peel(function: Function, names: list[str], order: dict[str, int]) -> list[str]:
    zeroed: list[str] = []
    for _ in range(len(names)):
        picked = last_affine(function, names, order, zeroed)
        if not picked:
            break
        zeroed += picked
        if _passes(function, names, zeroed):
            return _needed(function, names, zeroed)
    # A block that ends in a rectifier is affine in its branch only locally.
    picked = _locally_affine(function, names, order)
    return picked if picked and _passes(function, names, picked) else []


def _needed(function: Function, names: list[str], zeroed: list[str]) -> list[str]:
    """What silences the block; a gain 1 + w does not, though the block is affine in it."""
    needed = list(zeroed)
    for name in zeroed:
        others = [other for other in needed if other != name]
        if others and _passes(function, names, others):
            needed = others
    return needed


def _passes(function: Function, names: list[str], zeroed: list[str]) -> bool:
    """Whether the stream passes the block, whatever its other parameters are."""
    off = dict.fromkeys(zeroed, 0.0)
    quiet = function(off)
    others = {name: 1.0 + 0.3 * (i % 3 + 1) for i, name in enumerate(names) if name not in off}
    if not torch.isfinite(quiet).all() or quiet.std() <= _TOLERANCE * quiet.abs().max():
        return False
    return _small(function({**off, **others}) - quiet, quiet.abs().max())


def _is_affine(function: Function, name: str, off: dict[str, float]) -> bool:
    zero, one, two = (function({**off, name: factor}) for factor in (0.0, 1.0, 2.0))
    effect = (two - zero).abs().max()
    if not torch.isfinite(two - zero + one).all() or _small(two - zero, one.abs().max()):
        return False
    return _small(zero - 2 * one + two, torch.maximum(effect, one.abs().max()))


def _lasts(
    function: Function,
    affine: list[str],
    order: dict[str, int],
    off: dict[str, float],
    high: float,
    tolerance: float,
) -> list[str]:
    picked: list[str] = []
    for name in sorted(affine, key=lambda name: order.get(name, -1), reverse=True):
        if all(_separate(function, name, other, off, high, tolerance) for other in picked):
            picked.append(name)
    return picked


def _separate(
    function: Function, p: str, q: str, off: dict[str, float], high: float, tolerance: float
) -> bool:
    both, first = function({**off, p: high, q: high}), function({**off, p: high})
    second, neither = function({**off, q: high}), function(off)
    return _small(both - first - second + neither, neither.abs().max(), tolerance)


def _locally_affine(function: Function, names: list[str], order: dict[str, int]) -> list[str]:
    step = _LOCAL_STEP
    affine = []
    for name in names:
        low, one, high = (function({name: factor}) for factor in (1 - step, 1.0, 1 + step))
        size = one.abs().max()
        moved = (high - low).abs().max() > 1e-3 * step * size
        if moved and _small(low - 2 * one + high, size, _LOCAL_TOLERANCE):
            affine.append(name)
    return _lasts(function, affine, order, {}, 1 + 1e3 * step, 1e-9)


def _small(value: torch.Tensor, scale: torch.Tensor, tolerance: float = _TOLERANCE) -> bool:
    return bool(value.abs().max() <= tolerance * scale)
