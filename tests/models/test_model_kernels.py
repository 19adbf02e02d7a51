"""Every kernel of the model gets the schedule that was made for its kind."""

from __future__ import annotations

import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target
from relaxlab.models.decoder import Decoder
from relaxlab.models.generate import precision_for
from relaxlab.models.loader import open_model
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.schedule.intrinsics import dot4_lanes
from relaxlab.schedule.tile_intrinsics import has_tiles


def _rules(activations: str) -> dict[str, str]:
    """Rule by loop function, of the tiny model."""
    checkpoint = open_model("tiny")
    precision = precision_for(activations, Target.host())
    llama = Decoder(checkpoint.config, checkpoint.formats, max_context=256, precision=precision)
    module, _ = llama.build(bounds={"s": 128, "p": 256})
    trace = cpu_pipeline().run(module)
    assert all(isinstance(f, PrimFunc) for f in trace.result.loop_functions().values())
    notes = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.rewrites]
    return {
        w.subject: w.reason.removeprefix("scheduled by the rule ") for w in notes if w.applied
    }


@pytest.mark.parametrize("activations", ["float32", "q8"])
def test_attention_keeps_its_scores_private(activations: str) -> None:
    rules = _rules(activations)
    of_prompts, of_steps = (rules[n] for n in rules if "attention" in n)
    assert of_prompts == of_steps == "attention"


def test_integer_products_use_the_instruction() -> None:
    if dot4_lanes(Target.host()) is None:
        pytest.skip("this machine has no int8 dot product instruction")
    rules = _rules("q8")
    products = [rule for name, rule in rules.items() if "dot_q8" in name or "product" in name]
    assert products and set(products) == {"dot_product"}


def test_prompts_use_matrix_tiles() -> None:
    if not has_tiles(Target.host()):
        pytest.skip("this machine has no bfloat16 matrix tiles")
    rules = _rules("q8")
    products = [rule for name, rule in rules.items() if "dot_bfloat16" in name]
    assert products and set(products) == {"tiles"}


def test_no_kernel_of_the_model_is_left_to_the_fallback() -> None:
    for activations in ("float32", "q8"):
        assert "fallback" not in _rules(activations).values()
