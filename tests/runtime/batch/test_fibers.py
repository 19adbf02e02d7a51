"""Instances whose control flow depends on tensors: they wait, and all that wait go on together."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.batch import fibers
from relaxlab.runtime.batch.recorder import BatchError

TREES = """
@I.ir_module
class Trees:
    @R.data
    class Tree:
        Leaf: (R.Tensor((1, 4), "float32"),)
        Node: (R.Tensor((1, 4), "float32"), "Tree", "Tree")

    @R.function(private=True)
    def grow(
        h: R.Tensor((1, 4), "float32"), depth: R.Tensor((), "int64"),
        A: R.Tensor((4, 4), "float32"), B: R.Tensor((4, 4), "float32"),
    ) -> Tree:
        new = R.tanh(h @ A)
        if R.less(depth, R.const(5, "int64")):
            if R.greater(R.sum(new), R.const(0.0)):
                deeper = R.add(depth, R.const(1, "int64"))
                left = cls.grow(R.sin(new @ A), deeper, A, B)
                right = cls.grow(R.cos(new @ B), deeper, A, B)
                out = cls.Node(new, left, right)
            else:
                out = cls.Leaf(new)
        else:
            out = cls.Leaf(new)
        return out

    @R.function
    def main(
        h: R.Tensor((1, 4), "float32"), A: R.Tensor((4, 4), "float32"),
        B: R.Tensor((4, 4), "float32"), C: R.Tensor((4, 4), "float32"),
    ) -> R.Tuple(Tree, R.Tensor((1, 4), "float32")):
        R.func_attr({"num_input": 1})
        tree = cls.grow(h, R.const(0, "int64"), A, B)
        match tree:
            case cls.Leaf(x):
                top = x
            case cls.Node(x, left, right):
                top = x + x
        return (tree, top @ C)
"""
MODULE = rl.parse(TREES)
RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(3)]


def compiled():
    return rl.compile(MODULE, pipeline=rl.batched_pipeline())["main"].bind(*WEIGHTS)


@pytest.fixture(scope="module")
def main():
    return compiled()


def random_instances(count):
    return [RNG.standard_normal((1, 4)).astype(np.float32) for _ in range(count)]


def height(tree):
    return 1 + max(map(height, tree.fields[1:]), default=0)


def size(tree):
    return 1 + sum(map(size, tree.fields[1:]))


def check_tree(found, expected):
    assert found.constructor == expected.constructor
    np.testing.assert_allclose(found.fields[0], expected.fields[0], rtol=1e-3, atol=1e-4)
    for f, e in zip(found.fields[1:], expected.fields[1:], strict=True):
        check_tree(f, e)


@pytest.mark.parametrize("count", [1, 30])
def test_instances_wait_together(main, count):
    instances = random_instances(count)
    results = main.batch(instances)
    for h, (tree, top) in list(zip(instances, results, strict=True))[:5]:
        expected, wanted = rl.interpret(MODULE, "main", h, *WEIGHTS)
        check_tree(tree, expected)
        np.testing.assert_allclose(top, wanted, rtol=1e-3, atol=1e-4)
    # A flush for each decision of the longest chain, and one for what follows.
    assert main.last_batch.flushes <= max(height(tree) for tree, _ in results) + 1
    # The block after the recursion is launched once, for all instances.
    assert main.last_batch.launches[-1][1] == count
    chosen = main.batch(instances, choose=rl.batches_by("critical"))
    for (tree, top), (other, same) in zip(results, chosen, strict=True):
        check_tree(other, tree)
        np.testing.assert_allclose(same, top, rtol=1e-4, atol=1e-5)


def test_without_free_fibers_calls_go_on_one_after_the_other(main, monkeypatch):
    # A root with two leaves needs one fiber beside its own, which is free; larger trees need more.
    tree = None
    while tree is None or size(tree) <= 3:
        (h,) = random_instances(1)
        ((tree, _),) = main.batch([h])
    few = main.last_batch.flushes
    monkeypatch.setattr(fibers, "FORKS", 1)
    alone = compiled()
    ((other, _),) = alone.batch([h])
    check_tree(tree, other)
    assert alone.last_batch.flushes > few


def test_notes_of_all_rounds_are_one_record(main):
    instances = random_instances(4)
    main.batch(instances)
    assert len(main.record(instances).type_of) == main.last_batch.nodes


BRANCHES = """
@R.function(private=True)
def grow(
    h: R.Tensor((1, 4), "float32"), depth: R.Tensor((), "int64"),
    rows: R.Tensor(("n", 4), "float32"), A: R.Tensor((4, 4), "float32"),
    B: R.Tensor((4, 4), "float32"),
) -> R.Tensor((1, 4), "float32"):
    new = R.tanh(h @ A + R.take(rows, depth, axis=0))
    other = R.tanh(h @ B)
    if R.less(depth, R.const(3, "int64")):
        deeper = R.add(depth, R.const(1, "int64"))
        if R.less(R.const(-0.4), R.sum(new)):
            left = cls.grow(new, deeper, rows, A, B)
        else:
            left = new
        if R.less(R.const(-0.4), R.sum(other)):
            right = cls.grow(other, R.minimum(deeper, R.const(3, "int64")), rows, A, B)
        else:
            right = R.cos(R.add(other, R.take(rows, deeper, axis=0)))
        out = R.add(left, R.sin(right))
    else:
        out = new
    return out

