r"""Limits in which the weights do not move: "ntk" and "standard" at infinite width.

In both, the predictor starts at a random `lambda(0)`, with independent `N(0, s^2 phi)` entries,
`phi` the squared forward gain. For "ntk" it then follows

    lambda(k+1) = lambda(k) - tau s^2 kappa xi,

where every layer of a plain network adds one to `kappa` (so `kappa = n + 2`). In a residual
network `phi = (1 + alpha^2)^n` and `kappa = 2 (1 + alpha^2)^n + n alpha^2 (1 + alpha^2)^(n-1)`. For
"standard" a step of size `tau` moves the predictor by `tau m` times that: it diverges at the first
step, whatever the step size.
"""

from __future__ import annotations

__all__ = ["kernel_rates", "start", "train_kernel"]

import math
from collections.abc import Callable

import numpy as np

from ._dynamics import LARGEST_NORM
from ._recorder import Recorder
from ._streams import PREDICTOR, stream
from .batches import Schedule, evaluate
from .losses import Loss
from .measures import Measure
from .network import LinearNetwork
from .trajectory import Trajectory


def kernel_rates(network: LinearNetwork) -> list[float]:
    """Speeds at which each layer moves the predictor: their sum is `s^2 kappa`."""
    n = network.hidden
    a = 0.0 if network.residual_scale is None else network.residual_scale**2
    if network.residual_scale is None:
        rates = [1.0] * (n + 2)
    else:
        rates = [(1.0 + a) ** n, *([a * (1.0 + a) ** (n - 1)] * n), (1.0 + a) ** n]
    return [network.scale**2 * rate for rate in rates]


def start(network: LinearNetwork, seed: int | None) -> np.ndarray:
    """The random predictor at the start."""
    d, o, n = network.in_features, network.out_features, network.hidden
    generator = stream(seed, PREDICTOR)
    assert generator is not None
    a = 0.0 if network.residual_scale is None else network.residual_scale**2
    deviation = network.scale * math.sqrt((1.0 + a) ** n)
    return deviation * generator.standard_normal((d,) if o == 1 else (d, o))


def train_kernel(
    network: LinearNetwork,
    source: Measure | Schedule,
    loss: Loss,
    sizes: list[float],
    steps: int,
    seed: int | None,
    momentum: float,
    stop: Callable[[int, np.ndarray, float], bool] | None,
) -> Trajectory:
    """Gradient descent in the limit; the arguments are those of `train`, checked."""
    recorder = Recorder(network, steps + 1)
    predictor = start(network, seed)
    velocity = np.zeros_like(predictor)
    rate = sum(t * r for t, r in zip(sizes, kernel_rates(network), strict=True))
    # The first layer of "standard" moves by a finite amount only; any other one diverges.
    explodes = network.parametrization == "standard" and any(t > 0.0 for t in sizes[1:])
    status, step = "completed", 0
    for step in range(steps + 1):
        if not np.linalg.norm(predictor) < LARGEST_NORM:
            status = "diverged"
            break
        last = step == steps
        value, xi = evaluate(source, step, last, predictor, loss)
        recorder.add_kernel(step, predictor, value)
        if stop is not None and stop(step, predictor, value):
            status = "stopped"
            break
        if last:
            break
        if explodes and np.any(xi != 0.0):
            status, step = "diverged", step + 1
            break
        velocity = momentum * velocity - rate * xi
        predictor = predictor + velocity
    return recorder.finish(status, step, None, {}, recorder.count)
