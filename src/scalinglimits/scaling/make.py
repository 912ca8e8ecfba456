"""Making a scaling plan from nothing but a function that builds the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scalinglimits.laws.depth import DepthLaw
from scalinglimits.scaling._analysis import Analysis
from scalinglimits.scaling._builds import Builder
from scalinglimits.scaling._derive import Rules
from scalinglimits.scaling._maker import Maker
from scalinglimits.scaling._options import (
    branch_exponent,
    check_axes,
    check_choice,
    check_reproducible,
)
from scalinglimits.scaling._probes import moving_axes
from scalinglimits.scaling.plan import ScalingPlan
from scalinglimits.scaling.rules import OPTIMIZERS, WIDTH_RULES
from scalinglimits.scaling.sizes import parse_size

__all__ = ["make_plan"]

_ATTENTION = ("absorb", "explicit", "ignore")
_DECAYS = ("coupled", "independent", "fixed")
_EPS = ("gradient", "fixed")


def make_plan(
    build: Callable[..., Any],
    base: Any,
    target: Any,
    *,
    optimizer: str = "adamw",
    width_rule: str = "mup",
    depth_rule: str | float = "completep",
    weights_across_depth: DepthLaw | None = None,
    example: Any = None,
    run: Callable[[Any], Any] | None = None,
    branch_outputs: Iterable[str] | None = None,
    fans: Mapping[str, Any] | None = None,
    attention: str = "absorb",
    weight_decay_rule: str = "coupled",
    eps_rule: str = "gradient",
    absorb: bool = True,
    depth_axis: str | None = None,
) -> ScalingPlan:
    """Return the plan by which a model tuned at the base size is trained at the target size.

    The target is built on the meta device; only a small model is built with memory and run, to
    see which parameters end its branches.

    Args:
        build: ``build(width, depth)`` returns a module; or keyword axes when sizes are mappings.
        base: The size at which the user tunes: (width, depth), or a mapping of axes to numbers.
        target: The size at which the user trains.
        optimizer: A name of :data:`~scalinglimits.scaling.rules.OPTIMIZERS`.
        width_rule: A name of :data:`~scalinglimits.scaling.rules.WIDTH_RULES`.
        depth_rule: A name of :data:`~scalinglimits.scaling.rules.DEPTH_RULES`, or the exponent α.
        weights_across_depth: A law by which the weights of a stack depend on each other. Its
            critical exponent, ``max(H, 1/2)`` for `FractionalIncrements`, takes the place of the
            depth rule's α.
        example: Inputs of the model, whatever its size: a tensor, a tuple of arguments, a mapping
            of keyword arguments, or a function that takes the model and runs it. None to guess.
        run: A function that takes the model and runs it, for when no inputs can be guessed.
        branch_outputs: Patterns of the parameters that end residual branches; None to find them.
        fans: By pattern, (in_axes, out_axes) of a parameter, or ``"vector"``, where its module
            does not say.
        attention: Where heads grow: ``"absorb"`` the multiplier into the queries (its root into
            queries and keys of one tensor, undone behind values of that tensor), leave it
            ``"explicit"`` for the model to apply, or ``"ignore"`` it.
        weight_decay_rule: ``"coupled"``, ``"independent"`` or ``"fixed"``; see
            :func:`~scalinglimits.scaling.rules.decay_multiplier`.
        eps_rule: ``"gradient"`` scales ε as the gradient, ``"fixed"`` leaves it.
        absorb: Whether forward multipliers are moved into parameters; if not, they are for the
            model to apply.
        depth_axis: Which axis of a mapping is the depth.

    Returns:
        The plan.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If a choice is unknown, `build` fails or does not use its sizes, a role is
            unknown, or a rule matches nothing.

    Example:
        >>> from torch import nn
        >>> def build(width, depth):
        ...     hidden = [m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())]
        ...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), *hidden, nn.Linear(width, 2))
        >>> plan = make_plan(build, (256, 2), (1024, 2))
        >>> entry = plan["2.weight"]
        >>> entry.role, entry.init, entry.lr, entry.weight_decay
        ('hidden', 0.5, 0.25, 4.0)
    """
    check_choice("optimizer", optimizer, OPTIMIZERS)
    check_choice("width_rule", width_rule, WIDTH_RULES)
    check_choice("attention", attention, _ATTENTION)
    check_choice("weight_decay_rule", weight_decay_rule, _DECAYS)
    check_choice("eps_rule", eps_rule, _EPS)
    known = OPTIMIZERS[optimizer]
    if weight_decay_rule == "independent" and not known.decoupled:
        raise ValueError(
            f"`weight_decay_rule` must be 'coupled' or 'fixed' for {optimizer!r}, whose decay "
            "enters the gradient; got 'independent'"
        )
    if known.family not in WIDTH_RULES[width_rule].rates:
        raise ValueError(f"`width_rule` must know {optimizer!r}; {width_rule!r} does not")
    alpha = branch_exponent(depth_rule, weights_across_depth)
    start, end = parse_size("base", base, depth_axis), parse_size("target", target, depth_axis)
    check_axes(start, end)
    builder = Builder(build)
    check_reproducible(builder, start)
    maker = Maker(
        Analysis(builder, start, moving_axes(start, end), example, run),
        Rules(optimizer, width_rule, alpha, weight_decay_rule, eps_rule, absorb),
        weights_across_depth,
        None if branch_outputs is None else tuple(branch_outputs),
        dict(fans or {}),
        attention,
        depth_rule,
        depth_axis,
    )
    return maker.plan(end)
