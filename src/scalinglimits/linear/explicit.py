r"""The limit in the document's own basis: the arrays A, G and B.

After `k` steps, only the first `d + ceil(k (d + 1) / 2)` rows or so of A, G and B are not zero, so
that the recursion (2.10) can be carried out exactly; far fewer matter. At finite width the same
recursion runs with a random Lambda (see `scalinglimits.linear.banded`).

Reference: "Infinite-width limit of deep linear neural networks" (L), (2.6) to (2.13).
"""

from __future__ import annotations

__all__ = ["LimitMatrices", "exact_size", "explicit_limit"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._lockstep import descend
from ._validate import check_count, check_real
from .banded import band_limit
from .batches import repeatable, schedule
from .losses import Loss, resolve_loss
from .network import LinearNetwork
from .training import Data, check_features, check_network, checked_step_sizes

_LARGEST_EXACT = 600
_FIRST_SIZE = 32


@dataclass(frozen=True)
class LimitMatrices:
    """The explicit form after some steps.

    The predictor is `scale B^T (Lambda + G) A`; by (2.13), `U = Gamma A`, `W = Gamma~ G Gamma^T`
    and `V = Gamma~ B` with independent Gaussian vectors `Gamma`, `Gamma~`.

    Attributes:
        network: the network.
        steps: number of steps.
        A: shape `(columns, d)`.
        G: shape `(rows, columns)`.
        B: shape `(rows,)`, or `(rows, o)` with several outputs.
        Lambda: the random hidden matrix in the basis, shape `(rows, columns)`.
        predictor: predictors from the start to the end, shape `(steps + 1, d)` or `(..., d, o)`.
        loss: the mean losses, shape `(steps + 1,)`.
        exact: whether nothing that is not zero was cut off.
        error_estimate: of the predictor, from what was cut off.
        diverged: whether training diverged; what came after is NaN.
    """

    network: LinearNetwork
    steps: int
    A: np.ndarray
    G: np.ndarray
    B: np.ndarray
    Lambda: np.ndarray
    predictor: np.ndarray
    loss: np.ndarray
    exact: bool
    error_estimate: float
    diverged: bool


def exact_size(in_features: int, out_features: int, steps: int) -> int:
    """Number of basis vectors that are not zero after some steps of the limit.

    Args:
        in_features: `d`.
        out_features: `o`.
        steps: number of steps.

    Returns:
        The larger of the numbers of rows of A and of B.

    Example:
        >>> [exact_size(3, 1, k) for k in range(4)]
        [3, 4, 7, 8]
    """
    a, b = in_features, out_features
    for _ in range(steps):
        a, b = max(a, b + in_features), max(b, a + out_features)
    return max(a, b)


def explicit_limit(
    network: LinearNetwork,
    data: Data,
    *,
    step_size: float | None = None,
    steps: int,
    seed: int | None = None,
    loss: str | Loss | Callable[[np.ndarray, np.ndarray], Any] = "square",
    momentum: float = 0.0,
    layer_step_sizes: Sequence[float] | None = None,
    size: int | None = None,
    tolerance: float = 1e-13,
) -> LimitMatrices:
    """Gradient descent in the basis of (2.7) to (2.10).

    Args:
        network: a plain network with one Gaussian hidden matrix.
        data: see `train`.
        step_size: see `train`.
        steps: number of steps.
        seed: seed of Lambda, needed at finite width only. (The draws are not those of `train`.)
        loss: see `train`.
        momentum: see `train`.
        layer_step_sizes: see `train`.
        size: number of basis vectors; `None` is all that are not zero, up to 600, and beyond as
            many as the tolerance needs.
        tolerance: error of the predictor that cutting the basis may cause.

    Returns:
        The arrays and the predictors.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if an argument is out of range, shapes do not fit, or the network has no
            explicit form.

    Example:
        >>> from scalinglimits.linear import EmpiricalData, LinearNetwork
        >>> data = EmpiricalData([[1.0, 0.0], [0.0, 1.0]], [2.0, -2.0])
        >>> limit = explicit_limit(LinearNetwork(2), data, step_size=0.1, steps=1)
        >>> limit.A
        array([[ 1. ,  0. ],
               [ 0. ,  1. ],
               [ 0.1, -0.1]])
        >>> limit.B
        array([ 1. ,  0.1, -0.1])
    """
    check_network(network, seed)
    if not network.has_explicit_form:
        raise ValueError(
            "`network` must have one Gaussian hidden matrix, Gaussian vectors, no residual branch, "
            f"and weights that move; got {network}"
        )
    steps = check_count("steps", steps)
    data = repeatable(data, steps)
    check_features(network, schedule(data))
    loss = resolve_loss(loss)
    sizes = checked_step_sizes(network, step_size, layer_step_sizes)
    tolerance = check_real("tolerance", tolerance, above=0.0)
    momentum = check_real("momentum", momentum, minimum=0.0)
    all_rows = exact_size(network.in_features, network.out_features, steps)
    adaptive = size is None and all_rows > _LARGEST_EXACT
    if size is None:
        size = _FIRST_SIZE if adaptive else all_rows
    size = check_count("size", size, max(network.in_features, network.out_features))
    while True:
        batch = descend(
            network,
            schedule(data),
            loss,
            sizes,
            steps,
            momentum,
            [seed],
            size,
            np.arange(steps + 1),
        )
        exact = size >= all_rows or band_limit(network, size).exhausted
        error = 0.0 if exact else float(batch.tail[0]) ** 2
        if not adaptive or exact or error <= tolerance or batch.diverged[0]:
            break
        size += size // 2
    B = batch.B[0]
    return LimitMatrices(
        network,
        steps,
        batch.A[0],
        batch.M[0] - batch.initial[0],
        B[:, 0] if network.out_features == 1 else B,
        batch.initial[0],
        batch.predictor[0],
        batch.loss[0],
        exact,
        error,
        bool(batch.diverged[0]),
    )
