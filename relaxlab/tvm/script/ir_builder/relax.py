"""`tvm.script.ir_builder.relax`: graph functions that are built by calls."""

from __future__ import annotations

from typing import Any

from relaxlab.script.recording import (
    Branch,
    Branches,
    Dataflow,
    FunctionFrame,
    Namespace,
    Recorded,
    Recorder,
    parameter,
    signature,
    text_of,
)

_MEMBERS = Namespace("R")
arg = parameter


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """The graph function that a `with` statement builds."""
    return FunctionFrame("R", pure=is_pure, private=is_private)


def func_name(name: str) -> None:
    """Give the function its name."""
    signature().name = name


def func_ret_ty(ret_ty: Any) -> None:
    """Say what the function returns."""
    signature().ret = text_of(ret_ty)


func_ret_struct_info = func_ret_ty


def func_ret_value(value: Any) -> None:
    """End the function with a value."""
    Recorder.current().line(f"return {text_of(value)}")


dataflow = Dataflow


def emit(value: Any, annotate_ty: Any = None) -> Recorded:
    """A variable that is bound to a value."""
    return Recorder.current().bound(text_of(value), "gv")


def emit_match_cast(value: Any, ty: Any) -> Recorded:
    """A variable that is bound to a value, with a type that is checked."""
    return Recorder.current().bound(f"R.match_cast({text_of(value)}, {text_of(ty)})", "gv")


def output(*values: Any) -> None:
    """Make variables of a dataflow block known outside of it."""
    block = Recorder.current().dataflow
    assert block is not None, "R.output belongs inside of R.dataflow()"
    block.output(*values)


def If(condition: Any) -> Branches:  # noqa: N802
    """A choice, by `Then` and `Else` in it."""
    return Branches(condition)


def Then() -> Branch:  # noqa: N802
    """The branch of an `If` for a condition that holds."""
    return Branch(then=True)


def Else() -> Branch:  # noqa: N802
    """The branch of an `If` for a condition that does not hold."""
    return Branch(then=False)


def __getattr__(name: str) -> Namespace:
    return getattr(_MEMBERS, name)
