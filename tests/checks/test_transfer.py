"""Learning-rate transfer: the fitted optimum, drifts, edges, resuming, and bad input."""

import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from scalinglimits.checks import TransferResult, learning_rate_transfer
from scalinglimits.checks.optimum import optimum
from scalinglimits.checks.training import Recipe
from scalinglimits.checks.transfer import _label
from scalinglimits.scaling import make_plan

GRID = np.arange(-10.0, -3)


def parabola(centre):
    return (GRID - centre) ** 2


def test_optimum_of_parabolas_is_exact():
    value, lower, upper, edge = optimum(GRID, np.stack([parabola(-6.3), parabola(-6.1)]))
    assert value == pytest.approx(-6.2)
    assert lower < -6.2 < upper
    assert not edge


@pytest.mark.parametrize("centre", [-12.0, -1.0])
def test_optimum_at_an_edge_is_flagged(centre):
    value, _, _, edge = optimum(GRID, np.stack([parabola(centre)] * 2))
    assert edge
    assert value in (GRID[0], GRID[-1])


def test_optimum_of_flat_noisy_losses():
    # A flat optimum at -6.5 between two points of the grid, noise as large as the basin is deep:
    # over 400 groups of 8 seeds the estimate is right, and better than the parabola through the
    # lowest point and its neighbours, by more than half its variance.
    grid = np.arange(-12.0, -1)
    rng = np.random.default_rng(0)
    curve = 0.03 * (grid + 6.5) ** 2
    found, naive = [], []
    for _ in range(400):
        losses = curve + 0.03 * rng.standard_normal((8, len(grid)))
        found.append(optimum(grid, losses)[0])
        for y in losses:
            k = int(np.argmin(y))
            near = slice(max(k - 1, 0), k + 2)
            a, b, _ = np.polyfit(grid[near], y[near], 2)
            naive.append(-b / (2 * a))
    # 4.4 standard errors: a false alarm has probability 1e-5.
    assert abs(np.mean(found) + 6.5) < 4.4 * np.std(found) / 400**0.5
    assert 8 * np.var(found) < 0.5 * np.var(naive)


def test_diverged_rates_do_not_move_the_optimum():
    # Rates two steps above the optimum diverge: they are no part of the parabola.
    losses = np.stack([parabola(-6.3), parabola(-6.1)])
    losses[:, GRID >= -4] = 1e3
    assert optimum(GRID, losses)[0] == pytest.approx(-6.2)


def test_an_uneven_grid():
    # A window of the usual reach would hold two points.
    grid = np.array([-14.0, -9.0, -8.5, -3.0, -2.5, -2.0])
    losses = np.stack([(grid + 9.4) ** 2, (grid + 9.2) ** 2])
    assert optimum(grid, losses)[0] == pytest.approx(-9.3)


def test_one_seed_has_no_interval():
    _, lower, upper, _ = optimum(GRID, parabola(-6.0)[None])
    assert (lower, upper) == (-math.inf, math.inf)


X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
Y = X.sum(1, keepdim=True).sin()


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem, self.head = nn.Linear(4, width), nn.Linear(width, 1)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x.relu())
        return self.head(x)


def build(width, depth):
    return Net(width, depth)


