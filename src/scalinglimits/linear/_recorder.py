"""Filling in a trajectory, one point at a time."""

from __future__ import annotations

__all__ = ["ErrorEstimate", "Recorder"]

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._dynamics import Dynamics, Passes
from .network import LinearNetwork
from .state import NetworkState
from .trained import TrainedMatrix
from .trajectory import Trajectory

_LARGEST_EXPONENT = 100.0
_ROUNDING = 1e-11
_SMALLEST_FACTOR = 0.1
_ARRAYS = (
    "predictor",
    "loss",
    "u_square",
    "v_square",
    "w_square",
    "alignment",
    "dimensions",
    "error",
    "times",
)


class Recorder:
    """Arrays for at most `capacity` points.

    Args:
        network: the network.
        capacity: number of points.
    """

    def __init__(self, network: LinearNetwork, capacity: int) -> None:
        d, o, n = network.in_features, network.out_features, network.hidden
        self.network = network
        self.count = 0
        self.predictor = np.empty((capacity, d) if o == 1 else (capacity, d, o))
        self.loss = np.empty(capacity)
        self.u_square, self.v_square = np.empty(capacity), np.empty(capacity)
        self.w_square = np.empty((capacity, n))
        self.alignment = np.empty((capacity, n + 1))
        self.dimensions = np.zeros((capacity, n + 1), dtype=np.int64)
        self.error = np.empty(capacity)
        self.times = np.empty(capacity)

    def add(
        self,
        time: float,
        predictor: np.ndarray,
        loss: float,
        arrays: Sequence[Any],
        passes: Passes,
        dynamics: Dynamics,
        error: float,
    ) -> None:
        """Record one point."""
        i = self._next()
        self.predictor[i] = predictor
        self.loss[i] = loss
        self.u_square[i] = _square(arrays[0])
        for layer in range(1, len(arrays) - 1):
            trained = arrays[layer]
            square = trained.square if isinstance(trained, TrainedMatrix) else _square(trained)
            self.w_square[i, layer - 1] = square
        self.v_square[i] = _square(arrays[-1])
        for layer, (b, f) in enumerate(zip(passes.b, passes.f, strict=True)):
            lengths = passes.b_norm[layer] * passes.f_norm[layer]
            k = min(b.shape[0], f.shape[0])
            product = float(b[:k].ravel() @ f[:k].ravel())
            self.alignment[i, layer] = product / lengths if lengths > 0.0 else 0.0
        self.dimensions[i] = dynamics.dimensions
        self.error[i] = error
        self.times[i] = time

    def add_kernel(
        self,
        time: float,
        predictor: np.ndarray,
        loss: float,
    ) -> None:
        """Record one point of a limit in which the weights do not move."""
        i = self._next()
        self.predictor[i] = predictor
        self.loss[i] = loss
        self.u_square[i] = self.network.in_features
        self.v_square[i] = self.network.out_features
        self.w_square[i] = self.alignment[i] = self.error[i] = 0.0
        self.times[i] = time

    def _next(self) -> int:
        """Index of a new point; all arrays double when they are full."""
        i = self.count
        self.count += 1
        if i == len(self.times):
            for name in _ARRAYS:
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.empty_like(array)]))
        return i

    def finish(
        self,
        status: str,
        stop_step: int,
        state: NetworkState | None,
        states: Mapping[int, NetworkState],
        evaluations: int,
    ) -> Trajectory:
        """The record, without what was not reached."""
        k = self.count
        return Trajectory(
            self.network,
            self.predictor[:k],
            self.loss[:k],
            self.u_square[:k],
            self.w_square[:k],
            self.v_square[:k],
            self.alignment[:k],
            self.dimensions[:k],
            self.error[:k],
            self.times[:k],
            status,
            stop_step,
            state,
            states,
            evaluations,
        )


