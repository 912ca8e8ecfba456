"""Sweeps: results, resuming, failures, progress, executors."""

from __future__ import annotations

import functools
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from scalinglimits.sweeps import (
    Executor,
    JoblibExecutor,
    SweepError,
    WorkerLostError,
    load,
    sweep,
)

# Functions of a test are local: joblib sends them by value, whatever the test module is called.


def draw(scale, seed):
    generator = np.random.default_rng(seed)
    return {"mean": scale * generator.normal(), "path": generator.normal(size=3)}


def counting(calls):
    def square(x, seed):
        calls.append(x)
        return {"y": x * x}

    return square


def test_product_grid_stacks_to_an_array():
    result = sweep(
        lambda a, b, seed: {"ab": 10 * a + b, "v": np.full(4, a)},
        {"a": [1, 2], "b": [3, 4, 5]},
        seeds=2,
    )
    expected = [[[13] * 2, [14] * 2, [15] * 2], [[23] * 2, [24] * 2, [25] * 2]]
    assert np.array_equal(result.array("ab"), expected)
    assert result.array("v").shape == (2, 3, 2, 4)
    assert np.array_equal(result.array("v")[1], np.full((3, 2, 4), 2))
    assert result.axes == {"a": (1, 2), "b": (3, 4, 5), "replicate": (0, 1)}


def test_frame_has_one_row_a_cell():
    result = sweep(draw, {"scale": [0.0, 1.0]}, seeds=3)
    frame = result.to_frame()
    assert list(frame.columns) == [
        "scale", "replicate", "seed", "status", "error", "seconds", "mean",
    ]  # fmt: skip
    assert len(frame) == 6
    assert list(frame["mean"]) == list(result.array("mean").ravel())
    assert set(frame["status"]) == {"done"}
    assert frame["error"].isna().all()
    assert (frame["seconds"] >= 0).all()
    with_arrays = result.to_frame(arrays=True)
    assert np.array_equal(with_arrays["path"][4], result.array("path")[1, 1])


def test_frame_of_different_configurations_leaves_gaps():
    result = sweep(lambda seed, **config: {"n": len(config)}, [{"a": 1}, {"b": (1, 2)}])
    frame = result.to_frame()
    assert frame["a"][0] == 1
    assert frame["a"].isna()[1]
    assert frame["b"][1] == (1, 2)


def test_function_gets_plain_values_and_its_seed():
    seen = []

    def look(pair, seed):
        seen.append((pair, seed))
        return {}

    result = sweep(look, {"pair": [[1, np.float32(0.5)]]})
    assert seen == [((1, 0.5), result.cells[0].seed)]


def test_array_errors():
    result = sweep(lambda x, seed: {"y": np.zeros(x)}, {"x": [1, 2]})
    with pytest.raises(ValueError, match=r"'y' must have one shape in all cells; got \[\(1,\), \("):
        result.array("y")
    with pytest.raises(KeyError, match=r"`name` must be one of \['y'\]; got 'z'"):
        result.array("z")
    scattered = sweep(lambda x, z, seed: {"y": x}, [{"x": 1, "z": 1}, {"x": 2, "z": 2}])
    with pytest.raises(ValueError, match=r"must be a full product .* got 2 cells of 4"):
        scattered.array("y")
    with pytest.raises(ValueError, match=r"must be a full product"):
        sweep(lambda seed, **c: {"y": 1}, [{"x": 1}, {"z": 2}]).array("y")


def test_explicit_grid_that_is_a_product_stacks_in_any_order():
    configs = [{"x": x, "z": z} for z in (5, 6) for x in (1, 2)]
    result = sweep(lambda x, z, seed: {"y": 10 * x + z}, configs)
    assert np.array_equal(result.array("y")[..., 0], [[15, 16], [25, 26]])


def test_larger_grid_and_order_change_no_cell():
    small = sweep(draw, {"scale": [1.0]}, seeds=2).array("path")
    large = sweep(draw, {"scale": [3.0, 1.0]}, seeds=4).array("path")
    assert small.tobytes() == large[1:, :2].tobytes()


# --- store and resuming ---------------------------------------------------------------------------


