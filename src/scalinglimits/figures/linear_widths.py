r"""Figure L1 and its continuation: finite networks approach the limit at the rate 1/m.

L, section 2 (Figure 2.1): paths of the predictor at several widths m beside the limit's; the mean
square error :math:`E\|\lambda^m(\kappa)-\lambda^\infty(\kappa)\|^2` against the width, at the
start and at large time, (2.16) with :math:`\varepsilon=0`; and the mean square of the entries of
V, whose limit is :math:`\|B\|^2` (2.13). ``L-convergence`` measures the exponent for widths from
10 to 10⁹ in both settings. At κ = 0 the mean square error is d/m exactly.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.linear_settings import (
    PowerFit,
    Setting,
    error_bars,
    errors_from_limit,
    finite_networks,
    linear_setting,
    mean_squares,
    power_fit,
    width_label,
)
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.linear import LinearNetwork, train
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "L, Figure 2.1: networks of finite width and their limit"
_CONVERGENCE_TITLE = "L, (2.16): the mean square error is of order 1/m, for widths 10 to 10⁹"
_PATH_WIDTHS = (10, 100, 1000)
_LEAST_WIDTH = {"L1": 1000, "L-convergence": 1000}
"""Exponents are fitted from here on: narrower networks feel higher powers of 1/m."""


def _late(setting: Setting, steps: int) -> int:
    """A step of large time; in the text's setting, before all predictors have met at λ*."""
    return min(steps, 5) if setting.name == "text" else steps


