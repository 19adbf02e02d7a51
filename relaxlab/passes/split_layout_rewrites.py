"""Loop functions that copy weights into another layout first become two functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import replace, rewrite, walk
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import TirCall, map_blocks, tir_call

COPIES = "meta_schedule.layout_rewrite_preproc"
"""The annotation of blocks that copy a parameter into another layout."""


@module_pass("split_layout_rewrites", needs=("normalize",))
def split_layout_rewrites(mod: Module, _: NoOptions) -> Module:
    """Make functions of their own of blocks that copy a weight into another layout, so that
    `lift_transform_params` can run them once, ahead of time."""
    names = {*mod}
    splits: dict[str, _Split] = {}
    for name, func in mod.loop_functions().items():
        found = _split(name, func, names)
        if found is not None:
            splits[name] = found
            names |= {*found.functions}
    if not splits:
        return mod
    updates = {
        name: map_blocks(fn, lambda blk: _block(blk, splits))
        for name, fn in mod.graph_functions().items()
    }
    made = {k: f for s in splits.values() for k, f in s.functions.items()}
    return mod.with_functions({**updates, **made}).without(*splits)


@dataclass(frozen=True, slots=True)
class _Split:
    """The functions that copy weights, by the places of these arguments, and the function that
    computes with the copies."""

    copies: dict[int, tuple[str, loops.PrimFunc]]
    rest: tuple[str, loops.PrimFunc]

    @property
    def functions(self) -> dict[str, loops.PrimFunc]:
        return dict([*self.copies.values(), self.rest])


def _split(name: str, func: loops.PrimFunc, taken: set[str]) -> _Split | None:
    root = func.body.block if isinstance(func.body, loops.BlockRealize) else None
    if root is None or not isinstance(root.body, loops.SeqStmt):
        return None
    copies: dict[int, tuple[loops.Buffer, loops.Stmt]] = {}
    for s in root.body.stmts:
        ends = _copied(s)
        if ends is None:
            continue
        weight, copy = ends
        if weight in func.params and copy in root.alloc_buffers:
            copies[func.params.index(weight)] = copy, s
    if not copies:
        return None
    moved = {id(s) for _, s in copies.values()}
    rest = tuple(s for s in root.body.stmts if id(s) not in moved)
    params = tuple(copies[i][0] if i in copies else p for i, p in enumerate(func.params))
    kept = tuple(b for b in root.alloc_buffers if b not in params)
    body = _root(rest, kept)
    attrs = func.attrs.with_(layout_free_buffers=None)
    computes = replace(func, params=params, body=body, attrs=attrs)
    made: dict[int, tuple[str, loops.PrimFunc]] = {}
    for i, (copy, s) in copies.items():
        hint = f"{name}_weight_prepack"
        new = fresh_name(hint, {*taken, *(n for n, _ in made.values())}.__contains__)
        body = _root((rewrite(s, _plain),), ())
        made[i] = new, replace(func, params=(func.params[i], copy), body=body, attrs=attrs)
    return _Split(made, (fresh_name(f"{name}_prepacked", taken.__contains__), computes))


def _copied(s: loops.Stmt) -> tuple[loops.Buffer, loops.Buffer] | None:
    """The buffer that a marked block reads, and the one that it writes."""
    for n in walk(s):
        if not isinstance(n, loops.Block) or not n.annotations.get(COPIES):
            continue
        if len(n.reads) == len(n.writes) == 1:
            return n.reads[0].buffer, n.writes[0].buffer
    return None


def _plain(n: object) -> loops.Block | None:
    if isinstance(n, loops.Block) and COPIES in n.annotations:
        return replace(n, annotations=n.annotations.with_(**{COPIES: None}))
    return None


def _root(stmts: tuple[loops.Stmt, ...], allocated: tuple[loops.Buffer, ...]) -> loops.Stmt:
    body = stmts[0] if len(stmts) == 1 else loops.SeqStmt(stmts)
    root = loops.Block("root", (), (), (), body, alloc_buffers=allocated)
    return loops.BlockRealize((), expr.const(1, "bool"), root)


def _block(blk: graph.BindingBlock, splits: dict[str, _Split]) -> graph.BindingBlock:
    local = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
    new = tuple(x for b in blk.bindings for x in _bindings(b, splits, local))
    return blk if len(new) == len(blk.bindings) else replace(blk, bindings=new)


def _bindings(
    b: graph.Binding, splits: dict[str, _Split], local: type[graph.Var]
) -> Iterator[graph.Binding]:
    call = tir_call(b.value)
    split = splits.get(call.callee) if call is not None else None
    if call is None or split is None:
        yield b
        return
    args = list(call.args)
    for i, (name, func) in split.copies.items():
        copy = func.buffers[1]
        ty = types.TensorType(copy.shape, copy.dtype)
        var = local(f"{b.var.name}_{copy.name}", ty)
        yield graph.VarBinding(TirCall(name, (args[i],), (), (ty,)).build(), var, span=b.span)
        args[i] = var
    computed = TirCall(split.rest[0], tuple(args), call.symbols, call.outs, call.inplace).build()
    yield replace(b, value=computed)  # type: ignore[call-arg]
