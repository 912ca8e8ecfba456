"""Short runs of training by a plan, with each optimizer."""

from __future__ import annotations

import torch

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.01, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01, "eps": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-3}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01, "eps": 1e-3}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01, "eps": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.01, "eps": 1e-3}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "eps": 1e-3, "momentum": 0.5}),
}
STEPS = 6


def train(plan, model, outputs, optimizer, settings):
    """Return the loss at each step and the logits after the last."""
    groups = plan.param_groups(model, **settings)
    stepper = optimizer(groups)
    tokens = torch.randint(20, (4, 8), generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(STEPS):
        stepper.zero_grad()
        logits = outputs(model, tokens)
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        )
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), outputs(model, tokens).detach()
