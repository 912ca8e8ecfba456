"""The vector fields of gradient flow: of all weights, and of the predictor in a kernel limit."""

from __future__ import annotations

__all__ = ["Field", "KernelField", "Point", "WeightField"]

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ._dynamics import LARGEST_NORM, Diverged, Dynamics, Passes
from ._kernel import kernel_rates, start
from ._recorder import ErrorEstimate, Recorder
from .losses import Loss
from .measures import Measure
from .network import LinearNetwork
from .state import NetworkState
from .trained import outer


@dataclass(frozen=True)
class Point:
    """A vector field at some weights, and what else is known there."""

    arrays: list[np.ndarray]
    slopes: list[np.ndarray]
    predictor: np.ndarray
    loss: float
    xi: np.ndarray
    passes: Passes | None = None


class Field(ABC):
    """A vector field on lists of arrays, with initial ones."""

    initial: list[np.ndarray]

    @abstractmethod
    def __call__(self, arrays: list[np.ndarray]) -> Point:
        """Evaluate the field.

        Args:
            arrays: the weights.

        Returns:
            The field there.

        Raises:
            Diverged: if the weights are too large.
        """

    @abstractmethod
    def record(self, recorder: Recorder, time: float, point: Point) -> None:
        """Record a point."""

    @abstractmethod
    def follow(self, point: Point, step: float, error: float) -> None:
        """Take note of a step from a point, with the error that the integrator sees in it."""

    def snapshot(self, point: Point) -> NetworkState | None:
        """The weights of a point, if there are any."""
        return None


class WeightField(Field):
    """The gradient of the loss with respect to all weights.

    Args:
        network: the network.
        data: the data.
        loss: the loss.
        speeds: factors of the layers.
        seed: of the network.
        tolerance: of the bases.
    """

    def __init__(
        self,
        network: LinearNetwork,
        data: Measure,
        loss: Loss,
        speeds: list[float],
        seed: int | None,
        tolerance: float,
    ) -> None:
        self._dynamics = Dynamics(network, seed, tolerance)
        self._data = data
        self._loss = loss
        self._factors = [s * c for s, c in zip(speeds, self._dynamics.factors(), strict=True)]
        self._errors = ErrorEstimate(momentum=0.0, smooth=False)
        U, V = self._dynamics.initial
        self.initial = [U, *(np.zeros((0, 0)) for _ in self._dynamics.matrices), V]

    def __call__(self, arrays: list[np.ndarray]) -> Point:
        """Evaluate the field; see `Field.__call__`."""
        predictor, passes = self._dynamics.backward(arrays)
        value, xi = self._data.evaluate(predictor, self._loss)
        self._dynamics.forward(arrays, xi, passes)
        slopes = []
        for i, factor in enumerate(self._factors[:-1]):
            left, right = passes.b[i], xi if i == 0 else passes.f[i - 1]
            slopes.append(outer(left, right, -factor))
        slopes.append(-self._factors[-1] * passes.f[-1])
        return Point(arrays, slopes, predictor, value, xi, passes)

    def follow(self, point: Point, step: float, error: float) -> None:
        """Take note of a step; see `Field.follow`."""
        assert point.passes is not None
        factors = [step * c for c in self._factors]
        self._errors.update(self._dynamics, point.passes, point.predictor, point.xi, factors)
        self._errors.add(error)

    def record(self, recorder: Recorder, time: float, point: Point) -> None:
        """Record a point."""
        assert point.passes is not None
        shown = self._errors.shown(self._dynamics, point.passes, point.xi)
        recorder.add(
            time, point.predictor, point.loss, point.arrays, point.passes, self._dynamics, shown
        )

    def snapshot(self, point: Point) -> NetworkState:
        """The weights of a point."""
        return self._dynamics.snapshot(point.arrays)


class KernelField(Field):
    """The linear dynamics of the predictor in a kernel limit.

    Args:
        network: the network.
        data: the data.
        loss: the loss.
        speeds: factors of the layers.
        seed: of the random predictor at the start.
    """

    def __init__(
        self,
        network: LinearNetwork,
        data: Measure,
        loss: Loss,
        speeds: list[float],
        seed: int | None,
    ) -> None:
        self._data = data
        self._loss = loss
        self._rate = sum(s * r for s, r in zip(speeds, kernel_rates(network), strict=True))
        self.initial = [start(network, seed)]

    def __call__(self, arrays: list[np.ndarray]) -> Point:
        """Evaluate the field; see `Field.__call__`."""
        predictor = arrays[0]
        if not np.linalg.norm(predictor) < LARGEST_NORM:
            raise Diverged
        value, xi = self._data.evaluate(predictor, self._loss)
        return Point(arrays, [-self._rate * xi], predictor, value, xi)

    def follow(self, point: Point, step: float, error: float) -> None:
        """There is no estimate in a kernel limit."""

    def record(self, recorder: Recorder, time: float, point: Point) -> None:
        """Record a point."""
        recorder.add_kernel(time, point.predictor, point.loss)
