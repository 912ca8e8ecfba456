"""The operations that take a parameter: what it contributes there, and what is summed over."""

from __future__ import annotations

__all__ = [
    "EMBEDDING",
    "SOFTMAX",
    "by_position",
    "contribution",
    "in_axis",
    "mapped",
    "operand",
    "row_length",
    "short_name",
    "tensors_among",
]

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import resolve_name

from scalinglimits.checks.tensors import HALF, find_tensors, full_precision, rms

_MATMUL = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm}
_RIGHT_MATMUL = {Tensor.__rmatmul__}
_ADDMM = {torch.addmm, Tensor.addmm}
_CONV = {F.conv1d, F.conv2d, F.conv3d, torch.conv1d, torch.conv2d, torch.conv3d}
_CONV_TRANSPOSE = {F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d}
EMBEDDING = {F.embedding, torch.embedding}
# Weight at position 1, bias at position 2, linear in the weight.
_LINEAR = {F.linear, *_CONV, *_CONV_TRANSPOSE}
# Linear in each tensor argument.
_MULTILINEAR = {*_MATMUL, *_RIGHT_MATMUL, *EMBEDDING, torch.einsum}
# Functions whose weights have the shape (out, in), gates or projections stacked along out.
_STACKED = ("lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward")
SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
# Arguments that may be given by name, in the order of their places.
_PLACES: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(_LINEAR, ("input", "weight", "bias")),
    **dict.fromkeys(SOFTMAX, ("input", "dim")),
    torch.matmul: ("input", "other"),
    torch.mm: ("input", "mat2"),
    torch.addmm: ("input", "mat1", "mat2"),
    Tensor.matmul: ("self", "other"),
    Tensor.mm: ("self", "mat2"),
    Tensor.addmm: ("self", "mat1", "mat2"),
    Tensor.softmax: ("self", "dim"),
    F.embedding: ("input", "weight"),
    torch.embedding: ("weight", "indices"),
    F.scaled_dot_product_attention: ("query", "key", "value"),
}
_ROWS = 8


def by_position(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments of a call, those that have a known place at their place."""
    if not kwargs or func not in _PLACES:
        return args, kwargs
    placed, named = list(args), dict(kwargs)
    for name in _PLACES[func][len(args) :]:
        if name not in named:
            break
        placed.append(named.pop(name))
    return tuple(placed), named


def contribution(
    func: Any, args: Any, kwargs: Mapping[str, Any], tensor: Tensor, delta: Tensor
) -> Tensor | None:
    """Return the root mean square of the change of a result.

    Args:
        func: the operation.
        args: its arguments, as :func:`by_position` gives them.
        kwargs: those that have no place.
        tensor: the one among them that changes.
        delta: by how much.

    Returns:
        The change; None if the result has none or one entry.
    """
    if func in _LINEAR and len(args) >= 2:
        if tensor is args[1]:
            x = _thinned(args[0].detach()) if func is F.linear else args[0].detach()
            x, w = _same_precision(x, delta)
            with full_precision(x):
                return rms(func(x, w, None, *args[3:], **kwargs))
        if len(args) > 2 and tensor is args[2]:
            return rms(delta)
    if func in _MULTILINEAR:

        def single(t: Tensor) -> Tensor:
            t = delta if t is tensor else t.detach()
            return t.float() if t.dtype in HALF else t

        with full_precision(tensor):
            return _sizeable(func(*mapped(args, single), **mapped(kwargs, single)))
    return _difference(func, args, kwargs, tensor, tensor.detach() - delta)


def in_axis(func: Any, args: Any, tensor: Tensor) -> int | None:
    """Return the axis of a weight that an operation sums over."""
    if func is F.linear or func in _CONV:
        return 1 if len(args) > 1 and tensor is args[1] else None
    if func in _CONV_TRANSPOSE:
        return 0 if len(args) > 1 and tensor is args[1] else None
    if func in EMBEDDING:
        return 0
    if func in _MATMUL and tensor.ndim >= 2:
        return tensor.ndim - 2 if tensor is args[1] else tensor.ndim - 1
    if short_name(func) in _STACKED and tensor.ndim == 2:
        return 1
    if func in _ADDMM and len(args) > 2 and tensor is args[2]:
        return 0
    return None


def operand(func: Any, args: Any, tensor: Tensor) -> Tensor | None:
    """Return what a weight is applied to; None if the operation is no such product."""
    if func in (F.linear, *_CONV, *_CONV_TRANSPOSE) and len(args) > 1 and tensor is args[1]:
        return _thinned(args[0].detach()) if func is F.linear else args[0].detach()
    if func in _MATMUL:
        return (args[0] if tensor is args[1] else args[1]).detach()
    if func in _ADDMM and len(args) > 2 and tensor is args[2]:
        return args[1].detach()
    return None


def row_length(func: Any, delta: Tensor, axis: int | None) -> Tensor | None:
    """Return the root mean square length of a change's rows, each summed over for one output."""
    if axis is None or delta.ndim < 2 or func in _CONV_TRANSPOSE:
        return None
    if delta.ndim > 2 and func not in _CONV:
        return None
    return rms(delta) * (delta.numel() / delta.shape[1 - axis]) ** 0.5


@lru_cache(maxsize=1000)
def short_name(func: Any) -> str:
    """Return the name of an operation, without its path."""
    name = resolve_name(func) or getattr(func, "__name__", "function")
    return name.rsplit(".", 1)[-1].strip("_")


def tensors_among(values: Any) -> list[Tensor]:
    """Return the tensors among the arguments, and in lists among them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_among(value)
    return found


def mapped(values: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the arguments with each tensor changed, also in lists and dictionaries among them."""
    if isinstance(values, Tensor):
        return change(values)
    if isinstance(values, dict):
        return {key: mapped(value, change) for key, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(mapped(value, change) for value in values)
    return values


def _difference(
    func: Any, args: Any, kwargs: Any, tensor: Tensor, reference: Tensor
) -> Tensor | None:
    """The change by evaluating twice in float64, with the same random numbers."""
    values = []
    devices = [tensor.device] if tensor.device.type == "cuda" else []
    for value in (tensor.detach(), reference):

        def double(t: Tensor, value: Tensor = value) -> Tensor:
            chosen = value if t is tensor else t.detach()
            # A copy: the function may write into its arguments.
            return chosen.to(torch.float64 if t.is_floating_point() else t.dtype, copy=True)

        with torch.random.fork_rng(devices):
            out = func(*mapped(args, double), **mapped(kwargs, double))
        values.append(next(find_tensors(out), None))
    now, before = values
    if now is None or before is None or now.shape != before.shape:
        return None
    return _sizeable(now - before)


def _sizeable(change: Tensor) -> Tensor | None:
    value = rms(change).float()
    return value if change.numel() > 1 and bool(torch.isfinite(value)) else None


def _thinned(x: Tensor) -> Tensor:
    """At most eight evenly spread rows: enough for a root mean square over rows and features."""
    rows = x.reshape(-1, x.shape[-1])
    return rows[:: -(-len(rows) // _ROWS)] if len(rows) > _ROWS else rows


def _same_precision(x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """Half precision would round a small change away."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, delta.dtype), torch.float32)
    return x.to(dtype), delta.to(dtype)
