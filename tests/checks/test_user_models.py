"""Models as users write them: compiled, sparse, plain, or run by another method than forward."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scalinglimits.checks import learning_rate_transfer, scaling_check
from scalinglimits.checks.names import Stacks
from scalinglimits.checks.probe import Probe
from scalinglimits.checks.setups import make_optimizer, normalises
from scalinglimits.scaling import make_plan

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(8, 4, generator=GENERATOR), torch.tensor([0, 0, 1, 2, 0, 1, 0, 0])
SIZES = {"widths": (16, 32), "depths": (2,), "seeds": 2, "max_seeds": 2, "steps": 1}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def step(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y)


def whole(model):
    return torch.compile(model, backend="eager")


def parts(model):
    model.blocks = nn.ModuleList(map(whole, model.blocks))
    return model


def in_place(model):
    model.compile(backend="eager")
    return model


@pytest.mark.parametrize("compiled", [whole, parts, in_place])
def test_a_compiled_model_is_measured_as_it_is_without(compiled):
    expected = scaling_check(Net, step, [(X, Y)], **SIZES)
    check = scaling_check(lambda w, d: compiled(Net(w, d)), step, [(X, Y)], **SIZES)
    assert check.record.equals(expected.record)
    plan = make_plan(lambda w, d: compiled(Net(w, d)), (16, 2), (32, 2))
    model = compiled(Net(32, 2))
    plan.initialize_(model, seed=0)
    assert len(list(plan.param_groups(model, lr=1.0))) > 1


def flat(width, depth):
    blocks = (Block(width) for _ in range(depth))
    return nn.Sequential(nn.Linear(4, width), *blocks, nn.Linear(width, 3))


def test_blocks_in_a_flat_sequence_are_those_of_a_list():
    sizes = {**SIZES, "depths": (2, 4, 8), "seeds": 3, "max_seeds": 3}
    for plan in ("mup", None):
        check = scaling_check(flat, step, [(X, Y)], plan=plan, **sizes)
        expected = scaling_check(Net, step, [(X, Y)], plan=plan, **sizes)
        assert check.verdict == expected.verdict
        judged = {(f.axis, f.kind, f.name, f.step) for f in check.findings if f.verdict}
        called = {"blocks.*": "*", "stem": "0", "head": "3"}
        names = {}
        for f in expected.findings:
            names[f.name] = f.name
            for old, new in called.items():
                names[f.name] = names[f.name].replace(old, new)
        assert judged == {
            (f.axis, f.kind, names[f.name], f.step) for f in expected.findings if f.verdict
        }


class Encoder(Net):
    """Runs by a method of its own."""

    def forward(self):
        pytest.fail("the step calls another method")

    def encode(self, batch):
        return super().forward(batch["x"])


def test_another_method_than_forward():
    def encode(model, batch):
        return F.cross_entropy(model.encode(batch), batch["y"])

    expected = scaling_check(Net, step, [(X, Y)], **SIZES)
    check = scaling_check(Encoder, encode, [{"x": X, "y": Y}], **SIZES)
    here, there = (c.record[c.record.kind == "contribution"].value for c in (check, expected))
    assert list(here) == list(there)


class Dictionary(Net):
    """Takes a dictionary: wrong guesses of its inputs must not warn."""

    def forward(self, batch):
        return super().forward(batch["x"])


def test_wrong_guesses_do_not_warn(capfd):
    def run(model, batch):
        return F.cross_entropy(model(batch), batch["y"])

    scaling_check(Dictionary, run, [{"x": X, "y": Y}], **SIZES)
    assert "Warning" not in capfd.readouterr().err


class Bag(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.table, self.head = nn.Embedding(11, width, sparse=True), nn.Linear(width, 3)

    def forward(self, tokens):
        return self.head(self.table(tokens).mean(1))


def test_sparse_gradients():
    tokens = torch.randint(11, (8, 5), generator=torch.Generator().manual_seed(0))
    sizes = {**SIZES, "depths": (1,)}
    check = scaling_check(Bag, step, [(tokens, Y)], plan=None, optimizer="sgd", **sizes)
    assert (check.record[check.record.name == "table.weight"].value > 0).all()


def test_one_pass_only_where_it_is_known_to_work():
    on_cpu, elsewhere = (nn.Parameter(torch.ones(2, device=d)) for d in ("cpu", "meta"))
    assert make_optimizer("adam", [{"params": [on_cpu]}]).defaults["fused"]
    assert not make_optimizer("adam", [{"params": [on_cpu, elsewhere]}]).defaults["fused"]


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("adam", True),
        ("sgd", False),
        (torch.optim.Adam, True),
        (torch.optim.SGD, False),
        (partial(torch.optim.Adam, eps=1e-6), False),  # nobody knows
    ],
)
def test_steps_that_do_not_depend_on_the_gradients_size(optimizer, expected):
    assert normalises(optimizer) is expected


class Breaking(torch.optim.SGD):
    """As a gradient that overflows in half precision."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.fill_(torch.nan)


