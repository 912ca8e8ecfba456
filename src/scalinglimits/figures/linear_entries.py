r"""Figure L3: the weights of networks that start from Rademacher vectors.

L, section 2 (Figure 2.3) and remark v: with entries of U(0) and V(0) of another law, an entry of V
at large time is :math:`B_1\tilde\Gamma_1 + \sum_{i\ge2}B_i\tilde\Gamma_i`, with
:math:`\tilde\Gamma_1` of that law and the other vectors Gaussian. It is not Gaussian, but becomes
so when its first term is subtracted; the rate at which the predictor approaches the limit's is
still 1/m. With Rademacher entries the law of V is the half and half mixture of
:math:`N(\pm B_1, \|B\|^2 - B_1^2)`.
"""

from __future__ import annotations

__all__ = ["FIGURES"]

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from scalinglimits.figures.linear_settings import (
    error_bars,
    errors_from_limit,
    linear_setting,
    mean_squares,
    power_fit,
    width_label,
)
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws import Rademacher
from scalinglimits.linear import LinearNetwork, train
from scalinglimits.matrices import entries
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = "L, Figure 2.3: weights after a start from Rademacher vectors"
_LEAST_WIDTH = 1000
"""Exponents are fitted from here on."""


def _mixture_cdf(x: np.ndarray, centre: float, deviation: float) -> np.ndarray:
    normal = stats.norm(scale=deviation)
    return np.asarray(0.5 * (normal.cdf(x - centre) + normal.cdf(x + centre)))


def _mixture_pdf(x: np.ndarray, centre: float, deviation: float) -> np.ndarray:
    normal = stats.norm(scale=deviation)
    return np.asarray(0.5 * (normal.pdf(x - centre) + normal.pdf(x + centre)))


