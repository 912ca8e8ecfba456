"""From the measurements along one axis to findings: what to fit, and what to expect of it."""

from __future__ import annotations

__all__ = ["find"]

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from scalinglimits.checks._axes import Axis
from scalinglimits.checks.hints import hint
from scalinglimits.checks.measure import Measurement
from scalinglimits.checks.names import stack_of
from scalinglimits.checks.quantities import KINDS, expected_exponent, narrowing, narrows, use_role
from scalinglimits.checks.verdict import Finding, judge


def find(
    part: pd.DataFrame,
    axis: Axis,
    sizes: list[Measurement],
    alpha: float | None,
    chances: int,
    normalised: bool = True,
) -> list[Finding]:
    """Fit and judge every quantity along one axis.

    Args:
        part: the measurements along the axis, with the columns of a check's record.
        axis: the axis.
        sizes: one measurement of each size, by increasing size.
        alpha: branch exponent; None if unknown.
        chances: for each quantity judged here, the number of judgements in the whole check.
        normalised: whether the optimizer's steps do not depend on the gradient's size.

    Returns:
        The findings.
    """
    along = _Along(axis, sizes, alpha, normalised, _grouped(part, axis.name))
    cases = []
    for (kind, name, use), steps in along.groups.items():
        if kind.startswith("relative_") and not along.in_its_place(name, use):
            continue
        expected = along.expected(kind, name, use)
        behind = tuple(sorted(along.first.queries.get(name, ())))
        about: dict[str, Any] = {
            "axis": axis.name,
            "kind": kind,
            "name": name,
            "use": use,
            "role": along.roles.get((name, use), ("", None))[0],
            "parameters": (name,) if KINDS[kind].parameter else behind,
        }
        cases += [
            (*steps[t], expected, {**about, "step": t}) for t in _fitted_steps(list(steps), kind)
        ]
    tests = chances * sum(expected is not None for _, _, expected, _ in cases)
    findings = []
    for x, y, expected, about in cases:
        if len(set(x)) < 2 or len(x) < 3 or not all(math.isfinite(value) for value in y):
            continue
        finding = judge(x, y, expected=expected, tests=tests, **about)
        if finding is not None and finding.verdict == "fails":
            finding = judge(x, y, expected=expected, tests=tests, hint=along.hint(finding), **about)
        if finding is not None:
            findings.append(finding)
    return findings


Groups = Mapping[tuple[str, str, str], dict[int, tuple[list[float], list[float]]]]


def _grouped(part: pd.DataFrame, axis: str) -> Groups:
    """Kind, name and use to the sizes and values of each step."""
    groups: dict[tuple[str, str, str], dict[int, tuple[list[float], list[float]]]] = {}
    columns = [part[name].tolist() for name in ("kind", "name", "use", "step", axis, "value")]
    for kind, name, use, t, size, value in zip(*columns, strict=True):
        x, y = groups.setdefault((kind, name, use), {}).setdefault(t, ([], []))
        x.append(size)
        y.append(value)
    return groups


