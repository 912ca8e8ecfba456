"""Initialisers of one tensor: laws, orthogonality, precision, determinism, bad input."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from scalinglimits.init import Axes, _draws, layer_axes, variance_scaling_
from scalinglimits.laws import Normal, Rademacher, TruncatedNormal, Uniform
from scalinglimits.laws.fans import MODES, average_fan

LAWS = {
    "normal": Normal(),
    "truncated_normal": TruncatedNormal(2.0),
    "uniform": Uniform(),
    TruncatedNormal(3.0): TruncatedNormal(3.0),
}
INDEPENDENT = ("normal", "truncated_normal", "uniform", "rademacher")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("distribution", LAWS, ids=str)
def test_entries_follow_their_law_with_the_deviation_asked_for(distribution, mode):
    # Kolmogorov-Smirnov, n = 131,072, alpha = 1e-5 for each of 20 cases, fixed seed.
    weight = variance_scaling_(torch.empty(512, 256), 3.0, mode, distribution, seed=1)
    std = math.sqrt(3.0 / average_fan(256, 512, mode))
    values = (weight.double() / std).numpy().ravel()
    assert stats.kstest(values, LAWS[distribution].cdf).pvalue > 1e-5


@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
def test_double_precision_and_odd_sizes_follow_the_law_too(distribution):
    # Kolmogorov-Smirnov, n = 100,003, alpha = 1e-5, fixed seed; longer than one piece of bits.
    weight = torch.empty(1, 100_003, dtype=torch.float64)
    variance_scaling_(weight, 100_003.0, distribution=distribution, seed=1)
    values = weight.numpy().ravel()
    assert stats.kstest(values, LAWS[distribution].cdf).pvalue > 1e-5
    assert np.unique(values).size == values.size


def test_signs_have_exactly_the_deviation_asked_for():
    weight = variance_scaling_(torch.empty(64, 16), 4.0, distribution="rademacher", seed=0)
    assert set(weight.unique().tolist()) == {-0.5, 0.5}
    # Binomial, n = 1024: |sum| / 32 beyond 4.5 has probability below 1e-5.
    assert abs(weight.sign().sum()) < 4.5 * 32
    law = variance_scaling_(torch.empty(64, 16), 4.0, distribution=Rademacher(), seed=0)
    assert set(law.unique().tolist()) == {-0.5, 0.5}


def test_a_truncated_normal_stays_within_its_bound():
    weight = variance_scaling_(torch.empty(256, 256), distribution="truncated_normal", seed=0)
    bound = TruncatedNormal(2.0).bound / 16
    assert 0.999 * bound < weight.abs().max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(96, 32), (32, 96), (48, 48), (1, 7), (7, 1)])
def test_orthogonal_rows_or_columns(shape, dtype):
    weight = variance_scaling_(
        torch.empty(shape, dtype=dtype), 2.0, "fan_avg", "orthogonal", seed=0
    ).double()
    rows, columns = shape
    gram = weight.T @ weight if rows >= columns else weight @ weight.T
    scale = 2.0 / average_fan(columns, rows, "fan_avg") * max(shape)
    tolerance = {torch.float64: 1e-13, torch.float32: 1e-5}.get(dtype, 2e-2)
    assert torch.allclose(gram, scale * torch.eye(min(shape)).double(), atol=scale * tolerance)
    assert weight.square().mean().item() == pytest.approx(
        2.0 / average_fan(columns, rows, "fan_avg"), rel=max(tolerance, 1e-6)
    )


def test_orthogonal_in_every_block_and_batch():
    attention = nn.MultiheadAttention(32, 4)
    weight = attention.in_proj_weight
    variance_scaling_(
        weight, 1.0, distribution="orthogonal", seed=0, axes=layer_axes(attention, "in_proj_weight")
    )
    q, k, _ = weight.detach().chunk(3)
    assert torch.allclose(q @ q.T, torch.eye(32), atol=1e-5)
    assert not torch.allclose(q, k)
    stack = torch.empty(5, 16, 8)
    axes = Axes(in_axis=1, out_axis=2, batch_axis=0)
    variance_scaling_(stack, 1.0, "fan_out", "orthogonal", axes=axes, seed=0)
    assert torch.allclose(stack.mT @ stack, 2 * torch.eye(8).expand(5, 8, 8), atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 64, 4, stride=4),
        nn.Conv2d(8, 64, 2, stride=2, groups=2),
        nn.ConvTranspose2d(64, 8, 4, stride=4),
        nn.ConvTranspose2d(64, 8, 2, stride=2, groups=2),
    ],
    ids=str,
)
def test_orthogonal_patches_keep_the_norm_exactly(layer):
    # Patches that do not overlap: an isometry one way or the other, grouped or not.
    variance_scaling_(layer.weight, 1.0, distribution="orthogonal", axes=layer_axes(layer), seed=0)
    nn.init.zeros_(layer.bias)
    inputs = torch.randn(2, layer.in_channels, 8, 8, generator=torch.Generator().manual_seed(0))
    inputs.requires_grad_()
    outputs = layer(inputs)
    if outputs[0].numel() >= inputs[0].numel():
        ratio = outputs.square().sum() / inputs.square().sum()
        expected = outputs.numel() / inputs.numel()
    else:
        (gradient,) = torch.autograd.grad(outputs, inputs, outputs.detach())
        ratio = gradient.square().sum() / outputs.square().sum()
        expected = 1.0
    assert ratio.item() == pytest.approx(expected, rel=1e-5)


def test_orthogonal_matrices_are_haar():
    # The trace of a Haar matrix of size 2 is 0 with probability 1/2 (reflections), else
    # 2 cos(uniform angle). n = 4000, alpha = 1e-5: four and a half deviations.
    stack = torch.empty(4000, 2, 2, dtype=torch.float64)
    axes = Axes(in_axis=2, out_axis=1, batch_axis=0)
    variance_scaling_(stack, 1.0, distribution="orthogonal", axes=axes, seed=3)
    determinants = torch.linalg.det(stack)
    reflections = (determinants < 0).sum().item()
    assert abs(reflections - 2000) < 4.5 * math.sqrt(1000)
    rotations = stack[determinants > 0]
    angles = torch.atan2(rotations[:, 1, 0], rotations[:, 0, 0]).numpy()
    assert stats.kstest(angles, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-5


@pytest.mark.parametrize("distribution", [*INDEPENDENT, "orthogonal"])
def test_half_precision_is_the_rounded_draw(distribution):
    full = variance_scaling_(torch.empty(40, 30), distribution=distribution, seed=5)
    for dtype in (torch.bfloat16, torch.float16):
        half = torch.empty(40, 30, dtype=dtype)
        variance_scaling_(half, distribution=distribution, seed=5)
        assert torch.equal(half, full.to(dtype))


@pytest.mark.parametrize("distribution", [*INDEPENDENT, "orthogonal"])
def test_memory_layout_does_not_change_the_draw(distribution):
    plain = variance_scaling_(torch.empty(24, 50), distribution=distribution, seed=5)
    turned = torch.empty(50, 24).T
    variance_scaling_(turned, distribution=distribution, seed=5)
    assert torch.equal(plain, turned)
    view = torch.zeros(24, 100)[:, ::2]
    assert torch.equal(variance_scaling_(view, distribution=distribution, seed=5), plain)


def test_blocks_have_streams_of_their_own(monkeypatch):
    monkeypatch.setattr(_draws, "BLOCK", 64)
    whole = variance_scaling_(torch.empty(20, 16), seed=2)
    longer = variance_scaling_(torch.empty(24, 16), seed=2)
    assert torch.equal(whole, longer[:20])
    assert whole.unique().numel() == whole.numel()


def test_deviation_that_underflows_warns():
    weight = torch.empty(8, 8, dtype=torch.float16)
    with pytest.warns(UserWarning, match=r"deviation 3.54e-06 is below 6.1e-05, the smallest"):
        variance_scaling_(weight, 1e-10, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        variance_scaling_(weight.bfloat16(), 1e-10, seed=0)
        variance_scaling_(weight, 0.0, seed=0)
    assert not variance_scaling_(weight, 0.0, seed=0).any()


def test_seeds_and_generators():
    first = variance_scaling_(torch.empty(5, 4), seed=1)
    assert torch.equal(first, variance_scaling_(torch.empty(5, 4), seed=1))
    assert not torch.equal(first, variance_scaling_(torch.empty(5, 4), seed=2))
    generator = torch.Generator().manual_seed(0)
    first = variance_scaling_(torch.empty(5, 4), generator=generator)
    second = variance_scaling_(torch.empty(5, 4), generator=generator)
    assert not torch.equal(first, second)
    generator.manual_seed(0)
    assert torch.equal(first, variance_scaling_(torch.empty(5, 4), generator=generator))
    torch.manual_seed(0)
    first = variance_scaling_(torch.empty(5, 4))
    torch.manual_seed(0)
    assert torch.equal(first, variance_scaling_(torch.empty(5, 4)))


def test_a_seed_leaves_the_default_generator_alone():
    before = torch.get_rng_state()
    variance_scaling_(torch.empty(5, 4), seed=1)
    variance_scaling_(torch.empty(5, 4), distribution="orthogonal", seed=1)
    variance_scaling_(torch.empty(5, 4), distribution=Uniform(), seed=1)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("distribution", [*INDEPENDENT, "orthogonal"])
def test_empty_and_meta_tensors_are_left_alone(distribution):
    for shape in [(0, 4), (4, 0), (3, 0, 2)]:
        assert variance_scaling_(torch.empty(shape), distribution=distribution).shape == shape
    meta = torch.empty(5, 4, device="meta")
    assert variance_scaling_(meta, distribution=distribution) is meta


def test_parameters_are_filled_in_place_without_a_graph():
    weight = nn.Parameter(torch.zeros(5, 4))
    assert variance_scaling_(weight, seed=0) is weight
    assert weight.requires_grad
    assert weight.grad_fn is None
    assert weight.detach().all()


def test_a_vector_with_declared_axes():
    weight = variance_scaling_(
        torch.empty(64), 4.0, distribution="rademacher", axes=Axes(0, ()), seed=0
    )
    assert set(weight.tolist()) == {-0.25, 0.25}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "fan_max"}, ValueError, "`mode` must be one of fan_in, .*; got 'fan_max'"),
        ({"mode": 3}, TypeError, "`mode` must be a string; got 3"),
        ({"distribution": "cauchy"}, ValueError, "`distribution` must be one of normal.*'cauchy'"),
        ({"distribution": 3}, TypeError, "`distribution` must be a string or an EntryLaw; got 3"),
        ({"scale": -1.0}, ValueError, "`scale` must be finite and not negative; got -1.0"),
        ({"scale": math.nan}, ValueError, "`scale` must be finite and not negative; got nan"),
        ({"scale": "2"}, TypeError, "`scale` must be a real number; got '2'"),
        ({"axes": Axes(in_axis=2)}, ValueError, r"`in_axis` must lie in \[-2, 2\).*; got 2"),
        ({"axes": Axes(in_axis=0)}, ValueError, "`out_axis` must differ from `in_axis`"),
        ({"axes": 1}, TypeError, "`axes` must be an Axes; got 1"),
        ({"seed": 1.0}, TypeError, "`seed` must be an integer; got 1.0"),
        ({"generator": 1}, TypeError, "`generator` must be a torch.Generator; got 1"),
        (
            {"generator": torch.Generator(), "seed": 1},
            ValueError,
            "`seed` must not be given together with `generator`; got both",
        ),
    ],
)
def test_bad_arguments(arguments, error, message):
    weight = torch.ones(3, 4)
    with pytest.raises(error, match=message):
        variance_scaling_(weight, **arguments)
    assert (weight == 1).all()


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (torch.ones(3, 4, dtype=torch.complex64), TypeError, "float64; got torch.complex64"),
        (torch.ones(3, 4, dtype=torch.int32), TypeError, "float64; got torch.int32"),
        (torch.ones(3, 4).to(torch.float8_e5m2), TypeError, "float64; got torch.float8_e5m2"),
        (torch.ones(3), ValueError, r"`tensor` must have at least 2 axes .*; got shape \(3,\)"),
        (torch.tensor(1.0), ValueError, r"`tensor` must have at least 2 axes .*; got shape \(\)"),
        (np.ones((3, 4)), TypeError, "`tensor` must be a torch.Tensor; got ndarray"),
        (nn.LazyLinear(3).weight, ValueError, "`tensor` must have a shape"),
    ],
    ids=str,
)
def test_bad_tensors(tensor, error, message):
    with pytest.raises(error, match=message):
        variance_scaling_(tensor, mode="fan_avg")
