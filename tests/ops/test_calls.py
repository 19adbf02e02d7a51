"""Operators that call out, name devices or mark values: interpreted, stepped and native."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.node import walk
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.runtime.packed import register_func
from tests.ops.test_unlowered import EVERYWHERE, HEADER, Run, X

BUMP = """
    @T.prim_func
    def bump(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
        for i in range(n):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                B[vi] = A[vi] + T.float32(1)
"""


def add_to(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x += y
    return x


def add_to_and_double(
    x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x += y
    return x, y * 2


register_func("tests.add_to", add_to, override=True)
register_func("tests.add_to_and_double", add_to_and_double, override=True)
register_func("tests.scaled", lambda x, y: x * y, override=True)


@EVERYWHERE
def test_a_packed_function_updates_an_argument(run: Run) -> None:
    text = """
    @R.function(pure=True)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        e = R.exp(x)
        s = R.call_inplace_packed(
            "tests.add_to", e, y, inplace_indices=[0], ty_args=R.Tensor((4,), "float32")
        )
        return R.multiply(s, y)
"""
    x, y = np.linspace(0, 1, 4, dtype="float32"), np.full(4, 2, "float32")
    np.testing.assert_allclose(run(text, x, y), (np.exp(x) + y) * y, rtol=1e-6)
    assert x[0] == 0 and (y == 2).all()


@EVERYWHERE
def test_a_parameter_that_a_packed_function_updates(run: Run) -> None:
    text = """
    @R.function(pure=True)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        s = R.call_inplace_packed(
            "tests.add_to", x, y, inplace_indices=[0], ty_args=R.Tensor((4,), "float32")
        )
        return s
"""
    x, y = np.ones(4, "float32"), np.full(4, 2, "float32")
    result = run(text, x, y)
    assert (x == 3).all() and np.shares_memory(result, x)
    frozen = np.ones(4, "float32")
    frozen.flags.writeable = False
    if run.__name__ != "interpreted":
        with pytest.raises(Exception, match="read-only|writ"):
            run(text, frozen, y)


@EVERYWHERE
def test_a_packed_function_updates_one_argument_and_returns_another_array(run: Run) -> None:
    text = """
    @R.function(pure=True)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        e = R.exp(x)
        t = R.call_inplace_packed(
            "tests.add_to_and_double", e, y, inplace_indices=[0, -1],
            ty_args=(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
        )
        return R.subtract(t[0], t[1])
"""
    x, y = np.linspace(0, 1, 4, dtype="float32"), np.full(4, 2, "float32")
    np.testing.assert_allclose(run(text, x, y), np.exp(x) - y, rtol=1e-6)


def test_updated_values_are_not_read_again() -> None:
    text = """
    @R.function(pure=True)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        s = R.call_inplace_packed(
            "tests.add_to", x, y, inplace_indices=[0], ty_args=R.Tensor((4,), "float32")
        )
        return R.multiply(s, x)
"""
    with pytest.raises(DiagnosticError, match="x is read after it was overwritten in place"):
        rl.compile(rl.parse(HEADER + text), use_cache=False)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ("[0, 0]", "one entry per result"), ("[-1]", "R.call_pure_packed"), ("[2]", "there are 2"),
    ],
)  # fmt: skip
def test_indices_that_do_not_fit(indices: str, message: str) -> None:
    text = f"""
    @R.function(pure=True)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        s = R.call_inplace_packed(
            "tests.add_to", x, y, inplace_indices={indices}, ty_args=R.Tensor((4,), "float32")
        )
        return s
"""
    with pytest.raises(DiagnosticError, match=message):
        rl.compile(rl.parse(HEADER + text), use_cache=False)


@EVERYWHERE
def test_a_python_function_is_called_by_name(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        s = R.call_py_func("tests.scaled", (x, y), out_ty=R.Tensor((n,), "float32"))
        return R.add(s, x)
"""
    np.testing.assert_array_equal(run(text, X[0], X[1]), X[0] * X[1] + X[0])


@EVERYWHERE
def test_a_builtin_may_have_effects(run: Run) -> None:
    seen: list[float] = []
    register_func("tests.seen", lambda x: seen.append(float(x[0])) or x, override=True)
    text = """
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        s = R.call_builtin_with_ctx("tests.seen", (x,), ty_args=R.Tensor((2,), "float32"))
        return x
"""
    run(text, X[1])
    assert seen == [2.0]


GRADIENT = (
    BUMP
    + """
    @R.function
    def main(x: R.Tensor(("m",), "float32")):
        y = R.call_tir_with_grad(
            Module.bump, (x,), out_ty=R.Tensor((m,), "float32"),
            te_grad_name="bump_grad", te_grad_kwargs={"scale": 2.0},
        )
        return y
"""
)


@EVERYWHERE
def test_a_call_with_a_gradient_computes_what_the_call_does(run: Run) -> None:
    np.testing.assert_array_equal(run(GRADIENT, X[0]), X[0] + 1)


def test_the_gradient_is_kept_until_the_call_is_lowered() -> None:
    mod = rl.parse(HEADER + GRADIENT)
    assert_structural_equal(rl.parse(mod.script()), mod)
    trace = cpu_pipeline().run(mod)
    before = next(r.before for r in trace.passes if r.name == "legalize_ops")
    (call,) = [n for n in walk(before["main"]) if isinstance(n, graph.Call)]
    assert call.attrs["te_grad_name"] == "bump_grad" and call.attrs["te_grad_kwargs"]["scale"] == 2
    assert "te_grad" not in trace.result.script()


@EVERYWHERE
def test_devices_that_are_the_program_s_own(run: Run) -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        a = R.to_vdevice(x, "llvm")
        b = R.hint_on_device(R.exp(a), "cpu:0")
        return R.add(a, b)
"""
    np.testing.assert_allclose(run(text, X[0]), np.exp(X[0]) + X[0], rtol=1e-6)


def test_results_are_where_their_arguments_are() -> None:
    text = """
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32", "cuda"), y: R.Tensor((4,), "float32"),
        z: R.Tensor((4,), "float32", "llvm"),
    ):
        a = R.split(R.add(x, y), 2, axis=1)
        b = R.to_vdevice(z, "cuda:0")
        return a, b, R.add(x, b)
"""
    _, result = normalize(rl.parse(HEADER + text)).script().split(" -> ")
    assert result.partition(":\n")[0].count("cuda:0:global") == 4
    with pytest.raises(DiagnosticError, match="on the devices cuda:0:global and llvm:0:global"):
        normalize(rl.parse(HEADER + text.replace("R.add(x, b)", "R.add(x, z)")))


def test_another_device_is_refused() -> None:
    text = """
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.exp(R.to_vdevice(x, "cuda:0"))
"""
    mod = rl.parse(HEADER + text)
    with pytest.raises(DiagnosticError, match="is to be on cuda, the program is for cpu"):
        cpu_pipeline().run(mod)
    assert "to_vdevice" not in cuda_pipeline().run(mod).result.script()
    for name, message in (("cuda:1", "second device"), ("tpu", "no device")):
        with pytest.raises(DiagnosticError, match=message):
            rl.compile(rl.parse(HEADER + text.replace("cuda:0", name)), use_cache=False)


def test_lifting_of_weights_stops_at_its_marker() -> None:
    text = """
    @R.function
    def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
        R.func_attr({"num_input": 1})
        a = R.exp(w)
        b = R.sin(R.builtin.stop_lift_params(a))
        return R.add(x, b)
"""
    mod = rl.parse(HEADER + text)
    exe = rl.compile(mod, use_cache=False)
    lifted = cpu_pipeline().run(mod).result.script().split("def main_transform_params")[1]
    assert "exp" in lifted and "sin" not in lifted
    (w,) = exe["main_transform_params"]((X[1],))
    np.testing.assert_allclose(exe["main"](X[0], w), X[0] + np.sin(np.exp(X[1])), rtol=1e-5)


@EVERYWHERE
def test_programs_lowered_for_the_machine_of_tvm(run: Run) -> None:
    text = (
        BUMP.replace('B: T.Buffer(("n",), "float32")', 'B: T.Buffer(("n",), "float32"), k: T.int64')
        .replace("T.float32(1)", 'T.Cast("float32", k)')
        + """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        s = R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"))
        a = R.vm.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        u: R.Tuple = R.vm.call_tir_dyn(Module.bump, (x, a, R.shape([5])))
        b = R.exp(a)
        v: R.Tuple = R.vm.kill_object(a)
        return b
"""
    )
    x = np.linspace(-6, -5, 4, dtype="float32")
    np.testing.assert_allclose(run(text, x), np.exp(x + 5), rtol=1e-5)


def test_they_print_as_they_are_parsed() -> None:
    text = """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        a = R.call_py_func("tests.scaled", (x, y), out_ty=R.Tensor((4,), "float32"))
        b = R.call_inplace_packed(
            "tests.add_to", a, y, inplace_indices=[0], ty_args=R.Tensor((4,), "float32")
        )
        c = R.call_builtin_with_ctx("tests.scaled", (b, y), ty_args=R.Tensor((4,), "float32"))
        d = R.hint_on_device(R.to_vdevice(c, "cpu"), dst_vdevice="llvm:0:global")
        e = R.builtin.stop_lift_params(d)
        return e
"""
    mod = rl.parse(HEADER + text)
    assert not list(check_well_formed(mod))
    assert_structural_equal(rl.parse(mod.script()), mod)
