"""Primitives for loops that are not equally long: pad_loop, rectangularize, partition, remap,
horizontal_fuse, pad_dim (CoRa, MLSys 2022, section 4)."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    For,
    IfThenElse,
    IterVar,
    Permutation,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.dependence import require_order_free
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.fuse_ragged import element
from relaxlab.schedule.ranges import (
    ZERO,
    analyzer_at,
    binding_of,
    loop_env,
    span_of,
    values_taken,
)
from relaxlab.schedule.regions import opaque_buffers, refreshed
from relaxlab.schedule.scope import axes_bound_to, is_output, read, written
from relaxlab.schedule.tree import (
    LoopPlace,
    all_blocks,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    guard,
    map_realizes,
    reading_within,
    realizes_under,
    vars_in,
    walk_stmts,
    with_fresh_binders,
)


def pad_loop(func: PrimFunc, var: Var, multiple: int) -> PrimFunc:
    """Round the number of iterations up to a multiple; the added ones compute nothing, since the
    blocks get a predicate."""
    place = _serial(func, var, "pad_loop")
    loop = place.loop
    _require_positive("pad_loop", loop, multiple)
    an = analyzer_at(place)
    padded = an.simplify((loop.extent + (multiple - 1)) // multiple * multiple)
    if an.prove_equal(padded, loop.extent):
        return func
    body = reading_within(loop.body, var, loop.min + loop.extent - 1)
    body = guard(body, expr.LT(var - loop.min, loop.extent))
    return place.replaced(replace(loop, extent=padded, body=body))


def rectangularize(func: PrimFunc, var: Var, over: Var) -> PrimFunc:
    """Give a loop in all iterations of the loop `over` around it the largest extent that it has in
    any; what is added computes nothing, since the blocks get a predicate."""
    place = _serial(func, var, "rectangularize")
    loop, around = place.loop, find_loop(func, over, "rectangularize").loop
    if not any(s is around for s in place.loops):
        raise ScheduleError(
            "rectangularize", describe_loop(loop), f"{describe_loop(around)} is around the loop",
            about=(over,),
        )  # fmt: skip
    an = analyzer_at(place)
    env = loop_env([around], an)
    largest = None if over in vars_in(loop.min) else span_of(an.simplify(loop.extent), env, an)
    if largest is None:
        raise ScheduleError(
            "rectangularize", describe_loop(loop),
            f"the start does not depend on {over.name}, and the largest extent is known",
            about=(var, over),
        )  # fmt: skip
    body = guard(loop.body, expr.LT(var - loop.min, loop.extent))
    return place.replaced(replace(loop, extent=an.simplify(largest.hi), body=body))


def pad_dim(func: PrimFunc, name: str, index: int, dim: int, multiple: int) -> PrimFunc:
    """Round a dimension of a buffer that a block writes up to a multiple. Nothing sees the padding:
    the buffer is an intermediate one, and its elements are touched as before."""
    place = find_block(func, name, "pad_dim")
    buffer = buffer_of(place.block, "write", index, "pad_dim")
    what = describe_block(place.block)
    if multiple < 1:
        raise ScheduleError("pad_dim", what, f"the multiple is positive; {multiple} is not")
    if not 0 <= dim < buffer.ndim:
        raise ScheduleError("pad_dim", what, f"{buffer.name} has a dimension {dim}")
    if is_output(buffer, func) or buffer.strides or buffer in opaque_buffers(func.body):
        raise ScheduleError(
            "pad_dim", what,
            f"{buffer.name} is an intermediate buffer, dense, and only loaded and stored",
            suggestion="cache_write it first, and pad the copy", about=(buffer,),
        )  # fmt: skip
    size = analyzer_at(place).simplify((buffer.shape[dim] + (multiple - 1)) // multiple * multiple)
    shape = (*buffer.shape[:dim], size, *buffer.shape[dim + 1 :])
    return replace(func, body=substitute(func.body, buffers={buffer: replace(buffer, shape=shape)}))


def partition(func: PrimFunc, var: Var, multiple: int) -> tuple[PrimFunc, tuple[Var, Var]]:
    """Split a loop into one over the largest multiple of `multiple` iterations and one over the
    rest, after each other (operation splitting), so that the first can be tiled without guards."""
    place = _serial(func, var, "partition")
    loop = place.loop
    _require_positive("partition", loop, multiple)
    for r, iv in axes_bound_to(var, loop.body):
        if iv.kind != "spatial" and r.block.init is not None:
            raise ScheduleError(
                "partition", describe_loop(loop),
                f"block {r.block.name!r} initialises its result before the loop, not in both parts",
                suggestion="decompose_reduction first", about=(r.block.name,),
            )  # fmt: skip
    an = analyzer_at(place)
    regular = an.simplify(_regular(loop.extent, multiple, loop, an))
    if any(an.prove_equal(size, ZERO) for size in (regular, loop.extent - regular)):
        raise ScheduleError(
            "partition", describe_loop(loop), "both parts may have iterations", about=(var,)
        )
    main, rest = Var(var.name), Var(f"{var.name}_rest")
    parts = list[Stmt]()
    for v, start, extent in ((main, ZERO, regular), (rest, regular, loop.extent - regular)):
        part = partial(_part, loop=loop, multiple=multiple, an=an, rest=v is rest)
        body = map_realizes(loop.body, part)
        body = substitute(body, {var: v})
        body = named_anew(func, with_fresh_binders(body), "rest") if v is rest else body
        # The second starts where the first ends, so that the axis stays the loop itself.
        start, extent = an.simplify(loop.min + start), an.simplify(extent)
        parts.append(For(v, start, extent, "serial", body, span=loop.span))
    return place.replaced(seq(*parts)), (main, rest)


def _regular(extent: PrimExpr, multiple: int, loop: For, an: Analyzer) -> PrimExpr:
    """The largest multiple of iterations of an extent, which is that of a loop."""
    return _iterations(extent, loop, an) // multiple * multiple


def _iterations(extent: PrimExpr, loop: For, an: Analyzer) -> PrimExpr:
    """The number of iterations that an extent, which is that of a loop, stands for: none where it
    is negative."""
    return extent if an.prove(expr.GE(loop.extent, ZERO)) else expr.Max(extent, ZERO)


def _part(r: BlockRealize, loop: For, multiple: int, an: Analyzer, rest: bool) -> BlockRealize:
    """A block in one of the parts of a loop: the axis that is the loop has the values that occur
    there, and so have others that a predicate cuts by it."""
    iv = axis_of(r, loop, "partition")
    if not an.prove_equal(substitute(iv.dom.extent, binding_of(r)), loop.extent):
        raise ScheduleError(
            "partition", describe_block(r.block), f"axis {iv.var.name} is as long as the loop",
            suggestion="partition before pad_loop", about=(r.block.name, loop.loop_var),
        )  # fmt: skip
    regular = _regular(iv.dom.extent, multiple, loop, an)
    low = iv.dom.min + regular if rest else iv.dom.min
    part = replace(iv, dom=Range(low, iv.dom.extent - regular if rest else regular))
    with an.scope():
        an.bind_range(loop.loop_var, substitute(part.dom, binding_of(r)))
        for s in walk_stmts(loop.body):
            if isinstance(s, For):
                an.bind_range(s.loop_var, Range(s.min, s.extent))
        an.assume(r.predicate)
        axes = tuple(
            part if x is iv else values_taken(x, v, an)
            for x, v in zip(r.block.iter_vars, r.iter_values, strict=True)
        )
    return replace(r, block=replace(r.block, iter_vars=axes))


def axis_of(r: BlockRealize, loop: For, primitive: str) -> IterVar:
    """The axis of a block that is a loop and nothing else."""
    pairs = zip(r.block.iter_vars, r.iter_values, strict=True)
    bound = [(iv, value) for iv, value in pairs if loop.loop_var in vars_in(value)]
    if len(bound) == 1 and bound[0][1] == loop.loop_var:
        return bound[0][0]
    raise ScheduleError(
        primitive, describe_block(r.block), f"one axis of the block is loop {loop.loop_var.name}",
        suggestion=f"{primitive} before split and fuse", about=(r.block.name, loop.loop_var),
    )  # fmt: skip


def named_anew(func: PrimFunc, s: Stmt, suffix: str) -> Stmt:
    """The statement with names of its own for its blocks, which end with a suffix."""
    taken = {b.name for b in all_blocks(func)}

    def visit(n: Node) -> Node | None:
        if not isinstance(n, Block):
            return None
        name = fresh_name(f"{n.name}_{suffix}", taken.__contains__)
        taken.add(name)
        return replace(n, name=name)

    return rewrite(s, visit)


def remap(func: PrimFunc, var: Var, order: str) -> PrimFunc:
    """Let iteration v of a loop do the work of iteration `order[v]`, `order` being an index
    function that is a permutation. Raises ScheduleError unless iterations may run in any order."""
    place = _serial(func, var, "remap")
    loop = place.loop
    buffer = next((b for b in func.buffers if b.name == order), None)
    if buffer is None or not any(isinstance(f, Permutation) for f in buffer.facts):
        raise ScheduleError(
            "remap", describe_loop(loop), f"{order} is an index function that is a permutation",
            suggestion="pass one: facts=[T.permutation(lambda i: inverse[i])]",
        )  # fmt: skip
    an = analyzer_at(place)
    if loop.min != ZERO or not an.prove_equal(buffer.shape[0], loop.extent):
        raise ScheduleError(
            "remap", describe_loop(loop),
            f"the loop has the {buffer.shape[0]} iterations that {order} permutes",
            about=(var, buffer),
        )  # fmt: skip
    require_order_free("remap", place)
    at = Var(var.name)  # for the loop itself, whose other mentions become its work
    body = map_realizes(loop.body, lambda r: _remapped(r, loop, buffer, at))
    body = substitute(body, {var: element(buffer, at)})
    return place.replaced(replace(loop, body=substitute(body, {at: var})))


def _remapped(r: BlockRealize, loop: For, order: Buffer, at: Var) -> BlockRealize:
    """The block whose axis over a loop is where the loop is, and not which work it does."""
    mine = axis_of(r, loop, "remap")
    if mine.kind != "spatial":
        raise ScheduleError(
            "remap", describe_block(r.block), f"axis {mine.var.name} is spatial",
            about=(r.block.name,),
        )  # fmt: skip
    work = {mine.var: element(order, mine.var)}
    axes = tuple(x if x is mine else replace(x, dom=substitute(x.dom, work))
                 for x in r.block.iter_vars)  # fmt: skip
    inside = substitute(replace(r.block, iter_vars=()), work)
    values = tuple(at if v == loop.loop_var else v for v in r.iter_values)
    block = refreshed(replace(inside, iter_vars=axes))
    return replace(r, iter_values=values, block=block)


def horizontal_fuse(func: PrimFunc, first: Var, second: Var) -> tuple[PrimFunc, Var]:
    """Make one loop of two that follow each other and have nothing to do with each other: its first
    iterations are those of the first loop, the others those of the second."""
    one, two = (_serial(func, v, "horizontal_fuse") for v in (first, second))
    around, a, b = one.path[-2], one.loop, two.loop
    if around is not two.path[-2] or not isinstance(around, SeqStmt) or not any(
        x is a and y is b for x, y in pairwise(around.stmts)
    ):  # fmt: skip
        raise ScheduleError(
            "horizontal_fuse", describe_loop(b), f"the loop follows {first.name} directly",
            about=(first, second),
        )  # fmt: skip
    shared = _shared(a, b)
    if shared:
        names = ", ".join(sorted(x.name for x in shared))
        raise ScheduleError(
            "horizontal_fuse", describe_loop(b),
            f"neither loop touches what the other writes; both touch {names}", about=tuple(shared),
        )  # fmt: skip
    fused, an = Var(f"{first.name}_{second.name}_fused"), analyzer_at(one)
    before = _iterations(a.extent, a, an)
    body = IfThenElse(
        expr.LT(fused, before),
        substitute(a.body, {first: a.min + fused}),
        substitute(b.body, {second: b.min + (fused - before)}),
    )
    total = an.simplify(before + b.extent)
    loop = For(fused, ZERO, total, "serial", body, span=a.span)
    stmts = [loop if s is a else s for s in around.stmts if s is not b]
    return one.replaced(seq(*stmts), -2), fused


def _shared(a: For, b: For) -> set[Buffer]:
    """The buffers that one of two loops writes and the other touches."""
    (w, r), (v, s) = (
        ({x for k in realizes_under(n.body) for x in written(k.block)},
         {x for k in realizes_under(n.body) for x in read(k.block)})
        for n in (a, b)
    )  # fmt: skip
    return w & (v | s) | v & r


def _serial(func: PrimFunc, var: Var, primitive: str) -> LoopPlace:
    place = find_loop(func, var, primitive)
    if place.loop.kind != "serial" or place.loop.annotations:
        raise ScheduleError(
            primitive, describe_loop(place.loop), "the loop is serial and not annotated",
            suggestion=f"{primitive} first, then mark the loop", about=(var,),
        )  # fmt: skip
    return place


def _require_positive(primitive: str, loop: For, multiple: int) -> None:
    if multiple < 1:
        raise ScheduleError(
            primitive, describe_loop(loop), f"the multiple is positive; {multiple} is not"
        )