def test_done_cells_are_not_run_again(tmp_path):
    calls = []
    square = counting(calls)
    first = sweep(square, {"x": [1, 2]}, store=tmp_path / "s.sqlite")
    again = sweep(square, {"x": [1, 2]}, store=tmp_path / "s.sqlite")
    assert calls == [1, 2]
    assert again.to_frame().equals(first.to_frame())
    larger = sweep(square, {"x": [1, 3, 2]}, store=str(tmp_path / "s.sqlite"))
    assert calls == [1, 2, 3]
    assert np.array_equal(larger.array("y").ravel(), [1, 9, 4])
    smaller = sweep(square, {"x": [3]}, store=tmp_path / "s.sqlite")
    assert calls == [1, 2, 3]
    assert len(smaller.cells) == 1


def test_load_returns_the_whole_sweep_in_the_order_of_the_grid(tmp_path):
    path = tmp_path / "s.sqlite"
    sweep(draw, {"scale": [2.0, 1.0]}, store=path, seed=5, name="walks")
    result = sweep(draw, {"scale": [2.0, 1.5, 1.0]}, seeds=2, store=path, seed=5, name="walks")
    loaded = load(path)
    assert loaded.to_frame().equals(result.to_frame())
    assert loaded.array("path").tobytes() == result.array("path").tobytes()
    assert (loaded.name, loaded.seed) == ("walks", 5)
    assert loaded.function.endswith("test_sweep.draw")


def test_interrupt_keeps_what_arrived_and_is_raised_again(tmp_path):
    path = tmp_path / "s.sqlite"
    calls = []

    def interrupted(x, seed):
        calls.append(x)
        if x == 3 and len(calls) == 3:
            raise KeyboardInterrupt
        return {"y": x}

    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted, {"x": [1, 2, 3, 4]}, store=path)
    partial = load(path)
    assert [c.status for c in partial.cells] == ["done", "done", "pending", "pending"]
    assert len(partial.pending) == 2
    with pytest.raises(ValueError, match=r"every cell must be done .* 0 failed and 2 pending of 4"):
        partial.array("y")
    assert partial.to_frame()["y"].isna().tolist() == [False, False, True, True]
    result = sweep(interrupted, {"x": [1, 2, 3, 4]}, store=path)
    assert calls == [1, 2, 3, 3, 4]
    assert np.array_equal(result.array("y").ravel(), [1, 2, 3, 4])


def test_interrupt_in_a_worker_is_raised_again(tmp_path):
    def interrupted(x, seed):
        if x == 6:
            raise KeyboardInterrupt
        return {"y": x}

    with pytest.raises(KeyboardInterrupt):
        sweep(interrupted, {"x": range(7)}, store=tmp_path / "s", executor="joblib", n_jobs=1)
    loaded = load(tmp_path / "s")
    assert all(cell.status in ("done", "pending") for cell in loaded.cells)
    assert len(loaded.pending) >= 1


SCRIPT = """
import signal, sys, time
from pathlib import Path
from scalinglimits.sweeps import sweep

# What a shell starts in the background ignores interrupts, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

folder = Path(sys.argv[1])

def cell(x, seed):
    with open(folder / "log", "a") as log:
        log.write(f"{x}\\n")
    if x == 5 and not (folder / "second").exists():
        (folder / "hanging").touch()
        time.sleep(60)
    return {"y": x + seed % 7}

result = sweep(cell, {"x": range(10)}, store=folder / "s.sqlite")
print([int(y) for y in result.array("y").ravel()])
"""


def run_script(folder):
    (folder / "study.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(folder / "study.py"), str(folder)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(path: Path, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_killed_process_resumes_where_it_stopped(tmp_path, sent):
    with run_script(tmp_path) as first:
        wait_for(tmp_path / "hanging")
        first.send_signal(sent)
        _, errors = first.communicate(timeout=30)
    if sent == signal.SIGINT:
        assert "KeyboardInterrupt" in errors
    partial = load(tmp_path / "s.sqlite")
    assert [c.status for c in partial.cells] == ["done"] * 5 + ["pending"] * 5
    assert partial.function == "study.cell"  # the script's name, not __main__
    (tmp_path / "second").touch()
    with run_script(tmp_path) as second:
        output, errors = second.communicate(timeout=30)
    assert second.returncode == 0, errors
    assert output.strip() == str([x + c.seed % 7 for x, c in enumerate(partial.cells)])
    ran = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert ran == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]


