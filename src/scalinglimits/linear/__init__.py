"""Deep linear networks at any width, infinite included."""

from .banded import band_matrix
from .batches import MiniBatches
from .convergence import WidthConvergence, width_convergence
from .explicit import LimitMatrices, explicit_limit
from .flow import gradient_flow
from .losses import Loss, huber, logistic, square
from .measures import EmpiricalData, GaussianData, Measure
from .network import PARAMETRIZATIONS, LinearNetwork, Scales
from .replicates import Replicates, train_replicates
from .state import NetworkState, Weights
from .training import train
from .trajectory import Trajectory

__all__ = [
    "PARAMETRIZATIONS",
    "EmpiricalData",
    "GaussianData",
    "LimitMatrices",
    "LinearNetwork",
    "Loss",
    "Measure",
    "MiniBatches",
    "NetworkState",
    "Replicates",
    "Scales",
    "Trajectory",
    "Weights",
    "WidthConvergence",
    "band_matrix",
    "explicit_limit",
    "gradient_flow",
    "huber",
    "logistic",
    "square",
    "train",
    "train_replicates",
    "width_convergence",
]
