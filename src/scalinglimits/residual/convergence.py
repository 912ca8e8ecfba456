r"""How fast finite networks approach their limits: orders of convergence in the depth.

The error of a depth :math:`L` is, on one path of the weights,

.. math:: \frac{\|H_1-h_L\|}{\|h_0\|}, \qquad
    \frac{\|\partial_{h_0}\langle b, H_1\rangle - \partial_{h_0}\langle b, h_L\rangle\|}{\|b\|},

for the states (of the ODE the supremum over all :math:`H_{k/L}-h_k`, as in R, Proposition 11; a
supremum over the few layers of a shallow network would bend the slope of a rough path) and for
the gradient of a random direction :math:`b` of the output. Its mean over
paths falls as :math:`L^{-\text{order}}`: ½ for the SDE (R, Proposition 10), 1 for the ODE
(Proposition 11), :math:`2H-1` for the Young equation of fractional weights. The gradient has the
same order where :math:`\sigma` is smooth. A kink of :math:`\sigma` is seen by the SDE's gradient
alone: states that are :math:`\varepsilon` apart lie on two sides of it for a time
:math:`\varepsilon`, so the mean square of the gradient's error is of order
:math:`\varepsilon = L^{-1/2}`, and its order is ¼.
"""

from __future__ import annotations

