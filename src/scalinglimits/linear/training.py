r"""Gradient descent on deep linear networks of any width, infinite included.

The same recursion (L, 2.5 and 2.10) runs at every width, in coordinates that grow by about one a
product (see `scalinglimits.matrices`): exact in law at finite width, deterministic at infinite
width, and at a cost that does not depend on the width.

Reference: "Infinite-width limit of deep linear neural networks" (L), (2.5), (2.10), section 6.
"""

from __future__ import annotations

__all__ = ["train"]

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ._dynamics import Diverged, Dynamics
from ._kernel import train_kernel
from ._recorder import ErrorEstimate, Recorder
from ._validate import check_count, check_real, check_sequence
from .batches import MiniBatches, Schedule, evaluate, schedule
from .losses import Loss, resolve_loss
from .measures import Measure
from .network import LinearNetwork
from .state import NetworkState
from .trained import TrainedMatrix, add_outer, grown
from .trajectory import Trajectory

StopRule = float | Callable[[int, np.ndarray, float], bool] | None
Data = Measure | MiniBatches | Iterable[Measure]


def train(
    network: LinearNetwork,
    data: Data,
    *,
    step_size: float | None = None,
    steps: int,
    seed: int | None = None,
    loss: str | Loss | Callable[[np.ndarray, np.ndarray], Any] = "square",
    momentum: float = 0.0,
    layer_step_sizes: Sequence[float] | None = None,
    stop_at: StopRule = None,
    record_states: Sequence[int] = (),
    tolerance: float = 1e-11,
) -> Trajectory:
    r"""Train a network by gradient descent.

    Args:
        network: the network.
        data: a measure; or `MiniBatches`; or a sequence or generator with the measure of each step
            (the loss recorded at the end is that of the last one, if no further one is given).
        step_size: `tau`, in the scaled variables: every layer moves the predictor at a speed of
            order one, whatever the width.
        steps: number of steps.
        seed: root of all random draws. May be `None` at infinite width, where only the values of
            single weights are random (and the start of `"ntk"` and `"standard"`).
        loss: `"square"`, `"logistic"`, `"huber"`, a `Loss`, or a function `L'(prediction, y)`.
        momentum: factor of the velocity in heavy-ball momentum, in `[0, 1)`.
        layer_step_sizes: step sizes of `U, W_1, ..., W_n, V`, instead of `step_size`.
        stop_at: stop once the loss is at most this number; or a function of step, predictor and
            loss that says whether to stop.
        record_states: steps at which the weights are kept.
        tolerance: relative size below which a new direction is not added to a basis.

    Returns:
        The record of the run, with a point for the start and one after each step. If the predictor
        grows beyond all bounds, it ends there and says so in `status` and `stop_step`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range, shapes do not fit, or a seed is missing.

    Example:
        >>> from scalinglimits.linear import EmpiricalData, LinearNetwork
        >>> data = EmpiricalData([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
        >>> run = train(LinearNetwork(2), data, step_size=0.1, steps=300)
        >>> run.predictor[[0, -1]].round(6) + 0.0
        array([[ 0.,  0.],
               [ 1., -1.]])
        >>> wide = train(LinearNetwork(2, width=10**12), data, step_size=0.1, steps=300, seed=0)
        >>> bool(np.max(np.abs(wide.predictor - run.predictor)) < 1e-4)
        True
    """
    check_network(network, seed)
    source = schedule(data)
    check_features(network, source)
    loss = resolve_loss(loss)
    steps = check_count("steps", steps)
    sizes = checked_step_sizes(network, step_size, layer_step_sizes)
    momentum = check_real("momentum", momentum, minimum=0.0)
    if momentum >= 1.0:
        raise ValueError(f"`momentum` must be less than 1; got {momentum}")
    tolerance = check_real("tolerance", tolerance, minimum=0.0)
    if tolerance >= 1.0:
        raise ValueError(f"`tolerance` must be less than 1; got {tolerance}")
    stop = stop_rule(stop_at, loss)
    wanted = {check_count("record_states", k) for k in record_states}
    if wanted and max(wanted) > steps:
        raise ValueError(f"`record_states` must be at most `steps`, {steps}; got {max(wanted)}")
    if network.is_kernel_limit:
        return train_kernel(network, source, loss, sizes, steps, seed, momentum, stop)
    dynamics = Dynamics(network, seed, tolerance)
    with np.errstate(over="ignore", invalid="ignore"):
        return _descend(dynamics, source, loss, sizes, steps, momentum, stop, wanted)


