"""The last tile of an axis is computed whole and stored in part.

After a split that does not divide, every statement of the last tile is guarded by `tile*6 + row <
n`: branches in the innermost loops, and sums that cannot stay in registers. What is private to the
thread needs no guard: rows past the end are computed from the last row and not stored, as by
Halide's tail strategy `RoundUp`. Columns past the end are computed from zeros: a vector of them is
one masked load, where repeating the last column would be a gather.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer, simplify
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var, all_of
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    Stmt,
    While,
)
from relaxlab.ir.node import Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import bind_stmt, constant, shape_analyzer
from relaxlab.schedule.regions import refreshed
from relaxlab.schedule.tree import conjuncts, describe_block
from relaxlab.schedule.zero_divisors import division_by_data

AT_ONCE = ("vectorized", "unrolled")
"""The kinds of loops whose iterations are straight-line code."""


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A block under a guard that says `row < extent`, where `row` is the value of an axis: `tile`,
    a multiple of `size`, and loops over `size` rows. `reach`: the number of values that it has in
    the loops, if that is a constant."""

    guard: PrimExpr
    row: PrimExpr
    axis: Var
    extent: PrimExpr
    tile: PrimExpr
    size: int
    reach: int | None = None


def round_up_tails(func: PrimFunc) -> PrimFunc:
    """Remove the guards on rows from blocks that write only memory private to their thread.

    Rows past the end are computed from the last row, or where they read unrolled windows from the
    last places of the inputs. Raises ScheduleError unless there is such a block, and each row of
    that memory depends on one row of the inputs alone.
    """
    found: dict[Block, _Guarded] = {}
    blocks: list[Block] = []
    unrolled: dict[Block, frozenset[Var]] = {}
    around: dict[Block, Mapping[Var, For]] = {}
    for realize, loops in _leaves(func.body, {}):
        blocks.append(realize.block)
        around[realize.block] = loops
        unrolled[realize.block] = _unrolled_axes(realize, loops)
        guarded = _guarded(realize, loops)
        if guarded is not None:
            found[realize.block] = guarded
    private = [b for b in found if all(w.buffer.scope == "local" for w in b.writes)]
    rows: dict[Buffer, tuple[int, PrimExpr]] = {}
    written = {w.buffer for b in private for w in b.writes}
    for block in blocks:
        # Blocks that neither write nor read the private memory do not care what its last rows hold.
        if block not in private and written.isdisjoint(b for b, _ in _accesses(block)):
            continue
        # All blocks that touch it must be under such a guard, or a row past the end would reach a
        # result.
        guarded = found.get(block)
        if guarded is None or not _keeps_rows_apart(block, guarded, written, rows):
            raise ScheduleError(
                "round_up_tails", describe_block(block),
                "each row of local buffers is made from one row, and used under its guard",
                about=(block.name,),
            )  # fmt: skip
    if not private or set(rows) != written:
        raise ScheduleError(
            "round_up_tails", "the function", "a block that writes local rows has a guard on them"
        )

    def whole(n: Node) -> Node | None:
        if not isinstance(n, BlockRealize) or n.block not in private:
            return None
        guarded = found[n.block]
        # Other conditions stay: they may be about other axes.
        # A tile that begins past the end reads no rows of private sums, which it does not have.
        others = any(
            r.buffer.scope == "local" and r.buffer not in written
            and guarded.axis in symbols_in(r.region)
            for r in n.block.reads
        )  # fmt: skip
        known = guarded.reach is not None and not others
        begins = _begins(guarded, around[n.block], known=known)
        rest = all_of([begins if c == guarded.guard else c for c in conjuncts(n.predicate)])
        # A window past the end may hold elements that no row reads, which may be 0.
        divides = division_by_data(n.block) is not None
        free = frozenset[Var]() if divides else unrolled[n.block]
        return replace(n, predicate=rest, block=_clamped(func, n.block, guarded, free, written))

    return replace(func, body=rewrite(func.body, whole))


