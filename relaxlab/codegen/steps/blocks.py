"""Steps that take blocks away: initialisations as conditions, axes as their bindings, no blocks."""

from __future__ import annotations

from relaxlab.codegen.lower_blocks import (
    axis_values,
    init_as_condition,
    lower_blocks,
    with_variables,
    without_matches,
)
from relaxlab.codegen.separate_inits import separate_inits
from relaxlab.ir.loops import Block, BlockRealize, For, PrimFunc
from relaxlab.ir.node import Node, map_children, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ONE
from relaxlab.schedule.tree import TRUE, all_blocks


def init_blocks_as_conditions(func: PrimFunc) -> PrimFunc:
    """The function whose blocks initialise under the condition that their reduce axes are at their
    first values; reductions that may be over nothing are initialised apart before."""

    def visit(n: Node) -> Node | None:
        return init_as_condition(n) if isinstance(n, Block) and n.init is not None else None

    body = rewrite(separate_inits(func.body), visit)
    return func if body is func.body else replace(func, body=body)


def blocks_without_axes(func: PrimFunc) -> PrimFunc:
    """The function whose blocks have the bindings of their axes in place of these.

    Raises ValueError for a block that has an initialisation, whose place the axes say.
    """
    for block in all_blocks(func):
        if block.init is not None:
            raise ValueError(
                f"block {block.name!r} has an initialisation: make it a condition first, by "
                "LowerInitBlock"
            )

    def visit(n: Node) -> Node:
        if isinstance(n, BlockRealize) and n.iter_values:
            bindings, fixed = axis_values(n)
            bound = substitute(replace(n.block, iter_vars=()), bindings)
            bound = replace(bound, body=with_variables(bound.body, fixed))
            n = BlockRealize((), n.predicate, bound, span=n.span)
        return map_children(n, visit)

    return visit(func)  # type: ignore[return-value]


def views_as_regions(func: PrimFunc) -> PrimFunc:
    """The function in which blocks access the buffers themselves of which they matched regions."""

    def visit(n: Node) -> Node | None:
        return without_matches(n) if isinstance(n, Block) and n.match_buffers else None

    return rewrite(func, visit)


def _without_unit_loop(n: Node) -> Node | None:
    """The body of a loop of one iteration without annotations."""
    if isinstance(n, For) and n.kind in ("serial", "unrolled") and not n.annotations:
        return substitute(n.body, {n.loop_var: n.min}) if n.extent == ONE else None
    return None


def without_blocks(func: PrimFunc) -> PrimFunc:
    """The function as plain loops, with all that blocks allocated in its root block, and without
    loops of one iteration."""
    body, allocated = lower_blocks(func.body)
    body = rewrite(body, _without_unit_loop)
    if not isinstance(func.body, BlockRealize) and not allocated:
        return replace(func, body=body)
    root = Block("root", (), (), (), body, alloc_buffers=allocated)
    return replace(func, body=BlockRealize((), TRUE, root))
