r"""Many independent networks of one kind.

Every replicate has a seed of its own, derived from the root seed and its index. Its numbers depend
on nothing else: not on the other replicates, nor on the number of processes.

Networks with one Gaussian hidden matrix run in lock step in their explicit forms (see
`scalinglimits.linear.banded`), others one by one by `train`.
"""

from __future__ import annotations

__all__ = ["Replicates", "train_replicates"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from threadpoolctl import threadpool_limits

from ._lockstep import Batch, descend
from ._streams import replicate_seed
from ._validate import check_count, check_real
from .banded import band_limit
from .batches import repeatable, schedule
from .losses import Loss, resolve_loss
from .network import LinearNetwork
from .training import Data, check_features, check_network, checked_step_sizes, train

_CHUNK = 32
_CHUNK_SLOW = 8
_PILOT = 2**63
_FIRST_SIZE = 32
_MARGIN = 8


@dataclass(frozen=True)
class Replicates:
    """Training runs of independent networks; `R` replicates, `T` recorded steps.

    After a divergence, the recorded values are NaN.

    Attributes:
        network: the network.
        steps: the recorded steps, shape `(T,)`.
        indices: indices of the replicates, shape `(R,)`.
        predictor: shape `(R, T, d)`, or `(R, T, d, o)` with several outputs.
        loss: the mean loss, shape `(R, T)`.
        u_square: `|U|^2 / m`, shape `(R, T)`.
        v_square: `|V|^2 / m`, shape `(R, T)`.
        diverged: shape `(R,)`.
        stop_step: the last step, or the one at which it diverged, shape `(R,)`.
        error_estimate: estimate of the largest error of the predictor that is due to the tolerance,
            shape `(R,)`.
    """

    network: LinearNetwork
    steps: np.ndarray
    indices: np.ndarray
    predictor: np.ndarray
    loss: np.ndarray
    u_square: np.ndarray
    v_square: np.ndarray
    diverged: np.ndarray
    stop_step: np.ndarray
    error_estimate: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)


def train_replicates(
    network: LinearNetwork,
    data: Data,
    *,
    replicates: int | Sequence[int],
    step_size: float | None = None,
    steps: int,
    seed: int,
    loss: str | Loss | Callable[[np.ndarray, np.ndarray], Any] = "square",
    momentum: float = 0.0,
    layer_step_sizes: Sequence[float] | None = None,
    record: Sequence[int] | None = None,
    n_jobs: int = 1,
    tolerance: float = 1e-11,
) -> Replicates:
    r"""Train independent networks by gradient descent on the same data.

    Args:
        network: the network.
        data: see `train`; all replicates see the same data, in the same order.
        replicates: their number, or their indices.
        step_size: see `train`.
        steps: number of steps.
        seed: root seed.
        loss: see `train`.
        momentum: see `train`.
        layer_step_sizes: see `train`.
        record: steps to record; `None` is all of them, the start included.
        n_jobs: number of processes; -1 is one a core. It changes no number.
        tolerance: error that may come from the finite bases.

    Returns:
        The record.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range or shapes do not fit.

    Example:
        >>> from scalinglimits.linear import EmpiricalData, LinearNetwork
        >>> data = EmpiricalData([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
        >>> runs = train_replicates(
        ...     LinearNetwork(2, width=1000), data, replicates=50, step_size=0.1, steps=100, seed=0
        ... )
        >>> runs.predictor.shape
        (50, 101, 2)
        >>> alone = train_replicates(
        ...     LinearNetwork(2, width=1000), data, replicates=[7], step_size=0.1, steps=100, seed=0
        ... )
        >>> bool(np.all(alone.predictor[0] == runs.predictor[7]))
        True
    """
    seed = check_count("seed", seed)
    check_network(network, seed)
    steps = check_count("steps", steps)
    indices = _indices(replicates)
    data = repeatable(data, steps)
    check_features(network, schedule(data))
    job = _Job(
        network,
        data,
        resolve_loss(loss),
        checked_step_sizes(network, step_size, layer_step_sizes),
        steps,
        check_real("momentum", momentum, minimum=0.0),
        seed,
        _recorded(record, steps),
        check_real("tolerance", tolerance, above=0.0),
    )
    if job.momentum >= 1.0:
        raise ValueError(f"`momentum` must be less than 1; got {momentum}")
    fast = network.has_explicit_form
    chunk = _CHUNK if fast else _CHUNK_SLOW
    chunks = [indices[i : i + chunk] for i in range(0, len(indices), chunk)]
    size = 0
    if fast and chunks:
        # A network that is no replicate finds out how long the bases must be.
        size = _run_explicit(job, [_PILOT], _FIRST_SIZE)[1] + _MARGIN
    run = joblib.delayed(_run_chunk)
    parallel = joblib.Parallel(n_jobs=n_jobs if len(chunks) > 1 else 1)
    parts: list[dict[str, np.ndarray]] = parallel(run(job, part, size) for part in chunks)
    return Replicates(network, job.record, indices, **_joined(job, parts))


