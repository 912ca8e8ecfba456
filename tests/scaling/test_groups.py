"""Parameter groups: the user's own groups, tensor rates, every optimizer class; schedules."""

from __future__ import annotations

import math

import pytest
import torch
from scaling_models import Residual
from torch.optim import lr_scheduler

from scalinglimits.scaling import make_plan

SIZE = (32, 4)


@pytest.fixture(scope="module")
def plan():
    return make_plan(Residual, (8, 2), SIZE)


def by_name(groups, key="lr"):
    return {name: group[key] for group in groups for name in group["names"]}


def test_every_parameter_once_with_its_rate(plan):
    model = Residual(*SIZE)
    groups = plan.param_groups(model, lr=0.5, weight_decay=0.25, eps=1e-6, betas=(0.8, 0.9))
    assert sorted(by_name(groups)) == sorted(n for n, _ in model.named_parameters())
    for name, rate in by_name(groups).items():
        assert rate == 0.5 * plan[name].lr
        assert by_name(groups, "weight_decay")[name] == 0.25 * plan[name].weight_decay
        assert by_name(groups, "eps")[name] == 1e-6 * plan[name].eps
        assert by_name(groups, "betas")[name] == (0.8, 0.9)
    for group in groups:
        assert [id(model.get_parameter(n)) for n in group["names"]] == [
            id(p) for p in group["params"]
        ]


def test_defaults_are_scaled_too(plan):
    model = Residual(*SIZE)
    groups = plan.param_groups(model, lr=1.0)
    name = "blocks.0.up.weight"
    assert by_name(groups, "eps")[name] == pytest.approx(1e-8 * plan[name].eps)
    assert by_name(groups, "weight_decay")[name] == pytest.approx(0.01 * plan[name].weight_decay)
    sgd = make_plan(Residual, (8, 2), SIZE, optimizer="sgd").param_groups(model, lr=1.0)
    assert "eps" not in sgd[0]
    torch.optim.SGD(sgd, momentum=0.9)


def test_own_groups_are_kept(plan):
    model = Residual(*SIZE)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    own = [
        {"params": decayed, "lr": 0.1, "tag": "matrices"},
        {"params": (p for p in others), "weight_decay": 0.0, "betas": (0.5, 0.9)},
    ]
    groups = plan.param_groups(model, lr=0.2, weight_decay=0.3, groups=own)
    for group in groups:
        matrices = group["params"][0].ndim > 1
        assert group.get("tag") == ("matrices" if matrices else None)
        assert group["weight_decay"] > 0 if matrices else group["weight_decay"] == 0
    rates = by_name(groups)
    assert rates["head.weight"] == 0.1 * plan["head.weight"].lr
    assert rates["head.bias"] == 0.2
    assert own[0]["params"] is decayed
    assert set(own[0]) == {"params", "lr", "tag"}
    named = plan.param_groups(model, lr=0.2, groups=[{"params": list(model.named_parameters())}])
    assert by_name(named)["head.bias"] == 0.2


def test_tensor_rates(plan):
    rate = torch.tensor(0.1)
    groups = plan.param_groups(Residual(*SIZE), lr=rate)
    assert by_name(groups)["head.weight"] == pytest.approx(0.1 * plan["head.weight"].lr)
    assert len({id(group["lr"]) for group in groups}) == len(groups)
    optimizer = torch.optim.AdamW(groups)
    assert plan.audit(optimizer)
    schedule = plan.schedule(optimizer, lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5))
    schedule.step()
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)
    assert float(by_name(optimizer.param_groups)["head.bias"]) == pytest.approx(0.05)
    assert float(rate) == pytest.approx(0.1)


def test_muon_beside_adamw():
    plan = make_plan(Residual, (8, 2), SIZE, optimizer="muon")
    model = plan.initialize_(Residual(*SIZE), seed=0)
    muon = torch.optim.Muon(plan.param_groups(model, lr=0.02, optimizer="muon"))
    adamw = torch.optim.AdamW(plan.param_groups(model, lr=1e-3, optimizer="adamw"))
    assert plan.audit(muon)
    assert plan.audit(adamw)
    names = {*by_name(muon.param_groups), *by_name(adamw.param_groups)}
    assert names == {n for n, _ in model.named_parameters()}
    with pytest.raises(ValueError, match=r"`optimizer` must be one of the plan's; got 'sgd'"):
        plan.param_groups(model, lr=1.0, optimizer="sgd")


