"""A step that lowers reductions over threads to what threads exchange: registers within a warp,
shared memory otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import cast

from relaxlab.codegen.steps.barriers import barrier_of
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Reducer,
    Stmt,
)
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.regions import with_alloc
from relaxlab.schedule.tree import TRUE, fresh_buffer_name, normalized

AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
"""The axes of the threads of a block; neighbours along the first are in one warp."""
_SYNC = barrier_of("shared")


def allreduces_lowered(func: PrimFunc, warp: int) -> PrimFunc:
    """The function with `tvm_thread_allreduce` as shuffles in warps of so many threads where the
    threads of each reduction are neighbours in one, and else as a tree in shared memory.

    Raises ValueError for a reduction outside of an attribute that says what it is, and for a number
    of threads that is no constant.
    """
    func = normalized(func)
    made = _Lowering(func, warp)
    body = cast("Stmt", made.visit(func.body, {}, None))
    func = replace(func, body=body)
    for buffer in made.buffers:
        func = with_alloc(func, "root", buffer)
    return func


class _Lowering:
    def __init__(self, func: PrimFunc, warp: int) -> None:
        self.func, self.warp = func, warp
        self.buffers: list[Buffer] = []

    def visit(self, n: Node, threads: dict[str, For], reducer: Reducer | None) -> Node:
        match n:
            case For(thread=str(axis)):
                threads = {**threads, axis: n}
            case For(annotations=notes) if "reduce_scope" in notes:
                match notes["reduce_scope"]:
                    case (Reducer() as found, _) | (Reducer() as found):
                        return self.visit(n.body, threads, found)
                    case _:
                        pass
            case Evaluate(expr.Call(op="tvm_thread_allreduce", args=args)):
                if reducer is None:
                    raise ValueError("tvm_thread_allreduce outside of an attribute 'reduce_scope'")
                return self.lowered(_Reduction.of(args, reducer, threads))
            case _:
                pass
        return map_children(n, lambda c: self.visit(c, threads, reducer))

    def buffer(self, hint: str, dtype: str, size: int, scope: str) -> Buffer:
        name = fresh_buffer_name(self.func, hint)
        taken = sum(b.name.rpartition("_")[0] == name or b.name == name for b in self.buffers)
        name = f"{name}_{taken}" if taken else name
        self.buffers.append(Buffer(name, (expr.const(size),), dtype, scope=scope))
        return self.buffers[-1]

    def lowered(self, r: _Reduction) -> Stmt:
        neighbours = r.axes == AXES[: len(r.axes)] and r.extent <= self.warp
        whole = r.groups == 1 or r.extent & (r.extent - 1) == 0
        return self.in_warp(r) if neighbours and whole else self.in_shared_memory(r)

    def in_warp(self, r: _Reduction) -> Stmt:
        """Lanes add what others have, half as far away each time, and get the first one's sum."""
        mask = self.buffer("mask", "uint32", 1, "local")
        own = [self.buffer("own", v.dtype, 1, "local") for v in r.values]
        there = [self.buffer("there", v.dtype, 1, "local") for v in r.values]

        def shuffled(kind: str, b: Buffer, by: PrimExpr) -> PrimExpr:
            width = expr.const(self.warp, "int32")
            args = BufferLoad(mask, (ZERO,)), BufferLoad(b, (ZERO,)), by, width, width
            return expr.Call(b.dtype, kind, args)

        active = expr.Call("uint32", "tvm_warp_activemask", ())
        steps: list[Stmt] = [_set(b, v) for b, v in zip(own, r.values, strict=True)]
        steps.append(_set(mask, active))
        for by in r.offsets():
            offset = expr.const(by, "int32")
            steps += [_set(t, shuffled("tvm_warp_shuffle_down", b, offset))
                      for b, t in zip(own, there, strict=True)]  # fmt: skip
            values = r.combined(_first(own), _first(there))
            step = _assigned(own, (ZERO,), values)
            if 2 * by > r.extent:  # the first step, of a number that is no power of two
                step = IfThenElse(expr.LT(r.index + by, expr.const(r.extent)), step)
            steps.append(step)
        first = expr.Cast("int32", r.group * r.extent)
        steps += [BufferStore(b, shuffled("tvm_warp_shuffle", o, first), i)
                  for (b, i), o in zip(r.results, own, strict=True)]  # fmt: skip
        return loops.seq(*steps)

    def in_shared_memory(self, r: _Reduction) -> Stmt:
        size = r.extent * r.groups
        stage = [self.buffer("stage", v.dtype, size, "shared") for v in r.values]
        start = r.group * r.extent
        at, steps = start + r.index, list[Stmt]()
        steps += [BufferStore(b, v, (at,)) for b, v in zip(stage, r.values, strict=True)]
        for by in r.offsets():
            mine = tuple(BufferLoad(b, (at,)) for b in stage)
            other = tuple(BufferLoad(b, (at + by,)) for b in stage)
            few = expr.LT(r.index, expr.const(min(by, r.extent - by)))
            steps += [_SYNC, IfThenElse(few, _assigned(stage, (at,), r.combined(mine, other)))]
        steps.append(_SYNC)
        steps += [BufferStore(b, BufferLoad(s, (start,)), i)
                  for (b, i), s in zip(r.results, stage, strict=True)]  # fmt: skip
        return loops.seq(*steps, _SYNC)


