"""Stacks of repeated blocks, found by comparing two depths."""

import pytest

from scalinglimits.checks.names import Stacks

W = (4, 4)


def test_only_indices_that_grow_with_depth_become_a_star():
    shallow, deep = (
        {f"blocks.{i}.mlp.{j}.weight": W for i in range(depth) for j in (0, 2)} for depth in (2, 4)
    )
    stacks = Stacks.find(shallow, deep)
    assert stacks.places == {"blocks.*"}
    assert stacks.pattern("blocks.3.mlp.2.weight") == "blocks.*.mlp.2.weight"
    assert stacks.pattern("head.weight") == "head.weight"


def test_index_within_a_name():
    deep = {"net.layer_0.w": W, "net.layer_1.w": W}
    stacks = Stacks.find({"net.layer_0.w": W, "net.out": W}, deep)
    assert stacks.places == {"net.layer_*"}
    assert stacks.pattern("net.layer_12.w") == "net.layer_*.w"


def test_stacks_in_stacks():
    def names(stages, blocks):
        return {f"stage.{i}.block.{j}.w": W for i in range(stages) for j in range(blocks)}

    assert Stacks.find(names(2, 2), names(2, 4)).places == {"stage.0.block.*", "stage.1.block.*"}
    both = Stacks.find(names(2, 2), names(4, 4))
    assert both.pattern("stage.3.block.3.w") == "stage.*.block.*.w"


def flat(depth):
    """A first layer, hidden ones with an activation behind each, and a last one."""
    hidden = {f"{2 * k}.weight": W for k in range(1, depth + 1)}
    return {"0.weight": (4, 9), **hidden, f"{2 * depth + 2}.weight": (3, 4)}


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_blocks_among_other_layers(depth):
    stacks = Stacks.find(flat(1), flat(3)).of(flat(depth))
    patterns = [stacks.pattern(name) for name in flat(depth)]
    # The last layer is called as in the shallow model.
    assert patterns == ["0.weight", *["*.weight"] * depth, "4.weight"]
    assert stacks.pattern("1") == "1"
    assert stacks.pattern("*") == "*"


def test_other_layers_that_grow_too_are_no_stack():
    def with_norms(depth):
        norms = {f"{2 * k + 1}.weight": (4,) for k in range(1, depth + 1)}
        return {**flat(depth), **norms}

    def growing_tail(depth):
        return {**flat(depth), f"{2 * depth + 4}.weight": (depth, 3)}

    assert not Stacks.find(with_norms(1), with_norms(3)).places
    assert not Stacks.find(growing_tail(1), growing_tail(3)).places


def test_first_block_may_differ():
    def names(depth):
        return {"h.0.down": (4, 2)} | {f"h.{i}.w": W for i in range(depth)}

    assert Stacks.find(names(2), names(4)).places == {"h.*"}
