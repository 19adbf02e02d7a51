"""The import hook with which `import tvm` finds `relaxlab.tvm`, and newer names of its packages the
older ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_HERE = __package__ or "relaxlab.tvm"
_THEIRS = "tvm"
_RENAMED = {
    f"{_HERE}.s_tir.meta_schedule": f"{_HERE}.meta_schedule",
    f"{_HERE}.s_tir": f"{_HERE}.tir",
    f"{_HERE}.tirx": f"{_HERE}.tir",
    f"{_HERE}.sym": f"{_HERE}.arith",
    f"{_HERE}.prim": f"{_HERE}.tir",
    f"{_HERE}.dlight": f"{_HERE}.tir.dlight",
    **dict.fromkeys((f"{_HERE}.tir.buffer", f"{_HERE}.tir.stmt"), f"{_HERE}.tir"),
    **dict.fromkeys(
        (f"{_HERE}.relax.dpl.{n}" for n in ("context", "pattern", "rewrite")), f"{_HERE}.relax.dpl"
    ),
    **dict.fromkeys(
        (
            f"{_HERE}.relax.op.{n}"
            for n in (
                "base", "binary", "create", "datatype", "index", "linear_algebra", "manipulate",
                "mask", "qdq", "sampling", "search", "set", "sorting", "statistical", "ternary",
                "unary",
            )
        ),
        f"{_HERE}.relax.op",
    ),
    **dict.fromkeys(
        (f"{_HERE}.topi.{n}" for n in ("broadcast", "math", "reduction", "scan", "transform")),
        f"{_HERE}.topi",
    ),
    f"{_HERE}.relax.global_info": f"{_HERE}.ir",
    **dict.fromkeys(
        (f"{_HERE}.ir.{n}" for n in ("attrs", "base", "expr", "global_info", "type")), f"{_HERE}.ir"
    ),
    f"{_HERE}.runtime.vm": f"{_HERE}.relax.vm",
    f"{_HERE}.runtime.ndarray": f"{_HERE}.runtime",
    **dict.fromkeys((f"{_HERE}.te.operation", f"{_HERE}.te.tensor"), f"{_HERE}.te"),
    f"{_HERE}.driver.build_module": f"{_HERE}.driver",
    f"{_HERE}.script.ir_builder.tirx": f"{_HERE}.script.ir_builder.tir",
    f"{_HERE}.target.target": f"{_HERE}.target",
}
"""Other names of packages and of their modules, with what has the same names here."""


class _Finder(MetaPathFinder, Loader):
    """Finds modules under other names than their own; `tvm` and its submodules, before a TVM that
    is installed, once it may."""

    for_tvm = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first = fullname.partition(".")[0]
        if first != _HERE.partition(".")[0] and not (self.for_tvm and first == _THEIRS):
            return None
        ours = _ours(fullname)
        if ours == fullname or find_spec(ours) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own empty module: `exec_module` puts ours in its place."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(_ours(module.__name__))


def _ours(name: str) -> str:
    here = _HERE + name.removeprefix(_THEIRS) if name.partition(".")[0] == _THEIRS else name
    for newer, older in _RENAMED.items():
        if f"{here}.".startswith(f"{newer}."):
            return older + here.removeprefix(newer)
    return here


_FINDER = _Finder()
sys.meta_path.insert(0, _FINDER)


def install() -> None:
    """Let `import tvm` and imports of its submodules find relaxlab's, for notebooks and pytest.

    Raises ImportError where another `tvm` was imported before.
    """
    other = sys.modules.get(_THEIRS)
    if other is not None and other is not sys.modules[_HERE]:
        raise ImportError("another tvm is imported already: call install() before `import tvm`")
    _FINDER.for_tvm = True
