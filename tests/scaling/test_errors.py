"""Bad input to make_plan: each message."""

from __future__ import annotations

import itertools

import pytest
import torch
from scaling_models import GPT, Residual, mlp
from torch import nn

from scalinglimits.scaling import make_plan
from scalinglimits.scaling.entry import PlanEntry


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adamm"}, "`optimizer` must be one of sgd, adam, .*; got 'adamm'"),
        ({"optimizer": torch.optim.Adam}, "`optimizer` must be one of"),
        ({"width_rule": "mu"}, "`width_rule` must be one of mup, .*; got 'mu'"),
        ({"depth_rule": "deep"}, "`depth_rule` must be one of completep, .*; got 'deep'"),
        ({"depth_rule": -1.0}, r"`depth_rule` must lie in \[0, 2\]; got -1.0"),
        ({"attention": "no"}, "`attention` must be one of absorb, explicit, ignore; got 'no'"),
        ({"weight_decay_rule": "x"}, "`weight_decay_rule` must be one of"),
        ({"eps_rule": "x"}, "`eps_rule` must be one of"),
        (
            {"weight_decay_rule": "independent", "optimizer": "adam"},
            "`weight_decay_rule` must be 'coupled' or 'fixed' for 'adam'",
        ),
        ({"width_rule": "ntk", "optimizer": "muon"}, "`width_rule` must know 'muon'; 'ntk'"),
        ({"fans": {"nothing": "vector"}}, "`fans` must name parameters; 'nothing' matches none"),
        ({"fans": {"head.weight": "matrix"}}, "`fans` must be .*; got 'matrix'"),
        ({"fans": {"head.weight": (5, 0)}}, "`in_axis` must lie in"),
        ({"example": torch.zeros(3, 5)}, "`example` must run at .*; it raised RuntimeError"),
    ],
)
def test_choices(options, message):
    with pytest.raises(ValueError, match=message):
        make_plan(Residual, (8, 2), (16, 4), **options)


@pytest.mark.parametrize(
    ("base", "target", "error", "message"),
    [
        ((8,), (16, 4), ValueError, r"`base` must be \(width, depth\) or a mapping of axes; got"),
        ("ab", (16, 4), ValueError, "`base` must be"),
        ((8, 2), (16.0, 4), TypeError, "`target` must hold integers; got 16.0"),
        ((8, True), (16, 4), TypeError, "`base` must hold integers; got True"),
        ((8, 2), (0, 4), ValueError, "`target` must hold sizes of at least 1; got 0"),
        ((8, 2), {"width": 8, "depth": 2}, ValueError, "`target` must have the axes of `base`"),
        ({"width": 8}, {"w": 8}, ValueError, "`target` must have the axes of `base`"),
        ({}, (8, 2), ValueError, "`base` must name at least one axis"),
    ],
)
def test_sizes(base, target, error, message):
    with pytest.raises(error, match=message):
        make_plan(Residual, base, target)


def test_depth_axis():
    base, target = {"width": 8, "stages": 2}, {"width": 8, "stages": 4}
    build = lambda width, stages: Residual(width, stages)  # noqa: E731
    plan = make_plan(build, base, target, depth_axis="stages")
    assert plan["blocks.0.down.weight"].lr == 0.5
    with pytest.raises(ValueError, match=r"`depth_axis` must be an axis of `base`; got 'deep'"):
        make_plan(build, base, target, depth_axis="deep")


def test_types():
    with pytest.raises(TypeError, match=r"`build` must be callable; got 3"):
        make_plan(3, (8, 2), (16, 2))
    with pytest.raises(TypeError, match=r"`depth_rule` must be a name or a number; got None"):
        make_plan(Residual, (8, 2), (16, 2), depth_rule=None)
    with pytest.raises(TypeError, match=r"`weights_across_depth` must be a DepthLaw; got 0.7"):
        make_plan(Residual, (8, 2), (16, 2), weights_across_depth=0.7)
    with pytest.raises(TypeError, match=r"`build` must return a torch.nn.Module; got int"):
        make_plan(lambda w, d: w, (8, 2), (16, 2))


