"""The record of a training run.

Norms are those of the scaled variables of order one, as in "Infinite-width limit of deep linear
neural networks" (L), (2.3): `|U|^2 / m`, `|W_l|^2 / m^2`, `|V|^2 / m`.
"""

from __future__ import annotations

__all__ = ["Trajectory"]

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from .network import LinearNetwork
from .state import NetworkState


@dataclass(frozen=True)
class Trajectory:
    r"""What happened in a training run; `T` is the number of recorded points.

    Attributes:
        network: the network.
        predictor: the linear predictor, shape `(T, d)`, or `(T, d, o)` with several outputs.
        loss: the mean loss, shape `(T,)`; NaN if the loss has no value.
        u_square: `|U|^2 / m`, shape `(T,)`.
        w_square: `|W_l|^2 / (m_l m_{l-1})` of the trained parts, shape `(T, hidden)`.
        v_square: `|V|^2 / m`, shape `(T,)`.
        alignment: cosine between the forward signal `f_l xi` and the backward signal `b_l` at each
            layer, shape `(T, hidden + 1)`; zero where one of them is.
        dimensions: basis vectors in use at each layer, shape `(T, hidden + 1)`.
        error_estimate: estimate, to first order, of the error of the predictor that is due to the
            tolerance of the bases, shape `(T,)`.
        times: step numbers, or times of a gradient flow, shape `(T,)`.
        status: `"completed"`, `"stopped"` (by `stop_at`) or `"diverged"`; also `"step_limit"` for a
            gradient flow that needs more steps than it may take.
        stop_step: the step at which it ended. After a divergence it is the step whose predictor is
            not recorded, since it was too large.
        state: the weights at the end; `None` after a divergence, or in a kernel limit.
        states: the weights at the steps asked for.
        evaluations: number of gradients computed.
    """

    network: LinearNetwork
    predictor: np.ndarray
    loss: np.ndarray
    u_square: np.ndarray
    w_square: np.ndarray
    v_square: np.ndarray
    alignment: np.ndarray
    dimensions: np.ndarray
    error_estimate: np.ndarray
    times: np.ndarray
    status: str
    stop_step: int
    state: NetworkState | None = None
    states: Mapping[int, NetworkState] = field(default_factory=dict)
    evaluations: int = 0

    @property
    def diverged(self) -> bool:
        """Whether training diverged."""
        return self.status == "diverged"
