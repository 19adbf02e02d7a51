"""Compiled programs on disk: found again, never half written, never trusted when damaged."""

from __future__ import annotations

import multiprocessing
import os
import pickletools
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.artifact import Artifact, ArtifactError
from relaxlab.ir.target import Target
from relaxlab.runtime import cache
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.function import CheckFailed

PLAIN = """
@R.function
def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("n", 2), "float32")):
    z = R.multiply(R.add(x, y), R.const([1.0, 3.0], "float32"))
    return z

@R.function
def constants():
    a = R.const([[1, 2], [3, 4]], "int8")
    b = R.const(2.5, "bfloat16")
    c = R.const(True, "bool")
    return (a, b, c)
"""
MODULE = rl.parse(PLAIN)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The first call of a process looks for the machine code of calls, and stores it.
    run(rl.compile(MODULE, use_cache=False))
    place = tmp_path / "cache"
    monkeypatch.setenv("RELAXLAB_CACHE", str(place))
    yield place
    for path in (tmp_path, place):  # so that pytest can remove them
        if path.exists():
            path.chmod(0o755)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def run(exe: Executable) -> list[Any]:
    x = np.arange(6, dtype="float32").reshape(3, 2)
    return [exe["main"](x, x).tolist(), *(c.tolist() for c in exe["constants"]())]


EXPECTED = [[[0, 6], [4, 18], [8, 30]], [[1, 2], [3, 4]], 2.5, True]


def test_the_second_compilation_loads(folder: Path) -> None:
    first = rl.compile(MODULE)
    second = rl.compile(MODULE, threads=1)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert run(first) == run(second) == EXPECTED
    assert first.artifact.code == second.artifact.code
    for a, b in zip(first["constants"](), second["constants"](), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
    for exe in (first, second):
        with pytest.raises(CheckFailed, match="dimension 0 of parameter `y` of `main` is 2, expec"):
            exe["main"](np.ones((3, 2), "float32"), np.ones((2, 2), "float32"))


def test_artifacts_survive_the_file_format() -> None:
    artifact = rl.compile(MODULE, use_cache=False).artifact
    again = Artifact.from_bytes(artifact.to_bytes())
    assert again.to_bytes() == artifact.to_bytes()
    assert again.functions == artifact.functions
    assert again.checks == artifact.checks
    assert (again.packed, again.externs) == (artifact.packed, artifact.externs)


def test_nothing_else_is_written(folder: Path) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    assert entry.suffix == ".rlx"
    rl.compile(MODULE, use_cache=False)
    rl.compile(MODULE, pipeline=rl.Pipeline(_passes()))
    assert entries(folder) == [entry]


def _passes() -> Any:
    from relaxlab.passes.pipeline import cpu_pipeline

    return cpu_pipeline(Target.host()).passes


def test_entries_are_no_pickles(folder: Path) -> None:
    rl.compile(MODULE)
    data = entries(folder)[0].read_bytes()
    with pytest.raises(ValueError):  # noqa: PT011 - any refusal will do
        list(pickletools.genops(data))
    assert data.startswith(b"relaxlab-artifact")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("R.add", "R.subtract"),
        ("3.0]", "4.0]"),
        ("int8", "int16"),
        ("x: R.Tensor", "data: R.Tensor"),
        ('("n", 2)', '("k", 2)'),
        ("z = ", 'R.func_attr({"tir_var_upper_bound": {"n": 9}})\n    z = '),
    ],
)
def test_other_programs_have_other_keys(folder: Path, old: str, new: str) -> None:
    rl.compile(MODULE)
    text = PLAIN.replace(old, new)
    if new.startswith("data"):
        text = text.replace("R.add(x,", "R.add(data,")
    assert not rl.compile(rl.parse(text)).from_cache
    assert len(entries(folder)) == 2


