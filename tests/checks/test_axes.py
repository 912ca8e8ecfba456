"""Axes beside width and depth: verdicts, planted faults, groups, records, and bad input."""

import functools
import itertools
import math

import pandas as pd
import pytest
import torch
from separate import BATCH, Transformer, step
from torch import nn

from scalinglimits.checks import ScalingCheck, learning_rate_transfer, scaling_check
from scalinglimits.checks.quantities import expected_exponent, narrowing, use_role
from scalinglimits.checks.verdict import judge
from scalinglimits.figures.check_plots import draw_check, draw_transfer
from scalinglimits.scaling import make_plan

BASE = {"width": 32, "depth": 2, "heads": 4, "head_size": 8, "ffn": 64}
DOWN, OUT = "blocks.*.down.weight", "blocks.*.attention.out.weight"
QUERY, UP = "blocks.*.attention.q.weight", "blocks.*.up.weight"
QUICK = {"seeds": 4, "max_seeds": 4, "steps": 1}

ALONE = {
    "width": (32, 64, 128),
    "heads": (4, 8, 16),
    "head_size": (8, 16, 32),
    "ffn": (64, 128, 256),
}
GROUPED = {
    ("width", "heads", "ffn"): [(32, 4, 64), (64, 8, 256), (128, 16, 1024)],
    "depth": 2,
    "head_size": 8,
}


@functools.cache
def plan():
    return make_plan(Transformer, BASE, BASE, optimizer="adam", example=BATCH[0])


def check(axes, **options):
    return scaling_check(Transformer, step, [BATCH], axes=axes, **QUICK, **options)


@pytest.mark.parametrize("axis", ALONE)
def test_under_the_plan_each_axis_alone_holds(axis):
    found = check(BASE | {axis: ALONE[axis]}, plan=plan())
    assert found.verdict == "holds", str(found)
    assert {finding.axis for finding in found.findings} == {axis}
    assert list(found.record.columns[:6]) == [*BASE, "seed"]
    assert set(found.record[axis]) == set(ALONE[axis])


@pytest.mark.parametrize("axis", ["width", "ffn"])
def test_under_the_plan_of_sgd_nothing_fails(axis):
    # Around a bottleneck of fixed size the first gradients are small, and so are the steps.
    sgd = make_plan(Transformer, BASE, BASE, optimizer="sgd", example=BATCH[0])
    axes = BASE | {axis: ALONE[axis]}
    for seed in (0, 100):
        found = check(axes, plan=sgd, optimizer="sgd", lr=0.1, seed=seed)
        assert not found.failures, str(found)
    wrong = check(axes, plan=None, optimizer="sgd", lr=0.1)
    assert wrong.verdict == "fails"


@pytest.mark.parametrize(
    ("axis", "guilty"),
    [
        ("heads", {OUT}),
        ("head_size", {OUT, QUERY}),
        ("ffn", {DOWN}),
        ("width", {QUERY, UP, "head.weight"}),
    ],
)
def test_an_axis_left_unscaled_fails(axis, guilty):
    found = check(BASE | {axis: ALONE[axis]}, plan=None)
    assert found.verdict == "fails"
    assert guilty <= set(found.suspects)
    assert f"grows as {axis}^" in str(found)
    assert f"learning rate not scaled with {axis}?" in str(found)


def test_all_axes_at_once_and_their_drawing():
    axes = BASE | ALONE | {"depth": (2, 4, 8)}
    found = check(axes, plan=plan(), depth_exponent=1.0)
    assert not found.failures, str(found)
    assert {finding.axis for finding in found.findings} == set(axes)
    assert len(found.record[[*axes]].drop_duplicates()) == 1 + 2 * 5
    along = found.along("ffn")
    assert set(along.ffn) == set(ALONE["ffn"])
    assert {name: set(along[name]) for name in BASE if name != "ffn"} == {
        name: {value} for name, value in BASE.items() if name != "ffn"
    }
    assert found.to_dict()["settings"]["axes"]["heads"] == {"heads": [4, 8, 16]}
    names = {axes.get_xlabel() for axes in draw_check(found, limit=200).axes if axes.axison}
    assert names == set(axes)
    with pytest.raises(ValueError, match=r"`axis` must be one of width, depth, heads, .* got 'x'"):
        found.along("x")


