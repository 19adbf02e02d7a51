"""Neighbouring loop nests as a function of their own, which is scheduled by itself.

What the nests share with the rest of the function are parameters of theirs: buffers, and the
variables of serial loops around them. Steps that are allowed for all arguments of that function are
allowed in its place (outlining; Muchnick, *Advanced Compiler Design and Implementation*, section
15.3, describes the inverse).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from relaxlab.ir import expr
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    For,
    IterVar,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    nested,
    seq,
)
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import Attrs, Node, replace, rewrite, walk
from relaxlab.ir.substitute import free_symbols, substitute, symbols_in
from relaxlab.schedule.bounds import RANGES, SIGNED
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.own_elements import buffers_in
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.tree import TRUE, map_realizes, realizes_under, with_other_names


@dataclass(frozen=True, slots=True)
class Nests:
    """The statements that run one after the other in a function, and the serial loops, outermost
    first, around all of them."""

    loops: tuple[For, ...]
    stmts: tuple[Stmt, ...]


def nests_of(func: PrimFunc) -> Nests:
    """Return the statements in the root block, or in the serial loops around all of these; of one
    nest, in those of its loops that are steps, each of which begins with what the last one left."""
    assert isinstance(func.body, BlockRealize)
    whole = func.body.block.body
    loops: list[For] = []
    inside = whole
    while isinstance(inside, For) and inside.kind == "serial" and not inside.annotations:
        loops.append(inside)
        inside = inside.body
    if isinstance(inside, SeqStmt):
        return Nests(tuple(loops), inside.stmts)
    steps = [*takewhile(lambda loop: _is_step(loop, whole), loops)]
    return Nests(tuple(steps), (steps[-1].body if steps else whole,))


def _is_step(loop: For, stmt: Stmt) -> bool:
    """True if the loop's variable gives opaque axes alone their values, in all blocks."""
    kinds = [
        {it.kind for it, v in zip(r.block.iter_vars, r.iter_values, strict=True)
         if loop.loop_var in symbols_in(v)}
        for r in realizes_under(stmt)
    ]  # fmt: skip
    return all(found == {"opaque"} for found in kinds)


def apart(
    func: PrimFunc, blocks: Collection[str]
) -> tuple[PrimFunc, Callable[[PrimFunc], PrimFunc]]:
    """Return the nests from the first to the last of the blocks as a function of their own, and a
    function that puts a schedule of it in their place.

    Raises ScheduleError where these blocks are in no nests of the root block or of the serial loops
    around all of it, or share buffers in other memories than `global` with other nests.
    """
    nests = nests_of(func)
    at = [i for i, s in enumerate(nests.stmts) if _holds(s, blocks)]
    if not at or (not nests.loops and len(nests.stmts) == at[-1] - at[0] + 1):
        raise _refused(blocks, "they are some of the loop nests that run one after the other")
    chosen = slice(at[0], at[-1] + 1)
    stmt = seq(*nests.stmts[chosen])
    owned, shared = _allocated(func, nests, chosen)
    if any(b.scope != "global" for b in shared):
        raise _refused(blocks, "buffers that they share with other nests are in main memory")
    inner = _parameters(func, nests)
    outer = {new: v for v, new in inner.items()}
    body = _unbound(substitute(stmt, inner), set(outer))
    scalars = (*(p for p in func.params if isinstance(p, Var)), *outer)
    params = (*_buffers(func, shared, stmt), *scalars)
    root = Block("root", (), (), (), body, None, owned)
    ranges = dict(func.attrs.get(RANGES, {}))
    ranges |= {
        inner[x.loop_var].name: substitute(Range(x.min, x.extent), inner) for x in nests.loops
    }
    sizes_of_params = symbols_in(tuple(p.shape for p in func.params if isinstance(p, Buffer)))
    # Buffers between nests become parameters, whose extents would be taken for sizes.
    signed = {p.name for p in scalars} - {s.name for s in sizes_of_params}
    signed |= {*func.attrs.get(SIGNED, ())}
    attrs = func.attrs.with_(
        **{RANGES: Attrs(ranges) or None, SIGNED: tuple(sorted(signed)) or None}
    )
    made = replace(func, params=params, body=BlockRealize((), TRUE, root), attrs=attrs)

    def spliced(scheduled: PrimFunc) -> PrimFunc:
        if scheduled.params != params or not isinstance(scheduled.body, BlockRealize):
            raise _refused(blocks, "their schedule leaves the layout of what they share")
        part = scheduled.body.block
        sizes = {b: _for_all_steps(b, scheduled, outer, blocks) for b in part.alloc_buffers}
        part = substitute(part, buffers={b: new for b, new in sizes.items() if new is not b})
        others = (nests.stmts[: chosen.start], nests.stmts[chosen.stop :])
        taken = {n.name for n in walk(seq(*others[0], *others[1])) if isinstance(n, Block)}
        body = substitute(with_other_names(part.body, taken), outer)
        stmts = bound_to_axes(body, nests.loops)
        whole = nested(nests.loops, seq(*others[0], stmts, *others[1]))
        assert isinstance(func.body, BlockRealize)
        block = func.body.block
        allocated = tuple(b for b in block.alloc_buffers if b not in owned)
        block = replace(block, body=whole, alloc_buffers=(*allocated, *part.alloc_buffers))
        return replace(func, body=replace(func.body, block=block))

    return made, spliced


