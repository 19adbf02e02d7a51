"""Views with a kernel behind them: anywidget runs the modules that pages run.

The output of a cell is the recorded view, as HTML. The widget's script finds it on the page and
puts controls above it, and the views that the kernel makes in its place: a notebook that was saved,
or whose kernel was restarted, still shows the recorded view. The data goes to the page as messages,
not as synchronised state: a notebook that is saved with its widgets stays small.
"""

from __future__ import annotations

import os
import sys
import uuid
import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from relaxlab.lab import assets
from relaxlab.lab.payload import to_json

if TYPE_CHECKING:
    from relaxlab.lab.view import View


def live(view: View) -> Any:
    """Return a widget that shows `view`, and recomputes it when its controls change.

    Raises ValueError for a view without controls, and ImportError where anywidget is missing.
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

    widget = LiveView()
    first = {c.name: c.value for c in view.controls}

    def received(_: Any, message: dict[str, Any], __: Any) -> None:
        values = message["values"]
        widget.send({"type": "started"})
        try:
            # The recorded view need not be computed again when a reader returns to its settings.
            made = view if values == first else again(**values)
            widget.send({"type": "state"}, [zlib.compress(to_json(made.state))])
        except Exception as error:  # noqa: BLE001 - shown in the view, which stays as it was
            widget.send({"type": "error", "text": f"{type(error).__name__}: {error}"})

    widget.on_msg(received)
    return widget


def _outputs_are_apart() -> bool:
    """Return whether the front end shows each output in a frame of its own, or knows a widget only
    by its own output: there a script cannot find the recorded view, and the widget stands alone."""
    return "google.colab" in sys.modules or "VSCODE_PID" in os.environ
