"""Scalar and vector arithmetic against NumPy and the interpreter, down to the bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bits_of, is_float, is_int, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, rewrite
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from tests.codegen.kernels import Kernels, edges, nearest_integer, parse_kernels

INTS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COUNT = 512
LANES = 16


def kernel(dtypes: list[str], result: str, make: Callable[..., PrimExpr], lanes: int):
    """C[i] = make(A[i], B[i], …) over `COUNT` elements, `lanes` at a time."""
    shape = (expr.const(COUNT),)
    args = [loops.Buffer(f"A{i}", shape, d) for i, d in enumerate(dtypes)]
    out = loops.Buffer("C", shape, result)
    outer, lane = expr.Var("i"), expr.Var("j")
    index = outer * lanes + lane
    value = make(*(loops.BufferLoad(a, (index,)) for a in args))
    body: loops.Stmt = loops.BufferStore(out, value, (index,))
    kind = "vectorized" if lanes > 1 else "serial"
    body = loops.For(lane, expr.const(0), expr.const(lanes), kind, body)
    body = loops.For(outer, expr.const(0), expr.const(COUNT // lanes), "serial", body)
    return loops.PrimFunc((*args, out), body)


def numbers(dtype: str, seed: int) -> Any:
    """All magnitudes and the ends of the range."""
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, COUNT).astype(bool)
    raw = rng.integers(0, 256, COUNT * kind.itemsize, dtype=np.uint8).view(kind)
    if is_float(dtype):
        ends = [0.0, -0.0, 1, -1, 2.5, -2.5, np.inf, -np.inf, np.nan]
    else:
        info = np.iinfo(kind)
        ends = [0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1]
        ends += [-1, -2, -3] if info.min else []
    with np.errstate(all="ignore"):
        raw[: len(ends)] = np.array(ends, "float64" if is_float(dtype) else object).astype(kind)
        raw[COUNT // 2 :] = rng.integers(0 if dtype[0] == "u" else -9, 9, COUNT // 2).astype(kind)
    return rng.permutation(raw)


BINARY: dict[str, tuple[type[Any], Callable[[Any, Any], Any]]] = {
    "add": (expr.Add, np.add),
    "sub": (expr.Sub, np.subtract),
    "mul": (expr.Mul, np.multiply),
    "min": (expr.Min, np.minimum),
    "max": (expr.Max, np.maximum),
    "eq": (expr.EQ, np.equal),
    "ne": (expr.NE, np.not_equal),
    "lt": (expr.LT, np.less),
    "le": (expr.LE, np.less_equal),
    "gt": (expr.GT, np.greater),
    "ge": (expr.GE, np.greater_equal),
}
DIVIDE: dict[str, tuple[type[Any], Callable[[Any, Any], Any]]] = {
    "div": (expr.Div, lambda a, b: (a - np.fmod(a, b)) // b),
    "mod": (expr.Mod, np.fmod),
    "floordiv": (expr.FloorDiv, np.floor_divide),
    "floormod": (expr.FloorMod, np.mod),
}
BITS: dict[str, tuple[type[Any], Callable[[Any, Any], Any]]] = {
    "and": (expr.BitAnd, np.bitwise_and),
    "or": (expr.BitOr, np.bitwise_or),
    "xor": (expr.BitXor, np.bitwise_xor),
    "shl": (expr.ShiftLeft, np.left_shift),
    "shr": (expr.ShiftRight, np.right_shift),
}


@cache
def binary_kernels() -> Kernels:
    functions: dict[str, loops.PrimFunc] = {}
    for dtype in (*INTS, *FLOATS):
        table = {**BINARY, **({} if is_float(dtype) else {**DIVIDE, **BITS})}
        if is_float(dtype):
            table["div"] = (expr.Div, np.divide)
        for name, (node, _) in table.items():
            result = "bool" if issubclass(node, expr.CmpOp) else dtype
            for lanes in (1, LANES):
                functions[f"{name}_{dtype}_{lanes}"] = kernel([dtype] * 2, result, node, lanes)
    return Kernels(Module.of(functions))


def run_binary(name: str, dtype: str, a: Any, b: Any) -> Any:
    """The results of scalars, after checking that vectors give the same."""
    results: list[Any] = []
    for lanes in (1, LANES):
        compare = name in ("eq", "ne", "lt", "le", "gt", "ge")
        out = np.zeros(COUNT, bool if compare else a.dtype)
        assert binary_kernels()(f"{name}_{dtype}_{lanes}", [a, b, out]) == 0
        results.append(out)
    same(results[0], results[1])
    return results[0]


def same(a: Any, b: Any) -> None:
    """Equal bits, apart from the kind of NaN."""
    assert a.dtype == b.dtype
    if a.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            nan = np.isnan(a) & np.isnan(b)
        a, b = (np.where(nan, 0, x.view(f"u{x.dtype.itemsize}")) for x in (a, b))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", [*BINARY, *DIVIDE, *BITS])
def test_integers_wrap_as_numpys(name: str, dtype: str) -> None:
    a, b = numbers(dtype, 1), numbers(dtype, 2)
    function = {**BINARY, **DIVIDE, **BITS}[name][1]
    if name in DIVIDE:
        b = np.where(b == 0, 3, b).astype(b.dtype)
    if name in ("shl", "shr"):
        b = (np.arange(COUNT) % (bits_of(dtype) + 5)).astype(b.dtype)
        if dtype[0] == "i":
            b[::50] = -1
    with np.errstate(all="ignore"):
        same(run_binary(name, dtype, a, b), function(a, b))


@pytest.mark.parametrize("dtype", INTS[:6])
@pytest.mark.parametrize("name", list(DIVIDE))
def test_vectors_divide_as_exactly_as_scalars(name: str, dtype: str) -> None:
    """Vectors of short integers are divided as floats. All pairs of bytes; of longer ones those
    whose quotients are next to an integer, by divisors of all sizes."""
    kind = np.dtype(dtype)
    info = np.iinfo(kind)
    if kind.itemsize == 1:
        values = np.arange(info.min, info.max + 1)
        a, b = (x.ravel() for x in np.meshgrid(values, values[values != 0]))
    else:
        ends = [2**e + d for e in range(bits_of(dtype)) for d in (-1, 0, 1)]
        divisors = np.array([x for v in ends for x in (v, -v) if x and info.min <= x <= info.max])
        largest = np.array([info.max, info.min, info.max // 3, info.max - 1], dtype=object)
        b = np.repeat(divisors, 3 * len(largest))
        a = np.tile(np.repeat(largest, 3), len(divisors))
        a = a // b * b + np.tile([-1, 0, 1], len(b) // 3)  # next to a multiple of the divisor
    kept = (a >= info.min) & (a <= info.max) & ~((a == info.min) & (b == -1))
    a, b = (np.resize(x[kept].astype(kind), -(-kept.sum() // COUNT) * COUNT) for x in (a, b))
    for part in range(0, len(a), COUNT):
        x, y = a[part : part + COUNT], b[part : part + COUNT]
        same(run_binary(name, dtype, x, y), DIVIDE[name][1](x, y))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*BINARY, "div"])
def test_floats_round_once(name: str, dtype: str) -> None:
    a, b = numbers(dtype, 3), numbers(dtype, 4)
    function = np.divide if name == "div" else BINARY[name][1]
    got = run_binary(name, dtype, a, b)
    with np.errstate(all="ignore"):
        want = function(a, b)
        zero = (got == 0) & (want == 0)
    if name in ("min", "max"):  # NumPy takes either zero
        got, want = (np.where(zero, a.dtype.type(0), x) for x in (got, want))
    same(got, want)


@pytest.mark.parametrize("name", list(DIVIDE))
def test_divisions_by_zero_are_reported(name: str) -> None:
    kernels = binary_kernels()
    for dtype in INTS:
        a, b = numbers(dtype, 1), np.full(COUNT, 3, numpy_dtype(dtype))
        b[77] = 0
        for lanes in (1, LANES):
            assert kernels(f"{name}_{dtype}_{lanes}", [a, b, a.copy()]) == 1
        assert kernels.kernels[f"{name}_{dtype}_1"].failures == ("integer division by zero",)


def divided_by(make: Callable[[PrimExpr], PrimExpr], kind: loops.ForKind) -> Kernels:
    """C[i] = A[i] // make(i) over 16 elements."""
    a, c = (loops.Buffer(name, (expr.const(LANES),), "int64") for name in "AC")
    i = expr.Var("i")
    store = loops.BufferStore(c, expr.FloorDiv(loops.BufferLoad(a, (i,)), make(i)), (i,))
    body = loops.For(i, expr.const(0), expr.const(LANES), kind, store)
    return Kernels(Module.of({"divide": loops.PrimFunc((a, c), body)}))


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized"])
def test_divisions_by_loop_variables_are_reported(kind: loops.ForKind) -> None:
    arrays = [np.arange(LANES), np.zeros(LANES, "int64")]
    assert divided_by(lambda i: i, kind)("divide", arrays) == 1
    assert divided_by(lambda i: i - 7, kind)("divide", arrays) == 1
    _, quotients = divided_by(lambda i: i + 1, kind).agree("divide", arrays)
    assert not quotients.any()


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32"])
def test_divisions_by_constants(dtype: str) -> None:
    divisors = [1, 2, 3, 7, 8, 100] + ([] if dtype[0] == "u" else [-1, -2, -3, -8])
    functions: dict[str, loops.PrimFunc] = {}
    for name, (node, _) in DIVIDE.items():
        for d in divisors:
            constant = expr.IntImm(d, dtype)
            make = lambda a, node=node, c=constant: node(a, c)  # noqa: E731
            functions[f"{name}_{d}".replace("-", "m")] = kernel([dtype], dtype, make, LANES)
    kernels = Kernels(Module.of(functions))
    a = numbers(dtype, 5)
    for name, (_, function) in DIVIDE.items():
        for d in divisors:
            out = np.zeros_like(a)
            assert kernels(f"{name}_{d}".replace("-", "m"), [a, out]) == 0
            with np.errstate(all="ignore"):
                same(out, function(a, a.dtype.type(d)))


