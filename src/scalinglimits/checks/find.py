"""From the measurements along one axis to findings: what to fit, and what to expect of it."""

from __future__ import annotations

__all__ = ["find"]

import math
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
    first, last = sizes[0], sizes[-1]
    groups: dict[tuple[str, str, str], dict[int, tuple[list[float], list[float]]]] = {}
    uses: dict[str, set[str]] = {}
    columns = [part[name].tolist() for name in ("kind", "name", "use", "step", axis.name, "value")]
    for kind, name, use, t, size, value in zip(*columns, strict=True):
        x, y = groups.setdefault((kind, name, use), {}).setdefault(t, ([], []))
        x.append(size)
        y.append(value)
        if kind == "share":
            uses.setdefault(name, set()).add(use)
    sort = "depth" if axis.is_depth else "width"
    growing = _growing_heads(first, last, axis)
    roles = {key[1:]: _role(key[1], key[2], sizes, axis) for key in groups if key[2]}
    behind = _behind(roles) if sort == "width" else set()
    faint = not normalised and _widens_again(roles)
    narrow_stack = any("*" in name for name, _ in behind)
    cases = []
    for (kind, name, use), group in groups.items():
        parameter = KINDS[kind].parameter
        role, a_less_b = roles.get((name, use), ("", None))
        relative = kind.startswith("relative_")
        # What enters a tied head may be small as it has absorbed the head's multiplier.
        in_its_place = (name, use) in behind and len(uses.get(name, ())) == 1
        if relative and not in_its_place:
            continue
        if kind == "logits":
            made = first.queries.get(name, ())
            a_less_b = max((e or 0.0 for (p, _), (_, e) in roles.items() if p in made), default=0.0)
        tied = len(uses.get(name, ())) > 1
        expected = expected_exponent(
            kind,
            sort,
            role=role,
            tied=tied,
            in_block="*" in name and name not in last.single,
            residual=all(size.residual.get(stack_of(name), True) for size in sizes),
            alpha=alpha,
            growing_head=growing.get(name, 0.0),
            gain=name in first.gains,
            narrowing=a_less_b,
            faint=faint and (name, use) in behind,
            behind=narrow_stack if kind == "stream" else (name, use) in behind and not relative,
            scatter=_mean(groups.get(("scatter", name, use), {})),
        )
        judged_relative = in_its_place and (f"relative_{kind}", name, use) in groups
        once = kind.startswith("block_") and name in last.single
        if name in first.noise | last.noise or judged_relative or once:
            expected = None
        for chosen in _steps(list(group), kind):
            about: dict[str, Any] = {
                "axis": axis.name,
                "kind": kind,
                "name": name,
                "use": use,
                "step": chosen,
                "role": role,
                "parameters": (name,) if parameter else tuple(sorted(first.queries.get(name, ()))),
            }
            cases.append((*group[chosen], expected, about, tied))
    tests = chances * sum(expected is not None for _, _, expected, _, _ in cases)
    findings = []
    for x, y, expected, about, tied in cases:
        if len(set(x)) < 2 or len(x) < 3 or not all(math.isfinite(value) for value in y):
            continue
        finding = judge(x, y, expected=expected, tests=tests, **about)
        if finding is not None and finding.verdict == "fails":
            frozen = about["name"] in last.frozen
            why = hint(
                about["kind"],
                sort,
                about["role"],
                finding.excess,
                frozen=frozen,
                tied=tied,
                heads_grow=bool(growing) or not first.heads,
                name=axis.name,
            )
            finding = judge(x, y, expected=expected, tests=tests, hint=why, **about)
        if finding is not None:
            findings.append(finding)
    return findings


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


def _steps(steps: list[int], kind: str) -> list[int]:
    """The steps at which a quantity is fitted."""
    start, end = min(steps), max(steps)
    return {"start": [start], "end": [end]}.get(KINDS[kind].at, sorted({start, end}))
