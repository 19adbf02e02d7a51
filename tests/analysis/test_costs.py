"""Bytes and arithmetic: counted by running the loops, against what is read off them."""

from __future__ import annotations

from collections import defaultdict
from textwrap import dedent

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.costs import bytes_of, call_cost, cost_of, function_cost
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import dtypes, expr, loops, types
from relaxlab.ir.node import replace, rewrite, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter import helpers
from relaxlab.runtime.interpreter.interpreter import bind_parameters, interpret_prim_func
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, concrete_call

NO_ARITHMETIC = (
    "if_then_else", "isnan", "isinf", "isfinite", "bitwise_not", "reinterpret", "likely",
    "popcount",
)  # fmt: skip


def operations(value: expr.PrimExpr) -> int:
    """Operations on data in a value that has no condition and no let."""
    match value:
        case loops.BufferLoad():
            return 0
        case expr.Call(_, op, args):
            own = 0 if op in NO_ARITHMETIC else 2 if op == "fma" else 1
            return own + sum(map(operations, args))
        case expr.BinaryOp(a, b):
            data = dtypes.is_float(value.dtype) or any(
                isinstance(n, loops.BufferLoad) for n in walk(value)
            )
            own = data and not isinstance(value, expr.CmpOp | expr.BitOp | expr.And | expr.Or)
            return int(own) + operations(a) + operations(b)
        case expr.Select(test, yes, no):
            return operations(test) + operations(yes) + operations(no)
        case expr.Cast(_, a) | expr.Not(a):
            return operations(a)
        case _:
            return 0


def counted(func: loops.PrimFunc) -> loops.PrimFunc:
    """`func` with one more buffer, in which each store counts its operations."""
    counter = loops.Buffer("counter", (expr.const(1),), "int64")
    here = (expr.const(0),)

    def visit(n):
        if not isinstance(n, loops.BufferStore) or n.buffer is counter:
            return None
        more = loops.BufferLoad(counter, here) + operations(n.value)
        return loops.seq(n, loops.BufferStore(counter, more, here))

    return replace(func, params=(*func.params, counter), body=rewrite(func.body, visit))


def run_counting(func: loops.PrimFunc, args: list, monkeypatch) -> tuple[int, dict, dict]:
    """Operations, and the distinct elements read before they were written and written, by
    parameter."""
    arrays = {id(a): i for i, a in enumerate(args)}
    read, written = defaultdict(set), defaultdict(set)
    plain_read, plain_write = helpers.NAMES["read"], helpers.NAMES["write"]

    def on_read(array, where, *indices):
        at = arrays.get(id(array))
        if at is not None and indices not in written[at]:
            read[at].add(indices)
        return plain_read(array, where, *indices)

    def on_write(value, array, where, *indices):
        if id(array) in arrays:
            written[arrays[id(array)]].add(indices)
        plain_write(value, array, where, *indices)

    count = np.zeros(1, np.int64)
    with monkeypatch.context() as patch:
        patch.setitem(helpers.NAMES, "read", on_read)
        patch.setitem(helpers.NAMES, "write", on_write)
        interpret_prim_func(counted(func), [*args, count], vectorise=False)
    return int(count[0]), read, written


def first_cases() -> list:
    """One case of each operator with each number of dimensions."""
    seen: dict[object, object] = {}
    for family in FAMILIES.values():
        for case in family():
            seen.setdefault((case.op, len(case.args), str(case.args).count(",")), case)
    return list(seen.values())


def has_conditions(func: loops.PrimFunc) -> bool:
    return any(
        isinstance(n, loops.IfThenElse | expr.Let | loops.LetStmt)
        or (isinstance(n, expr.Call) and n.op == "if_then_else")
        for n in walk(func.body)
    )


def bytes_touched(func: loops.PrimFunc, found: dict) -> int:
    return sum(
        len(places) * dtypes.bytes_of(func.params[at].dtype)
        for at, places in found.items()
        if at < len(func.params)
    )


def test_costs_of_operators(monkeypatch):
    """The cost of each lowered operator is what running it counts: exactly, where nothing is
    conditional; else at least that."""
    exact = known = 0
    for case in first_cases():
        env = max(case.sizes, key=lambda e: max(e.values(), default=0) <= 7)
        program = CaseProgram(case, env, symbolic=True)
        if program.row.lower is None:
            continue
        func = program.row.lower(program.call, program.types, program.out)
        arrays, expected = concrete_call(case, env, seed=0)
        scalars = [program.number(p) for p in func.params if isinstance(p, expr.Var)]
        args = [*arrays, *map(np.zeros_like, expected), *scalars]
        cost = cost_of(func, len(expected))
        if cost is None:
            continue
        known += 1
        values = bind_parameters(func, args)
        flops, read, written = run_counting(func, args, monkeypatch)
        claimed = [evaluate(e, values) for e in (cost.flops, cost.bytes_read, cost.bytes_written)]
        actual = [flops, bytes_touched(func, read), bytes_touched(func, written)]
        if not has_conditions(func):
            assert claimed[0] == actual[0], f"{case} {env}: {cost.flops}"
        same = all(c == a for c, a in zip(claimed, actual, strict=True))
        exact += same
        assert claimed[1] >= actual[1] and claimed[2] >= actual[2], f"{case} {env}: {claimed}"
    assert exact > 0.85 * known > 300


