"""Exported libraries: calls from C, refusals, and that no file is left half-written.

The C functions are called through ctypes (`c_library.py`), `test_export_programs.py` has programs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.export.export import ExportError
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.packed import register_func
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import random_arguments
from tests.compiler import compiler
from tests.passes.graph_programs import Programs
from tests.runtime.export.c_library import Failed, Library, array_of, leaves, tensor
from tests.runtime.native.test_arguments import Calls
from tests.runtime.test_executable import Checked, Memory

pytestmark = pytest.mark.usefixtures("needs_compiler")


def build(mod: Any) -> Executable:
    return rl.compile(mod, use_cache=False, threads=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module", params=["calls", "checked", "memory"])
def both(request: pytest.FixtureRequest, folder: Path) -> tuple[Executable, Library]:
    """A module as an executable and as a library."""
    exe = build({"calls": Calls, "checked": Checked, "memory": Memory}[request.param])
    exe.export(folder / f"{request.param}.so")
    return exe, Library(folder / f"{request.param}.so")


def agree(exe: Executable, library: Library, name: str, *args: Any) -> None:
    """Both give the same bits, or fail in the same words (less what Python suggests), and leave
    the same in arrays that are updated."""
    ours, theirs = ([_copied(a) for a in args] for _ in range(2))
    n_results = len(list(leaves(_as_tuple(exe[name].info.result))))
    try:
        want = list(leaves((exe[name](*ours),)))
    except (ArgumentError, CheckFailed, MemoryError) as error:
        with pytest.raises(Failed) as caught:
            library.call(name, n_results, *theirs)
        kind = {CheckFailed: "check", MemoryError: "memory"}.get(type(error), "argument")
        assert caught.value.status == kind
        message = str(error).split("; ")[0] if kind == "argument" else str(error)
        assert caught.value.message == message
        return
    got = library.call(name, len(want), *theirs)
    for a, b in zip(got, want, strict=True):
        assert not isinstance(b, np.ndarray) or a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    return value.copy() if isinstance(value, np.ndarray) else value


def _as_tuple(tree: Any) -> Any:
    return tuple(map(_as_tuple, tree.fields)) if tree.kind == "tuple" else tree


F4, I3 = np.ones((3, 4), "float32"), np.arange(3, dtype="int32")
A100 = np.arange(-50, 50, dtype="int32")
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "main": [(F4, F4), (F4[:0], F4[:0]), (F4, F4[:2]), (F4[0], F4), (F4.astype("float64"), F4),
             (F4[:, :3].copy(), F4)],
    "rows": [((2, 3),), ((0, 5),)],
    "pair": [((I3, I3),), ((I3, I3[:2]),)],
    "fixed": [(np.ones((2, 3)),), (np.ones((3, 2)),)],
    "count": [(np.int64(5),), (np.int64(0),)],
    "cast": [(np.ones(8, "float32"),), (np.ones(7, "float32"),)],
    "symbol": [(F4[:, 0].copy(), F4), (F4[0], F4)],
    "bounded": [(np.ones(16, "float32"),), (np.ones(17, "float32"),)],
    "divide": [(A100, A100 + 1000), (A100, A100), (A100 - 2000, A100 + 1000)],
    "ratio": [(np.int64(7), np.int64(2)), (np.int64(7), np.int64(0))],
    "room": [((2, 3),), ((2**40, 2**40),), ((2**62, 2**62),)],
    "identity": [(F4[0],)],
    "constant": [()],
    "several": [(F4[0],), (F4[0, :0],)],
    "nothing": [(F4[0],)],
    "update": [(np.zeros(8, "float32"), F4[0, :2].copy(), np.int64(3))],
}  # fmt: skip


def test_same_as_python(both: tuple[Executable, Library]) -> None:
    exe, library = both
    for threads in (1, 2, 3):
        library.threads(threads)
        for name in exe:
            for args in CALLS[name]:
                agree(exe, library, name, *args)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    mod = Programs(seed).module()
    normal = cpu_pipeline().run(mod).passes[0].after["main"]
    exe = build(mod)
    exe.export(tmp_path / "random.so")
    rng = np.random.default_rng(seed)
    print("seed", seed)
    with Library(tmp_path / "random.so") as library:
        for _ in range(3):
            agree(exe, library, "main", *random_arguments(normal, rng))


@I.ir_module
class Types:
    @R.function
    def main(
        b: R.Tensor(("n",), "bool"),
        i: R.Tensor(("n",), "int8"),
        u: R.Tensor(("n",), "uint16"),
        h: R.Tensor(("n",), "float16"),
        w: R.Tensor(("n",), "bfloat16"),
        d: R.Tensor(("n",), "float64"),
    ):
        f = R.add(R.astype(h, "float32"), R.astype(w, "float32"))
        p = R.where(b, R.astype(i, "int64"), R.astype(u, "int64"))
        r = (R.logical_not(b), R.negative(i), R.astype(f, "bfloat16"), R.exp(d), p, R.add(u, u))
        return r

    @R.function
    def shapes(x: R.Tensor(("n", "m"), "float32"), k: R.Prim("float32"), z: R.Shape(["p"])):
        n = T.int64()
        m = T.int64()
        p = T.int64()
        return (R.shape([m + p, n]), (R.zeros((p,), "float32"), k), R.prim_value(n * 2))


def test_all_kinds_of_values(tmp_path: Path) -> None:
    exe = build(Types)
    exe.export(tmp_path / "types.so")
    n = 5
    values = (
        np.arange(n) % 2 == 0, np.arange(n).astype("int8"), np.arange(n).astype("uint16"),
        np.linspace(-2, 2, n).astype("float16"), np.linspace(0, 9, n).astype(ml_dtypes.bfloat16),
        np.linspace(0, 1, n),
    )  # fmt: skip
    with Library(tmp_path / "types.so") as library:
        agree(exe, library, "main", *values)
        agree(exe, library, "shapes", F4, np.float32(2.5), (3,))
        shape, _, scalar, twice = library.call("shapes", 4, F4, np.float32(2.5), (3,))
        assert (shape.tolist(), scalar.shape, float(scalar), int(twice)) == ([7, 3], (), 2.5, 6)


# --- What only C can get wrong --------------------------------------------------------------------


@pytest.fixture(scope="module")
def calls(folder: Path) -> Library:
    (folder / "wrong").mkdir()
    build(Calls).export(folder / "wrong" / "calls.so")
    return Library(folder / "wrong" / "calls.so")


def refuses(library: Library, name: str, args: list[Any], message: str, n_results: int = 1) -> None:
    with pytest.raises(Failed) as caught:
        library.raw(name, args, n_results)
    assert (caught.value.status, caught.value.message) == ("argument", message)


def test_malformed_tensors(calls: Library) -> None:
    good, bad = tensor(F4), tensor(F4)
    where = "argument `y` of `main` "
    bad.dtype = 99
    refuses(
        calls, "main", [good, bad],
        where + "has dtype of no known number, expected R.Tensor((n, 4), 'float32')",
    )  # fmt: skip
    bad.dtype, bad.ndim = good.dtype, -1
    refuses(
        calls, "main", [good, bad],
        where + "has -1 dimensions, expected R.Tensor((n, 4), 'float32')",
    )  # fmt: skip
    bad.ndim, bad.shape[0] = 2, -3
    refuses(calls, "main", [good, bad], where + "has shape (-3, 4), which is no shape of an array")
    bad.shape[0] = 2**61
    refuses(
        calls, "main", [good, bad],
        where + f"has shape ({2**61}, 4), which is no shape of an array",
    )  # fmt: skip
    bad.shape[0], bad.data = 3, None
    refuses(calls, "main", [good, bad], where + "has no data")
    bad.data = good.data + 2
    refuses(
        calls, "main", [good, bad],
        where + f"starts in the middle of an element (address {good.data + 2:#x}, elements of 4 "
        "bytes)",
    )  # fmt: skip
    assert calls.call("main", 1, F4, F4)[0].tolist() == (F4 + F4).tolist()


def test_malformed_shapes_and_scalars(calls: Library) -> None:
    shape = "must be a shape of 2 integers: an int64 tensor of shape (2,)"
    for wrong in ((2, 3, 4), np.zeros(2), np.zeros((1, 2), "int64")):
        refuses(calls, "rows", [tensor(wrong)], f"argument `s` of `rows` {shape}")
    refuses(
        calls, "rows", [tensor((2, -1))], "argument `s` of `rows` must be a shape; -1 is no size"
    )
    for wrong in (np.int32(2), np.zeros(1, "int64")):
        refuses(
            calls, "count", [tensor(wrong)],
            "argument `k` of `count` must be a scalar: a tensor of dtype int64 with 0 dimensions",
        )  # fmt: skip


def test_numbers_of_arguments_and_results(calls: Library) -> None:
    refuses(calls, "main", [tensor(F4)], "`main` takes 2 arguments (x, y), got 1")
    refuses(calls, "pair", [], "`pair` takes 2 arguments (t[0], t[1]), got 0")
    refuses(calls, "main", [tensor(F4)] * 2, "`main` has 1 results, there is room for 2", 2)
    with pytest.raises(Failed, match="^threads must be at least 1, got 0$"):
        calls.threads(0)


def test_memory_that_is_updated_is_not_shared(folder: Path) -> None:
    (folder / "shared").mkdir()
    build(Memory).export(folder / "shared" / "memory.so")
    with Library(folder / "shared" / "memory.so") as library:
        cache = np.zeros(10, "float32")
        one, both = tensor(np.int64(0)), "arguments `cache` and `x` of `update` share memory, and "
        refuses(
            library, "update", [tensor(cache[:8]), tensor(cache[7:9]), one],
            both + "one of them is updated in place; pass a copy",
        )  # fmt: skip
        library.raw("update", [tensor(cache[:8]), tensor(cache[8:]), one], 1)
        constant = library.raw("constant", [], 1)[0]
        constant.shape[0] = 8
        refuses(
            library, "update", [constant, tensor(cache[8:]), one],
            "argument `cache` of `update` is updated in place but is read-only; pass a copy",
        )  # fmt: skip


def test_results_live_until_they_are_released(folder: Path) -> None:
    (folder / "results").mkdir()
    build(Memory).export(folder / "results" / "memory.so")
    library = Library(folder / "results" / "memory.so")
    x = np.linspace(0, 1, 1000, dtype="float32")
    y, z, w, again, same = library.raw("several", [tensor(x)], 5)
    want = [array_of(r) for r in (y, z, w)]
    assert same.data == x.ctypes.data and y.data == z.data == again.data
    for _ in range(20):
        library.call("several", 5, x * 2)
    for r in (z, again, same):
        library.release(r)
        library.release(r)  # its data is NULL now: nothing happens
    for a, b in ((y, want[0]), (w, want[2])):
        np.testing.assert_array_equal(array_of(a), b)
    alias = library.raw("identity", [y], 1)[0]  # a result may be an argument, and a result again
    library.release(y)
    np.testing.assert_array_equal(array_of(alias), want[0])
    library["close"](library.context)


def test_no_memory_is_lost(folder: Path) -> None:
    """500 calls of 200 KB of results each would show as 100 MB."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    (folder / "lost").mkdir()
    build(Memory).export(folder / "lost" / "memory.so")
    x = np.zeros(16384, "float32")
    for _ in range(2):
        before = resident()
        for _ in range(10):
            with Library(folder / "lost" / "memory.so") as library:
                library.raw("several", [tensor(x)], 5)  # close frees what is not released
                for _ in range(50):
                    library.call("several", 5, x)
    assert resident() - before < 16 << 20