@dataclass(frozen=True)
class _Along:
    """What is known of a model's uses along one axis, and so expected of them."""

    axis: Axis
    sizes: list[Measurement]
    alpha: float | None
    normalised: bool
    groups: Groups

    @property
    def first(self) -> Measurement:
        return self.sizes[0]

    @property
    def last(self) -> Measurement:
        return self.sizes[-1]

    @property
    def sort(self) -> str:
        return "depth" if self.axis.is_depth else "width"

    @cached_property
    def uses(self) -> Counter[str]:
        """In how many places each parameter is used."""
        return Counter(name for kind, name, _ in self.groups if kind == "share")

    @cached_property
    def growing(self) -> dict[str, float]:
        return _growing_heads(self.first, self.last, self.axis)

    @cached_property
    def roles(self) -> dict[tuple[str, str], tuple[str, float | None]]:
        uses = [(name, use) for _, name, use in self.groups if use]
        return {(name, use): _role(name, use, self.sizes, self.axis) for name, use in uses}

    @cached_property
    def behind(self) -> set[tuple[str, str]]:
        return _behind(self.roles) if self.sort == "width" else set()

    @cached_property
    def narrow_stack(self) -> bool:
        return any("*" in name for name, _ in self.behind)

    @cached_property
    def faint(self) -> bool:
        return not self.normalised and _widens_again(self.roles)

    def tied(self, name: str) -> bool:
        return self.uses[name] > 1

    def in_its_place(self, name: str, use: str) -> bool:
        """Whether a use is judged relative to its input.

        What enters a tied head may be small as it has absorbed the head's multiplier.
        """
        return (name, use) in self.behind and self.uses[name] == 1

    def expected(self, kind: str, name: str, use: str) -> tuple[float, float] | None:
        """The range of the exponent, or None if the quantity is not judged."""
        relative = (f"relative_{kind}", name, use) in self.groups
        single = name in self.last.single
        if (relative and self.in_its_place(name, use)) or (single and kind.startswith("block_")):
            return None
        if name in self.first.noise | self.last.noise:
            return None
        role, excess = self.roles.get((name, use), ("", None))
        if kind == "logits":
            made = self.first.queries.get(name, ())
            excess = max(
                (e or 0.0 for (p, _), (_, e) in self.roles.items() if p in made), default=0.0
            )
        behind = (name, use) in self.behind
        return expected_exponent(
            kind,
            self.sort,
            role=role,
            tied=self.tied(name),
            in_block="*" in name and not single,
            residual=all(size.residual.get(stack_of(name), True) for size in self.sizes),
            alpha=self.alpha,
            growing_head=self.growing.get(name, 0.0),
            gain=name in self.first.gains,
            narrowing=excess,
            faint=self.faint and behind,
            behind=self.narrow_stack
            if kind == "stream"
            else behind and not kind.startswith("relative_"),
            scatter=_mean(self.groups.get(("scatter", name, use), {})),
        )

    def hint(self, finding: Finding) -> str:
        """A suspected cause of a failure."""
        return hint(
            finding.kind,
            self.sort,
            finding.role,
            finding.excess,
            frozen=finding.name in self.last.frozen,
            tied=self.tied(finding.name),
            heads_grow=bool(self.growing) or not self.first.heads,
            name=self.axis.name,
        )


def _growing_heads(first: Measurement, last: Measurement, axis: Axis) -> dict[str, float]:
    """Attentions and the parameters of their queries to the exponent of the size of a head."""
    ratio = math.log(axis.values[-1] / axis.values[0])
    exponents = {
        module: math.log(size / first.heads[module]) / ratio
        for module, size in last.heads.items()
        if size > first.heads.get(module, size)
    }
    queries = {p: e for module, e in exponents.items() for p in first.queries.get(module, ())}
    return queries | exponents


def _role(name: str, use: str, sizes: list[Measurement], axis: Axis) -> tuple[str, float | None]:
    """The role of a parameter in a use, and by how much its fan-in outgrows its fan-out."""
    shapes = [size.shapes[name] for size in sizes if name in size.shapes]
    if not shapes:
        return "", None
    in_axis = sizes[0].in_axes.get((name, use))
    role = use_role(shapes, in_axis, lookup=use.endswith(":embedding"))
    return role, narrowing(axis.values, shapes, in_axis)


def _behind(roles: dict[tuple[str, str], tuple[str, float | None]]) -> set[tuple[str, str]]:
    """Uses that may see a small signal: behind a weight that narrows, or in the same stack."""
    narrow = {key for key, (role, excess) in roles.items() if narrows(role, excess or 0.0)}
    stacks = {stack_of(name) for name, _ in narrow if "*" in name}
    found: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for name, use in roles:  # in the order of the pass
        if seen - {use} or stack_of(name) in stacks:  # a weight's own bias is not behind it
            found.add((name, use))
        if (name, use) in narrow:
            seen.add(use)
    return found


def _mean(steps: dict[int, tuple[list[float], list[float]]]) -> float:
    values = [value for _, y in steps.values() for value in y if math.isfinite(value)]
    return sum(values) / len(values) if values else 0.0


def _widens_again(roles: dict[tuple[str, str], tuple[str, float | None]]) -> bool:
    """Whether the model has a bottleneck that does not grow: behind it, a weight widens again."""
    narrow: set[str] = set()
    for (name, _), (role, excess) in roles.items():  # in the order of the pass
        place = name.rpartition("*")[0]
        if role == "input" and narrow & {place, ""}:
            return True
        if narrows(role, excess or 0.0):
            narrow.add(place)
    return False


def _fitted_steps(steps: list[int], kind: str) -> list[int]:
    """The steps at which a quantity is fitted."""
    start, end = min(steps), max(steps)
    return {"start": [start], "end": [end]}.get(KINDS[kind].at, sorted({start, end}))
