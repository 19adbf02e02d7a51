"""`tvm.script.ir_builder.tir`: loop functions that are built by calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.script.recording import (
    FunctionFrame,
    Namespace,
    Recorded,
    Recorder,
    parameter,
    signature,
    text_of,
)

_MEMBERS = Namespace("T")
arg = parameter


def prim_func(is_private: bool = False, s_tir: bool | None = None, **options: Any) -> FunctionFrame:
    """The loop function that a `with` statement builds."""
    given = {"s_tir": s_tir} if s_tir else {}
    return FunctionFrame("T", private=options.pop("private", is_private), **given, **options)


def func_name(name: str) -> None:
    """Give the function its name."""
    signature().name = name


def func_ret(ret_type: Any) -> None:
    """Say what the function returns."""
    signature().ret = text_of(ret_type)


def buffer_store(buffer: Recorded, value: Any, indices: Sequence[Any]) -> None:
    """Store a value into an element of a buffer."""
    Recorder.current().line(f"{buffer[tuple(indices)].text} = {text_of(value)}")


def bind(value: Any) -> Recorded:
    """A name for a value."""
    return Recorder.current().bound(text_of(value), "v")


def buffer(*args: Any, **kwargs: Any) -> Recorded:
    """The type of a parameter that is a buffer."""
    return _MEMBERS.Buffer(*args, **kwargs)


def __getattr__(name: str) -> Namespace:
    return getattr(_MEMBERS, name)
