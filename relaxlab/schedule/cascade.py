"""Cascades of reductions: chains over one axis whose terms depend on the results before them.

The maximum of scores, the sum of `exp(score - maximum)` and the sum of those times values are one;
so are a sum, and the sum of squared distances from the mean. `find_cascade` proves which blocks of
a loop function belong together (cascaded reductions: RedFuser, Neptune, 2025):

- `reductions` over the shared axis, for each point of the axes `outer` that all of them have;
- `inside`: blocks over the shared axis and all of `outer` that only these reductions read, such as
  scores and the products of queries and keys that they are made of;
- `results`: blocks over all of `outer`, and not the shared axis, that read results, such as a mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import Node, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.tree import TRUE, alloc_sites, describe_block


@dataclass(frozen=True, slots=True)
class Cascade:
    """The blocks of a cascade, in program order, with one variable for all axes that run together.

    `axis`: the shared axis; `extents`: of all axes; `dims`: the axes that index each buffer which
    the blocks write; `shared`: those of the buffers that other blocks or callers use; `place`: of
    the statements of the root block that hold the blocks."""

    inside: tuple[Block, ...]
    reductions: tuple[Block, ...]
    results: tuple[Block, ...]
    blocks: tuple[Block, ...]
    axis: Var
    outer: tuple[Var, ...]
    extents: Mapping[Var, PrimExpr]
    dims: Mapping[Buffer, tuple[Var, ...]]
    shared: frozenset[Buffer]
    place: tuple[int, ...]

    @property
    def further(self) -> tuple[Var, ...]:
        """The axes of results that are not axes of all reductions."""
        found = (a for b in self.reductions for a in axes_of(b) if a not in self.outer)
        return tuple(dict.fromkeys(found))

    def maker(self, buffer: Buffer) -> Block | None:
        """The block that writes the buffer."""
        return next((b for b in self.blocks if written(b) is buffer), None)


def require(condition: object, block: Block, text: str) -> None:
    """Raise ScheduleError unless the condition holds."""
    if not condition:
        raise ScheduleError("fuse_reductions", describe_block(block), text, about=(block.name,))


def written(block: Block) -> Buffer:
    """The buffer of the block's store."""
    assert isinstance(block.body, BufferStore)
    return block.body.buffer


def loads_in(root: Node) -> list[BufferLoad]:
    """The loads in a statement or expression."""
    return [n for n in walk(root) if isinstance(n, BufferLoad)]


def axes_of(block: Block, kind: str = "spatial") -> tuple[Var, ...]:
    """The block's axes of that kind."""
    return tuple(it.var for it in block.iter_vars if it.kind == kind)


def find_cascade(func: PrimFunc, reduction: str | None = None) -> Cascade | None:
    """Return the cascade that the named reduction is part of, or the last one. None if no term
    depends on a result over the same axis. Raises ScheduleError where one does, but another
    condition does not hold."""
    root = func.body
    if not isinstance(root, BlockRealize) or not isinstance(root.block.body, SeqStmt):
        return None
    nests = root.block.body.stmts
    numbered = {n: b for n, b in enumerate(map(_block_of, nests)) if b is not None}
    blocks = _aligned(list(numbered.values()))
    chains = [
        reduced for b, before in _reductions_before(blocks)
        if (reduced := _reduce_axis(b)) in map(_reduce_axis, before)
    ]  # fmt: skip
    if reduction is not None:
        named = {_reduce_axis(b) for b in blocks if b.name == reduction}
        chains = [axis for axis in chains if axis in named]
    if not chains or (axis := chains[-1]) is None:
        return None
    found = _members(func, blocks, axis)
    place = tuple(n for n, b in zip(numbered, blocks, strict=True) if b in found.blocks)
    _require_together(found, nests, place)
    _require_forms(found)
    return dataclasses.replace(found, place=place)


