r"""Figure L2 and its continuation: the limit at several scales s of the output.

L, section 2 (Figure 2.2): the predictor is multiplied by s. As :math:`s\to\infty` the dynamics of
the limit become the linear ones of (2.17), :math:`\lambda' = -\int x(\lambda^\top x-y)d\rho`, at
3s² times their speed: each of the three layers contributes s². For small s a plateau comes before
exponential convergence (two phases). Rescaling the weights, :math:`U = s^{-1/3}\tilde U` and so
on, turns the network into one of scale 1 that starts at :math:`s^{1/3}` times the usual size and
runs at the speed :math:`s^{2/3}`; it leaves a saddle of order three in a time of order
:math:`s^{-1/3}` of its own. So the plateau lasts :math:`t \sim 1/s`, and the second phase converges
at a rate of order :math:`s^{2/3}`.

In the text's setting x is isotropic; then every path of the limit is the segment from 0 to λ*, at
all scales, and the dynamics differ by their speed along it only. The curved paths are those of the
notebook's samples.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.linear_settings import Setting, linear_setting
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.linear import LinearNetwork, train
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = "L, Figure 2.2: the limit at several scales of the output"
_SCALES_TITLE = "L, section 2: two phases at small scale, linear dynamics at large scale"
_SCALES = (0.01, 0.1, 1.0, 10.0)
_STEP_SIZE = 0.001
_POINTS = 400
_SHORT_STEP = 0.1
"""Step size times the largest curvature, in the continuation."""
_MAX_STEPS = 100_000


def linear_path(setting: Setting, times: np.ndarray) -> np.ndarray:
    r"""The linear dynamics (2.17), :math:`\lambda(t) = (I - e^{-\Sigma t})\lambda^*`.

    Args:
        setting: the data.
        times: shape (T,).

    Returns:
        Predictors of shape (T, d).
    """
    values, vectors = np.linalg.eigh(setting.second_moments)
    weights = -np.expm1(-np.multiply.outer(times, values.clip(0.0)))
    return np.asarray((weights * (setting.solution @ vectors)) @ vectors.T)


def distance_from_path(points: np.ndarray, path: np.ndarray) -> float:
    """Largest distance of points from a polygonal path, relative to the path's end.

    Args:
        points: shape (P, d).
        path: corners, shape (T, d).

    Returns:
        The distance.
    """
    start, edge = path[:-1], np.diff(path, axis=0)
    square = np.maximum(np.sum(edge**2, axis=1), np.finfo(float).tiny)
    largest = 0.0
    for point in points:
        along = np.clip(np.sum((point - start) * edge, axis=1) / square, 0.0, 1.0)
        gaps = np.linalg.norm(point - start - along[:, None] * edge, axis=1)
        largest = max(largest, float(gaps.min()))
    return largest / float(np.linalg.norm(path[-1]))


def _thin(count: int) -> np.ndarray:
    """Indices on a logarithmic grid, the ends included."""
    grid = np.geomspace(1, count, min(count, _POINTS)) - 1
    return np.unique(np.rint(grid).astype(int))


def _compute(request: Request) -> FigureRecord:
    setting = linear_setting(request.setting, request.seed)
    steps = 1500 if request.quick else 10_000
    reference = linear_path(setting, np.concatenate([[0.0], np.geomspace(1e-4, 1e6, 4000)]))
    parts, rows = [], []
    for scale in _SCALES:
        # The notebook's gradients lack the factor s.
        step_size = _STEP_SIZE / scale if setting.name == "code" else _STEP_SIZE
        run = train(
            LinearNetwork(setting.in_features, scale=scale),
            setting.data,
            step_size=step_size,
            steps=steps,
        )
        half = np.flatnonzero(run.loss <= run.loss[0] / 2)
        kept = _thin(len(run.loss))
        curve = distance_from_path(run.predictor[kept], reference)
        rows.append(
            {
                "scale": scale,
                "step_size": step_size,
                "half_loss_step": int(half[0]) if len(half) else math.nan,
                "final_relative_loss": run.loss[-1] / run.loss[0],
                "distance_from_linear_path": curve,
            }
        )
        parts.append(
            pd.DataFrame(
                {
                    "scale": scale,
                    "step": kept,
                    "first": run.predictor[kept, 0],
                    "second": run.predictor[kept, 1],
                    "relative_loss": run.loss[kept] / run.loss[0],
                }
            )
        )
    table = pd.DataFrame(rows)
    linear = pd.DataFrame({"first": reference[:, 0], "second": reference[:, 1]})
    solution = setting.solution
    settings = {
        "setting": setting.name,
        "steps": steps,
        "solution": (float(solution[0]), float(solution[1])),
        "seed": request.seed,
    }
    halves = table.set_index("scale").half_loss_step
    caption = (
        f"Limit model, {setting.label}; {steps} steps of size {_STEP_SIZE:g}"
        + (
            " (gradients without the factor s, as in the notebook)"
            if setting.name == "code"
            else ""
        )
        + ". (a) Two coordinates of the predictor; dashed: linear dynamics (2.17). Largest "
        "distance from its path, relative to ‖λ*‖: "
        + ", ".join(
            f"{r.distance_from_linear_path:.1e} at s = {r.scale:g}" for r in table.itertuples()
        )
        + (". With isotropic inputs all paths are one segment" if setting.name == "text" else "")
        + ". (b) Loss over its start; it falls to one half at step "
        + ", ".join(
            f"{'> ' + str(steps) if math.isnan(k) else int(k)} (s = {s:g})"
            for s, k in halves.items()
        )
        + "."
    )
    tables = {"": table, "paths": pd.concat(parts), "linear": linear}
    return FigureRecord("L2", _TITLE, caption, tables, settings)


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 2, size=(4.8, 3.8))
    paths, settings = record.tables["paths"], record.settings
    straight = settings["setting"] == "text"
    for i, (scale, part) in enumerate(paths.groupby("scale")):
        # Paths on one line stay visible if the earlier ones are wider.
        width = 8.0 - 2 * i if straight else 1.5
        axes[0, 0].plot(
            part["first"], part.second, color=COLORS[i], linewidth=width, label=f"s = {scale:g}"
        )
        axes[0, 1].plot(part.step + 1, part.relative_loss, color=COLORS[i], label=f"s = {scale:g}")
    ax, linear = axes[0, 0], record.tables["linear"]
    ax.plot(linear["first"], linear.second, "k--", linewidth=1.2, label=r"$s = \infty$: linear")
    ax.plot(0, 0, "ko", ms=5, label="0 (start)")
    ax.plot(*settings["solution"], "D", color="#CC0000", ms=6, label=r"$\lambda^*$ (minimum norm)")
    label_axes(
        ax, "(a) paths of the limit's predictor", r"$\lambda_1(\kappa)$", r"$\lambda_2(\kappa)$"
    )
    ax.legend(fontsize=7)
    ax = axes[0, 1]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(1e-6, 2)
    label_axes(ax, "(b) loss", r"$\kappa + 1$ (steps)", "loss / loss at the start")
    ax.legend()
    write_caption(figure, record.title, record.caption)
    return figure


def _measure_scale(scale: float, data_seed: int, seed: int) -> dict[str, float]:
    """Descent of the limit with small steps: half-loss time, final rate, distance from linear."""
    setting = linear_setting("study", data_seed)
    length = float(np.linalg.norm(setting.solution))
    # Speeds of the predictor at the start, 3 s², and with balanced layers at the end.
    fastest = 3 * scale**2 + 3 * scale ** (2 / 3) * length ** (4 / 3)
    values, vectors = np.linalg.eigh(setting.second_moments)
    step_size = _SHORT_STEP / (values[-1] * fastest)
    run = train(
        LinearNetwork(setting.in_features, scale=scale),
        setting.data,
        step_size=step_size,
        steps=_MAX_STEPS,
        stop_at=1e-10,
    )
    loss, time = run.loss, step_size * run.times
    half = float(np.interp(-math.log(0.5), -np.log(loss / loss[0]), time))
    tail = loss < 1e-6
    rate = -np.polyfit(time[tail], np.log(loss[tail]), 1)[0]
    # The linear dynamics with the same steps, 3 s² times as long.
    factors = 1.0 - 3 * scale**2 * step_size * values.clip(0.0)
    weights = 1.0 - np.power.outer(factors, np.arange(len(loss))).T
    linear = (weights * (setting.solution @ vectors)) @ vectors.T
    gap = np.linalg.norm(run.predictor - linear, axis=1).max() / length
    return {"half_time": half, "rate": float(rate), "gap": float(gap)}


def _compute_scales(request: Request) -> FigureRecord:
    exponents = np.linspace(-4, 2, 7 if request.quick else 19)
    result = sweep(
        _measure_scale,
        {"scale": [float(10**e) for e in exponents], "data_seed": [request.seed]},
        name="linear_scales",
        on_error="raise",
        **request.sweep_options(),
    )
    table = result.to_frame()[["scale", "half_time", "rate", "gap"]]
    low, high = table[table.scale < 2e-3], table[table.scale > 9]

    def slope(part: pd.DataFrame, column: str) -> float:
        return float(np.polyfit(np.log(part.scale), np.log(part[column]), 1)[0])

    slopes = pd.DataFrame(
        {
            "quantity": ["half_time", "rate", "half_time", "rate", "gap"],
            "end": ["small s", "small s", "large s", "large s", "large s"],
            "exponent": [
                slope(low, "half_time"),
                slope(low, "rate"),
                *(slope(high, name) for name in ("half_time", "rate", "gap")),
            ],
            "theory": [-1.0, 2 / 3, -2.0, 2.0, -2.0],
        }
    )
    e = slopes.exponent
    caption = (
        f"Limit, short steps, {linear_setting('study', request.seed).label}. (a) Time at "
        f"which the loss is halved: exponent of s {e[0]:.3f} for small s (theory −1), {e[2]:.3f} "
        f"for large s (−2). (b) Rate of exponential convergence: exponent {e[1]:.3f} for small s "
        f"(⅔), {e[3]:.3f} for large s (2). So the plateau lasts longer than the second "
        "phase by a factor of order s^−⅓. (c) Largest distance, relative to ‖λ*‖, from "
        f"the linear dynamics at 3s² times their speed: exponent {e[4]:.2f} for large s (−2)."
    )
    settings = {"scales": tuple(table.scale), "seed": request.seed}
    return FigureRecord(
        "L-scales", _SCALES_TITLE, caption, {"": table, "exponents": slopes}, settings
    )


def _draw_scales(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    table = record.tables[""]
    figure, axes = panels(1, 3, size=(3.9, 3.5))
    scale = table.scale.to_numpy()
    for ax, name, low, high, title, label in (
        (axes[0, 0], "half_time", -1.0, -2.0, "(a) plateau", "time until the loss is halved"),
        (axes[0, 1], "rate", 2 / 3, 2.0, "(b) second phase", "rate of decay of the loss"),
    ):
        value = table[name].to_numpy()
        ax.plot(scale, value, "o-", ms=3, color=COLORS[0], label="measured")
        small = value[0] * (scale / scale[0]) ** low
        large = value[-1] * (scale / scale[-1]) ** high
        power = {-1.0: "-1", 2 / 3: "2/3"}[low]
        ax.plot(scale[scale <= 3], small[scale <= 3], "--", color=COLORS[1],
                label=f"$s^{{{power}}}$ (theory, small s)")  # fmt: skip
        ax.plot(scale[scale >= 0.3], large[scale >= 0.3], ":", color=COLORS[2],
                label=f"$s^{{{int(high)}}}$ (theory, large s)")  # fmt: skip
        label_axes(ax, title, "scale s", label)
    ax = axes[0, 2]
    ax.plot(scale, table.gap, "o-", ms=3, color=COLORS[0], label="at equal times $3 s^2 t$")
    large = scale >= 0.3
    ax.plot(scale[large], table.gap.iloc[-1] * (scale[large] / scale[-1]) ** -2.0, ":",
            color=COLORS[2], label="$s^{-2}$ (theory, large s)")  # fmt: skip
    label_axes(ax, "(c) distance from linear dynamics", "scale s", r"distance / $\|\lambda^*\|$")
    for ax in axes[0]:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.legend()
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (
    FigureSpec("L2", _TITLE, _compute, _draw),
    FigureSpec("L-scales", _SCALES_TITLE, _compute_scales, _draw_scales),
)
"""The figure and the study."""
