"""Blocks away: a loop function becomes plain loops over buffers.

Block axes are replaced by their bindings, or become variables where the block changes what these
read; predicates and reduction inits become conditionals, and match buffers become accesses of the
buffer they view. Blocks that are tensor intrinsics get
their code. Reductions that may be over nothing are initialised apart first.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import accumulate
from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.implement_intrinsics import implemented
from relaxlab.codegen.separate_inits import separate_inits
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr, Var, all_of, binary
from relaxlab.ir.loops import Buffer, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.annotate import is_together
from relaxlab.schedule.regions import rewrite_accesses

TRUE = IntImm(1, "bool")
MOST_COPIES = 64
"""Copies of a statement in short loops of a vector's lanes: the sorting network of nine values has
36 steps."""


def lower_blocks(body: Stmt) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The block-free statement and all buffers that the blocks allocated, in order."""
    allocated: list[Buffer] = []

    def visit(n: Node) -> Node:
        if isinstance(n, loops.BlockRealize):
            return _lower(n, allocated, visit)
        count = len(allocated)
        made = map_children(n, visit)
        if isinstance(made, loops.For) and is_together(made) and allocated[count:]:
            made, allocated[count:] = _with_lanes(made, allocated[count:])
        return made

    return cast("Stmt", visit(separate_inits(body))), tuple(allocated)


def _with_lanes(loop: loops.For, inside: list[Buffer]) -> tuple[loops.For, list[Buffer]]:
    """A loop whose iterations are lanes, or side by side, with an element for each of them of the
    buffers that they allocate, and these buffers. Lanes are the last dimension, so that they are
    neighbours in memory."""
    lane = loop.loop_var - loop.min
    body, made = loop.body, list[Buffer]()
    for buffer in inside:
        wide = replace(buffer, shape=(*buffer.shape, loop.extent))
        body = rewrite_accesses(body, buffer, wide, lambda at: (*at, lane), lambda region: region)
        made.append(wide)
    return replace(loop, body=_unrolled(body)), made


def _unrolled(body: Stmt) -> Stmt:
    """The statement with short loops unrolled, the innermost first: an element that a loop variable
    chooses of a buffer is in no register, and what differs between iterations of a loop is not
    loaded in front of one around it."""
    an = Analyzer()

    def visit(n: Node) -> tuple[Node, float]:
        """The node, and the copies that there will be of what is in it."""
        if isinstance(n, loops.For):
            an.bind_range(n.loop_var, loops.Range(n.min, n.extent))
        copies = [1.0]

        def inside(child: Node) -> Node:
            made, count = visit(child)
            copies.append(count)
            return made

        made = map_children(n, inside)
        if not isinstance(made, loops.For):
            return made, max(copies)
        count = an.upper_bound(made.extent)
        total = math.inf if count is None else max(copies) * max(count, 1)
        if made.kind != "serial" or total > MOST_COPIES:
            return made, math.inf
        return replace(made, kind="unrolled"), total

    return cast("Stmt", visit(body)[0])


def _lower(
    realize: loops.BlockRealize, allocated: list[Buffer], visit: Callable[[Node], Node]
) -> Stmt:
    block = implemented(realize.block)
    allocated.extend(block.alloc_buffers)
    bindings, fixed = axis_values(realize)
    body = init_as_condition(block).body
    body = substitute(body, bindings)
    for match in reversed(block.match_buffers):
        body = _inline_match(body, substitute(match, bindings))
    # Blocks inside come after substitution, which gives their bindings the values of the axes here.
    body = with_variables(cast("Stmt", visit(body)), fixed)
    if realize.predicate == TRUE:
        return body
    return loops.IfThenElse(realize.predicate, body, span=realize.span)


def axis_values(
    realize: loops.BlockRealize,
) -> tuple[dict[Var, PrimExpr], dict[Var, PrimExpr]]:
    """The values of a block's axes: those that are the same throughout the block, and those that
    read what it writes, which have to be computed before."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    bindings = {it.var: value for it, value in pairs}
    written = {r.buffer for r in realize.block.writes}
    written |= {n.buffer for n in walk(realize.block) if isinstance(n, loops.BufferStore)}
    fixed = {
        var: value for var, value in bindings.items()
        if any(isinstance(n, loops.BufferLoad) and n.buffer in written for n in walk(value))
    }  # fmt: skip
    return {var: value for var, value in bindings.items() if var not in fixed}, fixed


def with_variables(body: Stmt, values: dict[Var, PrimExpr]) -> Stmt:
    """The statement with variables that have these values."""
    for var, value in reversed(values.items()):
        body = loops.LetStmt(var, value, body)
    return body


def init_as_condition(block: loops.Block) -> loops.Block:
    """The block with its initialisation at the beginning of its body, under the condition that its
    reduce axes are at their first values."""
    if block.init is None:
        return block
    first = all_of(
        [
            binary(expr.EQ, it.var, it.dom.min)
            for it in block.iter_vars
            # An axis of one element is always at its first.
            if it.kind == "reduce" and it.dom.extent != expr.const(1)
        ]
    )
    init: Stmt = block.init
    if first != TRUE:
        init = loops.IfThenElse(first, init, span=init.span)
    return replace(block, body=seq(init, block.body), init=None)


def without_matches(block: loops.Block) -> loops.Block:
    """The block with accesses of the buffers of which it matched regions."""
    body = block.body
    for match in reversed(block.match_buffers):
        body = _inline_match(body, match)
    return replace(block, body=body, match_buffers=())


def _inline_match(body: Stmt, match: loops.MatchBufferRegion) -> Stmt:
    """Accesses of `match.buffer` become accesses of the region it views.

    The view's dimensions are the last ones of the source; leading source dimensions stay at the
    region's start.
    """
    source = match.source.buffer
    starts = [r.min for r in match.source.region]
    lead = len(starts) - match.buffer.ndim

    def indices(old: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (*starts[:lead], *(i + s for i, s in zip(old, starts[lead:], strict=True)))

    def swap(n: Node) -> Node | None:
        match n:
            case loops.BufferLoad(buffer, old) if buffer is match_buffer:
                return loops.BufferLoad(source, indices(old))
            case loops.BufferStore(buffer, value, old) if buffer is match_buffer:
                return loops.BufferStore(source, value, indices(old))
            case loops.BufferRegion(buffer, ranges) if buffer is match_buffer:
                firsts = indices(tuple(r.min for r in ranges))
                extents = (*(expr.const(1) for _ in starts[:lead]), *(r.extent for r in ranges))
                region = tuple(map(loops.Range, firsts, extents))
                return loops.BufferRegion(source, region)
            case _:
                return None

    match_buffer = match.buffer
    return substitute(rewrite(body, swap), _layout_of(match))


def _layout_of(match: loops.MatchBufferRegion) -> dict[Var, PrimExpr]:
    """The values of the symbols for a view's strides and for the place of its first element."""
    view, source = match.buffer, match.source.buffer
    strides = source.strides
    if not strides:
        steps = accumulate(reversed(source.shape), lambda a, b: binary(expr.Mul, b, a))
        strides = (*reversed([*steps][:-1]), expr.const(1))
    starts = [r.min for r in match.source.region]
    values = dict(zip(view.strides, strides[source.ndim - view.ndim :], strict=False))
    if view.elem_offset is not None:
        first = source.elem_offset or expr.const(0)
        values[view.elem_offset] = sum(map(operator.mul, starts, strides), first)
    return {v: value for v, value in values.items() if isinstance(v, Var)}
