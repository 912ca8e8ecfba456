r"""Where training ends: at the minimum-norm interpolator, exponentially fast.

L, section 2 and section 5: with fewer samples than dimensions the limit, which starts at 0, ends
at the interpolator of least norm. Near the end the predictor follows
:math:`\lambda' = -K\Sigma(\lambda-\lambda^*)` with
:math:`K = \|b\|^2 I + \|V\|^2 U^\top U + (\hat WU)^\top\hat WU` of the weights there, so the
distance decays like the smallest non-zero eigenvalue of :math:`K\Sigma`: drawn beside the
measurement. A
network of finite width starts at a random predictor and ends at another interpolator, at a mean
square distance of order 1/m.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.linear_settings import (
    finite_networks,
    linear_setting,
    mean_squares,
    power_fit,
    width_label,
)
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.linear import LinearNetwork, Trajectory, train
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = "L, section 5: training ends at the minimum-norm interpolator, exponentially fast"
_FLOOR = 1e-8
"""Relative distance at which the exponential rate is no longer fitted."""


def end_factor(run: Trajectory, second_moments: np.ndarray, step_size: float) -> float:
    r"""Factor of the distance to the end in one late step, from the weights at the end.

    Args:
        run: a finished run of a network with one hidden matrix.
        second_moments: Σ, shape (d, d).
        step_size: τ.

    Returns:
        The largest :math:`|1-\tau\mu|` over the non-zero eigenvalues μ of KΣ.
    """
    state = run.state
    assert state is not None
    U, V = state.U, state.V
    image = state.matrices[0].matvec(U)
    back = state.matrices[0].rmatvec(V)
    state.trained[0].add_product(U, image)
    state.trained[0].add_product(V, back, transpose=True)
    K = (back @ back) * np.eye(U.shape[1]) + (V @ V) * (U.T @ U) + image.T @ image
    # Eigenvalues of KΣ are those of R K Rᵀ with Σ = Rᵀ R.
    values, vectors = np.linalg.eigh(second_moments)
    kept = values > 1e-10 * values[-1]
    root = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    return float(np.abs(1.0 - step_size * np.linalg.eigvalsh(root @ K @ root.T)).max())


def _measure_ends(
    setting: str, width: int, runs: int, steps: int, data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    """Relative distances of finite networks from the minimum-norm solution."""
    made = linear_setting(setting, data_seed)
    found = finite_networks(made, width, runs, steps, seed)
    return {"distance": made.distance(found.predictor), "loss": found.loss}


def _compute(request: Request) -> FigureRecord:
    setting = linear_setting("study", request.seed)
    steps, runs = 300, 64 if request.quick else 512
    run = train(
        LinearNetwork(setting.in_features), setting.data, step_size=setting.step_size, steps=steps
    )
    distance = setting.distance(run.predictor)
    fitted = np.flatnonzero((distance < 1e-3) & (distance > _FLOOR))
    factor = math.exp(np.polyfit(fitted, np.log(distance[fitted]), 1)[0])
    theory = end_factor(run, setting.second_moments, setting.step_size)
    widths = [10**k for k in range(1, 10, 2)]
    result = sweep(
        _measure_ends,
        {"setting": ["study"], "width": widths, "runs": [runs], "steps": [steps],
         "data_seed": [request.seed]},
        name="linear_ends",
        on_error="raise",
        **request.sweep_options(),
    )  # fmt: skip
    shape = (len(widths), runs, steps + 1)
    distances, losses = (result.array(name).reshape(shape) for name in ("distance", "loss"))
    mean, error = mean_squares(distances[:, :, -1].T ** 2)
    fit = power_fit(np.array(widths[1:]), mean[1:], error[1:])
    ends = pd.DataFrame(
        {
            "width": widths,
            "mean_square_distance": mean,
            "standard_error": error,
            "largest_loss": losses[:, :, -1].max(axis=1),
            "runs": runs,
        }
    )
    paths = [pd.DataFrame({"width": math.inf, "step": np.arange(steps + 1), "distance": distance})]
    paths += [
        pd.DataFrame({"width": float(m), "step": np.arange(steps + 1), "distance": distances[i, 0]})
        for i, m in enumerate(widths)
    ]
    rates = pd.DataFrame({"factor": [factor], "theory": [theory], "distance": [distance.min()]})
    caption = (
        f"{setting.label}; steps of size {setting.step_size:g}. (a) Distance from the minimum-norm "
        f"interpolator, relative to its norm: the limit's falls to {distance.min():.1e}, by a "
        f"factor of {factor:.5f} a step; from the weights at the end {theory:.5f} (dashed). One "
        "network "
        f"of each finite width beside it. (b) Mean square distance at the end, {runs} networks a "
        f"width, all with a loss below {ends.largest_loss[1:].max():.1e} from m = 1000 on; "
        "exponent of m "
        f"there {fit}, in theory −1."
    )
    settings = {"steps": steps, "runs": runs, "seed": request.seed}
    tables = {"": ends, "paths": pd.concat(paths), "rate": rates}
    return FigureRecord("L-endpoint", _TITLE, caption, tables, settings)


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 2, size=(4.8, 3.7))
    ax, rate = axes[0, 0], record.tables["rate"].iloc[0]
    for i, (width, part) in enumerate(record.tables["paths"].groupby("width")):
        limit = math.isinf(float(width))
        ax.plot(
            part.step,
            part.distance,
            color="black" if limit else COLORS[i % len(COLORS)],
            linewidth=1.8 if limit else 1.0,
            label=width_label(float(width)),
        )
        if limit:
            anchor = part[part.distance < 1e-4].iloc[0]
            steps = part.step[(part.distance < 1e-1) & (part.distance > 1e-13)]
            line = anchor.distance * rate.theory ** (steps - anchor.step)
            ax.plot(steps, 3 * line, "--", color=COLORS[1],
                    label="rate from the final weights (shifted)")  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(bottom=1e-21)
    label_axes(ax, "(a) distance from the minimum-norm interpolator", "step κ",
               r"$\|\lambda(\kappa) - \lambda^*\|\,/\,\|\lambda^*\|$")  # fmt: skip
    ax.legend(fontsize=7, ncols=3, loc="lower left")
    ax, ends = axes[0, 1], record.tables[""]
    ax.errorbar(ends.width, ends.mean_square_distance, 1.96 * ends.standard_error, fmt="o", ms=4,
                color=COLORS[0], label="networks, 95 % intervals")  # fmt: skip
    last = ends.iloc[-1]
    ax.plot(ends.width, last.mean_square_distance * last.width / ends.width, "--",
            color=COLORS[1], label="slope −1")  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    label_axes(ax, "(b) where finite networks end", "width m",
               r"$E\,\|\lambda^m(\infty) - \lambda^*\|^2\,/\,\|\lambda^*\|^2$")  # fmt: skip
    ax.legend()
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (FigureSpec("L-endpoint", _TITLE, _compute, _draw),)
"""The study."""
