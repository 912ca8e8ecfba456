r"""Initialisation of a stack of layers whose weights are correlated across depth.

The same coordinate of layers 1, …, L is one random sequence of variance scale/N: independent,
increments of fractional Brownian motion, or a smooth process. That decides whether a residual
network has a stochastic or an ordinary differential equation for its limit.

Reference:
    "Scaling ResNets in the Large-depth Regime", section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import nn

from scalinglimits.init import _draws
from scalinglimits.init._checks import (
    check_mode,
    check_scale,
    check_tensor,
    resolve_seed,
    warn_underflow,
)
from scalinglimits.init._plan import Entry, collect, resolve_axes
from scalinglimits.init._shards import open_region
from scalinglimits.init.axes import Axes
from scalinglimits.laws import DepthLaw
from scalinglimits.laws.fans import average_fan
from scalinglimits.laws.streams import derive_seed, substream

__all__ = ["depth_stack_"]


def depth_stack_(
    layers: nn.Module | Sequence[torch.Tensor],
    law: DepthLaw,
    scale: float = 1.0,
    mode: str = "fan_in",
    *,
    axes: Axes | Mapping[str, Axes] | None = None,
    blocks: str | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
) -> pd.DataFrame:
    r"""Fill the same weight of consecutive layers with one law across depth.

    Args:
        layers: The weights of layers 1, …, L, of one shape; or a model, of which each weight of
            ``blocks.0``, …, ``blocks.L-1`` is filled, and no bias, scale or other layer.
        law: The law of one weight followed through the layers.
        scale: The factor of the variance scale/N.
        mode: Which average N of the fans, as in `variance_scaling_`.
        axes: The meaning of the tensors' axes; for a model a mapping from patterns of names, as
            in `initialize_`.
        blocks: The path of the container of blocks in the model; by default the only container
            of two or more blocks with the same parameters.
        seed: A seed that gives the same weights on every device.
        generator: A generator, which moves on by one number. With neither, PyTorch's default
            generator seeds the draw.

    Returns:
        A table with one row for each weight: ``stack``, ``layer`` (from 0), ``name``,
        ``shape``, ``fan_in``, ``fan_out`` and ``std``.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If the tensors differ in shape or type, the container is not found or not
            unique, or its blocks differ.

    Example:
        >>> from scalinglimits.laws import SmoothProcess
        >>> weights = [torch.empty(64, 64) for _ in range(100)]
        >>> _ = depth_stack_(weights, SmoothProcess(length_scale=0.1), seed=0)
        >>> step = (weights[1] - weights[0]).std() / weights[0].std()
        >>> bool(step < 0.11)
        True
    """
    if not isinstance(law, DepthLaw):
        raise TypeError(f"`law` must be a DepthLaw; got {law!r}")
    scale, mode = check_scale("scale", scale), check_mode(mode)
    if isinstance(layers, nn.Module):
        if isinstance(axes, Axes):
            raise TypeError(f"`axes` must map patterns of names to Axes for a model; got {axes!r}")
        stacks = _model_stacks(layers, blocks, axes)
    else:
        if blocks is not None:
            raise ValueError(f"`blocks` must be None for a list of tensors; got {blocks!r}")
        if axes is not None and not isinstance(axes, Axes):
            raise TypeError(f"`axes` must be an Axes for a list of tensors; got {axes!r}")
        stacks = {"": _tensor_stack(layers, axes or Axes())}
    plan = [(name, stack, _deviation(name, stack, scale, mode)) for name, stack in stacks.items()]
    tensors = [tensor for stack in stacks.values() for _, tensor, _ in stack]
    root, device = resolve_seed(seed, generator, tensors)
    rows: list[dict[str, Any]] = []
    for name, stack, std in plan:
        warn_underflow(name or "depth_stack_", std, stack[0][1].dtype)
        _fill([tensor for _, tensor, _ in stack], law, std, derive_seed(root, name), device)
        for depth, (full, tensor, meaning) in enumerate(stack):
            fan_in, fan_out = meaning.fans(tensor.shape)
            rows.append(
                {
                    "stack": name,
                    "layer": depth,
                    "name": full,
                    "shape": tuple(tensor.shape),
                    "fan_in": fan_in,
                    "fan_out": fan_out,
                    "std": std,
                }
            )
    return pd.DataFrame(rows)


_Stack = list[tuple[str, torch.Tensor, Axes]]


def _fill(
    tensors: list[torch.Tensor], law: DepthLaw, std: float, seed: int, device: torch.device | None
) -> None:
    """Draw all layers of a block of coordinates at a time."""
    first = tensors[0]
    if first.is_meta or first.numel() == 0:
        return
    regions = [open_region(tensor) for tensor in tensors]
    local = regions[0].local
    device = local.device if device is None else device
    dtype = _draws.working_dtype(local.dtype)
    length, rest = regions[0].shape[0], regions[0].shape[1:]
    step = max(1, _draws.BLOCK // (math.prod(rest) * len(tensors)))
    with torch.no_grad():
        for block, start in enumerate(range(0, length, step)):
            stop = min(start + step, length)
            if not any(region.holds_rows(start, stop) for region in regions):
                continue
            stream = substream(seed, "block", block, device=device)
            values = law.sample(len(tensors), (stop - start, *rest), stream, dtype=dtype)
            values *= std
            for region, rows in zip(regions, values, strict=True):
                region.write_rows(rows, start)


def _deviation(name: str, stack: _Stack, scale: float, mode: str) -> float:
    _, tensor, axes = stack[0]
    if tensor.numel() == 0:
        return math.nan
    try:
        return math.sqrt(scale / average_fan(*axes.fans(tensor.shape), mode))
    except ValueError as error:
        raise ValueError(f"{name or 'layers'}, shape {tuple(tensor.shape)}: {error}") from error


def _tensor_stack(tensors: Sequence[torch.Tensor], axes: Axes) -> _Stack:
    if not isinstance(tensors, Sequence) or isinstance(tensors, str):
        kind = type(tensors).__name__
        raise TypeError(f"`layers` must be a module or a sequence of tensors; got {kind}")
    if not tensors:
        raise ValueError("`layers` must have at least one tensor; got none")
    stack = [
        (str(i), check_tensor(f"layers[{i}]", tensor), axes) for i, tensor in enumerate(tensors)
    ]
    _check_alike(stack)
    return stack


def _check_alike(stack: _Stack) -> None:
    _, first, _ = stack[0]
    for name, tensor, _ in stack:
        got = (tuple(tensor.shape), tensor.dtype, tensor.device)
        if got != (tuple(first.shape), first.dtype, first.device):
            raise ValueError(
                f"`layers` must have one shape, type and device; got {tuple(first.shape)}, "
                f"{first.dtype}, {first.device} and, in {name}, {got[0]}, {got[1]}, {got[2]}"
            )


def _model_stacks(
    model: nn.Module, blocks: str | None, declared: Mapping[str, Axes] | None
) -> dict[str, _Stack]:
    entries = collect(model)
    by_name = {name: entry for entry in entries for name in entry.names}
    path = _find_blocks(model, by_name) if blocks is None else blocks
    prefix = f"{path}." if path else ""
    layers = _layers_of(by_name, prefix)
    if not layers or sorted(layers) != list(range(len(layers))):
        raise ValueError(
            f"`blocks` must be the path of a container with blocks 0, 1, …; got {path!r} with "
            f"blocks {sorted(layers)}"
        )
    if any(set(layers[i]) != set(layers[0]) for i in layers):
        raise ValueError(f"`blocks` must have blocks with the same parameters; got {path!r}")
    inside: dict[str, Entry] = {
        entry.name: entry for layer in layers.values() for entry in layer.values()
    }
    resolve_axes(list(inside.values()), declared)
    stacks: dict[str, _Stack] = {}
    for rest in layers[0]:
        column = [layers[depth][rest] for depth in range(len(layers))]
        name = f"{prefix}*.{rest}"
        if len({bool(entry.axes) for entry in column}) > 1:
            raise ValueError(f"`blocks` must have blocks alike; {name} is not always a weight")
        if not column[0].axes:
            continue
        if any(entry.parametrised for entry in column):
            raise ValueError(f"`layers` must have plain weights; {name} is parametrised")
        if len({id(entry) for entry in column}) < len(column):
            raise ValueError(f"`layers` must have weights of their own; {name} is shared")
        stacks[name] = [(entry.name, entry.tensor, entry.axes[0]) for entry in column]
        _check_alike(stacks[name])
    if not stacks:
        raise ValueError(f"`blocks` must have weights; got {path!r}")
    return stacks


def _layers_of(by_name: Mapping[str, Entry], prefix: str) -> dict[int, dict[str, Entry]]:
    layers: dict[int, dict[str, Entry]] = {}
    for name, entry in by_name.items():
        index, _, rest = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and index.isdigit() and rest:
            layers.setdefault(int(index), {})[rest] = entry
    return layers


def _find_blocks(model: nn.Module, by_name: Mapping[str, Entry]) -> str:
    found = []
    for path, module in model.named_modules():
        if not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        layers = _layers_of(by_name, f"{path}." if path else "")
        alike = len({frozenset((k, e.tensor.shape) for k, e in b.items()) for b in layers.values()})
        if len(layers) >= 2 and sorted(layers) == list(range(len(layers))) and alike == 1:
            found.append(path)
    outer = [p for p in found if not any(p != q and p.startswith(f"{q}.") for q in found if q)]
    if len(outer) != 1:
        raise ValueError(
            "`blocks` must be given where not exactly one container has blocks alike; got "
            + (", ".join(repr(path) for path in outer) or "none")
        )
    return outer[0]
