"""Schedulers and the ratios of a plan: finding those that destroy them, and one that keeps them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from scalinglimits.scaling._names import split_weight_norm

if TYPE_CHECKING:
    from scalinglimits.scaling.plan import ScalingPlan

__all__ = ["AuditReport", "PlanScheduler", "audit"]

_SHARED = ("momentum", "betas")


@dataclass(frozen=True)
class AuditReport:
    """What an audit found; true when it found nothing.

    Args:
        findings: One sentence each.
    """

    findings: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        return "\n".join(self.findings) if self.findings else "the plan's ratios are kept"


def audit(
    plan: ScalingPlan, optimizer: torch.optim.Optimizer, scheduler: Any, steps: int
) -> AuditReport:
    """Compare rates with multipliers now and over some steps; see `ScalingPlan.audit`."""
    findings = list(_membership(plan, optimizer))
    if not findings:
        found = _mismatch(optimizer)
        if found:
            where = "now" if scheduler is None else f"once {type(scheduler).__name__} is made"
            findings.append(f"{where}: {found}")
    if not findings and scheduler is not None:
        findings += _look_ahead(optimizer, scheduler, steps)
    return AuditReport(tuple(findings))


def _membership(plan: ScalingPlan, optimizer: torch.optim.Optimizer) -> list[str]:
    names = [name for group in optimizer.param_groups for name in group.get("names", ())]
    if any("lr_multiplier" not in group or "names" not in group for group in _groups(optimizer)):
        return ["a group has no multiplier: make the optimizer of `plan.param_groups`"]
    findings = []
    for group in _groups(optimizer):
        for name in group["names"]:
            try:
                entry = plan[name]
            except KeyError:
                continue
            if not math.isclose(group["lr_multiplier"], entry.lr, rel_tol=1e-9):
                findings.append(
                    f"`{name}` has the multiplier {group['lr_multiplier']:.6g}; "
                    f"the plan has {entry.lr:.6g}"
                )
    covered = {split_weight_norm(name)[0] for name in names}
    entries = {split_weight_norm(e.name)[0]: e for e in plan.entries.values()}
    wanted = {entries[name].optimizer for name in covered if name in entries}
    for name, entry in entries.items():
        if entry.optimizer in wanted and covered.isdisjoint({name, *entry.aliases}):
            findings.append(f"`{entry.name}` is in no group: it will not be trained")
    return findings


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [group for group in optimizer.param_groups if group["params"]]


def _mismatch(optimizer: torch.optim.Optimizer) -> str:
    """The first group whose rate is not its multiplier times the common rate."""
    groups = _groups(optimizer)
    bases = [float(group["lr"]) / group["lr_multiplier"] for group in groups]
    for group, base in zip(groups, bases, strict=True):
        if not math.isclose(base, bases[0], rel_tol=1e-5, abs_tol=0.0):
            wanted = bases[0] * group["lr_multiplier"]
            return (
                f"`{group['names'][0]}` has learning rate {float(group['lr']):.6g}, "
                f"the plan's ratio to `{groups[0]['names'][0]}` asks for {wanted:.6g}"
            )
    return ""


def _look_ahead(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> list[str]:
    kept = [
        {
            key: value.clone() if isinstance(value, torch.Tensor) else copy.copy(value)
            for key, value in group.items()
            if key not in ("params", "names")
        }
        for group in optimizer.param_groups
    ]
    state = copy.deepcopy(scheduler.state_dict())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(1, steps + 1):
                try:
                    _step(scheduler)
                except (ValueError, StopIteration):
                    return []  # the schedule is over
                if all(float(group["lr"]) == 0.0 for group in _groups(optimizer)):
                    continue
                found = _mismatch(optimizer)
                if found:
                    return [f"after {step} steps of {type(scheduler).__name__}: {found}"]
    finally:
        for group, values in zip(optimizer.param_groups, kept, strict=True):
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                    group[key].copy_(value)
                else:
                    group[key] = value
        scheduler.load_state_dict(state)
    return []


def _step(scheduler: Any) -> None:
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        scheduler.step(1.0)
    else:
        scheduler.step()


class _Reference(torch.optim.Optimizer):
    """An optimizer of one parameter at the base rate, for a scheduler to act on."""

    def __init__(self, group: dict[str, Any]) -> None:
        super().__init__([torch.nn.Parameter(torch.zeros(1))], group)
        self._opt_called = True

    def step(self, closure: Any = None) -> Any:
        """Do nothing: only the rate matters."""


class PlanScheduler:
    """A scheduler of the base learning rate, whose groups keep a plan's ratios.

    Make one with `ScalingPlan.schedule`.

    Args:
        plan: The plan.
        optimizer: An optimizer of its groups.
        factory: Makes the scheduler.

    Raises:
        ValueError: If the optimizer is not of this plan.
    """

    def __init__(
        self,
        plan: ScalingPlan,
        optimizer: torch.optim.Optimizer,
        factory: Callable[[Any], Any],
    ) -> None:
        report = audit(plan, optimizer, None, 0)
        if not report:
            raise ValueError(f"`optimizer` must have the plan's groups; {report.findings[0]}")
        self.optimizer = optimizer
        first = _groups(optimizer)[0]
        base = float(first["lr"]) / first["lr_multiplier"]
        settings = {
            key: value
            for key, value in first.items()
            if key not in ("params", "names", "lr_multiplier", "initial_lr", "param_names")
        }
        self._reference = _Reference({**settings, "lr": base})
        self.scheduler = factory(self._reference)
        if getattr(self.scheduler, "optimizer", None) is not self._reference:
            raise ValueError("`factory` must return a scheduler of the optimizer that it is given")
        self._apply()

    def step(self, *args: Any) -> None:
        """Advance by one step.

        Args:
            *args: What the scheduler's own `step` takes.
        """
        self._reference.step()
        self.scheduler.step(*args)
        self._apply()

    def get_last_lr(self) -> list[float]:
        """Return the rate of each group.

        Returns:
            One number a group.
        """
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def base_lr(self) -> float:
        """The base model's learning rate at this step."""
        return float(self._reference.param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Return the state, for a checkpoint.

        Returns:
            What :meth:`load_state_dict` takes.
        """
        group = self._reference.param_groups[0]
        kept = {key: value for key, value in group.items() if key != "params"}
        return {"scheduler": self.scheduler.state_dict(), "reference": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Args:
            state: What :meth:`state_dict` returned.
        """
        self.scheduler.load_state_dict(state["scheduler"])
        self._reference.param_groups[0].update(state["reference"])
        self._apply()

    def _apply(self) -> None:
        reference = self._reference.param_groups[0]
        for group in self.optimizer.param_groups:
            rate = float(reference["lr"]) * group.get("lr_multiplier", 1.0)
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
            for key in _SHARED:
                if key in reference and key in group:
                    group[key] = reference[key]
