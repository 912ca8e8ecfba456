"""Deep linear networks at any width, infinite included.

A `LinearNetwork` is trained by the same recursion at every width, in coordinates that grow by about
one a product:

    data = EmpiricalData(X, y)                      # or GaussianData, MiniBatches, a sequence
    train(LinearNetwork(d), data, step_size=0.1, steps=100)                       # the limit
    train(LinearNetwork(d, width=10**12), data, step_size=0.1, steps=100, seed=0)
    gradient_flow(LinearNetwork(d), data, times=[1.0, 10.0])

both giving a `Trajectory`: predictor, loss, norms, alignments, dimensions used, error estimate and
state, whose `entries(q)` are the weights of the first neurons.

    train_replicates(network, data, replicates=1000, step_size=0.1, steps=100, seed=0, n_jobs=-1)
    width_convergence(network, data, widths=[10, 1000], replicates=100, ...)      # exponents
    explicit_limit(network, data, step_size=0.1, steps=10)                        # A, G, B

For the theory see `docs/linear.md`; letters and equation numbers are those of "Infinite-width limit
of deep linear neural networks" (L).
"""

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
