"""The sizes that a host program calculates, and whether they may not fit into 64 bits."""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import expr, host

LARGEST_SIZE = 1 << 62
"""Sizes whose arithmetic stays below need no check for overflow of int64."""


def sizes_of(instr: host.Instr, function: str) -> Iterator[tuple[str, expr.PrimExpr]]:
    """Yield the integers that an instruction of `function` calculates of symbols, each with what it
    is. Tensors and storages are sized by their registers' types, not here."""
    match instr:
        case host.MakeShape(_, dims):
            shape = f"({', '.join(map(str, dims))})"
            for axis, d in enumerate(dims):
                yield f"dimension {axis} of the shape {shape} in `{function}`", d
        case host.MatchShape(what=what, dims=tuple(dims)):
            for axis, d in enumerate(dims):
                if isinstance(d, host.CheckDim):
                    yield f"{d.expected}, dimension {axis} of {what}", d.expected
        case _:
            for e in _scalars_of(instr):
                yield f"{e} in `{function}`", e


def _scalars_of(instr: host.Instr) -> tuple[expr.PrimExpr, ...]:
    match instr:
        case host.MakeScalar(_, value) | host.ComputeScalar(_, value):
            return (value,)
        case host.Require(expr.CmpOp(a, b)):
            return a, b
        case host.CallKernel(scalars=scalars):
            return scalars
        case host.CallPacked(args=args):
            return tuple(a for a in args if isinstance(a, expr.PrimExpr))
        case _:
            return ()


def may_be_wide(size: expr.PrimExpr) -> bool:
    """True if arithmetic on symbols may not fit into 64 bits: a sum of a few symbols below 2^60
    always does, a product of two may not."""
    if size.dtype != "int64" or isinstance(size, expr.IntImm):
        return False
    return _most(size) >= LARGEST_SIZE


def _most(size: expr.PrimExpr) -> int:
    """Return an upper bound of every step of a size's arithmetic while its symbols are at most
    2^60."""
    match size:
        case expr.IntImm(value):
            return abs(value)
        case expr.Mul(a, b):
            return _most(a) * _most(b)
        case expr.Add(a, b) | expr.Sub(a, b):
            return _most(a) + _most(b)
        case expr.FloorDiv(a, b) | expr.FloorMod(a, b) | expr.Max(a, b) | expr.Min(a, b):
            return max(_most(a), _most(b))
        case _:
            return 1 << 60