HASHES: dict[str, Callable[[PrimExpr], PrimExpr]] = {
    "linear": lambda i: (i * 6364136223846793005 + 1442695040888963407) // 3,
    "top bits": lambda i: expr.FloorMod(i * ((1 << 62) + 1), expr.const(1 << 61)),
    "divided": lambda i: (i * (1 << 62)) // (1 << 62),
    "sum": lambda i: (i + ((1 << 63) - 9)) // 5,
    "two factors": lambda i: (i * (1 << 40) * 3000000000) // 7,
    "small factors": lambda i: (i * 1640531527 * 1640531527) // 1640531527,
    "small steps": lambda i: ((i * 1640531527 + 1) * 1640531527) // 1640531527,
    "powers": lambda i: ((i + 1000) * (i + 1000) * (i + 1000) * (1 << 31) * (i + 1)) // (i + 1000),
}


def hash_kernels(make: Callable[[PrimExpr, loops.Buffer], loops.Stmt], lanes: int) -> Kernels:
    """The statement that `make` returns of an index, for all COUNT indices."""
    outer, lane = expr.Var("i"), expr.Var("j")
    buffer = loops.Buffer("C", (expr.const(COUNT),), "int64")
    body = make(outer * lanes + lane, buffer)
    kind = "vectorized" if lanes > 1 else "serial"
    body = loops.For(lane, expr.const(0), expr.const(lanes), kind, body)
    body = loops.For(outer, expr.const(0), expr.const(COUNT // lanes), "serial", body)
    return Kernels(Module.of({"hash": loops.PrimFunc((buffer,), body)}))


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("name", HASHES)
def test_hashes_of_loop_variables_wrap(name: str, lanes: int) -> None:
    def value(index: PrimExpr, to: loops.Buffer) -> loops.Stmt:
        return loops.BufferStore(to, HASHES[name](index), (index,))

    def branch(index: PrimExpr, to: loops.Buffer) -> loops.Stmt:
        store = loops.BufferStore(to, expr.const(7), (index,))
        return loops.IfThenElse(expr.LT(HASHES[name](index), expr.const(5)), store, None)

    def choice(index: PrimExpr, to: loops.Buffer) -> loops.Stmt:
        condition = expr.GE(HASHES[name](index), expr.const(-3))
        chosen = expr.Call("int64", "if_then_else", (condition, index, expr.const(-1)))
        return loops.BufferStore(to, chosen, (index,))

    for make in (value, branch, choice):
        with np.errstate(over="ignore"):
            hash_kernels(make, lanes).agree("hash", [np.zeros(COUNT, "int64")])


# --- Conversions ----------------------------------------------------------------------------------


@cache
def cast_kernels() -> Kernels:
    functions: dict[str, loops.PrimFunc] = {}
    for source in (*INTS, *FLOATS, "bool"):
        for to in (*INTS, *FLOATS, "bool"):
            for lanes in (1, LANES):
                make = lambda a, to=to: expr.Cast(to, a)  # noqa: E731
                functions[f"{source}_{to}_{lanes}"] = kernel([source], to, make, lanes)
    return Kernels(Module.of(functions))


@pytest.mark.parametrize("to", [*INTS, *FLOATS, "bool"])
@pytest.mark.parametrize("source", [*INTS, *FLOATS, "bool"])
def test_casts(source: str, to: str) -> None:
    a = numbers(source, 6)
    for lanes in (1, LANES):
        out = np.zeros(COUNT, numpy_dtype(to))
        assert cast_kernels()(f"{source}_{to}_{lanes}", [a, out]) == 0
        if is_float(source) and is_int(to):
            want = np.array([nearest_integer(float(x), to) for x in a], numpy_dtype(to))
        else:
            with np.errstate(all="ignore"):
                want = through_float32(a, to)
        same(out, want)


@pytest.mark.parametrize("to", INTS)
@pytest.mark.parametrize("source", FLOATS)
def test_floats_out_of_range_become_the_nearest_integer(source: str, to: str) -> None:
    """In machine code, by the interpreters and the simulated threads."""
    x = edges(source)
    want = [nearest_integer(float(v), to) for v in x]
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({len(x)},), "{source}")):
    return R.astype(x, "{to}")
