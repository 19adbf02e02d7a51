"""Every tutorial and lab runs from top to bottom, in a kernel as JupyterLab starts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.tutorials.conftest import export_site

NOTEBOOKS = export_site().notebooks()


def outputs_of(content: Any, tag: str) -> list[Any]:
    """The outputs of the cells with a tag, cell by cell."""
    code = (c for c in content.cells if c.cell_type == "code")
    return [c.outputs for c in code if tag in c.metadata.get("tags", [])]


def texts(outputs: list[Any]) -> str:
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)


def test_there_are_nine_lessons_and_five_labs() -> None:
    folders = [n.path.parent.name for n in NOTEBOOKS]
    assert folders == ["tutorials"] * 9 + ["notebooks"] * 5
    assert len({n.title for n in NOTEBOOKS}) == 14


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.page)
def test_it_runs(notebook: Any, executed: Callable[[Any], Any]) -> None:
    """Without an error, with explorers that are views, with exercises that are not solved yet and
    solutions that are right."""
    content = executed(notebook)
    explorers = outputs_of(content, "explorer")
    assert explorers
    for outputs in explorers:
        (view,) = (o.data["text/html"] for o in outputs if "data" in o)
        assert "relaxlab-view" in view
    exercises, solutions = outputs_of(content, "exercise"), outputs_of(content, "solution")
    assert len(exercises) == len(solutions)
    if notebook.path.parent.name == "tutorials":
        assert 2 <= len(exercises) <= 4
    assert all("✗ not yet" in texts(o) for o in exercises)
    assert all("✓" in texts(o) and "✗" not in texts(o) for o in solutions)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.page)
def test_solutions_are_folded(notebook: Any) -> None:
    """JupyterLab shows their code and their output on request."""
    import jupytext

    for cell in jupytext.read(notebook.path).cells:
        hidden = {"source_hidden": True, "outputs_hidden": True}
        if "solution" in cell.metadata.get("tags", []):
            assert cell.metadata["jupyter"] == hidden
        else:
            assert "jupyter" not in cell.metadata
