"""Packages of other frameworks, which are imported when one of their programs is."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from relaxlab.ir.errors import UserError


class PackageMissing(UserError, ImportError):
    """A package that an importer needs is not installed in this environment."""


def package(name: str) -> ModuleType:
    """The package of that name. Raises PackageMissing."""
    try:
        return import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        text = f"this needs the package {top}, which is not installed here: pip install {top}"
        raise PackageMissing(text) from error
