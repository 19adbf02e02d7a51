"""Debug builds, `checks="all"`: each kind of mistake stops the call and is named."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import replace

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.program import compile_program
from relaxlab.ir import expr, graph, host
from relaxlab.ir.target import Target
from relaxlab.passes import liveness, plan_memory
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline, marking_dead_memory
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.packed import register_func

GATHER = """
@T.prim_func
def gather(A: T.Buffer(("n", 3), "float32"), i: T.handle, O: T.Buffer(("m", 3), "float32")):
    I = T.match_buffer(i, (m,), "int64")
    for i, j in T.grid(m, 3):
        with T.sblock("O"):
            vi, vj = T.axis.remap("SS", [i, j])
            O[vi, vj] = A[I[vi], vj] * T.float32(2)
"""
SCATTER = GATHER.replace("O[vi, vj] = A[I[vi], vj]", "O[I[vi], vj] = A[0, vj]")
HALF = """
@T.prim_func
def gather(A: T.Buffer(("n", 3), "float32"), i: T.handle, O: T.Buffer(("m", 3), "DTYPE")):
    I = T.match_buffer(i, (m,), "int64")
    for i, j in T.grid(m, 3):
        with T.sblock("O"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where(i % 2 == 0)
            O[vi, vj] = T.Cast("DTYPE", A[vi, vj])
"""
BESIDE = """
@T.prim_func
def gather(A: T.Buffer(("n", 3), "float32"), i: T.handle, O: T.Buffer(("m", 3), "float32")):
    I = T.match_buffer(i, (m,), "int64")
    B = T.alloc_buffer((4,), "float32", scope="local")
    for i, j in T.grid(m, 3):
        with T.sblock("O"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.evaluate(T.call_extern("handle", "memset", T.address_of(B[0]), 0, T.int64(17)))
            O[vi, vj] = A[I[vi], vj] + B[1]
"""
MAIN = """
@R.function
def main(x: R.Tensor(("n", 3), "float32"), i: R.Tensor(("m",), "int64")):
    with R.dataflow():
        z = R.add(x, x)
        y = R.call_tir(cls.gather, (z, i), out_ty=R.Tensor((m, 3), "DTYPE"))
        R.output(y)
    return y
"""
X = np.arange(15, dtype="float32").reshape(5, 3)


def module(kernel: str, dtype: str = "float32") -> rl.Module:
    return rl.parse((kernel + MAIN).replace("DTYPE", dtype))


def debug(kernel: str, threads: int = 1, dtype: str = "float32"):
    return rl.compile(module(kernel, dtype), threads=threads, use_cache=False, checks="all")["main"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("wrong", [-1, 5, 1 << 40])
def test_an_index_outside_is_named(threads: int, wrong: int) -> None:
    main = debug(GATHER, threads)
    right = np.array([4, 0, 2])
    np.testing.assert_array_equal(main(X, right), X[right] * 4)
    text = rf"index {wrong} of dimension 0 of \w+ is outside its extent 5 at .*:\d+:\d+ in `\w+`"
    with pytest.raises(CheckFailed, match=text):
        main(X, np.array([4, 0, wrong]))
    np.testing.assert_array_equal(main(X, right), X[right] * 4)


def test_a_store_outside_is_named() -> None:
    with pytest.raises(CheckFailed, match="index 3 of dimension 0 of O is outside its extent 2"):
        debug(SCATTER)(X, np.array([0, 3]))


def test_uninitialised_memory_is_poison() -> None:
    got = debug(HALF)(X, np.array([0, 1, 2]))
    assert np.isnan(got[1]).all() and not np.isnan(got[::2]).any()
    assert (debug(HALF, dtype="int32")(X, np.array([0, 1, 2]))[1] == 0x5A5A5A5A).all()


def test_outputs_that_a_call_leaves_out_are_poison() -> None:
    """A loop function called alone returns poison where its predicate fails."""
    func = rl.parse("""
@T.prim_func
def f(A: T.Buffer((4,), "int32"), O: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.sblock("O"):
            vi = T.axis.spatial(4, i)
            T.where(T.Cast("int64", A[1]) > i)
            O[vi] = A[vi] + 1
""")
    got = rl.compile(func, use_cache=False, checks="all")["f"](np.arange(1, 5, dtype="int32"))
    np.testing.assert_array_equal(got, [2, 3, 0x5A5A5A5A, 0x5A5A5A5A])


def test_writing_beside_a_private_buffer() -> None:
    with pytest.raises(CheckFailed, match="wrote beside the private buffer B in `"):
        debug(BESIDE)(X, np.array([1]))


def test_writing_beside_an_array() -> None:
    def beside(x, out):
        out[...] = x
        ctypes.memset(out.ctypes.data + out.nbytes, 0, 64)

    register_func("relaxlab.testing.beside", beside)
    text = """
@R.function
def main(x: R.Tensor(("n", 3), "float32")):
    y = R.call_dps_packed("relaxlab.testing.beside", (x,), out_ty=R.Tensor((n, 3), "float32"))
    z = R.add(y, y)
    return z
"""
    main = rl.compile(rl.parse(text), use_cache=False, checks="all")["main"]
    with pytest.raises(CheckFailed, match="`relaxlab.testing.beside` wrote beside the memory of"):
        main(X)


def test_a_planned_tensor_that_leaves_its_storage() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    with R.dataflow():
        y = R.matmul(x, R.permute_dims(x))
        z = R.matmul(y, x)
        R.output(z)
    return z
"""
    program = lower_shapes(cpu_pipeline().run(rl.parse(text)).result)
    main = program.functions["main"]
    assert any(isinstance(i, host.AllocStorage) for i in main.instrs)
    small = tuple(
        replace(i, size=expr.const(4)) if isinstance(i, host.AllocStorage) else i
        for i in main.instrs
    )
    wrong = replace(program, functions={"main": replace(main, instrs=small)})
    exe = Executable(compile_program(wrong, Target.host(), checks=True), Target.host(), 1)
    with pytest.raises(CheckFailed, match=r"ends at byte \d+ of a storage of 4 in `main`"):
        exe["main"](np.ones((3, 4), "float32"))


def test_debug_builds_are_kept_apart(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path))
    mod = module(GATHER)
    assert not rl.compile(mod).from_cache
    assert not rl.compile(mod, checks="all").from_cache
    assert rl.compile(mod).from_cache and rl.compile(mod, checks="all").from_cache


def test_kinds_of_checks() -> None:
    with pytest.raises(ValueError, match="checks is 'some'; it is 'default' or 'all'"):
        rl.compile(module(GATHER), checks="some")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="debug builds are for CPUs"):
        rl.compile(module(GATHER), "cuda:sm_90", checks="all")


def test_indices_that_were_joined_are_inside(rng) -> None:
    text = """
@R.function
def main(x: R.Tensor((1, 3, 3, 1), "float32"), y: R.Tensor((2, 2, "n"), "float32")):
    with R.dataflow():
        a = R.tanh(x)
        b = R.nn.log_softmax(y, axis=-1)
        R.output(a, b)
    return a, b
"""
    mod = rl.parse(text)
    exe = rl.compile(mod, use_cache=False, checks="all")
    args = [rng.random(s).astype("float32") for s in ((1, 3, 3, 1), (2, 2, 9))]
    for got, want in zip(exe["main"](*args), rl.interpret(mod, "main", *args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


VIEWED = """
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    with R.dataflow():
        a = R.cumsum(x, axis=1)
        v = R.reshape(a, (8, n))
        b = R.cumsum(v, axis=1)
        R.output(b)
    return b
"""


def test_dead_memory_is_poison(monkeypatch) -> None:
    """A liveness that does not see views. Nothing reuses the memory, so the results of an ordinary
    build are right by chance."""

    def pack_apart(blocks, _excluded):
        ends = list(itertools.accumulate(size for _, _, size in blocks))
        return [0, *ends[:-1]], ends[-1]

    mod = rl.parse(VIEWED)
    x = np.ones((3, 8), "float32")
    want = rl.interpret(mod, "main", x)
    np.testing.assert_array_equal(rl.compile(mod, use_cache=False, checks="all")["main"](x), want)
    assert rl.check(mod, runs=1).ok
    monkeypatch.setattr(liveness, "has_trait", lambda name, trait: False)
    monkeypatch.setattr(plan_memory, "pack", pack_apart)
    np.testing.assert_array_equal(rl.compile(mod, use_cache=False)["main"](x), want)
    assert np.isnan(rl.compile(mod, use_cache=False, checks="all")["main"](x)).all()
    finding = rl.check(mod, runs=1).finding
    assert finding is not None and finding.stage == "the virtual machine"


BRANCHES = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")):
    a = R.cumsum(x, axis=1)
    if c:
        s = R.cumsum(a, axis=0)
        t = R.cumsum(s, axis=1)
        y = R.cumsum(t, axis=0)
    else:
        u = R.cumsum(x, axis=0)
        y = u
    z = R.cumsum(y, axis=1)
    return z
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("yes", [True, False])
def test_lifetimes_that_end_in_branches(yes: bool, threads: int) -> None:
    mod = rl.parse(BRANCHES)
    planned = marking_dead_memory(cpu_pipeline()).run(mod).result
    killed = [
        b.value.args[0].name
        for b in all_bindings(planned["main"])
        if isinstance(b.value, graph.Call) and b.value.op == graph.Op("memory.kill_tensor")
    ]
    made = [name.split("_with")[0] for name in killed if not name.endswith(("_1", "_2"))]
    # `y` is what was made in either branch, and read after them.
    assert sorted(made) == ["a", "s", "t", "y"]
    x, c = np.arange(24, dtype="float32").reshape(3, 8), np.bool_(yes)
    exe = rl.compile(mod, use_cache=False, checks="all", threads=threads)
    np.testing.assert_allclose(exe["main"](x, c), rl.interpret(mod, "main", x, c), rtol=1e-6)


OUTLIVING = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")):
    if c:
        s = R.cumsum(x, axis=0)
        t = R.cumsum(x, axis=1)
        y = (R.reshape(s, (8, n)), t)
    else:
        u = R.cumsum(x, axis=1)
        v = R.cumsum(x, axis=0)
        y = (R.reshape(u, (8, n)), v)
    a = y[0]
    z = R.cumsum(a, axis=1)
    b = y[1]
    w = R.cumsum(b, axis=1)
    r = R.reshape(w, (8, n))
    o = R.add(z, r)
    return o
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("yes", [True, False])
def test_poison_in_tensors_that_outlived_their_branch(monkeypatch, yes: bool, threads: int) -> None:
    """Where a kill is moved to before the read of what it kills, the read finds poison."""
    mod = rl.parse(OUTLIVING)
    x, c = np.arange(24, dtype="float32").reshape(3, 8), np.bool_(yes)
    want = rl.interpret(mod, "main", x, c)

    def run():
        return rl.compile(mod, use_cache=False, checks="all", threads=threads)["main"](x, c)

    np.testing.assert_allclose(run(), want, rtol=1e-6)
    assert rl.check(mod, runs=2).ok

    def early(*args, **options):
        found = original(*args, **options)
        for interval in found.intervals.values():
            if interval.holder is not None and interval.holder is not interval.var:
                interval.last = next(b for b in found.positions if b.var is interval.holder)
        return found

    original = plan_memory.liveness_of
    monkeypatch.setattr(plan_memory, "liveness_of", early)
    assert np.isnan(run()).all()


PARAMETER_OR_OWN = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), c: R.Tensor((), "bool")):
    k = R.cumsum(x, axis=1)
    if c:
        y = (x, k)
    else:
        s = R.cumsum(x, axis=0)
        y = (s, R.cumsum(s, axis=1))
    w = R.cumsum(y[0], axis=1)
    v = R.cumsum(y[1], axis=0)
    o = R.add(R.add(w, k), v)
    return o
"""


@pytest.mark.parametrize("yes", [True, False])
def test_memory_of_others_is_not_killed_after_branches(yes: bool) -> None:
    """A branch may return a parameter, or a tensor that is still read later."""
    mod = rl.parse(PARAMETER_OR_OWN)
    x, c = np.arange(24, dtype="float32").reshape(3, 8), np.bool_(yes)
    main = rl.compile(mod, use_cache=False, checks="all")["main"]
    want, given = rl.interpret(mod, "main", x, c), x.copy()
    np.testing.assert_allclose(main(x, c), want, rtol=1e-6)
    np.testing.assert_array_equal(x, given)
    assert rl.check(mod, runs=4).ok