def round_up_vectors(func: PrimFunc) -> PrimFunc:
    """Remove the guards on the vectorised axis from blocks that write only memory private to their
    thread. Inputs read as zero past the end: loads are masked, the arithmetic is not, and a tile of
    sums stays in registers. Raises ScheduleError where there is no such guard."""
    func = _with_room_for_vectors(func)
    found = {
        realize.block: (*guarded, loops)
        for realize, loops in _leaves(func.body, {})
        if all(w.buffer.scope == "local" for w in realize.block.writes)
        and (guarded := _guarded_vectors(realize, loops)) is not None
        and _has_room(func, realize.block, guarded[0], loops)
        and division_by_data(realize.block) is None
    }

    def whole(n: Node) -> Node | None:
        if not isinstance(n, BlockRealize) or n.block not in found:
            return None
        guarded, inner, loops = found[n.block]
        looped = any(f.kind not in AT_ONCE for f in inner.values())
        # In a loop whole vectors past the end are still left out: of a symbolic extent they may be
        # most of it. Rows that lanes gather from need a last one.
        kept = looped or _gathered(n.block, guarded)
        begins = expr.LT(guarded.tile, guarded.extent) if kept else _begins(guarded, loops)
        parts = [begins if c == guarded.guard else c for c in conjuncts(n.predicate)]
        return replace(n, predicate=all_of(parts), block=_padded(func, n.block, guarded))

    if not found:
        raise ScheduleError(
            "round_up_vectors", "the function",
            "a block that writes local buffers has a guard on a vectorized axis",
        )  # fmt: skip
    return replace(func, body=rewrite(func.body, whole))


def _with_room_for_vectors(func: PrimFunc) -> PrimFunc:
    """Make private buffers as wide as the vectors that are stored into them, where the axis is
    known to be shorter: 15 columns take the room of 16."""
    rooms: dict[Buffer, list[PrimExpr]] = {}
    for realize, loops in _leaves(func.body, {}):
        found = _guarded_vectors(realize, loops)
        if found is None or any(w.buffer.scope != "local" for w in realize.block.writes):
            continue
        made = {w.buffer for w in realize.block.writes}
        an = _analyzer_in(func, realize.block, found[0], loops)
        for buffer, dim, at in _private_places(realize.block, found[0]):
            # Loads past the end must find stored elements: memory that nobody wrote may hold
            # denormal numbers, on which arithmetic takes a hundred times as long.
            if buffer not in made:
                continue
            shape = rooms.get(buffer, list(buffer.shape))
            room, last = constant(shape[dim]), an.upper_bound(at)
            # Widening is free: 15 columns end in a register of 16 lanes anyway.
            if room is not None and last is not None and room <= last:
                shape[dim] = expr.const(last + 1)
                rooms[buffer] = shape
    wider = {buffer: replace(buffer, shape=tuple(shape)) for buffer, shape in rooms.items()}
    return replace(func, body=substitute(func.body, buffers=wider)) if wider else func


def _guarded_vectors(
    realize: BlockRealize, loops: Mapping[Var, For]
) -> tuple[_Guarded, dict[Var, For]] | None:
    """Return the guard of the vectorised spatial axis, and the loops of constant extent in its
    value. `tile` is the first column of the vectors made at once, `size` their number of
    columns."""
    for guard, row, axis in _guards(realize):
        inner = {
            v: loops[v]
            for v in symbols_in(row)
            if v in loops and constant(loops[v].extent) is not None
        }
        # Unrolled rows without lanes are what `round_up_tails` is for: their loads repeat, not
        # mask.
        if not any(loop.kind == "vectorized" for loop in inner.values()):
            continue
        at_once = {v: f for v, f in inner.items() if f.kind in AT_ONCE}
        tile = substitute(row, {v: f.min for v, f in at_once.items()})
        last = substitute(row, {v: f.min + f.extent - 1 for v, f in at_once.items()})
        size = constant(Analyzer().simplify(last - tile + 1))
        if size is not None and _is_multiple(tile, size):
            found = _Guarded(guard, row, axis.var, axis.dom.extent, tile, size)
            looped = len(at_once) < len(inner)  # whose vectors past the end are left out
            if _keeps_rows_alone(realize, found, {*at_once}, loops, begins=looped):
                return found, inner
    return None


