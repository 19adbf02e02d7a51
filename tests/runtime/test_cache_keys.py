"""Keys of the cache: programs that differ in anything that matters share no entry."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.equal import structural_equal, structural_key
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.target import Target
from relaxlab.passes.normalize import normalize
from relaxlab.runtime import cache
from relaxlab.runtime.compile_native import _names
from relaxlab.runtime.native.function import CheckFailed
from tests.passes.graph_programs import Programs


def module(text: str) -> Module:
    return rl.parse(text)


def key(mod: Module) -> str:
    return cache.artifact_key(structural_key(mod), Target.host(), _names(mod))


def constant(data: np.ndarray[Any, Any]) -> Module:
    """A function that returns an array."""
    body = graph.SeqExpr((), graph.Constant(data))
    return normalize(Module.of({"main": graph.Function((), body)}))


def scaled(value: float, dtype: str = "float32") -> Module:
    """y = x * value, as a loop function."""
    shape = (expr.const(3),)
    a, b = loops.Buffer("A", shape, dtype), loops.Buffer("B", shape, dtype)
    i = expr.Var("i")
    product = expr.Mul(loops.BufferLoad(a, (i,)), expr.FloatImm(value, dtype))
    body = loops.For(i, expr.const(0), expr.const(3), "serial", loops.BufferStore(b, product, (i,)))
    return Module.of({"main": loops.PrimFunc((a, b), body)})


def attributed(attrs: dict[str, Any]) -> Module:
    x = graph.Var("x", rl.parse(PLAIN)["main"].params[0].ty)  # type: ignore[union-attr]
    return Module.of({"main": graph.Function((x,), graph.SeqExpr((), x), attrs=Attrs(attrs))})


PLAIN = """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
    z = R.add(x, y)
    return z