@dataclass(frozen=True)
class _Job:
    network: LinearNetwork
    data: Any
    loss: Loss
    sizes: list[float]
    steps: int
    momentum: float
    seed: int
    record: np.ndarray
    tolerance: float


def _run_chunk(job: _Job, indices: np.ndarray, size: int) -> dict[str, np.ndarray]:
    # More threads would only get in each other's way, and could change the last digit.
    with threadpool_limits(limits=1):
        if size:
            return _run_explicit(job, indices, size)[0]
        return _run_one_by_one(job, indices)


def _run_explicit(
    job: _Job, indices: Sequence[int] | np.ndarray, size: int
) -> tuple[dict[str, np.ndarray], int]:
    """Train in lock step; those that need longer bases are trained again."""
    seeds = [replicate_seed(job.seed, int(i)) for i in indices]
    out: dict[str, np.ndarray] = {}
    waiting = np.arange(len(seeds))
    while len(waiting):
        batch = descend(
            job.network,
            schedule(job.data),
            job.loss,
            job.sizes,
            job.steps,
            job.momentum,
            [seeds[i] for i in waiting],
            size,
            job.record,
        )
        fields = _fields(batch)
        if not out:
            out = {name: array.copy() for name, array in fields.items()}
        for name, array in fields.items():
            out[name][waiting] = array
        if band_limit(job.network, size).exhausted:
            break
        short = fields["error_estimate"] > job.tolerance
        waiting = waiting[short]
        if short.any():
            size += max(8, size // 8)
    return out, size


def _fields(batch: Batch) -> dict[str, np.ndarray]:
    return {
        "predictor": batch.predictor,
        "loss": batch.loss,
        "u_square": batch.u_square,
        "v_square": batch.v_square,
        "diverged": batch.diverged,
        "stop_step": batch.stop_step,
        # What is cut off acts on the predictor only by way of the cut, to and fro.
        "error_estimate": batch.tail**2,
    }


def _run_one_by_one(job: _Job, indices: np.ndarray) -> dict[str, np.ndarray]:
    parts: dict[str, list[Any]] = {
        name: []
        for name in (
            "predictor",
            "loss",
            "u_square",
            "v_square",
            "diverged",
            "stop_step",
            "error_estimate",
        )
    }
    for index in indices:
        run = train(
            job.network,
            job.data,
            layer_step_sizes=job.sizes,
            steps=job.steps,
            seed=replicate_seed(job.seed, int(index)),
            loss=job.loss,
            momentum=job.momentum,
            tolerance=job.tolerance,
        )
        for name in ("predictor", "loss", "u_square", "v_square"):
            array = getattr(run, name)
            full = np.full((job.steps + 1, *array.shape[1:]), np.nan)
            full[: len(array)] = array
            parts[name].append(full[job.record])
        parts["diverged"].append(run.diverged)
        parts["stop_step"].append(run.stop_step)
        parts["error_estimate"].append(run.error_estimate.max(initial=0.0))
    return {name: np.array(values) for name, values in parts.items()}


def _joined(job: _Job, parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _indices(replicates: Any) -> np.ndarray:
    if isinstance(replicates, Sequence | np.ndarray) and not isinstance(replicates, str):
        chosen = [check_count("replicates", i) for i in replicates]
        if not chosen:
            raise ValueError("`replicates` must be at least one index; got none")
        return np.array(chosen)
    return np.arange(check_count("replicates", replicates, 1))


def _recorded(record: Any, steps: int) -> np.ndarray:
    if record is None:
        return np.arange(steps + 1)
    chosen = sorted({check_count("record", k) for k in record})
    if not chosen or chosen[-1] > steps:
        raise ValueError(f"`record` must be steps between 0 and {steps}; got {record!r}")
    return np.array(chosen)
