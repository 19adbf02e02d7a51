"""Symbols of an imported program: its dimensions, and what is known about them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from relaxlab.frontend.table import Refused
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr


class Symbols:
    """The symbols of a program by the source's names, with the constraints on them.

    `upper` are the upper bounds by name, which the function is given (`tir_var_upper_bound`);
    `facts` the other constraints, which calls of the function check.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """names: better ones for some of the source's names."""
        self._names = names or {}
        self._by_name: dict[str, expr.Var] = {}
        self.upper: dict[str, int] = {}
        self.facts: list[PrimExpr] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The names so far."""
        return tuple(self._by_name)

    def __call__(self, name: str) -> expr.Var:
        """The symbol of that name."""
        name = self._names.get(name, name)
        return self._by_name.setdefault(name, expr.Var(name))

    def constrain(self, name: str, lower: int | None = None, upper: int | None = None) -> None:
        """Let calls of the program have values from `lower` to `upper`, both inclusive, alone."""
        symbol = self(name)
        if upper is not None:
            self.upper[symbol.name] = min(upper, self.upper.get(symbol.name, upper))
        if lower is not None and lower > 0:
            self.facts.append(expr.GE(symbol, expr.const(lower)))

    def require(self, condition: PrimExpr) -> None:
        """Let calls of the program stop where the condition on symbols does not hold."""
        if condition != expr.const(True, "bool"):
            self.facts.append(condition)


_CALLS = {"floordiv": expr.FloorDiv, "mod": expr.FloorMod, "max": expr.Max, "min": expr.Min}
_OPERATORS = {
    ast.Add: expr.Add, ast.Sub: expr.Sub, ast.Mult: expr.Mul, ast.FloorDiv: expr.FloorDiv,
    ast.Mod: expr.FloorMod,
}  # fmt: skip


def names_in(text: str) -> frozenset[str] | None:
    """The names in the text of a dimension; None for a text that is no expression."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return None
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))


def parsed(symbols: Symbols, text: str) -> PrimExpr:
    """The expression that the text of a dimension says, of symbols by their names. Raises Refused
    for what is none."""
    return _expression(symbols, ast.parse(text, mode="eval").body)


def _expression(symbols: Symbols, tree: ast.expr) -> PrimExpr:
    match tree:
        case ast.Constant(int(value)):
            return expr.const(value)
        case ast.Name(name):
            return symbols(name)
        case ast.UnaryOp(ast.USub(), operand):
            return -_expression(symbols, operand)
        case ast.BinOp(left, ast.Pow(), ast.Constant(int(times))) if times > 0:
            base = _expression(symbols, left)
            power = base
            for _ in range(times - 1):
                power = power * base
            return power
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            pair = (_expression(symbols, e) for e in (left, right))
            return expr.binary(_OPERATORS[type(op)], *pair)
        case ast.Call(ast.Name(name), [left, right]) if name in _CALLS:
            return expr.binary(_CALLS[name], *(_expression(symbols, e) for e in (left, right)))
        case _:
            raise Refused(f"the dimension {ast.unparse(tree)} is not understood")
