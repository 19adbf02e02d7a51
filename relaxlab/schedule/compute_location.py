"""compute_at and reverse_compute_at: move a block under a loop and shrink it to what is needed.

The block's axes are solved from the region that consumers need (or that producers made) in one
iteration of the loop; the block then runs over that region only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.errors import kind_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
    nested,
)
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.dependence import (
    is_independent,
    require_inputs_kept,
    require_known_effects,
    undetermined_axes,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import region_written
from relaxlab.schedule.instances import predicate_of_axes, reaches_all
from relaxlab.schedule.preimage import Domain, preimage_of_region, size_over_axes
from relaxlab.schedule.ranges import (
    ONE,
    ZERO,
    Env,
    Span,
    analyzer_in,
    binding_of,
    covers,
    loop_env,
    reached,
    span_of,
    spans_under,
    union,
)
from relaxlab.schedule.scope import (
    axes_bound_to,
    consumers_of,
    is_output,
    producers_of,
    require_computed_alone,
    require_filled_for_init,
    require_inputs_settled,
    require_output_unread,
    require_read_in_blocks,
    shares,
    written,
)
from relaxlab.schedule.tree import (
    BlockPlace,
    LoopPlace,
    describe_block,
    describe_loop,
    find_block,
    find_loop,
    map_realizes,
    realizes_under,
    vars_in,
    walk_stmts,
)


def compute_at(
    func: PrimFunc, name: str, var: Var, *, preserve_unit_loops: bool = False, index: int = -1
) -> PrimFunc:
    """Move a producer under a loop around its consumers, computing only what they need there.

    `index` places it among the statements of the loop: -1 as late as possible, -2 as early as
    possible, otherwise the position.
    """
    place, target = _places(func, name, var, "compute_at")
    block, scope = place.block, place.scope
    for b in written(block):
        if is_output(b, func):
            raise ScheduleError(
                "compute_at", describe_block(block),
                f"the block writes an intermediate buffer; {b.name} is a parameter",
                suggestion="reverse_compute_at moves a consumer under its producer's loop",
            )  # fmt: skip
    consumers = consumers_of(block, scope)
    _require_under("compute_at", "consumer", block, consumers, target)
    if not consumers:
        raise ScheduleError("compute_at", describe_block(block), "another block reads the result")
    for b in written(block):
        require_filled_for_init("compute_at", target, b)
    # The outermost statement around the loop that is not around the block, too.
    into = next(s for s in target.path if not any(s is other for other in place.path))
    require_inputs_settled("compute_at", place, into)
    an = analyzer_in(target)
    domains = [
        preimage_of_region(w, _touching(w, needed, block, an), block, an)[0]
        for w in block.writes
        if (needed := _needed(w.buffer, consumers, target, an)) is not None
    ]
    domain = {
        v: reduce(lambda a, b: union(a, b, an), (d[v] for d in domains))
        for v in domains[0]
        if all(v in d for d in domains)
    } | _instances_kept("compute_at", place, target, an)
    conditions = predicate_of_axes("compute_at", place)
    realize = replace(place.realize, block=_shortened(block, domain, target, an))
    nest = _guarded(_nest(realize, domain, an, preserve_unit_loops), conditions)
    return _moved(place, var, nest, index, "compute_at")


def reverse_compute_at(
    func: PrimFunc, name: str, var: Var, *, preserve_unit_loops: bool = False, index: int = -1
) -> PrimFunc:
    """Move a consumer under a loop around its producers, consuming what one iteration makes.

    `index` as for `compute_at`.
    """
    place, target = _places(func, name, var, "reverse_compute_at")
    block, scope = place.block, place.scope
    order = [r.block for r in realizes_under(scope.body)]
    under = {r.block for r in realizes_under(target.loop.body)}
    first = min(order.index(b) for b in under)
    if order.index(block) < first:
        raise ScheduleError(
            "reverse_compute_at", describe_loop(target.loop), f"the loop is before block {name!r}",
            suggestion="compute_at moves a producer under a later loop", about=(var,),
        )  # fmt: skip
    makers = [p for p in producers_of(block, scope) if p.block in under]
    for p in producers_of(block, scope):
        if p.block not in under and order.index(p.block) > first:
            _require_under("reverse_compute_at", "producer", block, [p], target)
    if not makers:
        raise ScheduleError(
            "reverse_compute_at", describe_block(block),
            f"a producer of the block is under {describe_loop(target.loop)}", about=(var,),
        )  # fmt: skip
    for p in makers:
        _require_finished(p, target)
    an = analyzer_in(target)
    domain: Domain = {}
    for r in block.reads:
        spans = _made(r.buffer, makers, block, target, an)
        if spans is None:
            continue
        allowed, exact = preimage_of_region(r, spans, block, an)
        if not exact:
            raise _not_available(r, spans, block, target, an)
        _restrict(domain, allowed, block, target, an)
    kept = _instances_kept("reverse_compute_at", place, target, an)
    _restrict(domain, kept, block, target, an)
    _restrict(domain, _iterations_kept(place, target, an), block, target, an)
    for iv in block.iter_vars:
        if iv.kind == "reduce" and iv.var in domain:
            raise ScheduleError(
                "reverse_compute_at", describe_block(block),
                f"one iteration of {describe_loop(target.loop)} makes everything that the reduce "
                f"axis {iv.var.name} runs over",
                suggestion="choose a loop further out", about=(var,),
            )  # fmt: skip
    require_output_unread("reverse_compute_at", place)
    _require_run_alike(target, place)
    conditions = predicate_of_axes("reverse_compute_at", place)
    nest = _nest(place.realize, domain, an, preserve_unit_loops)
    _require_all_instances(nest, domain, block, target, an)
    _require_iteration(nest, place, target, an)
    return _moved(place, var, _guarded(nest, conditions), index, "reverse_compute_at")


def _places(func: PrimFunc, name: str, var: Var, primitive: str) -> tuple[BlockPlace, LoopPlace]:
    place = find_block(func, name, primitive)
    target = find_loop(func, var, primitive)
    if target.scope is not place.scope:
        raise ScheduleError(
            primitive, describe_loop(target.loop),
            f"loop and block {name!r} are in the same scope; the loop is in block "
            f"{target.scope.name!r}, the block in {place.scope.name!r}",
            about=(var,),
        )  # fmt: skip
    if target.loop in place.path:
        raise ScheduleError(
            primitive, describe_loop(target.loop), f"the loop is not around block {name!r} already",
            about=(var,),
        )  # fmt: skip
    require_computed_alone(primitive, place)
    require_read_in_blocks(primitive, place)
    require_known_effects(primitive, place)
    require_inputs_kept(primitive, place, [target.path])
    return place, target


def _instances_kept(
    primitive: str, place: BlockPlace, target: LoopPlace, an: Analyzer
) -> Domain:
    """The values of the axes in which instances that write the same element differ, such as those
    that fill a panel anew: the ones of the iteration that both places are in. Raises ScheduleError
    where no loop around both says them."""
    block, bound, found = place.block, binding_of(place.realize), Domain()
    around = (*target.loops, target.loop)
    inside = {s.loop_var for s in place.loops if not any(s is x for x in around)}
    spatial = {iv.var for iv in block.iter_vars if iv.kind == "spatial"}
    for w in block.writes if not is_independent(block) else ():
        for v in spatial.intersection(undetermined_axes(block, w, place.outer_loops, an)):
            if vars_in(bound[v]) & inside:
                raise ScheduleError(
                    primitive, describe_block(block),
                    f"one instance writes each element of {w.buffer.name}, or a loop around both "
                    f"places says which is the last; several differ in {v.name}", about=(v,),
                )  # fmt: skip
            found[v] = Span(bound[v], bound[v])
    return found


def _iterations_kept(place: BlockPlace, target: LoopPlace, an: Analyzer) -> Domain:
    """The values of the axes in the iteration of the loops around both places, where these say what
    an element that the block reads holds, such as one of a panel that is filled anew."""
    block, bound = place.block, binding_of(place.realize)
    inside = [s for s in place.loops if not any(s is x for x in target.loops)]
    common = {s.loop_var for s in place.outer_loops if s not in inside}
    anew: frozenset[Var] = frozenset()
    for p in producers_of(block, place.scope):
        values = binding_of(p)
        spatial = {iv.var for iv in p.block.iter_vars if iv.kind == "spatial"}
        loops = find_block(place.func, p.block.name).outer_loops
        for w in p.block.writes if not is_independent(p.block) else ():
            if any(r.buffer is w.buffer for r in block.reads):
                axes = spatial.intersection(undetermined_axes(p.block, w, loops, an))
                anew = anew.union(*(vars_in(values[v]) & common for v in axes))
    env, found = loop_env(inside, an), Domain()
    for v, value in bound.items():
        span = span_of(value, env, an) if vars_in(value) & anew else None
        if span is not None:
            found[v] = span
        elif vars_in(value) & anew:
            raise ScheduleError(
                "reverse_compute_at", describe_block(block),
                f"the block reads elements that each iteration fills anew; its values of {v.name} "
                "in one iteration are not known", about=(v,),
            )  # fmt: skip
    return found


def _require_under(
    primitive: str, role: str, block: Block, others: Iterable[BlockRealize], target: LoopPlace
) -> None:
    under = realizes_under(target.loop.body)
    for o in others:
        if o not in under:
            raise ScheduleError(
                primitive, describe_block(block),
                f"every {role} is under {describe_loop(target.loop)}; "
                f"block {o.block.name!r} is not",
                about=(o.block.name,),
            )  # fmt: skip


def _require_run_alike(target: LoopPlace, place: BlockPlace) -> None:
    """The loop runs where the block does: no condition is around it alone."""
    for s in target.path[target.scope_depth + 1 : -1]:
        if not isinstance(s, For | SeqStmt) and not any(s is other for other in place.path):
            raise ScheduleError(
                "reverse_compute_at", describe_loop(target.loop),
                f"nothing but loops is around the loop; there is {kind_of(s)}",
            )  # fmt: skip


def _require_finished(producer: BlockRealize, target: LoopPlace) -> None:
    """Raise ScheduleError unless one iteration of the loop makes final values: the producer does
    not accumulate across iterations."""
    for loop in (*target.loops, target.loop):
        for r, axis in axes_bound_to(loop.loop_var, target.loop.body):
            if r is producer and axis.kind != "spatial":
                raise ScheduleError(
                    "reverse_compute_at", describe_loop(target.loop),
                    f"block {producer.block.name!r} finishes its values within one iteration; "
                    f"its reduce axis {axis.var.name} is bound to loop {loop.loop_var.name}",
                    suggestion="choose a loop outside all reduce loops", about=(loop.loop_var,),
                )  # fmt: skip


def _needed(
    buffer: Buffer, consumers: Iterable[BlockRealize], target: LoopPlace, an: Analyzer
) -> tuple[Span, ...] | None:
    """Return the region of `buffer` that the consumers read in one iteration, in all threads that
    share it; None if they do not."""
    total: tuple[Span, ...] | None = None
    threads = loop_env((loop for loop in target.loops if shares(loop, buffer)), an)
    for c in consumers:
        for r in c.block.reads:
            if r.buffer is buffer:
                spans = [_over(s, threads, an) for s in spans_under(r, c, target, an)]
                both = zip(total or spans, spans, strict=True)
                total = tuple(union(a, b, an) for a, b in both)
    return total


def _over(span: Span, threads: Env, an: Analyzer) -> Span:
    """Return what a span is in all iterations of loops."""
    if not threads:
        return span
    first, last = span_of(span.lo, threads, an), span_of(span.hi, threads, an)
    if first is None or last is None:
        raise ScheduleError(
            "compute_at", f"what threads read from {span.lo} to {span.hi}",
            "the region that all threads of a block read is known",
        )  # fmt: skip
    return Span(first.lo, last.hi)


def _touching(
    region: BufferRegion, spans: Sequence[Span], block: Block, an: Analyzer
) -> tuple[Span, ...]:
    """Return `spans` grown so that every region of the block that overlaps them lies inside."""
    grown: list[Span] = []
    for r, s, dim in zip(region.region, spans, region.buffer.shape, strict=True):
        size = size_over_axes(r.extent, block, an)
        more = dim if size is None else size - 1
        # A region that ends inside `spans` may begin up to its size less one before them.
        grown.append(Span(s.lo - more, s.hi + more))
    return tuple(grown)


def _made(
    buffer: Buffer, makers: Iterable[BlockRealize], block: Block, target: LoopPlace, an: Analyzer
) -> tuple[Span, ...] | None:
    """Return the region of `buffer` made in one iteration; None if it is made elsewhere.

    Several writers (an initialisation and its update) must make the same region.
    """
    total: tuple[Span, ...] | None = None
    for m in makers:
        for w in m.block.writes:
            if w.buffer is not buffer:
                continue
            spans = region_written(w, m, target, an)
            if spans is None:
                raise ScheduleError(
                    "reverse_compute_at", describe_block(block),
                    f"what block {m.block.name!r} makes of {buffer.name} in one iteration of "
                    f"{describe_loop(target.loop)} is a region without gaps",
                    suggestion="choose a loop further out, or reorder", about=(m.block.name,),
                )  # fmt: skip
            pairs = list(zip(total or spans, spans, strict=True))
            if not all(covers(a, b, an) and covers(b, a, an) for a, b in pairs):
                raise ScheduleError(
                    "reverse_compute_at", describe_block(block),
                    f"the writers of {buffer.name} under {describe_loop(target.loop)} make the "
                    "same region",
                    about=(m.block.name,),
                )  # fmt: skip
            total = spans
    return total


def _shortened(block: Block, domain: Domain, target: LoopPlace, an: Analyzer) -> Block:
    """Return the block with its axes cut to the values that all iterations of the loops need
    together."""
    env = loop_env((*target.loops, target.loop), an)
    iter_vars: list[IterVar] = []
    for iv in block.iter_vars:
        whole = Span(iv.dom.min, iv.dom.min + iv.dom.extent - 1)
        # Relaxed over the loops outside: the block's own domain must hold what every iteration asks
        # for, though each iteration runs a part of it.
        dom = reached(whole, domain.get(iv.var, whole), env, an)
        same = dom.min == iv.dom.min and dom.extent == iv.dom.extent
        iter_vars.append(iv if same else replace(iv, dom=dom))
    return replace(block, iter_vars=tuple(iter_vars))


def _restrict(domain: Domain, more: Domain, block: Block, target: LoopPlace, an: Analyzer) -> None:
    """Restrict `domain` by the instances that another read allows.

    Of two restrictions of an axis one must imply the other: only then is every instance run in
    some iteration.
    """
    for v, s in more.items():
        old = domain.get(v)
        if old is None or covers(old, s, an):
            domain[v] = s
        elif not covers(s, old, an):
            raise ScheduleError(
                "reverse_compute_at", describe_block(block),
                f"one iteration of {describe_loop(target.loop)} makes all that one value of "
                f"axis {v.name} reads",
                suggestion="choose a loop further out", about=(target.loop.loop_var,),
            )  # fmt: skip


def _not_available(
    region: BufferRegion, spans: Sequence[Span], block: Block, target: LoopPlace, an: Analyzer
) -> ScheduleError:
    pairs = list(zip(region.region, spans, region.buffer.shape, strict=True))
    partial = [str(r.min) for r, s, dim in pairs if not covers(s, Span(ZERO, dim - 1), an)]
    return ScheduleError(
        "reverse_compute_at", describe_block(block),
        f"what one instance reads of {region.buffer.name} (at {', '.join(partial)}) is made in one "
        f"iteration of {describe_loop(target.loop)}",
        suggestion="choose a loop further out", about=(target.loop.loop_var,),
    )  # fmt: skip


def _require_all_instances(
    nest: Stmt, domain: Domain, block: Block, target: LoopPlace, an: Analyzer
) -> None:
    """Raise unless the iterations of the loops together run each combination of the axes' values:
    without gaps, as where an instance reads more than one iteration makes, and not only the
    diagonal, as where a block reads one row at two axes."""
    if not domain:
        return
    inner = [n for n in walk_stmts(nest) if isinstance(n, For)]
    realize = next(n for n in walk_stmts(nest) if isinstance(n, BlockRealize))
    if not reaches_all((*target.loops, target.loop, *inner), realize, domain, an):
        names = [iv.var.name for iv in block.iter_vars if iv.var in domain]
        what = f"all of axis {names[0]}, without gaps"
        if len(names) > 1:
            what = f"all combinations of the axes {', '.join(names)}, not only equal ones"
        raise ScheduleError(
            "reverse_compute_at", describe_block(block),
            f"the iterations of {describe_loop(target.loop)} together provably reach {what}; an "
            "iteration runs only instances that read nothing but what it makes",
            suggestion="choose a loop further out", about=(target.loop.loop_var,),
        )  # fmt: skip


def _require_iteration(nest: Stmt, place: BlockPlace, target: LoopPlace, an: Analyzer) -> None:
    """Loops that no axis of the block is bound to run at least once: a sum of no terms is zero."""
    realize = next(n for n in walk_stmts(nest) if isinstance(n, BlockRealize))
    bound = {v for value in realize.iter_values for v in vars_in(value)}
    for loop in (*target.loops, target.loop):
        if loop.loop_var in bound or any(loop is other for other in place.loops):
            continue
        if not an.prove(expr.GE(loop.extent, ONE)):
            raise ScheduleError(
                "reverse_compute_at", describe_loop(target.loop),
                f"the block runs once at least; {describe_loop(loop)} may have no iterations",
                about=(loop.loop_var,),
            )  # fmt: skip


def _guarded(nest: Stmt, conditions: Sequence[PrimExpr]) -> Stmt:
    """The nest with its block run only where the conditions on its axes hold."""

    def visit(realize: BlockRealize) -> BlockRealize:
        values = binding_of(realize)
        more = [substitute(c, values) for c in conditions]
        return replace(realize, predicate=expr.all_of([realize.predicate, *more]))

    return map_realizes(nest, visit) if conditions else nest


def _nest(realize: BlockRealize, domain: Domain, an: Analyzer, preserve_unit_loops: bool) -> Stmt:
    """Return the block in loops over `domain`, with a predicate where an axis would leave its own
    range."""
    values: dict[Var, PrimExpr] = {}
    nearest: dict[Var, PrimExpr] = {}
    around: list[For] = []
    conditions: list[PrimExpr] = []

    def load(n: Node) -> Node | None:
        return substitute(n, nearest) if isinstance(n, BufferLoad) else None

    for i, iv in enumerate(realize.block.iter_vars):
        # The extent of an axis may depend on earlier axes, which are replaced by their values here.
        # Loops ask for extents where a predicate skips the block, too: what they load is in reach.
        dom = substitute(rewrite(iv.dom, load), values)
        whole = Span(dom.min, dom.min + dom.extent - 1)
        start, extent = _axis_range(whole, dom.extent, domain.get(iv.var), an)
        value = start
        if extent != ONE or preserve_unit_loops:
            ax = Var(f"ax{i}")
            around.append(For(ax, ZERO, extent, "serial", realize))
            value = start + ax
        values[iv.var] = nearest[iv.var] = value
        if not an.prove(expr.GE(start, whole.lo)):
            conditions.append(expr.GE(value, whole.lo))
            nearest[iv.var] = expr.Max(nearest[iv.var], whole.lo)
        if not an.prove(expr.LE(start + extent - 1, whole.hi)):
            conditions.append(expr.LT(value, an.simplify(whole.hi + 1)))
            nearest[iv.var] = expr.Min(nearest[iv.var], whole.hi)
    at, predicate = tuple(values.values()), expr.all_of(conditions)
    return nested(around, replace(realize, iter_values=at, predicate=predicate))


def _axis_range(
    whole: Span, size: PrimExpr, span: Span | None, an: Analyzer
) -> tuple[PrimExpr, PrimExpr]:
    """First value and number of values of an axis of `size` values that runs over `span`."""
    if span is None or covers(span, whole, an):
        return whole.lo, size
    # A constant extent is worth a predicate: only such loops can be vectorised, unrolled or kept in
    # registers.
    extent = _bounded(span.extent(an), an)
    if an.prove(expr.LE(size, extent)):
        return whole.lo, size
    return an.index_form(span.lo), extent


def _bounded(extent: PrimExpr, an: Analyzer) -> PrimExpr:
    """A constant bound in place of an irregular extent such as `min(16, n - 16 * i)`."""
    irregular = (expr.Min, expr.Max, expr.FloorDiv, expr.FloorMod)
    if any(isinstance(n, irregular) for n in walk(extent)):
        _, upper = an.bounds_of(extent)
        if upper is not None:
            return expr.const(upper)
    return extent


def _moved(place: BlockPlace, var: Var, nest: Stmt, index: int, primitive: str) -> PrimFunc:
    """The function with the block taken from its place and `nest` put under the loop."""
    block = place.block
    func = place.replaced(None)
    target = find_loop(func, var, primitive)
    body = target.loop.body
    stmts = list(body.stmts) if isinstance(body, SeqStmt) else [body]
    before = [_touches(s, written(block), [r.buffer for r in block.reads]) for s in stmts]
    first = max((i + 1 for i, t in enumerate(before) if t[0]), default=0)
    last = min((i for i, t in enumerate(before) if t[1]), default=len(stmts))
    at = {-1: last, -2: first}.get(index, index)
    if at not in range(first, last + 1):
        raise ScheduleError(
            primitive, describe_loop(target.loop),
            f"the block goes after what it reads and before what reads it: index {first} to {last}",
        )  # fmt: skip
    new_body = loops.seq(*stmts[:at], nest, *stmts[at:])
    return target.replaced(replace(target.loop, body=new_body))


def _touches(s: Stmt, outputs: list[Buffer], inputs: list[Buffer]) -> tuple[bool, bool]:
    """Return two flags: `s` produces one of `inputs`; `s` consumes one of `outputs`."""
    blocks = [r.block for r in realizes_under(s)]
    makes = any(w.buffer in inputs for b in blocks for w in b.writes)
    takes = any(r.buffer in outputs for b in blocks for r in b.reads)
    return makes, takes
