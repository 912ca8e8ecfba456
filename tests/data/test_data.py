"""Loaders: what they read, and that a wrong file is an error that names it."""

import gzip

import numpy as np
import pytest

from scalinglimits.data import (
    load_digits,
    load_features,
    load_idx,
    load_text,
    minibatches,
)


def test_digits_are_real_images_in_unit_range():
    X, y = load_digits()
    assert X.shape == (1797, 64)
    assert X.dtype == np.float32
    assert X.min() == 0
    assert X.max() == 1
    assert np.bincount(y).min() > 170


def test_csv_with_and_without_target(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n1,2,3\n4,5,6\n")
    X, y = load_features(path)
    assert y is None
    np.testing.assert_array_equal(X, [[1, 2, 3], [4, 5, 6]])
    X, y = load_features(path, target="b")
    np.testing.assert_array_equal(X, [[1, 3], [4, 6]])
    np.testing.assert_array_equal(y, [2, 5])


def test_npz_by_name_or_as_the_only_table(tmp_path):
    path = tmp_path / "table.npz"
    X = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    np.savez(path, X=X, y=[1, 2, 3], other=np.zeros((3, 3)))
    features, target = load_features(path)
    np.testing.assert_array_equal(features, X.reshape(3, 4))
    np.testing.assert_array_equal(target, [1, 2, 3])
    np.savez(path, images=X)
    assert load_features(path)[1] is None
    np.save(tmp_path / "table.npy", X)
    np.testing.assert_array_equal(load_features(tmp_path / "table.npy")[0], X.reshape(3, 4))


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("a.txt", "1", None, "must end in"),
        ("a.csv", "a,b\n1,x\n", None, "must hold numbers only; got text in column b"),
        ("a.csv", "a,b\n1,2\n", "z", "must be a column of"),
        ("a.csv", "a,b\n1,\n", None, "must hold finite numbers; got NaN"),
        ("a.csv", "1,2,3\n4,5,6\n", None, "must begin with a header of column names; got numbers"),
        ("a.csv", "", None, "must be a CSV table"),
        ("a.npz", "no zip", None, "must be an NPZ file"),
        ("a.npy", "no npy", None, "must be an NPY file"),
        ("a.npy", "", "y", "must be None for an NPY file"),
    ],
)
def test_wrong_files_are_named(tmp_path, name, content, target, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        load_features(path, target=target)


def test_a_header_of_numbered_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("0,1\n4,5\n")
    assert load_features(path)[0].tolist() == [[4.0, 5.0]]


def test_missing_file():
    with pytest.raises(FileNotFoundError, match="must be an existing file; got 'nowhere"):
        load_features("nowhere.csv")


@pytest.mark.parametrize(
    ("arrays", "target", "message"),
    [
        ({"a": np.ones((2, 2)), "b": np.ones((2, 2))}, None, "must hold its features as X"),
        ({"X": np.ones((2, 2)), "y": np.ones(3)}, None, "one target a sample"),
        ({"X": np.ones((2, 2))}, "z", "must be an array of"),
        ({"X": np.array([["a"]])}, None, "must hold real numbers"),
        ({"X": np.ones((2, 0))}, None, r"features of shape \(n, d\)"),
        ({"X": np.array([[1, np.inf]])}, None, "NaN or infinity in its features"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, target, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_features(tmp_path / "a.npz", target=target)


def idx_bytes(array, code):
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize(
    ("dtype", "code"),
    [("u1", 8), ("i1", 9), ("i2", 11), ("i4", 12), ("f4", 13), ("f8", 14)],
)
@pytest.mark.parametrize("compress", [False, True])
def test_idx_round_trip(tmp_path, dtype, code, compress):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    content = idx_bytes(array, code)
    path = tmp_path / "images-idx3"
    path.write_bytes(gzip.compress(content) if compress else content)
    read = load_idx(path)
    np.testing.assert_array_equal(read, array)
    assert read.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PNG!", "must be an IDX file"),
        (b"", "must be an IDX file"),
        (idx_bytes(np.zeros(3, "u1"), 8)[:-1], r"must hold 11 bytes for the shape \(3,\)"),
        (idx_bytes(np.zeros((3, 3), "u1"), 8)[:6], "must hold"),
        (gzip.compress(idx_bytes(np.zeros(3, "u1"), 8), mtime=0)[:-3], "must be a whole gzip file"),
    ],
)
def test_wrong_idx_is_named(tmp_path, content, message):
    path = tmp_path / "wrong"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_idx(path)
    with pytest.raises(FileNotFoundError, match="must be an existing file"):
        load_idx(tmp_path / "nowhere")


def test_text(tmp_path):
    text = load_text()
    assert text.decode(text.tokens).startswith("Alice was beginning to get very tired")
    assert len(text.tokens) > 3000
    assert list(text.symbols) == sorted(set(text.symbols))
    path = tmp_path / "own.txt"
    path.write_text("naïve €", "utf-8")
    own = load_text(path)
    assert own.decode(own.tokens) == "naïve €"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ValueError, match="must be UTF-8 text"):
        load_text(path)
    path.write_text("")
    with pytest.raises(ValueError, match="must hold some text"):
        load_text(path)
    with pytest.raises(FileNotFoundError, match="must be an existing file"):
        load_text(tmp_path / "nowhere.txt")


def test_minibatches_cover_an_epoch_and_resume():
    batches = list(minibatches(20, 5, seed=3, steps=9))
    for epoch in range(2):
        seen = np.sort(np.concatenate(batches[4 * epoch : 4 * epoch + 4]))
        np.testing.assert_array_equal(seen, np.arange(20))
    assert not np.array_equal(batches[0], batches[4])
    resumed = list(minibatches(20, 5, seed=3, start=6, steps=3))
    np.testing.assert_array_equal(np.stack(batches[6:]), np.stack(resumed))
    assert not np.array_equal(batches[0], next(minibatches(20, 5, seed=4)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "`size` must be an integer of at least 1; got 0"),
        ((5, 0), "`batch_size` must be an integer of at least 1"),
        ((5, 6), "`batch_size` must be at most the size 5; got 6"),
        ((5, 2.0), "`batch_size` must be an integer"),
    ],
)
def test_wrong_minibatches(arguments, message):
    with pytest.raises(ValueError, match=message):
        minibatches(*arguments)
