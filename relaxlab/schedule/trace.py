"""The trace of a schedule: a list of plain instructions that can be replayed and saved as JSON.

Blocks and loops are named by the handle that an earlier instruction returned (`b0`, `l3`), so a
trace applies to any function of the same structure, whatever its variables are called. Symbols
in factors are named, and found in the function's parameters on replay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any, TypeAlias, cast

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.scalar_operators import SCALAR_OPERATORS
from relaxlab.ir.substitute import free_symbols, substitute, symbols_in
from relaxlab.schedule.primitive import PRIMITIVES

Value: TypeAlias = Any
"""A `Ref`, a number, a string, a bool, None, a `PrimExpr`, an `IndexMap`, `Steps` or a tuple of
these."""


@dataclass(frozen=True, slots=True)
class Ref:
    """The name of a handle within a trace."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Instruction:
    """A step: the primitive's name, its arguments, the handles that it returned, and remarks on
    it."""

    name: str
    args: tuple[tuple[str, Value], ...]
    outputs: tuple[str, ...] = ()
    remark: str = field(default="", compare=False)

    def __str__(self) -> str:
        shown = (_show(v)[1:-1] if k == "loops" else f"{k}={_show(v)}" for k, v in self.args)
        call = f"sch.{self.name}({', '.join(shown)})"
        call += f"  # {self.remark}" if self.remark else ""
        results = ", ".join(self.outputs)
        row = PRIMITIVES.get(self.name)
        if row and row.lists and len(self.outputs) == 1:
            results = f"[{results}]"
        call = f"{results} = {call}" if results else call
        nested = dict(self.args).get("schedule") if row and row.nests else None
        return call if nested is None else f"{_definition(nested)}\n{call}"


@dataclass(frozen=True, slots=True)
class Steps:
    """A trace as a value: of a rule's schedule, or of a nested one, which has a function and
    handles of its own. bound: the size that `guarded_versions` made it for; None for any size."""

    trace: tuple[Instruction, ...]
    bound: int | None = None

    def __repr__(self) -> str:
        return f"Steps({counted(len(self.trace), 'step')})"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.trace), "return sch"])


def _show(value: Value) -> str:
    match value:
        case Ref() | PrimExpr():
            return str(value)
        case Steps() | (Steps(), *_):
            return "schedule"
        case IndexMap(variables, finals):
            names = ", ".join(v.name for v in variables)
            return f"lambda {names}: ({', '.join(map(str, finals))},)"
        case tuple():
            return f"[{', '.join(_show(v) for v in value)}]"  # type: ignore[reportUnknownVariableType]
        case _:
            return repr(value)


def _definition(nested: Steps | tuple[Steps, ...]) -> str:
    """The function `schedule` that makes nested steps, as text."""
    if isinstance(nested, Steps):
        return f"def schedule(sch):\n{indent(str(nested), '    ')}"
    # The general version is made first, and printed last.
    lines = ["def schedule(sch, bound):"]
    for steps in nested[1:]:
        lines += [f"    if bound == {steps.bound}:", indent(str(steps), " " * 8)]
    return "\n".join([*lines, indent(str(nested[0]), "    ")])


def with_symbols(value: Value, symbols: Mapping[Var, PrimExpr]) -> Value:
    """An instruction, its arguments, or nested steps, with other expressions for symbols."""
    match value:
        case Instruction(args=args):
            return replace(value, args=tuple((k, with_symbols(v, symbols)) for k, v in args))
        case Steps(trace):
            return replace(value, trace=tuple(with_symbols(i, symbols) for i in trace))
        case IndexMap(variables, finals):
            return IndexMap(variables, tuple(substitute(e, symbols) for e in finals))
        case PrimExpr():
            return substitute(value, symbols)
        case tuple():
            return tuple(with_symbols(v, symbols) for v in value)  # type: ignore[reportUnknownVariableType]
        case _:
            return value


