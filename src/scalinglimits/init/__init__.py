"""Initialisers for tensors, layers, stacks of layers and whole models, in PyTorch and JAX."""

from scalinglimits.init.axes import Axes
from scalinglimits.init.depth import depth_stack_
from scalinglimits.init.layers import layer_axes, layer_fans
from scalinglimits.init.models import initialize_
from scalinglimits.init.signal import END_TO_END, signal_table
from scalinglimits.init.tensors import variance_scaling_

__all__ = [
    "END_TO_END",
    "Axes",
    "depth_stack_",
    "initialize_",
    "layer_axes",
    "layer_fans",
    "signal_table",
    "variance_scaling_",
]
