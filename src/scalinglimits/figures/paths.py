r"""Figure R6: paths of fractional Brownian motion for three Hurst indices.

R, section 4.1: the weights of a network are increments of such paths; the larger the Hurst index
H, the smoother. Drawn beside them: the standard deviation :math:`t^H`.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws import estimate_hurst, fractional_brownian_motion
from scalinglimits.laws.streams import derive_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HURST = (0.2, 0.5, 0.8)
_PATHS = 4
_TITLE = "R, Figure 6: fractional Brownian motion"


def _compute(request: Request) -> FigureRecord:
    steps = 500 if request.quick else 2000
    rows: list[pd.DataFrame] = []
    estimates: list[tuple[float, ...]] = []
    for hurst in _HURST:
        rng = np.random.default_rng(derive_seed(request.seed, f"{hurst:g}"))
        paths = fractional_brownian_motion(steps, hurst, (_PATHS,), horizon=1.0, generator=rng)
        estimate = estimate_hurst(np.diff(np.asarray(paths), axis=-1))
        estimates.append((hurst, estimate.hurst, *estimate.interval))
        rows.extend(
            pd.DataFrame(
                {"hurst": hurst, "path": i, "time": np.linspace(0, 1, steps + 1), "value": path}
            )
            for i, path in enumerate(paths)
        )
    table = pd.DataFrame(estimates, columns=["hurst", "estimate", "lower", "upper"])
    caption = (
        f"{_PATHS} paths of {steps} steps for each Hurst index, drawn exactly; shaded: one "
        "standard deviation t^H on either side. Hurst index estimated back from the increments, "
        "with its 95 % interval: "
        + "; ".join(f"{h:g}: {e:.3f} [{lo:.3f}, {up:.3f}]" for h, e, lo, up in estimates)
        + "."
    )
    settings = {"steps": steps, "paths": _PATHS, "seed": request.seed}
    return FigureRecord("R6", _TITLE, caption, {"": pd.concat(rows), "estimates": table}, settings)


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, len(_HURST), size=(3.3, 3.0), sharey=True)
    for ax, (hurst, part) in zip(axes[0], record.tables[""].groupby("hurst"), strict=True):
        time = np.linspace(0, 1, 200)
        ax.fill_between(
            time, -(time**hurst), time**hurst, color="0.85", label="± standard deviation $t^H$"
        )
        for i, path in part.groupby("path"):
            ax.plot(path.time, path.value, linewidth=0.7, color=COLORS[int(i) % len(COLORS)])
        label_axes(ax, f"H = {hurst:g}", "time $t = k/L$", "")
    axes[0, 0].set_ylabel("value of the path")
    axes[0, 0].legend(loc="lower left")
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (FigureSpec("R6", _TITLE, _compute, _draw),)
"""The figure."""