def step(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


OPTIONS = {
    "widths": (8, 32),
    "depths": (1,),
    "steps": 12,
    "seeds": 2,
    "learning_rates": [2.0**k for k in range(-8, -1)],
    "warmup": 2,
    "schedule": "linear",
}


def test_record_and_resuming(tmp_path):
    calls = []

    def counted(width, depth):
        calls.append(width)
        return build(width, depth)

    options = {**OPTIONS, "plans": {"none": None}, "store": tmp_path / "runs.sqlite"}
    one = learning_rate_transfer(counted, step, [(X, Y)] * 12, **options)
    built = len(calls)
    two = learning_rate_transfer(counted, step, [(X, Y)] * 12, **options)
    assert len(calls) - built < built / 2  # only the look at `build` itself
    assert one.losses.equals(two.losses)
    assert len(one.losses) == 2 * 7 * 2
    assert list(one.optima.columns) == [
        "scaling", "width", "depth", "log2_lr", "lower", "upper", "loss", "edge",
    ]  # fmt: skip
    assert one.settings["warmup"] == 2
    assert one.settings["numbers_per_batch"] == 80
    assert "doublings for each doubling of width" in str(one)
    json.dumps(one.to_dict(), allow_nan=False)


def test_another_base_or_rule_is_not_resumed(tmp_path):
    # One store for several settings: each gives what it gives alone.
    options = {**OPTIONS, "widths": (16, 32), "steps": 4, "warmup": 0}
    settings = [{}, {"widths": (8, 16, 32)}, {"plans": {"plan": "spectral"}}, {"depth_rule": 0.5}]
    store = tmp_path / "runs.sqlite"
    for setting in settings:
        chosen = {"plans": {"plan": "mup"}, **options, **setting}
        alone = learning_rate_transfer(build, step, [(X, Y)] * 4, **chosen)
        kept = learning_rate_transfer(build, step, [(X, Y)] * 4, **chosen, store=store)
        assert alone.losses.equals(kept.losses)


def test_labels_tell_options_apart():
    # What a store is known by, the same in each process.
    adam = torch.optim.Adam
    values = [
        {"branch_outputs": ["a"]},
        {"branch_outputs": ("b",)},
        {"fans": {"a": ((0,), (1,))}},
        {"fans": {"a": ((1,), (0,))}},
        {"fans": {"a": "vector"}},
        {"fans": {"a": ((0, 1), (2,))}},
        {"fans": {"a": ((0,), (1, 2))}},
        adam,
        partial(adam, betas=(0.9, 0.95)),
        partial(adam, betas=(0.9, 0.99)),
        None,
    ]
    labels = [_label(value) for value in values]
    assert len(set(labels)) == len(labels)
    assert _label({"b", "a"}) == "(a, b)"
    assert not any(" at 0x" in label for label in labels)


@pytest.mark.parametrize(
    ("plan", "standard", "status"),
    [
        (("yes", "yes"), ("no", "no"), 0),
        (("yes", "undecided"), ("yes", "yes"), 3),
        (("undecided", "no"), ("yes", "yes"), 1),
    ],
)
def test_exit_code_is_that_of_the_first_scaling(plan, standard, status):
    drifts = pd.DataFrame(
        [("plan", value) for value in plan] + [("standard", value) for value in standard],
        columns=["scaling", "transfers"],
    )
    assert TransferResult(pd.DataFrame(), pd.DataFrame(), drifts, {}).exit_code == status


def test_a_plan_that_cannot_be_scaled_is_refused_before_any_run():
    def plain(width, depth):
        hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Linear(4, width), *hidden, nn.Linear(width, 1))

    steps = []

    def counted(model, batch):
        steps.append(batch)
        return step(model, batch)

    plan = make_plan(plain, (8, 2), (8, 2), optimizer="adam")
    options = {**OPTIONS, "widths": (8,), "depths": (2, 4), "plans": {"mine": plan}}
    with pytest.raises(ValueError, match="`depth_rule` must be 'none'"):
        learning_rate_transfer(plain, counted, [(X, Y)] * 12, **options)
    assert not steps


def test_plan_against_standard():
    result = learning_rate_transfer(build, step, lambda: iter([(X, Y)] * 12), **OPTIONS)
    assert list(result.drifts.scaling) == ["plan", "standard"]
    drifts = result.drifts.set_index("scaling").drift
    assert drifts["standard"] < drifts["plan"] - 0.2


def test_divergence_counts_as_a_high_loss():
    rates = [1e-4, 1e-3, 1e-2, 1e-1, 1e30]
    result = learning_rate_transfer(
        build,
        step,
        [(X, Y)] * 12,
        **{**OPTIONS, "learning_rates": rates, "plans": {"sgd": None}},
        optimizer="sgd",
    )
    high = result.losses[result.losses.lr == 1e30].loss
    assert (high > result.losses[result.losses.lr == 1e-3].loss.max()).all()
    assert np.isfinite(high).all()


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("constant", [0.5, 1, 1, 1]), ("linear", [0.5, 1, 1, 0.5]), ("cosine", [0.5, 1, 1, 0.5])],
)
def test_schedules(schedule, rates):
    assert [Recipe(4, 2, schedule, 1).rate(t) for t in range(4)] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"learning_rates": [0.1, 0.2]},
            ValueError,
            "`learning_rates` must be five positive rates",
        ),
        ({"seeds": 1}, ValueError, "`seeds` must be at least 2, for intervals; got 1"),
        ({"warmup": 12}, ValueError, "`warmup` must be from 0 to less than `steps`; got 12"),
        ({"schedule": "best"}, ValueError, "`schedule` must be one of constant, linear, cosine"),
        ({"plans": {}}, ValueError, "`plans` must name at least one scaling; got none"),
        ({"steps": 13}, ValueError, "at least 13 batches; it ended after 12"),
        ({"tolerance": 0}, ValueError, "`tolerance` must be a positive number; got 0"),
        ({"widths": (8, 8)}, ValueError, "`widths` must differ"),
    ],
)
def test_bad_input(change, error, message):
    with pytest.raises(error, match=message):
        learning_rate_transfer(build, step, [(X, Y)] * 12, **{**OPTIONS, **change})
