"""Drawings of lesson 2: from text to nodes and back."""

from __future__ import annotations

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View


def round_trip() -> View:
    """The way of a program from its text into nodes, and back into text."""
    words = (
        "Python's parser reads the text of the class. relaxlab turns what it found into nodes, and "
        "checks them. The printer makes text of nodes again, which can be read again."
    )
    d = Drawing("From text to nodes and back", words, 660, 150)
    stages = (
        ("the text\nof the class", None, 10),
        ("Python's\nsyntax tree", "grey", 190),
        ("nodes of\nrelaxlab", "blue", 370),
    )
    for text, hue, x in stages:
        d.box((x, 34), (110, 50), text, hue, mono=False)
    for x, text in ((120, "ast.parse"), (300, "parser")):
        d.line((x + 4, 59), (x + 66, 59), arrow=True)
        d.text((x + 34, 52), text, anchor="middle", size=11)
    d.line((480, 59), (542, 59), arrow=True)
    d.text((512, 52), "checks", anchor="middle", size=11)
    d.box((546, 34), (104, 50), "an error\nwith its place", "red", mono=False)
    d.line((425, 88), (425, 122), (65, 122), (65, 90), arrow=True)
    d.text((245, 116), "script(): the printer", anchor="middle", size=11)
    d.text((190, 22), "Python never runs it", size=11, muted=True)
    return d.view()
