"""The store's file: what it holds, who may open it, what it refuses."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from scalinglimits import __version__
from scalinglimits.sweeps import CellTask, SweepStore, expand_grid, load, sweep


def double(x, seed):
    return {"y": 2 * x, "v": np.arange(x)}


def triple(x, seed):
    return {"y": 3 * x}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.sqlite"


def test_rows_can_be_read_with_sql(path):
    sweep(double, {"x": [1, 2]}, seeds=2, store=path)
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT config, replicate, status, json_extract(scalars, '$.y'), seconds >= 0, "
        "started <= finished, version FROM cells ORDER BY position"
    ).fetchall()
    mode = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    assert rows == [
        (f'{{"x": {x}}}', r, "done", 2 * x, 1, 1, __version__) for x in (1, 2) for r in (0, 1)
    ]
    assert mode == ("wal",)


def test_closed_store_is_one_file(path):
    sweep(double, {"x": [1]}, store=path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_one_file_holds_several_sweeps(path):
    sweep(double, {"x": [2]}, store=path, name="double")
    sweep(triple, {"x": [2]}, store=path, name="triple")
    with SweepStore(path) as store:
        assert store.names() == ["double", "triple"]
        assert store.load("triple").cells[0].values == {"y": 6}
    assert load(path, "double").cells[0].values["y"] == 4
    with pytest.raises(ValueError, match=r"`name` must be one of .*\['double', 'triple'\].* None"):
        load(path)
    with pytest.raises(ValueError, match=r"`name` must be one of .* got 'other'"):
        load(path, "other")


def test_another_function_or_root_seed_is_refused(path):
    sweep(double, {"x": [1]}, store=path)
    with pytest.raises(ValueError, match=r"the same function .*double with seed 0; got .*triple"):
        sweep(triple, {"x": [1]}, store=path)
    with pytest.raises(ValueError, match=r"with seed 0; got .* seed 1. Use another `name`"):
        sweep(double, {"x": [1]}, store=path, seed=1)
    assert load(path).cells[0].values["y"] == 2


def test_large_root_seed(path):
    sweep(double, {"x": [1]}, store=path, seed=2**80)
    assert load(path).seed == 2**80


def test_store_opened_twice(path):
    """A reader sees each cell as soon as it is saved; two writers do not disturb each other."""
    cells = expand_grid({"x": [1, 2]})
    with SweepStore(path) as writer, SweepStore(path) as other:
        writer.register("s", "f", 0, cells)
        other.register("s", "f", 0, cells)
        writer.save("s", cells[0], CellTask(double)(cells[0]))
        assert [cell.status for cell in other.load("s").cells] == ["done", "pending"]
        other.save("s", cells[1], CellTask(double)(cells[1]))
        assert [cell.values["y"] for cell in writer.load("s").cells] == [2, 4]
        assert set(writer.statuses("s").values()) == {"done"}


def test_sweep_inside_a_cell_of_the_same_store(path):
    def outer(x, seed):
        return {"y": int(sweep(double, {"x": [x]}, store=path, name="inner").array("y")[0, 0])}

    assert sweep(outer, {"x": [1, 2]}, store=path, name="outer").array("y").ravel().tolist() == [
        2,
        4,
    ]


def test_file_that_is_not_sqlite_is_refused_and_left_alone(path):
    path.write_text("some notes that are long enough not to look like an empty file" * 20)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"`store` must be a SQLite file; got .*s\.sqlite"):
        sweep(double, {"x": [1]}, store=path)
    assert path.read_bytes() == before


def test_sqlite_file_of_something_else_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE cells (a)")
    connection.close()
    with pytest.raises(ValueError, match=r"made by scalinglimits.sweeps; got .*s\.sqlite"):
        sweep(double, {"x": [1]}, store=path)


def test_store_of_another_format_is_refused(path):
    sweep(double, {"x": [1]}, store=path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ValueError, match=r"`store` must be of format 1; got .* of format 99"):
        load(path)


def test_missing_folder_and_missing_file(path):
    with pytest.raises(ValueError, match=r"`store` must be a file in an existing folder; got"):
        sweep(double, {"x": [1]}, store=path / "missing" / "s.sqlite")
    with pytest.raises(FileNotFoundError, match=r"must be an existing file; got .*s\.sqlite"):
        load(path)
    assert not path.exists()


def test_pickles_are_never_read(path):
    sweep(double, {"x": [1]}, store=path)
    import io

    buffer = io.BytesIO()
    np.savez(buffer, np.array([{}], dtype=object))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE cells SET arrays = ?", (buffer.getvalue(),))
    connection.commit()
    connection.close()
    with pytest.raises(ValueError, match=r"allow_pickle=False"):
        load(path)
