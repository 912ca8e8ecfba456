"""Contributions of parameters, against what they are by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from scalinglimits.checks.names import Stacks
from scalinglimits.checks.probe import Probe
from scalinglimits.checks.tensors import rms


def perturbed(model, size=0.01):
    """Move all parameters a little; return their former values."""
    generator = torch.Generator().manual_seed(5)
    initial = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p += size * torch.randn(p.shape, generator=generator).to(p.dtype)
    return initial


def contributions(model, *inputs, initial):
    probe = Probe(model, Stacks())
    with probe.measuring(None):
        model(*inputs)
    probe.readings()
    with probe.measuring(initial):
        model(*inputs)
    rows = {(r.name, r.use): float(r.value) for r in probe.readings() if r.kind == "contribution"}
    probe.remove()
    return rows, probe


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_linear(dtype):
    torch.manual_seed(0)
    layer, x = nn.Linear(7, 5).to(dtype), randn(4, 7).to(dtype)
    initial = perturbed(layer, 0.05)
    rows, probe = contributions(layer, x, initial=initial)
    dW = (layer.weight - initial["weight"]).detach().double()
    db = (layer.bias - initial["bias"]).detach().double()
    assert rows["weight", ":linear"] == pytest.approx(float(rms(x.double() @ dW.T)), rel=1e-2)
    assert rows["bias", ":linear"] == pytest.approx(float(rms(db)), rel=1e-2)
    assert probe.in_axes == {("weight", ":linear"): 1}


def test_small_updates_keep_their_digits():
    layer, x = nn.Linear(64, 64, bias=False), randn(4, 64)
    with torch.no_grad():
        layer.weight.zero_()
    initial = {"weight": layer.weight.detach().clone()}
    with torch.no_grad():
        layer.weight += 1e-12 * randn(64, 64, seed=3)
    rows, _ = contributions(layer, x, initial=initial)
    exact = float(rms(x @ layer.weight.detach().T))
    assert rows["weight", ":linear"] == pytest.approx(exact, rel=1e-5)


class Everything(nn.Module):
    """Uses of parameters that hooks on leaf modules would not see."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.positions = nn.Parameter(randn(8, 6))
        self.token = nn.Parameter(randn(1, 1, 6))
        self.matrix = nn.Parameter(randn(6, 6))
        self.packed = nn.Parameter(randn(12, 6))
        self.norm = nn.LayerNorm(6)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        x = torch.cat([self.token.expand(len(tokens), -1, -1), x], dim=1)
        x = self.norm(x) @ self.matrix
        gate, up = self.packed.chunk(2)
        x = x + F.linear(x, gate) * F.linear(x, up)
        return F.linear(x, self.embedding.weight)  # a tied head without a module


def test_views_functions_and_tied_parameters():
    model, tokens = Everything(), torch.tensor([[1, 2, 3], [4, 5, 1]])
    initial = perturbed(model)
    rows, probe = contributions(model, tokens, initial=initial)
    delta = {name: (p - initial[name]).detach() for name, p in model.named_parameters()}
    # Embedding and head are two uses of one parameter.
    embedded = float(rms(delta["embedding.weight"][tokens]))
    assert rows["embedding.weight", "embedding:embedding"] == pytest.approx(embedded, rel=1e-5)
    with torch.no_grad():
        x = model.embedding(tokens) + model.positions[:3]
        assert rows["positions", ":add"] == pytest.approx(
            float(rms(delta["positions"][:3].expand_as(x))), rel=1e-5
        )
        x = torch.cat([model.token.expand(2, -1, -1), x], dim=1)
        moved = torch.zeros_like(x)
        moved[:, :1] = delta["token"]
        assert rows["token", ":cat"] == pytest.approx(float(rms(moved)), rel=1e-5)
        x = model.norm(x)
        assert rows["matrix", ":matmul"] == pytest.approx(float(rms(x @ delta["matrix"])), rel=1e-5)
        x = x @ model.matrix
        both = torch.stack([x @ d.T for d in delta["packed"].chunk(2)])
        assert rows["packed", ":linear"] == pytest.approx(float(rms(both)), rel=1e-5)
        gate, up = model.packed.chunk(2)
        x = x + F.linear(x, gate) * F.linear(x, up)
        head = float(rms(F.linear(x, delta["embedding.weight"])))
        assert rows["embedding.weight", ":linear"] == pytest.approx(head, rel=1e-5)
    assert probe.in_axes["embedding.weight", "embedding:embedding"] == 0
    assert probe.in_axes["embedding.weight", ":linear"] == 1
    assert probe.in_axes["matrix", ":matmul"] == 0


