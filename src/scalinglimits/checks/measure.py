"""Measure one model of one size through a few steps of training."""

from __future__ import annotations

__all__ = ["Measurement", "measure"]

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from scalinglimits.checks.names import Stacks, stack_of
from scalinglimits.checks.probe import Probe, Reading
from scalinglimits.checks.setups import OptimizerLike, Setup, make_optimizer
from scalinglimits.checks.tensors import rms, seeded
from scalinglimits.checks.training import checked_loss
from scalinglimits.scaling.sizes import Size


@dataclass(frozen=True)
class Measurement:
    """What was measured of one model.

    Attributes:
        rows: one record for each quantity: kind, name (a pattern), use, step, value. Blocks of a
            stack are averaged as mean squares.
        shapes: shape of each parameter, by pattern.
        in_axes: for each parameter and use, the axis of the weight that is summed over.
        residual: for each stack, whether its blocks pass the stream on.
        heads: for each module with attention, the size of a head.
        queries: for each module with attention or a softmax, the parameters behind its queries.
        gains: parameters right ahead of a tied head.
        single: patterns of parameters that one block of several has.
        noise: patterns of parameters whose gradient is no more than rounding.
        frozen: patterns of parameters whose gradient is smaller than the optimizer's ε.
    """

    rows: list[dict[str, Any]]
    shapes: dict[str, tuple[int, ...]]
    in_axes: dict[tuple[str, str], int]
    residual: dict[str, bool]
    heads: dict[str, int]
    queries: dict[str, frozenset[str]]
    gains: frozenset[str]
    single: frozenset[str]
    noise: frozenset[str]
    frozen: frozenset[str]


def measure(
    build: Callable[..., nn.Module],
    step: Callable[[nn.Module, Any], Tensor],
    batch: Any,
    *,
    size: Size,
    seed: int,
    setup: Setup,
    optimizer: OptimizerLike,
    steps: int,
    stacks: Stacks,
    blockwise: bool,
    spectral: bool,
    device: torch.device,
    dtype: torch.dtype | None,
) -> Measurement:
    """Build a model, train it for some steps on one batch, and measure each pass.

    Args:
        build: from a size to a model.
        step: from model and batch to the loss.
        batch: the batch, on the device.
        size: of the model.
        seed: of everything random.
        setup: makes the model ready and returns its parameter groups.
        optimizer: name or function.
        steps: number of updates.
        stacks: the repeated blocks.
        blockwise: whether to measure what parameters contribute to their block's output.
        spectral: whether to measure spectral norms.
        device: where to.
        dtype: precision of the model; None leaves it.

    Returns:
        The measurements at step 0, which is initialisation, to `steps`.

    Raises:
        ValueError: if the loss at initialisation is no finite scalar.
    """
    with seeded(seed, device) as seed_again:
        model = size.build(build).to(device=device, dtype=dtype)
        model.train()
        groups = setup(model, size, seed)
        opt = make_optimizer(optimizer, groups)
        initial = {name: p.detach().clone() for name, p in model.named_parameters()}
        stacks = stacks.of(initial)
        probe = Probe(model, stacks, blockwise=blockwise)
        rows: list[tuple[int, Reading]] = []
        try:
            for t in range(steps + 1):
                seed_again()  # the same dropout at each step
                last = t == steps
                with (
                    probe.measuring(initial if t else None, contributions=t in (0, 1, steps)),
                    torch.set_grad_enabled(not last),
                ):
                    loss = step(model, batch)
                value = checked_loss(loss, size, first=t == 0)
                if not last:
                    opt.zero_grad(set_to_none=True)
                    loss.backward()
                readings = probe.readings()
                if t in (0, steps - 1):
                    readings += _gradients(model)
                if spectral and t in (0, steps) and math.isfinite(value):
                    readings += probe.spectral()
                readings.append(Reading("loss", "", "", torch.tensor(value)))
                rows += [(t, reading) for reading in readings]
                if not math.isfinite(value):
                    break
                if not last:
                    opt.step()
        finally:
            probe.remove()
    shapes = {stacks.pattern(n): tuple(p.shape) for n, p in model.named_parameters()}
    gradients = [(r.name, float(r.value)) for t, r in rows if t == 0 and r.kind == "gradient"]
    return Measurement(
        rows=_averaged(rows, stacks),
        shapes=shapes,
        in_axes={(stacks.pattern(n), _use(u, stacks)): a for (n, u), a in probe.in_axes.items()},
        residual={stacks.pattern(n): flag for n, flag in probe.residual.items()},
        heads={stacks.pattern(n): size for n, size in probe.heads.items()},
        queries={
            stacks.pattern(n): frozenset(map(stacks.pattern, names))
            for n, names in probe.queries.items()
        },
        gains=frozenset(map(stacks.pattern, probe.gains)),
        single=_single(Counter(stacks.pattern(name) for name, _ in model.named_parameters())),
        noise=_noise(gradients, stacks),
        frozen=_frozen(gradients, opt, model, stacks),
    )


