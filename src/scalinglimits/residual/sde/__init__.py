r"""Stochastic differential equations that residual networks tend to, and their simulation.

- :func:`limit_sde`: the limit of a network with independent weights (R, Proposition 10, and its
  extension to res-2 and res-3); :class:`NormSDE`: of the norm alone;
- :class:`BrownianPath`: noise that can be made finer without changing it;
- :func:`integrate` with :class:`EulerMaruyama` or :class:`Milstein`;
- :func:`coupled_network`: the finite network on the same path.
"""

from scalinglimits.residual.sde.brownian import BrownianPath
from scalinglimits.residual.sde.limits import (
    KernelSDE,
    LimitSDE,
    MatrixSDE,
    NormSDE,
    coupled_network,
    gaussian_kernel,
    limit_sde,
)
from scalinglimits.residual.sde.solvers import SDE, EulerMaruyama, Milstein, Solver, integrate

__all__ = [
    "BrownianPath",
    "EulerMaruyama",
    "KernelSDE",
    "LimitSDE",
    "MatrixSDE",
    "Milstein",
    "NormSDE",
    "SDE",
    "Solver",
    "coupled_network",
    "gaussian_kernel",
    "integrate",
    "limit_sde",
]
