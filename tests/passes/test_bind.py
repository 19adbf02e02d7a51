"""bind_params and bind_symbolic_vars."""

import numpy as np
import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import types
from relaxlab.ir.node import Attrs
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.bind_params import bind_params
from relaxlab.passes.bind_symbolic_vars import bind_symbolic_vars
from relaxlab.passes.fold_constant import fold_constant
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import assert_same, check_pass, random_arguments
from tests.passes.graph_programs import Programs


@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor(("n", "k"), "float32"),
        w: R.Tensor(("m", "k"), "float32"),
        b: R.Tensor(("m",), "float32"),
    ):
        R.func_attr({"num_input": 1, "tir_var_upper_bound": {"k": 8, "n": 100}})
        y = R.linear(x, w, b)
        return y


def test_parameters_become_constants_and_their_symbols_numbers():
    w = np.arange(6, dtype="float32").reshape(2, 3)
    b = np.ones(2, "float32")
    start = normalize(Layer)
    after = bind_params.with_options(params={"w": w, "b": b})(start)
    main = after["main"]
    assert [str(p.ty) for p in main.params] == ["R.Tensor((n, 3), 'float32')"]
    assert str(main.ret_ty) == "R.Tensor((n, 2), 'float32')"
    assert main.attrs == Attrs(num_input=1, tir_var_upper_bound={"n": 100})
    assert not check_well_formed(after)
    x = np.random.default_rng(0).standard_normal((4, 3), "float32")
    assert_same(interpret(after, "main", x), x @ w.T + b, "the result")
    again = bind_params.with_options(params={"b": np.ones(4, "float32")})(start)
    assert str(again["main"].params[1].ty) == "R.Tensor((4, k), 'float32')"


BAD_ARRAYS = [
    ({"v": np.ones(2, "float32")}, "`main` has no parameter `v`; it has: x, w, b"),
    ({"b": np.ones(2, "float64")}, "`b` has dtype float32, given float64"),
    ({"b": np.ones((2, 1), "float32")}, "`b` has 1 dimensions, given 2"),
    (
        {"w": np.ones((2, 3), "float32"), "b": np.ones(3, "float32")},
        "dimension 0 of `b` is 3, expected m = 2",
    ),
]


@pytest.mark.parametrize("params, message", BAD_ARRAYS, ids=[str(i) for i in range(4)])
def test_arrays_that_do_not_fit_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        bind_params.with_options(params=params)(normalize(Layer))


@I.ir_module
class Calls:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function
    def inner(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Calls
        z = R.call_tir_inplace(
            cls.bump, (x,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
        )
        r = R.add(z, y)
        return r

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Calls
        z = cls.inner(x, y)
        return z


def test_functions_and_parameters_that_cannot_be_bound():
    one = np.ones(4, "float32")
    start = normalize(Calls)
    with pytest.raises(ValueError, match="no graph function `fn`; the module has: inner, main"):
        bind_params.with_options(params={"x": one}, function="fn")(start)
    with pytest.raises(ValueError, match="`x` is overwritten in place: it must be passed"):
        bind_params.with_options(params={"x": one})(start)
    with pytest.raises(ValueError, match="`main` calls `inner` with all its parameters"):
        bind_params.with_options(params={"y": one}, function="inner")(start)
    after = bind_params.with_options(params={"y": one})(start)
    assert_same(interpret(after, "main", np.zeros(4, "float32")), one * 2, "the result")


def test_symbols_become_numbers_everywhere():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32"), s: R.Shape(["n"])):
            R.func_attr({"tir_var_upper_bound": {"n": 8}})
            y = R.reshape(x, R.shape([n * m]))  # noqa: F821
            z = R.concat((y, y))
            return z

    one = bind_symbolic_vars.with_options(values={"n": 3})
    start = normalize(Before)
    after = one(start)
    check_pass(fold_constant, after)
    main = after["main"]
    assert [str(p.ty) for p in main.params] == ["R.Tensor((3, m), 'float32')", "R.Shape([3])"]
    assert not main.attrs and not any(s.name == "n" for s in symbols_in(after))
    x = np.ones((3, 2), "float32")
    assert_same(interpret(after, "main", x, (3,)), interpret(start, "main", x, (3,)), "it")
    with pytest.raises(Exception, match="3"):
        interpret(after, "main", np.ones((4, 2), "float32"), (4,))


BAD_VALUES = [
    ({"q": 1}, "no parameter of `main` mentions `q`; its symbols: n, k, m"),
    ({"n": -1}, "`n` is a size, it cannot be -1"),
    ({"k": 9}, "`k` is at most 8, it cannot be 9"),
]


@pytest.mark.parametrize("values, message", BAD_VALUES)
def test_values_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        bind_symbolic_vars.with_options(values=values)(normalize(Layer))


@pytest.mark.parametrize("seed", range(15))
def test_random_programs_keep_their_meaning(seed):
    start = normalize(Programs(seed).module())
    rng = np.random.default_rng(seed)
    n, m = (int(rng.integers(1, 9)) for _ in range(2))
    small = bind_symbolic_vars.with_options(values={"n": n, "m": m})(start)
    assert not check_well_formed(small)
    args = list(random_arguments(small["main"], rng))
    assert isinstance(small["main"].params[0].ty, types.TensorType)
    want = interpret(start, "main", *(a.copy() for a in args))
    assert_same(interpret(small, "main", *(a.copy() for a in args)), want, f"seed {seed}")
    names = [p.name for p in start["main"].params]
    bound = bind_params.with_options(params={names[2]: args[2], names[3]: args[3]})(start)
    assert not check_well_formed(bound)
    del args[2:4]
    assert_same(interpret(bound, "main", *args), want, f"seed {seed}")
