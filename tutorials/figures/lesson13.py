"""Drawings of lesson 13: two trees with their bound, a frontier."""

from __future__ import annotations

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View

HUES = {"leaf": "blue", "inner": "green", "output": "amber"}


def _node(d: Drawing, at: tuple[float, float], of_type: str, batch: str) -> None:
    d.circle(at, 13, HUES[of_type], of_type)
    d.text((at[0], at[1] + 4), batch, anchor="middle", size=11)


def two_trees() -> View:
    """A tree of three levels and one of a single level, with the numbers of batches by depth and
    with waiting classifiers."""
    words = "by depth 6 batches, since the classifiers run apart; with waiting 5, the bound"
    d = Drawing("Two trees in batches", words, 640, 236)
    high = {
        "a": (60, 60), "b": (60, 100), "c": (60, 140), "d": (60, 180),
        "e": (130, 80), "f": (200, 110), "g": (270, 145), "h": (340, 145),
    }  # fmt: skip
    low = {"i": (430, 90), "j": (430, 150), "k": (500, 120), "l": (570, 120)}
    types = {**dict.fromkeys("abcdij", "leaf"), **dict.fromkeys("efgk", "inner"),
             **dict.fromkeys("hl", "output")}  # fmt: skip
    batch = {"e": "2", "k": "2", "f": "3", "g": "4", "h": "5", "l": "5"}
    places = {**high, **low}
    for start, end in ("ae", "be", "ef", "cf", "fg", "dg", "gh", "ik", "jk", "kl"):
        (x, y), (u, v) = places[start], places[end]
        d.line((x + 13, y), (u - 13, v), hue="grey")
    for name, at in places.items():
        _node(d, at, types[name], batch.get(name, "1"))
    d.text((60, 28), "leaf", anchor="middle", bold=True)
    d.text((200, 28), "inner", anchor="middle", bold=True)
    d.text((340, 28), "output", anchor="middle", bold=True)
    d.text((320, 214), "the output at the right waits for the other one; by depth it runs alone",
           anchor="middle")  # fmt: skip
    d.text((320, 230), "bound: 1 leaf + 3 inner + 1 output", anchor="middle", muted=True)
    return d.view()


def frontier() -> View:
    """Of one type four nodes that are left: two ready, one in the frontier that waits for another
    type, one behind another of its own type."""
    words = "of four green nodes three are in the frontier, and two of these are ready"
    d = Drawing("Ready nodes and the frontier", words, 640, 200)
    d.text((110, 22), "ready", anchor="middle", bold=True)
    d.text((260, 22), "waits for another type", anchor="middle", bold=True)
    d.text((470, 22), "waits for its own", anchor="middle", bold=True)
    d.box((60, 36), (290, 104), "", "grey")
    _node(d, (110, 66), "inner", "")
    _node(d, (110, 110), "inner", "")
    d.line((260, 160), (260, 104), hue="grey", arrow=True)
    _node(d, (260, 172), "output", "")
    _node(d, (260, 88), "inner", "")
    d.line((273, 88), (457, 88), hue="grey", arrow=True)
    _node(d, (470, 88), "inner", "")
    d.text((470, 162), "the frontier: 3 nodes, 2 of them ready", anchor="middle")
    d.text((470, 180), "reward -1 + 2/3", anchor="middle", muted=True)
    return d.view()
