"""Features, and a target where there is one, from the user's own CSV, NPY or NPZ file."""

from __future__ import annotations

__all__ = ["load_features"]

import os
from pathlib import Path

import numpy as np
import pandas as pd


def load_features(
    path: str | os.PathLike[str], target: str | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    r"""Read a table of numbers.

    A CSV file has a header and one row a sample. An NPZ file holds the features as ``X`` (or as
    its only two-dimensional array) and the target as ``y`` if it has one. An NPY file holds the
    features alone.

    Args:
        path: file ending in .csv, .npz or .npy.
        target: column of the CSV file, or array of the NPZ file, to take as the target.

    Returns:
        Features, float64 of shape (n, d), and the target of shape (n,) or (n, outputs), or None.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is of another kind, holds no such table or target, or holds
            values that are not finite numbers.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "data.csv"
        ...     _ = path.write_text("a,b,price\n1,2,3\n4,5,6\n")
        ...     load_features(path, target="price")
        (array([[1., 2.],
               [4., 5.]]), array([3., 6.]))
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"`path` must be an existing file; got {str(path)!r}")
    readers = {".csv": _read_csv, ".npz": _read_npz, ".npy": _read_npy}
    if file.suffix.lower() not in readers:
        raise ValueError(f"`path` must end in .csv, .npz or .npy; got {str(path)!r}")
    X, y = readers[file.suffix.lower()](file, target)
    if X.ndim > 2:
        X = X.reshape(len(X), -1)
    if X.ndim != 2 or not X.size:
        raise ValueError(f"{file} must hold features of shape (n, d); got {X.shape}")
    if y is not None and (y.ndim not in (1, 2) or len(y) != len(X)):
        raise ValueError(f"{file} must hold one target a sample; got {y.shape} for {X.shape}")
    for name, values in (("features", X), ("target", y)):
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{file} must hold finite numbers; got NaN or infinity in its {name}")
    return X, y


def _read_csv(file: Path, target: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        table = pd.read_csv(file)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} must be a CSV table; got {error}") from None
    # Numbered columns, 0 to d - 1, are a header as pandas writes it.
    if list(table) != [str(i) for i in range(len(table.columns))] and all(map(_is_number, table)):
        raise ValueError(
            f"{file} must begin with a header of column names; got numbers: {', '.join(table)}"
        )
    text = [str(name) for name, dtype in table.dtypes.items() if dtype.kind not in "biuf"]
    if text:
        raise ValueError(f"{file} must hold numbers only; got text in column {', '.join(text)}")
    if target is None:
        return table.to_numpy(np.float64), None
    if target not in table:
        raise ValueError(
            f"`target` must be a column of {file} ({', '.join(map(str, table))}); got {target!r}"
        )
    return (
        table.drop(columns=target).to_numpy(np.float64),
        table[target].to_numpy(np.float64),
    )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _read_npz(file: Path, target: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{file} must be an NPZ file of numbers; got {error}") from None
    if target is not None and target not in arrays:
        raise ValueError(
            f"`target` must be an array of {file} ({', '.join(arrays)}); got {target!r}"
        )
    tables = [name for name, array in arrays.items() if array.ndim >= 2 and name != target]
    name = "X" if "X" in arrays else tables[0] if len(tables) == 1 else None
    if name is None:
        raise ValueError(
            f"{file} must hold its features as X; got {', '.join(arrays) or 'nothing'}"
        )
    y = arrays.get(target or "y")
    return _numbers(file, arrays[name]), None if y is None else _numbers(file, y)


def _read_npy(file: Path, target: str | None) -> tuple[np.ndarray, np.ndarray | None]:
    if target is not None:
        raise ValueError(f"`target` must be None for an NPY file; got {target!r}")
    try:
        return _numbers(file, np.load(file, allow_pickle=False)), None
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{file} must be an NPY file of numbers; got {error}") from None


def _numbers(file: Path, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{file} must hold real numbers; got an array of {array.dtype}")
    return array.astype(np.float64)
