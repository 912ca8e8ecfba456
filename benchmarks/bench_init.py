"""Filling a 4096×4096 float32 weight: our initialisers, and PyTorch's and JAX's.

Rows: name, seconds (the best of seven, alternating ours and theirs), and ratio to PyTorch's time
on the same distribution. JAX takes part if it is installed. One thread.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from scalinglimits.init import variance_scaling_

__all__ = ["main"]

SIZE = 4096
ORTHOGONAL_SIZE = 1024
STD = SIZE**-0.5


def main() -> list[dict[str, Any]]:
    """Time every distribution.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio``.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _rows()
    finally:
        torch.set_num_threads(threads)


def _rows() -> list[dict[str, Any]]:
    weight = torch.empty(SIZE, SIZE)
    small = torch.empty(ORTHOGONAL_SIZE, ORTHOGONAL_SIZE)
    theirs: dict[str, tuple[torch.Tensor, int, Callable[[], Any]]] = {
        "normal": (weight, 7, lambda: nn.init.xavier_normal_(weight)),
        "uniform": (weight, 7, lambda: nn.init.xavier_uniform_(weight)),
        "truncated_normal": (
            weight,
            3,
            lambda: nn.init.trunc_normal_(weight, 0.0, STD, -2 * STD, 2 * STD),
        ),
        "truncated_normal, torch's left uncut": (
            weight,
            7,
            lambda: nn.init.trunc_normal_(weight, std=STD),
        ),
        "orthogonal": (small, 3, lambda: nn.init.orthogonal_(small)),
    }
    rows = []
    for name, (tensor, repeats, fill) in theirs.items():
        distribution = name.partition(",")[0]

        def ours(tensor: torch.Tensor = tensor, distribution: str = distribution) -> None:
            variance_scaling_(tensor, 1.0, "fan_avg", distribution, seed=0)

        mine, reference = _best_pair(ours, fill, repeats)
        size = f"{tensor.shape[0]}²"
        rows.append(_row(f"{size} {name}: torch.nn.init", reference, reference))
        rows.append(_row(f"{size} {name}: scalinglimits", mine, reference))
        seconds = _jax(distribution, tensor.shape[0], repeats)
        if seconds is not None:
            rows.append(_row(f"{size} {name}: jax.nn.initializers", seconds, reference))
    return rows


def _jax(name: str, size: int, repeats: int) -> float | None:
    if importlib.util.find_spec("jax") is None:
        return None
    import jax

    if name == "orthogonal":
        init = jax.nn.initializers.orthogonal()
    else:
        init = jax.nn.initializers.variance_scaling(1.0, "fan_avg", name)
    key = jax.random.key(0)
    return _best_pair(lambda: init(key, (size, size)).block_until_ready(), lambda: None, repeats)[0]


def _best_pair(
    first: Callable[[], Any], second: Callable[[], Any], repeats: int
) -> tuple[float, float]:
    """Time two functions in turn, so that a busy machine disturbs both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for run, spent in zip((first, second), times, strict=True):
            start = time.perf_counter()
            run()
            spent.append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def _row(name: str, seconds: float, reference: float) -> dict[str, Any]:
    return {"name": name, "seconds": seconds, "ratio": seconds / reference}