def _descend(
    dynamics: Dynamics,
    source: Measure | Schedule,
    loss: Loss,
    sizes: list[float],
    steps: int,
    momentum: float,
    stop: Callable[[int, np.ndarray, float], bool] | None,
    wanted: set[int],
) -> Trajectory:
    recorder = Recorder(dynamics.network, steps + 1)
    U, V = (array.copy() for array in dynamics.initial)
    hidden = [TrainedMatrix(momentum) for _ in dynamics.matrices]
    factors = [t * c for t, c in zip(sizes, dynamics.factors(), strict=True)]
    ends = [np.zeros_like(U), np.zeros_like(V)]
    errors = ErrorEstimate(momentum, isinstance(source, Measure))
    states: dict[int, NetworkState] = {}
    status, step = "completed", 0
    for step in range(steps + 1):
        last = step == steps
        arrays = (U, *hidden, V)
        try:
            predictor, passes = dynamics.backward(arrays)
            value, xi = evaluate(source, step, last, predictor, loss)
            dynamics.forward(arrays, xi, passes)
        except Diverged:
            status = "diverged"
            break
        error = errors.update(dynamics, passes, predictor, xi, factors)
        recorder.add(step, predictor, value, arrays, passes, dynamics, error)
        if step in wanted:
            states[step] = dynamics.snapshot(arrays)
        if stop is not None and stop(step, predictor, value):
            status = "stopped"
            break
        if last:
            break
        for layer, matrix in enumerate(hidden, 1):
            matrix.move(passes.b[layer], passes.f[layer - 1], -factors[layer])
        if momentum == 0.0:
            U = add_outer(U, passes.b[0], xi, -factors[0])
            V = _sum(V, -factors[-1] * passes.f[-1])
        else:
            ends = [momentum * velocity for velocity in ends]
            ends[0] = add_outer(ends[0], passes.b[0], xi, -factors[0])
            ends[1] = _sum(ends[1], -factors[-1] * passes.f[-1])
            U, V = _sum(U, ends[0]), _sum(V, ends[1])
    final = None if status == "diverged" else dynamics.snapshot((U, *hidden, V))
    return recorder.finish(status, step, final, states, recorder.count)


def check_network(network: Any, seed: Any) -> None:
    """Check a network, and that a seed is there if it is needed.

    Raises:
        TypeError: if it is no network, or the seed is no integer.
        ValueError: if a seed is missing or negative.
    """
    if not isinstance(network, LinearNetwork):
        raise TypeError(f"`network` must be a LinearNetwork; got {network!r}")
    if seed is not None:
        check_count("seed", seed)
    elif network.is_finite:
        raise ValueError("`seed` must be given at finite width; got None")
    elif network.is_kernel_limit:
        raise ValueError(
            f"`seed` must be given for {network.parametrization!r}, which starts from a random "
            "predictor; got None"
        )


def check_features(network: LinearNetwork, source: Measure | Schedule) -> None:
    """Check that data fit a network.

    Raises:
        ValueError: if they do not.
    """
    for name in ("in_features", "out_features"):
        if getattr(network, name) != getattr(source, name):
            raise ValueError(
                f"`data` must have {name} {getattr(network, name)}, as the network; "
                f"got {getattr(source, name)}"
            )


def checked_step_sizes(
    network: LinearNetwork, step_size: Any, layer_step_sizes: Any
) -> list[float]:
    """The step sizes of all layers.

    Raises:
        ValueError: if not exactly one of both is given, or a number is negative.
    """
    if (step_size is None) == (layer_step_sizes is None):
        raise ValueError(
            "`step_size` must be given, or `layer_step_sizes` instead; "
            f"got {step_size!r} and {layer_step_sizes!r}"
        )
    count = network.hidden + 2
    if layer_step_sizes is None:
        return [check_real("step_size", step_size, above=0.0)] * count
    sizes = check_sequence("layer_step_sizes", layer_step_sizes, count)
    return [check_real("layer_step_sizes", t, minimum=0.0) for t in sizes]


def stop_rule(stop_at: StopRule, loss: Loss) -> Callable[[int, np.ndarray, float], bool] | None:
    """A function that says whether to stop.

    Raises:
        TypeError: if the rule is neither a number nor a function.
        ValueError: if it is a number and the loss has no value.
    """
    if stop_at is None:
        return None
    if callable(stop_at):
        return stop_at
    threshold = check_real("stop_at", stop_at)
    if loss.value is None:
        raise ValueError(
            "`stop_at` must be a function when the loss has no value; give a Loss with a value, or "
            f"a function of step, predictor and loss; got {stop_at!r}"
        )
    return lambda step, predictor, value: value <= threshold


def _sum(array: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum in place, growing the array if it is shorter."""
    array = grown(array, other.shape)
    array[: len(other)] += other
    return array
