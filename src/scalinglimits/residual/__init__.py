r"""Residual networks at large depth.

Document: R, *Scaling ResNets in the Large-depth Regime*. A network
:math:`h_{k+1} = h_k + L^{-\beta} V_{k+1} g(h_k, W_{k+1})` of depth :math:`L` stays alive if
:math:`\beta` fits the dependence of its weights across depth.

- :class:`ResidualNetwork`: the model; :func:`propagate`: signal and gradient across depth;
- :func:`norm_ratio_samples`, :func:`limit_norm_law`: exact laws, no network built;
- :func:`response_moments`: exact second moments while the change is small;
- :func:`regime`: identity, non-trivial or explosion, and the exponent to choose;
- :func:`phase_diagram`: measured over Hurst index and exponent.
"""

from scalinglimits.residual.activations import ACTIVATIONS, ParametricReLU
from scalinglimits.residual.exact import limit_norm_law, norm_ratio_samples
from scalinglimits.residual.model import BRANCHES, ResidualNetwork
from scalinglimits.residual.phase import PhaseDiagram, phase_diagram
from scalinglimits.residual.propagation import Propagation, propagate, propagate_stacks
from scalinglimits.residual.regime import Regime, classify_change, regime
from scalinglimits.residual.response import ResponseMoments, response_moments

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
]
