r"""Figure R7: the phase diagram over Hurst index and branch exponent; and its shift with depth.

R, section 4.1 (Figure 7): width 40, depth 1000, 51 Hurst indices in [0.05, 0.97], 70 exponents in
[0, 1.3], 5 weight draws, 10 inputs. R's claim, that the boundary is β_c = max(H, ½), is about the
limit of large depth; at depth 1000 the exact first-order theory puts it up to 0.04 lower for the
signal, and much lower for the gradient of a wide network. ``R7-depths`` measures that shift at
several depths beside the theory.
"""

from __future__ import annotations

__all__ = ["FIGURES", "draw_phase_diagram", "phase_record"]

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws import FractionalIncrements
from scalinglimits.residual import PhaseDiagram, phase_diagram, response_moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = "Identity, explosion, and the boundary between them"
_DEPTHS_TITLE = "R, Figure 7, continued: the boundary at finite depth"
_NAMES = {"hidden_change": "signal", "gradient_change": "gradient"}
_SYMBOLS = {
    "hidden_change": r"$\|h_L - h_0\|\,/\,\|h_0\|$",
    "gradient_change": r"$\|p_0 - p_L\|\,/\,\|p_L\|$",
}
_CHANGE_LIMIT = 2.0
"""The colour scale ends at changes of 10^±2."""


def phase_record(diagram: PhaseDiagram, name: str = "phase", title: str = _TITLE) -> FigureRecord:
    """Turn a phase diagram into the record of a figure.

    Args:
        diagram: the measurement.
        name: of the record.
        title: of the drawing.

    Returns:
        The record, with the heat maps as its main table and ``critical`` beside it.
    """
    critical = diagram.critical
    parts = []
    for quantity, part in critical.groupby("quantity", sort=False):
        fitted = part.dropna(subset=["beta_c"])
        limit = (fitted.beta_c - fitted.theory_limit).abs()
        here = (fitted.beta_c - fitted.theory_depth).abs()
        if len(fitted):
            parts.append(
                f"{_NAMES[quantity].capitalize()}: |fitted β_c − max(H, ½)| is {limit.mean():.3f} "
                "in the mean, "
                f"|fitted β_c − theory at this depth| {here.mean():.3f} (mean standard error of a "
                f"fit {fitted.standard_error.mean():.3f})."
            )
    caption = (
        f"Mean log10 of the change, res-3, width {diagram.width}, depth {diagram.depth}, "
        f"{diagram.draws} weight draws × {diagram.inputs} inputs a cell; clipped at ±2. Line: "
        "max(H, ½). Circles: where the measured root mean square change is 1; dashed: where its "
        "first-order theory is. Right: fitted critical exponents with "
        f"{100 * diagram.confidence:.0f} % intervals. " + " ".join(parts)
    )
    settings = {
        "width": diagram.width,
        "depth": diagram.depth,
        "draws": diagram.draws,
        "inputs": diagram.inputs,
    }
    tables = {"": diagram.to_frame(), "critical": critical}
    return FigureRecord(name, title, caption, tables, settings)


