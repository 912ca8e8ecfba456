"""What each parameter of a layer is: a map with two fans, or a constant.

The table knows the layers of :mod:`torch.nn` and the `Conv1D` of Hugging Face transformers,
which stores its weight transposed. Any other layer must be declared by `Axes`: a guess from a
bare shape is right for a dense layer and wrong for most others.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from scalinglimits.init.axes import Axes
from scalinglimits.laws.fans import Fans

__all__ = ["Constant", "layer_axes", "layer_fans", "parameter_role"]

_DENSE = Axes(in_axis=1, out_axis=0)
_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
_CELLS = ((nn.RNNCell, 1), (nn.GRUCell, 3), (nn.LSTMCell, 4))
_NORMS = tuple(
    getattr(nn, name)
    for name in (
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "BatchNorm1d",
        "BatchNorm2d",
        "BatchNorm3d",
        "SyncBatchNorm",
        "InstanceNorm1d",
        "InstanceNorm2d",
        "InstanceNorm3d",
    )
)
_DECLARE = (
    "declare it, for example axes=Axes(in_axis=1, out_axis=0) for a weight of shape "
    "(outputs, inputs)"
)


@dataclass(frozen=True)
class Constant:
    """A parameter that starts as a constant; None leaves it as its layer made it."""

    value: float | None


def layer_fans(module: nn.Module, name: str = "weight", *, axes: Axes | None = None) -> Fans:
    """Return the fans of a layer's weight.

    Fan-in is the mean number of terms summed into one output element, fan-out the mean number
    of output elements that one input element feeds, borders ignored. So groups, strides,
    transposed storage and packed projections count as they act: the result is that of each
    projection or gate where the weight is packed, and an embedding, whose input is an index,
    has fan-in one.

    Args:
        module: The layer.
        name: The name of its weight.
        axes: The meaning of the weight's axes, for a layer that is not known or is packed in a
            way that the layer cannot show.

    Returns:
        The two fans.

    Raises:
        TypeError: If ``module`` is not a module or ``axes`` is not an `Axes`.
        ValueError: If the layer has no such weight, is not known, has no shape yet, or the
            parameter is a bias or a scale and so has no fans.

    Example:
        >>> layer_fans(nn.ConvTranspose2d(8, 32, 4, stride=2))
        Fans(fan_in=32.0, fan_out=512.0)
        >>> layer_fans(nn.MultiheadAttention(512, 8), "in_proj_weight")
        Fans(fan_in=512.0, fan_out=512.0)
        >>> layer_fans(nn.Linear(64, 192), axes=Axes(blocks=3))  # queries, keys, values
        Fans(fan_in=64.0, fan_out=64.0)
    """
    known = layer_axes(module, name) if axes is None else axes
    if not isinstance(known, Axes):
        raise TypeError(f"`axes` must be an Axes; got {axes!r}")
    return known.fans(_weight_shape(module, name))


def layer_axes(module: nn.Module, name: str = "weight") -> Axes:
    """Return the meaning of the axes of a layer's weight.

    Args:
        module: The layer.
        name: The name of its weight.

    Returns:
        The axes.

    Raises:
        TypeError: If ``module`` is not a module.
        ValueError: If the layer has no such weight, is not known, or the parameter is a bias
            or a scale and so has no fans.

    Example:
        >>> layer_axes(nn.LSTM(32, 48), "weight_ih_l0").blocks
        4
    """
    _weight_shape(module, name)
    role = parameter_role(module, name)
    kind = type(module).__name__
    if role is None:
        raise ValueError(f"`module` must be a known layer; got {kind} with {name!r}: {_DECLARE}")
    if isinstance(role, Constant):
        raise ValueError(
            f"`name` must be a weight with fans; got {name!r} of {kind}, which has none"
        )
    return role


def parameter_role(module: nn.Module, name: str) -> Axes | Constant | None:
    """Return what a parameter of a layer is, or None if the layer is not known.

    Args:
        module: The layer.
        name: The parameter's name in it.

    Returns:
        The axes of a weight, the constant of a bias or scale, or None.
    """
    if isinstance(module, nn.RNNBase):
        return _recurrent(name, _GATES.get(module.mode))
    for cell, gates in _CELLS:
        if isinstance(module, cell):
            return _recurrent(name, gates)
    if isinstance(module, nn.MultiheadAttention):
        return _attention(name)
    if isinstance(module, _NORMS):
        return {"weight": Constant(1.0), "bias": Constant(0.0)}.get(name)
    if isinstance(module, nn.PReLU):
        return Constant(None) if name == "weight" else None
    if name == "bias" and isinstance(module, (nn.Linear, nn.Bilinear, *_CONVS, *_TRANSPOSED)):
        return Constant(0.0)
    if name == "bias" and _is_transposed_dense(module):
        return Constant(0.0)
    return _weight_axes(module) if name == "weight" else None


def _weight_axes(module: nn.Module) -> Axes | None:
    if isinstance(module, nn.Linear):
        return _DENSE
    if isinstance(module, nn.Bilinear):  # its input elements are the products x1_i x2_j
        return Axes(in_axis=(1, 2), out_axis=0)
    if isinstance(module, _CONVS):
        share = 1.0 / math.prod(module.stride)
        return Axes(in_axis=1, out_axis=0, blocks=module.groups, block_axis=0, out_share=share)
    if isinstance(module, _TRANSPOSED):
        share = 1.0 / math.prod(module.stride)
        return Axes(in_axis=0, out_axis=1, blocks=module.groups, block_axis=0, in_share=share)
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Axes(in_axis=(), out_axis=1, batch_axis=0)
    if _is_transposed_dense(module):
        return Axes(in_axis=0, out_axis=1)
    return None


def _recurrent(name: str, gates: int | None) -> Axes | Constant | None:
    if gates is None:
        return None
    if re.fullmatch(r"bias_(ih|hh)(_l\d+(_reverse)?)?", name):
        return Constant(0.0)
    if re.fullmatch(r"weight_(ih|hh)(_l\d+(_reverse)?)?", name):
        return Axes(in_axis=1, out_axis=0, blocks=gates, block_axis=0)
    if re.fullmatch(r"weight_hr_l\d+(_reverse)?", name):
        return _DENSE
    return None


def _attention(name: str) -> Axes | Constant | None:
    if name == "in_proj_weight":
        return Axes(in_axis=1, out_axis=0, blocks=3, block_axis=0)
    if name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        return _DENSE
    if name in ("in_proj_bias", "bias_k", "bias_v"):
        return Constant(0.0)
    return None


def _is_transposed_dense(module: nn.Module) -> bool:
    """Whether this is Hugging Face's Conv1D: y = x W + b with W of shape (inputs, outputs)."""
    named = any(kind.__name__ == "Conv1D" for kind in type(module).__mro__)
    weight = getattr(module, "weight", None)
    outputs = getattr(module, "nf", None)
    return named and isinstance(weight, torch.Tensor) and weight.shape[1:] == (outputs,)


def _weight_shape(module: nn.Module, name: str) -> tuple[int, ...]:
    if not isinstance(module, nn.Module):
        raise TypeError(f"`module` must be a torch.nn.Module; got {type(module).__name__}")
    kind = type(module).__name__
    if parametrize.is_parametrized(module, name):
        # On a copy: a parametrisation such as spectral_norm moves on when it is evaluated.
        return tuple(getattr(copy.deepcopy(module), name).shape)
    known = dict(module.named_parameters(recurse=False))
    if name not in known:
        own = ", ".join(known) or "no parameter"
        if f"{name}_v" in known or f"{name}_orig" in known:
            raise ValueError(
                f"`module` must use torch.nn.utils.parametrizations, whose weights keep their "
                f"name; got {kind} with {own}"
            )
        raise ValueError(f"`name` must be a parameter of {kind}, which has {own}; got {name!r}")
    if is_lazy(known[name]):
        raise ValueError(f"`module` must have a shape: run a lazy module once first; got {module}")
    return tuple(known[name].shape)
