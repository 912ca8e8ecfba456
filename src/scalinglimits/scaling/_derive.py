"""One entry of a plan, derived step by step from a parameter's growth and place."""

from __future__ import annotations

from dataclasses import dataclass

from scalinglimits.scaling.entry import InitLaw, PlanEntry
from scalinglimits.scaling.rules import (
    OPTIMIZERS,
    WIDTH_RULES,
    Growth,
    absorbed_rate,
    block_gradient,
    block_rate,
    decay_multiplier,
    muon_shape_factor,
)

__all__ = ["Facts", "Rules", "derive"]

# Queries alone take the multiplier; or queries and keys, a root each, which values must undo.
_POWERS = {
    1.0: "attention multiplier",
    0.5: "root of the attention multiplier, shared by queries and keys",
    -0.5: "inverse root of the attention multiplier, which undoes it for the values",
}


@dataclass(frozen=True)
class Rules:
    """The rules of a plan."""

    optimizer: str
    width: str
    alpha: float | None
    decay: str
    eps: str
    absorb: bool


@dataclass(frozen=True)
class Facts:
    """What is known of one parameter."""

    name: str
    shape: tuple[int, ...]
    base_shape: tuple[int, ...]
    role: str
    growth: Growth
    law: InitLaw | None
    natural: InitLaw | None
    part: str = ""
    stack: str = ""
    block: int = 0
    blocks: int = 0
    blocks_axis: int | None = None
    ell: float = 1.0
    branch_output: bool = False
    logits: float = 1.0
    power: float = 0.0
    tied_gain: float = 1.0
    aliases: tuple[str, ...] = ()


def derive(facts: Facts, rules: Rules) -> PlanEntry:
    """Return the entry, with its derivation."""
    optimizer = _optimizer_of(facts, rules)
    known, rule, g = OPTIMIZERS[optimizer], WIDTH_RULES[rules.width], facts.growth
    if known.family not in rule.rates:
        raise ValueError(
            f"`width_rule` must have a rate for {optimizer!r}; {rules.width!r} has none"
        )
    init, lr, grad = rule.init(g), rule.rates[known.family](g), rule.gradient(g)
    steps = [
        f"{facts.role}: fan-in ×{g.fan_in:.6g}, fan-out ×{g.fan_out:.6g} from base to target",
        f"width rule {rules.width} ({rule.source}): init ×{init:.6g}, {optimizer} lr ×{lr:.6g}, "
        f"gradient ×{grad:.6g}",
    ]
    reasons = [f"{facts.role}, width {rules.width}"]
    if facts.role == "tied":
        init, forward_tied = 1.0, rule.readout(g.fan_out)
        steps.append(
            f"also the readout: as an embedding it keeps its deviation, so logits need "
            f"×{forward_tied:.6g}"
        )
    if facts.part:
        init, lr, why = _weight_norm(facts, known.family, init, lr, grad)
        steps.append(why)
    if optimizer.startswith("muon") and rules.width != "standard":
        factor = muon_shape_factor(optimizer, facts.shape) / muon_shape_factor(
            optimizer, facts.base_shape
        )
        lr /= factor
        steps.append(f"Muon multiplies the rate by its own ×{factor:.6g}: lr ×{lr:.6g}")
    share = 1.0
    if rules.alpha is not None and facts.stack and facts.ell != 1.0:
        alpha, ell = rules.alpha, facts.ell
        share = ell ** (alpha - 1)
        lr *= block_rate(known.family, ell, alpha)
        grad *= block_gradient(ell, alpha)
        steps.append(
            f"one of ×{ell:.6g} as many blocks, branches ×ℓ^-{alpha:g}: "
            f"lr ×{block_rate(known.family, ell, alpha):.6g}, gradient ×{ell**-alpha:.6g}"
        )
        reasons.append(f"block, depth α={alpha:g}")
    forward = 1.0
    for c, what in _absorbed(facts, rules):
        if c == 1.0:
            continue
        if rules.absorb:
            init, lr, grad = init * c, lr * absorbed_rate(known.family, c), grad / c
            steps.append(
                f"{what} ×{c:.6g} is moved into this parameter: init ×{c:.6g}, "
                f"lr ×{absorbed_rate(known.family, c):.6g}, gradient ÷{c:.6g}"
            )
            reasons.append(f"{what} absorbed")
        else:
            forward *= c
            steps.append(f"{what}: the model must multiply by {c:.6g}")
            reasons.append(f"{what} explicit")
    if not rules.absorb:
        init, lr, grad, forward = _explicit_readout(
            facts, rules, known.family, init, lr, grad, forward, steps
        )
    decay = decay_multiplier(known, rules.decay, lr, init, grad)
    eps = grad if known.eps is not None and rules.eps == "gradient" else 1.0
    steps.append(f"weight decay, {rules.decay}: ×{decay:.6g}, so that lr·wd is ×{lr * decay:.6g}")
    if known.eps is not None:
        steps.append(f"ε, {rules.eps}: ×{eps:.6g}")
    return PlanEntry(
        name=facts.name,
        shape=facts.shape,
        role=facts.role,
        init=init,
        lr=lr,
        weight_decay=decay,
        eps=eps,
        forward=forward,
        reason="; ".join(reasons),
        steps=tuple(steps),
        optimizer=optimizer,
        law=facts.law,
        natural=facts.natural,
        stack=facts.stack,
        block=facts.block,
        blocks=facts.blocks,
        branch_output=facts.branch_output,
        blocks_axis=facts.blocks_axis,
        aliases=facts.aliases,
        fan_in=g.fan_in,
        grad=grad,
        share=share,
    )


