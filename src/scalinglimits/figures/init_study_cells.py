"""One cell of the study of averages: signal at initialisation, and every useful learning rate.

Modes are compared on the same draws: weights are the same standard normal numbers, times the
deviation of the mode, and the mini-batches are the same, replicate by replicate.

The learning rates are the powers of 2 around the one at which the first step would lower the loss
by a tenth to first order (for a step of plain gradient descent, or of sign descent), spread until
no replicate reaches the target at either end. So an optimum is never at an edge, unless it is
recorded so.
"""

from __future__ import annotations

__all__ = ["Protocol", "load_classes", "measure_cell"]

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalinglimits.data import load_digits, load_features, load_idx, minibatches
from scalinglimits.figures.init_study_networks import (
    ARCHITECTURES,
    MatrixShape,
    predicted_gains,
)
from scalinglimits.laws.streams import derive_seed, substream

_FIRST_CHUNK, _NEXT_CHUNK = 5, 2
_SEARCHES = 1
_LIMITS = {"sgd": (-24, 14), "adam": (-18, 8)}
_IMAGES, _LABELS = "images-idx3", "labels-idx1"


@dataclass(frozen=True)
class Protocol:
    """What all cells of a study share.

    Attributes:
        data: "digits", or a file for :func:`load_classes`.
        replicates: independent weights and orders of the data.
        steps: how many at most.
        batch_size: samples a step.
        target: of the mean loss over the window.
        window: number of steps.
        root: the seed of all draws.
    """

    data: str = "digits"
    replicates: int = 4
    steps: int = 200
    batch_size: int = 64
    target: float = 1.0
    window: int = 5
    root: int = 0


def load_classes(source: str | os.PathLike[str] = "digits") -> tuple[np.ndarray, np.ndarray]:
    """Load a classification task, with inputs of mean 0 and second moment 1 over all entries.

    Args:
        source: "digits"; an NPZ file with ``x_train`` and ``y_train``, or ``X`` and ``y``; or an
            IDX file of images, named as MNIST's, beside the one of its labels.

    Returns:
        Inputs, float32 of shape (n, d), and classes 0, 1, …, int64 of shape (n,).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is of another kind, or its classes are no classes.
    """
    if source == "digits":
        X, y = load_digits()
    elif _IMAGES in Path(source).name:
        path = Path(source)
        X, y = load_idx(path), load_idx(path.with_name(path.name.replace(_IMAGES, _LABELS)))
    else:
        X, y = _load_table(source)
    X = X.reshape(len(X), -1).astype(np.float64)
    if y.ndim != 1 or len(y) != len(X) or np.any(y != np.floor(y)) or y.min() < 0:
        raise ValueError(f"{source} must hold one class 0, 1, … a sample; got shape {y.shape}")
    X = (X - X.mean()) / X.std()
    return X.astype(np.float32), y.astype(np.int64)


