"""Reductions across threads: a reduce axis bound to `threadIdx.x`.

`for tx: X[i] = X[i] + value(tx)` becomes a value per thread, combined within a warp by exchanging
registers (log2 steps), then between the warps through shared memory; through shared memory alone
where threads cannot exchange registers. Every thread ends up with the
result, which is stored outside of the thread loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.thread_loops import SYNC, comment, is_thread_loop, reduces_across
from relaxlab.ir import expr
from relaxlab.ir.expr import Call, PrimExpr, Var, all_of, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, map_children, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.rfactor import Reduction, reduction_of
from relaxlab.schedule.tree import conjuncts

ZERO = const(0)
TRUE = expr.IntImm(1, "bool")


def lower_thread_reductions(nest: Stmt, name: str, facts: Facts) -> tuple[Stmt, frozenset[Buffer]]:
    """The nest without reductions across threads, and the private buffers in which all threads
    hold the same result. Raises CodegenError for a reduction that is not `X = X op value` directly
    under its thread loop."""
    totals: list[Buffer] = []

    def visit(n: Node, rows: tuple[For, ...]) -> Node:
        if isinstance(n, For) and is_thread_loop(n):
            if isinstance(n.body, BlockRealize) and reduces_across(n.body, {n.loop_var}):
                return _Reduced(n, n.body, rows, name, totals, facts).stmt()
            rows = (*rows, n)
        elif isinstance(n, BlockRealize) and reduces_across(n, {r.loop_var for r in rows}):
            raise CodegenError(
                f"block {n.block.name!r} of {name!r} reduces across threads, but its thread loop "
                "is not directly around it: rfactor the loop, then make it the innermost one"
            )
        return map_children(n, lambda c: visit(c, rows))

    return visit(nest, ()), frozenset(totals)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class _Reduced:
    """One reduction; `rows` are the thread loops around it, `totals` collects the results."""

    loop: For
    realize: BlockRealize
    rows: tuple[For, ...]
    name: str
    totals: list[Buffer]
    facts: Facts

    @property
    def warp(self) -> int:
        return self.facts.warp

    def stmt(self) -> Stmt:
        block, threads = self.realize.block, self._threads()
        form = reduction_of(block)
        pairs = zip(block.iter_vars, self.realize.iter_values, strict=True)
        others = {v for it, e in pairs if it.kind == "reduce" for v in symbols_in(e)}
        if others != {self.loop.loop_var}:
            raise CodegenError(
                f"block {block.name!r} of {self.name!r} reduces over the threads of "
                f"{self.loop.loop_var.name} and over other loops at once; rfactor "
                f"{self.loop.loop_var.name} first"
            )
        if form is None:
            raise CodegenError(
                f"block {block.name!r} of {self.name!r} reduces across threads by something else "
                "than X[…] = X[…] op value with op one of +, *, min, max"
            )
        bindings: dict[Var, PrimExpr] = {
            it.var: v for it, v in zip(block.iter_vars, self.realize.iter_values, strict=True)
        }
        own = Buffer(f"{form.buffer.name}_total", (const(1),), form.buffer.dtype, scope="local")
        self.totals.append(own)
        total = BufferLoad(own, (ZERO,))
        parts = conjuncts(self.realize.predicate)
        mine = [c for c in parts if self.loop.loop_var in symbols_in(c)]
        value = substitute(form.value, bindings)
        if parts:
            # All lanes take part in the exchanges, also those whose iteration does not happen.
            value = Call(value.dtype, "if_then_else", (all_of(parts), value, form.identity))
        steps: list[Stmt] = [comment(block.name), BufferStore(own, value, (ZERO,))]
        buffers = [own]
        if not self.facts.shuffles:
            shared = self._shared(form, "parts", threads)
            buffers.append(shared)
            steps += self._by_halves(own, shared, form, threads)
        else:
            steps += _butterfly(own, form, min(threads, self.warp))
            if threads > self.warp:
                warps = self._shared(form, "warps", threads // self.warp)
                buffers.append(warps)
                steps += self._between_warps(own, warps, form, threads // self.warp)
        at = tuple(substitute(i, bindings) for i in form.indices)
        start = BufferLoad(form.buffer, at)
        if isinstance(block.init, BufferStore):
            start = substitute(block.init.value, bindings)
        # The value before is added once, behind the exchanges, not by every thread.
        result = total if start == form.identity else form.combined(start, total)
        store: Stmt = BufferStore(form.buffer, result, at)
        rest = [c for c in parts if c not in mine]
        if all_of(rest) != TRUE:
            store = IfThenElse(all_of(rest), store)
        loop = For(self.loop.loop_var, ZERO, self.loop.extent, "thread_binding", seq(*steps),
                   self.loop.thread)  # fmt: skip
        body = Block(f"{block.name}_threads", (), (), (), seq(loop, store),
                     alloc_buffers=(*block.alloc_buffers, *buffers))  # fmt: skip
        return BlockRealize((), TRUE, body)

    def _threads(self) -> int:
        extent = self.loop.extent
        count = extent.value if isinstance(extent, expr.IntImm) else 0
        whole = count % self.warp == 0 and 0 < count <= self.warp**2
        good = whole or count in (1, 2, 4, 8, 16) or (count > 0 and not self.facts.shuffles)
        if self.loop.thread != "threadIdx.x" or not good:
            raise CodegenError(
                f"block {self.realize.block.name!r} of {self.name!r} reduces across "
                f"{self.loop.extent} threads of {self.loop.thread}; it takes threadIdx.x with "
                f"1, 2, 4, 8, 16 or a multiple of {self.warp} threads up to {self.warp**2}"
            )
        return count

    def _shared(self, form: Reduction, name: str, count: int) -> Buffer:
        """`count` results for each row."""
        shape = (*(r.extent for r in self.rows), const(count))
        return Buffer(f"{form.buffer.name}_{name}", shape, form.buffer.dtype, scope="shared")

    def _by_halves(self, own: Buffer, parts: Buffer, form: Reduction, count: int) -> list[Stmt]:
        """Each thread of the first half adds the result of one of the second, and so on."""
        thread, total = self.loop.loop_var, BufferLoad(own, (ZERO,))
        row = tuple(r.loop_var for r in self.rows)
        mine = BufferLoad(parts, (*row, thread))
        # Threads may still read values of an earlier iteration.
        steps: list[Stmt] = [SYNC, BufferStore(parts, total, mine.indices), SYNC]
        while count > 1:
            half = (count + 1) // 2
            both = form.combined(mine, BufferLoad(parts, (*row, thread + half)))
            adds = BufferStore(parts, both, mine.indices)
            steps += [IfThenElse(expr.LT(thread, const(count - half)), adds), SYNC]
            count = half
        return [*steps, BufferStore(own, BufferLoad(parts, (*row, ZERO)), (ZERO,))]

    def _between_warps(self, own: Buffer, warps: Buffer, form: Reduction, count: int) -> list[Stmt]:
        thread, total = self.loop.loop_var, BufferLoad(own, (ZERO,))
        lane = thread % self.warp
        row = tuple(r.loop_var for r in self.rows)
        first = expr.EQ(lane, ZERO)
        theirs = BufferLoad(warps, (*row, lane))
        if count < self.warp:
            there = expr.LT(lane, const(count))
            # There are fewer results than lanes, and the others would read beyond the row.
            theirs = Call(theirs.dtype, "if_then_else", (there, theirs, form.identity))
        return [
            SYNC,  # of an earlier iteration, some may still be read
            IfThenElse(first, BufferStore(warps, total, (*row, thread // self.warp))),
            SYNC,
            BufferStore(own, theirs, (ZERO,)),
            *_butterfly(own, form, self.warp),
        ]


def _butterfly(own: Buffer, form: Reduction, lanes: int) -> list[Stmt]:
    """Combine with the lane whose number differs in one bit, bit by bit: all get the result."""
    value = BufferLoad(own, (ZERO,))
    steps: list[Stmt] = []
    mask = lanes // 2
    while mask:
        other = Call(own.dtype, "warp_shuffle_xor", (value, const(mask, "int32")))
        steps.append(BufferStore(own, form.combined(value, other), (ZERO,)))
        mask //= 2
    return steps


def has_shuffle(s: Stmt) -> bool:
    """True if the lanes of a warp exchange values somewhere in `s`."""
    return any(isinstance(n, Call) and n.op == "warp_shuffle_xor" for n in walk(s))
