"""LLVM's own passes, one after the other: the text of a kernel after each that changed it.

LLVM prints it to the standard error of the process (`--print-changed`), and its options are those
of the whole process: so a process of its own runs the pipeline, which is that of `jit.optimise`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.context import symbol_of
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.codegen.llvm.support import support_functions
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target

_HEAD = re.compile(r"^\*\*\* IR Dump After (\S+) on (.*?) \*\*\*.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PassStep:
    """A pass of LLVM that changed a function, and the lines of the function after it; the first
    step of all is the function as emitted, after no pass."""

    name: str
    lines: tuple[str, ...]


def llvm_pass_steps(func: PrimFunc, name: str, target: Target) -> tuple[PassStep, ...]:
    """Return a scheduled loop function as emitted and after each pass that changed it.

    Raises CodegenError for a function that the target cannot express, and if the other process
    fails.
    """
    declarations: dict[str, str] = {}
    texts = support_functions(declarations, target)
    texts.append(emit_kernel(func, name, declarations, target).text)
    text = jit.module_text(texts, declarations, target)
    given = json.dumps({"text": text, "symbol": symbol_of(name), "target": target.to_json()})
    command = [sys.executable, "-m", __name__]
    run = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise CodegenError(f"LLVM's passes could not be run apart: {run.stderr[-2000:]}")
    emitted = str(llvm.parse_assembly(text))  # as LLVM writes it
    steps = [PassStep("as emitted", function_lines(emitted, symbol_of(name)))]
    pieces = _HEAD.split(run.stderr)[1:]
    for pass_name, dump in zip(pieces[::3], pieces[2::3], strict=True):
        lines = function_lines(dump, symbol_of(name))
        if lines and lines != steps[-1].lines:
            steps.append(PassStep(pass_name.removesuffix("Pass"), lines))
    return tuple(steps)


def function_lines(text: str, symbol: str) -> tuple[str, ...]:
    """Return the lines of a function of an LLVM module, without metadata; none where it is not
    defined."""
    start = re.search(rf'^define .*@"?{re.escape(symbol)}"?\(', text, re.MULTILINE)
    if start is None:
        return ()
    body = text[start.start() : text.index("\n}", start.start()) + 2]
    left_out = r"(, ![\w.]+ !\d+)+|#\d+(?= \{|$)|;.*$"  # metadata, attributes, predecessors
    return tuple(re.sub(left_out, "", line).rstrip() for line in body.split("\n"))


def _print_changes(given: dict[str, Any]) -> None:
    """Optimise a module in this process, which prints the module after each pass of LLVM that
    changed the function `symbol`."""
    printed = ("--print-changed=quiet", "--print-module-scope")
    for option in (*printed, f"--filter-print-funcs={given['symbol']}"):
        llvm.set_option("", option)
    jit.optimise(given["text"], Target.from_json(given["target"]))


if __name__ == "__main__":
    _print_changes(json.load(sys.stdin))
