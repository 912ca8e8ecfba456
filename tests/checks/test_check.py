"""The whole check on small models: verdicts, precision, containers, and bad input."""

import itertools

import pytest
import torch
from torch import nn

from scalinglimits.checks import learning_rate_transfer, scaling_check

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x), "hidden": (x,)}


def step(model, x):
    out = model(x)["logits"]
    return nn.functional.cross_entropy(out, (torch.arange(len(x), device=x.device) % 3 == 0).long())


SMALL = {"widths": (32, 64, 128), "depths": (2, 4, 8), "seeds": 4, "steps": 1}


def test_plan_holds_and_no_plan_fails():
    check = scaling_check(Net, step, [X], plan="mup", **SMALL)
    assert check.verdict == "holds", str(check)
    assert check.settings["depth_exponent"] == 1.0
    naive = scaling_check(Net, step, [X], plan=None, **SMALL)
    assert naive.verdict == "fails"
    assert {"blocks.*.up.weight", "blocks.*.down.weight"} <= set(naive.suspects)
    assert set(naive.record.columns) >= {"width", "depth", "seed", "kind", "name", "value"}


def test_depth_mup_and_adamw():
    check = scaling_check(
        Net,
        step,
        [X],
        plan="mup",
        optimizer="adamw",
        weight_decay=0.1,
        depth_rule="depth-mup",
        **SMALL,
    )
    assert check.verdict == "holds", str(check)
    assert check.settings["depth_exponent"] == 0.5


class Encoder(nn.Module):
    """PyTorch's own encoder; its attention is one fused function."""

    def __init__(self, width, depth):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, width // 8, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 2)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, x):
        return {"logits": self.head(self.encoder(self.stem(x.unflatten(0, (4, 2)))).flatten(0, 1))}


def test_transformer_encoder():
    small = {"widths": (32, 64, 128), "depths": (2, 4), "seeds": 2, "max_seeds": 2, "steps": 1}
    check = scaling_check(Encoder, step, [X], plan="mup", **small)
    assert not check.failures, str(check)
    naive = scaling_check(Encoder, step, [X], plan=None, **small)
    assert "encoder.layers.*.self_attn.in_proj_weight" in naive.suspects


def test_query_bias_may_absorb_the_attention_factor():
    class Attention(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 2)
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

        def forward(self, x):
            x = self.stem(x.unflatten(0, (4, 2)))
            x = x + nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
            return {"logits": self.head(x).flatten(0, 1)}

    check = scaling_check(
        Attention, step, [X], plan=None, widths=(16, 32), depths=(1,), seeds=2, steps=1
    )
    ranges = {f.name: f.expected for f in check.findings if f.kind == "contribution"}
    assert ranges["q.bias"] == (-0.5, 0.0)
    assert ranges["v.bias"] == (0.0, 0.0)
    # Of eight samples a part of the weights' contribution is noise.
    assert -0.65 < ranges["q.weight"][0] <= -0.5
    assert -0.15 < ranges["v.weight"][0] <= 0.0


def test_same_seed_same_record_and_global_generator_untouched():
    state = torch.get_rng_state()
    small = {**SMALL, "widths": (8, 16), "depths": (1, 2), "seeds": 2}
    one, two = (scaling_check(Net, step, [X], plan=None, **small) for _ in range(2))
    other = scaling_check(Net, step, [X], plan=None, **{**small, "seed": 5})
    assert one.record.equals(two.record)
    assert not one.record.value.equals(other.record.value)
    assert torch.equal(state, torch.get_rng_state())


def test_seeds_are_added_while_undecided():
    check = scaling_check(
        Net, step, [X], plan="mup", widths=(8, 16), depths=(2,), seeds=2, max_seeds=5, steps=1
    )
    count = check.record.seed.nunique()
    assert count == check.settings["seeds"] <= 5
    fixed = scaling_check(
        Net, step, [X], plan="mup", widths=(8, 16), depths=(2,), seeds=2, max_seeds=2, steps=1
    )
    assert fixed.verdict == "undecided"
    assert fixed.settings["seeds"] == 2
    assert count > 2


def test_half_precision():
    check = scaling_check(
        Net,
        step,
        [X],
        plan="mup",
        dtype=torch.bfloat16,
        lr=0.01,
        depths=(2,),
        widths=(32, 64, 128),
        steps=2,
    )
    assert not check.failures, str(check)


def test_user_setup_optimizer_function_and_progress():
    seen = []

    def setup(model, width, depth, seed):
        seen.append((width, depth, seed))
        return [{"params": list(model.parameters()), "lr": 1e-3 * 32 / width}]

    check = scaling_check(
        Net,
        step,
        itertools.repeat(X),
        widths=(32, 64),
        depths=(2,),
        plan=setup,
        optimizer=lambda groups: torch.optim.SGD(groups, momentum=0.9),
        seeds=2,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (32, 2, 0) in seen
    assert (64, 2, 1) in seen
    assert (4, 4) in seen
    assert not check.record.empty


class Conditioned(nn.Module):
    """Two inputs in a mapping, which nobody could guess; a norm that only the first block has."""

    def __init__(self, width, depth):
        super().__init__()
        self.stem, self.time = nn.Linear(4, width), nn.Linear(1, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.blocks[0].first = nn.LayerNorm(width)
        self.head = nn.Linear(width, 2)

    def forward(self, *, image, time):
        x = self.blocks[0].first(self.stem(image) + self.time(time[:, None]))
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x)}


