"""Configurations, cells and seeds."""

from __future__ import annotations

import enum
import math

import numpy as np
import pytest

from scalinglimits.sweeps import canonical_json, cell_seed, expand_grid


class Branch(enum.StrEnum):
    RES1 = "res-1"


def test_product_order_is_nested_loops_with_replicates_fastest():
    cells = expand_grid({"b": [2, 1], "a": ["x", "y"]}, seeds=2)
    expected = [(b, a, r) for b in (2, 1) for a in ("x", "y") for r in (0, 1)]
    assert [(c.config["b"], c.config["a"], c.replicate) for c in cells] == expected
    assert list(cells[0].config) == ["b", "a"]


def test_explicit_configurations_keep_their_order_and_may_have_different_names():
    cells = expand_grid([{"x": 2}, {"x": 1, "extra": True}])
    assert [c.config for c in cells] == [{"x": 2}, {"x": 1, "extra": True}]


def test_empty_mapping_makes_one_configuration():
    assert [c.replicate for c in expand_grid({}, seeds=3)] == [0, 1, 2]


def test_values_become_plain_python():
    values = [np.int32(3), np.float64(0.1), np.bool_(True), None, [1, [2.0]], Branch.RES1, math.inf]
    plain = [c.config["v"] for c in expand_grid({"v": values})]
    assert plain == [3, 0.1, True, None, (1, (2.0,)), "res-1", math.inf]
    kinds = [int, float, bool, type(None), tuple, str, float]
    assert [type(value) for value in plain] == kinds


def test_vector_and_range_are_sequences_of_values():
    cells = expand_grid({"a": np.linspace(0, 1, 3), "b": range(2)})
    assert [tuple(c.config.values()) for c in cells] == [
        (a, b) for a in (0.0, 0.5, 1.0) for b in (0, 1)
    ]


def test_seed_is_the_documented_hash():
    import hashlib

    (cell,) = expand_grid({"depth": [10], "beta": [0.5]}, seeds=[4], seed=7)
    digest = hashlib.sha256(b'[7,{"beta":0.5,"depth":10},4]').digest()
    assert cell.seed == int.from_bytes(digest[:8], "big") >> 1
    assert cell.key == digest.hex()
    assert cell.seed == cell_seed({"beta": 0.5, "depth": 10}, 4, seed=7)
    assert 0 <= cell.seed < 2**63


def test_enlarging_a_grid_changes_no_other_cell():
    small = expand_grid({"a": [1, 3], "b": [0.5]}, seeds=2)
    large = expand_grid({"b": [0.25, 0.5], "a": [3, 2, 1]}, seeds=5)
    seeds = {(c.config["a"], c.config["b"], c.replicate): c.seed for c in large}
    assert all(seeds[c.config["a"], c.config["b"], c.replicate] == c.seed for c in small)


def test_seeds_are_distinct():
    cells = expand_grid({"a": [1, 1.0, True, "1", (1,), None]}, seeds=100)
    assert len({c.seed for c in cells}) == len({c.key for c in cells}) == 600


def test_root_seed_changes_every_seed():
    zero, one = (expand_grid({"a": range(5)}, seed=s) for s in (0, 1))
    assert {c.seed for c in zero}.isdisjoint(c.seed for c in one)


def test_canonical_json_sorts_names_and_writes_shortest_floats():
    assert canonical_json({"b": 0.1, "a": (1, "é")}) == '{"a":[1,"\\u00e9"],"b":0.1}'


