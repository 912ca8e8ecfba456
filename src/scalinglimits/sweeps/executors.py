"""Where the cells run: in this process, or in worker processes through joblib.

An executor maps a task over cells and hands back each outcome as it comes, in any order. It knows
nothing of stores, seeds or progress, so another one (a cluster, say) is one class with one method.
"""

from __future__ import annotations

__all__ = ["Executor", "JoblibExecutor", "SerialExecutor", "WorkerLostError"]

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError
from typing import Any

from scalinglimits.sweeps.grid import Cell
from scalinglimits.sweeps.outcome import Outcome

Task = Callable[[Cell], Outcome]


class WorkerLostError(RuntimeError):
    """A worker process died: it was killed, crashed, or ran out of memory."""


class Executor(ABC):
    """Runs a task on cells.

    The task never raises for a fault of the cell (see
    :class:`~scalinglimits.sweeps.outcome.CellTask`); whatever an executor raises ends the
    sweep, and the outcomes that it had yielded are kept. A process must run one cell at a time,
    since the number of threads is a setting of the process.

    Example:
        >>> class Backwards(Executor):
        ...     def run(self, task, cells):
        ...         for index in reversed(range(len(cells))):
        ...             yield index, task(cells[index])
        >>> from scalinglimits.sweeps import sweep
        >>> result = sweep(lambda x, seed: {"y": x + 1}, {"x": [1, 2]}, executor=Backwards())
        >>> result.array("y").ravel()
        array([2, 3])
    """

    @abstractmethod
    def run(self, task: Task, cells: Sequence[Cell]) -> Iterator[tuple[int, Outcome]]:
        """Yield each cell's position and outcome as soon as it is there.

        Args:
            task: What to run; picklable if the function in it is.
            cells: The cells to run it on.

        Yields:
            Position in `cells`, and the outcome; every position once, in any order.
        """


class SerialExecutor(Executor):
    """Runs the cells one after another in this process."""

    def run(self, task: Task, cells: Sequence[Cell]) -> Iterator[tuple[int, Outcome]]:
        """Run the cells in order.

        Args:
            task: What to run.
            cells: The cells to run it on.

        Yields:
            Position and outcome of each cell.
        """
        for index, cell in enumerate(cells):
            yield index, task(cell)


class JoblibExecutor(Executor):
    """Runs the cells in worker processes of this machine (joblib's loky backend).

    Functions defined in a script, in a notebook or in another function work too: joblib sends them
    by value.

    Args:
        n_jobs: Number of processes; None for one a core.

    Raises:
        TypeError: If `n_jobs` is no integer.
        ValueError: If `n_jobs` is less than 1.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        if n_jobs is not None:
            if isinstance(n_jobs, bool) or not isinstance(n_jobs, int):
                raise TypeError(f"`n_jobs` must be None or an integer; got {n_jobs!r}")
            if n_jobs < 1:
                raise ValueError(f"`n_jobs` must be at least 1; got {n_jobs}")
        self.n_jobs = n_jobs

    def run(self, task: Task, cells: Sequence[Cell]) -> Iterator[tuple[int, Outcome]]:
        """Run the cells in worker processes.

        Args:
            task: What to run.
            cells: The cells to run it on.

        Yields:
            Position and outcome of each cell, as they finish.

        Raises:
            WorkerLostError: If a worker process dies.
            TypeError: If the function cannot be sent to a worker.
        """
        import joblib

        n_jobs = min(self.n_jobs or joblib.cpu_count(), max(len(cells), 1))
        # One thread from the moment a worker loads its libraries; the configuration must not
        # outlive this block, or it would leak to the caller between two yields.
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        calls = (joblib.delayed(_numbered)(task, index, cell) for index, cell in enumerate(cells))
        outcomes = parallel(calls)
        try:
            # Not `yield from`: it would close joblib's generator outside the block below.
            for outcome in outcomes:  # noqa: UP028
                yield outcome
        except BrokenProcessPool as lost:
            raise WorkerLostError(
                "a worker process died (killed, crashed or out of memory); "
                "the cells finished before are kept, and a second run resumes from them"
            ) from lost
        except PicklingError as unsent:
            raise TypeError(
                f"`function` must be picklable to run in worker processes; got {unsent}"
            ) from unsent
        finally:
            with warnings.catch_warnings():
                # Whoever stops early knows that the remaining cells are cancelled.
                warnings.filterwarnings("ignore", message=".*been cancelled|.*not used")
                outcomes.close()


def _numbered(task: Task, index: int, cell: Cell) -> tuple[int, Any]:
    return index, task(cell)
