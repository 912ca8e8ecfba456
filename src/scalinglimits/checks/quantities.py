r"""The quantities of a check, and the exponents that a sound scaling gives them.

Notation: width $m$, depth $\ell$, branches of size $\ell^{-\alpha}$. Each quantity is a root mean
square over entries, so "of order one" is exponent 0 at every size.

Width, any rule under which features learn and nothing explodes (DESIGN: $\lVert\Delta W\rVert_2
\sim \sqrt{p/n}$ for fan-in $n$ and fan-out $p$): signal and contributions 0, except a readout's
share at initialisation, which is a sum of $m$ independent terms of size $1/m$: $-½$.

Depth: each block moves the stream by $\ell^{-1}$ when it learns, for every $\alpha$; at
initialisation its branch is $\ell^{-\alpha}$; the stream as a whole and all that lies outside the
blocks 0.

Scaling exponents are multiples of ½, so a measured exponent counts as right within ¼.
"""

from __future__ import annotations

__all__ = ["KINDS", "TOLERANCE", "Kind", "expected_exponent", "use_role"]

from dataclasses import dataclass
from typing import Any

TOLERANCE = 0.25
"""Half the distance between neighbouring exponents."""


@dataclass(frozen=True)
class Kind:
    """A quantity.

    Attributes:
        words: how a finding calls it, after the name of its parameter or module.
        at: when it is fitted: "start", at its first step (initialisation for what exists then, the
            first update for changes); "end", after the last step; "both".
        parameter: whether its name is a parameter's.
    """

    words: str
    at: str
    parameter: bool = False


KINDS: dict[str, Kind] = {
    "share": Kind("its share of the signal at initialisation", "start", parameter=True),
    "contribution": Kind("its update's contribution", "both", parameter=True),
    "block_share": Kind("its share of its block's output at initialisation", "start", True),
    "block_contribution": Kind("its update's contribution to its block's output", "both", True),
    "stream": Kind("the stream behind the stack", "both"),
    "stream_ratio": Kind("the stream behind the stack over the one before", "both"),
    "gradient_ratio": Kind("the gradient before the stack over the one behind", "both"),
    "logits": Kind("the attention logits", "start"),
    "logits_change": Kind("the change of the attention logits", "end"),
    "activation": Kind("its output", "both"),
    "activation_change": Kind("the change of its output", "end"),
    "gradient": Kind("its gradient", "both", parameter=True),
    "spectral": Kind("its spectral norm over √(fan_out/fan_in)", "start", parameter=True),
    "spectral_change": Kind("its update's spectral norm over √(fan_out/fan_in)", "end", True),
    "loss": Kind("the loss", "both"),
}
"""All quantities by name."""


def expected_exponent(
    kind: str,
    axis: str,
    *,
    role: str = "",
    tied: bool = False,
    in_block: bool = False,
    residual: bool = True,
    alpha: float | None = None,
    growing_head: bool = False,
    gain: bool = False,
) -> tuple[float, float] | None:
    """Return the range in which an exponent must lie, or None if the quantity is not judged.

    Args:
        kind: a name in `KINDS`.
        axis: "width" or "depth".
        role: of the parameter in its use: "input", "hidden", "readout", "vector" or "fixed".
        tied: whether the parameter is used elsewhere too.
        in_block: whether it belongs to a repeated block.
        residual: whether the block passes its input on.
        alpha: branch exponent; None if unknown.
        growing_head: for logits, whether the size of a head grows; for a parameter, whether it
            makes the queries of such a head, and may have absorbed the factor of 1/d over 1/√d.
        gain: whether the parameter stands right ahead of a tied head, and may have absorbed the
            head's factor of 1/m.

    Returns:
        Lowest and highest right exponent.

    Example:
        >>> expected_exponent("contribution", "width", role="readout")
        (0.0, 0.0)
        >>> expected_exponent("block_share", "depth", in_block=True, alpha=0.5)
        (-0.5, -0.5)
    """
    free = float("-inf")
    if axis == "width":
        if kind == "share":
            if role == "readout":
                # It may start smaller, zero included. A tied head meets its own embedding again
                # in the stream: not independent, so larger.
                return (free, 0.0) if tied else (free, -0.5)
            if role in ("input", "hidden"):
                return (-0.5, 0.0) if growing_head else (0.0, 0.0)
            return None
        if kind == "contribution":
            return (-1.0 if gain else -0.5 if growing_head else 0.0), 0.0
        if kind == "logits":
            # q·k/d of independent vectors, which turns into order one as they learn.
            return (-0.5, -0.5) if growing_head else (free, 0.0)
        if kind == "logits_change":
            return free, 0.0
        if kind == "stream":
            return 0.0, 0.0
        return None
    if kind in ("stream_ratio", "gradient_ratio", "stream"):
        # Neither may grow; a stack may well damp.
        return (-0.5, 0.0) if residual else (-0.25, 0.25)
    if kind == "block_share":
        if not residual:
            return None
        return (-1.0, -0.5) if alpha is None else (-alpha, -alpha)
    if kind == "block_contribution":
        return (-1.0, -1.0) if residual else None
    if kind in ("share", "contribution") and not in_block:
        return (0.0, 0.0) if kind == "contribution" else None
    return None


def use_role(shapes: list[tuple[int, ...]], in_axis: int | None) -> str:
    """Return the role of a weight in a use, from its shapes at several widths.

    Args:
        shapes: its shapes, by increasing width.
        in_axis: the axis that the use sums over; None if it sums over none.

    Returns:
        "vector" without such an axis, else "hidden", "input", "readout" or "fixed", according to
        whether the axes in and out grow.

    Example:
        >>> use_role([(32, 64), (64, 64)], 1), use_role([(10, 32), (10, 64)], 1)
        ('input', 'readout')
    """
    if in_axis is None or len(shapes[0]) < 2:
        return "vector"
    out_axis = 0 if in_axis else 1
    first, last = shapes[0], shapes[-1]
    grows_in, grows_out = last[in_axis] > first[in_axis], last[out_axis] > first[out_axis]
    roles: dict[Any, str] = {
        (True, True): "hidden",
        (False, True): "input",
        (True, False): "readout",
        (False, False): "fixed",
    }
    return roles[grows_in, grows_out]
