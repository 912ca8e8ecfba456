"""From fitted exponents to findings, and from findings to a verdict.

A finding *holds* if the 90 % interval of its exponent lies within a tolerance of ¼ around the
expected range (two one-sided tests at 5 %); it *fails* if the interval does not meet that band even
at the level at which all findings together raise a false alarm in 1 of 100 checks (Bonferroni);
otherwise it is *undecided*.
A check fails if one finding fails, is undecided if one is, and holds if all hold.
"""

from __future__ import annotations

__all__ = ["FAMILY_LEVEL", "Finding", "judge", "overall", "seeds_needed"]

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scalinglimits.checks.quantities import KINDS, TOLERANCE
from scalinglimits.fits import fit_exponent

FAMILY_LEVEL = 0.01
"""Probability of a false alarm in a whole check, by chance alone."""


@dataclass(frozen=True)
class Finding:
    """What one quantity does along one axis.

    Attributes:
        verdict: "holds", "fails", "undecided", or "" if the quantity is not judged.
        axis: such as "width" or "depth".
        kind: a name in :data:`~scalinglimits.checks.quantities.KINDS`.
        name: of the parameter or module, the index of blocks as `*`.
        use: module and function in which the parameter is used.
        step: number of updates before.
        role: of the parameter in this use.
        exponent: fitted.
        lower: lower end of its 90 % interval.
        upper: upper end.
        expected: lowest and highest right exponent; None if the quantity is not judged.
        text: the finding in words.
        parameters: those that it concerns.
    """

    verdict: str
    axis: str
    kind: str
    name: str
    use: str
    step: int
    role: str
    exponent: float
    lower: float
    upper: float
    expected: tuple[float, float] | None
    text: str
    parameters: tuple[str, ...]

    @property
    def excess(self) -> float:
        """How far the exponent lies above the expected range (below: negative)."""
        if self.expected is None:
            return 0.0
        low, high = self.expected
        return self.exponent - min(max(self.exponent, low), high)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; an unbounded or missing end is None.

        Returns:
            The dictionary.
        """
        values = asdict(self)
        for key in ("exponent", "lower", "upper"):
            values[key] = _finite(values[key])
        if self.expected is not None:
            values["expected"] = [_finite(end) for end in self.expected]
        return values


def judge(
    x: Sequence[float],
    y: Sequence[float],
    *,
    expected: tuple[float, float] | None,
    tests: int,
    hint: str = "",
    **about: Any,
) -> Finding | None:
    """Fit one quantity and compare its exponent with the expected range.

    Args:
        x: numbers of the axis, one for each measurement.
        y: measurements, not negative.
        expected: lowest and highest right exponent; None if the quantity is not judged.
        tests: number of quantities judged in the check.
        hint: a suspected cause, told if the finding fails.
        **about: the finding's axis, kind, name, use, step and role.

    Returns:
        The finding; None if the quantity is zero at every size, as a bias at initialisation.
    """
    zeros = sorted({size for size, value in zip(x, y, strict=True) if not value > 0})
    if len(zeros) == len(set(x)):
        return None
    if zeros:
        text = f"{_subject(**about)} is exactly zero at {about['axis']} {_list(zeros)} only"
        verdict = "fails" if expected is not None else ""
        return Finding(
            verdict,
            **about,
            exponent=math.nan,
            lower=-math.inf,
            upper=math.inf,
            expected=expected,
            text=text,
        )
    fit = fit_exponent(x, y, confidence=0.9)
    verdict = "" if expected is None else _decide(x, y, expected, tests)
    finding = Finding(
        verdict,
        **about,
        exponent=fit.value,
        lower=fit.low,
        upper=fit.high,
        expected=expected,
        text="",
    )
    return Finding(**{**finding.__dict__, "text": _words(finding, hint)})


def overall(findings: Iterable[Finding]) -> str:
    """Return the verdict on all findings.

    Args:
        findings: of a check.

    Returns:
        "fails", "undecided" or "holds".
    """
    verdicts = {finding.verdict for finding in findings}
    return next((v for v in ("fails", "undecided") if v in verdicts), "holds")


def seeds_needed(finding: Finding, seeds: int) -> int | None:
    """Return how many seeds would decide a finding, if its exponent stays where it is.

    Args:
        finding: an undecided one.
        seeds: how many it is based on.

    Returns:
        The number; None if the exponent is as good as on the border.
    """
    assert finding.expected is not None
    low, high = finding.expected[0] - TOLERANCE, finding.expected[1] + TOLERANCE
    distance = min(abs(finding.exponent - low), abs(finding.exponent - high))
    half = (finding.upper - finding.lower) / 2
    if distance < 0.02:
        return None
    return max(seeds + 1, math.ceil(seeds * (half / distance) ** 2))


def _decide(
    x: Sequence[float], y: Sequence[float], expected: tuple[float, float], tests: int
) -> str:
    low, high = expected[0] - TOLERANCE, expected[1] + TOLERANCE
    fit = fit_exponent(x, y, confidence=0.9)
    if low <= fit.low and fit.high <= high:
        return "holds"
    fit = fit_exponent(x, y, confidence=1 - FAMILY_LEVEL / max(tests, 1))
    return "fails" if fit.high < low or fit.low > high else "undecided"


def _words(finding: Finding, hint: str) -> str:
    subject = _subject(finding.kind, finding.name, finding.role)
    text = f"{subject} {power(finding.axis, finding.exponent)}"
    if finding.expected is not None:
        text += (
            f" [{finding.lower:+.2f}, {finding.upper:+.2f}] ".replace("-", "−")
            + f"(expected {_range(finding.expected)})"
        )
    return f"{text}: {hint}" if hint and finding.verdict == "fails" else text


def _subject(kind: str, name: str, role: str, **_: Any) -> str:
    where = f" ({role})" if role else ""
    return f"{name or 'model'}{where}: {KINDS[kind].words}"


def power(axis: str, exponent: float) -> str:
    """Say how a quantity grows.

    Args:
        axis: its name.
        exponent: of the power.

    Returns:
        Such as "falls as width^−0.94".
    """
    verb = "stays as" if abs(exponent) < 0.1 else ("grows as" if exponent > 0 else "falls as")
    return f"{verb} {axis}^{'−' if exponent < 0 else ''}{abs(exponent):.2f}"


def _range(expected: tuple[float, float]) -> str:
    low, high = expected
    if low == high:
        return f"{low:.2g}".replace("-", "−")
    words = f"at most {high:.2g}" if math.isinf(low) else f"{low:.2g} to {high:.2g}"
    return words.replace("-", "−")


def _list(sizes: Iterable[float]) -> str:
    return ", ".join(f"{size:g}" for size in sizes)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
