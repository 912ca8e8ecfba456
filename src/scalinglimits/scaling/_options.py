"""Options of a plan: checked, and turned into what the rules take."""

from __future__ import annotations

from collections.abc import Iterable

from scalinglimits.laws.depth import (
    DepthLaw,
    FractionalIncrements,
    Independent,
    SmoothIncrements,
    SmoothProcess,
)
from scalinglimits.scaling._builds import Builder
from scalinglimits.scaling.rules import DEPTH_RULES
from scalinglimits.scaling.sizes import Size

__all__ = ["branch_exponent", "check_axes", "check_choice", "check_reproducible", "law_name"]


def branch_exponent(depth_rule: object, across: DepthLaw | None) -> float | None:
    if across is not None and not isinstance(across, DepthLaw):
        raise TypeError(f"`weights_across_depth` must be a DepthLaw; got {across!r}")
    if isinstance(depth_rule, str):
        check_choice("depth_rule", depth_rule, DEPTH_RULES)
        alpha = DEPTH_RULES[depth_rule]
    elif isinstance(depth_rule, bool) or not isinstance(depth_rule, (int, float)):
        raise TypeError(f"`depth_rule` must be a name or a number; got {depth_rule!r}")
    else:
        alpha = float(depth_rule)
        if not 0.0 <= alpha <= 2.0:
            raise ValueError(f"`depth_rule` must lie in [0, 2]; got {alpha}")
    if across is None:
        return alpha
    if across.critical_beta is None:
        return alpha
    return across.critical_beta


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    options = list(known)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"`{name}` must be one of {', '.join(options)}; got {value!r}")


def check_axes(base: Size, target: Size) -> None:
    if base.positional != target.positional or set(base.values) != set(target.values):
        raise ValueError(f"`target` must have the axes of `base`: {base}; got {target}")


def check_reproducible(builder: Builder, size: Size) -> None:
    first, second = builder.meta(size), Builder(builder.function).meta(size)
    if first.shapes != second.shapes:
        raise ValueError(f"`build` must return the same structure each time; at {size} it does not")


def law_name(law: DepthLaw | None) -> str | None:
    """The name that `laws.names.depth_law` reads."""
    if law is None:
        return None
    if isinstance(law, FractionalIncrements):
        return f"fractional:{law.hurst!r}"
    if isinstance(law, SmoothProcess):
        return f"smooth:{law.length_scale!r}"
    if isinstance(law, SmoothIncrements):
        return f"smooth-increments:{law.length_scale!r}"
    if isinstance(law, Independent):
        kinds = {"Normal": "normal", "Uniform": "uniform", "Rademacher": "rademacher"}
        kinds["TruncatedNormal"] = "truncated-normal"
        return f"independent:{kinds[type(law.entries).__name__]}"
    raise ValueError(f"`weights_across_depth` must be a law of this package; got {law!r}")