def test_axes_that_grow_together():
    # The MLP grows as the square of the width: its output's fan-in outgrows its fan-out by one.
    found = check(GROUPED)
    assert found.verdict == "holds", str(found)
    assert {finding.axis for finding in found.findings} == {"width"}
    expected = {f.name: f.expected for f in found.findings if f.kind == "relative_share"}
    assert expected[DOWN] == (-math.inf, -0.5)
    assert expected[UP] == expected[OUT] == expected[QUERY] == (0.0, 0.0)
    naive = check(GROUPED, plan=None)
    assert naive.verdict == "fails"
    assert {DOWN, UP, QUERY, "head.weight"} <= set(naive.suspects)


def planted(faults, axis):
    """The plan's groups, some of them with a rate or values times a power of an axis."""

    def setup(model, *, seed, **axes):
        here = plan().retarget(axes)
        here.initialize_(model, seed=seed)
        groups = here.param_groups(model, lr=1e-3)
        ratio = axes[axis] / BASE[axis]
        names = {id(p): name for name, p in model.named_parameters()}
        for group in groups:
            for p in group["params"]:
                parts = names[id(p)].split(".")
                pattern = ".".join("*" if part.isdigit() else part for part in parts)
                init, lr = faults.get(pattern, (0, 0))
                with torch.no_grad():
                    p *= ratio**init
                yield {"params": [p], "lr": group["lr"] * ratio**lr}

    return setup


@pytest.mark.parametrize(
    ("axis", "guilty", "fault", "words"),
    [
        ("ffn", DOWN, (0, 1), "learning rate not scaled with ffn"),
        ("ffn", DOWN, (0.5, 0), "standard initialisation, though only the fan-in grows with ffn"),
        ("ffn", UP, (0, -1), "learning rate scaled as that of a hidden matrix"),
        ("heads", OUT, (0, 1), "learning rate not scaled with heads"),
        ("heads", QUERY, (-0.5, 0), "fans swapped"),
        ("width", OUT, (0, -1), "learning rate scaled as that of a hidden matrix"),
    ],
)
def test_fault_along_an_axis_is_found_and_named(axis, guilty, fault, words):
    found = check(BASE | {axis: ALONE[axis]}, plan=planted({guilty: fault}, axis))
    assert found.verdict == "fails", str(found)
    assert found.suspects[0] == guilty, str(found)
    assert words in str(found)


def test_setup_is_called_with_keywords():
    seen = []

    def setup(model, *, seed, width, layers):
        seen.append((width, layers, seed))
        return [{"params": list(model.parameters()), "lr": 1e-3}]

    def build(*, width, layers):
        return Transformer(width, layers)

    found = scaling_check(
        build, step, [BATCH], axes={"width": (16, 32), "layers": (1, 2)}, plan=setup, seeds=2
    )
    assert set(seen) >= {(16, 1, 0), (32, 1, 0), (16, 2, 1)}
    # `layers` is known to be the depth: blocks are one stack.
    assert any(f.axis == "layers" and f.kind == "block_contribution" for f in found.findings)
    assert "depth" not in found.record


def test_depth_of_another_name():
    def build(width, blocks):
        return Transformer(width, blocks)

    axes = {"width": 32, "blocks": (2, 4, 8)}
    found = scaling_check(build, step, [BATCH], axes=axes, depth_axis="blocks", seeds=2)
    assert not found.failures, str(found)
    assert "block_contribution" in {f.kind for f in found.findings}
    assert found.settings["depth_exponent"] == 1.0


def test_a_model_without_depth():
    def build(units):
        return nn.Sequential(nn.Linear(4, units), nn.ReLU(), nn.Linear(units, 3))

    found = scaling_check(build, step, [BATCH], axes={"units": (32, 64, 128)}, steps=1)
    assert not found.failures, str(found)
    naive = scaling_check(build, step, [BATCH], axes={"units": (32, 64, 128)}, steps=1, plan=None)
    assert naive.suspects == ("2.weight",)


def test_divergence_along_an_axis():
    def setup(model, *, seed, width, ffn):
        lr = 1.0 if ffn == 64 else 1e30
        return [{"params": list(model.parameters()), "lr": lr}]

    def build(width, ffn):
        return Transformer(width, 1, ffn=ffn)

    axes = {"width": (16, 32), "ffn": (64, 128)}
    found = scaling_check(build, step, [BATCH], axes=axes, plan=setup, optimizer="sgd", seeds=2)
    assert found.verdict == "fails"
    assert "the loss is not finite after" in str(found)
    assert "at width=16, ffn=128" in str(found)


