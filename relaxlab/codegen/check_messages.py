"""The texts of failed checks, with `{got}` and `{expected}` left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.ir import host
from relaxlab.ir.dtypes import is_float


def check_info(function: host.HostFunction, instr: host.MatchShape | host.Require) -> CheckInfo:
    """Return the messages for a failing check of `function`: one per dimension, or one in all."""
    if isinstance(instr, host.Require):
        return CheckInfo(function.name, (_open(lambda got, _: instr.text(got)),))
    match = instr

    def message(axis: int, check: host.CheckDim) -> str:
        if is_float(check.expected.dtype):  # a failing check passes integers on
            origin = f" ({check.origin})" if check.origin else ""
            return literal(f"the value of {match.what} is not {check.expected}{origin}")
        return _open(lambda got, want: match.dim_message(axis, got, want))

    messages = tuple(
        message(axis, dim) if isinstance(dim, host.CheckDim) else ""
        for axis, dim in enumerate(match.dims or ())
    )
    return CheckInfo(function.name, messages)


def _open(render: Callable[[Any, Any], str]) -> str:
    """Render a message with markers where the numbers go."""
    text = render(_Marker("\0got\0"), _Marker("\0expected\0"))
    return literal(text).replace("\0got\0", "{got}").replace("\0expected\0", "{expected}")


def literal(text: str) -> str:
    """A message that has nothing to fill in."""
    return text.replace("{", "{{").replace("}", "}}")


class _Marker(str):
    """A placeholder for a number in a message."""

    __slots__ = ()
