"""The networks with data types and with decisions of their own: batches compute what the
interpreter computes one by one."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.ir.data import DataValue

H = 8


def rows(rng, count):
    return rng.standard_normal((count, H)).astype(np.float32)


def tree(mod, rng):
    return dynamic.tree_value(mod, dynamic.parse_tree(rng, int(rng.integers(1, 12)), 50))


MODELS = {
    "tree_gru": (lambda: dynamic.tree_gru(H, 50), tree),
    "tree_fc": (lambda: dynamic.tree_fc(H, 50), tree),
    "bi_lstm_tagger": (
        lambda: dynamic.bi_lstm_tagger(H, 50),
        lambda _, rng: dynamic.tagged_sentence(rng, int(rng.integers(1, 12)), 50),
    ),
    "lattice_lstm": (
        lambda: dynamic.lattice_lstm(H, 50),
        lambda _, rng: dynamic.lattice(rng, int(rng.integers(1, 12)), 50),
    ),
    "drnn": (lambda: dynamic.drnn(H, 4), lambda _, rng: rows(rng, 1)),
    "nested_rnn": (
        lambda: dynamic.nested_rnn(H),
        lambda _, rng: dynamic.nested_items(rng, H, 6, (2, 5)),
    ),
    "berxit": (lambda: dynamic.berxit(H, length=6, depth=4), lambda _, rng: rows(rng, 6)),
    "stack_rnn": (
        lambda: dynamic.stack_rnn(H),
        lambda _, rng: dynamic.token_vectors(rng, int(rng.integers(1, 10)), H),
    ),
}
DECIDING = ("drnn", "nested_rnn", "berxit", "stack_rnn")


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    make, given = MODELS[request.param]
    mod = make()
    # Weights with which instances decide in other ways.
    weights = dynamic.random_weights(mod, np.random.default_rng(1), 0.5)
    main = rl.compile(mod, pipeline=rl.batched_pipeline())["main"].bind(*weights)
    return request.param, mod, main, weights, lambda rng: given(mod, rng)


def check(found, expected):
    if isinstance(expected, DataValue):
        assert found.constructor == expected.constructor
        for f, e in zip(found.fields, expected.fields, strict=True):
            check(f, e)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("count", [1, 8, 256])
def test_batches_compute_what_the_interpreter_does(model, count):
    name, mod, main, weights, given = model
    rng = np.random.default_rng(count)
    instances = [given(rng) for _ in range(count)]
    results = main.batch(instances)
    for i in rng.permutation(count)[:3]:  # the interpreter takes long
        args = instances[i] if isinstance(instances[i], tuple) else (instances[i],)
        check(results[i], rl.interpret(mod, "main", *args, *weights))
    assert (main.last_batch.flushes > 1) == (name in DECIDING) or count == 1


def test_other_policies_and_orders_give_the_same(model):
    _, _, main, _, given = model
    rng = np.random.default_rng(3)
    instances = [given(rng) for _ in range(6)]
    expected = main.batch(instances)
    depth = main.last_batch.batches
    for found, wanted in zip(main.batch(instances[::-1])[::-1], expected, strict=True):
        check(found, wanted)
    chosen = main.batch(instances, choose=rl.batches_by("critical"))
    for found, wanted in zip(chosen, expected, strict=True):
        check(found, wanted)
    assert main.last_batch.batches <= depth


def test_decisions_differ_between_instances(model):
    name, _, main, _, given = model
    rng, flushes = np.random.default_rng(1), set()
    for _ in range(12):
        main.batch([given(rng)])
        flushes.add(main.last_batch.flushes)
    assert (len(flushes) > 1) == (name in DECIDING)
    # Children and siblings grow side by side: a flush for each step down or aside, and the last.
    assert name != "drnn" or max(flushes) <= 5


def test_lattices_are_like_those_of_a_corpus():
    rng = np.random.default_rng(0)
    lengths = [dynamic.lattice_length(rng) for _ in range(1000)]
    assert abs(np.mean(lengths) - 44.1) < 2
    words = sum(len(dynamic.lattice(rng, n)[3]) for n in lengths[:100]) / sum(lengths[:100])
    assert 0.45 < words < 0.58
    assert abs(np.mean([dynamic.tagger_length(rng) for _ in range(1000)]) - 23) < 1.5
