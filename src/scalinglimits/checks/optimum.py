r"""The best learning rate on a grid, from losses of several seeds.

The lowest point of the seeds' mean loss and up to two neighbours to either side, as far as their
losses lie in the lower half of the grid's, make a window. For each seed the optimum is the lowest
point of the parabola in $\log_2$ of the rate that fits its losses there best: where an optimum is
flat, the lowest of three noisy losses would say little. The seeds give its interval.
"""

from __future__ import annotations

__all__ = ["optima_of_seeds", "optimum"]

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

_REACH = 2


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
    found, edge = optima_of_seeds(grid, losses)
    centre = float(np.mean(found))
    if len(found) < 2:
        return centre, -math.inf, math.inf, edge
    spread = float(np.std(found, ddof=1)) / len(found) ** 0.5
    half = float(stats.t.ppf((1 + confidence) / 2, len(found) - 1)) * spread
    # A parabola through points of a grid knows no more than a quarter of their distance.
    half = max(half, 0.25 * float(np.min(np.diff(grid))))
    return centre, centre - half, centre + half, edge


def optima_of_seeds(
    log2_lr: Sequence[float] | np.ndarray, losses: np.ndarray
) -> tuple[np.ndarray, bool]:
    """Return each seed's best learning rate, and whether the best is at an edge of the grid.

    Args:
        log2_lr: the grid, shape (n,), increasing.
        losses: shape (seeds, n).

    Returns:
        Logarithms to base 2, shape (seeds,); at an edge of the grid they are only known to lie
        there or beyond. Edge.

    Example:
        >>> grid = np.arange(-10.0, -4)
        >>> found, edge = optima_of_seeds(grid, np.stack([(grid + 7.2) ** 2, (grid + 7.0) ** 2]))
        >>> [round(float(x), 1) for x in found], edge
        ([-7.2, -7.0], False)
    """
    grid, losses = np.asarray(log2_lr, float), np.atleast_2d(losses)
    window = _window(losses.mean(axis=0))
    if window is None:
        lowest = int(np.argmin(losses.mean(axis=0)))
        return np.full(len(losses), grid[lowest]), True
    x, centre = grid[window], grid[window].mean()
    found = []
    for y in losses[:, window]:
        a, b, _ = np.polyfit(x - centre, y, 2)
        vertex = centre - b / (2 * a) if a > 0 else x[int(np.argmin(y))]
        found.append(float(np.clip(vertex, x[0], x[-1])))
    return np.array(found), False


def _window(mean: np.ndarray) -> slice | None:
    """The points that a parabola is fitted to; None if the lowest is at an edge."""
    lowest, low = int(np.argmin(mean)), float(np.median(mean))
    if lowest in (0, len(mean) - 1):
        return None
    first, last = lowest - 1, lowest + 1
    for _ in range(_REACH - 1):
        first -= first > 0 and mean[first - 1] <= low
        last += last < len(mean) - 1 and mean[last + 1] <= low
    return slice(int(first), int(last) + 1)
