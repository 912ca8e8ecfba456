r"""Figures R1, R3, R4 and R5: signal and gradient against the depth.

R, sections 2.2, 2.3 and 3.2: ‖h_L−h_0‖/‖h_0‖ and ‖p_0−p_L‖/‖p_L‖ for depths 10 to 1000 and three
exponents β: with independent weights the change stays of order one at β = ½ (Figures 1, 3), with
smooth weights at β = 1 (Figures 4, 5). Settings of R, Appendix E, Table 2: res-3, width 40, inputs
in R^64, one output, 50 repetitions with new data and new weights.

Theory drawn beside it. Independent weights: the exact root mean square
:math:`\sqrt{(1+\alpha^2/2)^L - 1}`, for signal and gradient. Smooth weights: the exact
first-order root mean square :math:`\alpha\sqrt{S_L}`. Bounds of the quartiles (δ = ¼): R's
Propositions 2, 3 and 6, and the package's sharper ones; for smooth weights Proposition 12. Limits
of continuous depth, simulated: the SDE at β = ½, the neural ODE of smooth weights at β = 1.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws import DepthLaw, Independent, SmoothIncrements, SmoothProcess, Uniform
from scalinglimits.laws.streams import substream
from scalinglimits.residual import (
    ResidualNetwork,
    limit_changes,
    propagate,
    response_moments,
)
from scalinglimits.residual.bounds import bound_curves, smooth_change_bound
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _IN_FEATURES, _REPETITIONS = 40, 64, 50
_LENGTH_SCALE = 0.1
_DELTA = 0.25
"""Probability of failure of the bounds that are drawn: a bound of a quartile."""
_BETAS = {"independent": (1.0, 0.25, 0.5), "smooth": (2.0, 0.5, 1.0)}
"""In the document's order: identity, explosion, non-trivial."""
_PANELS = ("identity", "explosion", "non-trivial")


def _law(weights: str) -> DepthLaw:
    return {
        "independent": Independent(Uniform()),
        "smooth": SmoothProcess(_LENGTH_SCALE),
        "smooth increments": SmoothIncrements(_LENGTH_SCALE),
    }[weights]


def _measure_network(
    depth: int, weights: str, betas: tuple[float, ...], uniform_input: bool, seed: int
) -> dict[str, np.ndarray]:
    """Measure one network with one input, for all exponents on the same weights."""
    import torch

    network = ResidualNetwork(
        _IN_FEATURES, _WIDTH, depth, 1, weights=_law(weights), generator=substream(seed, "weights")
    )
    draw = torch.rand if uniform_input else torch.randn
    x = draw(1, _IN_FEATURES, generator=substream(seed, "input"))
    record = propagate(network, x, beta=betas, layers="ends")
    ratios = record.log_ratios
    results = {name: ratios[name][:, 0] for name in ("hidden_change", "gradient_change")}
    if weights == "independent":
        return results
    log_bounds = []
    for beta in betas:
        network.branch_scale = depth**-beta
        log_bounds.append(math.log(smooth_change_bound(network).upper))
    return results | {"smooth_bound": np.array(log_bounds)}


