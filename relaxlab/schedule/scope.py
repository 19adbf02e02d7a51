"""Dependences between the blocks of one scope, and the role of a loop for the blocks under it."""

from __future__ import annotations

from relaxlab.analysis.index_map import NotAnIterMap, detect_iter_map
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    For,
    IterVar,
    PrimFunc,
    Stmt,
)
from relaxlab.ir.node import children, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ONE, ZERO, analyzer_at, binding_of
from relaxlab.schedule.tree import (
    BlockPlace,
    LoopPlace,
    child_stmts,
    describe_block,
    describe_loop,
    path_to,
    realizes_under,
    vars_in,
)


def written(block: Block) -> list[Buffer]:
    """The buffers a block writes."""
    return [r.buffer for r in block.writes]


def read(block: Block) -> list[Buffer]:
    """The buffers a block reads."""
    return [r.buffer for r in block.reads]


def producers_of(block: Block, scope: Block) -> list[BlockRealize]:
    """The blocks of the scope that write what `block` reads."""
    wanted = set(read(block))
    return [r for r in realizes_under(scope.body)
            if r.block is not block and wanted & set(written(r.block))]  # fmt: skip


def consumers_of(block: Block, scope: Block) -> list[BlockRealize]:
    """The blocks of the scope that read what `block` writes."""
    wanted = set(written(block))
    return [r for r in realizes_under(scope.body)
            if r.block is not block and wanted & set(read(r.block))]  # fmt: skip


def is_sole_writer(block: Block, scope: Block) -> bool:
    """True if no other block of the scope writes what `block` writes."""
    mine = set(written(block))
    others = [r.block for r in realizes_under(scope.body) if r.block is not block]
    return not any(mine & set(written(b)) for b in others)


def is_complete(block: Block, scope: Block) -> bool:
    """True if `block` alone computes its outputs, every instance independent of the others."""
    return (
        block.init is None
        and all(iv.kind == "spatial" for iv in block.iter_vars)
        and is_sole_writer(block, scope)
        and not set(read(block)) & set(written(block))
    )


def is_reduction(block: Block, scope: Block) -> bool:
    """True if `block` alone computes its outputs by accumulating over its reduce axes, each term
    once."""
    reduce_vars = {iv.var for iv in block.iter_vars if iv.kind == "reduce"}
    return (
        block.init is not None
        and all(iv.kind in ("spatial", "reduce") for iv in block.iter_vars)
        and is_sole_writer(block, scope)
        and not any(vars_in(r) & reduce_vars for r in block.writes)
        and not _repeats_terms(block, scope)
    )


def _repeats_terms(block: Block, scope: Block) -> bool:
    """True if a loop inside of one over reduce axes gives no axis its value: it accumulates each
    term again, but initialises again with the first one."""
    path = path_to(scope.body, lambda s: isinstance(s, BlockRealize) and s.block is block)
    assert path is not None
    *around, realize = path
    assert isinstance(realize, BlockRealize)
    reduces = False
    for loop in (s for s in around if isinstance(s, For)):
        kinds = axis_kinds(realize, loop.loop_var)
        if reduces and not kinds and loop.extent != ONE:
            return True
        reduces |= "reduce" in kinds
    return False


def axis_kinds(realize: BlockRealize, var: Var) -> set[str]:
    """The kinds of the block's axes whose values mention the variable."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {iv.kind for iv, value in pairs if var in vars_in(value)}


def require_computed_alone(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError unless the block is a complete or a reduction block."""
    block, scope = place.block, place.scope
    if is_complete(block, scope) or is_reduction(block, scope):
        return
    condition = "the block is complete (all axes spatial, only writer) or a reduction with init"
    if not is_sole_writer(block, scope):
        mine = set(written(block))
        other = next(r.block for r in realizes_under(scope.body)
                     if r.block is not block and mine & set(written(r.block)))  # fmt: skip
        raise ScheduleError(
            primitive, describe_block(block),
            f"{condition}; but block {other.name!r} writes the same buffer",
            about=(other.name,),
        )  # fmt: skip
    raise ScheduleError(primitive, describe_block(block), condition, about=(block.name,))


