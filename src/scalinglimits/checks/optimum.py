r"""The best learning rate on a grid, from losses of several seeds.

Let $L(x)$ be the mean loss of the seeds at $x = \log_2 \mathrm{lr}$. The optimum $x_*$ is where a
local parabola is lowest in the middle of its own window:

$$(a, b, c) = \arg\min \sum_i k(x_i - x_*)\,[L(x_i) - a - b(x_i - x_*) - c(x_i - x_*)^2]^2,
\qquad b = 0,$$

with a tricube kernel $k$ that reaches 3½ points of the grid to either side; rates whose loss is in
the upper half of the grid's, as where training diverges, do not count. With the same kernel each
seed has its own parabola, and these give the interval. Where an optimum is flat, the lowest of
three noisy losses would say little.

Reference: W. S. Cleveland, "Robust locally weighted regression and smoothing scatterplots" (1979),
for the kernel.
"""

from __future__ import annotations

__all__ = ["optima_of_seeds", "optimum"]

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

_REACH = 3.5
_ITERATIONS = 100


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
    x, losses = np.asarray(log2_lr, float), np.atleast_2d(losses)
    mean = losses.mean(axis=0)
    lowest = int(np.argmin(mean))
    if lowest in (0, len(x) - 1):
        return np.full(len(losses), x[lowest]), True
    low = mean <= np.median(mean)
    low[lowest - 1 : lowest + 2] = True
    centre, step = x[lowest], float(np.median(np.diff(x)))
    # On an uneven grid, too, both neighbours are in the window wherever its middle comes to lie.
    step = max(step, float(x[lowest + 1] - x[lowest - 1]) / (_REACH - 1))
    for _ in range(_ITERATIONS):
        vertex = _vertex(x, mean, low * _tricube((x - centre) / step))
        # Never further than the neighbours, so that the window stays where the loss is lowest.
        moved = float(np.clip(vertex, x[lowest - 1], x[lowest + 1])) - centre
        centre += moved
        if abs(moved) < 1e-9 * step:
            break
    weights = low * _tricube((x - centre) / step)
    return np.array([_vertex(x, y, weights) for y in losses]), False


def _tricube(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(distance / _REACH) ** 3, 0, None) ** 3


def _vertex(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    """Lowest point of a weighted parabola within its points; their lowest if it has none."""
    x, y, weights = (values[weights > 0] for values in (x, y, weights))
    centre = x[int(np.argmin(y))]
    a, b, _ = np.polyfit(x - centre, y, 2, w=weights**0.5)
    return float(np.clip(centre - b / (2 * a), x[0], x[-1])) if a > 0 else float(centre)
