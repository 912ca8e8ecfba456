"""The scaling check beside mup's coordinate check and a loop without hooks.

An MLP 3072-w-w-10, w = 64 … 1024, 5 seeds, batch 64, Adam. ``ratio`` is the time of the row over
that of the check. Both measure the passes after 0, 1 and 2 updates; mup's third update is not
measured. mup measures activations; the check measures contributions, spectral norms and gradients
too, fits exponents and gives a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scalinglimits.checks import scaling_check

__all__ = ["main"]

WIDTHS, PASSES, SEEDS, BATCH, ROUNDS = (64, 128, 256, 512, 1024), 3, 5, 64, 9
Batch = tuple[Tensor, Tensor]


def main() -> list[dict[str, Any]]:
    """Time each piece of work, medians of nine rounds.

    Returns:
        One record for each row: ``name``, ``seconds``, ``ratio``.
    """
    generator = torch.Generator().manual_seed(0)
    batch = (
        torch.randn(BATCH, 3072, generator=generator),
        torch.randint(10, (BATCH,), generator=generator),
    )
    work: dict[str, Callable[[], Any]] = {
        "scaling check of the same three passes, verdict included": lambda: _check(batch, 2),
        "scaling check of three updates (four passes)": lambda: _check(batch, 3),
        "a loop without hooks, three updates (naive twin)": lambda: _loop(batch),
    }
    if _has_mup():
        work["mup 1.0.0: coordinate check, activations only"] = lambda: _mup(batch)
    # Interleaved, so that a busy machine is busy for all; ratios are of the same round.
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS + 1):  # the first warms up
        for name, function in work.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    rounds = {name: np.array(found[1:]) for name, found in times.items()}
    ours = next(iter(rounds.values()))
    return [
        {
            "name": name,
            "seconds": float(np.median(seconds)),
            "ratio": float(np.median(seconds / ours)),
        }
        for name, seconds in rounds.items()
    ]


def build(width: int, depth: int) -> nn.Module:
    """Return the MLP; `depth` hidden layers follow the first."""
    hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(3072, width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def step(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def _setup(model: nn.Module, width: int, depth: int, seed: int) -> list[dict[str, Any]]:
    ratio = width / WIDTHS[0]
    first, *others = [m for m in model if isinstance(m, nn.Linear)]  # type: ignore[attr-defined]
    with torch.no_grad():
        others[-1].weight *= ratio**-0.5
    scaled = [layer.weight for layer in others]
    rest = [first.weight, *(layer.bias for layer in (first, *others))]
    return [{"params": scaled, "lr": 1e-3 / ratio}, {"params": rest, "lr": 1e-3}]


def _check(batch: Batch, steps: int) -> None:
    check = scaling_check(
        build,
        step,
        [batch],
        widths=WIDTHS,
        depths=(1,),
        plan=_setup,
        seeds=SEEDS,
        max_seeds=SEEDS,
        steps=steps,
    )
    assert check.verdict != "fails", str(check)


def _loop(batch: Batch) -> None:
    for width in WIDTHS:
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model = build(width, 1)
            optimizer = torch.optim.Adam(_setup(model, width, 1, seed))
            for _ in range(PASSES):
                optimizer.zero_grad()
                loss = step(model, batch)
                loss.backward()
                optimizer.step()


def _has_mup() -> bool:
    try:
        import mup  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def _mup(batch: Batch) -> None:
    import mup
    from mup.coord_check import get_coord_data

    def make(width: int) -> nn.Module:
        hidden = [nn.Linear(width, width), nn.ReLU()]
        readout = mup.MuReadout(width, 10)
        return nn.Sequential(nn.Linear(3072, width), nn.ReLU(), *hidden, readout)

    shapes = mup.make_base_shapes(make(WIDTHS[0]), make(2 * WIDTHS[0]))

    def model(width: int) -> Callable[[], nn.Module]:
        return lambda: mup.set_base_shapes(make(width), shapes)

    get_coord_data(
        {width: model(width) for width in WIDTHS},
        [batch],
        optimizer="adam",
        lr=1e-3,
        nseeds=SEEDS,
        nsteps=PASSES,
        cuda=False,
        show_progress=False,
    )


if __name__ == "__main__":
    np.seterr(all="raise")
    for row in main():
        print(row)
