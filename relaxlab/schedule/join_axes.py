"""Neighbouring axes as one: sums over the first axis of (n, 8, 16, 8) are those of (n, 1024).

Where every access that mentions two axes of a block has them as neighbouring indices, the second
through its whole dimension, the two go through memory like one, and vectors and tiles need not end
where the inner one does. Axes of one iteration, and dimensions of size 1, can be left out as well:
they would stand between neighbours. The function is scheduled with joined axes and dimensions; then
its parameters, whose shapes belong to the callers, get their dimensions back.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr
from relaxlab.ir.dtypes import lanes_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    MatchBufferRegion,
    PrimFunc,
    Range,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ZERO, shape_analyzer
from relaxlab.schedule.regions import opaque_buffers, refreshed
from relaxlab.schedule.tree import TRUE, child_stmts

Item = TypeVar("Item")
Joined = dict[Buffer, set[int]]
"""The dimensions of each buffer that are joined with the next one."""


@dataclass(frozen=True, slots=True)
class _Nest:
    """A block in loops of its own, one for each of its axes. joined: the numbers of the axes that
    are joined with the next one."""

    loops: tuple[For, ...]
    block: Block
    joined: set[int]

    def statements(self) -> list[Stmt]:
        """The body and the initialisation, without the regions, which mention accesses again."""
        init = self.block.init
        return [self.block.body] if init is None else [self.block.body, init]

    def accesses(self) -> list[BufferLoad | BufferStore]:
        found = (n for s in self.statements() for n in walk(s))
        return [n for n in found if isinstance(n, BufferLoad | BufferStore)]


def join_axes(
    func: PrimFunc, units: bool
) -> tuple[PrimFunc, Callable[[PrimFunc], PrimFunc]]:
    """Return the function with its axes joined as far as all blocks allow, spatial with spatial and
    reduced with reduced ones, whose terms keep their order, and a function that gives a schedule of
    it the parameters of `func`. With `units` axes of one iteration are left out. Raises
    ScheduleError where nothing can be joined."""
    root = func.body
    if not isinstance(root, BlockRealize):
        raise _refused()
    stmts = child_stmts(root.block)[-1:]
    stmts = child_stmts(stmts[0]) if not isinstance(stmts[0], For) else stmts
    bound = [n for n in map(_axes_of, stmts) if n is not None]
    packed = func.attrs.get("layout_rewrites")
    if len(bound) < len(stmts) or opaque_buffers(root) or packed:
        raise _refused()
    nests = [_nest(loops, block, func, units) for loops, block in bound]
    dims = _joined_dimensions(nests, units)
    if not any(dims.values()):
        raise _refused()
    made = {
        b: replace(b, shape=tuple(map(_product, _runs(b.shape, joined))))
        for b, joined in dims.items()
        if joined
    }
    body = seq(*(_joined_nest(nest, dims, made) for nest in nests))
    allocated = tuple(made.get(b, b) for b in root.block.alloc_buffers)
    block = _refreshed(replace(root.block, body=body, alloc_buffers=allocated), made)
    params = tuple(made.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    joined = replace(func, params=params, body=replace(root, block=block))
    return joined, lambda scheduled: _with_params_of(func, scheduled, dims)


def _refused() -> ScheduleError:
    return ScheduleError(
        "join_axes", "the function",
        "each block is alone in loops over its axes, and two axes of one kind are neighbouring "
        "indices of whatever mentions one of them; no parameter has another layout already",
    )  # fmt: skip


Bound = tuple[tuple[For, ...], Block]
"""A block in loops of its own, one for each of its axes."""


def _axes_of(stmt: Stmt) -> Bound | None:
    """The block of a nest of serial loops, one for each axis; None for other statements."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, BlockRealize) or stmt.predicate != TRUE:
        return None
    bound = [(loop.loop_var, loop.min, loop.extent, loop.kind) for loop in loops]
    wanted = zip(stmt.iter_values, stmt.block.iter_vars, strict=True)
    if bound != [(value, ZERO, it.dom.extent, "serial") for value, it in wanted]:
        return None
    return tuple(loops), stmt.block


