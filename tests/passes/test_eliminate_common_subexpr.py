from relaxlab.passes.eliminate_common_subexpr import eliminate_common_subexpr
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import check_pass


def test_equal_calls_are_computed_once():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 3), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                b = R.add(x, y)
                c = R.multiply(a, R.const(2.0, "float32"))
                d = R.multiply(b, R.const(2.0, "float32"))
                e = R.subtract(c, d)
                R.output(e)
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 3), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                b = a
                c = R.multiply(a, R.const(2.0, "float32"))
                d = c
                e = R.subtract(c, c)
                R.output(e)
            return e

    check_pass(eliminate_common_subexpr, Before, Expected)


def test_attributes_and_order_of_arguments_count():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 3), "float32")):
            a = R.subtract(x, y)
            b = R.subtract(y, x)
            c = R.sum(a, axis=0)
            d = R.sum(a, axis=0, keepdims=True)
            return (b, c, d)

    check_pass(eliminate_common_subexpr, Before)


def test_values_of_a_block_are_not_visible_after_it():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                R.output(b)
            with R.dataflow():
                c = R.exp(x)
                d = R.add(b, c)
                R.output(d)
            return d

    check_pass(eliminate_common_subexpr, Before)


def test_branches_know_what_came_before_but_not_each_other():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
            a = R.exp(x)
            if c:
                b = R.exp(x)
                d = R.sin(b)
                r = R.add(d, x)
            else:
                e = R.sin(x)
                r = R.add(e, a)
            f = R.sin(x)
            g = R.add(r, f)
            return g

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
            a = R.exp(x)
            if c:
                b = a
                d = R.sin(a)
                r = R.add(d, x)
            else:
                e = R.sin(x)
                r = R.add(e, a)
            f = R.sin(x)
            g = R.add(r, f)
            return g

    check_pass(eliminate_common_subexpr, Before, Expected)


def test_calls_with_effects_stay():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            a: R.Object = R.call_packed("test.next", x, sinfo_args=(R.Object,))
            b: R.Object = R.call_packed("test.next", x, sinfo_args=(R.Object,))
            return (a, b)

    check_pass(eliminate_common_subexpr, Before, compare=False)


def test_fields_of_equal_tuples_are_the_same():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                t = (x, y)
                u = (x, y)
                a = t[1]
                b = u[1]
                c = R.add(a, b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                t = (x, y)
                u = t
                a = t[1]
                b = a
                c = R.add(a, a)
                R.output(c)
            return c

    check_pass(eliminate_common_subexpr, Before, Expected)