def _load_table(source: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    path = Path(source)
    if path.suffix == ".npz" and path.is_file():
        with np.load(path, allow_pickle=False) as stored:
            if {"x_train", "y_train"} <= set(stored.files):
                return stored["x_train"], stored["y_train"]
    X, y = load_features(path)
    if y is None:
        raise ValueError(f"{path} must hold classes as y or y_train; got none")
    return X, y


def measure_cell(
    architecture: str,
    norm: str,
    gain: float,
    depth: int,
    optimizer: str,
    mode: str,
    data: str,
    replicates: int,
    steps: int,
    batch_size: int,
    target: float,
    window: int,
    root: int,
    seed: int,
) -> dict[str, Any]:
    """Measure one mode in one setting.

    Args:
        architecture: name in `ARCHITECTURES`.
        norm: "none", "layer" or "rms".
        gain: of the matrices ahead of a ReLU.
        depth: number of matrices.
        optimizer: "sgd" or "adam".
        mode: average of the fans.
        data: see `Protocol`, as for the following ones.
        replicates: number of draws.
        steps: at most.
        batch_size: samples a step.
        target: of the loss.
        window: of the mean loss.
        root: the seed of all draws.
        seed: of the cell, which is not used: modes share their draws.

    Returns:
        ``log2_rates`` (k,), ``steps_to_target`` and ``diverged`` (k, replicates), ``forward``
        and ``backward`` (replicates,) natural logarithms, and the predicted ones.
    """
    import torch

    from scalinglimits.figures.init_study_training import ensemble_logits, train_ensemble

    X, y = _tensors(data)
    family = ARCHITECTURES[architecture]
    shapes = family.matrices(depth, X.shape[1], int(y.max()) + 1)
    weights = [
        torch.stack([_draw(shape, mode, gain, root, r, layer) for r in range(replicates)])
        for layer, shape in enumerate(shapes)
    ]
    orders = [
        minibatches(len(X), batch_size, seed=derive_seed(root, "batches", r), steps=steps)
        for r in range(replicates)
    ]
    order = torch.from_numpy(np.stack([list(batches) for batches in orders], axis=1))

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[order[step]], y[order[step]]

    leaves = [weight.clone().requires_grad_() for weight in weights]
    inputs, classes = batches(0)
    logits, start, end = ensemble_logits(family.kind, norm, leaves, inputs)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), classes.flatten(), reduction="none"
    ).view(replicates, -1)
    gradients = torch.autograd.grad(losses.mean(dim=1).sum(), [*leaves, start, end])

    def train(exponents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        streams = list(range(replicates)) * len(exponents)
        run = train_ensemble(
            family.kind,
            norm,
            [weight[streams] for weight in weights],
            streams,
            [2.0**exponent for exponent in exponents for _ in range(replicates)],
            batches,
            optimizer=optimizer,
            steps=steps,
            target=target,
            window=window,
        )
        return run.steps.reshape(-1, replicates), run.diverged.reshape(-1, replicates)

    centre = _first_rate(optimizer, losses.detach().mean(dim=1), gradients[:-2])
    exponents, reached, diverged = _search(train, centre, *_LIMITS[optimizer])
    return {
        "log2_rates": exponents,
        "steps_to_target": reached,
        "diverged": diverged,
        "forward": _log_ratio(end.detach(), start.detach()),
        "backward": _log_ratio(gradients[-2], gradients[-1]),
        **predicted_gains(family, depth, norm, mode, gain),
    }


def _search(
    train: Callable[[Sequence[int]], tuple[np.ndarray, np.ndarray]],
    centre: int,
    lowest: int,
    highest: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Try powers of 2 around a first one, and more at each end until no replicate succeeds there.

    If none succeeds at first, one round more is tried at each end that is not hopeless.
    """
    tried: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    half = _FIRST_CHUNK // 2
    centre = min(max(centre, lowest + half), highest - half)
    exponents = list(range(centre - half, centre + half + 1))
    failures = 0
    while exponents:
        tried.update(zip(exponents, zip(*train(exponents), strict=True), strict=True))
        low, high = min(tried), max(tried)
        if any(np.isfinite(reached).any() for reached, _ in tried.values()):
            down, up = (bool(np.isfinite(tried[end][0]).any()) for end in (low, high))
        else:
            failures += 1
            down = failures <= _SEARCHES
            up = down and not tried[high][1].all()
        exponents = [e for e in range(low - _NEXT_CHUNK, low) if down and e >= lowest]
        exponents += [e for e in range(high + 1, high + 1 + _NEXT_CHUNK) if up and e <= highest]
    found = sorted(tried)
    reached, diverged = (np.stack([tried[e][i] for e in found]) for i in range(2))
    return np.array(found), reached, diverged


@functools.lru_cache(maxsize=2)
def _tensors(source: str) -> tuple[Any, Any]:
    import torch

    X, y = load_classes(source)
    return torch.from_numpy(X), torch.from_numpy(y)


def _draw(shape: MatrixShape, mode: str, gain: float, root: int, replicate: int, layer: int) -> Any:
    import torch

    generator = substream(root, "replicate", replicate, "layer", layer)
    entries = torch.randn(shape.fan_out, shape.fan_in, generator=generator)
    return entries.mul_(math.sqrt(shape.variance(mode, gain)))


def _log_ratio(above: Any, below: Any) -> np.ndarray:
    """Log of the ratio of second moments, in float64: float32 squares of a dead signal are 0."""
    moments = [part.double().square().mean(dim=(1, 2)).numpy() for part in (above, below)]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(moments[0]) - np.log(moments[1])


def _first_rate(optimizer: str, losses: Any, gradients: Sequence[Any]) -> int:
    """The power of 2 at which the first step would lower the loss by a tenth, momentum counted."""
    norms = sum(
        (g.double().square() if optimizer == "sgd" else g.double().abs()).sum(dim=(1, 2))
        for g in gradients
    )
    with np.errstate(divide="ignore"):
        logs = np.log2(losses.double().numpy()) - np.log2(norms.numpy())
    middle = float(np.median(logs)) + math.log2(0.1 * (0.1 if optimizer == "sgd" else 1.0))
    return round(min(max(middle, -60.0), 60.0))
