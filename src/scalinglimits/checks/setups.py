"""How a model of each size is made ready: its initial values and its optimizer's groups.

The scaling that is checked may be a plan, a rule by name, nothing at all, or the user's own code.
"""

from __future__ import annotations

__all__ = [
    "OPTIMIZERS",
    "OptimizerLike",
    "PlanLike",
    "Setup",
    "SetupLike",
    "check_rules",
    "check_targets",
    "make_optimizer",
    "make_setup",
    "normalises",
]

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from scalinglimits.checks._axes import Axes
from scalinglimits.scaling.sizes import Size

SetupLike = Callable[..., Iterable[dict[str, Any]]]
"""A user's function to parameter groups, which may change the model's values: from model, width,
depth and seed; where a size is a mapping, from model and, as keywords, seed and axes."""
Setup = Callable[[nn.Module, Size, int], Iterable[dict[str, Any]]]
"""The same from model, size and seed."""
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
_FUSED = ("adam", "adamw")  # fused SGD and Adagrad refuse sparse gradients, which they else take


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
    plan: PlanLike | SetupLike | str | None,
    *,
    base: Size,
    target: Size | None = None,
    optimizer: OptimizerLike,
    lr: float,
    weight_decay: float = 0.0,
    run: Callable[[nn.Module], Any] | None = None,
    **rules: Any,
) -> tuple[Setup, PlanLike | None]:
    """Return what makes a model of any size ready.

    Args:
        build: from width and depth, or from keyword axes, to a model.
        plan: a scaling plan; the name of a width rule such as "mup"; None for the model as built
            with one learning rate; or a function from model, width, depth and seed (where sizes
            are mappings: from model and, as keywords, seed and axes) to parameter groups.
        base: the size at which the model is what it is.
        target: a size of the models to come; the base by default.
        optimizer: the optimizer, by name where `plan` is a rule's name.
        lr: learning rate at the base size.
        weight_decay: weight decay at the base size.
        run: runs a model, for a plan whose rule is named and that can guess no inputs.
        **rules: further options of :func:`scalinglimits.scaling.make_plan`.

    Returns:
        The setup, and the plan if there is one.

    Raises:
        TypeError: if `plan` is none of these, or there are further options without a rule's name.
    """
    check_rules("plan", plan, rules)
    if plan is None:
        return (lambda model, size, seed: _one_group(model, lr, weight_decay)), None
    if isinstance(plan, str):
        # Only a rule's name needs the plans, and through them the roles of a model's axes.
        from scalinglimits.scaling import make_plan

        name = optimizer if isinstance(optimizer, str) else _name_of(optimizer)
        if not base.positional:
            rules = {"depth_axis": base.depth_axis or None, **rules}
        plan = make_plan(
            build,
            base=_given(base),
            target=_given(base if target is None else target),
            optimizer=name,
            width_rule=plan,
            run=run,
            **rules,
        )
    if all(hasattr(plan, name) for name in ("retarget", "initialize_", "param_groups")):
        return _planned(plan, lr, weight_decay), plan  # type: ignore[arg-type,return-value]
    if callable(plan):
        return _called(plan), None
    raise TypeError(
        "`plan` must be a scaling plan, a rule's name, None or a function of model, width, depth "
        f"and seed; got {type(plan).__name__}"
    )


def check_rules(name: str, plans: Any, rules: Mapping[str, Any]) -> None:
    """Refuse options that no plan would take, such as a misspelt argument.

    Args:
        name: of the argument that says the plan.
        plans: a plan in any form, or a collection of them.
        rules: options of :func:`scalinglimits.scaling.make_plan`.

    Raises:
        TypeError: if there are options, and no plan is a rule's name.
    """
    given = plans if isinstance(plans, list) else [plans]
    if rules and not any(isinstance(plan, str) for plan in given):
        raise TypeError(f"`{name}` must be a rule's name to take {', '.join(rules)}; got {plans!r}")


def check_targets(plan: PlanLike | None, axes: Axes) -> None:
    """Retarget a plan to the end of each axis: what it cannot scale is said before any work.

    Args:
        plan: a scaling plan; None passes.
        axes: of the models to come.
    """
    if plan is not None:
        for axis in axes.along:
            plan.retarget(_given(axis.sizes[-1]))


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
    fused = optimizer in _FUSED and all(
        p.dtype == torch.float32 and p.device.type in ("cpu", "cuda") for p in parameters
    )
    return OPTIMIZERS[optimizer](groups, **({"fused": True} if fused else {}))


def normalises(optimizer: OptimizerLike) -> bool:
    """Return whether an optimizer's steps are known not to depend on the gradient's size.

    Args:
        optimizer: name or function.

    Returns:
        False for SGD and for functions that are no optimizer of `OPTIMIZERS`.
    """
    known = {name: function for name, function in OPTIMIZERS.items() if name != "sgd"}
    return optimizer in known if isinstance(optimizer, str) else optimizer in known.values()


def _planned(plan: PlanLike, lr: float, weight_decay: float) -> Setup:
    plans: dict[Size, PlanLike] = {}

    def setup(model: nn.Module, size: Size, seed: int) -> Iterable[dict[str, Any]]:
        if size not in plans:
            plans[size] = plan.retarget(_given(size))
        here = plans[size]
        here.initialize_(model, seed=seed)
        return here.param_groups(model, lr=lr, weight_decay=weight_decay)

    return setup


def _called(function: SetupLike) -> Setup:
    def setup(model: nn.Module, size: Size, seed: int) -> Iterable[dict[str, Any]]:
        if size.positional:
            return function(model, *size.values.values(), seed)
        return function(model, seed=seed, **size.values)

    return setup


def _given(size: Size) -> tuple[int, ...] | dict[str, int]:
    """The size as users write it."""
    return tuple(size.values.values()) if size.positional else size.values


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
