"""Grids of configurations, the cells they make, and the seed of each cell.

A *configuration* is a mapping from name to a plain value. A *cell* is one configuration and one
replicate. Its seed is a hash of (root seed, configuration, replicate) and of nothing else:

    seed = first 63 bits of SHA-256(canonical JSON of [root seed, configuration, replicate]).

With `seed_by`, only the names given there enter the seed, and cells that agree in them share their
random numbers. A cell's random numbers do not depend on the order of the cells, on the workers, or
on what else is in the grid: a grid may grow later and every old cell keeps its result.
"""

from __future__ import annotations

__all__ = ["Cell", "Grid", "canonical_json", "cell_seed", "expand_grid"]

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Grid = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

# Columns that every result table has; a configuration may not use these names.
RESERVED_NAMES = ("replicate", "seed", "status", "error", "seconds")


@dataclass(frozen=True)
class Cell:
    """One configuration and one replicate.

    Attributes:
        config: Name to plain value (Python numbers, strings, booleans, None, tuples of these).
        replicate: Index of the replicate.
        seed: The cell's seed, in [0, 2^63).
        key: The cell's identity in a store: 64 hexadecimal digits.
    """

    config: Mapping[str, Any]
    replicate: int
    seed: int
    key: str


def expand_grid(
    grid: Grid,
    seeds: int | Sequence[int] = 1,
    *,
    seed: int = 0,
    seed_by: Sequence[str] | None = None,
) -> tuple[Cell, ...]:
    """List the cells of a grid.

    The order is that of nested loops over the names as given: the first name varies slowest, the
    last fastest, and the replicate faster still. NumPy scalars become Python numbers, and lists
    become tuples. `1`, `1.0` and `True` are three different values.

    Args:
        grid: A mapping from name to a sequence of values, of which the full product is taken, or
            a sequence of configurations.
        seeds: How many replicates of each configuration, or the replicates' indices.
        seed: The root seed, a non-negative integer.
        seed_by: Names of the configuration that enter a cell's seed: cells that agree in them (and
            in the replicate) get the same seed, for paired comparisons. None for all names.

    Returns:
        The cells, in order.

    Raises:
        TypeError: If the grid or a value in it is of a kind that has no JSON form.
        ValueError: If the grid is empty, holds NaN, a reserved name or a configuration twice, or
            if a seed is out of range.

    Example:
        >>> cells = expand_grid({"depth": [10, 100], "beta": [0.5]}, seeds=2)
        >>> [(cell.config["depth"], cell.replicate) for cell in cells]
        [(10, 0), (10, 1), (100, 0), (100, 1)]
    """
    replicates = _replicates(seeds)
    root = _integer(seed, "seed", minimum=0)
    if isinstance(grid, Mapping):
        configs = list(_product(grid))
    elif isinstance(grid, Sequence) and not isinstance(grid, (str, bytes)):
        configs = list(_explicit(grid))
    else:
        raise TypeError(
            "`grid` must be a mapping from name to values or a sequence of mappings; "
            f"got {type(grid).__name__}"
        )
    shared = None if seed_by is None else _seed_names(seed_by, configs)
    return tuple(
        _cell(config, replicate, root, shared) for config in configs for replicate in replicates
    )


def cell_seed(config: Mapping[str, Any], replicate: int = 0, *, seed: int = 0) -> int:
    """Derive the seed of one cell from the root seed, its configuration and its replicate.

    Args:
        config: The configuration; the order of its names does not matter.
        replicate: Index of the replicate.
        seed: The root seed.

    Returns:
        An integer in [0, 2^63).

    Raises:
        TypeError: If a value has no JSON form.
        ValueError: If a value is NaN or a name is reserved.

    Example:
        >>> cell_seed({"depth": 10, "beta": 0.5}) == cell_seed({"beta": 0.5, "depth": 10})
        True
        >>> cell_seed({"depth": 10}) == cell_seed({"depth": 10}, replicate=1)
        False
    """
    plain = _plain_config(config, "config")
    replicate = _integer(replicate, "replicate", minimum=0)
    return _cell(plain, replicate, _integer(seed, "seed", minimum=0)).seed


