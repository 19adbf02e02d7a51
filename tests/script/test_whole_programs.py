"""Programs of the system itself survive printing and parsing: every operator's kernel, and the tiny
model at every stage of the pipeline."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import open_model
from relaxlab.script import parse, print_module
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram


@pytest.mark.parametrize("family", FAMILIES)
def test_operators(family: str) -> None:
    for case in FAMILIES[family]():
        program = CaseProgram(case, case.sizes[0], symbolic=True)
        functions = {"main": program.function()}
        if program.row.lower is not None:
            functions["kernel"] = program.row.lower(program.call, program.types, program.out)
        mod = Module.of(functions)
        text = print_module(mod)
        assert_structural_equal(mod, parse(text, check=False))


def test_the_tiny_model_at_every_stage() -> None:
    checkpoint = open_model("tiny")
    model = Decoder(checkpoint.config, checkpoint.formats, max_context=24)
    mod, _ = model.build(methods=("prefill",), batch="b")
    trace = rl.trace(mod)
    stages = [mod] + [record.after for record in trace.passes if record.changed]
    assert len(stages) > 5
    for stage in stages:
        assert_structural_equal(stage, parse(print_module(stage), check=False))