def test_killed_worker_is_a_clear_error_and_finished_cells_are_kept(tmp_path):
    path = tmp_path / "s.sqlite"
    calm = tmp_path / "calm"

    def deadly(x, seed):
        if x == 7 and not calm.exists():
            time.sleep(0.5)  # the others are written before
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": x}

    with pytest.raises(WorkerLostError, match=r"a worker process died .* resumes from them"):
        sweep(deadly, {"x": range(8)}, store=path, executor="joblib", n_jobs=2)
    partial = load(path)
    assert partial.cells[7].status == "pending"
    assert all(cell.status in ("done", "pending") for cell in partial.cells)
    assert sum(cell.status == "done" for cell in partial.cells) >= 1
    calm.touch()
    result = sweep(deadly, {"x": range(8)}, store=path, executor="joblib", n_jobs=2)
    assert np.array_equal(result.array("y").ravel(), range(8))


# --- failures -------------------------------------------------------------------------------------


def flaky(calls, broken):
    def reciprocal(x, seed):
        calls.append(x)
        if broken:
            return {"y": 1 / x}
        return {"y": 0.0 if x == 0 else 1 / x}

    return reciprocal


def test_failures_are_recorded_and_retried(tmp_path):
    path = tmp_path / "s.sqlite"
    calls: list[int] = []
    broken = [True]
    function = flaky(calls, broken)
    result = sweep(function, {"x": [0, 1, 2]}, store=path)
    assert [c.status for c in result.cells] == ["failed", "done", "done"]
    assert result.failed == result.cells[:1]
    assert "ZeroDivisionError" in result.failed[0].error
    assert result.to_frame()["y"].isna().tolist() == [True, False, False]
    with pytest.raises(ValueError, match=r"every cell must be done .* 1 failed and 0 pending of 3"):
        result.array("y")
    with pytest.raises(SweepError, match=r"(?s)1 of 3 cells .*'sweep' failed.*'x': 0.*ZeroDivis"):
        result.raise_if_failed()

    kept = sweep(function, {"x": [0, 1, 2]}, store=path, retry_failed=False)
    assert calls == [0, 1, 2]
    assert kept.to_frame().equals(result.to_frame())

    broken.clear()
    repaired = sweep(function, {"x": [0, 1, 2]}, store=path)
    assert calls == [0, 1, 2, 0]
    assert repaired.array("y").ravel().tolist() == [0.0, 1.0, 0.5]
    repaired.raise_if_failed()


@pytest.mark.parametrize("executor", ["serial", "joblib"])
def test_on_error_raise_keeps_the_failure(tmp_path, executor):
    path = tmp_path / "s.sqlite"

    def function(x, seed):
        if x == 1:
            raise ZeroDivisionError
        return {"y": x}

    with pytest.raises(SweepError, match=r"(?s)the cell {'x': 1}, replicate 0, .*ZeroDivision"):
        sweep(function, {"x": [0, 1, 2]}, store=path, on_error="raise", executor=executor)
    assert load(path).cells[1].status == "failed"
    with pytest.raises(SweepError, match=r"1 of 3 cells"):
        sweep(function, {"x": [0, 1, 2]}, store=path, on_error="raise", retry_failed=False)


# --- executors ------------------------------------------------------------------------------------


def test_bitwise_the_same_for_any_number_of_workers():
    def products(n, seed):
        generator = torch.Generator().manual_seed(seed)
        a = torch.randn(n, n, generator=generator)
        b = np.random.default_rng(seed).normal(size=(n, n))
        return {"torch": (a @ a.T).numpy(), "numpy": b @ b.T, "sum": float(a.sum())}

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        grid = {"n": [300]}
        serial = sweep(products, grid, seeds=4)
        parallel = sweep(products, grid, seeds=4, executor="joblib", n_jobs=2)
    finally:
        torch.set_num_threads(before)
    for name in ("torch", "numpy", "sum"):
        assert serial.array(name).tobytes() == parallel.array(name).tobytes()


