"""Limits in continuous depth: our integrators beside a plain loop and public code.

Rows: name, seconds (the best of five), and ratio to the plain loop of the same group. torchsde and
torchdiffeq take part if they are installed. One thread.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from scalinglimits.residual.ode import LimitODE, limit_ode
from scalinglimits.residual.sde import BrownianPath, MatrixSDE, integrate, limit_sde

__all__ = ["main"]

WIDTH, INPUTS, STEPS = 40, 64, 1000


def main() -> list[dict[str, Any]]:
    """Time every integrator.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio``.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [*_sde_rows(), *_ode_rows()]
    finally:
        torch.set_num_threads(threads)


def _sde_rows() -> Iterator[dict[str, Any]]:
    sde = limit_sde(width=WIDTH, branch="res-1")
    if not isinstance(sde, MatrixSDE):
        raise TypeError("the limit of res-1 has a matrix of noises")
    start = torch.randn(INPUTS, WIDTH, generator=torch.Generator().manual_seed(0))
    sigma, scale = sde.activation.function, WIDTH**-0.5

    @torch.no_grad()
    def plain() -> None:
        generator = torch.Generator().manual_seed(0)
        h, root = start, STEPS**-0.5
        for _ in range(STEPS):
            dB = root * torch.randn(WIDTH, WIDTH, generator=generator)
            h = h + scale * (sigma(h) @ dB)

    label = f"SDE, {INPUTS} inputs, {WIDTH}x{WIDTH} noises, {STEPS} steps"
    floor = _best(plain)
    yield _row(f"{label}: plain loop", floor, floor)
    ours = _best(lambda: integrate(sde, start, BrownianPath((WIDTH, WIDTH), STEPS, seed=0)))
    yield _row(f"{label}: scalinglimits, one path for all", ours, floor)
    refined = _best(
        lambda: integrate(sde, start, BrownianPath((WIDTH, WIDTH), STEPS // 8, seed=0), steps=STEPS)
    )
    yield _row(f"{label}: scalinglimits, refined 8 times", refined, floor)
    if importlib.util.find_spec("torchsde"):
        import torchsde

        class General(torch.nn.Module):
            noise_type, sde_type = "general", "ito"

            def f(self, t: Any, y: torch.Tensor) -> torch.Tensor:
                return torch.zeros_like(y)

            def g(self, t: Any, y: torch.Tensor) -> torch.Tensor:
                # (batch, d, d·d): e_i σ(y_j)
                eye = torch.eye(WIDTH)[None, :, None, :]
                return (scale * eye * sigma(y)[:, None, :, None]).flatten(2)

        times = torch.tensor([0.0, 1.0])
        public = _best(
            lambda: torchsde.sdeint(General(), start, times, method="euler", dt=1 / STEPS),
            repetitions=1,
        )
        yield _row(f"{label}: torchsde, a path for each", public, floor)


def _ode_rows() -> Iterator[dict[str, Any]]:
    ode: LimitODE = limit_ode(width=WIDTH, branch="res-2", activation="tanh", seed=0)
    start = torch.randn(10, WIDTH, generator=torch.Generator().manual_seed(0)).double()
    last = torch.ones_like(start)
    label = f"ODE, 10 inputs, width {WIDTH}, tolerance 1e-8"
    floor = _best(lambda: ode.solve(start), repetitions=3)
    yield _row(f"{label}: scalinglimits (SciPy DOP853)", floor, floor)
    solution = ode.solve(start)
    adjoint = _best(lambda: solution.gradients(last)(0.0), repetitions=3)
    yield _row(f"{label}: scalinglimits, gradient", adjoint, floor)
    if importlib.util.find_spec("torchdiffeq"):
        from torchdiffeq import odeint, odeint_adjoint

        class Right(torch.nn.Module):
            def forward(self, t: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
                return ode.velocity(t.item(), h)

        times = torch.tensor([0.0, 1.0], dtype=torch.float64)
        options = {"rtol": 1e-8, "atol": 1e-10, "method": "dopri8"}

        def forward() -> torch.Tensor:
            with torch.no_grad():
                return odeint(Right(), start, times, **options)[-1]

        def gradient() -> None:
            leaf = start.clone().requires_grad_(True)
            end = odeint_adjoint(Right(), leaf, times, adjoint_params=(), **options)[-1]
            (end * last).sum().backward()

        yield _row(f"{label}: torchdiffeq dopri8", _best(forward, repetitions=3), floor)
        yield _row(f"{label}: torchdiffeq, with gradient", _best(gradient, repetitions=3), floor)


def _best(work: Callable[[], Any], repetitions: int = 5) -> float:
    if repetitions > 1:
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
        print(f"{row['name']:<75} {row['seconds']:9.4f} s {row['ratio']:8.2f} x")