@R.function
def main(
    h: R.Tensor((1, 4), "float32"), rows: R.Tensor(("n", 4), "float32"),
    A: R.Tensor((4, 4), "float32"), B: R.Tensor((4, 4), "float32"),
) -> R.Tensor((1, 4), "float32"):
    R.func_attr({"num_input": 2})
    y = cls.grow(h, R.const(0, "int64"), rows, A, B)
    return y
"""


def test_conditionals_wait_side_by_side():
    mod = rl.parse(BRANCHES)
    instances = [(h, RNG.standard_normal((4, 4)).astype(np.float32)) for h in random_instances(12)]
    main = rl.compile(mod, pipeline=rl.batched_pipeline())["main"].bind(*WEIGHTS[:2])
    for given, found in zip(instances, main.batch(instances), strict=True):
        expected = rl.interpret(mod, "main", *given, *WEIGHTS[:2])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    # One for each decision of a path and one for what follows: not one for each that there is.
    assert main.last_batch.flushes <= 4


ENDLESS = """
@R.function(private=True)
def step(x: R.Tensor((1, 4), "float32"), W: R.Tensor((4, 4), "float32")) -> R.Tensor(
    (1, 4), "float32"
):
    new = x @ W
    if R.less(R.sum(x), R.const(0.0)):
        out = R.multiply(cls.step(new, W), R.const(1.0))
    else:
        out = new
    return out

@R.function
def main(x: R.Tensor((1, 4), "float32"), W: R.Tensor((4, 4), "float32")) -> R.Tensor(
    (1, 4), "float32"
):
    R.func_attr({"num_input": 1})
    y = cls.step(x, W)
    return y
"""


def test_instances_beside_one_that_does_not_end_are_computed(monkeypatch):
    monkeypatch.setattr(fibers, "STACK_BYTES", 1 << 17)  # or each decision is a flush of its own
    weight = np.eye(4, dtype=np.float32)
    main = rl.compile(rl.parse(ENDLESS), pipeline=rl.batched_pipeline())["main"].bind(weight)
    ones = np.ones((1, 4), np.float32)
    message = "instance 1 of the batch .and 1 more.: its recursion"
    with pytest.raises(BatchError, match=message) as error:
        main.batch([ones, -ones, 2 * ones, -ones])
    results = error.value.results
    assert error.value.instance == 1 and results[1] is None and results[3] is None
    np.testing.assert_array_equal(error.value.results[0], ones)
    np.testing.assert_array_equal(error.value.results[2], 2 * ones)
    np.testing.assert_array_equal(main.batch([ones])[0], ones)  # and it is ready for the next


def test_records_of_instances_that_wait_need_the_weights():
    unbound = rl.compile(MODULE, pipeline=rl.batched_pipeline())["main"]
    with pytest.raises(rl.ArgumentError, match="`main` needs its weights: call `bind` first"):
        unbound.record(random_instances(1))
