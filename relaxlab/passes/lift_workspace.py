"""Let callers allocate the scratch memory of loop functions (the paper's section 4.4)."""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import TirCall, leaf_type, map_blocks, tir_call, with_bindings
from relaxlab.passes.kernel_calls import argument_symbols
from relaxlab.tracing import may_apply


@module_pass("lift_workspace", needs=("normalize",))
def lift_workspace(mod: Module, _: NoOptions) -> Module:
    """Main-memory buffers that a loop function allocates outside its loops become further outputs
    of it, which the caller allocates: the memory planner can then reuse them.

    Versions of a kernel (branches at its top) share workspaces of equal shape and dtype.
    """
    lifted: dict[str, tuple[loops.PrimFunc, tuple[loops.Buffer, ...]]] = {}
    for name, func in mod.loop_functions().items():
        workspaces = _shared(func)
        if workspaces:
            new, added = _lift(func, workspaces)
            texts = (f"{b.name}: ({', '.join(map(str, b.shape))}) {b.dtype}" for b in added)
            if may_apply("lift_workspace", name, f"the caller allocates {', '.join(texts)}"):
                lifted[name] = new, added
    if not lifted:
        return mod

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        kind = graph.DataflowVar if isinstance(blk, graph.DataflowBlock) else graph.Var
        return with_bindings(blk, [x for b in blk.bindings for x in _call(b, mod, lifted, kind)])

    graphs = {name: map_blocks(fn, block) for name, fn in mod.graph_functions().items()}
    return mod.with_functions({**graphs, **{n: f for n, (f, _) in lifted.items()}})


def _outer_blocks(s: loops.Stmt) -> Iterator[tuple[int, loops.Block]]:
    """The blocks around all loops, with the number of the version they belong to."""
    pending: list[tuple[int, loops.Stmt]] = [(0, s)]
    versions = 0
    while pending:
        version, top = pending.pop(0)
        match top:
            case loops.BlockRealize(_, _, block) if not block.iter_vars:
                yield version, block
                pending.append((version, block.body))
            case loops.IfThenElse(_, yes, no):
                versions += 1
                pending.append((versions, yes))
                if no is not None:
                    versions += 1
                    pending.append((versions, no))
            case loops.SeqStmt(stmts):
                pending += [(version, x) for x in stmts]
            case _:
                pass


def _shared(func: loops.PrimFunc) -> dict[loops.Buffer, loops.Buffer]:
    """Return the buffer for each liftable allocation: its own, or another version's of the same
    shape and dtype."""
    found: dict[loops.Buffer, loops.Buffer] = {}
    taken: dict[int, set[loops.Buffer]] = {}
    for version, block in _outer_blocks(func.body):
        for b in block.alloc_buffers:
            if b.scope != "global":
                continue
            mine = taken.setdefault(version, set())
            same = [
                x
                for x in dict.fromkeys(found.values())
                if version and x not in mine and (x.shape, x.dtype) == (b.shape, b.dtype)
                and x not in taken.get(0, ())
            ]  # fmt: skip
            found[b] = same[0] if same else b
            mine.add(found[b])
    return found


def _lift(
    func: loops.PrimFunc, workspaces: dict[loops.Buffer, loops.Buffer]
) -> tuple[loops.PrimFunc, tuple[loops.Buffer, ...]]:
    def visit(n: Node) -> Node | None:
        if isinstance(n, loops.Block) and any(b in workspaces for b in n.alloc_buffers):
            kept = tuple(b for b in n.alloc_buffers if b not in workspaces)
            return replace(n, alloc_buffers=kept)
        return None

    body = rewrite(func.body, visit)
    merged = {old: new for old, new in workspaces.items() if old is not new}
    if merged:
        body = substitute(body, buffers=merged)
    added = tuple(dict.fromkeys(workspaces.values()))
    scalars = tuple(p for p in func.params if isinstance(p, expr.Var))
    return replace(func, params=(*func.buffers, *added, *scalars), body=body), added


def _call(
    b: graph.Binding,
    mod: Module,
    lifted: dict[str, tuple[loops.PrimFunc, tuple[loops.Buffer, ...]]],
    kind: type[graph.Var],
) -> list[graph.Binding]:
    """The call with the workspaces as outputs, then the reads of the outputs it had before."""
    call = tir_call(b.value)
    if call is None or call.callee not in lifted or not isinstance(b, graph.VarBinding):
        return [b]
    func = mod[call.callee]
    assert isinstance(func, loops.PrimFunc)
    kept = call.inplace or (-1,) * len(call.outs)
    fresh = [t for t, i in zip(call.outs, kept, strict=True) if i < 0]
    given = [*map(leaf_type, call.args), *fresh]
    symbols = argument_symbols(func, given, call.symbols, call.callee)
    added = tuple(
        types.TensorType(tuple(substitute(d, symbols) for d in buffer.shape), buffer.dtype)
        for buffer in lifted[call.callee][1]
    )
    outs = (*call.outs, *added)
    inplace = (*kept, *(-1 for _ in added)) if call.inplace else ()
    value = TirCall(call.callee, call.args, call.symbols, outs, inplace).build()
    whole = kind(f"{b.var.name}_with_workspace", types.TupleType(outs))
    first = graph.VarBinding(replace(value, span=b.value.span), whole, span=b.span)
    count = len(call.outs)
    fields = [graph.TupleGetItem(whole, i) for i in range(count)]
    if count == 1:
        return [first, replace(b, value=fields[0])]
    names = [kind(f"{b.var.name}_{i}", t) for i, t in enumerate(call.outs)]
    reads = [graph.VarBinding(f, v) for f, v in zip(fields, names, strict=True)]
    return [first, *reads, replace(b, value=graph.Tuple(tuple(names)))]
