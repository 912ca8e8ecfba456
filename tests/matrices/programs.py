"""Random programs of products, run on demand one at a time and densely in batches.

A program is data: what is drawn, and which combinations of earlier vectors are multiplied by the
matrix or its transpose, alone or as blocks. Queries are scaled to unit length, so that what is
asked depends on earlier answers.
"""

from dataclasses import dataclass

import numpy as np

from scalinglimits.matrices import entries


@dataclass(frozen=True)
class Step:
    """One instruction: `kind` is a side ("right" or "left") or a draw in the space of that side."""

    kind: str
    side: str
    coefficients: np.ndarray | None = None
    count: int = 0
    law: object = None


class Sign:
    """Rademacher entries."""

    def sample(self, shape, generator):
        return generator.choice([-1.0, 1.0], size=shape)


class Flat:
    """Uniform entries of unit variance."""

    def sample(self, shape, generator):
        return generator.uniform(-np.sqrt(3), np.sqrt(3), size=shape)


def random_program(seed, length, laws=(None, None)):
    """Draws and products in random order, blocks of one to three vectors."""
    rng = np.random.default_rng(seed)
    have = {"right": 2, "left": 1}
    steps = [
        Step("draw", "right", count=2, law=laws[0]),
        Step("draw", "left", count=1, law=laws[0]),
    ]
    for i in range(length):
        side = ("right", "left")[rng.integers(2)]
        if i == length // 2:
            steps.append(Step("draw", side, count=1, law=laws[1]))
            have[side] += 1
        count = int(rng.integers(1, 4))
        # Recent vectors, so that chains of products get long.
        coefficients = rng.standard_normal((have[side], count))
        coefficients *= 0.6 ** np.arange(have[side])[::-1, None]
        if rng.random() < 0.2:
            coefficients[:, -1] = coefficients[:, 0]
        steps.append(Step("product", side, coefficients))
        have["left" if side == "right" else "right"] += count
    return steps


def run_on_demand(program, matrix, read=0):
    """Grams of all vectors of both spaces, and the first entries of vectors and matrix."""
    spaces = {"right": matrix.domain, "left": matrix.codomain}
    products = {"right": matrix.matvec, "left": matrix.rmatvec}
    blocks = {side: np.zeros((spaces[side].dimension, 0)) for side in spaces}
    for step in program:
        side = step.side
        if step.kind == "draw":
            new = spaces[side].draw(step.count, step.law)
        else:
            side = "left" if side == "right" else "right"
            query = spaces[step.side].pad(blocks[step.side]) @ step.coefficients
            query = query / np.sqrt(np.sum(query**2, axis=0))
            new = products[step.side](query)
        blocks[side] = np.hstack([spaces[side].pad(blocks[side]), spaces[side].pad(new)])
    grams = [blocks[side].T @ blocks[side] for side in ("right", "left")]
    if not read:
        return grams
    values = [entries(spaces[side], blocks[side], read) for side in ("right", "left")]
    return [*grams, *values, matrix.entries(read)]


def run_dense(program, arrays, variance, rng, read=0):
    """The same on a batch of arrays of shape `(samples, m, n)`."""
    samples, m, n = arrays.shape
    widths = {"right": n, "left": m}
    weights = np.sqrt(variance) * arrays
    blocks = {side: np.zeros((samples, width, 0)) for side, width in widths.items()}
    for step in program:
        side = step.side
        if step.kind == "draw":
            shape = (samples, widths[side], step.count)
            new = rng.standard_normal(shape) if step.law is None else step.law.sample(shape, rng)
        else:
            side = "left" if side == "right" else "right"
            query = blocks[step.side] @ step.coefficients
            query = query / np.sqrt(np.mean(query**2, axis=1, keepdims=True))
            new = (weights if step.side == "right" else weights.transpose(0, 2, 1)) @ query
        blocks[side] = np.concatenate([blocks[side], new], axis=2)
    grams = [blocks[s].transpose(0, 2, 1) @ blocks[s] / widths[s] for s in ("right", "left")]
    if not read:
        return grams
    return [*grams, blocks["right"][:, :read], blocks["left"][:, :read], arrays[:, :read, :read]]


def gaussian_arrays(samples, m, n, rng):
    return rng.standard_normal((samples, m, n))


def haar_arrays(samples, m, n, rng):
    """Corners of Haar matrices, scaled to unit variance."""
    size = max(m, n)
    q, r = np.linalg.qr(rng.standard_normal((samples, size, min(m, n))))
    q = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    return np.sqrt(size) * (q if m >= n else q.transpose(0, 2, 1))
