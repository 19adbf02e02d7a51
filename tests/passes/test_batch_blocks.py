"""Blocks get functions that run batches of them, and the program still runs one by one."""

import re

import numpy as np
import pytest

from relaxlab.ir import graph
from relaxlab.models import dynamic
from relaxlab.models.dynamic import mv_rnn, tree_lstm
from relaxlab.passes.base import Pipeline
from relaxlab.passes.batch_blocks import BATCHED, batch_blocks
from relaxlab.passes.bindings import all_bindings, tir_call
from relaxlab.passes.lift_transform_params import depending_on_weights
from relaxlab.passes.lower_recording import lower_recording
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.passes.write_results import write_results
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import parse
from relaxlab.testing.pass_check import check_module, compare_runs
from tests.test_repo import ROOT

PROGRAM = """
@R.function(private=True)
def both(k: R.Tensor((), "int64"), x: R.Tensor((1, 6), "float32"),
         pair: R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((6,), "float32")),
         E: R.Tensor((9, 6), "float32")):
    row = R.take(E, R.reshape(k, (1,)), axis=0)
    y = R.add(R.multiply(x, row), R.reshape(pair[0], (1, 6)))
    out = (R.add(y, pair[1]), R.zeros((2,), "float32"), R.sum(y))
    return out

@R.function
def main(k: R.Tensor((), "int64"), x: R.Tensor((1, 6), "float32"),
         m: R.Tensor((2, 3), "float32"), b: R.Tensor((6,), "float32"),
         E: R.Tensor((9, 6), "float32")):
    R.func_attr({"num_input": 3})
    a = cls.both(k, x, (m, b), E)
    c = cls.both(R.add(k, R.const(1, "int64")), a[0], (m, b), E)
    out = (c[0], c[1], c[2], R.exp(b))
    return out
"""


@pytest.fixture(scope="module")
def passes():
    whole = batched_pipeline().passes
    end = next(i for i, p in enumerate(whole) if p.name == write_results.name)
    return Pipeline(whole[: end + 1]).run(parse(PROGRAM))


@pytest.mark.parametrize("name", [batch_blocks.name, write_results.name])
def test_the_program_stays_what_it_is_for_one_instance(passes, name):
    record = passes.find(name)
    check_module({batch_blocks.name: batch_blocks, write_results.name: write_results}[name],
                 record.before, record.after)  # fmt: skip
    compare_runs(passes.module, record.after, sizes=(1,))


def test_parameters_are_arenas_places_scalars_and_weights(passes):
    fn = passes.find(batch_blocks.name).after["both_block_batched"]
    kinds = [p.name.partition("_")[0] for p in fn.params]
    assert kinds == ["arena", "at", "at", "k", "E", "lv"]
    assert fn.attrs[BATCHED] == "both_block" and fn.attrs["num_input"] == 4
    shapes = [[str(d) for d in t.shape] for t in fn.ret_ty.fields]
    assert shapes == [["b", "6"], ["b"]]


def test_rows_of_a_batch_are_what_the_block_gives_for_each(passes):
    mod = passes.find(batch_blocks.name).after
    fn = mod["both_block_batched"]
    rng = np.random.default_rng(0)
    arena = rng.standard_normal(40).astype("float32")
    inputs = fn.attrs["num_input"]
    weights = [rng.standard_normal([d.value for d in p.ty.shape]).astype("float32")
               for p in fn.params[inputs:]]  # fmt: skip

    def given(rows):
        places = {"at": rng_places[rows], "k": np.array([4, 0, 8])[rows]}
        return [arena if p.name.startswith("arena") else places["at" if p.name.startswith("at")
                else "k"] for p in fn.params[:inputs]]  # fmt: skip

    rng_places = np.array([3, 30, 0])
    together = interpret(mod, "both_block_batched", *given(slice(None)), *weights)
    for i in range(3):
        alone = interpret(mod, "both_block_batched", *given(slice(i, i + 1)), *weights)
        for whole, row in zip(together, alone, strict=True):
            np.testing.assert_allclose(whole[i : i + 1], row, rtol=1e-6)


def test_gathers_are_part_of_the_kernels_that_read_them(passes):
    fn = passes.find(write_results.name).after["both_block_batched"]
    called = [tir_call(b.value).callee for b in all_bindings(fn) if tir_call(b.value)]
    assert not any(name.startswith("gather") for name in called)


