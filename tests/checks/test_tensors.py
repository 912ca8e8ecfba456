"""Containers of tensors."""

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch

from scalinglimits.checks.spectral import spectral_norm
from scalinglimits.checks.tensors import find_tensors, move, rms

Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Output:
    logits: torch.Tensor
    cache: tuple


def test_find_tensors_in_any_nest():
    a, b, c, d = (torch.full((1,), float(i)) for i in range(4))
    nest = {"p": Pair(a, [b, None, 3]), "o": Output(c, (d, torch.tensor([1])))}
    assert [float(t) for t in find_tensors(nest)] == [0, 1, 2, 3]


def test_move_keeps_the_nest():
    batch = OrderedDict(
        x=torch.ones(2),
        y=[torch.tensor([3]), "text"],
        p=Pair(torch.ones(1), 5),
        o=Output(torch.ones(1), (torch.ones(1),)),
    )
    moved = move(batch, None, torch.bfloat16)
    assert type(moved) is OrderedDict
    assert moved["x"].dtype == torch.bfloat16
    assert moved["y"][0].dtype == torch.int64
    assert moved["y"][1] == "text"
    assert isinstance(moved["p"], Pair)
    assert moved["o"].cache[0].dtype == torch.bfloat16
    assert batch["x"].dtype == torch.float32


def test_rms_does_not_overflow_half_precision():
    x = torch.full((100,), 300.0, dtype=torch.float16)  # squares exceed 65504
    assert float(rms(x)) == pytest.approx(300)


@pytest.mark.parametrize("shape", [(64, 200), (200, 64), (10, 3000), (5, 7), (30, 4, 3, 3)])
def test_spectral_norm_against_full_decomposition(shape):
    W = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    exact = float(torch.linalg.matrix_norm(W.flatten(1), ord=2))
    value = float(spectral_norm(W))
    assert 0.88 * exact <= value <= exact * (1 + 1e-5)


def test_spectral_norm_of_low_rank_tiny_and_zero():
    generator = torch.Generator().manual_seed(2)
    U, V = (torch.randn(n, 3, generator=generator) for n in (100, 80))
    exact = float(torch.linalg.matrix_norm(U @ V.T, ord=2))
    assert float(spectral_norm(U @ V.T)) == pytest.approx(exact, rel=1e-4)
    assert float(spectral_norm(1e-25 * (U @ V.T))) == pytest.approx(1e-25 * exact, rel=1e-4)
    assert float(spectral_norm(torch.zeros(50, 60))) == 0.0
    assert math.isfinite(float(spectral_norm((U @ V.T).bfloat16())))