def test_workers_run_lambdas_and_record_failures():
    result = sweep(lambda x, seed: {"y": 1 // x}, {"x": [0, 1]}, executor="joblib", n_jobs=2)
    assert "ZeroDivisionError" in result.cells[0].error
    assert result.cells[1].values == {"y": 1}


def test_workers_number_is_one_a_core_by_default():
    result = sweep(lambda x, seed: {"y": x}, {"x": [1, 2]}, executor=JoblibExecutor())
    assert result.array("y").ravel().tolist() == [1, 2]


def test_own_executor_in_any_order():
    class Backwards(Executor):
        def run(self, task, cells):
            return iter([(i, task(cells[i])) for i in reversed(range(len(cells)))])

    forwards = sweep(draw, {"scale": [1.0, 2.0]})
    backwards = sweep(draw, {"scale": [1.0, 2.0]}, executor=Backwards())
    assert backwards.array("path").tobytes() == forwards.array("path").tobytes()


def test_executor_that_loses_cells_is_an_error():
    class Lossy(Executor):
        def run(self, task, cells):
            yield 0, task(cells[0])

    with pytest.raises(RuntimeError, match=r"must run every cell; got 1 outcomes for 2 .* Lossy"):
        sweep(draw, {"scale": [1.0, 2.0]}, executor=Lossy())


def test_function_that_cannot_be_sent_is_an_error():
    handle = io.TextIOWrapper(io.BytesIO())
    with pytest.raises(TypeError, match=r"`function` must be picklable to run in worker processes"):
        sweep(lambda x, seed: {"y": handle.name}, {"x": [1, 2]}, executor="joblib", n_jobs=2)


# --- progress -------------------------------------------------------------------------------------


def test_progress_function_counts_stored_cells(tmp_path):
    seen: list[tuple[int, int, int]] = []

    def function(x, seed):
        return {"y": 1 / x}

    def report(done, total, failed):
        seen.append((done, total, failed))

    sweep(function, {"x": [1]}, store=tmp_path / "s.sqlite")
    sweep(function, {"x": [1, 0, 2]}, store=tmp_path / "s.sqlite", progress=report)
    assert seen == [(1, 3, 0), (2, 3, 1), (3, 3, 1)]
    seen.clear()
    sweep(function, {"x": [0, 1]}, store=tmp_path / "s.sqlite", progress=report, retry_failed=False)
    assert seen == [(2, 2, 1)]


def test_progress_bar_goes_to_the_error_stream(capsys):
    sweep(draw, {"scale": [1.0, 2.0]}, progress=True, name="[walks]")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[walks]" in captured.err
    assert "2/2" in captured.err
    assert "0 failed" in captured.err


def test_nothing_is_printed_unasked(capsys):
    sweep(draw, {"scale": [1.0]})
    assert capsys.readouterr() == ("", "")


# --- arguments and names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"on_error": "ignore"}, ValueError, '`on_error` must be "record" or "raise"; got'),
        ({"progress": 1}, TypeError, "`progress` must be a boolean or a function; got 1"),
        ({"name": 3}, TypeError, "`name` must be None or a string; got 3"),
        ({"executor": "dask"}, ValueError, '`executor` must be "serial", "joblib" or an Executor'),
        ({"n_jobs": 2}, ValueError, '`n_jobs` must be None unless `executor` is "joblib"; got 2'),
        ({"executor": "joblib", "n_jobs": 0}, ValueError, "`n_jobs` must be at least 1; got 0"),
        ({"executor": "joblib", "n_jobs": 2.0}, TypeError, "`n_jobs` must be None or an integer"),
    ],
)
def test_bad_options(options, error, match):
    with pytest.raises(error, match=match):
        sweep(draw, {"scale": [1.0]}, **options)


def test_bad_function():
    with pytest.raises(TypeError, match=r"`function` must be callable; got 3"):
        sweep(3, {"x": [1]})
    with pytest.raises(TypeError, match=r"accept the grid's names and `seed`; got .*'x'"):
        sweep(draw, {"x": [1]})
    with pytest.raises(TypeError, match=r"accept the grid's names and `seed`"):
        sweep(lambda x: {}, {"x": [1]})


def test_partial_is_known_by_its_arguments(tmp_path):
    def power(x, exponent, seed):
        return {"y": x**exponent}

    path = tmp_path / "s.sqlite"
    sweep(functools.partial(power, exponent=2), {"x": [3]}, store=path)
    with pytest.raises(ValueError, match=r'(?s)"exponent":2.* got .*"exponent":3'):
        sweep(functools.partial(power, exponent=3), {"x": [3]}, store=path)
    with pytest.raises(TypeError, match=r"must not be a partial .* got .* got ndarray"):
        sweep(functools.partial(power, exponent=np.eye(2)), {"x": [3]})


def test_callable_objects_and_methods_have_names(tmp_path):
    class Power:
        def __call__(self, x, seed):
            return {"y": x}

        def method(self, x, seed):
            return {"y": x}

    assert sweep(Power(), {"x": [1]}).function.endswith("Power")
    assert sweep(Power().method, {"x": [1]}).function.endswith("Power.method")
