"""Scaling limits of neural networks: keep them alive as they grow, know what they become.

Subpackages are imported when they are first used, so that ``import scalinglimits`` costs
neither torch nor matplotlib:

- :mod:`scalinglimits.laws`: random weights, and their dependence across depth;
- :mod:`scalinglimits.matrices`: random matrices of any width, sampled by their products;
- :mod:`scalinglimits.linear`: deep linear networks of any width, infinity included;
- :mod:`scalinglimits.residual`: residual networks at large depth;
- :mod:`scalinglimits.init`: initialisers for tensors, layers and whole models;
- :mod:`scalinglimits.scaling`: a user's own model: the scaling plan, parameter by parameter;
- :mod:`scalinglimits.checks`: a user's own model: the check with a verdict, learning rates;
- :mod:`scalinglimits.sweeps`: grids of experiments that survive an interruption;
- :mod:`scalinglimits.data`: real data sets, and the user's own tables;
- :mod:`scalinglimits.figures`: the documents' figures, as records and as drawings.
"""

from __future__ import annotations

import lazy_loader

from scalinglimits._version import __version__

_submodules = [
    "laws",
    "matrices",
    "fits",
    "linear",
    "residual",
    "init",
    "scaling",
    "checks",
    "sweeps",
    "data",
    "figures",
]

__getattr__, __dir__, _ = lazy_loader.attach(__name__, submodules=_submodules)

__all__ = ["__version__", *_submodules]
