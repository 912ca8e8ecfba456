"""The check on models that nobody here wrote, built from `transformers` configurations."""

from __future__ import annotations

import pytest
import torch
import transformers

from scalinglimits.checks import scaling_check

transformers.logging.set_verbosity_error()
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

SMALL = {"vocab_size": 50}


def gpt2(width, depth):
    config = transformers.GPT2Config(
        n_embd=width, n_layer=depth, n_head=width // 8, n_positions=16, **SMALL
    )
    return transformers.GPT2LMHeadModel(config)


def llama(width, depth):
    config = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=depth,
        num_attention_heads=width // 8,
        num_key_value_heads=width // 16,
        **SMALL,
    )
    return transformers.LlamaForCausalLM(config)


def mamba(width, depth):
    config = transformers.MambaConfig(
        hidden_size=width, num_hidden_layers=depth, state_size=4, **SMALL
    )
    return transformers.MambaForCausalLM(config)


def bert(width, depth):
    config = transformers.BertConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=width // 8,
        intermediate_size=2 * width,
        max_position_embeddings=16,
        **SMALL,
    )
    return transformers.BertForMaskedLM(config)


def t5(width, depth):
    config = transformers.T5Config(
        d_model=width,
        d_kv=8,
        d_ff=2 * width,
        num_layers=depth,
        num_heads=width // 8,
        decoder_start_token_id=0,
        **SMALL,
    )
    return transformers.T5ForConditionalGeneration(config)


def vit(width, depth):
    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=width // 8,
        intermediate_size=2 * width,
        image_size=16,
        patch_size=4,
        num_labels=5,
    )
    return transformers.ViTForImageClassification(config)


def convnext(width, depth):
    config = transformers.ConvNextConfig(
        hidden_sizes=[width, 2 * width],
        depths=[depth, depth],
        num_stages=2,
        patch_size=2,
        image_size=16,
        num_labels=5,
    )
    return transformers.ConvNextForImageClassification(config)


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
# The stream of BERT is normalised behind each sum: no branch can be scaled. T5 itself multiplies
# what its tied head reads by width^-1/2, which a plan does not see.
WITHOUT = {("bert", "depth"), ("t5", "width")}


@pytest.mark.parametrize(("name", "axis"), [case for case in CASES if case not in WITHOUT])
def test_plan_does_not_fail(name, axis):
    build, step, batch = MODELS[name]
    check = scaling_check(build, step, [batch], plan="mup", steps=1, **AXES[axis])
    assert not check.failures, str(check)


@pytest.mark.parametrize(("name", "axis"), CASES)
def test_no_plan_fails(name, axis):
    build, step, batch = MODELS[name]
    check = scaling_check(build, step, [batch], plan=None, steps=1, **AXES[axis])
    assert check.verdict == "fails"
