r"""Learning-rate transfer: does the best learning rate stay where it is as the model grows?

For each size the loss after a fixed training is measured on a grid of learning rates. Its optimum
is the lowest point of a parabola, one for each seed (:mod:`scalinglimits.checks.optimum`). The
drift is how many doublings the optimum moves for each doubling of width, depth or another axis: the
slope of $\log_2 \mathrm{lr}^*$ against $\log_2$ of the size.
"""

from __future__ import annotations

__all__ = ["LEARNING_RATES", "TransferResult", "learning_rate_transfer"]

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scalinglimits.checks._axes import Axes, parse_axes, rows_along
from scalinglimits.checks._inputs import check_build, positive, take_batches
from scalinglimits.checks.optimum import optima_of_seeds, optimum
from scalinglimits.checks.setups import (
    OptimizerLike,
    PlanLike,
    SetupLike,
    check_rules,
    check_targets,
    make_setup,
)
from scalinglimits.checks.training import Recipe, final_loss
from scalinglimits.fits import fit_exponent
from scalinglimits.sweeps import sweep

LEARNING_RATES = tuple(2.0**power for power in range(-12, -1))
"""Learning rates from 1/4096 to 1/4."""


@dataclass(frozen=True, eq=False)
class TransferResult:
    """The record of a transfer experiment.

    Attributes:
        losses: one row a run: scaling, one column for each axis (width, depth), lr, run, loss.
        optima: one row a size: scaling, the axes, log2_lr, lower, upper, loss, edge. At an edge
            of the grid the optimum is only known to lie there or beyond.
        drifts: one row for each scaling and axis: drift, lower, upper, transfers ("yes", "no",
            "undecided"), edge.
        settings: the axes, and the training: optimizer, steps, warm-up, schedule, tokens, …
    """

    losses: pd.DataFrame
    optima: pd.DataFrame
    drifts: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def exit_code(self) -> int:
        """Exit status for a command: 1 if the first scaling does not transfer, 3 if undecided."""
        first = self.drifts[self.drifts.scaling == self.drifts.scaling.iloc[0]]
        if (first.transfers == "no").any():
            return 1
        return 3 if (first.transfers == "undecided").any() else 0

    def along(self, axis: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the record along one axis, the others at their base.

        Args:
            axis: such as "width".

        Returns:
            Rows of the losses and of the optima.

        Raises:
            ValueError: if there is no such axis.
        """
        axes = self.settings["axes"]
        return rows_along(self.losses, axes, axis), rows_along(self.optima, axes, axis)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        Returns:
            Settings, optima and drifts.
        """
        return {
            "settings": dict(self.settings),
            "optima": _records(self.optima),
            "drifts": _records(self.drifts),
        }

    def __str__(self) -> str:
        lines = []
        for row in self.drifts.itertuples():
            numbers = f"{row.drift:+.2f} [{row.lower:+.2f}, {row.upper:+.2f}]".replace("-", "−")
            edge = " (an optimum lies at the edge of the grid: widen it)" if row.edge else ""
            lines.append(
                f"{row.scaling}: the best learning rate moves by {numbers} doublings for each "
                f"doubling of {row.axis}{edge}: transfers: {row.transfers}"
            )
        return "\n".join(lines)


def learning_rate_transfer(
    build: Callable[..., nn.Module],
    step: Callable[[nn.Module, Any], Tensor],
    batches: Callable[[], Iterable[Any]] | Sequence[Any],
    *,
    widths: Sequence[int] | None = None,
    depths: Sequence[int] | None = None,
    axes: Mapping[str | tuple[str, ...], int | Sequence[int | tuple[int, ...]]] | None = None,
    depth_axis: str | None = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    plans: Mapping[str, PlanLike | SetupLike | str | None] | None = None,
    optimizer: OptimizerLike = "adam",
    weight_decay: float = 0.0,
    steps: int = 50,
    warmup: int = 0,
    schedule: str = "constant",
    average: int | None = None,
    seeds: int = 3,
    tolerance: float = 0.25,
    device: str | torch.device = "cpu",
    store: str | Path | None = None,
    executor: Any = "serial",
    n_jobs: int | None = None,
    progress: bool = False,
    **rules: Any,
) -> TransferResult:
    """Train at each size, learning rate and seed, and follow the best learning rate.

    The base size is the smallest; a learning rate is meant there. A run that diverges counts as a
    very high loss.

    Args:
        build: from width and depth to a model; with `axes`, from these as keywords.
        step: from model and batch to the loss.
        batches: a function that returns an iterable of batches, or a sequence of them, with at
            least `steps` batches; every run sees the same ones.
        widths: measured at the smallest depth; (32, 64, 128) by default.
        depths: measured at the smallest width; (2, 4, 8) by default.
        axes: instead of widths and depths, name to numbers, as in
            :func:`~scalinglimits.checks.scaling_check`.
        depth_axis: which of `axes` is the depth, unless its name says so.
        learning_rates: the grid, at least five rates, best with a constant ratio.
        plans: name to scaling, as in :func:`~scalinglimits.checks.scaling_check`; by default
            "plan", µP with CompleteP, and "standard", one learning rate for all.
        optimizer: "sgd", "adam", "adamw", … or a function from groups to an optimizer.
        weight_decay: weight decay at the base size.
        steps: number of updates.
        warmup: number of first steps over which the rate grows from zero.
        schedule: "constant", "linear" or "cosine", from the end of the warm-up to the last step.
        average: number of last steps whose mean loss is the result; a fifth by default.
        seeds: replicates, at least two.
        tolerance: drift, in doublings for each doubling, up to which a rate is said to transfer.
        device: where to compute.
        store: file that keeps finished runs, so that an interrupted experiment resumes, or goes on
            with more sizes, rates and seeds. It knows base, rules and recipe, of functions only
            their names, and neither model nor data: use one file for each.
        executor: see :func:`scalinglimits.sweeps.sweep`.
        n_jobs: worker processes.
        progress: whether to show a bar on the standard error stream.
        **rules: further options of :func:`scalinglimits.scaling.make_plan`.

    Returns:
        Losses, optima and drifts.

    Raises:
        TypeError: if an argument is of the wrong kind, or there are options that no plan takes.
        ValueError: if a size or number is not sensible, a plan cannot scale the model, or `batches`
            ends too early.
    """
    sizes = parse_axes(axes, widths, depths, depth_axis)
    grid = _check_grid(learning_rates)
    for name, value in (("steps", steps), ("seeds", seeds)):
        positive(name, value, integer=True)
    positive("tolerance", tolerance)
    if seeds < 2:
        raise ValueError(f"`seeds` must be at least 2, for intervals; got {seeds}")
    recipe = Recipe(steps, warmup, schedule, max(steps // 5, 1) if average is None else average)
    check_build(build, sizes)
    data = take_batches(batches, steps)
    chosen = {"plan": "mup", "standard": None} if plans is None else dict(plans)
    if not chosen:
        raise ValueError("`plans` must name at least one scaling; got none")
    check_rules("plans", list(chosen.values()), rules)
    options: dict[str, Any] = {"base": sizes.base, "target": sizes.widest}
    options |= {"optimizer": optimizer, "weight_decay": weight_decay}
    cells = [
        {"scaling": name, **size.values, "lr": lr}
        for name in chosen
        for size in sizes.sizes
        for lr in grid
    ]
    run = partial(_run, step, data[0])
    made = {
        name: _planned(build, plan, run, options, rules, sizes) for name, plan in chosen.items()
    }

    def train(scaling: str, lr: float, seed: int, **values: int) -> dict[str, float]:
        setup, _ = make_setup(build, made[scaling], lr=lr, **options)
        loss = final_loss(
            build,
            step,
            data,
            recipe,
            setup=setup,
            optimizer=optimizer,
            size=sizes.base.with_values(values),
            seed=seed % 2**32,
            device=torch.device(device),
        )
        return {"loss": loss}

    result = sweep(
        train,
        cells,
        seeds,
        # Every size and rate starts from the same seeds, so that their differences are the rate's.
        seed_by=(),
        store=store,
        executor=executor,
        n_jobs=n_jobs,
        progress=progress,
        name=f"transfer {recipe} {_label(optimizer)} {weight_decay:g} from {sizes.base} by "
        f"{_label(chosen)} {_label(rules)}",
        on_error="raise",
    )
    frame = result.to_frame().rename(columns={"replicate": "run"})
    losses = frame[["scaling", *sizes.names, "lr", "run", "loss"]]
    optima = _optima(losses, sizes.names)
    drifts = _drifts(optima, losses, list(chosen), sizes, tolerance)
    settings = {
        "axes": sizes.plain(),
        "learning_rates": list(grid),
        "optimizer": optimizer if isinstance(optimizer, str) else repr(optimizer),
        "weight_decay": weight_decay,
        "steps": steps,
        "warmup": warmup,
        "schedule": schedule,
        "average": recipe.average,
        "seeds": seeds,
        "tolerance": tolerance,
        "numbers_per_batch": _numbers(data[0]),
        "device": str(device),
    }
    return TransferResult(losses, optima, drifts, settings)


def _label(value: Any) -> str:
    """A text that is the same in the next process, without addresses."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_label(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_label, value))})"
    if isinstance(value, (set, frozenset)):
        return f"({', '.join(sorted(map(_label, value)))})"
    if isinstance(value, partial):
        return f"{_label(value.func)} {_label(value.args)} {_label(value.keywords)}"
    if value is None or isinstance(value, str | int | float) or is_dataclass(value):
        return str(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def _planned(
    build: Callable[..., nn.Module],
    plan: Any,
    run: Callable[[nn.Module], Any],
    options: dict[str, Any],
    rules: dict[str, Any],
    sizes: Axes,
) -> Any:
    """A rule's name becomes a plan once, not in each run; what none can scale is said now."""
    taken = {"run": run, **rules} if isinstance(plan, str) else {}
    _, known = make_setup(build, plan, lr=1.0, **options, **taken)
    check_targets(known, sizes)
    return plan if known is None else known


def _run(step: Callable[[nn.Module, Any], Tensor], batch: Any, model: nn.Module) -> Tensor:
    return step(model, batch)


def _table(losses: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The grid in log2, and the losses of each seed on it."""
    table = losses.pivot_table(index="run", columns="lr", values="loss")
    return np.log2(table.columns.to_numpy(float)), table.to_numpy()


def _optima(losses: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    rows = []
    keys = ["scaling", *names]
    for size, group in losses.groupby(keys, sort=False):
        grid, table = _table(group)
        centre, lower, upper, edge = optimum(grid, table)
        rows.append(
            {
                **dict(zip(keys, size, strict=True)),
                "log2_lr": centre,
                "lower": lower,
                "upper": upper,
                "loss": float(table.mean(axis=0).min()),
                "edge": edge,
            }
        )
    return pd.DataFrame(rows)


def _drifts(
    optima: pd.DataFrame,
    losses: pd.DataFrame,
    scalings: list[str],
    axes: Axes,
    tolerance: float,
) -> pd.DataFrame:
    rows = []
    for scaling in scalings:
        for axis in (axis.name for axis in axes.along):
            part = rows_along(losses[losses.scaling == scaling], axes.plain(), axis)
            sizes, best = [], []
            for size, group in part.groupby(axis):
                found, _ = optima_of_seeds(*_table(group))
                sizes += [size] * len(found)
                best += list(2.0**found)
            fit = fit_exponent(sizes, best)
            known = rows_along(optima[optima.scaling == scaling], axes.plain(), axis)
            if -tolerance <= fit.low and fit.high <= tolerance:
                transfers = "yes"
            elif fit.low > tolerance or fit.high < -tolerance:
                transfers = "no"
            else:
                transfers = "undecided"
            edge = bool(known.edge.any())
            rows.append(
                {
                    "scaling": scaling,
                    "axis": axis,
                    "drift": fit.value,
                    "lower": fit.low,
                    "upper": fit.high,
                    # Beyond the edge the optimum is unknown, so that staying there proves nothing.
                    "transfers": "undecided" if edge and transfers == "yes" else transfers,
                    "edge": edge,
                }
            )
    return pd.DataFrame(rows)


def _check_grid(rates: Sequence[float]) -> list[float]:
    grid = sorted(float(rate) for rate in rates)
    if len(set(grid)) < 5 or not all(0 < rate < math.inf for rate in grid):
        raise ValueError(f"`learning_rates` must be five positive rates or more; got {grid}")
    return grid


def _numbers(batch: Any) -> int:
    """How many numbers, or tokens, a batch holds."""
    if isinstance(batch, Tensor):
        return batch.numel()
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        return 0
    return sum(_numbers(part) for part in parts)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.to_dict("records")
    return [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in rows
    ]
