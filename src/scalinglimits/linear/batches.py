"""Data that change from step to step: mini-batches, and any sequence of measures.

Reference: "Infinite-width limit of deep linear neural networks" (L), the measures `rho_kappa` of
(2.5).
"""

from __future__ import annotations

__all__ = ["MiniBatches", "Schedule", "evaluate", "evaluate_many", "repeatable", "schedule"]

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ._validate import check_count
from .losses import Loss
from .measures import EmpiricalData, Measure


class MiniBatches:
    """Mini-batches of samples: at each step, the mean over some of them.

    Every epoch is a new random order of the samples, cut into batches; samples that do not fill a
    batch are left out of that epoch. Iterating starts from the first epoch, so that a run is
    repeated exactly.

    Args:
        X: inputs, shape `(n, d)`.
        y: targets, shape `(n,)` or `(n, o)`.
        batch_size: samples a batch, at most `n`.
        seed: seed of the orders.

    Raises:
        ValueError: see `EmpiricalData`; and if the batch size is out of range.
        TypeError: if an argument is of the wrong kind.

    Example:
        >>> batches = MiniBatches(np.eye(4), np.arange(4.0), batch_size=2, seed=0)
        >>> first, second, *_ = (batch.y.tolist() for batch, _ in zip(batches, range(2)))
        >>> sorted(first + second)
        [0.0, 1.0, 2.0, 3.0]
    """

    def __init__(self, X: Any, y: Any, batch_size: int, seed: int) -> None:
        self.full = EmpiricalData(X, y)
        self.batch_size = check_count("batch_size", batch_size, 1)
        self.seed = check_count("seed", seed)
        if self.batch_size > len(self.full):
            raise ValueError(
                f"`batch_size` must be at most the number of samples {len(self.full)}; "
                f"got {self.batch_size}"
            )
        self.in_features = self.full.in_features
        self.out_features = self.full.out_features

    def __iter__(self) -> Iterator[EmpiricalData]:
        generator = np.random.default_rng(self.seed)
        while True:
            order = generator.permutation(len(self.full))
            for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
                chosen = order[start : start + self.batch_size]
                yield EmpiricalData(self.full.X[chosen], self.full.y[chosen])


class Schedule:
    """The measure of every step, and the one on which the loss is recorded.

    Attributes:
        in_features: dimension of the inputs.
        out_features: number of targets.
        full: the measure of the recorded loss; `None` records each step's own.
    """

    def __init__(self, measures: Iterable[Measure], full: Measure | None) -> None:
        self._measures = iter(measures)
        self.full = full
        self._last = full if full is not None else self._draw(0)
        self._given = full is None
        self.in_features = self._last.in_features
        self.out_features = self._last.out_features

    def next(self, step: int) -> Measure:
        """The measure of a step; they must be asked for in order."""
        if self._given:
            self._given = False
            return self._last
        self._last = self._draw(step)
        if (self._last.in_features, self._last.out_features) != (
            self.in_features,
            self.out_features,
        ):
            raise ValueError(
                f"`data` must be measures with {self.in_features} inputs and {self.out_features} "
                f"targets; got {self._last} at step {step}"
            )
        return self._last

    def last(self) -> Measure:
        """The measure on which the end of training is evaluated."""
        return self._last if self.full is None else self.full

    def _draw(self, step: int) -> Measure:
        measure = next(self._measures, None)
        if not isinstance(measure, Measure):
            got = "no more" if measure is None else repr(measure)
            raise ValueError(f"`data` must give a measure for each step; got {got} at step {step}")
        return measure


def schedule(data: Measure | MiniBatches | Iterable[Measure]) -> Schedule | Measure:
    """Make a schedule of changing data; a measure stays itself.

    Args:
        data: a measure, mini-batches, or an iterable of measures, one a step.

    Returns:
        The measure, or a schedule.

    Raises:
        TypeError: if it is none of these.
        ValueError: if the iterable has no measure to give.
    """
    if isinstance(data, Measure):
        return data
    if isinstance(data, MiniBatches):
        return Schedule(data, data.full)
    if isinstance(data, Iterable):
        return Schedule(data, None)
    raise TypeError(
        "`data` must be a measure (EmpiricalData, GaussianData), MiniBatches or a sequence of "
        f"measures; got {data!r}"
    )


def repeatable(data: Any, steps: int) -> Any:
    """The same data, in a form that can be gone through several times."""
    if isinstance(data, Measure | MiniBatches) or not isinstance(data, Iterable):
        return data
    return list(itertools.islice(data, steps + 1))


def evaluate(
    source: Measure | Schedule, step: int, last: bool, predictor: np.ndarray, loss: Loss
) -> tuple[float, np.ndarray]:
    """The recorded loss and the gradient of a step."""
    if isinstance(source, Measure):
        return source.evaluate(predictor, loss)
    if last:
        return source.last().evaluate(predictor, loss)
    value, xi = source.next(step).evaluate(predictor, loss)
    if source.full is not None:
        value, _ = source.full.evaluate(predictor, loss)
    return value, xi


def evaluate_many(
    source: Measure | Schedule, step: int, last: bool, predictors: np.ndarray, loss: Loss
) -> tuple[np.ndarray, np.ndarray]:
    """The same for many predictors, each treated by itself."""
    if isinstance(source, Measure):
        return source.evaluate_many(predictors, loss)
    if last:
        return source.last().evaluate_many(predictors, loss)
    values, xi = source.next(step).evaluate_many(predictors, loss)
    if source.full is not None:
        values, _ = source.full.evaluate_many(predictors, loss)
    return values, xi
