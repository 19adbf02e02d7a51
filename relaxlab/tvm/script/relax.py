"""`tvm.script.relax`: the namespace `R`, whose functions are in normal form. Outside of programs
operators and values of it build calls and nodes."""

from __future__ import annotations

# Private names: those of the language are found behind them.
import inspect as _inspect
import sys as _sys
from collections.abc import Callable as _Callable
from importlib import import_module as _import_module
from typing import Any as _Any

from relaxlab.script import relax as _core
from relaxlab.script.captured import name_object as _name_object
from relaxlab.script.decorators import read_class as _read_class
from relaxlab.script.decorators import read_function as _read_function
from relaxlab.script.values import Ref as _Ref
from relaxlab.tvm.script.normal import decorated as _decorated


def function(
    f: _Callable[..., _Any] | None = None, /, *, private: bool = False, pure: bool = True,
    check_well_formed: bool = True,
) -> _Any:  # fmt: skip
    """Read a Python function as a graph function. The options are read from the source."""
    frame = _inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return _decorated(_read_function, f, frame.f_back)


def rewriter(cls: type) -> _Any:
    """The rewriter of what is like the function `pattern` of a class by its `replacement`."""
    frame = _inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    module = _decorated(_read_class, cls, frame.f_back)
    dpl = _import_module("relaxlab.tvm.relax.dpl")
    return dpl.PatternMatchingRewriter.from_module(module)


_VALUES = {
    "shape": "ShapeExpr", "const": "const", "prim_value": "PrimValue", "str": "StringImm",
    "dtype": "DataTypeImm", "tuple": "_tuple", "ShapeExpr": "ShapeExpr",
    "TupleGetItem": "TupleGetItem", "ExternFunc": "ExternFunc",
}  # fmt: skip
"""The names of values, which Python makes outside of programs, and the nodes that they make."""


def _tuple(*fields: _Any) -> _Any:
    return _import_module("relaxlab.tvm.relax.expr").Tuple(fields)


def __getattr__(name: str) -> _Any:
    if name == "device":
        return _import_module("relaxlab.tvm.runtime").device
    operators = _import_module("relaxlab.tvm.relax.op")
    if name in _VALUES:
        made = _VALUES[name]
        return _tuple if made == "_tuple" else getattr(_import_module("relaxlab.tvm.relax"), made)
    if name in dir(operators):
        return getattr(operators, name)
    return getattr(_core, name)


def __dir__() -> list[str]:
    return dir(_core)


_name_object(_sys.modules[__name__], _Ref("R"))
_name_object(function, _Ref("R", "function"))
