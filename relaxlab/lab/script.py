"""What a view needs to show a module's script."""

from __future__ import annotations

from typing import Any

from relaxlab.ir.module import Module
from relaxlab.ir.node import Node
from relaxlab.lab.payload import Interner
from relaxlab.script.printer import print_module


def script_state(node: Module | Node, interner: Interner) -> dict[str, Any]:
    """The printed script of a module or function as numbers of `interner`'s lines, for `scriptPane`
    of script.js, which finds definitions, calls, types and shapes in the text itself."""
    return {"lines": interner.ids(print_module(node).rstrip("\n").split("\n"))}
