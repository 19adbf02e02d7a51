"""Scalar expressions as JSON, for the page to compute with values that a reader chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from relaxlab.ir.expr import BinaryOp, Cast, FloatImm, IntImm, PrimExpr, Select, Var
from relaxlab.ir.node import walk
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS

Encoded: TypeAlias = int | float | str | list[Any]

_OPERATORS = {
    row.infix or row.function: row
    for row in map(SCALAR_OPERATORS.__getitem__, "Add Sub Mul FloorDiv FloorMod Min Max".split())
}
"""The operators that `evaluate` of core.js computes."""


def encode(expr: PrimExpr | int) -> Encoded:
    """A number, the name of a symbol, or `[operator, a, b]`; what `evaluate` of core.js computes.

    Anything else becomes `["text", its script]`, which the page shows and cannot compute.
    """
    match expr:
        case int():
            return expr
        case IntImm(value) | FloatImm(value):
            return value
        case Var(name):
            return name
        case Cast(_, value):
            return encode(value)
        case Select(condition, a, b):
            return ["text", f"{b} unless {condition}, else {a}"]
        case BinaryOp(a, b) if expr.row in _OPERATORS.values():
            return [expr.row.infix or expr.row.function, encode(a), encode(b)]
        case _:
            return ["text", str(expr)]


def value_of(encoded: Encoded, values: Mapping[str, int]) -> int | None:
    """The value of an encoded expression; None if a symbol has none or it cannot be computed."""
    match encoded:
        case int():
            return encoded
        case str():
            return values.get(encoded)
        case [op, a, b] if op in _OPERATORS:
            left, right = value_of(a, values), value_of(b, values)
            if left is None or right is None or (op in ("//", "%") and right == 0):
                return None
            return _OPERATORS[op].exact(left, right)
        case _:
            return None


_LEVEL = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


def spelled(encoded: Encoded, level: int = 0) -> str:
    """An encoded expression as text."""
    match encoded:
        case ["text", text]:
            return str(text)
        case [("min" | "max") as op, a, b]:
            return f"{op}({spelled(a)}, {spelled(b)})"
        case [op, a, b]:
            own = _LEVEL[op]
            text = f"{spelled(a, own)} {op} {spelled(b, own + 1)}"
            return f"({text})" if own < level else text
        case _:
            return str(encoded)


def symbols_of(exprs: Iterable[PrimExpr]) -> list[str]:
    """The names of the symbols in `exprs`, in the order in which they occur."""
    return list(dict.fromkeys(n.name for e in exprs for n in walk(e) if isinstance(n, Var)))
