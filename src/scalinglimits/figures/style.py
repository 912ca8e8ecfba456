"""One look for all drawings, applied to a figure and never to the whole process."""

from __future__ import annotations

__all__ = ["COLORS", "DIVERGING", "label_axes", "panels", "styled", "write_caption"]

import textwrap
from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
DIVERGING = "PuOr_r"
"""Colour map around zero: violet below, orange above."""

_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.hashsalt": "scalinglimits",
}


def styled() -> AbstractContextManager[None]:
    """Return a context in which new drawings have the look of this module."""
    return mpl.rc_context(_STYLE)  # type: ignore[arg-type]


def panels(
    rows: int, columns: int, *, size: tuple[float, float] = (3.2, 2.8), **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes as an array of shape (rows, columns).

    Args:
        rows: of panels.
        columns: of panels.
        size: width and height of one panel, in inches.
        **options: for ``Figure.subplots``.

    Returns:
        The figure and its axes.
    """
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def write_caption(figure: Figure, title: str, caption: str) -> None:
    """Write a title above the panels and a wrapped caption below them.

    Args:
        figure: with its panels.
        title: one line.
        caption: any length.
    """
    figure.suptitle(title, fontsize=10, fontweight="bold")
    width = int(figure.get_figwidth() * 15.5)
    figure.supxlabel("\n".join(textwrap.wrap(caption, width)), fontsize=7.5, ha="left", x=0.01)


def label_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Set a panel's title and the labels of its axes.

    Args:
        axes: the panel.
        title: above it.
        x: label of the horizontal axis.
        y: label of the vertical axis.
    """
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
