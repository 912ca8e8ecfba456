"""A plan with absorbed multipliers trains the same network as one that the model multiplies."""

from __future__ import annotations

import pytest
import torch
from scaling_models import GPT
from torch.func import functional_call
from training_runs import OPTIMIZERS, train

from scalinglimits.scaling import make_plan


@pytest.mark.parametrize(
    ("name", "tied", "alpha"),
    [
        *((name, False, 1.0) for name in OPTIMIZERS),
        *((name, False, 0.5) for name in ("sgd", "adamw")),
        *((name, True, 1.0) for name in ("sgd", "adam", "adamw")),
    ],
)
def test_absorbed_equals_explicit(name, tied, alpha):
    """Readout, branches and queries (width ×4, heads ×4, depth ×3), over several steps."""

    def build(width, depth):
        return GPT(width, depth, tied=tied)

    kind, settings = OPTIMIZERS[name]
    options = {"optimizer": name, "depth_rule": alpha}
    absorbed = make_plan(build, (8, 1), (32, 3), **options)
    explicit = make_plan(build, (8, 1), (32, 3), absorb=False, **options)
    multipliers = explicit.forward_multipliers
    assert not absorbed.forward_multipliers
    wanted = {"head.weight"} if not tied else {"tokens.weight"}
    for i in range(3):
        wanted |= {f"blocks.{i}.{p}" for p in ("attention.o.weight", "attention.o.bias")}
        wanted |= {f"blocks.{i}.{p}" for p in ("attention.q.weight", "attention.q.bias")}
        wanted |= {f"blocks.{i}.{p}" for p in ("down.weight", "down.bias")}
    assert set(multipliers) == wanted
    head = multipliers.pop("tokens.weight", 1.0)

    first = explicit.initialize_(build(32, 3).double(), seed=1)
    second = build(32, 3).double()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        for parameter_name, parameter in second.named_parameters():
            entry = explicit[parameter_name]
            parameter.mul_(absorbed[parameter_name].init / entry.init)

    def plain(model, tokens):
        return model(tokens)

    def multiplied(model, tokens):
        scaled = {n: p * multipliers.get(n, 1.0) for n, p in model.named_parameters()}
        return head * functional_call(model, scaled, (tokens,))

    losses, logits = train(explicit, first, multiplied, kind, settings)
    others, same = train(absorbed, second, plain, kind, settings)
    assert losses[-1] < losses[0]
    torch.testing.assert_close(others, losses, rtol=1e-9, atol=0)
    torch.testing.assert_close(same, logits, rtol=1e-7, atol=1e-10)


def test_a_wrong_rate_is_noticed():
    """The test above can fail: with the explicit plan's rates the losses differ."""
    absorbed = make_plan(GPT, (8, 1), (32, 3))
    explicit = make_plan(GPT, (8, 1), (32, 3), absorb=False)
    kind, settings = OPTIMIZERS["adamw"]
    losses = []
    for plan in (absorbed, explicit):
        model = absorbed.initialize_(GPT(32, 3).double(), seed=1)
        losses.append(train(plan, model, lambda m, t: m(t), kind, settings)[0][-1])
    assert abs(losses[0] - losses[1]) > 1e-3