def _compute(name: str, quantity: str, smooth: bool) -> Callable[[Request], FigureRecord]:
    def compute(request: Request) -> FigureRecord:
        code = request.setting == "code"
        weights = ("smooth increments" if code else "smooth") if smooth else "independent"
        betas = _BETAS["smooth" if smooth else "independent"]
        stop, count, repetitions = (200, 6, 12) if request.quick else (1000, 13, _REPETITIONS)
        depths = np.unique(np.rint(np.geomspace(10, stop, count)).astype(int)).tolist()
        result = sweep(
            _measure_network,
            {
                "depth": depths,
                "weights": [weights],
                "betas": [betas],
                "uniform_input": [code],
            },
            seeds=repetitions,
            name="depth_scaling",
            on_error="raise",
            **request.sweep_options(),
        )
        logs = result.array(quantity).reshape(len(depths), repetitions, len(betas))
        smooth_bounds = result.array("smooth_bound").reshape(logs.shape) if smooth else None
        rows = []
        for i, depth in enumerate(depths):
            for j, beta in enumerate(betas):
                lower, median, upper = np.quantile(logs[i, :, j], [0.25, 0.5, 0.75])
                square = np.logaddexp.reduce(2 * logs[i, :, j]) - math.log(repetitions)
                rows.append(
                    {
                        "depth": depth,
                        "beta": beta,
                        "lower_quartile": math.exp(lower),
                        "median": math.exp(median),
                        "upper_quartile": math.exp(upper),
                        "root_mean_square": math.exp(square / 2),
                        "theory_root_mean_square": _theory(quantity, weights, depth, beta),
                    }
                )
                if smooth_bounds is not None:
                    rows[-1]["bound_document"] = math.exp(np.median(smooth_bounds[i, :, j]))
        table = pd.DataFrame(rows)
        if not smooth:
            bounds = pd.concat([_bounds(quantity, depths, beta) for beta in betas])
            table = table.merge(bounds, on=["beta", "depth"])
        tables = {"": table}
        limits = _limit(quantity, weights, request)
        if limits is not None:
            tables["limit"] = pd.DataFrame({"beta": betas[2], "change": limits})
        last = table[table.depth == depths[-1]].set_index("beta")["median"]
        slopes = {
            beta: np.polyfit(np.log(g.depth), np.log(g["median"]), 1)[0]
            for beta, g in table.groupby("beta")
        }
        subject, symbol = _SUBJECTS[quantity][0], _PLAIN[quantity]
        caption = (
            f"{subject} {symbol} against the depth L, branch scale L^−β, res-3, width {_WIDTH}, "
            f"{weights} weights, {repetitions} networks a point: median and quartiles. Medians at "
            f"L = {depths[-1]}: "
            + ", ".join(f"{last[beta]:.3g} at β = {beta:g}" for beta in betas)
            + "; growth exponents of the median in L: "
            + ", ".join(f"{slopes[beta]:+.2f}" for beta in betas)
            + (
                ". Dashed: exact first-order root mean square, valid while the change is small."
                if smooth
                else ". Dashed: exact root mean square √((1+α²/2)^L − 1)."
            )
            + (
                " Dotted: R's Proposition 12, from the weights of each network, median."
                if smooth
                else " Dotted, dash-dotted: bounds of the quartiles (δ = ¼) where guaranteed."
            )
        )
        if limits is not None:
            caption += (
                f" Green, at β = {betas[2]:g}: quartiles of the limit in continuous depth, "
                f"{'the neural ODE' if smooth else 'the SDE'}, {len(limits)} draws: "
                + ", ".join(f"{q:.3f}" for q in np.quantile(limits, [0.25, 0.5, 0.75]))
                + "."
            )
        return FigureRecord(
            name,
            _TITLES[name],
            caption,
            tables,
            {
                "quantity": quantity,
                "weights": weights,
                "betas": betas,
                "repetitions": repetitions,
                "seed": request.seed,
                "setting": request.setting,
            },
        )

    return compute


def _bounds(quantity: str, depths: list[int], beta: float) -> pd.DataFrame:
    """Return bounds of the quartiles of a change, NaN where they are not guaranteed."""
    curves = bound_curves(depths, width=_WIDTH, beta=beta, delta=_DELTA, entries=Uniform())
    if quantity == "gradient_change":
        document, lower = curves.gradient_upper, np.full(len(depths), np.nan)
        upper = curves.gradient_rms_upper / math.sqrt(_DELTA)  # Markov, on the mean square
    else:
        # ‖h_L‖/‖h_0‖ = ρ gives |ρ − 1| ≤ ‖h_L−h_0‖/‖h_0‖ ≤ ρ + 1
        document = np.fmin(curves.change_upper, curves.norm_upper + 1)
        markov = curves.change_rms_upper / math.sqrt(_DELTA)
        upper = np.fmin(markov, curves.sharper_upper + 1)
        lower = np.where(curves.sharper_lower > 1, curves.sharper_lower - 1, np.nan)
    return pd.DataFrame(
        {
            "beta": beta,
            "depth": curves.depth,
            "bound_document": document,
            "bound_upper": upper,
            "bound_lower": lower,
        }
    )


def _limit(quantity: str, weights: str, request: Request) -> np.ndarray | None:
    """Sample the change at infinite depth, None where the package simulates no limit."""
    if weights == "independent":
        count = 100 if request.quick else 2000
        samples = limit_changes("sde", width=_WIDTH, replicates=count, seed=request.seed)
    elif weights == "smooth":
        count = 8 if request.quick else 60
        samples = limit_changes(
            "ode", width=_WIDTH, replicates=count, length_scale=_LENGTH_SCALE, seed=request.seed
        )
    else:
        return None
    changes = samples.hidden if quantity == "hidden_change" else samples.gradient
    return changes if len(changes) else None


