"""The operator table: one row per graph operator.

The rows are written in `relaxlab.ops`; the table lives here because the parser, type deduction
and the passes read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError, expect
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.graph import Call
from relaxlab.ir.types import Type

if TYPE_CHECKING:
    from relaxlab.ir.loops import PrimFunc
    from relaxlab.ir.module import Module


Trait: TypeAlias = Literal[
    "view", "free", "elementwise", "product", "reduction", "rounds_once", "allocates",
    "sort_or_scan", "calls_loops", "calls_packed", "fills_outputs", "may_alias",
]  # fmt: skip
"""A property of an operator, described at `OpRow`."""
VIEW: tuple[Trait, ...] = ("view", "free", "rounds_once")
"""The traits of an operator whose result shares the memory of its first argument."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""Default of a parameter that must be given."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an operator.

    A `value` parameter is an entry of `Call.args` (a graph expression: tensor, shape, tuple,
    scalar); an `attr` parameter is an entry of `Call.attrs` (Python values, dtypes as strings).
    An optional value parameter that is left out is not in `Call.args`.
    """

    name: str
    kind: Literal["value", "attr"] = "value"
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True, repr=False)
class OpRow(Brief):
    """All facts about one operator.

    infer:      (call, types of call.args, module) -> result type, wherever shapes and dtypes
                determine one; raises `TypeDeductionError`.
    lower:      (call, types of call.args, result type) -> loop function in destination-passing
                style (inputs in order, then outputs), or None when the operator is not lowered to
                loops (it is handled by a named pass).
    update:     the same arguments -> loop function that takes the inputs and leaves the result in
                the first of them, or None where the operator does not work in place.
    reference:  NumPy meaning: called with arrays (shapes as tuples of int, tuples as tuples) for
                the value parameters and keywords for the attrs.
    gradient:   (a `relaxlab.ops.gradients.Step`) -> for each entry of call.args, the adjoint that
                the call adds to it, or None where there is none; None when the operator is not
                differentiable.
    doc:        what the operator gives, in a sentence; relaxlab's own rows have theirs, and the
                example, in relaxlab/ops/manual.md.
    example:    a call with the types of its names: `R.sum(x, axis=1)  # (2, 3) -> (2,)`.
    traits:     properties that passes and analyses use:
                `view`: the elements of the first argument in their order, in its memory;
                `free`: touches no element, so it costs nothing;
                `elementwise`: an element of the result depends on those at its place alone, after
                broadcasting; half precision is computed in float32 and rounded;
                `product`: sums of products, accumulated in float32 at least, which are worth
                converting their operands to half precision;
                `reduction`: elements along `axis`, all of them without one, are combined, and it
                does not matter which is where;
                `rounds_once`: an element of the result is one of an argument, or the rounded result
                of one operation, so that it loses nothing in half precision;
                `allocates`: the result is memory of its own, so that calls are not merged, but a
                pure function may make them;
                `sort_or_scan`: elements are put in order, or combined with those before them,
                along `axis`;
                `calls_loops`, `calls_packed`: the first argument is a loop function, or a
                registered function, and is called;
                `fills_outputs`: the callee is given the memory of its results, too;
                `may_alias`: the result may share memory with an argument, or hold on to it.
    needs:      what the computation needs beyond what the type needs, as numbers to add where bools
                have a type, too: each (call, types of call.args) -> None is asked once `infer` has
                given the type, and raises `TypeDeductionError`.
    """

    name: str
    params: tuple[Param, ...]
    infer: Callable[[Call, tuple[Type, ...], Module | None], Type]
    reference: Callable[..., Any] | None = None
    lower: Callable[[Call, tuple[Type, ...], Type], PrimFunc] | None = None
    update: Callable[[Call, tuple[Type, ...], Type], PrimFunc] | None = None
    pure: bool = True
    doc: str = ""
    example: str = ""
    traits: frozenset[Trait] = frozenset[Trait]()
    gradient: Callable[[Any], Sequence[Any]] | None = None
    needs: tuple[Callable[[Call, tuple[Type, ...]], None], ...] = ()

    def __repr__(self) -> str:
        return f"OpRow({self.name}{op_signature(self)})"


class TypeDeductionError(UserError):
    """An operator cannot take these arguments; turned into a diagnostic by type deduction."""

    def __init__(self, message: str, *, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


Condition: TypeAlias = tuple[PrimExpr, str]
"""A condition on the symbols that must hold for a call to be right, and its text for messages."""

_CONDITIONS: ContextVar[list[Condition] | None] = ContextVar("relaxlab_conditions", default=None)


def require(condition: PrimExpr, message: str) -> None:
    """Called by `infer` and `needs` for what depends on the symbols: it is checked before the call
    runs."""
    conditions = _CONDITIONS.get()
    if conditions is not None:
        conditions.append((condition, message))


def infer_type(
    row: OpRow, call: Call, tys: tuple[Type, ...], mod: Module | None, *, computable: bool = True
) -> Type:
    """The type of the result of a call from those of its arguments.

    Raises `TypeDeductionError` where there is none and, with `computable`, where the call has a
    type but lacks what its computation needs.
    """
    ty = row.infer(call, tys, mod)
    for need in row.needs if computable else ():
        need(call, tys)
    return ty


def infer_with_conditions(
    row: OpRow, call: Call, tys: tuple[Type, ...], mod: Module | None
) -> tuple[Type, tuple[Condition, ...]]:
    """Return the result type, and the conditions under which the call is right."""
    conditions: list[Condition] = []
    token = _CONDITIONS.set(conditions)
    try:
        return infer_type(row, call, tys, mod), tuple(conditions)
    finally:
        _CONDITIONS.reset(token)


_TABLE: dict[str, OpRow] = {}


def register_op(row: OpRow, *, override: bool = False) -> OpRow:
    """Add a row; with `override` it may replace an earlier one of that name.

    Raises ValueError when the name is taken, and for an operator of relaxlab itself always: keys of
    the artifact cache do not cover the compiler's own rows.
    """
    expect(row.name, str, "the name of an operator is a string")
    if row.name in _TABLE:
        # First: `override` does not help with these.
        if is_own(row.name):
            raise ValueError(
                f"operator {row.name!r} belongs to relaxlab and cannot be replaced; "
                "give yours another name"
            )
        if not override:
            raise ValueError(
                f"operator {row.name!r} is registered twice; override=True replaces the first"
            )
    _TABLE[row.name] = row
    return row


def is_own(name: str) -> bool:
    """True for an operator of relaxlab itself, once all of these are registered."""
    return name in import_module("relaxlab.ops").OPERATORS


def register_gradient(name: str, rule: Callable[[Any], Sequence[Any]]) -> None:
    """Give the row of an operator its gradient. Raises ValueError where it has one."""
    if _TABLE[name].gradient is not None:
        raise ValueError(f"operator {name!r} has a gradient already")
    _TABLE[name] = replace(_TABLE[name], gradient=rule)


@cache
def _load_rows() -> None:
    """Fill the table: the packages that read it may not import the one that writes it."""
    import_module("relaxlab.ops")


def find_op(name: str) -> OpRow | None:
    """The row of an operator, or None."""
    if name not in _TABLE:
        _load_rows()
    return _TABLE.get(name)


def has_trait(name: str, trait: Trait) -> bool:
    """True if there is an operator of that name and it has the trait (see `OpRow`)."""
    row = find_op(name)
    return row is not None and trait in row.traits


def op_row(name: str) -> OpRow:
    """The row of an operator. Raises KeyError naming it."""
    row = find_op(name)
    if row is None:
        raise KeyError(f"unknown operator {name!r}; see relaxlab.ops for the list")
    return row


def op_text(row: OpRow) -> tuple[str, str]:
    """The documentation of an operator and an example; empty where its author wrote none."""
    if row.doc or row.example:
        return row.doc, row.example
    return import_module("relaxlab.ops.manual").entries().get(row.name, ("", ""))


def op_signature(row: OpRow) -> Signature:
    """The parameters of an operator with their defaults."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    found: list[Parameter] = []
    for p in row.params:
        if p.name.startswith("*"):
            found.append(Parameter(p.name[1:], Parameter.VAR_POSITIONAL))
            kind = Parameter.KEYWORD_ONLY
            continue
        default: Any = Parameter.empty if p.default is REQUIRED else p.default
        found.append(Parameter(p.name, kind, default=default))
    return Signature(found)


def op_names() -> tuple[str, ...]:
    """All operators, sorted."""
    _load_rows()
    return tuple(sorted(_TABLE))
