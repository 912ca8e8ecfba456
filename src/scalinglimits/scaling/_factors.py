"""Numbers by which tensors are multiplied on their way from one product to the next.

Attention may divide queries, keys or their product by a power of the head dimension, at once or in
parts. What counts is the whole: a number belongs to each storage, one where a product with
parameters or any unknown operation made it, and is passed on by all that keeps proportions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

__all__ = ["Factors"]

_KEEPING = {"add", "add_", "sub", "sub_", "rsub", "neg", "where", "masked_fill", "masked_fill_"}
_KEEPING |= {"clone", "_to_copy", "copy_", "cat", "stack", "tanh", "repeat", "index", "roll"}
_KEEPING |= {"index_select", "constant_pad_nd"}


class Factors:
    """The number that belongs to each tensor of a run."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}

    def __getitem__(self, tensor: torch.Tensor) -> float:
        return self._known.get(tensor.untyped_storage()._cdata, 1.0)

    def follow(
        self, packet: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        """Learn the number of what an operation gives."""
        given = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        factor = self._of(packet, args, kwargs, given)
        shared = {x.untyped_storage()._cdata for x in given}
        for result in tree_leaves(out):
            if isinstance(result, torch.Tensor):
                key = result.untyped_storage()._cdata
                if key not in shared or packet.endswith("_"):  # else a view of what is known
                    self._known[key] = factor

    def _of(
        self,
        packet: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        given: list[torch.Tensor],
    ) -> float:
        if packet in ("mul", "mul_", "div", "div_"):
            whole, number = sorted(args[:2], key=_size, reverse=True)
            divides = packet.startswith("div")
            if not _is_number(number) or (divides and whole is not args[0]):
                return self._largest(given)
            factor = _value(number)
            return self[whole] / factor if divides else self[whole] * factor
        if packet in ("bmm", "baddbmm"):
            return self[args[-2]] * self[args[-1]] * float(kwargs.get("alpha", 1.0))
        return self._largest(given) if packet in _KEEPING else 1.0

    def _largest(self, given: list[torch.Tensor]) -> float:
        """The number of the largest tensor; of several, the one that is not one."""
        size = max((x.numel() for x in given), default=0)
        found = {self[x] for x in given if x.numel() == size} - {1.0}
        return min(found, default=1.0)


def _size(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.numel() == 1


def _value(number: Any) -> float:
    """The size of a number; one where it is not known, or zero."""
    if isinstance(number, torch.Tensor):
        number = 1.0 if number.is_meta else number.item()
    return abs(number) or 1.0
