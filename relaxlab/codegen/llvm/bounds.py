"""Checks of a debug build inside kernels: bounds of every access, and zones around stack memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.llvm.access import Memory
from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import Value, int_value
from relaxlab.codegen.llvm.expressions import Scope, any_lane, emit_expr
from relaxlab.codegen.llvm.statements import local_strides
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.codegen.llvm.zones import ZONE, fill, mark_zones, zone_damaged
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import bytes_of


def check_bounds(s: Scope, buffer: loops.Buffer, indices: Sequence[Value]) -> None:
    """Emit checks of indices: one outside its extent ends the thread's work with a report."""
    for d, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
        _check_index(s, cast(s.builder, index, "int64"), extent, f"dimension {d} of {buffer.name}")


def _check_index(s: Scope, index: Value, extent: expr.PrimExpr, what: str) -> None:
    b = s.builder
    size = cast(b, emit_expr(s, extent), "int64")
    low = binary(b, expr.LT, index, int_value(0))
    bad = binary(b, expr.Or, low, binary(b, expr.GE, index, size))
    if s.mask is not None:
        bad = binary(b, expr.And, bad, s.mask)
    # Constant indices inside constant extents: nothing to test when the kernel runs.
    if bad.const == 0:
        return
    failed = any_lane(b, bad)
    first = b.materialise(index)
    if index.lanes > 1:
        first = _first_failing(s, index, bad)
    text = f"index {{got}} of {literal(what)} is outside its extent {{expected}}{literal(s.place)}"
    stop(s, failed, text, (first, b.materialise(size)))


def _first_failing(s: Scope, index: Value, bad: Value) -> str:
    """The index of the first lane that is set; of the last one where none is."""
    b, n = s.builder, index.lanes
    bits = b.emit(f"bitcast {bad.ty} {b.materialise(bad)} to i{n}")
    lane = b.call(f"llvm.cttz.i{n}", f"i{n}", [(f"i{n}", bits), ("i1", "false")])
    b.declarations[f"llvm.cttz.i{n}"] = f"declare i{n} @llvm.cttz.i{n}(i{n}, i1 immarg)"
    wide = lane
    if n != 64:
        wide = b.emit(f"{'zext' if n < 64 else 'trunc'} i{n} {lane} to i64")
    # Counting zeros of no set bit gives n, and extracting that lane is undefined.
    last = b.call("llvm.umin.i64", "i64", [("i64", wide), ("i64", str(n - 1))])
    return b.emit(f"extractelement {index.ty} {b.materialise(index)}, i64 {last}")


def stop(s: Scope, failed: str, template: str, numbers: tuple[str, str]) -> None:
    """Report where a bit is set and end the thread's work, or outside of it the kernel, in all
    threads."""
    b = s.builder
    number = s.fail_when(failed, template, numbers)
    bad, good = b.label("bad"), b.label("ok")
    b.branch(failed, bad, good)
    b.place(bad)
    if s.exit:
        b.jump(s.exit)
        s.exits = True
    else:
        b.raw(f"ret i64 {number}")
    b.place(good)


@dataclass(slots=True)
class Stack:
    """The private buffers of a kernel: name, address and bytes."""

    blocks: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])

    def declare(self, s: Scope, buffer: loops.Buffer) -> Memory:
        """Stack memory for a private buffer, poisoned, between two zones."""
        strides, count = local_strides(s, buffer)
        size = max(count, 1) * bytes_of(buffer.dtype)
        whole = s.builder.alloca(size + 2 * ZONE, "i8")
        start = s.builder.emit(f"getelementptr inbounds i8, ptr {whole}, i64 {ZONE}", "p")
        mark_zones(s.builder, start, str(size), ZONE)
        fill(s.builder, start, str(size), buffer.dtype)
        self.blocks.append((buffer.name, start, size))
        return Memory(start, buffer.dtype, strides, 64, count, count)

    def verify(self, s: Scope) -> None:
        """Report where something was written beside a private buffer."""
        for name, start, size in self.blocks:
            failed = zone_damaged(s.builder, start, str(size), ZONE)
            s.fail_when(failed, f"something wrote beside the private buffer {literal(name)}")
        barrier(s, Team())