def _measure_paths(
    setting: str, width: int, runs: int, steps: int, data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    """Train networks of one width: paths of two coordinates, losses, squares of V."""
    made = linear_setting(setting, data_seed)
    found = finite_networks(made, width, runs, steps, seed)
    return {
        "path": found.predictor[:, :, :2],
        "loss": found.loss,
        "v_square": found.v_square,
        "diverged": found.diverged,
    }


def _measure_errors(
    setting: str, width: int, runs: int, record: tuple[int, ...], data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    """Squared distances from the limit at the recorded steps, shape (runs, len(record))."""
    made = linear_setting(setting, data_seed)
    network = LinearNetwork(made.in_features, width=width)
    errors = errors_from_limit(
        network, made.data, runs=runs, record=record, step_size=made.step_size, seed=seed
    )
    return {"errors": errors}


def _error_table(
    setting: Setting, widths: list[int], chunks: int, record: tuple[int, ...], request: Request
) -> pd.DataFrame:
    """Mean square errors by width and step."""
    result = sweep(
        _measure_errors,
        {
            "setting": [setting.name],
            "width": widths,
            "runs": [32],
            "record": [record],
            "data_seed": [request.seed],
        },
        seeds=chunks,
        name="linear_errors",
        on_error="raise",
        **request.sweep_options(),
    )
    errors = result.array("errors").reshape(len(widths), chunks * 32, len(record))
    rows = []
    for i, width in enumerate(widths):
        mean, error = mean_squares(errors[i])
        for j, step in enumerate(record):
            rows.append(
                {
                    "setting": setting.name,
                    "width": width,
                    "step": step,
                    "mean_square": mean[j],
                    "standard_error": error[j],
                    "runs": chunks * 32,
                    "theory": setting.in_features / width if step == 0 else math.nan,
                }
            )
    return pd.DataFrame(rows)


def _fits(errors: pd.DataFrame, least: int) -> dict[int, PowerFit]:
    """Exponents at each step, over the widths from ``least`` on."""
    wide = errors[errors.width >= least]
    return {
        int(step): power_fit(g.width, g.mean_square, g.standard_error)
        for step, g in wide.groupby("step")
    }


def _compute(request: Request) -> FigureRecord:
    setting = linear_setting(request.setting, request.seed)
    steps = min(setting.steps, 300) if request.quick else setting.steps
    runs, chunks = (4, 1) if request.quick else (10, 6 if setting.name == "text" else 3)
    widths = [10**k for k in range(1, 8, 2 if request.quick else 1)]
    result = sweep(
        _measure_paths,
        {
            "setting": [setting.name],
            "width": list(_PATH_WIDTHS),
            "runs": [runs],
            "steps": [steps],
            "data_seed": [request.seed],
        },
        name="linear_paths",
        on_error="raise",
        **request.sweep_options(),
    )
    limit = train(
        LinearNetwork(setting.in_features), setting.data, step_size=setting.step_size, steps=steps
    )
    parts = [
        _path_frame(math.inf, 0, limit.predictor[:, :2], limit.loss, limit.v_square),
    ]
    for cell in result.cells:
        values = cell.values
        for run in range(runs):
            parts.append(
                _path_frame(
                    cell.config["width"],
                    run,
                    values["path"][run],
                    values["loss"][run],
                    values["v_square"][run],
                )
            )
    paths = pd.concat(parts, ignore_index=True)
    late = _late(setting, steps)
    errors = _error_table(setting, widths, chunks, (0, 1, late), request)
    fits = _fits(errors, _LEAST_WIDTH["L1"])
    end = paths[paths.step == steps]
    deviation = {
        width: float(np.sqrt(np.mean((g.v_square / limit.v_square[-1] - 1) ** 2)))
        for width, g in end[np.isfinite(end.width)].groupby("width")
    }
    solution = setting.solution
    distance = float(setting.distance(limit.predictor[-1]))
    settings = {
        "setting": setting.name,
        "steps": steps,
        "step_size": setting.step_size,
        "late": late,
        "solution": tuple(float(x) for x in solution[:2]),
        "runs": runs,
        "seed": request.seed,
    }
    caption = (
        f"{setting.label}; step size {setting.step_size:g}, {steps} steps, {runs} networks a width "
        "in (a) and (c). (a) Two coordinates of the predictor; the limit ends at relative "
        f"distance {distance:.1e} from the minimum-norm solution λ*. (b) {chunks * 32} networks "
        f"a width; exponents of m for m ≥ {_LEAST_WIDTH['L1']}: {fits[0]} at the start (exactly "
        "d/m), "
        f"{fits[1]} after one step, {fits[late]} after {late} steps; in theory −1. "
        f"(c) Mean square of the entries of V; the limit is ‖B‖², {limit.v_square[-1]:.4f} at the "
        "end; root mean square relative "
        "deviation from it there: "
        + ", ".join(f"{value:.3f} at m = {int(width)}" for width, value in deviation.items())
        + "."
    )
    return FigureRecord("L1", _TITLE, caption, {"": errors, "paths": paths}, settings)


def _path_frame(
    width: float, run: int, path: np.ndarray, loss: np.ndarray, v_square: np.ndarray
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "width": float(width),
            "run": run,
            "step": np.arange(len(path)),
            "first": path[:, 0],
            "second": path[:, 1],
            "loss": loss,
            "v_square": v_square,
        }
    )


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    errors, paths, settings = record.tables[""], record.tables["paths"], record.settings
    figure, axes = panels(1, 3, size=(3.9, 3.6))
    limit = paths[np.isinf(paths.width)]
    for i, width in enumerate(_PATH_WIDTHS):
        for run, part in paths[paths.width == width].groupby("run"):
            label = None if run else width_label(width)
            line = {"color": COLORS[i], "linewidth": 0.8, "alpha": 0.8, "label": label}
            axes[0, 0].plot(part["first"], part.second, **line)
            axes[0, 2].plot(part.step + 1, part.v_square, **line)
    ax = axes[0, 0]
    ax.plot(limit["first"], limit.second, "k--", linewidth=1.8, label=r"$m = \infty$")
    ax.plot(0, 0, "ko", ms=5, label="0 (start of the limit)")
    ax.plot(*settings["solution"], "D", color="#CC0000", ms=6, label=r"$\lambda^*$ (minimum norm)")
    label_axes(ax, "(a) paths of the predictor", r"$\lambda_1(\kappa)$", r"$\lambda_2(\kappa)$")
    ax.legend(fontsize=7)
    _draw_errors(axes[0, 1], errors, "(b) distance from the limit", _LEAST_WIDTH["L1"])
    ax = axes[0, 2]
    ax.plot(limit.step + 1, limit.v_square, "k--", linewidth=1.8, label=r"$\|B(\kappa)\|^2$, limit")
    ax.set_xscale("log")
    top = 2.0 * float(limit.v_square.max())
    ax.set_ylim(0, top)
    label_axes(ax, "(c) mean square of the entries of V", r"$\kappa + 1$", r"$\|V(\kappa)\|^2 / m$")
    ax.legend(fontsize=7)
    write_caption(figure, record.title, record.caption)
    return figure


def _draw_errors(ax: Axes, errors: pd.DataFrame, title: str, least: int) -> None:
    from scalinglimits.figures.style import COLORS, label_axes

    fits = _fits(errors, least)
    for i, (step, part) in enumerate(errors.groupby("step")):
        fit = fits[int(step)]
        color = COLORS[i % len(COLORS)]
        ax.errorbar(
            part.width,
            part.mean_square,
            error_bars(part.mean_square, part.standard_error),
            fmt="o",
            ms=3,
            color=color,
            label=f"κ = {step}: exponent {fit}",
        )
        # A line of slope −1 through the widest networks, where higher orders are smallest.
        constant = part.theory.iloc[-1] * part.width.iloc[-1]
        if math.isnan(constant):
            constant = float(part.mean_square.iloc[-1] * part.width.iloc[-1])
        ax.plot(part.width, constant / part.width, "--", linewidth=0.9, color=color)
    ax.plot([], [], "--", color="0.4", linewidth=0.9, label="slope −1 (κ = 0: d/m exactly)")
    ax.set_xscale("log")
    ax.set_yscale("log")
    label_axes(ax, title, "width m", r"$E\,\|\lambda^m(\kappa) - \lambda^\infty(\kappa)\|^2$")
    ax.legend(fontsize=7)


def _compute_convergence(request: Request) -> FigureRecord:
    widths = [10**k for k in range(1, 10, 2 if request.quick else 1)]
    records = {"text": (0, 1, 5, 20), "code": (0, 1, 30, 100 if request.quick else 1000)}
    parts, sentences, rows = [], [], []
    for name, record in records.items():
        chunks = 1 if request.quick else (32 if name == "text" else 4)
        errors = _error_table(linear_setting(name, request.seed), widths, chunks, record, request)
        parts.append(errors)
        every, wide = (_fits(errors, m) for m in (0, _LEAST_WIDTH["L-convergence"]))
        found = ", ".join(f"{fit} at κ = {step}" for step, fit in wide.items())
        sentences.append(f"{name} ({errors.runs.iloc[0]} networks a width): {found}")
        for step in record:
            rows.append(
                {
                    "setting": name,
                    "step": step,
                    "exponent": wide[step].exponent,
                    "half_width": wide[step].half_width,
                    "exponent_all_widths": every[step].exponent,
                    "half_width_all_widths": every[step].half_width,
                }
            )
    fits = pd.DataFrame(rows)
    regular = fits[(fits.setting == "code") | (fits.step <= 1)]
    late = fits[(fits.setting == "text") & (fits.step > 1)]
    caption = (
        "Mean square distance between networks of width 10 to 10⁹ and the limit. Exponents of m "
        f"over widths from {_LEAST_WIDTH['L-convergence']}, with 95 % intervals, in theory −1: "
        f"{'; '.join(sentences)}. Over all widths from 10 on they lie between "
        f"{regular.exponent_all_widths.min():.3f} and {regular.exponent_all_widths.max():.3f}, but "
        "for the text's setting at later steps, where networks of width 10 are still slow to "
        "learn while the others have all but met at λ* (exponents "
        + ", ".join(f"{e:.2f}" for e in late.exponent_all_widths)
        + "). Dashed: slope −1 through the widest point, and d/m at κ = 0, which is exact."
    )
    settings = {"widths": widths, "seed": request.seed}
    tables = {"": pd.concat(parts), "exponents": fits}
    return FigureRecord("L-convergence", _CONVERGENCE_TITLE, caption, tables, settings)


def _draw_convergence(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import panels, write_caption

    figure, axes = panels(1, 2, size=(4.8, 3.9))
    labels = {"text": "(a) text's setting", "code": "(b) public notebook's setting"}
    for ax, (name, title) in zip(axes[0], labels.items(), strict=True):
        table = record.tables[""]
        _draw_errors(ax, table[table.setting == name], title, _LEAST_WIDTH["L-convergence"])
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (
    FigureSpec("L1", _TITLE, _compute, _draw),
    FigureSpec("L-convergence", _CONVERGENCE_TITLE, _compute_convergence, _draw_convergence),
)
"""The figure and the study."""
