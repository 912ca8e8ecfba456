"""Run a function over a grid, keep what it returns, and resume where it stopped.

    cells of the grid → those not in the store → executor → store → record

The result does not depend on the executor or the number of workers, to the last bit: each cell has
its own seed and runs with one thread.
"""

from __future__ import annotations

__all__ = ["load", "sweep"]

import functools
import inspect
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalinglimits.sweeps._progress import Report, progress_report
from scalinglimits.sweeps.executors import Executor, JoblibExecutor, SerialExecutor
from scalinglimits.sweeps.grid import Cell, Grid, canonical_json, expand_grid, plain_value
from scalinglimits.sweeps.outcome import CellTask
from scalinglimits.sweeps.result import SweepError, SweepResult
from scalinglimits.sweeps.store import SweepStore


def sweep(
    function: Callable[..., Mapping[str, Any]],
    grid: Grid,
    seeds: int | Sequence[int] = 1,
    *,
    seed: int = 0,
    seed_by: Sequence[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    executor: str | Executor = "serial",
    n_jobs: int | None = None,
    progress: bool | Report = False,
    name: str | None = None,
    on_error: str = "record",
    retry_failed: bool = True,
) -> SweepResult:
    """Call a function on every cell of a grid.

    Each cell is `function(**config, seed=cell_seed)`, on one BLAS, OpenMP and PyTorch thread. The
    store knows a function by its name only: after a change of its code, or for a second lambda, use
    another `name`.

    Args:
        function: Returns a mapping from name to number, string, boolean, None or NumPy array.
        grid: A mapping from name to a sequence of values, of which the full product is taken, or
            a sequence of configurations; see
            :func:`~scalinglimits.sweeps.grid.expand_grid` for values and order.
        seeds: How many replicates of each configuration, or the replicates' indices.
        seed: The root seed, a non-negative integer.
        seed_by: Names of the configuration that enter a cell's seed; see
            :func:`~scalinglimits.sweeps.grid.expand_grid`.
        store: SQLite file that keeps the cells; those done there are not run again. None keeps
            nothing.
        executor: `"serial"`, `"joblib"`, or an `Executor`.
        n_jobs: Worker processes of `"joblib"`; None for one a core.
        progress: True for a bar on the standard error stream, or a function called as
            `progress(done, total, failed)` at the start and after each cell; `done` counts the
            finished cells, failed ones included.
        name: The sweep's name in the store; `"sweep"` if None.
        on_error: `"record"` keeps a failed cell's traceback and goes on; `"raise"` keeps it and
            raises.
        retry_failed: Whether cells that failed in an earlier run are run again.

    Returns:
        The record of the requested cells, in the grid's order.

    Raises:
        TypeError: If an argument is of the wrong kind, or `function` cannot be called with the
            grid's names and `seed`.
        ValueError: If an argument is out of range, or the store is no store or holds another
            function or root seed under this name.
        SweepError: If a cell failed and `on_error` is `"raise"`.
        WorkerLostError: If a worker process died.

    Example:
        >>> import numpy as np
        >>> def walk(steps, seed):
        ...     path = np.random.default_rng(seed).choice([-1, 1], size=steps).cumsum()
        ...     return {"end": path[-1], "path": path}
        >>> result = sweep(walk, {"steps": [100, 400]}, seeds=50, seed=1)
        >>> result.array("end").shape
        (2, 50)
        >>> result.to_frame().groupby("steps")["end"].count().to_dict()
        {100: 50, 400: 50}
    """
    if on_error not in ("record", "raise"):
        raise ValueError(f'`on_error` must be "record" or "raise"; got {on_error!r}')
    if not (isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"`progress` must be a boolean or a function; got {progress!r}")
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"`name` must be None or a string; got {name!r}")
    runner = _executor(executor, n_jobs)
    label = _function_name(function)
    cells = expand_grid(grid, seeds, seed=seed, seed_by=seed_by)
    _check_call(function, cells)
    sweep_name = "sweep" if name is None else name

    with SweepStore(store) as opened:
        opened.register(sweep_name, label, int(seed), cells)
        statuses = opened.statuses(sweep_name)
        finished = {"done"} if retry_failed else {"done", "failed"}
        todo = [cell for cell in cells if statuses[cell.key] not in finished]
        done, total = len(cells) - len(todo), len(cells)
        failed = 0 if retry_failed else sum(statuses[cell.key] == "failed" for cell in cells)
        with progress_report(progress, sweep_name) as report:
            report(done, total, failed)
            outcomes = runner.run(CellTask(function), todo) if todo else iter(())
            try:
                for index, outcome in outcomes:
                    opened.save(sweep_name, todo[index], outcome)
                    done += 1
                    failed += outcome.status == "failed"
                    report(done, total, failed)
                    if outcome.status == "failed" and on_error == "raise":
                        cell = todo[index]
                        raise SweepError(
                            f"the cell {dict(cell.config)}, replicate {cell.replicate}, of the "
                            f"sweep {sweep_name!r} failed:\n{outcome.error}"
                        )
            finally:
                # Stops the workers now, not when the generator happens to be collected.
                if isinstance(outcomes, Generator):
                    outcomes.close()
        if done < total:
            raise RuntimeError(
                f"`executor` must run every cell; got {len(todo) - (total - done)} outcomes "
                f"for {len(todo)} cells from {type(runner).__name__}"
            )
        result = opened.load(sweep_name, cells)
    if on_error == "raise":
        result.raise_if_failed()
    return result