def test_advice_names_the_axis():
    y = [1.0, 2.0, 0.5, 2.0, 1.0, 0.5]
    about = {"kind": "loss", "name": "", "use": "", "step": 0, "role": "", "parameters": ()}
    found = judge([16] * 3 + [32] * 3, y, expected=(0.0, 0.0), tests=1, axis="ffn", **about)
    assert found.verdict == "undecided"
    axes = {"width": {"width": [8]}, "ffn": {"ffn": [16, 32], "heads": [2, 4]}}
    advice = ScalingCheck((found,), pd.DataFrame(), {"seeds": 3, "axes": axes}).advice()
    assert "ffn 64 added" in advice


def test_transfer_along_axes():
    result = learning_rate_transfer(
        Transformer,
        step,
        [BATCH] * 3,
        axes={("width", "heads"): [(16, 2), (32, 4)], "ffn": (32, 64), "depth": 1},
        learning_rates=[2.0**k for k in range(-9, -4)],
        steps=3,
        seeds=2,
    )
    names = ["width", "heads", "ffn", "depth"]
    assert list(result.losses.columns) == ["scaling", *names, "lr", "run", "loss"]
    assert list(result.optima.columns[:5]) == ["scaling", *names]
    assert len(result.optima) == 2 * 3
    assert list(result.drifts.axis) == ["width", "ffn"] * 2
    assert "doublings for each doubling of ffn" in str(result)
    losses, optima = result.along("ffn")
    assert set(losses.width) == set(optima.width) == {16}
    assert set(optima.ffn) == {32, 64}
    assert len(draw_transfer(result).axes) == 4


def test_transfer_is_the_same_by_names():
    def build(width, depth):
        hidden = [nn.Linear(width, width) for _ in range(depth)]
        return nn.Sequential(nn.Linear(4, width), *hidden, nn.Linear(width, 3))

    options = {"learning_rates": [2.0**k for k in range(-9, -4)], "steps": 2, "seeds": 2}
    axes = {"width": (8, 16), "depth": (1, 2)}
    one = learning_rate_transfer(
        build, step, [BATCH] * 2, widths=(8, 16), depths=(1, 2), plans={"none": None}, **options
    )
    two = learning_rate_transfer(
        build, step, [BATCH] * 2, axes=axes, plans={"none": None}, **options
    )
    for table in ("losses", "optima", "drifts"):
        assert getattr(one, table).equals(getattr(two, table))


def test_check_is_the_same_by_names():
    options = {"plan": "mup", "seeds": 2, "max_seeds": 2, "steps": 1}
    one = scaling_check(Transformer, step, [BATCH], widths=(16, 32), depths=(1, 2), **options)
    axes = {"width": (16, 32), "depth": (1, 2)}
    two = scaling_check(Transformer, step, [BATCH], axes=axes, **options)
    assert one.record.equals(two.record)
    assert one.to_frame().equals(two.to_frame())


def test_roles_and_expectations():
    assert use_role([(100, 8), (200, 8)], 0) == "readout"
    assert use_role([(100, 8), (200, 8)], 0, lookup=True) == "fixed"  # a larger vocabulary
    assert narrowing([2, 4], [(8, 8), (8, 16)], 1) == 1.0
    assert narrowing([2, 4], [(8, 8), (16, 8)], 1) == -1.0
    assert narrowing([2, 4], [(8,), (16,)], None) == 0.0

    def width(kind, role="", **about):
        return expected_exponent(kind, "width", role=role, **about)

    assert width("share", "hidden", narrowing=1.0) == (-math.inf, -0.5)
    assert width("share", "hidden", narrowing=0.1) == (0.0, 0.0)
    assert width("share", "readout", narrowing=2.0) == (-math.inf, -1.0)
    assert width("share", "input", behind=True) == (-0.5, 0.0)
    assert width("contribution", "vector", behind=True) == (-0.5, 0.0)
    assert width("relative_contribution", "input", faint=True) == (-math.inf, 0.0)
    assert width("relative_contribution", "input") == (0.0, 0.0)
    assert width("logits", growing_head=0.5) == (-0.25, -0.25)
    assert width("logits", growing_head=1.0, narrowing=1.0) == (-math.inf, -0.5)


CALLS = itertools.count()


def at_random(width, depth, heads=4):
    return Transformer(width, depth + next(CALLS) % 2)


class Stages(nn.Module):
    def __init__(self, width, stages):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(stages))


