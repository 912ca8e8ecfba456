"""Loaders: what they read, and that a wrong file is an error that names it."""

import numpy as np
import pytest

from scalinglimits.data import load_digits, load_features


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
