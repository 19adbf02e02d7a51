"""The programs of docs/tasks run, and docs/index.md leads to every page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_repo import ROOT

DOCS = ROOT / "docs"
TASKS = sorted((DOCS / "tasks").glob("*.md"))


@pytest.mark.parametrize("page", TASKS, ids=lambda p: p.stem)
def test_the_program_of_a_task_runs(page: Path, tmp_path: Path) -> None:
    if page.stem == "export" and shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    assert blocks
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks), "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RELAXLAB_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_index_leads_to_every_page() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)", index)}
    pages = {p.resolve() for p in DOCS.rglob("*.md")} - {(DOCS / "index.md").resolve()}
    assert pages <= linked, pages - linked
