"""Models that nobody here wrote, built from `transformers` configurations."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import transformers

from library_models import gpt2, llama, mamba, vit
from scalinglimits.scaling import make_plan

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


TOKENS = torch.zeros(2, 8, dtype=torch.long)
MODELS = {
    "llama": (llama, {"self_attn.o_proj.weight", "mlp.down_proj.weight"}, TOKENS),
    "gpt2": (
        gpt2,
        {f"{m}.c_proj.{p}" for m in ("attn", "mlp") for p in ("weight", "bias")},
        TOKENS,
    ),
    "vit": (
        vit,
        {f"{m}.{p}" for m in ("attention.o_proj", "mlp.fc2") for p in ("weight", "bias")},
        torch.zeros(2, 3, 16, 16),
    ),
    "mamba": (mamba, {"mixer.out_proj.weight"}, TOKENS),
}


@pytest.mark.parametrize("name", MODELS)
def test_plan(name):
    build, ends, inputs = MODELS[name]
    plan = make_plan(build, (32, 2), (64, 8))
    found = {n.split(".", 3)[3] for n, e in plan.entries.items() if e.branch_output}
    assert found == ends
    assert sum(e.branch_output for e in plan.entries.values()) == 8 * len(ends)
    assert "hidden" in plan.to_frame()["role"].to_numpy()
    model = plan.rescale_(build(64, 8))
    with pytest.raises(ValueError, match="it was rescaled before"):
        plan.rescale_(model)
    model = plan.initialize_(build(64, 8), seed=0)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-3, weight_decay=0.1))
    assert plan.audit(optimizer)
    model(inputs).logits.square().mean().backward()
    optimizer.step()
    assert torch.isfinite(model(inputs).logits).all()


def test_tied_heads():
    plan = make_plan(gpt2, (32, 2), (64, 2))
    assert plan.role("lm_head.weight") == "tied"
    assert plan["transformer.ln_f.weight"].init == 0.5


def gpt_neox(width, depth):
    config = transformers.GPTNeoXConfig(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=2,
        intermediate_size=width,
        vocab_size=50,
    )
    return transformers.GPTNeoXForCausalLM(config)


def phi3(width, depth):
    config = transformers.Phi3Config(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=width,
        vocab_size=50,
        pad_token_id=0,
    )
    return transformers.Phi3ForCausalLM(config)


def two_heads(kind):
    return partial(gpt2, n_head=2, attn_implementation=kind)


def albert(width, depth):
    config = transformers.AlbertConfig(
        hidden_size=width,
        embedding_size=16,
        num_hidden_layers=depth,
        num_attention_heads=2,
        intermediate_size=width,
        vocab_size=50,
    )
    return transformers.AlbertForMaskedLM(config)


def growing_t5(width, depth):
    config = transformers.T5Config(
        d_model=width,
        d_kv=width // 2,
        d_ff=width,
        num_layers=depth,
        num_heads=2,
        vocab_size=50,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("build", "shared", "undoing"),
    [
        (two_heads("sdpa"), {"attn.c_attn.weight", "attn.c_attn.bias"}, "attn.c_proj.weight"),
        (two_heads("eager"), {"attn.c_attn.weight", "attn.c_attn.bias"}, "attn.c_proj.weight"),
        (
            gpt_neox,
            {"attention.query_key_value.weight", "attention.query_key_value.bias"},
            "attention.dense.weight",
        ),
        (phi3, {"self_attn.qkv_proj.weight"}, "self_attn.o_proj.weight"),
    ],
    ids=["gpt2", "gpt2-eager", "gpt-neox", "phi3"],
)
def test_packed_heads_that_grow(build, shared, undoing):
    plan = make_plan(build, (32, 2), (128, 2))
    plain = make_plan(build, (32, 2), (128, 2), attention="ignore")
    ratios = {n: e.init / plain[n].init for n, e in plan.entries.items()}
    found = {n.split(".", 3)[-1]: r for n, r in ratios.items() if r != 1.0}
    assert found == pytest.approx({**dict.fromkeys(shared, 0.5**0.5), undoing: 2**0.5})
    assert sum(r != 1.0 for r in ratios.values()) == 2 * (len(shared) + 1)


def test_a_layer_that_is_used_again_and_again():
    plan = make_plan(albert, (32, 2), (128, 2), depth_rule="none")
    found = [n for n, e in plan.entries.items() if "attention multiplier" in e.reason]
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query"
    assert found == [f"{layer}.weight", f"{layer}.bias"]


def test_a_model_that_does_not_divide_its_logits():
    inputs = {"input_ids": TOKENS, "decoder_input_ids": TOKENS}
    plan = make_plan(growing_t5, (32, 2), (128, 2), depth_rule="none", example=inputs)
    entry = plan["encoder.block.0.layer.0.SelfAttention.q.weight"]
    assert entry.init == 0.5 / 4  # width ×4, heads ×4