def _theory(quantity: str, weights: str, depth: int, beta: float) -> float:
    alpha_square = depth ** (-2 * beta)
    if weights == "independent":
        return math.sqrt(math.expm1(depth * math.log1p(alpha_square / 2)))
    moments = response_moments(_law(weights), [depth], width=_WIDTH)
    square = moments.hidden[0] if quantity == "hidden_change" else moments.gradient[0]
    return math.sqrt(alpha_square * square)


def _draw(record: FigureRecord) -> Figure:
    from matplotlib.ticker import NullLocator

    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    table, settings = record.tables[""], record.settings
    symbol = _SUBJECTS[settings["quantity"]][1]
    exact = settings["weights"] == "independent"
    theory = "root mean square, " + ("exact" if exact else "first-order theory")
    figure, axes = panels(1, 3, size=(3.8, 3.3))
    for ax, beta, regime in zip(axes[0], settings["betas"], _PANELS, strict=True):
        part = table[table.beta == beta]
        ax.fill_between(
            part.depth,
            part.lower_quartile,
            part.upper_quartile,
            color=COLORS[0],
            alpha=0.25,
            label="quartiles",
            linewidth=0,
        )
        ax.plot(part.depth, part["median"], "o-", ms=3, color=COLORS[0], label="median")
        ax.plot(
            part.depth,
            part.theory_root_mean_square,
            "--",
            color=COLORS[1],
            label=theory,
        )
        for column, style, label in (
            ("bound_document", ":", "bound by R"),
            ("bound_upper", "-.", "sharper bound"),
            ("bound_lower", "-.", None),
        ):
            if column not in part:
                continue
            # What does not fit the picture would hide what does.
            visible = part[part[column].between(1e-9, 40 * part["median"].max())]
            if len(visible):
                ax.plot(visible.depth, visible[column], style, color="0.45", label=label, lw=1)
        limit = record.tables.get("limit")
        if limit is not None and beta == limit.beta.iloc[0]:
            for i, quantile in enumerate(np.quantile(limit.change, [0.25, 0.5, 0.75])):
                ax.axhline(
                    quantile,
                    color=COLORS[2],
                    linewidth=1.4 if i == 1 else 0.7,
                    label="limit of continuous depth" if i == 1 else None,
                )
        ax.set_xscale("log")
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        if high / low < 30:  # a flat curve should look flat
            middle = math.sqrt(low * high)
            ax.set_ylim(middle / 8, middle * 8)
            ax.yaxis.set_minor_locator(NullLocator())
        label_axes(ax, f"β = {beta:g}: {regime}", "depth L", symbol)
    labelled: dict[str, Any] = {}
    for ax in axes[0]:
        handles, labels = ax.get_legend_handles_labels()
        labelled |= dict(zip(labels, handles, strict=True))
    figure.legend(list(labelled.values()), list(labelled), loc="outside right upper")
    write_caption(figure, record.title, record.caption)
    return figure


_SUBJECTS: dict[str, tuple[str, Any]] = {
    "hidden_change": ("Change of the signal", r"$\|h_L - h_0\|\,/\,\|h_0\|$"),
    "gradient_change": ("Change of the gradient", r"$\|p_0 - p_L\|\,/\,\|p_L\|$"),
}
_PLAIN = {"hidden_change": "‖h_L − h_0‖ / ‖h_0‖", "gradient_change": "‖p_0 − p_L‖ / ‖p_L‖"}
_TITLES = {
    "R1": "R, Figure 1: the signal at large depth, independent weights",
    "R3": "R, Figure 3: the gradient at large depth, independent weights",
    "R4": "R, Figure 4: the signal at large depth, smooth weights",
    "R5": "R, Figure 5: the gradient at large depth, smooth weights",
}
FIGURES = tuple(
    FigureSpec(name, _TITLES[name], _compute(name, quantity, smooth), _draw)
    for name, quantity, smooth in (
        ("R1", "hidden_change", False),
        ("R3", "gradient_change", False),
        ("R4", "hidden_change", True),
        ("R5", "gradient_change", True),
    )
)
"""The four figures."""