def _guards(realize: BlockRealize) -> Iterator[tuple[PrimExpr, PrimExpr, IterVar]]:
    """Yield each guard that says that the value of a spatial axis is less than its
    extent, with that value and the axis. Guards are simplified: of an extent `w - 2` the guard is
    `value + 2 < w`, of `w + 1` it is `value <= w`."""
    an = Analyzer()
    axes = [
        pair
        for pair in zip(realize.iter_values, realize.block.iter_vars, strict=True)
        if pair[1].kind == "spatial" and symbols_in(pair[0])
    ]
    for guard in conjuncts(realize.predicate):
        if not isinstance(guard, expr.LT | expr.LE):
            continue
        left = guard.b - guard.a + (1 if isinstance(guard, expr.LE) else 0)
        for row, axis in axes:
            if an.prove_equal(left, axis.dom.extent - row):
                yield guard, row, axis


def _keeps_rows_alone(
    realize: BlockRealize, guarded: _Guarded, inner: set[Var], loops: Mapping[Var, For],
    *, begins: bool,
) -> bool:  # fmt: skip
    """True if a guard keeps nothing but the row inside: past the end the other axes are in their
    domains all the same, other guards read no array there, and the block has no loops of its own
    that follow from the row. `inner` are the loops over a tile; `begins` says that the first row of
    each tile is inside."""
    others = [c for c in conjuncts(realize.predicate) if c != guarded.guard]
    moved = set(symbols_in(guarded.row))
    loads = (n for c in others for n in walk(c) if isinstance(n, BufferLoad))
    if any(moved & set(symbols_in(n.indices)) for n in loads):
        return False
    if _decides_inside(realize.block.body, guarded.axis):
        return False
    # Where the first row of a tile is inside, so is all that the loops outside of it decide.
    if begins or _begins(guarded, loops) == expr.const(True):
        moved = inner
    an = _analyzer_of(guarded, loops)
    for value, it in zip(realize.iter_values, realize.block.iter_vars, strict=True):
        if it.var == guarded.axis:
            continue
        if guarded.axis in symbols_in(it.dom):
            return False
        inside = expr.LE(it.dom.min, value), expr.LT(value, it.dom.min + it.dom.extent)
        if not moved.isdisjoint(symbols_in(value)) and not all(map(an.prove, inside)):
            return False
    return True


def _analyzer_of(guarded: _Guarded, loops: Mapping[Var, For]) -> Analyzer:
    """An analyzer with the ranges of the loops around a guarded block."""
    an = Analyzer.for_shapes(*(f.extent for f in loops.values()), guarded.extent)
    for loop in loops.values():
        bind_stmt(an, loop)
    return an


def _begins(
    guarded: _Guarded, loops: Mapping[Var, For], *, known: bool = False
) -> PrimExpr:
    """The guard that remains of a tile that is computed whole: its first row is inside. None is
    needed if that is so of every tile, or if the number of the rows in the loops is `known` and
    there is a last row: a split may leave one tile of an axis without rows."""
    an = _analyzer_of(guarded, loops)
    inside = expr.LT(_any_remainders(guarded.tile, an), guarded.extent)
    if an.prove(inside) or (known and an.prove(expr.LT(expr.const(0), guarded.extent))):
        return expr.const(True)
    return expr.LT(guarded.tile, guarded.extent)


def _decides_inside(body: Stmt, axis: Var) -> bool:
    """True if a row decides how often loops in a block run, or by a variable of its own what is
    read or computed."""
    own = set[Var]()
    for n in walk(body):  # variables are bound before they are used
        if isinstance(n, LetStmt | expr.Let) and {axis, *own} & set(symbols_in(n.value)):
            own.add(n.var)
    for n in walk(body):
        match n:
            case For(_, first, extent):
                decided, by = (first, extent), {axis, *own}
            case While(condition):
                decided, by = (condition,), {axis, *own}
            case BufferLoad(_, indices) | BufferStore(indices=indices):
                decided, by = indices, own
            case _:
                decided, by = _conditions(n), own
        if by & set(symbols_in(decided)):
            return True
    return False


