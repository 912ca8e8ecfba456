"""Models that nobody here wrote, built from `transformers` configurations."""

from __future__ import annotations

import pytest
import torch
import transformers

from scalinglimits.scaling import make_plan

transformers.logging.set_verbosity_error()
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def llama(width, depth):
    config = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=depth,
        num_attention_heads=width // 8,
        num_key_value_heads=width // 16,
        vocab_size=50,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2(width, depth):
    config = transformers.GPT2Config(
        n_embd=width, n_layer=depth, n_head=width // 8, vocab_size=50, n_positions=16
    )
    return transformers.GPT2LMHeadModel(config)


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


def mamba(width, depth):
    config = transformers.MambaConfig(
        hidden_size=width, num_hidden_layers=depth, vocab_size=50, state_size=4
    )
    return transformers.MambaForCausalLM(config)


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