def _gradients(model: nn.Module) -> list[Reading]:
    return [
        Reading("gradient", name, "", rms(p.grad.to_dense() if p.grad.is_sparse else p.grad))
        for name, p in model.named_parameters()
        if p.grad is not None
    ]


def _averaged(rows: list[tuple[int, Reading]], stacks: Stacks) -> list[dict[str, Any]]:
    """Mean squares over the blocks of a stack, with one transfer from the device."""
    values = torch.stack([r.value.detach().float().cpu() for _, r in rows]).double().tolist()
    sums: dict[tuple[Any, ...], list[float]] = {}
    for (t, reading), value in zip(rows, values, strict=True):
        key = (reading.kind, stacks.pattern(reading.name), _use(reading.use, stacks), t)
        sums.setdefault(key, []).append(value)
    return [
        {"kind": kind, "name": name, "use": use, "step": t, "value": _root_mean_square(found)}
        for (kind, name, use, t), found in sums.items()
    ]


def _root_mean_square(values: list[float]) -> float:
    if len(values) == 1:
        return values[0]
    scale = max(abs(v) for v in values)
    if scale == 0 or not math.isfinite(scale):
        return scale
    return scale * math.sqrt(sum((v / scale) ** 2 for v in values) / len(values))


def _use(use: str, stacks: Stacks) -> str:
    module, colon, function = use.partition(":")
    return f"{stacks.pattern(module)}{colon}{function}"


def _single(counts: Mapping[str, int]) -> frozenset[str]:
    """What happens once in a stack, such as a norm ahead of its first block."""
    blocks: dict[str, int] = {}
    for name, count in counts.items():
        blocks[stack_of(name)] = max(blocks.get(stack_of(name), 0), count)
    return frozenset(n for n, count in counts.items() if count == 1 < blocks[stack_of(n)])


def _noise(gradients: list[tuple[str, float]], stacks: Stacks) -> frozenset[str]:
    """Parameters whose exact gradient is zero, such as the bias of attention's keys.

    Adam turns the rounding into steps of full size.
    """
    largest = max((value for _, value in gradients), default=0.0)
    tiny = {stacks.pattern(name) for name, value in gradients if value <= 1e-6 * largest}
    alive = {stacks.pattern(name) for name, value in gradients if value > 1e-6 * largest}
    return frozenset(tiny - alive)


def _frozen(
    gradients: list[tuple[str, float]], opt: torch.optim.Optimizer, model: nn.Module, stacks: Stacks
) -> frozenset[str]:
    """Parameters of which ε, not the gradient, sets the step."""
    eps = {id(p): group.get("eps", 0.0) for group in opt.param_groups for p in group["params"]}
    by_name = dict(model.named_parameters())
    return frozenset(
        stacks.pattern(name)
        for name, value in gradients
        if 0 < value < float(eps.get(id(by_name[name]), 0.0))
    )