""")
    assert rl.interpret(mod, "main", x).tolist() == want
    assert rl.compile(mod, use_cache=False)(x).tolist() == want
    ((name, loops_of_it),) = rl.trace(mod).find("legalize_ops").after.loop_functions().items()
    out = np.zeros(len(x), to)
    rl.interpret(Module.of({name: loops_of_it}), name, x, out)
    assert out.tolist() == want
    if source != "bfloat16":
        simulated = rl.compile(mod, "cuda:sm_90").simulate("main", x)
        assert simulated.tolist() == want


@pytest.mark.parametrize("lanes", [1, LANES])
def test_float64_to_float16_rounds_once(lanes: int) -> None:
    """Halfway between two numbers, and so near that float32 has no other value."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        low = rng.integers(0, 0x7C00, COUNT).astype("uint16").view("float16")
        half = (low.astype("float64") + np.nextafter(low, np.float16(65504)).astype("float64")) / 2
        for a in (half, half * (1 + 1e-12), -half * (1 - 1e-12)):
            out = np.zeros(COUNT, "float16")
            assert cast_kernels()(f"float64_float16_{lanes}", [a, out]) == 0
            with np.errstate(over="ignore"):
                same(out, a.astype("float16"))


def through_float32(a: Any, to: str) -> Any:
    """NumPy's conversion; to and from bfloat16 by way of float32."""
    if "bfloat16" in (to, str(a.dtype)) and to != "bool":
        a = a.astype("float32")
    return a.astype(numpy_dtype(to))


