"""Loop functions of operators on batches of equally long sequences, as loops over ragged tensors.

What an operator means for sequences of different lengths follows from its lowering for equal ones:
an element of its result is computed from elements of the same sequence and from regular tensors,
and the length that the loops mention is that of the sequence (CoRa, MLSys 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.ragged import (
    Totals,
    fixed_size,
    is_linear,
    is_rows,
    prefix,
    stored_shape,
)
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.row_major import place
from relaxlab.ir.substitute import free_symbols, substitute
from relaxlab.ir.types import Length, lengths_in

ONE = expr.const(1)
Access = loops.BufferLoad | loops.BufferStore


class NotPerSequence(Exception):
    """Loops that mix sequences, or whose form is not understood; the message says which."""


@dataclass(slots=True)
class RaggedLoops:
    """The loop function of an operator on `count` sequences whose lengths it mentions.

    `inputs` is the number of its parameters that are inputs; `starts` are the first rows of the
    sequences, as index functions, and `totals` the numbers of rows.
    """

    func: loops.PrimFunc
    inputs: int
    count: PrimExpr
    starts: Mapping[Length, loops.Buffer]
    totals: Totals
    own: set[loops.Buffer] = field(default_factory=set[loops.Buffer])
    """The buffers that have an element for each sequence."""
    packed: dict[loops.Buffer, loops.Buffer] = field(
        default_factory=dict[loops.Buffer, loops.Buffer]
    )

    def __post_init__(self) -> None:
        self.func = replace(self.func, body=self._simplified())
        buffers = self.func.buffers
        ragged = {b for b in buffers if lengths_in(b.shape)}
        self.own = ragged | set(buffers[self.inputs :])
        for _, block in self.nests():
            touched = {a.buffer for a in _accesses(block)}
            if touched & self.own or _lengths_of(block):
                self.own |= {a.buffer for a in _accesses(block)
                             if isinstance(a, loops.BufferStore)}  # fmt: skip

    def _simplified(self) -> loops.Stmt:
        """The body with its indices simplified: that of a sequence is then an axis alone."""
        an = Analyzer.for_shapes(tuple(b.shape for b in self.func.buffers))
        for axis in (v for _, block in self.nests() for v in block.iter_vars):
            if axis.dom.extent != ONE:  # also one sequence is counted by its axis
                an.bind_range(axis.var, axis.dom)

        def visit(n: object) -> loops.BufferLoad | loops.BufferStore | None:
            match n:
                case loops.BufferLoad(indices=at) | loops.BufferStore(indices=at):
                    return replace(n, indices=tuple(map(an.simplify, at)))
                case _:
                    return None

        return rewrite(self.func.body, visit)

    def root(self) -> loops.Block:
        body = self.func.body
        if not isinstance(body, loops.BlockRealize) or body.block.iter_vars:
            raise NotPerSequence("its loops have no root block")
        return body.block

    def nests(self) -> Iterator[tuple[list[loops.For], loops.Block]]:
        """The loops around each block, and the block."""
        for stmt in _statements(self.root().body):
            around, inner = _taken_apart(stmt)
            yield around, inner.block

    def sequence_axis(self, block: loops.Block) -> expr.Var | None:
        """The axis of a block that counts the sequences; None for a block that has nothing to do
        with them. Raises NotPerSequence where elements of several sequences meet."""
        mine = [a for a in _accesses(block) if a.buffer in self.own]
        if not mine and not _lengths_of(block):
            return None
        counted = [v.var for v in block.iter_vars if _runs_over(v, self.count)]
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
        mine = [a for a in _accesses(block) if a.buffer in self.own]
        if not all(lengths_in(a.buffer.shape) and is_rows(a.buffer.shape) for a in mine):
            return False
        (extent, *others) = dict.fromkeys(a.buffer.shape[1] for a in mine)
        (row, *other_rows) = dict.fromkeys(a.indices[1] for a in mine)
        if (
            others
            or other_rows
            or not any(v.var is row and _runs_over(v, extent) for v in block.iter_vars)
        ):
            return False

        def without_row(n: object) -> loops.BufferLoad | loops.BufferStore | None:
            match n:
                case loops.BufferLoad(buffer, at) | loops.BufferStore(buffer, indices=at) if (
                    buffer in self.own
                ):
                    return replace(n, indices=at[2:])
                case _:
                    return None

        rest: list[Node] = [
            rewrite(s, without_row) for s in (block.init, block.body) if s is not None
        ]
        rest += [v.dom for v in block.iter_vars if v.var is not row]
        left = {n for r in rest for n in walk(r) if isinstance(n, expr.Var)}
        return not left & {sequence, row} and not any(isinstance(s, Length) for s in left)

    def build(self) -> loops.PrimFunc:
        """The loop function on the elements of all sequences. Its parameters are the starts, then
        those that it had, with dense tensors in the place of ragged ones, then symbols.

        Raises NotPerSequence for one that mixes sequences.
        """
        root, func = self.root(), self.func
        nests = [self._nest(s) for s in _statements(root.body)]
        allocated = tuple(map(self.buffer, root.alloc_buffers))
        body = replace(root, body=loops.seq(*nests), alloc_buffers=allocated)
        realize = loops.BlockRealize((), expr.const(True), body)
        params = (*self.starts.values(), *map(self.buffer, func.buffers))
        made = replace(func, params=params, body=realize)
        bound = {d for b in params for d in b.shape if isinstance(d, expr.Var)}
        free = tuple(s for s in free_symbols(made) if s not in bound)
        if any(isinstance(s, Length) for s in free):
            raise NotPerSequence("a length is used outside of the sequence that it belongs to")
        return replace(made, params=(*params, *free))

    def buffer(self, b: loops.Buffer) -> loops.Buffer:
        """The dense buffer that has the elements of a ragged one; others as they are."""
        if not lengths_in(b.shape):
            return b
        if b in self.packed:
            return self.packed[b]
        extent, *others = (e for e in b.shape if lengths_in(e))
        if others:
            raise NotPerSequence(f"{b.name} has two dimensions as long as a sequence")
        if not is_linear(extent):  # the sum over sequences does not follow from that of lengths
            raise NotPerSequence(
                f"{b.name} has a dimension of {extent}, which is no sum of multiples of lengths"
            )
        self.packed[b] = replace(b, shape=stored_shape(b.shape, self.totals))
        return self.packed[b]

    def _nest(self, stmt: loops.Stmt) -> loops.Stmt:
        around, inner = _taken_apart(stmt)
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
        of_loop = self._lengths_at(at)
        for f in reversed(around):
            made = replace(f, extent=substitute(f.extent, of_loop), body=made)
        return made

    def _lengths_at(self, at: PrimExpr) -> dict[expr.Var, PrimExpr]:
        return {
            s: loops.BufferLoad(o, (at + 1,)) - loops.BufferLoad(o, (at,))
            for s, o in self.starts.items()
        }

    def _block(self, block: loops.Block, axis: expr.Var) -> loops.Block:
        of_axis = self._lengths_at(axis)

        def visit(n: object) -> loops.BufferLoad | loops.BufferStore | loops.BufferRegion | None:
            match n:
                case loops.BufferLoad(b, at) | loops.BufferStore(b, indices=at) if lengths_in(
                    b.shape
                ):
                    return replace(n, buffer=self.buffer(b), indices=self._place(b, at))
                case loops.BufferRegion(b, region) if lengths_in(b.shape):
                    return loops.BufferRegion(self.buffer(b), self._region(b, region))
                case _:
                    return None

        moved = substitute(rewrite(block, visit), of_axis)
        used = [o for o in self.starts.values() if o in _buffers_of(moved)]
        two = loops.Range(axis, expr.const(2))
        reads = tuple(loops.BufferRegion(o, (two,)) for o in used)
        return replace(moved, reads=(*moved.reads, *reads))

    def _place(self, b: loops.Buffer, at: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        sequence, *inner = at
        extent = next(e for e in b.shape if lengths_in(e))
        sums = {s: loops.BufferLoad(o, (sequence,)) for s, o in self.starts.items()}
        start = prefix(extent, sequence, sums)
        if is_rows(b.shape):
            return (start + inner[0], *inner[1:])
        return (start * fixed_size(b.shape) + place(inner, b.shape[1:]),)

    def _region(self, b: loops.Buffer, region: tuple[loops.Range, ...]) -> tuple[loops.Range, ...]:
        first = self._place(b, tuple(r.min for r in region))
        if is_rows(b.shape):
            extents = [r.extent for r in region[1:]]
            return tuple(map(loops.Range, first, extents))
        if all(r.extent == ONE for r in region):
            return (loops.Range(first[0], ONE),)
        return (loops.Range(expr.const(0), self.buffer(b).shape[0]),)


def _statements(body: loops.Stmt) -> tuple[loops.Stmt, ...]:
    return body.stmts if isinstance(body, loops.SeqStmt) else (body,)


def _taken_apart(stmt: loops.Stmt) -> tuple[list[loops.For], loops.BlockRealize]:
    around: list[loops.For] = []
    while isinstance(stmt, loops.For):
        around.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, loops.BlockRealize):
        raise NotPerSequence("its loops are no nests around blocks")
    return around, stmt


def _runs_over(axis: loops.IterVar, extent: PrimExpr) -> bool:
    """True for a spatial axis over the numbers below `extent`."""
    return axis.kind == "spatial" and axis.dom.min == expr.const(0) and axis.dom.extent == extent


def _accesses(block: loops.Block) -> list[Access]:
    parts = [s for s in (block.init, block.body) if s is not None]
    return [n for s in parts for n in walk(s) if isinstance(n, Access)]


def _lengths_of(block: loops.Block) -> bool:
    """True if a block mentions the length of a sequence."""
    return any(isinstance(n, Length) for n in walk(block))


def _buffers_of(block: loops.Block) -> set[loops.Buffer]:
    return {n.buffer for n in walk(block) if isinstance(n, loops.BufferLoad)}
