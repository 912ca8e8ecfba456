"""Deep linear networks at any width, infinite included."""

from .batches import MiniBatches
from .losses import Loss, huber, logistic, square
from .measures import EmpiricalData, GaussianData, Measure
from .network import PARAMETRIZATIONS, LinearNetwork, Scales
from .state import NetworkState, Weights
from .training import train
from .trajectory import Trajectory

__all__ = [
    "PARAMETRIZATIONS",
    "EmpiricalData",
    "GaussianData",
    "LinearNetwork",
    "Loss",
    "Measure",
    "MiniBatches",
    "NetworkState",
    "Scales",
    "Trajectory",
    "Weights",
    "huber",
    "logistic",
    "square",
    "train",
]
