"""Make blocks of plain loop nests, so that rules can schedule them.

A loop function may be written as loops around stores, without blocks. A store whose indices are
loop variables becomes a block with those as spatial axes and the other loops' as reduce axes, in
loops of its own (loop distribution; Kennedy and Allen, *Optimizing Compilers for Modern
Architectures*, section 2.4), spatial loops in the order of the dimensions. A store of the identity
right before a reduction becomes its `init`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
    seq,
)
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.rfactor import reduction_of


@dataclass(frozen=True, slots=True)
class _Nest:
    """A store inside loops, outermost first, and the store of its initial value before those of
    them that are not in its indices."""

    loops: tuple[For, ...]
    store: BufferStore
    init: BufferStore | None = None


def form_blocks(func: PrimFunc) -> PrimFunc:
    """Return the function with each store in a block in loops of its own; the function itself where
    it has blocks already, or where loops cannot be distributed or stores are not independent."""
    nests = _distributed(func.body, ())
    if nests is None or not all(map(_is_block, nests)):
        return func
    names: dict[str, int] = {}
    return replace(func, body=seq(*(_blocked(nest, names) for nest in nests)))


def _distributed(s: Stmt, loops: tuple[For, ...]) -> list[_Nest] | None:
    """Return the stores of a statement in the given loops, each in loops of its own. None where
    there is anything but stores and serial loops whose extents depend on no memory and no other
    loop, or where distributing the loops might change the order of dependent accesses."""
    match s:
        case BufferStore():
            return [_Nest(loops, s)]
        case For(kind="serial", min=expr.IntImm(0)) if not s.annotations:
            outer = {loop.loop_var for loop in loops}
            reads = any(isinstance(n, BufferLoad) for n in walk(s.extent))
            depends = reads or not outer.isdisjoint(symbols_in(s.extent))
            return None if depends else _distributed(s.body, (*loops, s))
        case SeqStmt(stmts):
            parts = [_distributed(part, loops) for part in stmts]
            if not all(_are_apart(stmts, loop.loop_var) for loop in loops):
                return None
            nests = [nest for part in parts if part is not None for nest in part]
            return None if None in parts else _with_inits(nests, len(loops))
        case _:
            return None


def _are_apart(stmts: Sequence[Stmt], var: Var) -> bool:
    """True if iterations of a loop over these statements share no element that one of them writes:
    the loop's variable is the same index in all accesses to what is written."""
    accesses = [n for s in stmts for n in walk(s) if isinstance(n, BufferLoad | BufferStore)]
    for buffer in {n.buffer for n in accesses if isinstance(n, BufferStore)}:
        places = [n.indices for n in accesses if n.buffer is buffer]
        if not any(all(i[d] == var for i in places) for d in range(buffer.ndim)):
            return False
    return True


def _with_inits(nests: Sequence[_Nest], depth: int) -> list[_Nest]:
    """Join each reduction with the store of its initial value in front of it, `depth` loops around
    both."""
    found: list[_Nest] = []
    for nest in nests:
        before = found[-1] if found else None
        if before is not None and len(before.loops) == depth and _initialises(before, nest, depth):
            found[-1] = dataclasses.replace(nest, init=before.store)
        else:
            found.append(nest)
    return found


def _initialises(before: _Nest, nest: _Nest, depth: int) -> bool:
    """True if one store is the initial value of the reduction after it: the identity, in the same
    place, outside of the loops over its terms."""
    reduced = {loop.loop_var for loop in nest.loops[depth:]}
    a, b = before.store, nest.store
    same = (a.buffer, a.indices) == (b.buffer, b.indices)
    reduction = reduction_of(_plain_block(nest))
    if not same or not reduced or reduction is None or nest.init is not None:
        return False
    return a.value == reduction.identity and not reduced & set(symbols_in(b.indices))


def _plain_block(nest: _Nest) -> Block:
    return Block("", (), (), (), nest.store)


def _spatial(nest: _Nest) -> list[For]:
    """The loops whose variables are indices of the store, in the order of its dimensions."""
    loops = {loop.loop_var: loop for loop in nest.loops}
    found = [i for i in nest.store.indices if isinstance(i, Var) and i in loops]
    return [loops[v] for v in dict.fromkeys(found)]


def _is_block(nest: _Nest) -> bool:
    """True if iterations with different indices are independent, and the others a reduction."""
    store = nest.store
    spatial = {loop.loop_var for loop in _spatial(nest)}
    others = {loop.loop_var for loop in nest.loops} - spatial
    if others & set(symbols_in(store.indices)) or not store.indices:
        return False
    own = [n for n in walk(store.value) if isinstance(n, BufferLoad) and n.buffer is store.buffer]
    if not others:
        return all(n.indices == store.indices for n in own)
    return reduction_of(_plain_block(nest)) is not None and len(own) == 1


def _blocked(nest: _Nest, names: dict[str, int]) -> Stmt:
    """The store as a block in its loops."""
    spatial = _spatial(nest)
    reduce = [loop for loop in nest.loops if loop not in spatial]
    count = names[nest.store.buffer.name] = names.get(nest.store.buffer.name, 0) + 1
    name = nest.store.buffer.name + (f"_{count}" if count > 1 else "")
    axes: dict[Var, PrimExpr] = {}
    iter_vars: list[IterVar] = []
    for loop in (*spatial, *reduce):
        axis = Var(f"v{loop.loop_var.name}", loop.loop_var.dtype)
        axes[loop.loop_var] = axis
        kind = "spatial" if loop in spatial else "reduce"
        iter_vars.append(IterVar(axis, Range(loop.min, loop.extent), kind))
    init = None if nest.init is None else substitute(nest.init, axes)
    block = Block(
        name, tuple(iter_vars), (), (), substitute(nest.store, axes), init, span=nest.store.span
    )
    reads, writes = access_regions(block)
    block = replace(block, reads=reads, writes=writes)
    values = tuple(loop.loop_var for loop in (*spatial, *reduce))
    body: Stmt = BlockRealize(values, expr.const(True), block, span=nest.store.span)
    for loop in reversed((*spatial, *reduce)):
        body = replace(loop, body=body)
    # Distributed loops come from one, and a variable is bound once.
    return substitute(body, {v: Var(v.name, v.dtype) for v in values})
