"""Values of algebraic data types in host functions.

A value is the address of its words: the number of its constructor, then a word per field, which is
the address of a tensor or of another value. The tensors of a value that a program makes are copied
into memory behind its words, so that nothing else writes there; values belong to the call, like its
results.
"""

from __future__ import annotations

import json

from relaxlab.codegen.llvm.host_frame import HostFrame, Reg
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.ir import host, types
from relaxlab.ir.recording import VALUE_FIELDS, VALUE_TAG

OPERATOR = "relaxlab.operator"
"""The packed function that runs an operator by its reference, see `ir.host.CallPacked`."""
ALIGN = 64
"""Alignment of the tensors of a value, in bytes."""


def is_on_data(i: host.CallPacked) -> bool:
    """True for calls that make values of data types or take them apart."""
    return i.function == OPERATOR and str(i.args[0]).startswith("adt.")


def emit_on_data(e: HostFrame, i: host.CallPacked) -> None:
    """Emit such a call."""
    name, attrs = i.args[0], json.loads(str(i.args[1]))
    operands = [r for a in i.args if isinstance(a, int | tuple) for r in host.leaves(a)]
    assert isinstance(i.dst, int)
    if name == "adt.construct":
        e.regs[i.dst] = Reg(_constructed(e, attrs["tag"], operands))
        return
    value = e.regs[operands[0]].address
    if name == "adt.tag":
        tag = e.b.emit(f"getelementptr inbounds i64, ptr {value}, i64 {VALUE_TAG}", "p")
        e.regs[i.dst] = Reg(tag, [])
        return
    address = e.pointer(e.read(value, VALUE_FIELDS + attrs["index"]))
    ty = e.type_of(i.dst)
    dims = list(ty.shape or ()) if isinstance(ty, types.TensorType) else None
    e.regs[i.dst] = Reg(address, None if dims is None else [e.scalar(d) for d in dims])


def _constructed(e: HostFrame, tag: int, fields: list[int]) -> str:
    """The address of a new value."""
    tensors = [r for r in fields if isinstance(e.type_of(r), types.TensorType)]
    sizes = {r: e.bytes(r) for r in tensors}
    words = 8 * (VALUE_FIELDS + len(fields))
    end = str(-(-words // ALIGN) * ALIGN)
    places: dict[int, str] = {}
    for r in tensors:
        places[r] = end
        padded = e.b.emit(f"add i64 {sizes[r]}, {ALIGN - 1}")
        end = e.b.emit(f"add i64 {end}, {e.b.emit(f'and i64 {padded}, {-ALIGN}')}")
    made = e.allocate(end)

    def fill() -> None:
        e.write(made, VALUE_TAG, str(tag))
        for k, r in enumerate(fields):
            address = e.regs[r].address
            if r in places:
                at = e.b.emit(f"getelementptr inbounds i8, ptr {made}, i64 {places[r]}", "p")
                copied = [("ptr", at), ("ptr", address), ("i64", sizes[r]), ("i1", "false")]
                e.b.call("llvm.memcpy.p0.p0.i64", "void", copied)
                address = at
            e.write(made, VALUE_FIELDS + k, address, "ptr")

    e.only_thread_0(fill)
    barrier(e.scope, Team())
    return made
