"""Blocks behind the recursion wait for that of all instances."""

import pytest

from relaxlab.ir import recording as rec
from relaxlab.models.dynamic.trees import tree_lstm
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_recording import lower_recording
from relaxlab.passes.make_blocks import make_blocks
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.passes.split_phases import PHASE, split_phases
from relaxlab.testing.pass_check import check_module
from relaxlab.tracing import first_rewrites


@pytest.fixture(scope="module")
def blocks():
    passes = batched_pipeline().passes
    end = next(i for i, p in enumerate(passes) if p.name == make_blocks.name)
    return Pipeline(passes[: end + 1]).run(tree_lstm(4, words=9)).result


def phases(mod):
    return {n: f.attrs[PHASE] for n, f in mod.graph_functions().items() if PHASE in f.attrs}


def test_the_classifier_behind_the_trees_is_a_phase(blocks):
    after = split_phases(blocks)
    check_module(split_phases, blocks, after)
    assert phases(after) == {"main_block": 1}
    with first_rewrites(0):
        assert split_phases(blocks) is blocks


def test_a_program_without_recursion_has_one_phase(blocks):
    alone = blocks["main"]
    straight = blocks.with_functions({"cell": blocks["cell"].__class__(
        blocks["cell"].params, blocks["cell_block"].body, blocks["cell"].ret_ty, private=True
    )})  # fmt: skip
    assert alone is straight["main"] and split_phases(straight) is straight


def test_recording_begins_the_phase_behind_the_call():
    program = lower_recording(batched_pipeline().run(tree_lstm(4, words=9)).result)
    kinds = [type(s) for s in program.functions["main"].steps]
    assert kinds == [rec.Call, rec.Phase, rec.Record]
    inner = rec.walk_steps(program.functions["cell"].steps)
    assert not any(isinstance(s, rec.Phase) for s in inner)
