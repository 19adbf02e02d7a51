import numpy as np

import relaxlab as rl
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass


def test_copies_disappear_and_outputs_keep_their_names():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                a = x
                b = R.exp(a)
                c = b
                d = R.add(c, b)
                out = d
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                b = R.exp(x)
                out = R.add(b, b)
                R.output(out)
            return out

    after = check_pass(canonicalize, Before, Expected)
    assert after["main"].body.blocks[0].bindings[-1].var.name == "out"


def test_one_value_under_two_output_names():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                a = R.exp(x)
                one = a
                two = a
                R.output(one, two)
            return (one, two)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                one = R.exp(x)
                R.output(one)
            return (one, one)

    check_pass(canonicalize, Before, Expected)


def test_fields_of_known_tuples():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), t: R.Tuple(R.Tensor(("n",)), R.Tensor(("n",)))):
            a = R.exp(x)
            pair = (a, x)
            first = pair[0]
            u = t[0]
            v = t[1]
            again = (u, v)
            return (first, again)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), t: R.Tuple(R.Tensor(("n",)), R.Tensor(("n",)))):
            first = R.exp(x)
            pair = (first, x)
            u = t[0]
            v = t[1]
            return (first, t)

    check_pass(canonicalize, Before, Expected, compare=False)


def test_a_proved_match_cast_goes_and_an_unproved_one_stays():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", "m"])):
            n, m = T.int64(), T.int64()
            a = R.reshape(x, R.shape([n * 4]))
            proved = R.match_cast(a, R.Tensor((4 * n,), "float32"))
            b = R.exp(proved)
            checked = R.match_cast(b, R.Tensor((m,), "float32"))
            c = R.exp(checked)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", "m"])):
            n, m = T.int64(), T.int64()
            a = R.reshape(x, R.shape([n * 4]))
            b = R.exp(a)
            checked = R.match_cast(b, R.Tensor((m,), "float32"))
            c = R.exp(checked)
            return c

    check_pass(canonicalize, Before, Expected, compare=False)


def test_shapes_and_functions_are_written_where_they_are_used():
    @I.ir_module
    class Before:
        @R.function
        def double(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(x, x)

        @R.function
        def main(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n * 2",), "float32"):
            n = T.int64()
            cls = Before
            s = R.shape([n * 2])
            y = R.reshape(x, s)
            f = cls.double
            z: R.Tensor((n * 2,), "float32") = f(y)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def double(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(x, x)

        @R.function
        def main(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n * 2",), "float32"):
            n = T.int64()
            cls = Expected
            y = R.reshape(x, R.shape([n * 2]))
            z: R.Tensor((n * 2,), "float32") = cls.double(y)
            return z

    check_pass(canonicalize, Before, Expected)


def test_nothing_to_do_returns_the_same_module():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            y = R.exp(x)
            return y

    check_pass(canonicalize, Before)


SYMBOL_OF_EACH_BRANCH = """
@R.function
def main(
    x: R.Tensor(("n",), "float32"), y: R.Tensor(("k",), "float32"), c: R.Tensor((), "bool")
):
    m = T.int64()
    if c:
        a = R.match_cast(x, R.Tensor((m,), "float32"))
        r = R.sum(a)
    else:
        b = R.match_cast(y, R.Tensor((m,), "float32"))
        r = R.sum(b)
    return r
"""


def test_each_branch_defines_its_symbol():
    main = rl.compile(rl.parse(SYMBOL_OF_EACH_BRANCH), use_cache=False)["main"]
    ones = (np.ones(3, "float32"), np.ones(5, "float32"))
    assert [main(*ones, np.array(c)) for c in (True, False)] == [3, 5]
