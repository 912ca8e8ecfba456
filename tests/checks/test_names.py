"""Stacks of repeated blocks, found by comparing two depths."""

import pytest

from scalinglimits.checks.names import Stacks


def test_only_indices_that_grow_with_depth_become_a_star():
    shallow = [f"blocks.{i}.mlp.{j}.weight" for i in range(2) for j in (0, 2)]
    deep = [f"blocks.{i}.mlp.{j}.weight" for i in range(4) for j in (0, 2)]
    stacks = Stacks.find(shallow, deep)
    assert stacks.places == {"blocks.*"}
    assert stacks.pattern("blocks.3.mlp.2.weight") == "blocks.*.mlp.2.weight"
    assert stacks.pattern("head.weight") == "head.weight"


def test_index_within_a_name():
    stacks = Stacks.find(["net.layer_0.w", "net.out"], ["net.layer_0.w", "net.layer_1.w"])
    assert stacks.places == {"net.layer_*"}
    assert stacks.pattern("net.layer_12.w") == "net.layer_*.w"


def test_stacks_in_stacks():
    shallow = [f"stage.{i}.block.{j}.w" for i in range(2) for j in range(2)]
    deep = [f"stage.{i}.block.{j}.w" for i in range(2) for j in range(4)]
    stacks = Stacks.find(shallow, deep)
    assert stacks.places == {"stage.0.block.*", "stage.1.block.*"}
    wide = [f"stage.{i}.block.{j}.w" for i in range(4) for j in range(4)]
    assert Stacks.find(shallow, wide).places == {"stage.*", "stage.*.block.*"} or (
        "stage.*" in Stacks.find(shallow, wide).places
    )


@pytest.mark.parametrize(
    ("name", "block"),
    [("h.11.mlp.0.weight", "h.11"), ("h.0", "h.0"), ("head.weight", None), ("h", None)],
)
def test_block_of_a_name(name, block):
    assert Stacks(frozenset({"h.*"})).block(name) == block
