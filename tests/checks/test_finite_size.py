"""What small models do to exponents: sums of few terms, narrow matrices, tiny branches."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from scalinglimits.checks import scaling_check
from scalinglimits.checks.blocks import block_contributions
from scalinglimits.checks.names import Stacks
from scalinglimits.checks.probe import Probe
from scalinglimits.checks.quantities import expected_exponent
from scalinglimits.scaling import make_plan


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Selective(nn.Module):
    """A fixed and a growing part packed in one matrix; the growing one is narrow."""

    fixed = 8

    def __init__(self, width, depth):
        super().__init__()
        self.rank = max(width // 16, 1)
        self.stem, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        self.select = nn.Linear(width, self.rank + self.fixed, bias=False)
        self.step = nn.Linear(self.rank, width)

    def forward(self, x):
        h = F.silu(self.stem(x))
        narrow, keys = self.select(h).split([self.rank, self.fixed], -1)
        rate = F.softplus(self.step(narrow))
        return self.head(h + rate * h * keys.square().mean(-1, keepdim=True))


def loss(model, batch):
    return F.cross_entropy(model(batch), torch.arange(len(batch)) % 3)


SIZES = {"widths": (32, 64, 128), "depths": (1,), "steps": 2}


def test_sums_of_two_to_eight_terms_are_no_fault_of_the_plan():
    check = scaling_check(Selective, loss, [randn(32, 6)], plan="mup", seeds=8, **SIZES)
    assert not check.failures, str(check)
    found = {(f.name, f.kind, f.step): f for f in check.findings}
    # Relative to what enters, which shrinks: most rows of the matrix ahead of it do not grow.
    contribution = found["step.weight", "relative_contribution", 1]
    assert contribution.exponent < -0.3  # and yet
    assert contribution.verdict == "holds"
    low, high = contribution.expected
    assert low == pytest.approx(contribution.exponent, abs=0.2)
    assert high == 0.0


class Language(nn.Module):
    """Selective blocks under a tied head, whose norm takes the head's multiplier."""

    def __init__(self, width, depth):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(20, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(SelectiveBlock(width) for _ in range(depth))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)


class SelectiveBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.branch = nn.LayerNorm(width), Selective(width, 1)
        self.branch.stem = nn.Linear(width, width)
        self.branch.head = nn.Linear(width, width)

    def forward(self, x):
        return x + self.branch(self.norm(x))


def test_tied_head_behind_a_narrow_matrix_is_judged_as_any_other():
    def step(model, tokens):
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())

    tokens = torch.randint(20, (2, 8), generator=torch.Generator().manual_seed(0))
    sizes = {"widths": (32, 64, 128), "depths": (2,), "steps": 1, "seeds": 4}
    check = scaling_check(Language, step, [tokens], plan="mup", **sizes)
    assert not check.failures, str(check)
    naive = scaling_check(Language, step, [tokens], plan=None, **sizes)
    assert "embedding.weight" in naive.suspects


def test_a_rate_scaled_twice_shows_in_sums_of_two_to_eight_terms():
    def setup(model, width, depth, seed):
        plan = make_plan(Selective, (32, 1), (width, 1), optimizer="adam")
        plan.initialize_(model, seed=seed)
        rates = {name: 1e-3 * plan[name].lr for name, _ in model.named_parameters()}
        rates["step.weight"] *= 32 / width
        return [{"params": [p], "lr": rates[name]} for name, p in model.named_parameters()]

    check = scaling_check(Selective, loss, [randn(32, 6)], plan=setup, seeds=4, **SIZES)
    assert check.suspects[0] == "step.weight"
    assert "scaled twice" in str(check)


def scatters(model, x, change):
    initial = {name: p.detach().clone() for name, p in model.named_parameters()}
    probe = Probe(model, Stacks())
    with probe.measuring(None):
        model(x)
    probe.readings()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p += change(p) if name.endswith("weight") else 0.0
    with probe.measuring(initial):
        model(x)
    rows = {r.name: float(r.value) for r in probe.readings() if r.kind == "scatter"}
    probe.remove()
    return rows


@pytest.mark.parametrize("n", [2, 16, 128])
def test_scatter_of_an_update_that_knows_its_signal(n):
    x = randn(1, n)
    rows = scatters(nn.Linear(n, 7), x, lambda p: randn(7, 1, seed=1) @ x)
    # ‖uxᵀx‖ = ‖u‖‖x‖², and at random ‖u‖‖x‖ times the size of one entry.
    assert rows == {"weight": pytest.approx(1 / n, rel=1e-5)}


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Linear(256, 300), (64, 256)),
        (lambda: nn.Conv1d(64, 300, 3), (4, 64, 40)),
        (lambda: nn.Conv2d(64, 200, 3, groups=2), (2, 64, 12, 12)),
    ],
    ids=["linear", "conv1d", "conv2d with groups"],
)
def test_scatter_of_an_update_that_does_not(make, shape):
    # χ² with 1e4 and more degrees of freedom: 5 % is 5 deviations; at most 1 by definition.
    rows = scatters(make(), randn(*shape), lambda p: randn(*p.shape, seed=1))
    assert 0.95 < rows["weight"] <= 1.0


def test_expected_range_of_a_contribution():
    for kind in ("contribution", "relative_contribution"):
        assert expected_exponent(kind, "width", role="hidden", scatter=0.8) == (-0.4, 0.0)
        assert expected_exponent(kind, "width", role="readout", scatter=0.2) == (-0.1, 0.0)
        assert expected_exponent(kind, "width", role="input", scatter=1.0) == (0.0, 0.0)
    assert expected_exponent("share", "width", role="hidden", scatter=0.8) == (0.0, 0.0)


class Gated(nn.Module):
    """A branch that begins far below the rounding of the stream."""

    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.gain = nn.Parameter(torch.full((16,), size))

    def forward(self, x):
        return x + self.gain * self.layer(x)


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-9])
def test_branches_below_rounding_are_measured(size):
    torch.manual_seed(0)
    block, x = Gated(size), randn(8, 16)
    found = block_contributions(block, (x,), {}, {"gain": None, "layer.bias": None})
    branch = (block.gain * block.layer(x)).detach().double()
    assert float(found["gain"]) == pytest.approx(float(branch.square().mean().sqrt()), rel=1e-5)
    bias = (block.gain * block.layer.bias).detach().double()
    assert float(found["layer.bias"]) == pytest.approx(float(bias.square().mean().sqrt()), rel=1e-5)
