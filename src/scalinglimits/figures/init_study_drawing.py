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


def draw_study(record: FigureRecord) -> Figure:
    """Draw the record of a study.

    Args:
        record: the tables ``trials`` and ``groups``.

    Returns:
        The drawing.
    """
    from scalinglimits.figures.style import panels, write_caption

    trials, groups = record.tables["trials"], record.tables["groups"]
    figure, axes = panels(2, 3, size=(4.3, 3.6))
    matching = trials[(trials.architecture == _FAMILY) & (trials.gain > 1.2)]
    plain = matching[(matching.norm == "none") & (matching.optimizer == "sgd")]
    _draw_signal(axes[0, 0], plain)
    depth = 16 if 16 in set(plain.depth) else int(plain.depth.max())
    _draw_rates(axes[0, 1], plain[plain.depth == depth], "no normalisation", record)
    normed = matching[(matching.norm != "none") & (matching.optimizer == "sgd")]
    _draw_rates(axes[0, 2], normed[normed.depth == depth], "LayerNorm", record)
    labels = [f"{g}, {d}" for g, d in groups[["group", "depth"]].drop_duplicates().to_numpy()]
    _draw_trained(axes[1, 0], groups, labels)
    _draw_effect(axes[1, 1], groups, labels, "steps_ratio", "steps / steps of fan_geo_avg")
    _draw_effect(axes[1, 2], groups, labels, "octaves_difference", "octaves more than fan_geo_avg")
    axes[1, 1].set_xscale("log")
    axes[1, 1].set_title("steps at each mode's best rate")
    axes[1, 2].set_title("usable range of learning rates")
    write_caption(figure, record.title, record.caption)
    return figure


def _draw_signal(ax: Axes, part: pd.DataFrame) -> None:
    from scalinglimits.figures.style import COLORS, label_axes

    for i, mode in enumerate(MODES):
        rows = part[part["mode"] == mode].sort_values("depth")
        ax.plot(rows.depth, rows.log10_forward_predicted, "--", color=COLORS[i], linewidth=0.8)
        ax.plot(rows.depth, rows.log10_forward_typical, "-", color=COLORS[i], linewidth=0.8)
        ax.plot(
            rows.depth, rows.log10_forward, _MARKERS[i], color=COLORS[i], ms=5 - 0.4 * i, label=mode
        )
    ax.set_xscale("log", base=2)
    label_axes(
        ax,
        f"{_FAMILY}, gain √2: signal at initialisation",
        "depth (weight matrices)",
        "log10 of the ratio of second moments",
    )
    ax.legend(loc="lower left")


def _draw_rates(ax: Axes, part: pd.DataFrame, name: str, record: FigureRecord) -> None:
    from scalinglimits.figures.style import COLORS, label_axes

    for i, row in enumerate(part.set_index("mode").loc[list(MODES)].itertuples()):
        steps = decode_outcomes(str(row.outcomes))
        count = np.isfinite(steps).sum(axis=1)
        rates = row.first_log2_rate + np.arange(len(steps))
        logs = np.log(np.where(np.isfinite(steps), steps, 1.0)).sum(axis=1)
        mean = np.where(count > 0, np.exp(logs / np.maximum(count, 1)), np.nan)
        ax.plot(rates, mean, marker=_MARKERS[i], ms=3.5, color=COLORS[i], linewidth=1)
    ax.set_yscale("log")
    depth = int(part.depth.iloc[0])
    label_axes(
        ax,
        f"{_FAMILY}, {name}, depth {depth}, SGD",
        "log2 of the learning rate",
        f"steps to loss {record.settings['target']:g}",
    )


def _draw_trained(ax: Axes, groups: pd.DataFrame, labels: list[str]) -> None:
    from scalinglimits.figures.style import COLORS

    for i, mode in enumerate(MODES):
        rows = groups[groups["mode"] == mode]
        height = np.arange(len(labels)) + 0.16 * (i - 2)
        ax.barh(height, rows.trained / rows.settings, 0.15, color=COLORS[i])
    _name_rows(ax, labels)
    ax.set_title("share of settings in which every replicate trains")
    ax.set_xlabel("share")


def _draw_effect(
    ax: Axes, groups: pd.DataFrame, labels: list[str], column: str, axis_label: str
) -> None:
    from scalinglimits.figures.style import COLORS

    for i, mode in enumerate(MODES):
        if mode == REFERENCE:
            continue
        rows = groups[groups["mode"] == mode]
        value = rows[column].to_numpy()
        ends = np.stack([value - rows[f"{column}_lower"], rows[f"{column}_upper"] - value])
        height = np.arange(len(labels)) + 0.16 * (i - 2)
        ax.errorbar(
            value, height, xerr=ends, fmt=_MARKERS[i], ms=3.5, linewidth=0.9, color=COLORS[i]
        )
    ax.axvline(1.0 if column == "steps_ratio" else 0.0, color="0.3", linewidth=0.8)
    _name_rows(ax, labels)
    ax.set_xlabel(axis_label)


def _name_rows(ax: Axes, labels: list[str]) -> None:
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)
