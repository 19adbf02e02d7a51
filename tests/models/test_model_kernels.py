"""Every kernel of the model gets the schedule that was made for its kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.models.build import precision_for
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.schedule import TensorIntrin
from relaxlab.schedule.intrinsics import amx, dot2, dot4


def _rules(activations: str) -> dict[str, str]:
    """Rule by loop function, of the tiny model."""
    checkpoint = open_model("tiny")
    precision = precision_for(activations, Target.host())
    llama = Decoder(checkpoint.config, checkpoint.formats, max_context=256, precision=precision)
    return _rules_of(llama.build(bounds={"s": 128, "p": 256})[0])


def _rules_of(module: Module) -> dict[str, str]:
    trace = cpu_pipeline().run(module)
    assert all(isinstance(f, PrimFunc) for f in trace.result.loop_functions().values())
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    return {
        w.subject: w.reason.removeprefix("scheduled by the rule ") for w in remarks if w.applied
    }


@pytest.mark.parametrize("activations", ["float32", "q8"])
def test_attention_keeps_its_scores_private(activations: str) -> None:
    rules = _rules(activations)
    of_prompts, of_steps = (rules[n] for n in rules if "attention" in n)
    assert of_prompts == of_steps == "attention"


def test_integer_products_use_the_instruction() -> None:
    if TensorIntrin.best(dot4.FAMILY, Target.host()) is None:
        pytest.skip("this machine has no instructions for int8 dot products")
    rules = _rules("q8")
    products = [rule for name, rule in rules.items() if "quantized_linear" in name]
    assert products and set(products) == {"dot_product"}


def test_prompts_use_matrix_tiles() -> None:
    if TensorIntrin.best(amx.FAMILY, Target.host()) is None:
        pytest.skip("this machine has no bfloat16 matrix tiles")
    rules = _rules("q8")
    products = [rule for name, rule in rules.items() if "astype_linear" in name]
    assert products and set(products) == {"tiles"}


def test_bfloat16_weights_use_the_dot_product_of_pairs() -> None:
    if TensorIntrin.best(dot2.FAMILY, Target.host()) is None:
        pytest.skip("this machine has no bfloat16 dot product instruction")
    config = replace(COMMON, tied_embeddings=False)
    formats = dict.fromkeys(config.tensor_shapes(), "BF16")
    decoder = Decoder(config, formats, max_context=64, precision=precision_for("q8", Target.host()))
    rules = _rules_of(decoder.build(bounds={"s": 64, "p": 64})[0])
    products = [rule for name, rule in rules.items() if "linear" in name]
    assert sorted(set(products)) == ["bfloat16_dot", "matmul"]  # logits are computed exactly
    assert products.count("matmul") <= 2


def test_no_kernel_of_the_model_is_left_to_the_fallback() -> None:
    for activations in ("float32", "q8"):
        assert "fallback" not in _rules(activations).values()


COMMON = DecoderConfig(
    hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32, ffn_size=96,
    vocab_size=384, context_length=256, norm_eps=1e-6, rope=Rope(1e4, 32), tied_embeddings=True,
)  # fmt: skip
LIKE_GEMMA = replace(
    COMMON, local_rope=Rope(1e3, 32), post_norms=True, qk_norm=True, activation="gelu_tanh",
    attention_scale=0.1, attention_softcap=5.0, logit_softcap=3.0, windows=(24, None),
    embedding_scale=8.0,
)  # fmt: skip
LIKE_PHI = replace(
    COMMON, rope=Rope(1e4, 16), norm="layer", parallel_residual=True, activation="gelu_tanh",
    gated_mlp=False, qkv_bias=True, attn_output_bias=True, mlp_bias=True, head_bias=True,
)  # fmt: skip


@pytest.mark.parametrize("config", [LIKE_GEMMA, LIKE_PHI], ids=["gemma", "phi"])
def test_features_of_other_families_have_good_kernels(config: DecoderConfig) -> None:
    decoder = Decoder(config, dict.fromkeys(config.tensor_shapes(), "F32"), max_context=256)
    rules = _rules_of(decoder.build(batch="b", bounds={"s": 128, "p": 256, "b": 8})[0])
    attentions = {rule for name, rule in rules.items() if "attention" in name}
    assert attentions == {"attention"}
    products = {rule for name, rule in rules.items() if "linear" in name}
    assert products == {"matmul"}
    assert "fallback" not in rules.values()
    if config is LIKE_PHI:  # biases and activations are part of the products
        assert any("linear_add_gelu_tanh" in name for name in rules)
