"""The plan as data: values, tables, text, JSON."""

from __future__ import annotations

import copy

import pandas as pd
import pytest
import torch
from scaling_models import GPT, Residual, Separate, mlp

from scalinglimits.scaling import ScalingPlan, make_plan


@pytest.fixture(scope="module")
def plan():
    return make_plan(Residual, (32, 2), (128, 32), optimizer="adamw")


def test_width_four_times_the_base():
    plan = make_plan(mlp, (256, 2), (1024, 2), optimizer="adamw")
    hidden = plan["2.weight"]
    assert (hidden.role, hidden.init, hidden.lr, hidden.weight_decay) == ("hidden", 0.5, 0.25, 4)
    assert [plan.role(f"{i}.weight") for i in (0, 6)] == ["input", "readout"]
    readout = plan["6.weight"]
    assert (readout.init, readout.lr) == (0.25, 0.25)
    sgd = make_plan(mlp, (256, 2), (1024, 2), optimizer="sgd")
    assert [sgd[f"{i}.weight"].lr for i in (0, 2, 6)] == [4, 1, 0.25]
    assert sgd["0.bias"].lr == 4
    assert sgd["6.bias"].lr == 1


@pytest.mark.parametrize(
    ("rule", "branch", "hidden"), [("completep", 1 / 16, 1 / 4), ("depth-mup", 1 / 4, 1 / 16)]
)
def test_width_four_and_depth_sixteen_times_the_base(rule, branch, hidden):
    plan = make_plan(Residual, (32, 2), (128, 32), optimizer="adamw", depth_rule=rule)
    up, down = plan["blocks.5.up.weight"], plan["blocks.5.down.weight"]
    assert up.lr == pytest.approx(hidden)
    assert down.init == pytest.approx(branch * 0.5)
    assert down.lr == pytest.approx(hidden * branch)
    assert down.branch_output
    assert not up.branch_output
    explicit = make_plan(
        Residual, (32, 2), (128, 32), optimizer="adamw", depth_rule=rule, absorb=False
    )
    assert explicit["blocks.5.down.weight"].forward == pytest.approx(branch)
    assert explicit["blocks.5.down.weight"].lr == pytest.approx(hidden)
    assert explicit["head.weight"].forward == pytest.approx(1 / 4)
    assert (explicit["head.weight"].init, explicit["head.weight"].lr) == (1, 1)


def test_spectral_rule_uses_the_fans_themselves():
    """A readout of more rows than columns keeps n^{-1/2}, until it has fewer."""
    plan = make_plan(GPT, (4, 1), (8, 1), width_rule="spectral", attention="ignore")
    assert (
        plan["head.weight"].init
        > make_plan(GPT, (4, 1), (8, 1), attention="ignore")["head.weight"].init
    )


def test_frame(plan):
    frame = plan.to_frame()
    assert list(frame.columns) == [
        "shape", "role", "init", "lr", "weight_decay", "eps", "forward", "reason",
    ]  # fmt: skip
    assert frame.index.name == "name"
    assert list(frame.index) == [name for name, _ in Residual(128, 32).named_parameters()]
    assert (frame["reason"].str.len() > 0).all()
    products = plan.decay_products(1e-3, 0.1)
    assert products["lr_wd"].to_numpy() == pytest.approx(1e-4)


def test_text(plan):
    assert "blocks.3.down.weight" in str(plan)
    assert "<table" in plan._repr_html_()
    text = plan.explain("blocks.3.down.weight")
    assert "branch scale ×0.0625" in text
    assert "fan-in ×4" in text
    assert "hidden" in text
    with pytest.raises(KeyError, match="must be a parameter of the plan; got 'nothing'"):
        plan.explain("nothing")


def test_json_round_trip(plan):
    again = ScalingPlan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert plan.diff(again).empty
    with pytest.raises(ValueError, match="`retarget` must have a plan that `make_plan` made"):
        again.retarget((64, 2))
    for text in ("{", "[]", "{}"):
        with pytest.raises(ValueError, match="`text` must be a plan's JSON"):
            ScalingPlan.from_json(text)
    with pytest.raises(ValueError, match="format 1; got format 7"):
        ScalingPlan.from_json(plan.to_json().replace('"format": 1', '"format": 7'))


