"""`I`, `R` and `T` as Python sees them: names with signatures and texts for completion and `help`.

A program is read from its source and never run, so its names have no meaning in Python. The types
are an exception: `R.Tensor((n, 4), "float32")` is the type, for builders. Statements of a class
body do nothing; calling another name is an error that names its place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, NoReturn

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.op_table import OpRow, find_op, op_names, op_signature, op_text
from relaxlab.script.captured import name_object
from relaxlab.script.examples import read_example
from relaxlab.script.members import MEMBERS, SHORT_DTYPES, Member, members_of
from relaxlab.script.type_values import Annotation
from relaxlab.script.values import Ref

HOMES = {"I": "relaxlab.script.ir", "R": "relaxlab.script.relax", "T": "relaxlab.script.tir"}
DECORATORS = {"I": ("ir_module",), "R": ("function", "data"), "T": ("prim_func",)}
_IN_CLASS_BODIES = (
    "I.module_attrs", "I.module_global_infos", "I.dummy_global_info", "I.vdevice", "R.ExternFunc",
)  # fmt: skip
"""Calls that stand in the class body of a module, which Python runs."""
_WITHOUT_BUILDERS = ("R.vm.", "R.builtin.")
"""Operators that only passes write."""


# --- What is known of a name --------------------------------------------------------------------


def all_names(namespace: str) -> tuple[str, ...]:
    """The names of a namespace without the decorator, sorted: `matmul`, `nn.relu`."""
    operators = op_names() if namespace == "R" else ()
    return tuple(sorted({*members_of(namespace), *operators}))


def groups(namespace: str) -> frozenset[str]:
    """The parts of a namespace that hold names themselves: `nn` of `R`, `axis` of `T`."""
    return frozenset(n.rpartition(".")[0] for n in all_names(namespace) if "." in n)


def signature(name: str) -> Signature:
    """The parameters of `R.matmul`."""
    member = MEMBERS.get(name)
    if member is not None:
        return _signature(member.parameters)
    return op_signature(_row(name))


def _signature(parameters: str) -> Signature:
    lambda_ = ast.parse(f"lambda {parameters}: 0", mode="eval").body
    assert isinstance(lambda_, ast.Lambda)
    args = lambda_.args
    found = [Parameter(a.arg, Parameter.POSITIONAL_OR_KEYWORD) for a in args.args]
    for i, default in enumerate(reversed(args.defaults), 1):
        found[-i] = found[-i].replace(default=ast.literal_eval(default))
    if args.vararg is not None:
        found.append(Parameter(args.vararg.arg, Parameter.VAR_POSITIONAL))
    found += [Parameter(a.arg, Parameter.KEYWORD_ONLY) for a in args.kwonlyargs]
    return Signature(found)


def _row(name: str) -> OpRow:
    row = find_op(name[2:])
    assert row is not None
    return row


def text(name: str) -> str:
    """Return the documentation of a member such as `R.matmul`: its result, which parameters are
    constants, the dtypes where not all will do, and an example."""
    member = MEMBERS.get(name)
    if member is not None and member.doc:
        parts = [member.doc]
        example = member.example
    else:
        row = _row(name)
        doc, example = op_text(row)
        parts = [doc] if doc else []
        parts += [line] if (line := _constants(row)) and member is None else []
        if member is not None:
            example = member.example
        elif example:
            parts += [line] if (line := _dtypes(row, example)) else []
    if example:
        parts.append(f"    {example}")
    return "\n\n".join(parts)


def _constants(row: OpRow) -> str:
    names = [p.name for p in row.params if p.kind == "attr"]
    return f"Constants: {', '.join(names)}." if names else ""


_PROBES = {"bool": "bool", "int64": "integers", "float32": "floating point"}


@cache
def _dtypes(row: OpRow, example: str) -> str:
    """Return the dtypes that the type rule accepts for the first argument of the example, in
    words; nothing where it accepts any."""
    from relaxlab.script.parser import parse

    read = read_example(example)
    values = [p.name for p in row.params if p.kind == "value"]
    if not read.arguments or not values:
        return ""
    accepted: list[str] = []
    for dtype, kind in _PROBES.items():
        try:
            parse(read.program(dtype))
        except DiagnosticError:
            continue
        accepted.append(kind)
    if len(accepted) == len(_PROBES):
        return ""
    return f"Dtypes of {values[0].lstrip('*')}: {', '.join(accepted)}."


# --- Names for Python ---------------------------------------------------------------------------


class Unknown:
    """A name that the namespace does not have. Annotations that Python evaluates may hold one:
    the parser then reports it at its place."""

    __slots__ = ("_path",)
    __iter__ = None  # a loop over its items would have no end

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("_"):
            raise AttributeError(name)
        return Unknown(f"{self._path}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Unknown:
        return self

    def __getitem__(self, _: Any) -> Unknown:
        return self

    def __repr__(self) -> str:
        return f"<{self._path}: no name of the script language>"


def _refused(name: str) -> NoReturn:
    place = "@T.prim_func" if name.startswith("T.") else "@R.function"
    buildable = name not in MEMBERS and not name.startswith(_WITHOUT_BUILDERS)
    raise TypeError(
        f"{name} is a name of the script language, which relaxlab reads and Python does not run: "
        f"write it in a function under {place}"
        + (f"; relaxlab.ops.{name[2:]}(...) builds the call" if buildable else "")
    )


def _function(name: str) -> Callable[..., Any]:
    if name in _IN_CLASS_BODIES:

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return None
    else:

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            _refused(name)

    return stand_in


@cache
def _made(name: str, member: Member | None, row: OpRow | None) -> Any:
    """The value behind a name; made again when an operator is registered anew."""
    namespace, _, path = name.partition(".")
    short = path.rpartition(".")[2]
    if member is not None and member.gives == "type":
        value: Any = type(short, (Annotation,), {})
    else:
        value = _function(name)
        value.__name__ = short
    value.__qualname__ = path
    value.__module__ = HOMES[namespace]
    value.__doc__ = text(name)
    value.__signature__ = signature(name)
    name_object(value, Ref(namespace, SHORT_DTYPES.get(path, path)))
    return value


@cache
def _group(namespace: str, path: str) -> ModuleType:
    module = ModuleType(f"{HOMES[namespace]}.{path}", f"The names {namespace}.{path}.* of scripts.")
    vars(module)["__getattr__"] = lambda name: member(namespace, f"{path}.{name}")  # type: ignore
    vars(module)["__dir__"] = lambda: names_under(namespace, path)
    name_object(module, Ref(namespace, path))
    return module


def member(namespace: str, path: str) -> Any:
    """The value of `R.matmul` or `R.nn` in Python. Raises AttributeError for private names."""
    if path.rpartition(".")[2].startswith("_"):
        raise AttributeError(f"{namespace} has no name {path!r}")
    name = f"{namespace}.{path}"
    if name in MEMBERS:
        return _made(name, MEMBERS[name], None)
    row = find_op(path) if namespace == "R" else None
    if row is not None:
        return _made(name, None, row)
    return _group(namespace, path) if path in groups(namespace) else Unknown(name)


def names_under(namespace: str, path: str = "") -> list[str]:
    """Return the names that complete `R.` or `R.nn.`."""
    prefix = f"{path}." if path else ""
    found = {n.removeprefix(prefix).partition(".")[0] for n in all_names(namespace)
             if n.startswith(prefix)}  # fmt: skip
    return sorted(found | set(DECORATORS[namespace] if not path else ()))