def test_weights_that_break_in_the_last_step():
    check = scaling_check(Net, step, [(X, Y)], plan=None, optimizer=Breaking, **SIZES)
    assert check.verdict == "fails"
    assert "the loss is not finite after 1 steps" in str(check)


class Fading(nn.Module):
    """Gradients die with the depth."""

    def __init__(self, width, depth):
        super().__init__()
        self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 3)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = 0.05 * layer(x)
        return self.head(x)


def test_what_is_not_judged_along_one_axis_is_noted():
    sizes = {**SIZES, "depths": (1, 8)}
    notes = scaling_check(Fading, step, [(X, Y)], plan=None, **sizes).notes
    text = "{} gets no gradient beyond rounding at width=16, depth=8 and is not judged along depth"
    assert [text.format(f"stem.{name}") for name in ("bias", "weight")] == list(notes)


SHORT = {"widths": (8, 16), "steps": 1, "seeds": 2}
RATES = {"learning_rates": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}


def mlp(width, depth):
    hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(5, width), *hidden, nn.Linear(width, 3))


class Gated(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.gru, self.head = nn.GRU(5, width, depth), nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.gru(x)[0])


class PostNorm(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0)
        self.stem, self.head = nn.Linear(5, width), nn.Linear(width, 3)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, x):
        return self.head(self.encoder(self.stem(x[:, None]))[:, 0])


@pytest.mark.parametrize("build", [mlp, Gated, PostNorm])
@pytest.mark.parametrize(
    "function", [scaling_check, partial(learning_rate_transfer, **RATES)], ids=["check", "transfer"]
)
def test_a_depth_rule_without_residual_branches(build, function):
    trained = []

    def one_step(model, batch):
        trained.append(next(model.parameters()).dtype != torch.float64)
        return step(model, batch)

    batches = [(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), Y)]
    with pytest.raises(ValueError, match=r"pass depth_rule=\"none\", on the command line"):
        function(build, one_step, batches, depths=(2, 4), **SHORT)
    assert not any(trained)  # it is said before any work
    function(build, step, batches, depths=(2, 4), depth_rule="none", **SHORT)


def test_options_that_no_plan_takes():
    message = "`plan` must be a rule's name to take stpes; got None"
    with pytest.raises(TypeError, match=message):
        scaling_check(Net, step, [(X, Y)], plan=None, stpes=2, widths=(8, 16))
    message = r"`plans` must be a rule's name to take depth_rule; got \[None\]"
    with pytest.raises(TypeError, match=message):
        learning_rate_transfer(
            Net, step, [(X, Y)], plans={"none": None}, depth_rule="none", **SHORT, **RATES
        )


def test_autocast_does_not_hide_small_updates():
    def half(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(batch[0]).float(), batch[1])

    # Updates of 1e-5 are nothing in bfloat16: next to 1, it has steps of 8e-3.
    sizes = {**SIZES, "depths": (2, 4), "lr": 1e-5}
    kinds = ["block_share", "block_contribution", "share", "contribution"]
    keys = ["width", "depth", "seed", "kind", "name", "step"]
    values = []
    for one_step in (step, half):
        record = scaling_check(Net, one_step, [(X, Y)], **sizes).record
        values.append(record[record.kind.isin(kinds)].set_index(keys).value)
    # Gradients of half precision are another matter: Adam's signs differ in a few entries.
    ratio = (values[1] / values[0]).dropna()
    assert len(ratio) > 100
    assert ratio.between(0.5, 2.0).all(), ratio[~ratio.between(0.5, 2.0)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_half_precision_are_measured_in_single(dtype):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(64, 64))

        def forward(self, x):
            return x @ self.weight

    model, x = Product().to(dtype), torch.ones(4, 64, dtype=dtype)
    initial = {"weight": model.weight.detach().clone()}
    probe = Probe(model, Stacks())
    with probe.measuring(None):
        model(x)
    probe.readings()
    with torch.no_grad():
        model.weight += 1e-3
    with probe.measuring(initial):
        model(x)
    found = {r.kind: float(r.value) for r in probe.readings()}
    change = float(model.weight.detach()[0, 0].double())
    assert found["contribution"] == pytest.approx(64 * change, rel=1e-6)
