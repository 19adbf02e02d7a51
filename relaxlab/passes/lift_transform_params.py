"""Move what depends only on weights out of a function, to be computed once (at load time)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from relaxlab.ir import graph, types
from relaxlab.ir.equal import structural_key
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, children, replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import (
    expr_key,
    map_blocks,
    replace_body,
    use_counts,
    vars_in,
    with_bindings,
)
from relaxlab.passes.effects import is_pure, overwritten_vars
from relaxlab.passes.inline_functions import symbols_at
from relaxlab.tracing import may_apply


@dataclass(frozen=True, slots=True)
class LiftOptions:
    """`shared`: functions with the same weights share a transformation. `functions`: the names of
    those that may be split, all where there are none."""

    shared: bool = True
    functions: tuple[str, ...] | None = None


@module_pass("lift_transform_params", LiftOptions, needs=("normalize",))
def lift_transform_params(mod: Module, options: LiftOptions) -> Module:
    """Split functions that have weights (parameters after the first `num_input`): pure calls on
    these and constants alone move to a function from the tuple of weights to the tuple of
    transformed ones, which the function takes instead.

    The new function is called `main_transform_params` for `main`. Functions with the same weights,
    up to the names of symbols in their shapes, share one, `transform_params`, so that both can use
    the transformed weights. The attribute `transform_params` of a function has its name. Functions
    of the module that call a split function call the transformation first; a function that is used
    as a value stays whole. Functions that are recorded (see `make_blocks`) compute nothing.
    """
    values = _used_as_values(mod)
    groups: dict[object, dict[str, graph.Function]] = {}
    for name, fn in mod.graph_functions().items():
        chosen = options.functions is None or name in options.functions
        weights = fn.params[fn.attrs.get("num_input", len(fn.params)) :]
        # Without weights nobody binds the transformed ones: calls would be asked for constants.
        if weights and chosen and "recorded" not in fn.attrs and name not in values:
            key = structural_key(tuple(w.ty for w in weights)), tuple(w.name for w in weights)
            group = groups.setdefault(key if options.shared else name, {})
            group[name] = _with_symbols_of(next(iter(group.values()), fn), fn)
    updates: dict[str, graph.Function] = {}
    for fns in groups.values():
        hint = f"{next(iter(fns))}_transform_params" if len(fns) == 1 else "transform_params"
        updates |= _split(fns, mod, mod.with_functions(updates).fresh_name(hint))
    split = {name for name in updates if name in mod}
    if not split:
        return mod
    made = mod.with_functions(updates)
    callers = {
        name: map_blocks(fn, lambda blk: _transformed_calls(blk, mod, made, split))
        for name, fn in made.graph_functions().items()
    }
    return made.with_functions(callers)


def _used_as_values(mod: Module) -> set[str]:
    """The names of functions that stand elsewhere than where they are called."""
    found: set[str] = set()

    def visit(n: Node) -> None:
        called = n.op if isinstance(n, graph.Call) and isinstance(n.op, graph.GlobalVar) else None
        for child in children(n):
            if child is called:
                continue
            if isinstance(child, graph.GlobalVar):
                found.add(child.name)
            visit(child)

    for fn in mod.graph_functions().values():
        visit(fn)
    return found


def _transformed_calls(
    blk: graph.BindingBlock, before: Module, mod: Module, split: set[str]
) -> graph.BindingBlock:
    """Let calls of split functions give them transformed weights."""
    kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
    new: list[graph.Binding] = []
    for b in blk.bindings:
        if not (
            isinstance(b, graph.VarBinding) and isinstance(b.value, graph.Call)
            and isinstance(b.value.op, graph.GlobalVar) and b.value.op.name in split
        ):  # fmt: skip
            new.append(b)
            continue
        callee = before[b.value.op.name]
        assert isinstance(callee, graph.Function)
        count = callee.attrs["num_input"]
        symbols = symbols_at(b.value, callee)
        new += _with_transform(b, b.value, count, mod, kind, symbols)
    return with_bindings(blk, new)


def _with_transform(
    b: graph.VarBinding,
    call: graph.Call,
    inputs: int,
    mod: Module,
    kind: type[graph.Var],
    symbols: dict[Var, PrimExpr],
) -> list[graph.Binding]:
    """The bindings of a call whose weights, behind so many inputs, are transformed before."""
    assert isinstance(call.op, graph.GlobalVar)
    callee = mod[call.op.name]
    assert isinstance(callee, graph.Function)
    tys = [substitute(p.ty or types.ObjectType(), symbols) for p in callee.params[inputs:]]
    whole = kind("params", types.TupleType(tuple(tys)))
    given = [kind(p.name, ty) for p, ty in zip(callee.params[inputs:], tys, strict=True)]
    transform = graph.GlobalVar(callee.attrs["transform_params"])
    made = graph.Call(transform, (graph.Tuple(call.args[inputs:]),))
    fields = [
        graph.VarBinding(graph.TupleGetItem(whole, i), v, span=b.span) for i, v in enumerate(given)
    ]
    new = replace(call, args=(*call.args[:inputs], *given))
    return [graph.VarBinding(made, whole, span=b.span), *fields, replace(b, value=new)]


def _with_symbols_of(other: graph.Function, fn: graph.Function) -> graph.Function:
    """`fn` with the symbols that another function has in the shapes of the same weights."""
    mine, theirs = (symbols_in(f.params[f.attrs["num_input"] :]) for f in (fn, other))
    renamed = {a: b for a, b in zip(mine, theirs, strict=True) if a is not b}
    if not renamed:
        return fn
    taken = {s: Var(s.name) for s in symbols_in(fn) if s in theirs and s not in mine}
    return substitute(fn, renamed | taken)


class _Transform:
    """The function under construction: its bindings, by the value that they compute from the tuple
    of weights."""

    def __init__(self, weights: tuple[graph.Var, ...]) -> None:
        fields = tuple(w.ty or types.ObjectType() for w in weights)
        self.param = graph.Var("params", types.TupleType(fields))
        self.bindings: list[graph.VarBinding] = []
        self.known: dict[object, graph.Var] = {}
        self.weights = [
            self.bind(graph.TupleGetItem(self.param, i), w) for i, w in enumerate(weights)
        ]

    def bind(self, value: graph.Expr, like: graph.Var) -> graph.Var:
        """The variable that holds `value`, computed once."""
        key = expr_key(value)
        if key not in self.known:
            var = graph.DataflowVar(like.name, like.ty, span=like.span)
            self.known[key] = var
            self.bindings.append(graph.VarBinding(value, var))
        return self.known[key]

    def function(self, results: Iterable[graph.Var]) -> graph.Function:
        """The finished function, returning `results`."""
        wanted = list(results)
        ty = types.TupleType(tuple(v.ty or types.ObjectType() for v in wanted))
        out = graph.Var("transformed", ty)
        last = graph.VarBinding(graph.Tuple(tuple(wanted)), out)
        body = graph.SeqExpr((graph.DataflowBlock(self._in_order(last)),), out)
        return graph.Function((self.param,), body, ty)

    def _in_order(self, last: graph.VarBinding) -> tuple[graph.VarBinding, ...]:
        """The bindings, those that read weights before the first that reads the weight."""
        reads = {b.var: b for b in self.bindings if b.var in self.weights}
        order: list[graph.VarBinding] = []
        for b in (*(b for b in self.bindings if b.var not in self.weights), last):
            order += [reads.pop(v) for v in dict.fromkeys(vars_in(b.value)) if v in reads]
            order.append(b)
        return tuple(order)


def _split(
    fns: dict[str, graph.Function], mod: Module, transform_name: str
) -> dict[str, graph.Function]:
    first = next(iter(fns.values()))
    transform = _Transform(first.params[first.attrs["num_input"] :])
    lifted = {name: _lift(name, fn, mod, transform) for name, fn in fns.items()}
    # Nothing but the weights themselves: a transform would only hand them through.
    if not any(len(table) > len(transform.weights) for table in lifted.values()):
        return {}
    stripped = {name: _strip(fn, set(lifted[name])) for name, fn in fns.items()}
    needed: dict[graph.Var, None] = {}
    for name, fn in stripped.items():
        uses = use_counts(fn)
        needed |= {there: None for here, there in lifted[name].items() if uses[here]}
    weights = [w for w in transform.weights if w in needed]
    order = [*weights, *(v for v in needed if v not in transform.weights)]
    result = {name: _take(fn, lifted[name], order, transform_name) for name, fn in stripped.items()}
    return {**result, transform_name: transform.function(order)}


def _lift(
    name: str, fn: graph.Function, mod: Module, transform: _Transform
) -> dict[graph.Var, graph.Var]:
    """Move the bindings that depend only on weights into the transform; return their variables
    there."""
    table = dict(zip(fn.params[fn.attrs["num_input"] :], transform.weights, strict=True))
    written = overwritten_vars(fn, mod)
    free = {w: v for w, v in table.items() if w not in written}
    for b in depending_on_weights(fn, mod):
        if not all(v in free for v in vars_in(b.value)):
            continue  # on one that stays
        subject = f"{name}.{b.var.name}"
        if may_apply("lift_transform_params", subject, "depends only on weights"):
            value = substitute(b.value, values=free)
            free[b.var] = table[b.var] = transform.bind(value, b.var)
    return table


def depending_on_weights(fn: graph.Function, mod: Module) -> Iterator[graph.VarBinding]:
    """Yield the bindings that can move out of a function: they are pure, and depend on weights and
    constants alone. None where the attribute `num_input` does not say which parameters are
    weights."""
    if "num_input" not in fn.attrs:
        return
    weights = fn.params[fn.attrs["num_input"] :]
    known = set(symbols_in(weights))
    written = overwritten_vars(fn, mod)
    free = set(weights) - written
    for b in (b for block in fn.body.blocks for b in block.bindings):
        # A transform runs once, and an overwritten value differs from call to call.
        if not isinstance(b, graph.VarBinding) or b.var in written:
            continue
        if not _movable(b.value, mod) or _has_data(b.var.ty):
            continue
        if free.issuperset(vars_in(b.value)) and known.issuperset(symbols_in((b.value, b.var))):
            free.add(b.var)
            yield b


def _movable(value: graph.Expr, mod: Module) -> bool:
    if isinstance(value, graph.Call) and value.op == graph.Op("builtin.stop_lift_params"):
        return False
    return isinstance(value, graph.Call | graph.Tuple | graph.TupleGetItem) and is_pure(value, mod)


def _has_data(ty: types.Type | None) -> bool:
    """True for a value of a data type, or a tuple with one: weights are arrays."""
    if isinstance(ty, types.TupleType):
        return any(map(_has_data, ty.fields))
    return isinstance(ty, types.DataType)


def _strip(fn: graph.Function, gone: set[graph.Var]) -> graph.Function:
    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        remaining = [b for b in blk.bindings if b.var not in gone]
        return with_bindings(blk, remaining)

    return map_blocks(fn, block)


def _take(
    fn: graph.Function, table: dict[graph.Var, graph.Var], order: list[graph.Var], by: str
) -> graph.Function:
    """`fn` with what the function `by` returns as parameters in place of the weights."""
    params = {v: graph.Var(v.name, v.ty, span=v.span) for v in order}
    here: dict[graph.Var, graph.Expr] = {
        mine: params[there] for mine, there in table.items() if there in params
    }
    inputs = fn.params[: fn.attrs["num_input"]]
    attrs = fn.attrs.with_(transform_params=by)
    new = replace(fn, params=(*inputs, *params.values()), attrs=attrs)
    return replace_body(new, substitute(fn.body, values=here))
