"""cache_index: tables of indices that a block computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxlab.analysis.regions import point_region
from relaxlab.ir.expr import BinaryOp, Div, FloorDiv, FloorMod, IntImm, Mod, PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    IterVar,
    PrimFunc,
    Stmt,
    nest_over,
    seq,
)
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache import insert, position_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.tree import (
    TRUE,
    BlockPlace,
    describe_block,
    find_block,
    fresh_block_name,
    fresh_buffer_name,
    vars_in,
)

PRIMITIVE = "cache_index"
DIVISIONS = (Div, Mod, FloorDiv, FloorMod)


@dataclass(frozen=True, slots=True)
class _Table:
    """The values of an index computation, for the values of the axes that it is made of."""

    value: PrimExpr
    axes: tuple[IterVar, ...]
    buffer: Buffer

    @property
    def load(self) -> BufferLoad:
        return BufferLoad(self.buffer, tuple(iv.var - iv.dom.min for iv in self.axes))


def cache_index(
    func: PrimFunc, name: str, scope: str, threshold: int
) -> tuple[PrimFunc, tuple[str, ...]]:
    """Read computed indices of a block's loads from tables in the given scope, which are filled
    before the loops around the block. Computations that occur less than `threshold` times, of which
    those within others that have a table do not count, stay as they are.

    Returns the function and the names of the blocks that fill the tables.
    """
    place = find_block(func, name, PRIMITIVE)
    tables: list[_Table] = []
    for value in _repeated(place.block, max(threshold, 1)):
        tables.append(_table(place, value, len(tables), scope))
    if not tables:
        return func, ()
    by_value = {t.value: t.load for t in tables}

    def visit(n: Node) -> Node | None:
        if isinstance(n, BufferLoad):
            return replace(n, indices=tuple(_looked_up(i, by_value) for i in n.indices))
        return None

    block = place.block
    reads = tuple(point_region(t.buffer, t.load.indices) for t in tables)
    block = replace(block, body=rewrite(block.body, visit), reads=(*block.reads, *reads))
    names = tuple(fresh_block_name(func, f"index_{i}") for i in range(len(tables)))
    nests = seq(*(_filling(t, n) for t, n in zip(tables, names, strict=True)))
    func = place.replaced(replace(place.realize, block=block))
    place = find_block(func, name, PRIMITIVE)
    buffers = (*place.scope.alloc_buffers, *(t.buffer for t in tables))
    body = insert(place.scope.body, position_of(place), nests)
    scope_block = replace(place.scope, body=body, alloc_buffers=buffers)
    return place.replaced(scope_block, place.scope_depth), names


def _repeated(block: Block, threshold: int) -> list[PrimExpr]:
    """The computations of indices that occur often enough, larger ones first."""
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    indices = [i for load in loads for i in load.indices]
    axes = {iv.var for iv in block.iter_vars}
    found = [n for i in indices for n in walk(i) if isinstance(n, PrimExpr)]
    candidates = [n for n in dict.fromkeys(found) if _is_computed(n, axes)]
    chosen: list[PrimExpr] = []
    for value in sorted(candidates, key=lambda e: -sum(1 for _ in walk(e))):
        # Those inside of what was chosen before are gone.
        taken = dict.fromkeys(chosen, IntImm(0))
        left = [_looked_up(i, taken) for i in indices]
        if sum(n == value for i in left for n in walk(i)) >= threshold:
            chosen.append(value)
    return chosen


def _is_computed(e: PrimExpr, axes: set[Var]) -> bool:
    """True for arithmetic that has a value at all points of the axes' domains, those included at
    which a predicate keeps the block from running: it never divides by an axis."""
    plain = all(isinstance(n, Var | IntImm | BinaryOp) for n in walk(e))
    safe = all(
        isinstance(n.b, IntImm) and n.b.value != 0
        for n in walk(e) if isinstance(n, DIVISIONS)
    )  # fmt: skip
    return isinstance(e, BinaryOp) and plain and safe and vars_in(e) <= axes


def _looked_up(index: PrimExpr, values: Mapping[PrimExpr, PrimExpr]) -> PrimExpr:
    """An index with other expressions for computations, larger ones first."""
    for value, load in values.items():
        index = rewrite(index, lambda n, v=value, to=load: to if n == v else None)
    return index


def _table(place: BlockPlace, value: PrimExpr, number: int, scope: str) -> _Table:
    axes = tuple(iv for iv in place.block.iter_vars if iv.var in vars_in(value))
    inner = {iv.var for iv in place.block.iter_vars} | {s.loop_var for s in place.loops}
    for iv in axes:
        if (vars_in(iv.dom.min) | vars_in(iv.dom.extent)) & inner:
            raise ScheduleError(
                PRIMITIVE, describe_block(place.block),
                f"the axes that index {value} is made of have fixed domains; {iv.var.name} has "
                f"{iv.dom.extent} values",
            )  # fmt: skip
    name = fresh_buffer_name(place.func, f"index_var_{number}")
    shape = tuple(iv.dom.extent for iv in axes)
    return _Table(value, axes, Buffer(name, shape, value.dtype, scope=scope))


def _filling(table: _Table, name: str) -> Stmt:
    """Loops over the axes around a block that computes one index."""
    axes = {iv.var: Var(f"v{d}") for d, iv in enumerate(table.axes)}
    iter_vars = tuple(IterVar(axes[iv.var], iv.dom, "spatial") for iv in table.axes)
    at = tuple(substitute(i, axes) for i in table.load.indices)
    block = Block(
        name, iter_vars, (), (point_region(table.buffer, at),),
        BufferStore(table.buffer, substitute(table.value, axes), at),
    )  # fmt: skip
    loop_vars = tuple(Var(f"ax{d}") for d in range(len(iter_vars)))
    values = tuple(iv.dom.min + v for iv, v in zip(table.axes, loop_vars, strict=True))
    extents = [iv.dom.extent for iv in table.axes]
    return nest_over(loop_vars, extents, BlockRealize(values, TRUE, block))
