import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.fold_constant import fold_constant
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import check_pass

ONES = np.ones((2, 3), "float32")
SUM = np.full((2,), 3, "float32")


def test_calls_on_constants_become_constants():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.sum(R.const(ONES), axis=1)
                b = R.reshape(a, R.shape([2, 1]))
                c = R.reshape(b, R.shape([2]))
                d = R.add(x, c)
                R.output(d)
            return d

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                d = R.add(x, R.const(SUM))
                R.output(d)
            return d

    check_pass(fold_constant, Before, Expected)


def test_results_that_are_too_large_are_left_to_run_time():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1024, 512), "float32")):
            a = R.zeros(R.shape([1024, 512]), "float32")
            b = R.add(x, a)
            return b

    check_pass(fold_constant, Before)


def test_symbolic_shapes_are_not_constants():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = R.shape_of(x)
            a = R.zeros(n, "float32")
            b = R.add(x, a)
            return b

    check_pass(fold_constant, Before)


def test_results_returned_and_split():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            parts = R.split(R.const(ONES), 3, axis=1)
            a = parts[1]
            b = R.add(x, a)
            return (a, b)

    after = fold_constant(check_input(Before))
    assert len(list(after["main"].body.blocks[0].bindings)) == 1


def check_input(mod):
    from relaxlab.passes.normalize import normalize
    from relaxlab.testing.pass_check import check_module, compare_runs

    start = normalize(mod)
    check_module(fold_constant, start, fold_constant(start))
    compare_runs(start, fold_constant(start))
    return start


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "bool"])
@pytest.mark.parametrize(
    "call", ["R.full((2,), {})", 'R.one_hot(R.const([1], "int64"), {}, {}, 2)']
)
def test_scalars_keep_their_dtype(call: str, dtype: str) -> None:
    value = call.replace("{}", f"R.prim_value(T.{dtype}(1))")
    mod = rl.parse(
        f"@R.function\ndef main():\n    z = {value}\n    return z\n"
    )
    got = rl.compile(mod, use_cache=False)["main"]()
    assert got.dtype == dtype and got.all()
