"""Drawings of lesson 4: values above, memory below, and the calls between."""

from __future__ import annotations

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View


def two_levels() -> View:
    """`call_tir` joins a graph of values and loops over memory."""
    words = (
        "Above, the graph function: y is a new value, made of x and w. Below, the loop function "
        "matmul, which reads the memory X and W and stores into Y. call_tir brings memory for Y, "
        "calls the loop function, and hands Y up as the value y."
    )
    d = Drawing("call_tir joins the levels", words, 700, 230)
    d.text((10, 18), "graph function: values", bold=True)
    d.box((10, 28), (680, 64), "", None, dashed=True)
    for x, text in ((30, "x"), (120, "w")):
        d.box((x, 44), (60, 32), text, "grey", round_=16)
    d.box((262, 44), (150, 32), "call_tir(matmul)", "blue")
    d.box((486, 44), (60, 32), "y", "grey", round_=16)
    d.line((182, 60), (258, 60), arrow=True)
    d.line((414, 60), (482, 60), arrow=True)
    d.text((560, 64), "a new value", size=11, muted=True)
    d.text((10, 220), "loop function: memory", bold=True)
    d.box((10, 140), (680, 64), "", None, dashed=True)
    for x, text, hue in ((30, "X", "grey"), (120, "W", "grey"), (486, "Y", "amber")):
        d.box((x, 156), (60, 32), text, hue, round_=0)
    d.box((262, 156), (150, 32), "loops of matmul", "green")
    d.line((182, 172), (258, 172), arrow=True)
    d.line((414, 172), (482, 172), arrow=True)
    d.text((448, 165), "stores", anchor="middle", size=11)
    d.text((220, 165), "loads", anchor="middle", size=11)
    d.text((560, 176), "memory that is given", size=11, muted=True)
    d.line((300, 78), (300, 152), arrow=True, hue="blue")
    d.text((292, 120), "1. allocate Y, call", anchor="end", size=11)
    d.line((516, 152), (516, 80), arrow=True, hue="blue")
    d.text((526, 120), "2. Y is the value y", size=11)
    return d.view()


def callees() -> View:
    """The three kinds of callees of a graph function, and the code that each becomes."""
    words = (
        "An operator becomes a loop function in the pass legalize_ops. A loop function of your own "
        "is called by call_tir as it is. A library function is called by its name."
    )
    d = Drawing("Three kinds of calls", words, 700, 150)
    rows = (
        (
            "R.matmul(x, w)",
            "an operator",
            "legalize_ops",
            "call_tir, loops by the compiler",
            "blue",
        ),
        ("R.call_tir(cls.gate, …)", "your loops", "", "call_tir, your loops", "green"),
        ("R.call_dps_packed(…)", "a library", "", "a call by name", "amber"),
    )
    for i, (text, what, through, result, hue) in enumerate(rows):
        y = 10 + i * 46
        d.box((10, y), (190, 34), text, hue)
        d.text((210, y + 21), what, muted=True)
        d.line((290, y + 17), (420, y + 17), arrow=True)
        if through:
            d.text((354, y + 12), through, anchor="middle", mono=True, size=11)
        d.box((424, y), (266, 34), result, hue, mono=False)
    return d.view()
