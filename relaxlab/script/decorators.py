"""The decorators: they read the source of what they decorate and return IR."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import partial
from types import FrameType, FunctionType
from typing import Any, TypeVar, overload

from relaxlab.ir import graph, loops
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.errors import brief
from relaxlab.ir.module import Module
from relaxlab.script.captured import capture, find_definition, name_object
from relaxlab.script.macros import Macro
from relaxlab.script.parser import parse_class, parse_function, syntax_tree
from relaxlab.script.values import Ref

F = TypeVar("F", graph.Function, loops.PrimFunc)


def _caller() -> FrameType:
    """The frame that applies the decorator."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None and frame.f_back.f_back is not None
    return frame.f_back.f_back


def _missing(name: str, filename: str) -> DiagnosticError:
    return DiagnosticError(
        [
            Diagnostic(
                "E0120",
                f"the definition of {name!r} is not in the source text of {filename}",
                suggestion="did the file change since it was imported?",
            )
        ]
    )


@brief
def read_function(f: Callable[..., Any], frame: FrameType, *, computable: bool = True) -> Any:
    """The function that a decorator in `frame` reads; `f` itself inside of a class. `computable` is
    that of `parse`."""
    if not isinstance(f, FunctionType):
        raise TypeError(f"the decorator takes a function, not {f!r}")
    outer = f.__qualname__.rpartition(".")[0]
    if outer and not outer.endswith("<locals>"):
        return f  # @I.ir_module reads the whole class
    captured = capture(frame, f.__name__, f)
    tree = syntax_tree(captured.source)
    node = find_definition(tree, ast.FunctionDef, f.__name__, f.__code__.co_firstlineno)
    if node is None:
        raise _missing(f.__name__, captured.source.name)
    return parse_function(captured, node, computable=computable)


@overload
def function(f: Callable[..., Any], /) -> graph.Function: ...
@overload
def function(
    *, private: bool = False, pure: bool = True, check_well_formed: bool = True
) -> Callable[[Callable[..., Any]], graph.Function]: ...
def function(
    f: Callable[..., Any] | None = None,
    /,
    *,
    private: bool = False,
    pure: bool = True,
    check_well_formed: bool = True,
) -> Any:
    """Read a Python function as a graph function.

    `private`: passes may change or remove it; `pure=False`: it may have effects. The options are
    read from the source. Raises DiagnosticError with everything that is wrong in it.
    """
    frame = _caller()
    if f is not None:
        return read_function(f, frame)
    return partial(read_function, frame=frame)


C = TypeVar("C", bound=type)


def data(cls: C, /) -> C:
    """Declare an algebraic data type in a module: the annotated names are its constructors."""
    return cls


@overload
def prim_func(f: Callable[..., Any], /) -> loops.PrimFunc: ...
@overload
def prim_func(
    *, private: bool = False, s_tir: bool | None = None, check_well_formed: bool = True
) -> Callable[[Callable[..., Any]], loops.PrimFunc]: ...
def prim_func(
    f: Callable[..., Any] | None = None,
    /,
    *,
    private: bool = False,
    s_tir: bool | None = None,
    check_well_formed: bool = True,
) -> Any:
    """Read a Python function as a loop function.

    `s_tir=True` puts its body into a root block (done unasked when it has blocks or allocations).
    The options are read from the source. Raises DiagnosticError with everything that is wrong.
    """
    frame = _caller()
    if f is not None:
        return read_function(f, frame)
    return partial(read_function, frame=frame)


@overload
def ir_module(cls: type, /) -> Module: ...
@overload
def ir_module(
    *, s_tir: bool | None = None, check_well_formed: bool = True
) -> Callable[[type], Module]: ...
def ir_module(
    cls: type | None = None, /, *, s_tir: bool | None = None, check_well_formed: bool = True
) -> Any:
    """Read a Python class as a module: its functions are those of the module.

    `s_tir` is that of its loop functions which do not say it themselves. The options are read from
    the source. Raises DiagnosticError with everything that is wrong in it.
    """
    frame = _caller()
    if cls is not None:
        return read_class(cls, frame)
    return partial(read_class, frame=frame)


@brief
def _read_macro(f: Callable[..., Any], frame: FrameType, hygienic: bool) -> Macro:
    captured = capture(frame, f.__name__, f)  # type: ignore[arg-type]
    tree = syntax_tree(captured.source)
    node = find_definition(tree, ast.FunctionDef, f.__name__, f.__code__.co_firstlineno)
    if node is None:
        raise _missing(f.__name__, captured.source.name)
    return Macro(node, captured.source, ({},), captured.value, hygienic)


def macro(f: Callable[..., Any] | None = None, /, *, hygienic: bool = True) -> Any:
    """Let a Python function stand for its statements wherever a program calls it.

    To a graph function it also returns a value. Its names are those of the place where it is
    defined; of one that is not `hygienic`, those of the place where it is called.
    """
    frame = _caller()
    if f is not None:
        return _read_macro(f, frame, hygienic)
    return partial(_read_macro, frame=frame, hygienic=hygienic)


@brief
def read_class(cls: type, frame: FrameType, *, computable: bool = True) -> Module:
    """The module that a decorator in `frame` reads; `computable` is that of `parse`."""
    functions = [f for f in vars(cls).values() if isinstance(f, FunctionType)]
    captured = capture(frame, cls.__name__, *functions)
    tree = syntax_tree(captured.source)
    node = find_definition(tree, ast.ClassDef, cls.__name__, frame.f_lineno)
    if node is None:
        raise _missing(cls.__name__, captured.source.name)
    return parse_class(captured, node, computable=computable)


name_object(function, Ref("R", "function"))
name_object(data, Ref("R", "data"))
name_object(prim_func, Ref("T", "prim_func"))
name_object(ir_module, Ref("I", "ir_module"))
name_object(macro, Ref("T", "macro"))