def _any_remainders(e: PrimExpr, an: Analyzer) -> PrimExpr:
    """`e` with each remainder `x % y`, as in the index of a fused loop, replaced by a variable with
    the range from 0 to y - 1: the analyzer proves more about those than about remainders."""

    def visit(n: Node) -> Node | None:
        if not isinstance(n, expr.FloorMod):
            return None
        any_ = Var("remainder")
        an.bind_range(any_, Range(expr.const(0), n.b))
        return any_

    return rewrite(e, visit)


def _is_multiple(tile: PrimExpr, size: int) -> bool:
    """True if tiles of `size` elements begin at multiples of it, so that they do not overlap and
    the last one ends where the extent is rounded up to a multiple."""
    # `is True`: unknown is not a proof, and overlapping tiles would store what others compute.
    return Analyzer().prove_equal(expr.FloorMod(tile, expr.const(size, tile.dtype)), 0) is True


def _has_room(func: PrimFunc, block: Block, guarded: _Guarded, loops: Mapping[Var, For]) -> bool:
    """True if private buffers have room for all values of the axis in a tile."""
    an = _analyzer_in(func, block, guarded, loops)
    return all(
        an.prove(expr.LE(expr.const(0), at)) and an.prove(expr.LT(at, buffer.shape[dim]))
        for buffer, dim, at in _private_places(block, guarded)
    )


def _analyzer_in(
    func: PrimFunc, block: Block, guarded: _Guarded, loops: Mapping[Var, For]
) -> Analyzer:
    """An analyzer with the ranges of the loops around a block, and of its unguarded axes."""
    an = shape_analyzer(func)
    for loop in loops.values():
        bind_stmt(an, loop)
    for it in block.iter_vars:
        if it.var != guarded.axis:
            an.bind_range(it.var, it.dom)
    return an


def _private_places(block: Block, guarded: _Guarded) -> Iterator[tuple[Buffer, int, PrimExpr]]:
    """Yield the indices of private buffers that depend on the axis, by the loops around the
    block: buffer, dimension and index."""
    for buffer, indices in _accesses(block):
        for dim, index in enumerate(indices):
            if buffer.scope == "local" and guarded.axis in symbols_in(index):
                yield buffer, dim, substitute(index, {guarded.axis: guarded.row})


def _padded(func: PrimFunc, block: Block, guarded: _Guarded) -> Block:
    """Extend the block to columns past the end, for which shared memory reads as zero, unless it is
    known to have elements there, as after `pad_axis`. Lanes that gather read the last column again:
    a mask would keep squares of them from being turned in registers."""
    longer = _longer(block, guarded)
    has_elements = _elements_known(func, longer, guarded)
    gathered = _gathered(block, guarded)
    last = {guarded.axis: expr.Min(guarded.axis, guarded.extent - 1)}

    def pad(n: Node) -> Node | None:
        match n:
            case BufferLoad() if n in gathered and not has_elements(n):
                return substitute(n, last)
            case BufferLoad(buffer, indices) if (
                buffer.scope != "local"
                and guarded.axis in symbols_in(indices)
                and not has_elements(n)
            ):
                inside = expr.LT(guarded.axis, guarded.extent)
                return expr.Call(n.dtype, "if_then_else", (inside, n, expr.const(0, buffer.dtype)))
            case _:
                return None

    made = replace(rewrite(block, pad), iter_vars=longer)
    return refreshed(made) if gathered else made


def _gathered(block: Block, guarded: _Guarded) -> set[BufferLoad]:
    """The loads of a copy whose lanes along the guarded axis are apart in memory, as those of a
    transpose are."""
    store = block.body
    if not isinstance(store, BufferStore) or not isinstance(store.value, BufferLoad):
        return set()
    load = store.value
    across = guarded.axis in symbols_in(load.indices[:-1])
    contiguous = guarded.axis in symbols_in(load.indices[-1:])
    return {load} if across and not contiguous and load.buffer.scope != "local" else set()


