"""The check on models that nobody here wrote, built from `transformers` configurations."""

from __future__ import annotations

import pytest
import torch

from library_models import bert, convnext, gpt2, llama, mamba, t5, vit
from scalinglimits.checks import scaling_check

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randint(50, (2, 8), generator=GENERATOR)
IMAGES = torch.randn(2, 3, 16, 16, generator=GENERATOR)


def words(model, tokens):
    return model(input_ids=tokens, labels=tokens).loss


def classes(model, images):
    return model(pixel_values=images, labels=torch.arange(len(images))).loss


MODELS = {
    "gpt2": (gpt2, words, TOKENS),
    "llama": (llama, words, TOKENS),
    "mamba": (mamba, words, TOKENS),
    "bert": (bert, words, TOKENS),
    "t5": (t5, words, TOKENS),
    "vit": (vit, classes, IMAGES),
    "convnext": (convnext, classes, IMAGES),
}
AXES = {
    "width": {"widths": (32, 64, 128), "depths": (2,)},
    "depth": {"widths": (32,), "depths": (2, 4, 8)},
}
CASES = [(name, axis) for name in MODELS for axis in AXES]
# The stream of BERT is normalised behind each sum: no branch can be scaled.
WITHOUT = ("bert", "depth")
# T5 itself multiplies what its tied head reads by width^-1/2, which a plan does not see; what
# Mamba's A_log does is small.
UNDECIDED = {("mamba", "depth"), ("t5", "width"), ("t5", "depth")}


@pytest.mark.parametrize(("name", "axis"), [case for case in CASES if case != WITHOUT])
def test_plan_holds(name, axis):
    build, step, batch = MODELS[name]
    check = scaling_check(build, step, [batch], plan="mup", steps=1, **AXES[axis])
    assert check.verdict == ("undecided" if (name, axis) in UNDECIDED else "holds"), str(check)


def test_a_stream_that_is_normalised_itself_has_no_plan():
    build, step, batch = MODELS[WITHOUT[0]]
    with pytest.raises(ValueError, match="`depth_rule` must be 'none' for a model without"):
        scaling_check(build, step, [batch], plan="mup", steps=1, **AXES[WITHOUT[1]])


@pytest.mark.parametrize(("name", "axis"), CASES)
def test_no_plan_fails(name, axis):
    build, step, batch = MODELS[name]
    check = scaling_check(build, step, [batch], plan=None, steps=1, **AXES[axis])
    assert check.verdict == "fails"
