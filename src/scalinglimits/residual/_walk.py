r"""Recursions of signal and gradient, column by column, without overflow or loss of digits.

Notation of R: hidden states :math:`h_k`, backward vectors :math:`p_k`, branch scale
:math:`\alpha`. Each vector is followed beside its change from the start, so that a change of
:math:`10^{-10}` keeps its digits and a vector that shrinks keeps its own. The power of two of its
size is carried apart where the recursion is positively homogeneous (always for :math:`p`; for
:math:`h` if :math:`\sigma` is), so that a ratio of :math:`10^{300}` is a number like any other.
"""

from __future__ import annotations

__all__ = ["Walk", "column_norms", "plan"]

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scalinglimits.residual.activations import Activation

_INTERVAL = 8
"""Layers after which a state is rescaled at the latest, before it shrinks out of the format."""
_MARGIN = 6.0
"""Natural log of what the bound on one layer leaves out: the start and the sum over a row."""
_DIGITS = 26
"""Binary digits that a change of the size of the branch scale must keep."""
_MOST_LIFTED = -100
"""Lowest exponent taken from a column at once: 2^100 is still a float32."""


class ScaledState:
    """A state and its change from the start, in columns, each with a power of two carried apart.

    The two are followed side by side: the state alone would lose the digits of a small change,
    and start plus change those of a state that shrinks.

    Args:
        start: shape (width, n_columns), no column zero.
        alpha: branch scale of each column.
        scaled: whether the recursion is positively homogeneous, so that a column may be divided
            by its size.
    """

    def __init__(self, start: Tensor, alpha: Tensor, scaled: bool) -> None:
        norm = column_norms(start)
        self.unit = (start / norm).to(start.dtype)
        self.norm = torch.ones_like(norm) if scaled else norm
        self.state = self.unit.clone() if scaled else start.clone()
        self.change = torch.zeros_like(self.state)
        self.alpha = self.change_alpha = alpha
        self.exponent = torch.zeros_like(alpha, dtype=torch.int32)
        self.change_exponent = torch.zeros_like(self.exponent)

    def add(self, branch: Tensor) -> None:
        """Add α times the branch, which was computed from the state."""
        self.state.addcmul_(branch, self.alpha)
        self.change.addcmul_(branch, self.change_alpha)

    def rescale(self) -> None:
        """Move the power of two of each column's size to its exponent: exact in any format."""
        self.exponent += _normalise(self.state, torch.full_like(self.exponent, _MOST_LIFTED))
        # A small change stays as it is, since the next layers add to it at the state's scale.
        self.change_exponent += _normalise(self.change, -self.change_exponent)
        self.change_alpha = torch.ldexp(self.alpha, self.exponent - self.change_exponent)

    def log_norms(self) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the norms of the state and of its change, over the start's."""
        state = column_norms(self.state) / self.norm
        change = column_norms(self.change) / self.norm
        # Near the start, log‖h‖ from the change: ‖h‖² = 1 + 2⟨h_0, h − h_0⟩ + ‖h − h_0‖²
        along = (self.unit * self.change).sum(0, dtype=torch.float64) / self.norm
        near = (change < 0.5) & (self.change_exponent == 0)
        log_near = torch.where(near, (2 * along + change**2).log1p() / 2, 0.0)
        log_state = torch.where(near, log_near, state.log() + self.exponent.double() * math.log(2))
        return log_state, change.log() + self.change_exponent.double() * math.log(2)


def column_norms(x: Tensor) -> Tensor:
    """Return the norms of columns in float64, where squares of float32 do not overflow."""
    return torch.linalg.vector_norm(x, dim=0, dtype=torch.float64)


def _normalise(x: Tensor, lowest: Tensor) -> Tensor:
    """Divide columns by the power of two of their size, in place; return its exponents."""
    exponent = torch.maximum(torch.frexp(x.abs().amax(0)).exponent, lowest)
    x *= torch.ldexp(torch.ones_like(x[0]), -exponent)
    return exponent


