"""Fractional Gaussian noise: our sampler, drawing its normal numbers alone, and public code.

Rows: name, seconds (the best of seven, which a busy machine disturbs least), and ratio to the
time of drawing as many normal numbers as there are values. Public packages take part if they are
installed; naive twins always do. Public code and twins that work path by path are timed on a few
paths and scaled up. One thread.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from scalinglimits.laws import fgn_autocovariance, fractional_gaussian_noise

__all__ = ["main"]

HURST = 0.7
SIZES = ((1600, 1000), (16, 100_000))
LARGEST_CHOLESKY = 2000


def main() -> list[dict[str, Any]]:
    """Time every sampler at every size.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio``.
    """
    with threadpool_limits(1):
        return [row for count, n in SIZES for row in _rows(count, n)]


def _rows(count: int, n: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    label = f"{count} x {n}"
    for dtype in ("float64", "float32"):
        floor = _best(lambda dtype=dtype: rng.standard_normal((count, n), dtype=dtype))
        ours = _best(
            lambda dtype=dtype: fractional_gaussian_noise(
                n, HURST, count, generator=rng, dtype=np.dtype(dtype)
            )
        )
        yield _row(f"{label}: normal numbers alone, NumPy {dtype}", floor, floor)
        yield _row(f"{label}: scalinglimits, NumPy {dtype}", ours, floor)
        if dtype == "float64":
            reference = floor
    yield from _torch_rows(label, count, n)
    few = min(count, 8)
    for name, sampler in _others(n, rng).items():
        seconds = _best(lambda sampler=sampler: [sampler() for _ in range(few)]) * count / few
        yield _row(f"{label}: {name}", seconds, reference)
    if n <= LARGEST_CHOLESKY:
        yield _row(f"{label}: Cholesky, naive twin", _cholesky(count, n, rng), reference)


def _torch_rows(label: str, count: int, n: int) -> Iterator[dict[str, Any]]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float32):
        floor = _best(lambda dtype=dtype: torch.randn(count, n, generator=generator, dtype=dtype))
        ours = _best(
            lambda dtype=dtype: fractional_gaussian_noise(
                n, HURST, count, generator=generator, dtype=dtype
            )
        )
        yield _row(f"{label}: normal numbers alone, {dtype}", floor, floor)
        yield _row(f"{label}: scalinglimits, {dtype}", ours, floor)
    torch.set_num_threads(threads)


def _others(n: int, rng: np.random.Generator) -> dict[str, Callable[[], Any]]:
    """Return samplers of one path each."""
    samplers: dict[str, Callable[[], Any]] = {"one path at a time, naive twin": _by_path(n, rng)}
    if importlib.util.find_spec("fbm"):
        from fbm import FBM

        samplers["PyPI fbm"] = FBM(n, HURST, n).fgn
    if importlib.util.find_spec("stochastic"):
        from stochastic.processes.noise import FractionalGaussianNoise

        process = FractionalGaussianNoise(HURST)
        samplers["PyPI stochastic"] = lambda: process.sample(n)
    return samplers


def _by_path(n: int, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    gamma = fgn_autocovariance(n + 1, HURST)
    root = np.sqrt(np.fft.fft(np.concatenate([gamma, gamma[-2:0:-1]])).real / (2 * n))

    def sample() -> np.ndarray:
        noise = rng.standard_normal(2 * n) + 1j * rng.standard_normal(2 * n)
        path: np.ndarray = np.fft.fft(root * noise).real[:n]
        return path

    return sample


def _cholesky(count: int, n: int, rng: np.random.Generator) -> float:
    gamma = fgn_autocovariance(n, HURST)
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))

    def sample() -> np.ndarray:
        return rng.standard_normal((count, n)) @ np.linalg.cholesky(gamma[lags]).T

    return _best(sample)


def _best(work: Callable[[], Any], repetitions: int = 7) -> float:
    work()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _row(name: str, seconds: float, floor: float) -> dict[str, Any]:
    return {"name": name, "seconds": seconds, "ratio": seconds / floor}


if __name__ == "__main__":
    for row in main():
        print(f"{row['name']:<60} {row['seconds']:10.4f} s {row['ratio']:9.2f} x")