@pytest.mark.parametrize(
    ("make", "shape", "axes"),
    [
        (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9), {1}),
        (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (2, 4, 5, 5), {1}),
        (lambda: nn.ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 5, 5), {0}),
        (lambda: nn.LSTM(4, 6, num_layers=2), (5, 2, 4), {1}),
        (lambda: nn.GRU(4, 6), (5, 2, 4), {1}),
        (lambda: nn.BatchNorm2d(4), (2, 4, 5, 5), set()),
        (lambda: nn.GroupNorm(2, 4), (2, 4, 5, 5), set()),
        (lambda: weight_norm(nn.Linear(4, 6)), (3, 4), {1}),
        (lambda: nn.PReLU(4), (2, 4, 5), set()),
    ],
)
def test_any_module_against_evaluating_it_twice(make, shape, axes):
    torch.manual_seed(0)
    model, x = make(), randn(*shape)
    initial = perturbed(model)
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    rows, probe = contributions(model, x, initial=initial)
    seen = {name for name, _ in rows}
    assert seen == set(initial)

    def output(values):
        copy = dict(model.named_parameters()) | values
        out = torch.func.functional_call(model, {**copy, **buffers}, (x,))
        return (out[0] if isinstance(out, tuple) else out).detach().double()

    exact = {}
    for name, reference in initial.items():
        exact[name] = float(rms(output({}) - output({name: reference})))
    assert set(probe.in_axes.values()) == axes
    direct = {n: v for (n, _), v in rows.items()}
    if not isinstance(model, nn.Linear):  # weight norm: its parts meet in one function before
        for name in initial:
            assert direct[name] == pytest.approx(exact[name], rel=2e-3, abs=1e-7), name


class Named(nn.Module):
    """Operations whose arguments are given by place or by name."""

    def __init__(self, by_name):
        super().__init__()
        torch.manual_seed(0)
        self.by_name = by_name
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.randn(6, 6)) for _ in range(4))
        self.bias, self.table = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(9, 6))

    def forward(self, tokens):
        if not self.by_name:
            h = F.linear(F.embedding(tokens, self.table), self.a, self.bias)
            h = torch.addmm(self.bias, torch.mm(torch.matmul(h, self.b), self.c), self.d)
            h = F.scaled_dot_product_attention(h, h @ self.a, h)
            return F.softmax(h, 0)
        h = F.linear(F.embedding(input=tokens, weight=self.table), weight=self.a, bias=self.bias)
        h = torch.mm(input=torch.matmul(h, other=self.b), mat2=self.c)
        h = torch.addmm(self.bias, mat1=h, mat2=self.d)
        h = F.scaled_dot_product_attention(query=h, key=h.matmul(other=self.a), value=h)
        return F.softmax(input=h, dim=0)


def test_arguments_given_by_name():
    found = []
    for by_name in (False, True):
        model = Named(by_name)
        rows, probe = contributions(model, torch.arange(9), initial=perturbed(model))
        logits = [(r.kind, float(r.value)) for r in probe.readings() if "logits" in r.kind]
        axes = {name: axis for (name, _), axis in probe.in_axes.items()}
        found.append((list(rows.values()), logits, axes, probe.heads, probe.queries))
    assert found[0] == found[1]
    assert found[0][2] == {"table": 0, "a": 0, "b": 0, "c": 0, "d": 0}


def test_dropout_and_batch_norm_go_on_undisturbed():
    def run(measured):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.LSTM(6, 6))
        x = randn(8, 6)
        if not measured:
            out = [model(x)[0], model(x)[0]]
        else:
            probe = Probe(model, Stacks())
            out = []
            for references in (None, dict(model.named_parameters())):
                with probe.measuring(references):
                    out.append(model(x)[0])
                probe.readings()
            probe.remove()
        return [*out, model[2].running_var]

    for plain, probed in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(plain, probed, rtol=0, atol=0)


def test_attention_logits_are_centred_and_masked():
    class Attention(nn.Module):
        def __init__(self, fused):
            super().__init__()
            self.fused = fused
            self.q, self.k = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)

        def forward(self, x):
            q, k = self.q(x), self.k(x)
            if self.fused:
                return F.scaled_dot_product_attention(q, k, x)
            return (q @ k.transpose(1, 2) / 8**0.5).softmax(-1) @ x

    values = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = Attention(fused)
        probe = Probe(model, Stacks())
        with probe.measuring(None):
            model(randn(2, 5, 8))
        values.append({r.kind: float(r.value) for r in probe.readings()}["logits"])
        assert "q.weight" in probe.queries[""]
        assert probe.heads == {"": 8}
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    with torch.no_grad():
        logits = model.q(randn(2, 5, 8)) @ model.k(randn(2, 5, 8)).transpose(1, 2) / 8**0.5
        assert values[0] == pytest.approx(float(rms(logits - logits.mean(-1, True))), rel=1e-5)