def _refused(blocks: Collection[str], condition: str) -> ScheduleError:
    return ScheduleError("schedule_apart", f"blocks {', '.join(blocks)}", condition)


def _for_all_steps(
    buffer: Buffer, scheduled: PrimFunc, steps: Mapping[Var, Var], blocks: Collection[str]
) -> Buffer:
    """Return the buffer as large as it is in the last steps, where no other ones need more: it is
    allocated once."""
    if not steps.keys() & set(symbols_in(buffer.shape)):
        return buffer
    an = shape_analyzer(scheduled)
    shape: tuple[expr.PrimExpr, ...] = buffer.shape
    for v in reversed(list(steps)):
        found: Range = scheduled.attrs[RANGES][v.name]
        last = found.min + found.extent - 1
        shape = tuple([substitute(d, {v: last}) for d in shape])
    if not all(an.prove(expr.LE(x, y)) for x, y in zip(buffer.shape, shape, strict=True)):
        raise _refused(blocks, f"the size of {buffer.name} never falls from step to step")
    return replace(buffer, shape=tuple(map(an.simplify, shape)))


def _holds(stmt: Stmt, blocks: Collection[str]) -> bool:
    return any(r.block.name in blocks for r in realizes_under(stmt))


def _allocated(
    func: PrimFunc, nests: Nests, chosen: slice
) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Return the buffers that the function allocates and only the chosen nests use, and those that
    others use as well. Inside loops an iteration may find what another one left."""
    assert isinstance(func.body, BlockRealize)
    inside, others = (
        {b for s in stmts for b in buffers_in(s)}
        for stmts in (
            nests.stmts[chosen],
            (*nests.stmts[: chosen.start], *nests.stmts[chosen.stop :]),
        )
    )
    mine = [b for b in func.body.block.alloc_buffers if b in inside]
    owned = tuple(b for b in mine if b not in others and not nests.loops)
    return owned, tuple(b for b in mine if b not in owned)


def _parameters(func: PrimFunc, nests: Nests) -> dict[Var, Var]:
    """Return a parameter for the variable of each loop around the nests. Ranges are known by name,
    so no two share one."""
    taken = {v.name for v in symbols_in(func.params)}
    inner: dict[Var, Var] = {}
    for v in (loop.loop_var for loop in nests.loops):
        inner[v] = Var(fresh_name(v.name, taken.__contains__), v.dtype)
        taken.add(inner[v].name)
    return inner


def _buffers(func: PrimFunc, shared: Sequence[Buffer], stmt: Stmt) -> list[Buffer]:
    """The parameters and shared buffers that the nests use, and others in whose shapes alone are
    symbols that ranges and extents may mention."""
    used = buffers_in(stmt)
    known = set(symbols_in(tuple(b.shape for b in (*func.buffers, *shared) if b in used)))
    kept: list[Buffer] = []
    for b in (*func.buffers, *shared):
        new = set(symbols_in(b.shape)) - known
        known |= new
        if b in used or new:
            kept.append(b)
    return kept


def _unbound(stmt: Stmt, outer: Collection[Var]) -> Stmt:
    """The statement whose blocks mention what is fixed in all of it, not an axis bound to it."""

    def visit(n: Node) -> Node | None:
        if not isinstance(n, BlockRealize):
            return None
        pairs = list(zip(n.block.iter_vars, n.iter_values, strict=True))
        fixed = {it.var: v for it, v in pairs if v in outer}
        if not fixed:
            return None
        iter_vars = tuple(it for it, _ in pairs if it.var not in fixed)
        block = replace(n.block, iter_vars=iter_vars)
        values = tuple(v for it, v in pairs if it.var not in fixed)
        return replace(n, iter_values=values, block=substitute(block, fixed))

    return rewrite(stmt, visit)


def bound_to_axes(stmt: Stmt, loops: Sequence[For]) -> Stmt:
    """The statement whose blocks mention the variables of loops around it through axes."""
    ranges = {loop.loop_var: Range(loop.min, loop.extent) for loop in loops}

    def with_axes(n: BlockRealize) -> BlockRealize:
        if not n.block.iter_vars and realizes_under(n.block.body):
            # A block that holds the buffers of an iteration sees the loops around it.
            inside = map_realizes(n.block.body, with_axes)
            return replace(n, block=replace(n.block, body=inside))
        mentioned = {v for v in free_symbols(n.block) if v in ranges}
        for v in reversed(ranges):  # the range of an inner one may depend on outer ones
            if v in mentioned:
                mentioned.update(symbols_in(ranges[v]))
        axes = {v: Var(f"v{v.name}", v.dtype) for v in ranges if v in mentioned}
        iter_vars = tuple(
            IterVar(axis, substitute(ranges[v], axes), "opaque") for v, axis in axes.items()
        )
        block = substitute(n.block, axes)
        block = replace(block, iter_vars=(*iter_vars, *block.iter_vars))
        return replace(n, iter_values=(*axes, *n.iter_values), block=block)

    return map_realizes(stmt, with_axes)
