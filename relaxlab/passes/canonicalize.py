"""Remove bindings that only rename: copies, field reads of known tuples, proved match_casts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import (
    all_bindings,
    leaf_type,
    local_outputs,
    map_blocks,
    replace_body,
    use_counts,
    with_bindings,
)
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.tracing import may_apply


@dataclass(frozen=True, slots=True)
class CanonicalizeOptions:
    """`names`: shapes, scalars and functions keep names that the program gives them, and constants
    their bindings; neighbouring dataflow blocks become one, whose outputs are what others read."""

    names: bool = False


@module_pass("canonicalize", CanonicalizeOptions, needs=("normalize",))
def canonicalize(mod: Module, options: CanonicalizeOptions) -> Module:
    """Propagate copies and simplify tuples; the last alias of a value keeps the program's name.
    Outputs of dataflow blocks that nothing reads outside become local to their block.

    A `match_cast` goes away when its claim is proved from the value's type, and symbols that it
    defines when that type says what they are; every other one stays, because it is checked at run
    time.
    """
    graphs = mod.graph_functions().items()
    known = mod.with_functions({k: _without_known_symbols(k, f) for k, f in graphs})
    mod = mod if known is mod else normalized(known)
    graphs = mod.graph_functions().items()
    return mod.with_functions({k: _function(k, f, options) for k, f in graphs})


def _function(name: str, fn: graph.Function, options: CanonicalizeOptions) -> graph.Function:
    while True:
        new = _once(name, fn, options)
        if new is fn:
            break
        fn = new
    if options.names:
        fn = replace_body(fn, _merged(fn.body))
    reason = "is read in its block alone"
    local = {
        var: new for var, new in local_outputs(fn.body, unread=options.names).items()
        if may_apply("canonicalize", f"{name}.{var.name}", reason)
    }  # fmt: skip
    return replace_body(fn, substitute(fn.body, values=local)) if local else fn


def _without_known_symbols(name: str, fn: graph.Function) -> graph.Function:
    """The function with the dimensions of cast values for symbols that casts only name them by.
    Symbols that casts in branches have stay: each branch may define one anew."""
    casts = [b for blk in fn.body.blocks for b in blk.bindings if isinstance(b, graph.MatchCast)]
    inside = [b for b in all_bindings(fn) if isinstance(b, graph.MatchCast) and b not in casts]
    defined = {*symbols_in(fn.params), *symbols_in([b.ty for b in inside])}
    known: dict[expr.Var, expr.PrimExpr] = {}
    for b in casts:
        for symbol, dim in _dimensions(leaf_type(b.value), b.ty):
            dim = substitute(dim, known)
            if symbol not in defined and dim.dtype == symbol.dtype:
                if may_apply("canonicalize", f"{name}.{b.var.name}", f"{symbol.name} is {dim}"):
                    known[symbol] = dim
                defined.add(symbol)
        defined |= {*symbols_in(b.ty)}
    return substitute(fn, symbols=known) if known else fn


def _dimensions(
    actual: types.Type | None, claim: types.Type
) -> Iterator[tuple[expr.Var, expr.PrimExpr]]:
    """The dimensions that a type has where a claim about it has symbols."""
    match actual, claim:
        case (
            (types.TensorType(shape=(*dims,)), types.TensorType(shape=(*claimed,)))
            | (types.ShapeType((*dims,)), types.ShapeType((*claimed,)))
        ):
            pairs = zip(claimed, dims, strict=False)
            yield from ((c, d) for c, d in pairs if isinstance(c, expr.Var))
        case _:
            return


def _merged(seq: graph.SeqExpr) -> graph.SeqExpr:
    """The sequence with one dataflow block in the place of neighbours."""
    blocks: list[graph.BindingBlock] = []
    for blk in seq.blocks:
        if blocks and all(isinstance(x, graph.DataflowBlock) for x in (blocks[-1], blk)):
            blocks[-1] = replace(blocks[-1], bindings=(*blocks[-1].bindings, *blk.bindings))
        else:
            blocks.append(blk)
    return seq if len(blocks) == len(seq.blocks) else replace(seq, blocks=tuple(blocks))


class _Aliases:
    """The variables that each variable is an alias of, and the values that they are bound to."""

    def __init__(self) -> None:
        self.values: dict[graph.Var, graph.Expr] = {}
        self.defined: dict[graph.Var, graph.Expr] = {}

    def resolve(self, e: graph.Expr) -> graph.Expr:
        while isinstance(e, graph.Var) and e in self.values:
            e = self.values[e]
        return e


def _once(name: str, fn: graph.Function, options: CanonicalizeOptions) -> graph.Function:
    aliases = _Aliases()
    dropped: set[graph.Binding] = set()
    unread: dict[graph.Binding, graph.Binding] = {}
    uses = use_counts(fn) if options.names else Counter[graph.Var]()
    local = {b.var for b in all_bindings(fn) if isinstance(b.var, graph.DataflowVar)}
    for b in all_bindings(fn):
        source = _copied(b, aliases)
        if source is None or (options.names and isinstance(b.value, KEPT)):
            aliases.defined[b.var] = b.value
            if isinstance(source, graph.Constant) and uses[b.var]:
                aliases.values[b.var] = source
                unread[b] = graph.VarBinding(b.value, replace(b.var), span=b.span)
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
    if not dropped and not unread:
        return fn
    values = {var: aliases.resolve(var) for var in aliases.values}

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [unread.get(b, b) for b in blk.bindings if b not in dropped])

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


KEPT = graph.Constant | graph.GlobalVar | graph.ExternFunc | graph.ShapeExpr | graph.PrimValue
_NAMEABLE = graph.Var | KEPT
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
