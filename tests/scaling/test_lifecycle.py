"""The plan serves copies, averages, checkpoints, compiled, exported and functional models."""

from __future__ import annotations

import copy

import pytest
import torch
from scaling_models import Residual
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.optim.swa_utils import AveragedModel

from scalinglimits.scaling import make_plan

SIZE = (32, 4)
X = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def plan():
    return make_plan(Residual, (8, 2), SIZE)


def fresh(plan, seed=0):
    return plan.initialize_(Residual(*SIZE), seed=seed)


def train(plan, model, steps=3):
    """Train with AdamW by the plan, and return the outputs."""
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-2, weight_decay=0.1))
    assert plan.audit(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(X) - X[:, :3]).square().mean().backward()
        optimizer.step()
    return model(X).detach()


@pytest.fixture(scope="module")
def wanted(plan):
    return train(plan, fresh(plan))


def assert_same(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_deepcopy(plan, wanted):
    model = fresh(plan)
    assert_same(train(plan, copy.deepcopy(model)), wanted)
    assert_same(train(plan, model), wanted)
    assert not any(vars(p) for p in model.parameters())  # nothing is attached


def test_average(plan, wanted):
    model = fresh(plan)
    average = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    average.update_parameters(model)
    groups = plan.param_groups(average, lr=1.0)
    assert sum(len(group["params"]) for group in groups) == len(plan)
    assert_same(train(plan, average.module), wanted)


@pytest.mark.parametrize("assign", [False, True])
def test_checkpoints(plan, wanted, assign):
    model = Residual(*SIZE)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1.0))
    model.load_state_dict(fresh(plan).state_dict(), assign=assign)
    model.requires_grad_(True)
    assert_same(train(plan, model), wanted)
    # With assign=True the parameters are other objects: an old optimizer no longer has them.
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert ({id(p) for p in model.parameters()} == held) != assign


@pytest.mark.parametrize("load", [False, True])
def test_meta_to_empty(plan, wanted, load):
    with torch.device("meta"):
        model = Residual(*SIZE)
    model.to_empty(device="cpu")
    if load:
        model.load_state_dict(fresh(plan).state_dict())
    else:
        plan.initialize_(model, seed=0)
    assert_same(train(plan, model), wanted)


def test_optimizer_checkpoint(plan):
    model = fresh(plan)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-2))
    state = copy.deepcopy(optimizer.state_dict())
    again = torch.optim.AdamW(plan.param_groups(fresh(plan), lr=1.0))
    again.load_state_dict(state)
    assert plan.audit(again)
    assert [g["lr"] for g in again.param_groups] == [g["lr"] for g in optimizer.param_groups]


def test_compile(plan, wanted):
    model = fresh(plan)
    compiled = torch.compile(model, backend="aot_eager")
    assert_same(train(plan, compiled), wanted)
    plan.initialize_(compiled, seed=0)
    assert_same(train(plan, model), wanted)


def test_export(plan, wanted):
    model = fresh(plan)
    exported = torch.export.export(model, (X,)).module()
    assert_same(exported(X), model(X))
    assert_same(train(plan, exported), wanted)


def test_functional_call(plan, wanted):
    model = fresh(plan)
    tensors = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(plan.param_groups(tensors, lr=1e-2, weight_decay=0.1))
    for _ in range(3):
        optimizer.zero_grad()
        (functional_call(model, tensors, (X,)) - X[:, :3]).square().mean().backward()
        optimizer.step()
    assert_same(functional_call(model, tensors, (X,)).detach(), wanted)


def test_ensemble(plan, wanted):
    models = [fresh(plan, seed) for seed in range(3)]
    stacked, buffers = stack_module_state(models)
    stacked = {name: tensor.detach().requires_grad_() for name, tensor in stacked.items()}
    optimizer = torch.optim.AdamW(plan.param_groups(stacked, lr=1e-2, weight_decay=0.1))
    template = models[0]

    def loss(tensors, x):
        return (functional_call(template, tensors, (x,)) - x[:, :3]).square().mean()

    for _ in range(3):
        gradients = vmap(grad(loss), in_dims=(0, None))(stacked, X)
        for name, tensor in stacked.items():
            tensor.grad = gradients[name]
        optimizer.step()
    outputs = vmap(lambda t: functional_call(template, t, (X,)))(stacked)
    torch.testing.assert_close(outputs[0].detach(), wanted, rtol=1e-4, atol=1e-5)
    assert not buffers


def test_half_precision(plan):
    model = plan.initialize_(Residual(*SIZE).bfloat16(), seed=0)
    single = fresh(plan)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, single.get_parameter(name).bfloat16())
    plan.rescale_(Residual(*SIZE).bfloat16())
