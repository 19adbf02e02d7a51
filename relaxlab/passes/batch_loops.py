"""The loop function of a batch, from the loop function of one instance.

One transformation for every loop function, those of operators and a user's own alike: an outermost
axis over the instances. Buffers that differ between instances get it as their first dimension;
what all share stays as it is. Dimensions and axes of extent 1 disappear, so that a product of one
row per instance is a product of many rows, which the rules for products schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from relaxlab.ir import expr, loops
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.substitute import substitute

T = TypeVar("T")
ZERO, ONE = expr.const(0), expr.const(1)


class CannotBatch(Exception):
    """The reason why a loop function has no form for batches."""


def kept_dims(shape: Sequence[expr.PrimExpr]) -> tuple[int, ...]:
    """The dimensions that stay in a batch: those whose extent is not 1."""
    return tuple(i for i, d in enumerate(shape) if not _is_one(d))


def batch_loops(func: loops.PrimFunc, batched: Sequence[bool]) -> loops.PrimFunc:
    """Return the loop function that runs `func` for each instance of a batch.

    batched: for each buffer parameter, True if it differs between the instances. Its shape (1, k)
    becomes (batch, k). Buffers that the function allocates are batched where something is written
    to them that is. Outputs have to be batched.

    Raises CannotBatch for buffers with strides or views of regions that differ between instances.
    """
    size = expr.Var("batch")
    differing = {b for b, yes in zip(func.buffers, batched, strict=True) if yes}
    differing = _closure(func.body, differing)
    for b in differing:
        if b.strides or b.elem_offset is not None:
            raise CannotBatch(f"`{b.name}` has strides")
    made = {b: _batched_buffer(b, size) for b in differing}
    state = _Batcher(size, made)
    params = tuple(made.get(p, p) if isinstance(p, loops.Buffer) else p for p in func.params)
    attrs = func.attrs.with_(op_pattern=None)
    # Symbols belong to one function each.
    return replace(func, params=params, body=state.outermost(func.body), attrs=attrs, private=True)


def gather_rows(shape: Sequence[expr.PrimExpr], dtype: str) -> loops.PrimFunc:
    """Return the loop function `(arena, at) -> rows` that reads a tensor of this shape per
    instance: that of instance v begins at element `at[v]` of the arena."""
    size, length = expr.Var("batch"), expr.Var("length")
    dims = tuple(shape[i] for i in kept_dims(shape))
    arena = loops.Buffer("arena", (length,), dtype)
    at = loops.Buffer("at", (size,), "int64")
    rows = loops.Buffer("rows", (size, *dims), dtype)
    axes = tuple(expr.Var(f"v{i}") for i in range(len(dims) + 1))
    flat: expr.PrimExpr = ZERO
    for axis, d in zip(axes[1:], dims, strict=True):
        flat = axis if flat is ZERO else flat * d + axis
    start = loops.BufferLoad(at, axes[:1])
    place = start if flat is ZERO else start + flat
    store = loops.BufferStore(rows, loops.BufferLoad(arena, (place,)), axes)
    reads = (_point(at, axes[:1]), _point(arena, (place,)))
    return _nest("gather", (arena, at, rows), axes, (size, *dims), reads, store)


def repeat_rows(
    shape: Sequence[expr.PrimExpr], dtype: str, like_dtype: str = "int64"
) -> loops.PrimFunc:
    """Return the loop function `(value, like) -> rows` that gives each instance the same tensor of
    this shape. `like` is an array with one element per instance, which says how many there are."""
    size = expr.Var("batch")
    value = loops.Buffer("value", tuple(shape), dtype)
    like = loops.Buffer("like", (size,), like_dtype)
    kept = kept_dims(shape)
    dims = tuple(shape[i] for i in kept)
    rows = loops.Buffer("rows", (size, *dims), dtype)
    axes = tuple(expr.Var(f"v{i}") for i in range(len(dims) + 1))
    inner = dict(zip(kept, axes[1:], strict=True))
    at = tuple(inner.get(i, ZERO) for i in range(len(shape)))
    store = loops.BufferStore(rows, loops.BufferLoad(value, at), axes)
    return _nest("repeat", (value, like, rows), axes, (size, *dims), (_point(value, at),), store)


def copy_rows(dims: Sequence[expr.PrimExpr], dtype: str) -> loops.PrimFunc:
    """Return the loop function `(source, rows)` that copies a tensor of these dimensions per
    instance."""
    size = expr.Var("batch")
    source, rows = (loops.Buffer(n, (size, *dims), dtype) for n in ("source", "rows"))
    axes = tuple(expr.Var(f"v{i}") for i in range(len(dims) + 1))
    store = loops.BufferStore(rows, loops.BufferLoad(source, axes), axes)
    return _nest("copy", (source, rows), axes, rows.shape, (_point(source, axes),), store)


def _nest(
    name: str,
    params: tuple[loops.Buffer, ...],
    axes: tuple[expr.Var, ...],
    extents: tuple[expr.PrimExpr, ...],
    reads: tuple[loops.BufferRegion, ...],
    store: loops.BufferStore,
) -> loops.PrimFunc:
    iters = tuple(
        loops.IterVar(v, loops.Range(ZERO, e), "spatial")
        for v, e in zip(axes, extents, strict=True)
    )
    writes = (_point(store.buffer, store.indices),)
    block = loops.Block(name, iters, reads, writes, store)
    return loops.PrimFunc(params, loops.nest_over_axes(block, "i"), private=True)


def _point(buffer: loops.Buffer, at: tuple[expr.PrimExpr, ...]) -> loops.BufferRegion:
    return loops.BufferRegion(buffer, tuple(loops.Range(i, ONE) for i in at))


def _is_one(e: expr.PrimExpr) -> bool:
    return isinstance(e, expr.IntImm) and e.value == 1


def _batched_buffer(b: loops.Buffer, size: expr.Var) -> loops.Buffer:
    return replace(b, shape=(size, *(b.shape[i] for i in kept_dims(b.shape))))


def _closure(body: loops.Stmt, differing: set[loops.Buffer]) -> set[loops.Buffer]:
    """All buffers that hold something which differs between instances: those that a statement
    writes to which reads one of them, or is reached only because of one."""
    found = set(differing)
    nodes = list(walk(body))
    for n in nodes:
        if isinstance(n, loops.MatchBufferRegion):
            raise CannotBatch(f"`{n.buffer.name}` is a view of a region")
    while True:
        before = len(found)
        for n in nodes:
            if any(_buffers(e) & found for e in _decides(n)):
                found |= _written(n)
        if len(found) == before:
            return found


def _decides(n: Node) -> tuple[Node, ...]:
    """Return what decides about the stores in a statement: their values, or if they are reached."""
    match n:
        case loops.BufferStore():
            return (n,)
        case loops.IfThenElse(condition) | loops.While(condition):
            return (condition,)
        case loops.For(_, least, extent):
            return (least, extent)
        case loops.LetStmt(_, value):
            return (value,)
        case loops.BlockRealize(values, predicate):
            return (*values, predicate)
        case _:
            return ()


def _buffers(n: Node) -> set[loops.Buffer]:
    return {m.buffer for m in walk(n) if isinstance(m, loops.BufferLoad | loops.BufferStore)}


def _written(n: Node) -> set[loops.Buffer]:
    return {m.buffer for m in walk(n) if isinstance(m, loops.BufferStore)}


def kept(buffer: loops.Buffer, items: Sequence[T]) -> list[T]:
    """Return, of one item per dimension of a buffer, those whose dimensions stay in a batch."""
    return [items[i] for i in kept_dims(buffer.shape)]


@dataclass(slots=True)
class _Batcher:
    size: expr.Var
    made: dict[loops.Buffer, loops.Buffer]

    def outermost(self, stmt: loops.Stmt) -> loops.Stmt:
        """The batch loop goes around each statement of the function's root."""
        match stmt:
            case loops.SeqStmt(stmts):
                return loops.seq(*map(self.outermost, stmts))
            case loops.BlockRealize(_, _, block) if not block.iter_vars and block.init is None:
                allocs = tuple(self.made.get(b, b) for b in block.alloc_buffers)
                body = self.outermost(block.body)
                reads, writes = (self.whole(r) for r in (block.reads, block.writes))
                new = replace(block, alloc_buffers=allocs, body=body, reads=reads, writes=writes)
                if isinstance(block.body, loops.BufferStore) and not block.alloc_buffers:
                    return self.around(stmt)  # a block of rank 0, no root
                return replace(stmt, block=new)
            case _:
                return self.around(stmt)

    def around(self, stmt: loops.Stmt) -> loops.Stmt:
        if not _buffers(stmt) & self.made.keys():
            return stmt
        instance = expr.Var("instance")
        body = self.statement(stmt, instance)
        return loops.For(instance, ZERO, self.size, "serial", body)

    def statement(self, n: Node, at: expr.Var) -> loops.Stmt:
        new = self.visit(n, at)
        assert isinstance(new, loops.Stmt)
        return new

    def visit(self, n: Node, at: expr.Var) -> Node:
        match n:
            case loops.For(var, least, extent, _, body) if _is_one(extent):
                return self.visit(substitute(body, {var: least}), at)
            case loops.BlockRealize():
                return self.realize(n, at)
            case loops.BufferLoad(buffer, indices) if buffer in self.made:
                where = tuple(self.expression(i, at) for i in kept(buffer, indices))
                return replace(n, buffer=self.made[buffer], indices=(at, *where))
            case loops.BufferStore(buffer, value, indices) if buffer in self.made:
                where = tuple(self.expression(i, at) for i in kept(buffer, indices))
                new = self.expression(value, at)
                return replace(n, buffer=self.made[buffer], value=new, indices=(at, *where))
            case loops.BufferRegion(buffer, region) if buffer in self.made:
                ranges = tuple(self.range(r, at) for r in kept(buffer, region))
                return replace(n, buffer=self.made[buffer], region=(loops.Range(at, ONE), *ranges))
            case _:
                return map_children(n, lambda m: self.visit(m, at))

    def expression(self, e: expr.PrimExpr, at: expr.Var) -> expr.PrimExpr:
        new = self.visit(e, at)
        assert isinstance(new, expr.PrimExpr)
        return new

    def range(self, r: loops.Range, at: expr.Var) -> loops.Range:
        return replace(r, min=self.expression(r.min, at), extent=self.expression(r.extent, at))

    def region(self, r: loops.BufferRegion, at: expr.Var) -> loops.BufferRegion:
        new = self.visit(r, at)
        assert isinstance(new, loops.BufferRegion)
        return new

    def whole(self, regions: tuple[loops.BufferRegion, ...]) -> tuple[loops.BufferRegion, ...]:
        """The regions of the root, with all instances."""
        full = loops.Range(ZERO, self.size)
        return tuple(
            replace(r, buffer=self.made[r.buffer], region=(full, *kept(r.buffer, r.region)))
            if r.buffer in self.made else r
            for r in regions
        )  # fmt: skip

    def realize(self, n: loops.BlockRealize, at: expr.Var) -> loops.Stmt:
        """A block with an axis for the instance in front, and without axes of extent 1."""
        block = n.block
        pairs = list(zip(block.iter_vars, n.iter_values, strict=True))
        gone = {v.var: v.dom.min for v, _ in pairs if v.kind == "spatial" and _is_one(v.dom.extent)}
        if gone:
            block = substitute(replace(block, iter_vars=()), gone)
        kept = [(v, value) for v, value in pairs if v.var not in gone]
        here = expr.Var("v_instance")
        axis = loops.IterVar(here, loops.Range(ZERO, self.size), "spatial")
        new = replace(
            block,
            iter_vars=(axis, *(v for v, _ in kept)),
            reads=tuple(self.region(r, here) for r in block.reads),
            writes=tuple(self.region(r, here) for r in block.writes),
            body=self.statement(block.body, here),
            init=None if block.init is None else self.statement(block.init, here),
            alloc_buffers=tuple(self.made.get(b, b) for b in block.alloc_buffers),
        )
        values = (at, *(self.expression(value, at) for _, value in kept))
        return replace(n, iter_values=values, predicate=self.expression(n.predicate, at), block=new)
