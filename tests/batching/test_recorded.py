"""Policies choose the batches of recorded programs."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.batching.bound import batch_bound, optimum
from relaxlab.batching.graph import GraphError
from relaxlab.batching.policies import PolicyError, schedule_batches
from relaxlab.models.dynamic.inputs import parse_tree
from relaxlab.runtime.batch.recorder import BatchError
from relaxlab.runtime.batch.records import ScheduleError

PROGRAM = """
@R.function(private=True)
def node(i: R.Tensor((), "int64"), left: R.Tensor(("n",), "int64"),
         right: R.Tensor(("n",), "int64"), kind: R.Tensor(("n",), "int64"),
         a: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    if R.less(R.take(left, i, axis=0), R.const(0, "int64")):
        out = R.multiply(a, R.astype(i, "float32"))
    else:
        x = cls.node(R.take(left, i, axis=0), left, right, kind, a)
        y = cls.node(R.take(right, i, axis=0), left, right, kind, a)
        if R.equal(R.take(kind, i, axis=0), R.const(0, "int64")):
            out = R.tanh(R.add(x, y))
        else:
            out = R.sin(R.subtract(x, y))
    return out

@R.function
def main(i: R.Tensor((), "int64"), left: R.Tensor(("n",), "int64"),
         right: R.Tensor(("n",), "int64"), kind: R.Tensor(("n",), "int64"),
         a: R.Tensor((3,), "float32")):
    R.func_attr({"num_input": 4})
    return cls.node(i, left, right, kind, a)
"""


@pytest.fixture(scope="module")
def program():
    mod = rl.parse(PROGRAM)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    weight = np.array([0.1, -0.2, 0.3], "float32")
    rng = np.random.default_rng(4)
    trees = [tree_of_two_kinds(rng, int(n)) for n in rng.integers(1, 15, 12)]
    return mod, main.bind(weight), trees, weight


def tree_of_two_kinds(rng, leaves):
    root, left, right, _ = parse_tree(rng, leaves, 5)
    return root, left, right, rng.integers(0, 2, len(left))


@pytest.mark.parametrize("policy", ["depth", "agenda", "ratio", "critical"])
def test_results_are_the_same_by_every_policy(program, policy):
    mod, main, trees, weight = program
    expected = main.batch(trees)
    fewest = main.last_batch.batches
    found = main.batch(trees, choose=rl.batches_by(policy))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(found[0], rl.interpret(mod, "main", *trees[0], weight), rtol=1e-5)
    graph = rl.recorded_graph(main.record(trees))
    # A leaf is its number times the weight: trees share the leaves of one number.
    leaves = {i for t in trees for i in np.flatnonzero(t[1] < 0).tolist()}
    inner = sum(int((t[1] >= 0).sum()) for t in trees)
    assert len(graph) == main.last_batch.nodes == inner + len(leaves)
    batches = main.last_batch.batches
    assert rl.batch_bound(graph) <= min(fewest, batches)
    assert fewest <= batches or policy in ("ratio", "critical")


def test_batches_that_leave_notes_out_are_refused(program):
    _, main, trees, _ = program
    with pytest.raises(ScheduleError, match="the batches hold 0 of"):
        main.batch(trees, choose=lambda records: [])
    with pytest.raises(ScheduleError, match="batch 0 is of the block"):
        main.batch(trees, choose=lambda records: [(0, np.arange(len(records.type_of)))])


@pytest.mark.parametrize(
    "given",
    [
        (3, [-1, -1, 0], [-1, -1, 1], [0, 0, 1]),
        (-2, [-1, -1, 0], [-1, -1, 1], [0, 0, 1]),
        (2, [-1, -1, 0], [-1, -1, -7], [0, 0, 1]),
    ],
)
def test_indices_outside_of_arrays_mean_what_they_do_elsewhere(program, given):
    """Two roots and a child: the nearest element is read."""
    mod, main, trees, weight = program
    root, *arrays = given
    tree = (np.int64(root), *(np.array(a, "int64") for a in arrays))
    expected = rl.interpret(mod, "main", *tree, weight)
    np.testing.assert_allclose(main.batch([trees[0], tree])[1], expected, rtol=1e-5)
    ordinary = rl.compile(mod, threads=1)["main"]
    np.testing.assert_allclose(ordinary(*tree, weight), expected, rtol=1e-5)


def test_a_child_that_is_not_there_is_named_as_a_cause_of_endless_recursion(program):
    _, main, trees, _ = program
    arrays = (np.array(a, "int64") for a in ([-1, -1, 10**6], [-1, -1, 1], [0, 0, 1]))
    with pytest.raises(BatchError, match="instance 1 .*recursion.*a child that is not there") as e:
        main.batch([trees[0], (np.int64(2), *arrays)])
    np.testing.assert_array_equal(e.value.results[0], main.batch([trees[0]])[0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rl.batches_by(3), PolicyError, "got an int: .*depth, agenda.*learn_policy"),
        (lambda: rl.batches_by(rl.learn_policy), PolicyError, "expected a policy, got a function"),
        (lambda: rl.batches_by("none"), PolicyError, "no policy is called 'none': there are depth"),
        (lambda: rl.recorded_graph(None), GraphError, "expected what `main.record.instances.` ret"),
        (lambda: batch_bound(None), GraphError, "expected a graph, got None: `rl.recorded_graph"),
        (lambda: optimum([1]), GraphError, "expected a graph, got a list"),
        (lambda: schedule_batches(None), GraphError, "expected a graph, got None"),
    ],
)
def test_what_is_no_policy_or_graph_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()
