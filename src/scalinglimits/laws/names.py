"""Laws across depth by name, for the command line and for stored configurations."""

from __future__ import annotations

__all__ = ["DEPTH_LAW_NAMES", "depth_law"]

from scalinglimits.laws.depth import (
    DepthLaw,
    FractionalIncrements,
    Independent,
    SmoothIncrements,
    SmoothProcess,
)
from scalinglimits.laws.entries import EntryLaw, Normal, Rademacher, TruncatedNormal, Uniform

_ENTRIES: dict[str, type[EntryLaw]] = {
    "normal": Normal,
    "uniform": Uniform,
    "rademacher": Rademacher,
    "truncated-normal": TruncatedNormal,
}
_CORRELATED: dict[str, type[DepthLaw]] = {
    "fractional": FractionalIncrements,
    "smooth": SmoothProcess,
    "smooth-increments": SmoothIncrements,
}
DEPTH_LAW_NAMES = (
    "independent[:ENTRIES], fractional:HURST, smooth[:LENGTH], smooth-increments[:LENGTH]"
)
"""The forms that :func:`depth_law` reads, for messages."""


def depth_law(name: str) -> DepthLaw:
    """Return the law across depth that a name such as "fractional:0.7" stands for.

    Args:
        name: "independent" with entries "normal", "uniform", "rademacher" or
            "truncated-normal" after a colon, "fractional" with the Hurst index, "smooth" or
            "smooth-increments" with the length scale (0.1 if left out).

    Returns:
        The law.

    Raises:
        ValueError: if the name is unknown or its parameter does not fit.

    Example:
        >>> depth_law("fractional:0.7")
        FractionalIncrements(hurst=0.7)
    """
    kind, _, parameter = name.partition(":")
    if kind == "independent" and (parameter or "normal") in _ENTRIES:
        return Independent(_ENTRIES[parameter or "normal"]())
    if kind in _CORRELATED:
        if not parameter and kind == "fractional":
            raise ValueError(
                f"`weights` must give a Hurst index, as in fractional:0.7; got {name!r}"
            )
        try:
            number = float(parameter or 0.1)
        except ValueError:
            raise ValueError(f"`weights` must be one of {DEPTH_LAW_NAMES}; got {name!r}") from None
        return _CORRELATED[kind](number)  # type: ignore[call-arg]
    raise ValueError(f"`weights` must be one of {DEPTH_LAW_NAMES}; got {name!r}")
