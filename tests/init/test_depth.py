"""Stacks correlated across depth: exact covariance, blocks of a model, errors."""

import numpy as np
import pytest
import torch
from torch import nn

from scalinglimits.init import Axes, _draws, depth_stack_
from scalinglimits.laws import (
    FractionalIncrements,
    Independent,
    Rademacher,
    SmoothIncrements,
    SmoothProcess,
)

DEPTH = 12
LAWS = [
    Independent(),
    FractionalIncrements(0.2),
    FractionalIncrements(0.8),
    SmoothProcess(0.1),
    SmoothIncrements(0.1),
]


def block(width, inner):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, inner), nn.Linear(inner, width))


def model(depth=4, width=8):
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(10, width),
            "blocks": nn.ModuleList(block(width, 2 * width) for _ in range(depth)),
            "head": nn.Linear(width, 3),
        }
    )


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_layers_have_the_covariance_of_the_law(law):
    # n = 65,536 copies of 12 layers: an entry of the correlation matrix deviates by at most
    # 1/sqrt(n) = 0.0039; alpha = 1e-5 over 78 entries is 5.3 deviations.
    weights = [torch.empty(256, 256) for _ in range(DEPTH)]
    table = depth_stack_(weights, law, scale=2.0, mode="fan_avg", seed=0)
    values = torch.stack(weights).reshape(DEPTH, -1).double() / (2.0 / 256) ** 0.5
    covariance = (values @ values.T / values.shape[1]).numpy()
    gamma = law.autocovariance(DEPTH)
    expected = gamma[np.abs(np.subtract.outer(np.arange(DEPTH), np.arange(DEPTH)))]
    assert np.abs(covariance - expected).max() < 5.3 * 2**0.5 / 256
    assert table["std"].tolist() == pytest.approx([(2.0 / 256) ** 0.5] * DEPTH)


def test_signs_stay_signs():
    weights = [torch.empty(4, 16) for _ in range(3)]
    depth_stack_(weights, Independent(Rademacher()), seed=0)
    assert set(torch.stack(weights).unique().tolist()) == {-0.25, 0.25}


def test_blocks_do_not_change_the_law(monkeypatch):
    monkeypatch.setattr(_draws, "BLOCK", 200)
    weights = [torch.empty(64, 64) for _ in range(DEPTH)]
    depth_stack_(weights, FractionalIncrements(0.9), seed=0)
    values = torch.stack(weights)
    lag_one = (values[1:] * values[:-1]).mean() / values.square().mean()
    # n = 4096 paths; the deviation of lag-one correlation is below 1/sqrt(4096) = 0.016.
    assert abs(lag_one.item() - (2**0.8 - 1)) < 4.5 * 0.016
    assert values[0].unique().numel() == 4096


def test_precision_and_layout_do_not_change_the_draw():
    plain = [torch.empty(8, 6) for _ in range(5)]
    half = [torch.empty(6, 8, dtype=torch.bfloat16).T for _ in range(5)]
    for weights in (plain, half):
        depth_stack_(weights, SmoothProcess(0.1), seed=1)
    assert all(torch.equal(a.bfloat16(), b) for a, b in zip(plain, half, strict=True))


def test_blocks_of_a_model_are_found_by_index():
    net = model()
    untouched = {k: v.clone() for k, v in net.state_dict().items() if ".1." not in k}
    table = depth_stack_(net, SmoothProcess(0.5), mode="fan_out", seed=0)
    assert table["name"].tolist() == [f"blocks.{i}.{j}.weight" for j in (1, 2) for i in range(4)]
    assert table["fan_out"].tolist() == [16] * 4 + [8] * 4
    up = torch.stack([net["blocks"][i][1].weight for i in range(4)]).detach()
    assert torch.corrcoef(up.reshape(4, -1))[0, 1] > 0.6  # the kernel is 0.88
    assert (
        not torch.corrcoef(torch.stack([up[0].ravel(), net["blocks"][0][2].weight.ravel()]))[
            0, 1
        ].abs()
        > 0.5
    )
    for name, value in untouched.items():
        if "weight" not in name or ".0.weight" in name or not name.startswith("blocks"):
            assert torch.equal(net.state_dict()[name], value)