def _elements_known(
    func: PrimFunc, axes: Sequence[IterVar], guarded: _Guarded
) -> Callable[[BufferLoad], bool]:
    """A test of loads: True if all values of these axes are known to be places of the buffer, in
    the dimensions that depend on the guarded one."""
    an = shape_analyzer(func)
    for it in axes:
        an.bind_range(it.var, it.dom)

    def has_elements(load: BufferLoad) -> bool:
        return all(
            an.prove(expr.LE(expr.const(0), at)) and an.prove(expr.LT(at, dim))
            for at, dim in zip(load.indices, load.buffer.shape, strict=True)
            if guarded.axis in symbols_in(at)
        )

    return has_elements


def _longer(block: Block, guarded: _Guarded) -> tuple[IterVar, ...]:
    """Return the block's axes, with the extent of the guarded one rounded up to a multiple of the
    tile: the loops around it go that far, and a block axis takes every value of its domain."""
    size = guarded.size
    whole = Analyzer().simplify((guarded.extent + (size - 1)) // size * size)
    if guarded.reach is not None:  # whole tiles, too, may be past the end
        whole = expr.const(guarded.reach)
    return tuple(
        replace(it, dom=replace(it.dom, extent=whole))
        if it.var == guarded.axis else it
        for it in block.iter_vars
    )  # fmt: skip


def _leaves(n: Node, loops: Mapping[Var, For]) -> Iterator[tuple[BlockRealize, Mapping[Var, For]]]:
    """Blocks without blocks in them, each with the loops around it."""
    inside = any(isinstance(c, BlockRealize) for c in walk(n) if c is not n)
    if isinstance(n, BlockRealize) and not inside:
        yield n, loops
        return
    if isinstance(n, For):
        loops = {**loops, n.loop_var: n}
    for child in children(n):
        if not isinstance(child, PrimExpr):
            yield from _leaves(child, loops)


def _guarded(realize: BlockRealize, loops: Mapping[Var, For]) -> _Guarded | None:
    """The one guard that compares the value of a spatial axis with the axis's symbolic extent."""
    found: list[_Guarded] = []
    an = Analyzer.for_shapes(*(f.extent for f in loops.values()))
    for loop in loops.values():
        bind_stmt(an, loop)
    for guard, value, axis in _guards(realize):
        most = an.upper_bound(value)
        for row in symbols_in(value):
            size = constant(loops[row].extent) if row in loops else None
            tile = substitute(value, {row: expr.const(0)})
            if size is None or loops[row].kind == "vectorized":
                continue
            if Analyzer().prove_equal(value, tile + row) and _is_multiple(tile, size):
                reach = None if most is None else most + 1
                one = _Guarded(guard, value, axis.var, axis.dom.extent, tile, size, reach)
                if _keeps_rows_alone(realize, one, {row}, loops, begins=False):
                    found.append(one)
    # Two such guards would be two axes past their ends at once; one clamp does not cover the other.
    return found[0] if len(found) == 1 else None


def _accesses(block: Block) -> Iterator[tuple[Buffer, tuple[PrimExpr, ...]]]:
    for n in walk(block):
        if isinstance(n, BufferLoad | BufferStore):
            yield n.buffer, n.indices


def _keeps_rows_apart(
    block: Block, guarded: _Guarded, written: set[Buffer],
    rows: dict[Buffer, tuple[int, PrimExpr]],
) -> bool:  # fmt: skip
    """True if the private buffers written are indexed by the row within the tile, or hold this row
    alone, in one dimension that is the same for all blocks. Collects in `rows` that dimension and
    its first row per buffer."""
    for buffer, indices in _accesses(block):
        at = [i for i, index in enumerate(indices) if guarded.axis in symbols_in(index)]
        if buffer not in written:
            continue
        if len(at) != 1:
            return False
        room = constant(buffer.shape[at[0]]) or 0
        # Room for a tile holds a row per iteration; less holds the current row, over and over.
        first = guarded.tile if room >= guarded.size else guarded.row
        if not Analyzer().prove_equal(indices[at[0]], guarded.axis - first):
            return False
        if rows.setdefault(buffer, (at[0], first)) != (at[0], first):
            return False
    return True


def _unrolled_axes(realize: BlockRealize, loops: Mapping[Var, For]) -> frozenset[Var]:
    """The axes of a block whose values differ between copies of straight-line code alone."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return frozenset(
        it.var for it, value in pairs
        if all(v in loops and loops[v].kind == "unrolled" for v in symbols_in(value))
    )  # fmt: skip


def _clamped(
    func: PrimFunc, block: Block, guarded: _Guarded, unrolled: frozenset[Var], written: set[Buffer]
) -> Block:
    """Extend the block to rows past the end, for which inputs, which are all buffers but those
    written row by row, are read at the last row, or in unrolled windows no further than the window
    of the last row, unless they are known to have elements there, as after `pad_axis`."""
    longer = _longer(block, guarded)
    has_elements = _elements_known(func, longer, guarded)
    last = {guarded.axis: expr.Min(guarded.axis, guarded.extent - 1)}
    windows = conditional = False

    def at(index: PrimExpr) -> PrimExpr:
        # Rows of a window read the same places then, which are loaded once; `min(row, last) + i`
        # is another place for each row and i.
        nonlocal windows
        end = _end_of_windows(block, index, guarded, unrolled)
        if end is None:
            return substitute(index, last)
        windows = True
        return expr.Min(index, end)

    def whole(n: Node) -> Node:
        """All of a value as that of the last row."""
        match n:
            case BufferLoad(buffer) if buffer in written:
                return n
            case BufferStore(_, value):
                return replace(n, value=whole(value))
            case Var() if n is guarded.axis:
                return last[guarded.axis]
            case _:
                return map_children(n, whole)

    def clamp(n: Node) -> Node:
        match n:
            case BufferLoad(buffer) if buffer in written:
                return n
            case BufferLoad(buffer, indices):
                known = buffer.scope != "local" and has_elements(n)
                return n if known else replace(n, indices=tuple(map(at, indices)))
            case BufferStore(_, value):
                return replace(n, value=clamp(value))
            # Declared regions must contain what is read, or later proofs would be about another
            # program.
            case BufferRegion(buffer, region) if buffer not in written:
                return replace(n, region=tuple(substitute(r, last) for r in region))
            # An element that is read under a condition on the row need not exist for other rows:
            # condition and element are both those of the last row.
            case _ if guarded.axis in symbols_in(_conditions(n)):
                nonlocal conditional
                conditional = True
                return map_children(n, whole)
            case _:
                return map_children(n, clamp)

    clamped = replace(map_children(block, clamp), iter_vars=longer)
    return refreshed(clamped) if windows or conditional else clamped


def _conditions(n: Node) -> tuple[PrimExpr, ...]:
    """The conditions that decide on what of a node is evaluated."""
    match n:
        case expr.Call(_, "if_then_else", (condition, *_)):
            return (condition,)
        case IfThenElse(condition) | expr.Select(condition):
            return (condition,)
        case expr.And(a) | expr.Or(a):
            return (a,)
        case _:
            return ()


def _end_of_windows(
    block: Block, index: PrimExpr, guarded: _Guarded, unrolled: frozenset[Var]
) -> PrimExpr | None:
    """Return the last place that the rows before the end read, if an index is a sum of the row and
    unrolled axes, each times a constant; None if it is not."""
    used = {*symbols_in(index)}
    others = used - {guarded.axis}
    if others == used or not others or not others <= unrolled:
        return None
    furthest: dict[Var, PrimExpr] = {guarded.axis: guarded.extent - 1}
    for it in block.iter_vars:
        if it.var not in used:
            continue
        step = simplify(substitute(index, {it.var: it.var + 1}) - index)
        if not isinstance(step, expr.IntImm) or (it.var == guarded.axis and step.value <= 0):
            return None
        end = it.dom.min + it.dom.extent - 1 if step.value > 0 else it.dom.min
        furthest.setdefault(it.var, end)
    return simplify(substitute(index, furthest))
