"""Whole models: determinism by name, the table, ties, parametrisations, errors."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from scalinglimits.init import Axes, initialize_, variance_scaling_
from scalinglimits.laws.streams import derive_seed


class Scale(nn.Module):
    """A layer that nobody knows."""

    def __init__(self, *shape):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(shape))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16, padding_idx=3)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.PReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.TransformerEncoderLayer(8, 2, 16),
        nn.LSTM(8, 6, proj_size=3),
    )


def test_each_weight_is_drawn_from_a_stream_named_after_it():
    net = network()
    initialize_(net, "fan_quad_avg", "uniform", seed=7)
    alone = torch.empty(8, 16)
    variance_scaling_(alone, 1.0, "fan_quad_avg", "uniform", seed=derive_seed(7, "5.weight"))
    assert torch.equal(net[5].weight, alone)


def test_a_layer_more_or_less_changes_no_other_draw():
    net = nn.ModuleDict({"a": nn.Linear(4, 5), "b": nn.Linear(5, 4)})
    more = nn.ModuleDict({"new": nn.Linear(3, 3), "b": nn.Linear(5, 4), "a": nn.Linear(4, 5)})
    initialize_(net, seed=1)
    initialize_(more, seed=1)
    assert all(torch.equal(more[k].weight, net[k].weight) for k in "ab")


def test_wrappers_leave_no_trace_in_names():
    plain, wrapped = nn.Sequential(nn.Linear(4, 5)), nn.Sequential(nn.Linear(4, 5))
    initialize_(plain, seed=1)
    table = initialize_(nn.ModuleDict({"_orig_mod": wrapped}), seed=1)  # as torch.compile does
    assert table["name"].tolist() == ["0.weight", "0.bias"]
    assert torch.equal(plain[0].weight, wrapped[0].weight)


def test_the_table_says_what_was_done():
    net = network()
    table = initialize_(net, "fan_out", gains={"5.*": 2.0, "*.linear?.weight": 0.0}, seed=0)
    table = table.set_index("name")
    assert set(table.index) == set(dict(net.named_parameters()))
    assert table.loc["0.weight", ["fan_in", "fan_out"]].tolist() == [27, 72]
    assert table.loc["3.weight", ["fan_in", "fan_out"]].tolist() == [8, 16]
    assert table.loc["5.weight", "std"] == pytest.approx(2 / math.sqrt(8))
    assert table.loc["5.weight", ["layer", "action", "mode", "distribution"]].tolist() == [
        "Linear", "drawn", "fan_out", "normal"
    ]  # fmt: skip
    assert table.loc["6.self_attn.in_proj_weight", "fan_out"] == 8
    assert table.loc["7.weight_hr_l0", ["fan_in", "fan_out"]].tolist() == [6, 3]
    assert table.loc[["1.weight", "1.bias"], "value"].tolist() == [1, 0]
    assert table.loc["2.weight", "action"] == "kept"
    assert net[2].weight.item() == 0.25
    assert not net[6].linear1.weight.any()
    assert net[6].self_attn.out_proj.weight.any()
    assert not any(p.any() for name, p in net.named_parameters() if "bias" in name)


def test_excluded_parameters_stay():
    net = network()
    before = copy.deepcopy(net.state_dict())
    table = initialize_(net, exclude=["0.*", "*norm1.weight"], seed=0).set_index("name")
    assert (table.loc[["0.weight", "0.bias", "6.norm1.weight"], "action"] == "kept").all()
    assert torch.equal(net[0].weight, before["0.weight"])
    assert torch.equal(net[0].bias, before["0.bias"])
    assert not torch.equal(net[5].weight, before["5.weight"])


def test_tied_weights_are_drawn_once_with_the_smaller_deviation():
    net = Tied()
    table = initialize_(net, seed=0).set_index("name")
    assert list(table.index) == ["embed.weight", "norm.weight", "norm.bias"]
    row = table.loc["embed.weight"]
    assert row["tied"] == "head.weight"
    assert (row["fan_in"], row["std"]) == (16, 0.25)  # as an embedding it would have deviation 1
    assert net.head.weight is net.embed.weight
    assert not net.embed.weight[3].any()
    declared = {"head.weight": Axes(in_axis=(), out_axis=1, batch_axis=0)}
    assert initialize_(net, axes=declared, seed=0)["std"][0] == 1.0
    assert initialize_(net, gains={"head.*": 2.0}, seed=0)["std"][0] == 0.5


def test_weight_norm_keeps_what_is_assigned():
    net, plain = nn.Sequential(nn.Linear(6, 4)), nn.Sequential(nn.Linear(6, 4))
    parametrizations.weight_norm(net[0])
    table = initialize_(net, seed=0)
    initialize_(plain, seed=0)
    assert set(table["name"]) == {"0.bias", "0.weight"}
    assert table.set_index("name").loc["0.weight", "layer"] == "Linear"
    assert torch.allclose(net[0].weight, plain[0].weight, rtol=1e-5)
    assert isinstance(net[0].parametrizations["weight"].original1, nn.Parameter)


@pytest.mark.parametrize(
    "parametrise", [parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_parametrisations_that_lose_the_values_are_an_error(parametrise):
    net = nn.Sequential(nn.Linear(6, 4), parametrise(nn.Linear(4, 4)))
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=r"got 1\.weight under .*: initialise before parametris"):
        initialize_(net, seed=0)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    table = initialize_(net, exclude="1.weight", seed=0).set_index("name")
    assert table.loc["1.weight", "action"] == "kept"


def test_meta_models_are_left_alone_and_reported():
    with torch.device("meta"):
        net = network()
    table = initialize_(net, seed=0)
    assert set(table["action"]) == {"meta"}
    assert (table["std"].notna() == table["fan_in"].notna()).all()


def test_meta_then_materialised_is_the_same_model():
    with torch.device("meta"):
        late = network()
    late.to_empty(device="cpu")
    early = network()
    with torch.no_grad():
        late[2].weight.fill_(0.25)
    initialize_(late, seed=3)
    initialize_(early, seed=3)
    for mine, theirs in zip(late.parameters(), early.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_half_precision_models_are_rounded():
    net, half = network(), network().bfloat16()
    initialize_(net, seed=0)
    initialize_(half, seed=0)
    for mine, theirs in zip(net.parameters(), half.parameters(), strict=True):
        assert torch.equal(mine.bfloat16(), theirs)


def test_underflow_names_the_parameter():
    with pytest.warns(UserWarning, match=r"^weight: the standard deviation 5e-06 is below"):
        initialize_(nn.Linear(4, 4, bias=False).half(), gains=1e-5, seed=0)


def test_generators_and_the_default_one():
    net = nn.Linear(4, 4)
    generator = torch.Generator().manual_seed(0)
    initialize_(net, generator=generator)
    first = net.weight.clone()
    initialize_(net, generator=generator)
    assert not torch.equal(first, net.weight)
    initialize_(net, generator=generator.manual_seed(0))
    assert torch.equal(first, net.weight)
    torch.manual_seed(0)
    initialize_(net)
    first = net.weight.clone()
    torch.manual_seed(0)
    initialize_(net)
    assert torch.equal(first, net.weight)


def test_the_transposed_dense_layer_of_transformers():
    class Conv1D(nn.Module):
        def __init__(self, nf, nx):
            super().__init__()
            self.nf = nf
            self.weight = nn.Parameter(torch.empty(nx, nf))
            self.bias = nn.Parameter(torch.ones(nf))

    net = nn.ModuleDict({"c_attn": Conv1D(24, 8)})
    row = initialize_(net, "fan_out", seed=0).set_index("name").loc["c_attn.weight"]
    assert (row["fan_in"], row["fan_out"]) == (8, 24)
    assert not net["c_attn"].bias.any()
    packed = {"*.c_attn.weight": Axes(0, 1, blocks=3, block_axis=1)}
    net = nn.ModuleDict({"h": net})
    assert initialize_(net, "fan_out", axes=packed, seed=np.int64(0))["fan_out"][0] == 8


def test_nothing_is_attached_to_parameters():
    net = network()
    initialize_(net, seed=0)
    assert not any(vars(parameter) for parameter in net.parameters())


def test_unknown_layers_are_listed_and_can_be_declared():
    net = nn.ModuleDict({"a": Scale(5, 7), "b": Scale(3), "c": nn.Linear(2, 2)})
    before = copy.deepcopy(net.state_dict())
    message = r"got a\.gamma of Scale, shape \(5, 7\); b\.gamma of .*Declare .*axes=.*exclude="
    with pytest.raises(ValueError, match=message):
        initialize_(net, seed=0)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    table = initialize_(net, axes={"a.*": Axes(0, 1)}, exclude="b.*", seed=0).set_index("name")
    assert table.loc["a.gamma", ["fan_in", "fan_out"]].tolist() == [5, 7]
    assert table.loc["b.gamma", "action"] == "kept"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mode": "fan_max"}, ValueError, "`mode` must be one of"),
        ({"distribution": "cauchy"}, ValueError, "`distribution` must be one of"),
        ({"gains": -1.0}, ValueError, "`gains` must be finite and not negative; got -1.0"),
        ({"gains": {"0.*": "2"}}, TypeError, r"`gains\['0\.\*'\]` must be a real number"),
        ({"gains": {"nothing": 2.0}}, ValueError, "`gains` must match weights .*got 'nothing'"),
        ({"gains": {"*.bias": 2.0}}, ValueError, r"`gains` must match weights .*got '\*\.bias'"),
        ({"gains": {3: 2.0}}, TypeError, "`gains` must map patterns of names to numbers; got 3"),
        ({"exclude": "nothing"}, ValueError, "`exclude` must match parameters .*got 'nothing'"),
        ({"exclude": [3]}, TypeError, "`exclude` must be made of patterns of names; got 3"),
        ({"axes": {"nothing": Axes()}}, ValueError, "`axes` must match parameters"),
        ({"axes": {"*.weight": 1}}, TypeError, "`axes` must map patterns of names to Axes"),
        ({"axes": {"0.bias": Axes()}}, ValueError, r"0\.bias, shape \(3,\): `in_axis` must lie"),
        ({"seed": 0, "generator": torch.Generator()}, ValueError, "`seed` must not be given"),
    ],
)
def test_errors_come_before_any_change(arguments, error, message):
    net = nn.Sequential(nn.Linear(4, 3))
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(error, match=message):
        initialize_(net, **arguments)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (torch.ones(2, 2), TypeError, "`model` must be a torch.nn.Module; got Tensor"),
        (nn.LazyLinear(3), ValueError, "`weight` must have a shape"),
        (nn.Linear(2, 2, dtype=torch.complex64), TypeError, "`weight` must be of type float16"),
    ],
)
def test_bad_models(model, error, message):
    with pytest.raises(error, match=message):
        initialize_(model, seed=0)
