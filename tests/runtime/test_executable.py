"""Calling compiled programs: checks, memory, packed functions, threads, processes."""

from __future__ import annotations

import gc
import multiprocessing
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.function import CheckFailed, NativeFunction
from relaxlab.runtime.packed import register_func
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


def build(mod: Any, threads: int = 2) -> Executable:
    return rl.compile(mod, use_cache=False, threads=threads)


# --- Checks at run time --------------------------------------------------------------------------


@I.ir_module
class Checked:
    @R.function
    def cast(x: R.Tensor("float32", ndim=1)):
        n = T.int64()
        y = R.match_cast(x, R.Tensor((8,), "float32"))
        z = R.add(y, y)
        return z

    @R.function
    def symbol(x: R.Tensor(("n",), "float32"), y: R.Tensor("float32", ndim=2)):
        n = T.int64()
        m = T.int64()
        z = R.match_cast(y, R.Tensor((n, m), "float32"))
        w = R.add(z, z)
        return w

    @R.function
    def bounded(x: R.Tensor(("n",), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 16}})
        n = T.int64()
        with R.dataflow():
            y = R.exp(x)
            z = R.add(y, R.sum(y))
            R.output(z)
        return z

    @T.prim_func
    def kernel(
        A: T.Buffer((100,), "int32"), B: T.Buffer((100,), "int32"), C: T.Buffer((100,), "int32")
    ):
        for i in T.parallel(100):
            with T.block("c"):
                vi = T.axis.spatial(100, i)
                assert A[vi] > -1000, "A must be {large}"
                C[vi] = A[vi] // B[vi] + A[vi] % B[vi]

    @R.function
    def divide(a: R.Tensor((100,), "int32"), b: R.Tensor((100,), "int32")):
        cls = Checked
        c = R.call_tir(cls.kernel, (a, b), out_sinfo=R.Tensor((100,), "int32"))
        return c

    @R.function
    def ratio(n: R.Prim(value="n"), m: R.Prim(value="m")):
        n = T.int64()
        m = T.int64()
        z = R.zeros((n // m,), "float32")
        return z

    @R.function
    def room(s: R.Shape(["n", "m"])):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            z = R.exp(R.zeros((n, m), "float32"))
            w = R.sum(R.matmul(z, R.permute_dims(z)), axis=0)
            R.output(w, z)
        return (w, z)


@pytest.fixture(scope="module")
def checked() -> Executable:
    return build(Checked)


def test_match_cast_names_value_function_expected_and_got(checked: Executable) -> None:
    np.testing.assert_array_equal(checked["cast"](np.ones(8, "float32")), np.full(8, 2, "float32"))
    with pytest.raises(CheckFailed) as error:
        checked["cast"](np.ones(7, "float32"))
    assert str(error.value) == "dimension 0 of `y` (match_cast in `cast`) is 7, expected 8"
    with pytest.raises(CheckFailed) as error:
        checked["symbol"](np.ones(3, "float32"), np.ones((2, 5), "float32"))
    assert str(error.value) == (
        "dimension 0 of `z` (match_cast in `symbol`) is 2, expected n = 3 "
        "(n is dimension 0 of parameter `x` of `symbol`)"
    )


def test_declared_bounds_hold(checked: Executable) -> None:
    x = np.arange(16, dtype="float32") / 16
    np.testing.assert_allclose(checked["bounded"](x), np.exp(x) + np.exp(x).sum(), rtol=1e-5)
    with pytest.raises(CheckFailed, match=r"n .*`x` of `bounded`.*16.*\(it is 17\)"):
        checked["bounded"](np.ones(17, "float32"))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_kernels_report_what_they_cannot_do(
    checked: Executable, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "threads", threads)
    a, b = np.arange(-50, 50, dtype="int32"), np.full(100, -3, "int32")
    for _ in range(3):
        np.testing.assert_array_equal(checked["divide"](a, b), a // b + a % b)
        with pytest.raises(CheckFailed, match="^integer division by zero in `kernel`$"):
            checked["divide"](a, np.where(a == 33, 0, b))
        with pytest.raises(CheckFailed, match="^assertion failed: A must be {large} in `kernel`$"):
            checked["divide"](np.where(a == 12, -2000, a), b)


def test_the_smallest_integer_by_minus_one_wraps() -> None:
    low = build(Wrapping)
    smallest = np.full(64, -(2**31), "int32")
    assert low["main"](smallest, np.full(64, -1, "int32")).tolist() == smallest.tolist()


@I.ir_module
class Wrapping:
    @T.prim_func
    def kernel(
        A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32"), C: T.Buffer((64,), "int32")
    ):
        for i in range(64):
            with T.block("c"):
                vi = T.axis.spatial(64, i)
                C[vi] = A[vi] // B[vi] + A[vi] % B[vi]

    @R.function
    def main(a: R.Tensor((64,), "int32"), b: R.Tensor((64,), "int32")):
        cls = Wrapping
        c = R.call_tir(cls.kernel, (a, b), out_sinfo=R.Tensor((64,), "int32"))
        return c


def test_sizes_without_a_value(checked: Executable) -> None:
    assert checked["ratio"](7, 2).shape == (3,)
    with pytest.raises(CheckFailed, match="integer division by zero in `ratio`"):
        checked["ratio"](7, 0)


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**62, 2**62), (2**33, 2**33), (2**31, 2**30)])
def test_more_memory_than_there_is(checked: Executable, shape: tuple[int, int]) -> None:
    with pytest.raises(MemoryError, match="`room` asked for [0-9]+ bytes, more than there are"):
        checked["room"](shape)
    w, z = checked["room"]((2, 3))
    assert (w.tolist(), z.shape) == ([6.0, 6.0], (2, 3))