class ErrorEstimate:
    """What the tolerance of the bases does to the predictor, to first order.

    With `D_i` the derivative of the predictor with respect to the weights of layer `i`, measured
    along the current passes, an error `E` of the weights changes the predictor by `|D| E`. A step
    of descent adds what its products dropped, and lets earlier errors grow through the second
    derivatives of the predictor, `|D|^2 / P` with `P` the product of the layers' gains, times the
    step `tau xi`. Steps back and forth undo each other's growth, so that what counts is how far the
    sum of `tau xi` has gone from zero. The Gauss-Newton part of the Hessian contracts errors,
    unless steps overshoot. Along the last step, with the curvature `c` that the last two gradients
    show, it multiplies them by `|1 - tau |D|^2 c|`; times of contraction undo those of growth.

    Args:
        momentum: of heavy-ball momentum, with which the steps that count are longer.
        smooth: whether all gradients are of one mean loss, so that they show its curvature.
    """

    def __init__(self, momentum: float, smooth: bool) -> None:
        self._reach = 1.0 / (1.0 - momentum)
        self._damping = (1.0 - momentum) / (1.0 + momentum)
        self._smooth = smooth
        self._error = 0.0
        self._sum: np.ndarray | float = 0.0
        self._peak = 0.0
        self._overshoot = 0.0
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def update(
        self,
        dynamics: Dynamics,
        passes: Passes,
        predictor: np.ndarray,
        xi: np.ndarray,
        factors: list[float],
    ) -> float:
        """Error of the predictor before a step; the step is then accounted for.

        Args:
            dynamics: the network.
            passes: of this step.
            predictor: the predictor.
            xi: the gradient with respect to the predictor.
            factors: of the gradients of all arrays, step size included.

        Returns:
            The estimate.
        """
        n = len(passes.b) - 1
        b, f, b_drop, f_drop = passes.b_norm, passes.f_norm, passes.b_drop, passes.f_drop
        steps = [self._reach * t for t in factors]
        slope = _length(xi)
        derivatives = _derivatives(dynamics, passes, slope)
        speed = abs(steps[0]) * derivatives[0] ** 2 + abs(steps[-1]) * derivatives[-1] ** 2
        added = (steps[0] * b_drop[0] * slope) ** 2 + (steps[-1] * f_drop[n]) ** 2
        alpha = 1.0 if dynamics.alpha is None else abs(dynamics.alpha)
        for i in range(1, n + 1):
            if alpha > 0.0:
                speed += abs(steps[i]) * derivatives[i] ** 2 / alpha
            added += (steps[i] * (b_drop[i] * f[i - 1] + b[i] * f_drop[i - 1])) ** 2
        self._follow(predictor, xi, self._damping * dynamics.output * speed)
        shown = self.shown(dynamics, passes, xi)
        gain = b[n] * f[n] / slope if slope > 0.0 else 0.0
        squares = sum(d * d for d in derivatives) - min(derivatives) ** 2
        second = squares / gain if gain > 0.0 else 0.0
        self._sum = self._sum + max(map(abs, steps)) * xi
        reached = _length(self._sum)
        if reached > self._peak:
            self._error *= math.exp(min(second * (reached - self._peak), _LARGEST_EXPONENT))
            self._peak = reached
        self._error += math.sqrt(added)
        return shown

    def shown(self, dynamics: Dynamics, passes: Passes, xi: np.ndarray) -> float:
        """How the errors up to now show in the predictor."""
        slope = _length(xi)
        squares = sum(d * d for d in _derivatives(dynamics, passes, slope))
        error = math.sqrt(squares) * self._error * math.exp(self._overshoot)
        first = passes.f_norm[0] / slope if slope > 0.0 else 0.0
        return dynamics.output * (error + first * passes.b_drop[0])

    def add(self, error: float) -> None:
        """Add an error of the weights from another source."""
        self._error += error

    def _follow(self, predictor: np.ndarray, xi: np.ndarray, speed: float) -> None:
        """Growth of errors by steps that overshoot, from the last two gradients."""
        if not self._smooth:
            return
        if self._last is not None:
            change = (xi - self._last[1]).ravel()
            step = (predictor - self._last[0]).ravel()
            along = float(change @ step)
            # After convergence both differences are rounding, and show no curvature.
            moves = _length(step) > _ROUNDING * _length(predictor)
            if along > 0.0 and moves:
                # Exact when the step is along an eigenvector of the predictor's linear recursion.
                factor = abs(1.0 - speed * float(change @ change) / along)
                self._overshoot += math.log(max(factor, _SMALLEST_FACTOR))
                self._overshoot = min(max(self._overshoot, 0.0), _LARGEST_EXPONENT)
        self._last = predictor, xi


def _derivatives(dynamics: Dynamics, passes: Passes, slope: float) -> list[float]:
    """Norms of the derivatives of the predictor along `xi`, for U, W_1, ..., W_n, V."""
    b, f = passes.b_norm, passes.f_norm
    scale = 1.0 / slope if slope > 0.0 else 0.0
    alpha = scale if dynamics.alpha is None else scale * abs(dynamics.alpha)
    inner = [alpha * b[i] * f[i - 1] for i in range(1, len(b))]
    return [b[0], *inner, f[-1] * scale]


def _length(array: np.ndarray) -> float:
    flat = array.ravel()
    return math.sqrt(flat @ flat)


def _square(array: np.ndarray) -> float:
    flat = array.ravel()
    return float(flat @ flat)
