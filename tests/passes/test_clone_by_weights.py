"""Functions that are called with other weights get copies."""

import pytest

from relaxlab.models.dynamic.sequences import bi_rnn
from relaxlab.passes.clone_by_weights import clone_by_weights
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.normalize import normalize
from relaxlab.passes.shared_values import Source, shared_values
from relaxlab.script import parse
from relaxlab.testing.pass_check import check_module, compare_runs
from relaxlab.tracing import first_rewrites, recording

PROGRAM = """
@R.function(private=True)
def even(i: R.Tensor((), "int64"), x: R.Tensor((4,), "float32"),
         w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    if R.less(i, R.const(1, "int64")):
        r = x
    else:
        r = cls.odd(R.subtract(i, R.const(1, "int64")), R.multiply(x, w), w)
    return r

@R.function(private=True)
def odd(i: R.Tensor((), "int64"), x: R.Tensor((4,), "float32"),
        w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    if R.less(i, R.const(1, "int64")):
        r = x
    else:
        r = cls.even(R.subtract(i, R.const(1, "int64")), R.add(x, w), w)
    return r

@R.function(private=True)
def pick(i: R.Tensor((), "int64"), w: R.Tensor((4,), "float32")) -> R.Tensor((), "int64"):
    j = R.add(i, R.const(1, "int64"))
    return j

@R.function
def main(i: R.Tensor((), "int64"), x: R.Tensor((4,), "float32"), a: R.Tensor((4,), "float32"),
         b: R.Tensor((4,), "float32")):
    R.func_attr({"num_input": 2})
    y = cls.even(cls.pick(i, a), x, a)
    z = cls.even(cls.pick(i, b), y, b)
    return cls.even(i, z, a)
"""


def start(mod=None):
    return lambda_lifting(normalize(mod or parse(PROGRAM)))


def test_a_cycle_of_calls_is_cloned_as_a_whole():
    before = start()
    after = clone_by_weights(before)
    check_module(clone_by_weights, before, after)
    compare_runs(before, after, sizes=(4,))
    # Two of the three calls have the same weight; `pick` computes no tensor.
    assert list(after) == ["even", "odd", "pick", "main", "even_clone", "odd_clone"]
    found = shared_values(after, "main")
    for name, number in (("even", 2), ("odd", 2), ("even_clone", 3), ("odd_clone", 3)):
        assert found.source(name, after[name].params[2]) == Source(number)


def test_both_directions_of_a_recurrent_network_have_their_weights():
    before = start(bi_rnn(4, classes=3))
    with recording() as remarks:
        after = clone_by_weights(before)
    assert [n for n in after if n not in before] == ["cell_clone"]
    (remark,) = (r for r in remarks if r.rule == "clone_by_weights")
    assert remark.subject == "cell" and "walk.back" in remark.reason


@pytest.mark.parametrize("allowed", [0, 1])
def test_clones_may_be_left_out(allowed):
    with first_rewrites(allowed):
        after = clone_by_weights(start())
    assert ("even_clone" in after) == bool(allowed)
