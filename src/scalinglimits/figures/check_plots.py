"""Drawings of a scaling check and of a transfer experiment: their records, with fitted lines."""

from __future__ import annotations

__all__ = ["draw_check", "draw_transfer"]

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FormatStrFormatter, MaxNLocator, NullLocator

from scalinglimits.checks.quantities import KINDS
from scalinglimits.figures.style import COLORS, label_axes, panels, styled, write_caption
from scalinglimits.fits import fit_exponent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scalinglimits.checks import Finding, ScalingCheck, TransferResult

_VERDICT_COLORS = {"holds": COLORS[2], "undecided": COLORS[5], "fails": COLORS[1]}


def draw_check(check: ScalingCheck, *, limit: int = 12) -> Figure:
    """Draw the quantities of a check against their axis, the worst first.

    Points are seeds, the solid line is the fit, the dashed line the expected exponent nearest to
    it; the colour is the verdict.

    Args:
        check: the record.
        limit: number of panels at most.

    Returns:
        The drawing.

    Raises:
        ValueError: if `limit` is not positive or nothing was judged.
    """
    if limit < 1:
        raise ValueError(f"`limit` must be at least 1; got {limit}")
    order = {"fails": 0, "undecided": 1, "holds": 2}
    judged = [f for f in check.findings if f.verdict and f.kind != "loss"]
    judged.sort(key=lambda f: (order[f.verdict], -abs(f.excess)))
    # Of the first and the last step, the worse.
    worst = {(f.axis, f.kind, f.name, f.use): f for f in reversed(judged)}
    chosen = list(reversed(worst.values()))[:limit]
    if not chosen:
        raise ValueError("`check` must have judged findings; got none")
    columns = min(len(chosen), 4)
    rows = -(-len(chosen) // columns)
    with styled():
        figure, axes = panels(rows, columns)
        for finding, panel in zip(chosen, axes.flat, strict=False):
            _draw_finding(check, finding, panel)
        for panel in axes.flat[len(chosen) :]:
            panel.set_axis_off()
        total = len(worst)
        write_caption(
            figure,
            f"Scaling {check.verdict}",
            f"The {len(chosen)} of {total} quantities that are farthest from what is expected, "
            "failures first, as root mean squares: one point a seed, solid the fitted power law, "
            "dashed the nearest expected exponent. Green holds, yellow is undecided, orange fails.",
        )
    return figure


def draw_transfer(result: TransferResult) -> Figure:
    """Draw loss against learning rate, one panel for each scaling and axis, one curve a size.

    Args:
        result: the record.

    Returns:
        The drawing; the optimum of each size is marked.
    """
    drifts = result.drifts
    scalings = list(dict.fromkeys(drifts.scaling))
    directions = list(dict.fromkeys(drifts.axis))
    with styled():
        figure, axes = panels(len(scalings), len(directions), sharey="all")
        for i, scaling in enumerate(scalings):
            for j, axis in enumerate(directions):
                part, best = result.along(axis)
                part = part[part.scaling == scaling]
                best = best[best.scaling == scaling].set_index(axis)
                for k, (size, curve) in enumerate(part.groupby(axis)):
                    mean = curve.groupby("lr").loss.mean()
                    color = COLORS[k % len(COLORS)]
                    axes[i, j].plot(mean.index, mean, "o-", ms=3, lw=1, color=color, label=size)
                    axes[i, j].axvline(2.0 ** best.log2_lr[size], color=color, ls=":", lw=1)
                drift = drifts[(drifts.scaling == scaling) & (drifts.axis == axis)].iloc[0]
                title = f"{scaling}: drift with {axis} {drift.drift:+.2f}".replace("-", "−")
                label_axes(axes[i, j], title, "learning rate", "loss")
                axes[i, j].set_xscale("log", base=2)
                axes[i, j].legend(title=axis)
        # Diverged runs must not flatten the rest.
        low, first = result.losses.loss.min(), result.losses.loss.median()
        axes[0, 0].set_ylim(low - 0.05 * (first - low), first + 0.5 * (first - low) + 1e-9)
        write_caption(
            figure,
            "Does the best learning rate transfer?",
            f"Loss after {result.settings['steps']} steps against the learning rate at the "
            f"smallest size, mean of {result.settings['seeds']} seeds. Dotted: fitted optima. "
            "Drift: doublings of the best rate for each doubling of the size; 0 is transfer.",
        )
    return figure


def _draw_finding(check: ScalingCheck, finding: Finding, panel: Axes) -> None:
    record = check.along(finding.axis)
    rows = record[
        (record.kind == finding.kind)
        & (record.name == finding.name)
        & (record.use == finding.use)
        & (record.step == finding.step)
        & (record.value > 0)
    ]
    x, y = rows[finding.axis].to_numpy(float), rows.value.to_numpy(float)
    color = _VERDICT_COLORS[finding.verdict]
    panel.loglog(x, y, "o", ms=3, color=color, alpha=0.6)
    if len(np.unique(x)) > 1:
        line, sizes = fit_exponent(x, y), np.unique(x)
        panel.loglog(sizes, line(sizes), color=color)
        if finding.expected is not None:
            exponent = np.clip(line.value, *finding.expected)
            middle = np.exp(np.log(sizes).mean())
            panel.loglog(sizes, line(middle) * (sizes / middle) ** exponent, "--", color="0.4")
        panel.set_xticks(sizes, [f"{size:g}" for size in sizes])
        panel.xaxis.set_minor_locator(NullLocator())
    if y.size and y.max() < 2 * y.min():
        # Less than a doubling: numbers as they are, at round places.
        panel.yaxis.set_major_locator(MaxNLocator(4))
        panel.yaxis.set_major_formatter(FormatStrFormatter("%.3g"))
        panel.yaxis.set_minor_locator(NullLocator())
    words = KINDS[finding.kind].words.replace("its ", "", 1)
    label_axes(panel, f"{finding.name or 'model'}\n{words}", finding.axis, "")
    panel.title.set_fontsize(6.5)
