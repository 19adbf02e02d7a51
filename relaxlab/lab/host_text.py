"""Host functions as rows of text: one instruction per row, branches deeper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxlab.ir import host
from relaxlab.ir.expr import PrimExpr, format_expr

LONGEST = 200
"""Characters of a row."""


@dataclass(slots=True)
class Listing:
    """The instructions of a host function: rows of depth and text, and the row of each instruction
    by its identity."""

    rows: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    row_of: dict[int, int] = field(default_factory=dict[int, int])


def listing_of(fn: host.HostFunction) -> Listing:
    """The rows of a function."""
    made = Listing()
    _add(made, fn, fn.instrs, 0)
    made.rows.append((0, f"return {value_text(fn, fn.result)}"))
    return made


def _add(made: Listing, fn: host.HostFunction, instrs: Sequence[host.Instr], depth: int) -> None:
    for i in instrs:
        made.row_of[id(i)] = len(made.rows)
        text = instr_text(fn, i)
        made.rows.append((depth, text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"))
        if isinstance(i, host.If):
            for head, inner, value in (
                ("", i.then_instrs, i.then_value),
                ("else", i.else_instrs, i.else_value),
            ):
                if head:
                    made.rows.append((depth, head))
                _add(made, fn, inner, depth + 1)
                copied = f"{value_text(fn, i.dst)} = {value_text(fn, value)}"
                made.rows.append((depth + 1, copied))


def register_name(fn: host.HostFunction, register: int) -> str:
    """The name of a register: that of the graph's variable, or its number."""
    return fn.registers[register].name or f"%{register}"


def value_text(fn: host.HostFunction, value: host.Value) -> str:
    """A register or a tuple of them."""
    if isinstance(value, int):
        return register_name(fn, value)
    return f"({', '.join(value_text(fn, v) for v in value)})"


def instr_text(fn: host.HostFunction, i: host.Instr) -> str:
    """An instruction in one line."""

    def name(register: int) -> str:
        return register_name(fn, register)

    def several(values: Sequence[host.PackedArg]) -> str:
        return ", ".join(map(one, values))

    def one(value: host.PackedArg) -> str:
        if isinstance(value, str):
            return repr(value)
        return format_expr(value) if isinstance(value, PrimExpr) else value_text(fn, value)

    match i:
        case host.MatchShape(value, dst, kind, _, dtype, ndim, dims):
            shown = "any shape" if dims is None else f"({', '.join(map(_dim_text, dims))})"
            rank = "" if dims is not None or ndim < 0 else f" of rank {ndim}"
            text = f"match {name(value)}: {kind} {shown}{rank}{f' {dtype}' if dtype else ''}"
            return text if value == dst else f"{name(dst)} = {text}"
        case host.ComputeScalar(symbol, value):
            return f"{symbol.name} = {format_expr(value)}"
        case host.Require(condition, _, message):
            return f"require {format_expr(condition)}: {message}"
        case host.LoadConst(dst, index):
            return f"{name(dst)} = constant {index}"
        case host.LoadFunction(dst, function):
            return f"{name(dst)} = function {function}"
        case host.MakeClosure(dst, function, args):
            return f"{name(dst)} = closure {name(function)}({several(args)})"
        case host.MakeShape(dst, dims):
            return f"{name(dst)} = shape ({several(dims)})"
        case host.MakeScalar(dst, value):
            return f"{name(dst)} = {format_expr(value)}"
        case host.AllocStorage(dst, size, per_thread):
            each = " for each thread" if per_thread else ""
            return f"{name(dst)} = storage of {format_expr(size)} bytes{each}"
        case host.Alloc(dst, escapes):
            return f"{name(dst)} = new tensor{' for the caller' if escapes else ''}"
        case host.View(dst, base, offset):
            return f"{name(dst)} = {name(base)} from byte {format_expr(offset)}"
        case host.Kill(tensor):
            return f"{name(tensor)} is dead"
        case host.CallKernel(function, buffers, scalars):
            return f"kernel {function}({', '.join((*map(name, buffers), *map(one, scalars)))})"
        case host.CallPacked(function, args, dst):
            text = f"call {function}({several(args)})"
            return text if dst is None else f"{value_text(fn, dst)} = {text}"
        case host.CallFunction(function, args, dst):
            callee = function if isinstance(function, str) else name(function)
            return f"{value_text(fn, dst)} = {callee}({several(args)})"
        case host.Pack(dst, value):
            return f"{name(dst)} = pack {value_text(fn, value)}"
        case host.Unpack(dst, value):
            return f"{value_text(fn, dst)} = unpack {name(value)}"
        case host.If(condition):
            return f"if {name(condition)}"


def _dim_text(dim: host.BindDim | host.CheckDim | None) -> str:
    match dim:
        case host.BindDim(symbol):
            return f"{symbol.name} := …"
        case host.CheckDim(expected):
            return f"== {format_expr(expected)}"
        case None:
            return "…"
