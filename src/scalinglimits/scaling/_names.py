"""Names of parameters under wrappers: compiled, distributed, checkpointed, weight-normalised."""

from __future__ import annotations

import re

__all__ = ["plain_name", "split_weight_norm"]

# What torch.compile, DistributedDataParallel, FSDP and checkpoint wrappers put into names.
_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?:\.|$)"
)
_PARAMETRIZED = re.compile(r"^(?:(.*)\.)?parametrizations\.([^.]+)\.(original[01]?)$")
_OLD_STYLE = re.compile(r"^(.*)_([gv])$")


def plain_name(name: str) -> str:
    """Return the name without the components that wrappers add."""
    return _WRAPPERS.sub("", name).rstrip(".")


def split_weight_norm(name: str) -> tuple[str, str]:
    """Return the weight's name and its part: ``"g"``, ``"v"``, or empty when it is whole."""
    found = _PARAMETRIZED.match(name)
    if found:
        path, leaf, original = found.groups()
        part = {"original": "", "original0": "g", "original1": "v"}[original]
        return (f"{path}.{leaf}" if path else leaf), part
    old = _OLD_STYLE.match(name)
    if old and old.group(1).rpartition(".")[2].startswith("weight"):
        return old.group(1), old.group(2)
    return name, ""
