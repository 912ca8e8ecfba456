r"""How training is set up: parametrisations, and mini-batches.

``L-parametrizations`` (L, section 2 and remark 2.1): with μP weights and features move as much at
every width, :math:`\|U-U(0)\|^2/m` and the change of the predictor staying of order one. With the
NTK parametrisation :math:`\|U-U(0)\|^2/m \sim 1/m`: no features are learnt, and the predictor
follows linear dynamics from a random start. The integrable one loses its random matrices, whose
products are of order :math:`m^{-1/2}`: one hidden matrix still learns, but with two of them zero
is a saddle, left after a number of steps that grows like log m. The standard one
diverges at a step size that does not shrink with the width.

``L-sgd``: the theorem covers data ρ_κ that change at each step. Networks of finite width, trained
on the same mini-batches as the limit, approach it at the rate 1/m.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalinglimits.figures.linear_settings import (
    draw_distances,
    errors_from_limit,
    linear_setting,
    mean_squares,
    power_fit,
)
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws.streams import derive_seed
from scalinglimits.linear import LinearNetwork, MiniBatches, square, train
from scalinglimits.linear.network import PARAMETRIZATIONS
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RULES_TITLE = "L, remark 2.1: only μP learns features from random matrices at every width"
_SGD_TITLE = "L, (2.2): mini-batch SGD has a limit too"
_STEPS = 150
_STEP_SIZE = 0.02
_NAMES = {"mup": "μP", "ntk": "NTK", "standard": "standard", "integrable": "integrable"}


def _measure_rule(
    parametrization: str, hidden: int, width: int, steps: int, data_seed: int, seed: int
) -> dict[str, Any]:
    """Train one network: how far its first layer and its predictor go, and where it ends."""
    setting = linear_setting("study", data_seed)
    network = LinearNetwork(
        setting.in_features, hidden=hidden, width=width, parametrization=parametrization
    )
    run = train(
        network,
        setting.data,
        step_size=_STEP_SIZE,
        steps=steps,
        seed=seed,
        record_states=[0],
    )
    zero_loss = setting.data.evaluate(np.zeros(setting.in_features), square())[0]
    halved = np.flatnonzero(run.loss <= run.loss[0] / 2)
    out = {
        "end": run.status,
        "loss": math.inf,
        "moved": math.inf,
        "start": float(np.linalg.norm(run.predictor[0])),
        "half": int(halved[0]) if len(halved) else math.inf,
    }
    if run.state is not None:
        before, after = run.states[0].U, run.state.U
        change = after.copy()
        change[: len(before)] -= before
        out["moved"] = float(np.sum(change**2))
        out["loss"] = run.loss[-1] / zero_loss
    return out


def _compute_rules(request: Request) -> FigureRecord:
    widths = [10**k for k in range(2, 9, 2 if request.quick else 1)]
    repeats = 3 if request.quick else 10
    result = sweep(
        _measure_rule,
        {"parametrization": list(PARAMETRIZATIONS), "hidden": [1, 2], "width": widths,
         "steps": [_STEPS], "data_seed": [request.seed]},
        repeats,
        name="linear_rules",
        on_error="raise",
        **request.sweep_options(),
    )  # fmt: skip
    cells = result.to_frame()
    rows = []
    for (rule, hidden, width), part in cells.groupby(
        ["parametrization", "hidden", "width"], sort=False
    ):
        rows.append(
            {
                "parametrization": rule,
                "hidden": hidden,
                "width": width,
                "diverged": int((part.end == "diverged").sum()),
                "networks": len(part),
                "moved": part.moved.mean(),
                "start": math.sqrt(float(np.mean(part.start**2))),
                "half_loss_step": part.half.mean(),
                "median_relative_loss": part.loss.median(),
            }
        )
    table = pd.DataFrame(rows)
    one = table[table.hidden == 1].set_index("parametrization")
    top = table[table.width == widths[-1]].set_index(["parametrization", "hidden"])

    def slope(rule: str, column: str) -> float:
        part = one.loc[rule]
        return float(np.polyfit(np.log(part.width), np.log(part[column]), 1)[0])

    diverged = table[table.parametrization == "standard"].set_index(["hidden", "width"]).diverged
    stuck = table[(table.parametrization == "integrable") & (table.hidden == 2)]
    growth = float(np.polyfit(np.log10(stuck.width), stuck.half_loss_step, 1)[0])
    caption = (
        f"{linear_setting('study', request.seed).label}; {_STEPS} steps of size {_STEP_SIZE:g}, "
        f"{repeats} networks a point. (a) Change of the first layer, ‖U − U(0)‖²/m: exponent of m "
        f"{slope('mup', 'moved'):+.3f} for μP (theory 0), {slope('ntk', 'moved'):+.3f} for NTK "
        f"(−1). (b) Size of the predictor at the start: exponent {slope('mup', 'start'):+.3f} for "
        f"μP (−½), {slope('ntk', 'start'):+.3f} for NTK (0). (c) Step at which the loss is halved; "
        f"at m = 10^{round(math.log10(widths[-1]))}: "
        + ", ".join(
            f"{_NAMES[rule]} {top.loc[(rule, n), 'half_loss_step']:.1f} (n = {n})"
            for rule in ("mup", "ntk", "integrable")
            for n in (1, 2)
        )
        + f". The integrable one with n = 2 escapes from zero later by {growth:.1f} steps for each "
        f"factor of 10 in m. Standard parametrisation: {int(diverged.sum())} of "
        f"{len(diverged) * repeats} networks diverged."
    )
    return FigureRecord("L-parametrizations", _RULES_TITLE, caption, {"": table}, {"steps": _STEPS})


def _draw_rules(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 3, size=(3.9, 3.5))
    table = record.tables[""]
    shown = [rule for rule in PARAMETRIZATIONS if rule != "standard"]
    for i, rule in enumerate(shown):
        part = table[(table.parametrization == rule) & (table.hidden == 1)]
        axes[0, 0].plot(part.width, part.moved, "o-", ms=3, color=COLORS[i], label=_NAMES[rule])
        axes[0, 1].plot(part.width, part.start, "o-", ms=3, color=COLORS[i], label=_NAMES[rule])
        for hidden, style in ((1, "o-"), (2, "s--")):
            part = table[(table.parametrization == rule) & (table.hidden == hidden)]
            axes[0, 2].plot(part.width, part.half_loss_step, style, ms=3, color=COLORS[i],
                            label=f"{_NAMES[rule]}, n = {hidden}")  # fmt: skip
    ntk = table[(table.parametrization == "ntk") & (table.hidden == 1)]
    axes[0, 0].plot(ntk.width, ntk.moved.iloc[-1] * ntk.width.iloc[-1] / ntk.width, ":",
                    color="0.3", label="slope −1")  # fmt: skip
    mup = table[(table.parametrization == "mup") & (table.hidden == 1)]
    axes[0, 1].plot(mup.width, mup.start.iloc[-1] * (mup.width / mup.width.iloc[-1]) ** -0.5, ":",
                    color="0.3", label="slope −½")  # fmt: skip
    label_axes(axes[0, 0], "(a) features, n = 1", "width m", r"$\|U - U(0)\|^2 / m$")
    label_axes(axes[0, 1], "(b) predictor at the start, n = 1", "width m", r"$\|\lambda(0)\|$")
    label_axes(axes[0, 2], "(c) plateau", "width m", "step at which the loss is halved")
    for ax in axes[0]:
        ax.set_xscale("log")
        if ax is not axes[0, 2]:
            ax.set_yscale("log")
        ax.legend(fontsize=7)
    write_caption(figure, record.title, record.caption)
    return figure


def _batches(seed: int) -> MiniBatches:
    """Samples with noisy targets, so that batches do not agree: n = 96, d = 12, batches of 8."""
    rng = np.random.default_rng(derive_seed(seed, "mini-batches"))
    X = rng.standard_normal((96, 12))
    target = rng.standard_normal(12)
    target *= 1.5 / np.linalg.norm(target)
    y = X @ target + 0.5 * rng.standard_normal(96)
    return MiniBatches(X, y, batch_size=8, seed=seed)


def _measure_sgd(width: int, runs: int, steps: int, data_seed: int, seed: int) -> dict[str, Any]:
    data = _batches(data_seed)
    record = [0, steps // 4, steps]
    network = LinearNetwork(data.in_features, width=width)
    errors = errors_from_limit(
        network, data, runs=runs, record=record, step_size=_STEP_SIZE, seed=seed
    )
    return {"errors": errors}


def _compute_sgd(request: Request) -> FigureRecord:
    widths = [10**k for k in range(1, 10, 2 if request.quick else 1)]
    runs, chunks, steps = (16, 2, 120) if request.quick else (32, 8, 240)
    result = sweep(
        _measure_sgd,
        {"width": widths, "runs": [runs], "steps": [steps], "data_seed": [request.seed]},
        chunks,
        name="linear_sgd",
        on_error="raise",
        **request.sweep_options(),
    )
    record = (0, steps // 4, steps)
    errors = result.array("errors").reshape(len(widths), chunks * runs, 3)
    rows = []
    for i, width in enumerate(widths):
        mean, error = mean_squares(errors[i])
        rows += [
            {"width": width, "step": k, "mean_square": mean[j], "standard_error": error[j]}
            for j, k in enumerate(record)
        ]
    table = pd.DataFrame(rows)
    wide = table[table.width >= 1000]
    fits = pd.DataFrame(
        [
            {"step": step, "exponent": fit.exponent, "half_width": fit.half_width}
            for step, fit in (
                (step, power_fit(g.width, g.mean_square, g.standard_error))
                for step, g in wide.groupby("step")
            )
        ]
    )
    batches = _batches(request.seed)
    network = LinearNetwork(batches.in_features)
    limit = train(network, batches, step_size=_STEP_SIZE, steps=steps)
    full = train(network, batches.full, step_size=_STEP_SIZE, steps=steps)
    finite = train(
        network.with_width(1000), batches, step_size=_STEP_SIZE, steps=steps, seed=request.seed
    )
    least = batches.full.evaluate(batches.full.minimum_norm(), square())[0]
    paths = pd.concat(
        pd.DataFrame({"run": name, "step": np.arange(steps + 1), "excess": run.loss - least})
        for name, run in (("limit", limit), ("m = 1000", finite), ("limit, full batch", full))
    )
    gap = np.abs(finite.loss - limit.loss).max() / limit.loss[0]
    caption = (
        f"n = 96 noisy samples, d = 12, batches of 8, steps of size {_STEP_SIZE:g}. (a) Loss on "
        "all "
        "samples above its least value; the limit and a network of width 1000 see the same "
        f"batches, and their losses differ by at most {gap:.3f} of the loss at the start. "
        f"(b) {chunks * runs} networks a width on the same batches: exponents of m for m ≥ 1000, "
        "in "
        "theory −1: "
        + ", ".join(
            f"{r.exponent:+.3f} ± {r.half_width:.3f} at κ = {r.step}" for r in fits.itertuples()
        )
        + "."
    )
    tables = {"": table, "exponents": fits, "paths": paths}
    return FigureRecord(
        "L-sgd", _SGD_TITLE, caption, tables, {"steps": steps, "seed": request.seed}
    )


def _draw_sgd(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 2, size=(4.6, 3.6))
    styles = {"limit": ("k", "-", 2.2), "m = 1000": (COLORS[1], "-", 1.0),
              "limit, full batch": (COLORS[0], "--", 1.2)}  # fmt: skip
    labels = {"limit": r"$m = \infty$", "m = 1000": r"$m = 1000$, same batches",
              "limit, full batch": r"$m = \infty$, all samples"}  # fmt: skip
    for name, part in record.tables["paths"].groupby("run", sort=False):
        color, line, width = styles[str(name)]
        axes[0, 0].plot(part.step, part.excess, line, color=color, linewidth=width,
                        label=labels[str(name)])  # fmt: skip
    fits = record.tables["exponents"].set_index("step")
    groups = [
        (f"κ = {step}", part, fits.loc[step]) for step, part in record.tables[""].groupby("step")
    ]
    draw_distances(axes[0, 1], groups)
    axes[0, 0].set_yscale("log")
    label_axes(axes[0, 0], "(a) training", "step κ", "loss − least loss")
    axes[0, 0].legend()
    axes[0, 1].legend(fontsize=7)
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (
    FigureSpec("L-parametrizations", _RULES_TITLE, _compute_rules, _draw_rules),
    FigureSpec("L-sgd", _SGD_TITLE, _compute_sgd, _draw_sgd),
)
"""The studies."""
