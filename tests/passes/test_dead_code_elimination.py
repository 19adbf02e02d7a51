from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass
from relaxlab.tracing import recording


def test_dead_chains_and_unreachable_functions():
    @I.ir_module
    class Before:
        @T.prim_func
        def used(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + T.float32(1)

        @T.prim_func
        def unused(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + T.float32(2)

        @R.function(private=True)
        def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

        @R.function
        def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                y = R.call_tir(cls.used, (x,), out_sinfo=R.Tensor((4,), "float32"))
                dead = R.multiply(b, y)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @T.prim_func
        def used(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + T.float32(1)

        @R.function
        def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(x)

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                y = R.call_tir(cls.used, (x,), out_sinfo=R.Tensor((4,), "float32"))
                R.output(y)
            return y

    check_pass(dead_code_elimination, Before, Expected)


def test_local_functions_keep_only_what_they_read():
    """A value that only a dead binding of a local function captured is dead, too."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.exp(x)

            @R.function
            def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                b = R.add(y, a)
                c = R.exp(b)
                z = R.negative(y)
                return z

            w: R.Tensor((4,), "float32") = inner(x)
            return w

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                z = R.negative(y)
                return z

            w: R.Tensor((4,), "float32") = inner(x)
            return w

    check_pass(dead_code_elimination, Before, Expected)


def test_checks_and_effects_stay():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["m"])):
            m = T.int64()
            a = R.match_cast(x, R.Tensor((m,), "float32"))
            b: R.Object = R.call_packed("test.effect", x, sinfo_args=(R.Object,))
            return x

    check_pass(dead_code_elimination, Before, compare=False)


def test_loop_functions_alone_are_the_interface():
    @I.ir_module
    class Before:
        @T.prim_func
        def one(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = T.float32(1)

    check_pass(dead_code_elimination, Before, compare=False)


def test_decisions_are_recorded():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            return x

    with recording() as remarks:
        dead_code_elimination(Before)
    assert [(n.subject, n.reason) for n in remarks] == [("main.a", "nobody reads it")]
