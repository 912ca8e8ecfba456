r"""How tight the bounds are: beside the quantiles of the exact law, over width, depth and δ."""

from __future__ import annotations

__all__ = ["tightness"]

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pandas as pd
from torch import Tensor

from scalinglimits.residual.bounds.forward import (
    hidden_norm_lower_bound,
    hidden_norm_upper_bound,
)
from scalinglimits.residual.bounds.record import Setting, check_delta
from scalinglimits.residual.bounds.sharper import (
    sharper_norm_lower_bound,
    sharper_norm_upper_bound,
)
from scalinglimits.residual.norm_law import NormLaw


def tightness(
    widths: Sequence[int],
    depths: Sequence[int],
    deltas: Sequence[float],
    *,
    beta: float = 0.5,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> pd.DataFrame:
    r"""Tabulate lower and upper bounds on :math:`\|h_L\|/\|h_0\|` for Gaussian weights.

    Each bound fails with probability at most :math:`\delta`, on its side.

    Args:
        widths: values of :math:`d`.
        depths: values of :math:`L`.
        deltas: values of :math:`\delta`.
        beta: :math:`\alpha = L^{-\beta}`.
        branch: "res-3" or "res-2".
        activation: of res-2, positively homogeneous.

    Returns:
        One row per combination: ``width, depth, delta``; ``lower`` and ``upper`` of R,
        ``sharper_lower`` and ``sharper_upper`` of ours, ``exact_lower`` and ``exact_upper``,
        the quantiles :math:`\delta` and :math:`1-\delta`; ``lower_guaranteed`` and
        ``upper_guaranteed`` say whether R's assumptions hold.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> frame = tightness([100], [1000], [0.25])
        >>> frame.loc[0, ["lower", "sharper_lower", "exact_lower"]].astype(float).round(3).tolist()
        [0.866, 1.135, 1.218]
    """
    deltas = [check_delta(delta) for delta in deltas]
    rows = []
    for width, depth in product(widths, depths):
        law = NormLaw(width, depth, beta=beta, branch=branch, activation=activation)
        for delta in deltas:
            setting = Setting(width, depth, beta, branch=branch, activation=activation)
            below = hidden_norm_lower_bound(setting, delta)
            above = hidden_norm_upper_bound(setting, delta)
            low, high = np.exp(law.ppf([delta, 1 - delta])).tolist()
            rows.append(
                {
                    "width": width,
                    "depth": depth,
                    "delta": delta,
                    "lower": below.norm_lower,
                    "sharper_lower": sharper_norm_lower_bound(setting, delta).norm_lower,
                    "exact_lower": low,
                    "exact_upper": high,
                    "sharper_upper": sharper_norm_upper_bound(setting, delta).norm_upper,
                    "upper": above.norm_upper,
                    "lower_guaranteed": below.guaranteed,
                    "upper_guaranteed": above.guaranteed,
                }
            )
    return pd.DataFrame(rows)
