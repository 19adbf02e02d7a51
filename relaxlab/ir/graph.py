"""Graph functions: calls on tensors in A-normal form (Relax's vocabulary).

After normalisation every call, tuple and conditional is bound to a variable, and the variable's
`ty` is what was deduced for it. Variables compare by identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir.display import script_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import NO_ATTRS, Atom, Attrs, Node, binder, hint_field, node
from relaxlab.ir.types import Type


class Expr(Node):
    """Base of the graph-level expressions."""

    __slots__ = ()


@node
class Var(Expr, Atom):
    """A variable; `ty` is its annotation or what was deduced (None before normalisation)."""

    name: str
    ty: Type | None = None


class DataflowVar(Var):
    """A variable visible only in its dataflow block."""

    __slots__ = ()


@node
class GlobalVar(Expr, Atom):
    """A reference to the module's function of that name; equal when the names are."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalVar) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("GlobalVar", self.name))


@node
class ExternFunc(Expr, Atom):
    """A function registered by name outside the module (a library or Python function)."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExternFunc) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("ExternFunc", self.name))


@node
class Op(Expr, Atom):
    """An operator by its name in the script after `R.`: `add`, `nn.softmax`, `call_tir`."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("Op", self.name))


@node
class Constant(Expr):
    """A tensor constant; the array is never written to."""

    data: np.ndarray[Any, Any]


@node
class Tuple(Expr):
    """A tuple of values."""

    fields: tuple[Expr, ...]


@node
class TupleGetItem(Expr):
    """Field `index` of a tuple."""

    tuple_value: Expr
    index: int


@node
class ShapeExpr(Expr):
    """A shape value (`R.shape([n, 4])`)."""

    values: tuple[PrimExpr, ...]


@node
class PrimValue(Expr):
    """A scalar value (`R.prim_value(n + 1)`)."""

    value: PrimExpr


@node
class StringImm(Expr):
    """A string value."""

    value: str


@node
class DataTypeImm(Expr):
    """A data type as a value."""

    value: str


@node
class Call(Expr):
    """`op(*args)`: `op` is an operator, a global or local function, or an external function.

    The cross-level calls are operators: `call_tir(gvar, Tuple(args)[, ShapeExpr symbols])` with
    the output types in `ty_args` (several outputs: several types), `call_dps_packed(extern,
    Tuple(args))` likewise, `call_pure_packed(extern, *args)` with its result type in `ty_args`.
    """

    op: Expr
    args: tuple[Expr, ...]
    attrs: Attrs = NO_ATTRS
    ty_args: tuple[Type, ...] = ()


@node
class If(Expr):
    """A conditional on a bool scalar tensor; both branches are `SeqExpr`."""

    condition: Expr
    true_branch: SeqExpr
    false_branch: SeqExpr


@node
class Case(Node):
    """A case of a `Match`, for values that `constructor` made: `fields` are bound to theirs."""

    constructor: str
    fields: tuple[Var, ...] = binder()
    body: SeqExpr


@node
class Match(Expr):
    """A choice by the constructor of a value of a data type: one case for each."""

    value: Expr
    cases: tuple[Case, ...]


class Binding(Node):
    """Base of the bindings; each has a `value` and the `var` it defines."""

    __slots__ = ()
    value: Expr
    var: Var


@node
class VarBinding(Binding):
    """`var = value`"""

    value: Expr
    var: Var = binder()


@node
class MatchCast(Binding):
    """`var = R.match_cast(value, ty)`: checked at run time; may bind the symbols of `ty`."""

    value: Expr
    ty: Type
    var: Var = binder()


@node
class BindingBlock(Node):
    """Bindings in order; may have effects."""

    bindings: tuple[Binding, ...]


class DataflowBlock(BindingBlock):
    """A side-effect-free straight-line region; its non-`DataflowVar`s are its outputs."""

    __slots__ = ()


@node
class SeqExpr(Expr):
    """Blocks of bindings, then the value of `body`."""

    blocks: tuple[BindingBlock, ...]
    body: Expr


@node
class Function(Expr):
    """A graph function. `ret_ty` None: not annotated, deduced by normalisation.

    `private` functions may be changed or removed by passes. Recognised attrs: `num_input` (int:
    how many leading parameters are run-time inputs, the rest being weights),
    `transform_params` (the name of the function that makes its weights of those of the program
    before `lift_transform_params`), `tir_var_upper_bound` (symbol name -> int), `donated` (names of
    tensor parameters that the function may overwrite: callers do not read them afterwards),
    `signed_scalars` (names of symbols of scalar parameters that may be negative: they are no
    extents, and are handed to loop functions as they come),
    `Primitive` (bool: a fused group), `relax.force_pure` (bool: pure although it writes, to memory
    that it allocated itself).
    """

    params: tuple[Var, ...] = binder()
    body: SeqExpr
    ret_ty: Type | None = None
    is_pure: bool = True
    private: bool = False
    attrs: Attrs = NO_ATTRS
    name_hint: str = hint_field(default="")

    def script(self, **options: Any) -> str:
        """The function as a runnable script; see `relaxlab.script.printer.print_module`."""
        return script_of(self, **options)

    def __str__(self) -> str:
        return self.script()
