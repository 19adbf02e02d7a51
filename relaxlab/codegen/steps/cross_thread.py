"""A step that writes reductions over the threads of a block as what each thread reduces for itself,
and an exchange of the threads' results (`tvm_thread_allreduce`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var, all_of
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    Reducer,
    Stmt,
)
from relaxlab.ir.node import NO_ATTRS, Attrs, Node, map_children, replace, rewrite
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.combiners import Combiner, combiner_of, stores
from relaxlab.schedule.ranges import ONE, ZERO
from relaxlab.schedule.regions import refreshed, with_alloc
from relaxlab.schedule.tree import (
    TRUE,
    BlockPlace,
    all_blocks,
    child_stmts,
    conjuncts,
    find_block,
    fresh_buffer_name,
    normalized,
    realizes_under,
    vars_in,
)


def reductions_over_threads(func: PrimFunc) -> PrimFunc:
    """The function whose reductions over loops bound to `threadIdx` go to elements of each thread's
    own, which the threads then combine; the first of them stores the result, or all do where it is
    a thread's own. Other blocks of such a kernel run in the first thread of an axis that they do
    not use.

    Raises ValueError for a reduction that more than its block is in, or whose step or start has no
    known form.
    """
    func = normalized(func)
    found = False
    for block in all_blocks(func):
        place = find_block(func, block.name) if block.init is not None else None
        if place is not None and _thread_loops(place):
            func, found = _lowered(place), True
    return replace(func, body=_with_all_axes(func.body)) if found else func


def _thread_loops(place: BlockPlace) -> list[For]:
    """The loops bound to threads that a reduction is over."""
    bound = [loop for loop in _reduce_loops(place) if loop.thread is not None]
    for loop in bound:
        if not (loop.thread or "").startswith("threadIdx"):
            raise ValueError(
                f"block {place.block.name!r} reduces over {loop.thread}: only the threads of a "
                "block can combine their results"
            )
    return bound


def _reduce_loops(place: BlockPlace) -> list[For]:
    pairs = zip(place.block.iter_vars, place.realize.iter_values, strict=True)
    reduced = {v for iv, value in pairs if iv.kind == "reduce" for v in vars_in(value)}
    return [loop for loop in place.loops if loop.loop_var in reduced]


@dataclass(frozen=True, slots=True)
class _Own:
    """Buffers of one element that each thread has."""

    buffers: tuple[Buffer, ...]

    @staticmethod
    def of(func: PrimFunc, kind: str, results: Sequence[Buffer]) -> _Own:
        return _Own(tuple(
            Buffer(fresh_buffer_name(func, f"{kind}_{b.name}"), (ONE,), b.dtype, (ONE,), "local")
            for b in results
        ))  # fmt: skip

    def loads(self) -> tuple[PrimExpr, ...]:
        return tuple(BufferLoad(b, (ZERO,)) for b in self.buffers)


def _lowered(place: BlockPlace) -> PrimFunc:
    """The function with one reduction in parts."""
    block, func = place.block, place.func
    around = _reduce_loops(place)
    top = place.path.index(around[0])
    if [s for s in place.path[top:-1] if isinstance(s, For)] != around or any(
        not isinstance(s, For) for s in place.path[top:-1]
    ):
        raise ValueError(f"more than the reduction of block {block.name!r} is in its loops")
    combiner = combiner_of(block)
    if combiner is None or _starts(block) != combiner.identities:
        raise ValueError(f"block {block.name!r} is no reduction of a known form")
    threads = [loop for loop in around if loop.thread is not None]
    serial = [loop for loop in around if loop.thread is None]
    crossed = _Own.of(func, "cross_thread", combiner.buffers)
    own = _Own.of(func, "in_thread", combiner.buffers)
    alone = not serial and place.realize.predicate == TRUE
    parts = [] if alone else _in_thread(place, combiner, own, serial)
    values = combiner.values if alone else own.loads()
    parts.append(_cross_thread(place, combiner, values, crossed, threads, alone))
    parts.append(_write_back(place, combiner, crossed, threads))
    nest = loops.nested(threads, loops.seq(*parts))
    func = place.replaced(nest, top)
    for buffer in (*crossed.buffers, *(() if alone else own.buffers)):
        func = with_alloc(func, place.scope.name, buffer)
    return func


def _starts(block: Block) -> tuple[PrimExpr, ...]:
    init = block.init
    parts = init.stmts if isinstance(init, loops.SeqStmt) else (init,)
    return tuple(s.value for s in parts if isinstance(s, BufferStore))


def _opaque(name: str, body: Stmt) -> BlockRealize:
    return BlockRealize((), TRUE, refreshed(Block(name, (), (), (), body)))


def _in_thread(
    place: BlockPlace, combiner: Combiner, own: _Own, serial: Sequence[For]
) -> list[Stmt]:
    """The statements of each thread by itself: it starts its elements, and adds its terms."""
    block = place.block
    start = stores(own.buffers, combiner.identities, (ZERO,))
    new = dict(zip(combiner.buffers, own.buffers, strict=True))

    def visit(n: Node) -> Node | None:
        if isinstance(n, BufferLoad | BufferStore) and n.buffer in new:
            return replace(n, buffer=new[n.buffer], indices=(ZERO,))
        return None

    update = replace(
        block, name=f"{block.name}_in_thread", init=None, body=rewrite(block.body, visit)
    )
    nest = loops.nested(serial, replace(place.realize, block=refreshed(update)))
    return [_opaque(f"{block.name}_in_thread_init", start), nest]


def _cross_thread(
    place: BlockPlace, combiner: Combiner, values: tuple[PrimExpr, ...], crossed: _Own,
    threads: Sequence[For], alone: bool,
) -> Stmt:  # fmt: skip
    """The exchange of values between the threads; `alone`, these are the terms of the block."""
    lhs, rhs = (tuple(Var(f"{side}{n}", b.dtype) for n, b in enumerate(combiner.buffers))
                for side in "xy")  # fmt: skip
    reducer = Reducer(lhs, rhs, combiner.combined(lhs, rhs), combiner.identities)
    args = (
        expr.const(len(values), "uint32"), *values, TRUE, *crossed.loads(),
        *(loop.loop_var for loop in threads),
    )  # fmt: skip
    call = Evaluate(expr.Call("handle", "tvm_thread_allreduce", args))
    notes = Attrs({"reduce_scope": (reducer, 0)})
    body = For(Var("once"), ZERO, ONE, "serial", call, annotations=notes)
    name = f"{place.block.name}_cross_thread"
    writes = tuple(
        loops.BufferRegion(b, (loops.Range(ZERO, ONE),)) for b in crossed.buffers
    )
    realize = place.realize if alone else _opaque(name, body)
    block = replace(refreshed(replace(realize.block, name=name, init=None, body=body)),
                    writes=writes)  # fmt: skip
    own = {*crossed.buffers}
    reads = tuple(r for r in block.reads if r.buffer not in own)
    return replace(realize, block=replace(block, reads=reads))


def _write_back(
    place: BlockPlace, combiner: Combiner, crossed: _Own, threads: Sequence[For]
) -> Stmt:
    """The store of the results, by the first thread unless they are each thread's own."""
    pairs = [
        (replace(iv, var=Var(iv.var.name, iv.var.dtype)), iv.var, value)
        for iv, value in zip(place.block.iter_vars, place.realize.iter_values, strict=True)
        if iv.kind != "reduce"
    ]
    table: dict[Var, PrimExpr] = {old: iv.var for iv, old, _ in pairs}
    indices = tuple(substitute(i, table) for i in combiner.indices)
    body = stores(combiner.buffers, crossed.loads(), indices)
    reduced = {loop.loop_var for loop in _reduce_loops(place)}
    conditions = [c for c in conjuncts(place.realize.predicate) if not vars_in(c) & reduced]
    if any(b.scope != "local" for b in combiner.buffers):
        conditions += [expr.EQ(loop.loop_var, loop.min) for loop in threads]
    block = Block(f"{place.block.name}_write_back", tuple(iv for iv, *_ in pairs), (), (), body)
    return BlockRealize(tuple(v for *_, v in pairs), all_of(conditions), refreshed(block))