def canonical_json(value: Any) -> str:
    """Write plain values as JSON in one way only: sorted names, no spaces, shortest floats.

    Infinities are written as `Infinity` and `-Infinity`, as Python's `json` reads them.

    Args:
        value: A plain value, or mappings and sequences of plain values.

    Returns:
        The JSON text.

    Example:
        >>> canonical_json({"b": (1, 2.5), "a": None})
        '{"a":null,"b":[1,2.5]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def plain_value(value: Any, name: str) -> Any:
    """Turn a value into plain Python, or say why that cannot be done.

    Args:
        value: A number, string, boolean, None, NumPy scalar, or a list or tuple of these.
        name: How error messages call it.

    Returns:
        The plain value: lists have become tuples, NumPy scalars Python numbers.

    Raises:
        TypeError: If the value is of another kind.
        ValueError: If it is NaN.
    """
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if math.isnan(value):
            raise ValueError(f"`{name}` must not be NaN, which equals nothing; got {value!r}")
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(item, name) for item in value)
    raise TypeError(
        f"`{name}` must be a number, string, boolean, None or a list of these; "
        f"got {type(value).__name__}"
    )


def _product(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Nested loops over the axes, the last one fastest; an empty mapping makes one cell."""
    axes: dict[str, list[Any]] = {}
    for name, values in grid.items():
        _check_name(name, "grid")
        where = f"grid[{name!r}]"
        is_vector = isinstance(values, np.ndarray) and values.ndim == 1
        is_sequence = isinstance(values, Sequence) and not isinstance(values, (str, bytes))
        if not (is_vector or is_sequence):
            raise TypeError(f"`{where}` must be a sequence of values; got {values!r}")
        if len(values) == 0:
            raise ValueError(f"`{where}` must have at least one value; got none")
        axes[name] = [plain_value(value, where) for value in values]
        seen: set[str] = set()
        for value in axes[name]:
            text = canonical_json(value)
            if text in seen:
                raise ValueError(f"`{where}` must have distinct values; got {value!r} twice")
            seen.add(text)
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _explicit(grid: Sequence[Any]) -> Iterator[dict[str, Any]]:
    if len(grid) == 0:
        raise ValueError("`grid` must have at least one configuration; got none")
    seen: set[str] = set()
    for position, config in enumerate(grid):
        if not isinstance(config, Mapping):
            raise TypeError(
                f"`grid[{position}]` must be a mapping from name to value; "
                f"got {type(config).__name__}"
            )
        plain = _plain_config(config, f"grid[{position}]")
        text = canonical_json(plain)
        if text in seen:
            raise ValueError(f"`grid` must have distinct configurations; got {plain!r} twice")
        seen.add(text)
        yield plain


def _plain_config(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    plain = {}
    for name, value in config.items():
        _check_name(name, where)
        plain[name] = plain_value(value, f"{where}[{name!r}]")
    return plain


def _check_name(name: Any, where: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"`{where}` must have strings as names; got {name!r}")
    if name in RESERVED_NAMES:
        raise ValueError(f"`{where}` must not use the names {RESERVED_NAMES}; got {name!r}")


def _replicates(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, (int, np.integer)):
        return list(range(_integer(seeds, "seeds", minimum=1)))
    if not isinstance(seeds, (Sequence, np.ndarray)) or isinstance(seeds, (str, bytes)):
        raise TypeError(
            "`seeds` must be a number of replicates or a sequence of their indices; "
            f"got {type(seeds).__name__}"
        )
    replicates = [_integer(index, "seeds", minimum=0) for index in seeds]
    if not replicates or len(set(replicates)) < len(replicates):
        raise ValueError(f"`seeds` must be distinct indices, at least one; got {replicates}")
    return replicates


def _integer(value: Any, name: str, minimum: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{name}` must be an integer; got {value!r}")
    if value < minimum:
        raise ValueError(f"`{name}` must be at least {minimum}; got {value}")
    return int(value)


def _seed_names(seed_by: Sequence[str], configs: list[dict[str, Any]]) -> list[str]:
    if isinstance(seed_by, str) or not all(isinstance(name, str) for name in seed_by):
        raise TypeError(f"`seed_by` must be a sequence of names; got {seed_by!r}")
    for name in seed_by:
        if any(name not in config for config in configs):
            raise ValueError(f"`seed_by` must name what every configuration has; got {name!r}")
    return sorted(seed_by)


def _cell(
    config: dict[str, Any], replicate: int, root: int, seed_by: list[str] | None = None
) -> Cell:
    identity: list[Any] = [root, config, replicate]
    if seed_by is None:
        digest = hashlib.sha256(canonical_json(identity).encode()).digest()
        source = digest
    else:
        # Another choice of names is another cell: a store must not confuse them.
        digest = hashlib.sha256(canonical_json([*identity, seed_by]).encode()).digest()
        part = {name: config[name] for name in seed_by}
        source = hashlib.sha256(canonical_json([root, part, replicate]).encode()).digest()
    seed = int.from_bytes(source[:8], "big") >> 1
    return Cell(config=config, replicate=replicate, seed=seed, key=digest.hex())
