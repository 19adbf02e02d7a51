"""The decorators: source text from files, the interactive prompt and cells; Python's names."""

from __future__ import annotations

import linecache
import math
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import relaxlab
from relaxlab.ir import graph, loops
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.module import Module
from relaxlab.script import ir as I
from relaxlab.script import parse
from relaxlab.script import relax as R
from relaxlab.script import tir as T

ROOT = Path(__file__).parents[2]
WIDTH = 8
WEIGHT = np.arange(8, dtype="float32")
DTYPE = "float32"
PI = math.pi


@T.prim_func
def scale(A: T.Buffer((4, WIDTH), DTYPE), B: T.Buffer((4, WIDTH), DTYPE)):
    for i, j in T.grid(4, WIDTH):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * PI


def test_functions_are_ir() -> None:
    assert isinstance(scale, loops.PrimFunc)
    assert [b.name for b in scale.buffers] == ["A", "B"]
    assert scale.body.span.source.name == __file__
    span = scale.buffers[0].span
    assert span.source.line(span.line).startswith("def scale(A: T.Buffer(")


def make(k: int, scope: str) -> Module:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def kernel(a: T.handle, B: T.Buffer((k + 1, WIDTH), "float32")):
            m = T.int64()
            A = T.match_buffer(a, (m, WIDTH), "float32")
            buf = T.alloc_buffer((k + 1,), "float32", scope=scope)
            for i in range(k + 1):
                buf[i] = A[0, i]
                B[i, 0] = buf[i]

        @R.function
        def main(x: R.Tensor(("n", 8), "float32")):
            return R.multiply(R.add(x, WEIGHT), R.const(k, "float32"))

    return Module


def test_closures_are_constants() -> None:
    first, second = make(0, "local"), make(1, "global")
    buffers = [m["kernel"].body.block.alloc_buffers[0] for m in (first, second)]
    assert [b.scope for b in buffers] == ["local", "global"]
    assert [b.shape[0].value for b in buffers] == [1, 2]
    call = second["main"].body.body
    assert call.args[1].data == 1
    np.testing.assert_array_equal(call.args[0].args[1].data, WEIGHT)
    assert call.args[0].args[1].data is not WEIGHT  # a copy: later writes change nothing


class Config:
    width = 3
    inner = types.SimpleNamespace(scale=2.0)


def test_attributes_of_python_objects_are_constants() -> None:
    @R.function
    def main(x: R.Tensor((4, Config.width), np.float32)):
        return R.multiply(x, R.const(math.pi * Config.inner.scale, np.float32))

    assert main.params[0].ty.shape[1].value == 3 and main.params[0].ty.dtype == "float32"
    assert main.body.body.args[1].data == np.float32(2 * math.pi)


def test_functions_of_numpy_are_refused_with_the_script_s() -> None:
    with pytest.raises(DiagnosticError) as caught:

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = np.maximum(x, 0)
            z = R.add(x, np.float32(2))
            return R.add(y, np.float33)

    advice = [d.suggestion for d in caught.value.diagnostics]
    assert advice[0] == "write `R.maximum(x, 0)`, or compute it before the program"
    assert advice[1] == 'write `R.const(2, "float32")`'
    assert advice[2].startswith("did you mean 'float")

    with pytest.raises(DiagnosticError) as caught:

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = np.exp(A[0])
            A[1] = np.maximum(A[0], 0)
            A[2] = np.multiply(A[0], A[1])

    assert [d.suggestion.split("`")[1] for d in caught.value.diagnostics] == [
        "T.exp(A[0])",
        "T.max(A[0], 0)",
        "A[0] * A[1]",
    ]


