"""The stochastic integrator beside a plain loop."""

import time

import pytest
import torch

from scalinglimits.residual.sde import BrownianPath, integrate, limit_sde


@pytest.mark.slow
def test_many_inputs_on_one_matrix_path_cost_at_most_twice_a_plain_loop():
    sde = limit_sde(width=40, branch="res-1")
    start = torch.randn(64, 40, generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def plain():
        generator = torch.Generator().manual_seed(0)
        h = start
        for _ in range(1000):
            dB = 1000**-0.5 * torch.randn(40, 40, generator=generator)
            h = h + 40**-0.5 * (sde.activation.function(h) @ dB)

    def ours():
        integrate(sde, start, BrownianPath((40, 40), 1000, seed=0))

    def best(work):
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
        return min(times)

    best(plain)
    assert best(ours) < 2 * best(plain)
