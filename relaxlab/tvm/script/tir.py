"""`tvm.script.tir`, today's `tirx`: the namespace `T`, whose functions are read as TVM's."""

from __future__ import annotations

# Private names: those of the language are found behind them.
import inspect as _inspect
import sys as _sys
from collections.abc import Callable as _Callable
from typing import Any as _Any

from relaxlab.script import tir as _core
from relaxlab.script.captured import name_object as _name_object
from relaxlab.script.decorators import read_function as _read_function
from relaxlab.script.values import Ref as _Ref
from relaxlab.tvm.script.normal import decorated as _decorated


def prim_func(
    f: _Callable[..., _Any] | None = None, /, *, private: bool = False, s_tir: bool | None = None,
    check_well_formed: bool = True,
) -> _Any:  # fmt: skip
    """Read a Python function as a loop function. The options are read from the source."""
    frame = _inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return _decorated(_read_function, f, frame.f_back)


def __getattr__(name: str) -> _Any:
    return getattr(_core, name)


def __dir__() -> list[str]:
    return dir(_core)


_name_object(_sys.modules[__name__], _Ref("T"))
_name_object(prim_func, _Ref("T", "prim_func"))
