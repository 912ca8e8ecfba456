r"""All bounds against the depth, as one table: what a figure draws beside its measurement."""

from __future__ import annotations

__all__ = ["bound_curves"]

import math
from collections.abc import Callable, Sequence

import pandas as pd
from torch import Tensor

from scalinglimits.laws import EntryLaw, Normal
from scalinglimits.residual.bounds.backward import gradient_change_bound, gradient_change_mean
from scalinglimits.residual.bounds.forward import (
    hidden_change_bound,
    hidden_change_mean,
    hidden_norm_lower_bound,
    hidden_norm_upper_bound,
)
from scalinglimits.residual.bounds.record import Bound, Setting
from scalinglimits.residual.bounds.sharper import (
    sharper_norm_lower_bound,
    sharper_norm_upper_bound,
)


def bound_curves(
    depths: Sequence[int],
    *,
    width: int,
    beta: float,
    delta: float,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    entries: EntryLaw | None = None,
) -> pd.DataFrame:
    r"""Tabulate all bounds on norms (not their squares) against the depth.

    Args:
        depths: values of L.
        width: :math:`d`.
        beta: :math:`\alpha = L^{-\beta}`.
        delta: probability of failure of each one-sided bound.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch; None is its default.
        entries: law of the entries; None is the normal law.

    Returns:
        One row per depth, NaN where a bound is not guaranteed: ``depth``;
        ``change_rms_lower``, ``change_rms_upper`` (root mean square of
        :math:`\|h_L-h_0\|/\|h_0\|`), ``change_upper`` (Proposition 2); ``norm_lower``,
        ``norm_upper`` (Proposition 3), ``sharper_lower``, ``sharper_upper``;
        ``gradient_rms_lower``, ``gradient_rms_upper`` (Proposition 7), ``gradient_upper``
        (Proposition 6).

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> frame = bound_curves([10, 1000], width=40, beta=1.0, delta=0.1)
        >>> frame["change_upper"].round(3).tolist(), frame["norm_lower"].isna().all()
        ([1.414, 0.141], np.True_)
    """
    law = Normal() if entries is None else entries
    rows = []
    for depth in depths:
        setting = Setting(width, depth, beta, branch=branch, activation=activation, entries=law)
        forward, backward = hidden_change_mean(setting), gradient_change_mean(setting)
        rows.append(
            {
                "depth": depth,
                "change_rms_lower": _root(forward, forward.lower),
                "change_rms_upper": _root(forward, forward.upper),
                "change_upper": _upper(hidden_change_bound(setting, delta)),
                "norm_lower": _lower(hidden_norm_lower_bound(setting, delta)),
                "norm_upper": _upper(hidden_norm_upper_bound(setting, delta)),
                "sharper_lower": _lower(sharper_norm_lower_bound(setting, delta)),
                "sharper_upper": _upper(sharper_norm_upper_bound(setting, delta)),
                "gradient_rms_lower": _root(backward, backward.lower),
                "gradient_rms_upper": _root(backward, backward.upper),
                "gradient_upper": _upper(gradient_change_bound(setting, delta)),
            }
        )
    return pd.DataFrame(rows)


def _root(bound: Bound, value: float) -> float:
    return math.sqrt(value) if bound.guaranteed else math.nan


def _lower(bound: Bound) -> float:
    return _root(bound, bound.lower)


def _upper(bound: Bound) -> float:
    return _root(bound, bound.upper)
