"""Values survive the way into a store and back; faults become outcomes; threads are limited."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from scalinglimits.sweeps import CellTask, expand_grid
from scalinglimits.sweeps.outcome import decode_values, encode_values

(CELL,) = expand_grid({"x": [3]})

ARRAYS = {
    "float32": np.linspace(0, 1, 7, dtype=np.float32).reshape(7, 1),
    "float16": np.array([1.5, np.nan, -np.inf], dtype=np.float16),
    "big endian": np.arange(4, dtype=">i4"),
    "complex": np.array([1 + 2j]),
    "bool": np.array([[True, False]]),
    "text": np.array(["a", "bcd"]),
    "structured": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "date": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "0-d": np.array(3, dtype=np.uint8),
    "empty": np.empty((0, 3), dtype=np.int16),
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "strided": np.arange(10)[::3],
    "file": np.array([1]),  # a name that np.savez has an argument of
    "a/b.npy": np.array([2]),
    "": np.array([3]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_array_round_trip(name):
    array = ARRAYS[name]
    back = decode_values(*encode_values({name: array}))[name]
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


def test_scalar_round_trip():
    values = {
        "int": 2**70,
        "float": 0.1 + 0.2,
        "tiny": 5e-324,
        "inf": -np.inf,
        "bool": False,
        "none": None,
        "text": "é\ud800\n",
    }
    assert decode_values(*encode_values(values)) == values
    assert np.isnan(decode_values(*encode_values({"a": float("nan")}))["a"])


def test_numpy_scalars_come_back_as_python_numbers():
    values = {"a": np.float32(0.1), "b": np.int8(-3), "c": np.bool_(True), "d": np.str_("x")}
    back = decode_values(*encode_values(values))
    assert back == {"a": float(np.float32(0.1)), "b": -3, "c": True, "d": "x"}
    assert [type(value) for value in back.values()] == [float, int, bool, str]


def test_many_arrays_keep_their_names():
    arrays = {f"layer {i}": np.full(3, i) for i in range(12)}
    back = decode_values(*encode_values(arrays))
    assert all(np.array_equal(back[name], array) for name, array in arrays.items())


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        (3.0, TypeError, "`function` must return a mapping from name to value; got float"),
        (None, TypeError, "`function` must return a mapping .* got NoneType"),
        ({1: 2}, TypeError, "`function` must return strings as names; got 1"),
        ({"y": [1, 2]}, TypeError, "must return numbers, .* got 'y' of type list"),
        ({"y": 1j}, TypeError, "must return numbers, .* got 'y' of type complex"),
        ({"y": torch.zeros(1)}, TypeError, "must return numbers, .* got 'y' of type Tensor"),
        ({"y": np.array([None])}, TypeError, "arrays without objects and masks; got 'y' .* object"),
        ({"y": np.ma.array([1])}, TypeError, "arrays without objects and masks; got 'y' .* Masked"),
        ({"seconds": 1}, ValueError, "must not return the name of .* got 'seconds'"),
        ({"x": 1}, ValueError, "must not return the name of a configuration value .* got 'x'"),
    ],
)
def test_bad_values_fail_the_cell(values, error, match):
    with pytest.raises(error, match=match):
        encode_values(values, taken=("x",))
    outcome = CellTask(lambda x, seed: values)(CELL)
    assert outcome.status == "failed"
    assert error.__name__ in outcome.error


def test_exception_becomes_an_outcome_with_its_traceback():
    def explode(x, seed):
        raise ArithmeticError(f"x is {x}")

    outcome = CellTask(explode)(CELL)
    assert outcome.status == "failed"
    assert "ArithmeticError: x is 3" in outcome.error
    assert "in explode" in outcome.error
    assert "__call__" not in outcome.error


def test_exit_becomes_an_outcome_but_an_interrupt_does_not():
    assert "SystemExit: 2" in CellTask(lambda x, seed: sys.exit(2))(CELL).error

    def interrupt(x, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CellTask(interrupt)(CELL)


def test_values_are_those_at_the_return():
    buffer = np.zeros(2)

    def fill(x, seed):
        buffer[:] = x
        return {"y": buffer}

    outcome = CellTask(fill)(CELL)
    buffer[:] = -1
    decoded = decode_values(outcome.scalars, outcome.array_names, outcome.arrays)
    assert np.array_equal(decoded["y"], [3, 3])


def test_one_thread_inside_and_the_old_number_outside():
    def threads(x, seed):
        pools = [pool["num_threads"] for pool in threadpool_info()]
        return {"pools": max(pools), "torch": torch.get_num_threads()}

    before = torch.get_num_threads()
    environment = dict(os.environ)
    try:
        torch.set_num_threads(2)
        with threadpool_limits(limits=2):
            outside = threadpool_info()
            assert CellTask(threads)(CELL).scalars == '{"pools": 1, "torch": 1}'
            assert threadpool_info() == outside
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert dict(os.environ) == environment


def test_torch_gets_its_own_setting(monkeypatch):
    """Builds of PyTorch with their own thread pool are invisible to threadpoolctl."""
    calls = []
    build = SimpleNamespace(get_num_threads=lambda: 5, set_num_threads=calls.append)
    monkeypatch.setitem(sys.modules, "torch", build)
    CellTask(lambda x, seed: calls.append("cell") or {})(CELL)
    assert calls == [1, "cell", 5]


LATE_IMPORT = """
import sys
from scalinglimits.sweeps import CellTask, expand_grid
from threadpoolctl import threadpool_info

def late(x, seed):
    import scipy.linalg, torch
    pools = [pool["num_threads"] for pool in threadpool_info()]
    return {"pools": max(pools), "torch": torch.get_num_threads()}

assert "torch" not in sys.modules
before = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
outcome = CellTask(late)(expand_grid({"x": [3]})[0])
assert outcome.scalars == '{"pools": 1, "torch": 1}', outcome
import torch
assert torch.get_num_threads() == 3, torch.get_num_threads()
after = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
assert len(after) > len(before)
assert all(number == before.get(path, 3) for path, number in after.items()), (before, after)
"""


def test_libraries_that_the_cell_imports_first_are_limited_too():
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    environment["MKL_NUM_THREADS"] = "3"
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", LATE_IMPORT], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