def test_results_are_written_to_what_is_given(passes):
    fn = passes.find(write_results.name).after["both_block_batched"]
    assert [p.name for p in fn.params if p.name.startswith("out")] == ["out0", "out1"]
    assert fn.attrs["results"] == 2
    inplace = [b.value for b in all_bindings(fn) if isinstance(b.value, graph.Call)
               and b.value.op == graph.Op("call_tir_inplace")]  # fmt: skip
    assert len(inplace) == 2


def test_the_recording_says_what_a_block_takes(passes):
    program = lower_recording(passes.result)
    both = next(b for b in program.blocks if b.name == "both_block")
    assert (both.scalars, len(both.inputs), len(both.outputs)) == (("int64",), 2, 2)
    # The entry's last block reads nothing of an instance: it is told how many there are.
    other = next(b for b in program.blocks if b.name != "both_block")
    assert (other.scalars, other.inputs) == (("int64",), ())
    # The zeros became a constant, which `main` returns: it is copied to where results are.
    (zeros,) = program.gathered
    assert program.shared[zeros].constant is not None and len(program.shared) == 3


def test_gathers_are_kernels_of_their_own_where_they_are_not_fused():
    def gathers(pipeline):
        after = pipeline.run(tree_lstm(4, words=9)).result
        return [n for n in after.loop_functions() if n.startswith("gather")]

    assert not gathers(batched_pipeline())
    assert gathers(batched_pipeline().with_options("batch_blocks", fuse_gathers=False))


def test_matrices_of_instances_are_read_where_they_lie():
    trace = batched_pipeline().run(mv_rnn(32, words=9))
    before = trace.find("schedule_kernels").before
    calls = [tir_call(b.value) for b in all_bindings(before["cell_block_batched"])]
    ranks = [t.ndim for call in calls if call is not None for t in call.outs]
    assert sorted(ranks) == [2, 2, 2, 2, 3]  # of matrices the result alone
    rules = {r.subject: r.reason for r in trace.find("schedule_kernels").remarks if r.applied}
    # A row of its own times a matrix of its own: columns are lanes.
    assert rules["fused_gather_rows_gather_rows_matmul1_rows"] == "scheduled by the rule columns"
    assert rules["fused_gather_rows_gather_rows_concat1_rows_matmul3_rows"].endswith("rule matmul")


NETWORKS = {
    "TreeLSTM": dynamic.tree_lstm, "MV-RNN": dynamic.mv_rnn, "BiRNN": dynamic.bi_rnn,
    "TreeGRU": dynamic.tree_gru, "TreeFC": dynamic.tree_fc,
    "BiLSTM tagger": dynamic.bi_lstm_tagger, "lattice LSTM": dynamic.lattice_lstm,
    "DRNN": dynamic.drnn, "NestedRNN": dynamic.nested_rnn, "StackRNN": dynamic.stack_rnn,
    "BERxiT": dynamic.berxit,
}  # fmt: skip
PAGE = (ROOT / "docs/batching.md").read_text("utf-8").partition("| network | kernels")[2]
COUNTS = re.findall(r"^\| ([\w -]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.M)


def test_the_page_counts_gathers_of_every_network():
    assert [name for name, *_ in COUNTS] == list(NETWORKS)


@pytest.mark.parametrize(("name", "counts"), [(name, counts) for name, *counts in COUNTS])
def test_kernels_that_do_nothing_but_gather_rows(name, counts):
    """The counts are those of docs/batching.md; the gathers that are left feed several kernels."""
    kernels, gathered, kernels_apart, gathered_apart = map(int, counts)
    fused, apart = (kernels, gathered), (kernels_apart, gathered_apart)
    before = [p.name for p in batched_pipeline().passes].index("schedule_kernels")
    for on, want in ((True, fused), (False, apart)):
        pipeline = batched_pipeline().with_options("batch_blocks", fuse_gathers=on)
        mod = Pipeline(pipeline.passes[:before]).run(NETWORKS[name](32)).result
        batched = [f for f in mod.graph_functions().values() if "batched" in f.attrs]
        calls = [
            (f, c)
            for f in batched
            for b in {*all_bindings(f)} - {*depending_on_weights(f, mod)}  # those run at load
            if (c := tir_call(b.value))
        ]
        gathers = [(f, c) for f, c in calls if c.callee.startswith("gather_rows")]
        assert (len(calls), len(gathers)) == want
        for f, made in gathers if on else ():
            (result,) = [b.var for b in all_bindings(f) if tir_call(b.value) == made]
            assert sum(result in c.args for _, c in calls) > 1
