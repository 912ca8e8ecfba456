"""Residual networks: exact law and phase diagram, beside dense networks and autograd.

``ratio`` is how many times faster the package is than the naive twin of the same row's group.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from scalinglimits.residual import (
    ResidualNetwork,
    norm_ratio_samples,
    phase_diagram,
    propagate,
)

__all__ = ["main"]


def main() -> list[dict[str, Any]]:
    """Time each piece of work once, after a warm-up where it is short.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio``.
    """
    return [*_figure_2(), *_passes(), *_figure_7()]


def _figure_2() -> list[dict[str, Any]]:
    exact = _seconds(lambda: norm_ratio_samples(100, 1000, 0.5, 10_000))
    few = 5
    dense = _seconds(lambda: [_dense_network(100, 1000, seed) for seed in range(few)])
    dense *= 10_000 / few
    return [
        {
            "name": "R2: 10^4 networks of depth 1000 by the exact law",
            "seconds": exact,
            "ratio": None,
        },
        {
            "name": f"R2: the same as dense networks (scaled up from {few})",
            "seconds": dense,
            "ratio": dense / exact,
        },
    ]


def _passes() -> list[dict[str, Any]]:
    network = ResidualNetwork(64, 40, 1000, 1, beta=0.5)
    x, betas = torch.randn(10, 64), np.linspace(0.3, 1.3, 70)
    ours = _seconds(lambda: propagate(network, x, beta=betas, layers="ends"), repeats=3)
    few = 3
    naive = _seconds(lambda: [_autograd_pass(network, x, float(beta)) for beta in betas[:few]])
    naive *= len(betas) / few
    return [
        {"name": "70 exponents × 10 inputs, d = 40, L = 1000", "seconds": ours, "ratio": None},
        {
            "name": f"the same by autograd, one exponent at a time (scaled up from {few})",
            "seconds": naive,
            "ratio": naive / ours,
        },
    ]


def _figure_7() -> list[dict[str, Any]]:
    seconds = _seconds(lambda: phase_diagram(np.linspace(0.05, 0.97, 51), np.linspace(0, 1.3, 70)))
    name = "R7 in full: 51 × 70 × 5 × 10, L = 1000, d = 40, all cores"
    return [{"name": name, "seconds": seconds, "ratio": None}]


def _dense_network(width: int, depth: int, seed: int) -> float:
    """Build one network with its weights and propagate one input forwards."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        V, W = (
            torch.randn(depth, width, width, generator=generator) * width**-0.5 for _ in range(2)
        )
        h = h_0 = torch.randn(width, generator=generator)
        for V_k, W_k in zip(V, W, strict=True):
            h = h + depth**-0.5 * (V_k @ torch.relu(W_k @ h))
    return float(h.norm() / h_0.norm())


def _autograd_pass(network: ResidualNetwork, x: torch.Tensor, beta: float) -> float:
    network.branch_scale = network.depth**-beta
    h_0 = torch.nn.functional.linear(x, network.input_weight).detach().requires_grad_(True)
    h = h_0
    for V, W in zip(network.V.detach(), network.W.detach(), strict=True):
        h = h + network.branch_scale * (torch.relu(h @ W.T) @ V.T)
    (gradient,) = torch.autograd.grad((h @ network.output_weight.T).sum(), h_0)
    return float(gradient.norm())


def _seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    for row in main():
        print(row)
