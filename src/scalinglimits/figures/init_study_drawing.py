"""The drawing of the study of averages: signal, learning rates, and comparisons of modes."""

from __future__ import annotations

__all__ = ["draw_study"]

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.init_study_analysis import REFERENCE, decode_outcomes
from scalinglimits.figures.record import FigureRecord
from scalinglimits.laws.fans import MODES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAMILY = "expand-4"
_MARKERS = "ovsD^"
_OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}


def draw_study(record: FigureRecord) -> Figure:
    """Draw the record of a study.

    Args:
        record: the tables ``trials`` and ``groups``.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import panels, write_caption

    trials = record.tables["trials"]
    groups = record.tables["groups"].sort_values(["group", "depth"], kind="stable")
    figure, axes = panels(2, 3, size=(4.3, 4.8), height_ratios=(2, 3))
    matching = trials[(trials.architecture == _FAMILY) & (trials.gain > 1.2)]
    optimizer = "adam" if "adam" in set(matching.optimizer) else "sgd"
    plain, normed = (matching[(matching.norm == "none") == bare] for bare in (True, False))
    _draw_signal(axes[0, 0], plain[plain.optimizer == "sgd"])
    depth = 16 if 16 in set(plain.depth) else int(plain.depth.max())
    for ax, part, name in (
        (axes[0, 1], plain, "(b) no normalisation"),
        (axes[0, 2], normed, "(c) LayerNorm"),
    ):
        part = part[(part.depth == depth) & (part.optimizer == optimizer)]
        _draw_rates(ax, part, f"{name}: {_FAMILY}, depth {depth}, {_OPTIMIZERS[optimizer]}", record)
    _draw_trained(axes[1, 0], groups)
    _draw_effect(axes[1, 1], groups, "steps_ratio")
    axes[1, 1].set_title(f"(e) steps at the best rate, {REFERENCE} = 1")
    axes[1, 1].set_xlabel("ratio of steps")
    _draw_effect(axes[1, 2], groups, "octaves_difference")
    axes[1, 2].set_title(f"(f) usable range of rates, {REFERENCE} = 0")
    axes[1, 2].set_xlabel("difference in octaves")
    write_caption(figure, record.title, record.caption)
    return figure


def _draw_signal(ax: Axes, part: pd.DataFrame) -> None:
    from scalinglimits.figures.style import label_axes

    for i, mode in enumerate(MODES):
        rows = part[part["mode"] == mode].sort_values("depth")
        color = _color(mode)
        ax.plot(rows.depth, rows.log10_forward_predicted, "--", color=color, linewidth=0.8)
        ax.plot(rows.depth, rows.log10_forward_typical, "-", color=color, linewidth=0.8)
        ax.plot(
            rows.depth, rows.log10_forward, _MARKERS[i], color=color, ms=5 - 0.4 * i, label=mode
        )
    ax.set_xscale("log", base=2)
    label_axes(
        ax,
        f"(a) {_FAMILY}, gain √2: signal at initialisation",
        "depth (weight matrices)",
        "log10 of the ratio of second moments",
    )
    ax.legend(loc="lower left")


def _draw_rates(ax: Axes, part: pd.DataFrame, title: str, record: FigureRecord) -> None:
    from matplotlib.ticker import MaxNLocator

    from scalinglimits.figures.style import label_axes

    for i, mode in enumerate(MODES):
        row = part.set_index("mode").loc[mode]
        steps = decode_outcomes(row.outcomes)
        count = np.isfinite(steps).sum(axis=1)
        rates = row.first_log2_rate + np.arange(len(steps))
        logs = np.log(np.where(np.isfinite(steps), steps, 1.0)).sum(axis=1)
        # Fewer replicates would be the fast ones: a curve of these alone would deceive.
        mean = np.where(count == steps.shape[1], np.exp(logs / steps.shape[1]), np.nan)
        ax.plot(rates, mean, marker=_MARKERS[i], ms=3.5, color=_color(mode), linewidth=1)
    _plain_log(ax, "y")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_axes(
        ax, title, "log2 of the learning rate", f"steps to loss {record.settings['target']:g}"
    )


def _draw_trained(ax: Axes, groups: pd.DataFrame) -> None:
    for i, mode in enumerate(MODES):
        rows = groups[groups["mode"] == mode]
        ax.barh(_heights(len(rows), i), rows.trained / rows.settings, 0.15, color=_color(mode))
    rows = groups[groups["mode"] == REFERENCE]
    ax.set_yticks(
        np.arange(len(rows)),
        [f"{g}, depth {d}" for g, d in zip(rows.group, rows.depth, strict=True)],
    )
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_title("(d) settings in which every replicate trains")
    ax.set_xlabel("share of the settings")


def _draw_effect(ax: Axes, groups: pd.DataFrame, column: str) -> None:
    for i, mode in enumerate(MODES):
        if mode == REFERENCE:
            continue
        rows = groups[groups["mode"] == mode]
        value = rows[column].to_numpy()
        ends = np.stack([value - rows[f"{column}_lower"], rows[f"{column}_upper"] - value])
        height = _heights(len(rows), i)
        ax.errorbar(
            value, height, xerr=ends, fmt=_MARKERS[i], ms=3.5, linewidth=0.9, color=_color(mode)
        )
    count = int((groups["mode"] == REFERENCE).sum())
    ax.set_yticks(np.arange(count), [""] * count)
    ax.set_ylim(count - 0.5, -0.5)
    if column == "steps_ratio":
        _plain_log(ax, "x")
    ax.axvline(1.0 if column == "steps_ratio" else 0.0, color=_color(REFERENCE))


def _color(mode: str) -> str:
    """Blues for the single fans, which do alike."""
    from scalinglimits.figures.style import COLORS

    return COLORS[(0, 4, 2, 3, 1)[MODES.index(mode)]]


def _heights(count: int, mode: int) -> np.ndarray:
    return np.arange(count) + 0.16 * (mode - 2)


def _plain_log(ax: Axes, axis: str) -> None:
    """A logarithmic axis of less than two decades, labelled in plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    ax.set(**{f"{axis}scale": "log"})
    side = ax.xaxis if axis == "x" else ax.yaxis
    side.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    side.set_major_formatter(ScalarFormatter())
    side.set_minor_formatter(NullFormatter())
