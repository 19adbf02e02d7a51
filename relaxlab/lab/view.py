"""A recorded explorer: data, the name of the JavaScript module that shows it, and a plain text.

The HTML needs no kernel and loads nothing. It begins with the text, which is what remains where
scripts may not run (a notebook that is not trusted); a script replaces it by the view. The same
modules run inside notebooks as widgets of anywidget (`View.live`).
"""

from __future__ import annotations

import os
import platform
import sys
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Protocol, TypeAlias

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.errors import path_of
from relaxlab.lab import assets
from relaxlab.lab.payload import pack, to_json

REFRESH_SECONDS = 0.5  # at least between two refreshments of a live view while something goes on
REFRESH_SHARE = 20.0  # of the time that one took, as a pause after it

_PRE = (
    "max-height:32em;overflow:auto;margin:0;padding:8px 10px;white-space:pre;"
    "font:12px/1.45 ui-monospace,Menlo,Consolas,monospace"
)


@dataclass(frozen=True, slots=True)
class Control:
    """A control of a live view: a `choice` among `choices`, a `number`, a `switch` (on or off), a
    `program` (the text of a script), or an `inner` one, which the view itself has."""

    name: str
    kind: Literal["choice", "number", "switch", "program", "inner"]
    value: str | int | float | bool
    choices: tuple[str, ...] = ()


class Picture(Protocol):
    """A drawing, as far as a view that can be saved as a picture knows it."""

    def svg(self, *, alone: bool = ...) -> str:
        """The text of an SVG element; `alone`: of a file, with colours for light and dark."""
        ...


Draw: TypeAlias = Callable[[], Picture]
"""A function that returns the drawing of a view that is saved as a picture."""