def test_builds_that_raise_or_are_empty():
    def fails(width, depth):
        if width > 8:
            raise RuntimeError("too wide")
        return mlp(width, depth)

    message = r"`build` must return a module at width=16, depth=2 .* RuntimeError: too wide"
    with pytest.raises(ValueError, match=message):
        make_plan(fails, (8, 2), (16, 2))
    with pytest.raises(ValueError, match=r"takes no|takes 1 positional|positional argument"):
        make_plan(lambda w: mlp(w, 2), (8, 2), (16, 2))
    with pytest.raises(ValueError, match=r"a module with parameters; at width=8, depth=2 it has"):
        make_plan(lambda w, d: nn.ReLU(), (8, 2), (16, 2))
    with pytest.raises(ValueError, match=r"must give `weight` a shape; it is a lazy parameter"):
        make_plan(lambda w, d: nn.LazyLinear(w), (8, 2), (16, 2))


def test_builds_that_ignore_their_sizes():
    with pytest.raises(ValueError, match=r"`build` must use its width; no parameter grows"):
        make_plan(lambda w, d: mlp(8, d), (8, 2), (16, 2))
    with pytest.raises(ValueError, match=r"`build` must use its depth; its parameters do not"):
        make_plan(lambda w, d: mlp(w, 2), (8, 2), (16, 4))
    make_plan(lambda w, d: mlp(w, 2), (8, 2), (16, 2))  # no depth is asked of it


def test_builds_of_random_structure():
    counter = itertools.count()
    with pytest.raises(ValueError, match=r"`build` must return the same structure each time"):
        make_plan(lambda w, d: mlp(w, 2 + next(counter) % 2), (8, 2), (16, 2))
    with pytest.raises(ValueError, match=r"`build` must name parameters alike at every width"):
        make_plan(lambda w, d: nn.ModuleDict({f"w{w}": nn.Linear(w, w)}), (8, 2), (16, 2))


def test_unknown_roles():
    class Odd(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.table = nn.Parameter(torch.randn(5, width, 2))

        def forward(self, x):
            return torch.fft.fft(self.table, dim=1).real.sum() * x

    with pytest.raises(ValueError, match=r"role of `table` .* is unknown: pass `fans=\{'table'"):
        make_plan(Odd, (8, 2), (16, 2), example=torch.ones(2))
    plan = make_plan(Odd, (8, 2), (16, 2), example=torch.ones(2), fans={"tab*": ((1,), (2,))})
    assert (plan["table"].role, plan["table"].lr) == ("readout", 0.5)
    plan = make_plan(Odd, (8, 2), (16, 2), example=torch.ones(2), fans={"table": "vector"})
    assert isinstance(plan["table"], PlanEntry)
    assert plan.role("table") == "vector"


def test_examples_that_cannot_be_guessed():
    class Two(Residual):
        def forward(self, x, y, *, z):
            return super().forward(x + y) + z

    with pytest.raises(ValueError, match=r"none were given and none could be guessed"):
        make_plan(Two, (8, 2), (16, 4))
    x = torch.zeros(2, 6)
    plan = make_plan(Two, (8, 2), (16, 4), example={"x": x, "y": x, "z": 0.0})
    assert plan["blocks.0.down.weight"].branch_output
    make_plan(Two, (8, 2), (16, 2))  # nothing has to run


def test_heads_that_grow_unlike_each_other():
    class Two(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.first, self.second = GPT(width, depth), GPT(width, depth, heads=width // 4)

        def forward(self, tokens):
            return self.first(tokens) + self.second(tokens)

    with pytest.raises(ValueError, match=r"must let all heads grow alike"):
        make_plan(Two, (8, 1), (16, 1))