@pytest.mark.parametrize(
    ("grid", "error", "match"),
    [
        (3, TypeError, "`grid` must be a mapping from name to values or a sequence .* got int"),
        ("ab", TypeError, "`grid` must be a mapping .* got str"),
        ([], ValueError, "`grid` must have at least one configuration; got none"),
        ([1], TypeError, r"`grid\[0\]` must be a mapping from name to value; got int"),
        ({"a": []}, ValueError, r"`grid\['a'\]` must have at least one value; got none"),
        ({"a": 3}, TypeError, r"`grid\['a'\]` must be a sequence of values; got 3"),
        ({"a": "xy"}, TypeError, r"`grid\['a'\]` must be a sequence of values; got 'xy'"),
        ({"a": {1, 2}}, TypeError, r"`grid\['a'\]` must be a sequence of values; got {1, 2}"),
        ({"a": np.eye(2)}, TypeError, r"`grid\['a'\]` must be a sequence of values"),
        ({"a": [object()]}, TypeError, r"`grid\['a'\]` must be a number, .* got object"),
        ({"a": [1j]}, TypeError, r"`grid\['a'\]` must be a number, .* got complex"),
        ([{"a": {"b": 1}}], TypeError, r"`grid\[0\]\['a'\]` must be a number, .* got dict"),
        ({"a": [float("nan")]}, ValueError, r"`grid\['a'\]` must not be NaN"),
        ({"a": [(1, np.nan)]}, ValueError, r"`grid\['a'\]` must not be NaN"),
        ({"a": [1, 2, 1]}, ValueError, r"`grid\['a'\]` must have distinct values; got 1 twice"),
        (
            [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
            ValueError,
            "`grid` must have distinct configurations; got {'b': 2, 'a': 1} twice",
        ),
        ({1: [1]}, TypeError, "`grid` must have strings as names; got 1"),
        ({"seed": [1]}, ValueError, "`grid` must not use the names .* got 'seed'"),
        ([{"status": 1}], ValueError, r"`grid\[0\]` must not use the names .* got 'status'"),
    ],
)
def test_bad_grid(grid, error, match):
    with pytest.raises(error, match=match):
        expand_grid(grid)


@pytest.mark.parametrize(
    ("seeds", "error", "match"),
    [
        (0, ValueError, "`seeds` must be at least 1; got 0"),
        (True, TypeError, "`seeds` must be an integer; got True"),
        (2.0, TypeError, "`seeds` must be a number of replicates or .* got float"),
        ("12", TypeError, "`seeds` must be a number of replicates or .* got str"),
        ([], ValueError, r"`seeds` must be distinct indices, at least one; got \[\]"),
        ([1, 1], ValueError, r"`seeds` must be distinct indices, at least one; got \[1, 1\]"),
        ([-1], ValueError, "`seeds` must be at least 0; got -1"),
        ([0.5], TypeError, "`seeds` must be an integer; got 0.5"),
    ],
)
def test_bad_seeds(seeds, error, match):
    with pytest.raises(error, match=match):
        expand_grid({"a": [1]}, seeds)


def test_bad_root_seed():
    with pytest.raises(ValueError, match=r"`seed` must be at least 0; got -1"):
        expand_grid({"a": [1]}, seed=-1)
    with pytest.raises(TypeError, match=r"`seed` must be an integer; got None"):
        expand_grid({"a": [1]}, seed=None)
    with pytest.raises(TypeError, match=r"`replicate` must be an integer; got 0.5"):
        cell_seed({"a": 1}, 0.5)


def test_cells_that_agree_in_seed_by_share_their_seed():
    grid = {"depth": [1, 2], "beta": [0.5, 1.0]}
    cells = expand_grid(grid, seeds=2, seed=3, seed_by=["depth"])
    seeds = {
        (cell.config["depth"], cell.config["beta"], cell.replicate): cell.seed for cell in cells
    }
    for depth in (1, 2):
        for replicate in (0, 1):
            assert seeds[depth, 0.5, replicate] == seeds[depth, 1.0, replicate]
    assert len(set(seeds.values())) == 4
    assert len({cell.key for cell in cells}) == 8
    plain = {cell.key for cell in expand_grid(grid, seeds=2, seed=3)}
    assert plain.isdisjoint(cell.key for cell in cells)


@pytest.mark.parametrize(
    ("seed_by", "error", "message"),
    [
        ("depth", TypeError, "`seed_by` must be a sequence of names; got 'depth'"),
        (["width"], ValueError, "`seed_by` must name what every configuration has; got 'width'"),
    ],
)
def test_wrong_seed_by(seed_by, error, message):
    with pytest.raises(error, match=message):
        expand_grid({"depth": [1]}, seed_by=seed_by)
