"""`relaxlab course`: notebooks of one's own, and how many exercises are solved."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from relaxlab.cli import main


def cells_of(path: Path) -> list[dict]:
    notebook = json.loads(path.read_text("utf-8"))
    nbformat.validate(nbformat.from_dict(notebook))
    return notebook["cells"]


def tagged(path: Path, tag: str) -> list[dict]:
    return [c for c in cells_of(path) if tag in c["metadata"].get("tags", ())]


def text(cell: dict) -> str:
    return "".join(cell["source"])


def test_the_course_becomes_notebooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course", str(tmp_path)]) == 0
    lessons, labs = sorted(tmp_path.glob("*.ipynb")), sorted(tmp_path.glob("labs/*.ipynb"))
    count = len(lessons) + len(labs)
    assert f"wrote {count} of {count} notebooks to {tmp_path}" in capsys.readouterr().out
    for path in (*lessons, *labs):
        assert not any(".py)" in text(c) for c in cells_of(path))
    for path in lessons:
        solutions, exercises = tagged(path, "solution"), tagged(path, "exercise")
        assert len(solutions) == len(exercises) > 2
        assert all(text(c).startswith("<details><summary>Solution<") for c in solutions)
        assert tagged(path, "figure")
    assert (tmp_path / "exercises" / "lesson1.py").exists()
    assert (tmp_path / "labs" / "exercises" / "lab7.py").exists()
    assert (tmp_path / "figures" / "lesson1.py").exists()
    assert (tmp_path / "labs" / "figures" / "lab6.py").exists()


def test_the_command_that_opens_it_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["course", str(tmp_path / "my course")]) == 0
    assert f"jupyter lab '{tmp_path}/my course'" in capsys.readouterr().out


def test_without_solutions(tmp_path: Path) -> None:
    assert main(["course", str(tmp_path), "--no-solutions"]) == 0
    for path in tmp_path.glob("*.ipynb"):
        assert tagged(path, "exercise") and not tagged(path, "solution")


def test_existing_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["course", str(tmp_path)])
    first, second, *_ = sorted(tmp_path.glob("*.ipynb"))
    first.write_text("mine")
    second.unlink()
    capsys.readouterr()
    assert main(["course", str(tmp_path)]) == 0
    assert "wrote 1 of " in capsys.readouterr().out
    assert first.read_text() == "mine" and second.exists()


def test_a_summary_of_what_is_solved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course", str(tmp_path), "--summary"]) == 2
    assert "there are no lessons in" in capsys.readouterr().err
    main(["course", str(tmp_path)])
    first = min(tmp_path.glob("*.ipynb"))
    notebook = json.loads(first.read_text("utf-8"))
    exercises = [c for c in notebook["cells"] if "exercise" in c["metadata"].get("tags", ())]
    for cell, verdict in zip(exercises, ("✓ right", "✗ not yet: wrong"), strict=False):
        data = {"text/plain": [verdict]}
        cell["outputs"] = [{"output_type": "execute_result", "data": data}]
    first.write_text(json.dumps(notebook), "utf-8")
    capsys.readouterr()
    assert main(["course", str(tmp_path), "--summary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [first.stem, "1", "of", str(len(exercises))]
    assert lines[-1].split()[:3] == ["solved", "1", "of"]


def test_a_notebook_that_is_being_saved_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["course", str(tmp_path)])
    path = sorted(tmp_path.glob("*.ipynb"))[1]
    whole = path.read_text("utf-8")
    path.write_text(whole[:100], "utf-8")
    monkeypatch.setattr("time.sleep", lambda _: path.write_text(whole, "utf-8"))
    assert main(["course", str(tmp_path), "--summary"]) == 0

    monkeypatch.setattr("time.sleep", lambda _: None)
    for text in ("", whole[:100], "[]", "{}"):
        path.write_text(text, "utf-8")
        capsys.readouterr()
        assert main(["course", str(tmp_path), "--summary"]) == 2
        assert f"{path} is no notebook: save it in Jupyter again" in capsys.readouterr().err
