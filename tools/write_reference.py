"""Write what is generated from the operators and the members of the script language:
docs/operators.md and the stubs by which editors know `I`, `R` and `T`.

    python tools/write_reference.py

A test compares the files with what this writes.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from relaxlab.ir.op_table import op_row, op_signature
from relaxlab.ops.manual import Section, sections
from relaxlab.script import decorators
from relaxlab.script.members import MEMBERS
from relaxlab.script.namespace import DECORATORS, all_names, groups, signature, text

ROOT = Path(__file__).resolve().parent.parent

# --- docs/operators.md --------------------------------------------------------------------------

PAGE_HEAD = """\
# Operators

Every operator has one row in the [operator table](../relaxlab/ir/op_table.py): its types for
static, symbolic and unknown shapes, its lowering to a loop function, its NumPy reference. Names,
parameters and their order are those of Relax, where it has the operator. `relaxlab.ops.add(x, y)`
builds the call that the script writes as `R.add(x, y)`; `help(R.add)`, or Shift-Tab in a notebook,
shows the same with an example. tools/write_reference.py writes this page.
"""


def operators_page() -> str:
    """docs/operators.md."""
    return "\n".join([PAGE_HEAD, *(_section(s) for s in sections())])


def _section(section: Section) -> str:
    head = [f"## {section.title}", ""]
    if section.text:
        head += [section.text, ""]
    rows = [
        f"- `{name}{op_signature(op_row(name))}`: {doc}"
        for name, (doc, _) in section.entries.items()
    ]
    return "\n".join([*head, *rows, ""])


# --- Stubs --------------------------------------------------------------------------------------

STUB_HEAD = '''\
"""{doc} Written by tools/write_reference.py."""

from __future__ import annotations

# pyright: reportUnusedImport=false, reportMissingModuleSource=false
# Names of the script hide those of Python: `R.sum`, `T.bool`.
from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Iterator as _Iterator, Sequence as _Sequence
from contextlib import AbstractContextManager as _Context
from typing import Any as _Any, TypeVar as _TypeVar, overload as _overload

from relaxlab.ir.{home} import {node} as _{node}
from relaxlab.script.stub_types import Argument as _Argument, Buffer as _Buffer, Value as _Value

@_overload
def {decorator}(f: {decorated}, /) -> {result}:
    """{text}"""

@_overload
def {decorator}({options}) -> _Callable[[{decorated}], {result}]:
    """{text}"""
'''
DATA = '''\
_C = _TypeVar("_C", bound=type)

def {decorator}(cls: _C, /) -> _C:
    """{text}"""
'''
HEADS = {
    "I": {
        "doc": "The namespace `I` of the script: modules.",
        "home": "module",
        "node": "Module",
        "result": "_Functions",
        "decorated": "_Any",
        "options": "*, check_well_formed: _bool = True",
    },
    "R": {
        "doc": "The namespace `R` of the script: graph functions.",
        "home": "graph",
        "node": "Function",
        "result": "_Function",
        "decorated": "_Callable[..., _Any]",
        "options": "*, private: _bool = False, pure: _bool = True, check_well_formed: _bool = True",
    },
    "T": {
        "doc": "The namespace `T` of the script: loop functions.",
        "home": "loops",
        "node": "PrimFunc",
        "result": "_PrimFunc",
        "decorated": "_Callable[..., _Any]",
        "options": "*, private: _bool = False, s_tir: _bool | None = None, "
        "check_well_formed: _bool = True",
    },
}
FILES = {"I": "ir", "R": "relax", "T": "tir"}
GIVES = {
    "value": "_Value",
    "scalar": "_Value",
    "buffer": "_Buffer",
    "axis": "_Any",
    "loop": "_Iterator[_Any]",
    "context": "_Context[_Value]",
    "statement": "None",
}

MODULE = '''
class _Functions(_Module):
    """A module; its functions are attributes, too."""

    def __getattr__(self, name: _str) -> _Any: ...
'''


def _annotated(p: inspect.Parameter, name: str) -> str:
    """A parameter of a stub with the type that its default shows."""
    if p.default is inspect.Parameter.empty:
        stars = "*" if p.kind is inspect.Parameter.VAR_POSITIONAL else ""
        return f"{stars}{p.name}: {'_Any' if name in MEMBERS else '_Argument'}"
    kind = type(p.default).__name__
    if name in MEMBERS or kind not in ("bool", "int", "float", "str"):
        kind = "_Any"
    elif kind == "int":
        kind = "_int | _Sequence[_int]"
    else:
        kind = f"_{kind}"
    return f"{p.name}: {kind} = {p.default!r}"


def _parameters(name: str) -> str:
    found = list(signature(name).parameters.values())
    texts: list[str] = []
    starred = False
    for p in found:
        if p.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            texts.append("*")
        starred = starred or p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
        texts.append(_annotated(p, name))
    return ", ".join(texts)


def _doc(name: str, indent: str) -> str:
    body = text(name).replace("\\", "\\\\")
    # An example that only repeats the signature says nothing beside it.
    body = body.removesuffix(f"\n\n    {name}({', '.join(signature(name).parameters)})")
    end = "\n" if "\n" in body else ""
    return textwrap.indent(f'"""{body}{end}"""', indent)


# Annotations of the first parameter of a function in a class, which checkers take for `self`.
_VARIABLES = [n for n, m in MEMBERS.items() if n.startswith("T.") and m.gives == "type"]
_VARIABLES.remove("T.Buffer")


def _entry(name: str, indent: str) -> str:
    member = MEMBERS.get(name)
    short = name.rpartition(".")[2]
    params = _parameters(name)
    if name in _VARIABLES:
        return f"{short}: _Any\n{_doc(name, '')}\n"
    if member is not None and member.gives == "type":
        base = "_Buffer" if name == "T.Buffer" else "_Any"
        init = f"def __init__(self, {params}) -> None: ..." if params else "..."
        return f"class {short}({base}):\n{_doc(name, '    ')}\n\n    {init}\n"
    gives = GIVES[member.gives] if member is not None else "_Value"
    static = f"{indent}@staticmethod\n" if indent else ""
    return f"{static}{indent}def {short}({params}) -> {gives}:\n{_doc(name, indent + '    ')}\n"


def _group(namespace: str, path: str) -> str:
    inner = [n for n in all_names(namespace) if n.rpartition(".")[0] == path]
    entries = [_entry(f"{namespace}.{n}", "    ") for n in inner]
    cls = f"_{path.replace('.', '_')}"
    head = f'class {cls}:\n    """The names {namespace}.{path}.*"""\n'
    parts = [p for p in sorted(groups(namespace)) if p.rpartition(".")[0] == path]
    entries += [f"    {p.rpartition('.')[2]}: _{p.replace('.', '_')}\n" for p in parts]
    return "\n".join([head, *entries, *([f"{path}: {cls}\n"] if "." not in path else [])])


def stub(namespace: str) -> str:
    """The stub of one namespace."""
    decorator, *others = DECORATORS[namespace]
    words = inspect.getdoc(getattr(decorators, decorator)) or ""
    head = HEADS[namespace]
    parts = [STUB_HEAD.format(decorator=decorator, text=words.replace("\n", "\n    "), **head)]
    parts += [DATA.format(decorator=d, text=inspect.getdoc(getattr(decorators, d))) for d in others]
    parts += [MODULE] if namespace == "I" else []
    parts += [_group(namespace, path) for path in sorted(groups(namespace))]
    parts += [_entry(f"{namespace}.{n}", "") for n in all_names(namespace) if "." not in n]
    return "\n".join(parts)


def files() -> Iterator[tuple[Path, str]]:
    """Every generated file and its text."""
    yield ROOT / "docs/operators.md", operators_page()
    for namespace, module in FILES.items():
        yield ROOT / f"relaxlab/script/{module}.pyi", stub(namespace)


if __name__ == "__main__":
    for path, content in files():
        path.write_text(content, "utf-8")
