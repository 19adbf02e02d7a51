"""Batches of rows with matrices of their own run a few rows at a time."""

import numpy as np

import relaxlab as rl
from relaxlab.ir.target import Target
from relaxlab.models import dynamic
from relaxlab.passes.base import Pipeline
from relaxlab.passes.limit_rows import MOST_ROWS, limit_rows
from relaxlab.passes.lower_recording import ANY_ROWS, lower_recording
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.testing.pass_check import check_module
from relaxlab.tracing import first_rewrites, recording


def batched(mod):
    passes = batched_pipeline().passes
    end = next(i for i, p in enumerate(passes) if p.name == limit_rows.name)
    return Pipeline(passes[:end]).run(mod).result


def most_rows(mod):
    return {n: f.attrs[MOST_ROWS] for n, f in mod.graph_functions().items() if MOST_ROWS in f.attrs}


def test_rows_of_matrices_are_limited():
    before = batched(dynamic.mv_rnn(64, words=9))
    with recording() as remarks:
        after = limit_rows(before)
    check_module(limit_rows, before, after)
    # Two matrices and two vectors are read, one of each is written.
    row = 3 * (64 * 64 + 64) * 4
    half = Target.host().facts.cache(2) // 2
    assert most_rows(after) == {"cell_block_batched": half // row}
    (reason,) = (r.reason for r in remarks)
    assert f"{half // row} rows of {row} bytes" in reason
    with first_rewrites(0):
        assert limit_rows(before) is before


def test_batches_whose_weights_fill_the_cache_stay_whole():
    after = limit_rows(batched(dynamic.tree_lstm(256, words=9)))
    assert "cell_block1_batched" not in most_rows(after)


def test_few_rows_at_a_time_compute_the_same():
    mod, rng = dynamic.mv_rnn(8, words=9), np.random.default_rng(0)
    weights = dynamic.random_weights(mod, rng)
    whole = rl.batched_pipeline().without("limit_rows")
    assert {b.most_rows for b in lower_recording(whole.run(mod).result).blocks} == {ANY_ROWS}
    trees = [dynamic.parse_tree(rng, n, words=9) for n in (4, 1, 17, 9)]
    main = rl.compile(mod, pipeline=whole, threads=1)["main"].bind(*weights)
    expected = main.batch(trees)
    (inner,) = (b for b in main._flusher.blocks if len(b.of.inputs) == 4)
    inner.fields.set(most_rows=3)
    words = [b.fields.words for b in main._flusher.blocks]
    main._flusher._fields.hold(blocks=np.concatenate(words))
    np.testing.assert_allclose(main.batch(trees), expected, rtol=1e-5, atol=1e-6)
