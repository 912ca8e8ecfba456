r"""Linear residual networks at infinite width: the best step size against the depth.

Layers :math:`f_l = f_{l-1} + \alpha_L\hat W_lf_{l-1}`, trained by gradient descent at infinite
width: no randomness, so that a learning-rate sweep has no sampling noise. At the start the
predictor moves
at the speed (in units of τξ) :math:`2(1+\alpha^2)^L` through U and V, and
:math:`L\alpha^2(1+\alpha^2)^{L-1}` through the L hidden matrices. With :math:`\alpha = L^{-1/2}`
they tend to 2e and e: all parts train, and the best step size has a limit. With
:math:`\alpha = 1/L` they tend to 2 and 1/L: the step size transfers, but the hidden matrices stay
where they are, unless their step size grows like L, which restores 2 and 1.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import optimize

from scalinglimits.figures.linear_settings import linear_setting
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.linear import LinearNetwork, Trajectory, train
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = "Linear residual networks at infinite width: the best step size against the depth"
_STEPS = 16
_RULES = {
    "sqrt": r"$\alpha = L^{-1/2}$",
    "inverse": r"$\alpha = 1/L$",
    "inverse, scaled": r"$\alpha = 1/L$, hidden step size $\times L$",
}
_PLAIN = {"sqrt": "α = L^−½", "inverse": "α = 1/L", "inverse, scaled": "α = 1/L with steps × L"}


def _train(rule: str, depth: int, step_size: float, data_seed: int) -> Trajectory:
    setting = linear_setting("study", data_seed)
    alpha = depth**-0.5 if rule == "sqrt" else 1.0 / depth
    inner = step_size * (depth if rule == "inverse, scaled" else 1)
    return train(
        LinearNetwork(setting.in_features, hidden=depth, residual_scale=alpha),
        setting.data,
        layer_step_sizes=[step_size, *[inner] * depth, step_size],
        steps=_STEPS,
    )


def _relative_loss(run: Trajectory) -> float:
    return float(run.loss[-1] / run.loss[0]) if not run.diverged else math.inf


def _measure(
    rule: str, depth: int, grid: tuple[float, ...], refine: bool, data_seed: int, seed: int
) -> dict[str, np.ndarray | float]:
    """Loss after a few steps against the step size, and the best one."""
    losses = np.array([_relative_loss(_train(rule, depth, t, data_seed)) for t in grid])
    best = int(np.argmin(losses))
    lower, upper = math.log(grid[max(best - 1, 0)]), math.log(grid[min(best + 1, len(grid) - 1)])
    found = optimize.minimize_scalar(
        lambda t: math.log(_relative_loss(_train(rule, depth, math.exp(t), data_seed))),
        bounds=(lower, upper),
        method="bounded",
        options={"xatol": 3e-3 if refine else 1e-2},
    )
    run = _train(rule, depth, math.exp(found.x), data_seed)
    return {
        "losses": losses,
        "best": math.exp(found.x),
        "best_loss": _relative_loss(run),
        # The hidden matrices' part of |dU|² + |dW|² + |dV|², with alpha as they enter.
        "hidden_movement": float(run.w_square[-1].sum()),
    }


def _speeds(rule: str, depth: int) -> tuple[float, float]:
    """Speeds of the predictor at the start: through U and V, and through the hidden matrices."""
    square = 1.0 / depth if rule == "sqrt" else 1.0 / depth**2
    outer = 2 * (1 + square) ** depth
    inner = depth * square * (1 + square) ** (depth - 1)
    return outer, inner * (depth if rule == "inverse, scaled" else 1)


def _compute(request: Request) -> FigureRecord:
    depths = [2, 4, 8] if request.quick else [2, 4, 8, 16, 32]
    grid = tuple(np.geomspace(0.01, 0.14, 9 if request.quick else 13).tolist())
    result = sweep(
        _measure,
        {"rule": list(_RULES), "depth": depths, "grid": [grid], "refine": [not request.quick],
         "data_seed": [request.seed]},
        name="linear_residual",
        on_error="raise",
        **request.sweep_options(),
    )  # fmt: skip
    rows, curves = [], []
    for cell in result.cells:
        rule, depth = cell.config["rule"], cell.config["depth"]
        outer, inner = _speeds(rule, depth)
        rows.append(
            {
                "rule": rule,
                "depth": depth,
                "best_step_size": cell.values["best"],
                "best_relative_loss": cell.values["best_loss"],
                "hidden_movement": cell.values["hidden_movement"],
                "theory_hidden_share": inner / (inner + outer),
                "theory_speed": inner + outer,
            }
        )
        curves.append(
            pd.DataFrame(
                {
                    "rule": rule,
                    "depth": depth,
                    "step_size": grid,
                    "relative_loss": cell.values["losses"],
                }
            )
        )
    table = pd.DataFrame(rows)
    sentences = []
    for rule, part in table.groupby("rule", sort=False):
        best, depth = part.best_step_size.to_numpy(), part.depth.to_numpy()
        slope = math.log(best[-1] / best[-2]) / math.log(depth[-1] / depth[-2])
        sentences.append(
            f"{_PLAIN[str(rule)]}: {best[0]:.4f} at L = {depth[0]}, {best[-1]:.4f} at L = "
            f"{depth[-1]} (exponent of L over the last octave {slope:+.3f}), loss "
            f"{part.best_relative_loss.iloc[-1]:.2e}, share of the hidden matrices in the first "
            f"step {part.theory_hidden_share.iloc[-1]:.3f}"
        )
    caption = (
        f"{linear_setting('study', request.seed).label}; L hidden layers of infinite width, "
        f"{_STEPS} steps, deterministic. (a) Loss over its start against the step size: light to "
        f"dark, L = {depths[0]} to {depths[-1]}; crosses: the best. (b) Best step size; "
        f"(c) share of the speed at the start that the hidden matrices have, exact. "
        + "; ".join(sentences)
        + "."
    )
    settings = {"depths": tuple(depths), "steps": _STEPS, "seed": request.seed}
    return FigureRecord("L-residual", _TITLE, caption, {"": table, "curves": pd.concat(curves)},
                        settings)  # fmt: skip


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 3, size=(4.0, 3.6))
    table, curves = record.tables[""], record.tables["curves"]
    for i, (rule, label) in enumerate(_RULES.items()):
        part = table[table.rule == rule]
        for j, (_, curve) in enumerate(curves[curves.rule == rule].groupby("depth")):
            finite = curve[np.isfinite(curve.relative_loss)]
            axes[0, 0].plot(finite.step_size, finite.relative_loss, color=COLORS[i], linewidth=1.0,
                            alpha=0.25 + 0.75 * j / (len(part) - 1))  # fmt: skip
        axes[0, 0].plot(part.best_step_size, part.best_relative_loss, "x", ms=4, color=COLORS[i],
                        label=label)  # fmt: skip
        axes[0, 1].plot(part.depth, part.best_step_size, "o-", ms=4, color=COLORS[i], label=label)
        axes[0, 2].plot(part.depth, part.theory_hidden_share, "o-", ms=4, color=COLORS[i],
                        label=label)  # fmt: skip
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(top=3)
    for ax in axes[0, 1:]:
        ax.set_xscale("log", base=2)
    axes[0, 1].set_ylim(bottom=0)
    axes[0, 2].set_ylim(bottom=0)
    label_axes(axes[0, 0], f"(a) loss after {record.settings['steps']} steps", "step size τ",
               "loss / loss at the start")  # fmt: skip
    label_axes(axes[0, 1], "(b) best step size", "depth L", "best τ")
    label_axes(axes[0, 2], "(c) what the hidden matrices contribute", "depth L",
               "share of the speed at the start")  # fmt: skip
    axes[0, 1].legend(fontsize=7, loc="lower left")
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (FigureSpec("L-residual", _TITLE, _compute, _draw),)
"""The study."""
