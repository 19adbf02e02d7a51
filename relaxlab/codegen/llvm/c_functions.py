"""Calls of functions of C libraries from host functions."""

from __future__ import annotations

from relaxlab.codegen.artifact import CheckInfo
from relaxlab.codegen.check_messages import literal
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm.arithmetic import cast
from relaxlab.codegen.llvm.builder import Value
from relaxlab.codegen.llvm.host_frame import HostFrame
from relaxlab.codegen.llvm.team import Team, barrier
from relaxlab.ir import expr, host, types
from relaxlab.ir.c_functions import CFunction


def call_c_function(e: HostFrame, i: host.CallPacked, row: CFunction) -> None:
    """Emit the call, which the whole team reaches. Raises CodegenError for arguments that are of
    other types than the row says."""
    problem = row.mismatch([_type_of(e, a) for a in i.args])
    if problem is not None:
        raise CodegenError(f"in `{e.function.name}`: {problem}")
    sizes: dict[str, Value] = {}
    values = {name: ("i64", f"%{name}") for name in ("thread", "threads")}
    for wanted, arg in zip(row.arguments, i.args, strict=True):
        if wanted.dims is None:
            is_computed = isinstance(arg, expr.PrimExpr)
            held = e.scalar(arg) if is_computed else e.regs[_register(arg)].scalar
            assert held is not None
            value = cast(e.b, held, wanted.dtype)
            values[wanted.name] = (value.ty, e.b.materialise(value))
            continue
        reg = _register(arg)
        values[wanted.name] = ("ptr", e.regs[reg].address)
        for dim, size in zip(wanted.dims, e.dims(reg), strict=True):
            _require_equal(e, row, dim, sizes.setdefault(dim, size), size)
    values |= {dim: ("i64", e.b.materialise(size)) for dim, size in sizes.items()}

    def call() -> None:
        e.b.call(row.symbol, "void", [values[name] for name in row.passes])

    if row.is_parallel:
        call()
    else:
        e.only_thread_0(call)
    # One thread or each has written a part of the outputs, which all read later.
    barrier(e.scope, Team())


def _require_equal(e: HostFrame, row: CFunction, dim: str, first: Value, size: Value) -> None:
    if first is size or (first.const is not None and first.const == size.const):
        return
    one, other = e.b.materialise(first), e.b.materialise(size)
    if one == other:
        return
    ok = e.b.emit(f"icmp eq i64 {one}, {other}")
    text = literal(f"`{e.function.name}`: ") + row.size_message(dim, "{got}", "{expected}")
    e.fail_unless(ok, CheckInfo(e.function.name, (text,)), 0, size, first)


def _type_of(e: HostFrame, arg: host.PackedArg) -> types.Type | None:
    if isinstance(arg, expr.PrimExpr):
        return types.PrimType(arg.dtype)
    return e.type_of(arg) if isinstance(arg, int) else None


def _register(arg: host.PackedArg) -> int:
    assert isinstance(arg, int)
    return arg
