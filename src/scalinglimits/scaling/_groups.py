"""Parameter groups of a plan, for any optimizer class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from scalinglimits.scaling._names import plain_name, split_weight_norm
from scalinglimits.scaling.entry import PlanEntry
from scalinglimits.scaling.rules import OPTIMIZERS

if TYPE_CHECKING:
    from scalinglimits.scaling.plan import ScalingPlan

__all__ = ["match", "param_groups"]

_SETTINGS = ("lr", "weight_decay", "eps")


Model = nn.Module | Mapping[str, torch.Tensor]


def match(plan: ScalingPlan, model: Model) -> Iterator[tuple[str, torch.Tensor, PlanEntry]]:
    """Yield each parameter of a model once, with its plain name and its entry.

    Raises:
        ValueError: If the model has a parameter that the plan has not, the reverse, or one of
            another shape.
    """
    known: dict[str, PlanEntry] = {}
    for each in plan.entries.values():
        known.update(dict.fromkeys((each.name, *each.aliases), each))
    found: list[tuple[str, torch.Tensor, PlanEntry]] = []
    missing: set[str] = set(plan.entries)
    seen: dict[int, str] = {}
    if isinstance(model, Mapping):
        named = list(model.items())
    elif isinstance(model, nn.Module):
        named = list(model.named_parameters(remove_duplicate=False))
    else:
        raise TypeError(f"`model` must be a module or a mapping of tensors; got {model!r}")
    # DistributedDataParallel keeps the model in an attribute of this name.
    wrapped = isinstance(model, nn.parallel.DistributedDataParallel) or (
        not any(name.startswith("module.") for name in known)
        and all(name.startswith("module.") for name, _ in named)
    )
    for full, parameter in named:
        plain = plain_name(full)
        name = plain.removeprefix("module.") if wrapped else plain
        entry = known.get(name) or _weight_norm_entry(known, name)
        if entry is None:
            raise ValueError(f"`model` must have the plan's parameters; the plan has no `{name}`")
        missing.discard(known[name].name if name in known else split_weight_norm(name)[0])
        if id(parameter) in seen:
            continue
        seen[id(parameter)] = name
        shape = tuple(parameter.shape)
        stacked = isinstance(model, Mapping) and shape[1:] == entry.shape  # an ensemble
        if name in known and shape != entry.shape and not stacked:
            raise ValueError(
                f"`model` must have the target's size; `{name}` is {shape}, "
                f"the plan has {entry.shape}"
            )
        found.append((name, parameter, entry))
    if missing:
        raise ValueError(f"`model` must have the plan's parameters; it has no `{min(missing)}`")
    yield from found


def param_groups(
    plan: ScalingPlan,
    model: Model,
    lr: float | torch.Tensor,
    weight_decay: float | None,
    eps: float | None,
    groups: Iterable[Mapping[str, Any]] | None,
    optimizer: str | None,
    extra: dict[str, Any],
) -> list[dict[str, Any]]:
    """Split groups by multipliers; see `ScalingPlan.param_groups`."""
    _check_settings(lr, weight_decay, eps)
    if optimizer is not None and optimizer not in {e.optimizer for e in plan.entries.values()}:
        raise ValueError(f"`optimizer` must be one of the plan's; got {optimizer!r}")
    matched = {id(p): (name, p, entry) for name, p, entry in match(plan, model)}
    given = [dict(group) for group in groups] if groups is not None else [{"params": None}]
    result: dict[tuple[Any, ...], dict[str, Any]] = {}
    used: set[int] = set()
    for index, group in enumerate(given):
        members = group.pop("params", None)
        if isinstance(members, torch.Tensor):
            members = [members]
        members = [p for _, p, _ in matched.values()] if members is None else list(members)
        members = [m[1] if isinstance(m, tuple) else m for m in members]
        settings = {"lr": lr, "weight_decay": weight_decay, "eps": eps, **extra, **group}
        for parameter in members:
            if id(parameter) not in matched:
                raise ValueError("`groups` must hold parameters of `model`; one is of another")
            if id(parameter) in used:
                twice = matched[id(parameter)][0]
                raise ValueError(f"`groups` must hold each parameter once; `{twice}` is twice")
            used.add(id(parameter))
            name, _, entry = matched[id(parameter)]
            if optimizer is not None and entry.optimizer != optimizer:
                continue
            scaled = _scaled(entry, settings)
            key = (index, entry.lr, entry.weight_decay, entry.eps, entry.optimizer)
            row = result.setdefault(key, {"params": [], "names": [], **scaled})
            row["params"].append(parameter)
            row["names"].append(name)
            row["lr_multiplier"] = entry.lr
    forgotten = [name for key, (name, p, _) in matched.items() if key not in used]
    if forgotten:
        raise ValueError(f"`groups` must hold every parameter; `{forgotten[0]}` is in none")
    return list(result.values())


def _scaled(entry: PlanEntry, settings: dict[str, Any]) -> dict[str, Any]:
    known = OPTIMIZERS[entry.optimizer]
    scaled = dict(settings)
    lr = settings["lr"]
    scaled["lr"] = lr.detach().clone() * entry.lr if isinstance(lr, torch.Tensor) else lr * entry.lr
    decay = settings["weight_decay"]
    if decay is None and known.decay:
        decay = known.decay  # the class's default would not be scaled
    eps = settings["eps"]
    if eps is None:
        eps = known.eps
    for key, value, factor in (
        ("weight_decay", decay, entry.weight_decay),
        ("eps", eps, entry.eps),
    ):
        if value is None:
            del scaled[key]
        else:
            scaled[key] = value * factor
    return scaled


def _weight_norm_entry(known: Mapping[str, PlanEntry], name: str) -> PlanEntry | None:
    """The entry of a weight that was normalised after the plan was made, for this part of it.

    W = g·v/‖v‖ moves as W does when v has W's multipliers; its gain g of size σ√n moves by a
    constant share of itself.
    """
    weight, part = split_weight_norm(name)
    entry = known.get(weight) if weight != name else None
    if entry is None or part in ("", "v"):
        return entry
    # ‖row‖ = σ√n; SGD's rate also undoes the gradient's size.
    gain = entry.init * entry.fan_in**0.5
    family = OPTIMIZERS[entry.optimizer].family
    rate = 1.0 if family == "relative" else gain * entry.share
    if family == "sgd":
        rate /= entry.grad
    decay = 1.0 if entry.weight_decay == 1.0 else 1.0 / rate
    return replace(entry, name=name, lr=rate, weight_decay=decay, role="vector")


def _check_settings(lr: Any, weight_decay: Any, eps: Any) -> None:
    for name, value in zip(_SETTINGS, (lr, weight_decay, eps), strict=True):
        if value is None and name != "lr":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float, torch.Tensor)):
            raise TypeError(f"`{name}` must be a number; got {value!r}")
        if not float(value) >= 0:
            raise ValueError(f"`{name}` must not be negative; got {value}")
