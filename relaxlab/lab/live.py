"""Views with a kernel behind them: anywidget runs the modules that pages run.

The data goes to the page as messages, not as synchronised state: a notebook that is saved with its
widgets stays small.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from relaxlab.lab import assets
from relaxlab.lab.payload import to_json

if TYPE_CHECKING:
    from relaxlab.lab.view import View


def live(view: View) -> Any:
    """A widget that shows `view` and makes it anew with what its controls say.

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
        kind = traitlets.Unicode(view.kind).tag(sync=True)
        controls = traitlets.List([asdict(c) for c in view.controls]).tag(sync=True)

        def _repr_mimebundle_(self, **options: Any) -> Any:
            shown = super()._repr_mimebundle_(**options)
            bundle, metadata = shown if isinstance(shown, tuple) else (shown, {})
            # Pages made of the notebook, and front ends without widgets, show the recorded view.
            return {**(bundle or {}), **view._repr_mimebundle_()}, metadata

    widget = LiveView()
    first = {c.name: c.value for c in view.controls}

    def received(_: Any, message: dict[str, Any], __: Any) -> None:
        values = message["values"]
        try:
            made = view if values == first else again(**values)
            widget.send({"type": "state"}, [zlib.compress(to_json(made.state))])
        except Exception as error:  # noqa: BLE001 - shown in the view, which stays as it was
            widget.send({"type": "error", "text": f"{type(error).__name__}: {error}"})

    widget.on_msg(received)
    return widget
