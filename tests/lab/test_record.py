"""Pages of all that a process or a cell compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.lab.extension import InvalidCell
from relaxlab.lab.record import Recorder
from relaxlab.lab.view import Page
from relaxlab.runtime.observe import observing

PROGRAM = '''\
import numpy as np
import relaxlab as rl
from relaxlab.script import ir as I, relax as R

@I.ir_module
class First:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        return y

for _ in range(2):
    exe = rl.compile(First)
second = rl.compile(rl.parse("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = R.tanh(x)
    return y
"""))
print(exe(np.zeros(4, "float32")))
'''


def run(file: Path, trace: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RELAXLAB_TRACE": trace, "RELAXLAB_CACHE": str(file.parent / "cache")}
    return subprocess.run(
        [sys.executable, str(file)],
        capture_output=True, text=True, check=True, env=env, cwd=folder,
    )  # fmt: skip


def test_a_process_writes_a_page(tmp_path: Path) -> None:
    """Also where all came from the cache."""
    file, page = tmp_path / "program.py", tmp_path / "page.html"
    file.write_text(PROGRAM)
    for _ in range(2):
        done = run(file, str(page))
        assert done.stdout == "[1. 1. 1. 1.]\n"
        assert done.stderr == f"RELAXLAB_TRACE: 2 programs in {page}\n"
        text = page.read_text("utf-8")
        page.unlink()
        assert "program.py, line 13" in text and "program.py, line 14" in text
        assert "legalize_ops" in text


PROCESSES = """\
import multiprocessing, os, subprocess, sys
import relaxlab as rl

TEXT = "@R.function\\ndef main(x: R.Tensor((4,), 'float32')):\\n    y = R.{}(x)\\n    return y"

def compiled(name):
    rl.compile(rl.parse(TEXT.format(name)))

if __name__ == "__main__":
    compiled("exp")
    os.chdir("/")
    for how in "fork", "spawn":
        process = multiprocessing.get_context(how).Process(target=compiled, args=("tanh",))
        process.start()
        process.join()
    subprocess.run([sys.executable, "-c", "import relaxlab"])
    if os.fork():
        os.wait()
    else:
        compiled("sqrt")
"""


def test_each_process_writes_its_own_page(tmp_path: Path) -> None:
    """One that is forked has only what it compiled itself; one that compiles nothing, no page."""
    file = tmp_path / "program.py"
    file.write_text(PROCESSES)
    done = run(file, "page.html", tmp_path)
    pages = {p: p.read_text("utf-8") for p in tmp_path.glob("page*.html")}
    assert len(pages) == 4, done.stderr
    assert len(done.stderr.splitlines()) == 4, done.stderr
    for p, text in pages.items():
        assert f"RELAXLAB_TRACE: 1 program in {p}\n" in done.stderr
        found = [name for name in ("exp", "tanh", "sqrt") if f"T.{name}(" in text]
        assert (found == ["exp"]) == (p.name == "page.html") and len(found) == 1, (p, found)


def test_processes_without_a_page(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import relaxlab")
    assert run(file, str(tmp_path / "page.html")).stderr == "RELAXLAB_TRACE: nothing was compiled\n"
    file.write_text(PROGRAM)
    assert "there is no folder" in run(file, str(tmp_path / "no" / "page.html")).stderr


def test_a_recorder_hears_of_compilations_in_its_body() -> None:
    import relaxlab as rl

    mod = rl.parse("@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return x")
    recorder = Recorder()
    with observing(recorder):
        rl.compile(mod)
    rl.compile(mod)
    ((place, *_),) = recorder.programs
    assert place.startswith("test_record.py, line ")
    page = recorder.page()
    assert page is not None and page.state["tabs"][0]["title"] == place


def test_the_magic_shows_what_a_cell_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance()
    try:
        shell.extension_manager.load_extension("relaxlab")
        file = tmp_path / "page.html"
        page = shell.run_cell_magic("relaxlab", str(file), PROGRAM)
        assert isinstance(page, Page) and len(page.state["tabs"]) == 2
        assert "legalize_ops" in file.read_text("utf-8")
        assert shell.run_cell_magic("relaxlab", "", "1 + 1") is None
        assert "the cell compiled nothing" in capsys.readouterr().out
        nowhere = str(tmp_path / "no" / "page.html")
        assert isinstance(shell.run_cell_magic("relaxlab", nowhere, PROGRAM), Page)
        assert "there is no folder" in capsys.readouterr().out
        shell.extension_manager.unload_extension("relaxlab")
        assert "relaxlab" not in shell.magics_manager.magics["cell"]
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("cell", "error", "text"),
    [
        ("1 / 0", ZeroDivisionError, "1 / 0"),
        (PROGRAM + "\nunknown", NameError, "unknown"),
        ("for", InvalidCell, "SyntaxError"),
        ("import relaxlab\nrelaxlab.parse('x')", DiagnosticError, "x"),
    ],
)
def test_errors_of_a_cell_stop_the_notebook(
    cell: str, error: type[Exception], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is raised and shown once, without the frames of the magic."""
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("colors", "nocolor")
    try:
        shell.extension_manager.load_extension("relaxlab")
        result = shell.run_cell(f"%%relaxlab\n{cell}")
        assert isinstance(result.error_in_exec, error)
        out = capsys.readouterr().out
        assert out.count("Traceback (most recent call last)") <= 1, out
        assert text in out and "extension.py" not in out and "run_recorded" not in out, out
        assert ("legalize" in out) == cell.startswith(PROGRAM), "what was compiled before is shown"
        assert "compiled nothing" not in out
        assert shell.run_cell("1 / 0").error_in_exec and "1 / 0" in capsys.readouterr().out
    finally:
        InteractiveShell.clear_instance()
