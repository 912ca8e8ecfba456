r"""Adaptive Runge--Kutta integration of arrays that may grow.

The pair of orders 5 and 4 of Dormand and Prince. A vector field may return arrays larger than those
it was asked at: then all are padded with zeros. Fields that are sampled on demand are fine, too, as
long as their answers agree with earlier ones.

Reference: E. Hairer, S. P. Norsett and G. Wanner, *Solving ordinary differential equations I*
(1993), II.4 and II.5.
"""

from __future__ import annotations

__all__ = ["Slopes", "StepTooSmall", "Stepper"]

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from scipy.integrate import RK45

from ._dynamics import Diverged
from .trained import padded

_STAGES, _WEIGHTS, _ERROR = np.asarray(RK45.A), np.asarray(RK45.B), np.asarray(RK45.E)
_SAFETY, _SLOWEST, _FASTEST = 0.9, 0.2, 5.0
_SMALLEST_STEP = 1e-14


class Slopes(Protocol):
    """A vector field at some point."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """The point."""
        ...

    @property
    def slopes(self) -> list[np.ndarray]:
        """The field there, an array for each array of the point."""
        ...


S = TypeVar("S", bound=Slopes)


class StepTooSmall(Exception):
    """No step is small enough: the solution ends here."""


class Stepper(Generic[S]):
    """Integrates `y' = field(y)` step by step.

    Args:
        field: gives the slopes at arrays, or raises `Diverged`.
        arrays: where to start, at time zero.
        rtol: error of a step, relative to the norm of all arrays.

    Attributes:
        point: the field at the current arrays.
        time: the current time.
        error: norm of the error of the last step.
        evaluations: number of times that the field was evaluated.
    """

    def __init__(
        self, field: Callable[[list[np.ndarray]], S], arrays: list[np.ndarray], rtol: float
    ) -> None:
        self._field = field
        self._rtol = rtol
        self.point = field(arrays)
        self.time = 0.0
        self.error = 0.0
        self.evaluations = 1
        speed = _norm(self.point.slopes)
        self._step = 0.01 * _norm(arrays) / speed if speed > 0.0 else 1.0

    def advance(self, until: float) -> float:
        """Take one accepted step, at most to a time.

        Returns:
            The length of the step.

        Raises:
            StepTooSmall: if none is accepted.
        """
        while True:
            remaining = until - self.time
            step = min(self._step, remaining)
            if step <= _SMALLEST_STEP * max(1.0, self.time):
                raise StepTooSmall
            try:
                new, error = self._try(step)
            except Diverged:
                self._step = step * _SLOWEST
                continue
            scale = self._rtol * max(_norm(self.point.arrays), _norm(new.arrays))
            ratio = error / scale if scale > 0.0 else 0.0
            factor = _FASTEST if ratio == 0.0 else _SAFETY * ratio**-0.2
            factor = min(_FASTEST, max(_SLOWEST, factor))
            if ratio > 1.0:
                self._step = step * factor
                continue
            # A step cut short by `until` says little about the next one.
            self._step = max(self._step, step * factor) if step < self._step else step * factor
            self.point, self.error = new, error
            self.time = until if step == remaining else self.time + step
            return step

    def _try(self, step: float) -> tuple[S, float]:
        slopes = [self.point.slopes]
        for weights in _STAGES[1:]:
            stage = _combined(self.point.arrays, slopes, step * weights)
            slopes.append(self._evaluate(stage).slopes)
        new = self._evaluate(_combined(self.point.arrays, slopes, step * _WEIGHTS))
        slopes.append(new.slopes)
        zeros = [np.zeros(array.shape) for array in new.slopes]
        return new, _norm(_combined(zeros, slopes, step * _ERROR))

    def _evaluate(self, arrays: list[np.ndarray]) -> S:
        self.evaluations += 1
        return self._field(arrays)


def _combined(
    base: list[np.ndarray], slopes: Sequence[list[np.ndarray]], weights: np.ndarray
) -> list[np.ndarray]:
    """`base + sum_i weights_i slopes_i`, padded as needed."""
    out = []
    for i, array in enumerate(base):
        shapes = [array.shape, *(slope[i].shape for slope in slopes)]
        largest = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
        total = padded(array, largest)
        for weight, slope in zip(weights, slopes, strict=False):
            if weight != 0.0:
                part = tuple(slice(k) for k in slope[i].shape)
                total[part] += weight * slope[i]
        out.append(total)
    return out


def _norm(arrays: list[np.ndarray]) -> float:
    return math.sqrt(sum(float(a.ravel() @ a.ravel()) for a in arrays))