def draw_phase_diagram(record: FigureRecord) -> Figure:
    """Draw a phase diagram: two heat maps and the critical exponents.

    Args:
        record: of :func:`phase_record`.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    table, critical = record.tables[""], record.tables["critical"]
    figure, axes = panels(1, 3, size=(4.0, 3.9))
    hurst = np.unique(table.hurst)
    for ax, quantity in zip(axes[0], _NAMES, strict=False):
        cells = table.pivot(index="beta", columns="hurst", values=f"log10_{quantity}")
        image = _heat_map(ax, cells)
        part = critical[critical.quantity == quantity]
        ax.plot(hurst, np.maximum(hurst, 0.5), color="white", linewidth=2.5)
        ax.plot(hurst, np.maximum(hurst, 0.5), color="black", linewidth=0.8, label="max(H, ½)")
        ax.plot(part.hurst, part.theory_one, "--", color=COLORS[2], label="first-order change = 1")
        ax.plot(
            part.hurst,
            part.beta_one,
            "o",
            ms=3,
            mfc="white",
            mec="black",
            mew=0.7,
            label="measured change = 1",
        )
        label_axes(ax, f"{_NAMES[quantity]}: {_SYMBOLS[quantity]}", "Hurst index H", "exponent β")
        ax.grid(visible=False)
        ax.legend(loc="upper left", frameon=True, framealpha=0.85)
        ax.set_ylim(cells.index.min(), cells.index.max())
        figure.colorbar(image, ax=ax, label="log10 of the change", pad=0.01)
    ax = axes[0, 2]
    ax.plot(hurst, np.maximum(hurst, 0.5), color="black", linewidth=0.8, label="max(H, ½)")
    for i, (quantity, label) in enumerate(_NAMES.items()):
        part = critical[critical.quantity == quantity]
        error = np.stack([part.beta_c - part.lower, part.upper - part.beta_c])
        ax.errorbar(
            part.hurst,
            part.beta_c,
            error,
            fmt="o",
            ms=3,
            linewidth=0.8,
            color=COLORS[i],
            label=f"fitted β_c, {label}",
            alpha=0.8,
        )
        ax.plot(
            part.hurst,
            part.theory_depth,
            "--",
            color=COLORS[i],
            label=f"theory at depth {record.settings['depth']}, {label}",
        )
    label_axes(ax, "critical exponent", "Hurst index H", r"$\beta_c$")
    ax.set_ylim(top=1.35)
    ax.legend(loc="upper left")
    write_caption(figure, record.title, record.caption)
    return figure


def _heat_map(ax: Axes, cells: pd.DataFrame) -> Any:
    from scalinglimits.figures.style import DIVERGING

    return ax.pcolormesh(
        cells.columns,
        cells.index,
        cells.to_numpy().clip(-_CHANGE_LIMIT, _CHANGE_LIMIT),
        cmap=DIVERGING,
        vmin=-_CHANGE_LIMIT,
        vmax=_CHANGE_LIMIT,
        shading="nearest",
        rasterized=True,
    )


def _compute(request: Request) -> FigureRecord:
    options = request.sweep_options()
    if request.quick:
        diagram = phase_diagram(
            np.linspace(0.05, 0.97, 12), np.linspace(0, 1.3, 27), depth=200, draws=3, **options
        )
    else:
        diagram = phase_diagram(np.linspace(0.05, 0.97, 51), np.linspace(0, 1.3, 70), **options)
    return phase_record(diagram, "R7", f"R, Figure 7: {_TITLE.lower()}")


def _compute_depths(request: Request) -> FigureRecord:
    depths = (64, 128, 256) if request.quick else (250, 500, 1000, 2000, 4000)
    draws = 8 if request.quick else 40
    hurst = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
    tables = []
    for depth in depths:
        # One large exponent: the change is of first order, where the response is measured.
        diagram = phase_diagram(hurst, [1.5], depth=depth, draws=draws, **request.sweep_options())
        tables.append(diagram.critical.assign(depth=depth))
    table = pd.concat(tables)[
        [
            "depth",
            "hurst",
            "quantity",
            "beta_c",
            "standard_error",
            "lower",
            "upper",
            "theory_depth",
            "theory_limit",
            "extrapolated",
        ]
    ]
    grid = np.unique(np.rint(np.geomspace(16, 200_000, 40)).astype(int))
    theory = []
    for h in hurst:
        ends = np.concatenate([grid // 4, grid])
        moments = response_moments(FractionalIncrements(h), ends, width=40)
        for quantity, squares in (
            ("hidden_change", moments.hidden),
            ("gradient_change", moments.gradient),
        ):
            first, last = np.split(np.log(squares) / 2, 2)
            slope = (last - first) / np.log(grid / (grid // 4))
            theory.append(
                pd.DataFrame({"depth": grid, "hurst": h, "quantity": quantity, "beta_c": slope})
            )
    deviation = (table.beta_c - table.theory_depth) / table.standard_error
    signal = table[table.quantity == "hidden_change"]
    mean = signal.groupby("hurst").extrapolated.mean()
    caption = (
        f"Critical exponent fitted over the last two octaves of depth, width 40, {draws} weight "
        "draws a point, with 95 % intervals. Lines: exact first-order theory; dotted: max(H, ½). "
        f"Root mean square deviation from the theory: {np.sqrt((deviation**2).mean()):.2f} "
        "standard errors. Signal, mean over depths of the fit less the theory's shift: "
        + ", ".join(f"{value:.3f} at H = {h:g}" for h, value in mean.items())
        + ". For the gradient the shift is large at every practical depth: the part that grows as "
        "L^2H has weight 1/width."
    )
    settings = {"depths": depths, "draws": draws, "seed": request.seed}
    tables_out = {"": table, "theory": pd.concat(theory)}
    return FigureRecord("R7-depths", _DEPTHS_TITLE, caption, tables_out, settings)


def _draw_depths(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    table, theory = record.tables[""], record.tables["theory"]
    figure, axes = panels(1, 2, size=(4.6, 3.7), sharey=True)
    for ax, quantity in zip(axes[0], _NAMES, strict=True):
        for i, (hurst, part) in enumerate(table[table.quantity == quantity].groupby("hurst")):
            color = COLORS[i]
            line = theory[(theory.quantity == quantity) & (theory.hurst == hurst)]
            ax.plot(line.depth, line.beta_c, color=color, linewidth=1)
            ax.axhline(max(hurst, 0.5), color=color, linestyle=":", linewidth=0.8)
            error = np.stack([part.beta_c - part.lower, part.upper - part.beta_c])
            shift = 1.04 ** (i - 2.5)  # side by side, not over each other
            ax.errorbar(
                part.depth * shift,
                part.beta_c,
                error,
                fmt="o",
                ms=3,
                color=color,
                label=f"H = {hurst:g}",
            )
        ax.set_xscale("log")
        label_axes(ax, _NAMES[quantity], "depth L", r"critical exponent $\beta_c$")
    axes[0, 0].set_ylim(0.42, 1.05)
    axes[0, 1].legend(ncols=3, loc="upper left")
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (
    FigureSpec("R7", f"R, Figure 7: {_TITLE.lower()}", _compute, draw_phase_diagram),
    FigureSpec("R7-depths", _DEPTHS_TITLE, _compute_depths, _draw_depths),
)
"""The phase diagram, and its shift with depth."""
