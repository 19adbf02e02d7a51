"""Recorded functions are cut into blocks."""

import pytest

from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.make_blocks import BLOCK, RECORDED, make_blocks
from relaxlab.passes.normalize import normalize
from relaxlab.script import parse
from relaxlab.testing.pass_check import check_module, compare_runs
from relaxlab.tracing import first_rewrites, recording

PROGRAM = """
@R.function(private=True)
def twice(x: R.Tensor((1, 5), "float32"), w: R.Tensor((5, 5), "float32")):
    y = R.matmul(x, R.permute_dims(w))
    z = R.tanh(y)
    return R.add(z, x)

@R.function
def main(
    k: R.Tensor((), "int64"), x: R.Tensor((1, 5), "float32"), w: R.Tensor((5, 5), "float32")
):
    R.func_attr({"num_input": 2})
    a = R.exp(x)
    b = cls.twice(a, w)
    c = R.sin(x)
    if R.less(k, R.const(2, "int64")):
        d = R.multiply(b, c)
    else:
        d = cls.twice(c, w)
    e = R.split(R.concat((d, c), axis=1), 2, axis=1)
    f = R.add(e[0], R.matmul(e[1], R.permute_dims(w)))
    return f
"""


def cut(**options):
    start = lambda_lifting(normalize(parse(PROGRAM)))
    one = make_blocks.with_options(**options)
    after = one(start)
    check_module(one, start, after)
    compare_runs(start, after, sizes=(1,))
    return after


def blocks(mod):
    return {n: f for n, f in mod.graph_functions().items() if BLOCK in f.attrs}


def names_of(fn):
    return [b.value.op.name for b in all_bindings(fn) if isinstance(b.value, graph.Call)]


def test_what_nothing_keeps_apart_is_one_block():
    mod = cut()
    made = {name: names_of(f) for name, f in blocks(mod).items()}
    assert made == {
        "twice_block": ["permute_dims", "matmul", "tanh", "add"],
        "main_block": ["multiply"],
        # `sin` moved in front of the call that it does not depend on.
        "main_block1": ["exp", "sin"],
        "main_block2": ["permute_dims", "concat", "split", "matmul", "add"],
    }
    assert {n for n, f in mod.graph_functions().items() if RECORDED in f.attrs} == {"main", "twice"}


def test_values_of_weights_alone_keep_their_order():
    """`a` is a result, and read by another value of weights that is none."""
    start = lambda_lifting(normalize(parse("""
@R.function
def main(x: R.Tensor((1, 4), "float32"), w: R.Tensor((1, 4), "float32")):
    R.func_attr({"num_input": 1})
    a = R.exp(w)
    b = R.add(a, a)
    c = R.tanh(R.add(b, x))
    return (a, c)
""")))  # fmt: skip
    after = make_blocks(start)
    check_module(make_blocks, start, after)
    compare_runs(start, after, sizes=(1,))


def test_rows_of_weights_that_leave_are_no_blocks():
    """`row` is a result, `other` an operand of one block."""
    start = lambda_lifting(normalize(parse("""
@R.function
def main(k: R.Tensor((), "int64"), x: R.Tensor((3,), "float32"),
         E: R.Tensor((7, 3), "float32")):
    R.func_attr({"num_input": 2})
    row = R.take(E, k, axis=0)
    other = R.take(E, R.add(k, R.const(1, "int64")), axis=0)
    sum = R.add(R.add(row, other), x)
    return (R.reshape(row, (1, 3)), sum)
""")))  # fmt: skip
    after = make_blocks(start)
    check_module(make_blocks, start, after)
    compare_runs(start, after, sizes=(1,))
    assert [names_of(f) for f in blocks(after).values()] == [["take", "add", "add"]]
    with first_rewrites(0):
        made = [names_of(f) for f in blocks(make_blocks(start)).values()]
    assert sum(names.count("take") for names in made) == 2


def test_operators_on_integers_stay():
    assert "less" in names_of(cut()["main"])


def test_without_coarsening_each_operator_is_a_block():
    mod = cut(coarse=False)
    counts = [len([n for n in names_of(f) if n != "permute_dims"]) for f in blocks(mod).values()]
    assert set(counts) == {1} and len(counts) == 10


@pytest.mark.parametrize("allowed", range(4))
def test_any_number_of_merges_may_be_left_out(allowed):
    with first_rewrites(allowed):
        mod = cut()
    assert len(blocks(mod)) >= 4 + (allowed < 1)


def test_the_trace_says_what_is_decided_while_recording():
    with recording() as remarks:
        cut()
    texts = {r.subject: r.reason for r in remarks if r.rule == "make_blocks"}
    assert texts["main.d"] == "is decided while recording"


REFUSED = {
    "has an effect": ("R.less(k, R.const(0, 'int64'))", "R.print(x)", "x"),
    "may differ between instances": (
        "R.less(k, R.const(0, 'int64'))", "R.sum(R.exp(s), axis=0, keepdims=True)", "x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_recorded_is_refused(reason):
    condition, value, other = REFUSED[reason]
    mod = parse(
        f"""
@R.function(pure=False)
def main(
    k: R.Tensor((), "int64"), x: R.Tensor((1,), "float32"), s: R.Tensor(("n",), "float32")
):
    if {condition}:
        y = {value}
        z = x
    else:
        z = {other}
    return z
"""
    )
    with pytest.raises(DiagnosticError, match=reason) as error:
        make_blocks(lambda_lifting(normalize(mod)))
    assert [d.code for d in error.value.diagnostics] == ["E0509"]


def test_a_program_has_one_entry():
    text = PROGRAM.replace("(private=True)", "").replace("def main", "def other")
    with pytest.raises(DiagnosticError, match="`twice`, `other`"):
        make_blocks(lambda_lifting(normalize(parse(text))))
