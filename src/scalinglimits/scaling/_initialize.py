"""Drawing a model's weights by a plan, or rescaling those it drew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from scalinglimits.laws.depth import DepthLaw
from scalinglimits.laws.names import depth_law
from scalinglimits.laws.streams import root_seed, substream
from scalinglimits.scaling._groups import match
from scalinglimits.scaling._names import split_weight_norm
from scalinglimits.scaling._record import truncated_deviation
from scalinglimits.scaling._stacks import split_block
from scalinglimits.scaling.entry import InitLaw, PlanEntry

if TYPE_CHECKING:
    from scalinglimits.scaling.plan import ScalingPlan

__all__ = ["initialize", "rescale"]

# Coordinates of a stack that are drawn across depth at a time.
_CHUNK = 1 << 22

Matched = list[tuple[str, torch.Tensor, PlanEntry]]


def initialize(
    plan: ScalingPlan, model: nn.Module, generator: torch.Generator | None, seed: int | None
) -> nn.Module:
    """Draw all parameters; see `ScalingPlan.initialize_`."""
    if (generator is None) == (seed is None):
        raise ValueError("`seed` must be given, or `generator`, but not both")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"`seed` must be an integer; got {seed!r}")
    matched = list(match(plan, model))
    _check_on_device(matched)
    root = seed if seed is not None else root_seed(generator)
    across = plan.settings.get("weights_across_depth")
    law = depth_law(across) if across else None
    directions = _directions(matched)
    with torch.no_grad():
        for name, parameter, entry in matched:
            weight, part = split_weight_norm(name)
            if part == "g" and weight in directions:
                # The gain of W = g·v/‖v‖ is ‖W‖ along the axes that it does not have.
                direction, its_entry = directions[weight]
                values = _draw(its_entry, weight, direction, root, law)
                if values is not None:
                    axes = [i for i, size in enumerate(parameter.shape) if size == 1]
                    values = values.norm(dim=axes, keepdim=True) if axes else values.abs()
            else:
                values = _draw(entry, weight, parameter, root, law)
            if values is not None:
                _assign(parameter, values)
    return model


def rescale(plan: ScalingPlan, model: nn.Module) -> nn.Module:
    """Multiply what the model drew; see `ScalingPlan.rescale_`."""
    matched = list(match(plan, model))
    _check_on_device(matched)
    directions = _directions(matched)
    factors = []
    for name, parameter, entry in matched:
        weight, part = split_weight_norm(name)
        if part == "g" and weight in directions:
            parameter, entry = directions[weight]
        factors.append(_factor(entry, name, parameter))
    with torch.no_grad():
        for (_, parameter, _), factor in zip(matched, factors, strict=True):
            if factor != 1.0:
                parameter.mul_(factor)
    return model


def _directions(matched: Matched) -> dict[str, tuple[torch.Tensor, PlanEntry]]:
    """The direction v of each normalised weight, by the weight's name."""
    parts = [(split_weight_norm(name), p, entry) for name, p, entry in matched]
    return {weight: (p, entry) for (weight, part), p, entry in parts if part == "v"}


def _factor(entry: PlanEntry, name: str, parameter: torch.Tensor) -> float:
    """The factor from what the model draws to what the plan wants, checked on what it drew."""
    law, natural = entry.law, entry.natural
    if law is None or law.kind == "kept":
        return entry.init
    drawn, wanted = _size(parameter), law.size * entry.init
    if natural is None or natural.kind == "kept":
        return wanted / drawn if drawn > 0 and wanted > 0 else 1.0
    found = natural.size
    if found == 0.0 or wanted == 0.0:
        return 1.0
    # Eight standard errors of a deviation of that many entries, and the rounding of bfloat16.
    count = max(parameter.numel() - 1, 1)
    tolerance = 0.01 + (0.0 if natural.kind == "constant" else 8.0 / math.sqrt(2.0 * count))
    if drawn == 0.0 or abs(math.log(drawn / found)) > tolerance:
        again = drawn > 0 and abs(math.log(drawn / wanted)) <= tolerance
        cause = "it was rescaled before" if again else "it is no fresh model"
        raise ValueError(
            f"`model` must be as its constructor left it; `{name}` has size {drawn:.4g} "
            f"where it draws {found:.4g}: {cause}"
        )
    return wanted / found


