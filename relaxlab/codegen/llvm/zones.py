"""Memory of a debug build: red zones around blocks, and poison in memory that is not written yet.

The zones hold one byte over and over; poison is NaN for floating-point numbers and `POISON` in each
byte of anything else, so that values computed from it stand out.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.builder import Builder
from relaxlab.codegen.llvm.lowlevel import Array, Byte, Flag, Word, low_level
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.ir.dtypes import element_of, is_float

ZONE = 64
"""Bytes of a zone: one vector beside the block, and what keeps its address aligned."""
MARK = 0xA5
"""The byte that fills a zone. It differs from `POISON` in each bit, and from the zeros, ones and
small numbers that stray writes mostly store."""
POISON = 0x5A
"""The byte that fills memory which holds nothing: as an index it is far out of range."""
NAN = 0xFF
"""A byte of which, repeated, every floating-point type makes a NaN."""


@low_level
def damaged(zone: Array[Byte], count: Word) -> Flag:
    """True if one of so many bytes is not the mark of a zone."""
    return any(zone[i] != MARK for i in range(count))


def zone_functions() -> list[str]:
    """The LLVM functions that the checks call."""
    return [low_level_text(damaged, {})]


def fill(b: Builder, start: str, size: str, dtype: str | None) -> None:
    """Fill memory with poison for a dtype, or with the mark of a zone."""
    byte = MARK if dtype is None else NAN if _is_floating(dtype) else POISON
    args = [("ptr", start), ("i8", str(byte - 256 if byte > 127 else byte)), ("i64", size)]
    b.call("llvm.memset.p0.i64", "void", [*args, ("i1", "false")])
    signature = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)"
    b.declarations["llvm.memset.p0.i64"] = signature


def _is_floating(dtype: str) -> bool:
    return is_float(element_of(dtype))


def mark_zones(b: Builder, start: str, size: str, before: int) -> None:
    """Make zones before and after a block; there is room for both."""
    low = b.emit(f"getelementptr i8, ptr {start}, i64 -{before}", "p")
    fill(b, low, str(before), None)
    fill(b, b.emit(f"getelementptr i8, ptr {start}, i64 {size}", "p"), str(ZONE), None)


def zone_damaged(b: Builder, start: str, size: str, before: int) -> str:
    """True if one of the zones around a block was written to, as an i1."""
    low = b.emit(f"getelementptr i8, ptr {start}, i64 -{before}", "p")
    high = b.emit(f"getelementptr i8, ptr {start}, i64 {size}", "p")
    ends = [
        b.call("relaxlab_damaged", "i1", [("ptr", at), ("i64", str(count))])
        for at, count in ((low, before), (high, ZONE))
    ]
    return b.emit(f"or i1 {ends[0]}, {ends[1]}")
