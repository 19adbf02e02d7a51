"""The import hook with which `import tvm` finds `relaxlab.tvm`."""

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


class _Finder(MetaPathFinder, Loader):
    """Finds `tvm` and its submodules here, before a TVM that is installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != _THEIRS or find_spec(_ours(fullname)) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own empty module: `exec_module` puts ours in its place."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(_ours(module.__name__))


def _ours(name: str) -> str:
    return _HERE + name.removeprefix(_THEIRS)


_FINDER = _Finder()


def install() -> None:
    """Let `import tvm` and imports of its submodules find relaxlab's, for notebooks and pytest.

    Raises ImportError where another `tvm` was imported before.
    """
    other = sys.modules.get(_THEIRS)
    if other is not None and other is not sys.modules[_HERE]:
        raise ImportError("another tvm is imported already: call install() before `import tvm`")
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
