"""The namespace `I` of the script: modules."""

# Private names, so that completion shows those of the language alone.
from typing import Any as _Any

from relaxlab.script import namespace as _namespace
from relaxlab.script.decorators import ir_module as ir_module


def __getattr__(name: str) -> _Any:
    return _namespace.member("I", name)


def __dir__() -> list[str]:
    return _namespace.names_under("I")
