"""Programs in the form in which TVM's parser gives them: every value has a name and a type."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from relaxlab.analysis.annotate import annotate
from relaxlab.ir import graph
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.types import PrimType
from relaxlab.script import parse

Reader = Callable[..., Any]
"""A function of what is decorated, the frame of the decorator, and of `computable` as `parse` has
it, which returns the program."""


def normalized(mod: Module) -> Module:
    """A module in normal form; itself where it has none. As in TVM, types are all that counts here:
    a call that has one and cannot be computed is refused where the program is compiled. A deduced
    result type has no values of scalars, which TVM's types lack."""
    made, wrong = annotate(mod, computable=False)
    if wrong:
        return mod
    deduced = {
        name: replace(fn, ret_ty=rewrite(fn.ret_ty, _without_value))
        for name, fn in made.graph_functions().items()
        if fn.ret_ty is not None and mod.graph_functions()[name].ret_ty is None
    }
    return made.with_functions(deduced)


def _without_value(n: Node) -> Node | None:
    return PrimType(n.dtype) if isinstance(n, PrimType) and n.value is not None else None


def decorated(reader: Reader, what: Any, frame: FrameType) -> Any:
    """Return the program that a decorator reads, in normal form, or the decorator itself where it
    was only given options."""
    return partial(_read, reader, frame) if what is None else _read(reader, frame, what)


def _read(reader: Reader, frame: FrameType, what: Any) -> Any:
    made = reader(what, frame, computable=False)
    if isinstance(made, Module):
        return normalized(made)
    if isinstance(made, graph.Function):
        return normalized(Module.of({"main": made}))["main"]
    return made


def from_source(program: str, extra_vars: Any = None) -> BaseFunc | Module:
    """The module of a text, or its function where it is one function without a class. `extra_vars`
    are further names that it may use, with their values."""
    mod = normalized(parse(program, computable=False, names=extra_vars))
    has_class = any(isinstance(n, ast.ClassDef) for n in ast.parse(program).body)
    return mod if has_class or len(mod.functions) != 1 else mod.functions[0][1]
