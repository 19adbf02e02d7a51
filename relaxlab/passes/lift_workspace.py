"""Let callers allocate the scratch memory of loop functions (the paper's section 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import TirCall, leaf_type, map_blocks, tir_call, with_bindings
from relaxlab.passes.expand_calls import alloc_tensor
from relaxlab.passes.kernel_calls import argument_symbols
from relaxlab.schedule.compact import narrowed
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.tracing import may_apply


@module_pass("lift_workspace", needs=("normalize",))
def lift_workspace(mod: Module, _: NoOptions) -> Module:
    """Main-memory buffers that a loop function allocates outside its loops become further outputs
    of it, which the caller allocates: the memory planner can then reuse them.

    Calls that are expanded already get the memory as further arguments, allocated before them.
    A buffer that loops around all of its uses fill anew in each iteration becomes as large as one
    iteration needs (`narrowed`).
    Versions of a kernel (branches at its top) share workspaces of equal shape and dtype. One that
    only versions for sizes up to a bound have is as large as those need: a call of any other size
    allocates it, too.
    """
    lifted: dict[str, tuple[loops.PrimFunc, tuple[loops.Buffer, ...]]] = {}
    signed = _signed_scalars(mod)
    for name, whole in mod.loop_functions().items():
        func = _with_narrow_workspaces(whole)
        workspaces = _shared(func, signed.get(name, set()))
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


def _with_narrow_workspaces(func: loops.PrimFunc) -> loops.PrimFunc:
    buffers = [b for _, block in _outer_blocks(func.body) for b in block.alloc_buffers]
    return reduce(narrowed, (b for b in buffers if b.scope == "global"), func)


@dataclass(frozen=True, slots=True)
class _Version:
    """A branch at the top of a kernel, by number (0: outside of them), and what holds in it."""

    number: int = 0
    facts: tuple[expr.PrimExpr, ...] = ()


def _outer_blocks(s: loops.Stmt) -> Iterator[tuple[_Version, loops.Block]]:
    """The blocks around all loops, with the version that they belong to."""
    pending: list[tuple[_Version, loops.Stmt]] = [(_Version(), s)]
    versions = 0
    while pending:
        version, top = pending.pop(0)
        match top:
            case loops.BlockRealize(_, _, block) if not block.iter_vars:
                yield version, block
                pending.append((version, block.body))
            case loops.IfThenElse(condition, yes, no):
                versions += 1
                pending.append((_Version(versions, (*version.facts, condition)), yes))
                if no is not None:
                    versions += 1
                    pending.append((_Version(versions, version.facts), no))
            case loops.SeqStmt(stmts):
                pending += [(version, x) for x in stmts]
            case _:
                pass


def _signed_scalars(mod: Module) -> dict[str, set[expr.Var]]:
    """Per loop function, its scalar parameters that some call gives a number that may be
    negative."""
    found: dict[str, set[expr.Var]] = {}
    for fn in mod.graph_functions().values():
        names = fn.attrs.get("signed_scalars", ())
        calls = (tir_call(n) for n in walk(fn) if isinstance(n, graph.Call)) if names else ()
        for call in filter(None, calls):
            func = mod[call.callee]
            assert isinstance(func, loops.PrimFunc)
            scalars = (p for p in func.params if isinstance(p, expr.Var))
            found.setdefault(call.callee, set()).update(
                p for p, given in zip(scalars, call.symbols, strict=True)
                if any(s.name in names for s in symbols_in(given))
            )  # fmt: skip
    return found


def _shared(func: loops.PrimFunc, signed: set[expr.Var]) -> dict[loops.Buffer, loops.Buffer]:
    """Return the buffer for each liftable allocation: its own, or another version's of the same
    shape and dtype. `signed`: the scalar parameters that may be negative; others are sizes."""
    found: dict[loops.Buffer, loops.Buffer] = {}
    taken: dict[int, set[loops.Buffer]] = {}
    users: dict[loops.Buffer, list[_Version]] = {}
    for version, block in _outer_blocks(func.body):
        for b in block.alloc_buffers:
            if b.scope != "global":
                continue
            mine = taken.setdefault(version.number, set())
            same = [
                x
                for x in dict.fromkeys(found.values())
                # Only one version of a kernel runs, so versions share; within one version two
                # buffers live together.
                if version.number and x not in mine and (x.shape, x.dtype) == (b.shape, b.dtype)
                and x not in taken.get(0, ())
            ]  # fmt: skip
            found[b] = same[0] if same else b
            mine.add(found[b])
            users.setdefault(found[b], []).append(version)
    an = shape_analyzer(func)
    for p in func.params:
        if isinstance(p, expr.Var) and p not in signed:
            an.bind_shape(p)
    made = {b: _without_negative_dims(_bounded(b, v, an), an) for b, v in users.items()}
    return {b: made[new] for b, new in found.items()}


def _bounded(b: loops.Buffer, versions: Sequence[_Version], an: Analyzer) -> loops.Buffer:
    """The buffer with constant dimensions where all versions that have it are for sizes that bound
    them. Beside a dimension without a bound it stays: a call of few rows by many columns would
    allocate the most rows for all columns."""

    def most(dim: expr.PrimExpr) -> expr.PrimExpr:
        bounds = [_bound_of(v, dim, an) for v in versions]
        found = [n for n in bounds if n is not None]
        return expr.const(max(found), dim.dtype) if len(found) == len(bounds) else dim

    shape = tuple(map(most, b.shape))
    bounded = shape != b.shape and all(isinstance(d, expr.IntImm) for d in shape)
    return replace(b, shape=shape) if bounded else b


def _bound_of(version: _Version, dim: expr.PrimExpr, an: Analyzer) -> int | None:
    """The upper bound that a dimension has by what holds in a version, and not without it."""
    with an.scope():
        for fact in version.facts:
            an.assume(fact)
        most = an.upper_bound(dim)
    return None if most == an.upper_bound(dim) else most


def _without_negative_dims(b: loops.Buffer, an: Analyzer) -> loops.Buffer:
    """The buffer with no elements where an extent that it was made for, as that of `range(n - 2)`,
    is negative."""

    def least(dim: expr.PrimExpr) -> expr.PrimExpr:
        zero = expr.const(0, dim.dtype)
        return dim if an.prove(expr.GE(dim, zero)) is True else expr.Max(dim, zero)

    shape = tuple(map(least, b.shape))
    return b if shape == b.shape else replace(b, shape=shape)


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
    # Tensors first, then scalars: the order of parameters that calls of loop functions rely on.
    return replace(func, params=(*func.buffers, *added, *scalars), body=body), added


def _call(
    b: graph.Binding,
    mod: Module,
    lifted: dict[str, tuple[loops.PrimFunc, tuple[loops.Buffer, ...]]],
    kind: type[graph.Var],
) -> list[graph.Binding]:
    """The bindings for one that may call a function whose workspaces are lifted."""
    if not isinstance(b, graph.VarBinding):
        return [b]
    call = tir_call(b.value)
    if call is not None and call.callee in lifted:
        kept = call.inplace or (-1,) * len(call.outs)
        fresh = [t for t, i in zip(call.outs, kept, strict=True) if i < 0]
        given = [*map(leaf_type, call.args), *fresh]
        added = _added(mod, lifted[call.callee][1], given, call.symbols, call.callee)
        return _tir_call(b, call, kept, added, kind)
    match b.value:
        case graph.Call(graph.GlobalVar(name), args) if name in lifted:
            new, given = _given(b, mod, lifted[name][1], name, args)
            return [*new, replace(b, value=replace(b.value, args=given))]
        case graph.Call(
            graph.Op("vm.call_tir_dyn"),
            (graph.GlobalVar(name) as callee, graph.Tuple((*tensors, graph.ShapeExpr(sizes) as s))),
        ) if name in lifted:
            args = (*tensors, *map(graph.PrimValue, sizes))
            new, given = _given(b, mod, lifted[name][1], name, args)
            packed = graph.Tuple((*given[: len(given) - len(sizes)], s))
            return [*new, replace(b, value=replace(b.value, args=(callee, packed)))]
        case _:
            return [b]


def _added(
    mod: Module,
    workspaces: tuple[loops.Buffer, ...],
    given: Sequence[types.Type | None],
    scalars: Sequence[expr.PrimExpr],
    name: str,
) -> tuple[types.TensorType, ...]:
    """Return the types of the workspaces in a call that passes tensors of the types `given` and
    the scalar arguments `scalars`."""
    func = mod[name]
    assert isinstance(func, loops.PrimFunc)
    symbols = argument_symbols(func, given, scalars, name)
    return tuple(
        types.TensorType(tuple(substitute(d, symbols) for d in buffer.shape), buffer.dtype)
        for buffer in workspaces
    )


def _given(
    b: graph.VarBinding,
    mod: Module,
    workspaces: tuple[loops.Buffer, ...],
    name: str,
    args: tuple[graph.Expr, ...],
) -> tuple[list[graph.Binding], tuple[graph.Expr, ...]]:
    """Return the allocations of the workspaces of an expanded call, and its arguments with them
    after the other tensors."""
    func = mod[name]
    assert isinstance(func, loops.PrimFunc)
    count = len(func.buffers)
    scalars = [a.value for a in args[count:] if isinstance(a, graph.PrimValue)]
    added = _added(mod, workspaces, list(map(leaf_type, args[:count])), scalars, name)
    made = [graph.Var(f"{name}_workspace_{i}", ty) for i, ty in enumerate(added)]
    new = [
        graph.VarBinding(alloc_tensor(ty), v, span=b.span)
        for ty, v in zip(added, made, strict=True)
    ]
    return [*new], (*args[:count], *made, *args[count:])


def _tir_call(
    b: graph.VarBinding,
    call: TirCall,
    kept: tuple[int, ...],
    added: tuple[types.TensorType, ...],
    kind: type[graph.Var],
) -> list[graph.Binding]:
    """The call with the workspaces as outputs, then the reads of the outputs it had before."""
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
