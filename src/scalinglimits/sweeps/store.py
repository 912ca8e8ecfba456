"""The SQLite file that keeps sweeps: one row a cell, committed as soon as the cell is finished.

One file holds any number of sweeps, told apart by their names. A sweep belongs to one function
(known by its qualified name) and one root seed. Results are JSON and `.npz`, never pickles, so a
store from elsewhere runs no code when it is read. Only the process that runs the sweep writes.
SQLite's write-ahead log keeps the file consistent if that process is killed, and lets others read
meanwhile.
"""

from __future__ import annotations

__all__ = ["SweepStore"]

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from scalinglimits._version import __version__
from scalinglimits.sweeps.grid import Cell
from scalinglimits.sweeps.outcome import Outcome, decode_values
from scalinglimits.sweeps.result import CellResult, SweepResult

_APPLICATION_ID = 0x5C41_1175  # marks the SQLite file as ours
_FORMAT = 1
_LOCK_SECONDS = 60.0

_SCHEMA = """
CREATE TABLE sweeps (
    name TEXT PRIMARY KEY,
    function TEXT NOT NULL,
    seed TEXT NOT NULL
);
CREATE TABLE cells (
    sweep TEXT NOT NULL REFERENCES sweeps (name),
    key TEXT NOT NULL,
    position INTEGER NOT NULL,
    config TEXT NOT NULL,
    replicate INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'done', 'failed')),
    error TEXT,
    scalars TEXT NOT NULL DEFAULT '{}',
    array_names TEXT NOT NULL DEFAULT '[]',
    arrays BLOB,
    seconds REAL,
    started TEXT,
    finished TEXT,
    version TEXT,
    PRIMARY KEY (sweep, key)
);
"""

_COLUMNS = "config, replicate, seed, status, error, seconds, scalars, array_names, arrays"


