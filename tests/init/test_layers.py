"""Fans of layers: right values, and each layer's own count of its terms, without randomness."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from scalinglimits.init import Axes, layer_axes, layer_fans


class Conv1D(nn.Module):
    """Hugging Face's: y = x W + b, the weight of shape (inputs, outputs)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


class Kernel(nn.Module):
    """A layer that nobody knows."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(5, 7))


REFERENCE = [
    (nn.Linear(64, 256), "weight", (64, 256)),
    (nn.Conv2d(64, 128, 3), "weight", (576, 1152)),
    (nn.Conv2d(64, 128, 3, groups=8), "weight", (72, 144)),
    (nn.Conv2d(4, 4, 3, groups=4), "weight", (9, 9)),
    (nn.Conv2d(16, 32, 3, stride=2), "weight", (144, 72)),
    (nn.Conv1d(8, 8, 5, dilation=2), "weight", (40, 40)),
    (nn.ConvTranspose2d(8, 32, 3, groups=4), "weight", (18, 72)),
    (nn.ConvTranspose2d(8, 32, 4, stride=2), "weight", (32, 512)),
    (nn.Bilinear(20, 30, 40), "weight", (600, 40)),
    (nn.Embedding(1000, 64), "weight", (1, 64)),
    (nn.Embedding(1000, 64, padding_idx=0), "weight", (1, 64)),
    (nn.EmbeddingBag(1000, 64), "weight", (1, 64)),
    (nn.MultiheadAttention(512, 8), "in_proj_weight", (512, 512)),
    (nn.MultiheadAttention(64, 8, kdim=32, vdim=16), "q_proj_weight", (64, 64)),
    (nn.MultiheadAttention(64, 8, kdim=32, vdim=16), "k_proj_weight", (32, 64)),
    (nn.MultiheadAttention(64, 8, kdim=32, vdim=16), "v_proj_weight", (16, 64)),
    (nn.LSTM(32, 48), "weight_ih_l0", (32, 48)),
    (nn.LSTM(32, 48), "weight_hh_l0", (48, 48)),
    (nn.LSTM(32, 48, 2, bidirectional=True, proj_size=16), "weight_ih_l1_reverse", (32, 48)),
    (nn.LSTM(32, 48, proj_size=16), "weight_hr_l0", (48, 16)),
    (nn.GRU(32, 48), "weight_ih_l0", (32, 48)),
    (nn.RNN(32, 48, nonlinearity="relu"), "weight_ih_l0", (32, 48)),
    (nn.RNNCell(32, 48), "weight_hh", (48, 48)),
    (nn.GRUCell(32, 48), "weight_ih", (32, 48)),
    (nn.LSTMCell(32, 48), "weight_ih", (32, 48)),
    (Conv1D(256, 64), "weight", (64, 256)),
    (parametrizations.weight_norm(nn.Linear(64, 256)), "weight", (64, 256)),
    (parametrizations.spectral_norm(nn.Conv2d(64, 128, 3, groups=8)), "weight", (72, 144)),
]


@pytest.mark.parametrize(("layer", "name", "expected"), REFERENCE, ids=lambda x: str(x)[:60])
def test_right_values(layer, name, expected):
    assert layer_fans(layer, name) == pytest.approx(expected, rel=1e-12)


COUNTED = [
    (nn.Linear(6, 5), (6,)),
    (Conv1D(5, 6), (6,)),
    (nn.Conv1d(4, 6, 5, dilation=2), (4, 40)),
    (nn.Conv1d(6, 4, 3, stride=3, groups=2), (6, 40)),
    (nn.Conv1d(4, 6, 2, stride=3), (4, 40)),
    (nn.Conv2d(4, 6, 3, stride=2), (4, 24, 24)),
    (nn.Conv2d(4, 8, (3, 5), stride=(2, 1), groups=4), (4, 24, 24)),
    (nn.Conv3d(2, 4, 2, groups=2), (2, 8, 8, 8)),
    (nn.ConvTranspose1d(4, 6, 5, dilation=2), (4, 40)),
    (nn.ConvTranspose1d(6, 4, 5, stride=3, groups=2), (6, 40)),
    (nn.ConvTranspose2d(8, 4, 4, stride=2), (8, 16, 16)),
    (nn.ConvTranspose2d(8, 32, 3, groups=4), (8, 16, 16)),
    (nn.ConvTranspose3d(2, 4, 2, stride=(1, 2, 1)), (2, 8, 8, 8)),
]


def middle(values, period=6):
    """Cut the borders of spatial axes away and keep whole periods of any stride up to 3."""
    for axis in range(2, values.ndim):
        size = values.shape[axis]
        border = 8 if size >= 22 else 2
        inside = size - 2 * border
        values = values.narrow(axis, border, max(inside // period * period, inside % period))
    return values


@pytest.mark.parametrize(("layer", "shape"), COUNTED, ids=str)
def test_a_layer_counts_its_own_terms(layer, shape):
    # With all weights one, an output element is the number of its terms, and the gradient of
    # the outputs' sum is the number of outputs that an input element feeds.
    layer = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    ones = torch.ones(1, *shape, requires_grad=True)
    outputs = layer(ones)
    outputs.sum().backward()
    counted = middle(outputs.detach()).mean().item(), middle(ones.grad).mean().item()
    assert layer_fans(layer) == pytest.approx(counted, rel=1e-6)


def test_a_bilinear_layer_counts_its_own_terms():
    layer = nn.Bilinear(20, 30, 40, bias=False)
    nn.init.ones_(layer.weight)
    first, second = torch.ones(20, requires_grad=True), torch.ones(30)
    outputs = layer(first, second)
    outputs.sum().backward()
    assert (outputs == 600).all()
    assert (first.grad == 40 * 30).all()  # 30 products of each element feed 40 outputs


def test_axes_are_declared_for_packed_and_unknown_layers():
    assert layer_fans(nn.Linear(64, 192), axes=Axes(blocks=3)) == (64, 64)
    assert layer_fans(Conv1D(192, 64), axes=Axes(0, 1, blocks=3, block_axis=1)) == (64, 64)
    assert layer_fans(Kernel(), "kernel", axes=Axes(in_axis=0, out_axis=1)) == (5, 7)


def test_a_parametrised_layer_does_not_move_on():
    layer = parametrizations.spectral_norm(nn.Linear(8, 8)).train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer_fans(layer)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "name", "error", "message"),
    [
        (Kernel(), "kernel", ValueError, r"`module` must be a known layer; got Kernel.*axes=Axes"),
        (nn.Linear(2, 3), "bias", ValueError, "`name` must be a weight with fans; got 'bias'"),
        (nn.LayerNorm(3), "weight", ValueError, "`name` must be a weight with fans"),
        (nn.PReLU(), "weight", ValueError, "`name` must be a weight with fans"),
        (nn.Linear(2, 3), "wait", ValueError, "which has weight, bias; got 'wait'"),
        (nn.ReLU(), "weight", ValueError, "which has no parameter; got 'weight'"),
        (nn.MultiheadAttention(8, 2), "weight", ValueError, "which has in_proj_weight"),
        (nn.LazyLinear(3), "weight", ValueError, "run a lazy module once first"),
        (torch.ones(2, 3), "weight", TypeError, "`module` must be a torch.nn.Module; got Tensor"),
    ],
    ids=str,
)
def test_errors(layer, name, error, message):
    with pytest.raises(error, match=message):
        layer_fans(layer, name)


def test_old_style_weight_norm_is_an_error():
    layer = nn.Linear(2, 3)
    weight = layer._parameters.pop("weight")  # what torch.nn.utils.weight_norm leaves behind
    layer.weight_v = nn.Parameter(weight.data)
    with pytest.raises(ValueError, match=r"must use torch\.nn\.utils\.parametrizations"):
        layer_fans(layer)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"blocks": 0}, ValueError, "`blocks` must be at least 1; got 0"),
        ({"blocks": 1.5}, TypeError, "`blocks` must be an integer; got 1.5"),
        ({"in_share": 0.0}, ValueError, "`in_share` must be above 0 and at most 1; got 0.0"),
        ({"out_share": "1"}, TypeError, "`out_share` must be a real number; got '1'"),
    ],
)
def test_bad_axes(arguments, error, message):
    with pytest.raises(error, match=message):
        Axes(**arguments)


def test_blocks_must_fit():
    with pytest.raises(ValueError, match=r"`blocks` must divide axis 0 .*; got 3 blocks"):
        Axes(blocks=3).fans((64, 64))
    with pytest.raises(ValueError, match=r"`block_axis` must lie in \[-2, 2\)"):
        Axes(blocks=2, block_axis=4).fans((64, 64))
    with pytest.raises(TypeError, match="`axes` must be an Axes; got 'weight'"):
        layer_fans(nn.Linear(2, 3), axes="weight")
    assert layer_axes(nn.Linear(2, 3)) == Axes()