class Walk:
    """One block of columns, forwards and backwards through the stacks."""

    def __init__(
        self,
        V: Tensor,
        W: Tensor | None,
        alpha: Tensor,
        activation: Activation,
        recorded: list[int],
        interval: int,
    ) -> None:
        self.V, self.W, self.alpha, self.activation = V, W, alpha, activation
        self.wanted, self.interval = set(recorded), interval
        self.depth = V.shape[0]
        self.derivatives: Tensor | None = None

    def forward(self, h_0: Tensor, keep_derivatives: bool) -> tuple[Tensor, Tensor]:
        slopes = self.activation.slopes
        h = ScaledState(h_0, self.alpha, scaled=slopes is not None)
        if keep_derivatives:
            kind = torch.bool if slopes is not None else h_0.dtype
            self.derivatives = torch.empty((self.depth, *h_0.shape), dtype=kind, device=h_0.device)
        logs = {0: h.log_norms()} if 0 in self.wanted else {}
        for k in range(self.depth):
            z = h.state if self.W is None else self.W[k] @ h.state
            if self.derivatives is not None:
                if slopes is not None:
                    torch.gt(z, 0, out=self.derivatives[k])
                else:
                    self.derivatives[k] = self.activation.derivative(z)
            h.add(self.V[k] @ self._activate(z))
            if slopes is not None and (k + 1) % self.interval == 0:
                h.rescale()
            if k + 1 in self.wanted:
                logs[k + 1] = h.log_norms()
        return self._stack(logs)

    def backward(self, p_L: Tensor) -> tuple[Tensor, Tensor]:
        assert self.derivatives is not None
        slopes = self.activation.slopes
        p = ScaledState(p_L, self.alpha, scaled=True)
        logs = {self.depth: p.log_norms()} if self.depth in self.wanted else {}
        for k in reversed(range(self.depth)):
            q = self.V[k].T @ p.state
            if slopes is None or slopes == (1.0, 0.0):
                q *= self.derivatives[k]
            else:
                q = torch.where(self.derivatives[k], slopes[0] * q, slopes[1] * q)
            p.add(q if self.W is None else self.W[k].T @ q)
            if k % self.interval == 0:
                p.rescale()
            if k in self.wanted:
                logs[k] = p.log_norms()
        return self._stack(logs)

    def _activate(self, z: Tensor) -> Tensor:
        slopes = self.activation.slopes
        if slopes is None:
            return self.activation.function(z)
        if slopes[0] == 1.0:
            return functional.leaky_relu(z, slopes[1])
        return torch.where(z > 0, slopes[0] * z, slopes[1] * z)

    def _stack(self, logs: dict[int, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        state, change = (
            torch.stack(group) for group in zip(*map(logs.get, sorted(logs)), strict=True)
        )
        if self.activation.slopes is None:  # inf − inf after an overflow
            return _nan_to_inf(state), _nan_to_inf(change)
        return state, change


def _nan_to_inf(log: Tensor) -> Tensor:
    return torch.where(log.isnan(), torch.inf, log)


def _largest(weights: Tensor | None) -> float:
    """Return the largest Frobenius norm of a layer, or 1 if there are no weights."""
    if weights is None:
        return 1.0
    norms = torch.linalg.vector_norm(weights.flatten(1), dim=1, dtype=torch.float64)
    if not bool(torch.isfinite(norms).all()):
        raise ValueError("`network` must have finite weights; got NaN or infinity in V or W")
    return float(norms.max())


def plan(
    V: Tensor, W: Tensor | None, branch_scale: np.ndarray, activation: Activation
) -> tuple[torch.dtype, int]:
    """Return the format in which no layer overflows, and after how many layers to rescale.

    A layer multiplies a norm by at most 1 + α·lip·‖V‖·‖W‖ (Frobenius norms); lip is not known
    where σ is not positively homogeneous, and one rescales after each layer.
    """
    v, w = _largest(V), _largest(W)
    lip = 1.0 if activation.slopes is None else max(map(abs, activation.slopes))
    with np.errstate(over="ignore"):
        growth = float(np.log1p(np.abs(branch_scale).max() * np.float64(lip) * v * w))
    # within a layer, before α and the smaller of the weights come in
    peak = sum(math.log(max(1.0, factor)) for factor in (v, w, lip))
    smallest = np.abs(branch_scale[branch_scale != 0]).min(initial=1.0)
    for dtype in (V.dtype, torch.float64):
        largest = math.log(torch.finfo(dtype).max)
        if dtype == torch.float64:  # norms are taken in it, hence squares
            largest /= 2
        room = largest - _MARGIN - peak
        if growth <= room and smallest > torch.finfo(dtype).tiny * 2.0**_DIGITS:
            interval = min(_INTERVAL, int(room / growth) if growth else _INTERVAL)
            return dtype, 1 if activation.slopes is None else interval
    raise ValueError(
        "`beta` must leave one layer within the range of float64; got branch scales from "
        f"{smallest:.3g} to {np.abs(branch_scale).max():.3g} with weights of norm {v * w:.3g}"
    )