def test_a_layer_elsewhere_changes_no_draw():
    net, other = model(), model()
    other["extra"] = nn.Linear(8, 8)
    depth_stack_(net, SmoothProcess(0.1), seed=0)
    depth_stack_(other, SmoothProcess(0.1), blocks="blocks", seed=0)
    for mine, theirs in zip(net["blocks"], other["blocks"], strict=True):
        assert torch.equal(mine[1].weight, theirs[1].weight)
        assert torch.equal(mine[2].weight, theirs[2].weight)


def test_fans_of_the_layer_and_declared_axes():
    convolutions = nn.Sequential(*(nn.Conv2d(8, 8, 3, groups=4) for _ in range(3)))
    assert set(depth_stack_(convolutions, Independent(), seed=0)["fan_in"]) == {18}
    packed = nn.Sequential(*(nn.Linear(8, 24, bias=False) for _ in range(3)))
    table = depth_stack_(packed, Independent(), axes={"*.weight": Axes(blocks=3)}, seed=0)
    assert set(table["fan_out"]) == {8}
    stack = [torch.empty(4, 6) for _ in range(2)]
    assert set(depth_stack_(stack, Independent(), axes=Axes(0, 1), seed=0)["fan_in"]) == {4}


def test_empty_and_meta_tensors_are_left_alone():
    depth_stack_([torch.empty(0, 4)] * 2, Independent(), seed=0)
    depth_stack_([torch.empty(3, 4, device="meta")] * 2, Independent(), seed=0)


@pytest.mark.parametrize(
    ("layers", "arguments", "error", "message"),
    [
        ([torch.ones(2, 2)], {"law": 0.8}, TypeError, "`law` must be a DepthLaw; got 0.8"),
        ([], {}, ValueError, "`layers` must have at least one tensor; got none"),
        (torch.ones(2, 2), {}, TypeError, "`layers` must be a module or a sequence of tensors"),
        ([torch.ones(2, 2), torch.ones(2, 3)], {}, ValueError, "`layers` must have one shape"),
        ([torch.ones(2, 2).int()], {}, TypeError, r"`layers\[0\]` must be of type float16"),
        ([torch.ones(2)], {}, ValueError, r"layers, shape \(2,\): `in_axis` must lie in"),
        ([torch.ones(2, 2)], {"blocks": "h"}, ValueError, "`blocks` must be None for a list"),
        ([torch.ones(2, 2)], {"axes": {}}, TypeError, "`axes` must be an Axes for a list"),
        ([torch.ones(2, 2)], {"scale": -1}, ValueError, "`scale` must be finite and not neg"),
        (model(), {"blocks": "layers"}, ValueError, "`blocks` must be the path of a container"),
        (model(), {"axes": Axes()}, TypeError, "`axes` must map patterns of names"),
        (nn.Linear(2, 2), {}, ValueError, "`blocks` must be given where not .*; got none"),
        (
            nn.ModuleDict({"a": model(), "b": model()}),
            {},
            ValueError,
            "`blocks` must be given where not .*; got 'a.blocks', 'b.blocks'",
        ),
        (
            nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)),
            {"blocks": ""},
            ValueError,
            r"`blocks` must have blocks alike; \*\.weight is not always a weight",
        ),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3)),
            {"blocks": ""},
            ValueError,
            "`layers` must have one shape",
        ),
        (nn.Sequential(nn.LayerNorm(2), nn.LayerNorm(2)), {}, ValueError, "must have weights"),
        (nn.Sequential(*[nn.Linear(2, 2)] * 2), {}, ValueError, r"\*.weight is shared"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)),
            {"blocks": ""},
            ValueError,
            "`blocks` must have blocks with the same parameters; got ''",
        ),
        (
            nn.Sequential(
                *(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)) for _ in range(2))
            ),
            {},
            ValueError,
            "`layers` must have plain weights; .* is parametrised",
        ),
    ],
    ids=str,
)
def test_errors(layers, arguments, error, message):
    with pytest.raises(error, match=message):
        depth_stack_(layers, **{"law": Independent(), "seed": 0, **arguments})
