r"""Scaling rules: what a parameter's multipliers must be when its fans and the depth grow.

Notation. A linear map :math:`y = Wx` has fan-in :math:`n` and fan-out :math:`p`; between the
base model and the target they grow by :math:`r_{in}` and :math:`r_{out}`. A vector that is added
or multiplied entry by entry (bias, gain, embedding row) has :math:`r_{in} = 1`. The number of
blocks grows by :math:`\ell`; a branch is multiplied by :math:`\ell^{-\alpha}`.

Wanted at every size: entries of :math:`x`, :math:`y` and of the update's own contribution
:math:`\Delta W x` of order one, that is :math:`\|W\|_2, \|\Delta W\|_2 \sim \sqrt{p/n}`.

================  ====================================================  ====================
multiplier        width                                                 depth, inside a branch
================  ====================================================  ====================
deviation         :math:`r_{in}^{-1/2}\min(1, \sqrt{r_{out}/r_{in}})`   1
gradient's size   :math:`1/r_{out}`                                     :math:`\ell^{-\alpha}`
rate, sign        :math:`1/r_{in}`                                      :math:`\ell^{\alpha-1}`
rate, SGD         :math:`r_{out}/r_{in}`                                :math:`\ell^{2\alpha-1}`
rate, Muon        :math:`\sqrt{r_{out}/r_{in}}`                         :math:`\ell^{\alpha-1}`
================  ====================================================  ====================

Where the target is smaller than the base, all are the inverse of those of the way back: a maximum
takes the place of the minimum.

Absorption. :math:`y = c\,Wx` is the same network, through all of training, as :math:`y = W'x`
with :math:`W' = cW`: deviation times :math:`c`, gradient divided by :math:`c`, and rate times
:math:`c^2` (SGD), :math:`c` (sign and Muon) or 1 (a rate relative to the weight's norm).

Reference:
    Yang and Hu, "Tensor Programs IV" (width, ``mup``); Yang et al., "Tensor Programs V"
    (Adam); Yang, Simon and Bernstein, "A Spectral Condition for Feature Learning"
    (``spectral``); Jacot, Gabriel and Hongler, "Neural Tangent Kernel" (``ntk``); Yang et al.,
    "Tensor Programs VI" (depth, α = 1/2); Dey et al., "Don't be lazy: CompleteP" (α = 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = [
    "DEPTH_RULES",
    "OPTIMIZERS",
    "WIDTH_RULES",
    "Growth",
    "Optimizer",
    "WidthRule",
    "absorbed_rate",
    "block_gradient",
    "block_rate",
    "decay_multiplier",
    "muon_shape_factor",
]


@dataclass(frozen=True)
class Growth:
    """Growth of one parameter between base and target, and its fans at both sizes.

    Args:
        fan_in: The ratio of the fans-in, target over base; 1 for entry-by-entry parameters.
        fan_out: The ratio of the fans-out.
        base_fans: Fan-in and fan-out at the base size.
        target_fans: Fan-in and fan-out at the target size.
    """

    fan_in: float
    fan_out: float
    base_fans: tuple[float, float] = (1.0, 1.0)
    target_fans: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Optimizer:
    """What a rule must know of an optimizer.

    Args:
        family: How the update depends on the gradient: ``"sgd"`` (proportional), ``"sign"``
            (its entries have the size of the rate), ``"spectral"`` (its spectral norm has),
            ``"relative"`` (its norm is the rate times that of the weight).
        decoupled: Whether weight decay bypasses the gradient: W ← (1 − lr·wd) W − …
        eps: The default ε, None when the optimizer has none that scales with the gradient.
        decay: The optimizer's own default of the weight decay.
    """

    family: str
    decoupled: bool
    eps: float | None = None
    decay: float = 0.0


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer("sgd", decoupled=False),
    "adam": Optimizer("sign", decoupled=False, eps=1e-8),
    "adamw": Optimizer("sign", decoupled=True, eps=1e-8, decay=1e-2),
    "nadam": Optimizer("sign", decoupled=False, eps=1e-8),
    "adamax": Optimizer("sign", decoupled=False, eps=1e-8),
    "adagrad": Optimizer("sign", decoupled=False, eps=1e-10),
    "rmsprop": Optimizer("sign", decoupled=False, eps=1e-8),
    "lion": Optimizer("sign", decoupled=True),
    "signsgd": Optimizer("sign", decoupled=False),
    "muon": Optimizer("spectral", decoupled=True, decay=0.1),
    "muon-rms": Optimizer("spectral", decoupled=True, decay=0.1),
    "lars": Optimizer("relative", decoupled=False),
    "lamb": Optimizer("relative", decoupled=True),
}
"""Optimizers by name. RAdam is missing: its first steps are SGD's, its later ones Adam's, and no
rate is right for both. ``muon`` is ``torch.optim.Muon`` (rate times max(1, rows/columns)^½),
``muon-rms`` the variant with ``adjust_lr_fn="match_rms_adamw"``."""

DEPTH_RULES: Mapping[str, float | None] = {"completep": 1.0, "depth-mup": 0.5, "none": None}
"""The exponent α by which a named rule scales branches; None leaves depth alone."""


@dataclass(frozen=True)
class WidthRule:
    """Multipliers of one parameter as functions of its growth.

    Args:
        init: The deviation.
        rates: The learning rate, by family of optimizers.
        gradient: The size of the gradient's entries.
        readout: The forward multiplier of a tied readout, which keeps an embedding's deviation.
        attention: The exponent by which products of queries and keys must shrink as heads grow;
            None leaves the model's own (it mostly divides by the square root: one half).
        source: Where the rule comes from.
    """

    init: Callable[[Growth], float]
    rates: Mapping[str, Callable[[Growth], float]]
    gradient: Callable[[Growth], float]
    readout: Callable[[float], float]
    attention: float | None
    source: str


def _neutral(growth: Growth) -> float:
    """Nothing scales."""
    return 1.0


def _mup_init(growth: Growth) -> float:
    """Entries such that ‖W‖₂ ~ σ(√n + √p) ~ √(p/n): σ ~ n^{-1/2} min(1, √(p/n))."""
    # Towards a smaller model the way back: its inverse.
    shrinks = max(growth.fan_in, growth.fan_out) <= 1.0
    narrower = max if shrinks else min
    return growth.fan_in**-0.5 * narrower(1.0, math.sqrt(growth.fan_out / growth.fan_in))


def _spectral_init(growth: Growth) -> float:
    """σ = √(p/n)/(√n + √p) of the fans themselves, not of their exponents."""
    sizes = [math.sqrt(p / n) / (math.sqrt(n) + math.sqrt(p)) for n, p in _both(growth)]
    return sizes[1] / sizes[0]


def _both(growth: Growth) -> tuple[tuple[float, float], tuple[float, float]]:
    return growth.base_fans, growth.target_fans


def _lecun_init(growth: Growth) -> float:
    """σ ~ n^{-1/2}: entries of y of order one at initialisation."""
    return growth.fan_in**-0.5


def _feature_sgd(growth: Growth) -> float:
    """‖∇W‖ ~ √(n/p) as <∇W, ΔW> ~ 1; so lr ~ √(p/n)/√(n/p)."""
    return growth.fan_out / growth.fan_in


def _feature_sign(growth: Growth) -> float:
    """A rank-one matrix of entries ±lr has norm lr·√(np) ~ √(p/n): lr ~ 1/n."""
    return 1.0 / growth.fan_in


def _feature_spectral(growth: Growth) -> float:
    """‖ΔW‖₂ = lr ~ √(p/n)."""
    return math.sqrt(growth.fan_out / growth.fan_in)


def _feature_relative(growth: Growth) -> float:
    """‖ΔW‖ = lr·σ√(np) with few directions ~ √(p/n): lr ~ 1/(σn)."""
    return 1.0 / (growth.fan_in * _mup_init(growth))


def _feature_gradient(growth: Growth) -> float:
    """Entries δᵢxⱼ with δ ~ 1/p, as p changes of order one move the loss by order one."""
    return 1.0 / growth.fan_out


def _kernel_sgd(growth: Growth) -> float:
    """Δf = lr·‖δ‖²‖x‖² with ‖δ‖ ~ 1 and ‖x‖² ~ n."""
    return 1.0 / growth.fan_in


def _kernel_sign(growth: Growth) -> float:
    """Δf = lr·Σ|δᵢxⱼ| = lr·n√p, as entries of δ are p^{-1/2}."""
    return 1.0 / (growth.fan_in * math.sqrt(growth.fan_out))


def _kernel_gradient(growth: Growth) -> float:
    """Entries δᵢxⱼ with ‖δ‖ ~ 1 over p entries."""
    return growth.fan_out**-0.5


_FEATURE_RATES = {
    "sgd": _feature_sgd,
    "sign": _feature_sign,
    "spectral": _feature_spectral,
    "relative": _feature_relative,
}

WIDTH_RULES: Mapping[str, WidthRule] = {
    "mup": WidthRule(
        _mup_init,
        _FEATURE_RATES,
        _feature_gradient,
        readout=lambda r: 1.0 / r,
        attention=1.0,
        source="Tensor Programs IV and V",
    ),
    "spectral": WidthRule(
        _spectral_init,
        {
            **_FEATURE_RATES,
            "relative": lambda growth: 1.0 / (growth.fan_in * _spectral_init(growth)),
        },
        _feature_gradient,
        readout=lambda r: 1.0 / r,
        attention=1.0,
        source="A Spectral Condition for Feature Learning",
    ),
    "standard": WidthRule(
        _lecun_init,
        dict.fromkeys(_FEATURE_RATES, _neutral),
        _neutral,
        readout=lambda r: 1.0,
        attention=None,
        source="common practice: fan-in initialisation, one learning rate",
    ),
    "ntk": WidthRule(
        _lecun_init,
        {"sgd": _kernel_sgd, "sign": _kernel_sign},
        _kernel_gradient,
        readout=lambda r: r**-0.5,
        attention=None,
        source="Neural Tangent Kernel; each parameter moves the output by order one",
    ),
}
"""Rules for width, by name."""


def block_rate(family: str, ell: float, alpha: float) -> float:
    r"""Return the rate's multiplier inside a branch that is multiplied by :math:`\ell^{-\alpha}`.

    Updates of :math:`\ell` layers add up: each may move its branch by :math:`\ell^{\alpha-1}`.
    SGD's gradient carries one more :math:`\ell^{-\alpha}`, which the rate undoes.

    Args:
        family: The optimizer's family.
        ell: The ratio of the numbers of blocks.
        alpha: The branch exponent.

    Returns:
        :math:`\ell^{2\alpha-1}` for SGD, otherwise :math:`\ell^{\alpha-1}`.

    Example:
        >>> block_rate("sign", 16, 1.0), block_rate("sign", 16, 0.5), block_rate("sgd", 16, 1.0)
        (1.0, 0.25, 16.0)
    """
    return float(ell ** (2 * alpha - 1 if family == "sgd" else alpha - 1))


def block_gradient(ell: float, alpha: float) -> float:
    r"""Return the growth of gradients inside a branch: :math:`\ell^{-\alpha}`.

    Args:
        ell: The ratio of the numbers of blocks.
        alpha: The branch exponent.

    Returns:
        The multiplier.

    Example:
        >>> block_gradient(16, 0.5)
        0.25
    """
    return float(ell**-alpha)


def muon_shape_factor(optimizer: str, shape: tuple[int, ...]) -> float:
    """Return what Muon itself multiplies the rate by, from the matrix's shape.

    Args:
        optimizer: ``"muon"`` or ``"muon-rms"``.
        shape: Rows and columns.

    Returns:
        max(1, rows/columns)^½, or the root of the greater of both.

    Example:
        >>> muon_shape_factor("muon", (8, 2)), muon_shape_factor("muon-rms", (16, 4))
        (2.0, 4.0)
    """
    rows, columns = shape
    return math.sqrt(max(rows, columns) if optimizer == "muon-rms" else max(1.0, rows / columns))


def absorbed_rate(family: str, c: float) -> float:
    """Return the rate's multiplier of W' = cW, such that W' moves as cW does.

    Args:
        family: The optimizer's family.
        c: The absorbed multiplier.

    Returns:
        c² for SGD, c for sign and spectral updates, 1 for relative ones.

    Example:
        >>> [absorbed_rate(family, 0.5) for family in ("sgd", "sign", "relative")]
        [0.25, 0.5, 1.0]
    """
    return float(c ** {"sgd": 2, "sign": 1, "spectral": 1, "relative": 0}[family])


def decay_multiplier(optimizer: Optimizer, rule: str, lr: float, init: float, grad: float) -> float:
    """Return the multiplier of the weight decay.

    Args:
        optimizer: What the optimizer does.
        rule: ``"coupled"`` keeps lr·wd, the share of a weight that one step removes, and with it
            the number of steps over which weights are averaged; ``"independent"`` is for an
            optimizer that does not multiply its decay by the rate; ``"fixed"`` keeps wd.
        lr: The multiplier of the learning rate.
        init: The multiplier of the deviation.
        grad: The multiplier of the gradient's size.

    Returns:
        1/lr for SGD and decoupled optimizers. Where λW is added to the gradient before the update
        is normalised (Adam, not AdamW), λ must keep its size relative to the gradient: grad/init.

    Example:
        >>> decay_multiplier(OPTIMIZERS["adamw"], "coupled", 0.25, 0.5, 0.25)
        4.0
    """
    if rule != "coupled":
        return 1.0
    if optimizer.decoupled or optimizer.family == "sgd":
        return 1.0 / lr
    return grad / init
