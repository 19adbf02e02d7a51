"""Types of graph expressions: forward, local, one rule per operator (the paper, section 4.1).

A rule looks at the arguments' types and values. Across functions only the callee's signature
counts: its parameters' dimensions are unified with the arguments', the result type follows by
substitution, and what stays unbound becomes coarse.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import reduce

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.ragged import check_ragged_result, mentions_ragged
from relaxlab.analysis.subtype import Verdict, check_subtype, coarsen, dims_of, lca
from relaxlab.analysis.unify import DimPair, unify
from relaxlab.analysis.vdevices import on_common_device
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.data import data_types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.errors import counted
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, rewrite
from relaxlab.ir.op_table import TypeDeductionError, find_op, infer_type, op_names
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import DataType, FuncType, ObjectType, PrimType, TensorType, TupleType, Type

__all__ = ["check_subtype", "deduce_call", "lca", "signature_of", "type_of"]


def type_of(
    e: graph.Expr,
    mod: Module | None = None,
    analyzer: Analyzer | None = None,
    *,
    computable: bool = True,
) -> Type:
    """The type of an expression whose variables have types.

    Raises `DiagnosticError` (codes E02xx) for an expression that has none and, with `computable`,
    for one whose operators cannot compute what they are given.
    """
    analyzer = analyzer or Analyzer.for_shapes(e)

    def of(part: graph.Expr) -> Type:
        return type_of(part, mod, analyzer, computable=computable)

    match e:
        case graph.Var(name, ty):
            if ty is None:
                raise _error("E0201", f"the type of `{name}` is not known yet", e)
            return ty
        case graph.GlobalVar(name):
            return _global(name, mod, e)
        case graph.Function():
            return signature_of(e)
        case graph.Call(_, args):
            return deduce_call(e, tuple(map(of, args)), mod, analyzer, computable=computable)
        case graph.If(_, yes, no):
            return lca(of(yes), of(no), analyzer)
        case graph.Match(_, cases):
            return lca_of([of(c.body) for c in cases], analyzer)
        case graph.SeqExpr(_, body):
            return of(body)
        case graph.Tuple(fields):
            return TupleType(tuple(map(of, fields)))
        case graph.TupleGetItem(value, index):
            return field_type(of(value), index, e)
        case _:
            return _leaf(e)


def is_computable(e: graph.Expr) -> bool:
    """True for an expression that has a type and whose operators can compute it."""
    try:
        type_of(e)
    except DiagnosticError:
        return False
    return True


def lca_of(tys: Sequence[Type], analyzer: Analyzer) -> Type:
    """The finest type that has the values of all of some types."""
    return reduce(lambda a, b: lca(a, b, analyzer), tys) if tys else ObjectType()


def check_match(e: graph.Match, value: Type, mod: Module | None) -> None:
    """Check that a match has one case for each constructor of its value's data type, and a name
    for each field. Raises DiagnosticError (E0211) naming what is wrong."""
    data = data_types(mod).get(value.name) if isinstance(value, DataType) else None
    if data is None:
        raise _error("E0211", f"what is matched is {value}, which is no data type of the module", e)
    given = [c.constructor for c in e.cases]
    for case in e.cases:
        of = data.constructor(case.constructor)
        if of is None:
            names = ", ".join(f"`{c.name}`" for c in data.constructors)
            raise _error("E0211", f"`{case.constructor}` is no constructor of `{data.name}`", e,
                         notes=(f"it has {names}",))  # fmt: skip
        if len(of.fields) != len(case.fields):
            raise _error("E0211", f"`{of.name}` has {counted(len(of.fields), 'field')}, and the "
                         f"case names {len(case.fields)}", e)  # fmt: skip
        if given.count(of.name) > 1:
            raise _error("E0211", f"there are {given.count(of.name)} cases of `{of.name}`", e)
    missing = [c for c in data.constructors if c.name not in given]
    if missing:
        raise _error(
            "E0211", f"the match of a `{data.name}` has no case for `{missing[0].name}`", e,
            suggestion=f"add `case cls.{missing[0].name}(…):`",
        )  # fmt: skip


def fits_match(e: graph.Match, value: Type, mod: Module | None) -> bool:
    """True for a match that `check_match` accepts."""
    try:
        check_match(e, value, mod)
    except DiagnosticError:
        return False
    return True


def field_types(case: graph.Case, value: Type, mod: Module) -> tuple[Type, ...]:
    """The types of the fields that a case of a checked match names."""
    assert isinstance(value, DataType)
    of = data_types(mod)[value.name].constructor(case.constructor)
    assert of is not None
    return of.fields


def _leaf(e: graph.Expr) -> Type:
    match e:
        case graph.Constant(data):
            return TensorType(tuple(expr.const(d) for d in data.shape), data.dtype.name)
        case graph.ShapeExpr(values):
            return types.ShapeType(values)
        case graph.PrimValue(value):
            return types.PrimType(value.dtype, value)
        case graph.ExternFunc():
            return FuncType(None, ObjectType(), is_pure=False)
        case _:
            return ObjectType()


def signature_of(fn: graph.Function) -> FuncType:
    """The type of a graph function; its result is `Object` where nothing is annotated."""
    params = tuple(p.ty or ObjectType() for p in fn.params)
    return FuncType(params, fn.ret_ty or ObjectType(), fn.is_pure)


def _global(name: str, mod: Module | None, e: graph.Expr) -> Type:
    fn = mod.get(name) if mod is not None else None
    match fn:
        case graph.Function():
            return signature_of(fn)
        case loops.PrimFunc() | graph.ExternFunc():
            return FuncType(None, ObjectType(), is_pure=False)
        case _:
            raise missing_function(name, mod, e)


def missing_function(name: str, mod: Module | None, e: graph.Expr) -> DiagnosticError:
    """The error for a reference to a function that the module does not have."""
    known = list(mod) if mod is not None else []
    close = difflib.get_close_matches(name, known, 1)
    return _error(
        "E0307",
        f"the module has no function `{name}`",
        e,
        notes=(f"it has: {', '.join(known) or 'none'}",),
        suggestion=f"did you mean `{close[0]}`?" if close else None,
    )


def field_type(ty: Type, index: int, e: graph.Expr) -> Type:
    """The type of field `index` of a value of type `ty`."""
    match ty:
        case TupleType(fields) if 0 <= index < len(fields):
            return fields[index]
        case TupleType(fields):
            raise _error("E0203", f"field {index} of a tuple of {len(fields)}: {ty}", e)
        case ObjectType():
            return ObjectType()
        case _:
            raise _error("E0203", f"field {index} of a value that is not a tuple: {ty}", e)


def deduce_call(
    call: graph.Call,
    arg_types: Sequence[Type],
    mod: Module | None = None,
    analyzer: Analyzer | None = None,
    *,
    computable: bool = True,
) -> Type:
    """The type of a call from the types of `call.args`; `computable` is that of `type_of`.

    Raises `DiagnosticError`: E0202 unknown operator, E0203 the operator refuses its arguments,
    E0204 the callee is not a function, E0205 number of arguments, E0206 inconsistent shapes.
    """
    analyzer = analyzer or Analyzer.for_shapes(tuple(arg_types), call)
    match call.op:
        case graph.Op(name):
            return _operator(call, name, tuple(arg_types), mod, analyzer, computable=computable)
        case graph.GlobalVar(name):
            fn = mod.get(name) if mod is not None else None
            if isinstance(fn, loops.PrimFunc):
                if len(arg_types) == len(fn.params):  # outputs given, too: it stores into them
                    return TupleType(()) if fn.ret_dtype is None else PrimType(fn.ret_dtype)
                raise _error(
                    "E0204", f"`{name}` is a loop function and has no result", call,
                    suggestion=f"allocate the output: R.call_tir(cls.{name}, (…), out_sinfo=…)",
                )  # fmt: skip
            ty = _global(name, mod, call)
        case graph.ExternFunc():
            return _stated(call)
        case _:
            ty = type_of(call.op, mod, analyzer, computable=computable)
    if isinstance(ty, ObjectType):
        return _stated(call)
    if not isinstance(ty, FuncType):
        raise _error("E0204", f"a value of type {ty} cannot be called", call)
    if ty.params is None:
        return _stated(call) if call.ty_args else ty.ret
    return call_signature(ty, tuple(arg_types), call, analyzer)


def _stated(call: graph.Call) -> Type:
    """Return the type that the call itself claims, which is checked at run time."""
    match call.ty_args:
        case ():
            return ObjectType()
        case (ty,):
            return ty
        case several:
            return TupleType(several)


def _operator(
    call: graph.Call, name: str, arg_types: tuple[Type, ...], mod: Module | None, an: Analyzer,
    *, computable: bool,
) -> Type:  # fmt: skip
    row = find_op(name)
    if row is None:
        close = difflib.get_close_matches(name, op_names(), 1)
        raise _error(
            "E0202", f"there is no operator `R.{name}`", call,
            suggestion=f"did you mean `R.{close[0]}`?" if close else None,
        )  # fmt: skip
    try:
        inferred = infer_type(row, call, arg_types, mod, computable=computable)
        stated = bool(call.ty_args)  # the type of the result, with its device
        result = inferred if stated else on_common_device(name, arg_types, inferred)
        if mentions_ragged(*arg_types, result):
            check_ragged_result(call, arg_types, result)
    except TypeDeductionError as error:
        notes = tuple(dict.fromkeys(  # a value that is given twice is described once
            f"argument {describe(a, i)} is {t}"
            for i, (a, t) in enumerate(zip(call.args, arg_types, strict=True))
            if not isinstance(t, FuncType)
        ))  # fmt: skip
        raise _error("E0203", str(error), call, notes=notes, suggestion=error.suggestion) from error
    return in_normal_form(result, an)


def in_normal_form(ty: Type, analyzer: Analyzer) -> Type:
    """`ty` with its dimensions simplified, so that equal dimensions look equal."""
    compound = (d for d, _ in dims_of(ty, "") if not isinstance(d, expr.Var | expr.IntImm))
    table = {d: analyzer.simplify(d) for d in compound}
    if all(k == v for k, v in table.items()):
        return ty
    return rewrite_dims(ty, table)


def rewrite_dims(ty: Type, table: dict[expr.PrimExpr, expr.PrimExpr]) -> Type:
    """`ty` with whole dimensions replaced."""

    def dims(old: tuple[expr.PrimExpr, ...]) -> tuple[expr.PrimExpr, ...]:
        return tuple(table.get(d, d) for d in old)

    def visit(n: object) -> Type | None:
        match n:
            case TensorType(shape) if shape is not None:
                return replace(n, shape=dims(shape))
            case types.ShapeType(values) if values is not None:
                return replace(n, values=dims(values))
            case types.PrimType(_, value) if value is not None:
                return replace(n, value=table.get(value, value))
            case _:
                return None

    return rewrite(ty, visit)


def describe(e: graph.Expr, index: int) -> str:
    """Return the name of an argument for messages: its variable, else its position."""
    return f"`{e.name}`" if isinstance(e, graph.Var) else f"{index}"


def call_signature(
    ty: FuncType, arg_types: tuple[Type, ...], call: graph.Call, analyzer: Analyzer
) -> Type:
    """The result of calling a function of type `ty`.

    A coarse argument for a specific parameter is accepted: the callee checks it on entry. Symbols
    that only the result mentions are those of a local function's surroundings.
    """
    params = ty.params or ()
    if len(params) != len(arg_types):
        raise _error(
            "E0205",
            f"{_callee(call)} takes {counted(len(params), 'argument')}, got {len(arg_types)}",
            call,
            notes=(f"its type is {ty}",),
        )
    renamed = fresh_symbols(params, (arg_types, call))
    of_surroundings = set(symbols_in(ty.ret)).difference(symbols_in(params))
    params = tuple(substitute(p, renamed) for p in params)
    ret = substitute(ty.ret, renamed)
    pairs: list[DimPair] = []
    for i, (param, arg) in enumerate(zip(params, arg_types, strict=True)):
        place = f"argument {describe(call.args[i], i)}"
        _check_kind(param, arg, place, call, analyzer)
        pairs += dim_pairs(param, arg, place)
    found = unify(pairs, analyzer)
    if found.conflicts:
        raise DiagnosticError(_conflict(message, call) for message in found.conflicts)
    coarse = coarsen(ret, {*found.bindings, *of_surroundings})
    return in_normal_form(substitute(coarse, found.bindings), analyzer)


def fresh_symbols(declared: object, here: object) -> dict[expr.Var, expr.PrimExpr]:
    """New variables for the symbols of a declaration that are also in use at the call."""
    used = set(symbols_in(here))
    return {s: replace(s) for s in symbols_in(declared) if s in used}


def _callee(call: graph.Call) -> str:
    return f"`{getattr(call.op, 'name', 'the function')}`"


def _conflict(message: str, call: graph.Call) -> Diagnostic:
    return Diagnostic(
        "E0206", f"arguments of {_callee(call)} have inconsistent shapes: {message}", call.span
    )


def _check_kind(param: Type, arg: Type, place: str, call: graph.Call, analyzer: Analyzer) -> None:
    """Check the kind, dtype and rank of an argument. Raises TypeDeductionError E0206."""
    verdict = check_subtype(coarsen(arg, ()), coarsen(param, ()), analyzer)
    if verdict >= Verdict.STATIC_MISMATCH:
        raise _error("E0206", f"{place} of {_callee(call)} is {arg}, expected {param}", call)


def dim_pairs(declared: Type, actual: Type, place: str) -> list[DimPair]:
    """The declared dimensions beside the actual ones, where these are known."""
    match declared, actual:
        case TupleType(fields), TupleType(others) if len(fields) == len(others):
            both = enumerate(zip(fields, others, strict=True))
            return [p for i, (f, o) in both for p in dim_pairs(f, o, f"field {i} of {place}")]
        case FuncType(), _:
            return []
        case _:
            stated = list(dims_of(declared, place))
            known = [d for d, _ in dims_of(actual, place)]
            same = type(declared) is type(actual) and len(known) == len(stated)
            dims = known if same else [None] * len(stated)
            return [DimPair(d, a, where) for (d, where), a in zip(stated, dims, strict=True)]


def _error(
    code: str,
    message: str,
    e: graph.Expr,
    *,
    notes: tuple[str, ...] = (),
    suggestion: str | None = None,
) -> DiagnosticError:
    span = getattr(e, "span", None)
    return DiagnosticError([Diagnostic(code, message, span, notes, suggestion)])
