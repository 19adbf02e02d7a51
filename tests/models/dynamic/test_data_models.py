"""The networks with data types and with decisions of their own: batches compute what the
interpreter computes one by one."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from tests.models.dynamic.networks import OTHERS, arguments, assert_results_agree

DECIDING = ("drnn", "nested_rnn", "berxit", "stack_rnn")


@pytest.fixture(scope="module", params=OTHERS)
def model(request):
    network = OTHERS[request.param]
    mod = network.make()
    # Weights with which instances decide in other ways.
    weights = dynamic.random_weights(mod, np.random.default_rng(1), 0.5)
    main = rl.compile(mod, pipeline=rl.batched_pipeline())["main"].bind(*weights)

    def given(rng):
        return network.given(mod, rng, int(rng.integers(1, 12)))

    return request.param, mod, main, weights, given


@pytest.mark.parametrize("count", [1, 8, 256])
def test_batches_compute_what_the_interpreter_does(model, count):
    name, mod, main, weights, given = model
    rng = np.random.default_rng(count)
    instances = [given(rng) for _ in range(count)]
    results = main.batch(instances)
    for i in rng.permutation(count)[:3]:  # the interpreter takes long
        expected = rl.interpret(mod, "main", *arguments(instances[i]), *weights)
        assert_results_agree(results[i], expected)
    assert (main.last_batch.flushes > 1) == (name in DECIDING) or count == 1


def test_other_policies_and_orders_give_the_same(model):
    _, _, main, _, given = model
    rng = np.random.default_rng(3)
    instances = [given(rng) for _ in range(6)]
    expected = main.batch(instances)
    depth = main.last_batch.batches
    for found, wanted in zip(main.batch(instances[::-1])[::-1], expected, strict=True):
        assert_results_agree(found, wanted)
    chosen = main.batch(instances, choose=rl.batches_by("critical"))
    for found, wanted in zip(chosen, expected, strict=True):
        assert_results_agree(found, wanted)
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