@methods_name_arguments
@dataclass(frozen=True, slots=True)
class View:
    """One recorded explorer. `kind` names `static/<kind>.js`, `state` is JSON data for it, `text`
    is read where no script runs. `again` makes the view anew from the values of `controls`, by
    name, for live versions of it. `drawing` draws what can be saved as a picture (None: a view of
    texts). `program`: the name of the program that it shows, if its title does not have it."""

    kind: str
    title: str
    state: Mapping[str, Any]
    text: str
    controls: tuple[Control, ...] = field(default=(), repr=False)
    again: Callable[..., View] | None = field(default=None, repr=False)
    drawing: Draw | None = field(default=None, repr=False)
    program: str = field(default="", repr=False, kw_only=True)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The modules that its page needs."""
        return (self.kind,)

    def html(self, *, addressed: bool = False, live: str = "") -> str:
        """A fragment for a notebook or a page, complete in itself. `addressed`: what is chosen in
        it stands in the page's address. `live`: the name by which a live view finds it."""
        marks = {"address": "true" if addressed else "", "live": live}
        more = "".join(f'data-{key}="{escape(value)}" ' for key, value in marks.items() if value)
        code = assets.compressed(*self.kinds, addressed=addressed)
        return (
            f'<div class="relaxlab-view" data-kind="{escape(self.kind)}" {more}'
            f'aria-label="{escape(self.title)}" role="region" data-lm-suppress-shortcuts="true">'
            f'<pre tabindex="0" style="{_PRE}">{escape(self.text)}</pre>'
            f'<script type="application/x-relaxlab-code">{code}</script>'
            f'<script type="application/x-relaxlab-state">{pack(self.state)}</script>'
            f"<script>{assets.source('host.js')}</script></div>"
        )

    def page(self) -> str:
        """A whole HTML page with this view, which needs neither a kernel nor the network. What its
        reader chooses stands in the page's address, so that a link leads to a tab and a step."""
        heading = f"{self.title} of {self.program}" if self.program else self.title
        made = f"{_made_by()} · Python {platform.python_version()} · {date.today()}"
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(heading)}</title><style>:root{{color-scheme:light dark}}"
            "body{margin:0;padding:12px;background:light-dark(#fff,#14161a);"
            "color:light-dark(#1b1f24,#e3e6ea);font:13px/1.45 system-ui,sans-serif}"
            "header{display:flex;flex-wrap:wrap;gap:0 12px;align-items:baseline;margin:0 0 8px}"
            "h1{font-size:16px;margin:0;flex:1}main{--room:calc(100vh - 18em)}</style></head>"
            f"<body><header><h1>{escape(heading)}</h1><span>{made}</span></header>"
            f"<main>{self.html(addressed=True)}</main></body></html>\n"
        )

    def svg(self) -> str:
        """The drawing of the view as the text of an SVG file, with colours for light and dark.

        Raises ValueError for a view that draws nothing.
        """
        if self.drawing is None:
            raise ValueError(
                f"the {self.kind} view has no drawing; save it as a page: view.save('page.html')"
            )
        return self.drawing().svg(alone=True)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `page`, or `svg` for a name that ends so, to a file, whole or not at all. Devices
        and pipes are written to as they are.

        Raises OSError where that cannot be, ValueError for a name that promises another format and
        for a picture of a view that draws nothing.
        """
        target = path_of(path, "the path of a saved view")
        if target.is_dir():
            raise IsADirectoryError(f"{target} is a folder: name a file in it, such as view.html")
        suffix = target.suffix.lower()
        if suffix not in ("", ".html", ".htm", ".svg"):
            raise ValueError(_other_format(target))
        if not target.parent.is_dir():
            raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}")
        text = self.svg() if suffix == ".svg" else self.page()
        place = target.resolve()  # a link stays a link
        if place.exists() and not place.is_file():
            place.write_text(text, encoding="utf-8")  # a device or a pipe would be replaced
            return target
        # In the same folder, or renaming it would not be atomic.
        partial = place.with_name(f".{place.name}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(place)
        return target

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html()}

    def live(self) -> Any:
        """This view with controls that make it anew, by the kernel.

        Raises ValueError for a view without controls, ImportError where anywidget is missing.
        """
        return _widget(self)

    def __repr__(self) -> str:
        return f"<{self.title}: {self.kind} view>"


def _widget(view: View) -> Any:
    """Return a widget that shows `view`, and recomputes it when its controls change.

    The output of a cell is the recorded view, as HTML. The widget's script finds it on the page and
    puts controls above it, and the views that the kernel makes in its place: a notebook that was
    saved, or whose kernel was restarted, still shows the recorded view. The data goes to the page
    as messages, not as synchronised state: a notebook that is saved with its widgets stays small.
    """
    again = view.again
    if again is None:
        raise ValueError(f"a kernel adds nothing to the {view.kind} view: display it as it is")
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise ImportError("live views need anywidget: pip install 'relaxlab[lab]'") from None

    class LiveView(anywidget.AnyWidget):
        """One live view."""

        _esm = assets.link("live", *view.kinds)
        place = traitlets.Unicode(uuid.uuid4().hex).tag(sync=True)
        kind = traitlets.Unicode(view.kind).tag(sync=True)
        controls = traitlets.List([asdict(c) for c in view.controls]).tag(sync=True)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            recorded = {"text/plain": view.text, "text/html": view.html(live=self.place)}
            if not _outputs_are_apart():
                return recorded
            shown = super()._repr_mimebundle_(**options)
            bundle, metadata = shown if isinstance(shown, tuple) else (shown, {})
            return {**recorded, **(bundle or {})}, metadata

        def refresh(self, report: object = None) -> None:
            """Show what is there by now, with the settings of the reader. It is called while
            something goes on, and may be given to `tune(report=...)`: a call with a report is left
            out while so much time was spent on the last ones that it would hold up a search."""
            updates.refresh(often=report is not None)

    widget = LiveView()
    updates = _Updates(view, again, widget.send)
    widget.on_msg(lambda _, message, __: updates.answer(message["values"]))
    return widget


@dataclass(slots=True)
class _Updates:
    """The states that a live view sends to the page, made from the values of its controls."""

    view: View
    again: Callable[..., View]
    send: Callable[..., None]
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    next_time: float = 0.0

    def answer(self, values: dict[str, Any]) -> None:
        """Show the view for values of the controls."""
        self.values = values
        first = {c.name: c.value for c in self.view.controls}
        self.send({"type": "started"})
        # The recorded view need not be computed again when a reader returns to its settings.
        self._show(lambda: self.view if values == first else self.again(**values))

    def refresh(self, *, often: bool) -> None:
        """Show the view as it is by now; `often`: unless that would take more than a twentieth of
        the time."""
        start = monotonic()
        if often and start < self.next_time:
            return
        self._show(lambda: self.again(**self.values))
        now = monotonic()
        self.next_time = now + max(REFRESH_SECONDS, REFRESH_SHARE * (now - start))

    def _show(self, make: Callable[[], View]) -> None:
        try:
            self.send({"type": "state"}, [zlib.compress(to_json(make().state))])
        except KeyboardInterrupt:
            self.send({"type": "error", "text": "interrupted; the view is that of before"})
            raise
        except Exception as error:  # noqa: BLE001 - shown in the view, which stays as it was
            text = f"{type(error).__name__}: {str(error).strip()}"
            self.send({"type": "error", "text": text})


def _outputs_are_apart() -> bool:
    """Return whether the front end shows each output in a frame of its own, or knows a widget only
    by its own output: there a script cannot find the recorded view, and the widget stands alone."""
    return "google.colab" in sys.modules or "VSCODE_PID" in os.environ


def _other_format(target: Path) -> str:
    """Return the advice for a file name of a format that views are not written in."""
    if target.suffix.lower() in (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"):
        return (
            f"{target.name} takes a program that paints SVG, which relaxlab does not bring: save "
            f"{target.stem}.svg and convert it (`rsvg-convert {target.stem}.svg -o {target.stem}"
            ".png`), or press the button PNG above the drawing of a graph"
        )
    return (
        f"a view is saved as HTML or SVG, which {target.name} does not say: "
        f"name it {target.stem}.html"
    )


def _made_by() -> str:
    try:
        return f"relaxlab {version('relaxlab')}"
    except PackageNotFoundError:  # it runs from its folder
        return "relaxlab"


class Page(View):
    """Several views under tabs."""

    __slots__ = ()

    @staticmethod
    def of(title: str, views: Sequence[View]) -> Page:
        """The tabs are the titles of the views. Raises ValueError when there are none."""
        if not views:
            raise ValueError("a page needs at least one view")
        tabs = [{"kind": v.kind, "title": v.title, "state": v.state} for v in views]
        text = "\n\n".join(f"# {v.title}\n\n{v.text}" for v in views)
        return Page("page", title, {"tabs": tabs}, text)

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("page", *dict.fromkeys(tab["kind"] for tab in self.state["tabs"]))
