"""The scaling check: measure a model at several sizes, and give a verdict."""

from __future__ import annotations

__all__ = ["scaling_check"]

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from scalinglimits.checks._axes import Axes, parse_axes, rows_along
from scalinglimits.checks._inputs import check_build, positive, take_batches
from scalinglimits.checks.find import find
from scalinglimits.checks.measure import Measurement, measure
from scalinglimits.checks.result import ScalingCheck
from scalinglimits.checks.setups import (
    OptimizerLike,
    PlanLike,
    SetupLike,
    check_targets,
    make_setup,
    normalises,
)
from scalinglimits.checks.tensors import move
from scalinglimits.checks.verdict import Finding, overall
from scalinglimits.scaling.sizes import Size

# Spectral norms are costly, do not decide, and hardly differ between seeds.
_SPECTRAL_SEEDS = 2
_COLUMNS = ["seed", "kind", "name", "use", "step", "value"]


def scaling_check(
    build: Callable[..., nn.Module],
    step: Callable[[nn.Module, Any], Tensor],
    batches: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    widths: Sequence[int] | None = None,
    depths: Sequence[int] | None = None,
    axes: Mapping[str | tuple[str, ...], int | Sequence[int | tuple[int, ...]]] | None = None,
    depth_axis: str | None = None,
    plan: PlanLike | SetupLike | str | None = "mup",
    optimizer: OptimizerLike = "adam",
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    seeds: int = 4,
    max_seeds: int | None = None,
    seed: int = 0,
    steps: int = 3,
    depth_exponent: float | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    progress: Callable[[int, int], None] | None = None,
    **rules: Any,
) -> ScalingCheck:
    """Check whether a model's signal and updates keep their size as it grows.

    The model is built at each width (at the smallest depth) and at each depth (at the smallest
    width), or along each axis of `axes`, the others at their smallest; trained for a few steps on
    the first batch, and measured through hooks. The base size, at which the learning rate is
    meant, is the smallest.

    Args:
        build: from width and depth to a model; with `axes`, from these as keywords.
        step: from model and batch to the loss.
        batches: an iterable of batches, or a function that returns one; the first is used.
        widths: at least two, or one to leave the width alone; (32, 64, 128) by default.
        depths: at least two, or one to leave the depth alone; (2, 4, 8) by default.
        axes: instead of widths and depths, name to numbers, as in
            ``{"width": (32, 64, 128), "depth": (2, 4, 8), "heads": 4}``; a single number is held
            constant. Axes that grow together are one entry, and exponents are then in the first:
            ``{("width", "heads"): [(32, 4), (64, 8), (128, 16)]}``.
        depth_axis: which of `axes` is the depth; one that is called depth, layers, n_layers,
            num_layers, n_layer or num_hidden_layers by default.
        plan: a :class:`scalinglimits.scaling.ScalingPlan`; the name of a width rule ("mup",
            "spectral", "standard", "ntk"); None for the model as built with one learning rate; or
            a function from model, width, depth and seed to parameter groups, which with `axes`
            is called as ``plan(model, seed=..., width=..., heads=...)``.
        optimizer: "sgd", "adam", "adamw", … or a function from groups to an optimizer.
        lr: learning rate at the base size.
        weight_decay: weight decay at the base size.
        seeds: replicates; the scatter between them gives the intervals.
        max_seeds: up to which their number is doubled while the check is undecided; twice `seeds`
            by default.
        seed: of the first replicate; the others follow.
        steps: number of updates.
        depth_exponent: α of branches of size depth^−α, where `plan` does not tell it; None accepts
            ½ to 1.
        device: where to compute.
        dtype: precision of the model, such as ``torch.bfloat16``; statistics are in float32.
        progress: called with the numbers of models measured and to measure.
        **rules: further options of :func:`scalinglimits.scaling.make_plan`, such as `depth_rule`.

    Returns:
        Verdict, findings and measurements.

    Raises:
        TypeError: if an argument is of the wrong kind, or there are options that no plan takes.
        ValueError: if a size or number is not sensible, `build` ignores an axis or is random in
            structure, `plan` cannot scale the model, `batches` is empty, or the loss is no finite
            scalar.

    Example:
        >>> def build(width, depth):
        ...     hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
        ...     return nn.Sequential(nn.Linear(4, width), *hidden, nn.Linear(width, 2))
        >>> step = lambda model, x: model(x).square().mean()
        >>> x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
        >>> check = scaling_check(
        ...     build, step, [x], widths=(32, 64, 128), depths=(2,), plan=None, seeds=3)
        >>> check.verdict  # PyTorch's own initialisation and one learning rate
        'fails'
        >>> def build(width, ffn):
        ...     mlp = nn.Linear(width, ffn), nn.ReLU(), nn.Linear(ffn, width)
        ...     return nn.Sequential(nn.Linear(4, width), *mlp, nn.Linear(width, 2))
        >>> axes = {"width": 32, "ffn": (64, 128, 256)}
        >>> scaling_check(build, step, [x], axes=axes, plan="mup", seeds=3, steps=1).failures
        ()
    """
    sizes = parse_axes(axes, widths, depths, depth_axis)
    positive("seeds", seeds, integer=True)
    positive("steps", steps, integer=True)
    positive("lr", lr)
    if seeds < 2:
        raise ValueError(f"`seeds` must be at least 2, for intervals; got {seeds}")
    if max_seeds is not None and max_seeds < seeds:
        raise ValueError(f"`max_seeds` must be at least `seeds`, {seeds}; got {max_seeds}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"`seed` must be a non-negative integer; got {seed!r}")
    device = torch.device(device)
    stacks = check_build(build, sizes)
    batch = move(take_batches(batches, 1)[0], device, dtype)
    setup, known = make_setup(
        build,
        plan,
        base=sizes.base,
        target=sizes.widest,
        optimizer=optimizer,
        lr=lr,
        weight_decay=weight_decay,
        run=lambda model: step(model, move(batch, torch.device("cpu"), None)),
        **rules,
    )
    check_targets(known, sizes)
    deep = () if sizes.depth is None else sizes.depth.sizes
    normalised = normalises(optimizer)
    measured: dict[Size, Measurement] = {}
    rows: list[dict[str, Any]] = []
    if depth_exponent is None and known is not None:
        depth_exponent = getattr(known, "settings", {}).get("alpha")
    limit = 2 * seeds if max_seeds is None else max_seeds
    # Each look at the data, along each axis, is another chance of a false alarm.
    looks = 1 + max(math.ceil(math.log2(limit / seeds)), 0)
    chances = looks * max(len(sizes.along), 2)
    wanted, done = seeds, 0
    while True:
        for number, size in enumerate(sizes.sizes):
            for replicate in range(done, wanted):
                result = measure(
                    build,
                    step,
                    batch,
                    size=size,
                    seed=seed + replicate,
                    setup=setup,
                    optimizer=optimizer,
                    steps=steps,
                    stacks=stacks,
                    blockwise=size in deep,
                    spectral=replicate < _SPECTRAL_SEEDS,
                    device=device,
                    dtype=dtype,
                )
                measured.setdefault(size, result)
                about = {**size.values, "seed": seed + replicate}
                rows += [{**about, **row} for row in result.rows]
                if progress is not None:
                    new = wanted - done
                    progress(number * new + replicate - done + 1, len(sizes.sizes) * new)
        done = wanted
        record = pd.DataFrame(rows, columns=[*sizes.names, *_COLUMNS])
        findings = _divergence(record, sizes)
        for axis in sizes.along:
            part = rows_along(record, sizes.plain(), axis.name)
            along = [measured[size] for size in axis.sizes]
            findings += find(part, axis, along, depth_exponent, chances, normalised)
        if overall(findings) != "undecided" or done >= limit:
            break
        wanted = min(2 * done, limit)
    return ScalingCheck(
        findings=tuple(findings),
        record=record,
        settings={
            "axes": sizes.plain(),
            "seeds": done,
            "seed": seed,
            "steps": steps,
            "optimizer": optimizer if isinstance(optimizer, str) else repr(optimizer),
            "lr": lr,
            "weight_decay": weight_decay,
            "plan": plan if isinstance(plan, str) or plan is None else type(plan).__name__,
            "depth_exponent": depth_exponent,
            "device": str(device),
            "dtype": None if dtype is None else str(dtype),
        },
        notes=_unjudged(measured, sizes),
        branch_outputs=_directness(record, sizes.base),
    )


def _unjudged(measured: Mapping[Size, Measurement], axes: Axes) -> tuple[str, ...]:
    """Parameters that are not judged, everywhere or along one axis."""
    text = "{} gets no gradient beyond rounding{} and is not judged{}"
    everywhere = measured[axes.base].noise
    notes = [text.format(name, "", "") for name in sorted(everywhere)]
    for axis in axes.along:
        largest = axis.sizes[-1]
        notes += [
            text.format(name, f" at {largest}", f" along {axis.name}")
            for name in sorted(measured[largest].noise - everywhere)
        ]
    return tuple(notes)


def _divergence(record: pd.DataFrame, axes: Axes) -> list[Finding]:
    """A finding if the loss stopped being finite."""
    losses = record[(record.kind == "loss") & ~record.value.map(math.isfinite)]
    if losses.empty:
        return []
    worst = losses.sort_values("step").iloc[0]
    size = axes.base.with_values({name: int(worst[name]) for name in axes.names})
    axis = next((axis for axis in axes.along if size in axis.sizes[1:]), axes.along[-1])
    text = (
        f"model: the loss is not finite after {worst.step} steps at {size}: learning rate too "
        "large there?"
    )
    return [
        Finding(
            "fails",
            axis.name,
            "loss",
            "",
            "",
            int(worst.step),
            "",
            math.inf,
            math.inf,
            math.inf,
            (-math.inf, 0.0),
            text,
            (),
        )
    ]


def _directness(record: pd.DataFrame, size: Size) -> dict[str, float]:
    """How much of what a parameter writes reaches its block's output: 0 for a branch's output."""
    here = record[record.step == 0]
    for name, value in size.axes:
        here = here[here[name] == value]
    own = here[here.kind == "share"].groupby("name").value.mean()
    block = here[here.kind == "block_share"].groupby("name").value.mean()
    both = own.index.intersection(block.index)
    return {
        name: abs(math.log(block[name] / own[name]))
        for name in both
        if block[name] > 0 and own[name] > 0
    }
