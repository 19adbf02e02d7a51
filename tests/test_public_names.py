"""The names of `relaxlab`: each can be had, and nothing that people read needs another home."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jedi
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R

ROOT = Path(__file__).resolve().parent.parent
READ = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "tutorials").glob("*.py")),
    *sorted((ROOT / "notebooks").glob("*.py")),
]
# `docs/errors-*.md` build what no script can say from the nodes themselves.
NODES = re.compile(r"from relaxlab\.ir(\.module)? import ")


def test_each_public_name_can_be_had_and_completed() -> None:
    assert set(rl.__all__) <= set(dir(rl))
    for name in dir(rl):
        assert not name.startswith("_") or name == "__version__"
        assert getattr(rl, name) is not None
    found = jedi.Interpreter("rl.", [{"rl": rl}]).complete()
    assert {c.name for c in found if not c.name.startswith("_")} <= set(dir(rl))


def test_the_stub_is_all_imports_of_one_form() -> None:
    """The package reads it line by line."""
    lines = (ROOT / "relaxlab" / "__init__.pyi").read_text("utf-8").splitlines()
    imports = [line for line in lines if line.startswith("from relaxlab")]
    for line in imports:
        assert re.fullmatch(r"from (relaxlab[\w.]*) import (\w+) as \2", line), line
    assert len(imports) == len(set(rl.__all__))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'relaxlab' has no attribute 'compil'"):
        rl.compil  # noqa: B018


@pytest.mark.parametrize("path", READ, ids=lambda p: p.name)
def test_documents_import_public_names(path: Path) -> None:
    """`relaxlab` itself, the script language and TVM's names, no package inside."""
    lines = re.findall(r"^\s*(?:from|import) relaxlab\..*", path.read_text("utf-8"), re.M)
    for line in lines:
        allowed = line.strip().startswith(
            ("from relaxlab.script import ", "import relaxlab.tvm", "from relaxlab.tvm")
        ) or (path.name.startswith("errors") and NODES.match(line))
        assert allowed, f"{path.name}: {line}"


def test_a_module_built_without_the_parser_can_be_printed() -> None:
    text = """
from relaxlab import nn
class Model(nn.Module):
    def __init__(self): self.up = nn.Linear(4, 8)
    def main(self, x): return self.up(x)
mod, _ = Model().export({"main": {"x": nn.spec.Tensor(("n", 4))}})
print(mod.script())
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "R.linear" in run.stdout


def define_scaled(factor: float, **options: bool) -> None:
    def infer(call, types):
        return rl.tensor_arg(call, types, 0)

    def emit(call, out, x):
        return rl.te.compute(out.shape, lambda i: x[i] * factor, "scaled")

    rl.define("test_scaled", "x", infer, emit=emit, reference=lambda x: x * factor, **options)


def test_an_operator_is_replaced_on_request() -> None:
    """As a cell of a notebook does that is run again."""
    define_scaled(2.0)
    with pytest.raises(ValueError, match="'test_scaled' is registered twice; override=True"):
        define_scaled(3.0)
    for factor in (3.0, 5.0):
        define_scaled(factor, override=True)

        @I.ir_module
        class Scaled:
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                y = R.test_scaled(x)
                return y

        x = np.arange(4, dtype="float32")
        np.testing.assert_array_equal(rl.compile(Scaled)["main"](x), x * np.float32(factor))
        np.testing.assert_array_equal(rl.interpret(Scaled, "main", x), x * np.float32(factor))


def test_operators_of_the_package_are_not_replaced() -> None:
    """The artifact cache keeps their programs."""
    with pytest.raises(ValueError, match="operator 'add' belongs to relaxlab"):
        rl.define("add", "x1 x2", lambda call, types: types[0], override=True)


def test_passes_are_found_by_name_before_they_were_imported() -> None:
    code = "import relaxlab as rl; print(rl.find_pass('expand_matmul_of_sum').name)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "expand_matmul_of_sum\n"
    with pytest.raises(KeyError, match="unknown pass 'no.pass'; known: "):
        rl.find_pass("no.pass")


def test_a_plain_function_is_no_pass() -> None:
    def mine(mod, options):
        return mod

    with pytest.raises(TypeError, match=r'mine is a plain function: module_pass\("mine"\)\(mine\)'):
        rl.cpu_pipeline().before("legalize_ops", mine)
    with pytest.raises(TypeError, match=r"pass 'one': a pass is a function of two arguments"):
        rl.module_pass("one")(lambda mod: mod)