@pytest.mark.parametrize("lanes", [1, LANES])
def test_bfloat16_rounds_to_even(lanes: int) -> None:
    high = np.arange(65536, dtype=np.uint32) << 16
    kernels = cast_kernels()
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        x = (high | np.uint32(low)).view(np.float32)
        for part in np.split(x, len(x) // COUNT)[::7]:
            out = np.zeros(COUNT, ml_dtypes.bfloat16)
            assert kernels(f"float32_bfloat16_{lanes}", [part, out]) == 0
            with np.errstate(all="ignore"):
                same(out, part.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("lanes", [1, 16])
def test_reinterpret(lanes: int) -> None:
    pairs = [("float32", "int32"), ("int32", "float32"), ("float64", "uint64"), ("int8", "uint8"),
             ("float16", "uint16"), ("bfloat16", "int16"), ("uint32", "int32")]  # fmt: skip
    functions = {
        f"{a}_{b}": kernel([a], b, lambda x, b=b: expr.Call(b, "reinterpret", (x,)), lanes)
        for a, b in pairs
    }
    kernels = Kernels(Module.of(functions))
    for a, b in pairs:
        x = numbers(a, 7)
        out = np.zeros(COUNT, numpy_dtype(b))
        assert kernels(f"{a}_{b}", [x, out]) == 0
        np.testing.assert_array_equal(out.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_unary_intrinsics(dtype: str) -> None:
    ops: dict[str, Callable[[Any], Any]] = {"abs": np.abs}
    if is_float(dtype):
        ops |= {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    else:
        ops["bitwise_not"] = np.invert
        ops["popcount"] = lambda x: np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype)
    functions: dict[str, loops.PrimFunc] = {}
    for op in ops:
        result = "bool" if op.startswith("is") else dtype
        make = lambda x, op=op, result=result: expr.Call(result, op, (x,))  # noqa: E731
        for lanes in (1, LANES):
            functions[f"{op}_{lanes}"] = kernel([dtype], result, make, lanes)
    kernels = Kernels(Module.of(functions))
    x = numbers(dtype, 8)
    for op, function in ops.items():
        for lanes in (1, LANES):
            out = np.zeros(COUNT, bool if op.startswith("is") else x.dtype)
            assert kernels(f"{op}_{lanes}", [x, out]) == 0
            same(out, function(x))


# --- Constants ------------------------------------------------------------------------------------


class Integers:
    """Random integer and bool expressions, built without folding, over loads and constants."""

    DTYPES = ("int64", "int32", "uint8", "int8", "uint32", "bool")

    def __init__(self, seed: int, loads: dict[str, PrimExpr], lane: expr.Var) -> None:
        self.rng, self.loads, self.lane = random.Random(seed), loads, lane
        self.data = loads

    def make(self, dtype: str, depth: int) -> PrimExpr:
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return self.leaf(dtype)
        kind = rng.random()
        if kind < 0.1:
            return expr.Cast(dtype, self.make(rng.choice(self.DTYPES), depth - 1))
        if kind < 0.2:
            sides = [self.make(dtype, depth - 1) for _ in range(2)]
            condition = self.make("bool", depth - 1)
            if rng.random() < 0.5:
                return expr.Select(condition, *sides)
            return expr.Call(dtype, "if_then_else", (condition, *sides))
        if kind < 0.25:
            of = rng.choice(self.DTYPES)
            var = expr.Var("v", of)
            value = self.make(of, depth - 1)
            kept, self.loads = self.loads, {**self.loads, of: var}
            body = self.make(dtype, depth - 1)
            self.loads = kept
            return expr.Let(var, value, body)
        if dtype == "bool":
            return self.logic(depth)
        if kind < 0.3 and dtype != "int64":
            return expr.Call(dtype, "bitwise_not", (self.make(dtype, depth - 1),))
        a, b = self.make(dtype, depth - 1), self.make(dtype, depth - 1)
        names = ["add", "sub", "mul", "min", "max", *BITS, *DIVIDE]
        name = rng.choice(names if rng.random() < 0.7 else names[:5])
        if name in DIVIDE:  # a zero that is not data is not reported: sizes may be zero
            b = expr.BitXor(self.data[dtype], expr.IntImm(rng.randint(0, 9), dtype))
        return {**BINARY, **BITS, **DIVIDE}[name][0](a, b)

    def logic(self, depth: int) -> PrimExpr:
        rng = self.rng
        kind = rng.random()
        if kind < 0.2:
            return expr.Not(self.make("bool", depth - 1))
        if kind < 0.5:
            node = rng.choice([expr.And, expr.Or])
            return node(self.make("bool", depth - 1), self.make("bool", depth - 1))
        of = rng.choice(self.DTYPES[:-1])
        node = rng.choice([expr.EQ, expr.NE, expr.LT, expr.LE, expr.GT, expr.GE])
        return node(self.make(of, depth - 1), self.make(of, depth - 1))

    def leaf(self, dtype: str) -> PrimExpr:
        rng = self.rng
        if dtype == "int64" and rng.random() < 0.3:
            return self.lane
        if rng.random() < 0.5:
            return self.loads[dtype]
        if dtype == "bool":
            return expr.IntImm(rng.randint(0, 1), "bool")
        info = np.iinfo(dtype)
        ends = [info.min, info.max, 0, 1, 2, 3]
        low = 0 if info.min == 0 else -9
        return expr.IntImm(rng.choice(ends) if rng.random() < 0.3 else rng.randint(low, 9), dtype)


def random_kernel(seed: int) -> loops.PrimFunc:
    """C[j] = a random expression of A_dtype[j] and j, all lanes at once."""
    dtypes = Integers.DTYPES
    buffers = {d: loops.Buffer(f"A_{d}", (expr.const(LANES),), d) for d in dtypes}
    lane = expr.Var("j")
    loads: dict[str, PrimExpr] = {d: loops.BufferLoad(b, (lane,)) for d, b in buffers.items()}
    make = Integers(seed, loads, lane)
    result = make.rng.choice(dtypes)
    out = loops.Buffer("C", (expr.const(LANES),), result)
    store = loops.BufferStore(out, make.make(result, 4), (lane,))
    kind = make.rng.choice(["vectorized", "serial"])
    body = loops.For(lane, expr.const(0), expr.const(LANES), kind, store)
    return loops.PrimFunc((*buffers.values(), out), body)


def _serial(n: Any) -> Any:
    return replace(n, kind="serial") if isinstance(n, loops.For) else None


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_expressions(first: int) -> None:
    """Seeds are the numbers of the kernels."""
    functions = {f"k{seed}": random_kernel(seed) for seed in range(first, first + 50)}
    kernels = Kernels(Module.of(functions))
    for name, func in functions.items():
        arrays = [numbers(b.dtype, 9)[:LANES] for b in func.buffers]
        mine, theirs = ([a.copy() for a in arrays] for _ in range(2))
        failed = kernels(name, mine)
        serial = replace(func, body=rewrite(func.body, _serial))
        try:
            with np.errstate(all="ignore"):
                interpret_prim_func(serial, theirs, name=name)
        except ExecutionError as e:
            assert "division by zero" in str(e) and failed, f"seed {name}: {e}"
            continue
        assert not failed, f"seed {name} fails natively only"
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {name}")


@pytest.mark.parametrize("index", ["vj % p", "vj // vi", "(vj + p) // (vi * p)"])
def test_index_divisors_that_are_zero_are_reported(index: str) -> None:
    mod = parse_kernels(f"""
    def f(A: T.Buffer(("n",), "float32"), P: T.Buffer(("p",), "float32"), b: T.handle):
        B = T.match_buffer(b, (2, n), "float32")
        for i, j in T.grid(2, n):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[T.min({index}, n - 1)]
    """)
    kernels = Kernels(mod)
    a, b = np.ones(5, "float32"), np.zeros((2, 5), "float32")
    assert kernels.kernels["f"].failures == ("integer division by zero",)
    assert kernels("f", [a, np.ones(0, "float32"), b], n=5, p=0) == 1
    with pytest.raises(ExecutionError, match="division by zero"):
        interpret_prim_func(mod["f"], [a, np.ones(0, "float32"), b])


@pytest.mark.parametrize("index", ["vj // n", "vj % n", "(vi * n + vj) // n", "vj // (vi + 1)"])
def test_index_divisors_that_loops_prove_positive_need_no_check(index: str) -> None:
    mod = parse_kernels(f"""
    def f(A: T.Buffer(("n",), "float32"), b: T.handle):
        B = T.match_buffer(b, (2, n), "float32")
        for i, j in T.grid(2, n):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[T.min({index}, n - 1)]
    """)
    kernels = Kernels(mod)
    assert kernels.kernels["f"].failures == ()
    for size in (0, 5):
        a = np.arange(size, dtype="float32")
        kernels.agree("f", [a, np.zeros((2, size), "float32")], n=size)
