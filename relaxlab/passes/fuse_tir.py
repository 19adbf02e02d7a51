"""Turn each outlined group into one loop function."""

from __future__ import annotations

from typing import TypeAlias

from relaxlab.analysis.facts_check import checked_buffers
from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import Attrs, Node, binder_names, replace, rewrite, walk
from relaxlab.ir.provenance import stamp
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import (
    TirCall,
    all_bindings,
    known_shape,
    leaf_type,
    map_blocks,
    tir_call,
    with_bindings,
)
from relaxlab.passes.effects import used_as_values
from relaxlab.passes.kernel_calls import argument_symbols
from relaxlab.tracing import may_apply, remark

TRUE = expr.const(True)


@module_pass("fuse_tir", needs=("normalize",))
def fuse_tir(mod: Module, _: NoOptions) -> Module:
    """Replace each `Primitive` function by a loop function of the same name that runs the blocks
    of its calls in order; intermediate values are allocated in its root block. Calls of it become
    `call_tir`; the fields of tuple parameters become parameters, the shape parameter of a group
    trailing scalars. A function that does more than calling loop functions stays as it is.
    """
    groups = {n: f for n, f in mod.graph_functions().items() if f.attrs.get("Primitive")}
    merged: dict[str, PrimFunc] = {}
    values = used_as_values(mod) if groups else {}
    for name, fn in groups.items():
        obstacle = "it is used as a value" if name in values else _obstacle(fn, mod)
        if obstacle is not None:
            remark("fuse_tir", name, obstacle, applied=False)
            continue
        func = merge_calls(fn, mod)
        blocks = sum(isinstance(n, loops.Block) and bool(n.iter_vars) for n in walk(func.body))
        if may_apply("fuse_tir", name, f"one loop function with {blocks} blocks"):
            merged[name] = func
    if not merged:
        return mod

    def binding(b: graph.Binding) -> graph.Binding:
        value = b.value
        if not isinstance(value, graph.Call) or not isinstance(value.op, graph.GlobalVar):
            return b
        if value.op.name not in merged:
            return b
        return replace(b, value=_as_tir(value, groups[value.op.name], b.var.ty))

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [binding(b) for b in blk.bindings])

    graphs = {n: map_blocks(f, block) for n, f in mod.graph_functions().items() if n not in merged}
    return mod.with_functions({**graphs, **merged})


def _obstacle(fn: graph.Function, mod: Module) -> str | None:
    """Return why a function cannot become a loop function; None if it can."""
    computed: set[graph.Expr] = set()
    counted = False
    for b in all_bindings(fn):
        call = tir_call(b.value)
        if isinstance(b.value, graph.TupleGetItem) and b.value.tuple_value in fn.params:
            continue
        if call is None or len(call.outs) != 1 or not isinstance(mod.get(call.callee), PrimFunc):
            return f"`{b.var.name}` is not the one result of a loop function"
        if known_shape(b.var.ty) is None:
            return f"the shape of `{b.var.name}` is not known"
        callee = _callee(call, mod)
        checked = checked_buffers(callee)
        stated = [a for a, b in zip(call.args, callee.buffers, strict=False) if b in checked]
        if stated and (counted or any(a not in fn.params for a in stated)):
            return f"`{call.callee}` has index functions, whose facts are checked before it runs"
        if len(set(stated)) < len(stated):
            return f"`{call.callee}` is given one array for several index functions"
        counted = counted or bool(stated)
        if any(i >= 0 and call.args[i] not in computed for i in call.inplace):
            return f"`{b.var.name}` overwrites an argument of the function"
        computed.add(b.var)
    if fn.body.body not in computed:
        return "its result is not what a loop function computes"
    tensors = (f for p in fn.params for f in _fields(p.ty) if not isinstance(f, types.ShapeType))
    if any(known_shape(t) is None for t in tensors):
        return "a parameter's shape is not known"
    return None


