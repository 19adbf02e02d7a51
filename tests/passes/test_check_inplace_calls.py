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
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass, compare_runs


def test_the_result_may_be_read_and_the_old_value_before():
    @I.ir_module
    class Good:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Good
            a = R.exp(x)
            z = R.call_tir_inplace(
                cls.bump, (x,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            b = R.add(a, z)
            return b

    check_pass(check_inplace_calls, Good)


def test_late_reads_are_refused_under_any_name():
    @I.ir_module
    class Bad:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Bad
            v = R.reshape(x, R.shape([4]))
            z = R.call_tir_inplace(
                cls.bump, (v,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            b = R.add(x, z)
            return (b, v)

    with pytest.raises(DiagnosticError) as error:
        check_inplace_calls(normalize(Bad))
    codes = [d.code for d in error.value.diagnostics]
    assert codes == ["E0506", "E0506"]
    text = str(error.value)
    assert "x is read after it was overwritten" in text and "use `z`" in text


@I.ir_module
class Calls:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function
    def step(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Calls
        z = R.call_tir_inplace(
            cls.bump, (x,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
        )
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Calls
        e = R.exp(x)
        a = cls.step(x)
        b = cls.step(y)
        c = R.add(e, R.add(a, b))
        return c

    @R.function
    def late(x: R.Tensor((4,), "float32")):
        cls = Calls
        a = cls.step(x)
        b = cls.step(x)
        return (a, b)


def test_functions_that_overwrite_their_arguments_are_known():
    assert overwritten_params(Calls) == {
        "step": frozenset([0]), "main": frozenset([0, 1]), "late": frozenset([0]),
    }  # fmt: skip
    check_pass(check_inplace_calls, Calls.without("late"))
    with pytest.raises(DiagnosticError, match="in `late`: x is read after it was overwritten"):
        check_inplace_calls(normalize(Calls))


def test_their_calls_are_neither_merged_nor_dropped_nor_overtaken():
    @I.ir_module
    class Unread:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def step(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Unread
            z = R.call_tir_inplace(
                cls.bump, (x,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            return z

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Unread
            a = cls.step(x)
            return ()

    start = normalize(Unread)
    assert dead_code_elimination(start) is start
    start = normalize(Calls)
    assert eliminate_common_subexpr(start) is start


def test_branches_are_checked_apart():
    @I.ir_module
    class Branches:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            cls = Branches
            e = R.exp(x)
            if c:
                r = R.call_tir_inplace(
                    cls.bump, (x,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
                )
            else:
                r = R.exp(x)
            f = R.add(e, r)
            return f

    check_pass(check_inplace_calls, Branches)
    fused = Pipeline(GRAPH_PASSES).run(Branches).result
    compare_runs(Branches, fused)


@I.ir_module
class Twins:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 1})
        cls = Twins
        a = R.exp(x)
        b = R.exp(x)
        d = R.call_tir_inplace(
            cls.bump, (b,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
        )
        z = R.zeros(R.shape([4]), "float32")
        u = R.call_tir_inplace(
            cls.bump, (z,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
        )
        e = R.exp(w)
        v = R.call_tir_inplace(
            cls.bump, (e,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
        )
        r = R.add(R.add(a, d), R.add(u, v))
        return r


def test_overwritten_values_are_not_shared_folded_or_lifted():
    start = normalize(Twins)
    check_pass(check_inplace_calls, Twins)
    assert eliminate_common_subexpr(start) is start
    assert fold_constant(start) is start
    assert lift_transform_params(start) is start
    after = Pipeline(GRAPH_PASSES).run(Twins).result
    compare_runs(Twins, after)


def test_fields_of_a_tuple_are_memory_of_their_own():
    @I.ir_module
    class Fields:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def first(
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
        ) -> R.Tensor((4,), "float32"):
            a = t[0]
            return a

        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
            cls = Fields
            a = cls.first(t)
            k = R.call_tir_inplace(
                cls.bump, (a,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            v = t[1]
            b = R.add(k, v)
            return b

        @R.function
        def late(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
            cls = Fields
            a = t[0]
            k = R.call_tir_inplace(
                cls.bump, (a,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
            )
            return (k, t)

    check_pass(check_inplace_calls, Fields.without("late"), compare=False)
    with pytest.raises(DiagnosticError, match="in `late`: t is read"):
        check_inplace_calls(normalize(Fields))


@I.ir_module
class Captured:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function
    def plus(
        a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")
    ) -> R.Tensor((4,), "float32"):
        return R.add(a, b)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Captured
        e = R.exp(x)
        f = R.make_closure(cls.plus, (e,))
        z = R.call_tir_inplace(
            cls.bump, (e,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
        )
        return R.invoke_pure_closure(f, (z,), sinfo_args=R.Tensor((4,), "float32"))


def test_captured_values_are_read_at_the_call():
    with pytest.raises(DiagnosticError, match="e is read after it was overwritten in place"):
        check_inplace_calls(normalize(Captured))


RETURNING = """
@I.ir_module
class Module:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function(private=True)
    def times(a: TENSOR, n: R.Tensor((), "int64")) -> TENSOR:
        cls = Module
        c = R.greater(n, R.const(0, "int64"))
        if c:
            z = R.call_tir_inplace(cls.bump, (a,), out_ty=TENSOR, inplace_indices=[0])
            r = cls.times(z, R.subtract(n, R.const(1, "int64")))
        else:
            r = a
        return r

    @R.function
    def main(x: TENSOR, n: R.Tensor((), "int64")):
        cls = Module
        y = R.negative(x)
        r = cls.times(y, n)
        return READ
"""


def test_a_function_may_return_what_it_overwrites_or_leaves():
    """Its result may be read, its argument not."""
    program = RETURNING.replace("TENSOR", 'R.Tensor((4,), "float32")')
    main = rl.compile(rl.parse(program.replace("READ", "R.add(r, r)")), use_cache=False)["main"]
    x = np.arange(4, dtype="float32")
    for n in (0, 1, 3):
        np.testing.assert_array_equal(main(x, np.array(n)), 2 * (n - x))
    with pytest.raises(DiagnosticError, match="E0506.*y is read after"):
        check_inplace_calls(normalize(rl.parse(program.replace("READ", "R.add(r, y)"))))
