"""Pictures of graph, fusion and memory views, for saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.lab.drawing import CYCLE, Drawing
from relaxlab.lab.symbols import value_of

ORIGINS = {
    "operator": "blue", "loops": "green", "library": "amber", "function": "violet",
    "check": "red", "parameter": "grey", "return": "grey",
}  # fmt: skip
"""The hue of a node by where what it calls comes from; others have none."""
ROW = 18.0
"""Half the height of a node, as in static/graph_layout.js."""
GROUP = 170.0
"""The width of a closed group, as in static/graph_layout.js."""
HEAD = 24.0
"""Pixels above each function's drawing, for its name."""
SYMBOL = 64
"""The value of symbols in the picture of a memory plan, or their upper bounds if those are less."""

State = Mapping[str, Any]


def graph_drawing(title: str, words: str, functions: Sequence[State]) -> Drawing:
    """The graphs of functions one below the other, groups closed."""
    wide = max((f["top"]["width"] for f in functions), default=0)
    high = sum(f["top"]["height"] + HEAD + 10 for f in functions)
    d = Drawing(title, words, max(200.0, wide), max(40.0, high))
    top = 0.0
    for f in functions:
        d.text((8, top + 16), f["name"], bold=True, mono=True)
        _graph(d, f, top + HEAD)
        top += f["top"]["height"] + HEAD + 10
    return d


def _graph(d: Drawing, state: State, top: float) -> None:
    nodes, layout = state["nodes"], state["top"]
    of = {v: k for k, made in enumerate(state.get("made", ())) for v in made["members"]}
    for flat in layout["curves"]:
        d.curve([(x, y + top) for x, y in zip(flat[::2], flat[1::2], strict=True)])
    for item, (x, y) in zip(state["items"], layout["at"], strict=True):
        if item >= len(nodes):
            group = state["groups"][item - len(nodes)]
            text = f"{group['title']} · {group['end'] - group['start']} values"
            d.box((x - GROUP / 2, y + top - ROW), (GROUP, 2 * ROW), text, dashed=True, mono=False,
                  fontsize=11)  # fmt: skip
            continue
        node = nodes[item]
        ends = node["origin"] in ("parameter", "return")
        hue = CYCLE[of[item] % len(CYCLE)] if item in of else ORIGINS.get(node["origin"])
        if "made" in state and item not in of:
            hue = None  # colours are those of groups
        d.box((x - node["width"] / 2, y + top - ROW), (node["width"], 2 * ROW), "", hue,
              round_=16 if ends else 4)  # fmt: skip
        d.text((x, y + top - 3), node["short"][0], anchor="middle", size=11)
        d.text((x, y + top + 11), node["short"][1], anchor="middle", size=10, muted=True)


def memory_drawing(title: str, words: str, functions: Sequence[State]) -> Drawing:
    """The storages of each function's plan as compiled: time to the right, memory upwards."""
    wide, tall, left = 900.0, 220.0, 90.0
    plans = [(f, f["plans"][f["start"]], arena)
             for f in functions for arena in f["plans"][f["start"]]["arenas"]]  # fmt: skip
    d = Drawing(title, words, wide, max(60.0, len(plans) * (tall + 50)))
    for number, (f, plan, arena) in enumerate(plans):
        top = number * (tall + 50) + 24
        bounds = plan["bounds"]
        values = {s: min(SYMBOL, bounds.get(s, SYMBOL)) for s in f["symbols"]}
        size = value_of(arena["size"], values)
        sizes = ", ".join(f"{s} = {n}" for s, n in values.items())
        d.text((8, top - 8), f"{f['name']}, {arena['scope']}", bold=True)
        d.text((8 + 7.2 * len(f"{f['name']}, {arena['scope']}"), top - 8), sizes, muted=True)
        if not size:
            continue
        x = lambda step, f=f: left + (wide - left - 10) * step / max(1, len(f["steps"]))  # noqa: E731
        y = lambda b, top=top, size=size: top + tall * (1 - b / size)  # noqa: E731
        for tensor, offset, bytes_, _, _ in arena["blocks"]:
            t = f["tensors"][tensor]
            low, taken = value_of(offset, values), value_of(bytes_, values)
            if low is None or taken is None:
                continue
            at, end = (x(t["start"]), y(low + taken)), (x(t["end"] + 1), y(low))
            box = (end[0] - at[0], end[1] - at[1])
            fits = box[0] > 7 * len(t["name"]) and box[1] > 14
            d.box(at, box, t["name"] if fits else "", CYCLE[tensor % len(CYCLE)], round_=0)
        d.line((left, top + tall), (wide - 4, top + tall), arrow=True)
        d.line((left, top + tall), (left, top - 2), arrow=True)
        d.text((left - 6, top + 10), f"{size:,} bytes", anchor="end", size=11, muted=True)
        d.text((wide - 8, top + tall + 14), "program order", anchor="end", size=11, muted=True)
    return d
