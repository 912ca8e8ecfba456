"""Deep linear networks: the work of the document's public code, at any width.

``ratio`` is how many times faster the package is than the naive twin of the same row's group, or,
where the name says so, the time at one width over that at another. One thread, but for the last
rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from scalinglimits.linear import (
    EmpiricalData,
    GaussianData,
    LinearNetwork,
    gradient_flow,
    train,
    train_replicates,
)

__all__ = ["main"]

D, SAMPLES, STEPS = 20, 15, 1000
DENSE_SIZE = 800
WIDTHS = (10, 100, 1000)


def main() -> list[dict[str, Any]]:
    """Time each piece of work.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio``.
    """
    with threadpool_limits(1):
        rows = [*_limit(), *_figure(), *_width(), *_others()]
    return [*rows, *_replicates()]


def _data() -> tuple[EmpiricalData, float]:
    """The setting of the document's public code: a sum over the samples, step size 0.02."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((SAMPLES, D)) / np.sqrt(D)
    return EmpiricalData(X, X @ rng.standard_normal(D)), 0.02 * SAMPLES


def _limit() -> list[dict[str, Any]]:
    data, tau = _data()
    ours = _seconds(lambda: train(LinearNetwork(D), data, step_size=tau, steps=STEPS))
    run = train(LinearNetwork(D), data, step_size=tau, steps=STEPS)
    start = time.perf_counter()
    dense = _dense_limit(data, tau, DENSE_SIZE)
    seconds = time.perf_counter() - start
    error = float(np.max(np.abs(run.predictor - dense)))
    return [
        _row(f"the limit, {STEPS} steps (error {error:.0e})", ours),
        _row(f"the same, dense at {DENSE_SIZE} dimensions", seconds, seconds / ours),
    ]


def _figure() -> list[dict[str, Any]]:
    data, tau = _data()
    start = time.perf_counter()
    for width in WIDTHS:
        network = LinearNetwork(D, width=width)
        for seed in range(10):
            train(network, data, step_size=tau, steps=STEPS, seed=seed)
    ours = time.perf_counter() - start
    naive = sum(_dense_network(data, tau, m) for m in WIDTHS) * 10
    return [
        _row("Figure L1: 30 trainings, widths 10, 100, 1000", ours),
        _row("the same with dense matrices (scaled up from 20 steps)", naive, naive / ours),
    ]


def _width() -> list[dict[str, Any]]:
    data, tau = _data()
    seconds = {}
    for width in (10**4, 10**12, 10**18):
        network = LinearNetwork(D, width=width)
        seconds[width] = _seconds(
            lambda network=network: [
                train(network, data, step_size=tau, steps=STEPS, seed=seed) for seed in range(3)
            ]
        )
    narrow = seconds[10**4]
    return [
        _row(f"3 trainings at width {m:.0e} (ratio: over width 1e4)", s, s / narrow)
        for m, s in seconds.items()
    ]


def _others() -> list[dict[str, Any]]:
    data, tau = _data()
    work: dict[str, Callable[[], Any]] = {
        f"the limit with 5 hidden matrices, {STEPS} steps": lambda: train(
            LinearNetwork(D, 5), data, step_size=tau / 5, steps=STEPS
        ),
        "residual limit, depth 32, 10 steps": lambda: train(
            LinearNetwork(D, 32, residual_scale=32**-0.5), data, step_size=tau, steps=10
        ),
        "gradient flow of the limit to time 100, rtol 1e-8": lambda: gradient_flow(
            LinearNetwork(D), data, times=[100.0], rtol=1e-8
        ),
    }
    return [_row(name, _seconds(function)) for name, function in work.items()]


def _replicates() -> list[dict[str, Any]]:
    data = GaussianData(np.eye(10), np.random.default_rng(0).standard_normal(10))
    count, few, steps, width = 10_000, 20, 200, 1000
    network = LinearNetwork(10, width=width)
    start = time.perf_counter()
    train_replicates(network, data, replicates=count, step_size=0.05, steps=steps, seed=0, n_jobs=2)
    ours = time.perf_counter() - start
    one_by_one = _seconds(
        lambda: [train(network, data, step_size=0.05, steps=steps, seed=s) for s in range(few)]
    )
    one_by_one *= count / few / 2
    return [
        _row(f"{count} replicates, {steps} steps, width {width}, two processes", ours),
        _row("the same one by one (scaled up)", one_by_one, one_by_one / ours),
    ]


def _dense_limit(data: EmpiricalData, tau: float, size: int) -> np.ndarray:
    hidden = np.zeros((size, size))
    index = np.arange(size - 1)
    hidden[index + 1, index] = 1.0
    index = np.arange(size - D)
    hidden[index, index + D] = 1.0
    A, B, history = np.eye(size, D), np.eye(size, 1)[:, 0], []
    for _ in range(STEPS + 1):
        back = hidden.T @ B
        history.append(A.T @ back)
        xi = data.X.T @ (data.X @ history[-1] - data.y) / SAMPLES
        f0 = A @ xi
        f1 = hidden @ f0
        A -= tau * np.outer(back, xi)
        hidden -= tau * np.outer(B, f0)
        B = B - tau * f1
    return np.array(history)


def _dense_network(data: EmpiricalData, tau: float, width: int, steps: int = 20) -> float:
    """Seconds of one training with dense matrices."""
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((width, D)), rng.standard_normal(width)
    hidden = rng.standard_normal((width, width)) / np.sqrt(width)
    start = time.perf_counter()
    for _ in range(steps):
        back = hidden.T @ V
        xi = data.X.T @ (data.X @ (U.T @ back / width) - data.y) / SAMPLES
        f0 = U @ xi
        f1 = hidden @ f0
        U -= tau * np.outer(back, xi)
        hidden -= tau / width * np.outer(V, f0)
        V -= tau * f1
    return (time.perf_counter() - start) * STEPS / steps


def _seconds(function: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _row(name: str, seconds: float, ratio: float | None = None) -> dict[str, Any]:
    return {"name": name, "seconds": seconds, "ratio": ratio}