def test_errors(plan):
    model = Residual(*SIZE)
    with pytest.raises(TypeError, match=r"`lr` must be a number; got 'x'"):
        plan.param_groups(model, lr="x")
    with pytest.raises(TypeError, match=r"`lr` must be a number; got None"):
        plan.param_groups(model, lr=None)
    with pytest.raises(ValueError, match=r"`eps` must not be negative; got -1"):
        plan.param_groups(model, lr=1.0, eps=-1)
    with pytest.raises(ValueError, match=r"`lr` must not be negative; got nan"):
        plan.param_groups(model, lr=math.nan)
    with pytest.raises(ValueError, match=r"`groups` must hold every parameter; `embed.bias`"):
        plan.param_groups(model, lr=1.0, groups=[{"params": model.embed.weight}, {"params": [
            p for n, p in model.named_parameters() if not n.startswith("embed")]}])  # fmt: skip
    with pytest.raises(ValueError, match=r"each parameter once; `embed.weight` is twice"):
        plan.param_groups(model, lr=1.0, groups=[{"params": [model.embed.weight] * 2}])
    with pytest.raises(ValueError, match=r"`groups` must hold parameters of `model`"):
        plan.param_groups(model, lr=1.0, groups=[{"params": Residual(*SIZE).parameters()}])
    bigger = Residual(*SIZE)
    bigger.extra = torch.nn.Linear(2, 2)  # a module added later
    with pytest.raises(ValueError, match=r"the plan has no `extra.weight`"):
        plan.param_groups(bigger, lr=1.0)
    with pytest.raises(TypeError, match=r"`model` must be a module or a mapping"):
        plan.param_groups([1], lr=1.0)


DESTROYERS = {
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10, eta_min=1e-3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 0.1, step_size_up=3),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=1e-3),
}
KEEPERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
}


@pytest.mark.parametrize("name", DESTROYERS)
def test_schedulers_that_destroy_the_ratios_are_found_and_mended(plan, name):
    optimizer = torch.optim.AdamW(plan.param_groups(Residual(*SIZE), lr=0.1))
    before = [group["lr"] for group in optimizer.param_groups]
    scheduler = DESTROYERS[name](optimizer)
    at_start = [group["lr"] for group in optimizer.param_groups]
    report = plan.audit(optimizer, scheduler)
    assert not report
    assert name in str(report)
    assert "the plan's ratio" in str(report)
    assert [group["lr"] for group in optimizer.param_groups] == at_start  # put back

    optimizer = torch.optim.AdamW(plan.param_groups(Residual(*SIZE), lr=0.1))
    alone = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule, single = plan.schedule(optimizer, DESTROYERS[name]), DESTROYERS[name](alone)
    for step in range(8):
        assert plan.audit(optimizer)
        assert schedule.base_lr == pytest.approx(alone.param_groups[0]["lr"])
        rates = by_name(optimizer.param_groups)
        assert rates["head.bias"] == pytest.approx(schedule.base_lr)
        assert schedule.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
        if name in ("OneCycleLR", "CyclicLR"):
            assert optimizer.param_groups[-1]["betas"] == alone.param_groups[0]["betas"]
        metric = (1.0,) if name == "ReduceLROnPlateau" else ()
        optimizer.step()
        schedule.step(*metric)
        alone.step()
        single.step(*metric)
        if step == 3:  # a checkpoint in between
            state = schedule.state_dict()
            schedule = plan.schedule(optimizer, DESTROYERS[name])
            schedule.load_state_dict(state)
    assert before != [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("name", KEEPERS)
def test_schedulers_that_keep_the_ratios_pass(plan, name):
    optimizer = torch.optim.AdamW(plan.param_groups(Residual(*SIZE), lr=0.1))
    scheduler = KEEPERS[name](optimizer)
    epoch = scheduler.last_epoch
    report = plan.audit(optimizer, scheduler)
    assert report, report.findings
    assert str(report) == "the plan's ratios are kept"
    assert scheduler.last_epoch == epoch


def test_audit_finds_other_faults(plan):
    model = Residual(*SIZE)
    plain = torch.optim.AdamW(model.parameters())
    assert "no multiplier" in plan.audit(plain).findings[0]
    with pytest.raises(ValueError, match=r"`optimizer` must have the plan's groups"):
        plan.schedule(plain, KEEPERS["StepLR"])
    groups = plan.param_groups(model, lr=0.1)
    other = plan.retarget((64, 4))
    assert "has the multiplier" in other.audit(torch.optim.AdamW(groups)).findings[0]
    fewer = [group for group in groups if "head.weight" not in group["names"]]
    assert "is in no group" in str(plan.audit(torch.optim.AdamW(fewer)))
    groups[1]["lr"] *= 2
    assert "the plan's ratio" in str(plan.audit(torch.optim.AdamW(groups)))
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=0.1))
    with pytest.raises(ValueError, match=r"`factory` must return a scheduler of the optimizer"):
        plan.schedule(optimizer, lambda o: lr_scheduler.StepLR(optimizer, 1))
