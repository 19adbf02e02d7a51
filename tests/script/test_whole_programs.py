"""The tiny model survives printing and parsing at every stage of the pipeline; operators and their
kernels do in tests/ops/test_programs.py."""

from __future__ import annotations

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.script import parse, print_module


def test_the_tiny_model_at_every_stage() -> None:
    checkpoint = open_model("tiny")
    model = Decoder(checkpoint.config, checkpoint.formats, max_context=24)
    mod, _ = model.build(methods=("prefill",), batch="b")
    trace = rl.trace(mod)
    stages = [mod] + [record.after for record in trace.passes if record.changed]
    assert len(stages) > 5
    for stage in stages:
        assert_structural_equal(stage, parse(print_module(stage), check=False))