class SweepStore:
    """An open store.

    Args:
        path: The SQLite file, made if it does not exist; None for a store in memory.

    Raises:
        ValueError: If the file is no SQLite file, or not one of this package, or cannot be opened.

    Example:
        >>> with SweepStore() as store:
        ...     store.names()
        []
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._where = "in memory" if self.path is None else repr(str(self.path))
        try:
            self._connection = sqlite3.connect(
                ":memory:" if self.path is None else self.path,
                timeout=_LOCK_SECONDS,
                isolation_level=None,  # transactions are explicit
            )
        except sqlite3.OperationalError as caught:
            raise ValueError(
                f"`store` must be a file in an existing folder; got {self._where}: {caught}"
            ) from caught
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def names(self) -> list[str]:
        """List the sweeps in the store.

        Returns:
            Their names, oldest first.
        """
        rows = self._connection.execute("SELECT name FROM sweeps ORDER BY rowid")
        return [name for (name,) in rows]

    def register(self, name: str, function: str, seed: int, cells: Sequence[Cell]) -> None:
        """Enter a sweep and its cells; cells that are there keep what they have.

        Args:
            name: The sweep's name.
            function: Qualified name of its function.
            seed: Its root seed.
            cells: Its cells.

        Raises:
            ValueError: If the store holds a sweep of this name with another function or root seed.
        """
        with _Transaction(self._connection):
            row = self._sweep_row(name)
            if row is None:
                self._connection.execute(
                    "INSERT INTO sweeps VALUES (?, ?, ?)", (name, function, str(seed))
                )
            elif row != (function, seed):
                raise ValueError(
                    f"the store {self._where} must hold the same function and root seed under "
                    f"`name` {name!r}: it has {row[0]} with seed {row[1]}; got {function} with "
                    f"seed {seed}. Use another `name` or another `store`"
                )
            self._connection.executemany(
                "INSERT INTO cells (sweep, key, position, config, replicate, seed) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
                "SET position = excluded.position, config = excluded.config",
                (
                    (name, cell.key, i, json.dumps(cell.config), cell.replicate, cell.seed)
                    for i, cell in enumerate(cells)
                ),
            )

    def statuses(self, name: str) -> dict[str, str]:
        """Look up the status of every cell of a sweep.

        Args:
            name: The sweep's name.

        Returns:
            Cell key to `"pending"`, `"done"` or `"failed"`.
        """
        rows = self._connection.execute("SELECT key, status FROM cells WHERE sweep = ?", (name,))
        return dict(rows.fetchall())

    def save(self, name: str, cell: Cell, outcome: Outcome) -> None:
        """Keep a cell's outcome, at once and for good.

        Args:
            name: The sweep's name.
            cell: The cell, entered before.
            outcome: What came of it.
        """
        # A single statement is its own transaction.
        self._connection.execute(
            "UPDATE cells SET status = ?, error = ?, scalars = ?, array_names = ?, arrays = ?, "
            "seconds = ?, started = ?, finished = ?, version = ? WHERE sweep = ? AND key = ?",
            (
                outcome.status,
                outcome.error,
                outcome.scalars,
                outcome.array_names,
                outcome.arrays,
                outcome.seconds,
                outcome.started,
                outcome.finished,
                __version__,
                name,
                cell.key,
            ),
        )

    def load(self, name: str | None = None, cells: Iterable[Cell] | None = None) -> SweepResult:
        """Read a sweep.

        Args:
            name: The sweep's name; may be left out if the store holds only one.
            cells: The cells wanted, in the order wanted; None for all, in the order of the grid
                that was last asked for.

        Returns:
            The record.

        Raises:
            ValueError: If the store has no such sweep, or several and no name was given.
        """
        names = self.names()
        if name is None and len(names) == 1:
            name = names[0]
        row = None if name is None else self._sweep_row(name)
        if name is None or row is None:
            raise ValueError(
                f"`name` must be one of the sweeps {names} in the store {self._where}; got {name!r}"
            )
        if cells is None:
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM cells WHERE sweep = ? ORDER BY position, rowid", (name,)
            ).fetchall()
        else:
            query = f"SELECT {_COLUMNS} FROM cells WHERE sweep = ? AND key = ?"
            rows = [self._connection.execute(query, (name, c.key)).fetchone() for c in cells]
        return SweepResult(
            name=name, function=row[0], seed=row[1], cells=tuple(map(_cell_result, rows))
        )

    def close(self) -> None:
        """Close the file; what was saved stays."""
        self._connection.close()

    def __enter__(self) -> SweepStore:
        """Return the store itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    def _sweep_row(self, name: str) -> tuple[str, int] | None:
        row = self._connection.execute(
            "SELECT function, seed FROM sweeps WHERE name = ?", (name,)
        ).fetchone()
        return None if row is None else (row[0], int(row[1]))

    def _prepare(self) -> None:
        """Check that the file is ours, or make it so if it is empty."""
        execute = self._connection.execute
        try:
            tables = execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables == 0:
                execute("PRAGMA journal_mode = WAL")
                with _Transaction(self._connection):
                    # Another process may have made the tables since the look above.
                    if execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                        for statement in _SCHEMA.split(";"):
                            execute(statement)
                        execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                        execute(f"PRAGMA user_version = {_FORMAT}")
            # Safe when the process is killed; only a power cut may lose the last cells.
            execute("PRAGMA synchronous = NORMAL")
            application = execute("PRAGMA application_id").fetchone()[0]
            written = execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError as caught:
            raise ValueError(
                f"`store` must be a file that can be read and written; got {self._where}: {caught}"
            ) from caught
        except sqlite3.DatabaseError as caught:
            raise ValueError(
                f"`store` must be a SQLite file; got {self._where}: {caught}"
            ) from caught
        if application != _APPLICATION_ID:
            raise ValueError(
                f"`store` must be a file made by scalinglimits.sweeps; got {self._where}, "
                "a SQLite file of something else"
            )
        if written != _FORMAT:
            raise ValueError(
                f"`store` must be of format {_FORMAT}; got {self._where} of format {written}, "
                "written by another version of scalinglimits"
            )


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, or ROLLBACK if the block raises."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


def _cell_result(row: tuple[Any, ...]) -> CellResult:
    config, replicate, seed, status, error, seconds, scalars, array_names, arrays = row
    return CellResult(
        config={name: _tuples(value) for name, value in json.loads(config).items()},
        replicate=replicate,
        seed=seed,
        status=status,
        error=error,
        seconds=seconds,
        values=decode_values(scalars, array_names, arrays),
    )


def _tuples(value: Any) -> Any:
    """JSON's lists back to the tuples that they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
