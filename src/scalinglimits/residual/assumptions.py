r"""The assumptions of R on a branch and its weights, each checked by formula and by measurement.

- A1: the entries of :math:`\sqrt d\,V` are symmetric, independent, of variance 1 and
  :math:`s^2`-sub-Gaussian;
- A2: :math:`\frac12\|h\|^2 \le E[\|g\|^2\mid h] \le \|h\|^2` and
  :math:`E[\|g\|^8\mid h] \le C\|h\|^8`;
- A3: :math:`p_L/\|p_L\|` does not depend on the weights of the layers (as with one output);
- A4: :math:`\frac12\|q\|^2 \le E\|(\partial g/\partial h)q\|^2 \le \|q\|^2`;
- A6: :math:`g` is Lipschitz in :math:`h`, and in the weights on bounded sets: true as soon as
  :math:`\sigma` is Lipschitz.

Reference:
    R, sections 2.1, 2.3 and 3.2; Propositions 1 and 5.
"""

from __future__ import annotations

__all__ = ["Assumption", "AssumptionCheck", "check_assumptions"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from scalinglimits.laws import EntryLaw, Normal
from scalinglimits.laws.streams import substream
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.activations import resolve_activation
from scalinglimits.residual.constants import BranchConstants, branch_constants
from scalinglimits.residual.model import branch_activation

_TOLERANCE = 1e-9
"""Rounding allowed in a comparison, such as that of (1/√2)² with ½."""


@dataclass(frozen=True)
class Assumption:
    """One condition of a theorem, with the number that decides it.

    Attributes:
        name: what R calls it, such as "A2 (upper)".
        statement: the condition in words or signs.
        value: the number found.
        limit: the number it is compared with.
        holds: the verdict.
    """

    name: str
    statement: str
    value: float
    limit: float
    holds: bool

    @classmethod
    def at_most(cls, name: str, statement: str, value: float, limit: float) -> Assumption:
        """Return the assumption ``value <= limit``, with its verdict.

        Args:
            name: what R calls it.
            statement: the condition in words or signs.
            value: the left side.
            limit: the right side.

        Returns:
            The assumption; NaN never holds.
        """
        holds = value <= limit + _TOLERANCE * abs(limit)
        return cls(name, statement, float(value), float(limit), bool(holds))

    @classmethod
    def at_least(cls, name: str, statement: str, value: float, limit: float) -> Assumption:
        """Return the assumption ``value >= limit``, with its verdict.

        Args:
            name: what R calls it.
            statement: the condition in words or signs.
            value: the left side.
            limit: the right side.

        Returns:
            The assumption; NaN never holds.
        """
        holds = value >= limit - _TOLERANCE * abs(limit)
        return cls(name, statement, float(value), float(limit), bool(holds))

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        return (
            f"{self.name}: {self.statement} {verdict} ({self.value:.4g} against {self.limit:.4g})"
        )


@dataclass(frozen=True)
class AssumptionCheck:
    """The verdicts on all assumptions of a branch.

    Attributes:
        assumptions: each with its numbers.
        constants: the constants of the branch.
        measured: the same numbers from random weights, by name of the assumption: the smallest
            and the largest over the directions tried.
    """

    assumptions: tuple[Assumption, ...]
    constants: BranchConstants
    measured: dict[str, tuple[float, float]]

    @property
    def holds(self) -> bool:
        """Whether all assumptions hold."""
        return all(item.holds for item in self.assumptions)

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the assumptions that fail."""
        return tuple(item.name for item in self.assumptions if not item.holds)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per assumption.

        Returns:
            Columns ``name, statement, value, limit, holds, measured_low, measured_high``.
        """
        rows = [
            (a.name, a.statement, a.value, a.limit, a.holds,
             *self.measured.get(a.name, (math.nan, math.nan)))
            for a in self.assumptions
        ]  # fmt: skip
        names = ["name", "statement", "value", "limit", "holds", "measured_low", "measured_high"]
        return pd.DataFrame(rows, columns=names)


def check_assumptions(
    branch: str = "res-3",
    activation: str | Callable[[Tensor], Tensor] | None = None,
    entries: EntryLaw | None = None,
    *,
    width: int,
    out_features: int = 1,
    samples: int = 400,
    seed: int = 0,
) -> AssumptionCheck:
    r"""Check the assumptions A1 to A4 and A6 of R, by formula and by measurement.

    The formulas are those of :func:`~scalinglimits.residual.constants.branch_constants`. The
    measurement draws ``samples`` inner weight matrices and looks at the ratios for three
    directions of the hidden state: random, all entries equal, and one entry only.

    Args:
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch; None is its default.
        entries: law of the entries; None is the normal law.
        width: :math:`d`.
        out_features: outputs of the network, for A3.
        samples: draws of the measurement.
        seed: of the measurement.

    Returns:
        The verdicts.

    Raises:
        ValueError: if the branch is unknown, the activation does not fit it, or a count is not
            a positive integer.
        TypeError: if ``entries`` is not an entry law.

    Example:
        >>> check_assumptions("res-3", width=40).holds
        True
        >>> check_assumptions("res-2", "tanh", width=40).failed
        ('A2 (lower)', 'A4 (lower)')
    """
    law = Normal() if entries is None else entries
    constants = branch_constants(branch, activation, law, width=width)
    outputs = positive_integer("out_features", out_features)
    samples = positive_integer("samples", samples)
    assumptions = (
        entry_assumption(constants),
        *mean_square_assumptions(constants),
        Assumption.at_most("A3", "outputs of the network = 1", outputs, 1),
        *backward_assumptions(constants),
        lipschitz_assumption(constants),
    )
    measured = _measure(branch, activation, law, positive_integer("width", width), samples, seed)
    return AssumptionCheck(assumptions, constants, measured)


def entry_assumption(constants: BranchConstants, *, independent: bool = True) -> Assumption:
    """Return A1 for a law of entries that is symmetric and of variance 1 by construction.

    Args:
        constants: of the branch.
        independent: whether the layers' weights are independent.

    Returns:
        The assumption.
    """
    s_squared = constants.sub_gaussian if independent else math.inf
    statement = "symmetric independent entries, variance 1, s² finite"
    finite = independent and math.isfinite(s_squared)
    return Assumption("A1", statement, s_squared, math.inf, finite)


def mean_square_assumptions(constants: BranchConstants) -> tuple[Assumption, ...]:
    """Return the three parts of A2.

    Args:
        constants: of the branch.

    Returns:
        The lower bound, the upper bound and the eighth moment.
    """
    low, high = constants.mean_square
    C = constants.eighth_moment
    return (
        Assumption.at_least("A2 (lower)", "E‖g‖²/‖h‖² ≥ ½", low, 0.5),
        Assumption.at_most("A2 (upper)", "E‖g‖²/‖h‖² ≤ 1", high, 1.0),
        Assumption("A2 (eighth)", "E‖g‖⁸/‖h‖⁸ ≤ C, finite", C, math.inf, math.isfinite(C)),
    )


def backward_assumptions(constants: BranchConstants) -> tuple[Assumption, ...]:
    """Return the two parts of A4.

    Args:
        constants: of the branch.

    Returns:
        The lower and the upper bound.
    """
    low, high = constants.backward_mean_square
    return (
        Assumption.at_least("A4 (lower)", "E‖∂g·q‖²/‖q‖² ≥ ½", low, 0.5),
        Assumption.at_most("A4 (upper)", "E‖∂g·q‖²/‖q‖² ≤ 1", high, 1.0),
    )


def lipschitz_assumption(constants: BranchConstants) -> Assumption:
    """Return A6.

    Args:
        constants: of the branch.

    Returns:
        The assumption.
    """
    K = constants.lipschitz
    return Assumption("A6", "σ Lipschitz", K, math.inf, math.isfinite(K))


@torch.no_grad()
def _measure(
    branch: str,
    activation: str | Callable[[Tensor], Tensor] | None,
    entries: EntryLaw,
    width: int,
    samples: int,
    seed: int,
) -> dict[str, tuple[float, float]]:
    sigma = resolve_activation(branch_activation(branch, activation))
    generator = substream(seed, "assumptions")

    def normal() -> Tensor:
        return torch.randn(width, generator=generator, dtype=torch.float64)

    one_hot, flat = torch.zeros(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)
    one_hot[0] = math.sqrt(width)
    directions = [normal(), flat, one_hot]
    ratios, backward = [], []
    q = normal()
    for h in directions:
        if branch == "res-1":
            x = (sigma.function(h) ** 2).sum() / (h**2).sum()
            y = ((sigma.derivative(h) * q) ** 2).sum() / (q**2).sum()
        else:
            W = entries.sample((samples, width, width), generator, dtype=torch.float64)
            W = W * width**-0.5
            z = W @ h
            x = (sigma.function(z) ** 2).sum(-1) / (h**2).sum()
            y = ((sigma.derivative(z) * (W @ q)) ** 2).sum(-1) / (q**2).sum()
        ratios.append((float(x.mean()), float((x**4).mean())))
        backward.append(float(y.mean()))
    squares, eighths = zip(*ratios, strict=True)
    span = (min(squares), max(squares))
    return {
        "A2 (lower)": span,
        "A2 (upper)": span,
        "A2 (eighth)": (min(eighths), max(eighths)),
        "A4 (lower)": (min(backward), max(backward)),
        "A4 (upper)": (min(backward), max(backward)),
    }
