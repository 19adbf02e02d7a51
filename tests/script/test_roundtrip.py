"""Printing and parsing are inverse: on random programs of both levels, and on chosen ones."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.script import parse, print_module
from relaxlab.testing.script_corpus import PROGRAMS
from tests.script.programs import GraphPrograms, LoopPrograms

SEED = 20240607


def check(mod: Module) -> str:
    text = print_module(mod)
    assert_structural_equal(mod, parse(text, check=False))
    return text


@pytest.mark.parametrize("seed", range(SEED, SEED + 150))
def test_random_loop_functions(seed: int) -> None:
    print("seed", seed)
    check(Module.of({"f": LoopPrograms(random.Random(seed)).prim_func()}))


@pytest.mark.parametrize("seed", range(SEED, SEED + 150))
def test_random_modules(seed: int) -> None:
    print("seed", seed)
    check(GraphPrograms(random.Random(seed)).module())


@pytest.mark.parametrize("name", PROGRAMS)
def test_chosen_programs(name: str) -> None:
    mod = parse(PROGRAMS[name])
    text = check(mod)
    assert print_module(parse(text)) == text  # names are stable


def test_golden_text() -> None:
    text = """\
from relaxlab.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def double(var_A: T.handle, var_B: T.handle):
        n = T.int64()
        A = T.match_buffer(var_A, (n, 4), "float32")
        B = T.match_buffer(var_B, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)

    @R.function(private=True)
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        R.func_attr({"num_input": 1})
        n = T.int64()
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.double, (x,), out_ty=R.Tensor((n, 4), "float32"))
            gv: R.Tensor((n, 4), "float32") = R.add(lv, R.const(0.5, "float32"))
            R.output(gv)
        return gv
"""
    assert print_module(parse(text)) == text


def test_without_types() -> None:
    mod = parse(PROGRAMS["graph"])
    text = print_module(mod, types=False)
    assert "a = R.add(x, x)" in text
    assert list(parse(text)) == list(mod)


@pytest.mark.parametrize(
    "data",
    [
        np.float32(1.5),
        np.arange(6, dtype="int64").reshape(2, 3),
        np.linspace(0, 1, 1000, dtype="float32").reshape(10, 100),
        np.array([np.nan, np.inf, -0.0], "float32"),
        np.array(np.nan, "float16"),
        np.zeros((0, 3), "float32"),
        np.array([0.1, 3], ml_dtypes.bfloat16),
        np.arange(600).astype(ml_dtypes.bfloat16).reshape(20, 30)[::2],
        np.array([True, False]),
        np.arange(5, dtype=">i4"),
    ],
    ids=str,
)
def test_constants(data: np.ndarray) -> None:
    native = np.asarray(data).astype(np.asarray(data).dtype.newbyteorder("="))
    body = graph.SeqExpr((), graph.Constant(np.asarray(data)))
    text = print_module(Module.of({"main": graph.Function((), body)}))
    found = parse(text)["main"].body.body.data
    assert found.dtype == native.dtype and found.shape == native.shape
    assert found.tobytes() == native.tobytes()


def test_functions_share_a_symbol() -> None:
    n = expr.Var("n")
    a, b = (loops.Buffer(name, (n,)) for name in "AB")
    i = expr.Var("i")
    copy = loops.For(
        i, expr.const(0), n, "serial", loops.BufferStore(b, loops.BufferLoad(a, (i,)), (i,))
    )
    ty = types.TensorType((n,), "float32")
    x, y = graph.Var("x", ty), graph.Var("y", ty)
    call = graph.Call(
        graph.Op("call_tir"), (graph.GlobalVar("copy"), graph.Tuple((x,))), ty_args=(ty,)
    )
    block = graph.BindingBlock((graph.VarBinding(call, y),))
    main = graph.Function((x,), graph.SeqExpr((block,), y), ty)
    check(Module.of({"copy": loops.PrimFunc((a, b), copy), "main": main}))


def test_a_let_that_ends_early_keeps_its_scope() -> None:
    a = loops.Buffer("A", (expr.const(4),))
    x = expr.Var("x", "float32")
    store = loops.BufferStore(a, x, (expr.const(0),))
    after = loops.BufferStore(a, expr.const(1.0), (expr.const(1),))
    body = loops.SeqStmt((loops.LetStmt(x, expr.const(2.0), store), after))
    text = check(Module.of({"f": loops.PrimFunc((a,), body)}))
    assert "with T.LetStmt(T.float32(2.0)) as x:" in text


def test_names_that_are_not_names() -> None:
    fn = graph.Function((), graph.SeqExpr((), graph.Tuple(())))
    with pytest.raises(ValueError, match="'my.main': rename it"):
        print_module(Module.of({"my.main": fn}))
