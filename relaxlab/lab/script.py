"""The data with which a view shows a module's script."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.costs import cost_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node
from relaxlab.lab.payload import Interner
from relaxlab.script.printer import print_module


def script_state(node: Module | Node, interner: Interner) -> dict[str, Any]:
    """The printed script of a module or function as numbers of `interner`'s lines, for `scriptPane`
    of script.js, which finds definitions, calls, types and shapes in the text itself: `lines`
    without the compiler's own notes, and `full` with them if there are any."""
    short, full = (
        interner.ids(print_module(node, show_meta=meta).rstrip("\n").split("\n"))
        for meta in (False, True)
    )
    return {"lines": short} if short == full else {"lines": short, "full": full}


def function_facts(module: Module) -> dict[str, str]:
    """Return the cost of a call of each loop function, as text for the tips of `scriptPane`."""
    facts: dict[str, str] = {}
    for name, function in module.loop_functions().items():
        cost = cost_of(function)
        if cost is not None:
            facts[name] = (
                f"{cost.flops} floating-point operations\n"
                f"reads {cost.bytes_read} bytes, writes {cost.bytes_written}"
            )
    return facts