def _nest(loops: tuple[For, ...], block: Block, func: PrimFunc, units: bool) -> _Nest:
    """The nest with 0 for its reduced axes of one iteration: of a 1 x 1 convolution, places in the
    image are axes then, not windows. With `units` axes of one iteration are left out, but for the
    last reduced one, which initialises."""
    axes = block.iter_vars
    single = [it for it in axes if it.dom.extent == expr.const(1)]
    reduced = [it for it in axes if it.kind != "spatial"]
    if units and reduced and set(reduced) <= set(single):
        single.remove(reduced[-1])
    zeros = [it for it in single if units or it in reduced]
    if zeros:
        block = _at_zero(block, [it.var for it in zeros])
    if units:
        loops = tuple(f for f, it in zip(loops, axes, strict=True) if it not in zeros)
        axes = tuple(it for it in axes if it not in zeros)
        block = replace(block, iter_vars=axes)
    pairs = zip(axes, axes[1:], strict=False)
    joined = {
        i for i, (a, b) in enumerate(pairs) if a.kind == b.kind and not _is_signed(b, func)
    }
    return _Nest(loops, block, joined)


def _is_signed(axis: IterVar, func: PrimFunc) -> bool:
    """True if a scalar parameter may make the extent of an axis negative: with that of another one,
    the product would be positive, and the joined axis would have iterations."""
    scalars = {p for p in func.params if isinstance(p, Var)}
    extent = axis.dom.extent
    if scalars.isdisjoint(symbols_in(extent)):
        return False
    return shape_analyzer(func).prove(expr.GE(extent, ZERO)) is not True


def _at_zero(block: Block, axes: Sequence[Var]) -> Block:
    an, zeros = Analyzer(), dict.fromkeys(axes, ZERO)

    def at_zero(s: Stmt) -> Stmt:
        return rewrite(substitute(s, zeros), lambda n: _with_simple_indices(n, an))

    init = None if block.init is None else at_zero(block.init)
    return replace(block, body=at_zero(block.body), init=init)


def _with_simple_indices(n: Node, an: Analyzer) -> Node | None:
    if not isinstance(n, BufferLoad | BufferStore):
        return None
    return replace(n, indices=tuple(map(an.simplify, n.indices)))


def _joined_dimensions(nests: Sequence[_Nest], units: bool) -> Joined:
    """Keep the axes of the nests that may be joined; return the dimensions that they go along, and
    with `units` those of one place around them."""
    accesses = [(nest, access) for nest in nests for access in nest.accesses()]
    following = _following((access for _, access in accesses), units)
    dims: Joined = {buffer: {*after} for buffer, after in following.items()}
    before = -1
    while before != (before := sum(map(len, (*dims.values(), *(n.joined for n in nests))))):
        for nest, access in accesses:
            axes = [(it.var, it.dom.extent) for it in nest.block.iter_vars]
            pairs = [(axes[i], axes[i + 1]) for i in nest.joined]
            along = list(zip(access.indices, access.buffer.shape, strict=True))
            dims[access.buffer] -= {
                p for p in dims[access.buffer]
                if (q := following[access.buffer][p]) < len(along)
                and (along[p], along[q]) not in pairs
            }  # fmt: skip
        for nest in nests:
            _keep_joined(nest, dims, following)
    return {b: _with_units(b, ps, following[b]) for b, ps in dims.items()}


Following = dict[Buffer, dict[int, int]]
"""For dimensions of each buffer the next one behind it. The number of dimensions follows the last
one."""


def _following(accesses: Iterable[BufferLoad | BufferStore], units: bool) -> Following:
    """With `units`, dimensions of size 1 in which all accesses have 0 are left out."""
    used: dict[Buffer, set[int]] = {}
    for access in accesses:
        along = enumerate(zip(access.indices, access.buffer.shape, strict=True))
        place = (ZERO, expr.const(1))
        found = {d for d, at in along if not units or at != place}
        used[access.buffer] = used.get(access.buffer, set()) | found
    return {b: dict(pairwise([*sorted(ds), b.ndim])) for b, ds in used.items()}


