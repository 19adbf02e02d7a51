"""Libraries that come back into Python, and the parameters stored beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.artifact import ArtifactError
from relaxlab.ir.target import Target
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.export.export import ExportError
from relaxlab.runtime.export.params_file import ParamsError, read_params
from relaxlab.runtime.export.source import _CPUID
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from tests.runtime.export.c_library import Failed, Library

pytestmark = pytest.mark.usefixtures("needs_compiler")


@I.ir_module
class Weights:
    @R.function
    def main(
        x: R.Tensor(("n", 3), "float32"),
        w: R.Tensor((3, 2), "float32"),
        rest: R.Tuple(R.Tensor((2,), "float32"), R.Shape(["k"])),
        m: R.Prim(value="m"),
        scale: R.Prim("float32"),
    ):
        k = T.int64()
        m = T.int64()
        y = R.add(R.matmul(x, w), rest[0])
        return (R.add(y, R.const([1.0, 2.0], "float32")), R.zeros((k, m), "float32"), scale)

    @R.function
    def other(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return R.matmul(x, w)


@I.ir_module
class Cached:
    @T.prim_func
    def bump(C: T.Buffer((4,), "float32"), W: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("w"):
                vi = T.axis.spatial(4, i)
                C[vi] = C[vi] + W[vi]

    @R.function
    def main(
        before: R.Tensor((4,), "float32"),
        cache: R.Tensor((4,), "float32"),
        w: R.Tensor((4,), "float32"),
    ):
        cls = Cached
        R.func_attr({"relax.force_pure": True})
        new = R.call_tir_inplace(
            cls.bump, (cache, w), inplace_indices=[0], out_sinfo=R.Tensor((4,), "float32")
        )
        return R.add(new, before)


W = np.arange(6, dtype="float32").reshape(3, 2)
B = np.array([10, 20], "float32")
X = np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3)


@pytest.fixture(scope="module")
def exe() -> Executable:
    exe = rl.compile(Weights, use_cache=False, threads=2)
    exe["main"].bind(W, (B, (5,)), 3, 2.5)
    exe["other"].bind(W)
    return exe


@pytest.fixture(scope="module")
def library(exe: Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exe.export(tmp_path_factory.mktemp("weights") / "weights.so", bound=True)[-1]


def same(got: Any, want: Any) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
    else:
        np.testing.assert_array_equal(got, want)


def test_bound_values_stay_bound(exe: Executable, library: Path) -> None:
    again = rl.load(library)
    assert (list(again), again.threads >= 1) == (list(exe), True)
    same(again["main"](X), exe["main"](X))
    same(again["other"](X), exe["other"](X))
    arrays = read_params(library.with_suffix(".params"))
    assert [name for name, _ in arrays] == ["constant_0", "main.w", "main.rest[0]"]
    same([a for _, a in arrays[1:]], [W, B])
    with Library(library) as c:
        y, zeros, scale = c.call("main", 3, X)
        same((y, zeros, scale), exe["main"](X))
        same(c.call("other", 1, X)[0], exe["other"](X))


def test_a_loaded_executable_is_as_good(library: Path) -> None:
    again = rl.load(library, threads=1)
    assert again.threads == 1
    with pytest.raises(ValueError, match="has shape \\(1, 2\\), expected"):
        again["main"](np.zeros((1, 2), "float32"))
    again["other"].bind(2 * W)
    same(again["other"](X), X @ (2 * W))
    with pytest.raises(ExportError, match="was loaded from a library; copy the library's files"):
        again.export(library.with_name("again.so"))
    assert not library.with_name("again.so").exists()


def test_without_binding_nothing_is_stored(exe: Executable, tmp_path: Path) -> None:
    params, _, path = exe.export(tmp_path / "plain.so")
    assert [name for name, _ in read_params(params)] == ["constant_0"]
    want = exe["main"](X)
    same(rl.load(path)["main"](X, W, (B, (5,)), 3, 2.5), want)
    with Library(path) as c:
        got = c.call("main", 3, X, W, (B, (5,)), np.int64(3), np.float32(2.5))
        same((got[0], got[1], float(got[2])), want)


def test_arrays_that_are_updated_stay_arguments(tmp_path: Path) -> None:
    exe = rl.compile(Cached, use_cache=False)
    cache, w = np.zeros(4, "float32"), np.ones(4, "float32")
    exe["main"].bind(np.full(4, 5, "float32"), cache, w)
    params, header, path = exe.export(tmp_path / "cached.so", bound=True)
    assert [name for name, _ in read_params(params)] == ["main.w"]
    assert "args[1] cache R.Tensor((4,), 'float32'), updated in place" in header.read_text()
    state = np.zeros(4, "float32")
    same(rl.load(path)["main"](w, state), np.full(4, 2))
    with Library(path) as c:
        same(c.call("main", 1, w, state)[0], np.full(4, 3))
    same((state, cache), (np.full(4, 2), np.zeros(4)))


def test_programs_without_arrays_need_no_file(tmp_path: Path) -> None:
    exe = rl.compile(Cached, use_cache=False)
    assert [p.name for p in exe.export(tmp_path / "cached.so")] == ["cached.h", "cached.so"]
    w = np.ones(4, "float32")
    same(rl.load(tmp_path / "cached.so")["main"](w, w.copy(), w), np.full(4, 3))
    with Library(tmp_path / "cached.so") as c:
        same(c.call("main", 1, w, w.copy(), w)[0], np.full(4, 3))


def test_programs_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path / "cache"))
    rl.compile(Cached)
    exe = rl.compile(Cached)
    assert exe.from_cache
    exe.export(tmp_path / "cached.so")
    w = np.ones(4, "float32")
    same(rl.load(tmp_path / "cached.so")["main"](w, w.copy(), w), np.full(4, 3))


def test_an_export_replaces_what_was_loaded(tmp_path: Path) -> None:
    """The system's loader keeps what it once read under a name."""
    path = tmp_path / "model.so"
    exe = rl.compile(Weights, use_cache=False)
    loaded: list[Executable] = []
    for factor in (1, 2):
        exe["other"].bind(factor * W)
        exe.export(path, bound=True)
        loaded.append(rl.load(path))
    for factor, old in enumerate(loaded, start=1):
        same(old["other"](X), X @ (factor * W))


