r"""The change of signal and gradient in the limits themselves: what finite networks tend to.

.. math:: \frac{\|H_1-H_0\|}{\|H_0\|}, \qquad \frac{\|p_0-p_1\|}{\|p_1\|}
"""

from __future__ import annotations

__all__ = ["LimitChanges", "limit_changes"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from scalinglimits.laws import SmoothProcess
from scalinglimits.laws.streams import derive_seed, substream
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.ode import limit_ode
from scalinglimits.residual.sde import BrownianPath, integrate, limit_sde


@dataclass(frozen=True, eq=False)
class LimitChanges:
    r"""Samples of the changes in a limit.

    Attributes:
        hidden: :math:`\|H_1-H_0\|/\|H_0\|`, one for each draw of the weights.
        gradient: :math:`\|p_0-p_1\|/\|p_1\|`; empty for the SDE.
    """

    hidden: np.ndarray
    gradient: np.ndarray


def limit_changes(
    kind: Literal["sde", "ode"],
    *,
    width: int,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    replicates: int = 50,
    steps: int = 512,
    length_scale: float = 0.1,
    seed: int = 0,
) -> LimitChanges:
    r"""Sample how much the signal, and for the ODE the gradient, changes in the limit.

    Args:
        kind: "sde" (independent weights, β = ½) or "ode" (smooth weights, β = 1).
        width: :math:`d`.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch; None is its default.
        replicates: independent draws of weights, start and output direction.
        steps: of the scheme for the SDE, whose weak error is of order 1/steps.
        length_scale: of the smooth weights.
        seed: of everything.

    Returns:
        The samples.

    Raises:
        ValueError: if the kind or the branch is unknown or a count is not a positive integer.

    Example:
        >>> changes = limit_changes("sde", width=40, replicates=200).hidden
        >>> 0.7 < float(np.median(changes)) < 0.9  # √(√e − 1) = 0.805 in the mean square
        True
    """
    if kind not in ("sde", "ode"):
        raise ValueError(f"`kind` must be 'sde' or 'ode'; got {kind!r}")
    count = positive_integer("replicates", replicates)
    generator = substream(seed, "start")
    like = {"generator": generator, "dtype": torch.float64}
    start = torch.randn((count, 1, positive_integer("width", width)), **like)  # type: ignore[call-overload]
    last = torch.randn(start.shape, **like)  # type: ignore[call-overload]
    if kind == "sde":
        sde = limit_sde(width=width, branch=branch, activation=activation)
        path = BrownianPath(
            (count, *sde.noise_shape(1)), steps=steps, seed=seed, dtype=torch.float64
        )
        end = integrate(sde, start, path)
        return LimitChanges(_ratio(end - start, start), np.empty(0))
    hidden, gradient = [], []
    for i in range(count):
        ode = limit_ode(
            width=width, branch=branch, activation=activation,
            weights=SmoothProcess(length_scale), seed=derive_seed(seed, i),
        )  # fmt: skip
        solution = ode.solve(start[i], rtol=1e-4, atol=1e-6, method="RK45")
        hidden.append(_ratio(solution.states(1.0) - start[i], start[i]))
        gradient.append(_ratio(solution.gradients(last[i])(0.0) - last[i], last[i]))
    return LimitChanges(np.concatenate(hidden), np.concatenate(gradient))


def _ratio(change: Tensor, base: Tensor) -> np.ndarray:
    result: np.ndarray = (change.norm(dim=-1) / base.norm(dim=-1)).flatten().numpy()
    return result
