"""`tvm.script.ir_builder.ir`: modules that are built by calls."""

from __future__ import annotations

from relaxlab.script.recording import Frame, Namespace, Recorder

_MEMBERS = Namespace("I")


class _ModuleFrame(Frame):
    """The class of a module."""

    def __enter__(self) -> None:
        Recorder.current().line("@I.ir_module")
        super().__enter__()


def ir_module() -> Frame:
    """The module that a `with` statement builds."""
    return _ModuleFrame("class Module:")


def __getattr__(name: str) -> Namespace:
    return getattr(_MEMBERS, name)
