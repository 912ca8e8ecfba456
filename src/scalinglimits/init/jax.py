r"""Initialisers for JAX, with the signature of :func:`jax.nn.initializers.variance_scaling`.

They add to JAX's own the mode ``fan_quad_avg``, signs and orthogonal matrices, and stacks
whose layers are correlated. Where the two overlap, in float32 and
float64, they return the same numbers for the same key.

JAX is imported when an initialiser is used, not before.

Reference:
    Su, "Rethinking the dimension-averaging strategy for non-square matrices in initialization";
    "Scaling ResNets in the Large-depth Regime", section 4, for the stacks.
"""

from __future__ import annotations

import importlib
import math
import numbers
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from scipy import linalg

from scalinglimits.laws import DepthLaw, Independent, Normal
from scalinglimits.laws.fans import MODES, AxisLike, average_fan, fans, normalize_axes

__all__ = ["Initializer", "depth_stack", "variance_scaling"]

_DISTRIBUTIONS = ("truncated_normal", "normal", "uniform", "rademacher", "orthogonal")
_CUT_STD = 0.87962566103423978  # of a unit normal cut at ±2, to the last bit as JAX has it


class Initializer(Protocol):
    """What JAX libraries call to make a weight: ``init(key, shape, dtype)``."""

    def __call__(self, key: Any, shape: Sequence[int], dtype: Any = None) -> Any:
        """Return an array of this shape."""
        ...


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: AxisLike = -2,
    out_axis: AxisLike = -1,
    batch_axis: AxisLike = (),
    dtype: Any = None,
) -> Initializer:
    r"""Return an initialiser with entries of mean 0 and variance scale/N.

    Axes that are neither input, output nor batch are a receptive field and count for both fans.
    Types of half precision are drawn in float32 and rounded.

    Args:
        scale: The factor of the variance; 0 gives zeros.
        mode: Which average N of the fans: ``fan_in``, ``fan_out``, ``fan_avg``,
            ``fan_geo_avg`` or ``fan_quad_avg``.
        distribution: ``truncated_normal``, cut at two of its deviations and rescaled;
            ``normal``; ``uniform``; ``rademacher``; or ``orthogonal``, scaled to the same
            variance, one matrix for each element of the batch axes.
        in_axis: The axis or axes of the inputs.
        out_axis: The axis or axes of the outputs.
        batch_axis: The axis or axes of independent copies, such as the layers of a scanned
            model.
        dtype: The default type of the weights; None for JAX's default.

    Returns:
        A function ``init(key, shape, dtype=dtype)``.

    Raises:
        TypeError: If ``scale`` is not a number; by the initialiser, if the type is complex or
            integer.
        ValueError: If the mode or distribution is unknown or the scale negative; by the
            initialiser, if an axis is out of range or a fan is zero.
    """
    _check(scale, mode)
    if distribution not in _DISTRIBUTIONS:
        names = ", ".join(_DISTRIBUTIONS)
        raise ValueError(f"`distribution` must be one of {names}; got {distribution!r}")
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        jax = _import_jax()
        kind, working = _dtypes(jax, dtype)
        shape = tuple(shape)
        fan_in, fan_out = fans(shape, in_axis, out_axis, batch_axis)
        if math.prod(shape) == 0:
            return jax.numpy.zeros(shape, kind)
        # As in JAX, to the last bit: the variance is rounded before its root is taken.
        variance = jax.numpy.array(scale / average_fan(fan_in, fan_out, mode), working)
        std = jax.numpy.sqrt(variance)
        if distribution == "truncated_normal":
            loss = jax.numpy.array(_CUT_STD, working)
            values = jax.random.truncated_normal(key, -2, 2, shape, working) * (std / loss)
        elif distribution == "normal":
            values = jax.random.normal(key, shape, working) * std
        elif distribution == "uniform":
            root = jax.numpy.sqrt(3 * variance)
            values = jax.random.uniform(key, shape, working, -1) * root
        elif distribution == "rademacher":
            values = jax.random.rademacher(key, shape, working) * std
        else:
            groups = normalize_axes(
                len(shape), in_axis=in_axis, out_axis=out_axis, batch_axis=batch_axis
            )
            values = _orthogonal(jax, key, shape, groups, working) * std
        return values.astype(kind)

    return init


