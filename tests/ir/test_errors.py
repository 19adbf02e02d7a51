"""All errors that users see are shown alike: their message, the user's own lines, no frames."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.errors import UserError
from relaxlab.script import tir as T

MOD = rl.parse("@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return R.exp(x)\n")
# Exceptions by which the compiler talks to itself: none of them leaves it.
INTERNAL = {
    "CannotEvaluate", "NotAnIterMap", "NotInvertible", "Failure", "Unbound", "Stopped", "Refused",
    "CannotBatch", "NotAligned", "NoOrder", "MoreRoom", "Hint", "NotPerSequence", "Deadlock",
}  # fmt: skip
FRAMEWORKS = {"torch", "jax", "onnx"}
# Caught by the command line, which prints it without a traceback.
OWN_WAY = {"UsageError"}


def classes() -> Iterator[type]:
    """All classes of the package."""
    for found in pkgutil.walk_packages(rl.__path__, "relaxlab."):
        if not found.name.endswith("__main__"):
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as missing:  # loaded with programs of it
                assert missing.name in FRAMEWORKS
                continue
            members = filter(inspect.isclass, vars(module).values())
            yield from (c for c in members if c.__module__ == found.name)


def test_every_public_exception_is_a_user_error() -> None:
    exceptions = {c for c in classes() if issubclass(c, BaseException)}
    public = {c for c in exceptions if not c.__name__.startswith("_")}
    names = {c.__name__ for c in public}
    assert names >= INTERNAL | OWN_WAY
    other = {c.__name__ for c in public if not issubclass(c, UserError)}
    assert other == INTERNAL | OWN_WAY


@T.prim_func
def doubled(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] * 2.0


def refused() -> None:
    sch = rl.Schedule(doubled)
    (i,) = sch.get_loops(sch.get_block("B"))
    sch.fuse(i, i)


def wrong_argument() -> None:
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    y = R.exp(x)\n    return y\n'
    )
    rl.compile(mod)["main"](np.zeros((3, 3), "float32"))


def unknown_name() -> None:
    rl.parse("@R.function\ndef main(x: R.Tensor((4,))):\n    return y\n")


@pytest.mark.parametrize("wrong", [refused, wrong_argument, unknown_name])
def test_a_notebook_shows_the_message_and_the_user_s_line(wrong: object) -> None:
    with pytest.raises(UserError) as caught:
        wrong()  # type: ignore[operator]
    lines = caught.value._render_traceback_()
    assert len(lines) <= 14
    assert not any("relaxlab/" in line for line in lines)
    assert str(caught.value).strip().splitlines()[-1] in lines[-1]
    if wrong is refused:
        assert any("sch.fuse(i, i)" in line for line in lines)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: rl.trace(MOD, target="cpuu"), "ValueError: unknown target 'cpuu'; known: "),
        (lambda: rl.find_pass("fuse_op"), "KeyError: unknown pass 'fuse_op'; known: "),
        (lambda: rl.compile(MOD, threads="two"), "TypeError: threads must be a whole number, got"),
        (lambda: rl.nn.Linear(3), "missing 1 required positional argument: 'out_features'"),
    ],
)
def test_other_errors_of_the_package_are_shown_so_too(wrong: Any, message: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)) as caught:
        wrong()
    *place, line = caught.value._render_traceback_()
    assert message in line and not any("relaxlab/" in text for text in place)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again._render_traceback_()[-1] == line


PROGRAM = """
import relaxlab as rl
from relaxlab.script import relax as R
try:
    rl.compile(rl.parse('@R.function\\ndef f(x: R.Tensor((4,))):\\n    return y\\n'))
except rl.DiagnosticError:
    import traceback
    print(traceback.format_exc())
"""


@pytest.mark.parametrize("developer", [False, True])
def test_a_terminal_shows_few_frames(developer: bool, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, "utf-8")
    options = ["-X", "dev", "-W", "ignore"] if developer else []
    run = subprocess.run(
        [sys.executable, *options, str(file)], capture_output=True, text=True, check=True
    )
    frames = run.stdout.count("  File ")
    assert (frames > 2) if developer else (1 <= frames <= 2), run.stdout
    assert "undefined name 'y'" in run.stdout


def exponential() -> rl.Module:
    return rl.parse(
        '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    y = R.exp(x)\n    return y\n'
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: rl.compile(exponential())(),
        lambda: rl.compile(exponential())["main"](np.zeros((3, 3), "float32")),
        lambda: rl.compile(exponential()).export("exp.txt"),
        lambda: rl.check(exponential(), "nothing"),
        lambda: rl.simt(exponential(), "main"),
        lambda: rl.time(rl.compile(exponential()), 1),
    ],
)
def test_a_terminal_shows_no_frame_of_the_compiler(wrong: Callable[[], object]) -> None:
    with pytest.raises(UserError) as caught:
        wrong()
    package = str(Path(rl.__file__).parent)
    frames = traceback.extract_tb(caught.value.__traceback__)
    inside = [f.filename for f in frames if f.filename.startswith(package)]
    assert set(inside) <= {str(Path(package) / "ir/errors.py")}, inside
