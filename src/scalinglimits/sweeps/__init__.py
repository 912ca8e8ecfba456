"""Grids of computations: run them on any number of workers, store them, resume them.

- :mod:`~scalinglimits.sweeps.grid`: configurations, cells and their seeds;
- :mod:`~scalinglimits.sweeps.outcome`: one cell's run, and what may come back from it;
- :mod:`~scalinglimits.sweeps.executors`: where the cells run;
- :mod:`~scalinglimits.sweeps.store`: the SQLite file that keeps them;
- :mod:`~scalinglimits.sweeps.result`: the record that a sweep returns;
- :mod:`~scalinglimits.sweeps.run`: `sweep` and `load`.
"""

from __future__ import annotations

__all__ = [
    "Cell",
    "CellResult",
    "CellTask",
    "Executor",
    "JoblibExecutor",
    "Outcome",
    "SerialExecutor",
    "SweepError",
    "SweepResult",
    "SweepStore",
    "WorkerLostError",
    "canonical_json",
    "cell_seed",
    "expand_grid",
    "load",
    "sweep",
]

from scalinglimits.sweeps.executors import Executor, JoblibExecutor, SerialExecutor, WorkerLostError
from scalinglimits.sweeps.grid import Cell, canonical_json, cell_seed, expand_grid
from scalinglimits.sweeps.outcome import CellTask, Outcome
from scalinglimits.sweeps.result import CellResult, SweepError, SweepResult
from scalinglimits.sweeps.run import load, sweep
from scalinglimits.sweeps.store import SweepStore
