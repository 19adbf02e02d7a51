"""Rules that schedule kernels: how one is tried, and the helpers that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.errors import expect
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BlockRealize, BufferLoad, For, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.decisions import RULES, SPACE, Decider, key_of, versions_key
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.inline import REPEATED
from relaxlab.schedule.ranges import constant, shape_analyzer
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.trace import Steps
from relaxlab.schedule.tree import realizes_under, walk_stmts
from relaxlab.tracing import may_apply, remark
from relaxlab.tracing.limit import Stopped

Bounded = TypeVar("Bounded", bound=PrimExpr)
Rule = Callable[[Schedule, Context], Schedule | str]
"""Schedules a function in one way. Returns the schedule that was given, or a copy of it, with the
steps made, or a reason why the rule does not fit, which names what is missing and where."""
Space = Callable[[Schedule], Schedule | None]
"""Schedules a function with decisions of its own (`Schedule.sample_categorical` and its like): the
schedule that is given, or a copy, which is returned. Private buffers are compacted afterwards.
Raises ScheduleError where the decisions taken do not fit each other."""
LARGEST = 512
"""Most nodes of an expression that is inlined: twice as many would be too deep for recursive
functions over expressions, and a round trip through memory each hundred operations costs little."""
COLUMNS = range(2, 5)
"""Numbers of columns that are computed one at a time: softmax of 4000 rows of 2 and 4 took 4.9 and
10.7 us as one vector of all rows, 3.5 and 8.7 so; of 5 17.8 and 25.9, since many vectors are
shuffled (EPYC with AVX-512)."""


def blocks_of(func: PrimFunc) -> list[Block]:
    """The leaf blocks in program order, without the root block and others that hold blocks, and
    without those that store to private buffers alone: rules leave these as they are."""
    stmts = (s for s in walk_stmts(func.body) if s is not func.body)
    found = [s.block for s in stmts if isinstance(s, BlockRealize)]
    return [b for b in found if b.writes and not realizes_under(b.body)]


def is_spatial(block: Block) -> bool:
    """True if all axes of the block are independent."""
    return all(it.kind == "spatial" for it in block.iter_vars)


def is_scheduled(func: PrimFunc) -> bool:
    """True if the function is scheduled already: some loop is not plain serial. Loops within a leaf
    block do not count: hand-written statements state their vectors themselves."""
    within = {id(s) for b in blocks_of(func) for s in walk_stmts(b.body) if isinstance(s, For)}
    around = (s for s in walk_stmts(func.body) if isinstance(s, For) and id(s) not in within)
    return any(s.kind != "serial" or s.annotations for s in around)


def inline_producers(sch: Schedule, keep: Sequence[str] = ()) -> None:
    """Inline every elementwise producer into its consumers, where the schedule allows it and the
    expressions stay of a size that is compiled in no time."""
    for block in blocks_of(sch.func)[:-1]:
        if block.name in keep or not is_spatial(block) or _is_too_large(sch, block):
            continue
        try:
            sch.compute_inline(sch.get_block(block.name))
        except ScheduleError:
            continue


def _is_too_large(sch: Schedule, block: Block) -> bool:
    """True if inlining into a block made it too large to be inlined itself."""
    size = sum(1 for _ in walk(found_block(sch, sch.get_block(block.name)).body))
    # LLVM finds what small expressions have in common where they are repeated.
    if size <= REPEATED:
        return False
    made = block.writes[0].buffer
    readers = sum(any(r.buffer is made for r in b.reads) for b in blocks_of(sch.func))
    # Copied into several readers, a chain of steps that each read a value twice doubles with each
    # step (NOTES, *Chains that read values twice*).
    return readers > 1 or size > LARGEST


def separate_store(sch: Schedule, product: str) -> BlockRV:
    """Make block `product` accumulate in a private buffer; returns the block that stores the
    results: the last elementwise consumer, the others inlined into it, or a plain copy."""
    names = [b.name for b in blocks_of(sch.func)]
    consumers = names[names.index(product) + 1 :]
    # All but the last: a product is stored once, and elementwise consumers belong to that store.
    for name in consumers[:-1]:
        sch.compute_inline(sch.get_block(name))
    if not consumers:
        return sch.cache_write(sch.get_block(product), 0, "local")
    sch.set_scope(sch.get_block(product), 0, "local")
    return sch.get_block(consumers[-1])


def sum_of_products(block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """The two loads of `acc += a * b` (conversions allowed)."""
    body = block.body
    if not isinstance(body, loops.BufferStore) or not isinstance(body.value, expr.Add):
        return None
    product = body.value.b
    if not isinstance(product, expr.Mul):
        return None
    sides: list[BufferLoad] = []
    for side in (product.a, product.b):
        inner = side.value if isinstance(side, expr.Cast) else side
        if not isinstance(inner, BufferLoad):
            return None
        sides.append(inner)
    return sides[0], sides[1]


def split_vector(sch: Schedule, loop: LoopRV, lanes: int, *, unroll: bool) -> LoopRV:
    """Vectors of `lanes` iterations; returns the loop over them, unrolled on request."""
    vectors, lane = sch.split(loop, factors=[None, lanes])
    sch.vectorize(lane)
    if unroll:
        sch.unroll(vectors)
    return vectors


def extent_of(sch: Schedule, loop: LoopRV) -> expr.PrimExpr:
    """The loop's extent."""
    found = sch.get(loop)
    assert isinstance(found, loops.For)
    return found.extent