def test_a_function_alone_is_checked_as_those_of_a_module() -> None:
    with pytest.raises(DiagnosticError, match="reaches 4, outside 0 to 3"):

        @T.prim_func
        def beyond(A: T.Buffer((4,), "float32")):
            for i in range(5):
                A[i] = T.float32(0)

    with pytest.raises(DiagnosticError, match="do not broadcast"):

        @R.function
        def f(x: R.Tensor((4,), "float32"), y: R.Tensor((3,), "float32")):
            return R.add(x, y)

    @T.prim_func(check_well_formed=False)
    def unchecked(A: T.Buffer((4,), "float32")):
        for i in range(5):
            A[i] = T.float32(0)

    @T.prim_func
    def add_to(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 4):
            with T.sblock("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]


def test_classes_and_functions_without_a_decorator_are_named() -> None:
    class Plain:
        pass

    def alone() -> None: ...

    with pytest.raises(TypeError, match="write @I.ir_module above `class Plain`"):
        relaxlab.compile(Plain)
    with pytest.raises(TypeError, match="write @R.function or @T.prim_func above `def alone`"):
        relaxlab.compile(alone)


def test_programs_defined_before() -> None:
    @I.ir_module
    class Library:
        @R.function
        def twice(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            return R.add(x, x)

    @I.ir_module
    class Program:
        renamed = scale

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            y = R.call_tir(Program.renamed, (x,), out_ty=R.Tensor((4, 8), "float32"))
            z = R.call_tir(scale, (y,), out_ty=R.Tensor((4, 8), "float32"))
            return Library.twice(z)

    assert list(Program) == ["renamed", "main", "twice"]
    assert Program["renamed"] is scale and Program["twice"] is Library["twice"]


def test_a_function_alone_cannot_call_others() -> None:
    with pytest.raises(DiagnosticError, match="define both in a class with @I.ir_module"):

        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            return R.call_tir(scale, (x,), out_ty=R.Tensor((4, 8), "float32"))


def test_options() -> None:
    @R.function(private=True, pure=False)
    def main(x: R.Tensor((4,), "float32")):
        return R.call_packed("log", x, sinfo_args=R.Tensor((4,), "float32"))

    assert isinstance(main, graph.Function) and main.private and not main.is_pure

    @I.ir_module(check_well_formed=False)
    class Wrong:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((5,), "float32"):
            return x

    assert isinstance(Wrong, Module)
    with pytest.raises(DiagnosticError, match="E0207"):

        @I.ir_module
        class Checked:
            @R.function
            def main(x: R.Tensor((4,), "float32")) -> R.Tensor((5,), "float32"):
                return x


def test_aliases_of_the_namespaces() -> None:
    from relaxlab.script.ir import ir_module
    from relaxlab.script.tir import prim_func

    tensor_ir = T

    @ir_module
    class Module:
        @prim_func
        def f(A: tensor_ir.Buffer((4,), "float32")):
            for i in tensor_ir.parallel(4):
                A[i] = tensor_ir.float32(0)

    assert Module["f"].body.kind == "parallel"


def run_cell(name: str, text: str, namespace: dict[str, Any]) -> None:
    """Run text that only linecache knows, as an interactive shell does."""
    lines = text.splitlines(keepends=True)
    linecache.cache[name] = (len(text), None, lines, name)
    exec(compile(text, name, "exec"), namespace)


def test_cells() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    header = "from relaxlab.script import ir as I, relax as R, tir as T\nsize = 4\n"
    cell = (
        "@I.ir_module\nclass M:\n    @R.function\n"
        '    def main(x: R.Tensor((size,), "float32")):\n        return R.add(x, x)\n'
    )
    run_cell("<ipython-input-1-abc>", header, namespace)
    run_cell("<ipython-input-2-abc>", cell, namespace)
    first = namespace["M"]
    run_cell("<ipython-input-3-abc>", "size = 5\n", namespace)
    run_cell("<ipython-input-4-abc>", cell.replace("add", "multiply"), namespace)
    second = namespace["M"]
    assert first["main"].body.body.op.name == "add"
    assert second["main"].body.body.op.name == "multiply"
    assert [m["main"].params[0].ty.shape[0].value for m in (first, second)] == [4, 5]
    with pytest.raises(DiagnosticError) as caught:
        run_cell("<ipython-input-5-abc>", cell.replace("R.add", "R.ad"), namespace)
    assert "--> cell:5:16" in str(caught.value)


def test_the_interactive_prompt() -> None:
    """A real prompt on a pseudo-terminal: lines are typed, and the source is found again."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    typed = [
        "from relaxlab.script import ir as I, relax as R, tir as T",
        "size = 6",
        "@I.ir_module",
        "class First:",
        "    @R.function",
        '    def main(x: R.Tensor((size,), "float32")):',
        "        return R.exp(x)",
        "",
        "@T.prim_func",
        'def second(A: T.Buffer((4,), "float32")):',
        "    for i in range(4):",
        "        A[i] = 0",
        "",
        "print(First['main'].params[0].ty, second.body.extent)",
        "exit()",
    ]
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "dumb", "PYTHON_HISTORY": os.devnull, "PYTHON_BASIC_REPL": "1"}
    with subprocess.Popen(
        [sys.executable, "-q"], stdin=child, stdout=child, stderr=child, env=env, cwd=ROOT
    ) as process:
        os.close(child)
        os.write(parent, ("\n".join(typed) + "\n").encode())
        seen = b""
        while chunk := _read(parent):
            seen += chunk
        process.wait(60)
    os.close(parent)
    assert b"R.Tensor((6,), 'float32') 4" in seen, seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how a closed pseudo-terminal ends
        return b""


def test_strings_are_symbols_even_when_python_has_the_name() -> None:
    n = 3

    @R.function
    def main(x: R.Tensor(("n", n), "float32")):
        return x

    assert main.params[0].ty.shape[0].name == "n" and main.params[0].ty.shape[1].value == n


def test_errors_name_the_file_and_line() -> None:
    with pytest.raises(DiagnosticError) as caught:

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            A[0] = nothing  # noqa: F821

    (found,) = caught.value.diagnostics
    assert found.span.source.name == __file__
    assert "A[0] = nothing" in str(caught.value)


def test_the_decorated_program_equals_the_parsed_text() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            return y

    assert_structural_equal(Module, parse(Module.script()))
    assert relaxlab.parse is parse


def test_type_parameters_are_symbols() -> None:
    mod = parse("""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f[n](A: T.Buffer((n, 4), "float32")):
        for i in range(n):
            with T.sblock("A"):
                vi = T.axis.spatial(n, i)
                A[vi, 0] = T.float32(0)
    @R.function
    def main[n](x: R.Tensor((n, 4), dtype="float32")) -> R.Tensor((n, 4), dtype="float32"):
        y: R.Tensor((n, 4), dtype="float32") = R.add(x, x)
        return y
""")
    assert mod["f"].buffers[0].shape[0].name == "n"


N = TypeVar("N")


def test_type_variables_are_symbols() -> None:
    @T.prim_func
    def f(A: T.Buffer((N, 4), "float32"), B: T.Buffer((N, 4), "float32")):
        for i in range(N):
            B[i, 0] = A[i, 0]

    assert f.buffers[0].shape[0] is f.buffers[1].shape[0] is f.body.extent
    mod = parse("""
from typing import TypeVar
n = TypeVar("n")
@R.function
def main(x: R.Tensor((n, 4), "float32")) -> R.Tensor((n, 4), "float32"):
    y: R.Tensor((n, 4), "float32") = R.add(x, x)
    return y
""")
    assert mod["main"].params[0].ty.shape[0].name == "n"
