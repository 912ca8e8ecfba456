r"""The best learning rate on a grid, from losses of several seeds.

For each seed it is the lowest point of a parabola in $\log_2$ of the rate through the grid's
minimum and its neighbours; the seeds give its interval.
"""

from __future__ import annotations

__all__ = ["optimum"]

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


def optimum(
    log2_lr: Sequence[float] | np.ndarray, losses: np.ndarray, confidence: float = 0.95
) -> tuple[float, float, float, bool]:
    """Return the best learning rate, its interval and whether it lies at an edge of the grid.

    Args:
        log2_lr: the grid, shape (n,), increasing.
        losses: shape (seeds, n).
        confidence: level of Student's interval over the seeds.

    Returns:
        Logarithm of the optimum to base 2, lower and upper end, edge.

    Example:
        >>> grid = np.arange(-10.0, -4)
        >>> centre, *_ = optimum(grid, np.stack([(grid + 7.2) ** 2, (grid + 7.0) ** 2]))
        >>> round(centre, 2)
        -7.1
    """
    grid = np.asarray(log2_lr, float)
    losses = np.atleast_2d(losses)
    found = np.array([_vertex(grid, row) for row in losses])
    lowest = int(np.argmin(losses.mean(axis=0)))
    centre = float(np.mean(found))
    if len(found) < 2:
        return centre, -math.inf, math.inf, lowest in (0, len(grid) - 1)
    spread = float(np.std(found, ddof=1)) / len(found) ** 0.5
    half = float(stats.t.ppf((1 + confidence) / 2, len(found) - 1)) * spread
    # A parabola through three points of a grid knows no more than a quarter of their distance.
    half = max(half, 0.25 * float(np.min(np.diff(grid))))
    return centre, centre - half, centre + half, lowest in (0, len(grid) - 1)


def _vertex(grid: np.ndarray, losses: np.ndarray) -> float:
    """Lowest point of the parabola through the grid's minimum and its neighbours."""
    k = int(np.argmin(losses))
    if k in (0, len(grid) - 1):
        return float(grid[k])
    near = slice(k - 1, k + 2)
    a, b, _ = np.polyfit(grid[near] - grid[k], losses[near], 2)
    shift = -b / (2 * a) if a > 0 else 0.0
    return float(np.clip(grid[k] + shift, grid[k - 1], grid[k + 1]))
