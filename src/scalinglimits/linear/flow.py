r"""Gradient flow: the limit of small steps, at any width.

The flow `U' = -b_0 xi^T`, `W_l' = -b_l (f_{l-1} xi)^T`, `V' = -f_n xi` is integrated by an explicit
Runge--Kutta pair of orders 5 and 4 (Dormand and Prince) whose step size keeps the error of each
step below a tolerance. Products with the random matrices are answered on demand at every stage;
since answers agree with all earlier ones, stages and rejected steps do not matter.

Reference: "Infinite-width limit of deep linear neural networks" (L), section 5.
"""

from __future__ import annotations

__all__ = ["gradient_flow"]

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._fields import Field, KernelField, WeightField
from ._recorder import Recorder
from ._runge_kutta import Stepper, StepTooSmall
from ._validate import check_array, check_count, check_real
from .losses import Loss, resolve_loss
from .measures import Measure
from .network import LinearNetwork
from .training import StopRule, check_features, check_network, checked_step_sizes, stop_rule
from .trajectory import Trajectory

_BASIS_SHARE = 0.1
"""Tolerance of the bases, as a share of that of the integrator."""
_SMALLEST_TOLERANCE = 1e-14


def gradient_flow(
    network: LinearNetwork,
    data: Measure,
    *,
    times: Sequence[float] | np.ndarray | None = None,
    t_end: float | None = None,
    seed: int | None = None,
    loss: str | Loss | Callable[[np.ndarray, np.ndarray], Any] = "square",
    layer_speeds: Sequence[float] | None = None,
    stop_at: StopRule = None,
    rtol: float = 1e-8,
    max_steps: int = 10_000,
) -> Trajectory:
    r"""Train a network by gradient flow.

    Time is the sum of the step sizes of `train`: descent with small steps `tau` is near the flow at
    time `k tau`.

    Args:
        network: the network.
        data: a measure.
        times: increasing times at which to record, from zero on; `None` records every accepted
            step until `t_end`.
        t_end: the last time; `math.inf` goes on until `stop_at`. Not needed with `times`.
        seed: see `train`.
        loss: see `train`.
        layer_speeds: factors of the speeds of `U, W_1, ..., W_n, V`; `None` is one each.
        stop_at: see `train`; it is asked after every accepted step.
        rtol: error of a step, relative to the norm of all weights. Near its end the predictor
            keeps an error of this order, so a loss below its square is not reached.
        max_steps: largest number of accepted steps.

    Returns:
        The record; `times` are the recorded times and `stop_step` is the number of accepted steps.
        Its `status` is `"step_limit"` if `max_steps` was too small.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range, shapes do not fit, or a seed is missing.

    Example:
        >>> from scalinglimits.linear import EmpiricalData, LinearNetwork
        >>> data = EmpiricalData([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
        >>> flow = gradient_flow(LinearNetwork(2), data, t_end=math.inf, stop_at=1e-12)
        >>> flow.status, flow.predictor[-1].round(5)
        ('stopped', array([ 1., -1.]))
    """
    check_network(network, seed)
    if not isinstance(data, Measure):
        raise TypeError(f"`data` must be a measure, the same at all times; got {data!r}")
    check_features(network, data)
    loss = resolve_loss(loss)
    speeds = [1.0] * (network.hidden + 2)
    if layer_speeds is not None:
        speeds = checked_step_sizes(network, None, layer_speeds)
    rtol = check_real("rtol", rtol, above=0.0)
    max_steps = check_count("max_steps", max_steps, 1)
    stop = stop_rule(stop_at, loss)
    stops, end = _checked_times(times, t_end, stop is not None)
    if network.is_kernel_limit and network.parametrization == "standard":
        raise ValueError(
            "`network` must have a flow: 'standard' at infinite width moves infinitely fast; "
            f"got {network}"
        )
    field: Field
    if network.is_kernel_limit:
        field = KernelField(network, data, loss, speeds, seed)
    else:
        tolerance = max(_SMALLEST_TOLERANCE, _BASIS_SHARE * rtol)
        field = WeightField(network, data, loss, speeds, seed, tolerance)
    with np.errstate(over="ignore", invalid="ignore"):
        return _integrate(network, field, stops, end, rtol, stop, max_steps)


def _integrate(
    network: LinearNetwork,
    field: Field,
    stops: np.ndarray | None,
    end: float,
    rtol: float,
    stop: Callable[[int, np.ndarray, float], bool] | None,
    max_steps: int,
) -> Trajectory:
    recorder = Recorder(network, 64 if stops is None else len(stops))
    stepper = Stepper(field, [array.copy() for array in field.initial], rtol)
    due = 0
    if stops is None or stops[0] == 0.0:
        field.record(recorder, 0.0, stepper.point)
        due = 1
    status, steps = "completed", 0
    if stop is not None and stop(0, stepper.point.predictor, stepper.point.loss):
        return recorder.finish("stopped", 0, field.snapshot(stepper.point), {}, 1)
    while stepper.time < end:
        if steps == max_steps:
            status = "step_limit"
            break
        before = stepper.point
        try:
            step = stepper.advance(end if stops is None else float(stops[due]))
        except StepTooSmall:
            status = "diverged"
            break
        steps += 1
        field.follow(before, step, stepper.error)
        point = stepper.point
        stopped = stop is not None and stop(steps, point.predictor, point.loss)
        if stops is None or stepper.time == stops[due] or stopped:
            field.record(recorder, stepper.time, point)
            due += 1
        if stopped:
            status = "stopped"
            break
    state = None if status == "diverged" else field.snapshot(stepper.point)
    return recorder.finish(status, steps, state, {}, stepper.evaluations)


def _checked_times(times: Any, t_end: Any, stops: bool) -> tuple[np.ndarray | None, float]:
    if (times is None) == (t_end is None):
        raise ValueError(f"`times` must be given, or `t_end` instead; got {times!r} and {t_end!r}")
    if times is None:
        if stops and t_end == math.inf:
            return None, math.inf
        return None, check_real("t_end", t_end, above=0.0)
    array = check_array("times", times, (1,))
    if len(array) == 0 or array[0] < 0.0 or np.any(np.diff(array) <= 0.0):
        raise ValueError(f"`times` must be increasing and non-negative; got {times!r}")
    return array, float(array[-1])
