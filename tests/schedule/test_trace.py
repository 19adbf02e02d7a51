"""Traces: plain values that print as a program, survive JSON and replay on an equal function."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.expr import Var
from relaxlab.schedule import Instruction, Schedule, ScheduleError, apply_trace
from relaxlab.schedule.primitive import PRIMITIVES
from relaxlab.schedule.trace import from_json, to_json
from tests.schedule.programs import PROGRAMS, matmul


def scheduled() -> Schedule:
    sch = Schedule(PROGRAMS["matmul"]())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    _, ii = sch.split(i, factors=[None, 4])
    sch.reorder(ii, k, j)
    sch.transform_layout(block, ("read", 1), lambda x, y: (y // 8, x, y % 8))
    sch.decompose_reduction(block, k)
    sch.annotate(block, "note", "hot")
    return sch


def test_steps_print_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    scheduled().show()
    lines = [line[5:] for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "b0 = sch.get_block(name='C')"
    assert lines[1] == "l0, l1, l2 = sch.get_loops(block=b0)"
    assert lines[2] == "l3, l4 = sch.split(loop=l0, factors=[None, 4])"
    assert lines[3] == "sch.reorder(l4, l2, l1)"
    assert "index_map=lambda x, y: (y // 8, x, y % 8,)" in lines[4]


def test_printed_steps_run() -> None:
    sch = scheduled()
    again = Schedule(PROGRAMS["matmul"]())
    scope = {"sch": again}
    for step in sch.trace:
        exec(str(step), scope)
    assert_structural_equal(again.func, sch.func)


def test_json_round_trip() -> None:
    sch = scheduled()
    back = from_json(to_json(sch.trace))
    assert [str(i) for i in back] == [str(i) for i in sch.trace]
    assert_structural_equal(apply_trace(PROGRAMS["matmul"](), sch.trace_json()).func, sch.func)


def test_symbolic_factors_find_their_symbol() -> None:
    before = matmul(Var("n"), Var("k"), Var("m"))
    sch = Schedule(before)
    (i, _, _), n = sch.get_loops(sch.get_block("C")), before.buffers[0].shape[0]
    sch.split(i, factors=[4, (n + 3) // 4])
    other = matmul(Var("n"), Var("k"), Var("m"))
    assert_structural_equal(apply_trace(other, sch.trace_json()).func, sch.func)
    with pytest.raises(ValueError, match="needs a symbol 'n'"):
        apply_trace(PROGRAMS["matmul_even"](), sch.trace_json())


def test_replay_stops_where_a_step_does_not_fit() -> None:
    with pytest.raises(ScheduleError, match="block of that name"):
        apply_trace(PROGRAMS["chain"](), [Instruction("get_block", (("name", "Z"),), ("b0",))])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '[{"name": "show", "args": {}, "outputs": []}]',
     '[{"name": "__init__", "args": {}, "outputs": []}]',
     '[{"name": "get_loops", "args": {"block": {"ref": "b7"}}, "outputs": []}]',
     '[{"name": "get_block", "args": {"nme": "C"}, "outputs": []}]',
     '[{"name": "get_block", "args": {"name": {"op": "Exec"}}, "outputs": []}]'],
)  # fmt: skip
def test_malformed_traces_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        apply_trace(PROGRAMS["matmul"](), text)


def test_damaged_traces_never_do_anything_else() -> None:
    """A changed byte gives another valid trace, a ValueError or a ScheduleError."""
    text = scheduled().trace_json()
    for seed in range(150):
        print(f"seed {seed}")
        rng = random.Random(seed)
        at = rng.randrange(len(text))
        broken = text[:at] + rng.choice('0a"[]{},:x') + text[at + 1 :]
        try:
            apply_trace(PROGRAMS["matmul"](), broken)
        except (ValueError, ScheduleError):
            continue


def test_the_names_are_the_primitives_of_tvm_and_some_more() -> None:
    expected = (
        "get_block get_loops get_child_blocks get_producers get_consumers get_output_blocks "
        "sample_categorical sample_perfect_tile sample_partitioned_tile "
        "sample_compute_location split fuse merge "
        "reorder add_unit_loop reorder_block_iter_var transform_block_layout "
        "parallel vectorize unroll unroll_and_jam bind compute_inline reverse_compute_inline "
        "compute_at reverse_compute_at cache_read cache_write reindex reindex_cache_read "
        "reindex_cache_write bind_expr read_at write_at set_scope storage_align pad_axis swizzle "
        "unsafe_set_dtype unsafe_fast_math unsafe_zero_beyond "
        "cache_inplace cache_index rolling_buffer annotate_buffer_access unsafe_hide_buffer_access "
        "decompose_padding decompose_reduction assume_finite rfactor fuse_reduction_epilogue "
        "blockize tensorize loop_partition "
        "transform_layout pad_einsum annotate unannotate "
        "canonicalize_reduction form_blocks fuse_reductions compact_buffers round_up_tails "
        "round_up_vectors "
        "join_axes schedule_apart guarded_versions declare_upper_bound bound_storage "
        "pad_loop rectangularize pad_dim partition remap horizontal_fuse balance privatize "
        "pack"
    )
    assert expected.split() == sorted(PRIMITIVES, key=expected.split().index)


def test_traces_hold_no_objects() -> None:
    assert isinstance(json.loads(scheduled().trace_json()), list)


def test_arguments_are_recorded_by_name_however_they_are_given() -> None:
    sch, other = Schedule(PROGRAMS["chain"]()), Schedule(PROGRAMS["chain"]())
    sch.cache_read(sch.get_block("C"), 0, "local")
    other.cache_read(read_buffer_index=0, storage_scope="local", block=other.get_block("C"))
    assert sch.trace == other.trace
    assert [name for name, _ in sch.trace[-1].args] == [
        "block", "read_buffer_index", "storage_scope", "consumer_blocks",
    ]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), [
    (lambda sch, i: sch.bind(i), r"bind\(\)"),
    (lambda sch, i: sch.bind(i, "threadIdx.x", loop=i), r"bind\(\)"),
    (lambda sch, i: sch.bind(i, "threadIdx.x", 1), r"bind\(\)"),
    (lambda sch, i: sch.bind(i, axis="threadIdx.x"),
     r"^Schedule\.bind has no argument 'axis'; it has: loop, thread$"),
])  # fmt: skip
def test_a_wrong_call_is_no_step(call: Any, message: str) -> None:
    sch = Schedule(PROGRAMS["chain"]())
    i, *_ = sch.get_loops(sch.get_block("B"))
    with pytest.raises(TypeError, match=message):
        call(sch, i)
    assert [step.name for step in sch.trace] == ["get_block", "get_loops"]
