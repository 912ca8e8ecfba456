"""The fans of a parameter, from the module that owns it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from scalinglimits.laws.fans import fans as fans_of_axes
from scalinglimits.scaling._names import split_weight_norm

__all__ = ["Use", "use_by_axes", "use_by_module"]

_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._NormBase,
    nn.LocalResponseNorm,
)
# Names by which modules that are linear maps keep their two sizes.
_SIZES = (("in_features", "out_features"), ("nx", "nf"))


@dataclass(frozen=True)
class Use:
    """How a parameter acts.

    Args:
        kind: ``"matrix"``, ``"embedding"``, ``"vector"``, ``"bias"``, ``"norm"`` or ``"unknown"``.
        fan_in: Terms summed into one output.
        fan_out: Outputs that feel one input; gradients shrink with it.
        part: ``"g"`` or ``"v"`` of a weight-normalised weight, otherwise empty.
    """

    kind: str
    fan_in: float = 1.0
    fan_out: float = 1.0
    part: str = ""


def use_by_module(model: nn.Module, name: str, shape: tuple[int, ...]) -> Use:
    """Return how the parameter acts, ``"unknown"`` when its owner does not say."""
    weight, part = split_weight_norm(name)
    path, _, leaf = weight.rpartition(".")
    owner = model.get_submodule(path)
    if part:
        whole = _use(owner, leaf, tuple(getattr(owner, leaf).shape))
        if part == "v" or whole.kind != "matrix":
            return Use(whole.kind, whole.fan_in, whole.fan_out, part)
        return Use("matrix", whole.fan_in, whole.fan_out, "g")
    return _use(owner, leaf, shape)


def use_by_axes(shape: tuple[int, ...], in_axes: Any, out_axes: Any) -> Use:
    """Return the use of a weight whose axes are known; other axes are copies."""
    rest = [
        i
        for i in range(len(shape))
        if i not in {a % len(shape) for a in (*_tuple(in_axes), *_tuple(out_axes))}
    ]
    fan_in, fan_out = fans_of_axes(shape, _tuple(in_axes), _tuple(out_axes), rest)
    return Use("matrix", fan_in, fan_out)


def _tuple(axes: Any) -> tuple[int, ...]:
    return tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)


def _use(owner: nn.Module, leaf: str, shape: tuple[int, ...]) -> Use:
    size = float(math.prod(shape))
    if isinstance(owner, _NORMS) or (_looks_like_norm(owner) and len(shape) <= 1):
        return Use("bias" if "bias" in leaf else "norm", 1.0, size)
    if len(shape) <= 1:
        return Use("bias" if "bias" in leaf else "vector", 1.0, size)
    for kind, rule in _OWNERS:
        if isinstance(owner, kind):
            return rule(owner, leaf, shape)
    for inputs, outputs in _SIZES:
        sizes = getattr(owner, inputs, None), getattr(owner, outputs, None)
        if leaf == "weight" and len(shape) == 2:
            if shape == (sizes[1], sizes[0]) and inputs != "nx":
                return Use("matrix", shape[1], shape[0])
            if shape == sizes:
                return Use("matrix", shape[0], shape[1])
    if leaf == "weight" and len(shape) == 2 and hasattr(owner, "nf") and shape[1] == owner.nf:
        return Use("matrix", shape[0], shape[1])
    return Use("unknown")


def _looks_like_norm(owner: nn.Module) -> bool:
    return "norm" in type(owner).__name__.lower()


def _linear(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    return Use("matrix", shape[1], shape[0])


def _convolution(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    field = math.prod(owner.kernel_size)
    per_group = owner.in_channels // owner.groups
    kind = "vector" if per_group == 1 and owner.groups > 1 else "matrix"
    return Use(kind, float(per_group * field), float(owner.out_channels * field))


def _embedding(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    return Use("embedding", 1.0, float(shape[-1]))


def _bilinear(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    return Use("matrix", float(shape[1] * shape[2]), float(shape[0]))


def _attention(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    if leaf.startswith("bias_"):
        return Use("vector", 1.0, float(shape[-1]))
    packed = 3 if leaf == "in_proj_weight" else 1
    return Use("matrix", float(shape[1]), shape[0] / packed)


def _recurrent(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    gates = {"LSTM": 4, "GRU": 3}.get(str(getattr(owner, "mode", "")), 1)
    return Use("matrix", float(shape[1]), shape[0] / (1 if "weight_hr" in leaf else gates))


def _cell(owner: Any, leaf: str, shape: tuple[int, ...]) -> Use:
    return Use("matrix", float(shape[1]), float(owner.hidden_size))


_OWNERS: tuple[tuple[Any, Callable[[Any, str, tuple[int, ...]], Use]], ...] = (
    (nn.Linear, _linear),
    (nn.modules.conv._ConvNd, _convolution),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    (nn.Bilinear, _bilinear),
    (nn.MultiheadAttention, _attention),
    (nn.RNNBase, _recurrent),
    (nn.RNNCellBase, _cell),
)