# --- Blocks without the axes of a reduction -------------------------------------------------------

_NAMES = {"threadIdx.x": "tx", "threadIdx.y": "ty", "threadIdx.z": "tz"}


def _with_all_axes(s: Stmt) -> Stmt:
    """A statement in which the blocks of each kernel that reduces over threads run once: in the
    first thread along the axes of the reductions that they are not in."""

    def visit(n: Node) -> Node:
        if isinstance(n, For) and (n.thread or "").startswith("blockIdx"):
            axes = _reduced_axes(n)
            return _completed(n, axes, frozenset()) if axes else n
        return map_children(n, visit)

    return visit(s)  # type: ignore[return-value]


def _reduced_axes(kernel: For) -> dict[str, For]:
    """The thread loops around exchanges between threads, by their axes."""
    found: dict[str, For] = {}

    def visit(s: Stmt, around: tuple[For, ...]) -> None:
        match s:
            case Evaluate(expr.Call(op="tvm_thread_allreduce", args=args)):
                found.update({loop.thread or "": loop for loop in around if loop.loop_var in args})
            case For():
                visit(s.body, (*around, s))
            case _:
                for c in child_stmts(s):
                    visit(c, around)

    visit(kernel, ())
    return found


def _completed(n: Node, axes: dict[str, For], bound: frozenset[str]) -> Node:
    if isinstance(n, For) and n.thread is not None:
        bound |= {n.thread}
    missing = [loop for axis, loop in axes.items() if axis not in bound]
    if isinstance(n, BlockRealize) and not realizes_under(n.block.body) and missing:
        own = {loop.thread: Var(_NAMES[loop.thread or ""], loop.loop_var.dtype) for loop in missing}
        first = [expr.EQ(own[loop.thread], loop.min) for loop in missing]
        nest: Stmt = replace(n, predicate=all_of([*conjuncts(n.predicate), *first]))
        for loop in reversed(missing):
            nest = replace(loop, loop_var=own[loop.thread], body=nest, annotations=NO_ATTRS)
        return nest
    return map_children(n, lambda c: _completed(c, axes, bound))
