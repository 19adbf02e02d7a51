"""Calls that go from Python straight to machine code: accepted arguments, and the state left
behind."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.direct_call import is_supported
from relaxlab.runtime.native.function import CheckFailed, NativeFunction
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

pytestmark = pytest.mark.skipif(not is_supported(), reason="calls go through Python here")


@I.ir_module
class Program:
    @R.function
    def add(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("n", 3), "float32")):
        z = R.add(x, y)
        return z

    @R.function
    def double(x: R.Tensor((), "bfloat16"), y: R.Tensor(("n",), "bool")):
        z = (R.add(x, x), R.logical_not(y))
        return z

    @R.function
    def mixed(x: R.Tensor(("n",), "float32"), s: R.Shape(["m"])):
        m = T.int64()
        z = R.zeros((m,), "float32")
        return (x, z, x)

    @R.function
    def nested(x: R.Tensor(("n",), "float32")):
        y = R.add(x, x)
        return (y, (x, R.shape([2])))

    @R.function
    def scalars(a: R.Prim("int32"), b: R.Prim("float32"), c: R.Prim("float64"), d: R.Prim("uint8")):
        return (a, b, c, d)

    @T.prim_func
    def write(C: T.Buffer((8,), "float32"), V: T.Buffer(("n",), "float32")):
        n = T.int64()
        for i in range(n):
            with T.block("w"):
                vi = T.axis.spatial(n, i)
                C[vi] = V[vi]

    @R.function
    def update(x: R.Tensor(("n",), "float32"), cache: R.Tensor((8,), "float32")):
        cls = Program
        R.func_attr({"relax.force_pure": True})
        new = R.call_tir_inplace(
            cls.write, (cache, x), inplace_indices=[0], out_sinfo=R.Tensor((8,), "float32")
        )
        return new


@pytest.fixture(scope="module")
def exe() -> Executable:
    return rl.compile(Program, use_cache=False, threads=2)


def python_calls(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """A result, and which functions in Python ran to make it."""
    names: list[str] = []

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        value = run()
    finally:
        sys.setprofile(None)
    return value, names[1:]  # the first is `run`


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.flags.num) == (b.dtype, b.shape, b.flags.num)
        np.testing.assert_array_equal(a, b)
    else:
        assert repr(a) == repr(b)


ones = np.ones


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("add", (ones((2, 3), "float32"), np.arange(6, dtype="float32").reshape(2, 3))),
        ("double", (np.array(1.5, ml_dtypes.bfloat16), np.array([True, False]))),
        ("mixed", (ones(2, "float32"), (5,))),
        ("update", (ones(5, "float32"), np.zeros(8, "float32"))),
    ],
)
def test_nothing_runs_in_python(exe: Executable, name: str, args: tuple[Any, ...]) -> None:
    function = exe[name]
    value, names = python_calls(lambda: function(*args))
    assert names == []
    same(value, function._run(*args))


def test_results_that_are_arguments(exe: Executable) -> None:
    x, cache = ones(4, "float32"), np.zeros(8, "float32")
    first, zeros, second = exe["mixed"](x, (3,))
    assert first is x and second is x and zeros.shape == (3,)
    assert exe["update"](x, cache) is cache and cache.sum() == 4
    y, (z, shape) = exe["nested"](x)
    assert y[0] == 2 and z is x and shape == (2,)


def test_results_are_arrays_like_any_other(exe: Executable) -> None:
    x = ones((2, 3), "float32")
    y = exe["add"](x, x)
    y[0] = 5
    assert y.flags.writeable and not y.flags.owndata and not np.shares_memory(x, y)
    assert y.ctypes.data % 64 == 0
    y = exe["add"](y[:1], y[:1])  # its block is an argument's base
    assert y.tolist() == [[10, 10, 10]]


def test_scalars_as_python_reads_them(exe: Executable) -> None:
    function = exe["scalars"]
    for a in (0, -1, 2**31 - 1, -(2**31), True, np.int16(-3)):
        for b in (0.1, -0.0, 1e300, float("nan"), 3, np.float32(0.5)):
            args = (a, b, float(b), 255)
            same(function(*args), function._run(*args))
    assert function(-1, 0.5, 0.1, 7) == (-1, 0.5, 0.1, 7)


WRONG = {
    "add": [
        (ones((2, 3), "float32"),),
        (ones((2, 3), "float32"),) * 3,
        (ones((2, 3), "float32"), ones((2, 3))),
        (ones((2, 3), "float32"), ones((2, 3), ">f4")),
        (ones((2, 3), "float32"), ones((2, 4), "float32")),
        (ones((2, 3), "float32"), ones((3, 3), "float32")),
        (ones((2, 3), "float32"), ones((2, 3, 1), "float32")),
        (ones((2, 3), "float32"), ones((3, 2), "float32").T),
        (ones((2, 3), "float32"), np.zeros(25, "uint8")[1:].view("float32").reshape(2, 3)),
        (ones((2, 3), "float32"), None),
    ],
    "mixed": [
        (ones(2, "float32"), 3),
        (ones(2, "float32"), (-1,)),
        (ones(2, "float32"), (1 << 64,)),
        (ones(2, "float32"), (1.0,)),
        (ones(2, "float32"), (1, 2)),
    ],
    "scalars": [
        (2**31, 0.0, 0.0, 0),
        (1 << 80, 0.0, 0.0, 0),
        (1, 0.0, 0.0, -1),
        (1, 0.0, 0.0, 256),
        (1.0, 0.0, 0.0, 0),
        (1, "0", 0.0, 0),
    ],
}


@pytest.mark.parametrize(("name", "number"), [(n, i) for n in WRONG for i in range(len(WRONG[n]))])
def test_refusals_are_those_of_python(exe: Executable, name: str, number: int) -> None:
    args, messages = WRONG[name][number], list[str]()
    for call in (exe[name], exe[name]._run):
        with pytest.raises((ArgumentError, CheckFailed)) as caught:
            call(*args)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_arguments_that_python_has_to_look_at(exe: Executable) -> None:
    class Own(np.ndarray):
        pass

    x = np.arange(6, dtype="float32").reshape(2, 3)
    same(exe["add"](x.view(Own), x), exe["add"](x, x))
    first, zeros, _ = exe["mixed"](x[0], [np.int32(2)])
    assert np.shares_memory(first, x) and zeros.tolist() == [0, 0]
    empty = np.zeros((0, 3), "float32")
    assert exe["add"](empty, empty).shape == (0, 3)
    large = ones((1 << 17, 3), "float32")  # its memory is used again
    for _ in range(3):
        assert exe["add"](large, large)[-1, 0] == 2
        kept = exe._spare.bytes()
        assert kept and exe["add"](x, x)[1, 2] == 10 and exe._spare.bytes() == kept


def test_updates_in_memory_that_is_shared(exe: Executable) -> None:
    update, raw = exe["update"], np.zeros(24, "float32")
    beside, within, around = raw[8:10], raw[4:6], raw[:12]
    assert update(beside, raw[:8]).base is raw
    for x in (within, around):
        with pytest.raises(ArgumentError, match="`x` and `cache` of `update` share memory"):
            update(x, raw[:8])
    fixed = raw[:8].view()
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        update(beside, fixed)
    with pytest.raises(ArgumentError, match=r"ascontiguousarray\(x\); copy it back after the call"):
        update(beside, raw[:16:2])
    try:
        update.bind(raw[:8])
        assert python_calls(lambda: update(beside))[1][:1] == ["_finish"]  # what is bound returns
        for x in (within, around):
            with pytest.raises(ArgumentError, match="`x` and `cache` of `update` share memory"):
                update(x)
    finally:
        update.bind()


def test_arguments_of_any_kind(exe: Executable, rng: np.random.Generator) -> None:
    """Both ways compute the same or refuse with the same words."""

    def draw() -> Any:
        shape = tuple(int(d) for d in rng.choice([0, 1, 3, 3, 3], size=rng.choice([1, 2, 2, 2, 3])))
        array = rng.integers(0, 9, shape).astype(rng.choice(["float32"] * 8 + ["float64", "int32"]))
        match rng.integers(8):
            case 0:
                return array.T
            case 1:
                return np.repeat(array, 2, axis=0)[::2]
            case 2:
                return odd[rng.integers(len(odd))]
            case _:
                return array

    odd = (None, 1.5, [2], (2, 3), (3,), (0,), (-1,), (np.int64(2),), (True,), (1 << 63,))
    computed = 0
    for _ in range(2000):
        name, args = str(rng.choice(["add", "mixed", "nested"])), [draw(), draw()]
        outcomes: list[Any] = []
        for call in (exe[name], exe[name]._run):
            try:
                outcomes.append(call(*args[: 1 if name == "nested" else 2]))
                computed += 1
            except (ArgumentError, CheckFailed) as error:
                outcomes.append(str(error))
        same(*outcomes)
    assert computed > 100


# --- What is left behind --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "mixed", "nested", "refused", "failed"])
def test_references(exe: Executable, name: str) -> None:
    x, y = ones((2, 3), "float32"), ones((2, 3), "float32")
    row, shape = ones(2, "float32"), (5,)
    calls: dict[str, tuple[NativeFunction, tuple[Any, ...]]] = {
        "add": (exe["add"], (x, y)),
        "mixed": (exe["mixed"], (row, shape)),
        "nested": (exe["nested"], (row,)),
        "refused": (exe["add"], (x, row)),
        "failed": (exe["add"], (x, ones((3, 3), "float32"))),
    }
    function, args = calls[name]
    held = [*args, x.dtype, row, np.ndarray, None, True, exe._spare.blocks, function]

    def repeat(count: int) -> None:
        for _ in range(count):
            try:
                function(*args)
            except (ArgumentError, CheckFailed):
                assert name in ("refused", "failed")

    repeat(10)
    before = [sys.getrefcount(h) for h in held]
    repeat(1000)
    after = [sys.getrefcount(h) for h in held]
    assert [abs(a - b) < 100 for a, b in zip(before, after, strict=True)] == [True] * len(held)


def test_blocks_are_given_back(exe: Executable) -> None:
    with open("/proc/self/statm") as f:
        pages = int(f.read().split()[1])
    x = ones((20000, 3), "float32")
    for _ in range(3000):  # 700 MB
        exe["add"](x, x)
    with open("/proc/self/statm") as f:
        assert int(f.read().split()[1]) - pages < 20000


def test_executables_are_collected() -> None:
    exe = rl.compile(Program, use_cache=False)
    x = ones((2, 3), "float32")
    call, y, dead = exe["add"].__call__, exe["add"](x, x), weakref.ref(exe)
    del exe
    gc.collect()
    assert call(x, y).tolist() == [[3] * 3] * 2 and dead() is not None
    del call
    gc.collect()
    assert dead() is None and y.sum() == 12


def test_a_builtin_knows_what_was_bound_since() -> None:
    exe = rl.compile(Program, use_cache=False)
    add, x = exe["add"], ones((2, 3), "float32")
    call = add.__call__
    add.bind(x.copy())
    gc.collect()
    with pytest.raises(ArgumentError, match="takes 1 argument"):
        call(x, x)
    assert call(x)[0, 0] == add(2 * x)[0, 0] - 1 == 2
    add.bind()
    assert call(x, 3 * x)[0, 0] == 4


# --- Threads --------------------------------------------------------------------------------------


def test_threads_wait_for_each_other(exe: Executable) -> None:
    x, done = ones((2, 3), "float32"), list[str]()

    def call() -> None:
        exe["add"](x, x)
        done.append("called")

    thread = threading.Thread(target=call)
    with exe._lock:
        thread.start()
        time.sleep(0.05)
        done.append("released")
        exe["add"](x, x)  # who has the lock need not wait
    thread.join()
    assert done == ["released", "called"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_an_interrupt_while_waiting(exe: Executable) -> None:
    x, held, over = ones((2, 3), "float32"), threading.Event(), threading.Event()

    def hold() -> None:
        with exe._lock:
            held.set()
            over.wait(60)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            exe["add"](x, x)
    finally:
        signal.signal(signal.SIGALRM, before)
        over.set()
        thread.join()
    assert exe["add"](x, x)[0, 0] == 2


def test_many_threads(exe: Executable) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        x, row = np.full((number + 1, 3), number, "float32"), ones(number + 1, "float32")
        for _ in range(300):
            if (exe["add"](x, x) != 2 * number).any() or exe["mixed"](row, (number,))[0] is not row:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
