"""Functions as values, natively: the results of the interpreter, for every number of threads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.llvm.host_frame import UnsupportedHost
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.export.export import ExportError, find_compiler
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.testing.pass_check import assert_same, random_arguments
from tests.passes.graph_programs import Programs
from tests.passes.test_lambda_lifting import (
    CAPTURES,
    HEAD,
    HIGHER,
    NESTED,
    RECURSIVE,
    SYMBOLS,
    with_local_functions,
)

COMPOSED = """
    @R.function(private=True)
    def compose(
        f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32")),
        g: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32")),
    ):
        @R.function
        def both(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
            k = T.int64()
            z = R.match_cast(g(y), R.Tensor((k,), "float32"))
            w = R.match_cast(f(z), R.Tensor((k,), "float32"))
            return w

        return both

    @R.function(private=True)
    def doubled(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        return R.add(y, y)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Module
        e = R.exp(x)

        @R.function
        def shifted(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(y, e)

        h = cls.compose(shifted, cls.doubled)
        hh = cls.compose(h, h)
        r = R.match_cast(hh(x), R.Tensor((n,), "float32"))
        return r
"""
CHOSEN = """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()
        s = R.sum(x)

        @R.function
        def plus(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
            return R.add(y, s)

        @R.function
        def scaled(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
            z = R.multiply(y, R.const(3, "float32"))
            return R.subtract(z, s)

        if c:
            f = plus
        else:
            f = scaled
        t = (f, x)
        g = t[0]
        a = g(R.sin(x))
        b = R.match_cast(a, R.Tensor((n,), "float32"))
        return R.multiply(b, x)
"""
BOUND_TWICE = """
    @R.function
    def mix(a: R.Tensor(("n",), "float32"), b: R.Tensor(("n",), "float32"), s: R.Shape(["m"]),
            k: R.Prim("int64"), c: R.Tensor(("n",), "float32")) -> R.Tensor(("n", "m"), "float32"):
        n, m = T.int64(), T.int64()
        d = R.subtract(R.multiply(a, b), c)
        e = R.reshape(d, R.shape([n, 1]))
        return R.broadcast_to(e, R.shape([n, m]))

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        n = T.int64()
        f = R.make_closure(Module.mix, (x,))
        g = R.make_closure(f, (R.exp(y), R.shape([3]), R.prim_value(n)))
        a = R.invoke_pure_closure(g, (y,), ty_args=R.Tensor((n, 3), "float32"))
        c = R.const([1.0, 2.0], "float32")
        b = R.invoke_pure_closure(g, (c,), ty_args=R.Tensor((2, 3), "float32"))
        return a, b
"""
FOLDED = """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((), "int64")):
        n = T.int64()

        @R.function
        def again(
            f: R.Object, y: R.Tensor(("n",), "float32"), j: R.Tensor((), "int64")
        ) -> R.Tensor(("n",), "float32"):
            done = R.less_equal(j, R.const(0, "int64"))
            if done:
                r = y
            else:
                k = R.subtract(j, R.const(1, "int64"))
                z = R.invoke_pure_closure(f, (y,), ty_args=R.Tensor((n,), "float32"))
                r = again(f, z, k)
            return r

        @R.function
        def step(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.multiply(R.add(y, x), R.const(0.5, "float32"))

        return again(step, R.exp(x), i)
"""


def x_of(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).uniform(-1, 1, n).astype("float32")


PROGRAMS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "captures": (CAPTURES, [(x_of(20).reshape(5, 4), np.eye(4, dtype="float32"))]),
    "symbols": (SYMBOLS, [(x_of(5),), (x_of(1),)]),
    "nested": (NESTED, [(x_of(5), np.asarray(c)) for c in (True, False)]),
    "recursive": (RECURSIVE, [(x_of(3), np.asarray(i, "int64")) for i in (0, 1, 4)]),
    "higher": (HIGHER, [(x_of(5),), (x_of(1),)]),
    "composed": (COMPOSED, [(x_of(7),), (x_of(300),)]),
    "chosen": (CHOSEN, [(x_of(9), np.asarray(c)) for c in (True, False)]),
    "bound twice": (BOUND_TWICE, [(x_of(2), x_of(2) + 1)]),
    "folded": (FOLDED, [(x_of(n), np.asarray(i, "int64")) for n, i in ((4, 0), (1, 3), (70, 50))]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_native_closures_compute_what_the_interpreter_computes(name: str) -> None:
    text, calls = PROGRAMS[name]
    mod = rl.parse(HEAD + text)
    exe = rl.compile(mod, use_cache=False)
    machine = VirtualMachine(lower_shapes(cpu_pipeline().run(mod).result))
    for args in calls:
        want = rl.interpret(mod, "main", *args)
        assert_same(machine.run("main", *args), want, "in the virtual machine", 1e-5)
        for threads in (1, 2, 3):
            exe.threads = threads
            for _ in range(3):
                assert_same(exe["main"](*args), want, f"{threads} threads", 1e-5)


def test_given_arguments_are_the_last_ones_those_given_later_before_earlier_ones() -> None:
    # `mix(a, b, s, k, c)` is a * b - c in all columns; c is given first, b, s and k after it.
    x, y = x_of(2), x_of(2) + 1
    values = rl.interpret(rl.parse(HEAD + BOUND_TWICE), "main", x, y)
    for a, value in zip((y, [1, 2]), values, strict=True):
        column = (a * np.exp(y) - x)[:, None]
        np.testing.assert_allclose(value, np.repeat(column, 3, 1), rtol=1e-6)


def test_no_memory_is_lost_or_read_after_it_was_freed() -> None:
    exe = rl.compile(rl.parse(HEAD + FOLDED), use_cache=False, threads=2)
    x = x_of(1000)
    want = rl.interpret(rl.parse(HEAD + FOLDED), "main", x, np.asarray(40, "int64"))
    kept = [exe["main"](x, np.asarray(40, "int64")) for _ in range(50)]
    for got in kept:
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_functions_of_the_program_that_take_functions_are_not_offered() -> None:
    exe = rl.compile(rl.parse(HEAD + COMPOSED), use_cache=False)
    assert "main" in list(exe) and "compose" not in list(exe)


def test_a_function_that_only_python_could_call_with_a_function_is_refused() -> None:
    text = """
    @R.function
    def main(f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32")),
             x: R.Tensor(("n",), "float32")):
        return f(x)
"""
    with pytest.raises(UnsupportedHost, match="parameter `f` of `main` has type .*virtual machine"):
        rl.compile(rl.parse(HEAD + text), use_cache=False)


WRONG = """
    @R.function(private=True)
    def rows(y: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n",), "float32"):
        return R.sum(y, axis=1)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        f = R.make_closure(Module.rows, ())
        return R.invoke_pure_closure(f, (ARGUMENT,), ty_args=RESULT)
"""


@pytest.mark.parametrize(
    ("argument", "result", "message"),
    [
        ("x", 'R.Tensor((n,), "float32")', "`f` in `main` is called as a function from"),
        ("R.reshape(x, (n, 1))", 'R.Tensor((n,), "float64")', "which it is not"),
        (
            "R.reshape(x, (n, 1))", 'R.Tensor((n + 1,), "float32")',
            r"dimension 0 of the result .* is 4, expected n \+ 1 = 5",
        ),
    ],
)  # fmt: skip
def test_arguments_and_results_of_function_values_are_checked(
    argument: str, result: str, message: str
) -> None:
    text = WRONG.replace("ARGUMENT", argument).replace("RESULT", result)
    exe = rl.compile(rl.parse(HEAD + text), use_cache=False, threads=2)
    with pytest.raises(CheckFailed, match=message):
        exe["main"](x_of(4))


def test_too_many_arguments_of_a_closure_are_refused() -> None:
    text = """
    @R.function(private=True)
    def one(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.exp(y)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        f = R.make_closure(Module.one, (x,))
        g = R.make_closure(f, (x,))
        return R.invoke_pure_closure(g, (), ty_args=R.Tensor((n,), "float32"))
"""
    exe = rl.compile(rl.parse(HEAD + text), use_cache=False, threads=1)
    with pytest.raises(CheckFailed, match="`f` in `main` is given arguments that it does not take"):
        exe["main"](x_of(4))


@pytest.mark.parametrize("name", ["higher", "composed", "folded"])
def test_exported_programs_have_function_values_too(name: str, tmp_path: Path) -> None:
    try:
        find_compiler()
    except ExportError as error:
        pytest.skip(str(error))
    text, calls = PROGRAMS[name]
    exe = rl.compile(rl.parse(HEAD + text), use_cache=False)
    exe.export(tmp_path / "model.so")
    again = rl.load(tmp_path / "model.so")
    assert list(again) == list(exe)
    for args in calls:
        np.testing.assert_array_equal(again["main"](*args), exe["main"](*args))


@pytest.mark.parametrize("name", ["higher", "composed"])
def test_function_values_on_simulated_gpus(name: str) -> None:
    text, calls = PROGRAMS[name]
    mod = rl.parse(HEAD + text)
    exe = rl.compile(mod, "cuda:sm_80")
    want = rl.interpret(mod, "main", *calls[0])
    assert_same(exe.simulate("main", *calls[0]), want, "on threads", 1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_with_local_functions(seed: int) -> None:
    print("seed", seed)
    start = normalize(Programs(seed).module())
    exe = rl.compile(with_local_functions(start, random.Random(seed)), use_cache=False, threads=2)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        args = random_arguments(start["main"], rng)
        want = rl.interpret(start, "main", *args)
        assert_same(exe["main"](*args), want, f"the result (seed {seed})", 1e-4)


@pytest.mark.parametrize("exported", [False, True])
def test_recursion_of_function_values_ends_in_an_error(exported: bool, tmp_path: Path) -> None:
    text, calls = PROGRAMS["folded"]
    exe = rl.compile(rl.parse(HEAD + text), use_cache=False, threads=2)
    if exported:
        try:
            exe.export(tmp_path / "model.so")
        except ExportError as error:
            pytest.skip(str(error))
        exe = rl.load(tmp_path / "model.so", threads=2)
    x = calls[0][0]
    with pytest.raises((CheckFailed, MemoryError), match="too deeply"):
        exe["main"](x, np.asarray(10**7, "int64"))
    np.testing.assert_allclose(exe["main"](x, np.asarray(0, "int64")), np.exp(x), rtol=1e-6)


PARTLY = """
    @R.function
    def twice(f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("n",), "float32")),
              x: R.Tensor(("n",), "float32")):
        y = f(x)
        return f(y)

    @R.function
    def anything(x: R.Tensor):
        return R.exp(x)

    @R.function
    def calls(x: R.Tensor):
        return Module.anything(x)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.exp(x)
"""


def test_functions_without_a_native_form_do_not_stop_the_others() -> None:
    mod = rl.parse(HEAD + PARTLY)
    exe = rl.compile(mod, use_cache=False)
    assert list(exe) == ["main"]
    np.testing.assert_allclose(exe["main"](x_of(3)), np.exp(x_of(3)), rtol=1e-6)
    reasons = {"twice": "parameter `f` of `twice`", "anything": "R.Tensor", "calls": "`anything`"}
    for name, reason in reasons.items():
        with pytest.raises(KeyError, match=reason):
            exe[name]
    machine = VirtualMachine(lower_shapes(cpu_pipeline().run(mod).result))
    np.testing.assert_allclose(machine.run("anything", x_of(3)), np.exp(x_of(3)), rtol=1e-6)
    np.testing.assert_allclose(machine.run("twice", np.negative, x_of(3)), x_of(3))