def _callee(call: TirCall, mod: Module) -> PrimFunc:
    func = mod[call.callee]
    assert isinstance(func, PrimFunc)
    return func


def _fields(ty: types.Type | None) -> tuple[types.Type | None, ...]:
    """Return the tensors of a parameter: its fields, if it is a tuple."""
    return ty.fields if isinstance(ty, types.TupleType) else (ty,)


def _as_tir(call: graph.Call, fn: graph.Function, out: types.Type | None) -> graph.Call:
    assert isinstance(call.op, graph.GlobalVar) and out is not None
    tensors: list[graph.Expr] = []
    for a, p in zip(call.args, fn.params, strict=True):
        if isinstance(a, graph.Tuple):
            tensors += a.fields
        elif isinstance(p.ty, types.TupleType):
            tensors += (graph.TupleGetItem(a, i) for i in range(len(p.ty.fields)))
        elif not isinstance(p.ty, types.ShapeType):
            tensors.append(a)
    shapes = [a for a in call.args if isinstance(a, graph.ShapeExpr)]
    symbols = tuple(v for s in shapes for v in s.values)
    return replace(TirCall(call.op.name, tuple(tensors), symbols, (out,)).build(), span=call.span)


Buffers: TypeAlias = "dict[graph.Expr, tuple[loops.Buffer, ...]]"
"""The buffer of each tensor, the buffers of the fields of each tuple."""


def merge_calls(fn: graph.Function, mod: Module) -> PrimFunc:
    """Return one loop function for the calls of `fn`, a `Primitive` function."""
    names, block_names = UniqueNames(), UniqueNames()
    buffers: Buffers = {}
    scalars: list[expr.Var] = []
    for p in fn.params:
        if isinstance(p.ty, types.ShapeType):
            scalars += [v for v in p.ty.values or () if isinstance(v, expr.Var)]
        else:
            buffers[p] = tuple(_buffer(names(p.name), ty) for ty in _fields(p.ty))
    bindings = list(all_bindings(fn))
    for call in filter(None, (tir_call(b.value) for b in bindings)):
        _take_facts(buffers, call, _callee(call, mod))
    inputs = [b for fields in buffers.values() for b in fields]
    output = _made_in(fn.body.body, bindings)
    bodies: list[loops.Stmt] = []
    local: list[loops.Buffer] = []
    kinds: list[int] = []
    required: list[loops.AssertStmt] = []
    for b in bindings:
        var, call = b.var, tir_call(b.value)
        if isinstance(b.value, graph.TupleGetItem):
            buffers[var] = (buffers[b.value.tuple_value][b.value.index],)
            continue
        assert call is not None
        if max(call.inplace, default=-1) >= 0:
            buffers[var], extra = buffers[call.args[call.inplace[0]]], ()
        else:
            own = _buffer(names("out" if var is output else var.name), var.ty)
            local += [] if var is output else [own]
            buffers[var] = extra = (own,)
        callee = _callee(call, mod)
        kinds.append(callee.attrs.get("op_pattern", PatternKind.OPAQUE))
        actual = [*(buffers[a][0] for a in call.args), *extra]
        allocated, body, needs = _inlined(callee, actual, call, names)
        local += allocated
        required += needs
        body = stamp(body, b.value.span or b.span, "fuse_tir")
        bodies.append(_tidy_blocks(body, block_names))
    root = loops.Block("root", (), (), (), loops.seq(*bodies), alloc_buffers=tuple(local))
    attrs = Attrs({"tir.noalias": True, "op_pattern": int(max(kinds))})
    params = (*inputs, *buffers[output], *scalars)
    body = loops.BlockRealize((), TRUE, root)
    return PrimFunc(params, body, attrs, requires=tuple(required), span=fn.span)


