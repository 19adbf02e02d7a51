"""The namespace `T` of the script: loop functions."""

# Private names, so that completion shows those of the language alone.
from typing import Any as _Any

from relaxlab.script import namespace as _namespace
from relaxlab.script.decorators import macro as macro
from relaxlab.script.decorators import prim_func as prim_func

inline = macro


def __getattr__(name: str) -> _Any:
    return _namespace.member("T", name)


def __dir__() -> list[str]:
    return _namespace.names_under("T")