def output_dtype(block: Block) -> str:
    """Return the dtype of the buffer that the block writes."""
    return block.writes[0].buffer.dtype


def vectorize_inner(sch: Schedule, loop: LoopRV, lanes: int) -> LoopRV:
    """Make `loop` a vector of up to `lanes` lanes; returns the loop around it."""
    extent = constant(extent_of(sch, loop))
    # Split, a loop shorter than a vector would have a guard on its lanes. The unit loop is for
    # callers, which share out the loop around the vector.
    if extent is not None and extent <= lanes:
        outer = sch.add_unit_loop(loop)
        sch.vectorize(loop)
        return outer
    most = shape_analyzer(sch.func).upper_bound(extent_of(sch, loop))
    steps = 1 if most is not None and most <= lanes else None
    outer, inner = sch.split(loop, factors=[steps, lanes])
    sch.vectorize(inner)
    return outer


def shuffle_columns(sch: Schedule, store: BlockRV, tile: LoopRV) -> None:
    """Make vectors of a block whose rows, a vector of them in each iteration of `tile`, have few
    columns: these are computed one at a time, in registers, and stored as one vector of all
    rows."""
    rows, *columns = loops_inside(sch, store, tile)
    copy = sch.cache_write(store, 0, "local")
    sch.reverse_compute_at(copy, tile, preserve_unit_loops=True)
    made = found_block(sch, store).writes[0].buffer

    def rows_last(*at: PrimExpr) -> tuple[PrimExpr, ...]:
        return *at[1:], at[0]

    sch.transform_layout(store, made, rows_last)
    sch.reorder(*columns, rows)
    for loop in columns:
        sch.unroll(loop)
    sch.vectorize(rows)
    sch.vectorize(sch.fuse(*loops_inside(sch, copy, tile)))


def fitting(made: Schedule | str) -> Schedule:
    """The schedule that a rule made. Raises ScheduleError where it does not fit."""
    if isinstance(made, str):
        raise ScheduleError("schedule", "this version", made)
    return made


def attempted(rule: Rule, sch: Schedule, context: Context) -> Schedule | None:
    """The schedule that a rule makes of a copy; None where it does not fit."""
    try:
        made = rule(sch.copy(), context)
    except ScheduleError:
        return None
    return None if isinstance(made, str) else made


def with_joined_axes(
    sch: Schedule, rule: Rule, context: Context, *, units: bool = True
) -> Schedule | str:
    """Apply a rule to the function with its axes joined, where some can be joined, and with `units`
    without axes of one iteration."""
    try:
        sch.join_axes(lambda joined: fitting(rule(joined, context)), units)
    except ScheduleError as error:
        if error.refusal.primitive != "join_axes":  # the rule's own
            raise
        return rule(sch, context)
    return sch


def with_versions(
    sch: Schedule, context: Context, size: PrimExpr, bounds: Sequence[int],
    schedule: Callable[[Schedule, int | None], Schedule | None], exact: int = 1,
) -> None:  # fmt: skip
    """`Schedule.guarded_versions` where the context allows versions; else one, for any size or for
    those that a declared bound leaves."""
    if not context.versions and not isinstance(size, expr.IntImm):
        most = shape_analyzer(sch.func).upper_bound(size)
        bounds = [b for b in bounds if b > exact and most is not None and most <= b][:1]
    sch.guarded_versions(size, bounds, schedule, exact)


