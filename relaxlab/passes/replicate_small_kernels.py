"""Let every thread compute small tensors by itself, if that is cheaper than a barrier.

A kernel ends at a barrier, so that all threads see its results. A norm of one row takes less time
than the barrier after it: every thread runs such a kernel alone, into memory of its own.
(Recomputation instead of synchronisation, as in Halide's overlapped tiles.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_int
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, children, replace, walk
from relaxlab.ir.op_table import has_trait
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks, vars_in, with_bindings
from relaxlab.passes.expand_calls import ALLOC_TENSOR
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.passes.liveness import PER_THREAD, is_allocation, liveness_of
from relaxlab.tracing import may_apply


@dataclass(frozen=True, slots=True)
class ReplicateOptions:
    """`most`: elements that a small kernel stores at most, about a microsecond's work."""

    most: int = 1 << 14


@module_pass("replicate_small_kernels", ReplicateOptions, needs=("expand_calls",))
def replicate_small_kernels(mod: Module, options: ReplicateOptions) -> Module:
    """Give allocations the scope `local` where the kernel that fills them is small and only
    kernels read them: every thread then runs that kernel by itself.

    A kernel whose arguments may be overwritten in place elsewhere is left alone, since a thread
    might still read what another overwrites.
    """
    small = {
        name: (written_buffers(f), size)
        for name, f in mod.loop_functions().items()
        if (size := stores_of(f)) is not None and size <= options.most
    }
    updates = {n: _function(n, f, mod, small) for n, f in mod.graph_functions().items()}
    return mod.with_functions(updates)


def stores_of(func: loops.PrimFunc) -> int | None:
    """Return the number of elements that a scheduled loop function stores; None if it depends on
    the arguments, or if the whole team must run the function: it calls out, or may fail (one thread
    would report a failure that another has not reached)."""
    total = 0

    def visit(n: Node, times: int) -> bool:
        nonlocal total
        match n:
            # The number of a loop's iterations is not known, and failures must be reported by one
            # thread.
            case loops.While() | loops.AssertStmt():
                return False
            case loops.Evaluate(expr.Call(op="llvm_intrin" | "call_extern")):
                return False
            case loops.For(extent=extent):
                # An unknown extent may be large: every thread would do all of it.
                if not isinstance(extent, expr.IntImm):
                    return False
                times *= extent.value
            case loops.BufferStore():
                total += times
            case _:
                pass
        return all(visit(c, times) for c in children(n) if not isinstance(c, expr.PrimExpr))

    fails = any(_may_fail(e) for e in walk(func.body))
    return total if not fails and visit(func.body, 1) else None


def _may_fail(e: Node) -> bool:
    """True for a division of integers by a value that is no constant."""
    match e:
        case expr.FloorDiv(_, b) | expr.FloorMod(_, b) | expr.Div(_, b) | expr.Mod(_, b):
            return is_int(b.dtype) and not isinstance(b, expr.IntImm)
        case _:
            return False


Small = dict[str, tuple[frozenset[int], int]]
"""Per small kernel: the positions of the buffers it writes, and how many elements it stores."""


def _function(name: str, fn: graph.Function, mod: Module, small: Small) -> graph.Function:
    found: set[graph.Var] = set()
    for var, size in dict(_candidates(fn, mod, small)).items():
        reason = f"filled by every thread for itself: {size} stores are cheaper than a barrier"
        if may_apply("replicate_small_kernels", f"{name}.{var.name}", reason):
            found.add(var)
    if not found:
        return fn

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [_local(b) if b.var in found else b for b in blk.bindings])

    return map_blocks(fn, block)


def _local(b: graph.Binding) -> graph.Binding:
    assert isinstance(b.value, graph.Call) and b.value.op == ALLOC_TENSOR
    *rest, _ = b.value.args
    return replace(b, value=replace(b.value, args=(*rest, PER_THREAD)))


def _candidates(fn: graph.Function, mod: Module, small: Small) -> Iterator[tuple[graph.Var, int]]:
    """Yield the allocations that small kernels fill, with the number of stores. A kernel with
    several outputs is replicated when all of them can be."""
    kernels = mod.loop_functions()
    live = liveness_of(fn, mod)
    bindings = list(all_bindings(fn))
    roots = _Roots(bindings)
    shared = {v for v, i in live.intervals.items() if i.escapes is not None}
    written: dict[graph.Expr, int] = {}
    overwritten: set[graph.Expr] = set()
    for b in bindings:
        match b.value:
            case graph.Call(graph.GlobalVar(callee), args) if callee in kernels:
                for at in written_buffers(kernels[callee]):
                    for root in roots.of(args[at]):
                        written[root] = written.get(root, 0) + 1
                        # Two kernels that fill one tensor would both have to be replicated, and
                        # their readers in between.
                        if written[root] > 1 or root not in live.intervals:
                            overwritten.add(root)
            case graph.Call(graph.Op(op)) if has_trait(op, "view") or op == ALLOC_TENSOR.name:
                pass
            case graph.Var() | graph.Tuple() | graph.TupleGetItem():
                pass
            case _:
                shared.update(r for v in vars_in(b.value) for r in roots.of(v))  # type: ignore
                if isinstance(b.value, graph.Call):
                    indices: tuple[int, ...] = b.value.attrs.get("overwrites", ())
                    overwritten.update(r for at in indices for r in roots.of(b.value.args[at]))
    for b in bindings:
        match b.value:
            case graph.Call(graph.GlobalVar(callee), args) if callee in small:
                outputs, size = small[callee]
                made = dict.fromkeys(r for at in sorted(outputs) for r in roots.of(args[at]))
                touched = {r for a in args for r in roots.of(a)}
                # All outputs or none: the kernel runs once for all threads, or in each of them.
                if made and not made.keys() & shared and not touched & overwritten:
                    for root in made:
                        assert isinstance(root, graph.Var)
                        yield root, size
            case _:
                pass


class _Roots:
    """The allocation, parameter or constant that each variable is or is a view of."""

    def __init__(self, bindings: list[graph.Binding]) -> None:
        self.found: dict[graph.Var, tuple[graph.Expr, ...]] = {}
        for b in bindings:
            views = not isinstance(b.value, graph.Call) or (
                isinstance(b.value.op, graph.Op) and has_trait(b.value.op.name, "view")
            )
            if views and not is_allocation(b.value):
                roots = (r for v in vars_in(b.value) for r in self.of(v))
                self.found[b.var] = tuple(dict.fromkeys(roots))

    def of(self, e: graph.Expr) -> tuple[graph.Expr, ...]:
        """The roots of a leaf expression, in the order in which it mentions them."""
        return self.found.get(e, (e,)) if isinstance(e, graph.Var) else ()