def require_inputs_settled(primitive: str, place: BlockPlace, to: Stmt | None = None) -> None:
    """Raise ScheduleError if a later block of the scope writes what the block reads: then it
    cannot run later. Where it moves into the statement `to`, blocks behind that do not matter."""
    order = [r.block for r in realizes_under(place.scope.body)]
    inside = [] if to is None else realizes_under(to)
    end = order.index(inside[-1].block) if inside else len(order)
    for p in producers_of(place.block, place.scope):
        if order.index(place.block) < order.index(p.block) <= end:
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"nothing after the block overwrites its inputs; block {p.block.name!r} does",
                about=(p.block.name,),
            )  # fmt: skip


def require_read_in_blocks(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError if a loop, a condition or a predicate of the scope reads what the block
    writes, or the block's own predicate what another block writes: no region says what is read."""
    makers = [r for r in realizes_under(place.scope.body) if r.block is not place.block]
    made = {b for r in makers for b in written(r.block)}
    unsaid = _read_around(place.scope.body) & set(written(place.block))
    unsaid |= _read_around(place.realize) & made
    if unsaid:
        names = ", ".join(sorted(b.name for b in unsaid))
        raise ScheduleError(
            primitive, describe_block(place.block), f"blocks alone read {names}; a condition does"
        )


def _read_around(s: Stmt) -> set[Buffer]:
    """The buffers that a statement reads outside of blocks."""
    if isinstance(s, Block):
        return set()
    own = (n for c in children(s) if not isinstance(c, Stmt) for n in walk(c))
    read = {n.buffer for n in own if isinstance(n, BufferLoad)}
    return read.union(*map(_read_around, child_stmts(s)))


def require_output_unread(primitive: str, place: BlockPlace) -> None:
    """Raise ScheduleError if an earlier block of the scope reads what the block overwrites: then
    it cannot run earlier."""
    order = [r.block for r in realizes_under(place.scope.body)]
    for c in consumers_of(place.block, place.scope):
        if order.index(c.block) < order.index(place.block):
            raise ScheduleError(
                primitive, describe_block(place.block),
                f"nothing before the block reads what it overwrites; block {c.block.name!r} does",
                about=(c.block.name,),
            )  # fmt: skip


def require_filled_for_init(primitive: str, target: LoopPlace, buffer: Buffer) -> None:
    """Raise ScheduleError if a block initialises its results by what the iterations of a loop fill
    a buffer with, and the loop may have no iteration, in which results are initialised all the
    same."""
    carrying = {s.loop_var for s in (*target.loops, target.loop)}
    an = analyzer_at(target)
    for r in realizes_under(target.loop.body):
        init = r.block.init
        if init is None or not any(isinstance(n, BufferLoad) and n.buffer is buffer
                                   for n in walk(init)):  # fmt: skip
            continue
        bound = binding_of(r)
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
            some = expr.GT(substitute(iv.dom.extent, bound), ZERO)
            if iv.kind != "spatial" and carrying & vars_in(value) and not an.prove(some):
                raise ScheduleError(
                    primitive, describe_loop(target.loop),
                    f"the results of block {r.block.name!r}, which {buffer.name} has a part in "
                    f"initialising, have terms",
                    suggestion="decompose_reduction first", about=(r.block.name,),
                )  # fmt: skip


def axes_bound_to(var: Var, under: Stmt) -> list[tuple[BlockRealize, IterVar]]:
    """The block axes directly under a statement whose binding mentions `var`."""
    return [
        (r, iv)
        for r in realizes_under(under)
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True)
        if var in vars_in(value)
    ]


def is_output(buffer: Buffer, func: PrimFunc) -> bool:
    """True if the buffer belongs to the caller (a parameter)."""
    return any(p is buffer for p in func.params)


def shares(loop: For, buffer: Buffer) -> bool:
    """True if the iterations of a loop are threads of a block that share the buffer, or what one
    of them does as several virtual threads."""
    shared = buffer.scope in ("shared", "shared.dyn")
    return shared and (loop.thread or "").startswith(("threadIdx", "vthread"))


def require_injective(
    place: BlockPlace, used: tuple[IterVar, ...], at: tuple[PrimExpr, ...], what: str,
    primitive: str,
) -> None:  # fmt: skip
    """Raise ScheduleError unless no two instances of a block, with the axes `used`, share `what` is
    at `at`."""
    reason = "some have"
    try:
        if detect_iter_map(at, {iv.var: iv.dom for iv in used}, None, analyzer_at(place)).injective:
            return
    except NotAnIterMap as e:
        reason = str(e)
    raise ScheduleError(
        primitive, describe_block(place.block),
        f"no two instances have {what} in common; {reason}",
    )  # fmt: skip
