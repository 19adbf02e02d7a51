"""Tutorials and labs, each executed once per session in a kernel of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests.test_repo import ROOT


@cache
def export_site() -> ModuleType:
    """The script `tools/export_site.py` as a module."""
    spec = importlib.util.spec_from_file_location("export_site", ROOT / "tools/export_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["export_site"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def executed() -> Callable[[Any], Any]:
    """`executed(notebook)`: its cells with their outputs."""
    return cache(export_site().execute)
