"""A JupyterLab of its own for tests: a server on a free port, a folder, a page in Chromium."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from tests.test_repo import ROOT

CONFIG = """
c.ServerApp.token = c.IdentityProvider.token = ""
c.ServerApp.password = ""
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.port_retries = 50
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """The address of a server that shows `folder`; its settings are its own."""
    home = folder.parent / "jupyter"
    home.mkdir()
    (home / "jupyter_server_config.py").write_text(CONFIG)
    # Notebooks are trusted when they were signed here, by running them here.
    environment = {
        **os.environ, "JUPYTER_CONFIG_DIR": str(home), "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "run"), "PYTHONPATH": str(ROOT), "HOME": str(home),
        "RELAXLAB_CACHE": str(home / "cache"),
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--notebook-dir={folder}"]
    log = open(folder.parent / "server.log", "w")  # noqa: SIM115
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield _address(home / "run", server)
    finally:
        server.terminate()  # which ends the kernels, too
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _address(run: Path, server: subprocess.Popen[bytes]) -> str:
    for _ in range(3000):
        assert server.poll() is None, "the server ended; see server.log"
        for path in run.glob("jpserver-*.json"):
            url = json.loads(path.read_text())["url"]
            try:
                urllib.request.urlopen(f"{url}api/status", timeout=5).read()
            except OSError:
                continue
            return url
        time.sleep(0.1)
    raise TimeoutError("JupyterLab did not start within five minutes")


def notebook(path: Path, *cells: str) -> Path:
    """A notebook of code cells."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    book.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(book, path)
    return path


def menu(page: Any, *names: str) -> None:
    """Choose an item of a menu."""
    page.locator(f'.lm-MenuBar-itemLabel:text-is("{names[0]}")').click()
    for name in names[1:]:
        page.locator(f'.lm-Menu-itemLabel:text-is("{name}")').click()


def run_all(page: Any) -> None:
    """Run all cells, once the kernel is there, and wait until all have run."""
    page.wait_for_selector(".jp-StatusBar-TextItem:has-text('| Idle')")
    menu(page, "Run", "Run All Cells")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-InputArea-prompt')].filter(p => p.offsetParent)"
        ".every(p => /\\[\\d+\\]/.test(p.textContent) || !p.textContent.trim())",
    )
