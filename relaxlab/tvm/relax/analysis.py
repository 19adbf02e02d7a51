"""`tvm.relax.analysis`: questions about programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import call_signature, type_of
from relaxlab.analysis.subtype import Verdict, check_subtype, coarsen, dims_of, lca
from relaxlab.analysis.well_formed import check_graphs
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.passes.effects import is_pure
from relaxlab.passes.rewrite_dataflow_reshape import is_reshape
from relaxlab.tvm.relax.expr_functor import PyExprVisitor

BaseCheckResult = Verdict
has_reshape_pattern = is_reshape


remove_all_unused = remove_unread


def well_formed(obj: Module | graph.Function, check_ty: bool = True) -> bool:
    """True if nothing is wrong with a module or function."""
    return not check_graphs(obj if isinstance(obj, Module) else Module.of({"main": obj}))


def check_well_formed(obj: Module | graph.Function, check_ty: bool = True) -> None:
    """Raise with everything that is wrong with a module or function."""
    found = check_graphs(obj if isinstance(obj, Module) else Module.of({"main": obj}))
    if found:
        raise DiagnosticError(found)


def _unique(found: Any) -> list[Any]:
    return list(dict.fromkeys(found))


def all_vars(expr: graph.Expr) -> list[graph.Var]:
    """All variables of an expression."""
    return _unique(n for n in walk(expr) if isinstance(n, graph.Var))


def bound_vars(expr: graph.Expr) -> list[graph.Var]:
    """The variables that are defined in an expression: parameters and bindings."""
    found: list[graph.Var] = []
    for n in walk(expr):
        found += n.params if isinstance(n, graph.Function) else ()
        found += [n.var] if isinstance(n, graph.Binding) else []
    return _unique(found)


def free_vars(expr: graph.Expr) -> list[graph.Var]:
    """The variables of an expression that are defined outside of it."""
    bound = set(bound_vars(expr))
    return [v for v in all_vars(expr) if v not in bound]


def used_vars(expr: graph.Expr) -> list[graph.Var]:
    """The variables that an expression reads."""
    found: list[graph.Var] = []

    def visit(n: Node) -> None:
        if isinstance(n, graph.Var):
            found.append(n)
        inside = [n.body] if isinstance(n, graph.Function) else children(n)
        for child in [n.value] if isinstance(n, graph.Binding) else inside:
            visit(child)

    visit(expr)
    return _unique(found)


def all_global_vars(expr: graph.Expr) -> list[graph.GlobalVar]:
    """The functions of the module that an expression names."""
    return _unique(n for n in walk(expr) if isinstance(n, graph.GlobalVar))


called_global_vars = all_global_vars


def get_var2val(func: graph.Function) -> dict[graph.Var, graph.Expr]:
    """The value of each variable that is bound."""
    return {b.var: b.value for b in all_bindings(func)}


def name_to_binding(func: graph.Function) -> dict[str, list[graph.Binding]]:
    """The bindings by the names of their variables."""
    found: dict[str, list[graph.Binding]] = {}
    for b in all_bindings(func):
        found.setdefault(b.var.name, []).append(b)
    return found


def udchain(dfb: graph.DataflowBlock) -> dict[graph.Var, list[graph.Var]]:
    """The variables of a block, each with those whose bindings read it."""
    found: dict[graph.Var, list[graph.Var]] = {b.var: [] for b in dfb.bindings}
    for b in dfb.bindings:
        for v in used_vars(b.value):
            found.setdefault(v, []).append(b.var)
    return found


class _PostOrder(PyExprVisitor):
    def __init__(self, fvisit: Callable[[graph.Expr], None]) -> None:
        self._fvisit = fvisit

    def visit_expr(self, expr: graph.Expr) -> None:
        super().visit_expr(expr)
        self._fvisit(expr)

    def visit_var_def(self, var: graph.Var) -> None:
        self._fvisit(var)


def post_order_visit(expr: graph.Expr, fvisit: Callable[[graph.Expr], None]) -> None:
    """Call a function with each expression, parts first."""
    _PostOrder(fvisit).visit_expr(expr)


def contains_impure_call(expr: graph.Expr, own_name: Any = None) -> bool:
    """True if an expression calls something with effects."""
    return any(isinstance(n, graph.Call) and not is_pure(n, Module.of({})) for n in walk(expr))


def struct_info_base_check(base: types.Type, derived: types.Type) -> Verdict:
    """Say if values of type `derived` are of type `base`."""
    return check_subtype(derived, base, Analyzer.for_shapes(base, derived))


def struct_info_lca(lhs: types.Type, rhs: types.Type) -> types.Type:
    """The most specific type of which values of both types are."""
    return lca(lhs, rhs, Analyzer.for_shapes(lhs, rhs))


type_base_check, type_lca = struct_info_base_check, struct_info_lca


def tir_vars_in_struct_info(sinfo: types.Type) -> list[expr.Var]:
    """The symbols of a type."""
    return list(symbols_in(sinfo))


def definable_tir_vars_in_struct_info(sinfo: types.Type) -> list[expr.Var]:
    """The symbols that a type can define: those that are dimensions by themselves."""

    def dims(ty: types.Type) -> list[Any]:
        match ty:
            case types.TensorType(shape):
                return list(shape or ())
            case types.ShapeType(values):
                return list(values or ())
            case types.PrimType(_, value):
                return [value]
            case types.TupleType(fields):
                return [d for f in fields for d in dims(f)]
            case _:
                return []

    return _unique(d for d in dims(sinfo) if isinstance(d, expr.Var))


tir_vars_in_type = tir_vars_in_struct_info
definable_tir_vars_in_type = definable_tir_vars_in_struct_info


def erase_to_well_defined(
    ty: types.Type,
    shape_var_map: Mapping[expr.Var, Any] | None = None,
    var_map: Mapping[graph.Var, graph.Expr] | None = None,
) -> types.Type:
    """The type with symbols as a map says, without the shapes that need others."""
    values = {s: expr.as_expr(v) for s, v in (shape_var_map or {}).items()}
    return substitute(coarsen(ty, values), values)


def get_static_type(ty: types.Type) -> types.Type:
    """The type with ranks in the place of dimensions."""
    match ty:
        case types.TensorType():
            return replace(ty, shape=None)
        case types.ShapeType():
            return types.ShapeType(None, ty.ndim)
        case types.TupleType(fields):
            return types.TupleType(tuple(map(get_static_type, fields)))
        case types.FuncType(params, ret):
            given = None if params is None else tuple(map(get_static_type, params))
            return replace(ty, params=given, ret=get_static_type(ret))
        case _:
            return ty


def derive_call_ret_type(func_ty: types.FuncType, call: graph.Call, ctx: Any = None) -> types.Type:
    """The type of a call's result if its function is of a type."""
    given = tuple(type_of(a, computable=False) for a in call.args)
    return call_signature(func_ty, given, call, Analyzer.for_shapes(func_ty, given))


