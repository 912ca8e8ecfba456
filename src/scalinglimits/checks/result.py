"""The record of a check: its verdict, findings and measurements."""

from __future__ import annotations

__all__ = ["ScalingCheck"]

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from scalinglimits.checks._axes import rows_along
from scalinglimits.checks.verdict import Finding, overall, seeds_needed

_FAR = 1e3
_EXIT = {"holds": 0, "fails": 1, "undecided": 3}


@dataclass(frozen=True, eq=False)
class ScalingCheck:
    """What a scaling check found.

    Attributes:
        findings: one for each quantity and axis.
        record: the measurements: a column for each axis (width, depth), seed, kind, name, use,
            step, value.
        settings: how they were made; `axes` are the numbers of each axis and those that grow with
            it, the base first.
        notes: parameters that are not judged, and why.
        branch_outputs: for each parameter in a block, how directly it writes to the stream.
    """

    findings: tuple[Finding, ...]
    record: pd.DataFrame
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    branch_outputs: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Whether the scaling "holds", "fails" or is "undecided"."""
        return overall(self.findings)

    @property
    def exit_code(self) -> int:
        """Exit status for a command: 0 holds, 1 fails, 3 undecided."""
        return _EXIT[self.verdict]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Failing findings, the largest excess first."""
        return self._with("fails")

    @property
    def undecided(self) -> tuple[Finding, ...]:
        """Undecided findings."""
        return self._with("undecided")

    @property
    def suspects(self) -> tuple[str, ...]:
        """Parameters that the failing findings point to, the most suspicious first.

        A fault of a branch shows in all of its parameters; the one that writes to the stream is
        named first, since the branch scale is absorbed there.
        """
        scores: dict[str, tuple[float, float]] = {}
        for finding in self.failures:
            excess = abs(finding.excess) if math.isfinite(finding.excess) else 0.0
            for name in finding.parameters:
                distance = self.branch_outputs.get(name, _FAR) if "block" in finding.kind else 0.0
                score = (distance, -excess)
                scores[name] = min(score, scores.get(name, score))
        return tuple(sorted(scores, key=lambda name: scores[name]))

    def advice(self) -> str:
        """Say which more seeds or sizes would decide an undecided check.

        Returns:
            One sentence, or "" if there is nothing undecided.
        """
        seeds = int(self.settings["seeds"])
        open_ones = {finding.axis for finding in self.undecided}
        if not open_ones:
            return ""
        numbers = self.settings["axes"]
        parts = []
        for axis in (axis for axis in numbers if axis in open_ones):
            needs = [seeds_needed(f, seeds) for f in self.undecided if f.axis == axis]
            larger = f"{axis} {2 * max(numbers[axis][axis])} added"
            if None in needs or max(n for n in needs if n is not None) > 8 * seeds:
                parts.append(f"{larger} (more seeds alone would not do)")
            else:
                parts.append(f"{max(n for n in needs if n is not None)} seeds, or {larger}")
        return "To decide: " + "; ".join(parts) + "."

    def along(self, axis: str) -> pd.DataFrame:
        """Return the measurements along one axis, the others at their base.

        Args:
            axis: such as "width".

        Returns:
            Rows of the record.

        Raises:
            ValueError: if there is no such axis.
        """
        return rows_along(self.record, self.settings["axes"], axis)

    def to_frame(self) -> pd.DataFrame:
        """Return the findings as a table.

        Returns:
            One row a finding, with the fields of :class:`~scalinglimits.checks.Finding`.
        """
        rows = [finding.__dict__ for finding in self.findings]
        return pd.DataFrame(rows, columns=list(Finding.__dataclass_fields__))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        Returns:
            Verdict, suspects, advice, settings, notes and findings.
        """
        return {
            "verdict": self.verdict,
            "suspects": list(self.suspects),
            "advice": self.advice(),
            "settings": {key: _plain(value) for key, value in self.settings.items()},
            "notes": list(self.notes),
            "findings": [finding.to_dict() for finding in self.findings if finding.verdict],
        }

    def __str__(self) -> str:
        judged = [finding for finding in self.findings if finding.verdict]
        held = sum(finding.verdict == "holds" for finding in judged)
        lines = [f"scaling {self.verdict}: {held} of {len(judged)} quantities are as expected"]
        for title, findings in (("fails", self.failures), ("undecided", self.undecided)):
            lines += _grouped(title, findings, self.suspects)
        if self.suspects:
            lines.append("suspects: " + ", ".join(self.suspects[:5]))
        # What would decide the rest can wait until what fails is mended.
        advice = self.advice() if self.verdict == "undecided" else ""
        lines += [line for line in (advice, *self.notes) if line]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        table = self.to_frame()
        table = table[table.verdict != ""].drop(columns="text")
        return f"<pre>{html.escape(str(self))}</pre>{table.to_html(index=False)}"

    def _with(self, verdict: str) -> tuple[Finding, ...]:
        found = [finding for finding in self.findings if finding.verdict == verdict]
        return tuple(sorted(found, key=lambda finding: -abs(finding.excess)))


def _grouped(title: str, findings: tuple[Finding, ...], suspects: tuple[str, ...]) -> list[str]:
    """One line for each quantity of an axis: its worst finding, and the others by name."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    rank = {name: position for position, name in enumerate(suspects)}
    for finding in sorted(findings, key=lambda finding: rank.get(finding.name, len(rank))):
        same = groups.setdefault((finding.axis, finding.kind), [])
        # The same quantity at its first and last step is named once.
        if not any((f.name, f.use) == (finding.name, finding.use) for f in same):
            same.append(finding)
    lines = []
    for first, *others in groups.values():
        lines.append(f"  {title}: {first.text}")
        if others:
            names = ", ".join(
                f"{f.name or 'model'} ({f.exponent:+.2f})".replace("(-", "(−") for f in others
            )
            lines.append(f"    likewise {names}")
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return str(value)
