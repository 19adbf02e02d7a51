"""Tutorials and labs, executed, as a folder of HTML pages that load nothing.

    python tools/export_site.py                          all of them, into build/site
    python tools/export_site.py -o site tutorials/01_tensors_to_loops.py

Explorers stay alive in the pages: they need neither a kernel nor the network. A notebook that
fails is an error, and the pages before it are kept.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from pygments.formatters import HtmlFormatter
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
HERE = ROOT / "tools/site"
FOLDERS = {"tutorials": "The course", "notebooks": "Labs"}
TIMEOUT = 600
"""Seconds that one cell may take."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook in the form of a Python file; `page` is the name of its page."""

    path: Path

    @property
    def page(self) -> str:
        """`lab-` in front of the names of labs, which start with numbers like lessons."""
        return ("lab-" if self.path.parent.name == "notebooks" else "") + self.path.stem

    @property
    def title(self) -> str:
        """Its first heading."""
        found = re.search(r"^# # (.*)$", self.path.read_text("utf-8"), re.M)
        return found[1] if found else self.path.stem

    @property
    def summary(self) -> str:
        """The first paragraph behind its first heading, without marks of Markdown."""
        found = re.search(r"^# # .*\n#\n((?:# .+\n)+)", self.path.read_text("utf-8"), re.M)
        text = " ".join(found[1].replace("# ", "").split()) if found else ""
        return re.sub(r"[*`]", "", text)


def notebooks() -> list[Notebook]:
    """All tutorials, then all labs, in the order of their names."""
    return [Notebook(p) for folder in FOLDERS for p in sorted((ROOT / folder).glob("[0-9]*.py"))]


def execute(notebook: Notebook) -> Any:
    """Run all cells in a kernel of their own; the notebook with its outputs. Raises
    CellExecutionError."""
    content = jupytext.read(notebook.path)
    place = {"metadata": {"path": notebook.path.parent}}
    client = NotebookClient(content, timeout=TIMEOUT, kernel_name="python3", resources=place)
    # The package beside this file, not another one that is installed.
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    client.execute(env={**os.environ, "PYTHONPATH": path})
    return content


def to_html(notebook: Notebook, content: Any, pages: Sequence[Notebook]) -> str:
    """The page of an executed notebook. `pages` are those that links may lead to."""
    config = Config()
    config.HTMLExporter.extra_template_basedirs = [str(HERE)]
    config.HTMLExporter.template_name = "page"
    for cell in content.cells:
        if cell.cell_type == "markdown":
            cell.source = _linked(cell.source, pages)
    at = pages.index(notebook)
    around = {
        "title": notebook.title,
        "style": style(),
        "previous": pages[at - 1].page if at > 0 else "",
        "next": pages[at + 1].page if at + 1 < len(pages) else "",
    }
    body, _ = HTMLExporter(config=config).from_notebook_node(content, {"page": around})
    return body


def _linked(markdown: str, pages: Sequence[Notebook]) -> str:
    """Links between notebooks as links between pages; a text alone where the page is not there."""
    names = {n.page for n in pages}

    def link(found: re.Match[str]) -> str:
        page = ("lab-" if found["lab"] else "") + found["name"]
        return f"[{found['text']}]({page}.html)" if page in names else found["text"]

    place = r"(?:\.\./(?:tutorials|(?P<lab>notebooks))/)?(?P<name>\d\w+)\.py"
    return re.sub(rf"\[(?P<text>[^\]]*)\]\({place}\)", link, markdown)


def style() -> str:
    """The style sheet, with colours of code for both themes."""
    light, dark = (
        HtmlFormatter(style=name).get_style_defs(".highlight") for name in ("default", "monokai")
    )
    # The background of code is that of the page's panels.
    plain = ".highlight { background: var(--panel); color: inherit }"
    return (
        f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        f"{(HERE / 'style.css').read_text('utf-8')}\n{plain}\n"
    )


def index_html(pages: Sequence[Notebook]) -> str:
    """The page that lists all others."""
    parts: list[str] = []
    for folder, title in FOLDERS.items():
        items = [
            f'<li><a href="{escape(n.page)}.html">{escape(n.title)}</a>'
            f"<p>{escape(n.summary)}</p></li>"
            for n in pages
            if n.path.parent.name == folder
        ]
        if items:
            parts.append(f"<h2>{title}</h2>\n<ul>\n{chr(10).join(items)}\n</ul>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<title>relaxlab</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style()}\nul {{ list-style: none; padding-left: 0 }}\n"
        "li p { margin: 0 0 0.8rem }</style>\n</head>\n"
        "<body>\n<main>\n<h1>relaxlab</h1>\n"
        "<p>How a compiler for machine learning works, with every step to look at. The pages were "
        "executed; their explorers are alive.</p>\n"
        f"{chr(10).join(parts)}\n</main>\n</body>\n</html>\n"
    )


def _site(chosen: Sequence[Notebook], folder: Path) -> list[Notebook]:
    """The pages that a folder has once the chosen ones are written: those of earlier calls, too."""
    there = [n for n in notebooks() if n in chosen or (folder / f"{n.page}.html").exists()]
    return [*there, *(n for n in chosen if n not in there)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Export what the command line asks for; 1 where a notebook fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="notebooks; all when left out")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build/site", metavar="FOLDER")
    options = parser.parse_args(arguments)
    chosen = [Notebook(p.resolve()) for p in options.files] or notebooks()
    options.output.mkdir(parents=True, exist_ok=True)
    pages = _site(chosen, options.output)
    for notebook in chosen:
        start = time.perf_counter()
        html = to_html(notebook, execute(notebook), pages)
        target = options.output / f"{notebook.page}.html"
        target.write_text(html, "utf-8")
        seconds = time.perf_counter() - start
        print(f"{target}  {len(html) / 1e6:.1f} MB  {seconds:.0f} s", flush=True)
    (options.output / "index.html").write_text(index_html(pages), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
