"""A step that keeps memory of a warp in the registers of its threads, which exchange them."""

from __future__ import annotations

from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var, const
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore, For, PrimFunc, Range
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.tree import alloc_sites, vars_in


def warp_memory_lowered(func: PrimFunc, warp: int) -> PrimFunc:
    """The function whose buffers of scope `warp` are local to each of the threads along
    `threadIdx.x`, which hold neighbouring elements or every so manyth one, as they store them;
    what another thread holds is read by a shuffle.

    Raises ValueError for memory that the threads do not divide evenly, for a number of threads that
    does not divide a warp, and where the threads read from different places of their parts.
    """
    for buffer in alloc_sites(func):
        if buffer.scope == "warp":
            func = _Held(func, buffer, warp).lowered()
    return func


class _Held:
    """A buffer whose elements the threads of a warp hold: `apart` is how many elements lie between
    those of neighbours, and `width` how many threads there are."""

    def __init__(self, func: PrimFunc, buffer: Buffer, warp: int) -> None:
        self.func, self.buffer, self.warp = func, buffer, warp
        self.an = Analyzer()
        self.thread, self.width = self._threads()
        (size,) = buffer.shape if buffer.ndim == 1 else (None,)
        if not isinstance(size, IntImm) or size.value % self.width:
            raise ValueError(f"{buffer.name} is not a multiple of {self.width} elements")
        self.apart = self._distance()
        self.local = replace(buffer, shape=(const(size.value // self.width),), scope="local")

    def _threads(self) -> tuple[Var, int]:
        for n in walk(self.func.body):
            if isinstance(n, For) and n.thread == "threadIdx.x" and isinstance(n.extent, IntImm):
                width = n.extent.value
                uses = any(isinstance(p, BufferLoad | BufferStore) and p.buffer is self.buffer
                           for p in walk(n.body))  # fmt: skip
                if uses and width <= self.warp and self.warp % width == 0:
                    return n.loop_var, width
        raise ValueError(
            f"{self.buffer.name} is used by the threads of a warp: a loop bound to threadIdx.x of "
            f"an extent that divides {self.warp} is around its uses"
        )

    def _distance(self) -> int:
        found: set[int] = set()
        for n in walk(self.func.body):
            if isinstance(n, BufferStore) and n.buffer is self.buffer:
                (at,) = n.indices
                step = self.an.simplify(substitute(at, {self.thread: self.thread + 1}) - at)
                found.add(step.value if isinstance(step, IntImm) else 0)
        if len(found) != 1 or min(found) < 1:
            raise ValueError(f"the threads do not store {self.buffer.name} at one distance")
        return found.pop()

    def lowered(self) -> PrimFunc:
        return cast("PrimFunc", self.visit(self.func))

    def visit(self, n: Node) -> Node:
        match n:
            case For(var, low, extent):
                with self.an.scope():
                    self.an.bind_range(var, Range(low, extent))
                    return map_children(n, self.visit)
            case Block(alloc_buffers=allocated) if self.buffer in allocated:
                own = tuple(self.local if b is self.buffer else b for b in allocated)
                return map_children(replace(n, alloc_buffers=own), self.visit)
            case BufferStore(buffer, value) if buffer is self.buffer:
                lane, place = self._place(n.indices[0])
                if lane != self.thread:
                    raise ValueError(f"a thread stores into another one's part of {buffer.name}")
                value = cast("PrimExpr", self.visit(value))
                return replace(n, buffer=self.local, value=value, indices=(place,))
            case BufferLoad(buffer) if buffer is self.buffer:
                return self._load(n)
            case _:
                return map_children(n, self.visit)

    def _load(self, n: BufferLoad) -> PrimExpr:
        lane, place = self._place(cast("PrimExpr", self.visit(n.indices[0])))
        own = BufferLoad(self.local, (place,))
        if lane == self.thread:
            return own
        if self.thread in vars_in(place):
            raise ValueError(f"threads read {n} from different places of their parts")
        mask = expr.Call("uint32", "tvm_warp_activemask", ())
        width, warp = const(self.width, "int32"), const(self.warp, "int32")
        args = mask, own, expr.Cast("int32", lane), width, warp
        return expr.Call(n.dtype, "tvm_warp_shuffle", args)

    def _place(self, at: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The thread that holds an element, and its place there."""
        lane = self.an.simplify(at // self.apart % self.width)
        row = at // (self.apart * self.width) * self.apart
        return lane, self.an.simplify(row + at % self.apart)
