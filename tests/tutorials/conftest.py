"""Tutorials and labs, each executed once per run of the tests, in a kernel of its own."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import nbformat
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
def executed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    """`executed(notebook)`: its cells with their outputs. Worker processes share them in files,
    since all notebooks take three minutes to execute."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def content(notebook: Any) -> Any:
        path = folder / f"{notebook.page}.ipynb"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                nbformat.write(export_site().execute(notebook), path)
            return nbformat.read(path, as_version=4)

    return content