def _with_units(buffer: Buffer, joined: set[int], after: Mapping[int, int]) -> set[int]:
    """The dimensions that are joined with the next one: units go with the one before them, the
    first ones with the one behind them."""
    first = range(min(after, default=0))
    within = (d for p, q in after.items() for d in range(p, q - 1))
    return {*first, *within, *(after[p] - 1 for p in joined if after[p] < buffer.ndim)}


def _keep_joined(nest: _Nest, dims: Joined, following: Following) -> None:
    """Keep the axes that nothing mentions but indices that are joined."""
    used = Counter(n for s in nest.statements() for n in walk(s) if isinstance(n, Var))
    first, second = Counter[Var](), Counter[Var]()
    for access in nest.accesses():
        for p in dims[access.buffer]:
            if (q := following[access.buffer][p]) < access.buffer.ndim:
                first[access.indices[p]] += 1  # type: ignore[reportArgumentType]  # a variable
                second[access.indices[q]] += 1  # type: ignore[reportArgumentType]
    axes = [it.var for it in nest.block.iter_vars]
    nest.joined.intersection_update(
        i for i in nest.joined
        if used[axes[i]] == first[axes[i]] and used[axes[i + 1]] == second[axes[i + 1]]
    )  # fmt: skip


def _product(extents: Sequence[PrimExpr]) -> PrimExpr:
    """The product, with the last extents multiplied first, which are numbers more often."""
    return functools.reduce(lambda inner, extent: extent * inner, reversed(extents))


def _runs(items: Sequence[Item], joined: set[int]) -> list[list[Item]]:
    """The items, joined ones in one list."""
    result: list[list[Item]] = []
    for i, item in enumerate(items):
        if i - 1 in joined:
            result[-1].append(item)
        else:
            result.append([item])
    return result


def _joined_nest(nest: _Nest, dims: Joined, made: dict[Buffer, Buffer]) -> Stmt:
    """The nest with one loop and one axis for those that are joined. The first variable of each run
    stays."""

    def visit(n: Node) -> Node | None:
        if not isinstance(n, BufferLoad | BufferStore) or n.buffer not in made:
            return None
        # Without units: the first index of joined dimensions, whose variable is that of their axis.
        along = zip(n.indices, n.buffer.shape, strict=True)
        runs = _runs([*along], dims[n.buffer])
        used = ([i for i, size in run if (i, size) != (ZERO, expr.const(1))] for run in runs)
        indices = tuple(next(iter(run), ZERO) for run in used)
        return replace(n, buffer=made[n.buffer], indices=indices)

    block = nest.block
    axes: list[IterVar] = []
    for run in _runs(block.iter_vars, nest.joined):
        extent = _product([it.dom.extent for it in run])
        axes.append(replace(run[0], dom=Range(ZERO, extent)))
    body = rewrite(block.body, visit)
    init = None if block.init is None else rewrite(block.init, visit)
    block = _refreshed(replace(block, iter_vars=tuple(axes), body=body, init=init), made)
    loops = [run[0] for run in _runs(nest.loops, nest.joined)]
    stmt: Stmt = BlockRealize(tuple(loop.loop_var for loop in loops), TRUE, block)
    for loop, axis in zip(reversed(loops), reversed(axes), strict=True):
        stmt = replace(loop, extent=axis.dom.extent, body=stmt)
    return stmt


