"""Networks with control flow: batches compute what the interpreter computes one by one."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.models.dynamic.inputs import (
    chain_tree,
    complete_tree,
    parse_tree,
    random_weights,
    sentence_leaves,
    sentence_length,
    token_vectors,
)
from relaxlab.models.dynamic.sequences import bi_rnn
from relaxlab.models.dynamic.trees import mv_rnn, tree_lstm

HIDDEN = 8
MODELS = {"tree_lstm": tree_lstm, "mv_rnn": mv_rnn, "bi_rnn": bi_rnn}


def instances_of(name, rng, count):
    if name == "bi_rnn":
        lengths = (min(sentence_length(rng), 25) for _ in range(count))
        return [token_vectors(rng, n, HIDDEN) for n in lengths]
    return [parse_tree(rng, sentence_leaves(rng), 100) for _ in range(count)]


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    mod = MODELS[request.param](HIDDEN)
    exe = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=2)
    weights = random_weights(mod, np.random.default_rng(0), 0.3)
    return request.param, mod, exe["main"].bind(*weights), weights


@pytest.mark.parametrize("count", [1, 8, 64])
def test_batches_compute_what_the_interpreter_does(model, count):
    name, mod, main, weights = model
    rng = np.random.default_rng(count)
    instances = instances_of(name, rng, count)
    results = main.batch(instances)
    assert len(results) == count
    for i in rng.permutation(count)[:3]:  # the interpreter takes long
        expected = rl.interpret(mod, "main", *instances[i], *weights)
        np.testing.assert_allclose(results[i], expected, rtol=1e-4, atol=1e-4)


def extremes(name, rng):
    """Inputs of extreme shapes, and how often the cell runs for the longest."""
    if name == "bi_rnn":
        return [token_vectors(rng, n, HIDDEN) for n in (1, 40, 2)], 40
    trees = [parse_tree(rng, 1, 100), chain_tree(rng, 12, 100), complete_tree(rng, 16, 100)]
    return trees, 11


def test_inputs_of_extreme_shapes(model):
    name, mod, main, weights = model
    instances, steps = extremes(name, np.random.default_rng(7))
    for given, found in zip(instances, main.batch(instances), strict=True):
        expected = rl.interpret(mod, "main", *given, *weights)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    launches = [block for block, _ in main.last_batch.launches]
    if name == "mv_rnn":  # a leaf is two rows of weights: nothing is computed, or copied
        assert launches == ["cell_block"] * steps + ["main_block"]
        return
    # The first block of a cell reads inputs alone: it runs once, for all steps.
    assert launches.count("cell_block") == 1 and launches.count("cell_block1") == steps


def test_what_follows_the_recursion_runs_once(model):
    name, _, main, _ = model
    main.batch(instances_of(name, np.random.default_rng(3), 20))
    launches = [b for b, _ in main.last_batch.launches]
    # The sum over a sentence is its recursion's own result: nothing follows.
    assert launches.count("main_block") == (name != "bi_rnn")
    assert name == "bi_rnn" or launches[-1] == "main_block"


def test_weights_that_do_not_fit_are_refused(model):
    _, _, main, weights = model
    with pytest.raises(rl.ArgumentError, match=r"the weight `\w+` of `main` is an array"):
        main.bind(weights[0][:, :-1], *weights[1:])
    main.bind(*weights)


def test_trees_are_like_those_of_a_treebank():
    rng = np.random.default_rng(0)
    leaves = [sentence_leaves(rng) for _ in range(2000)]
    assert 18 < np.mean(leaves) < 20.5 and 8 < np.std(leaves) < 10.5
    heights = []
    for n in leaves[:300]:
        root, left, right, word = parse_tree(rng, n, 50)
        height = np.zeros(len(left), int)
        for i in range(len(left)):
            if left[i] >= 0:
                assert left[i] < i and right[i] < i
                height[i] = 1 + max(height[left[i]], height[right[i]])
        assert root == len(left) - 1 and np.sum(left < 0) == n and np.all(word[left < 0] >= 0)
        heights.append(height[root])
    assert 8.5 < np.mean(heights) < 11.5
