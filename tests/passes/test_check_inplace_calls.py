import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.base import Pipeline
from relaxlab.passes.check_inplace_calls import check_inplace_calls
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.passes.effects import overwritten_params
from relaxlab.passes.eliminate_common_subexpr import eliminate_common_subexpr
from relaxlab.passes.fold_constant import fold_constant
from relaxlab.passes.lift_transform_params import lift_transform_params
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.testing.pass_check import check_pass, compare_runs
from tests.passes.inplace_programs import bumping


def test_the_result_may_be_read_and_the_old_value_before():
    program = bumping("""
@R.function
def main(x: TENSOR):
    a = R.exp(x)
    z = BUMP(x)
    b = R.add(a, z)
    return b
""")
    check_pass(check_inplace_calls, program)


def test_late_reads_are_refused_under_any_name():
    program = bumping("""
@R.function
def main(x: TENSOR):
    v = R.reshape(x, R.shape([4]))
    z = BUMP(v)
    b = R.add(x, z)
    return (b, v)
""")
    with pytest.raises(DiagnosticError) as error:
        check_inplace_calls(normalize(program))
    codes = [d.code for d in error.value.diagnostics]
    assert codes == ["E0506", "E0506"]
    text = str(error.value)
    assert "x is read after it was overwritten" in text and "use `z`" in text


Calls = bumping("""
@R.function
def step(x: TENSOR) -> TENSOR:
    z = BUMP(x)
    return z

@R.function
def main(x: TENSOR, y: TENSOR):
    e = R.exp(x)
    a = Module.step(x)
    b = Module.step(y)
    c = R.add(e, R.add(a, b))
    return c

@R.function
def late(x: TENSOR):
    a = Module.step(x)
    b = Module.step(x)
    return (a, b)
""")


def test_functions_that_overwrite_their_arguments_are_known():
    assert overwritten_params(Calls) == {
        "step": frozenset([0]), "main": frozenset([0, 1]), "late": frozenset([0]),
    }  # fmt: skip
    check_pass(check_inplace_calls, Calls.without("late"))
    with pytest.raises(DiagnosticError, match="in `late`: x is read after it was overwritten"):
        check_inplace_calls(normalize(Calls))


def test_their_calls_are_neither_merged_nor_dropped_nor_overtaken():
    program = bumping("""
@R.function
def step(x: TENSOR) -> TENSOR:
    z = BUMP(x)
    return z

@R.function
def main(x: TENSOR):
    a = Module.step(x)
    return ()
""")
    start = normalize(program)
    assert dead_code_elimination(start) is start
    start = normalize(Calls)
    assert eliminate_common_subexpr(start) is start


def test_branches_are_checked_apart():
    program = bumping("""
@R.function
def main(x: TENSOR, c: R.Tensor((), "bool")):
    e = R.exp(x)
    if c:
        r = BUMP(x)
    else:
        r = R.exp(x)
    f = R.add(e, r)
    return f
""")
    check_pass(check_inplace_calls, program)
    fused = Pipeline(GRAPH_PASSES).run(program).result
    compare_runs(program, fused)


Twins = bumping("""
@R.function
def main(x: TENSOR, w: TENSOR):
    R.func_attr({"num_input": 1})
    a = R.exp(x)
    b = R.exp(x)
    d = BUMP(b)
    z = R.zeros(R.shape([4]), "float32")
    u = BUMP(z)
    e = R.exp(w)
    v = BUMP(e)
    r = R.add(R.add(a, d), R.add(u, v))
    return r
""")


def test_overwritten_values_are_not_shared_folded_or_lifted():
    start = normalize(Twins)
    check_pass(check_inplace_calls, Twins)
    assert eliminate_common_subexpr(start) is start
    assert fold_constant(start) is start
    assert lift_transform_params(start) is start
    after = Pipeline(GRAPH_PASSES).run(Twins).result
    compare_runs(Twins, after)


def test_fields_of_a_tuple_are_memory_of_their_own():
    program = bumping("""
@R.function
def first(t: R.Tuple(TENSOR, TENSOR)) -> TENSOR:
    a = t[0]
    return a

@R.function
def main(t: R.Tuple(TENSOR, TENSOR)):
    a = Module.first(t)
    k = BUMP(a)
    v = t[1]
    b = R.add(k, v)
    return b

@R.function
def late(t: R.Tuple(TENSOR, TENSOR)):
    a = t[0]
    k = BUMP(a)
    return (k, t)
""")
    check_pass(check_inplace_calls, program.without("late"), compare=False)
    with pytest.raises(DiagnosticError, match="in `late`: t is read"):
        check_inplace_calls(normalize(program))


Captured = bumping("""
@R.function
def plus(a: TENSOR, b: TENSOR) -> TENSOR:
    return R.add(a, b)

@R.function
def main(x: TENSOR):
    e = R.exp(x)
    f = R.make_closure(Module.plus, (e,))
    z = BUMP(e)
    return R.invoke_pure_closure(f, (z,), sinfo_args=TENSOR)
""")


def test_captured_values_are_read_at_the_call():
    with pytest.raises(DiagnosticError, match="e is read after it was overwritten in place"):
        check_inplace_calls(normalize(Captured))


GIVEN = """
@R.function
def plus(a: TENSOR, b: TENSOR, c: TENSOR) -> TENSOR:
    z = BUMP(c)
    return R.add(R.add(a, b), z)

@R.function
def main(x: TENSOR):
    d = R.exp(x)
    e = R.exp(d)
    f = R.make_closure(Module.plus, (e,))
    g = R.make_closure(f, (d,))
    y = R.invoke_pure_closure(g, (x,), sinfo_args=TENSOR)
    return R.add(y, READ)
"""


def test_values_that_a_closure_of_a_closure_has_may_be_overwritten_by_its_call():
    for read in ("x", "d"):
        check_inplace_calls(normalize(bumping(GIVEN.replace("READ", read))))
    with pytest.raises(DiagnosticError, match="e is read after it was overwritten in place"):
        check_inplace_calls(normalize(bumping(GIVEN.replace("READ", "e"))))


RETURNING = """
@R.function(private=True)
def times(a: TENSOR, n: R.Tensor((), "int64")) -> TENSOR:
    c = R.greater(n, R.const(0, "int64"))
    if c:
        z = BUMP(a)
        r = Module.times(z, R.subtract(n, R.const(1, "int64")))
    else:
        r = a
    return r

@R.function
def main(x: TENSOR, n: R.Tensor((), "int64")):
    y = R.negative(x)
    r = Module.times(y, n)
    return READ
"""


def test_a_function_may_return_what_it_overwrites_or_leaves():
    """Its result may be read, its argument not."""
    main = rl.compile(bumping(RETURNING.replace("READ", "R.add(r, r)")), use_cache=False)["main"]
    x = np.arange(4, dtype="float32")
    for n in (0, 1, 3):
        np.testing.assert_array_equal(main(x, np.array(n)), 2 * (n - x))
    with pytest.raises(DiagnosticError, match="E0506.*y is read after"):
        check_inplace_calls(normalize(bumping(RETURNING.replace("READ", "R.add(r, y)"))))
