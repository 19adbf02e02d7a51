"""Loop functions on tensors that are another one for each sequence, such as the positions in it,
as loop functions on ragged tensors: with a dimension that counts the sequences."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import replace, rewrite
from relaxlab.ir.types import lengths_in
from relaxlab.passes.ragged_loops import (
    accesses_of,
    mentions_each,
    nests_in,
    runs_over,
    taken_apart,
)

ONE = expr.const(1)


def count_parts(
    func: loops.PrimFunc, count: PrimExpr, regular: Container[loops.Buffer]
) -> loops.PrimFunc:
    """`func` with a first dimension that counts `count` sequences, of all buffers that are another
    one for each sequence: those whose first dimension is as long as the sequence, unless they are
    among `regular`, and what blocks without an axis over sequences compute of them."""
    root = func.body
    if not isinstance(root, loops.BlockRealize) or root.block.iter_vars:
        return func
    block = root.block
    every = (*func.buffers, *block.alloc_buffers)
    parts = [b for b in every if lengths_in(b.shape[:1]) and b not in regular]
    counted = _Counted(count, {b: _with_count(b, count) for b in parts})
    nests = nests_in(block.body)
    while any([counted.spreads(s) for s in nests]):
        pass
    if not counted.buffers:
        return func
    new = counted.buffers
    body = replace(
        block,
        body=loops.seq(*map(counted.nest, nests)),
        alloc_buffers=tuple(new.get(b, b) for b in block.alloc_buffers),
    )
    params = tuple(new.get(p, p) if isinstance(p, loops.Buffer) else p for p in func.params)
    return replace(func, params=params, body=replace(root, block=body))


def _with_count(b: loops.Buffer, count: PrimExpr) -> loops.Buffer:
    return replace(b, shape=(count, *b.shape))


@dataclass(slots=True)
class _Counted:
    """The buffers with an element for each of `count` sequences, by those that they replace."""

    count: PrimExpr
    buffers: dict[loops.Buffer, loops.Buffer] = field(
        default_factory=dict[loops.Buffer, loops.Buffer]
    )

    def is_ragged(self, b: loops.Buffer) -> bool:
        """True for a buffer with a dimension that counts the sequences, and ragged ones."""
        return b.shape[:1] == (self.count,) and bool(lengths_in(b.shape[1:]))

    def needs_axis(self, block: loops.Block) -> bool:
        """True if a block computes something for each sequence without an axis over these."""
        touched = [a.buffer for a in accesses_of(block)]
        if any(map(self.is_ragged, touched)):
            return False
        if any(b in self.buffers for b in touched):
            return True
        return mentions_each(block) and not any(runs_over(v, self.count) for v in block.iter_vars)

    def spreads(self, stmt: loops.Stmt) -> bool:
        """Take in what a nest writes that needs an axis; true if that was not there before."""
        _, inner = taken_apart(stmt)
        if not self.needs_axis(inner.block):
            return False
        stores = [a.buffer for a in accesses_of(inner.block) if isinstance(a, loops.BufferStore)]
        new = {b: _with_count(b, self.count) for b in stores if b not in self.buffers}
        self.buffers |= new
        return bool(new)

    def nest(self, stmt: loops.Stmt) -> loops.Stmt:
        """A nest on the buffers that have the dimension, with a loop over the sequences where it
        had none."""
        around, inner = taken_apart(stmt)
        block = inner.block
        if not self.needs_axis(block):
            at = next((a.indices[0] for a in accesses_of(block) if self.is_ragged(a.buffer)), None)
            made = inner if at is None else replace(inner, block=self._at(block, at))
        else:
            axis, number = expr.Var("sequence"), expr.Var("each")
            dom = loops.Range(expr.const(0), self.count)
            axes = (loops.IterVar(axis, dom, "spatial"), *block.iter_vars)
            block = replace(self._at(block, axis), iter_vars=axes)
            made = replace(inner, iter_values=(number, *inner.iter_values), block=block)
            around = [loops.For(number, expr.const(0), self.count, "serial", made), *around]
        return loops.nested(around, made)

    def _at(self, block: loops.Block, at: PrimExpr) -> loops.Block:
        """The block with its elements of the counted buffers those of the sequence `at`."""

        def visit(n: object) -> loops.BufferLoad | loops.BufferStore | loops.BufferRegion | None:
            match n:
                case loops.BufferLoad(b, indices) | loops.BufferStore(b, indices=indices) if (
                    b in self.buffers
                ):
                    return replace(n, buffer=self.buffers[b], indices=(at, *indices))
                case loops.BufferRegion(b, region) if b in self.buffers:
                    one = loops.Range(at, ONE)
                    return replace(n, buffer=self.buffers[b], region=(one, *region))
                case _:
                    return None

        return rewrite(block, visit)
