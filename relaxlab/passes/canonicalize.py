"""Remove bindings that only rename: copies, field reads of known tuples, proved match_casts."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import (
    all_bindings,
    local_outputs,
    map_blocks,
    replace_body,
    with_bindings,
)
from relaxlab.tracing import may_apply


@module_pass("canonicalize", needs=("normalize",))
def canonicalize(mod: Module, _: NoOptions) -> Module:
    """Propagate copies and simplify tuples; the last alias of a value keeps the program's name.
    Outputs of dataflow blocks that nothing reads outside become local to their block.

    A `match_cast` goes away when its claim is proved from the value's type; every other one stays,
    because it is checked at run time.
    """
    updates = {name: _function(name, fn) for name, fn in mod.graph_functions().items()}
    return mod.with_functions(updates)


def _function(name: str, fn: graph.Function) -> graph.Function:
    while True:
        new = _once(name, fn)
        if new is fn:
            break
        fn = new
    reason = "is read in its block alone"
    local = {
        var: new for var, new in local_outputs(fn.body).items()
        if may_apply("canonicalize", f"{name}.{var.name}", reason)
    }  # fmt: skip
    return replace_body(fn, substitute(fn.body, values=local)) if local else fn


class _Aliases:
    """The variables that each variable is an alias of, and the values that they are bound to."""

    def __init__(self) -> None:
        self.values: dict[graph.Var, graph.Expr] = {}
        self.defined: dict[graph.Var, graph.Expr] = {}

    def resolve(self, e: graph.Expr) -> graph.Expr:
        while isinstance(e, graph.Var) and e in self.values:
            e = self.values[e]
        return e


def _once(name: str, fn: graph.Function) -> graph.Function:
    aliases = _Aliases()
    dropped: set[graph.Binding] = set()
    local = {b.var for b in all_bindings(fn) if isinstance(b.var, graph.DataflowVar)}
    for b in all_bindings(fn):
        source = _copied(b, aliases)
        if source is None:
            aliases.defined[b.var] = b.value
            continue
        var = b.var
        if isinstance(source, graph.DataflowVar) and not isinstance(var, graph.DataflowVar):
            # The block's output takes over the definition of the value it copies.
            if source not in local or not _take(name, var, source):
                continue
            local.discard(source)
            renamed = replace(var, ty=source.ty)
            aliases.values[source] = aliases.values[var] = renamed
            if source in aliases.defined:
                aliases.defined[renamed] = aliases.defined[source]
        elif _take(name, var, source):
            aliases.values[var] = source
        else:
            continue
        dropped.add(b)
    if not dropped:
        return fn
    values = {var: aliases.resolve(var) for var in aliases.values}

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [b for b in blk.bindings if b not in dropped])

    kept = map_blocks(fn, block)
    return replace_body(kept, substitute(kept.body, values=values))


def _take(name: str, var: graph.Var, source: graph.Expr) -> bool:
    """True if `source` is to replace `var`."""
    return may_apply("canonicalize", f"{name}.{var.name}", f"is {_name_of(source)}")


def _name_of(e: graph.Expr) -> str:
    return getattr(e, "name", type(e).__name__)


def _copied(b: graph.Binding, aliases: _Aliases) -> graph.Expr | None:
    """The expression that `b.var` is just another name for, if there is one."""
    value = aliases.resolve(b.value)
    match value:
        case graph.TupleGetItem(source, index):
            known = aliases.defined.get(aliases.resolve(source))  # type: ignore[arg-type]
            if isinstance(source, graph.Tuple):
                known = source
            if isinstance(known, graph.Tuple) and index < len(known.fields):
                value = aliases.resolve(known.fields[index])
        case graph.Tuple(fields) if fields:
            whole = _whole_tuple(fields, aliases)
            value = whole if whole is not None else value
        case _:
            pass
    if not isinstance(value, _NAMEABLE):
        return None
    if isinstance(b, graph.MatchCast) and not _proved(value, b.ty):
        return None
    return value


_NAMEABLE = (
    graph.Var,
    graph.Constant,
    graph.GlobalVar,
    graph.ExternFunc,
    graph.ShapeExpr,
    graph.PrimValue,
)
"""Values that may replace their names: they cost nothing to write again."""


def _whole_tuple(fields: tuple[graph.Expr, ...], aliases: _Aliases) -> graph.Expr | None:
    """`t` when the fields are t[0], t[1], … of one tuple t of that length."""
    source: graph.Expr | None = None
    for i, field in enumerate(fields):
        item = aliases.defined.get(aliases.resolve(field))  # type: ignore[arg-type]
        if not isinstance(item, graph.TupleGetItem) or item.index != i:
            return None
        of = aliases.resolve(item.tuple_value)
        if source is not None and of is not source:
            return None
        source = of
    ty = getattr(source, "ty", None)
    if isinstance(ty, types.TupleType) and len(ty.fields) == len(fields):
        return source
    return None


def _proved(value: graph.Expr, claim: types.Type) -> bool:
    """True if the value's type already implies `claim`."""
    actual = getattr(value, "ty", None)
    if not isinstance(actual, types.TensorType | types.ShapeType | types.PrimType):
        return False
    if structural_equal(actual, claim):
        return True
    if not isinstance(actual, types.TensorType) or not isinstance(claim, types.TensorType):
        return False
    if actual.shape is None or claim.shape is None or actual.ndim != claim.ndim:
        return False
    if claim.dtype not in (None, actual.dtype):
        return False
    analyzer = Analyzer.for_shapes(actual, claim)
    pairs: zip[tuple[expr.PrimExpr, expr.PrimExpr]]
    pairs = zip(actual.shape, claim.shape, strict=True)
    return all(analyzer.prove_equal(a, b) is True for a, b in pairs)
