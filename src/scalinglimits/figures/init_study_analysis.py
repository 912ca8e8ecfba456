"""From the trials of the study of averages to its numbers: steps, usable rates, paired intervals.

One row of trials is one mode in one setting. Its outcomes are text: learning rates (powers of 2,
ascending) separated by ``/``, replicates by spaces; a number is the step at which the target was
met, ``-`` stands for never and ``x`` for divergence.

Modes are compared on the same replicates: intervals are Student's, of the mean over replicates of
the difference of one mode from the reference.
"""

from __future__ import annotations

__all__ = [
    "REFERENCE",
    "SETTING",
    "compare",
    "decode_outcomes",
    "encode_outcomes",
    "pool",
    "summarize",
]

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

SETTING = ["architecture", "norm", "gain", "depth", "optimizer"]
"""What one comparison of modes holds fixed."""
REFERENCE = "fan_geo_avg"
"""The mode that the others are compared with."""
CONFIDENCE = 0.95


def encode_outcomes(steps: np.ndarray, diverged: np.ndarray) -> str:
    """Write outcomes as text.

    Args:
        steps: steps to the target, NaN if never, shape (rates, replicates).
        diverged: of the same shape.

    Returns:
        The text.

    Example:
        >>> encode_outcomes(np.array([[12, np.nan], [9, np.nan]]), np.array([[0, 0], [0, 1]]))
        '12 -/9 x'
    """
    return "/".join(
        " ".join(
            "x" if bad else "-" if math.isnan(step) else str(int(step))
            for step, bad in zip(*row, strict=True)
        )
        for row in zip(steps, diverged, strict=True)
    )


def decode_outcomes(text: str) -> np.ndarray:
    """Read steps to the target, NaN if never or diverged, shape (rates, replicates).

    Args:
        text: of :func:`encode_outcomes`.

    Returns:
        The steps.
    """
    return np.array(
        [[float(s) if s.isdigit() else math.nan for s in row.split()] for row in text.split("/")]
    )


def summarize(trials: pd.DataFrame) -> pd.DataFrame:
    """Find each cell's best learning rate, its steps there, and the rates that are usable.

    The best rate is the one at which most replicates reach the target, and of those the one with
    the smallest geometric mean of steps. The usable range of a replicate, in octaves, is
    log2(largest / smallest rate that reaches the target) + 1, and 0 if none does.

    Args:
        trials: columns `SETTING`, ``mode``, ``first_log2_rate`` and ``outcomes``, and more.

    Returns:
        One row a cell: ``reached`` (share of the replicates, at the best rate),
        ``log2_best_rate``, ``steps`` (geometric mean, NaN unless all reached), ``octaves``
        (mean), ``at_edge`` (whether an end of the rates tried reaches the target), and
        ``log_steps`` and ``octaves_each`` as tuples over replicates.
    """
    rows = []
    for trial in trials.to_dict("records"):
        steps = decode_outcomes(trial["outcomes"])
        found = np.isfinite(steps)
        count = found.sum(axis=1)
        logs = np.log(np.where(found, steps, 1.0))
        mean = np.where(count > 0, logs.sum(axis=1) / np.maximum(count, 1), math.inf)
        best = int(np.lexsort((mean, -count))[0])
        octaves = [
            int(np.ptp(np.flatnonzero(column))) + 1 if column.any() else 0 for column in found.T
        ]
        complete = bool(found[best].all())
        rows.append(
            {
                **{name: trial[name] for name in [*SETTING, "mode"]},
                "reached": found[best].mean(),
                "log2_best_rate": trial["first_log2_rate"] + best if count[best] else math.nan,
                "steps": math.exp(mean[best]) if complete else math.nan,
                "octaves": float(np.mean(octaves)),
                "at_edge": bool(found[0].any() or found[-1].any()),
                "log_steps": tuple(np.where(found[best], logs[best], math.nan).tolist()),
                "octaves_each": tuple(octaves),
            }
        )
    return pd.DataFrame(rows)


def compare(summary: pd.DataFrame) -> pd.DataFrame:
    """Compare each mode with the reference in each setting, replicate by replicate.

    Args:
        summary: of :func:`summarize`.

    Returns:
        The summary without its tuples, with ``steps_ratio`` (at each mode's own best rate) and
        ``octaves_difference``, each with ``_lower`` and ``_upper``.
    """
    return pd.DataFrame(
        [
            {
                **{k: v for k, v in row.items() if k not in ("log_steps", "octaves_each")},
                **_effects([row], [reference]),
            }
            for row, reference in _paired(summary)
        ]
    )


def pool(summary: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Compare modes over groups of settings.

    A difference is averaged over the settings of a group first and over replicates then, since
    settings share the draws of a replicate. The ratio of steps counts only settings in which
    all replicates reach the target in both modes; the usable range counts all.

    Args:
        summary: of :func:`summarize`.
        by: columns that make the groups, without the mode.

    Returns:
        One row for each group and mode: ``settings``, ``trained`` (in how many all replicates
        reach the target), ``compared``, ``steps_ratio``, ``octaves`` and
        ``octaves_difference``, with limits.
    """
    pairs: dict[tuple[object, ...], list[tuple[dict, dict]]] = {}
    for row, reference in _paired(summary):
        pairs.setdefault((*(row[name] for name in by), row["mode"]), []).append((row, reference))
    table = []
    for key, group in pairs.items():
        rows, references = zip(*group, strict=True)
        table.append(
            {
                **dict(zip([*by, "mode"], key, strict=True)),
                "settings": len(rows),
                "trained": sum(row["reached"] == 1 for row in rows),
                "octaves": float(np.mean([row["octaves"] for row in rows])),
                **_effects(rows, references),
            }
        )
    return pd.DataFrame(table)


def _paired(summary: pd.DataFrame) -> list[tuple[dict, dict]]:
    rows = summary.to_dict("records")
    reference = {tuple(r[name] for name in SETTING): r for r in rows if r["mode"] == REFERENCE}
    return [(row, reference[tuple(row[name] for name in SETTING)]) for row in rows]


def _effects(rows: Sequence[dict], references: Sequence[dict]) -> dict[str, float]:
    logs = np.array([r["log_steps"] for r in rows]) - [r["log_steps"] for r in references]
    logs = logs[np.isfinite(logs).all(axis=1)]
    octaves = np.array([r["octaves_each"] for r in rows], dtype=float)
    octaves -= [r["octaves_each"] for r in references]
    ratio = np.exp(_interval(logs.mean(axis=0))) if len(logs) else np.full(3, math.nan)
    difference = _interval(octaves.mean(axis=0))
    return {
        "compared": len(logs),
        "steps_ratio": ratio[0],
        "steps_ratio_lower": ratio[1],
        "steps_ratio_upper": ratio[2],
        "octaves_difference": difference[0],
        "octaves_difference_lower": difference[1],
        "octaves_difference_upper": difference[2],
    }


def _interval(values: np.ndarray) -> np.ndarray:
    """Mean and Student's interval; NaN limits for a single value."""
    mean = values.mean()
    if len(values) < 2:
        return np.array([mean, math.nan, math.nan])
    error = values.std(ddof=1) / math.sqrt(len(values))
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * error
    return np.array([mean, mean - half, mean + half])