def load(store: str | os.PathLike[str], name: str | None = None) -> SweepResult:
    """Read a stored sweep without running anything.

    Args:
        store: The SQLite file.
        name: The sweep's name; may be left out if the store holds only one.

    Returns:
        The record of all its cells, those of an interrupted sweep with status `"pending"`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no store, or `name` is not in it, or it holds several sweeps and no
            name was given.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "squares.sqlite"
        ...     _ = sweep(lambda x, seed: {"y": x * x}, {"x": [1, 2, 3]}, store=path)
        ...     load(path).array("y").ravel()
        array([1, 4, 9])
    """
    if not Path(store).exists():
        raise FileNotFoundError(f"`store` must be an existing file; got {str(store)!r}")
    with SweepStore(store) as opened:
        return opened.load(name)


def _executor(executor: str | Executor, n_jobs: int | None) -> Executor:
    if executor == "joblib":
        return JoblibExecutor(n_jobs)
    if n_jobs is not None:
        raise ValueError(f'`n_jobs` must be None unless `executor` is "joblib"; got {n_jobs!r}')
    if executor == "serial":
        return SerialExecutor()
    if isinstance(executor, Executor):
        return executor
    raise ValueError(f'`executor` must be "serial", "joblib" or an Executor; got {executor!r}')


def _check_call(function: Callable[..., Any], cells: Sequence[Cell]) -> None:
    """Find a wrong argument name before the sweep rather than in every cell."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions do not tell
        return
    for names in dict.fromkeys(tuple(cell.config) for cell in cells):
        try:
            signature.bind(**dict.fromkeys(names), seed=0)
        except TypeError as caught:
            raise TypeError(
                f"`function` must accept the grid's names and `seed`; got {caught} "
                f"for {(*names, 'seed')}"
            ) from caught


def _function_name(function: Any) -> str:
    """A name that is the same in every run: module and qualified name.

    A script's functions are known by the script's name, so that they keep it when imported. The
    bound arguments of a `functools.partial` change what it computes and are part of its name.
    """
    if not callable(function):
        raise TypeError(f"`function` must be callable; got {function!r}")
    if isinstance(function, functools.partial):
        try:
            arguments = (
                plain_value(function.args, "args"),
                {key: plain_value(value, key) for key, value in function.keywords.items()},
            )
        except (TypeError, ValueError) as caught:
            raise TypeError(
                "`function` must not be a partial with arguments that have no JSON form, since the "
                f"store could not tell it from others; got {caught}"
            ) from caught
        return f"{_function_name(function.func)} with {canonical_json(arguments)}"
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None) or "builtins"
    if module == "__main__":
        main = sys.modules.get("__main__")
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif file is not None:
            module = Path(file).stem
    return f"{module}.{named.__qualname__}"