def test_costs_of_handwritten_loops():
    """A triangle, and a table of which few rows are read."""
    mod = rl.parse(
        dedent("""
        @I.ir_module
        class Module:
            @T.prim_func
            def prefix(A: T.Buffer(("n",), "float32"), b: T.handle):
                B = T.match_buffer(b, (n,), "float32")
                for i in range(n):
                    for k in range(i + 1):
                        with T.sblock("b"):
                            vi = T.axis.spatial(n, i)
                            vk = T.axis.reduce(n, k)
                            with T.init():
                                B[vi] = T.float32(0)
                            B[vi] = B[vi] + A[vk]

            @T.prim_func
            def rows(t: T.Buffer((1000, 8), "float16"), A: T.Buffer(("n",), "int32"), b: T.handle):
                B = T.match_buffer(b, (n, 8), "float16")
                for i, j in T.grid(n, 8):
                    with T.sblock("b"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj] = t[A[vi], vj] * T.float16(2)
        """)
    )
    prefix = cost_of(mod["prefix"])
    (n,) = symbols_in(prefix.flops)
    assert [evaluate(prefix.flops, {n: k}) for k in range(5)] == [0, 1, 3, 6, 10]
    assert (str(prefix.bytes_read), str(prefix.bytes_written)) == ("n * 4", "n * 4")
    rows = cost_of(mod["rows"])
    assert str(rows.bytes_read) == "n * 4 + min(n * 8, 8000) * 2"
    assert str(rows.flops) == "n * 8"


def test_costs_of_unknown_loops():
    mod = rl.parse(
        dedent("""
        @I.ir_module
        class Module:
            @T.prim_func
            def outside(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
                for i in range(4):
                    B[i] = T.call_extern("float32", "f", A[i])
        """)
    )
    assert cost_of(mod["outside"]) is None


GRAPH = """
    @I.ir_module
    class Module:
        @T.prim_func
        def scale(A: T.Buffer(("2 * n",), "float32"), k: T.int64, b: T.handle):
            n = T.int64()
            B = T.match_buffer(b, (2 * n,), "float32")
            for i in range(2 * n):
                with T.sblock("b"):
                    vi = T.axis.spatial(2 * n, i)
                    B[vi] = A[vi] * T.Cast("float32", k)

        @R.function
        def twice(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            y = R.exp(x)
            return R.exp(y)

        @R.function
        def main(x: R.Tensor(("n", 6), "float32"), w: R.Tensor((6, 8), "float32"),
                 u: R.Tensor(ndim=2, dtype="float32")):
            cls = Module
            a = R.matmul(x, w)
            b = R.reshape(a, R.shape([8 * n]))
            c = R.call_tir(cls.scale, (b,), out_sinfo=R.Tensor((8 * n,), "float32"),
                           tir_vars=R.shape([n]))
            d = cls.twice(c)
            e = R.add(u, u)
            f = R.call_pure_packed("f", x, sinfo_args=R.Tensor((n, 6), "float32"))
            return (d, e, f)
    """


def test_costs_of_calls():
    mod = normalize(rl.parse(dedent(GRAPH)))
    bindings = {b.var.name: b for block in mod["main"].body.blocks for b in block.bindings}

    def texts(name):
        cost = call_cost(mod, bindings[name])
        return cost and tuple(map(str, (cost.flops, cost.bytes_read, cost.bytes_written)))

    assert texts("a") == ("n * 96", "n * 24 + 192", "n * 32")
    assert texts("b") == ("0", "0", "0")
    assert texts("c") == ("n * 8", "n * 32", "n * 32")
    assert texts("d") == ("n * 16", "n * 64", "n * 64")
    assert texts("e") is None  # its shape is not known
    assert texts("f") is None  # nor what a library does
    assert function_cost(mod, mod["main"]) is None
    assert str(function_cost(mod, mod["twice"]).flops) == "m * 2"


@pytest.mark.parametrize(
    ("ty", "text"),
    [
        (types.TensorType((expr.const(3), expr.const(4)), "float16"), "24"),
        (types.TensorType(None, "float16"), "None"),
        (types.TensorType((expr.const(3),), None), "None"),
        (types.TupleType((types.TensorType((), "int8"), types.PrimType("int64"))), "9"),
        (types.TupleType((types.TensorType((), "int8"), types.ObjectType())), "None"),
        (types.ObjectType(), "None"),
    ],
)
def test_bytes_of(ty, text):
    assert str(bytes_of(ty)) == text
