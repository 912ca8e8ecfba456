r"""What each parameter of a repeated block contributes to the block's output.

In a residual stream $h_{l+1} = h_l + \ell^{-\alpha} g(h_l, W_l)$ each of the $\ell$ blocks must
change the stream by $1/\ell$ when it learns, whatever $\alpha$ and whatever place a parameter has
in $g$; so contributions are taken at the block's output, not at the parameter's own operation.
"""

from __future__ import annotations

__all__ = ["block_contributions", "is_residual", "stream_tensors"]

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from scalinglimits.checks.tensors import HALF, autocasts, find_tensors, full_precision, move, rms

_SMALL = 1e-5  # of the output: nearer to the rounding of float32 than a measurement may be


def stream_tensors(args: Any, kwargs: Any, output: Any) -> tuple[Tensor, Tensor] | None:
    """Return the stream before and after a block, or None if their shapes differ.

    Args:
        args: the block's positional arguments.
        kwargs: its keyword arguments.
        output: what it returned.

    Returns:
        The first floating-point tensors of arguments and output.
    """
    before = next(find_tensors([args, kwargs]), None)
    after = next(find_tensors(output), None)
    if before is None or after is None or before.shape != after.shape:
        return None
    return before, after


def block_contributions(
    block: nn.Module,
    args: Any,
    kwargs: Any,
    references: Mapping[str, Tensor | None],
    rng: Tensor | None = None,
) -> dict[str, Tensor]:
    """Measure by how much the block's output changes when one parameter takes its reference.

    Args:
        block: the module.
        args: its positional arguments.
        kwargs: its keyword arguments.
        references: name in the block to the value to compare with; None compares with zero.
        rng: state of the CPU generator at which the block ran, for dropout.

    Returns:
        Name to the root mean square of the change.
    """
    full = _run(block, args, kwargs, {}, rng)
    limit, contributions = _SMALL * rms(full), {}
    small: dict[str, Tensor] = {}
    for name, reference in references.items():
        value = block.get_parameter(name).detach()
        reference = torch.zeros_like(value) if reference is None else reference
        contributions[name] = rms(full - _run(block, args, kwargs, {name: reference}, rng))
        if contributions[name] < limit and not torch.equal(value, reference):
            small[name] = reference
    if small:
        with suppress(RuntimeError, TypeError):  # not every device or module has float64
            contributions |= _doubled(block, args, kwargs, small, rng)
    return contributions


def is_residual(block: nn.Module, args: Any, kwargs: Any) -> bool:
    """Whether the block passes its input on when its parameters, or its matrices alone, are zero.

    Without gains a stream that is normalised itself would stop; with biases a small one drowns.

    Args:
        block: the module.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Returns:
        True if output and input then point the same way.
    """
    before = next(find_tensors([args, kwargs])).detach().float().flatten()
    for axes in (0, 2):
        zeros = {n: torch.zeros_like(p) for n, p in block.named_parameters() if p.ndim >= axes}
        after = _run(block, args, kwargs, zeros, None).float().flatten()
        if after.shape != before.shape:
            return False
        if torch.nn.functional.cosine_similarity(before, after, dim=0) > 0.9:
            return True
    return False


def _doubled(
    block: nn.Module,
    args: Any,
    kwargs: Any,
    references: Mapping[str, Tensor],
    rng: Tensor | None,
) -> dict[str, Tensor]:
    """The contributions in float64: a branch may begin at 1e-6 of the stream."""
    full = _run(block, args, kwargs, {}, rng, torch.float64)
    return {
        name: rms(full - _run(block, args, kwargs, {name: value}, rng, torch.float64)).float()
        for name, value in references.items()
    }


@torch.no_grad()
def _run(
    block: nn.Module,
    args: Any,
    kwargs: Any,
    replaced: Mapping[str, Tensor],
    rng: Tensor | None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The block's output in float32 at least, with some parameters replaced."""
    # Copies of the buffers: a batch norm in training would write into them.
    state = {name: buffer.clone() for name, buffer in block.named_buffers()}
    state |= {name: p.detach() for name, p in block.named_parameters()} | dict(replaced)
    first = next(find_tensors([args, kwargs]))
    if dtype is None and (autocasts(first) or any(p.dtype in HALF for p in block.parameters())):
        dtype = torch.float32
    if dtype is not None:
        state, args, kwargs = (move(value, None, dtype) for value in (state, args, kwargs))
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), full_precision(first):
        if rng is not None:
            torch.set_rng_state(rng)
        return next(find_tensors(functional_call(block, state, args, kwargs)))
