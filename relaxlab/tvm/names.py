"""Modules whose names are rows of a table: `NAME: "HOME:NAME"`, imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any


def lookup(home: str) -> Any:
    """The value of a row: "module:name", or "module" alone for the module itself."""
    module, _, name = home.partition(":")
    value: Any = import_module(module)
    return getattr(value, name) if name else value


def names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module `package`: its names are the rows of `homes`, and
    its submodules. A name of TVM that relaxlab lacks raises AttributeError."""

    def get(name: str) -> Any:
        if name == "__all__":  # which `from ... import *` asks for
            return listing()
        if name in homes:
            value = lookup(homes[name])
        elif not name.startswith("_") and _has_submodule(package, name):
            return import_module(f"{package}.{name}")
        else:
            theirs = package.removeprefix("relaxlab.")
            text = f"{theirs}.{name} is not among the names of TVM that relaxlab has"
            raise AttributeError(text, name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        defined = [n for n in vars(sys.modules[package]) if not n.startswith("_")]
        folders = getattr(sys.modules[package], "__path__", ())
        return sorted({*homes, *defined, *(m.name for m in iter_modules(folders))})

    return get, listing


def _has_submodule(package: str, name: str) -> bool:
    is_package = hasattr(sys.modules[package], "__path__")
    return is_package and find_spec(f"{package}.{name}") is not None
