"""The size of a head where attention is written out as a product, a softmax and a product."""

from __future__ import annotations

__all__ = ["head_size"]

from typing import Any

from torch import Tensor

# What may stand between the product of queries and keys and the softmax.
_ENTRIES = ("Add", "Clone", "Div", "MaskedFill", "Mul", "Sub", "Tanh", "ToCopy", "Where")
_VIEWS = ("Expand", "Permute", "Squeeze", "T", "Transpose", "UnsafeView", "Unsqueeze", "View")
_PRODUCTS = ("Bmm", "Baddbmm")


def head_size(logits: Tensor) -> int | None:
    """Return the number of terms in each product of a query and a key.

    Args:
        logits: what a softmax is given, as part of a graph of derivatives.

    Returns:
        The size; None if these are no products of two computed tensors.

    Example:
        >>> import torch
        >>> q, k = torch.ones(2, 3, 5, requires_grad=True) * 1.0, torch.ones(2, 3, 5) * 1.0
        >>> head_size(q @ k.mT / 5**0.5)
        5
    """
    nodes: list[Any] = [logits.grad_fn]
    seen: set[Any] = set()
    while nodes:
        node = nodes.pop(0)
        if node is None or node in seen:
            continue
        seen.add(node)
        if _kind(node) in _PRODUCTS:
            return None if any(_is_parameter(n) for n, _ in node.next_functions) else _terms(node)
        if _kind(node) in (*_ENTRIES, *_VIEWS):
            nodes += [n for n, _ in node.next_functions]
    return None


def _terms(product: Any) -> int | None:
    """The length of the axis that a product sums over, from the operand that it has kept."""
    names = ("_saved_self", "_saved_mat2", "_saved_batch1", "_saved_batch2")
    for name, axis in zip(names, (-1, -2, -1, -2), strict=True):
        operand = getattr(product, name, None)
        if isinstance(operand, Tensor):
            return int(operand.shape[axis])
    return None


def _is_parameter(node: Any) -> bool:
    while node is not None and _kind(node) in _VIEWS:
        node = node.next_functions[0][0]
    return hasattr(node, "variable")


def _kind(node: Any) -> str:
    return str(node.name()).partition("Backward")[0]
