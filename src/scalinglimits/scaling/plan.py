"""The scaling plan: a table from parameter name to multipliers, and what can be done with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scalinglimits.scaling import _groups, _initialize
from scalinglimits.scaling._names import plain_name
from scalinglimits.scaling._schedule import AuditReport, PlanScheduler, audit
from scalinglimits.scaling.entry import PlanEntry

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import nn

__all__ = ["ScalingPlan"]

COLUMNS = ("shape", "role", "init", "lr", "weight_decay", "eps", "forward", "reason")


@dataclass(frozen=True)
class ScalingPlan:
    """Multipliers of every parameter of a target model, relative to a base model.

    Make one with :func:`scalinglimits.scaling.make_plan`. A plan is data: it holds no module and
    marks none, so it serves copies, wrapped, sharded and reloaded models alike.

    Args:
        entries: One entry a parameter, by name.
        settings: The sizes, rules and optimizer that the plan was made for.
        notes: What the reader should know: growth by coincidence, depth left alone.
        maker: Makes the plan of another target; None for a plan read from JSON.
    """

    entries: Mapping[str, PlanEntry]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    maker: Callable[[Any], ScalingPlan] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", MappingProxyType(dict(self.entries)))
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def __getitem__(self, name: str) -> PlanEntry:
        plain = plain_name(name)
        for candidate in (plain, plain.removeprefix("module.")):
            if candidate in self.entries:
                return self.entries[candidate]
        for entry in self.entries.values():
            if plain in entry.aliases:
                return entry
        raise KeyError(f"`name` must be a parameter of the plan; got {name!r}")

    def __len__(self) -> int:
        return len(self.entries)

    def __deepcopy__(self, memo: Any) -> ScalingPlan:
        return self  # immutable

    def role(self, name: str) -> str:
        """Return a parameter's role.

        Args:
            name: A parameter's name, with or without the prefixes of wrappers.

        Returns:
            One of :data:`scalinglimits.scaling.ROLES`.
        """
        return self[name].role

    def retarget(self, target: Any) -> ScalingPlan:
        """Return the plan of another target size, by the same rules.

        Args:
            target: The size, given as in `make_plan`.

        Returns:
            Its plan; the base model is not examined again.

        Raises:
            ValueError: If the plan was read from JSON, which knows no `build`.
        """
        if self.maker is None:
            raise ValueError("`retarget` must have a plan that `make_plan` made; this one was read")
        return self.maker(target)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a parameter, indexed by name.

        Returns:
            A frame with columns shape, role, init, lr, weight_decay, eps, forward, reason.
        """
        import pandas as pd

        rows = [{key: getattr(entry, key) for key in COLUMNS} for entry in self.entries.values()]
        index = pd.Index(list(self.entries), name="name")
        return pd.DataFrame(rows, index=index, columns=list(COLUMNS))

    def decay_products(self, lr: float, weight_decay: float) -> pd.DataFrame:
        """Return rate, decay and their product, the share that a step removes.

        Args:
            lr: The base model's learning rate.
            weight_decay: The base model's weight decay.

        Returns:
            A frame with columns ``lr``, ``weight_decay``, ``lr_wd``, indexed by name.
        """
        frame = self.to_frame()[["lr", "weight_decay"]] * [lr, weight_decay]
        frame["lr_wd"] = frame["lr"] * frame["weight_decay"]
        return frame

    def explain(self, name: str) -> str:
        """Derive one parameter's multipliers step by step.

        Args:
            name: A parameter's name.

        Returns:
            Lines of text.
        """
        entry = self[name]
        head = f"{entry.name} {entry.shape}: {entry.role}, {entry.optimizer}"
        return "\n".join([head, *(f"  {i}. {step}" for i, step in enumerate(entry.steps, 1))])

    def to_json(self) -> str:
        """Return the plan as JSON.

        Returns:
            Text that :meth:`from_json` reads.
        """
        return json.dumps(
            {
                "format": 1,
                "settings": dict(self.settings),
                "notes": list(self.notes),
                "entries": [entry.to_dict() for entry in self.entries.values()],
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str) -> ScalingPlan:
        """Return the plan that `text` describes.

        Args:
            text: What :meth:`to_json` returned.

        Returns:
            An equal plan.

        Raises:
            ValueError: If the text is not such JSON.
        """
        try:
            data = json.loads(text)
            entries = [PlanEntry.from_dict(row) for row in data["entries"]]
            settings, notes, version = data["settings"], data["notes"], data["format"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"`text` must be a plan's JSON; got {text[:40]!r}") from error
        if version != 1:
            raise ValueError(f"`text` must be a plan of format 1; got format {version!r}")
        return cls({entry.name: entry for entry in entries}, settings, tuple(notes))

    def diff(self, other: ScalingPlan) -> pd.DataFrame:
        """Return where two plans differ.

        Args:
            other: Another plan.

        Returns:
            A frame with one row a difference: name, column, this, other. Reasons are not compared.

        Raises:
            TypeError: If `other` is not a plan.
        """
        import pandas as pd

        if not isinstance(other, ScalingPlan):
            raise TypeError(f"`other` must be a ScalingPlan; got {type(other).__name__}")
        rows = []
        for name in dict.fromkeys([*self.entries, *other.entries]):
            mine, theirs = self.entries.get(name), other.entries.get(name)
            for column in COLUMNS[:-1]:
                a, b = getattr(mine, column, None), getattr(theirs, column, None)
                if a != b:
                    rows.append((name, column, a, b))
        return pd.DataFrame(rows, columns=["name", "column", "this", "other"])

    def initialize_(
        self, model: nn.Module, *, generator: torch.Generator | None = None, seed: int | None = None
    ) -> nn.Module:
        """Draw all parameters anew, by the base model's laws times the plan's deviations.

        Each parameter has a stream of its own by name: the draw depends neither on their order
        nor on the number of processes, and a sharded parameter takes its part of the same draw.
        Values with a structure of their own (`InitLaw.kind` ``"kept"``) stay as they are.

        Args:
            model: The target model, sharded or not.
            generator: Gives the root seed.
            seed: The root seed itself, instead of a generator.

        Returns:
            The model.

        Raises:
            ValueError: If parameters and plan do not match, or both or neither of generator and
                seed are given.
        """
        return _initialize.initialize(self, model, generator, seed)

    def rescale_(self, model: nn.Module) -> nn.Module:
        """Multiply what the model drew, so that its deviations are the plan's.

        Args:
            model: The target model, as its constructor left it.

        Returns:
            The model.

        Raises:
            ValueError: If parameters and plan do not match, or the weights are not those of a
                fresh model: rescaled before, trained, or loaded.
        """
        return _initialize.rescale(self, model)

    def param_groups(
        self,
        model: nn.Module | Mapping[str, torch.Tensor],
        *,
        lr: float | torch.Tensor,
        weight_decay: float | None = None,
        eps: float | None = None,
        groups: Iterable[Mapping[str, Any]] | None = None,
        optimizer: str | None = None,
        **extra: Any,
    ) -> list[dict[str, Any]]:
        """Return parameter groups for any optimizer class.

        Args:
            model: The target model, wrapped or not; or its tensors by name, each with an axis
                in front for an ensemble, as `torch.func.stack_module_state` returns them.
            lr: The base model's learning rate; a tensor gives each group a tensor of its own.
            weight_decay: The base model's weight decay; None for the optimizer's default.
            eps: The base model's ε; None for the optimizer's default.
            groups: The user's own groups, whose settings override `lr`, `weight_decay`, `eps`
                before they are multiplied; None for one group with all parameters.
            optimizer: For plans of Muon: ``"muon"`` or ``"adamw"``, the part to return.
            **extra: Further settings of every group.

        Returns:
            Dictionaries with ``params``, ``lr`` and what else was asked for, besides ``names``
            and ``lr_multiplier``, which `audit` and `schedule` read.

        Raises:
            ValueError: If parameters and plan do not match, or a group holds a parameter of
                another model.
        """
        return _groups.param_groups(
            self, model, lr, weight_decay, eps, groups, optimizer, dict(extra)
        )

    def audit(
        self, optimizer: torch.optim.Optimizer, scheduler: Any = None, *, steps: int = 100
    ) -> AuditReport:
        """Check that an optimizer, and a scheduler over some steps, keep the plan's ratios.

        Args:
            optimizer: An optimizer of this plan's groups.
            scheduler: A scheduler of it; its state and the optimizer's are put back afterwards.
            steps: How many steps to look ahead.

        Returns:
            A report: true when all is well, with findings in words otherwise.
        """
        return audit(self, optimizer, scheduler, steps)

    def schedule(
        self, optimizer: torch.optim.Optimizer, factory: Callable[[Any], Any]
    ) -> PlanScheduler:
        """Run any scheduler on the base learning rate, and keep the plan's ratios.

        Args:
            optimizer: An optimizer of this plan's groups.
            factory: Makes the scheduler of an optimizer, for instance
                ``lambda o: OneCycleLR(o, max_lr=1e-2, total_steps=100)``.

        Returns:
            A scheduler with `step`, `get_last_lr`, `state_dict` and `load_state_dict`.
        """
        return PlanScheduler(self, optimizer, factory)

    @property
    def forward_multipliers(self) -> dict[str, float]:
        """Multipliers that the model itself must apply, by parameter; empty if all are absorbed."""
        return {e.name: e.forward for e in self.entries.values() if e.forward != 1.0}

    def names(self, *, role: str | Sequence[str] | None = None) -> list[str]:
        """Return parameter names, all or those of some roles.

        Args:
            role: A role or several.

        Returns:
            Names in the model's order.
        """
        wanted = None if role is None else {role} if isinstance(role, str) else set(role)
        return [e.name for e in self.entries.values() if wanted is None or e.role in wanted]

    def __str__(self) -> str:
        import pandas as pd

        settings = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        with pd.option_context("display.max_colwidth", 60, "display.width", 200):
            table = self.to_frame().to_string(float_format="{:.4g}".format)
        return "\n".join([f"ScalingPlan({settings})", table, *(f"note: {n}" for n in self.notes)])

    def __repr__(self) -> str:
        return (
            f"ScalingPlan({len(self)} parameters, base={self.settings.get('base')}, "
            f"target={self.settings.get('target')}, optimizer={self.settings.get('optimizer')!r})"
        )

    def _repr_html_(self) -> str:
        from html import escape

        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        table = self.to_frame().to_html(float_format="{:.4g}".format)
        return f"<p>{escape(repr(self))}</p>{table}{notes}"
