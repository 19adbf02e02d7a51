"""The namespace `I` of the script: modules. Written by tools/write_reference.py."""

from __future__ import annotations

# pyright: reportUnusedImport=false, reportMissingModuleSource=false
# Names of the script hide those of Python: `R.sum`, `T.bool`.
from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Iterator as _Iterator, Sequence as _Sequence
from contextlib import AbstractContextManager as _Context
from typing import Any as _Any, TypeVar as _TypeVar, overload as _overload

from relaxlab.ir.module import Module as _Module
from relaxlab.script.stub_types import Argument as _Argument, Buffer as _Buffer, Value as _Value

@_overload
def ir_module(f: _Any, /) -> _Functions:
    """Read a Python class as a module: its functions are those of the module.
    
    `s_tir` is that of its loop functions which do not say it themselves. The options are read from
    the source. Raises DiagnosticError with everything that is wrong in it."""

@_overload
def ir_module(*, check_well_formed: _bool = True) -> _Callable[[_Any], _Functions]:
    """Read a Python class as a module: its functions are those of the module.
    
    `s_tir` is that of its loop functions which do not say it themselves. The options are read from
    the source. Raises DiagnosticError with everything that is wrong in it."""


class _Functions(_Module):
    """A module; its functions are attributes, too."""

    def __getattr__(self, name: _str) -> _Any: ...

def GlobalVar(name: _Any) -> _Value:
    """A function of the module by its name, where no class is around it.

        I.GlobalVar("main")
    """

def dummy_global_info() -> _Value:
    """A piece of shared information that says nothing.

        I.module_global_infos({"dummy": [I.dummy_global_info()]})
    """

def meta_var(value: _Any) -> _Value:
    """A value of the surrounding Python, bound to a name as it is.

        tile = I.meta_var(32)
    """

def module_attrs(attrs: _Any) -> None:
    """Attributes of the module, as a dictionary.

        I.module_attrs({"owner": "me"})
    """

def module_global_infos(infos: _Any) -> None:
    """What the functions of a module share beside attributes: its virtual devices.

        I.module_global_infos({"vdevice": [I.vdevice("cuda", 0)]})
    """

def vdevice(target: _Any, vdevice_id: _Any = 0, memory_scope: _Any = 'global') -> _Value:
    """A virtual device: a target, which of its devices, and a kind of memory.

        I.vdevice("cuda", 0, "global")
    """
