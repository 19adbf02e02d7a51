"""Scalar expressions as TVM constructs them: the dtype of a constant first, numbers as operands."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from relaxlab.ir import expr as core
from relaxlab.tvm.spelling import Spelling
from relaxlab.tvm.tir.op import alike, condition_of


class IntImm(metaclass=Spelling, core=core.IntImm):
    """An integer constant."""

    def __new__(cls, dtype: str, value: int, span: object = None) -> core.IntImm:
        return core.IntImm(int(value), dtype)


class FloatImm(metaclass=Spelling, core=core.FloatImm):
    """A floating-point constant."""

    def __new__(cls, dtype: str, value: float, span: object = None) -> core.FloatImm:
        return core.FloatImm(float(value), dtype)


class Cast(metaclass=Spelling, core=core.Cast):
    """A conversion to another dtype."""

    def __new__(cls, dtype: str, value: Any, span: object = None) -> core.Cast:
        return core.Cast(dtype, core.as_expr(value))


class Select(metaclass=Spelling, core=core.Select):
    """One of two values, both of which may be evaluated."""

    def __new__(
        cls, condition: Any, true_value: Any, false_value: Any, span: object = None
    ) -> core.Select:
        then, other = alike(true_value, false_value)
        return core.Select(condition_of(condition), then, other)


def _binary(cls: type[core.BinaryOp]) -> Spelling:
    def make(_: object, a: Any, b: Any, span: object = None) -> core.PrimExpr:
        return core.binary(cls, a, b)

    namespace = {"__new__": make, "__doc__": cls.__doc__, "__module__": __name__}
    return Spelling(cls.__name__, (), namespace, core=cls)


BINARY = (
    core.Add, core.Sub, core.Mul, core.Div, core.Mod, core.FloorDiv, core.FloorMod, core.Min,
    core.Max, core.EQ, core.NE, core.LT, core.LE, core.GT, core.GE, core.And, core.Or,
)  # fmt: skip
_SPELLED = {cls.__name__: _binary(cls) for cls in BINARY}


def __getattr__(name: str) -> Any:
    if name in _SPELLED:
        return _SPELLED[name]
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(import_module("relaxlab.tvm.tir"), name)