def test_diff(plan):
    other = make_plan(Residual, (32, 2), (128, 32), optimizer="adamw", depth_rule="depth-mup")
    diff = plan.diff(other)
    assert set(diff["column"]) == {"init", "lr", "weight_decay", "eps"}
    assert diff["name"].str.startswith("blocks").all()
    deeper = plan.diff(plan.retarget((128, 33)))
    assert "blocks.32.up.weight" in set(deeper["name"])
    with pytest.raises(TypeError, match="`other` must be a ScalingPlan; got dict"):
        plan.diff({})


def test_retarget_equals_a_new_plan(plan):
    for target in ((64, 2), (32, 7), (32, 2), (128, 1)):
        again = plan.retarget(target)
        fresh = make_plan(Residual, (32, 2), target, optimizer="adamw")
        pd.testing.assert_frame_equal(again.to_frame(), fresh.to_frame())


def test_base_itself_has_no_multipliers(plan):
    frame = plan.retarget((32, 2)).to_frame()
    assert (frame[["init", "lr", "weight_decay", "eps", "forward"]] == 1).all(axis=None)


def test_plans_are_immutable_data(plan):
    assert copy.deepcopy(plan) is plan
    with pytest.raises(TypeError):
        plan.entries["x"] = None
    assert plan.names(role="readout") == ["head.weight"]
    assert len(plan.names()) == len(plan)
    assert plan.forward_multipliers == {}


def test_named_axes():
    def build(width, depth, heads):
        return GPT(width, depth, heads=heads)

    base, target = {"width": 16, "depth": 2, "heads": 2}, {"width": 64, "depth": 2, "heads": 8}
    plan = make_plan(build, base, target)
    assert plan["blocks.0.attention.q.weight"].lr == 0.25  # heads do not grow
    same = make_plan(build, base, {**target, "heads": 2})
    assert same["blocks.0.attention.q.weight"].lr == 0.125


def test_retarget_along_any_axes_equals_a_new_plan():
    base = {"width": 16, "depth": 2, "heads": 2, "head_size": 8, "ffn": 32}
    example = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    plan = make_plan(Separate, base, base, optimizer="adam", example=example)
    changes = {
        "ffn": {"ffn": 64}, "heads": {"heads": 8}, "heads' size": {"head_size": 32},
        "all": {"width": 32, "depth": 4, "heads": 4, "ffn": 64}, "none": {},
    }  # fmt: skip
    rows = {}
    for name, change in changes.items():
        target = base | change
        again = plan.retarget(target)
        fresh = make_plan(Separate, base, target, optimizer="adam", example=example)
        pd.testing.assert_frame_equal(again.to_frame(), fresh.to_frame())
        rows[name] = again.to_frame()
    for axis, name, role, init, lr in [
        ("ffn", "down", "readout", 0.5, 0.5),
        ("ffn", "up", "input", 1, 1),
        ("heads", "out", "readout", 0.25, 0.25),
        ("heads", "q", "input", 1, 1),
        ("heads' size", "q", "input", 0.5, 0.5),  # 1/d instead of 1/√d
    ]:
        row = rows[axis].loc[f"blocks.0.{name}.weight"]
        assert row.role == role
        assert (row.init, row.lr) == pytest.approx((init, lr))
    assert (rows["none"][["init", "lr"]] == 1).all(axis=None)


def test_rules_for_decay_and_eps():
    def of(**kwargs):
        return make_plan(Residual, (32, 2), (128, 2), **kwargs)["blocks.0.up.weight"]

    assert of().weight_decay == 4
    assert of(weight_decay_rule="independent").weight_decay == 1
    assert of(weight_decay_rule="fixed").weight_decay == 1
    assert of(eps_rule="gradient").eps == 0.25
    assert of(eps_rule="fixed").eps == 1


def test_muon_takes_hidden_matrices_only():
    plan = make_plan(Residual, (32, 2), (128, 8), optimizer="muon")
    kinds = {name: entry.optimizer for name, entry in plan.entries.items()}
    assert kinds["blocks.0.up.weight"] == "muon"
    assert kinds["embed.weight"] == kinds["head.weight"] == kinds["blocks.0.up.bias"] == "adamw"
    assert plan["blocks.0.up.weight"].lr == 1
    assert plan["blocks.0.down.weight"].lr == pytest.approx(1 / 4)
