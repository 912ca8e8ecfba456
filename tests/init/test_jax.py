"""Initialisers for JAX: the same numbers as JAX where they overlap, and what JAX lacks."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from scalinglimits.init.jax import depth_stack, variance_scaling
from scalinglimits.laws import FractionalIncrements, Independent, SmoothProcess, Uniform
from scalinglimits.laws.fans import MODES, average_fan

KEY = jax.random.key(0)


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((20, 30), {}),
        ((3, 20, 30), {"batch_axis": 0}),
        ((3, 3, 8, 16), {}),
        ((4, 5, 6), {"in_axis": (0, 1), "out_axis": 2}),
    ],
)
def test_the_same_numbers_as_jax(mode, distribution, shape, axes):
    ours = variance_scaling(2.0, mode, distribution, **axes)(KEY, shape)
    theirs = jax.nn.initializers.variance_scaling(2.0, mode, distribution, **axes)(KEY, shape)
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform", "rademacher"])
def test_the_deviation_asked_for(mode, distribution):
    # n = 262,144: the relative deviation of the second moment is below 0.0028; alpha = 1e-5.
    values = np.asarray(variance_scaling(3.0, mode, distribution)(KEY, (256, 1024)), np.float64)
    expected = 3.0 / average_fan(256, 1024, mode)
    assert np.square(values).mean() == pytest.approx(expected, rel=4.5 * 0.0028)
    assert abs(values.mean()) < 4.5 * np.sqrt(expected / values.size)


def test_orthogonal_layers_of_a_scanned_model():
    init = variance_scaling(1.0, "fan_quad_avg", "orthogonal", batch_axis=0)
    for shape in [(3, 20, 30), (3, 30, 20), (3, 20, 20)]:
        stack = np.asarray(init(KEY, shape), np.float64)
        long, short = max(shape[1:]), min(shape[1:])
        scale = long / average_fan(*shape[1:], "fan_quad_avg")
        for layer in stack:
            gram = layer @ layer.T if shape[1] == short else layer.T @ layer
            assert np.allclose(gram, scale * np.eye(short), atol=1e-5)
        assert not np.allclose(stack[0], stack[1])


def test_half_precision_is_the_rounded_draw():
    init = variance_scaling(1.0, "fan_in", "truncated_normal")
    half = init(KEY, (20, 30), jnp.bfloat16)
    assert half.dtype == jnp.bfloat16
    assert np.array_equal(half, init(KEY, (20, 30)).astype(jnp.bfloat16))
    default = variance_scaling(1.0, "fan_in", "normal", dtype=jnp.float16)
    assert default(KEY, (2, 3)).dtype == jnp.float16


def test_initialisers_compile_and_map():
    init = variance_scaling(1.0, "fan_quad_avg", "normal")
    compiled = jax.jit(lambda key: init(key, (8, 4)))(KEY)
    assert np.allclose(compiled, init(KEY, (8, 4)), rtol=1e-6)
    assert jax.vmap(lambda key: init(key, (8, 4)))(jax.random.split(KEY, 3)).shape == (3, 8, 4)


@pytest.mark.parametrize(
    "law", [Independent(), FractionalIncrements(0.2), FractionalIncrements(0.9), SmoothProcess(0.1)]
)
def test_stacks_have_the_covariance_of_the_law(law):
    # n = 65,536 copies of 12 layers; alpha = 1e-5 over 78 entries is 5.3 deviations.
    stack = np.asarray(depth_stack(law, 2.0, "fan_avg")(KEY, (12, 256, 256)), np.float64)
    values = stack.reshape(12, -1) * np.sqrt(256 / 2.0)
    gamma = law.autocovariance(12)
    expected = gamma[np.abs(np.subtract.outer(np.arange(12), np.arange(12)))]
    assert np.abs(values @ values.T / values.shape[1] - expected).max() < 5.3 * 2**0.5 / 256


def test_the_axis_of_layers_can_be_any():
    law = SmoothProcess(0.5)
    first = depth_stack(law)(KEY, (5, 4, 6))
    last = depth_stack(law, in_axis=0, out_axis=1, layer_axis=-1)(KEY, (4, 6, 5))
    assert np.allclose(np.moveaxis(np.asarray(last), -1, 0), first)


def test_empty_weights():
    assert variance_scaling(1.0, "fan_in", "normal")(KEY, (0, 4)).shape == (0, 4)
    assert depth_stack(Independent())(KEY, (3, 0, 4)).shape == (3, 0, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1.0, "fan_max", "normal"), ValueError, "`mode` must be one of"),
        ((1.0, "fan_in", "cauchy"), ValueError, "`distribution` must be one of"),
        ((-1.0, "fan_in", "normal"), ValueError, "`scale` must be finite and not negative"),
        (("1", "fan_in", "normal"), TypeError, "`scale` must be a real number; got '1'"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        variance_scaling(*arguments)


def test_bad_shapes_types_and_laws():
    init = variance_scaling(1.0, "fan_avg", "normal")
    with pytest.raises(ValueError, match="`in_axis` must lie in"):
        init(KEY, (4,))
    with pytest.raises(TypeError, match="`dtype` must be a real floating-point type; got int32"):
        init(KEY, (4, 4), jnp.int32)
    with pytest.raises(TypeError, match="`dtype` must be a real floating-point type; got complex"):
        init(KEY, (4, 4), jnp.complex64)
    with pytest.raises(TypeError, match=r"`law` must be a DepthLaw; got 0\.8"):
        depth_stack(0.8)
    with pytest.raises(ValueError, match="`law` must be Gaussian"):
        depth_stack(Independent(Uniform()))