def collect_non_negative_expressions(ty: types.Type) -> list[expr.PrimExpr]:
    """The dimensions in a type that are no constants."""
    return _unique(d for d, _ in dims_of(ty, "") if not isinstance(d, expr.IntImm))


def computable_at_compile_time(func: graph.Function) -> list[graph.Var]:
    """The weights, which are the parameters behind the first `num_input`, and the bound variables
    that depend on these alone; none where that number is not stated."""
    count = func.attrs.get("num_input")
    if count is None:
        return []
    found = list(func.params[int(getattr(count, "value", count)) :])
    known = set(found)
    stated = [p.ty for p in known if p.ty is not None]
    symbols = {s for ty in stated for s in definable_tir_vars_in_struct_info(ty)}
    for b in all_bindings(func):
        if known.issuperset(free_vars(b.value)) and symbols.issuperset(symbols_in(b.value)):
            found.append(b.var)
            known.add(b.var)
    return found


def defined_symbolic_vars(func: graph.Function) -> list[expr.Var]:
    """The symbols that a function defines: of its parameters and claims."""
    claims = [b.ty for b in all_bindings(func) if isinstance(b, graph.MatchCast)]
    known = [p.ty for p in func.params if p.ty is not None]
    return _unique(s for t in [*known, *claims] for s in definable_tir_vars_in_struct_info(t))


def free_symbolic_vars(func: graph.Function) -> list[expr.Var]:
    """The symbols of a function that it does not define."""
    defined = set(defined_symbolic_vars(func))
    return [s for s in symbols_in(func) if s not in defined]


def detect_recursion(mod: Module) -> list[list[graph.GlobalVar]]:
    """The groups of functions that call each other in circles."""
    calls = {k: {v.name for v in all_global_vars(f)} for k, f in mod.graph_functions().items()}
    reach = {k: _reach(k, calls) for k in calls}
    groups = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in calls}
    return [[graph.GlobalVar(n) for n in sorted(g)] for g in groups if g]


def _reach(start: str, calls: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(calls[start])
    while pending:
        name = pending.pop()
        if name not in found and name in calls:
            found.add(name)
            pending += calls[name]
    return found
