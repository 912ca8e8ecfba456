"""How a model of each size is made ready: its initial values and its optimizer's groups.

The scaling that is checked may be a plan, a rule by name, nothing at all, or the user's own code.
"""

from __future__ import annotations

__all__ = ["OPTIMIZERS", "OptimizerLike", "PlanLike", "Setup", "make_optimizer", "make_setup"]

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

Setup = Callable[[nn.Module, int, int, int], Iterable[dict[str, Any]]]
"""From model, width, depth and seed to parameter groups; may change the model's values."""
OptimizerLike = str | Callable[..., torch.optim.Optimizer]

OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
"""Optimizers by name."""
_FUSED = ("sgd", "adam", "adamw", "adagrad")


class PlanLike(Protocol):
    """What a check asks of a :class:`scalinglimits.scaling.ScalingPlan`."""

    def retarget(self, target: Any) -> Any:
        """Return the plan for another target size."""

    def initialize_(self, model: nn.Module, *, seed: int) -> Any:
        """Draw the model's parameters."""

    def param_groups(
        self, model: nn.Module, *, lr: float, weight_decay: float | None
    ) -> Iterable[dict[str, Any]]:
        """Return the optimizer's groups."""


def make_setup(
    build: Callable[..., nn.Module],
    plan: PlanLike | Setup | str | None,
    *,
    base: tuple[int, int],
    optimizer: OptimizerLike,
    lr: float,
    weight_decay: float = 0.0,
    **rules: Any,
) -> tuple[Setup, PlanLike | None]:
    """Return what makes a model of any size ready.

    Args:
        build: from width and depth to a model.
        plan: a scaling plan; the name of a width rule such as "mup"; None for the model as built
            with one learning rate; or a function from model, width, depth and seed to parameter
            groups.
        base: width and depth at which the model is what it is.
        optimizer: the optimizer, by name where `plan` is a rule's name.
        lr: learning rate at the base size.
        weight_decay: weight decay at the base size.
        **rules: further options of :func:`scalinglimits.scaling.make_plan`.

    Returns:
        The setup, and the plan if there is one.

    Raises:
        TypeError: if `plan` is none of these.
    """
    if plan is None:
        return (lambda model, width, depth, seed: _one_group(model, lr, weight_decay)), None
    if isinstance(plan, str):
        # Only a rule's name needs the plans, and through them the roles of a model's axes.
        from scalinglimits.scaling import make_plan

        name = optimizer if isinstance(optimizer, str) else _name_of(optimizer)
        plan = make_plan(build, base=base, target=base, optimizer=name, width_rule=plan, **rules)
    if all(hasattr(plan, name) for name in ("retarget", "initialize_", "param_groups")):
        return _planned(plan, lr, weight_decay), plan  # type: ignore[arg-type,return-value]
    if callable(plan):
        return plan, None
    raise TypeError(
        "`plan` must be a scaling plan, a rule's name, None or a function of model, width, depth "
        f"and seed; got {type(plan).__name__}"
    )


def make_optimizer(
    optimizer: OptimizerLike, groups: Iterable[dict[str, Any]]
) -> torch.optim.Optimizer:
    """Return an optimizer of these groups.

    Args:
        optimizer: a name in `OPTIMIZERS`, or a function from groups to an optimizer.
        groups: parameter groups with their own rates.

    Returns:
        The optimizer.

    Raises:
        ValueError: if the name is unknown.
    """
    groups = list(groups)
    if not isinstance(optimizer, str):
        return optimizer(groups)
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"`optimizer` must be a function or one of {', '.join(OPTIMIZERS)}; got {optimizer!r}"
        )
    # One pass over the parameters instead of several.
    parameters = [p for group in groups for p in group["params"]]
    fused = optimizer in _FUSED and all(p.dtype == torch.float32 for p in parameters)
    return OPTIMIZERS[optimizer](groups, **({"fused": True} if fused else {}))


def _planned(plan: PlanLike, lr: float, weight_decay: float) -> Setup:
    plans: dict[tuple[int, int], PlanLike] = {}

    def setup(model: nn.Module, width: int, depth: int, seed: int) -> Iterable[dict[str, Any]]:
        if (width, depth) not in plans:
            plans[width, depth] = plan.retarget((width, depth))
        here = plans[width, depth]
        here.initialize_(model, seed=seed)
        return here.param_groups(model, lr=lr, weight_decay=weight_decay)

    return setup


def _one_group(model: nn.Module, lr: float, weight_decay: float) -> list[dict[str, Any]]:
    return [{"params": list(model.parameters()), "lr": lr, "weight_decay": weight_decay}]


def _name_of(optimizer: Callable[..., torch.optim.Optimizer]) -> str:
    names = [name for name, known in OPTIMIZERS.items() if known is optimizer]
    if not names:
        raise ValueError(
            "`optimizer` must be a name where `plan` is a rule's name, so that the rule is known; "
            f"got {optimizer!r}"
        )
    return names[0]
