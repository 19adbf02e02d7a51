"""The namespaces I, R, T under the fingers: completion, signatures, texts, stubs."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jedi
import pytest

import relaxlab as rl
from relaxlab.analysis.annotate import annotate
from relaxlab.ir import graph, types
from relaxlab.ir.op_table import op_names, op_row, op_text
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.script.examples import read_example
from relaxlab.script.loop_calls import _CALLS as LOOP_CALLS
from relaxlab.script.loop_calls import BINARY
from relaxlab.script.members import MEMBERS
from relaxlab.script.namespace import all_names, names_under
from relaxlab.script.printer import print_module
from tools import write_reference

SPACES = {"I": I, "R": R, "T": T}
NAMES = [f"{space}.{name}" for space in SPACES for name in all_names(space)]


def value(name: str) -> object:
    """The object behind `R.nn.relu`."""
    found: object = SPACES[name[0]]
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_signature_and_a_text(name: str) -> None:
    named = value(name)
    assert isinstance(inspect.signature(named), inspect.Signature)  # type: ignore[arg-type]
    first = (inspect.getdoc(named) or "").partition("\n")[0]
    assert len(first) > 8, name
    assert not first[0].islower(), f"{name}: {first}"
    assert first.endswith("."), f"{name}: {first}"


def test_names_of_the_parser_are_listed() -> None:
    assert {f"R.{n}" for n in op_names()} <= {f"R.{n}" for n in all_names("R")}
    assert {f"T.{n}" for n in (*LOOP_CALLS, *BINARY)} <= set(MEMBERS)


COMPUTED = [n for n in op_names() if op_row(n).lower is not None or op_row(n).reference]
# Storages and closures have no spelling as a parameter, so no example stands by itself.
OPAQUE = ("adt.", "make_closure", "memory.alloc_", "memory.kill_", "vm.")


def show_type(ty: types.Type) -> str:
    """A type as examples write it: `(2, 3) int64`."""
    match ty:
        case types.TensorType(shape, dtype, ndim):
            comma = "," if ndim == 1 else ""
            dims = f"ndim={ndim}" if shape is None else f"({', '.join(map(str, shape))}{comma})"
            return dims if dtype == "float32" else f"{dims} {dtype}"
        case types.TupleType(fields):
            return f"({', '.join(map(show_type, fields))})"
        case _:
            return str(ty)


@pytest.mark.parametrize("name", COMPUTED)
def test_examples_of_operators_are_right(name: str) -> None:
    text = op_text(op_row(name))[1]
    if name.startswith(OPAQUE):
        assert not text
        return
    example = read_example(text)
    mod, problems = annotate(rl.parse(example.program()))
    assert not problems
    main = mod["main"]
    assert isinstance(main, graph.Function)
    result = main.body.body
    assert isinstance(result, graph.Var) and result.ty is not None
    assert show_type(result.ty) == example.result
    assert f"R.{name}(" in example.call


def test_completion_lists_names_and_nothing_else() -> None:
    assert {"matmul", "nn", "Tensor", "function"} <= set(dir(R))
    assert dir(T.axis) == ["R", "S", "opaque", "reduce", "remap", "scan", "spatial"]
    assert {"relu", "softmax"} <= set(dir(R.nn))
    assert dir(I) == [
        "GlobalVar", "dummy_global_info", "ir_module", "meta_var", "module_attrs",
        "module_global_infos", "vdevice",
    ]  # fmt: skip
    assert not [n for module in SPACES.values() for n in dir(module) if n.startswith("_")]


def test_calling_a_name_outside_a_program() -> None:
    with pytest.raises(TypeError, match=r"in a function under @R\.function; relaxlab"):
        R.matmul(1, 2)
    with pytest.raises(TypeError, match=r"under @T\.prim_func"):
        T.axis.remap("S", [1])


def test_names_under_another_name() -> None:
    relu, nn = R.nn.relu, R.nn

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = relu(x)
        z = nn.gelu(y)
        return z

    assert "R.nn.relu(x)" in print_module(main) and "R.nn.gelu(y)" in print_module(main)


def test_a_user_s_operator_completes_and_has_its_text() -> None:
    from relaxlab.ir.op_table import _TABLE
    from relaxlab.ops.define import define, params

    assert "my_op" not in dir(R)
    try:
        define("my_op", params("x", k=2), lambda call, tys: tys[0], doc="The same value.")
        assert "my_op" in dir(R)
        assert str(inspect.signature(R.my_op)) == "(x, k=2)"
        assert (inspect.getdoc(R.my_op) or "").startswith("The same value.")
    finally:
        del _TABLE["my_op"]


@pytest.mark.parametrize("path", [p for p, _ in write_reference.files()], ids=lambda p: p.name)
def test_generated_files_are_up_to_date(path: Path) -> None:
    text = dict(write_reference.files())[path]
    assert path.read_text("utf-8") == text, "run python tools/write_reference.py"


# --- Jedi, Pyright, a kernel ----------------------------------------------------------------------

IMPORT = "from relaxlab.script import ir as I, relax as R, tir as T\n"


@pytest.mark.parametrize("interpreter", [True, False], ids=["notebook", "editor"])
@pytest.mark.parametrize(
    ("text", "among"),
    [
        ("R.mat", {"matmul"}),
        ("R.nn.", {"relu", "softmax", "conv2d"}),
        ("T.axis.", {"spatial", "remap"}),
        ("I.", {"ir_module"}),
    ],
)
def test_jedi_completes(text: str, among: set[str], interpreter: bool) -> None:
    code = text if interpreter else IMPORT + text
    script = jedi.Interpreter(code, [SPACES]) if interpreter else jedi.Script(code)
    found = {c.name for c in script.complete() if not c.name.startswith("_")}
    assert among <= found
    assert found <= set(names_under(text[0], text[2:].rpartition(".")[0]))


def test_jedi_knows_signatures_and_texts() -> None:
    code = f"{IMPORT}R.nn.softmax("
    (signature,) = jedi.Script(code).get_signatures()
    assert [p.name for p in signature.params] == ["data", "axis"]
    (found,) = jedi.Script(f"{IMPORT}R.nn.softmax").help()
    assert "exponentials" in found.docstring()


PROGRAM = '''\
# pyright: basic, reportInvalidTypeForm=false
from relaxlab.script import ir as I, relax as R, tir as T


@I.ir_module
class Module:
    @T.prim_func
    def scale(a: T.handle, b: T.handle, k: T.int64):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        C = T.alloc_buffer((4,), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = T.max(A[vi, vj] * 2, T.exp(C[vj])) + T.Cast("float32", vi % n)

    @R.function(private=True)
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 4",), "float32"):
        cls = Module
        n = T.int64()
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, R.const([[1.0] * 4] * 4, "float32")) + 1)
            z = R.reshape(-y, (n * 4,))
            s = R.call_tir(cls.scale, (x,), out_ty=R.Tensor((n, 4), "float32"))
            w = R.sum(z * 2, axis=0, keepdims=True)
            R.output(w)
        return w


reveal_type(Module)
reveal_type(R.nn.relu)
reveal_type(T.axis.spatial)
'''


def test_pyright_reads_programs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run(
        [*command, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    found = json.loads(run.stdout)["generalDiagnostics"]
    assert [d["message"] for d in found if d["severity"] != "information"] == []
    revealed = [d["message"] for d in found]
    assert len(revealed) == 3
    assert "_Functions" in revealed[0]
    assert "(data:" in revealed[1] and revealed[1].endswith('-> Value"')
    assert "dom:" in revealed[2]


@pytest.fixture(scope="module")
def kernel() -> Iterator[object]:
    """A Jupyter kernel in which the namespaces were imported."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    client.execute_interactive(f"{IMPORT}import relaxlab as rl", timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def asked(client: object, kind: str, code: str) -> dict[str, object]:
    """The kernel's answer to a request at the end of `code`."""
    message = getattr(client, kind)(code, len(code))
    while True:
        reply = client.get_shell_msg(timeout=60)  # type: ignore[attr-defined]
        if reply["parent_header"].get("msg_id") == message:
            return reply["content"]


def test_a_notebook_completes_and_explains(kernel: object) -> None:
    matches = asked(kernel, "complete", "R.nn.")["matches"]
    assert any(m.endswith("relu") for m in matches)  # type: ignore[attr-defined]
    matches = asked(kernel, "complete", "T.axis.re")["matches"]
    assert {m.rpartition(".")[2] for m in matches} == {"reduce", "remap"}  # type: ignore
    reply = asked(kernel, "inspect", "R.matmul")
    text = re.sub(r"\x1b\[[\d;]*m", "", reply["data"]["text/plain"])  # type: ignore[index]
    assert "x1, x2, out_dtype=None" in text and "The matrix product" in text
    assert "(2, 3), (3, 4) -> (2, 4)" in text
