"""Removal of thread loops: their variables become the indices of the thread that runs the body.

Statements outside of the loops of a thread axis run once: stores to memory that threads share are
done by the threads with index 0 on that axis, stores to private memory by all. A private buffer
shrinks to the part that one thread uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import ThreadAxis
from relaxlab.codegen.gpu.private import shrink_private_buffers
from relaxlab.codegen.gpu.thread_loops import is_sync, is_thread_loop, thread_loops
from relaxlab.codegen.gpu.thread_reduction import has_shuffle
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, StringImm, Var, all_of, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from relaxlab.ir.node import Node, children, map_children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in

_NAMES = {f"{kind}.{d}": f"{kind[0]}{d}" for kind in ("blockIdx", "threadIdx") for d in "xyz"}


def bind_threads(
    body: Stmt,
    allocated: Sequence[Buffer],
    agreed: frozenset[Buffer],
    sizes: Sequence[Var],
    name: str,
    facts: Facts,
) -> tuple[tuple[ThreadAxis, ...], Stmt, tuple[Buffer, ...]]:
    """Return the thread axes of a block-free nest, the body for each thread, and the shrunk
    allocations.

    In the private buffers `agreed` all threads hold the same values wherever they are read.

    Raises CodegenError for loops that do not fit together as one launch.
    """
    _require_outermost_blocks(body, False, name)
    axes = _axes(body, name, facts.block_threads)
    body, allocated = shrink_private_buffers(body, allocated, agreed, axes, sizes, name)
    body = _Guards(body, axes).once(body, frozenset(a for a in axes if a.startswith("threadIdx")))
    table: dict[Var, PrimExpr] = {
        loop.loop_var: axes[loop.thread or ""].var for loop in thread_loops(body)
    }
    body = substitute(_without_loops(body), table)
    _require_common_barriers(body, axes, name)
    for buffer in allocated:
        if not all(isinstance(d, IntImm) for d in buffer.shape):
            raise CodegenError(
                f"the {buffer.scope} buffer {buffer.name!r} of {name!r} has the size "
                f"{[str(d) for d in buffer.shape]}, which is not constant"
            )
    order = sorted(axes.values(), key=lambda a: a.name)
    return tuple(order), body, tuple(allocated)


def _axes(body: Stmt, name: str, most: int) -> dict[str, ThreadAxis]:
    found: dict[str, ThreadAxis] = {}
    for loop in thread_loops(body):
        axis = loop.thread or ""
        if axis not in _NAMES:
            raise CodegenError(f"{name!r} binds {loop.loop_var.name} to {axis!r}, no axis of CUDA")
        where = f"the loop over {loop.loop_var.name} of {name!r}, bound to {axis},"
        if loop.min != const(0):
            raise CodegenError(f"{where} starts at {loop.min}, not at 0")
        known = found.setdefault(axis, ThreadAxis(axis, Var(_NAMES[axis]), loop.extent))
        if known.extent != loop.extent:
            raise CodegenError(
                f"{where} has extent {loop.extent}, another one {known.extent}; all loops over one "
                "axis of a launch have the same"
            )
        if axis.startswith("threadIdx") and not isinstance(loop.extent, IntImm):
            raise CodegenError(f"{where} has extent {loop.extent}, which is not constant")
    threads = 1
    for axis, a in found.items():
        if axis.startswith("threadIdx") and isinstance(a.extent, IntImm):
            threads *= a.extent.value
    if threads > most:
        raise CodegenError(f"{name!r} asks for {threads} threads per block; CUDA allows {most}")
    return found


def _require_outermost_blocks(s: Node, inside: bool, name: str) -> None:
    """A grid is launched once: loops over blocks of threads are in no other loop."""
    if isinstance(s, For) and (s.thread or "").startswith("blockIdx") and inside:
        raise CodegenError(
            f"the loop over {s.loop_var.name} of {name!r} is bound to {s.thread}, but inside of "
            "another loop; make it the outermost one"
        )
    inside = inside or isinstance(s, While) or (isinstance(s, For) and s.kind != "thread_binding")
    for c in children(s):
        if isinstance(c, Stmt):
            _require_outermost_blocks(c, inside, name)


@dataclass(slots=True)
class _Guards:
    """Guards what happens once. `uses` counts the mentions of private buffers in the nest."""

    body: Stmt
    axes: Mapping[str, ThreadAxis]
    uses: Counter[Buffer] = field(init=False)

    def __post_init__(self) -> None:
        self.uses = Counter(_private(self.body))

    def once(self, s: Stmt, missing: frozenset[str]) -> Stmt:
        """`s`, inside of loops over all thread axes but those in `missing`."""
        if isinstance(s, For) and is_thread_loop(s):
            return replace(s, body=self.once(s.body, missing - {s.thread or ""}))
        if missing and not _is_comment(s) and self._closed(s):
            first: list[PrimExpr] = [
                expr.EQ(self.axes[a].var, const(0))
                for a in sorted(missing)
                # An axis of one thread has no other that would do the same.
                if self.axes[a].extent != const(1)
            ]
            return IfThenElse(all_of(first), s) if first else s
        match s:
            case SeqStmt(stmts):
                return seq(*(self.once(part, missing) for part in stmts))
            case For() | LetStmt() | While():
                return replace(s, body=self.once(s.body, missing))
            case IfThenElse(_, then, other):
                other = None if other is None else self.once(other, missing)
                return replace(s, then_case=self.once(then, missing), else_case=other)
            case _:
                return s

    def _closed(self, s: Stmt) -> bool:
        """True if a single thread can run the statement: no other reads what it leaves in private
        memory, and it has no barriers or calls that involve others."""
        if any(is_thread_loop(n) or is_sync(n) for n in walk(s)) or has_shuffle(s):
            return False
        mine = Counter(_private(s))
        return all(count == self.uses[b] for b, count in mine.items()) or not any(
            isinstance(n, BufferStore) and n.buffer.scope == "local" for n in walk(s)
        )


def _private(s: Stmt) -> Iterator[Buffer]:
    for n in walk(s):
        if isinstance(n, BufferLoad | BufferStore) and n.buffer.scope == "local":
            yield n.buffer


def _is_comment(s: Stmt) -> bool:
    return isinstance(s, Evaluate) and isinstance(s.value, StringImm)


def _without_loops(body: Stmt) -> Stmt:
    def visit(n: Node) -> Node:
        if isinstance(n, For) and n.kind == "thread_binding":
            return visit(n.body)
        # A statement in place of its loop may be a sequence within a sequence: those become one.
        new = map_children(n, visit)
        return seq(*new.stmts) if isinstance(new, SeqStmt) else new

    return visit(body)  # type: ignore[return-value]


def _require_common_barriers(body: Stmt, axes: Mapping[str, ThreadAxis], name: str) -> None:
    """Barriers are where all threads of the block come by, shuffles where all lanes of a warp do:
    those have neighbouring numbers along x."""
    mine = {a.var for a in axes.values() if a.name.startswith("threadIdx")}
    lanes = {a.var for a in axes.values() if a.name == "threadIdx.x"}

    def visit(s: Node, under: tuple[PrimExpr, ...]) -> None:
        what, apart = ("a barrier", mine) if is_sync(s) else ("a shuffle", lanes)
        exchanges = is_sync(s) or (isinstance(s, BufferStore) and has_shuffle(s))
        wrong = next((t for t in under if exchanges and apart & set(symbols_in(t))), None)
        if wrong is not None:
            raise CodegenError(
                f"{what} of {name!r} is under {wrong}, which differs between the threads that "
                "take part; move it out of the condition"
            )
        match s:
            case IfThenElse(condition) | While(condition):
                under = (*under, condition)
            case For(_, low, extent):
                under = (*under, low, extent)
            case _:
                pass
        for c in children(s):
            if isinstance(c, Stmt):
                visit(c, under)

    visit(body, ())