"""


def bits(text: str) -> float:
    return struct.unpack(">d", bytes.fromhex(text))[0]


FLOATS = [0.0, -0.0, 1.0, 1.0 + 2**-52, 5e-324, np.inf, -np.inf, bits("7ff8000000000000"),
          bits("fff8000000000000"), bits("7ff8000000000001")]  # fmt: skip
ARRAYS = [
    np.array(data, dtype)
    for dtype, rows in {
        "float32": [[0.0], [-0.0], [np.nan], [-np.nan], [[0.0]], [], [[]], 0.0, [0.0, 0.0]],
        "float64": [[0.0], 0.0], "float16": [[0.0]], "int32": [[0]], "uint32": [[0]],
        "int8": [[0], [0, 0, 0, 0]], "bool": [[False], [True]], "int64": [[0], [1]],
    }.items()
    for data in rows
]  # fmt: skip
ATTRS: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": True}, {"a": 1.0}, {"a": "1"}, {"a": None}, {"a": (1,)}, {"a": ((1,),)},
    {"a": ()}, {"a": (1, 2)}, {"a": 1, "b": 2}, {"a=1;b": 2}, {"a": "1;b=2"}, {"a": {"b": 2}},
    {"a": ("b", 2)}, {"a": {}}, {"a": -0.0}, {"a": 0.0}, {"a": 0}, {"a": False}, {"a'": 1},
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "values"),
    [(scaled, FLOATS), (constant, ARRAYS), (attributed, ATTRS)],
    ids=["floats", "arrays", "attributes"],
)
def test_values_that_differ(make: Callable[[Any], Module], values: list[Any]) -> None:
    keys = [key(make(v)) for v in values]
    assert keys == [key(make(v)) for v in values]
    assert len(set(keys)) == len(values)
    for (i, a), (j, b) in itertools.combinations(enumerate(values), 2):
        assert not structural_equal(make(a), make(b)), f"{i}: {a}, {j}: {b}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes_of_constants(dtype: str) -> None:
    assert key(scaled(1.0)) != key(scaled(1.0, dtype))


def test_the_layout_of_an_array_does_not_matter() -> None:
    data = np.arange(12, dtype="float32").reshape(3, 4)
    assert key(constant(data)) == key(constant(np.asfortranarray(data)))
    assert key(constant(data)) == key(constant(np.pad(data, 1)[1:-1, 1:-1]))


PROGRAMS = [
    PLAIN,
    PLAIN.replace('"float32"', '"float16"'),
    PLAIN.replace('"float32"', '"float64"'),
    PLAIN.replace('y: R.Tensor(("n",)', 'y: R.Tensor(("m",)'),
    PLAIN.replace('y: R.Tensor(("n",)', "y: R.Tensor((1,)"),
    PLAIN.replace('y: R.Tensor(("n",)', 'y: R.Tensor(("n + 1 - 1",)'),
    PLAIN.replace('y: R.Tensor(("n",), "float32")', 'y: R.Tensor("float32", ndim=1)'),
    PLAIN.replace("R.add(x, y)", "R.add(y, x)"),
    PLAIN.replace("R.add(x, y)", "R.subtract(x, y)"),
    PLAIN.replace("return z", "return (z,)"),
    PLAIN.replace("return z", "return x"),
    PLAIN.replace("main", "other"),
    PLAIN.replace("    z =", '    R.func_attr({"tir_var_upper_bound": {"n": 8}})\n    z ='),
    PLAIN.replace("    z =", '    R.func_attr({"tir_var_upper_bound": {"n": 9}})\n    z ='),
    PLAIN.replace("    z =", '    R.func_attr({"num_input": 1})\n    z ='),
    PLAIN.replace("    z =", '    R.func_attr({"num_input": 2})\n    z ='),
    PLAIN.replace("):", ') -> R.Tensor(("n",), "float32"):'),
    PLAIN.replace("):", ") -> R.Tensor(ndim=1):"),
    PLAIN.replace("R.add(x, y)", "R.sum(R.stack((x, y), axis=0), axis=0)"),
    PLAIN.replace("R.add(x, y)", "R.sum(R.stack((x, y), axis=1), axis=1)"),
    PLAIN.replace("R.add(x, y)", 'R.match_cast(x, R.Tensor(("n",), "float32"))'),
    PLAIN.replace("R.add(x, y)", 'R.match_cast(x, R.Tensor(("k",), "float32"))'),
    PLAIN.replace("R.add(x, y)", 'R.call_pure_packed("f", x, sinfo_args=R.Object())'),
    PLAIN.replace("R.add(x, y)", 'R.call_pure_packed("f;", x, sinfo_args=R.Object())'),
    PLAIN.replace("x: ", "first: ").replace("(x", "(first"),  # messages name it
    PLAIN.replace('"n"', '"size"'),
]


def test_programs_that_differ() -> None:
    keys = [key(module(p)) for p in PROGRAMS]
    assert len(set(keys)) == len(PROGRAMS)


LOOPS = """
@T.prim_func
def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.serial(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = A[v] + A[v]
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("serial(", "parallel("), ("serial(", "vectorized("), ("serial(16)", "serial(0, 16)"),
        ("A[v] + A[v]", "A[v] + A[0]"), ("A[v] + A[v]", "A[v] * A[v]"), ("def f", "def g"),
        ("16, i)", "16, 15 - i)"), ("serial(16)", 'serial(16, annotations={"prefetch": 2})'),
        ("    for", '    T.func_attr({"tir.noalias": False})\n    for'),
        ("def f(A", "def f(C: T.Buffer((16,), 'float32'), A"),
        ("B[v] = A[v] + A[v]", "B[v] = B[v] + A[v]"),
        ('"float32")):', '"float32", scope="shared")):'),
    ],
)  # fmt: skip
def test_loop_functions_that_differ(old: str, new: str) -> None:
    same = old == "serial(16)" and new == "serial(0, 16)"
    assert (key(module(LOOPS)) == key(module(LOOPS.replace(old, new)))) == same


def test_names_that_no_message_has_do_not_matter() -> None:
    renamed = LOOPS.replace("A", "In").replace("B[", "Out[").replace("B:", "Out:")
    renamed = renamed.replace("v", "w").replace(" i ", " k ").replace(", i)", ", k)")
    assert key(module(LOOPS)) == key(module(renamed))


def test_programs_equal_up_to_names_get_the_same_code_and_their_own_messages(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path))
    text = PLAIN.replace("x: ", "first: ").replace("(x", "(first").replace('"n"', '"size"')
    a, b = (rl.compile(module(t)) for t in (PLAIN, text))
    assert a.artifact.code == b.artifact.code and not b.from_cache
    args = np.ones(3, "float32"), np.ones(4, "float32")
    for exe, symbol, first in ((a, "n", "x"), (b, "size", "first"), (a, "n", "x")):
        expected = f"is 4, expected {symbol} = 3 .{symbol} is dimension 0 of parameter `{first}`"
        with pytest.raises(CheckFailed, match=expected):
            exe["main"](*args)
    for other, symbol in ((PLAIN, "n"), (text, "size")):
        again = rl.compile(module(other))
        assert again.from_cache
        with pytest.raises(CheckFailed, match=f"expected {symbol} = 3"):
            again["main"](*args)