def in_terms_of(value: PrimExpr | IndexMap, symbols: Mapping[str, Var]) -> Value:
    """An argument of an instruction with the variables of these names for its own. Raises
    ValueError where one is missing."""
    mentioned = free_symbols(value)
    for v in mentioned:
        if v.name not in symbols:
            raise ValueError(f"the trace needs a symbol {v.name!r}; there are {sorted(symbols)}")
    return with_symbols(value, {v: symbols[v.name] for v in mentioned})


def names_in(value: Value) -> Iterator[str]:
    """Yield the names of handles and of index maps' variables in a trace or a part of it."""
    match value:
        case Instruction(args=args, outputs=outputs):
            yield from outputs
            yield from names_in(tuple(v for _, v in args))
        case Steps(trace):
            yield from names_in(trace)
        case IndexMap(variables):
            yield from (v.name for v in variables)
        case tuple() | list():
            for part in value:  # type: ignore[reportUnknownVariableType]
                yield from names_in(part)
        case _:
            pass


def to_json(trace: Iterable[Instruction]) -> str:
    """The trace as JSON text; `from_json` reads it back."""
    return json.dumps(_encoded(trace), indent=1)


def _encoded(trace: Iterable[Instruction]) -> list[Any]:
    return [
        {"name": i.name, "args": {k: _encode(v) for k, v in i.args}, "outputs": list(i.outputs)}
        for i in trace
    ]


def from_json(text: str) -> list[Instruction]:
    """The trace that `to_json` wrote. Raises ValueError on anything else."""
    try:
        steps = json.loads(text)
        if not isinstance(steps, list):
            raise ValueError("not a schedule trace: the outermost value is not a list")
        return _decoded(cast("list[Any]", steps))
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"not a schedule trace: {e!r}") from e


def _decoded(steps: Iterable[Any]) -> list[Instruction]:
    return [
        Instruction(
            str(step["name"]),
            tuple((str(k), _decode(v)) for k, v in step["args"].items()),
            tuple(str(o) for o in step["outputs"]),
        )
        for step in steps
    ]


_EXPRESSIONS: dict[str, type[expr.BinaryOp]] = {
    name: getattr(expr, name) for name, row in SCALAR_OPERATORS.items() if row.arithmetic
}


def _encode(value: Value) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return [_encode(v) for v in value]  # type: ignore[reportUnknownVariableType]
        case Ref(name):
            return {"ref": name}
        case Steps(trace, bound):
            return {"steps": _encoded(trace), "bound": bound}
        case expr.IntImm(number):
            return {"int": number}
        case expr.FloatImm(number, dtype):
            return {"float": number.hex(), "dtype": dtype}
        case Var(name):
            return {"symbol": name}
        case IndexMap(variables, finals):
            return {"map": [v.name for v in variables], "to": [_encode(e) for e in finals]}
        case expr.BinaryOp(a, b) if type(value).__name__ in _EXPRESSIONS:
            return {"op": type(value).__name__, "a": _encode(a), "b": _encode(b)}
        case _:
            raise ValueError(f"cannot save {value!r} ({type(value).__name__}) in a trace")


def _decode(value: Any) -> Value:
    match value:
        case list():
            return tuple(_decode(v) for v in value)  # type: ignore[reportUnknownVariableType]
        case {"ref": name}:
            return Ref(name)
        case {"steps": steps, "bound": None | int() as bound}:
            return Steps(tuple(_decoded(steps)), bound)
        case {"int": number}:
            return expr.const(int(number))
        case {"float": text, "dtype": dtype}:
            return expr.FloatImm(float.fromhex(text), dtype)
        case {"symbol": name}:
            return Var(name)
        case {"map": names, "to": finals}:
            variables = {name: Var(name) for name in names}
            values = tuple(map(_decode, finals))
            own = {v: variables[v.name] for v in symbols_in(values) if v.name in variables}
            return IndexMap(tuple(variables.values()), with_symbols(values, own))
        case {"op": op, "a": a, "b": b} if op in _EXPRESSIONS:
            return expr.binary(_EXPRESSIONS[op], _decode(a), _decode(b))
        case dict():
            raise ValueError(f"unknown value in a trace: {value}")
        case _:
            return value
