"""The parameters of a model by name: who owns each, what it is, and under which names.

A tied parameter is one entry with several owners; a parametrised weight (`weight_norm`, …) is
one entry in place of its originals. Names are those of the bare model: wrappers of compilation,
checkpointing and data parallelism leave no trace in them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from scalinglimits.init._checks import check_tensor
from scalinglimits.init.axes import Axes
from scalinglimits.init.layers import Constant, parameter_role

__all__ = ["Entry", "bare_name", "collect", "resolve_axes", "split_excluded"]

_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


@dataclass(eq=False)
class Entry:
    """One parameter of a model.

    Args:
        names: Its full names, more than one if it is tied.
        owners: The module and the name in it, for each of the names.
        tensor: The parameter; for a parametrised weight, its value in a copy of the layer.
        parametrised: Whether it is computed from other parameters.
        axes: What its axes mean to each owner, declared or known; empty if it is a constant.
        constant: What it is if it is a constant.
    """

    names: list[str]
    owners: list[tuple[nn.Module, str]]
    tensor: torch.Tensor
    parametrised: bool = False
    axes: list[Axes] = field(default_factory=list)
    constant: Constant | None = None

    @property
    def name(self) -> str:
        """The first name."""
        return self.names[0]

    @property
    def layer(self) -> str:
        """The type of the first owner."""
        kind = type(self.owners[0][0])
        bases = [base.__name__ for base in kind.__mro__]
        if self.parametrised:  # a class made by torch: ParametrizedLinear
            return bases[1]
        if "FSDPModule" in bases[1:]:  # another: FSDPLinear(FSDPModule, Linear)
            return bases[bases.index("FSDPModule") + 1]
        return bases[0]

    @property
    def padding_row(self) -> int | None:
        """The row that an embedding keeps at zero."""
        for module, name in self.owners:
            if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and name == "weight":
                return module.padding_idx
        return None

    def matches(self, pattern: str) -> bool:
        """Whether one of the names matches a shell pattern."""
        return any(fnmatchcase(name, pattern) for name in self.names)


def collect(model: nn.Module) -> list[Entry]:
    """Return the parameters of a model, each once, in the order of its modules.

    Args:
        model: The model.

    Returns:
        One entry for each.

    Raises:
        TypeError: If ``model`` is not a module or a parameter is not a real number.
        ValueError: If a parameter has no shape yet.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}")
    if isinstance(model, DistributedDataParallel):
        model = model.module
    entries: dict[int, Entry] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if "parametrizations" in path.split("."):
            continue
        found = [
            (name, id(tensor), tensor, False)
            for name, tensor in module.named_parameters(recurse=False, remove_duplicate=False)
        ]
        if parametrize.is_parametrized(module):
            twin = copy.deepcopy(module)
            found += [
                (name, id(originals), getattr(twin, name).detach(), True)
                for name, originals in module.parametrizations.items()
            ]
        for name, key, tensor, parametrised in found:
            full = bare_name(f"{path}.{name}" if path else name)
            if key not in entries:
                check_tensor(full, tensor)
                entries[key] = Entry([], [], tensor, parametrised)
            if full not in entries[key].names:
                entries[key].names.append(full)
                entries[key].owners.append((module, name))
    return list(entries.values())


def split_excluded(
    entries: list[Entry], patterns: str | Sequence[str]
) -> tuple[list[Entry], list[Entry]]:
    """Split entries into those to initialise and those that a pattern excludes.

    Args:
        entries: The parameters of a model.
        patterns: Shell patterns of their full names.

    Returns:
        The entries that no pattern matches, and the others.

    Raises:
        TypeError: If ``patterns`` is neither a string nor a sequence of strings.
        ValueError: If a pattern matches nothing.
    """
    given = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in given:
        _check_matches("exclude", pattern, entries)
    out = [entry for entry in entries if any(entry.matches(p) for p in given)]
    return [entry for entry in entries if entry not in out], out


def resolve_axes(entries: list[Entry], declared: Mapping[str, Axes] | None) -> None:
    """Settle what each entry is, from what the caller declares and what layers are known.

    Args:
        entries: The parameters to settle, changed in place.
        declared: Axes by shell pattern of full names; the first pattern that matches counts.

    Raises:
        TypeError: If ``declared`` is not a mapping from strings to `Axes`.
        ValueError: If a pattern matches nothing, or a parameter is of a layer that is not known.
    """
    table = {} if declared is None else declared
    if not isinstance(table, Mapping) or not all(isinstance(a, Axes) for a in table.values()):
        raise TypeError(f"`axes` must map patterns of names to Axes; got {declared!r}")
    for pattern in table:
        _check_matches("axes", pattern, entries)
    unknown = []
    for entry in entries:
        chosen = next((a for p, a in table.items() if entry.matches(p)), None)
        if chosen is not None:
            entry.axes = [chosen]
            continue
        roles = [parameter_role(module, name) for module, name in entry.owners]
        if any(role is None for role in roles):
            unknown.append(f"{entry.name} of {entry.layer}, shape {tuple(entry.tensor.shape)}")
        entry.axes = [role for role in roles if isinstance(role, Axes)]
        if not entry.axes:
            entry.constant = next((r for r in roles if isinstance(r, Constant)), None)
    if unknown:
        raise ValueError(
            "`model` must have known layers or declared axes; got "
            + "; ".join(unknown)
            + ". Declare a weight, for example axes={'*.kernel': Axes(in_axis=0, out_axis=1)}, "
            "or leave a parameter as it is with exclude=['*.kernel']"
        )


def bare_name(name: str) -> str:
    """Return a full name without the marks of wrappers."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _check_matches(argument: str, pattern: object, entries: list[Entry]) -> None:
    if not isinstance(pattern, str):
        raise TypeError(f"`{argument}` must be made of patterns of names; got {pattern!r}")
    if not any(entry.matches(pattern) for entry in entries):
        raise ValueError(f"`{argument}` must match parameters of the model; got {pattern!r}")
