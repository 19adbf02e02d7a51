"""Lowering of a scheduled loop function to launches.

The outermost statements become one launch each; the section "GPUs" of docs/architecture.md lists
the schedules that are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.align_storage import align_storage
from relaxlab.codegen.gpu.bind_threads import bind_threads
from relaxlab.codegen.gpu.launch import DeviceKernel, Launch
from relaxlab.codegen.gpu.software_pipeline import software_pipeline
from relaxlab.codegen.gpu.swizzle_storage import swizzle_storage, swizzles_of
from relaxlab.codegen.gpu.synchronise import synchronise
from relaxlab.codegen.gpu.thread_loops import comment, is_sync, thread_loops
from relaxlab.codegen.gpu.thread_reduction import lower_thread_reductions
from relaxlab.codegen.gpu.unswitch import unswitch
from relaxlab.codegen.gpu.warp_specialize import warp_specialize
from relaxlab.codegen.gpu.whole_tiles import whole_tiles
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.positive import sizes_of
from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, all_of
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.names import ascii_name
from relaxlab.ir.node import Node, map_children, walk
from relaxlab.ir.substitute import substitute, symbols_in

TRUE = expr.IntImm(1, "bool")


def lower_launches(
    func: PrimFunc, name: str, *, synchronise: bool = True, facts: Facts = CUDA
) -> DeviceKernel:
    """Return the launches of a loop function on a GPU, in order.

    Barriers are inserted unless the function has its own, or `synchronise` is False. Raises
    CodegenError naming the fault of a schedule that no GPU can run.
    """
    synchronise = synchronise and not any(is_sync(n) for n in walk(func.body))
    func = align_storage(func)
    nests: list[tuple[PrimExpr, Stmt]] = []
    workspace: list[Buffer] = []
    _split(func.body, TRUE, nests, workspace, name)
    launches: list[Launch] = []
    for number, (condition, nest) in enumerate(nests):
        label = f"{ascii_name(name)}_kernel{number if len(nests) > 1 else ''}"
        launches.append(_launch(func, nest, condition, label, name, synchronise, facts))
    return DeviceKernel(name, func.buffers, kernel_symbols(func), tuple(workspace), tuple(launches))


def _split(
    s: Stmt,
    condition: PrimExpr,
    nests: list[tuple[PrimExpr, Stmt]],
    workspace: list[Buffer],
    name: str,
) -> None:
    """Collect the nests below blocks without axes, sequences and conditions on symbols."""
    match s:
        case BlockRealize((), predicate, block) if (
            predicate == TRUE and not block.match_buffers and _is_outer(block)
        ):
            private = [b for b in block.alloc_buffers if b.scope != "global"]
            workspace += [b for b in block.alloc_buffers if b.scope == "global"]
            before = len(nests)
            _split(block.body, condition, nests, workspace, name)
            for buffer in private:
                _give(buffer, nests, before, name)
        case SeqStmt(stmts):
            for part in stmts:
                _split(part, condition, nests, workspace, name)
        case IfThenElse(test, then, other) if not _loads(test):
            _split(then, all_of([condition, test]), nests, workspace, name)
            if other is not None:
                _split(other, all_of([condition, expr.Not(test)]), nests, workspace, name)
        case LetStmt(var, value, body) if not _loads(value):
            _split(substitute(body, {var: value}), condition, nests, workspace, name)
        case _:
            nests.append((condition, s))


def _is_outer(block: Block) -> bool:
    """True if the block only holds others (or loops over them)."""
    return block.init is None and any(isinstance(n, BlockRealize | For) for n in walk(block.body))


def _loads(e: PrimExpr) -> bool:
    return any(isinstance(n, BufferLoad | expr.Call) for n in walk(e))


def _give(buffer: Buffer, nests: list[tuple[PrimExpr, Stmt]], first: int, name: str) -> None:
    """Allocate a shared or local buffer in the one nest that uses it. Nests for a single block of
    threads that share one become one."""
    users = [i for i in range(first, len(nests)) if _uses(nests[i][1], buffer)]
    if not users:
        return
    start, stop = users[0], users[-1] + 1
    conditions = {c for c, _ in nests[start:stop]}
    if len(conditions) > 1 or (
        stop - start > 1 and any(_has_grid(n) for _, n in nests[start:stop])
    ):
        raise CodegenError(
            f"the {buffer.scope} buffer {buffer.name!r} of {name!r} is used by several kernels; "
            "give it the scope 'global'"
        )
    nest = seq(*(n for _, n in nests[start:stop]))
    holder = Block(f"{buffer.name}_scope", (), (), (), nest, alloc_buffers=(buffer,))
    nests[start:stop] = [(conditions.pop(), BlockRealize((), TRUE, holder))]


def _has_grid(nest: Stmt) -> bool:
    return any((loop.thread or "").startswith("blockIdx") for loop in thread_loops(nest))


def _uses(s: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer for n in walk(s))


def _launch(
    func: PrimFunc, nest: Stmt, condition: PrimExpr, label: str, name: str, barriers: bool,
    facts: Facts,
) -> Launch:  # fmt: skip
    if barriers:
        nest = synchronise(nest)
    nest, agreed = lower_thread_reductions(nest, name, facts)
    body, allocated = lower_blocks(_commented(nest))
    body, allocated = swizzle_storage(body, allocated, swizzles_of(nest))
    body = simplify_indices(body, sizes_of(func))
    wrong = next((b for b in allocated if b.scope == "global"), None)
    if wrong is not None:
        raise CodegenError(
            f"{name!r} allocates {wrong.name!r} in main memory inside of its loops; give it the "
            "scope 'shared' or 'local'"
        )
    axes, body, renamed = bind_threads(body, allocated, agreed, sizes_of(func), name, facts)
    body = unswitch(body, axes)
    axes, body, renamed = warp_specialize(body, renamed, axes, sizes_of(func), name, facts)
    body, renamed = software_pipeline(body, renamed, axes, sizes_of(func), name, facts)
    body = whole_tiles(body)
    used = set(_buffers(body))
    buffers = tuple(b for b in _main_memory(func, body) if b in used)
    mentioned = (body, *(a.extent for a in axes), *(d for b in buffers for d in b.shape))
    symbols = set(symbols_in(mentioned))
    return Launch(
        label,
        condition,
        axes,
        buffers,
        tuple(v for v in kernel_symbols(func) if v in symbols),
        tuple(b for b in renamed if b.scope == "shared" and b in used),
        tuple(b for b in renamed if b.scope == "local" and b in used),
        body,
        facts,
        tuple(sizes_of(func)),
    )


def _commented(nest: Stmt) -> Stmt:
    """The names of the leaf blocks as comments."""

    def visit(n: Node) -> Node:
        new = map_children(n, visit)
        if isinstance(n, BlockRealize) and not any(
            isinstance(b, BlockRealize) for b in walk(n.block.body)
        ):
            return seq(comment(n.block.name), new)  # type: ignore[arg-type]
        return new

    return visit(nest)  # type: ignore[return-value]


def _main_memory(func: PrimFunc, body: Stmt) -> Iterator[Buffer]:
    yield from func.buffers
    params = set(func.buffers)
    found = dict.fromkeys(b for b in _buffers(body) if b.scope == "global" and b not in params)
    yield from found


def _buffers(body: Stmt) -> Iterator[Buffer]:
    return (n.buffer for n in walk(body) if isinstance(n, BufferLoad | BufferStore))
