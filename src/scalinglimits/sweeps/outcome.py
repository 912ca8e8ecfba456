"""One cell's run, and the form in which its values travel and are kept.

A function returns a mapping from name to value. Numbers, strings, booleans and None become JSON,
NumPy arrays become an `.npz` archive without pickles. The worker encodes and the parent stores, so
every executor goes the same way, and a value read back equals the value returned: floats to the
last bit, arrays with their dtype and shape.
"""

from __future__ import annotations

__all__ = ["CellTask", "Outcome", "decode_values", "encode_values"]

import io
import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from scalinglimits.sweeps._threads import single_thread
from scalinglimits.sweeps.grid import RESERVED_NAMES, Cell


@dataclass(frozen=True)
class Outcome:
    """What came of one cell.

    Attributes:
        status: `"done"` or `"failed"`.
        scalars: JSON object of the numbers, strings, booleans and None.
        array_names: JSON list of the arrays' names.
        arrays: `.npz` archive of the arrays in that order, or None if there are none.
        error: The traceback of a failed cell.
        seconds: Run time.
        started: Start, ISO 8601 in UTC.
        finished: End, ISO 8601 in UTC.
    """

    status: str
    scalars: str
    array_names: str
    arrays: bytes | None
    error: str | None
    seconds: float
    started: str
    finished: str


@dataclass(frozen=True)
class CellTask:
    """Run a function on a cell, with one thread, and return an outcome instead of raising.

    This is what an executor sends to its workers. An exception becomes a failed outcome;
    `KeyboardInterrupt` is passed on.

    Attributes:
        function: Called as `function(**config, seed=seed)`.

    Example:
        >>> from scalinglimits.sweeps import expand_grid
        >>> def square(x, seed):
        ...     return {"y": x * x}
        >>> (cell,) = expand_grid({"x": [3]})
        >>> CellTask(square)(cell).scalars
        '{"y": 9}'
    """

    function: Callable[..., Mapping[str, Any]]

    def __call__(self, cell: Cell) -> Outcome:
        """Run the cell.

        Args:
            cell: The cell to run.

        Returns:
            Its outcome, done or failed.
        """
        started, clock = _now(), time.perf_counter()
        scalars, array_names, arrays, error = "{}", "[]", None, None
        try:
            with single_thread():
                values = self.function(**cell.config, seed=cell.seed)
            scalars, array_names, arrays = encode_values(values, taken=cell.config)
        # A cell that calls sys.exit must not take the sweep with it.
        except (Exception, SystemExit) as caught:
            frames = caught.__traceback__ and caught.__traceback__.tb_next  # without this file's
            error = "".join(traceback.format_exception(type(caught), caught, frames))
        return Outcome(
            status="done" if error is None else "failed",
            scalars=scalars,
            array_names=array_names,
            arrays=arrays,
            error=error,
            seconds=time.perf_counter() - clock,
            started=started,
            finished=_now(),
        )


def encode_values(
    values: Mapping[str, Any], taken: Mapping[str, Any] | tuple[str, ...] = ()
) -> tuple[str, str, bytes | None]:
    """Write a cell's values as JSON and `.npz`.

    Args:
        values: Name to number, string, boolean, None or NumPy array.
        taken: Names that the values may not use, besides those of the result table.

    Returns:
        JSON of the scalars, JSON list of the arrays' names, and the archive (None without arrays).

    Raises:
        TypeError: If the values are no mapping, or one of them is of another kind.
        ValueError: If a name is taken.
    """
    if not isinstance(values, Mapping):
        raise TypeError(
            f"`function` must return a mapping from name to value; got {type(values).__name__}"
        )
    scalars: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"`function` must return strings as names; got {name!r}")
        if name in RESERVED_NAMES or name in taken:
            raise ValueError(
                f"`function` must not return the name of a configuration value or one of "
                f"{RESERVED_NAMES}; got {name!r}"
            )
        if isinstance(value, np.ndarray):
            arrays[name] = _storable_array(value, name)
        else:
            scalars[name] = _storable_scalar(value, name)
    blob = None
    if arrays:
        buffer = io.BytesIO()
        # Numbered entries: a name need not be a valid file name or argument name.
        np.savez(buffer, *arrays.values())
        blob = buffer.getvalue()
    return json.dumps(scalars), json.dumps(list(arrays)), blob


def decode_values(scalars: str, array_names: str, arrays: bytes | None) -> dict[str, Any]:
    """Read what :func:`~scalinglimits.sweeps.outcome.encode_values` wrote.

    Args:
        scalars: JSON of the scalars.
        array_names: JSON list of the arrays' names.
        arrays: The archive, or None.

    Returns:
        Name to value: the scalars, then the arrays.
    """
    values: dict[str, Any] = json.loads(scalars)
    if arrays is not None:
        with np.load(io.BytesIO(arrays), allow_pickle=False) as archive:
            for position, name in enumerate(json.loads(array_names)):
                values[name] = archive[f"arr_{position}"]
    return values


def _storable_scalar(value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(
        f"`function` must return numbers, strings, booleans, None or NumPy arrays; "
        f"got {name!r} of type {type(value).__name__}"
    )


def _storable_array(value: np.ndarray, name: str) -> np.ndarray:
    if value.dtype.hasobject or isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"`function` must return arrays without objects and masks; "
            f"got {name!r} of type {type(value).__name__} and dtype {value.dtype}"
        )
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
