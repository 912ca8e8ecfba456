r"""Residual networks at large depth.

Document: R, *Scaling ResNets in the Large-depth Regime*. A network
:math:`h_{k+1} = h_k + L^{-\beta} V_{k+1} g(h_k, W_{k+1})` of depth :math:`L` stays alive if
:math:`\beta` fits the dependence of its weights across depth.

- :class:`ResidualNetwork`: the model; :func:`propagate`: signal and gradient across depth;
- :func:`norm_ratio_samples`, :func:`limit_norm_law`: exact laws, no network built;
- :func:`response_moments`: exact second moments while the change is small;
- :func:`regime`: identity, non-trivial or explosion, and the exponent to choose;
- :func:`phase_diagram`: measured over Hurst index and exponent;
- :class:`NormLaw`, :func:`log_normality`: the exact law as a distribution, without sampling;
- :mod:`~scalinglimits.residual.bounds`, :func:`check_assumptions`: R's theorems as numbers;
- :func:`limit_sde`, :func:`limit_ode`, :func:`young_limit`: the limits in continuous depth, and
  :func:`depth_convergence`, :func:`weak_convergence`: how fast networks reach them.
"""

from scalinglimits.residual import bounds, sde
from scalinglimits.residual.activations import ACTIVATIONS, ParametricReLU
from scalinglimits.residual.assumptions import Assumption, AssumptionCheck, check_assumptions
from scalinglimits.residual.changes import LimitChanges, limit_changes
from scalinglimits.residual.constants import (
    BranchConstants,
    branch_constants,
    lipschitz_constant,
)
from scalinglimits.residual.convergence import (
    DepthConvergence,
    OrderFit,
    depth_convergence,
    weak_convergence,
)
from scalinglimits.residual.exact import limit_norm_law, norm_ratio_samples
from scalinglimits.residual.model import BRANCHES, ResidualNetwork
from scalinglimits.residual.norm_law import LogNormality, NormLaw, log_normality
from scalinglimits.residual.ode import LimitODE, ODESolution, limit_ode
from scalinglimits.residual.phase import PhaseDiagram, phase_diagram
from scalinglimits.residual.propagation import Propagation, propagate, propagate_stacks
from scalinglimits.residual.regime import Regime, classify_change, regime
from scalinglimits.residual.response import ResponseMoments, response_moments
from scalinglimits.residual.rough import FractionalPath, YoungLimit, young_limit
from scalinglimits.residual.sde import limit_sde

__all__ = [
    "ResidualNetwork",
    "BRANCHES",
    "ACTIVATIONS",
    "ParametricReLU",
    "propagate",
    "propagate_stacks",
    "Propagation",
    "norm_ratio_samples",
    "limit_norm_law",
    "response_moments",
    "ResponseMoments",
    "regime",
    "Regime",
    "classify_change",
    "phase_diagram",
    "PhaseDiagram",
    "bounds",
    "sde",
    "Assumption",
    "AssumptionCheck",
    "check_assumptions",
    "BranchConstants",
    "branch_constants",
    "lipschitz_constant",
    "NormLaw",
    "LogNormality",
    "log_normality",
    "limit_sde",
    "LimitChanges",
    "limit_changes",
    "LimitODE",
    "ODESolution",
    "limit_ode",
    "FractionalPath",
    "YoungLimit",
    "young_limit",
    "DepthConvergence",
    "OrderFit",
    "depth_convergence",
    "weak_convergence",
]
