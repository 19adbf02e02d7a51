"""The namespace `R` of the script: graph functions."""

# Private names, so that completion shows those of the language alone.
from typing import Any as _Any

from relaxlab.script import namespace as _namespace
from relaxlab.script.decorators import data as data
from relaxlab.script.decorators import function as function
from relaxlab.script.decorators import macro as macro


def __getattr__(name: str) -> _Any:
    return _namespace.member("R", name)


def __dir__() -> list[str]:
    return _namespace.names_under("R")
