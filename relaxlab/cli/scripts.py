"""The programs in a Python file: its decorated functions and classes, read and never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import relaxlab.script
from relaxlab.cli.options import UsageError
from relaxlab.ir.module import Module
from relaxlab.ir.span import Source
from relaxlab.script.parser import syntax_tree

Definition = ast.ClassDef | ast.FunctionDef
DECORATORS = ("ir_module", "function", "prim_func")


def read_script(argument: str) -> tuple[Module, str | None]:
    """The module that `FILE.py[:NAME]` means, and NAME if that is a function in it.

    NAME is a class under `@I.ir_module`, a function of one, or a decorated function. It may be left
    out where the file has one class, or decorated functions alone, which are one module together.

    Raises UsageError naming what there is, DiagnosticError for a program that is wrong.
    """
    path, name = _split(argument)
    try:
        text = path.read_text(encoding="utf-8-sig")  # as Python reads it
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text in UTF-8: {error}") from None
    tree = syntax_tree(Source(str(path), text))
    wanted = _chosen(path, name, list(_decorated(tree)))
    kept = [*wanted, *(s for s in tree.body if _is_used_by_programs(s))]
    module = relaxlab.script.parse(_only(text, kept), check=True, name=str(path))
    return module, name if name is not None and name in module else None


def _split(argument: str) -> tuple[Path, str | None]:
    """The file, and the name after a colon."""
    if Path(argument).exists():
        return Path(argument), None
    file, colon, name = argument.rpartition(":")
    if colon and name.isidentifier():
        return Path(file), name
    return Path(argument), None


def _decorated(node: ast.AST) -> Iterator[Definition]:
    """The definitions under decorators of the script language; not those inside others."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition) and any(map(_is_ours, child.decorator_list)):
            yield child
        else:
            yield from _decorated(child)


def _is_ours(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    called = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return called in DECORATORS


def _chosen(path: Path, name: str | None, found: list[Definition]) -> list[Definition]:
    """The definitions that make up the program asked for."""
    if not found:
        raise UsageError(
            f"{path} defines no program: nothing in it is decorated with @I.ir_module, @R.function "
            "or @T.prim_func"
        )
    classes = [d for d in found if isinstance(d, ast.ClassDef)]
    if name is None:
        if not classes or len(found) == 1:
            return found
        raise UsageError(f"{path} defines several programs; name one: {_names(path, found)}")
    # The last one counts, as when the file is run.
    for d in reversed(found):
        if d.name == name:
            return [d] if isinstance(d, ast.ClassDef) else [f for f in found if f not in classes]
    for d in reversed(classes):
        if any(isinstance(s, ast.FunctionDef) and s.name == name for s in d.body):
            return [d]
    raise UsageError(f"{path} defines no program {name!r}; there is: {_names(path, found)}")


def _names(path: Path, found: list[Definition]) -> str:
    return ", ".join(dict.fromkeys(f"{path}:{d.name}" for d in found))


def _is_used_by_programs(stmt: ast.stmt) -> bool:
    """True if a program may use the statement's definitions: names of the language and numbers."""
    match stmt:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign([ast.Name()], ast.Call(ast.Name("TypeVar"))):
            return True
        case ast.Assign([ast.Name()], ast.Constant(int() | float() | str())):
            return True
        case _:
            return False


def _only(text: str, kept: list[ast.stmt]) -> str:
    """Return the text with other lines blank, and with statements inside other definitions moved to
    the left margin, so that line numbers stay."""
    lines = text.splitlines()
    blank = [""] * len(lines)
    for node in kept:
        decorators = node.decorator_list if isinstance(node, Definition) else []
        first = min(n.lineno for n in (node, *decorators))
        last = node.end_lineno or first
        for i in range(first - 1, last):
            # Columns count bytes. After the last one other statements may follow.
            end = node.end_col_offset if i == last - 1 else None
            part = lines[i].encode()[node.col_offset : end].decode()
            blank[i] = f"{blank[i]}; {part}" if blank[i] else part
    return "\n".join(blank)
