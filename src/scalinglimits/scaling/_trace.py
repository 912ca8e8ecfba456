"""Runs that are watched or altered operation by operation: who uses what, and attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scalinglimits.scaling._factors import Factors

__all__ = ["Altered", "AttentionCall", "Operands", "Seen", "Trace"]

_VIEWS = {"t", "transpose", "permute", "view", "_unsafe_view", "expand", "unsqueeze", "detach"}
_VIEWS |= {"alias", "squeeze", "slice", "select", "clone", "_to_copy", "lift_fresh", "split"}
_ELEMENTWISE = {"add", "add_", "mul", "mul_", "exp", "sub", "div", "neg", "cat", "softplus"}
_ELEMENTWISE |= {"sigmoid", "tanh", "pow", "where"}


class Seen(Exception):
    """All that a run was for has been seen."""


@dataclass(frozen=True)
class AttentionCall:
    """The operands of one attention, what it multiplies their products by, and its place in time.

    Fused attention is one operation. Written out, it is a product of queries and keys (`product`
    counts the operations until then), a softmax (`when`) and a product with the values.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor | None
    scale: float
    product: int
    when: int


class Trace(TorchDispatchMode):
    """Operations by parameter, and the operands of attention."""

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], attentions: int | None = None
    ) -> None:
        super().__init__()
        self._enough = attentions
        self._names = {p.untyped_storage()._cdata: name for name, p in parameters.items()}
        self._strides = {name: (p.shape, p.stride()) for name, p in parameters.items()}
        self._count = 0
        self._copies: list[torch.Tensor] = []
        self._altered: set[int] = set()
        self._products: list[tuple[torch.Tensor, torch.Tensor, int, int]] = []
        self._weights: torch.Tensor | None = None
        self._factors = Factors()
        self.uses: dict[str, list[int]] = {}
        self.last_use: dict[str, int] = {}
        self.axes: dict[str, tuple[tuple[int, ...], tuple[int, ...]] | str] = {}
        self.operations: dict[str, set[str]] = {}
        self.attention: list[AttentionCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self._count += 1
        packet = func.overloadpacket.__name__
        tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
        for tensor in tensors:
            name = self._names.get(tensor.untyped_storage()._cdata)
            if name is not None:
                self.last_use[name] = self._count
                self.uses.setdefault(name, []).append(self._count)
                self.operations.setdefault(name, set()).add(packet)
                self._learn_axes(name, packet, tensor, tensors)
        out = func(*args, **kwargs)
        self._factors.follow(packet, args, kwargs, out)
        if packet in ("clone", "_to_copy"):
            self._follow(args[0], out)
        if packet in ("bmm", "baddbmm"):
            left, right = args[-2:]
            self._products.append((left, right, out.numel(), self._count))
            self._weigh(left, right)
        elif packet in ("_softmax", "_safe_softmax"):
            for left, right, size, when in self._products[-1:]:
                if size == args[0].numel():
                    scale = self._factors[args[0]]
                    call = AttentionCall(left, right, None, scale, when, self._count)
                    self.attention.append(call)
                    self._weights = out
        elif packet.startswith("_scaled_dot_product"):
            queries, keys, values = args[:3]
            scale = kwargs.get("scale") or queries.shape[-1] ** -0.5
            scale *= self._factors[queries] * self._factors[keys]
            call = AttentionCall(queries, keys, values, scale, self._count, self._count)
            self.attention.append(call)
            self._weights = None
        if len(self.attention) == self._enough and self._weights is None:
            raise Seen
        return out

    def _weigh(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """The values are what the softmax multiplies."""
        if self._weights is None or self._weights.numel() not in (left.numel(), right.numel()):
            return
        transposed = left.numel() != self._weights.numel() or _shares(right, self._weights)
        values = left if transposed else right
        self.attention[-1] = replace(self.attention[-1], values=values)
        self._weights = None

    def _follow(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """A copy of a whole parameter stands for it; of a part or a view, for no axis of it."""
        name = self._names.get(source.untyped_storage()._cdata)
        if name is not None:
            shape, strides = self._strides[name]
            self._names[copy.untyped_storage()._cdata] = name
            self._copies.append(copy)  # alive, so that its address is not used again
            if (copy.shape, copy.stride()) != (shape, strides):
                self._altered.add(copy.untyped_storage()._cdata)

    def _learn_axes(self, name: str, packet: str, view: torch.Tensor, tensors: list[Any]) -> None:
        if packet in _VIEWS or name in self.axes:
            return
        if packet in ("mm", "addmm", "bmm", "baddbmm"):
            if view.untyped_storage()._cdata in self._altered:
                return
            right = tensors[-1]
            contracted = view.ndim - 2 if view is right else view.ndim - 1
            shape, strides = self._strides[name]
            wanted = view.stride(contracted)
            inputs = tuple(i for i, s in enumerate(strides) if s == wanted and shape[i] > 1)
            batch = tuple(
                i
                for i, s in enumerate(strides)
                if view.ndim == 3 and s == view.stride(0) and view.shape[0] > 1
            )
            if len(inputs) == 1 and shape[inputs[0]] == view.shape[contracted]:
                outputs = tuple(i for i in range(len(shape)) if i not in (*inputs, *batch))
                self.axes[name] = (inputs, outputs)
        elif packet in _ELEMENTWISE:
            self.axes[name] = "vector"


class Altered(TorchDispatchMode):
    """Multiply the first operand of some operations, and the first result of some."""

    def __init__(self, operands: Mapping[int, float], results: Mapping[int, float]) -> None:
        super().__init__()
        self._operands, self._results = operands, results
        self._count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self._count += 1
        before, after = (side.get(self._count) for side in (self._operands, self._results))
        if before is not None:
            packet = func.overloadpacket.__name__
            place = len(args) - 2 if packet in ("bmm", "baddbmm") else 0
            args = (*args[:place], args[place] * before, *args[place + 1 :])
        out = func(*args, **(kwargs or {}))
        if after is not None:
            out = (out[0] * after, *out[1:]) if isinstance(out, tuple) else out * after
        return out


class Operands(TorchDispatchMode):
    """The first tensor that meets a parameter of each block."""

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], blocks: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__()
        self._all = {p.untyped_storage()._cdata for p in parameters.values()}
        self._blocks = {
            parameters[name].untyped_storage()._cdata: block
            for block, names in blocks.items()
            for name in names
        }
        self.found: list[tuple[str, torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
        owners = [self._blocks.get(t.untyped_storage()._cdata) for t in tensors]
        block = next((owner for owner in owners if owner is not None), None)
        others = [t for t in tensors if t.untyped_storage()._cdata not in self._all]
        others = [t for t in others if t.is_floating_point() and t.ndim > 1]
        if block is not None and others and block not in dict(self.found):
            self.found.append((block, others[0].detach().clone()))
            if len(self.found) == len(set(self._blocks.values())):
                raise Seen
        return func(*args, **(kwargs or {}))


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata
