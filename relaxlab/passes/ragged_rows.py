"""Loop functions on tensors with an element for each row of each sequence, whose rows differ in
length, as loop functions on those of all sequences: with one dimension that counts these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxlab.analysis.ragged import has_rows, row_lengths, rows_as_sequences
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import replace, rewrite, walk
from relaxlab.ir.types import Length, each_in, lengths_in
from relaxlab.passes.ragged_loops import (
    NotPerSequence,
    accesses_of,
    mentions_each,
    nests_in,
    root_of,
    runs_over,
    simplified,
    taken_apart,
)

ONE = expr.const(1)


def join_rows(
    func: loops.PrimFunc, count: PrimExpr, outer: Length, total: PrimExpr
) -> loops.PrimFunc:
    """`func`, which works on `count` sequences of `outer` rows each, with one dimension of `total`
    rows in the place of the two of its buffers that count these. What was t[i, j] long is as long
    as a sequence t[i].

    Raises NotPerSequence where elements of several rows meet, or where the number of a row or of
    its sequence matters.
    """
    func = simplified(func)
    root = root_of(func)
    every = (*func.buffers, *root.alloc_buffers)
    new = {
        b: replace(b, shape=rows_as_sequences(b.shape, total))
        for b in every
        if b.shape[:1] == (count,) and has_rows(b.shape, outer)
    }
    for b in every:
        if b not in new and lengths_in(b.shape):
            raise NotPerSequence(f"{b.name} is no tensor with an element for each row")
    joined = _Joined(count, outer, total, new)
    body = replace(
        root,
        body=loops.seq(*map(joined.nest, nests_in(root.body))),
        alloc_buffers=tuple(new.get(b, b) for b in root.alloc_buffers),
    )
    params = tuple(new.get(p, p) if isinstance(p, loops.Buffer) else p for p in func.params)
    realize = loops.BlockRealize((), expr.const(True), body)
    made = row_lengths(replace(func, params=params, body=realize))
    if outer in set(each_in(made)):
        raise NotPerSequence(f"it works on {outer} rows at once, which differ in length")
    return made


@dataclass(frozen=True, slots=True)
class _Joined:
    """The buffers with one dimension for the rows of all sequences, by those that they replace."""

    count: PrimExpr
    outer: Length
    total: PrimExpr
    buffers: Mapping[loops.Buffer, loops.Buffer]

    def nest(self, stmt: loops.Stmt) -> loops.Stmt:
        """A nest with one loop and one axis over all rows."""
        around, inner = taken_apart(stmt)
        block = inner.block
        mine = [a for a in accesses_of(block) if a.buffer in self.buffers]
        if not mine and not mentions_each(block):
            return stmt
        axes = {v.var: n for n, v in enumerate(block.iter_vars)}
        pair = self._pair(block, mine)
        first, second = (axes[v] for v in pair)
        each = [inner.iter_values[n] for n in (first, second)]
        loop_vars = {f.loop_var: f for f in around}
        if len(set(each)) < 2 or not all(
            isinstance(v, expr.Var) and v in loop_vars
            and (loop_vars[v].min, loop_vars[v].extent) == (expr.const(0), extent)
            for v, extent in zip(each, (self.count, self.outer), strict=True)
        ):  # fmt: skip
            raise NotPerSequence(f"block {block.name} has no loops over sequences and their rows")
        axis, number = expr.Var("row"), expr.Var("each")
        iter_var = loops.IterVar(axis, loops.Range(expr.const(0), self.total), "spatial")
        kept = [n for n in range(len(block.iter_vars)) if n not in (first, second)]
        values = (number, *(inner.iter_values[n] for n in kept))
        moved = replace(
            self._block(block, pair, axis),
            iter_vars=(iter_var, *(block.iter_vars[n] for n in kept)),
        )
        row = replace(inner, iter_values=values, block=moved)
        left = [f for f in around if f.loop_var not in each]
        at = next(n for n, f in enumerate(around) if f.loop_var in each)
        left.insert(at, loops.For(number, expr.const(0), self.total, "serial", row))
        made = loops.nested(left, row)
        if {*pair, *each} & set(walk(made)):
            raise NotPerSequence(f"block {block.name} computes with the number of a row")
        return made

    def _pair(self, block: loops.Block, mine: list[loops.BufferLoad | loops.BufferStore]
              ) -> tuple[expr.Var, expr.Var]:  # fmt: skip
        """The axes of a block over the sequences and over the rows of each."""
        found = {a.indices[:2] for a in mine}
        axes = {v.var: v for v in block.iter_vars}
        if len(found) == 1:
            (first, second) = found.pop()
            if (
                isinstance(first, expr.Var) and isinstance(second, expr.Var)
                and first is not second and first in axes and second in axes
                and runs_over(axes[first], self.count) and runs_over(axes[second], self.outer)
            ):  # fmt: skip
                return first, second
        raise NotPerSequence(f"block {block.name} combines elements of several rows")

    def _block(
        self, block: loops.Block, pair: tuple[expr.Var, expr.Var], axis: expr.Var
    ) -> loops.Block:
        """The block with its elements of the joined buffers those of a row of all."""

        def visit(n: object) -> loops.BufferLoad | loops.BufferStore | loops.BufferRegion | None:
            match n:
                case loops.BufferLoad(b, indices) | loops.BufferStore(b, indices=indices) if (
                    b in self.buffers
                ):
                    return replace(n, buffer=self.buffers[b], indices=(axis, *indices[2:]))
                case loops.BufferRegion(b, region) if b in self.buffers:
                    if [(r.min, r.extent) for r in region[:2]] != [(v, ONE) for v in pair]:
                        raise NotPerSequence(f"block {block.name} touches several rows")
                    one = loops.Range(axis, ONE)
                    return replace(n, buffer=self.buffers[b], region=(one, *region[2:]))
                case _:
                    return None

        return rewrite(block, visit)
