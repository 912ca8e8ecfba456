r"""Universality: the limit does not depend on the law of the hidden matrix, and where that stops.

L, remark iv: the theorem needs independent sub-Gaussian entries of zero mean and unit variance
only. Measured with matrices held in full, of Gaussian, Rademacher and uniform entries. It stops
where the tails grow with the width: with one entry :math:`\pm\sqrt m` a row on average, all
others zero, entries have unit variance but a fourth moment of m, and the mean square distance from
the limit
does not vanish as m grows.
"""

from __future__ import annotations

__all__ = ["FIGURES", "SparseSigns"]

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scalinglimits.figures.linear_settings import (
    error_bars,
    errors_from_limit,
    linear_setting,
    mean_squares,
    power_fit,
)
from scalinglimits.figures.record import FigureRecord, FigureSpec, Request
from scalinglimits.laws import Normal, Rademacher, Uniform
from scalinglimits.linear import LinearNetwork
from scalinglimits.sweeps import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = "L, remark iv: the limit is the same for all laws of the weights, up to sparse ones"
_NONZERO = 1
_SCALE = 0.1
"""Of the output: small, so that features are learnt."""
_STEP_SIZE, _STEPS = 0.1, 13
"""Half-way, where the predictor depends most on the weights; at the end all laws meet."""


@dataclass(frozen=True)
class SparseSigns:
    """Entries ``±1/√p`` with probability p, else zero: unit variance, fourth moment 1/p.

    Attributes:
        probability: p, in (0, 1].

    Example:
        >>> law = SparseSigns(0.25)
        >>> np.unique(law.sample((100,), np.random.default_rng(0)).astype(int))
        array([-2,  0,  2])
    """

    probability: float

    def sample(self, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
        """Draw independent entries.

        Args:
            shape: of the array.
            generator: source of randomness.

        Returns:
            The array.
        """
        sizes = (generator.random(shape) < self.probability) / math.sqrt(self.probability)
        return np.asarray(sizes * generator.choice([-1.0, 1.0], size=shape))


_LAWS = {"Gaussian": Normal(), "Rademacher": Rademacher(), "uniform": Uniform()}


def _measure(
    law: str, width: int, runs: int, steps: int, data_seed: int, seed: int
) -> dict[str, np.ndarray]:
    """Squared distances at the end from the limit, with matrices of a law."""
    made = linear_setting("study", data_seed)
    entries = SparseSigns(_NONZERO / width) if law == "sparse" else _LAWS[law]
    network = LinearNetwork(made.in_features, width=width, matrices=entries, scale=_SCALE)
    errors = errors_from_limit(
        network, made.data, runs=runs, record=[steps], step_size=_STEP_SIZE, seed=seed
    )
    return {"errors": errors[:, 0]}


def _compute(request: Request) -> FigureRecord:
    setting = linear_setting("study", request.seed)
    widths = [32, 128, 512] if request.quick else [32, 64, 128, 256, 512, 1024]
    runs, chunks = (8, 4) if request.quick else (8, 16)
    laws = [*_LAWS, "sparse"]
    result = sweep(
        _measure,
        {"law": laws, "width": widths, "runs": [runs], "steps": [_STEPS],
         "data_seed": [request.seed]},
        chunks,
        name="linear_laws",
        on_error="raise",
        **request.sweep_options(),
    )  # fmt: skip
    errors = result.array("errors").reshape(len(laws), len(widths), chunks * runs)
    mean, error = mean_squares(np.moveaxis(errors, -1, 0))
    square = float(setting.solution @ setting.solution)
    table = pd.DataFrame(
        [
            {
                "law": law,
                "width": width,
                "relative_mean_square": mean[i, j] / square,
                "standard_error": error[i, j] / square,
                "runs": chunks * runs,
            }
            for i, law in enumerate(laws)
            for j, width in enumerate(widths)
        ]
    )
    rows = []
    for law, part in table.groupby("law", sort=False):
        fit = power_fit(part.width, part.relative_mean_square, part.standard_error)
        rows.append({"law": law, "exponent": fit.exponent, "half_width": fit.half_width})
    fits = pd.DataFrame(rows)
    last = table[table.width == widths[-1]].set_index("law").relative_mean_square
    caption = (
        f"{setting.label}; scale {_SCALE:g}, {_STEPS} steps of size {_STEP_SIZE:g}, "
        f"{chunks * runs} "
        "networks a point, hidden matrix held in full. Mean square distance from the limit over "
        "‖λ*‖², with "
        "95 % intervals. Exponents of m: "
        + ", ".join(f"{r.law} {r.exponent:+.2f} ± {r.half_width:.2f}" for r in fits.itertuples())
        + f"; at m = {widths[-1]}: "
        + ", ".join(f"{law} {value:.1e}" for law, value in last.items())
        + ". Sparse: one entry ±√m a row on average, of unit variance, but with a fourth moment "
        "m: the limit is another one."
    )
    settings = {"widths": tuple(widths), "steps": _STEPS, "seed": request.seed}
    return FigureRecord("L-universality", _TITLE, caption, {"": table, "exponents": fits}, settings)


def _draw(record: FigureRecord) -> Figure:
    from scalinglimits.figures.style import COLORS, label_axes, panels, write_caption

    figure, axes = panels(1, 1, size=(6.6, 4.0))
    ax = axes[0, 0]
    names = {"sparse": "sparse: one non-zero entry a row"}
    for i, (law, part) in enumerate(record.tables[""].groupby("law", sort=False)):
        ax.errorbar(
            part.width * 1.03 ** (i - 1.5),
            part.relative_mean_square,
            error_bars(part.relative_mean_square, part.standard_error),
            fmt="o-" if law == "sparse" else "o",
            ms=4,
            color=COLORS[i],
            label=names.get(str(law), str(law)),
        )
    gaussian = record.tables[""].query("law == 'Gaussian'")
    last = gaussian.iloc[-1]
    line = last.relative_mean_square * last.width / gaussian.width
    ax.plot(gaussian.width, line, "--", color="0.4", label="slope −1")
    ax.set_xscale("log")
    ax.set_yscale("log")
    label_axes(ax, "distance from the limit, by law of the hidden matrix's entries", "width m",
               r"$E\,\|\lambda^m - \lambda^\infty\|^2\,/\,\|\lambda^*\|^2$")  # fmt: skip
    ax.legend()
    write_caption(figure, record.title, record.caption)
    return figure


FIGURES = (FigureSpec("L-universality", _TITLE, _compute, _draw),)
"""The study."""
