"""`tvm.script.ir`: the namespace `I`, whose modules are in normal form."""

from __future__ import annotations

# Private names: those of the language are found behind them.
import inspect as _inspect
import sys as _sys
from typing import Any as _Any

from relaxlab.script import ir as _core
from relaxlab.script.captured import name_object as _name_object
from relaxlab.script.decorators import read_class as _read_class
from relaxlab.script.values import Ref as _Ref
from relaxlab.tvm.script.normal import decorated as _decorated


def ir_module(
    cls: type | None = None, /, *, s_tir: bool | None = None, check_well_formed: bool = True
) -> _Any:
    """Read a Python class as a module. The options are read from the source."""
    frame = _inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return _decorated(_read_class, cls, frame.f_back)


def __getattr__(name: str) -> _Any:
    return getattr(_core, name)


def __dir__() -> list[str]:
    return dir(_core)


_name_object(_sys.modules[__name__], _Ref("I"))
_name_object(ir_module, _Ref("I", "ir_module"))
