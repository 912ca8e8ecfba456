r"""What a bound is about, and what it says: plain records.

Notation of R: width :math:`d`, depth :math:`L`, branch scale :math:`\alpha = L^{-\beta}`, failure
probability :math:`\delta`.
"""

from __future__ import annotations

__all__ = ["Bound", "Setting", "check_delta"]

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from scalinglimits.laws import EntryLaw, Independent, Normal
from scalinglimits.residual._checks import positive_integer
from scalinglimits.residual.assumptions import Assumption
from scalinglimits.residual.constants import BranchConstants, branch_constants
from scalinglimits.residual.model import ResidualNetwork, branch_scale_from_beta


@dataclass(frozen=True)
class Setting:
    r"""The networks that a bound speaks of.

    Args:
        width: :math:`d`.
        depth: :math:`L`.
        beta: :math:`\alpha = L^{-\beta}`; give this or ``branch_scale``.
        branch: "res-1", "res-2" or "res-3".
        activation: of the branch; None is its default.
        entries: law of the entries of :math:`\sqrt d\,V` and :math:`\sqrt d\,W`.
        branch_scale: :math:`\alpha` itself.
        independent: whether the layers' weights are independent, as all bounds but the
            deterministic ones ask.
        out_features: outputs of the network; the gradient bounds ask for one.

    Raises:
        ValueError: if a size is not a positive integer, the branch or the activation is unknown,
            or not exactly one of ``beta`` and ``branch_scale`` is given.
        TypeError: if ``entries`` is not an entry law.

    Example:
        >>> setting = Setting(width=100, depth=1000, beta=0.5)
        >>> round(setting.horizon, 6), round(setting.constants.eighth_moment, 4)
        (1.0, 0.0829)
    """

    width: int
    depth: int
    beta: float | None = None
    branch: str = "res-3"
    activation: str | Callable[[Tensor], Tensor] | None = None
    entries: EntryLaw = field(default_factory=Normal)
    branch_scale: float | None = None
    independent: bool = True
    out_features: int = 1
    constants: BranchConstants = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        depth = positive_integer("depth", self.depth)
        if (self.beta is None) == (self.branch_scale is None):
            raise ValueError(
                "`beta` or `branch_scale` must be given, and not both; got "
                f"{self.beta!r} and {self.branch_scale!r}"
            )
        if self.branch_scale is None:
            scale = branch_scale_from_beta(float(self.beta), depth)  # type: ignore[arg-type]
        elif math.isfinite(self.branch_scale) and self.branch_scale > 0:
            scale = float(self.branch_scale)
        else:
            raise ValueError(
                f"`branch_scale` must be a positive finite number; got {self.branch_scale!r}"
            )
        object.__setattr__(self, "branch_scale", scale)
        positive_integer("out_features", self.out_features)
        constants = branch_constants(self.branch, self.activation, self.entries, width=self.width)
        object.__setattr__(self, "constants", constants)

    @classmethod
    def of(cls, network: ResidualNetwork) -> Setting:
        """Return the setting that a network was drawn from.

        Args:
            network: a residual network.

        Returns:
            Its setting. Weights that depend on each other across depth are marked as such.

        Raises:
            TypeError: if ``network`` is not a :class:`ResidualNetwork`.

        Example:
            >>> import torch
            >>> network = ResidualNetwork(8, width=16, depth=10, out_features=1, beta=0.5,
            ...                           generator=torch.Generator().manual_seed(0))
            >>> Setting.of(network).horizon
            1.0
        """
        if not isinstance(network, ResidualNetwork):
            raise TypeError(f"`network` must be a ResidualNetwork; got {type(network).__name__}")
        law = network.weights
        return cls(
            width=network.width,
            depth=network.depth,
            branch=network.branch,
            activation=network.activation,
            entries=law.entries if isinstance(law, Independent) else Normal(),
            branch_scale=network.branch_scale,
            independent=isinstance(law, Independent),
            out_features=network.out_features,
        )

    @property
    def alpha(self) -> float:
        r"""The branch scale :math:`\alpha`."""
        return float(self.branch_scale)  # type: ignore[arg-type]

    @property
    def horizon(self) -> float:
        r""":math:`T = L\alpha^2`, on which everything turns."""
        return self.depth * self.alpha**2


@dataclass(frozen=True)
class Bound:
    r"""A theorem applied to numbers.

    Attributes:
        theorem: its name.
        quantity: what is bounded, such as "‖h_L‖²/‖h_0‖²".
        lower: lower end; 0 where the theorem gives none.
        upper: upper end; inf where the theorem gives none.
        delta: probability that the quantity lies outside; 0 for a deterministic bound, None for
            a bound on an expectation.
        assumptions: the theorem's conditions, with their numbers.
        consequence: what follows, in words.
    """

    theorem: str
    quantity: str
    lower: float
    upper: float
    delta: float | None
    assumptions: tuple[Assumption, ...]
    consequence: str

    @property
    def guaranteed(self) -> bool:
        """Whether all assumptions hold. If not, the numbers promise nothing."""
        return all(assumption.holds for assumption in self.assumptions)

    @property
    def failed(self) -> tuple[Assumption, ...]:
        """The assumptions that fail."""
        return tuple(assumption for assumption in self.assumptions if not assumption.holds)

    @property
    def norm_lower(self) -> float:
        """The lower end for the norm itself, where ``quantity`` is a square."""
        return math.sqrt(self.lower)

    @property
    def norm_upper(self) -> float:
        """The upper end for the norm itself, where ``quantity`` is a square."""
        return math.sqrt(self.upper)

    def require(self) -> Bound:
        """Return the bound, or refuse it if an assumption fails.

        Returns:
            The bound itself.

        Raises:
            ValueError: if an assumption fails; the message names each one.

        Example:
            >>> from scalinglimits.residual.bounds import Setting, hidden_change_bound
            >>> bound = hidden_change_bound(Setting(40, 100, 0.25), delta=0.1)
            >>> try:
            ...     bound.require()
            ... except ValueError as error:
            ...     print(str(error).split("; ")[1])
            got horizon: Lα² ≤ 1 FAILS (10 against 1)
        """
        if not self.guaranteed:
            faults = "; ".join(str(a) for a in self.failed)
            raise ValueError(
                f"`setting` must satisfy the assumptions of {self.theorem}; got {faults}"
            )
        return self

    def __str__(self) -> str:
        if self.delta is None:
            sure = "in expectation"
        elif self.delta == 0:
            sure = "for certain"
        else:
            sure = f"with probability at least {1 - self.delta:g}"
        text = f"{self.theorem}: {self.lower:.4g} ≤ {self.quantity} ≤ {self.upper:.4g}, {sure}. "
        if not self.guaranteed:
            return f"{text}NOT GUARANTEED: {'; '.join(map(str, self.failed))}."
        return text + self.consequence


def check_delta(delta: float) -> float:
    r"""Return :math:`\delta` as a float strictly between 0 and 1.

    Args:
        delta: a probability of failure.

    Returns:
        The number.

    Raises:
        ValueError: if it is not strictly between 0 and 1.
    """
    try:
        number = float(delta)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 < number < 1.0:
        raise ValueError(f"`delta` must be strictly between 0 and 1; got {delta!r}")
    return number
