r"""Phase diagram of residual networks: Hurst index of the weights against branch exponent.

Notation: weights across depth are increments of fractional Brownian motion of Hurst index
:math:`H`, the branch scale is :math:`L^{-\beta}`. R, section 4.1 (Figure 7), finds identity for
:math:`\beta` above and explosion below :math:`\beta_c(H) = \max(H, ½)`.

How the boundary is measured. Layers 1 … k of one network are a network of depth k with the same
branch scale, so one pass gives the change :math:`R_k` at all depths k up to L. Where it is small
its mean square is :math:`\alpha^2 S_k` (see :mod:`scalinglimits.residual.response`), and with
:math:`S_k \sim k^{2\beta_c}` the change :math:`R_L \sim L^{\beta_c-\beta}` vanishes above
:math:`\beta_c` and grows below. The fitted :math:`\beta_c` is the slope of
:math:`\log R_k - \log\alpha` in :math:`\log k`, over the last two octaves of depth; the same slope
of the exact :math:`S_k` is its theory at this depth.
"""

from __future__ import annotations

__all__ = ["PhaseDiagram", "phase_diagram"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from scalinglimits.laws import FractionalIncrements, Normal
from scalinglimits.laws.streams import substream
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.model import branch_activation, branch_scale_from_beta
from scalinglimits.residual.propagation import propagate_stacks
from scalinglimits.residual.response import limit_exponent, response_moments
from scalinglimits.sweeps import Executor, sweep

_OCTAVES = 2
"""Depths from L / 2^2 to L enter the fit of the critical exponent."""
_STEPS_PER_OCTAVE = 4
_SMALL_CHANGE = math.log(0.3)
"""Natural log of the largest change that counts as first-order."""
QUANTITIES = ("hidden_change", "gradient_change")


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    r"""Change of signal and gradient over Hurst index and branch exponent.

    Attributes:
        hurst: Hurst indices, shape (n_hurst,).
        beta: exponents, shape (n_beta,).
        log10_hidden_change: mean over draws and inputs of
            :math:`\log_{10}(\|h_L-h_0\|/\|h_0\|)`, shape (n_hurst, n_beta).
        log10_gradient_change: the same of :math:`\|p_0-p_L\|/\|p_L\|`.
        critical: one row per Hurst index and quantity, with columns ``hurst, quantity, beta_c,
            standard_error, lower, upper`` (the fitted critical exponent and its confidence
            interval; NaN if the grid has no cell of small change), ``theory_limit``
            (:math:`\max(H,½)`, but in res-2 with a linear activation), ``theory_depth`` (the
            exact first-order value at this depth), ``extrapolated`` (the fit less the shift of
            this depth, ``theory_depth - theory_limit``), ``beta_one`` and ``theory_one`` (where
            the root mean square change is 1: measured, NaN if off the grid, and first-order
            theory).
        depth: L.
        width: d.
        draws: weight draws a cell.
        inputs: inputs a draw.
        confidence: level of the intervals.
    """

    hurst: np.ndarray
    beta: np.ndarray
    log10_hidden_change: np.ndarray
    log10_gradient_change: np.ndarray
    critical: pd.DataFrame
    depth: int
    width: int
    draws: int
    inputs: int
    confidence: float

    def to_frame(self) -> pd.DataFrame:
        """Return the heat maps as a table, one row per Hurst index and exponent.

        Returns:
            Columns ``hurst, beta, log10_hidden_change, log10_gradient_change``.
        """
        i, j = (index.ravel() for index in np.indices(self.log10_hidden_change.shape))
        return pd.DataFrame(
            {
                "hurst": self.hurst[i],
                "beta": self.beta[j],
                "log10_hidden_change": self.log10_hidden_change.ravel(),
                "log10_gradient_change": self.log10_gradient_change.ravel(),
            }
        )


def phase_diagram(
    hurst: Sequence[float] | np.ndarray,
    beta: Sequence[float] | np.ndarray,
    *,
    width: int = 40,
    depth: int = 1000,
    draws: int = 5,
    inputs: int = 10,
    branch: str = "res-3",
    activation: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    store: str | None = None,
    executor: str | Executor = "joblib",
    n_jobs: int | None = None,
    progress: bool = False,
) -> PhaseDiagram:
    r"""Measure where residual networks are identity, alive or exploding.

    Each cell of the sweep is one Hurst index and one draw of the weights, which all exponents and
    inputs share. Inputs are random directions, as :math:`h_0 = Ax` is for Gaussian A.

    Args:
        hurst: Hurst indices in (0, 1).
        beta: exponents of the branch scale, increasing.
        width: size d of the hidden states.
        depth: number L of layers.
        draws: weight draws for each Hurst index.
        inputs: inputs for each draw.
        branch: "res-1", "res-2" or "res-3".
        activation: name of a positively homogeneous activation of res-1 and res-2.
        confidence: level of the intervals of the fitted exponents.
        seed: root of all seeds; the result does not depend on the number of workers.
        store: SQLite file in which the cells are kept, so that an interrupted run resumes.
        executor: "joblib" (all cores), "serial", or an executor of :mod:`scalinglimits.sweeps`.
        n_jobs: workers of joblib; None is one a core.
        progress: show a bar on the standard error stream.

    Returns:
        Heat maps, fitted critical exponents with intervals, and the theory beside them.

    Raises:
        ValueError: if an index is outside (0, 1), an exponent is not finite or out of order, a
            size is not a positive integer, or the branch or activation does not fit.

    Example:
        >>> from scalinglimits.residual import phase_diagram
        >>> diagram = phase_diagram(
        ...     [0.5], [0.2, 0.5, 1.0], width=16, depth=64, draws=2, executor="serial"
        ... )
        >>> bool((np.diff(diagram.log10_hidden_change[0]) < 0).all())
        True
    """
    indices = np.array([FractionalIncrements(h).hurst for h in np.atleast_1d(hurst).tolist()])
    betas = np.atleast_1d(np.asarray(beta, dtype=np.float64))
    if not len(indices):
        raise ValueError("`hurst` must hold at least one index; got none")
    if (
        betas.ndim > 1
        or not betas.size
        or not np.isfinite(betas).all()
        or (np.diff(betas) <= 0).any()
    ):
        raise ValueError(f"`beta` must be increasing finite numbers; got {beta!r}")
    if resolve_activation(branch_activation(branch, activation)).slopes is None:
        raise ValueError(f"`activation` must be positively homogeneous; got {activation!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie in (0, 1); got {confidence!r}")
    width, depth = positive_integer("width", width), positive_integer("depth", depth)
    draws, inputs = positive_integer("draws", draws), positive_integer("inputs", inputs)
    settings: dict[str, Sequence[Any]] = {
        "hurst": indices.tolist(),
        "beta": [tuple(betas.tolist())],
        "width": [width],
        "depth": [depth],
        "inputs": [inputs],
        "branch": [branch],
        "activation": [activation],
    }
    result = sweep(
        _measure_draw,
        settings,
        seeds=draws,
        seed=seed,
        seed_by=["hurst", "width", "depth"],  # the weights do not depend on the exponents
        store=store,
        executor=executor,
        progress=progress,
        name="phase_diagram",
        on_error="raise",
        n_jobs=n_jobs,
    )
    shape = (len(indices), draws)
    change = {name: result.array(name).reshape(*shape, len(betas), inputs) for name in QUANTITIES}
    squares = {
        name: result.array(f"{name}_square").reshape(*shape, len(betas), -1) for name in QUANTITIES
    }
    rows = [
        _fit_critical(
            h, name, squares[name][i], betas, width, depth, branch, activation, confidence
        )
        for i, h in enumerate(indices)
        for name in QUANTITIES
    ]
    means = [change[name].mean(axis=(1, 3)) / math.log(10) for name in QUANTITIES]
    return PhaseDiagram(
        hurst=indices,
        beta=betas,
        log10_hidden_change=means[0],
        log10_gradient_change=means[1],
        critical=pd.DataFrame(rows),
        depth=depth,
        width=width,
        draws=draws,
        inputs=inputs,
        confidence=confidence,
    )


def _fit_depths(depth: int) -> np.ndarray:
    """Return the depths that the fit uses, the last of them the full depth."""
    octaves = np.arange(_OCTAVES * _STEPS_PER_OCTAVE, -1, -1) / _STEPS_PER_OCTAVE
    return np.unique(np.maximum(1, np.rint(depth * 2.0**-octaves)).astype(int))


def _measure_draw(
    hurst: float,
    beta: tuple[float, ...],
    width: int,
    depth: int,
    inputs: int,
    branch: str,
    activation: str | None,
    seed: int,
) -> dict[str, np.ndarray]:
    """Draw one network's weights and propagate all exponents and inputs through them.

    Returns natural logarithms: the changes, shape (n_beta, inputs), and their mean squares over
    the inputs at the depths of the fit, shape (n_beta, n_depths).
    """
    law = FractionalIncrements(hurst)

    def stack(name: str) -> torch.Tensor:
        draw = law.sample(depth, (width, width), substream(seed, name), dtype=torch.float32)
        return draw.mul_(width**-0.5)

    def vectors(name: str) -> torch.Tensor:
        return Normal().sample((width, inputs), substream(seed, name), dtype=torch.float32)

    depths = _fit_depths(depth)
    record = propagate_stacks(
        stack("V"),
        None if branch == "res-1" else stack("W"),
        vectors("h_0"),
        vectors("p_L"),
        branch_scale=np.array([branch_scale_from_beta(b, depth) for b in beta]),
        beta=np.array(beta),
        activation=resolve_activation(branch_activation(branch, activation)),
        layers=[*depths.tolist(), *(depth - depths).tolist()],
    )
    hidden = record.log_hidden_change[..., np.searchsorted(record.layers, depths)]
    gradient = record.log_backward_change[..., np.searchsorted(record.layers, depth - depths)]
    results = {}
    for name, values in zip(QUANTITIES, (hidden, gradient), strict=True):
        results[name] = values[..., -1]
        results[f"{name}_square"] = _log_mean(2 * values, axis=1)
    return results


def _log_mean(logs: np.ndarray, axis: int) -> np.ndarray:
    return np.logaddexp.reduce(logs, axis=axis) - math.log(logs.shape[axis])


def _fit_critical(
    hurst: float,
    quantity: str,
    squares: np.ndarray,
    beta: np.ndarray,
    width: int,
    depth: int,
    branch: str,
    activation: str | None,
    confidence: float,
) -> dict[str, Any]:
    """Fit the critical exponent; the error comes from leaving out one draw at a time.

    ``squares`` are logarithms of mean squares, shape (draws, n_beta, n_depths).
    """
    depths = _fit_depths(depth)
    moments = response_moments(
        FractionalIncrements(hurst), depths, width=width, branch=branch, activation=activation
    )
    theory = moments.hidden if quantity == "hidden_change" else moments.gradient
    draws = len(squares)
    beta_c = _slope(_log_mean(squares, axis=0), beta, depths)
    error = math.nan
    if draws > 1:
        left_out = [
            _slope(_log_mean(np.delete(squares, i, axis=0), axis=0), beta, depths)
            for i in range(draws)
        ]
        error = math.sqrt((draws - 1) * float(np.var(left_out)))
    margin = error * float(stats.t.ppf((1 + confidence) / 2, draws - 1)) if draws > 1 else math.nan
    many = len(depths) > 1
    limit = limit_exponent(max(hurst, 0.5), branch, activation)
    local = np.polyfit(np.log(depths), np.log(theory) / 2, 1)[0] if many else math.nan
    return {
        "hurst": hurst,
        "quantity": quantity,
        "beta_c": beta_c,
        "standard_error": error,
        "lower": beta_c - margin,
        "upper": beta_c + margin,
        "theory_limit": limit,
        "theory_depth": local,
        "extrapolated": beta_c - (local - limit),
        "beta_one": _crossing(_log_mean(squares, axis=0)[:, -1], beta),
        "theory_one": math.log(theory[-1]) / (2 * math.log(depth)) if many else math.nan,
    }


def _slope(squares: np.ndarray, beta: np.ndarray, depths: np.ndarray) -> float:
    r"""Return the slope of :math:`\log(R_k/\alpha)` in :math:`\log k` where R is small."""
    response = squares / 2 + beta[:, None] * math.log(depths[-1])
    small = np.flatnonzero(squares[:, -1] / 2 < _SMALL_CHANGE)
    if not len(small) or len(depths) < 2:
        return math.nan
    return float(np.polyfit(np.log(depths), response[small].mean(axis=0), 1)[0])


def _crossing(log_square: np.ndarray, beta: np.ndarray) -> float:
    """Return the exponent at which the mean square is 1, linear between the grid's points."""
    above = np.flatnonzero(log_square > 0)
    if not len(above) or above[-1] == len(beta) - 1:
        return math.nan
    i = above[-1]
    share = log_square[i] / (log_square[i] - log_square[i + 1])
    return float(beta[i] + share * (beta[i + 1] - beta[i]))
