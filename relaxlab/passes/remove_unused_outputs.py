"""Remove results of private functions that no caller reads."""

from __future__ import annotations

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace, walk
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.passes.private_functions import called_only
from relaxlab.tracing import may_apply

RULE = "remove_unused_outputs"


@module_pass(RULE, needs=("normalize",))
def remove_unused_outputs(mod: Module, _: NoOptions) -> Module:
    """Drop the fields of the tuple that a private function returns which no caller reads, and what
    computes them. With one field left it returns that field alone."""
    kept: dict[str, tuple[int, ...]] = {}
    for name, fn in called_only(mod).items():
        fields = fn.body.body
        if not isinstance(fields, graph.Tuple):
            continue
        read = _fields_read(name, mod)
        if (
            read is not None
            and 0 < len(read) < len(fields.fields)
            and may_apply(RULE, name, f"returns {len(read)} of {len(fields.fields)} values")
        ):
            kept[name] = tuple(sorted(read))
    if not kept:
        return mod
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        new = _shortened(fn, kept[name]) if name in kept else fn
        updates[name] = _with_reads(new, kept)
    changed = mod.with_functions(updates)
    unread = {k: remove_unread(f, changed) for k, f in changed.graph_functions().items()}
    return normalized(mod.with_functions(unread))


def _results(fn: graph.Function, names: set[str]) -> dict[graph.Var, str]:
    """The variables bound to calls of the named functions."""
    return {
        b.var: b.value.op.name
        for b in all_bindings(fn)
        if isinstance(b.value, graph.Call)
        and isinstance(b.value.op, graph.GlobalVar)
        and b.value.op.name in names
    }


def _fields_read(name: str, mod: Module) -> set[int] | None:
    """The fields of a function's result that callers read; None where one reads the whole."""
    read: set[int] = set()
    for fn in mod.graph_functions().values():
        results = _results(fn, {name})
        reads = [n for n in walk(fn.body) if isinstance(n, graph.TupleGetItem)
                 and n.tuple_value in results]  # fmt: skip
        uses = [n for n in walk(fn.body) if n in results] if results else []
        if len(uses) != len(reads) + len(results):  # a binding mentions its variable, too
            return None
        read |= {n.index for n in reads}
    return read


def _shortened(fn: graph.Function, kept: tuple[int, ...]) -> graph.Function:
    whole = fn.body.body
    assert isinstance(whole, graph.Tuple)
    fields = tuple(whole.fields[i] for i in kept)
    body = replace(fn.body, body=fields[0] if len(fields) == 1 else replace(whole, fields=fields))
    ret = fn.ret_ty
    if isinstance(ret, types.TupleType):
        tys = tuple(ret.fields[i] for i in kept)
        ret = tys[0] if len(tys) == 1 else types.TupleType(tys)
    return replace(fn, body=body, ret_ty=ret)


def _with_reads(fn: graph.Function, kept: dict[str, tuple[int, ...]]) -> graph.Function:
    """A function that reads the fields at their new places."""
    results = _results(fn, {*kept})
    if not results:
        return fn
    untyped = {v: replace(v, ty=None) for v in results}

    def visit(n: Node) -> Node:
        if isinstance(n, graph.Var):
            return untyped.get(n, n)
        if isinstance(n, graph.TupleGetItem) and n.tuple_value in results:
            var = n.tuple_value
            assert isinstance(var, graph.Var)
            places = kept[results[var]]
            if len(places) == 1:
                return untyped[var]
            return replace(n, tuple_value=untyped[var], index=places.index(n.index))
        return map_children(n, visit)

    body = visit(fn.body)
    assert isinstance(body, graph.SeqExpr)
    return replace(fn, body=body)