def test_messages_name_the_program_that_was_compiled() -> None:
    rl.compile(MODULE)
    text = PLAIN.replace("y: R.Tensor", "other: R.Tensor").replace("(x, y)", "(x, other)")
    with pytest.raises(CheckFailed, match="parameter `other` of `main`"):
        rl.compile(rl.parse(text))["main"](np.ones((3, 2), "float32"), np.ones((2, 2), "float32"))


def test_keys_depend_on_machine_options_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Target.host()
    smaller = Target("cpu", host.triple, host.cpu, frozenset(sorted(host.features)[1:]))
    other_cpu = Target("cpu", host.triple, "generic", host.features)
    other_triple = Target("cpu", "aarch64-linux-gnu", host.cpu, host.features)
    keys = {cache.artifact_key("module", t, ()) for t in (host, smaller, other_cpu, other_triple)}
    keys.add(cache.artifact_key("module", host, ("option",)))
    keys.add(cache.artifact_key("module2", host, ()))
    monkeypatch.setattr(cache, "compiler_version", lambda: "another")
    keys.add(cache.artifact_key("module", host, ()))
    assert len(keys) == 7


def test_a_change_of_the_source_is_another_compiler(tmp_path: Path) -> None:
    program = "from relaxlab.runtime.cache import compiler_version; print(compiler_version())"
    root = Path(rl.__file__).parents[1]
    copy = tmp_path / "copy"
    versions: list[str] = []
    for text in (None, "# nothing\n", "# something\n"):
        if text is None:
            import shutil

            shutil.copytree(root / "relaxlab", copy / "relaxlab")
        else:
            (copy / "relaxlab" / "runtime" / "added.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=copy, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(copy)},
        )  # fmt: skip
        versions.append(done.stdout.strip())
    assert len(set(versions)) == 3
    assert versions[0] == cache.compiler_version()


# --- Damage ---------------------------------------------------------------------------------------


def test_any_flipped_bit_is_noticed() -> None:
    seed = 11
    print("seed", seed)
    rng = np.random.default_rng(seed)
    data = rl.compile(MODULE, use_cache=False).artifact.to_bytes()
    places = [*range(0, 700, 3), *rng.integers(0, len(data), 200), len(data) - 1]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 19, 20, 40, 84, 85, 86, 1000, -1])
def test_any_truncation_is_noticed(length: int) -> None:
    data = rl.compile(MODULE, use_cache=False).artifact.to_bytes()
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(data[:length])
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(data + b"x")


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text", "moved", "folder"])
def test_damaged_entries_are_rebuilt(folder: Path, damage: str) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    data = bytearray(entry.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
        entry.write_bytes(data)
    elif damage == "folder":
        entry.unlink()
        entry.mkdir()
    elif damage == "moved":  # whole, but that of another program
        other = rl.compile(rl.parse(PLAIN.replace("R.add", "R.subtract")))
        assert not other.from_cache
        (moved,) = (e for e in entries(folder) if e != entry)
        moved.replace(entry)
    else:
        entry.write_bytes({"cut": data[:-7], "empty": b"", "text": b"hello\n"}[damage])
    exe = rl.compile(MODULE)
    assert not exe.from_cache and run(exe) == EXPECTED
    if damage != "folder":
        assert rl.compile(MODULE).from_cache and entries(folder) == [entry]


# --- Folders --------------------------------------------------------------------------------------


def test_a_folder_that_is_a_file(folder: Path) -> None:
    folder.write_text("here first")
    assert run(rl.compile(MODULE)) == EXPECTED
    assert folder.read_text() == "here first"


def test_a_folder_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path / "file" / "deeper" / "still"))
    assert run(rl.compile(MODULE)) == EXPECTED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(folder: Path) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    entry.write_bytes(b"damaged")
    folder.chmod(0o555)
    assert run(rl.compile(MODULE)) == EXPECTED
    assert entry.read_bytes() == b"damaged"


def test_writing_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    assert run(rl.compile(MODULE)) == EXPECTED
    assert entries(folder) == []


def test_removing_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    entry.write_bytes(b"damaged")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert run(rl.compile(MODULE)) == EXPECTED


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RELAXLAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_dir() == tmp_path / "relaxlab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache.cache_dir() == Path("/home/somebody/.cache/relaxlab")


