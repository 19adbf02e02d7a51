"""Declarations of the statements of a block, collected while a loop function is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir import loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.script.roots import TRUE


@dataclass
class BlockState:
    """The declarations that the statements of a block (or of the function, outside blocks) make."""

    name: str
    is_root: bool = False
    iter_vars: list[loops.IterVar] = field(default_factory=list[loops.IterVar])
    iter_values: list[PrimExpr] = field(default_factory=list[PrimExpr])
    reads: list[loops.BufferRegion] | None = None
    writes: list[loops.BufferRegion] | None = None
    predicate: PrimExpr = TRUE
    init: loops.Stmt | None = None
    allocs: list[loops.Buffer] = field(default_factory=list[loops.Buffer])
    views: list[loops.MatchBufferRegion] = field(default_factory=list[loops.MatchBufferRegion])
    annotations: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Pending:
    """A statement whose body is the rest of the statement list: a let, the loop of a thread."""

    around: Callable[[loops.Stmt], loops.Stmt]
