"""Root blocks: when a loop function's script leaves its root block out."""

from __future__ import annotations

from relaxlab.ir import loops
from relaxlab.ir.expr import IntImm

TRUE = IntImm(1, "bool")


def has_own_root(body: loops.Stmt) -> bool:
    """True if the root block is written: `body` is one, or chooses between bodies with one."""
    match body:
        case loops.BlockRealize((), _, loops.Block("root", ())):
            return True
        case loops.IfThenElse(_, yes, no):
            return has_own_root(yes) and (no is None or has_own_root(no))
        case _:
            return False


def implied_root(body: loops.Stmt) -> loops.Block | None:
    """The root block that is added where none is written, if `body` is just that."""
    match body:
        case loops.BlockRealize((), predicate, loops.Block("root", (), (), (), inner, None) as b):
            plain = predicate == TRUE and not b.match_buffers and not b.annotations
            return b if plain and (b.alloc_buffers or not has_own_root(inner)) else None
        case _:
            return None
