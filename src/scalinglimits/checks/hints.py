"""What a wrong exponent suggests."""

from __future__ import annotations

__all__ = ["hint"]


def hint(
    kind: str,
    axis: str,
    role: str,
    excess: float,
    *,
    frozen: bool,
    tied: bool,
    heads_grow: bool = True,
    name: str = "",
) -> str:
    """Return a suspected cause in words.

    Args:
        kind: of the quantity.
        axis: "depth", or "width" for every other axis.
        role: of the parameter.
        excess: measured exponent less the expected one.
        frozen: whether the gradient has fallen below the optimizer's ε.
        tied: whether the parameter is used elsewhere too.
        heads_grow: whether the size of a head grows.
        name: of the axis, if that is another.

    Returns:
        A question, or "" if there is no common cause.

    Example:
        >>> hint("contribution", "width", "readout", -0.94, frozen=False, tied=False)
        'learning rate scaled twice?'
    """
    grows, name, kind = excess > 0, name or axis, kind.removeprefix("relative_")
    if kind in ("contribution", "block_contribution", "spectral_change") and frozen and not grows:
        return "the gradient is smaller than the optimizer's ε: is ε not scaled?"
    if kind in ("logits", "logits_change") and axis == "width" and grows:
        if heads_grow:
            return "attention scaled by 1/√d while heads grow? It must be 1/d"
        return f"learning rate of queries or keys not scaled with {name}?"
    if axis == "width":
        return _width(kind, role, grows, tied, name)
    if kind in ("block_share", "stream_ratio", "stream"):
        if grows:
            return "branch scale forgotten?"
        return "branch scale applied twice, for instance on top of a 1/√(2L) initialisation?"
    if kind == "block_contribution":
        if grows:
            return f"learning rate or branch scale not scaled with {name}?"
        return f"learning rate or branch scale scaled with {name} twice?"
    if kind == "gradient_ratio" and grows:
        return "the gradient explodes on its way back: branch scale forgotten?"
    return ""


def _width(kind: str, role: str, grows: bool, tied: bool, name: str) -> str:
    if kind == "contribution":
        if tied and role == "readout":
            return "tied head scaled twice?" if not grows else "tied head not scaled?"
        if grows:
            return f"learning rate not scaled with {name}?"
        if role in ("readout", "hidden"):
            return "learning rate scaled twice?"
        return "learning rate scaled as that of a hidden matrix?"
    if kind == "share":
        if tied and role == "readout":
            return "tied head scaled twice?" if not grows else "tied head not scaled?"
        if grows and role == "readout" and name != "width":
            return f"standard initialisation, though only the fan-in grows with {name}?"
        if grows:
            return "standard initialisation of a readout?" if role == "readout" else "fans swapped?"
        if role == "input":
            return "fans swapped, or scaled as a hidden matrix?"
        return "initialisation scaled twice?"
    return ""
