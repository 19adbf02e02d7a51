"""Blocks that read weights and integers alone run once in a batch for equal operands."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.codegen.llvm.recorder_words import MEMO_ENTRIES
from relaxlab.models.dynamic.inputs import random_weights
from relaxlab.runtime.batch.recorder import BatchError

HIDDEN = 8
RNG = np.random.default_rng(11)


def compiled(mod, **options):
    pipeline = rl.batched_pipeline().with_options("annotate_recording", **options)
    exe = rl.compile(mod, pipeline=pipeline)
    return exe["main"].bind(*random_weights(mod, np.random.default_rng(0), 0.4))


@pytest.fixture(scope="module")
def tree_lstm():
    mod = dynamic.tree_lstm(HIDDEN, words=3 * MEMO_ENTRIES)
    return mod, compiled(mod), compiled(mod, memoize=False)


def trees_of(words, count=20):
    return [dynamic.parse_tree(RNG, int(n), words) for n in RNG.integers(1, 12, count)]


def words_of(tree):
    _, left, _, word = tree
    return word[left < 0].tolist()


def count_inner(trees):
    return sum(int((left >= 0).sum()) for _, left, _, _ in trees)


@pytest.mark.parametrize("words", [1, 7, 3 * MEMO_ENTRIES])
def test_each_word_is_computed_once(tree_lstm, words):
    _, shared, apart = tree_lstm
    trees = trees_of(words)
    found, expected = shared.batch(trees), apart.batch(trees)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    inner, roots = count_inner(trees), len(trees)
    all_words = [w for t in trees for w in words_of(t)]
    assert apart.last_batch.nodes == inner + roots + len(all_words)
    of_leaves = shared.last_batch.nodes - inner - roots
    # With more words than entries one may push out another, which is computed again.
    distinct = len(set(all_words))
    assert distinct <= of_leaves <= len(all_words)
    assert of_leaves == distinct or words > MEMO_ENTRIES


def test_words_with_one_entry_stay_apart(tree_lstm):
    """Words that differ by the number of entries have the same one."""
    _, shared, apart = tree_lstm
    words = np.array([5, 5 + MEMO_ENTRIES, 5, 5 + 2 * MEMO_ENTRIES])
    leaves = [(np.int64(0), *np.full((2, 1), -1), words[k : k + 1]) for k in (0, 1, 2, 3, 3)]
    found, expected = shared.batch(leaves), apart.batch(leaves)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not np.allclose(found[0], found[1])
    # The third asks for a word that the second pushed out; the last for one that is there.
    assert shared.last_batch.nodes == 4 + len(leaves)


def test_results_that_are_shared_are_arrays_of_their_own():
    mod = rl.parse("""
@R.function
def main(word: R.Tensor((), "int64"), E: R.Tensor((9, 4), "float32")):
    R.func_attr({"num_input": 1})
    return R.sin(R.take(E, R.reshape(word, (1,)), axis=0))
""")
    table = RNG.random((9, 4), "float32")
    main = rl.compile(mod, pipeline=rl.batched_pipeline())["main"].bind(table)
    words = [np.int64(w) for w in (3, 3, 0, 3, -1)]
    found = main.batch(words)
    assert main.last_batch.nodes == 3
    found[0][:] = 7
    for result, word in zip(found[1:], (3, 0, 3, -1), strict=True):
        np.testing.assert_allclose(result, np.sin(table[[max(word, 0)]]), rtol=1e-5)


def test_what_a_failed_instance_noted_is_noted_again(tree_lstm):
    """A tree with a cycle fails after the leaves on its way were noted."""
    mod, shared, _ = tree_lstm
    good = dynamic.parse_tree(RNG, 6, 4)
    root, left, right, word = (np.array(a) for a in good)
    bad = (root, left, np.where(right == right[root], root, right), word)
    for batch in ([bad, good, good], [good, bad, good]):
        with pytest.raises(BatchError) as raised:
            shared.batch(batch)
        expected = rl.interpret(mod, "main", *good, *random_weights(
            mod, np.random.default_rng(0), 0.4
        ))  # fmt: skip
        of = [r for r in raised.value.results if r is not None]
        assert len(of) == 2
        for result in of:
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)


def test_rows_that_instances_give_are_not_looked_up():
    """Their projections are hoisted, too, but no two are the same."""
    mod = dynamic.bi_rnn(HIDDEN)
    shared, apart = compiled(mod), compiled(mod, memoize=False)
    row = RNG.random((1, HIDDEN), "float32")
    instances = [(np.int64(3), np.repeat(row, 3, axis=0)) for _ in range(4)]
    np.testing.assert_allclose(shared.batch(instances), apart.batch(instances), rtol=1e-5)
    assert shared.last_batch.nodes == apart.last_batch.nodes


def test_a_program_whose_instances_wait_shares_nothing():
    """One that waits may fail when others have read what it noted."""
    mod = rl.parse("""
@R.function
def main(word: R.Tensor((), "int64"), E: R.Tensor((9, 4), "float32")):
    R.func_attr({"num_input": 1})
    x = R.sin(R.take(E, R.reshape(word, (1,)), axis=0))
    if R.greater(R.sum(x), R.const(0.0)):
        out = R.add(x, R.const(1.0))
    else:
        out = R.subtract(x, R.const(1.0))
    return out
""")
    table = RNG.standard_normal((9, 4)).astype("float32")
    main = rl.compile(mod, pipeline=rl.batched_pipeline())["main"].bind(table)
    words = [np.int64(w) for w in (3, 3, 0, 3)]
    for found, word in zip(main.batch(words), words, strict=True):
        x = np.sin(table[[word]])
        np.testing.assert_allclose(found, x + 1 if x.sum() > 0 else x - 1, rtol=1e-5)
    assert main.last_batch.nodes == 2 * len(words)
