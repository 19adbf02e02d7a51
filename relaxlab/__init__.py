"""relaxlab: a workbench for machine-learning compilers in pure Python.

    import relaxlab as rl
    mod = rl.parse(text)             # or a class under @I.ir_module
    print(mod.script())
    exe = rl.compile(mod)
    y = exe["main"](x)

Everything is imported on first use, so `import relaxlab` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relaxlab.ir.display import register_display

if TYPE_CHECKING:
    from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
    from relaxlab.ir.equal import assert_structural_equal, structural_equal
    from relaxlab.ir.module import Module
    from relaxlab.ir.target import Target
    from relaxlab.lab.explore import explore
    from relaxlab.passes.base import Pipeline
    from relaxlab.runtime.build import compile, trace
    from relaxlab.runtime.check import CheckReport, check
    from relaxlab.runtime.executable import Executable
    from relaxlab.runtime.exported import load
    from relaxlab.runtime.interpreter import interpret
    from relaxlab.runtime.packed import register_func
    from relaxlab.runtime.simt import SimtError, SimtReport, simt
    from relaxlab.schedule.schedule import Schedule
    from relaxlab.script import parse
    from relaxlab.tracing import Trace


def _display(value: Any) -> dict[str, str]:
    return import_module("relaxlab.lab.display").mimebundle(value)


register_display(_display)

__version__ = "0.1.0"

_HOME = {
    "CheckReport": "relaxlab.runtime.check",
    "Diagnostic": "relaxlab.ir.diagnostics",
    "DiagnosticError": "relaxlab.ir.diagnostics",
    "Executable": "relaxlab.runtime.executable",
    "Module": "relaxlab.ir.module",
    "Pipeline": "relaxlab.passes.base",
    "Schedule": "relaxlab.schedule.schedule",
    "SimtError": "relaxlab.runtime.simt",
    "SimtReport": "relaxlab.runtime.simt",
    "Target": "relaxlab.ir.target",
    "Trace": "relaxlab.tracing",
    "assert_structural_equal": "relaxlab.ir.equal",
    "check": "relaxlab.runtime.check",
    "compile": "relaxlab.runtime.build",
    "explore": "relaxlab.lab.explore",
    "interpret": "relaxlab.runtime.interpreter",
    "load": "relaxlab.runtime.exported",
    "parse": "relaxlab.script",
    "register_func": "relaxlab.runtime.packed",
    "simt": "relaxlab.runtime.simt",
    "structural_equal": "relaxlab.ir.equal",
    "trace": "relaxlab.runtime.build",
}

__all__ = [
    "CheckReport",
    "Diagnostic",
    "DiagnosticError",
    "Executable",
    "Module",
    "Pipeline",
    "Schedule",
    "SimtError",
    "SimtReport",
    "Target",
    "Trace",
    "assert_structural_equal",
    "check",
    "compile",
    "explore",
    "interpret",
    "load",
    "parse",
    "register_func",
    "simt",
    "structural_equal",
    "trace",
]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext relaxlab` shows arrays as views; the rest needs no extension."""
    import_module("relaxlab.lab.extension").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext relaxlab`"""
    import_module("relaxlab.lab.extension").unload(shell)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'relaxlab' has no attribute {name!r}")
    import_module("relaxlab.script")  # registers the printer that Module.script uses
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
