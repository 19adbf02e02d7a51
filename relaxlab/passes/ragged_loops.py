"""Loop functions of operators on batches of equally long sequences, as loops over ragged tensors.

What an operator means for sequences of different lengths follows from its lowering for equal ones:
an element of its result is computed from elements of the same sequence and from regular tensors,
and the length that the loops mention is that of the sequence (CoRa, MLSys 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.arith.exact import LARGEST_FACTOR
from relaxlab.analysis.ragged import (
    Product,
    Totals,
    name_of,
    prefix,
    row_dims,
    rows_of_each,
    stored_shape,
)
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.row_major import place
from relaxlab.ir.substitute import free_symbols, substitute, symbols_in
from relaxlab.ir.types import Each, Length, lengths_in

N = TypeVar("N", bound=Node)
ONE = expr.const(1)
Access = loops.BufferLoad | loops.BufferStore


class NotPerSequence(Exception):
    """Loops that mix sequences, or whose form is not understood; the message says which."""


@dataclass(slots=True)
class RaggedLoops:
    """The loop function of an operator on `count` sequences whose lengths it mentions.

    `inputs` is the number of its parameters that are inputs; `lengths` are the lengths as index
    functions, `totals` the sums of products of them over all sequences. `whole` has the shapes of
    regular tensors by the inputs that are the first elements of these.
    """

    func: loops.PrimFunc
    inputs: int
    count: PrimExpr
    lengths: Mapping[Length, loops.Buffer]
    totals: Totals
    whole: Mapping[loops.Buffer, tuple[PrimExpr, ...]]
    starts: dict[Product, loops.Buffer] = field(default_factory=dict[Product, loops.Buffer])
    """Index functions with the sums of products of lengths over the sequences before each: of the
    lengths themselves, the first rows."""
    own: set[loops.Buffer] = field(default_factory=set[loops.Buffer])
    """The buffers that have an element for each sequence."""
    packed: dict[loops.Buffer, loops.Buffer] = field(
        default_factory=dict[loops.Buffer, loops.Buffer]
    )

    def __post_init__(self) -> None:
        self.func = simplified(self.func)
        self.packed |= {b: replace(b, shape=shape) for b, shape in self.whole.items()}
        buffers = self.func.buffers
        ragged = {b for b in buffers if lengths_in(b.shape) and not lengths_in(b.shape[:1])}
        self.own = ragged | set(buffers[self.inputs :])
        for _, block in self.nests():
            touched = {a.buffer for a in accesses_of(block)}
            if touched & self.own or mentions_each(block):
                self.own |= {a.buffer for a in accesses_of(block)
                             if isinstance(a, loops.BufferStore)}  # fmt: skip

    def root(self) -> loops.Block:
        return root_of(self.func)

    def nests(self) -> Iterator[tuple[list[loops.For], loops.Block]]:
        """The loops around each block, and the block."""
        for stmt in nests_in(self.root().body):
            around, inner = taken_apart(stmt)
            yield around, inner.block

    def sequence_axis(self, block: loops.Block) -> expr.Var | None:
        """The axis of a block that counts the sequences; None for a block that has nothing to do
        with them. Raises NotPerSequence where elements of several sequences meet."""
        mine = [a for a in accesses_of(block) if a.buffer in self.own]
        if not mine and not mentions_each(block):
            return None
        counted = [v.var for v in block.iter_vars if runs_over(v, self.count)]
        at = dict.fromkeys(a.indices[0] if a.indices else None for a in mine)
        if len(at) != 1 or next(iter(at)) not in counted:
            raise NotPerSequence(f"block {block.name} combines elements of several sequences")
        found = next(iter(at))
        assert isinstance(found, expr.Var)
        return found

    def works_on_rows(self) -> bool:
        """True if each row of the results is computed from the same row of ragged tensors, whatever
        sequence it belongs to: then the rows of all sequences are like those of one."""
        return all(self._block_works_on_rows(block) for _, block in self.nests())

    def _block_works_on_rows(self, block: loops.Block) -> bool:
        sequence = self.sequence_axis(block)
        if sequence is None:
            return True
        mine = [a for a in accesses_of(block) if a.buffer in self.own]
        if not all(lengths_in(a.buffer.shape) for a in mine):
            return False
        ends = {id(a): 1 + row_dims(a.buffer.shape) for a in mine}
        (extents, *others) = dict.fromkeys(a.buffer.shape[1 : ends[id(a)]] for a in mine)
        (row, *other_rows) = dict.fromkeys(a.indices[1 : ends[id(a)]] for a in mine)
        spatial = {v.var: v for v in block.iter_vars}
        if (
            others
            or other_rows
            or len(set(row)) < len(row)
            or not all(
                isinstance(at, expr.Var) and at in spatial and runs_over(spatial[at], extent)
                for at, extent in zip(row, extents, strict=True)
            )
        ):
            return False
        end = 1 + len(row)

        def without_row(n: object) -> loops.BufferLoad | loops.BufferStore | None:
            match n:
                case loops.BufferLoad(buffer, at) | loops.BufferStore(buffer, indices=at) if (
                    buffer in self.own
                ):
                    return replace(n, indices=at[end:])
                case _:
                    return None

        rest: list[Node] = [
            rewrite(s, without_row) for s in (block.init, block.body) if s is not None
        ]
        rest += [v.dom for v in block.iter_vars if v.var not in row]
        left = {n for r in rest for n in walk(r) if isinstance(n, expr.Var | Each)}
        return not left & {sequence, *row} and not any(isinstance(n, Each) for n in left)

    def build(self) -> loops.PrimFunc:
        """The loop function on the elements of all sequences. Its parameters are the lengths, the
        starts, then those that it had, with dense tensors in the place of ragged ones, then
        symbols.

        Raises NotPerSequence for one that mixes sequences.
        """
        root, func = self.root(), self.func
        nests = [self._nest(s) for s in nests_in(root.body)]
        allocated = tuple(map(self.buffer, root.alloc_buffers))
        body = replace(root, body=loops.seq(*nests), alloc_buffers=allocated)
        realize = loops.BlockRealize((), expr.const(True), body)
        params = (*self.lengths.values(), *self.starts.values(), *map(self.buffer, func.buffers))
        made = replace(func, params=params, body=realize)
        bound = {d for b in params for d in b.shape if isinstance(d, expr.Var)}
        free = tuple(s for s in free_symbols(made) if s not in bound)
        if any(isinstance(n, Each) for n in (*free, *walk(made))):
            raise NotPerSequence("a length is used outside of the sequence that it belongs to")
        return replace(made, params=(*params, *free))

    def buffer(self, b: loops.Buffer) -> loops.Buffer:
        """The dense buffer that has the elements of a ragged one; others as they are."""
        if not lengths_in(b.shape):
            return b
        if b in self.packed:
            return self.packed[b]
        self.packed[b] = replace(b, shape=stored_shape(b.shape, self.totals))
        return self.packed[b]

    def _nest(self, stmt: loops.Stmt) -> loops.Stmt:
        around, inner = taken_apart(stmt)
        block = inner.block
        axis = self.sequence_axis(block)
        if axis is None:
            return stmt
        number = next(i for i, v in enumerate(block.iter_vars) if v.var is axis)
        at = inner.iter_values[number]
        outer = [f.loop_var for f in around]
        if not isinstance(at, expr.Var) or at not in outer:
            raise NotPerSequence(f"block {block.name} has no loop over the sequences")
        before = around[: outer.index(at)]
        if any(lengths_in((f.min, f.extent)) for f in before):
            raise NotPerSequence(f"block {block.name} visits positions before sequences")
        made: loops.Stmt = replace(inner, block=self._block(block, axis))
        for f in reversed(around):
            made = replace(f, extent=self._at(f.extent, at), body=made)
        return made

    def _at(self, e: N, at: PrimExpr) -> N:
        """`e` for one sequence: with its lengths and its index."""
        lengths: dict[expr.Var, PrimExpr] = {
            s: loops.BufferLoad(each, (at,)) for s, each in self.lengths.items()
        }
        return at_index(substitute(e, lengths), at)

    def table(self, product: Product) -> loops.Buffer:
        """The index function with the sums of a product of lengths."""
        if product not in self.starts:
            step = self._at(prod(product, start=ONE), loops.Position())
            rises = loops.Nondecreasing(expr.const(0), self.totals[product])
            facts = (rises, loops.PrefixSums(step))
            name = f"{name_of(product)}_starts"
            self.starts[product] = loops.Buffer(name, (self.count + 1,), "int64", facts=facts)
        return self.starts[product]

    def _block(self, block: loops.Block, axis: expr.Var) -> loops.Block:
        def visit(n: object) -> loops.BufferLoad | loops.BufferStore | loops.BufferRegion | None:
            match n:
                case loops.BufferLoad(b) | loops.BufferStore(b) | loops.BufferRegion(b) if (
                    b in self.whole
                ):
                    return replace(n, buffer=self.buffer(b))
                case loops.BufferLoad(b, at) | loops.BufferStore(b, indices=at) if lengths_in(
                    b.shape
                ):
                    return replace(n, buffer=self.buffer(b), indices=self._place(b, at))
                case loops.BufferRegion(b, region) if lengths_in(b.shape):
                    return loops.BufferRegion(self.buffer(b), self._region(b, region))
                case _:
                    return None

        moved = self._at(rewrite(block, visit), axis)
        index = (*self.lengths.values(), *self.starts.values())
        one, found = loops.Range(axis, ONE), _buffers_of(moved)
        reads = tuple(loops.BufferRegion(b, (one,)) for b in index if b in found)
        return replace(moved, reads=(*moved.reads, *reads))

    def _place(self, b: loops.Buffer, at: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        sequence, *inner = at
        start = prefix(
            rows_of_each(b.shape), sequence, lambda p: loops.BufferLoad(self.table(p), (sequence,))
        )
        end = row_dims(b.shape)
        return (start + place(inner[:end], b.shape[1 : 1 + end]), *inner[end:])

    def _region(self, b: loops.Buffer, region: tuple[loops.Range, ...]) -> tuple[loops.Range, ...]:
        first = self._place(b, tuple(r.min for r in region))
        end = 1 + row_dims(b.shape)
        packed = region[:end]  # which share a dimension
        rest = tuple(map(loops.Range, first[1:], (r.extent for r in region[len(packed) :])))
        if all(r.extent == ONE for r in packed[:-1]):
            return (loops.Range(first[0], packed[-1].extent), *rest)
        return (loops.Range(expr.const(0), self.buffer(b).shape[0]), *rest)


def root_of(func: loops.PrimFunc) -> loops.Block:
    """The block around all others. Raises NotPerSequence where there is none."""
    body = func.body
    if not isinstance(body, loops.BlockRealize) or body.block.iter_vars:
        raise NotPerSequence("its loops have no root block")
    return body.block


def simplified(func: loops.PrimFunc) -> loops.PrimFunc:
    """A function with its indices simplified: that of a sequence is then an axis alone."""
    an = Analyzer.for_shapes(tuple(b.shape for b in func.buffers))
    for stmt in nests_in(root_of(func).body):
        for axis in taken_apart(stmt)[1].block.iter_vars:
            if axis.dom.extent != ONE:  # also one sequence is counted by its axis
                an.bind_range(axis.var, axis.dom)

    def visit(n: object) -> loops.BufferLoad | loops.BufferStore | None:
        match n:
            case loops.BufferLoad(indices=at) | loops.BufferStore(indices=at):
                return replace(n, indices=tuple(map(an.simplify, at)))
            case _:
                return None

    return replace(func, body=rewrite(func.body, visit))


def at_index(e: N, at: PrimExpr) -> N:
    """`e` with the index along the outermost dimension in the place of what stands for it."""
    return rewrite(e, lambda n: at if isinstance(n, expr.OuterIndex) else None)


def product_sums(count: PrimExpr, product: Product) -> loops.PrimFunc:
    """The loop function that sums a product up over `count` sequences. It takes each lengths of the
    product once, int64 (count,), returns int64 (count + 1,), and has the other symbols of the
    product as scalars. It stops where a factor is negative or a sum is beyond what may be a size,
    before anything is computed that wraps."""
    each = [s for s in lengths_in(product) if isinstance(s, Length)]
    given = {s: loops.Buffer(name_of((s,)), (count,), "int64") for s in each}
    sums = loops.Buffer(f"{name_of(product)}_starts", (count + 1,), "int64")
    i = expr.Var("i")
    lengths: dict[expr.Var, PrimExpr] = {s: loops.BufferLoad(b, (i,)) for s, b in given.items()}
    factors = [at_index(substitute(f, lengths), i) for f in product]
    before = loops.BufferLoad(sums, (i,))
    floats = [expr.Cast("float64", e) for e in (*factors, before)]
    most = expr.const(float(LARGEST_FACTOR), "float64")
    fits = expr.LE(prod(floats[1:-1], start=floats[0]) + floats[-1], most)
    checks = [
        loops.AssertStmt(expr.GE(at, expr.const(0)), f"{f}, which is {{}} for sequence {{}}, is a "
                         "dimension, and negative", (at, i))
        for f, at in zip(product, factors, strict=True) if not isinstance(f, Each)
    ]  # fmt: skip
    large = "sequences up to {}, which is {} long, have too many elements"
    checks.append(loops.AssertStmt(fits, large, (i, next(iter(lengths.values()), factors[0]))))
    sum_ = loops.BufferStore(sums, before + prod(factors, start=ONE), (i + 1,))
    body = loops.seq(
        loops.BufferStore(sums, expr.const(0), (expr.const(0),)),
        loops.For(i, expr.const(0), count, "serial", loops.seq(*checks, sum_)),
    )
    buffers = (*given.values(), sums)
    scalars = other_symbols(product)
    func = loops.PrimFunc((*buffers, *(s for s in scalars if s not in symbols_in(buffers))), body)
    own = {s: expr.Var(s.name) for s in (*symbols_in(buffers), *scalars)}
    return substitute(func, symbols=own)


def other_symbols(product: Product) -> tuple[expr.Var, ...]:
    """The symbols of a product that are no lengths."""
    found = (s for factor in product for s in symbols_in(factor))
    return tuple(dict.fromkeys(s for s in found if not isinstance(s, Length)))


def nests_in(body: loops.Stmt) -> tuple[loops.Stmt, ...]:
    """The statements that a body is made of."""
    return body.stmts if isinstance(body, loops.SeqStmt) else (body,)


def taken_apart(stmt: loops.Stmt) -> tuple[list[loops.For], loops.BlockRealize]:
    """The loops of a nest, and the block in them. Raises NotPerSequence for other statements."""
    around: list[loops.For] = []
    while isinstance(stmt, loops.For):
        around.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, loops.BlockRealize):
        raise NotPerSequence("its loops are no nests around blocks")
    return around, stmt


def runs_over(axis: loops.IterVar, extent: PrimExpr) -> bool:
    """True for a spatial axis over the numbers below `extent`."""
    return axis.kind == "spatial" and axis.dom.min == expr.const(0) and axis.dom.extent == extent


def accesses_of(block: loops.Block) -> list[Access]:
    """The elements that a block reads and writes."""
    parts = [s for s in (block.init, block.body) if s is not None]
    return [n for s in parts for n in walk(s) if isinstance(n, Access)]


def mentions_each(block: loops.Block) -> bool:
    """True if a block mentions the length of a sequence, or its index."""
    return any(isinstance(n, Each) for n in walk(block))


def _buffers_of(block: loops.Block) -> set[loops.Buffer]:
    return {n.buffer for n in walk(block) if isinstance(n, loops.BufferLoad)}