__all__ = ["DepthConvergence", "OrderFit", "depth_convergence", "weak_convergence"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor

from scalinglimits.laws import SmoothProcess
from scalinglimits.laws.streams import derive_seed, substream
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.model import ResidualNetwork, branch_activation
from scalinglimits.residual.norm_law import NormLaw
from scalinglimits.residual.ode import flow, limit_ode
from scalinglimits.residual.rough import FractionalPath, young_limit
from scalinglimits.residual.sde import BrownianPath, EulerMaruyama, MatrixSDE, limit_sde

Run = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class OrderFit:
    """An order of convergence fitted to errors.

    Attributes:
        depths: the depths, shape (n,).
        errors: one row per replicate, shape (replicates, n).
        order: minus the slope of log mean error against log depth.
        interval: 95 % confidence interval, by the jackknife over replicates; for a single row
            without noise, the range of the orders between neighbouring depths.
        theory: the order that theory gives; NaN where there is none.
    """

    depths: np.ndarray
    errors: np.ndarray
    order: float
    interval: tuple[float, float]
    theory: float

    @property
    def mean(self) -> np.ndarray:
        """Mean error at each depth."""
        mean: np.ndarray = self.errors.mean(axis=0)
        return mean

    @property
    def standard_error(self) -> np.ndarray:
        """Standard error of the mean; NaN for one replicate."""
        if len(self.errors) < 2:
            return np.full(len(self.depths), math.nan)
        spread: np.ndarray = self.errors.std(axis=0, ddof=1) / math.sqrt(len(self.errors))
        return spread


@dataclass(frozen=True, eq=False)
class DepthConvergence:
    """Errors of finite networks against their limit.

    Attributes:
        kind: "sde", "ode" or "young".
        states: of the hidden states.
        gradient: of the gradient.
    """

    kind: str
    states: OrderFit
    gradient: OrderFit

    def to_frame(self) -> pd.DataFrame:
        """Return one row per quantity and depth.

        Returns:
            Columns ``kind, quantity, depth, error, standard_error, order, theory``.
        """
        rows = [
            (self.kind, name, depth, error, spread, fit.order, fit.theory)
            for name, fit in (("states", self.states), ("gradient", self.gradient))
            for depth, error, spread in zip(
                fit.depths.tolist(), fit.mean, fit.standard_error, strict=True
            )
        ]
        names = ["kind", "quantity", "depth", "error", "standard_error", "order", "theory"]
        return pd.DataFrame(rows, columns=names)


def depth_convergence(
    kind: Literal["sde", "ode", "young"],
    depths: Sequence[int],
    *,
    width: int,
    branch: str = "res-1",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    n_inputs: int = 1,
    replicates: int = 20,
    reference: int | None = None,
    length_scale: float = 0.1,
    hurst: float = 0.75,
    seed: int = 0,
) -> DepthConvergence:
    r"""Measure the error of networks of several depths against their limit, on the same weights.

    Args:
        kind: "sde" (independent Gaussian weights, β = ½), "ode" (smooth weights, β = 1) or
            "young" (fractional weights, β = H).
        depths: values of L, at least two; for "sde" and "young" divisors of ``reference``.
        width: :math:`d`.
        branch: any for "ode"; for the others res-1, where a common path exists.
        activation: of the branch.
        n_inputs: standard normal states :math:`h_0`, all on one path.
        replicates: independent paths.
        reference: steps of the fine scheme that stands for the limit; None is 16 times the
            largest depth. The ODE is solved adaptively instead, to nine digits. For "young" the
            fine scheme is the modified one, of higher order.
        length_scale: of the smooth weights.
        hurst: of the fractional weights, in (½, 1).
        seed: of everything.

    Returns:
        The errors and fitted orders.

    Raises:
        ValueError: if the kind is unknown, fewer than two depths are given, a depth does not
            divide the reference, or the branch has no common path with its limit.

    Example:
        >>> record = depth_convergence("ode", [64, 128, 256], width=8, activation="tanh",
        ...                            replicates=2, length_scale=0.5)
        >>> abs(record.states.order - 1) < 0.1
        True
    """
    if kind not in ("sde", "ode", "young"):
        raise ValueError(f"`kind` must be 'sde', 'ode' or 'young'; got {kind!r}")
    sizes = [positive_integer("depths", depth) for depth in depths]
    if len(set(sizes)) < 2:
        raise ValueError(f"`depths` must hold two different depths at least; got {depths!r}")
    count = positive_integer("replicates", replicates)
    shape = (positive_integer("n_inputs", n_inputs), positive_integer("width", width))
    if kind != "ode" and branch != "res-1":
        raise ValueError(
            f"`branch` must be 'res-1' for {kind!r}, where network and limit share a path; "
            f"got {branch!r}: compare laws instead"
        )
    slopes = resolve_activation(branch_activation(branch, activation)).slopes
    kinked = slopes is not None and slopes[0] != slopes[1]
    fine = 16 * max(sizes) if reference is None else positive_integer("reference", reference)
    if kind != "ode" and any(fine % size for size in sizes):
        raise ValueError(f"`depths` must divide the reference of {fine} steps; got {depths!r}")
    if kind == "ode":
        parts = [
            _ode_errors(sizes, shape, branch, activation, length_scale, derive_seed(seed, i))
            for i in range(count)
        ]
        errors = [np.concatenate(group) for group in zip(*parts, strict=True)]
        orders = (1.0, 1.0)
    elif kind == "sde":
        sde = limit_sde(width=width, branch=branch, activation=activation)
        path = BrownianPath((count, width, width), steps=fine, seed=seed, dtype=torch.float64)
        run = _sde_run(sde, path)
        errors = _path_errors(run, run, sizes, fine, (count, *shape), seed)
        strong = EulerMaruyama.strong_order
        orders = (strong, strong / 2 if kinked else strong)
    else:
        limit = young_limit(hurst, width=width, branch=branch, activation=activation)
        motion = FractionalPath((count, width, width), fine, hurst, seed=seed)
        errors = _path_errors(
            lambda h, n: limit.scheme(h, motion.increments(n)),
            lambda h, n: limit.scheme(h, motion.increments(n), modified=True),
            sizes, fine, (count, *shape), seed,
        )  # fmt: skip
        orders = (limit.euler_order, math.nan if kinked else limit.euler_order)
    states, gradient = (
        fit_order(sizes, error, order) for error, order in zip(errors, orders, strict=True)
    )
    return DepthConvergence(kind, states, gradient)


def weak_convergence(
    depths: Sequence[int],
    *,
    width: int,
    moment: int = 1,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
) -> OrderFit:
    r"""Compute the weak error :math:`|E\rho_L^{2s} - E\rho_\infty^{2s}|` of the norm ratio.

    Both means are exact: :math:`M(s)^L` of the network (Gaussian weights, :math:`\beta = ½`) and
    :math:`\exp(cs(1-2/d) + 2cs^2/d)` of the log-normal limit. No sampling.

    Args:
        depths: values of L, at least two.
        width: :math:`d`.
        moment: :math:`s`.
        branch: "res-3" or "res-2".
        activation: of res-2, positively homogeneous.

    Returns:
        The errors and the order, which is 1.

    Raises:
        ValueError: if a number is not a positive integer or the branch has no exact law.

    Example:
        >>> round(weak_convergence([1000, 10_000], width=40).order, 2)
        1.0
    """
    sizes = [positive_integer("depths", depth) for depth in depths]
    s = positive_integer("moment", moment)
    errors = []
    for depth in sizes:
        law = NormLaw(width, depth, beta=0.5, branch=branch, activation=activation)
        c = (law.slopes[0] ** 2 + law.slopes[1] ** 2) / 2
        limit = c * s * (1 - 2 / law.width) + 2 * c * s**2 / law.width
        errors.append(abs(math.exp(law.log_moment(s)) - math.exp(limit)))
    return fit_order(sizes, np.array([errors]), EulerMaruyama.weak_order)


def fit_order(depths: Sequence[int], errors: np.ndarray, theory: float) -> OrderFit:
    """Fit an order to errors of replicates.

    Args:
        depths: the depths.
        errors: shape (replicates, depths).
        theory: the order to compare with.

    Returns:
        The fit.
    """
    x = np.log(np.asarray(depths, dtype=np.float64))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()

    def order(mean: np.ndarray) -> Any:
        return -(np.log(mean) @ weights)

    n = len(errors)
    estimate = float(order(errors.mean(axis=0)))
    if n > 1:
        without = (errors.sum(axis=0) - errors) / (n - 1)
        jackknife = order(without)
        spread = math.sqrt((n - 1) / n * float(((jackknife - jackknife.mean()) ** 2).sum()))
        half = float(stats.t.ppf(0.975, n - 1)) * spread
        interval = (estimate - half, estimate + half)
    else:
        local = -np.diff(np.log(errors[0])) / np.diff(x)
        interval = (float(local.min()), float(local.max()))
    return OrderFit(np.asarray(depths), errors, estimate, interval, theory)


def _sde_run(sde: Any, path: BrownianPath) -> Run:
    scheme = EulerMaruyama()
    assert isinstance(sde, MatrixSDE)

    def run(start: Tensor, steps: int) -> Tensor:
        states, h = [start], path.horizon / steps
        for block in path.blocks(steps):
            for dB in block.unbind(0):
                states.append(scheme.step(sde, len(states) * h, states[-1], h, dB))
        return torch.stack(states)

    return run


def _path_errors(
    run: Run, exact: Run, sizes: Sequence[int], fine: int, shape: tuple[int, ...], seed: int
) -> list[np.ndarray]:
    """Return the errors of states and gradient, each of shape (replicates, depths)."""
    generator = substream(seed, "start")
    start = torch.randn(shape, generator=generator, dtype=torch.float64)
    b = torch.randn(shape, generator=generator, dtype=torch.float64)
    truth, slope = _states_and_gradient(exact, start, b, fine)
    states, gradients = [], []
    for size in sizes:
        h, p = _states_and_gradient(run, start, b, size)
        states.append(((h[-1] - truth[-1]).norm(dim=-1) / start.norm(dim=-1)).mean(-1).numpy())
        gradients.append(((p - slope).norm(dim=-1) / b.norm(dim=-1)).mean(-1).numpy())
    return [np.stack(states, axis=1), np.stack(gradients, axis=1)]


def _states_and_gradient(run: Run, start: Tensor, b: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    leaf = start.clone().requires_grad_(True)
    states = run(leaf, steps)
    (gradient,) = torch.autograd.grad((states[-1] * b).sum(), leaf)
    return states.detach(), gradient


def _network_run(network: ResidualNetwork) -> Run:
    return lambda start, _: network.hidden_states(start)


def _ode_errors(
    sizes: Sequence[int],
    shape: tuple[int, int],
    branch: str,
    activation: str | Callable[[Tensor], Tensor] | None,
    length_scale: float,
    seed: int,
) -> list[np.ndarray]:
    ode = limit_ode(
        width=shape[1], branch=branch, activation=activation,
        weights=SmoothProcess(length_scale), seed=seed,
    )  # fmt: skip
    generator = substream(seed, "start")
    start = torch.randn(shape, generator=generator, dtype=torch.float64)
    b = torch.randn(shape, generator=generator, dtype=torch.float64)
    tight = {"rtol": 1e-9, "atol": 1e-11}
    solution = ode.solve(start, **tight)  # type: ignore[arg-type]
    leaf = start.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad((flow(ode, leaf, **tight) * b).sum(), leaf)
    states, gradients = [], []
    for size in sizes:
        network = ode.network(size).requires_grad_(False)
        h, p = _states_and_gradient(_network_run(network), start, b, size)
        truth = torch.stack([solution.states(k / size) for k in range(size + 1)])
        states.append(((h - truth).norm(dim=-1) / start.norm(dim=-1)).amax(0).mean())
        gradients.append(((p - slope).norm(dim=-1) / b.norm(dim=-1)).mean())
    return [torch.stack(values)[None].numpy() for values in (states, gradients)]
