r"""The neural ODE that a residual network with smooth weights becomes at infinite depth.

.. math:: \frac{dH}{dt} = \mathscr V_t\,g(H, \Theta_t), \qquad H_0 = h_0,

(R, Proposition 11) where :math:`V_{k+1} = \mathscr V_{k/L}`, :math:`W_{k+1} = \Theta_{k/L}` are
values of smooth processes and :math:`\alpha = 1/L`: the network is the explicit Euler scheme.
Rows of :math:`H` are states of the inputs. The gradient :math:`p` of a loss of :math:`H_1` obeys
the adjoint equation

.. math:: \frac{dp}{dt} = -\Bigl(\frac{\partial g}{\partial h}\Bigr)^{\!\top}
    \mathscr V_t^\top p, \qquad p_1 = \frac{\partial\,\mathrm{loss}}{\partial H_1}.

A smooth Gaussian process of squared-exponential kernel is a finite sum of waves to double
precision, so its weights can be asked for at any time, and an adaptive solver chooses its own.
"""

from __future__ import annotations

__all__ = ["LimitODE", "ODESolution", "SampledPath", "WavePath", "flow", "limit_ode"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy import integrate, interpolate
from torch import Tensor

from scalinglimits.laws import DepthLaw, SmoothIncrements, SmoothProcess
from scalinglimits.laws.streams import derive_seed
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import Activation, resolve_activation
from scalinglimits.residual.constants import lipschitz_constant
from scalinglimits.residual.model import BRANCHES, ResidualNetwork, branch_activation

_IMAGE_DISTANCE = 8.7
"""The nearest image of the periodic kernel, in length scales: e^(−c²/2) = 4e−17."""
_CUTOFF = 8.5
"""Waves of frequency above this over the length scale weigh less than e^(−36)."""


class WeightPath(Protocol):
    """Weights at any time in [0, 1]."""

    def at(self, t: float) -> np.ndarray:
        """Return the weights at one time.

        Args:
            t: the time.

        Returns:
            A float64 array of shape (d, d).
        """


class WavePath:
    r"""A smooth Gaussian process at any time, with kernel :math:`e^{-(s-t)^2/(2\ell^2)}` .

    With period :math:`P = 1 + 8.7\,\ell` the kernel is, on [0, 1] and to double precision, the
    cosine series of coefficients :math:`\propto e^{-\omega_j^2\ell^2/2}`,
    :math:`\omega_j = 2\pi j/P`; the process is the same series with independent normal factors.

    Args:
        shape: of the value at one time; each entry is an independent copy of variance
            ``variance``.
        length_scale: :math:`\ell`.
        variance: of an entry.
        derivative: take the derivative of the process, scaled to that variance: the limit of
            increments.
        seed: of the path.

    Raises:
        ValueError: if ``length_scale`` or ``variance`` is not positive and finite.

    Example:
        >>> path = WavePath((3, 3), 0.1, seed=0)
        >>> path.at(0.123).shape, bool(abs(path.at(0.5) - path.at(0.5 + 1e-6)).max() < 1e-4)
        ((3, 3), True)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        length_scale: float,
        *,
        variance: float = 1.0,
        derivative: bool = False,
        seed: int = 0,
    ) -> None:
        for name, value in (("length_scale", length_scale), ("variance", variance)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be a positive finite number; got {value!r}")
        period = 1 + _IMAGE_DISTANCE * length_scale
        count = math.ceil(_CUTOFF * period / (2 * math.pi * length_scale))
        self._omega = 2 * math.pi * np.arange(count + 1) / period
        weights = np.exp(-((self._omega * length_scale) ** 2) / 4)
        weights[1:] *= math.sqrt(2)
        if derivative:  # the waves of a derivative are waves again
            weights *= self._omega
        self._weights = weights * (math.sqrt(variance) / np.linalg.norm(weights))
        rng = np.random.default_rng(derive_seed(seed, "waves"))
        self._factors = rng.standard_normal((2 * count + 1, math.prod(shape)))
        self.shape = shape

    def at(self, t: float) -> np.ndarray:
        """Return the value at one time; see :class:`WeightPath`."""
        phases = self._omega * t
        waves = np.concatenate(
            [np.cos(phases) * self._weights, np.sin(phases[1:]) * self._weights[1:]]
        )
        value: np.ndarray = (waves @ self._factors).reshape(self.shape)
        return value


class SampledPath:
    """Weights known at the times k/L, joined by cubic splines and held after the last.

    Args:
        values: of shape (L, ...), the weights at 0, 1/L, …, (L−1)/L; at least four.

    Raises:
        ValueError: if there are fewer than four.

    Example:
        >>> path = SampledPath(np.arange(8.0).reshape(8, 1, 1) / 8)
        >>> float(path.at(0.3)[0, 0].round(12))
        0.3
    """

    def __init__(self, values: np.ndarray) -> None:
        if len(values) < 4:
            raise ValueError(f"`values` must have at least 4 layers; got {len(values)}")
        times = np.arange(len(values)) / len(values)
        self._spline = interpolate.CubicSpline(times, values, axis=0)

    def at(self, t: float) -> np.ndarray:
        """Return the value at one time; see :class:`WeightPath`."""
        value: np.ndarray = self._spline(t)
        return value


@dataclass(frozen=True, eq=False)
class LimitODE:
    r"""A neural ODE :math:`dH/dt = s\,\mathscr V_t\,g(H, \Theta_t)` .

    Attributes:
        width: :math:`d`.
        branch: "res-1", "res-2" or "res-3".
        activation: :math:`\sigma`.
        V: outer weights over time.
        W: inner weights over time; None for res-1.
        speed: :math:`s = L\alpha`; 1 at :math:`\beta = 1`.
    """

    width: int
    branch: str
    activation: Activation
    V: WeightPath
    W: WeightPath | None
    speed: float = 1.0

    def velocity(self, t: float, h: Tensor) -> Tensor:
        """Return the right side of the equation.

        Args:
            t: the time.
            h: states of shape (n, d), float64.

        Returns:
            Velocities of shape (n, d).
        """
        V = torch.from_numpy(self.V.at(t))
        z = h if self.W is None else h @ torch.from_numpy(self.W.at(t)).T
        return self.speed * (self.activation.function(z) @ V.T)

    def adjoint_velocity(self, t: float, h: Tensor, p: Tensor) -> Tensor:
        """Return the right side of the adjoint equation.

        Args:
            t: the time.
            h: states of shape (n, d), float64.
            p: gradients of shape (n, d).

        Returns:
            Velocities of the gradients.
        """
        q = p @ torch.from_numpy(self.V.at(t))
        if self.W is None:
            return -self.speed * self.activation.derivative(h) * q
        W = torch.from_numpy(self.W.at(t))
        return -self.speed * (self.activation.derivative(h @ W.T) * q) @ W

    def solve(
        self, start: Tensor, *, rtol: float = 1e-8, atol: float = 1e-10, method: str = "DOP853"
    ) -> ODESolution:
        """Solve the equation on [0, 1] by an adaptive method of SciPy.

        Args:
            start: :math:`h_0` of shape (n, d).
            rtol: relative tolerance of a step.
            atol: absolute tolerance of a step.
            method: of ``scipy.integrate.solve_ivp``.

        Returns:
            The solution at every time.

        Raises:
            ValueError: if ``start`` has the wrong shape or the solver fails.

        Example:
            >>> ode = limit_ode(width=8, branch="res-1", activation="tanh", seed=0)
            >>> solution = ode.solve(torch.ones(2, 8))
            >>> solution.states(1.0).shape, solution.gradients(torch.ones(2, 8))(0.0).shape
            (torch.Size([2, 8]), torch.Size([2, 8]))
        """
        if start.ndim != 2 or start.shape[1] != self.width:
            raise ValueError(f"`start` must have shape (n, {self.width}); got {tuple(start.shape)}")
        shape = tuple(start.shape)
        options = {"rtol": rtol, "atol": atol, "method": method}

        def right_side(t: float, y: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return self.velocity(t, torch.from_numpy(y).reshape(shape)).numpy().ravel()

        first = start.detach().to(torch.float64).cpu().numpy().ravel()
        return ODESolution(self, shape, *_solve(right_side, (0.0, 1.0), first, options), options)

    def network(self, depth: int, *, beta: float = 1.0) -> ResidualNetwork:
        r"""Return the network of a depth whose weights are values of the same processes.

        Args:
            depth: :math:`L`.
            beta: :math:`\alpha = s L^{-\beta}`; 1 is the Euler scheme of the equation.

        Returns:
            A network in float64 whose input weight is the identity.

        Raises:
            ValueError: if ``depth`` is not a positive integer.
        """
        depth = positive_integer("depth", depth)
        network = ResidualNetwork(
            self.width, self.width, depth, 1, branch=self.branch,
            activation=self.activation.function, branch_scale=self.speed * depth**-beta,
            weights=SmoothProcess(), generator=torch.Generator().manual_seed(0),
            dtype=torch.float64,
        )  # fmt: skip
        times = np.arange(depth) / depth
        with torch.no_grad():
            network.input_weight.copy_(torch.eye(self.width))
            network.V.copy_(torch.from_numpy(np.stack([self.V.at(t) for t in times])))
            if network.W is not None and self.W is not None:
                network.W.copy_(torch.from_numpy(np.stack([self.W.at(t) for t in times])))
        return network


@dataclass(frozen=True, eq=False)
class ODESolution:
    """A solution of a :class:`LimitODE` on [0, 1].

    Attributes:
        ode: the equation.
        shape: of the state, (n, d).
        dense: the solver's interpolant.
        evaluations: how often the right side was computed.
        options: of the solver.
    """

    ode: LimitODE
    shape: tuple[int, ...]
    dense: Callable[[float], np.ndarray]
    evaluations: int
    options: dict[str, Any]

    def states(self, t: float) -> Tensor:
        """Return the states at a time.

        Args:
            t: the time, in [0, 1].

        Returns:
            A float64 tensor of shape (n, d).
        """
        return torch.from_numpy(self.dense(t)).reshape(self.shape)

    def gradients(self, last: Tensor) -> Callable[[float], Tensor]:
        r"""Solve the adjoint equation backwards along this solution.

        Args:
            last: :math:`p_1 = \partial\,\mathrm{loss}/\partial H_1`, shape (n, d).

        Returns:
            The gradient with respect to the state at any time.

        Raises:
            ValueError: if ``last`` has the wrong shape or the solver fails.
        """
        if tuple(last.shape) != self.shape:
            raise ValueError(f"`last` must have shape {self.shape}; got {tuple(last.shape)}")

        def right_side(t: float, y: np.ndarray) -> np.ndarray:
            p = torch.from_numpy(y).reshape(self.shape)
            return self.ode.adjoint_velocity(t, self.states(t), p).numpy().ravel()

        end = last.detach().to(torch.float64).cpu().numpy().ravel()
        dense, _ = _solve(right_side, (1.0, 0.0), end, self.options)
        return lambda t: torch.from_numpy(dense(t)).reshape(self.shape)


class _Flow(torch.autograd.Function):
    """The map from H_0 to H_1, with the adjoint equation for its gradient."""

    @staticmethod
    def forward(ctx: Any, start: Tensor, ode: LimitODE, options: dict[str, Any]) -> Tensor:
        ctx.solution = ode.solve(start, **options)
        result: Tensor = ctx.solution.states(1.0).to(start)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (last,) = gradients
        return ctx.solution.gradients(last)(0.0).to(last), None, None


def flow(ode: LimitODE, start: Tensor, **options: Any) -> Tensor:
    r"""Return :math:`H_1`, differentiable with respect to :math:`H_0` .

    Args:
        ode: the equation.
        start: :math:`h_0` of shape (n, d).
        **options: of :meth:`LimitODE.solve`.

    Returns:
        The last states; their gradient comes from the adjoint equation.

    Example:
        >>> ode = limit_ode(width=4, branch="res-1", activation="tanh", seed=0)
        >>> start = torch.ones(1, 4, requires_grad=True)
        >>> flow(ode, start).sum().backward()
        >>> start.grad.shape
        torch.Size([1, 4])
    """
    result: Tensor = _Flow.apply(start, ode, options)
    return result


def limit_ode(
    network: ResidualNetwork | None = None,
    *,
    width: int | None = None,
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    weights: DepthLaw | None = None,
    seed: int = 0,
) -> LimitODE:
    r"""Return the ordinary differential equation that a residual network tends to.

    Args:
        network: join the weights of this network by splines. They must come from a smooth law.
        width: :math:`d`, if no network is given: then the weights are drawn, at all times.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch, Lipschitz; None is its default.
        weights: :class:`~scalinglimits.laws.SmoothProcess` (the default, length scale 0.1), or
            :class:`~scalinglimits.laws.SmoothIncrements`, whose limit is the process's
            derivative scaled to variance 1.
        seed: of the draw.

    Returns:
        The equation; the entries of :math:`\sqrt d\,\mathscr V` have variance 1.

    Raises:
        ValueError: if neither or both of ``network`` and ``width`` are given, the weights are
            not smooth, or the activation is not Lipschitz.
        TypeError: if ``network`` is not a :class:`ResidualNetwork`.

    Example:
        >>> ode = limit_ode(width=16, seed=0)
        >>> solution = ode.solve(torch.ones(1, 16))
        >>> with torch.no_grad():
        ...     error = ode.network(2000).hidden_states(torch.ones(1, 16).double())[-1]
        ...     error -= solution.states(1.0)
        >>> bool(error.norm() < 0.02)
        True
    """
    if (network is None) == (width is None):
        raise ValueError("`network` or `width` must be given, and not both")
    if network is not None and not isinstance(network, ResidualNetwork):
        raise TypeError(f"`network` must be a ResidualNetwork; got {type(network).__name__}")
    law = network.weights if network is not None else weights or SmoothProcess()
    if not isinstance(law, SmoothProcess | SmoothIncrements):
        raise ValueError(
            f"`weights` must be SmoothProcess or SmoothIncrements; got {law!r}: independent "
            "weights have a limit_sde, fractional ones a young_limit"
        )
    if network is not None:
        width, branch, activation = network.width, network.branch, network.activation
    if branch not in BRANCHES:
        raise ValueError(f"`branch` must be one of {', '.join(BRANCHES)}; got {branch!r}")
    function = branch_activation(branch, activation)
    if not math.isfinite(lipschitz_constant(function)):
        raise ValueError(f"`activation` must be Lipschitz continuous; got {activation!r}")
    sigma = resolve_activation(function)
    if network is not None:
        stacks = [
            None if stack is None else SampledPath(stack.detach().double().cpu().numpy())
            for stack in (network.V, network.W)
        ]
        speed = network.depth * network.branch_scale
        return LimitODE(network.width, branch, sigma, stacks[0], stacks[1], speed)  # type: ignore[arg-type]
    d = positive_integer("width", width)  # type: ignore[arg-type]
    paths = [
        WavePath(
            (d, d), law.length_scale, variance=1 / d, seed=derive_seed(seed, name),
            derivative=isinstance(law, SmoothIncrements),
        )
        for name in ("V", "W")
    ]  # fmt: skip
    return LimitODE(d, branch, sigma, paths[0], None if branch == "res-1" else paths[1])


def _solve(
    right_side: Callable[[float, np.ndarray], np.ndarray],
    span: tuple[float, float],
    start: np.ndarray,
    options: dict[str, Any],
) -> tuple[Callable[[float], np.ndarray], int]:
    result = integrate.solve_ivp(right_side, span, start, dense_output=True, **options)
    if not result.success:
        raise ValueError(f"`start` must lead to a solution on [0, 1]; got {result.message}")
    return result.sol, int(result.nfev)
