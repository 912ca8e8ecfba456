"""How fast residual networks reach their limits, and how the norm's law reaches its own.

The records behind ``scalinglimits limit``: strong errors against depth for the SDE, the neural ODE
and the Young equation, with fitted orders; and the exact law of the norm ratio at finite depth
beside the log-normal limit, R's bounds and sharper ones.
"""

from __future__ import annotations

__all__ = ["LIMIT_KINDS", "convergence_record", "draw_convergence", "draw_norm", "norm_record"]

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalinglimits.figures.record import FigureRecord
from scalinglimits.residual import NormLaw, depth_convergence, limit_norm_law, log_normality
from scalinglimits.residual.bounds import bound_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMIT_KINDS = {
    "sde": "the SDE of independent weights, β = ½",
    "ode": "the neural ODE of smooth weights, β = 1",
    "young": "the Young equation of fractional weights, β = H",
}
"""Limits in continuous depth, by name."""
_NAMES = {"sde": "SDE", "ode": "neural ODE", "young": "Young equation"}
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def convergence_record(kind: str, depths: Sequence[int], **options: Any) -> FigureRecord:
    """Measure how fast networks reach a limit in continuous depth.

    Args:
        kind: of :data:`LIMIT_KINDS`.
        depths: of the networks, at least two.
        **options: of :func:`scalinglimits.residual.depth_convergence`.

    Returns:
        The record, with one row per quantity and depth.
    """
    convergence = depth_convergence(kind, depths, **options)  # type: ignore[arg-type]
    fits = (("hidden states", convergence.states), ("gradient", convergence.gradient))
    found = "; ".join(
        f"{name}: fitted order {fit.order:.3f} [{fit.interval[0]:.3f}, {fit.interval[1]:.3f}]"
        + (f", theory {fit.theory:.3g}" if math.isfinite(fit.theory) else ", no theory")
        for name, fit in fits
    )
    caption = (
        f"Error of networks against {LIMIT_KINDS[kind]}, on the same weights, relative to the "
        f"start, {len(convergence.states.errors)} replicates, 95 % intervals. "
        f"{found.capitalize()}."
    )
    if kind == "young":
        caption += (
            " The order of theory, 2H − 1, shows beyond depths of about width²; before, up to "
            "min(2H − ½, 1)."
        )
    title = f"Convergence in depth: {_NAMES[kind]}"
    settings = {"kind": kind, "depths": tuple(depths), **options}
    return FigureRecord(f"limit-{kind}", title, caption, {"": convergence.to_frame()}, settings)


def draw_convergence(record: FigureRecord) -> Figure:
    """Draw errors against depth, with the fitted and the theoretical order.

    Args:
        record: of :func:`convergence_record`.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 1, size=(5.0, 3.8))
    ax = axes[0, 0]
    names = {"states": "hidden states", "gradient": "gradient"}
    for i, (quantity, part) in enumerate(record.tables[""].groupby("quantity", sort=False)):
        error = part.standard_error.fillna(0.0)
        label = f"{names[str(quantity)]}, fitted order {part.order.iloc[0]:.2f}"
        ax.errorbar(part.depth, part.error, 2 * error, fmt="o", ms=4, color=COLORS[i], label=label)
        log_depth = np.log(part.depth / part.depth.iloc[0])
        for order, style, name in (
            (part.order.iloc[0], "-", None),
            (part.theory.iloc[0], "--", "theory"),
        ):
            if math.isfinite(order):
                level = np.exp(np.mean(np.log(part.error) + order * log_depth))
                line = level * np.exp(-order * log_depth)
                ax.plot(part.depth, line, style, color=COLORS[i], linewidth=1, label=name)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    label_axes(ax, "", "depth L", "error")
    ax.legend()
    write_caption(figure, record.title, record.caption)
    return figure


def norm_record(width: int, depths: Sequence[int], delta: float) -> FigureRecord:
    """Compute the exact law of the norm ratio at several depths, without sampling.

    Args:
        width: size d of the hidden states.
        depths: numbers of layers.
        delta: probability of failure of the bounds.

    Returns:
        The record: quantiles, distance from log-normality and bounds for each depth.

    Raises:
        ValueError: if an argument is out of range.
    """
    bounds = bound_curves(depths, width=width, beta=0.5, delta=delta)
    rows = []
    for depth in depths:
        law, distance = NormLaw(width, depth, beta=0.5), log_normality(width, depth)
        quantiles = {f"q{100 * q:g}": math.exp(float(law.ppf(q))) for q in _QUANTILES}
        rows.append(
            {
                "depth": str(depth),
                **quantiles,
                "skewness": distance.skewness,
                "distance": distance.distance,
                "distance_to_limit": distance.distance_to_limit,
            }
        )
    limit = limit_norm_law(width)
    rows.append({"depth": "limit", **{f"q{100 * q:g}": float(limit.ppf(q)) for q in _QUANTILES}})
    table = pd.DataFrame(rows)
    names = ["norm_lower", "norm_upper", "sharper_lower", "sharper_upper"]
    table = table.join(bounds[names])
    last = rows[-2]
    caption = (
        f"‖h_L‖/‖h_0‖ for Gaussian res-3 at β = ½, width {width}: exact quantiles at each depth, "
        f"the log-normal limit, and bounds with probability 1 − {delta:g} each where guaranteed. "
        f"At L = {last['depth']} the Kolmogorov–Smirnov distance to the nearest log-normal law is "
        f"{last['distance']:.2g}, to the limit law {last['distance_to_limit']:.2g}."
    )
    title = "The law of the norm ratio and its limit"
    settings = {"width": width, "depths": tuple(depths), "delta": delta}
    return FigureRecord("limit-norm", title, caption, {"": table}, settings)


def draw_norm(record: FigureRecord) -> Figure:
    """Draw the exact quantiles against depth, beside the limit and the bounds.

    Args:
        record: of :func:`norm_record`.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    table = record.tables[""]
    exact, limit = table[table.depth != "limit"], table[table.depth == "limit"].iloc[0]
    depth = exact.depth.astype(int)
    figure, axes = panels(1, 1, size=(5.6, 3.8))
    ax = axes[0, 0]
    for i, q in enumerate(_QUANTILES):
        name = f"q{100 * q:g}"
        first = i == 0
        ax.plot(
            depth, exact[name], "o-", ms=3, color=COLORS[0],
            label="exact: 5, 25, 50, 75, 95 %" if first else None,
        )  # fmt: skip
        ax.axhline(
            limit[name], color=COLORS[1], linestyle="--", linewidth=0.8,
            label="log-normal limit" if first else None,
        )  # fmt: skip
    for prefix, style, label in (("norm", ":", "bounds of R"), ("sharper", "-.", "sharper bounds")):
        for end in ("lower", "upper"):
            ax.plot(
                depth, exact[f"{prefix}_{end}"], style, color="0.4",
                label=label if end == "upper" else None,
            )  # fmt: skip
    ax.set_xscale("log")
    label_axes(ax, "", "depth L", r"$\|h_L\|\,/\,\|h_0\|$")
    ax.legend()
    write_caption(figure, record.title, record.caption)
    return figure
