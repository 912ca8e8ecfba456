r"""How fast networks approach their limit as they grow wide.

By the central limit theorem, `E |lambda^m(k) - lambda^inf(k)|^2` is of order `1/m`.

Reference: "Infinite-width limit of deep linear neural networks" (L), (2.16) and Figure 2.1 (B).
"""

from __future__ import annotations

__all__ = ["WidthConvergence", "width_convergence"]

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalinglimits.fits import GrowthExponent, fit_exponent

from ._streams import replicate_seed
from ._validate import check_count
from .batches import repeatable
from .losses import Loss
from .network import LinearNetwork
from .replicates import train_replicates
from .training import Data, check_network, train


@dataclass(frozen=True)
class WidthConvergence:
    """Distances from the limit at several widths; `M` widths, `T` recorded steps.

    Attributes:
        widths: shape `(M,)`.
        steps: shape `(T,)`.
        mean_square: means over the replicates of `|lambda^m - lambda^inf|^2`, shape `(M, T)`.
        standard_error: of these means, shape `(M, T)`.
        replicates: number of replicates.
        diverged: number of replicates that diverged and were left out, shape `(M,)`.
        exponents: fitted exponents of the width, one for each recorded step.
        predictor: predictors of all replicates, shape `(M, R, T, d)` or `(M, R, T, d, o)`.
        limit: predictors of the limit, shape `(T, d)` or `(T, d, o)`.
    """

    widths: np.ndarray
    steps: np.ndarray
    mean_square: np.ndarray
    standard_error: np.ndarray
    replicates: int
    diverged: np.ndarray
    exponents: tuple[GrowthExponent, ...]
    predictor: np.ndarray
    limit: np.ndarray


def width_convergence(
    network: LinearNetwork,
    data: Data,
    *,
    widths: Sequence[int],
    replicates: int,
    step_size: float | None = None,
    steps: int,
    seed: int,
    record: Sequence[int] | None = None,
    loss: str | Loss | Callable[[np.ndarray, np.ndarray], Any] = "square",
    momentum: float = 0.0,
    layer_step_sizes: Sequence[float] | None = None,
    confidence: float = 0.95,
    n_jobs: int = 1,
    tolerance: float = 1e-12,
) -> WidthConvergence:
    r"""Measure the distance between finite networks and the limit, and the exponent of the width.

    Args:
        network: the network; its own width does not matter.
        data: see `train`.
        widths: at least two widths, increasing.
        replicates: number of networks of each width, at least two.
        step_size: see `train`.
        steps: number of steps.
        seed: root seed.
        record: steps at which to compare; `None` is the start and the end.
        loss: see `train`.
        momentum: see `train`.
        layer_step_sizes: see `train`.
        confidence: level of the confidence intervals of the exponents.
        n_jobs: number of processes.
        tolerance: of the bases; it must be small against the distance at the largest width.

    Returns:
        The distances and exponents.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range or shapes do not fit, or if the limit diverges,
            or all replicates of a width do.

    Example:
        >>> from scalinglimits.linear import EmpiricalData, LinearNetwork
        >>> data = EmpiricalData([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
        >>> result = width_convergence(
        ...     LinearNetwork(2), data, widths=[10**3, 10**6, 10**9], replicates=100,
        ...     step_size=0.1, steps=20, seed=0,
        ... )
        >>> [-1 in exponent for exponent in result.exponents]
        [True, True]
    """
    check_network(network.with_width(math.inf), seed)
    chosen = [check_count("widths", m, 1) for m in widths]
    if len(chosen) < 2 or any(a >= b for a, b in itertools.pairwise(chosen)):
        raise ValueError(f"`widths` must be increasing and at least two; got {chosen}")
    replicates = check_count("replicates", replicates, 2)
    at = sorted({0, steps}) if record is None else list(record)
    data = repeatable(data, steps)
    settings: dict[str, Any] = {
        "step_size": step_size,
        "steps": steps,
        "loss": loss,
        "momentum": momentum,
        "layer_step_sizes": layer_step_sizes,
        "tolerance": tolerance,
    }
    infinite = network.with_width(math.inf)
    if infinite.is_kernel_limit:
        raise ValueError(
            "`network` must have a limit that is not random; got the parametrisation "
            f"{network.parametrization!r}"
        )
    limit = train(infinite, data, seed=None, **settings)
    if limit.diverged:
        raise ValueError(
            f"`step_size` must let the limit converge; got {step_size}, with which it diverged at "
            f"step {limit.stop_step}"
        )
    means, errors, diverged, predictors = [], [], [], []
    for i, width in enumerate(chosen):
        runs = train_replicates(
            network.with_width(width),
            data,
            replicates=replicates,
            seed=replicate_seed(seed, i) >> 1,
            record=at,
            n_jobs=n_jobs,
            **settings,
        )
        kept = runs.predictor[~runs.diverged]
        if len(kept) < 2:
            raise ValueError(
                f"`step_size` must let networks of width {width} converge; got {step_size}, with "
                f"which {runs.diverged.sum()} of {replicates} diverged"
            )
        distance = kept - limit.predictor[runs.steps]
        squares = np.sum(distance.reshape(*distance.shape[:2], -1) ** 2, axis=2)
        means.append(squares.mean(axis=0))
        errors.append(squares.std(axis=0, ddof=1) / math.sqrt(len(kept)))
        diverged.append(int(runs.diverged.sum()))
        predictors.append(runs.predictor)
    mean_square, standard_error = np.array(means), np.array(errors)
    exponents = tuple(
        fit_exponent(chosen, mean_square[:, t], standard_error[:, t], confidence)
        for t in range(mean_square.shape[1])
    )
    return WidthConvergence(
        np.array(chosen),
        runs.steps,
        mean_square,
        standard_error,
        replicates,
        np.array(diverged),
        exponents,
        np.array(predictors),
        limit.predictor[runs.steps],
    )
