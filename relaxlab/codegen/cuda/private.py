"""What one thread uses of a private buffer, and one block of threads of a shared one.

In the schedule a private buffer spans all threads: thread `tx` uses `P[tx, …]` or `P[tx*4 + j]`.
Where every index of a dimension is a thread's number times a constant plus less than that constant,
only the rest is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.cuda.launch import ThreadAxis
from relaxlab.codegen.llvm.expressions import CodegenError
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, For, Range, Stmt
from relaxlab.ir.node import Node, children, map_children, replace
from relaxlab.ir.substitute import substitute, symbols_in


@dataclass(frozen=True, slots=True)
class _Access:
    indices: tuple[PrimExpr, ...]
    write: bool
    threads: Mapping[str, Var]


def shrink_private_buffers(
    body: Stmt,
    allocated: Sequence[Buffer],
    agreed: frozenset[Buffer],
    axes: Mapping[str, ThreadAxis],
    sizes: Sequence[Var],
    name: str,
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """Raises CodegenError for a private buffer by which threads exchange values (in those of
    `agreed` all hold the same)."""
    analyzer = Analyzer()
    for symbol in sizes:
        analyzer.bind_shape(symbol)
    found: dict[Buffer, list[_Access]] = {
        b: [] for b in allocated if b.scope != "global" and b not in agreed
    }
    _collect(body, {}, found, analyzer)
    shrunk: dict[Buffer, tuple[Buffer, dict[int, list[tuple[str, int]]]]] = {}
    for buffer, accesses in found.items():
        apart = [a for a in axes if buffer.scope == "local" or a.startswith("blockIdx")]
        shape, steps, own = _shrink(buffer, accesses, apart, analyzer)
        _require_private(buffer, accesses, set(apart) - own, name)
        if steps:
            shrunk[buffer] = (replace(buffer, shape=shape, strides=()), steps)

    def visit(n: Node, threads: Mapping[str, Var]) -> Node:
        if isinstance(n, For) and n.thread:
            threads = {**threads, n.thread or "": n.loop_var}
        new = map_children(n, lambda c: visit(c, threads))
        if isinstance(new, BufferLoad | BufferStore) and new.buffer in shrunk:
            target, steps = shrunk[new.buffer]
            at = list(new.indices)
            for dim, scales in steps.items():
                for axis, scale in scales:
                    at[dim] = _rest(at[dim], threads[axis], scale, analyzer)
            return replace(new, buffer=target, indices=tuple(at))
        return new

    body = visit(body, {})  # type: ignore[assignment]
    return body, tuple(shrunk[b][0] if b in shrunk else b for b in allocated)


def _collect(
    n: Node, threads: Mapping[str, Var], found: dict[Buffer, list[_Access]], an: Analyzer
) -> None:
    """All accesses of private buffers; `an` learns the ranges of all loops."""
    if isinstance(n, For):
        an.bind_range(n.loop_var, Range(n.min, n.extent))
        if n.thread:
            threads = {**threads, n.thread or "": n.loop_var}
    if isinstance(n, BufferLoad | BufferStore) and n.buffer in found:
        found[n.buffer].append(_Access(n.indices, isinstance(n, BufferStore), threads))
    for c in children(n):
        _collect(c, threads, found, an)


def _shrink(
    buffer: Buffer, accesses: list[_Access], axes: Sequence[str], an: Analyzer
) -> tuple[tuple[PrimExpr, ...], dict[int, list[tuple[str, int]]], set[str]]:
    """The new shape; per dimension the axes taken out with their scales; the axes taken out."""
    shape = list(buffer.shape)
    steps: dict[int, list[tuple[str, int]]] = {}
    own: set[str] = set()
    for dim in range(buffer.ndim):
        indices = [a.indices[dim] for a in accesses]
        again = True
        while again:
            again = False
            for axis in axes:
                scale = _scale(indices, accesses, axis, an)
                if scale is None:
                    continue
                rest = [_rest(i, a.threads[axis], scale, an)
                        for i, a in zip(indices, accesses, strict=True)]  # fmt: skip
                if all(_within(r, scale, an) for r in rest):
                    indices, again = rest, True
                    shape[dim] = const(scale)
                    steps.setdefault(dim, []).append((axis, scale))
                    own.add(axis)
    return tuple(shape), steps, own


def _scale(indices: list[PrimExpr], accesses: list[_Access], axis: str, an: Analyzer) -> int | None:
    """What one more on the axis adds to each index, if always the same and positive."""
    scales: set[int | None] = set()
    for index, access in zip(indices, accesses, strict=True):
        var = access.threads.get(axis)
        if var is None or var not in symbols_in(index):
            return None
        step = an.simplify(substitute(index, {var: var + 1}) - index)
        scales.add(step.value if isinstance(step, IntImm) else None)
    scale = scales.pop() if len(scales) == 1 else None
    return scale if scale is not None and scale > 0 else None


def _rest(index: PrimExpr, var: Var, scale: int, an: Analyzer) -> PrimExpr:
    return an.simplify(index - var * scale)


def _within(e: PrimExpr, limit: int, an: Analyzer) -> bool:
    low, high = an.bounds_of(e)
    return low is not None and high is not None and low >= 0 and high < limit


def _require_private(buffer: Buffer, accesses: list[_Access], axes: set[str], name: str) -> None:
    """What a thread reads it wrote itself: in the same thread loop, at a place of its own, or
    outside of the loops, where all threads do the same."""
    wider = "shared" if buffer.scope == "local" else "global"
    for axis in sorted(axes):
        for w in (a for a in accesses if a.write and axis in a.threads):
            if any(a.threads.get(axis) is not w.threads[axis] for a in accesses):
                raise CodegenError(
                    f"the {buffer.scope} buffer {buffer.name!r} of {name!r} passes values along "
                    f"{axis}; give it the scope {wider!r}"
                )
