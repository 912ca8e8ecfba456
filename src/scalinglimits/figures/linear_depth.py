r"""Deeper networks, and orthogonal initialisation.

L, section 6: with any number of hidden matrices the same limit exists, and the mean square error
is again of order 1/m (``L-depth``). With n hidden matrices and balanced layers the predictor moves
at the speed :math:`(n+2)\,\|\lambda\|^{2(n+1)/(n+2)}`; here the step size is a fifth of the
longest one that this allows at the end.

``L-orthogonal``: Haar matrices in the place of Gaussian ones. At infinite width both keep all
lengths in one product, so that training starts alike; but a Haar matrix has singular values 1
while those of a square Gaussian one fill [0, 2], and the runs part.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.linear_settings import (
    Setting,
    draw_distances,
    errors_from_limit,
    linear_setting,
    longest_step_size,
    mean_squares,
    power_fit,
)
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.linear import LinearNetwork, train
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEPTH_TITLE = "L, section 6: networks with more hidden matrices have the same kind of limit"
_ORTHOGONAL_TITLE = "Orthogonal against Gaussian initialisation, at infinite width"
_HIDDEN = (1, 2, 3, 5)
_STEPS = 60
_ORTHOGONAL_STEPS = 200


def depth_step_size(setting: Setting, hidden: int) -> float:
    """A fifth of the longest stable step of balanced layers at the solution.

    Args:
        setting: the data.
        hidden: number n of hidden matrices.

    Returns:
        The step size.
    """
    curvature = float(np.linalg.eigvalsh(setting.second_moments)[-1])
    return 0.2 * longest_step_size(curvature, hidden, float(np.linalg.norm(setting.solution)))


def _measure(
    hidden: int, width: int, runs: int, data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    """Squared distances of finite networks from the limit, at the start and the end."""
    setting = linear_setting("study", data_seed)
    network = LinearNetwork(setting.in_features, hidden=hidden, width=width)
    errors = errors_from_limit(
        network,
        setting.data,
        runs=runs,
        record=[0, _STEPS],
        step_size=depth_step_size(setting, hidden),
        seed=seed,
    )
    return {"errors": errors}


def _compute_depth(request: Request) -> FigureRecord:
    setting = linear_setting("study", request.seed)
    widths = [100, 10**5] if request.quick else [10, 100, 10**4, 10**6, 10**9]
    runs, chunks = (8, 2) if request.quick else (16, 3)
    result = sweep(
        _measure,
        {"hidden": list(_HIDDEN), "width": widths, "runs": [runs], "data_seed": [request.seed]},
        chunks,
        name="linear_depth",
        on_error="raise",
        **request.sweep_options(),
    )
    errors = result.array("errors").reshape(len(_HIDDEN), len(widths), chunks * runs, 2)
    rows, fits, curves = [], [], []
    for i, hidden in enumerate(_HIDDEN):
        mean, error = mean_squares(np.moveaxis(errors[i], 1, 0))
        rows += [
            {
                "hidden": hidden,
                "width": width,
                "mean_square_start": mean[j, 0],
                "mean_square": mean[j, 1],
                "standard_error": error[j, 1],
                "runs": chunks * runs,
            }
            for j, width in enumerate(widths)
        ]
        wide = np.array(widths) >= 100
        fit = power_fit(np.array(widths)[wide], mean[wide, 1], error[wide, 1])
        fits.append({"hidden": hidden, "exponent": fit.exponent, "half_width": fit.half_width})
        run = train(
            LinearNetwork(setting.in_features, hidden=hidden),
            setting.data,
            step_size=depth_step_size(setting, hidden),
            steps=_STEPS,
        )
        curves.append(
            pd.DataFrame(
                {
                    "hidden": hidden,
                    "step": np.arange(_STEPS + 1),
                    "relative_loss": run.loss / run.loss[0],
                    "distance": setting.distance(run.predictor),
                    "largest_dimension": run.dimensions.max(axis=1),
                }
            )
        )
    exponents = pd.DataFrame(fits)
    limits = pd.concat(curves)
    last = limits[limits.step == _STEPS].set_index("hidden")
    caption = (
        f"{setting.label}. (a) Loss of the limit, n hidden matrices, {_STEPS} steps, each a fifth "
        "of the longest stable step of balanced layers; distance from the minimum-norm "
        "interpolator at the end, relative to its norm: "
        + ", ".join(f"{r.distance:.1e} (n = {n})" for n, r in last.iterrows())
        + f". (b) Mean square distance of {chunks * runs} networks a point from the limit after "
        f"{_STEPS} steps; exponents of m for m ≥ 100, in theory −1: "
        + ", ".join(
            f"{r.exponent:+.3f} ± {r.half_width:.3f} (n = {r.hidden})"
            for r in exponents.itertuples()
        )
        + "."
    )
    tables = {"": pd.DataFrame(rows), "exponents": exponents, "limits": limits}
    return FigureRecord("L-depth", _DEPTH_TITLE, caption, tables, {"seed": request.seed})


def _draw_depth(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 2, size=(4.6, 3.6))
    exponents = record.tables["exponents"].set_index("hidden")
    for i, (hidden, part) in enumerate(record.tables["limits"].groupby("hidden")):
        axes[0, 0].plot(part.step, part.relative_loss, color=COLORS[i], label=f"n = {hidden}")
    groups = [
        (f"n = {hidden}", part, exponents.loc[hidden])
        for hidden, part in record.tables[""].groupby("hidden")
    ]
    draw_distances(axes[0, 1], groups)
    axes[0, 0].set_yscale("log")
    label_axes(axes[0, 0], "(a) the limit", "step κ", "loss / loss at the start")
    axes[0, 0].legend()
    axes[0, 1].legend(fontsize=7)
    write_caption(figure, record.title, record.caption)
    return figure


def _compute_orthogonal(request: Request) -> FigureRecord:
    setting = linear_setting("study", request.seed)
    curves, rows = [], []
    for hidden in _HIDDEN:
        step_size = depth_step_size(setting, hidden)
        loss, dimension = {}, {}
        for matrices in ("gaussian", "haar"):
            run = train(
                LinearNetwork(setting.in_features, hidden=hidden, matrices=matrices),
                setting.data,
                step_size=step_size,
                steps=_ORTHOGONAL_STEPS,
            )
            loss[matrices] = run.loss / run.loss[0]
            dimension[matrices] = int(run.dimensions.max())
            curves.append(
                pd.DataFrame(
                    {
                        "hidden": hidden,
                        "matrices": matrices,
                        "step": np.arange(_ORTHOGONAL_STEPS + 1),
                        "relative_loss": loss[matrices],
                    }
                )
            )
        ratio = np.log(loss["haar"] / loss["gaussian"])
        early = np.maximum(loss["haar"], loss["gaussian"]) > 1e-6
        rows.append(
            {
                "hidden": hidden,
                "steps_gaussian": _first_below(loss["gaussian"], 1e-3),
                "steps_haar": _first_below(loss["haar"], 1e-3),
                "loss_ratio_first_step": math.exp(ratio[1]),
                "largest_log_ratio": float(ratio[early][np.abs(ratio[early]).argmax()]),
                "dimensions_gaussian": dimension["gaussian"],
                "dimensions_haar": dimension["haar"],
            }
        )
    table = pd.DataFrame(rows)
    caption = (
        f"{setting.label}; n hidden matrices, the same step size for both. Steps to a thousandth "
        "of the loss, interpolated, Gaussian and Haar: "
        + ", ".join(
            f"{r.steps_gaussian:.1f} and {r.steps_haar:.1f} (n = {r.hidden})"
            for r in table.itertuples()
        )
        + ". After one step the losses agree (ratio "
        + ", ".join(f"{x:.6f}" for x in table.loss_ratio_first_step)
        + "): the first forward and backward passes keep lengths in both. Basis vectors needed by "
        "the widest layer: "
        + ", ".join(f"{r.dimensions_gaussian} and {r.dimensions_haar}" for r in table.itertuples())
        + "."
    )
    settings = {"seed": request.seed}
    tables = {"": table, "curves": pd.concat(curves)}
    return FigureRecord("L-orthogonal", _ORTHOGONAL_TITLE, caption, tables, settings)


def _first_below(loss: np.ndarray, level: float) -> float:
    """The step, interpolated in the logarithm, at which the loss falls below a level."""
    k = int(np.flatnonzero(loss <= level)[0])
    above, below = math.log(loss[k - 1]), math.log(loss[k])
    return k - 1 + (above - math.log(level)) / (above - below)


def _draw_orthogonal(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 2, size=(4.6, 3.6))
    for i, (hidden, part) in enumerate(record.tables["curves"].groupby("hidden")):
        by = dict(tuple(part.groupby("matrices")))
        ax = axes[0, 0]
        ax.plot(by["gaussian"].step, by["gaussian"].relative_loss, color=COLORS[i],
                label=f"n = {hidden}, Gaussian")  # fmt: skip
        ax.plot(by["haar"].step, by["haar"].relative_loss, "--", color=COLORS[i],
                label=f"n = {hidden}, Haar")  # fmt: skip
        ratio = by["haar"].relative_loss.to_numpy() / by["gaussian"].relative_loss.to_numpy()
        kept = by["gaussian"].relative_loss.to_numpy() > 1e-6
        axes[0, 1].plot(by["haar"].step[kept], ratio[kept], color=COLORS[i], label=f"n = {hidden}")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(1e-7, 2)
    axes[0, 0].set_xlim(0, 120)
    axes[0, 1].axhline(1.0, color="0.4", linewidth=0.8)
    label_axes(axes[0, 0], "(a) loss", "step κ", "loss / loss at the start")
    label_axes(axes[0, 1], "(b) Haar against Gaussian, down to a loss of 1e−6", "step κ",
               "loss with Haar / loss with Gaussian")  # fmt: skip
    axes[0, 0].legend(fontsize=7)
    axes[0, 1].legend()
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (
    FigureSpec("L-depth", _DEPTH_TITLE, _compute_depth, _draw_depth),
    FigureSpec("L-orthogonal", _ORTHOGONAL_TITLE, _compute_orthogonal, _draw_orthogonal),
)
"""The studies."""
