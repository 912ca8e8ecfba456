"""Activations: names, callables, modules, and the slopes found by probing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from scalinglimits.residual import ACTIVATIONS, ParametricReLU
from scalinglimits.residual.activations import resolve_activation

HOMOGENEOUS = {
    "relu": (1.0, 0.0),
    "identity": (1.0, 1.0),
    "abs": (1.0, -1.0),
    "leaky_relu": (1.0, 0.01),
    "parametric_relu": (1.0, 1 / math.sqrt(2)),
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_slopes_of_each_name(name):
    resolved = resolve_activation(name)
    assert resolved.name == name
    if name in HOMOGENEOUS:
        assert resolved.slopes == pytest.approx(HOMOGENEOUS[name], abs=1e-15)
    else:
        assert resolved.slopes is None


def test_zero_slope_has_no_sign():
    assert math.copysign(1, resolve_activation("relu").slopes[1]) == 1


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_derivative_is_the_difference_quotient(name):
    x = torch.tensor([-2.1, -0.7, 0.3, 1.9], dtype=torch.float64)
    resolved, step = resolve_activation(name), 1e-6
    quotient = (resolved.function(x + step) - resolved.function(x - step)) / (2 * step)
    assert torch.allclose(resolved.derivative(x), quotient, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("activation", "slopes"),
    [
        (lambda x: 3 * functional.relu(x) + x, (4.0, 1.0)),
        (nn.PReLU(init=0.5), (1.0, 0.5)),
        (nn.PReLU(init=0.5, dtype=torch.bfloat16), (1.0, 0.5)),
        (ParametricReLU(0.75), (1.0, 0.75)),
        (ParametricReLU(-2.0), (1.0, -2.0)),
        (nn.Tanh(), None),
        (lambda x: x + 1e-3 * x**2, None),
        (lambda x: x + 1, None),
    ],
)
def test_slopes_of_callables(activation, slopes):
    assert resolve_activation(activation).slopes == slopes


def test_names_of_callables():
    assert resolve_activation(torch.tanh).name == "tanh"
    assert "0.75" in resolve_activation(ParametricReLU(0.75)).name
    assert resolve_activation(nn.Tanh()).name == "Tanh()"


def test_default_slope_is_the_smallest_that_the_theory_allows():
    assert ParametricReLU().slope == 1 / math.sqrt(2)


def test_unknown_name():
    with pytest.raises(ValueError, match=r"`activation` must be one of abs, .*; got 'swish'"):
        resolve_activation("swish")


def test_neither_name_nor_callable():
    with pytest.raises(TypeError, match=r"`activation` must be a name or a callable; got 3"):
        resolve_activation(3)


@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (lambda x: x.sum(), r"must map a tensor to a tensor of the same shape; got \(\)"),
        (lambda x: None, r"must map a tensor to a tensor of the same shape; got \(\)"),
        (lambda x: torch.softmax(x, 0), "must act entry by entry"),
        (lambda x: x / x.norm(), "must act entry by entry|must map"),
        (nn.PReLU(40), "must act entry by entry"),
        (nn.ReLU(inplace=True), "must not overwrite its argument"),
        (torch.tanh_, "must not overwrite its argument"),
    ],
)
def test_refused_callables(activation, message):
    with pytest.raises(ValueError, match=message):
        resolve_activation(activation)


@pytest.mark.parametrize("slope", [math.nan, math.inf])
def test_slope_must_be_finite(slope):
    with pytest.raises(ValueError, match="`slope` must be a finite number"):
        ParametricReLU(slope)
