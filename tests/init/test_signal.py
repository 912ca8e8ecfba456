"""Tables of gains: exact predictions, agreement with measurements, chains and their limits."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

from scalinglimits.init import END_TO_END, Axes, signal_table
from scalinglimits.init._activations import weightless_gains
from scalinglimits.laws.fans import MODES, average_fan

BACK_AND_FORTH = [(128, 512), (512, 128), (128, 512), (512, 128)]


def ends(table):
    return table[table["layer"] == END_TO_END].set_index("mode")


def test_predictions_are_m_t_and_n_t_and_multiply():
    table = signal_table([(8, 32), (32, 4)], draws=1, batch=4)
    for mode in MODES:
        rows = table[table["mode"] == mode]
        t = [1 / average_fan(8, 32, mode), 1 / average_fan(32, 4, mode)]
        forward, backward = [8 * t[0], 32 * t[1]], [32 * t[0], 4 * t[1]]
        expected = [*forward, math.prod(forward)], [*backward, math.prod(backward)]
        assert rows["forward_predicted"].tolist() == pytest.approx(expected[0])
        assert rows["backward_predicted"].tolist() == pytest.approx(expected[1])
    assert table["forward_se"].isna().all()


def test_geometric_is_neutral_and_xavier_lies_between():
    table = ends(signal_table(BACK_AND_FORTH, draws=1, batch=4))
    geo, avg, quad = (table.loc[f"fan_{k}avg"] for k in ("geo_", "", "quad_"))
    assert geo["forward_predicted"] == pytest.approx(1.0)
    assert geo["backward_predicted"] == pytest.approx(1.0)
    for column in ("forward_predicted", "backward_predicted"):
        assert geo[column] > avg[column] > quad[column]


@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.Tanh(), nn.GELU()], ids=str)
def test_measurements_agree_with_predictions(activation):
    # Relative to the prediction within 4.5 standard errors over 16 draws, plus 3 % for the
    # finite width behind a non-linearity.
    modes = ["fan_in", "fan_geo_avg"]
    table = signal_table(BACK_AND_FORTH, activation=activation, gains=1.3, modes=modes, draws=16)
    for way in ("forward", "backward"):
        error = (table[way] - table[f"{way}_predicted"]).abs()
        assert (error < 4.5 * table[f"{way}_se"] + 0.03 * table[f"{way}_predicted"]).all()
    assert (table["draws"] == 16).all()


def test_orthogonal_square_chains_keep_every_norm():
    table = signal_table([(64, 64)] * 5, distribution="orthogonal", draws=2, modes="fan_in")
    assert table["forward"].tolist() == pytest.approx([1.0] * 6, rel=1e-5)
    assert table["backward"].tolist() == pytest.approx([1.0] * 6, rel=1e-5)


def test_convolutions_are_counted_with_their_borders():
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, stride=2, bias=False),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, groups=4),
        nn.ConvTranspose2d(64, 32, 4, stride=2),
        nn.Flatten(),
        nn.Linear(32 * 14 * 14, 10),
    )
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(32, 3, 16, 16, generator=generator)
    table = signal_table(model, inputs, modes="fan_avg", distribution="rademacher", draws=16)
    for way in ("forward", "backward"):
        error = (table[way] - table[f"{way}_predicted"]).abs()
        assert (error < 4.5 * table[f"{way}_se"] + 0.05 * table[f"{way}_predicted"]).all()
    third = table[table["layer"] == "2"].iloc[0]
    assert (third["fan_in"], third["fan_out"]) == (144, 144)  # borders ignored
    assert third["backward_predicted"] == pytest.approx((6 / 8) ** 2)  # and counted


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.act = nn.ReLU()
        self.one = nn.Linear(16, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, index):
        x = self.embed(index)
        x = x + self.act(self.one(self.act(x)))
        y = self.norm(x)
        return {"logits": self.head(x + self.attention(y, y, y)[0])}


def test_models_that_are_no_chain_have_no_product():
    model = Residual()
    before = copy.deepcopy(model.state_dict())
    index = torch.arange(60).reshape(6, 10) % 20
    table = signal_table(model, index, modes="fan_in", draws=2)
    assert table["layer"].tolist() == [
        "embed", "act", "one", "act", "norm", "attention", "head", END_TO_END
    ]  # fmt: skip
    assert table["call"].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    rows = table.set_index(["layer", "call"])
    assert math.isnan(rows.loc[(END_TO_END, 0), "forward_predicted"])
    assert rows.loc[(END_TO_END, 0), "forward"] > 0
    assert math.isnan(rows.loc[("attention", 0), "forward_predicted"])
    assert math.isnan(rows.loc[("norm", 0), "forward_predicted"])
    assert rows.loc[("embed", 0), "forward_predicted"] == pytest.approx(1 / 16)
    assert rows.loc[("head", 0), "backward_predicted"] == pytest.approx(20 / 16)
    assert math.isnan(rows.loc[("embed", 0), "backward"])
    assert rows.loc[("one", 0), "backward"] > 0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_functions_between_layers_break_the_chain():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.two(torch.relu(self.one(x)))

    table = ends(signal_table(Functional(), torch.ones(3, 4), draws=1, modes="fan_in"))
    assert table["forward_predicted"].isna().all()
    assert (table["backward"] > 0).all()


def test_declared_layers_and_wrapped_models_are_predicted():
    class Kernel(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.empty(8, 4))

        def forward(self, x):
            return x @ self.kernel

    model = nn.Sequential(nn.Linear(4, 8), Kernel())
    wrapped = nn.Sequential()
    wrapped.add_module("_orig_mod", model)  # as torch.compile names it
    table = signal_table(
        wrapped, torch.ones(2, 4), modes="fan_out", draws=1, axes={"*.kernel": Axes(0, 1)}
    )
    assert table["forward_predicted"].tolist() == pytest.approx([0.5, 2.0, 1.0])
    assert table["backward_predicted"].tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_layers_packed_excluded_and_bilinear():
    model = nn.Sequential(nn.Linear(32, 96, bias=False), nn.Linear(96, 8))
    nn.init.constant_(model[1].weight, 0.5)
    table = signal_table(
        model,
        torch.ones(2, 32),
        modes="fan_avg",
        axes={"0.weight": Axes(blocks=3)},
        exclude="1.*",
        draws=1,
    )
    assert table["fan_out"][0] == 32
    assert table["forward_predicted"][0] == pytest.approx(1.0)
    assert table["backward_predicted"].tolist()[:2] == pytest.approx([3.0, 8 * 0.25])

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.form = nn.Bilinear(32, 48, 64)

        def forward(self, x, y):
            return self.form(x, y)

    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(64, n, generator=generator) for n in (32, 48))
    row = signal_table(Pair(), inputs, modes="fan_geo_avg", draws=4).iloc[0]
    assert row["forward"] == pytest.approx(row["forward_predicted"], rel=0.1)
    assert row["backward"] == pytest.approx(row["backward_predicted"], rel=0.1)


@pytest.mark.parametrize(
    ("module", "function", "slope"),
    [
        (nn.ReLU(), lambda z: np.maximum(z, 0), lambda z: z > 0),
        (nn.Tanh(), np.tanh, lambda z: 1 / np.cosh(z) ** 2),
        (nn.SiLU(), lambda z: z / (1 + np.exp(-z)), None),
    ],
)
@pytest.mark.parametrize("q", [0.01, 1.0, 30.0])
def test_gains_of_activations_are_gaussian_integrals(module, function, slope, q):
    def expectation(values):
        density = stats.norm(scale=math.sqrt(q)).pdf
        reach = 10 * math.sqrt(q)
        halves = [(-reach, 0.0), (0.0, reach)]
        return sum(
            integrate.quad(lambda z: values(z) * density(z), *half, limit=200)[0] for half in halves
        )

    forward, backward = weightless_gains(module, q)
    assert forward == pytest.approx(expectation(lambda z: function(z) ** 2) / q, rel=1e-6)
    if slope is not None:
        assert backward == pytest.approx(expectation(lambda z: slope(z) ** 2), rel=1e-6)


def test_other_layers_without_weights():
    assert weightless_gains(nn.Flatten(), 3.0) == (1.0, 1.0)
    assert weightless_gains(nn.Dropout(0.5), 3.0) == (2.0, 2.0)
    assert weightless_gains(nn.Dropout(0.5).eval(), 3.0) == (1.0, 1.0)
    assert weightless_gains(nn.LeakyReLU(0.5), 3.0) == pytest.approx((0.625, 0.625))
    for module in (nn.PReLU(3), nn.MaxPool2d(2), nn.Dropout(1.0)):
        assert weightless_gains(module, 3.0) is None
    assert weightless_gains(nn.ReLU(), 0.0) is None


def test_the_same_seed_gives_the_same_table():
    first, second, third = (
        signal_table([(4, 8), (8, 4)], seed=seed, draws=2) for seed in (0, 0, 1)
    )
    assert first.equals(second)
    assert not first.equals(third)
    assert list(dict.fromkeys(first["mode"])) == list(MODES)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([(4, 8), (4, 8)],), ValueError, "must form a chain; got 8 outputs into 4 inputs"),
        (([],), ValueError, "`model_or_shapes` must have at least one layer; got none"),
        (([(4, 0)],), ValueError, r"must have positive sizes; got \(4, 0\)"),
        (([4, 8],), TypeError, "must be a torch.nn.Module or a sequence of"),
        (([(4, 8)], torch.ones(1)), ValueError, "`inputs` must be None for shapes"),
        ((nn.Linear(4, 8),), ValueError, "`inputs` must be the input of the model; got None"),
    ],
)
def test_bad_models_and_shapes(arguments, error, message):
    with pytest.raises(error, match=message):
        signal_table(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"modes": ["fan_max"]}, ValueError, "`mode` must be one of"),
        ({"draws": 0}, ValueError, "`draws` must be at least 1; got 0"),
        ({"batch": 2.0}, TypeError, "`batch` must be an integer; got 2.0"),
        ({"activation": torch.relu}, TypeError, "`activation` must be a torch.nn.Module"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        signal_table([(4, 8)], **arguments)


def test_a_model_with_an_activation_or_without_an_output():
    with pytest.raises(ValueError, match="`activation` must be None for a model"):
        signal_table(nn.Linear(4, 4), torch.ones(1, 4), activation=nn.ReLU())

    class Silent(nn.Linear):
        def forward(self, x):
            return None

    with pytest.raises(TypeError, match="`model` must return a floating-point tensor"):
        signal_table(Silent(4, 4), torch.ones(1, 4))


def test_every_chain_that_returns_is_neutral_in_the_geometric_mode():
    for inner in itertools.product((2, 5, 9), repeat=2):
        widths = [4, *inner, 4]
        table = ends(signal_table(list(itertools.pairwise(widths)), draws=1, batch=2,
                                  modes="fan_geo_avg"))  # fmt: skip
        assert table["forward_predicted"].iloc[0] == pytest.approx(1.0)
        assert table["backward_predicted"].iloc[0] == pytest.approx(1.0)