def test_symbols_inside_types_are_named_too() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    @R.function
    def inner(y: R.Tensor(("SYMBOL",), "float32")):
        z = R.exp(y)
        return z
    w = inner(x)
    return w
"""
    assert key(module(text.replace("SYMBOL", "m"))) != key(module(text.replace("SYMBOL", "k")))


def test_keys_of_random_programs() -> None:
    """Parsing what was printed gives the same key; another program gives another."""
    seed = 5
    print("seed", seed)
    keys: dict[str, Module] = {}
    for n in range(30):
        mod = normalize(Programs(seed * 1000 + n).module())
        assert key(mod) == key(rl.parse(mod.script()))
        if key(mod) in keys:
            assert structural_equal(mod, keys[key(mod)])
        keys[key(mod)] = mod
    assert len(keys) > 25


def test_one_changed_constant_changes_the_key() -> None:
    """Every integer and float in a program matters."""
    rng = random.Random(3)
    text = module(PROGRAMS[12]).script()
    spots = [i for i, c in enumerate(text) if c.isdigit() and not text[i - 1].isalnum()]
    tried = 0
    for i in rng.sample(spots, min(10, len(spots))):
        changed = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        try:
            other = rl.parse(changed)
        except rl.DiagnosticError:
            continue
        tried += 1
        assert key(other) != key(module(PROGRAMS[12])), changed
    assert tried


# --- What is not in the program -------------------------------------------------------------------


def test_versions_of_what_compiles_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    found = {cache.compiler_version.__wrapped__()}
    for package in cache.PACKAGES:
        with monkeypatch.context() as patch:
            patch.setattr(import_module(package), "__version__", "0")
            found.add(cache.compiler_version.__wrapped__())
    with monkeypatch.context() as patch:
        patch.setattr(llvm, "llvm_version_info", (1, 2, 3))
        found.add(cache.compiler_version.__wrapped__())
    with monkeypatch.context() as patch:
        patch.setattr(cache.sys, "version_info", (3, 99, 0))
        found.add(cache.compiler_version.__wrapped__())
    assert len(found) == 6


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    host = Target.host()
    lists = [("a", "b"), ("a\nb",), ("ab",), ("a", "b", ""), ("", "a", "b"), ('a", "b',)]
    assert len({cache.artifact_key("m", host, names) for names in lists}) == len(lists)
    moved = Target("cpu", host.triple, "cpu,+avx2", frozenset({"fma"}))
    other = Target("cpu", host.triple, "cpu", frozenset({"avx2", "fma"}))
    assert cache.artifact_key("m", moved, ()) != cache.artifact_key("m", other, ())


def test_the_number_of_threads_is_not_part_of_the_code(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path))
    mod = module(PLAIN.replace("R.add(x, y)", "R.exp(R.add(x, R.sum(y)))"))
    x = np.linspace(0, 1, 5000, dtype="float32")
    results: list[Any] = []
    for threads in (1, 2, 3):
        exe = rl.compile(mod, threads=threads)
        assert exe.from_cache == (threads > 1)
        results.append(exe["main"](x, x).tobytes())
    assert len(set(results)) == 1


def test_operators_of_others_are_never_cached(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows may change from one run to the next, and no key would show it."""
    from relaxlab.ops import te
    from relaxlab.ops.define import define, params

    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path))
    text = PLAIN.replace("R.add(x, y)", "R.test_scale(x)")
    x = np.ones(3, "float32")
    for factor in (2.0, 3.0):

        def emit(call: Any, out: Any, a: Any, factor: float = factor) -> Any:
            return te.compute(a.shape, lambda i: a[i] * expr.FloatImm(factor), "scaled")

        define("test_scale", params("x"), lambda call, tys: tys[0], emit=emit, override=True)
        exe = rl.compile(module(text))
        assert not exe.from_cache
        np.testing.assert_array_equal(exe["main"](x, x), x * factor)
    assert not list(tmp_path.iterdir())
