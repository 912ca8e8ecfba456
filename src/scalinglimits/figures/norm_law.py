r"""Figure R2: the law of the norm ratios of signal and gradient at β = ½.

R, section 2.2: width 100, depth 1000, uniform weights; the quartiles of ‖h_L‖/‖h_0‖ are 1.21 and
1.34, and the law looks log-normal. Drawn here: the exact law of Gaussian networks
(:func:`~scalinglimits.residual.norm_ratio_samples`), networks with uniform weights propagated
layer by layer, and the log-normal limit law.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws import Independent, Uniform
from scalinglimits.laws.streams import substream
from scalinglimits.residual import ResidualNetwork, limit_norm_law, norm_ratio_samples, propagate
from scalinglimits.residual.bounds import bound_curves
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _DEPTH, _BETA, _IN_FEATURES = 100, 1000, 0.5, 64
_TITLE = "R, Figure 2: the laws of the norm ratios at β = ½"


def _measure_network(width: int, depth: int, beta: float, seed: int) -> dict[str, float]:
    """Return the natural logarithms of both norm ratios of one network with uniform weights."""
    import torch

    network = ResidualNetwork(
        _IN_FEATURES,
        width,
        depth,
        1,
        beta=beta,
        weights=Independent(Uniform()),
        generator=substream(seed, "weights"),
    )
    x = torch.randn(1, _IN_FEATURES, generator=substream(seed, "input"))
    ratios = propagate(network, x, layers="ends").log_ratios
    return {name: float(ratios[name][0, 0]) for name in ("hidden_ratio", "gradient_ratio")}


def _compute(request: Request) -> FigureRecord:
    depth = 200 if request.quick else _DEPTH
    networks = 60 if request.quick else 1000
    chains = 10_000
    result = sweep(
        _measure_network,
        {"width": [_WIDTH], "depth": [depth], "beta": [_BETA]},
        seeds=networks,
        name="norm_law",
        on_error="raise",
        **request.sweep_options(),
    )
    exact = norm_ratio_samples(_WIDTH, depth, _BETA, chains, seed=request.seed)
    limit = limit_norm_law(_WIDTH)
    samples = {
        "exact law": exact,
        "networks, signal": np.exp(result.array("hidden_ratio").ravel()),
        "networks, gradient": np.exp(result.array("gradient_ratio").ravel()),
    }
    rows = []
    for name, ratios in samples.items():
        test = stats.kstest(ratios, limit.cdf)
        lower, median, upper = np.quantile(ratios, [0.25, 0.5, 0.75])
        log = np.log(ratios)
        rows.append(
            {
                "sample": name,
                "count": len(ratios),
                "lower_quartile": lower,
                "median": median,
                "upper_quartile": upper,
                "mean_log": log.mean(),
                "deviation_log": log.std(ddof=1),
                "p_value_limit_law": test.pvalue,
                "p_value_log_normality": stats.normaltest(log).pvalue,
            }
        )
    quartiles = limit.ppf([0.25, 0.5, 0.75])
    rows.append(
        {
            "sample": "limit law",
            "count": 0,
            "lower_quartile": quartiles[0],
            "median": quartiles[1],
            "upper_quartile": quartiles[2],
            "mean_log": np.log(limit.median()),
            "deviation_log": limit.kwds["s"],
        }
    )
    curves = bound_curves([depth], width=_WIDTH, beta=_BETA, delta=0.25, entries=Uniform())
    for name, prefix in (("bounds of R", "norm"), ("sharper bounds", "sharper")):
        rows.append(
            {
                "sample": name,
                "count": 0,
                "lower_quartile": curves[f"{prefix}_lower"].item(),
                "upper_quartile": curves[f"{prefix}_upper"].item(),
            }
        )
    table = pd.DataFrame(rows)
    values = pd.concat(
        [pd.DataFrame({"sample": name, "ratio": ratios}) for name, ratios in samples.items()]
    )
    caption = (
        f"res-3, width {_WIDTH}, depth {depth}. Grey: {chains} exact samples for Gaussian weights, "
        f"quartiles {rows[0]['lower_quartile']:.3f} and {rows[0]['upper_quartile']:.3f}, "
        f"Kolmogorov–Smirnov p = {rows[0]['p_value_limit_law']:.2f} against the limit law. Blue: "
        f"{networks} networks with uniform weights, quartiles "
        f"{rows[1]['lower_quartile']:.3f} and {rows[1]['upper_quartile']:.3f} (signal), "
        f"{rows[2]['lower_quartile']:.3f} and {rows[2]['upper_quartile']:.3f} (gradient). Line: "
        f"the log-normal limit, quartiles {quartiles[0]:.3f} and {quartiles[2]:.3f}, which is "
        "proved for the signal and drawn beside the gradient for comparison. Bars: bounds of the "
        f"signal's quartiles where they are guaranteed, R's {_interval(rows[4])} and sharper ones "
        f"{_interval(rows[5])}."
    )
    settings = {"width": _WIDTH, "depth": depth, "networks": networks, "seed": request.seed}
    return FigureRecord("R2", _TITLE, caption, {"": table, "samples": values}, settings)


def _interval(row: dict[str, Any]) -> str:
    ends = (row["lower_quartile"], row["upper_quartile"])
    return "[" + ", ".join("none" if np.isnan(end) else f"{end:.3f}" for end in ends) + "]"


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    table = record.tables[""].set_index("sample")
    samples = dict(tuple(record.tables["samples"].groupby("sample")["ratio"]))
    limit = limit_norm_law(record.settings["width"])
    figure, axes = panels(1, 2, size=(4.2, 3.4))
    grid = np.linspace(limit.ppf(1e-4), limit.ppf(1 - 1e-4), 300)
    bins = np.linspace(grid[0], grid[-1], 41)
    for ax, name, title, x in (
        (axes[0, 0], "networks, signal", "(a) signal", r"$\|h_L\|\,/\,\|h_0\|$"),
        (axes[0, 1], "networks, gradient", "(b) gradient", r"$\|p_0\|\,/\,\|p_L\|$"),
    ):
        if "signal" in name:
            ax.hist(
                samples["exact law"], bins, density=True, color="0.8", label="exact law (Gaussian)"
            )
        few = bins[:: 4 if len(samples[name]) < 300 else 1]
        ax.hist(
            samples[name],
            few,
            density=True,
            histtype="step",
            color=COLORS[0],
            linewidth=1.4,
            label="networks (uniform weights)",
        )
        ax.plot(grid, limit.pdf(grid), color=COLORS[1], label="log-normal limit law")
        for i, quartile in enumerate(table.loc[name, ["lower_quartile", "upper_quartile"]]):
            ax.axvline(
                quartile,
                color=COLORS[0],
                linestyle=":",
                linewidth=1,
                label=None if i else "quartiles of the networks",
            )
        label_axes(ax, title, x, "probability density")
    for name, height, color in (("bounds of R", 0.35, "0.3"), ("sharper bounds", 0.9, COLORS[2])):
        ends = table.loc[name, ["lower_quartile", "upper_quartile"]].to_numpy(float)
        axes[0, 0].plot(ends, [height] * 2, "-|", ms=10, color=color, label=f"{name}, δ = ¼")
    axes[0, 0].legend(loc="upper right")
    axes[0, 0].set_ylim(top=axes[0, 0].get_ylim()[1] * 1.35)
    axes[0, 1].set_ylim(axes[0, 0].get_ylim())
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (FigureSpec("R2", _TITLE, _compute, _draw),)
"""The figure."""