def depth_stack(
    law: DepthLaw,
    scale: float = 1.0,
    mode: str = "fan_in",
    in_axis: AxisLike = -2,
    out_axis: AxisLike = -1,
    layer_axis: int = 0,
    batch_axis: AxisLike = (),
    dtype: Any = None,
) -> Initializer:
    r"""Return an initialiser of a stack such as (layers, in, out), correlated across layers.

    The same coordinate of all layers is one Gaussian sequence with the law's covariance and
    variance scale/N. It is drawn as the covariance's square root times independent numbers, so
    any law with an autocovariance works.

    Args:
        law: The law of one weight followed through the layers; Gaussian.
        scale: The factor of the variance.
        mode: Which average N of the fans of one layer.
        in_axis: The axis or axes of the inputs, in the whole array.
        out_axis: The axis or axes of the outputs, in the whole array.
        layer_axis: The axis of the layers.
        batch_axis: The axis or axes of other independent copies.
        dtype: The default type of the weights; None for JAX's default.

    Returns:
        A function ``init(key, shape, dtype=dtype)``.

    Raises:
        TypeError: If ``law`` is not a depth law or ``scale`` is not a number; by the
            initialiser, if the type is complex or integer.
        ValueError: If the law is not Gaussian, the mode is unknown or the scale is negative; by
            the initialiser, if an axis is out of range or a fan is zero.
    """
    if not isinstance(law, DepthLaw):
        raise TypeError(f"`law` must be a DepthLaw; got {law!r}")
    if isinstance(law, Independent) and not isinstance(law.entries, Normal):
        raise ValueError(f"`law` must be Gaussian; got {law!r}")
    _check(scale, mode)
    batch = (batch_axis,) if isinstance(batch_axis, int) else tuple(batch_axis)
    default = dtype

    def init(key: Any, shape: Sequence[int], dtype: Any = default) -> Any:
        jax = _import_jax()
        kind, working = _dtypes(jax, dtype)
        shape = tuple(shape)
        fan_in, fan_out = fans(shape, in_axis, out_axis, (layer_axis, *batch))
        if math.prod(shape) == 0:
            return jax.numpy.zeros(shape, kind)
        std = math.sqrt(scale / average_fan(fan_in, fan_out, mode))
        layers = shape[layer_axis]
        axis = layer_axis % len(shape)
        rest = shape[:axis] + shape[axis + 1 :]
        numbers = jax.random.normal(key, (layers, *rest), working)
        root = jax.numpy.asarray(std * _root(law.autocovariance(layers)), working)
        values = jax.numpy.tensordot(root, numbers, 1, precision=jax.lax.Precision.HIGHEST)
        return jax.numpy.moveaxis(values, 0, axis).astype(kind)

    return init


def _root(autocovariance: np.ndarray) -> np.ndarray:
    """Return the symmetric square root of a Toeplitz covariance, however near singular."""
    values, vectors = np.linalg.eigh(linalg.toeplitz(autocovariance))
    root: np.ndarray = (vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T
    return root


def _orthogonal(
    jax: Any, key: Any, shape: tuple[int, ...], groups: tuple[tuple[int, ...], ...], dtype: Any
) -> Any:
    """Return stacked Haar matrices of mean square one, the receptive field with the inputs."""
    inputs, outputs, batch = groups
    used = {axis for group in groups for axis in group}
    columns = (*inputs, *(axis for axis in range(len(shape)) if axis not in used))
    order = (*batch, *outputs, *columns)
    r = math.prod(shape[axis] for axis in outputs)
    c = math.prod(shape[axis] for axis in columns)
    long, short = max(r, c), min(r, c)
    q, triangle = jax.numpy.linalg.qr(
        jax.random.normal(key, (math.prod(shape) // (r * c), long, short), dtype)
    )
    signs = jax.numpy.sign(jax.numpy.diagonal(triangle, axis1=-2, axis2=-1))
    q = q * jax.numpy.where(signs == 0, 1, signs)[:, None, :]
    if r < c:
        q = q.swapaxes(-2, -1)
    permuted = q.reshape([shape[axis] for axis in order])
    return permuted.transpose([order.index(axis) for axis in range(len(shape))]) * math.sqrt(long)


def _check(scale: float, mode: str) -> None:
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise TypeError(f"`scale` must be a real number; got {scale!r}")
    if not 0.0 <= float(scale) < math.inf:
        raise ValueError(f"`scale` must be finite and not negative; got {scale}")
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}; got {mode!r}")


def _dtypes(jax: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the type to deliver and the one to draw in."""
    kind = jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)
    if not jax.numpy.issubdtype(kind, jax.numpy.floating):
        raise TypeError(f"`dtype` must be a real floating-point type; got {kind}")
    return kind, kind if kind.itemsize >= 4 else jax.numpy.float32


def _import_jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise ImportError(
            "`scalinglimits.init.jax` needs JAX: pip install 'scalinglimits[jax]'"
        ) from error
