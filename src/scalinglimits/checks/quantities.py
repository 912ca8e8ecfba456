r"""The quantities of a check, and the exponents that a sound scaling gives them.

Notation: width $m$, depth $\ell$, branches of size $\ell^{-\alpha}$. Each quantity is a root mean
square over entries, so "of order one" is exponent 0 at every size.

An axis that is not the depth, such as the number of heads or the width of MLPs, is one of width; a
parameter's role is how its shape grows along that axis.

Width, any rule under which features learn and nothing explodes (the spectral condition
$\lVert\Delta W\rVert_2 \sim \sqrt{p/n}$ for fan-in $n$ and fan-out $p$): signal and contributions
0, except a readout's share at initialisation, which is a sum of $m$ independent terms of size
$1/m$: $-½$. In general, with fan-in $n \sim m^a$ and fan-out $p \sim m^b$, the share is $\sqrt n$
entries of size $n^{-1/2}\min(1, \sqrt{p/n})$: $-½\max(0, a - b)$. Behind such a weight in the
middle of a model the signal is small until features have been learnt, so shares and contributions
there are judged relative to the signal that the weight acts on.

An update is a sum over the samples of a batch, and a sample sees the others' parts of it as noise:
of $n$ terms these leave $\sqrt n$, not $n$, and with the scaling that keeps $n$ terms at order one,
$n^{-1/2}$. Of this *scatter*, the share $\varphi$ of the squared contribution that $\Delta W$ would
have on an input of random signs, is measured; the contribution then falls by
$\partial\log\sqrt{1 + \varphi/(1 - \varphi)}/\partial\log n = -\varphi/2$ with all scaling right.

Depth: each block moves the stream by $\ell^{-1}$ when it learns, for every $\alpha$; at
initialisation its branch is $\ell^{-\alpha}$; the stream as a whole and all that lies outside the
blocks 0.

Scaling exponents are multiples of ½, so a measured exponent counts as right within ¼.
"""

from __future__ import annotations

__all__ = ["KINDS", "TOLERANCE", "Kind", "expected_exponent", "narrowing", "narrows", "use_role"]

import math
from collections.abc import Sequence
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
    "relative_share": Kind("its share over its input at initialisation", "start", True),
    "relative_contribution": Kind("its update's contribution over its input", "both", True),
    "block_share": Kind("its share of its block's output at initialisation", "start", True),
    "block_contribution": Kind("its update's contribution to its block's output", "both", True),
    "stream": Kind("the stream behind the stack", "both"),
    "stream_ratio": Kind("the stream behind the stack over the one before", "both"),
    "gradient_ratio": Kind("the gradient before the stack over the one behind", "both"),
    "scatter": Kind("the random part of its update's contribution", "both", True),
    "logits": Kind("the size of the attention logits", "start"),
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
    growing_head: float = 0.0,
    gain: bool = False,
    narrowing: float | None = None,
    behind: bool = False,
    faint: bool = False,
    scatter: float = 0.0,
) -> tuple[float, float] | None:
    """Return the range in which an exponent must lie, or None if the quantity is not judged.

    Args:
        kind: a name in `KINDS`.
        axis: "depth", or "width" for every other axis.
        role: of the parameter in its use: "input", "hidden", "readout", "vector" or "fixed".
        tied: whether the parameter is used elsewhere too.
        in_block: whether it belongs to a repeated block.
        residual: whether the block passes its input on.
        alpha: branch exponent; None if unknown.
        growing_head: for logits, the exponent of the size of a head, 1 if it grows as the width;
            for a parameter, the same if it makes the queries of such a head, and may have absorbed
            the factor of 1/d over 1/√d.
        gain: whether the parameter stands right ahead of a tied head, and may have absorbed the
            head's factor of 1/m.
        narrowing: by how much the exponent of the fan-in exceeds that of the fan-out, for logits
            that of the queries; 1 for a readout and 0 for other roles by default.
        behind: whether a weight that narrows comes before, and the quantity is not relative.
        faint: whether gradients may start small too, and with them the steps: around a bottleneck,
            as the weight that widens again passes back a sum of independent terms of size 1/m.
        scatter: the random part of the squared contribution, from 0 to 1.

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
        small = 0.0 - 0.5 * max(growing_head, float(behind))
        a_less_b = float(role == "readout") if narrowing is None else narrowing
        if kind in ("share", "relative_share"):
            if narrows(role, a_less_b):
                # It may start smaller, zero included. A tied head meets its own embedding again
                # in the stream: not independent, so larger.
                return (free, 0.0) if tied else (free, 0.0 - 0.5 * max(a_less_b, 0.0))
            if role in ("input", "hidden"):
                return small, 0.0
            return None
        if kind in ("contribution", "relative_contribution") and faint:
            return free, 0.0
        if kind in ("contribution", "relative_contribution"):
            random = 0.5 * scatter if role in ("hidden", "readout") else 0.0
            return (-1.0 if gain else small) - random, 0.0
        if kind == "logits":
            # q·k/d of independent vectors, which turns into order one as they learn.
            high = 0.0 - 0.5 * growing_head
            return (high if growing_head and a_less_b <= TOLERANCE else free), high
        if kind == "logits_change":
            return free, 0.0
        if kind == "stream":
            return small, 0.0
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


def use_role(shapes: list[tuple[int, ...]], in_axis: int | None, *, lookup: bool = False) -> str:
    """Return the role of a weight in a use, from its shapes at several sizes.

    Args:
        shapes: its shapes, by increasing size.
        in_axis: the axis that the use sums over; None if it sums over none.
        lookup: whether the use takes one entry of that axis instead of a sum, as an embedding.

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
    grows_in = last[in_axis] > first[in_axis] and not lookup
    grows_out = last[out_axis] > first[out_axis]
    roles: dict[Any, str] = {
        (True, True): "hidden",
        (False, True): "input",
        (True, False): "readout",
        (False, False): "fixed",
    }
    return roles[grows_in, grows_out]


def narrows(role: str, narrowing: float) -> bool:
    """Whether a weight makes its signal small at initialisation: its fan-in outgrows its fan-out.

    Args:
        role: of the weight in its use.
        narrowing: by how much the exponent of the fan-in exceeds that of the fan-out.

    Returns:
        Whether it does.
    """
    return role == "readout" or (role == "hidden" and narrowing > TOLERANCE)


def narrowing(sizes: Sequence[float], shapes: list[tuple[int, ...]], in_axis: int | None) -> float:
    """Return by how much faster the fan-in of a weight grows than its fan-out.

    Args:
        sizes: numbers of the axis, increasing.
        shapes: the weight's shapes at these.
        in_axis: the axis that the use sums over; None if it sums over none.

    Returns:
        Exponent of the fan-in less that of the fan-out.

    Example:
        >>> narrowing([32, 64], [(32, 32), (64, 128)], 1)  # an MLP that grows as width²
        1.0
    """
    if in_axis is None or len(shapes[0]) < 2:
        return 0.0
    out_axis = 0 if in_axis else 1
    first, last = shapes[0], shapes[-1]
    ratio = last[in_axis] / first[in_axis] / (last[out_axis] / first[out_axis])
    return math.log(ratio) / math.log(sizes[-1] / sizes[0])
