"""Running the model: at which size, on which inputs, and what that tells of a tied head's bias."""

import pytest
import torch
from torch import nn

from scalinglimits.scaling import make_plan


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h):
        return h + self.down(torch.tanh(self.up(h)))


class Stream(nn.Module):
    """Takes what is as wide as itself, in heads of 8."""

    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, h):
        for block in self.blocks:
            h = block(h.unflatten(-1, (-1, 8)).flatten(-2))
        return h


def ends(plan):
    return {name.split(".", 2)[2] for name, entry in plan.entries.items() if entry.branch_output}


def test_inputs_that_fit_the_base_only():
    plan = make_plan(Stream, (32, 2), (64, 4), example=torch.ones(3, 32))
    assert ends(plan) == {"down.weight", "down.bias"}
    with pytest.raises(ValueError, match="`example` must run at width=32, depth=3; it raised"):
        make_plan(Stream, (32, 2), (64, 4), example=torch.ones(3, 20))


def test_inputs_are_guessed_at_a_size_that_runs():
    assert ends(make_plan(Stream, (32, 2), (64, 4))) == {"down.weight", "down.bias"}


def test_sizes_that_cannot_be_made_are_passed_by():
    def build(width, depth):
        model = Stream(width, depth)
        on_cpu = next(model.parameters()).device.type == "cpu"
        if width < 16 and on_cpu:  # as where an initialiser divides by a rounded size
            raise ZeroDivisionError("no heads")
        return model

    assert ends(make_plan(build, (32, 2), (64, 4))) == {"down.weight", "down.bias"}

    def empty(width, depth):
        model = Stream(width, depth)
        model.narrow = nn.Linear(width, width // 16, bias=False)
        return model

    plan = make_plan(empty, (64, 2), (128, 4))
    assert plan.role("narrow.weight") == "hidden"


class Conditioned(Stream):
    """Needs two inputs, which nobody could guess."""

    def forward(self, h, time):
        return super().forward(h) * time[:, None]


def test_a_run_where_no_inputs_can_be_guessed():
    with pytest.raises(ValueError, match="`example` must be inputs of the model"):
        make_plan(Conditioned, (32, 2), (64, 4))

    def run(model):
        width = model.blocks[0].up.in_features
        return model(torch.ones(3, width), torch.ones(3)).square().mean()

    assert ends(make_plan(Conditioned, (32, 2), (64, 4), run=run)) == {"down.weight", "down.bias"}


class Tied(nn.Module):
    """The embedding is the readout too, with a bias behind it and a norm ahead."""

    def __init__(self, width, depth):
        super().__init__()
        self.embedding = nn.Embedding(20, width)
        self.hidden = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 20)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.norm(self.hidden(self.embedding(tokens))))


def test_bias_behind_a_tied_head_keeps_its_size():
    plan = make_plan(Tied, (32, 1), (128, 1), optimizer="adam")
    assert plan.role("embedding.weight") == "tied"
    for name in ("norm.weight", "norm.bias"):
        assert plan[name].init == plan[name].lr == 0.25
    assert plan["head.bias"].init == plan["head.bias"].lr == 1.0


@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_small_model_as_wide_as_its_inputs_is_passed_by(width):
    def build(width, depth):
        hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Linear(4, width), *hidden, nn.Linear(width, 3))

    plan = make_plan(build, (width, 2), (4 * width, 2))
    roles = {name: plan[f"{name}.weight"].role for name in "0135"}
    assert roles == {"0": "input", "1": "hidden", "3": "hidden", "5": "readout"}
