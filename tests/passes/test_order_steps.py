"""Steps of a recording that do not depend on each other are noted at one depth."""

from typing import Any

import numpy as np

import relaxlab as rl
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.models.dynamic import parse_tree, random_weights, tree_fc, tree_value
from relaxlab.passes.order_steps import order_steps, reads, results
from relaxlab.passes.pipeline import batched_pipeline

A, B, C, D, K, J = (expr.Var(n) for n in "ABCDKJ")


def note(out, *inputs):
    return rec.Record(0, inputs, (), (out,))


def call(out, *args):
    return rec.Call("f", args, (out,))


def test_independent_calls_are_together_wherever_they_stand():
    index = rec.Compute(J, K + 1)
    steps = [call(A, K), index, call(B, J), note(C, A, B)]
    assert order_steps(steps) == (index, rec.Together((steps[0], steps[2])), steps[3])


def test_a_call_waits_for_one_whose_operand_takes_a_block():
    first, one, other, last = note(D), call(A, D), call(B, K), note(C, A, B)
    together = rec.Together((one, other))
    assert order_steps([first, one, other, last]) == (first, together, last)
    # Unless something reads its result before, or waits for a flush.
    reader = note(J, B)
    assert order_steps([first, one, other, reader, last])[0] == rec.Together((first, other))
    waits = rec.ReadTensor(J, D)
    assert order_steps([first, one, other, waits, last])[1:3] == (together, waits)


def test_what_reads_a_result_comes_behind_it():
    steps = [note(A), note(B, A), note(C, B), note(D, A)]
    ordered = order_steps(steps)
    assert ordered == (steps[0], rec.Together((steps[1], steps[3])), steps[2])


def test_integers_that_a_call_returns_come_behind_it():
    compute = rec.Compute(J, A + 1)
    steps = [call(A, K), compute, call(B, J)]
    assert order_steps(steps) == tuple(steps)


def test_a_branch_reads_what_its_arms_read():
    inner = note(C, A)
    branch = rec.Branch(expr.LT(K, expr.const(0)), (inner,), (C,), (), (B,), (D,))
    assert {A, B, C, K} <= set(reads(branch)) and results(branch) == (D,)
    first = note(A)
    assert order_steps([first, branch]) == (first, branch)


def test_without_it_steps_are_noted_one_after_the_other():
    mod, rng = tree_fc(4, words=9), np.random.default_rng(0)
    weights = random_weights(mod, rng)
    trees = [tree_value(mod, parse_tree(rng, 6, words=9)) for _ in range(3)]
    depths: list[int] = []
    batches: list[int] = []
    for side_by_side in (True, False):
        options = {"side_by_side": side_by_side}
        pipeline = batched_pipeline().with_options("annotate_recording", **options)
        main: Any = rl.compile(mod, pipeline=pipeline)["main"].bind(*weights)
        found = main.batch(trees)
        np.testing.assert_allclose(found[0], rl.interpret(mod, "main", trees[0], *weights), 1e-4)
        batches.append(main.last_batch.batches)
        depths.append(len(np.unique(main.record(trees).depth)))
    assert depths[0] < depths[1]
    # Batches are chosen by what notes read, however deep they are noted.
    assert batches[0] == batches[1]
