"""rolling_buffer: a buffer that keeps the window of one iteration instead of all elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BlockRealize, Buffer, For, PrimFunc, Range
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import exact_region
from relaxlab.schedule.instances import predicate_of_axes
from relaxlab.schedule.ranges import (
    ONE,
    ZERO,
    Span,
    analyzer_in,
    binding_of,
    constant,
    covers,
    spans_under,
)
from relaxlab.schedule.regions import (
    mentions,
    opaque_buffers,
    rewrite_accesses,
    with_alloc,
    without_alloc,
)
from relaxlab.schedule.scope import (
    consumers_of,
    is_complete,
    is_output,
    is_reduction,
    producers_of,
    require_computed_alone,
)
from relaxlab.schedule.tree import (
    BlockPlace,
    LoopPlace,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    map_realizes,
    path_to,
    realizes_under,
    vars_in,
)

PRIMITIVE = "rolling_buffer"


@dataclass(frozen=True, slots=True)
class _Rolling:
    """A dimension of which one iteration of a loop touches `size` elements, `overlap` of them again
    in the next iteration. offset: the element's place in the window."""

    dim: int
    loop: For
    size: int
    overlap: int
    offset: PrimExpr

    @property
    def is_new(self) -> PrimExpr:
        """True for elements that the iteration before did not make."""
        first = expr.LT(self.loop.loop_var, expr.const(1))
        return expr.Or(first, expr.LE(expr.const(self.overlap), self.offset))


def rolling_buffer(func: PrimFunc, name: str, write_index: int) -> PrimFunc:
    """Keep what one iteration of the loops around a block and its readers touches of a buffer, and
    compute only the elements that the iteration before did not make.

    The dimension that moves with the outermost loop becomes circular: its elements lie at their
    index modulo the size of the window.
    """
    place = find_block(func, name, PRIMITIVE)
    buffer = buffer_of(place.block, "write", write_index, PRIMITIVE)
    if any(iv.kind == "opaque" for iv in place.block.iter_vars):
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block), "the axes of the block are not in order yet",
            suggestion="roll the buffers of later blocks first", about=(name,),
        )  # fmt: skip
    require_computed_alone(PRIMITIVE, place)
    _require_intermediate(place, buffer)
    predicate_of_axes(PRIMITIVE, place)  # raises where more than the axes says what runs
    _require_fixed_inputs(place)
    target = _common_loop(place)
    an = analyzer_in(target)
    window = _window(place, target, buffer, an)
    found = _rolling(place, target, buffer, window, an)
    outermost = min(found, key=lambda r: _depth(target, r.loop))
    realize = place.realize
    new = expr.all_of([realize.predicate, *(r.is_new for r in found)])
    func = place.replaced(replace(realize, predicate=new))
    func = _in_order(func, outermost.loop.loop_var, buffer)
    return _circular(func, buffer, outermost, place.scope.name)


def _in_order(func: PrimFunc, var: Var, buffer: Buffer) -> PrimFunc:
    """The function whose blocks that touch a buffer run the iterations of a loop in order: their
    axes that are bound to it are opaque."""
    place = find_loop(func, var, PRIMITIVE)

    def visit(r: BlockRealize) -> BlockRealize:
        if not mentions(r.block, buffer):
            return r
        pairs = list(zip(r.block.iter_vars, r.iter_values, strict=True))
        reduces = any(iv.kind == "reduce" and var in vars_in(v) for iv, v in pairs)
        if reduces and r.block.init is not None:
            raise ScheduleError(
                PRIMITIVE, describe_block(r.block),
                f"the block initialises its result before {describe_loop(place.loop)}, over which "
                "it reduces, not in its iterations",
                suggestion="decompose_reduction first", about=(r.block.name, var),
            )  # fmt: skip
        axes = tuple(replace(iv, kind="opaque") if var in vars_in(v) else iv for iv, v in pairs)
        return replace(r, block=replace(r.block, iter_vars=axes))

    return place.replaced(map_realizes(place.loop, visit))


def _circular(func: PrimFunc, buffer: Buffer, rolling: _Rolling, site: str) -> PrimFunc:
    """The function with one dimension of a buffer as large as a window, its indices modulo that."""
    dim, size = rolling.dim, expr.const(rolling.size)
    shape = (*buffer.shape[:dim], size, *buffer.shape[dim + 1 :])
    rolled = replace(buffer, shape=shape, strides=())

    def index(indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        return tuple(i % size if d == dim else i for d, i in enumerate(indices))

    def region(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        return tuple(_modulo(r, size) if d == dim else r for d, r in enumerate(ranges))

    func = without_alloc(func, buffer)
    func = replace(func, body=rewrite_accesses(func.body, buffer, rolled, index, region))
    return with_alloc(func, site, rolled)


def _modulo(r: Range, size: PrimExpr) -> Range:
    """The range in a circular dimension: all of it, where more than an element may wrap around."""
    return Range(r.min % size, ONE) if r.extent == ONE else Range(ZERO, size)


def _require_intermediate(place: BlockPlace, buffer: Buffer) -> None:
    func, scope = place.func, place.scope
    allocated = any(buffer is a for a in scope.alloc_buffers)
    if not allocated or buffer in opaque_buffers(func.body):
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block),
            f"{buffer.name} is allocated by the block around, {scope.name!r}, and only loaded and "
            "stored",
            about=(buffer,),
        )  # fmt: skip