def bound_private_buffers(sch: Schedule, bounds: Mapping[Bounded, int]) -> None:
    """Give private buffers constant sizes, by upper bounds of symbols or of whole dimensions."""
    for size, most in bounds.items():
        # No buffer has that size, or nothing proves the bound: then the kernel is refused as one
        # whose private buffers are not constant.
        with suppress(ScheduleError):
            sch.bound_storage(size, most)


def where_allowed(step: Callable[[], object]) -> None:
    """Make a step of a schedule unless it is refused."""
    with suppress(ScheduleError):
        step()


def found_block(sch: Schedule, rv: BlockRV) -> Block:
    """Return the block of a handle."""
    block = sch.get(rv)
    assert isinstance(block, Block)
    return block


def follows_axis(index: PrimExpr, axis: Var, axes: Sequence[Var]) -> bool:
    """True for an index that is the axis, or so far from it that no other of the axes changes it:
    as in a slice."""
    if index == axis or index.dtype != axis.dtype:
        return index == axis
    return set(axes).isdisjoint(symbols_in(Analyzer().simplify(index - axis)))


def block_loops(sch: Schedule, block: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The loops that bind the block's spatial axes, and those that bind its reduce axes."""
    pairs = zip(found_block(sch, block).iter_vars, _bindings(sch, block), strict=True)
    reduce_vars = set(symbols_in(tuple(v for it, v in pairs if it.kind != "spatial")))
    spatial: list[LoopRV] = []
    reduce: list[LoopRV] = []
    for loop in loops_of_axes(sch, block):
        (reduce if _variable(sch, loop) in reduce_vars else spatial).append(loop)
    return spatial, reduce


def loops_of_axes(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    """The loops that give the block's axes their values, outermost first: not those that run the
    same instances again."""
    taken = set(symbols_in(_bindings(sch, block)))
    nest = sch.get_loops(block)
    return [x for x in nest if _variable(sch, x) in taken or constant(extent_of(sch, x)) == 1]


def loops_inside(sch: Schedule, block: BlockRV, outer: LoopRV) -> list[LoopRV]:
    """The loops around a block that are inside of `outer`, one of them, outermost first."""
    nest = sch.get_loops(block)
    return nest[[sch.get(loop) for loop in nest].index(sch.get(outer)) + 1 :]


def reduce_innermost(sch: Schedule, block: BlockRV) -> LoopRV:
    """Put the loop of the block's only reduce axis inside of the others, and return it."""
    _, (reduce,) = block_loops(sch, block)
    if inside := loops_inside(sch, block, reduce):
        sch.reorder(*inside, reduce)
    return reduce


def blocks_behind(sch: Schedule, block: BlockRV) -> list[BlockRV]:
    """The blocks of the root block that come after one of them, in order."""
    root = sch.func.body
    assert isinstance(root, BlockRealize)
    names = [r.block.name for r in realizes_under(root.block.body)]
    after = names[names.index(found_block(sch, block).name) + 1 :]
    return [sch.get_block(name) for name in after]


def axis_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    """The loops of the block, one for each of its axes, in their order. Raises ScheduleError where
    they are others, as those that a user has fused or split."""
    nest = sch.get_loops(block)
    if [_variable(sch, loop) for loop in nest] != list(_bindings(sch, block)):
        found = found_block(sch, block)
        raise ScheduleError(
            "schedule", f"block {found.name}", "each of its axes has a loop of its own, in order",
            about=(found.name,),
        )  # fmt: skip
    return nest


def _bindings(sch: Schedule, block: BlockRV) -> tuple[PrimExpr, ...]:
    """The values of the block's axes."""
    found = found_block(sch, block)
    return next(
        s.iter_values
        for s in walk_stmts(sch.func.body)
        if isinstance(s, BlockRealize) and s.block is found
    )


def _variable(sch: Schedule, loop: LoopRV) -> expr.Var:
    """The variable of a loop."""
    found = sch.get(loop)
    assert isinstance(found, For)
    return found.loop_var


def first_that_fits(
    name: str,
    func: PrimFunc,
    context: Context,
    rules: Iterable[tuple[str, Rule]],
    problem_of: Callable[[PrimFunc], str | None],
    decider: Decider | None,
    spaces: Mapping[str, Space] = MappingProxyType({}),
) -> PrimFunc | None:
    """The kernel scheduled by the first of the rules that fits and whose result has no problem; a
    scheduled kernel stays as it is. What the rules before it miss is remarked, and with the rule
    the facts of its schedule (`facts_of`). `decider` makes the rules' decisions; None: the
    defaults. Where there are `spaces`, the decision `SPACE` says whether one of them schedules the
    kernel instead."""
    if is_scheduled(func):
        remark("schedule_kernels", name, "already scheduled by hand", applied=False)
        return func
    sch = Schedule(context.with_facts(func), name, decider=decider)
    where_allowed(sch.form_blocks)
    for block in blocks_of(sch.func):
        if not is_spatial(block):
            where_allowed(partial(sch.canonicalize_reduction, sch.get_block(block.name)))
    for rule_name, rule in _asked_for(sch, tuple(rules), problem_of, spaces):
        try:
            made = rule(sch.copy(), context)
        except Stopped as stop:
            # Where a bisection limits the number of steps, the schedule so far is what is looked
            # at.
            chosen = may_apply("schedule_kernels", name, f"begun by the rule {rule_name}")
            return stop.state.func if chosen else sch.func
        except ScheduleError as e:
            made = str(e)
        except Exception as error:
            error.add_note(f"in the rule `{rule_name}`, for the kernel `{name}`")
            raise
        what = f"the rule {rule_name!r} returns its schedule, or says in words why it does not fit"
        expect(made, (Schedule, str), what)
        # A rule need not foresee every size: what it made is measured, and the next rule tried.
        reason = made if isinstance(made, str) else problem_of(made.func)
        if isinstance(made, Schedule) and reason is None:
            about = facts_of(made, context)
            text = f"scheduled by the rule {rule_name}"
            chosen = may_apply("schedule_kernels", name, text, **about)
            return made.func if chosen else sch.func
        text = f"the rule {rule_name} does not fit: {reason}"
        remark("schedule_kernels", name, text, applied=False)
    return None


def facts_of(sch: Schedule, context: Context) -> dict[str, Any]:
    """The facts that a remark on the schedule of a kernel holds: the function that it was given,
    `unscheduled`, the `context`, the trace of its `steps` and its `decisions`."""
    steps, decisions = Steps(tuple(sch.trace)), tuple(sch.decisions.values())
    return {
        "unscheduled": sch.original, "context": context, "steps": steps, "decisions": decisions,
    }  # fmt: skip


def _asked_for(
    sch: Schedule, rules: tuple[tuple[str, Rule], ...],
    problem_of: Callable[[PrimFunc], str | None], spaces: Mapping[str, Space],
) -> tuple[tuple[str, Rule], ...]:  # fmt: skip
    """The rules, or the space that is decided on instead of them; first, where the decider asks for
    versions by the value of a symbol, one rule that has each of them scheduled so."""
    for symbol in symbols_in(tuple(b.shape for b in sch.func.buffers)) if sch.decider else ():
        key = key_of(sch.within, versions_key(symbol.name))
        bounds = sch.decider(key, ((),)) if sch.decider else ()
        if isinstance(bounds, tuple) and bounds:
            made = partial(_in_versions, symbol, bounds, rules, problem_of, spaces)
            return ((f"versions for {symbol} ≤ {', '.join(map(str, bounds))}", made), *rules)
    chosen = sch.sample_categorical(SPACE, (RULES, *spaces), RULES) if spaces else RULES
    return rules if chosen == RULES else ((chosen, partial(_in_space, spaces[chosen])),)


def _in_space(space: Space, sch: Schedule, context: Context) -> Schedule:
    made = space(sch) or sch
    made.compact_buffers()
    return made


def _in_versions(
    symbol: expr.Var, bounds: tuple[int, ...], rules: tuple[tuple[str, Rule], ...],
    problem_of: Callable[[PrimFunc], str | None], spaces: Mapping[str, Space],
    sch: Schedule, context: Context,
) -> Schedule:  # fmt: skip
    def version(sub: Schedule, bound: int | None) -> Schedule:
        for _, rule in _asked_for(sub, rules, problem_of, spaces):
            made = attempted(rule, sub, context)
            if made is not None and problem_of(made.func) is None:
                return made
        raise ScheduleError("schedule", sub.name, f"a rule fits its version for {symbol} ≤ {bound}")

    sch.guarded_versions(symbol, bounds, version)
    return sch