# --- Several processes ----------------------------------------------------------------------------


def _compile_in_child(queue: Any) -> None:
    queue.put(run(rl.compile(MODULE)))


def test_two_processes_at_once(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    children = [context.Process(target=_compile_in_child, args=(queue,)) for _ in range(2)]
    for c in children:
        c.start()
    results = [queue.get(timeout=120) for _ in children]
    for c in children:
        c.join(60)
    assert results == [EXPECTED] * 2
    # The program, and the machine code of calls from Python.
    assert [e.suffix for e in entries(folder)] == [".rlx"] * 2


def test_threads_at_once(folder: Path) -> None:
    """Some find a damaged entry, some none, some a good one: all get the program."""
    rl.compile(MODULE)
    (entry,) = entries(folder)
    whole = entry.read_bytes()

    def work(number: int) -> list[Any]:
        if number % 3 == 0:
            entry.write_bytes(whole[: len(whole) // 2])
        return run(rl.compile(MODULE))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(24))) == [EXPECTED] * 24
    assert run(rl.compile(MODULE)) == EXPECTED
    assert [e.suffix for e in entries(folder)] == [".rlx"]


INTERRUPTED = """
import sys
import relaxlab as rl
from relaxlab.runtime import cache, compile_native
mod = rl.parse(sys.stdin.read())
stage = sys.argv[1]

def pause():
    print("now", flush=True)
    import time
    time.sleep(30)

if stage == "compile":
    whole = compile_native.compile_program
    compile_native.compile_program = lambda *a, **k: (pause(), whole(*a, **k))[1]
if stage == "write":
    whole = cache.os.replace
    cache.os.replace = lambda *a: (pause(), whole(*a))[1]
rl.compile(mod)
"""


@pytest.mark.parametrize("stage", ["compile", "write"])
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_compilation(folder: Path, stage: str, kind: signal.Signals) -> None:
    program = textwrap.dedent(INTERRUPTED)
    child = subprocess.Popen(
        [sys.executable, "-c", program, stage], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        # a test run in the background may itself ignore the signal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    child.stdin.write(PLAIN)
    child.stdin.close()
    assert child.stdout.readline() == "now\n"
    time.sleep(0.05)
    child.send_signal(kind)
    error = child.stderr.read()
    assert child.wait(60) != 0
    child.stdout.close()
    child.stderr.close()
    left = entries(folder)
    if kind is signal.SIGINT:
        assert "KeyboardInterrupt" in error and left == []
    assert not any(e.suffix == ".rlx" for e in left)
    exe = rl.compile(MODULE)
    assert not exe.from_cache and run(exe) == EXPECTED
    assert rl.compile(MODULE).from_cache


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX owners and modes")
def test_the_cache_is_made_for_its_user_alone(folder: Path) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    assert (folder.stat().st_mode & 0o777, entry.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX owners and modes")
@pytest.mark.parametrize("mode", [0o777, 0o720, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users may write to .*chmod go-w"):
        assert not rl.compile(MODULE).from_cache
    assert not entries(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX owners and modes")
def test_a_file_that_others_may_write_to_is_replaced(folder: Path) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    entry.chmod(0o602)
    with pytest.warns(RuntimeWarning, match="other users may write to"):
        assert not rl.compile(MODULE).from_cache
    assert rl.compile(MODULE).from_cache


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root gives files away")
def test_foreign_cache_entries_are_not_run(folder: Path) -> None:
    rl.compile(MODULE)
    (entry,) = entries(folder)
    os.chown(entry, 65534, 65534)
    with pytest.warns(RuntimeWarning, match="belongs to user 65534, not to you"):
        assert not rl.compile(MODULE).from_cache
    assert rl.compile(MODULE).from_cache
    os.chown(folder, 65534, 65534)
    with pytest.warns(RuntimeWarning, match="belongs to user 65534.*RELAXLAB_CACHE"):
        assert not rl.compile(MODULE).from_cache