# --- Memory --------------------------------------------------------------------------------------


@I.ir_module
class Memory:
    @R.function
    def identity(x: R.Tensor(("n",), "float32")):
        return x

    @R.function
    def constant():
        c = R.const([1.0, 2.0, 3.0], "float32")
        return c

    @R.function
    def several(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y: R.Tensor((n,), "float32") = R.exp(x)
        z: R.Tensor((n, 1), "float32") = R.reshape(y, (n, 1))
        w: R.Tensor((n,), "float32") = R.add(y, x)
        return (y, z, (w, y), x)

    @R.function
    def nothing(x: R.Tensor(("n",), "float32")) -> R.Tuple():
        y = R.add(x, x)
        return R.tuple()

    @T.prim_func
    def append(C: T.Buffer((8,), "float32"), V: T.Buffer(("n",), "float32"), p: T.int64):
        n = T.int64()
        for i in range(n):
            with T.block("w"):
                vi = T.axis.spatial(n, i)
                C[p + vi] = V[vi]

    @R.function
    def update(
        cache: R.Tensor((8,), "float32"), x: R.Tensor(("n",), "float32"), p: R.Prim(value="p")
    ):
        n = T.int64()
        p = T.int64()
        cls = Memory
        R.func_attr({"relax.force_pure": True})
        new = R.call_tir_inplace(
            cls.append,
            (cache, x),
            inplace_indices=[0],
            out_sinfo=R.Tensor((8,), "float32"),
            tir_vars=R.shape([p]),
        )
        return new


@pytest.fixture(scope="module")
def memory() -> Executable:
    return build(Memory)


def test_results_are_the_arguments_where_they_are_returned(memory: Executable) -> None:
    x = np.ones(3, "float32")
    assert memory["identity"](x) is x


def test_constants_cannot_be_overwritten_through_results(memory: Executable) -> None:
    c = memory["constant"]()
    with pytest.raises(ValueError, match="read-only"):
        c[0] = 9
    assert memory["constant"]().tolist() == [1, 2, 3]


def test_constants_of_any_layout() -> None:
    from relaxlab.ir import graph
    from relaxlab.ir.module import Module

    data = np.arange(6, dtype="float32").reshape(2, 3).T
    x = graph.Var("x", rl.parse(SHAPE_OF_X)["main"].params[0].ty)  # type: ignore
    y = graph.Var("y")
    call = graph.Call(graph.Op("add"), (x, graph.Constant(data)))
    body = graph.SeqExpr((graph.BindingBlock((graph.VarBinding(call, y),)),), y)
    exe = build(Module.of({"main": graph.Function((x,), body)}))
    zero = np.zeros((3, 2), "float32")
    np.testing.assert_array_equal(exe["main"](zero), data)


SHAPE_OF_X = """
@R.function
def main(x: R.Tensor((3, 2), "float32")):
    return x
"""


def test_results_keep_their_memory(memory: Executable) -> None:
    x = np.linspace(0, 1, 1000, dtype="float32")
    y, z, (w, again), same = memory["several"](x)
    assert same is x and np.shares_memory(y, z) and np.shares_memory(y, again)
    copies = [a.copy() for a in (y, z, w)]
    for _ in range(20):
        memory["several"](x * 2)
    gc.collect()
    for a, b in zip((y, z, w), copies, strict=True):
        np.testing.assert_array_equal(a, b)
    del y, again
    gc.collect()
    np.testing.assert_array_equal(z, copies[1])


def test_results_outlive_the_executable() -> None:
    exe = build(Memory)
    y, *_ = exe["several"](np.zeros(100, "float32"))
    function = exe["several"]
    del exe
    gc.collect()
    assert y.sum() == 100
    assert function(np.zeros(3, "float32"))[0].tolist() == [1, 1, 1]


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["several", "nothing", "room", "cast"])
def test_no_memory_is_lost(
    memory: Executable, checked: Executable, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10000 calls of 64 KB of results each would show as 640 MB."""
    exe = checked if name in ("room", "cast") else memory
    monkeypatch.setattr(exe, "threads", 1)
    x = np.zeros(16384, "float32")
    args: tuple[Any, ...] = ((2, 8192),) if name == "room" else (x,)

    def calls(count: int) -> None:
        for _ in range(count):
            try:
                exe[name](*args)
            except CheckFailed:
                assert name == "cast"

    calls(200)
    gc.collect()
    before = resident()
    calls(10000 if name != "room" else 2000)
    gc.collect()
    assert resident() - before < 16 << 20


def test_updates_in_place(memory: Executable) -> None:
    cache = np.zeros(8, "float32")
    new = memory["update"](cache, np.ones(2, "float32"), 3)
    assert new is cache and cache.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


def test_arrays_that_cannot_be_updated(memory: Executable) -> None:
    cache = np.zeros(8, "float32")
    cache.flags.writeable = False
    with pytest.raises(ArgumentError, match="`cache` of `update` is updated in place but is read-"):
        memory["update"](cache, np.ones(2, "float32"), 0)
    raw = np.zeros(8, "float32")
    with pytest.raises(
        ArgumentError, match="`cache` and `x` of `update` share memory.*pass a copy"
    ):
        memory["update"](raw, raw[4:6], 0)
    assert raw.sum() == 0


def test_updates_through_dlpack(memory: Executable) -> None:
    class Foreign:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    cache = np.zeros(8, "float32")
    new = memory["update"](Foreign(cache), np.ones(1, "float32"), 7)
    assert np.shares_memory(new, cache) and cache[7] == 1


@I.ir_module
class Three:
    @R.function
    def main(
        x: R.Tensor(("n",), "float32"),
        y: R.Tensor(("n",), "float32"),
        z: R.Tensor(("n",), "float32"),
    ):
        w = R.add(R.multiply(x, R.multiply(y, y)), z)
        return w


def test_bound_arguments() -> None:
    exe = build(Checked)
    main = exe["symbol"]
    with pytest.raises(ArgumentError, match="has 2 parameters"):
        main.bind(1, 2, 3)
    main.bind(np.ones((3, 2), "float32"))
    gc.collect()
    assert main(np.zeros(3, "float32")).tolist() == [[2, 2]] * 3
    with pytest.raises(ArgumentError, match=r"takes 1 argument \(x\), got 2"):
        main(np.zeros(3, "float32"), np.zeros(3, "float32"))
    with pytest.raises(CheckFailed, match="dimension 0 of `z`"):
        main(np.zeros(2, "float32"))
    main.bind(np.full((3, 1), 2, "float32"))  # another time
    assert main(np.zeros(3, "float32")).tolist() == [[4]] * 3
    main.bind()
    assert main(np.zeros(1, "float32"), np.ones((1, 1), "float32")).tolist() == [[2]]


def test_a_refused_bind_leaves_what_was_bound() -> None:
    exe = rl.compile(Three, use_cache=False)
    main = exe["main"]
    main.bind(np.full(4, 2, "float32"), np.full(4, 3, "float32"))
    for wrong in (np.ones(4), np.ones((4, 1), "float32"), None):
        with pytest.raises(ArgumentError, match="`z` of `main`"):
            main.bind(np.full(4, 90, "float32"), wrong)
        gc.collect()
        junk = [np.full(4, 7, "float32") for _ in range(100)]
        assert main(np.ones(4, "float32")).tolist() == [7] * 4
        del junk


@pytest.mark.parametrize(
    "where", ["results.view_memory", "function.Sources", "results.owned_block"]
)
def test_an_interrupt_between_the_lines(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C anywhere in a call the next one computes and reports as ever."""
    exe = rl.compile(Three, use_cache=False)
    main = exe["main"]
    x, wrong = np.ones(4, "float32"), np.ones(3, "float32")

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    for args in ((x, x, x), (x, x, wrong)):
        with monkeypatch.context() as patch:
            patch.setattr(f"relaxlab.runtime.native.{where}", interrupt)
            with suppress(KeyboardInterrupt, CheckFailed):
                main(*args)
        assert main(x, x, x).tolist() == [2] * 4
        with pytest.raises(CheckFailed, match="parameter `z` of `main` is 3, expected n = 4"):
            main(x, x, wrong)


def test_an_interrupt_before_the_report(
    checked: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, zero = np.ones(100, "int32"), np.zeros(100, "int32")

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(NativeFunction, "_fail", interrupt)
        checked["divide"](a, zero)
    for call in (checked["divide"], checked["divide"]._run):
        assert call(a, a).tolist() == [1] * 100


def test_memory_of_dropped_results_is_used_again() -> None:
    exe = rl.compile(Three, use_cache=False)
    main, spare = exe["main"], exe._spare
    x = np.ones(1 << 20, "float32")
    first = main(x, x, x)
    second = main(x, 2 * x, x)
    at = {a.__array_interface__["data"][0] for a in (first, second)}
    assert len(at) == 2 and spare.bytes() == 0
    del first
    assert spare.bytes() == x.nbytes
    third = main(x, 3 * x, x)
    assert third.__array_interface__["data"][0] in at and spare.bytes() == 0
    assert (second[0], third[0], third[-1]) == (5, 10, 10)
    del second, third
    assert spare.bytes() == x.nbytes  # one call's worth, not two
    half = main(*[x[: x.size // 2]] * 3)  # fits half as much, and no less
    assert spare.bytes() == 0 and half.shape == (x.size // 2,) and half[-1] == 2
    del half
    quarter = main(*[x[: x.size // 4 - 1]] * 3)
    assert spare.bytes() == x.nbytes and quarter[-1] == 2


def test_bound_arrays_that_are_updated_stay_apart() -> None:
    update = build(Memory)["update"]
    cache, raw = np.zeros(8, "float32"), np.zeros(16, "float32")
    update.bind(cache[:2], 1)
    with pytest.raises(ArgumentError, match="`cache` and `x` of `update` share memory"):
        update(cache)
    assert update(raw[:8]).tolist() == [0] * 8


# --- Packed functions -----------------------------------------------------------------------------


@I.ir_module
class Packed:
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32"), k: R.Prim("int64")):
        n = T.int64()
        y: R.Tensor((n,), "float32") = R.exp(x)
        z: R.Tensor((n,), "float32") = R.call_packed(
            "tests.middle", y, R.shape([n, 2]), sinfo_args=R.Tensor((n,), "float32")
        )
        w: R.Tensor((n,), "float32") = R.add(z, y)
        return w


@pytest.fixture
def middle() -> Any:
    """Register the functions that the program calls, and compile it."""
    box: dict[str, Any] = {}
    register_func("tests.middle", lambda *args: box["run"](*args))
    exe = build(Packed)

    def call(run: Any, x: Any, threads: int = 2) -> Any:
        box["run"] = run
        exe.threads = threads
        return exe["main"](x, 1)

    call.exe = exe  # type: ignore[attr-defined]
    return call


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_packed_functions_see_arrays_and_shapes(middle: Any, threads: int) -> None:
    seen: list[Any] = []

    def run(y: Any, shape: Any) -> Any:
        seen.append((y.dtype.name, y.shape, shape))
        return y * 2

    x = np.zeros(5, "float32")
    np.testing.assert_array_equal(middle(run, x, threads), np.full(5, 3, "float32"))
    assert seen == [("float32", (5,), (5, 2))]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_exceptions_pass_through(middle: Any, error: BaseException, threads: int) -> None:
    def fail(y: Any, shape: Any) -> Any:
        raise error

    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            middle(fail, np.zeros(5, "float32"), threads)
        assert caught.value is error
        assert middle(lambda y, s: y, np.zeros(2, "float32"), threads).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros(5), "dtype float64"),
        (np.zeros((5, 1), "float32"), "2 dimensions"),
        (np.zeros(4, "float32"), "is 4, expected"),
        (None, "must be an array"),
        (np.zeros(10, "float32")[::2], "not contiguous"),
    ],
)
def test_results_of_packed_functions_are_checked(middle: Any, result: Any, message: str) -> None:
    with pytest.raises((ArgumentError, CheckFailed), match=message) as error:
        middle(lambda y, s: result, np.zeros(5, "float32"))
    assert "tests.middle" in str(error.value) or "`z`" in str(error.value)


def test_an_unregistered_function(middle: Any) -> None:
    mod = rl.parse(Packed.script().replace("tests.middle", "tests.nowhere"))
    with pytest.raises(KeyError, match="no function named 'tests.nowhere'.*register_func"):
        build(mod)["main"](np.zeros(2, "float32"), 1)


def test_a_program_is_not_called_from_within(middle: Any) -> None:
    x = np.zeros(2, "float32")
    with pytest.raises(RuntimeError, match="`main` was called by a function that its own"):
        middle(lambda y, s: middle.exe["main"](x, 1), x)
    assert middle(lambda y, s: y, x).tolist() == [2, 2]


def test_another_program_may_be_called_from_within(
    middle: Any, memory: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "threads", 3)
    x = np.zeros(6000, "float32")
    got = middle(lambda y, s: memory["several"](y)[2][0], x)
    np.testing.assert_allclose(got, np.full(6000, np.e + 1 + 1), rtol=1e-6)


# --- Threads and processes ------------------------------------------------------------------------


def test_calls_from_several_threads_take_turns(memory: Executable, checked: Executable) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        x = np.full(5000 + number, number, "float32")
        for _ in range(30):
            y, *_ = memory["several"](x)
            if not np.allclose(y, np.exp(np.float32(number)), rtol=1e-5):
                wrong.append((number, y))
            try:
                checked["cast"](x)
                wrong.append("no error")
            except CheckFailed as e:
                if str(5000 + number) not in str(e):
                    wrong.append(str(e))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


def test_threads_are_settable(memory: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="threads must be at most 1024, got 100000"):
        memory.threads = 100000
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        memory.threads = 0
    monkeypatch.setattr(memory, "threads", 7)  # more than there are cores
    assert memory["several"](np.zeros(20000, "float32"))[0].sum() == 20000


def _in_child(exe: Executable, x: Any, queue: Any) -> None:
    queue.put(float(exe["several"](x)[0].sum()))


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_both_processes_compute(memory: Executable) -> None:
    x = np.zeros(30000, "float32")
    memory["several"](x)  # the team of threads exists before the fork
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    child = context.Process(target=_in_child, args=(memory, x, queue))
    child.start()
    assert queue.get(timeout=60) == 30000
    child.join(60)
    assert child.exitcode == 0
    assert memory["several"](x)[0].sum() == 30000


def test_the_interpreter_exits_cleanly() -> None:
    program = textwrap.dedent("""
        import numpy as np, relaxlab as rl
        mod = rl.parse('''
        from relaxlab.script import ir as I, relax as R
        @I.ir_module
        class M:
            @R.function
            def main(x: R.Tensor(("n",), "float32")):
                y = R.exp(x)
                return y
        ''')
        exe = rl.compile(mod, threads=2, use_cache=False)
        y = exe["main"](np.zeros(10000, "float32"))
        print(y.sum())
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10000.0\n", "")


# --- The object itself ----------------------------------------------------------------------------


def test_names(memory: Executable) -> None:
    assert set(memory) == {"identity", "constant", "several", "nothing", "update"}
    with pytest.raises(KeyError, match="no function 'main'; it has: constant, identity"):
        memory["main"]
    assert repr(memory["identity"]) == (
        "<compiled identity(x: R.Tensor((n,), 'float32')) -> R.Tensor((n,), 'float32')>"
    )


def test_planned_memory_is_kept_between_calls(checked: Executable) -> None:
    x = np.ones(16, "float32")
    checked["bounded"](x)
    before = checked.arena_bytes()
    for n in (1, 16, 5):
        checked["bounded"](x[:n])
    assert checked.arena_bytes() == before
    planned = checked.artifact.planned_bytes["bounded"]
    assert planned is not None and 0 < planned <= before
