"""Reduction of a private buffer to the part that one thread uses, and of a shared one to the part
of a block of threads.

In the schedule a private buffer spans all threads: thread `tx` of 16 uses `P[tx, …]`, `P[tx*4 + j]`
or `P[j*16 + tx]`. Where every index of a dimension is a thread's number times a constant plus less
than that constant, and maybe plus a multiple of what all threads have together, only the rest is
left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.launch import ThreadAxis
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, For, Range, Stmt
from relaxlab.ir.node import Node, children, map_children, replace
from relaxlab.ir.substitute import substitute, symbols_in


@dataclass(frozen=True, slots=True)
class _Access:
    indices: tuple[PrimExpr, ...]
    write: bool
    threads: Mapping[str, Var]


@dataclass(frozen=True, slots=True)
class _Step:
    """index = (turn * count + var of `axis`) * scale + lane, with lane < scale; `count`: the
    threads of the axis, None where there is one turn."""

    axis: str
    scale: int
    count: int | None

    def rest(self, index: PrimExpr, var: Var, an: Analyzer) -> PrimExpr:
        """turn * scale + lane"""
        own = index - var * self.scale
        if self.count is None:
            return an.simplify(own)
        turn = own // (self.scale * self.count)
        return an.simplify(turn * self.scale + own % self.scale)


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
    shrunk: dict[Buffer, tuple[Buffer, dict[int, list[_Step]]]] = {}
    for buffer, accesses in found.items():
        # A single thread passes nothing on.
        apart = [a for n, a in axes.items() if a.extent != const(1)
                 and (buffer.scope == "local" or n.startswith("blockIdx"))]  # fmt: skip
        shape, steps, own = _shrink(buffer, accesses, apart, analyzer)
        _require_private(buffer, accesses, {a.name for a in apart} - own, name)
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
                for step in scales:
                    at[dim] = step.rest(at[dim], threads[step.axis], analyzer)
            return replace(new, buffer=target, indices=tuple(at))
        return new

    body = visit(body, {})  # type: ignore[assignment]
    return body, tuple(shrunk[b][0] if b in shrunk else b for b in allocated)


def _collect(
    n: Node, threads: Mapping[str, Var], found: dict[Buffer, list[_Access]], an: Analyzer
) -> None:
    """Return all accesses of private buffers; `an` learns the ranges of all loops."""
    if isinstance(n, For):
        an.bind_range(n.loop_var, Range(n.min, n.extent))
        if n.thread:
            threads = {**threads, n.thread or "": n.loop_var}
    if isinstance(n, BufferLoad | BufferStore) and n.buffer in found:
        found[n.buffer].append(_Access(n.indices, isinstance(n, BufferStore), threads))
    for c in children(n):
        _collect(c, threads, found, an)


def _shrink(
    buffer: Buffer, accesses: list[_Access], axes: Sequence[ThreadAxis], an: Analyzer
) -> tuple[tuple[PrimExpr, ...], dict[int, list[_Step]], set[str]]:
    """The new shape; per dimension the axes taken out; their names."""
    shape = list(buffer.shape)
    steps: dict[int, list[_Step]] = {}
    for dim in range(buffer.ndim):
        indices = [a.indices[dim] for a in accesses]
        # An index such as `x*32 + y` gives up one axis at a time: the second fits once the first is
        # out.
        again = True
        while again:
            again = False
            for axis in axes:
                found = _step(indices, accesses, axis, shape[dim], an)
                if found is not None:
                    step, shape[dim], indices = found
                    steps.setdefault(dim, []).append(step)
                    again = True
    return tuple(shape), steps, {s.axis for found in steps.values() for s in found}


def _step(
    indices: list[PrimExpr],
    accesses: list[_Access],
    axis: ThreadAxis,
    size: PrimExpr,
    an: Analyzer,
) -> tuple[_Step, PrimExpr, list[PrimExpr]] | None:
    """Return how a thread axis is taken out of a dimension, and the dimension's new size and
    indices."""
    scale = _scale(indices, accesses, axis.name, an)
    if scale is None:
        return None
    variables = [a.threads[axis.name] for a in accesses]
    own = [an.simplify(i - v * scale) for i, v in zip(indices, variables, strict=True)]
    count = axis.extent.value if isinstance(axis.extent, IntImm) else 0
    turn = scale * count
    if all(_within(r, scale, an) for r in own):
        step, new = _Step(axis.name, scale, None), const(scale)
    elif count > 1 and all(_within(an.simplify(r % turn), scale, an) for r in own):
        step = _Step(axis.name, scale, count)
        new = an.simplify((size + (turn - 1)) // turn * scale)
    else:
        return None
    return step, new, [step.rest(i, v, an) for i, v in zip(indices, variables, strict=True)]


def _scale(indices: list[PrimExpr], accesses: list[_Access], axis: str, an: Analyzer) -> int | None:
    """Return the increment of each index per step of the axis, if it is always the same and
    positive."""
    scales: set[int | None] = set()
    for index, access in zip(indices, accesses, strict=True):
        var = access.threads.get(axis)
        if var is None or var not in symbols_in(index):
            return None
        step = an.simplify(substitute(index, {var: var + 1}) - index)
        scales.add(step.value if isinstance(step, IntImm) else None)
    scale = scales.pop() if len(scales) == 1 else None
    return scale if scale is not None and scale > 0 else None


def _within(e: PrimExpr, limit: int, an: Analyzer) -> bool:
    low, high = an.bounds_of(e)
    return low is not None and high is not None and low >= 0 and high < limit


def _require_private(buffer: Buffer, accesses: list[_Access], axes: set[str], name: str) -> None:
    """Raise unless a thread reads only elements that it wrote itself: in the same thread loop, at a
    place of its own, or outside of the loops, where all threads do the same."""
    wider = "shared" if buffer.scope == "local" else "global"
    for axis in sorted(axes):
        for w in (a for a in accesses if a.write and axis in a.threads):
            if any(a.threads.get(axis) is not w.threads[axis] for a in accesses):
                raise CodegenError(
                    f"the {buffer.scope} buffer {buffer.name!r} of {name!r} passes values along "
                    f"{axis}; give it the scope {wider!r}"
                )