def conditioned(model, batch):
    return nn.functional.cross_entropy(model(**batch)["logits"], (torch.arange(8) % 3 == 0).long())


def test_inputs_that_nobody_could_guess():
    batch = {"image": X, "time": torch.linspace(0, 1, 8)}
    check = scaling_check(Conditioned, conditioned, [batch], plan="mup", **SMALL)
    assert not check.failures, str(check)
    once = [f for f in check.findings if "blocks.*.first" in f.name and f.axis == "depth"]
    kinds = {f.kind for f in once if f.verdict}
    assert "contribution" in kinds
    assert "block_contribution" not in kinds
    result = learning_rate_transfer(
        Conditioned,
        conditioned,
        [batch] * 2,
        widths=(8, 16),
        depths=(2, 4),
        steps=2,
        seeds=2,
        learning_rates=[1e-4, 1e-3, 1e-2, 1e-1, 1.0],
    )
    assert set(result.drifts.scaling) == {"plan", "standard"}


def test_key_bias_gets_no_verdict():
    class Attention(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 2)
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

        def forward(self, x):
            x = self.stem(x[:, None] * torch.tensor([1.0, -1.0, 0.5]).view(1, 3, 1))
            q, k, v = self.q(x), self.k(x), self.v(x)
            x = nn.functional.scaled_dot_product_attention(q, k, v)
            return {"logits": self.head(x).mean(1)}

    check = scaling_check(
        Attention, step, [X], widths=(16, 32, 64), depths=(1,), plan=None, seeds=2
    )
    assert any("k.bias" in note for note in check.notes)
    assert not [f for f in check.findings if f.name == "k.bias" and f.verdict]


def test_divergence_is_a_failure():
    def setup(model, width, depth, seed):
        return [{"params": list(model.parameters()), "lr": 1.0 if width == 32 else 1e30}]

    check = scaling_check(
        Net, step, [X], plan=setup, optimizer="sgd", widths=(32, 64), depths=(2,), seeds=2
    )
    assert check.verdict == "fails"
    assert "the loss is not finite after" in str(check)


def good(width, depth):
    return Net(width, depth)


CALLS = itertools.count()


def structure_at_random(width, depth):
    return Net(width, depth + next(CALLS) % 2)


def raising(width, depth):
    raise RuntimeError("no memory")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"build": lambda w, d: Net(8, d)}, ValueError, "`build` must use its width; got the same"),
        ({"build": lambda w, d: Net(w, 2)}, ValueError, "`build` must use its depth; got the same"),
        ({"build": structure_at_random}, ValueError, "`build` must give the same parameters each"),
        ({"build": lambda w, d: 3}, TypeError, "`build` must return a torch.nn.Module; got int"),
        ({"build": lambda w, d: nn.ReLU()}, ValueError, "`build` must return a model with param"),
        ({"build": lambda w, d: Net(w, w)}, ValueError, "`build` must give parameters of the same"),
        ({"build": raising}, RuntimeError, "no memory"),
        ({"step": lambda m, x: m(x)}, ValueError, "`step` must return the loss as .* got dict"),
        ({"step": lambda m, x: m(x)["logits"]}, ValueError, r"one entry; got shape \(8, 2\)"),
        ({"step": lambda m, x: torch.tensor(1.0)}, ValueError, "depends on the parameters"),
        ({"step": lambda m, x: step(m, x) * float("nan")}, ValueError, "finite loss .* got nan"),
        ({"batches": []}, ValueError, "`batches` must yield at least one batch; it ended after 0"),
        ({"batches": 7}, TypeError, "`batches` must be an iterable of batches or a function"),
        ({"widths": (8, 8)}, ValueError, r"`widths` must differ from each other; got \[8, 8\]"),
        ({"widths": 8}, TypeError, "`widths` must be a sequence of integers; got 8"),
        ({"widths": (8, 0)}, ValueError, "`widths` must be positive integers"),
        ({"widths": (8,), "depths": (2,)}, ValueError, "must have at least two sizes; got one"),
        ({"seeds": 1}, ValueError, "`seeds` must be at least 2, for intervals; got 1"),
        ({"seeds": 2.5}, TypeError, "`seeds` must be a positive integer; got 2.5"),
        ({"max_seeds": 1}, ValueError, "`max_seeds` must be at least `seeds`, 2; got 1"),
        ({"seed": -1}, ValueError, "`seed` must be a non-negative integer; got -1"),
        ({"steps": 0}, ValueError, "`steps` must be a positive integer; got 0"),
        ({"lr": float("inf")}, ValueError, "`lr` must be a positive number; got inf"),
        ({"optimizer": "best"}, ValueError, "`optimizer` must be a function or one of .*'best'"),
        ({"plan": 5}, TypeError, "`plan` must be a scaling plan, a rule's name, None or a func"),
        (
            {"plan": "mup", "optimizer": lambda groups: None},
            ValueError,
            "`optimizer` must be a name where `plan` is a rule's name",
        ),
    ],
)
def test_bad_input(change, error, message):
    arguments = {
        "build": good,
        "step": step,
        "batches": [X],
        "widths": (8, 16),
        "depths": (1, 2),
        "plan": None,
        "seeds": 2,
        **change,
    }
    build, one_step, batches = (arguments.pop(key) for key in ("build", "step", "batches"))
    with pytest.raises(error, match=message):
        scaling_check(build, one_step, batches, **arguments)
