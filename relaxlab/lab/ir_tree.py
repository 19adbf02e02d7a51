"""The tree explorer: the nodes of a program, each linked with its text."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np

from relaxlab.ir.brief import cut
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import NO_ATTRS, Atom, Node, field_names
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import program_controls
from relaxlab.lab.view import View
from relaxlab.script import parse
from relaxlab.script.printer import print_with_map

MOST_NODES = 4_000
"""Nodes that are shown of a program; of the rest, their number."""
LONGEST = 80
"""Most characters of a node's values beside its type."""


def tree(program: Node | str, name: str | None = None) -> View:
    """The nodes of a module, a function or a part of one, or of the text of a script.

    name: a function of the module. Each node has the name of its field, its type and its values
    that are no nodes; pointing at one lights its lines in the script. Raises KeyError for a name
    that is no function of the module, TypeError for what is no node.
    """
    node = parse(program) if isinstance(program, str) else program
    if not isinstance(node, Node):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected a module, a function or a script, got {type(node).__name__}")
    if name is not None:
        if not isinstance(node, Module) or name not in node:
            known = among(name, node if isinstance(node, Module) else ())
            raise KeyError(f"no function {name!r}; there are: {known}")
        node = node[name]
    text, spans = print_with_map(node)
    lines = {path: [span.line - 1, span.end_line - 1] for path, span in spans.items()}
    budget = [MOST_NODES]
    root = _node(node, "", "", lines, budget)
    interner = Interner()
    notes = [] if budget[0] > 0 else [f"The first {MOST_NODES:,} nodes are shown."]
    title = f"Nodes of {getattr(node, 'name_hint', '') or type(node).__name__}"
    state = {
        "title": title, "root": root, "notes": notes,
        "lines": interner.ids(text.rstrip("\n").split("\n")), "table": interner.lines,
    }  # fmt: skip
    controls = program_controls(program)
    again = (lambda program: tree(program, name)) if controls else None
    return View("ir_tree", title, state, "\n".join(_text(root, 0)), controls, again)


def _node(
    node: Node, label: str, path: str, lines: dict[str, list[int]], budget: list[int]
) -> list[Any]:
    """`[label, type, values, lines of the text or None, children]` of a node."""
    budget[0] -= 1
    facts: list[str] = []
    children: list[list[Any]] = []
    if isinstance(node, Atom):
        facts.append(cut(node.name, LONGEST))
    else:
        defaults = {f.name: f.default for f in dataclasses.fields(cast(Any, node))}
        for field in field_names(type(node)):
            value = getattr(node, field)
            nodes = list(_nodes_in(value, field, f"{path}.{field}"))
            usual = ((), None, NO_ATTRS, defaults.get(field))
            # NumPy compares the data of a constant element by element.
            if not nodes and (isinstance(value, np.ndarray) or value not in usual):
                facts.append(f"{field}={cut(repr(value), LONGEST)}")
            for name, where, child in nodes:
                if budget[0] > 0:
                    children.append(_node(child, name, where, lines, budget))
    return [label, type(node).__name__, cut(", ".join(facts), LONGEST), lines.get(path), children]


def _nodes_in(value: Any, label: str, path: str) -> Any:
    """Yield the nodes that a field holds, directly, in tuples or in pairs with a name: each after
    its label and its path."""
    if isinstance(value, Node):
        yield label, path, value
    elif isinstance(value, tuple):
        for i, one in enumerate(value):  # type: ignore[reportUnknownVariableType]
            match one:
                case (str() as name, Node()):  # a function of a module
                    yield name, f"[{name!r}]", one[1]
                case _:
                    yield from _nodes_in(one, f"{label}[{i}]", f"{path}[{i}]")


def _text(node: list[Any], depth: int) -> list[str]:
    label, kind, facts, _, children = node
    name = f"{label}: " if label else ""
    own = "  " * depth + f"{name}{kind}" + (f" ({facts})" if facts else "")
    return [own, *(line for child in children for line in _text(child, depth + 1))]
