"""Inputs of batches are read in machine code, and what that does not know is read by Python."""

import cProfile

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.runtime.batch.instances import InstanceReader
from relaxlab.runtime.batch.native_instances import BYTES

RNG = np.random.default_rng(0)
H, WORDS = 4, 20


@pytest.fixture(scope="module")
def trees():
    mod = dynamic.tree_fc(H, WORDS)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    return mod, main.bind(*dynamic.random_weights(mod, np.random.default_rng(1)))


def tree(mod, leaves):
    return dynamic.tree_value(mod, dynamic.parse_tree(RNG, leaves, WORDS))


def calls_of(run):
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def test_no_call_of_python_for_a_node(trees):
    mod, main = trees
    small, large = tree(mod, 3), tree(mod, 600)
    for _ in range(2):  # the first makes room for all of it
        main.batch([large])
    assert calls_of(lambda: main.batch([small])) == calls_of(lambda: main.batch([large]))


def test_trees_share_what_they_have_in_common(trees):
    mod, main = trees
    node = rl.constructors(mod)["Node"]
    part = tree(mod, 5)
    whole = node(node(part, part), part)
    one, other = main.batch([whole, part])
    np.testing.assert_array_equal(one, main.batch([whole])[0])
    np.testing.assert_array_equal(other, main.batch([part])[0])


def words_without_addresses(reader, instances):
    """All integers and shapes that are read, the bytes of all arrays, and the next slot."""
    inputs, params = reader.read(instances), list(enumerate(reader.program.params))
    scalars = [c for c, p in params if p.kind == "scalar"]
    records = [reader._plans.records[c][:, 1:].tolist() for c, p in params if p.kind == "array"]
    return inputs.words[:, scalars].tolist(), records, inputs.plans[:, BYTES].tolist(), inputs.slots


@pytest.fixture(scope="module")
def sentences():
    mod = dynamic.bi_rnn(H)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    return main.bind(*dynamic.random_weights(mod, np.random.default_rng(1)))


def test_integers_and_arrays_of_other_forms_are_read_alike(sentences):
    instances = [dynamic.token_vectors(RNG, n, H) for n in (3, 1, 6)]
    strided = [(n, np.repeat(x, 2, axis=0)[::2]) for n, x in instances]
    numbers = [(int(n), x) for n, x in instances]
    arrays = [(np.array(n), x) for n, x in instances]
    expected = sentences.batch(instances)
    for given in (strided, numbers, arrays, [list(i) for i in instances]):
        np.testing.assert_array_equal(sentences.batch(given), expected)
    reader = InstanceReader(sentences.program)
    fast = words_without_addresses(reader, instances)
    assert fast == words_without_addresses(reader, numbers)
    reader._native = None
    assert fast == words_without_addresses(reader, instances)


def test_no_call_of_python_for_a_flush():
    mod = dynamic.stack_rnn(H)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    weights = dynamic.random_weights(mod, np.random.default_rng(1))
    main.bind(*weights)
    long, short = ([dynamic.token_vectors(RNG, n, H)] for n in (40, 4))
    calls, flushes = [], []
    for instances in (long, short):
        for _ in range(2):  # the first makes room for all of it
            main.batch(instances)
        calls.append(calls_of(lambda given=instances: main.batch(given)))
        flushes.append(main.last_batch.flushes)
        report = main.last_batch
        assert sum(rows for _, rows in report.launches) == report.nodes > 3
    assert calls[0] == calls[1] and flushes[0] > flushes[1] + 10
    expected = rl.interpret(mod, "main", *long[0], *weights)
    np.testing.assert_allclose(main.batch(long)[0], expected, rtol=1e-4, atol=1e-5)


def test_no_call_of_python_for_a_flush_of_many_instances():
    mod = dynamic.stack_rnn(H)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    main.bind(*dynamic.random_weights(mod, np.random.default_rng(1)))
    long, short = ([dynamic.token_vectors(RNG, n, H) for _ in range(600)] for n in (12, 4))
    calls = []
    for instances in (long, short):
        for _ in range(2):  # the first makes room for all of it
            main.batch(instances)
        calls.append(calls_of(lambda given=instances: main.batch(given)))
    assert calls[0] == calls[1]
