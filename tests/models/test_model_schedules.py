"""The trace of each schedule makes its kernel again: decoders of every family, for one sequence and
for batches, on CPUs and on GPUs. Those of BERT and Whisper are replayed in their own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxlab.ir.target import Target
from relaxlab.models.build import precision_for
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import Checkpoint, open_model
from relaxlab.models.paged_decoder import PagedDecoder
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.testing.replay import replay_kernels
from tests.models.family_models import CASES

TARGETS = {"cpu": Target.host(), "cuda": Target.cuda()}
FAMILIES = {case.family: case.name for case in CASES}


def replay_models(checkpoint: Checkpoint, activations: str, target: Target) -> None:
    """Replay the kernels of the decoder for one sequence and of that for batches."""
    config, formats = checkpoint.config, checkpoint.formats
    precision = precision_for(activations, target)
    one = Decoder(config, formats, max_context=64, precision=precision)
    several = PagedDecoder(config, formats, precision=precision)
    for module, _ in (
        one.build(bounds={"s": 16, "p": 64}),
        several.build_paged(max_rows=64, max_sequences=8),
    ):
        assert replay_kernels(default_pipeline(target).run(module))


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("activations", ["float32", "q8"])
def test_the_tiny_model(activations: str, kind: str) -> None:
    checkpoint, target = open_model("tiny"), TARGETS[kind]
    replay_models(checkpoint, activations, target)
    precision = precision_for(activations, target)
    unbounded = Decoder(checkpoint.config, checkpoint.formats, precision=precision)
    module, _ = unbounded.build(batch="b")
    assert replay_kernels(default_pipeline(target).run(module))


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("activations", ["float32", "q8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_families(family_models: Path, family: str, activations: str, kind: str) -> None:
    replay_models(open_model(family_models / FAMILIES[family]), activations, TARGETS[kind])
