"""The signal through every known layer has the predicted variance, forward and backward.

Each estimate averages about a million squares, with weights, inputs and gradients drawn
independently: its relative deviation is about 0.2 %, so 1 % is four and a half deviations
(alpha = 1e-5), and seeds are fixed. Borders are cut away.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from scalinglimits.init import initialize_, layer_fans
from scalinglimits.laws.fans import average_fan

MODE, GAIN = "fan_avg", 1.5
TOLERANCE = 0.01


def unit(generator, *shape):
    """Gaussian directions whose second moment over the features is exactly one."""
    values = torch.randn(shape, generator=generator)
    return values / values.square().mean(dim=1, keepdim=True).sqrt()


def same(values):
    return values


def gains(run, inputs, generator, crop_outputs=same, crop_gradient=same):
    """Return mean squares of outputs and of the gradient at unit inputs, borders cut."""
    inputs = inputs.requires_grad_()
    outputs = run(inputs)
    (gradient,) = torch.autograd.grad(
        outputs, inputs, torch.randn(outputs.shape, generator=generator)
    )
    return (
        crop_outputs(outputs).square().mean().item(),
        crop_gradient(gradient).square().mean().item(),
    )


def check(layer, name, measured):
    fan_in, fan_out = layer_fans(layer, name)
    variance = GAIN**2 / average_fan(fan_in, fan_out, MODE)
    assert measured[0] == pytest.approx(fan_in * variance, rel=TOLERANCE)
    assert measured[1] == pytest.approx(fan_out * variance, rel=TOLERANCE)


def convolution_gains(layer, inputs, generator, border):
    """Gains of a convolution without padding, of which one side has borders."""

    def crop(values):
        for axis in range(2, values.ndim):
            inside = values.shape[axis] - 2 * border
            values = values.narrow(axis, border, inside - inside % 2)  # whole periods of strides
        return values

    if "Transpose" in type(layer).__name__:
        return gains(layer, inputs, generator, crop_outputs=crop)
    return gains(layer, inputs, generator, crop_gradient=crop)


CONVOLUTIONS = [
    (nn.Conv1d(512, 1024, 3, dilation=2), (64, 20), 4),
    (nn.Conv2d(256, 512, 3), (8, 16, 16), 2),
    (nn.Conv2d(256, 512, 3, stride=2), (32, 18, 18), 2),
    (nn.Conv2d(512, 1024, 3, groups=4), (6, 16, 16), 2),
    (nn.Conv3d(128, 256, 3), (4, 8, 8, 8), 2),
    (nn.ConvTranspose1d(1024, 512, 4, stride=2), (32, 32), 2),
    (nn.ConvTranspose2d(512, 256, 3), (16, 12, 12), 2),
    (nn.ConvTranspose2d(512, 1024, 3, groups=4), (8, 12, 12), 2),
    (nn.ConvTranspose2d(256, 256, 4, stride=2), (16, 12, 12), 2),
    (nn.ConvTranspose3d(256, 128, 3), (4, 6, 6, 6), 2),
]


@pytest.mark.parametrize(("layer", "sizes", "border"), CONVOLUTIONS, ids=str)
def test_convolutions(layer, sizes, border):
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, gains=GAIN, seed=0)
    inputs = unit(generator, sizes[0], layer.in_channels, *sizes[1:])
    check(layer, "weight", convolution_gains(layer, inputs, generator, border))


@pytest.mark.parametrize("transposed", [False, True])
def test_depthwise_convolutions(transposed):
    # Few weights: signs, whose squares do not fluctuate.
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(1024, 1024, 3, groups=1024)
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, "rademacher", gains=GAIN, seed=0)
    inputs = torch.randn(8, 1024, 16, 16, generator=generator)
    check(layer, "weight", convolution_gains(layer, inputs, generator, 2))


@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform", "rademacher"])
def test_dense(distribution):
    layer = nn.Linear(1024, 2048)
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, distribution, gains=GAIN, seed=0)
    check(layer, "weight", gains(layer, unit(generator, 1024, 1024), generator))


@pytest.mark.parametrize("shape", [(512, 2048), (2048, 512)])
def test_orthogonal_dense(shape):
    layer = nn.Linear(*shape)
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, "orthogonal", gains=GAIN, seed=0)
    check(layer, "weight", gains(layer, unit(generator, 2048, shape[0]), generator))


PACKED = [
    (nn.MultiheadAttention(1024, 8), "in_proj_weight", 3),
    (nn.MultiheadAttention(1024, 8, kdim=2048, vdim=1536), "k_proj_weight", 1),
    (nn.MultiheadAttention(1024, 8, kdim=2048, vdim=1536), "v_proj_weight", 1),
    (nn.LSTM(2048, 1024), "weight_ih_l0", 4),
    (nn.LSTM(32, 1024), "weight_hh_l0", 4),
    (nn.LSTM(32, 2048, proj_size=1024), "weight_hr_l0", 1),
    (nn.GRU(2048, 1024), "weight_ih_l0", 3),
    (nn.RNN(2048, 1024), "weight_ih_l0", 1),
    (nn.LSTMCell(2048, 1024), "weight_ih", 4),
    (nn.GRUCell(2048, 1024), "weight_ih", 3),
    (nn.RNNCell(2048, 1024), "weight_ih", 1),
]


@pytest.mark.parametrize(("layer", "name", "blocks"), PACKED, ids=str)
def test_each_projection_and_gate(layer, name, blocks):
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, gains=GAIN, seed=0)
    for weight in getattr(layer, name).detach().chunk(blocks):
        inputs = unit(generator, 1024, weight.shape[1])
        check(layer, name, gains(lambda x, w=weight: functional.linear(x, w), inputs, generator))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings(kind):
    layer = kind(8192, 512, padding_idx=5)
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, gains=GAIN, seed=0)
    assert not layer.weight[5].any()
    index = torch.arange(8192)[torch.arange(8192) != 5].reshape(-1, 1)
    outputs = layer(index)
    # The gradient at the one-hot input whose product with the weight the layer is.
    gradient = torch.randn(4096, 512, generator=generator) @ layer.weight.T
    gradient = gradient[:, torch.arange(8192) != 5]
    check(layer, "weight", (outputs.square().mean().item(), gradient.square().mean().item()))


def test_bilinear():
    layer = nn.Bilinear(64, 16, 64)
    generator = torch.Generator().manual_seed(1)
    initialize_(layer, MODE, "rademacher", gains=GAIN, seed=0)
    first, second = unit(generator, 8192, 64), unit(generator, 8192, 16)
    forward, backward = gains(lambda x: layer(x, second), first, generator)
    # An element of the first input is in 16 products; each of them feeds fan_out outputs.
    check(layer, "weight", (forward, backward / 16))


def test_the_deviation_is_that_of_the_table():
    layer = nn.Linear(1024, 2048)
    table = initialize_(layer, MODE, gains=GAIN, seed=0).set_index("name")
    assert table.loc["weight", "std"] == pytest.approx(GAIN / math.sqrt(1536), rel=1e-12)
    assert layer.weight.std().item() == pytest.approx(table.loc["weight", "std"], rel=0.005)