def _size(parameter: torch.Tensor) -> float:
    """The root mean square over all shards."""
    values = parameter.detach().double()
    total = (values * values).mean()
    if hasattr(total, "full_tensor"):
        total = total.full_tensor()
    return math.sqrt(float(total))


def _draw(
    entry: PlanEntry, weight: str, parameter: torch.Tensor, root: int, across: DepthLaw | None
) -> torch.Tensor | None:
    """The whole parameter in float32 or float64, whatever part of it this process holds."""
    law = entry.law
    if law is None or law.kind == "kept":
        return None
    shape = tuple(parameter.shape)
    dtype = torch.float64 if parameter.dtype == torch.float64 else torch.float32
    if law.kind == "constant":
        return torch.full(shape, law.mean * entry.init, dtype=dtype)
    if across is not None and entry.stack and len(shape) > 1:
        values = _draw_across(across, entry, weight, shape, root, dtype)
    else:
        values = _unit(law, shape, substream(root, "parameter", weight), dtype)
    return values.mul_(law.std).add_(law.mean).mul_(entry.init)


def _unit(
    law: InitLaw, shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype
) -> torch.Tensor:
    """Values of mean 0 and variance 1 of that kind."""
    values = torch.empty(shape, dtype=dtype)
    if law.kind == "uniform":
        return values.uniform_(-math.sqrt(3), math.sqrt(3), generator=generator)
    if law.kind == "truncated":
        # The inverse distribution function of a normal that is cut at ±cut.
        bound = math.erf(law.cut / math.sqrt(2))
        values.uniform_(-bound, bound, generator=generator).erfinv_().mul_(math.sqrt(2))
        return values.clamp_(-law.cut, law.cut).div_(truncated_deviation(law.cut))
    values.normal_(generator=generator)
    if law.kind == "orthogonal" and len(shape) > 1:
        rows, columns = shape[0], values.numel() // shape[0]
        flat = values.reshape(rows, columns)
        q, r = torch.linalg.qr(flat.T if rows < columns else flat)
        q = q * r.diagonal().sign()  # uniform, whatever signs the decomposition chose
        q = q.T if rows < columns else q
        return (q * math.sqrt(max(rows, columns))).reshape(shape).contiguous()
    return values


def _draw_across(
    across: DepthLaw,
    entry: PlanEntry,
    weight: str,
    shape: tuple[int, ...],
    root: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """This block's values of a sequence over all blocks, the same whichever block asks."""
    if entry.blocks_axis is not None:
        rest = tuple(size for i, size in enumerate(shape) if i != entry.blocks_axis)
        generator = substream(root, "stack", weight)
        path = across.sample(entry.blocks, rest, generator, dtype=dtype)
        return path.movedim(0, entry.blocks_axis).contiguous()
    place = split_block(weight, "" if entry.stack == "." else entry.stack)
    inside = place[1] if place is not None else weight
    count = math.prod(shape)
    step = max(_CHUNK // entry.blocks, 1)
    pieces = []
    for start in range(0, count, step):
        generator = substream(root, "stack", entry.stack, inside, start)
        path = across.sample(entry.blocks, min(step, count - start), generator, dtype=dtype)
        pieces.append(torch.as_tensor(path[entry.block]).clone())
    return torch.cat(pieces).reshape(shape)


def _assign(parameter: torch.Tensor, values: torch.Tensor) -> None:
    if hasattr(parameter, "placements"):  # a sharded tensor takes its part of the whole
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        assert isinstance(parameter, DTensor)
        sizes, offsets = compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, parameter.placements
        )
        for axis, (size, offset) in enumerate(zip(sizes, offsets, strict=True)):
            values = values.narrow(axis, min(offset, values.shape[axis]), size)
        parameter.to_local().copy_(values)
    else:
        parameter.copy_(values)


def _check_on_device(matched: Matched) -> None:
    for name, parameter, _ in matched:
        if parameter.is_meta:
            raise ValueError(
                f"`model` must have memory; `{name}` is on the meta device: call `to_empty` first"
            )