def test_contexts_are_independent(folder: Path) -> None:
    (folder / "threads").mkdir()
    exe = build(Checked)
    exe.export(folder / "threads" / "checked.so")
    x = np.linspace(0, 1, 16, dtype="float32")
    want, wrong = exe["bounded"](x), []

    def work(good: bool) -> None:
        with Library(folder / "threads" / "checked.so") as library:
            for _ in range(200):
                try:
                    got = library.call("bounded", 1, x if good else np.ones(17, "float32"))
                    wrong.extend([] if good and np.array_equal(got[0], want) else [got])
                except Failed as error:  # the message is this thread's own
                    wrong.extend([error] if good or "(it is 17)" not in error.message else [])

    workers = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


def test_a_context_serves_one_call_at_a_time(folder: Path) -> None:
    (folder / "busy").mkdir()
    build(Checked).export(folder / "busy" / "checked.so")
    with Library(folder / "busy" / "checked.so") as library:
        refused = threading.Event()
        messages: set[str] = set()

        def work() -> None:
            while not refused.is_set():
                try:
                    library.call("room", 2, (500, 500))
                except Failed as error:
                    messages.add(error.message)
                    refused.set()

        workers = [threading.Thread(target=work) for _ in range(2)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(timeout=60)
        refused.set()
        assert messages == {
            "`room` was called while another call used its context; open a context per thread"
        }
        assert library.call("room", 2, (2, 3))[0].tolist() == [6, 6]


# --- What cannot be exported ----------------------------------------------------------------------


def exporting(exe: Executable, path: Path) -> str:
    """The message of a refusal; afterwards the folder is as it was."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else None
    with pytest.raises(ExportError) as error:
        exe.export(path)
    assert before is None or sorted(path.parent.iterdir()) == before
    return str(error.value)


@pytest.fixture(scope="module")
def plain() -> Executable:
    return build(Memory)


def test_names_of_files(plain: Executable, tmp_path: Path) -> None:
    message = exporting(plain, tmp_path / "model.dll")
    assert message == "model.dll is no name of a shared library; let it end in .so"
    plain.export(tmp_path / "3-d model.so")
    with Library(tmp_path / "3-d model.so", prefix="_3_d_model") as library:
        assert library.call("constant", 1)[0].tolist() == [1, 2, 3]


def test_places_that_cannot_be_written(plain: Executable, tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "model.so"
    assert exporting(plain, missing) == f"cannot write {missing}: No such file or directory"
    file = tmp_path / "file"
    file.write_text("")
    assert "Not a directory" in exporting(plain, file / "model.so")
    (tmp_path / "taken.so").mkdir()
    assert exporting(plain, tmp_path / "taken.so").endswith(": taken.so is a folder")
    if sys.platform == "linux":
        nobody = Path("/proc/model.so")  # where not even root may write
        assert exporting(plain, nobody).startswith(f"cannot write {nobody}: ")
    if os.geteuid() == 0:
        return  # root may write everywhere else
    tmp_path.chmod(0o500)
    assert "Permission denied" in exporting(plain, tmp_path / "model.so")


def test_full_disk_leaves_what_was_there(
    plain: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files stands for a disk that is full."""
    plain.export(tmp_path / "model.so")
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    text = f"""
        import resource
        import relaxlab as rl
        from relaxlab.runtime.export.export import ExportError
        from tests.runtime.test_executable import Memory
        exe = rl.compile(Memory, use_cache=False)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            exe.export({str(tmp_path / "model.so")!r})
        except ExportError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"cannot write {tmp_path / 'model.so'}: File too large\n"
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before

    cc = shlex.join(compiler())
    monkeypatch.setenv("CC", f"sh -c 'ulimit -f 8; exec {cc} \"$@\"' sh")
    with pytest.raises(ExportError, match="^the C compiler failed: "):
        plain.export(tmp_path / "model.so")
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_compilers(plain: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O3")
    message = exporting(plain, tmp_path / "model.so")
    assert message == "there is no C compiler 'no-such-compiler'; correct $CC"
    monkeypatch.setenv("CC", f"{shlex.quote(sys.executable)} -c 'raise SystemExit(\"no luck\")'")
    message = exporting(plain, tmp_path / "model.so")
    assert message.startswith("the C compiler failed: ") and message.endswith("\nno luck")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    message = exporting(plain, tmp_path / "model.so")
    assert "no C compiler found" in message and "apt-get install gcc" in message
    assert "pip install ziglang" in message


@I.ir_module
class NeedsPython:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_pure_packed("tests.half", x, sinfo_args=R.Tensor((n,), "float32"))
        return y


@I.ir_module
class NeedsOperator:
    @R.function
    def main(x: R.Tensor(("n",), "int64")):
        y = R.unique(x)
        return y


@I.ir_module
class NeedsLibrary:
    @T.prim_func
    def kernel(A: T.Buffer((4,), "float64"), B: T.Buffer((4,), "float64")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                B[vi] = T.call_extern("float64", "PyFloat_AsDouble", A[vi])

    @R.function
    def main(a: R.Tensor((4,), "float64")):
        cls = NeedsLibrary
        return R.call_tir(cls.kernel, (a,), out_sinfo=R.Tensor((4,), "float64"))


@I.ir_module
class ManyDimensions:
    @R.function
    def main(x: R.Tensor((1, 1, 1, 1, 1, 1, 1, 1, "n"), "float32")):
        return R.add(x, x)


@I.ir_module
class Reserved:
    @R.function
    def open(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)


@I.ir_module
class Reserved2:
    @R.function
    def tensor(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)


@I.ir_module
class Similar:
    @R.function
    def fè(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)

    @R.function
    def fé(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)


def test_programs_that_need_more_than_c_has(tmp_path: Path) -> None:
    register_func("tests.half", lambda x: x / 2)
    path = tmp_path / "model.so"
    message = exporting(build(NeedsPython), path)
    assert message.startswith("`main` calls `tests.half`, a Python function")
    message = exporting(build(NeedsOperator), path)
    assert message.startswith("`main` needs Python for R.unique, whose result's shape depends")
    message = exporting(build(NeedsLibrary), path)
    assert message.startswith("the program calls the C function `PyFloat_AsDouble`, which is in no")
    message = exporting(build(ManyDimensions), path)
    assert message == ("`x` of `main` has 9 dimensions, tensors in C have 8 at most; reshape it")
    message = exporting(build(Reserved), path)
    assert message == (
        "`open` would become model_open in C, a name that the library itself uses; rename the "
        "function or the library"
    )
    assert "check_tensor in C, a name that" in exporting(build(Reserved2), tmp_path / "check.so")
    message = exporting(build(Similar), path)
    assert message == "`fè` and `fé` would both become f_ in C; rename one of them"
