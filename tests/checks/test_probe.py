"""Hooks: any container, modules used several times, repeated blocks, and nothing left behind."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from scalinglimits.checks.blocks import block_contributions, is_residual
from scalinglimits.checks.names import Stacks
from scalinglimits.checks.probe import Probe
from scalinglimits.checks.tensors import rms


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclass
class Output:
    logits: torch.Tensor
    cache: object = None


class Wrapped(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return {
            "tensor": y,
            "tuple": (y, None),
            "dict": {"logits": y, "cache": [x]},
            "dataclass": Output(y, (x,)),
            "none": None,
        }[self.kind]


@pytest.mark.parametrize("kind", ["tensor", "tuple", "dict", "dataclass"])
def test_activation_and_change_in_any_container(kind):
    torch.manual_seed(0)
    model, x = Wrapped(kind), randn(3, 4)
    probe = Probe(model, Stacks())
    with probe.measuring(None):
        model(x)
    first = {(r.kind, r.name): float(r.value) for r in probe.readings()}
    before = model.layer(x).detach()
    initial = {n: p.detach().clone() for n, p in model.named_parameters()}
    with torch.no_grad():
        model.layer.weight += 0.1
    with probe.measuring(initial):
        model(x)
    second = {(r.kind, r.name): float(r.value) for r in probe.readings()}
    change = float(rms(model.layer(x) - before))
    assert first["activation", ""] == pytest.approx(float(rms(before)))
    assert second["activation_change", ""] == pytest.approx(change)
    assert second["activation_change", "layer"] == pytest.approx(change)
    assert ("activation_change", "") not in first
    probe.remove()
    assert not model._forward_hooks
    assert not model.layer._forward_pre_hooks


def test_module_that_returns_nothing():
    model = Wrapped("none")
    probe = Probe(model, Stacks())
    with probe.measuring(None):
        model(randn(3, 4))
    assert ("activation", "") not in {(r.kind, r.name) for r in probe.readings()}


def test_module_used_several_times_is_averaged():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return self.layer(self.layer(x))

    torch.manual_seed(0)
    model, x = Twice(), randn(3, 4)
    probe = Probe(model, Stacks())
    with probe.measuring(None):
        model(x)
    rows = {(r.kind, r.name): float(r.value) for r in probe.readings()}
    once = model.layer(x).detach()
    twice = model.layer(once).detach()
    mean = ((rms(once) ** 2 + rms(twice) ** 2) / 2) ** 0.5
    assert rows["activation", "layer"] == pytest.approx(float(mean))
    assert rows["share", "layer.weight"] == pytest.approx(float(mean))


class Block(nn.Module):
    def __init__(self, scale, residual=True):
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6, bias=False)
        self.drop, self.scale, self.residual = nn.Dropout(0.1), scale, residual

    def forward(self, x):
        branch = self.scale * self.drop(self.down(torch.relu(self.up(x))))
        return x + branch if self.residual else branch


class Net(nn.Module):
    def __init__(self, depth, residual=True):
        super().__init__()
        self.blocks = nn.ModuleList(Block(0.5, residual) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("residual", [True, False])
def test_stream_gradients_and_block_contributions(residual):
    torch.manual_seed(0)
    model, x = Net(3, residual).eval(), randn(5, 6).requires_grad_()
    stacks = Stacks(frozenset({"blocks.*"}))
    probe = Probe(model, stacks, blockwise=True)
    with probe.measuring(None):
        y = model(x)
    y.square().sum().backward()
    rows = {(r.kind, r.name): float(r.value) for r in probe.readings()}
    assert rows["stream_ratio", "blocks.*"] == pytest.approx(float(rms(y) / rms(x)))
    assert rows["gradient_ratio", "blocks.*"] == pytest.approx(float(rms(x.grad) / rms(2 * y)))
    assert probe.residual == {"blocks.*": residual}
    block = model.blocks[0]
    with torch.no_grad():
        branch = block(x) - x if residual else block(x)
    assert rows["block_share", "blocks.0.down.weight"] == pytest.approx(float(rms(branch)))
    probe.remove()
    assert is_residual(block, (x,), {}) is residual
    probe.remove()


class Biased(nn.Module):
    """A small stream beside biases of order one; or normalised after the sum."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.linear, self.norm = kind, nn.Linear(6, 6), nn.LayerNorm(6)
        nn.init.normal_(self.linear.bias)

    def forward(self, x):
        if self.kind == "pre-norm":
            return x + self.linear(self.norm(x))
        return self.norm(x + self.linear(x)) if self.kind == "post-norm" else self.linear(x)


@pytest.mark.parametrize(
    ("kind", "size", "residual"),
    [("pre-norm", 0.01, True), ("post-norm", 10.0, True), ("plain", 1.0, False)],
)
def test_residual_blocks_with_biases_and_norms(kind, size, residual):
    torch.manual_seed(0)
    x = size * randn(5, 6)
    assert is_residual(Biased(kind), (x - x.mean(-1, keepdim=True),), {}) is residual


def test_block_contribution_uses_the_same_dropout():
    torch.manual_seed(0)
    block, x = Block(1.0), randn(5, 6)
    state = torch.get_rng_state()
    same = block_contributions(
        block, (x,), {}, {"up.weight": block.up.weight.detach().clone()}, state
    )
    assert float(same["up.weight"]) == 0.0
    torch.testing.assert_close(torch.get_rng_state(), state)


def test_half_precision_blocks_are_compared_in_single():
    torch.manual_seed(0)
    block, x = Block(1.0).eval(), randn(5, 6)
    near = block.down.weight.detach() * (1 + 1e-4)
    exact = block_contributions(block, (x,), {}, {"down.weight": near})["down.weight"]
    half = block_contributions(
        block.bfloat16(), (x.bfloat16(),), {}, {"down.weight": block.down.weight * 1.0}
    )["down.weight"]
    assert float(exact) > 0
    assert float(half) == 0.0