def _block_of(nest: Stmt) -> Block | None:
    """The block, one store, of a perfect nest of plain loops, each over the whole domain of one of
    its axes."""
    extents: dict[PrimExpr, PrimExpr] = {}
    while isinstance(nest, For) and nest.kind == "serial" and nest.min == ZERO:
        extents[nest.loop_var] = nest.extent
        nest = nest.body
    if not isinstance(nest, BlockRealize) or nest.predicate != TRUE:
        return None
    axes = [it.dom for it in nest.block.iter_vars]
    whole = all(dom.min == ZERO for dom in axes) and isinstance(nest.block.body, BufferStore)
    looped = [extents.pop(v, None) for v in nest.iter_values]
    return nest.block if whole and looped == [dom.extent for dom in axes] else None


def _reduce_axis(block: Block) -> Var | None:
    """The axis of a reduction over one axis."""
    found = reduction_of(block)
    axes = axes_of(block, "reduce")
    return axes[0] if found is not None and len(axes) == 1 else None


def _aligned(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, with the variable of the axis that wrote a dimension for each axis that reads it.
    An axis that reads none runs with that of a reduction of its extent, if its block reads the
    result, or is a reduction that depends on it."""
    found: list[Block] = []
    for block in blocks:
        extents = {it.var: it.dom.extent for it in block.iter_vars}
        table: dict[Var, Var] = {}
        own = written(block)
        # The last maker takes precedence: keys and values may be rows of the queries' tensor.
        for maker in reversed(found):
            for load in loads_in(block.body):
                if load.buffer is not written(maker) or load.buffer is own:
                    continue
                assert isinstance(maker.body, BufferStore)
                for index, axis in zip(load.indices, maker.body.indices, strict=True):
                    _align(table, extents, index, axis, maker)
        reads = {n.buffer for n in loads_in(block.body)}
        for maker in _made_of(block, found):
            for it in block.iter_vars:
                if it.kind == "reduce" or written(maker) in reads:
                    _align(table, extents, it.var, _reduce_axis(maker), maker)
        found.append(substitute(block, table))
    return found


def _align(
    table: dict[Var, Var], extents: Mapping[Var, PrimExpr], index: PrimExpr, axis: PrimExpr | None,
    maker: Block,
) -> None:  # fmt: skip
    if isinstance(index, Var) and index in extents and index not in table:
        known = {it.var: it.dom.extent for it in maker.iter_vars}
        is_new = axis not in table.values()
        if isinstance(axis, Var) and is_new and known.get(axis) == extents[index]:
            table[index] = axis


def _made_of(block: Block, before: Sequence[Block]) -> list[Block]:
    """The blocks that a block depends on, the last first."""
    reads = {n.buffer for n in loads_in(block.body)}
    found: list[Block] = []
    for maker in reversed(before):
        if written(maker) in reads:
            found.append(maker)
            reads |= {n.buffer for n in loads_in(maker.body)}
    return found


def _reductions_before(blocks: Sequence[Block]) -> Iterable[tuple[Block, list[Block]]]:
    for number, block in enumerate(blocks):
        if _reduce_axis(block) is not None:
            yield block, _made_of(block, blocks[:number])


def _members(func: PrimFunc, blocks: Sequence[Block], axis: Var) -> Cascade:
    reductions = [b for b in blocks if _reduce_axis(b) == axis]
    common = set(axes_of(reductions[0])).intersection(*map(axes_of, reductions))
    outer = tuple(a for a in axes_of(reductions[0]) if a in common)
    chain = {written(b) for b in reductions}
    affected = set(chain)
    results: list[Block] = []
    for block in blocks:
        if affected & {n.buffer for n in loads_in(block.body)}:
            affected.add(written(block))
            axes = [it.var for it in block.iter_vars]
            if block not in reductions and axis not in axes and common <= set(axes_of(block)):
                results.append(block)
    users = _users(func)
    inside: list[Block] = []
    for block in reversed(blocks):
        others = users.get(written(block), set()) - {block.name}
        mine = {b.name for b in (*inside, *reductions)}
        if {axis, *common} <= set(axes_of(block)) and others & mine:
            private = others <= mine and written(block) in alloc_sites(func)
            require(private or written(block) not in affected, block,
                    f"{written(block).name} is used by the reductions alone")  # fmt: skip
            inside += [block] if private else []
    members = [b for b in blocks if b in inside or b in reductions or b in results]
    dims = {written(b): b.body.indices for b in members if isinstance(b.body, BufferStore)}
    names = {b.name for b in members}
    sites = alloc_sites(func)
    shared = frozenset(b for b in dims if b not in sites or users.get(b, set()) - names)
    extents = {it.var: it.dom.extent for b in members for it in b.iter_vars}
    for block in members:
        for load in loads_in(block.body):
            known = load.buffer not in affected or load.buffer in dims
            require(known, block, f"{load.buffer.name} is made by blocks that can be fused")
    return Cascade(
        tuple(reversed(inside)), tuple(reductions), tuple(results), tuple(members), axis, outer,
        extents, dims, shared, (),  # type: ignore[arg-type]
    )  # fmt: skip


def _users(func: PrimFunc) -> dict[Buffer, set[str]]:
    """The names of the blocks that use each buffer; "" for statements outside of blocks."""
    found: dict[Buffer, set[str]] = {}
    assert isinstance(func.body, BlockRealize) and isinstance(func.body.block.body, SeqStmt)
    for nest in func.body.block.body.stmts:
        block = _block_of(nest)
        for n in walk(nest):
            if isinstance(n, BufferLoad | BufferStore):
                found.setdefault(n.buffer, set()).add("" if block is None else block.name)
    return found


def _require_together(found: Cascade, nests: Sequence[Stmt], place: Sequence[int]) -> None:
    """Raise if the blocks cannot run where the last of them does."""
    reads = {n.buffer for b in found.blocks for n in loads_in(b.body)}
    for number in set(range(place[0], place[-1])) - set(place):
        accesses = [n for n in walk(nests[number]) if isinstance(n, BufferLoad | BufferStore)]
        stores = {n.buffer for n in accesses if isinstance(n, BufferStore)}
        clash = stores & reads or {n.buffer for n in accesses} & found.dims.keys()
        names = ", ".join(sorted(b.name for b in clash))
        require(not clash, found.blocks[-1], f"{names} is not used between the blocks to fuse")
    for number in range(place[0]):
        accesses = [n for n in walk(nests[number]) if isinstance(n, BufferLoad | BufferStore)]
        clash = {n.buffer for n in accesses} & found.dims.keys()
        names = ", ".join(sorted(b.name for b in clash))
        require(not clash, found.blocks[-1], f"{names} is not used before the blocks to fuse")


def _require_forms(found: Cascade) -> None:
    """Raise unless each block writes by its own axes and reads what others wrote before by the
    same, and each reduction starts with the identity."""
    made: set[Buffer] = set()
    for block in found.blocks:
        reduces = any(it.kind != "spatial" for it in block.iter_vars)
        made |= {written(block)} if reduces else set()
        at = found.dims[written(block)]
        own = len(at) == len(axes_of(block)) and set(at) == set(axes_of(block))
        require(own, block, f"{written(block).name} is indexed by the block's own axes")
        for load in loads_in(block.body):
            same = load.indices == found.dims.get(load.buffer, load.indices)
            same = same and (load.buffer not in found.dims or load.buffer in made)
            require(same, block, f"{load.buffer.name} is read where its block wrote it")
        made.add(written(block))
        for it in block.iter_vars:
            same = found.extents[it.var] == it.dom.extent
            require(same, block, f"there are as many of {it.var.name} as elsewhere")
        if reduces:
            reduction = reduction_of(block)
            require(reduction is not None, block, "its body accumulates by one operation")
            assert reduction is not None
            begins = isinstance(block.init, BufferStore) and block.init.value == reduction.identity
            require(begins, block, "it begins with what changes nothing")