def _take_facts(buffers: Buffers, call: TirCall, callee: PrimFunc) -> None:
    """Let the parameters that a call takes as index functions, each as one, state what these do."""
    if not any(b.facts for b in callee.buffers):
        return
    given = (*map(leaf_type, call.args), *call.outs)
    symbols = argument_symbols(callee, given, call.symbols, call.callee)
    taken = dict(zip(callee.buffers, call.args, strict=False))
    new: dict[loops.Buffer, loops.Buffer] = {}

    def declare(b: loops.Buffer) -> None:
        # Facts may mention other index functions, which are then declared before.
        for n in (n for fact in b.facts for n in walk(fact) if isinstance(n, loops.Buffer)):
            declare(n)
        own = buffers[taken[b]][0]
        facts = tuple(substitute(fact, symbols, new) for fact in b.facts)
        new[b] = own if own.facts or not facts else replace(own, facts=facts)
        buffers[taken[b]] = (new[b],)

    for b in callee.buffers:
        if b.facts:
            declare(b)


def _made_in(result: graph.Expr, bindings: list[graph.Binding]) -> graph.Expr:
    """Return the variable whose memory holds the result: in-place calls reuse that of an
    argument."""
    for b in reversed(bindings):
        call = tir_call(b.value)
        if b.var is result and call is not None and max(call.inplace, default=-1) >= 0:
            result = call.args[call.inplace[0]]
    return result


def _buffer(name: str, ty: types.Type | None) -> loops.Buffer:
    shape = known_shape(ty)
    assert shape is not None and isinstance(ty, types.TensorType) and ty.dtype is not None
    return loops.Buffer(name, shape, ty.dtype)


def _inlined(
    func: PrimFunc, actual: list[loops.Buffer], call: TirCall, names: UniqueNames
) -> tuple[tuple[loops.Buffer, ...], loops.Stmt, tuple[loops.AssertStmt, ...]]:
    """The allocations and statements of `func` working on `actual`, every name made anew, and what
    it requires."""
    given = [types.TensorType(b.shape, b.dtype) for b in actual]
    symbols = argument_symbols(func, given, call.symbols, call.callee)
    fresh: dict[expr.Var, expr.PrimExpr] = dict(symbols)
    body = func.body
    for v in _bound_vars(body):
        # A function may be inlined twice, and no variable may be bound in two places.
        fresh[v] = expr.Var(v.name, v.var_dtype)
    buffers = dict(zip(func.buffers, actual, strict=True))
    for b in _own_buffers(body):
        buffers[b] = replace(
            b, name=names(b.name), shape=tuple(substitute(d, fresh) for d in b.shape)
        )
    body = substitute(body, symbols=fresh, buffers=buffers)
    requires = tuple(substitute(r, symbols=fresh) for r in func.requires)
    if isinstance(body, loops.BlockRealize) and not body.block.iter_vars:
        return body.block.alloc_buffers, body.block.body, requires
    return (), body, requires


def _bound_vars(body: Node) -> list[expr.Var]:
    found: dict[expr.Var, None] = {}
    for n in walk(body):
        for name in binder_names(type(n)):
            value = getattr(n, name)
            if isinstance(value, expr.Var):
                found[value] = None
    return list(found)


def _own_buffers(body: Node) -> list[loops.Buffer]:
    """The buffers declared inside: allocations and views."""
    blocks = [n for n in walk(body) if isinstance(n, loops.Block)]
    declared = [b for n in blocks for b in n.alloc_buffers]
    declared += [m.buffer for n in blocks for m in n.match_buffers]
    return list(dict.fromkeys(declared))


def _tidy_blocks(body: loops.Stmt, names: UniqueNames) -> loops.Stmt:
    """`body` with a number after the name of each block whose name is taken, and no region read
    twice (two parameters may have become one buffer)."""

    def visit(n: Node) -> Node | None:
        if not isinstance(n, loops.Block) or not n.iter_vars:
            return None
        reads = {(r.buffer, *((d.min, d.extent) for d in r.region)): r for r in reversed(n.reads)}
        return replace(n, name=names(n.name), reads=tuple(reversed(reads.values())))

    return rewrite(body, visit)
