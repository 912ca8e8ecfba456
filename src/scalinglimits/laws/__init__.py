"""Random weights: laws of one entry, dependence across depth, and estimation of the latter."""

from scalinglimits.laws import fans
from scalinglimits.laws.depth import (
    DepthLaw,
    FractionalIncrements,
    Independent,
    SmoothIncrements,
    SmoothProcess,
)
from scalinglimits.laws.entries import EntryLaw, Normal, Rademacher, TruncatedNormal, Uniform
from scalinglimits.laws.fans import Fans, average_fan
from scalinglimits.laws.fractional import (
    fgn_autocovariance,
    fractional_brownian_motion,
    fractional_gaussian_noise,
)
from scalinglimits.laws.hurst import HurstEstimate, estimate_hurst

__all__ = [
    "DepthLaw",
    "EntryLaw",
    "Fans",
    "FractionalIncrements",
    "HurstEstimate",
    "Independent",
    "Normal",
    "Rademacher",
    "SmoothIncrements",
    "SmoothProcess",
    "TruncatedNormal",
    "Uniform",
    "average_fan",
    "estimate_hurst",
    "fans",
    "fgn_autocovariance",
    "fractional_brownian_motion",
    "fractional_gaussian_noise",
]
