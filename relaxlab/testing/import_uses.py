"""The operators that rows of an importer's table use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from relaxlab.frontend.emitter import Emitter
from relaxlab.ir import graph
from relaxlab.ir.node import walk
from relaxlab.ops.block_builder import BlockBuilder

Uses = dict[str, list[str]]
"""The names of operators by that of a row."""


@contextmanager
def watched() -> Iterator[Uses]:
    """Note the calls that rows bind while programs are imported."""
    uses: Uses = {}
    running: list[str] = []
    apply, bind = Emitter.apply, BlockBuilder.emit

    def applied(b: Emitter, name: str, *args: Any, **named: Any) -> Any:
        running.append(name)
        try:
            return apply(b, name, *args, **named)
        finally:
            running.pop()

    def bound(bb: BlockBuilder, value: Any, name: str = "") -> graph.Var:
        var = bind(bb, value, name)
        if running and isinstance(value, graph.Expr):
            found = {op.name for op in walk(value) if isinstance(op, graph.Op)}
            uses[running[-1]] = sorted(found.union(uses.get(running[-1], ())))
        return var

    with patch.object(Emitter, "apply", applied), patch.object(BlockBuilder, "emit", bound):
        yield uses
