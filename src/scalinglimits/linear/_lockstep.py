r"""Many networks with one hidden matrix, trained in lock step in their explicit forms.

All arrays have a leading axis of networks, and every operation treats each network by itself, so
that the numbers of one do not depend on which others are trained with it.
"""

from __future__ import annotations

__all__ = ["Batch", "descend"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._dynamics import LARGEST_NORM
from .banded import band_limit, band_matrix, first_vectors
from .batches import Schedule, evaluate_many
from .losses import Loss
from .measures import Measure
from .network import LinearNetwork

_CHECK_EVERY = 16


@dataclass
class Batch:
    """Results of networks trained in lock step; the first axis is that of networks.

    Attributes:
        predictor: shape `(r, T, d)` or `(r, T, d, o)` at the recorded steps.
        loss: shape `(r, T)`.
        u_square: shape `(r, T)`.
        v_square: shape `(r, T)`.
        stop_step: the last step, or the one that diverged, shape `(r,)`.
        diverged: shape `(r,)`.
        tail: largest coordinate next to where the bases are cut, shape `(r,)`.
        A, M, B: the arrays at the end, `M` being the whole hidden matrix.
        initial: the random part of `M`.
    """

    predictor: np.ndarray
    loss: np.ndarray
    u_square: np.ndarray
    v_square: np.ndarray
    stop_step: np.ndarray
    diverged: np.ndarray
    tail: np.ndarray
    A: np.ndarray
    M: np.ndarray
    B: np.ndarray
    initial: np.ndarray


def descend(
    network: LinearNetwork,
    source: Measure | Schedule,
    loss: Loss,
    sizes: Sequence[float],
    steps: int,
    momentum: float,
    seeds: Sequence[int | None],
    size: int,
    record: np.ndarray,
) -> Batch:
    """Train networks of given seeds, with bases cut at `size`.

    Args:
        network: a network with one hidden Gaussian matrix.
        source: the data.
        loss: the loss.
        sizes: step sizes of U, W and V.
        steps: number of steps.
        momentum: of heavy-ball momentum.
        seeds: one for each network.
        size: where the bases are cut.
        record: sorted steps at which to record.

    Returns:
        The results.
    """
    scales = network.scales
    r, d, o = len(seeds), network.in_features, network.out_features
    shape = (d,) if o == 1 else (d, o)
    band = band_limit(network, size)
    starts = [first_vectors(network, size, seed) for seed in seeds]
    A, B = np.stack([a for a, _ in starts]), np.stack([b for _, b in starts])
    M = np.stack([band_matrix(network, size, seed) for seed in seeds])
    M *= scales.gains[0]
    initial = M.copy()
    t_u, t_w, t_v = (t * c * scales.output for t, c in zip(sizes, scales.steps, strict=True))
    empty = np.full((r, len(record)), np.nan)
    out = Batch(
        predictor=np.full((r, len(record), *shape), np.nan),
        loss=empty,
        u_square=empty.copy(),
        v_square=empty.copy(),
        stop_step=np.full(r, steps),
        diverged=np.zeros(r, dtype=bool),
        tail=np.zeros(r),
        A=A,
        M=M,
        B=B,
        initial=initial,
    )
    outer, outer_a = np.empty_like(M), np.empty_like(A)
    velocity = [np.zeros_like(x) for x in (A, M, B)] if momentum > 0.0 else None
    position = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps + 1):
            last = step == steps
            back = np.matmul(M.transpose(0, 2, 1), B)
            predictor = scales.output * np.matmul(A.transpose(0, 2, 1), back)
            flat = predictor.reshape(r, 1, d * o)
            length = np.sqrt(np.matmul(flat, flat.transpose(0, 2, 1)))[:, 0, 0]
            wild = ~(length < LARGEST_NORM) & ~out.diverged
            if wild.any():
                out.diverged |= wild
                out.stop_step[wild] = step
                for array in (A, M, B, back, predictor):
                    array[wild] = 0.0
            value, xi = evaluate_many(source, step, last, predictor.reshape(r, *shape), loss)
            if out.diverged.any():
                xi[out.diverged] = 0.0
            if position < len(record) and record[position] == step:
                alive = ~out.diverged
                out.predictor[alive, position] = predictor.reshape(r, *shape)[alive]
                out.loss[alive, position] = value[alive]
                out.u_square[alive, position] = _squares(A)[alive]
                out.v_square[alive, position] = _squares(B)[alive]
                position += 1
            if not band.exhausted and (last or step % _CHECK_EVERY == 0):
                np.maximum(out.tail, _largest(A[:, -band.inputs :]), out=out.tail)
                np.maximum(out.tail, _largest(B[:, -band.outputs :]), out=out.tail)
            if last:
                break
            xi = xi.reshape(r, d, o)
            f0 = np.matmul(A, xi)
            f1 = np.matmul(M, f0)
            if velocity is None:
                M -= _outer(t_w * B, f0, outer)
                A -= _outer(t_u * back, xi, outer_a)
                B -= t_v * f1
                continue
            gradients = (
                _outer(t_u * back, xi, outer_a),
                _outer(t_w * B, f0, outer),
                t_v * f1,
            )
            for array, speed, gradient in zip((A, M, B), velocity, gradients, strict=True):
                speed *= momentum
                speed -= gradient
                array += speed
    return out


def _outer(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The products `left right^T`."""
    if left.shape[2] == 1:
        return np.multiply(left, right.transpose(0, 2, 1), out=out)
    return np.matmul(left, right.transpose(0, 2, 1), out=out)


def _squares(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(len(array), 1, -1)
    return np.asarray(np.matmul(flat, flat.transpose(0, 2, 1))[:, 0, 0])


def _largest(array: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(array).reshape(len(array), -1).max(axis=1))
