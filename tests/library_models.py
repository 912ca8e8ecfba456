"""Small models that nobody here wrote, built from `transformers` configurations."""

from __future__ import annotations

import transformers

transformers.logging.set_verbosity_error()

SMALL = {"vocab_size": 50}


def gpt2(width, depth, **options):
    options = {"n_head": width // 8, **SMALL, **options}
    config = transformers.GPT2Config(n_embd=width, n_layer=depth, n_positions=16, **options)
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