def _set(buffer: Buffer, value: PrimExpr) -> Stmt:
    return BufferStore(buffer, value, (ZERO,))


def _first(buffers: list[Buffer]) -> tuple[PrimExpr, ...]:
    return tuple(BufferLoad(b, (ZERO,)) for b in buffers)


def _assigned(
    buffers: list[Buffer], at: tuple[PrimExpr, ...], values: tuple[PrimExpr, ...]
) -> Stmt:
    """The statement that stores all values, each of which may read all the buffers."""
    if len(buffers) == 1:
        return BufferStore(buffers[0], values[0], at)
    names = [Var(f"new_{b.name}", b.dtype) for b in buffers]
    body: Stmt = loops.seq(*(BufferStore(b, v, at) for b, v in zip(buffers, names, strict=True)))
    for name, value in zip(reversed(names), reversed(values), strict=True):
        body = LetStmt(name, value, body)
    return body


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A reduction over threads. `index` is a thread's number among the `extent` of its reduction,
    and `group` the number of the reduction among the `groups` of its block."""

    values: tuple[PrimExpr, ...]
    results: tuple[tuple[Buffer, tuple[PrimExpr, ...]], ...]
    reducer: Reducer
    axes: tuple[str, ...]
    index: PrimExpr
    extent: int
    group: PrimExpr
    groups: int

    @staticmethod
    def of(
        args: tuple[PrimExpr, ...], reducer: Reducer, threads: dict[str, For]
    ) -> _Reduction:
        assert isinstance(args[0], IntImm)
        count = args[0].value
        holds, rest = args[1 + count], args[2 + count :]
        loads = [r for r in rest[:count] if isinstance(r, BufferLoad)]
        along = {*rest[count:]}
        values = args[1 : 1 + count]
        if holds != TRUE:
            values = tuple(expr.Select(holds, v, i)
                           for v, i in zip(values, reducer.identities, strict=True))  # fmt: skip
        there = {axis: threads[axis] for axis in AXES if axis in threads}
        over = {a: loop for a, loop in there.items() if loop.loop_var in along}
        others = [loop for a, loop in there.items() if a not in over]
        return _Reduction(
            values, tuple((r.buffer, r.indices) for r in loads), reducer,
            tuple(over), *_number([*over.values()]), *_number(others),
        )  # fmt: skip

    def combined(
        self, old: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]
    ) -> tuple[PrimExpr, ...]:
        """The results of combining values with others."""
        names = (*self.reducer.lhs, *self.reducer.rhs)
        table: dict[Var, PrimExpr] = dict(zip(names, (*old, *new), strict=True))
        return tuple(substitute(r, table) for r in self.reducer.results)

    def offsets(self) -> list[int]:
        """Powers of two below the number of threads, the largest first."""
        return [1 << n for n in reversed(range((self.extent - 1).bit_length()))]


def _number(threads: list[For]) -> tuple[PrimExpr, int]:
    """The number of a thread along several axes, and how many there are."""
    extents = [loop.extent.value for loop in threads if isinstance(loop.extent, IntImm)]
    if len(extents) < len(threads):
        raise ValueError("the number of threads that reduce together is no constant")
    number: PrimExpr = ZERO
    for loop, extent in zip(reversed(threads), reversed(extents), strict=True):
        number = number * extent + loop.loop_var
    return number, prod(extents)