def _require_fixed_inputs(place: BlockPlace) -> None:
    """Raise ScheduleError unless an instance of the block computes the same in each iteration: what
    it reads, and so on, has one value per element, made before."""
    order = [r.block for r in realizes_under(place.scope.body)]
    pending, seen = [place.block], {place.block.name}
    while pending:
        block = pending.pop()
        for p in producers_of(block, place.scope):
            if p.block.name in seen:
                continue
            seen.add(p.block.name)
            pending.append(p.block)
            early = order.index(p.block) < order.index(block)
            alone = is_complete(p.block, place.scope) or is_reduction(p.block, place.scope)
            private = not any(is_output(w.buffer, place.func) for w in p.block.writes)
            if not (early and alone and private and _writes_at_axes(p.block)):
                raise ScheduleError(
                    PRIMITIVE, describe_block(place.block),
                    "what the block reads has one value per element, computed before it in an "
                    f"intermediate buffer; block {p.block.name!r} is not like that",
                    suggestion="roll the buffers of later blocks first", about=(p.block.name,),
                )  # fmt: skip


def _writes_at_axes(block: Block) -> bool:
    """True if each element that the block writes is that of one instance of its spatial axes."""
    axes = {iv.var for iv in block.iter_vars if iv.kind == "spatial" and iv.dom.extent != ONE}
    for w in block.writes:
        named = [r.min for r in w.region if isinstance(r.min, Var) and r.min in axes]
        if set(named) != axes or any(r.extent != ONE for r in w.region):
            return False
    return True


def _common_loop(place: BlockPlace) -> LoopPlace:
    """The innermost loop around the block and all that read what it writes, which run after it; the
    loops down to it run one iteration after the other."""
    consumers = consumers_of(place.block, place.scope)
    order = [r.block for r in realizes_under(place.scope.body)]
    common: list[For] = []
    for loop in place.loops:
        under = realizes_under(loop.body)
        if consumers and all(any(c is r for r in under) for c in consumers):
            common.append(loop)
    late = all(order.index(c.block) > order.index(place.block) for c in consumers)
    if not common or not late:
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block),
            "a loop is around the block and all blocks behind it that read what it writes",
            suggestion=f"compute_at({place.block.name!r}, a loop of its readers)",
        )  # fmt: skip
    for loop in common:
        if loop.kind not in ("serial", "unrolled"):
            raise ScheduleError(
                PRIMITIVE, describe_loop(loop),
                f"the iterations run one after the other; the loop is {loop.kind}",
                suggestion="rolling_buffer inside of such a loop's block", about=(loop.loop_var,),
            )  # fmt: skip
    return find_loop(place.func, common[-1].loop_var, PRIMITIVE)


def _depth(target: LoopPlace, loop: For) -> int:
    return [*(id(s) for s in target.loops), id(target.loop)].index(id(loop))


def _window(
    place: BlockPlace, target: LoopPlace, buffer: Buffer, an: Analyzer
) -> tuple[Span, ...]:
    """The elements that the block writes in one iteration of the loop, among which are all that are
    read there."""
    if not _writes_at_axes(place.block):
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block),
            f"each element of {buffer.name} is written at the block's spatial axes",
        )  # fmt: skip
    written = next(w for w in place.block.writes if w.buffer is buffer)
    window = spans_under(written, place.realize, target, an)
    for c in consumers_of(place.block, place.scope):
        for r in (r for r in c.block.reads if r.buffer is buffer):
            needed = spans_under(r, c, target, an)
            if not all(covers(w, n, an) for w, n in zip(window, needed, strict=True)):
                raise ScheduleError(
                    PRIMITIVE, describe_block(c.block),
                    f"an iteration of {describe_loop(target.loop)} reads of {buffer.name} only "
                    "what it computes",
                    about=(c.block.name, buffer),
                )  # fmt: skip
    return window


def _rolling(
    place: BlockPlace, target: LoopPlace, buffer: Buffer, window: Sequence[Span], an: Analyzer
) -> list[_Rolling]:
    """The dimensions that overlap from one iteration of their loop to the next."""
    loops = {s.loop_var: s for s in (*target.loops, target.loop)}
    moving = [vars_in(w.lo) & loops.keys() for w in window]
    written = next(w for w in place.block.writes if w.buffer is buffer).region
    values = binding_of(place.realize)
    found: list[_Rolling] = []
    for dim, (w, moved) in enumerate(zip(window, moving, strict=True)):
        size = constant(w.extent(an))
        others = set[Var]().union(*(m for d, m in enumerate(moving) if d != dim))
        if len(moved) != 1 or size is None or moved & others:
            continue
        (var,) = moved
        step = constant(an.simplify(substitute(w.lo, {var: var + 1}) - w.lo))
        if step is None or not 0 < step < size or loops[var].min != ZERO:
            continue
        offset = an.simplify(substitute(written[dim].min, values) - w.lo)
        if not _is_dense(place, target, offset, size, an):
            continue
        found.append(_Rolling(dim, loops[var], size, size - step, offset))
    if not found:
        names = ", ".join(v.name for v in loops)
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block),
            f"iterations of one of the loops {names} that follow each other compute some of the "
            "same elements, in one dimension",
        )  # fmt: skip
    return found


def _is_dense(
    place: BlockPlace, target: LoopPlace, offset: PrimExpr, size: int, an: Analyzer
) -> bool:
    """True if the loops inside of the target take an offset through the whole window: an element
    in a gap would be taken for one that the iteration before made."""
    path = path_to(target.loop.body, lambda s: s is place.realize)
    assert path is not None
    inside = [s for s in path if isinstance(s, For)]
    reached = exact_region([Span(offset, offset)], inside, an)
    return reached is not None and covers(reached[0], Span(ZERO, expr.const(size - 1)), an)
