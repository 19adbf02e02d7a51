import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.check_inplace_calls import check_inplace_calls
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass


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
