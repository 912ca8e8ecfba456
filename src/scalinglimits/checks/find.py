"""From the measurements along one axis to findings: what to fit, and what to expect of it."""

from __future__ import annotations

__all__ = ["find"]

import math
from typing import Any

import pandas as pd

from scalinglimits.checks.hints import hint
from scalinglimits.checks.measure import Measurement
from scalinglimits.checks.quantities import KINDS, expected_exponent, use_role
from scalinglimits.checks.verdict import Finding, judge


def find(
    part: pd.DataFrame,
    axis: str,
    sizes: list[Measurement],
    alpha: float | None,
    looks: int,
) -> list[Finding]:
    """Fit and judge every quantity along one axis.

    Args:
        part: the measurements along the axis, with the columns of a check's record.
        axis: "width" or "depth".
        sizes: one measurement of each size, by increasing size.
        alpha: branch exponent; None if unknown.
        looks: how often the check may look at growing numbers of seeds.

    Returns:
        The findings.
    """
    first, last = sizes[0], sizes[-1]
    groups: dict[tuple[str, str, str], dict[int, tuple[list[float], list[float]]]] = {}
    uses: dict[str, set[str]] = {}
    columns = [part[name].tolist() for name in ("kind", "name", "use", "step", axis, "value")]
    for kind, name, use, t, size, value in zip(*columns, strict=True):
        x, y = groups.setdefault((kind, name, use), {}).setdefault(t, ([], []))
        x.append(size)
        y.append(value)
        if kind == "share":
            uses.setdefault(name, set()).add(use)
    growing = {name for name, size in last.heads.items() if size > first.heads.get(name, size)}
    growing |= {p for module in growing for p in first.queries.get(module, ())}
    cases = []
    for (kind, name, use), group in groups.items():
        parameter = KINDS[kind].parameter
        shapes = [size.shapes[name] for size in sizes if name in size.shapes] if parameter else []
        role = use_role(shapes, first.in_axes.get((name, use))) if shapes and use else ""
        tied = len(uses.get(name, ())) > 1
        expected = expected_exponent(
            kind,
            axis,
            role=role,
            tied=tied,
            in_block="*" in name,
            residual=all(size.residual.get(_stack(name), True) for size in sizes),
            alpha=alpha,
            growing_head=name in growing,
            gain=name in first.gains,
        )
        if name in first.noise | last.noise:
            expected = None
        for chosen in _steps(list(group), kind):
            about: dict[str, Any] = {
                "axis": axis,
                "kind": kind,
                "name": name,
                "use": use,
                "step": chosen,
                "role": role,
                "parameters": (name,) if parameter else tuple(sorted(first.queries.get(name, ()))),
            }
            cases.append((*group[chosen], expected, about, tied))
    tests = 2 * looks * sum(expected is not None for _, _, expected, _, _ in cases)
    findings = []
    for x, y, expected, about, tied in cases:
        if len(set(x)) < 2 or len(x) < 3 or not all(math.isfinite(value) for value in y):
            continue
        finding = judge(x, y, expected=expected, tests=tests, **about)
        if finding is not None and finding.verdict == "fails":
            frozen = about["name"] in last.frozen
            why = hint(about["kind"], axis, about["role"], finding.excess, frozen=frozen, tied=tied)
            finding = judge(x, y, expected=expected, tests=tests, hint=why, **about)
        if finding is not None:
            findings.append(finding)
    return findings


def _steps(steps: list[int], kind: str) -> list[int]:
    """The steps at which a quantity is fitted."""
    start, end = min(steps), max(steps)
    return {"start": [start], "end": [end]}.get(KINDS[kind].at, sorted({start, end}))


def _stack(name: str) -> str:
    """The stack of a block's parameter, `blocks.*` for `blocks.*.mlp.0.weight`."""
    parts = name.split(".")
    last = max((i for i, part in enumerate(parts) if "*" in part), default=-1)
    return ".".join(parts[: last + 1])