def _with_params_of(func: PrimFunc, scheduled: PrimFunc, dims: Joined) -> PrimFunc:
    """The scheduled function on the parameters of `func`, whose joined indices are taken apart.
    Where machine code computes addresses they are put together again. Parameters whose layout was
    changed keep it: callers make it of the dimensions of `func`."""
    layouts: dict[int, IndexMap] = dict(scheduled.attrs.get("layout_rewrites", ()))
    params = tuple(
        new if i in layouts else old
        for i, (new, old) in enumerate(zip(scheduled.params, func.params, strict=True))
    )
    pairs = zip(scheduled.params, params, strict=True)
    whole = {
        new: old for new, old in pairs
        if new is not old and isinstance(new, Buffer) and isinstance(old, Buffer)
    }  # fmt: skip
    attrs = scheduled.attrs
    if layouts:
        maps = ((i, _from_apart(func.params[i], each, dims)) for i, each in layouts.items())
        attrs = attrs.with_(layout_rewrites=tuple(maps))

    def visit(n: Node) -> Node | None:
        if isinstance(n, Block):
            return _refreshed(n, whole) if any(b in whole for b in _touched(n)) else None
        if isinstance(n, MatchBufferRegion) and n.source.buffer in whole:
            old = whole[n.source.buffer]
            parts = map(_ranges_apart, n.source.region, _runs(old.shape, dims[old]))
            return replace(n, source=BufferRegion(old, tuple(r for part in parts for r in part)))
        if not isinstance(n, BufferLoad | BufferStore) or n.buffer not in whole:
            return None
        old = whole[n.buffer]
        runs = _runs(old.shape, dims[old])
        parts = map(_apart, n.indices, runs)
        return replace(n, buffer=old, indices=tuple(i for part in parts for i in part))

    return replace(scheduled, params=params, attrs=attrs, body=rewrite(scheduled.body, visit))


def _from_apart(param: Var | Buffer, index_map: IndexMap, dims: Joined) -> IndexMap:
    """The map from joined dimensions of a parameter as one from the dimensions themselves."""
    assert isinstance(param, Buffer)
    axes = [Var(f"i{d}") for d in range(param.ndim)]
    runs = zip(_runs(axes, dims[param]), _runs(param.shape, dims[param]), strict=True)
    return IndexMap(tuple(axes), index_map.apply(_together(*run) for run in runs))


def _together(indices: Sequence[PrimExpr], sizes: Sequence[PrimExpr]) -> PrimExpr:
    """The place in the joined dimension of a place in dimensions of `sizes`."""
    pairs = zip(indices[1:], sizes[1:], strict=True)
    return functools.reduce(lambda before, pair: before * pair[1] + pair[0], pairs, indices[0])


def _ranges_apart(r: Range, sizes: Sequence[PrimExpr]) -> list[Range]:
    """The places in dimensions of `sizes` of places in the joined one. Raises ScheduleError for
    several that are no box there."""
    long = _long(sizes)
    if len(long) == 1:
        return [r if d in long else Range(ZERO, size) for d, size in enumerate(sizes)]
    if r.extent != expr.const(1):
        raise ScheduleError("join_axes", f"places {r.min} and following", "a view is of one place")
    return [Range(i, r.extent) for i in _apart(r.min, sizes)]


def _refreshed(block: Block, instead: Mapping[Buffer, Buffer]) -> Block:
    """The block, which accesses other buffers instead of some, with regions of those that it had:
    a block need not read what it wrote itself."""
    new = refreshed(block)
    for kind in ("reads", "writes"):
        had = {instead.get(r.buffer, r.buffer) for r in getattr(block, kind)}
        kept = tuple(r for r in getattr(new, kind) if r.buffer in had)
        new = replace(new, **{kind: kept})
    return new


def _touched(block: Block) -> set[Buffer]:
    return {r.buffer for r in (*block.reads, *block.writes)}


def _apart(index: PrimExpr, sizes: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The places in dimensions of `sizes` of a place in the joined one."""
    zero = expr.const(0, index.dtype)
    result, (first, *others) = [zero] * len(sizes), _long(sizes)
    for d in reversed(others):
        lanes = lanes_of(index.dtype)
        each = sizes[d] if lanes == 1 else expr.Broadcast(sizes[d], lanes)
        result[d] = expr.FloorMod(index, each)
        index = expr.FloorDiv(index, each)
    result[first] = index
    return result


def _long(sizes: Sequence[PrimExpr]) -> list[int]:
    """The numbers of dimensions that are not of size 1; the first, if all are."""
    return [d for d, size in enumerate(sizes) if size != expr.const(1)] or [0]