def _measure_entries(
    setting: str, width: float, steps: int, count: int, data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    """Entries of V at large time, and what remains of them without the first basis vector."""
    made = linear_setting(setting, data_seed)
    network = LinearNetwork(made.in_features, width=width, vectors=Rademacher())
    run = train(network, made.data, step_size=made.step_size, steps=steps, seed=seed)
    assert run.state is not None
    space, V = run.state.spaces[-1], run.state.V
    # The first basis vector is V(0) but for its length.
    first = np.zeros_like(V)
    first[0] = V[0]
    whole = entries(space, V, count)
    return {"whole": whole, "rest": whole - entries(space, first, count), "coordinates": V}


def _measure_errors(
    setting: str, width: int, runs: int, record: tuple[int, ...], data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    made = linear_setting(setting, data_seed)
    network = LinearNetwork(made.in_features, width=width, vectors=Rademacher())
    errors = errors_from_limit(
        network, made.data, runs=runs, record=record, step_size=made.step_size, seed=seed
    )
    return {"errors": errors}


def _compute(request: Request) -> FigureRecord:
    setting = linear_setting(request.setting, request.seed)
    steps = min(setting.steps, 300) if request.quick else setting.steps
    finite, count = 2000, 4000 if request.quick else 40_000
    made = {"setting": setting.name, "data_seed": request.seed}
    options = {"on_error": "raise", **request.sweep_options()}
    weights = sweep(
        _measure_entries,
        [
            {**made, "width": math.inf, "steps": steps, "count": count},
            {**made, "width": finite, "steps": steps, "count": finite},
        ],
        name="linear_entries",
        **options,
    )
    coordinates = weights.cells[0].values["coordinates"]
    first, square = abs(float(coordinates[0])), float(coordinates @ coordinates)
    rest = math.sqrt(square - first**2)
    parts, rows = [], []
    for cell in weights.cells:
        width, values = float(cell.config["width"]), cell.values
        parts.append(
            pd.DataFrame({"width": width, "whole": values["whole"], "rest": values["rest"]})
        )
        for name, law, cdf in (
            ("whole", "mixture", lambda x: _mixture_cdf(x, first, rest)),
            ("whole", "normal", stats.norm(scale=math.sqrt(square)).cdf),
            ("rest", "normal", stats.norm(scale=rest).cdf),
        ):
            test = stats.kstest(values[name], cdf)
            rows.append(
                {
                    "width": width,
                    "entries": name,
                    "law": law,
                    "statistic": test.statistic,
                    "p_value": test.pvalue,
                    "count": len(values[name]),
                }
            )
    tests = pd.DataFrame(rows)
    late = 2 if setting.name == "text" else steps
    record = (0, 1, late)
    widths = [10**k for k in range(1, 6, 2 if request.quick else 1)]
    chunks = 3 if request.quick else (24 if setting.name == "text" else 8)
    result = sweep(
        _measure_errors,
        {"setting": [setting.name], "width": widths, "runs": [8], "record": [record],
         "data_seed": [request.seed]},
        chunks,
        name="linear_rademacher_errors",
        **options,
    )  # fmt: skip
    errors = result.array("errors").reshape(len(widths), chunks * 8, len(record))
    points = []
    for i, width in enumerate(widths):
        mean, error = mean_squares(errors[i])
        points += [
            {"width": width, "step": k, "mean_square": mean[j], "standard_error": error[j]}
            for j, k in enumerate(record)
        ]
    table = pd.DataFrame(points)
    wide = table[table.width >= _LEAST_WIDTH]
    fits = {
        step: power_fit(g.width, g.mean_square, g.standard_error)
        for step, g in wide.groupby("step")
    }
    limit_tests = tests[np.isinf(tests.width)].set_index(["entries", "law"])

    def p(entries_name: str, law: str) -> str:
        return f"{limit_tests.loc[(entries_name, law), 'p_value']:.2g}"

    finite_test = tests[(tests.width == finite) & (tests.law == "mixture")].p_value.item()
    caption = (
        f"{setting.label}; {steps} steps of size {setting.step_size:g}, entries of U(0) and V(0) "
        f"±1. (a) Entries of V of the limit ({count} neurons): B₁ = {first:.3f} and ‖B‖² = "
        f"{square:.3f}. Kolmogorov–Smirnov p = {p('whole', 'mixture')} against the mixture of two "
        f"normal laws at ±B₁, {p('whole', 'normal')} against a normal law; without the first "
        f"basis vector, {p('rest', 'normal')} against a normal law. (b) All entries of one network "
        f"of width {finite}: p = {finite_test:.2g} against the limit's mixture. (c) "
        f"{chunks * 8} networks a width; exponents of m for m ≥ {_LEAST_WIDTH}: "
        + ", ".join(f"{fit} at κ = {step}" for step, fit in fits.items())
        + "; in theory −1."
    )
    settings = {"setting": setting.name, "steps": steps, "first": first, "square": square,
                "finite": finite, "seed": request.seed}  # fmt: skip
    tables = {"": table, "entries": pd.concat(parts), "tests": tests}
    return FigureRecord("L3", _TITLE, caption, tables, settings)


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    settings, weights = record.settings, record.tables["entries"]
    first, square = settings["first"], settings["square"]
    rest = math.sqrt(square - first**2)
    figure, axes = panels(1, 3, size=(3.9, 3.6))
    reach = 3.5 * math.sqrt(square)
    grid = np.linspace(-reach, reach, 301)
    for ax, width, letter in ((axes[0, 0], math.inf, "a"), (axes[0, 1], settings["finite"], "b")):
        part = weights[weights.width == width]
        bins = np.linspace(-reach, reach, 61 if len(part) > 3000 else 41)
        for name, color, label in (
            ("whole", COLORS[0], "entries of V"),
            ("rest", COLORS[5], "without first basis vector"),
        ):
            ax.hist(part[name], bins, density=True, color=color, alpha=0.45, label=label)
        ax.plot(grid, _mixture_pdf(grid, first, rest), color=COLORS[0],
                label=r"limit: $N(\pm B_1, \|B\|^2 - B_1^2)$")  # fmt: skip
        ax.plot(grid, stats.norm(scale=rest).pdf(grid), "--", color=COLORS[1],
                label=r"limit: $N(0, \|B\|^2 - B_1^2)$")  # fmt: skip
        ax.set_ylim(top=1.65 * stats.norm(scale=rest).pdf(0))
        label_axes(ax, f"({letter}) weights, {width_label(width)}", "entry", "probability density")
        ax.legend(fontsize=7, loc="upper right")
    ax, table = axes[0, 2], record.tables[""]
    for i, (step, part) in enumerate(table.groupby("step")):
        wide = part[part.width >= _LEAST_WIDTH]
        fit = power_fit(wide.width, wide.mean_square, wide.standard_error)
        ax.errorbar(
            part.width,
            part.mean_square,
            error_bars(part.mean_square, part.standard_error),
            fmt="o",
            ms=3,
            color=COLORS[i],
            label=f"κ = {step}: exponent {fit}",
        )
        constant = float(part.mean_square.iloc[-1] * part.width.iloc[-1])
        ax.plot(part.width, constant / part.width, "--", linewidth=0.9, color=COLORS[i])
    ax.plot([], [], "--", color="0.4", linewidth=0.9, label="slope −1")
    ax.set_xscale("log")
    ax.set_yscale("log")
    label_axes(ax, "(c) distance from the limit", "width m",
               r"$E\,\|\lambda^m(\kappa) - \lambda^\infty(\kappa)\|^2$")  # fmt: skip
    ax.legend(fontsize=7)
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (FigureSpec("L3", _TITLE, _compute, _draw),)
"""The figure."""
