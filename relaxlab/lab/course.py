"""The course and the labs as notebooks in a folder of the reader's.

Their sources are Python files (jupytext's percent format), which hold no outputs. A copy as
``.ipynb`` holds its reader's edits and outputs, and leaves the package and the checkout alone.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from relaxlab.ir.errors import UserError

FOLDERS = {"tutorials": ".", "notebooks": "labs"}
"""Folders of the lessons and the labs in the source tree, and in a course."""
PACKAGES = ("exercises", "figures")
"""The checks and the drawings, which lessons and labs import from beside them."""


SAVING_TRIES, SAVING_PAUSE = 10, 0.1
"""Attempts at a notebook that cannot be read, and the seconds between them."""


class BrokenNotebook(UserError):
    """A file of the course cannot be read as a notebook."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file of the course. `kept`: there was one already, which is left unchanged."""

    path: Path
    kept: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """The number of exercises of a lesson that its checks called right."""

    lesson: str
    solved: int
    exercises: int


def source_folder() -> Path:
    """The folder with the lessons: inside an installed package, or the checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "course", package.parent):
        if (folder / "tutorials").is_dir():
            return folder
    raise FileNotFoundError("this installation of relaxlab came without its course")


def write_course(folder: Path, *, solutions: bool = True) -> Iterator[Written]:
    """Write the notebooks that `folder` lacks, the checks of their exercises and their drawings.

    solutions: below each exercise, folded; without, they are left out. Raises ImportError without
    jupytext, OSError where the folder cannot be written to.
    """
    source = source_folder()
    for origin, target in FOLDERS.items():
        for path in sorted((source / origin).glob("[0-9]*.py")):
            goal = folder / target / f"{path.stem}.ipynb"
            kept = goal.exists()
            if not kept:
                goal.parent.mkdir(parents=True, exist_ok=True)
                goal.write_text(_notebook(path, solutions), "utf-8")
            yield Written(goal, kept)
    ignore = shutil.ignore_patterns("__pycache__")
    for origin, target in FOLDERS.items():
        for beside in (source / origin / name for name in PACKAGES):
            if beside.is_dir():
                goal = folder / target / beside.name
                shutil.copytree(beside, goal, ignore=ignore, dirs_exist_ok=True)


def progress_of(folder: Path) -> list[Progress]:
    """The exercises of each lesson in a folder that `write_course` wrote to, as their outputs were
    saved. Raises FileNotFoundError where there are none, BrokenNotebook for a file that is none."""
    found: list[Progress] = []
    for path in sorted(folder.glob("[0-9]*.ipynb")):
        cells = _cells(path)
        exercises = [c for c in cells if "exercise" in c["metadata"].get("tags", ())]
        if exercises:
            solved = sum(any(map(_is_right, c.get("outputs", ()))) for c in exercises)
            found.append(Progress(path.stem, solved, len(exercises)))
    if not found:
        raise FileNotFoundError(
            f"there are no lessons in '{folder}'; `relaxlab course {folder}` writes them"
        )
    return found


def _cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook, which Jupyter may be about to save: it empties the file, and writes
    it anew."""
    for _ in range(SAVING_TRIES):
        try:
            return json.loads(path.read_text("utf-8"))["cells"]
        except (json.JSONDecodeError, UnicodeDecodeError):
            time.sleep(SAVING_PAUSE)
        except (KeyError, TypeError):
            break
    raise BrokenNotebook(
        f"{path} is no notebook: save it in Jupyter again, or delete it and let "
        f"`relaxlab course {path.parent}` write a new one"
    )


def _is_right(output: dict[str, Any]) -> bool:
    """True for the output of a check that found the answer right."""
    text = output.get("data", {}).get("text/plain", "")
    return ("".join(text) if isinstance(text, list) else text).startswith("✓")


def _notebook(path: Path, solutions: bool) -> str:
    try:
        jupytext: Any = import_module("jupytext")
    except ImportError:
        raise ImportError("the course takes JupyterLab: pip install 'relaxlab[lab]'") from None
    notebook = jupytext.read(path)
    cells: list[Any] = []
    for cell in notebook.cells:
        if "solution" in cell.metadata.get("tags", ()):
            if not solutions:
                continue
            cell = _folded(cell)
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((\d\d_\w+)\.py\)", r"](\1.ipynb)", cell.source)
        cells.append(cell)
    notebook.cells = cells
    notebook.metadata.pop("jupytext", None)
    return jupytext.writes(notebook, fmt="ipynb")


def _folded(cell: Any) -> Any:
    """A solution as text under a line that unfolds it: it is not run with everything else, where it
    would print that the exercise is solved."""
    nbformat: Any = import_module("nbformat")
    text = f"<details><summary>Solution</summary>\n\n```python\n{cell.source}\n```\n\n</details>"
    return nbformat.v4.new_markdown_cell(text, metadata={"tags": ["solution"]})