def test_another_process(library: Path) -> None:
    """The compiler's packages are not needed to run a library."""
    text = f"""
        import sys
        import numpy as np, relaxlab as rl
        exe = rl.load({str(library)!r})
        print(exe["other"](np.ones((1, 3), "float32")).tolist())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[[6.0, 9.0]]\n", "")


# --- Files that are not what they should be -------------------------------------------------------


def copied(library: Path, folder: Path) -> tuple[Path, Path]:
    for file in (library, library.with_suffix(".params")):
        shutil.copy(file, folder)
    return folder / library.name, folder / library.with_suffix(".params").name


def fails(library: Path, params: Path, message: str) -> None:
    """Both the C library and `load` refuse the parameter file."""
    with pytest.raises(ParamsError) as caught:
        rl.load(library)
    assert str(caught.value) == message
    with pytest.raises(Failed) as failed, Library(library, params) as c:
        c.check(c["verify"](c.context))
    assert failed.value.status == "file"
    assert failed.value.message in (message, message.replace(str(params), "the parameter file"))


def test_damaged_parameters(library: Path, tmp_path: Path) -> None:
    path, params = copied(library, tmp_path)
    good = params.read_bytes()
    at = good.index(W.tobytes())
    params.write_bytes(good[: at + 5] + b"\xff" + good[at + 6 :])
    fails(path, params, f"{params} is damaged: the checksum of `main.w` does not match")
    params.write_bytes(good[:70] + b"\xff" + good[71:])
    fails(path, params, f"{params} is damaged: the checksum of its entries does not match")
    params.write_bytes(good[:-64])
    fails(
        path, params,
        f"{params} has {len(good) - 64} bytes instead of {len(good)}: it was cut off",
    )  # fmt: skip
    params.write_bytes(b"GGUF" + good[4:])
    fails(path, params, f"{params} is not a parameter file of version 1")
    params.write_bytes(good[:8] + b"\2" + good[9:])
    fails(path, params, f"{params} is not a parameter file of version 1")
    params.write_bytes(good[:50])
    fails(path, params, f"{params} is too short to be a parameter file")
    params.write_bytes(b"")
    fails(path, params, f"{params} is too short to be a parameter file")
    params.write_bytes(good)
    same(rl.load(path)["other"](X), X @ W)


def test_parameters_of_another_export(exe: Executable, library: Path, tmp_path: Path) -> None:
    path, params = copied(library, tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    exe["other"].bind(W + 1)
    new, *_ = exe.export(other / "weights.so", bound=True)
    exe["other"].bind(W)
    shutil.copy(new, params)
    fails(
        path, params,
        f"{params} does not belong to this library; copy the one exported with it",
    )  # fmt: skip


def test_missing_parameters(library: Path, tmp_path: Path) -> None:
    path, params = copied(library, tmp_path)
    params.unlink()
    with pytest.raises(FileNotFoundError, match="weights.params"):
        rl.load(path)
    with pytest.raises(Failed) as error:
        Library(path)
    assert error.value.message == f"cannot read {params}: No such file or directory"


def test_files_that_are_no_library(library: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no library .*nothing.so"):
        rl.load(tmp_path / "nothing.so")
    (tmp_path / "text.so").write_text("text")
    with pytest.raises(ArtifactError, match="text.so is no shared library"):
        rl.load(tmp_path / "text.so")
    foreign = next(p for p in map(Path, _mapped_libraries()) if p.name.startswith("libc.so"))
    with pytest.raises(ArtifactError, match="was not exported by relaxlab"):
        rl.load(foreign)
    path, _ = copied(library, tmp_path)
    path.write_bytes(path.read_bytes().replace(b'{"format":1', b'{"format":9'))
    with pytest.raises(ArtifactError, match="by another version of relaxlab; export it again"):
        rl.load(path)


def _mapped_libraries() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if ".so" in line}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="features are those of x86-64")
def test_processors_without_what_the_code_needs(tmp_path: Path) -> None:
    host = Target.host()
    missing = next(name for name in _CPUID if name not in host.features)
    target = replace(host, features=host.features | {missing})
    exe = rl.compile(Cached, target, use_cache=False)
    exe.export(tmp_path / "cached.so")
    with pytest.raises(ArtifactError, match=f"is for processors like .*; this one lacks {missing}"):
        rl.load(tmp_path / "cached.so")
    with pytest.raises(Failed) as error:
        Library(tmp_path / "cached.so")
    assert error.value.status == "machine"
    assert error.value.message == (
        f"this library is for processors like {host.cpu}; this one lacks {missing}"
    )


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="features are those of x86-64")
def test_code_for_an_older_processor(tmp_path: Path) -> None:
    features = frozenset("ssse3 sse4.1 sse4.2 popcnt avx avx2 fma f16c bmi bmi2".split())
    if not features <= Target.host().features:
        pytest.skip("this processor is older")
    target = Target("cpu", Target.host().triple, "haswell", features)
    path = rl.compile(Cached, target, use_cache=False).export(tmp_path / "cached.so")[-1]
    assert "for processors\n * like haswell." in path.with_suffix(".h").read_text()
    w = np.ones(4, "float32")
    exe = rl.load(path)
    assert (exe.target.cpu, exe.target.features) == ("haswell", features)
    same(exe["main"](w, w.copy(), w), np.full(4, 3))