PAIR = {"width": (16, 32), "depth": 1}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"axes": {}}, ValueError, "`axes` must name at least one axis; got {}"),
        ({"axes": ["width"]}, TypeError, r"`axes` must be a mapping of names to numbers; got \["),
        ({"axes": {1: (1, 2)}}, TypeError, "names or tuples of names as keys; got 1"),
        ({"axes": {(): (1, 2)}}, TypeError, r"names or tuples of names as keys; got \(\)"),
        ({"axes": {"a b": (1, 2)}}, ValueError, "names that `build` takes, .* got 'a b'"),
        ({"axes": {"step": (1, 2)}}, ValueError, "none of kind, name, .* got 'step'"),
        ({"axes": {"width": 4, ("width", "ffn"): [(1, 2)]}}, ValueError, "once; got 'width' twice"),
        ({"axes": {"width": "8"}}, TypeError, r"`axes\['width'\]` must be a sequence of integers"),
        ({"axes": {"width": (8, 8.5)}}, ValueError, r"`axes\['width'\]` must be positive integers"),
        ({"axes": {"width": (8, 0)}}, ValueError, r"must be positive integers; got \[8, 0\]"),
        ({"axes": {"width": True}}, ValueError, r"must be positive integers; got \[True\]"),
        ({"axes": {"width": (8, 8)}}, ValueError, r"`axes\['width'\]` must differ from each other"),
        (
            {"axes": {("width", "heads"): [(8, 1), (16,)]}},
            ValueError,
            r"must give 2 numbers for each size, one for each name; got \(16,\)",
        ),
        ({"axes": {("width", "heads"): 8}}, TypeError, "must be a sequence of tuples of integers"),
        (
            {"axes": {("width", "heads"): [(8, 1), (16, 2.0)]}},
            ValueError,
            r"must be positive integers; got \(16, 2.0\)",
        ),
        (
            {"axes": {("width", "heads"): [(8, 1), (8, 2)]}},
            ValueError,
            r"must differ from each other in 'width'; got \[\(8, 1\), \(8, 2\)\]",
        ),
        (
            {"axes": {("width", "heads"): [(8, 4), (16, 2)]}},
            ValueError,
            r"must be numbers that grow together; got \(8, 4\), \(16, 2\)",
        ),
        (
            {"axes": {("width", "depth"): [(8, 1), (16, 2)]}},
            ValueError,
            r"`axes` must let 'depth' grow alone; got \('width', 'depth'\)",
        ),
        ({"axes": {"width": 8, "depth": (1,)}}, ValueError, "`axes` must have at least two sizes"),
        ({"axes": PAIR, "widths": (8, 16)}, ValueError, r"`axes` must come without .* depths=None"),
        ({"axes": PAIR, "depth_axis": "x"}, ValueError, "`depth_axis` must be an axis of `axes`"),
        ({"depth_axis": "x"}, ValueError, "`depth_axis` must come with `axes`; got 'x' alone"),
        (
            {"axes": PAIR, "build": lambda width, depth: Transformer(8, depth)},
            ValueError,
            "`build` must use its width; got the same parameters at 16 and 32",
        ),
        (
            {
                "axes": PAIR | {"heads": (2, 4)},
                "build": lambda width, depth, heads: Transformer(width, depth, 4, width // 4),
            },
            ValueError,
            "`build` must use its heads; got the same .* at 2 and 4; let .* grow together with",
        ),
        (
            {
                "axes": {("width", "heads"): [(8, 1), (16, 2)]},
                "build": lambda width, heads: Stages(4, 2),
            },
            ValueError,
            "`build` must use its width, heads; got the same",
        ),
        (
            {"axes": {"width": 8, "stages": (1, 2)}, "build": Stages},
            ValueError,
            "the same names at every stages; got .*; if stages is the depth, pass depth_axis",
        ),
        ({"axes": PAIR, "build": at_random}, ValueError, "different ones in two calls at width=16"),
        ({"axes": PAIR | {"x": 3}}, TypeError, "unexpected keyword argument 'x'"),
    ],
)
@pytest.mark.parametrize("function", [scaling_check, learning_rate_transfer])
def test_bad_input(function, change, error, message):
    options = {"steps": 1, "seeds": 2, **change}
    build = options.pop("build", Transformer)
    with pytest.raises(error, match=message):
        function(build, step, [BATCH], **options)


def test_error_of_build_tells_the_size():
    with pytest.raises(TypeError) as caught:
        scaling_check(Transformer, step, [BATCH], axes=PAIR | {"x": 3})
    assert caught.value.__notes__ == ["raised by `build` at width=16, depth=1, x=3"]


def test_plan_of_another_kind_of_size():
    with pytest.raises(ValueError, match="`target` must have the axes of `base`"):
        scaling_check(
            Transformer,
            step,
            [BATCH],
            axes=PAIR,
            plan=make_plan(Transformer, (16, 1), (16, 1)),
            seeds=2,
        )
    with pytest.raises(ValueError, match="`target` must have the axes of `base`"):
        check(PAIR, plan=plan())
