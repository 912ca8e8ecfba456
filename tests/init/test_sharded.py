"""Sharded weights are parts of one draw, the same at any number of processes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from scalinglimits.init import _draws, initialize_
from scalinglimits.init._shards import held_indices

WORKER = Path(__file__).with_name("sharded_worker.py")


def load_worker():
    spec = importlib.util.spec_from_file_location("sharded_worker", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_any_number_of_processes_gives_the_same_weights(size, tmp_path, monkeypatch):
    output = tmp_path / "seen.pt"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(size), str(tmp_path / "store"), output],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(errors)
    seen = torch.load(output)

    monkeypatch.setattr(_draws, "BLOCK", 32)
    expected = dict(load_worker().draws(lambda model: model, lambda tensor, axis: tensor))
    for name, tensor in expected.items():
        assert torch.equal(seen[name], tensor), name
    assert not seen["normal 0.weight"][7].any()
    assert "`seed` must be given for a sharded tensor" in seen["error"]
    plain = nn.Linear(4, 4)
    assert seen["ddp names"] == initialize_(plain, seed=0)["name"].tolist()
    assert torch.equal(seen["ddp"], plain.weight)


class Placement:
    """A stand-in for DTensor's: a replica (no axis), a shard, or a strided shard."""

    def __init__(self, dim=None, split_factor=1):
        if dim is not None:
            self.dim = dim
        self.split_factor = split_factor
        self.replica = dim is None

    def is_replicate(self):
        return self.replica


def held(shape, placements, mesh, coordinate):
    indices = held_indices(shape, placements, mesh, coordinate)
    return [None if index is None else index.tolist() for index in indices]


@pytest.mark.parametrize(
    ("coordinate", "rows"),
    [((0, 0), [0, 1]), ((0, 1), [4, 5]), ((1, 0), [2, 3]), ((1, 1), [6, 7])],
)
def test_strided_shards_of_tensor_and_data_parallelism(coordinate, rows):
    # The example in the documentation of PyTorch's _StridedShard.
    placements = [Placement(0, split_factor=2), Placement(0)]
    assert held((8, 8), placements, (2, 2), coordinate) == [rows, None]


def test_nested_uneven_and_replicated_placements():
    nested = [Placement(0), Placement(0)]
    parts = [held((7, 3), nested, (2, 3), (i, j))[0] for i in range(2) for j in range(3)]
    assert parts == [[0, 1], [2, 3], [], [4], [5], [6]]
    assert held((2, 3), [Placement(0)], (3,), (2,)) == [[], None]
    assert held((2, 4), [Placement(), Placement(1)], (2, 2), (1, 1)) == [None, [2, 3]]
    assert held((2, 4), [Placement(1)], (2,), ()) == [None, []]


def test_pending_sums_are_an_error():
    class Partial:
        def is_replicate(self):
            return False

    with pytest.raises(ValueError, match="`tensor` must be sharded or replicated"):
        held((2, 2), [Partial()], (2,), (0,))
