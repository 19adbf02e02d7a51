"""The operators of two scalars, a row for each class of nodes in `ir/expr.py`: how it is written
and what it computes.

Code generators emit them in their own ways (`codegen/llvm/arithmetic.py` has instructions by dtype,
the `dialect.py` of a language of GPUs its parentheses); spelling, precedence and values stand here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ScalarOperator:
    """An operator of two scalars.

    name:       of its class of nodes.
    exact:      its value for Python numbers, without wrapping or rounding; divisions by zero raise
                ZeroDivisionError.
    arrays:     its value for NumPy arrays; None for divisions, which depend on the dtype.
    function:   its name in scripts beside that of the class: `T.truncdiv`; empty where none.
    infix:      its spelling in Python, empty where it is a function.
    level:      how tightly the infix binds in Python; larger binds more tightly.
    c, c_level: the same in C and CUDA.
    arithmetic: True for an operation on numbers that has a number as its result.
    """

    name: str
    exact: Callable[[Any, Any], Any]
    arrays: Callable[[Any, Any], Any] | None = None
    function: str = ""
    infix: str = ""
    level: int = 0
    c: str = ""
    c_level: int = 0
    arithmetic: bool = False

    @property
    def is_division(self) -> bool:
        """True for quotients and remainders, which have no value for a divisor of zero."""
        return self.arrays is None


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _quotient(a: Any, b: Any) -> Any:
    return _truncated(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


def _remainder(a: Any, b: Any) -> Any:
    return a - b * _truncated(a, b)


def _floor(a: Any, b: Any) -> Any:
    return a // b


def _shift_left(a: Any, b: Any) -> Any:
    return a << b


def _shift_right(a: Any, b: Any) -> Any:
    return a >> b


def _bits_of_either(a: Any, b: Any) -> Any:
    return a | b


def _bits_of_one(a: Any, b: Any) -> Any:
    return a ^ b


def _bits_of_both(a: Any, b: Any) -> Any:
    return a & b


def _both(a: Any, b: Any) -> Any:
    return a and b


def _either(a: Any, b: Any) -> Any:
    return a or b


_ROWS = (
    ScalarOperator("Or", _either, np.logical_or, "", "or", 1, "||", 1),
    ScalarOperator("And", _both, np.logical_and, "", "and", 2, "&&", 2),
    ScalarOperator("EQ", operator.eq, operator.eq, "", "==", 4, "==", 6),
    ScalarOperator("NE", operator.ne, operator.ne, "", "!=", 4, "!=", 6),
    ScalarOperator("LT", operator.lt, operator.lt, "", "<", 4, "<", 7),
    ScalarOperator("LE", operator.le, operator.le, "", "<=", 4, "<=", 7),
    ScalarOperator("GT", operator.gt, operator.gt, "", ">", 4, ">", 7),
    ScalarOperator("GE", operator.ge, operator.ge, "", ">=", 4, ">=", 7),
    ScalarOperator("BitOr", _bits_of_either, _bits_of_either, "bitwise_or", "|", 5, "|", 3),
    ScalarOperator("BitXor", _bits_of_one, _bits_of_one, "bitwise_xor", "^", 6, "^", 4),
    ScalarOperator("BitAnd", _bits_of_both, _bits_of_both, "bitwise_and", "&", 7, "&", 5),
    ScalarOperator("ShiftLeft", _shift_left, _shift_left, "shift_left", "<<", 8, "<<", 8),
    ScalarOperator("ShiftRight", _shift_right, _shift_right, "shift_right", ">>", 8, ">>", 8),
    ScalarOperator("Add", operator.add, operator.add, "", "+", 9, "+", 9, arithmetic=True),
    ScalarOperator("Sub", operator.sub, operator.sub, "", "-", 9, "-", 9, arithmetic=True),
    ScalarOperator("Mul", operator.mul, operator.mul, "", "*", 10, "*", 10, arithmetic=True),
    ScalarOperator("Div", _quotient, None, "truncdiv", "/", 10, "/", 10, arithmetic=True),
    ScalarOperator("Mod", _remainder, None, "truncmod", "", 0, "%", 10, arithmetic=True),
    ScalarOperator("FloorDiv", _floor, None, "floordiv", "//", 10, "/", 10, arithmetic=True),
    ScalarOperator("FloorMod", operator.mod, None, "floormod", "%", 10, "%", 10, arithmetic=True),
    ScalarOperator("Min", min, np.minimum, "min", arithmetic=True),
    ScalarOperator("Max", max, np.maximum, "max", arithmetic=True),
)
SCALAR_OPERATORS: dict[str, ScalarOperator] = {row.name: row for row in _ROWS}
