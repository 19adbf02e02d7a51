"""rfactor: one reduction becomes many partial ones, then a reduction of their results."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nested,
)
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.combiners import IDENTITY, Combiner, combiner_of, stores
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_all_written
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ZERO, bind_stmt, by_data, shape_analyzer
from relaxlab.schedule.regions import refreshed, simplified, with_alloc, without_stated
from relaxlab.schedule.scope import is_reduction
from relaxlab.schedule.tree import (
    BlockPlace,
    conjuncts,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    fresh_block_name,
    fresh_buffer_name,
    realizes_under,
    vars_in,
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """`buffer[indices] = op(buffer[indices], value)`, or with the operands exchanged."""

    op: type[expr.BinaryOp]
    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    accumulator_first: bool

    def combined(self, accumulator: PrimExpr, value: PrimExpr) -> PrimExpr:
        a, b = (accumulator, value) if self.accumulator_first else (value, accumulator)
        return self.op(a, b)

    @property
    def identity(self) -> PrimExpr:
        return IDENTITY[self.op](self.buffer.dtype)


def rfactor(func: PrimFunc, var: Var, factor_axis: int) -> tuple[PrimFunc, str]:
    """Compute a partial reduction per iteration of a reduce loop, then reduce these.

    The partial results go to a new buffer with one more dimension, at `factor_axis`, or to one for
    each value of a reduction of several together. The partial block (`X_rf`, its name is returned)
    stays in the loops; the block `X` follows in new ones. Of equal maxima another place may be
    found.
    """
    place = _only_block(func, var)
    loop = find_loop(func, var).loop
    combiner = _combiner_of(place)
    ndim = len(combiner.indices)
    if factor_axis not in range(-ndim - 1, ndim + 1):
        raise ScheduleError(
            "rfactor", describe_loop(loop),
            f"factor_axis {factor_axis!r} is from {-ndim - 1} to {ndim}",
        )  # fmt: skip
    axis = factor_axis % (ndim + 1)
    top = _perfect_from(place, loop)
    partial = tuple(
        Buffer(
            fresh_buffer_name(func, f"{b.name}_rf"),
            (*b.shape[:axis], loop.extent, *b.shape[axis:]),
            b.dtype,
        )
        for b in combiner.buffers
    )
    rf = _partial_block(place, loop, combiner, partial, axis)
    around = place.loops[place.loops.index(top) :]
    nest = nested(around, rf)
    final = _final_nest(place, loop, around, combiner, partial, axis)
    depth = place.path.index(top)
    func = place.replaced(loops.seq(nest, final), depth)
    for buffer in partial:
        func = with_alloc(func, place.scope.name, buffer)
    return func, rf.block.name


def _only_block(func: PrimFunc, var: Var) -> BlockPlace:
    loop = find_loop(func, var, "rfactor").loop
    realizes = realizes_under(loop)
    if len(realizes) != 1:
        raise ScheduleError("rfactor", describe_loop(loop), "one block is under the loop")
    place = find_block(func, realizes[0].block.name, "rfactor")
    if not is_reduction(place.block, place.scope):
        raise ScheduleError(
            "rfactor", describe_block(place.block),
            "the block is a reduction with its initialisation",
            suggestion="rfactor before decompose_reduction", about=(place.block.name,),
        )  # fmt: skip
    require_reassociable("rfactor", func, place.block)
    require_all_written("rfactor", place)
    pairs = list(zip(place.block.iter_vars, place.realize.iter_values, strict=True))
    kinds = {iv.kind for iv, value in pairs if var in vars_in(value)}
    if kinds != {"reduce"}:
        found = " and ".join(sorted(kinds)) or "no"
        raise ScheduleError(
            "rfactor", describe_loop(loop),
            f"reduce axes alone are bound to the loop; {found} axes are",
            about=(var,),
        )  # fmt: skip
    # Loops of the terms are left out around the final block, which needs those of its place.
    of_place, of_terms = (
        {v for iv, value in pairs if iv.kind == kind for v in vars_in(value)}
        for kind in ("spatial", "reduce")
    )
    both = next((s for s in place.loops if s.loop_var in of_place & of_terms), None)
    if both is not None:
        raise ScheduleError(
            "rfactor", describe_loop(both),
            "no loop is bound to spatial and to reduce axes",
            suggestion="rfactor before fusing a loop of the results with one of the terms",
            about=(both.loop_var,),
        )  # fmt: skip
    reads = by_data(loop.extent)
    if loop.min != ZERO or reads or vars_in(loop.extent) & {s.loop_var for s in place.loops}:
        raise ScheduleError(
            "rfactor", describe_loop(loop),
            "the loop starts at 0 and its extent does not depend on other loops or on arrays",
        )  # fmt: skip
    return place


def reduction_of(block: Block) -> Reduction | None:
    """Return the reduction that a block computes; None if it is not one store `X[…] = X[…] op
    value`."""
    store = block.body
    if isinstance(store, BufferStore) and isinstance(store.value, expr.BinaryOp):
        op, accumulator = type(store.value), BufferLoad(store.buffer, store.indices)
        a, b = store.value.a, store.value.b
        if op in IDENTITY:
            if a == accumulator:
                return Reduction(op, store.buffer, store.indices, b, True)
            if b == accumulator:
                return Reduction(op, store.buffer, store.indices, a, False)
    return None


def _combiner_of(place: BlockPlace) -> Combiner:
    found = combiner_of(place.block)
    if found is not None:
        return found
    raise ScheduleError(
        "rfactor", describe_block(place.block),
        "the body is one store X[…] = X[…] op value with op one of +, *, min, max, several of them "
        "after lets of their values, or a selection of accumulators by a comparison of one",
        about=(place.block.name,),
    )  # fmt: skip


def _perfect_from(place: BlockPlace, factor: For) -> For:
    """Return the outermost loop under which there is nothing but the block. Raises
    ScheduleError."""
    around = place.loops
    top = around[-1]
    below: Stmt = place.realize
    for loop in reversed(around):
        if loop.body is not below:
            break
        top = below = loop
    outside = around[: around.index(top)]
    reduced = {
        v for iv, value in zip(place.block.iter_vars, place.realize.iter_values, strict=True)
        if iv.kind == "reduce" for v in vars_in(value)
    }  # fmt: skip
    for loop in outside:
        if loop.loop_var in reduced:
            raise ScheduleError(
                "rfactor", describe_loop(loop),
                "nothing but the block is inside its outermost reduce loop",
                about=(loop.loop_var,),
            )  # fmt: skip
    return top


def _partial_block(
    place: BlockPlace, loop: For, combiner: Combiner, partial: tuple[Buffer, ...], axis: int
) -> BlockRealize:
    block = place.block
    spatial: list[tuple[IterVar, PrimExpr]] = []
    reduce: list[tuple[IterVar, PrimExpr]] = []
    table: dict[Var, PrimExpr] = {}
    factor = IterVar(Var(f"v{loop.loop_var.name}"), Range(loop.min, loop.extent), "spatial")
    by_loop: dict[Var, PrimExpr] = {loop.loop_var: factor.var}
    ranges = {s.loop_var: Range(s.min, s.extent) for s in place.loops}
    shared = _loops_of_axes(place, loop)
    for iv, value in zip(block.iter_vars, place.realize.iter_values, strict=True):
        if iv.kind == "spatial":
            spatial.append((iv, value))
        # Axes that the factored loop has no part in stay as they are, with their domains.
        elif shared.isdisjoint(vars_in(value)):
            reduce.append((iv, value))
        else:
            for v in sorted(vars_in(value) & ranges.keys() - by_loop.keys(), key=lambda v: v.name):
                new = IterVar(Var(f"v{v.name}"), ranges[v], "reduce")
                by_loop[v] = new.var
                reduce.append((new, v))
            table[iv.var] = substitute(value, by_loop)
    values = tuple(substitute(v, table) for v in combiner.values)
    kept: list[PrimExpr] = []
    for c in conjuncts(place.realize.predicate):
        if vars_in(c) & by_loop.keys():
            # A predicate on the partial block would leave some partial results without a value, and
            # the last step adds all of them up.
            values = _guarded(c, values, by_loop, combiner, place)
        else:
            kept.append(c)
    at = _inserted(combiner.indices, axis, factor.var)
    # Without terms left to combine, each partial result is one of the values.
    body = combiner.step(partial, at, values) if reduce else stores(partial, values, at)
    bound = [(factor, loop.loop_var), *spatial, *reduce]
    name = fresh_block_name(place.func, f"{block.name}_rf")
    init = stores(partial, combiner.identities, at) if reduce else None
    rf = Block(
        name, tuple(iv for iv, _ in bound), (), (), body, init, span=block.span,
        annotations=without_stated(block.annotations),
    )  # fmt: skip
    rf = refreshed(simplified(rf, _axes_analyzer(place, rf)))
    rf = _reading_in_order(rf, tuple(r.buffer for r in block.reads))
    return BlockRealize(tuple(v for _, v in bound), expr.all_of(kept), rf)


def _reading_in_order(block: Block, buffers: tuple[Buffer, ...]) -> Block:
    """The block that declares the regions that it reads in this order of their buffers, and last
    those of others, which its initialisation may read."""
    order = {b: number for number, b in enumerate(buffers)}
    reads = sorted(block.reads, key=lambda r: order.get(r.buffer, len(order)))
    return replace(block, reads=tuple(reads))


def _loops_of_axes(place: BlockPlace, loop: For) -> set[Var]:
    """The loops that become axes of the partial block: the one factored out, and those that share
    a reduce axis with it or with one of these. Two axes bound to one loop (`f // n` and `f % n`)
    are not independent: only loops can take their place."""
    around = {s.loop_var for s in place.loops}
    bindings = [
        vars_in(value) & around
        for iv, value in zip(place.block.iter_vars, place.realize.iter_values, strict=True)
        if iv.kind != "spatial"
    ]
    found, size = {loop.loop_var}, 0
    while len(found) > size:
        size = len(found)
        found = found.union(*(b for b in bindings if not found.isdisjoint(b)))
    return found


def _axes_analyzer(place: BlockPlace, block: Block) -> Analyzer:
    an = shape_analyzer(place.func)
    bind_stmt(an, block)
    return an


def _guarded(
    condition: PrimExpr,
    values: tuple[PrimExpr, ...],
    by_loop: dict[Var, PrimExpr],
    combiner: Combiner,
    place: BlockPlace,
) -> tuple[PrimExpr, ...]:
    """The values, or the identities where the condition fails: every partial result is initialised,
    those beyond the end of the reduction too."""
    inside = substitute(condition, by_loop)
    escaping = vars_in(inside) & {s.loop_var for s in place.loops}
    if escaping:
        raise ScheduleError(
            "rfactor", describe_block(place.block),
            f"the predicate {condition} is about reduce loops alone", about=tuple(escaping),
        )  # fmt: skip
    return tuple(
        expr.Call(v.dtype, "if_then_else", (inside, v, identity))
        for v, identity in zip(values, combiner.identities, strict=True)
    )


def _inserted(indices: tuple[PrimExpr, ...], axis: int, extra: PrimExpr) -> tuple[PrimExpr, ...]:
    return (*indices[:axis], extra, *indices[axis:])


def _final_nest(
    place: BlockPlace,
    loop: For,
    around: tuple[For, ...],
    combiner: Combiner,
    partial: tuple[Buffer, ...],
    axis: int,
) -> Stmt:
    """The reduction of the partial results, in loops of its own."""
    block = place.block
    bound = [
        (iv, value)
        for iv, value in zip(block.iter_vars, place.realize.iter_values, strict=True)
        if iv.kind == "spatial"
    ]
    reduced = _reduce_loops(place)
    kept = [s for s in around if s is loop or s.loop_var not in reduced]
    fresh: dict[Var, PrimExpr] = {s.loop_var: Var(s.loop_var.name) for s in kept}
    axes: dict[Var, PrimExpr] = {iv.var: Var(iv.var.name) for iv, _ in bound}
    factor = IterVar(Var(f"v{loop.loop_var.name}"), Range(loop.min, loop.extent), "reduce")
    indices = tuple(substitute(i, axes) for i in combiner.indices)
    at = _inserted(indices, axis, factor.var)
    body = combiner.step(combiner.buffers, indices, tuple(BufferLoad(b, at) for b in partial))
    assert block.init is not None
    iter_vars = [replace(iv, var=axes[iv.var]) for iv, _ in bound]  # type: ignore[arg-type]
    final = replace(
        block, iter_vars=(factor, *iter_vars), body=body, init=substitute(block.init, axes)
    )
    final = _reading_in_order(refreshed(final), partial)
    conditions = [
        substitute(c, fresh) for c in conjuncts(place.realize.predicate)
        if not vars_in(c) & reduced
    ]  # fmt: skip
    values = (fresh[loop.loop_var], *(substitute(v, fresh) for _, v in bound))
    nest: Stmt = BlockRealize(values, expr.all_of(conditions), final)
    for s in reversed(kept):
        copied = For(s.loop_var, s.min, s.extent, "serial", nest) if s is loop else s
        nest = replace(
            copied, loop_var=fresh[s.loop_var], min=substitute(s.min, fresh),
            extent=substitute(s.extent, fresh), body=nest,
        )  # fmt: skip
    return nest


def _reduce_loops(place: BlockPlace) -> set[Var]:
    pairs = zip(place.block.iter_vars, place.realize.iter_values, strict=True)
    return {v for iv, value in pairs if iv.kind == "reduce" for v in vars_in(value)}