def _optimizer_of(facts: Facts, rules: Rules) -> str:
    """Muon is for hidden matrices; AdamW takes the rest."""
    if rules.optimizer.startswith("muon") and (facts.role != "hidden" or len(facts.shape) != 2):
        return "adamw"
    return rules.optimizer


def _absorbed(facts: Facts, rules: Rules) -> list[tuple[float, str]]:
    """Forward multipliers that belong ahead of, or behind, this parameter."""
    scales = [(facts.logits**facts.power, _POWERS.get(facts.power, ""))]
    scales.append((facts.tied_gain, "tied readout's multiplier"))
    if facts.branch_output and rules.alpha is not None:
        scales.append((facts.ell**-rules.alpha, "branch scale"))
    if facts.role == "tied" and not rules.absorb:
        readout = WIDTH_RULES[rules.width].readout(facts.growth.fan_out)
        scales.append((readout, "tied readout's multiplier"))
    return scales


def _explicit_readout(
    facts: Facts,
    rules: Rules,
    family: str,
    init: float,
    lr: float,
    grad: float,
    forward: float,
    steps: list[str],
) -> tuple[float, float, float, float]:
    """A readout that keeps its deviation, behind a multiplier that the model applies."""
    c = WIDTH_RULES[rules.width].readout(facts.growth.fan_in)
    if facts.role != "readout" or c == 1.0:
        return init, lr, grad, forward
    steps.append(f"readout's multiplier: the model must multiply by {c:.6g}")
    return init / c, lr / absorbed_rate(family, c), grad * c, forward * c


def _weight_norm(
    facts: Facts, family: str, init: float, lr: float, grad: float
) -> tuple[float, float, str]:
    """W = g·v/‖v‖: v moves as W does; g, of size σ√n, by a constant share of itself."""
    if facts.part == "v":
        return init, lr, "direction v of a normalised weight: as the weight itself"
    gain = init * facts.growth.fan_in**0.5
    lr = gain / grad if family == "sgd" else 1.0 if family == "relative" else gain
    return gain, lr, f"gain g of a normalised weight, of size σ√n: init and share ×{gain:.6g}"
