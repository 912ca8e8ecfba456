"""Fans of a shape and their averages: right values, inequalities, optimality, errors."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from scalinglimits.laws.fans import MODES, Fans, average_fan, fans, normalize_axes

PAIRS = [(1, 1), (1, 1000), (2, 3), (64, 256), (50257, 768), (7, 7)]


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((256, 64), {"in_axis": 1, "out_axis": 0}, (64, 256)),
        ((64, 256), {"in_axis": -2, "out_axis": -1}, (64, 256)),
        ((128, 64, 3, 3), {"in_axis": 1, "out_axis": 0}, (576, 1152)),
        ((3, 3, 64, 128), {"in_axis": 2, "out_axis": 3}, (576, 1152)),
        ((12, 64, 256), {"in_axis": -2, "out_axis": -1, "batch_axis": 0}, (64, 256)),
        ((12, 64, 256), {"in_axis": (0, 1), "out_axis": 2}, (768, 256)),
        ((1000, 64), {"in_axis": (), "out_axis": 1, "batch_axis": 0}, (1, 64)),
        ((5,), {"in_axis": 0, "out_axis": ()}, (5, 1)),
        ((0, 4), {"in_axis": 0, "out_axis": 1}, (0, 4)),
        ((), {"in_axis": (), "out_axis": ()}, (1, 1)),
    ],
)
def test_fans_of_a_shape(shape, axes, expected):
    assert fans(shape, **axes) == Fans(*expected)


def test_numpy_integers_are_welcome():
    assert fans(np.array([3, 4]).tolist(), np.int64(0), np.int64(1)) == (3, 4)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("fan_avg", 25512.5), ("fan_geo_avg", 6212.679), ("fan_quad_avg", 49512.119)],
)
def test_averages_of_a_vocabulary(mode, expected):
    assert average_fan(768, 50257, mode) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("m", "n"), PAIRS)
def test_averages_match_their_definitions_and_are_symmetric(m, n):
    assert average_fan(m, n, "fan_in") == m
    assert average_fan(m, n, "fan_out") == n
    assert average_fan(m, n, "fan_avg") == pytest.approx((m + n) / 2, rel=1e-14)
    assert average_fan(m, n, "fan_geo_avg") == pytest.approx(math.sqrt(m * n), rel=1e-14)
    quadratic = (m**2 + n**2) / (m + n)
    assert average_fan(m, n, "fan_quad_avg") == pytest.approx(quadratic, rel=1e-14)
    for mode in ("fan_avg", "fan_geo_avg", "fan_quad_avg"):
        assert average_fan(m, n, mode) == average_fan(n, m, mode)


@pytest.mark.parametrize(("m", "n"), PAIRS)
def test_quadratic_above_arithmetic_above_geometric(m, n):
    quad, avg, geo = (average_fan(m, n, f"fan_{k}avg") for k in ("quad_", "", "geo_"))
    assert quad >= avg >= geo
    if m != n:
        assert quad > avg > geo


@pytest.mark.parametrize(("m", "n"), PAIRS)
def test_quadratic_minimises_the_local_error_and_geometric_the_logarithmic_one(m, n):
    def local(t):
        return (m * t - 1) ** 2 + (n * t - 1) ** 2

    def logarithmic(s):
        return (math.log(m) + s) ** 2 + (math.log(n) + s) ** 2

    best = optimize.minimize_scalar(
        local, bounds=(0, 2 / min(m, n)), method="bounded", options={"xatol": 1e-12}
    ).x
    assert best == pytest.approx(1 / average_fan(m, n, "fan_quad_avg"), rel=1e-4)
    ours = {mode: local(1 / average_fan(m, n, mode)) for mode in MODES}
    assert min(ours.values()) == ours["fan_quad_avg"]
    best = optimize.minimize_scalar(logarithmic).x
    assert best == pytest.approx(-math.log(average_fan(m, n, "fan_geo_avg")), abs=1e-6)


@pytest.mark.parametrize("widths", [(64, 256, 64), (64, 256, 16, 1000, 64), (5, 2, 5, 3, 5)])
def test_geometric_is_neutral_from_end_to_end_and_xavier_shrinks(widths):
    gains = {mode: [1.0, 1.0] for mode in MODES}
    for mode, (m, n) in itertools.product(MODES, itertools.pairwise(widths)):
        gains[mode][0] *= m / average_fan(m, n, mode)
        gains[mode][1] *= n / average_fan(m, n, mode)
    assert gains["fan_geo_avg"] == pytest.approx([1.0, 1.0], rel=1e-12)
    # Xavier lies between the geometric (global) and the quadratic (local) average.
    for geo, avg, quad in zip(*(gains[f"fan_{k}avg"] for k in ("geo_", "", "quad_")), strict=True):
        assert geo > avg > quad


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((2, 3), 2, 0), ValueError, r"`in_axis` must lie in \[-2, 2\).*got 2"),
        (((2, 3), 1, -3), ValueError, r"`out_axis` must lie in .*got -3"),
        (((2, 3), 1, 0, 5), ValueError, r"`batch_axis` must lie in .*got 5"),
        (((2, 3), 1, -1), ValueError, "`out_axis` must differ from `in_axis`; both have axis 1"),
        (((2, 3), (0, 0), 1), ValueError, "`in_axis` must differ from `in_axis`"),
        (((2, 3), 0.5, 1), TypeError, "`in_axis` must be an integer or a sequence of integers"),
        (((2, 3), "01", 1), TypeError, "`in_axis` must be an integer or a sequence of integers"),
        (((2, -3), 0, 1), ValueError, "`shape` must be at least 0; got -3"),
        (((2, 3.5), 0, 1), TypeError, "`shape` must be an integer; got 3.5"),
        (((5,), 1, 0), ValueError, "`in_axis` must lie in .* weight of 1 axes; got 1"),
    ],
)
def test_bad_shapes_and_axes(arguments, error, message):
    with pytest.raises(error, match=message):
        fans(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 3, "fan_in"), ValueError, "`fan_in` must be positive; got 0"),
        ((3, 0, "fan_avg"), ValueError, "`fan_out` must be positive; got 0"),
        ((3, math.inf, "fan_avg"), ValueError, "`fan_out` must be finite; got inf"),
        (("3", 3, "fan_avg"), TypeError, "`fan_in` must be a real number"),
        ((3, 3, "fan_max"), ValueError, "`mode` must be one of fan_in, .*; got 'fan_max'"),
        ((3, 3, 1), TypeError, "`mode` must be a string; got 1"),
    ],
)
def test_bad_averages(arguments, error, message):
    with pytest.raises(error, match=message):
        average_fan(*arguments)


def test_axes_are_counted_from_the_start():
    assert normalize_axes(4, in_axis=(-1,), out_axis=[0], batch_axis=-3) == ((3,), (0,), (1,))
