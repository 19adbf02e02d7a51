"""Rows in registers: each thread keeps its elements of a row from one pass over it to the next.

All blocks of a row give a thread the same elements. A buffer that every block touches at its own
element alone, be it an operand or made by one block for another, is therefore private to threads:
each element is loaded or computed once, and no thread waits until another has stored it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore
from relaxlab.ir.node import walk
from relaxlab.schedule.rules.base import blocks_of, constant, found_block
from relaxlab.schedule.rules.decisions import ROW_IN_REGISTERS
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Share:
    """The way in which threads share a row: groups of `width` neighbours go to `threads` threads
    in turn. A thread that keeps nothing loads `at_once` groups before it uses the first."""

    threads: int
    width: int
    at_once: int

    def own(self, elements: int) -> int:
        """The most elements that a thread has of a row of so many."""
        return -(-elements // (self.threads * self.width)) * self.width


def keep_in_registers(
    sch: Schedule, names: list[str], rows: list[LoopRV], share: Share, facts: Facts,
    about: str | None,
) -> list[str]:  # fmt: skip
    """Keep in registers what fits of the rows that the blocks `names` touch. Returns the blocks
    that do so, behind the copies of operands."""
    blocks = [found_block(sch, sch.get_block(name)) for name in names]
    kept = _kept(blocks, sch, len(rows), share, facts)
    if not ROW_IN_REGISTERS.where(lambda yes: bool(kept) or not yes).of(sch, bool(kept), about):
        return []
    found: list[str] = []
    copies: list[str] = []
    for buffer, users in kept.items():
        first = blocks[users[0]]
        if any(w.buffer is buffer for w in first.writes):
            made = sch.get_block(first.name)
            sch.set_scope(made, 0, "local")
        else:
            number = next(i for i, r in enumerate(first.reads) if r.buffer is buffer)
            readers = [sch.get_block(blocks[i].name) for i in users]
            made = sch.cache_read(sch.get_block(first.name), number, "local", readers)
            sch.compute_at(made, rows[-1], preserve_unit_loops=True)
            copies.append(found_block(sch, made).name)
        _flatten(sch, made, len(rows))
        found += [blocks[i].name for i in users]
    return [*copies, *dict.fromkeys(found)]


def _flatten(sch: Schedule, block: BlockRV, rank: int) -> None:
    """Store what the block writes with one axis inside of the row, of which a thread has parts."""
    buffer = found_block(sch, block).writes[0].buffer
    axes = tuple(Var(f"i{n}") for n in range(buffer.ndim))
    place: PrimExpr = const(0)
    for axis, extent in zip(axes[rank:], buffer.shape[rank:], strict=True):
        place = place * extent + axis
    if buffer.ndim > rank + 1:
        sch.transform_layout(block, ("write", 0), IndexMap(axes, (*axes[:rank], place)))


def operands_at_own_element(sch: Schedule, block: Block, rank: int) -> list[Buffer]:
    """The parameters that a block reads at its own element alone."""
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    others = {n.buffer for n in loads if not _at_own_element(n, block, rank)}
    return [
        r.buffer for r in block.reads if r.buffer in sch.func.params and r.buffer not in others
    ]


def _kept(
    blocks: Sequence[Block], sch: Schedule, rank: int, share: Share, facts: Facts
) -> dict[Buffer, list[int]]:
    """The buffers to keep, with the numbers of the blocks that touch each: all that may be, or
    else only what blocks make, or none, as fits into half of the registers."""
    if not rank or not facts.shuffles:
        return {}
    every = _candidates(blocks, sch, rank)
    # Operands are loaded before the first block.
    live = {
        b: _Live(_size(b, rank, share), u[0] if _is_made(b, blocks) else 0, u[-1])
        for b, u in every.items()
    }
    made = {b: u for b, u in every.items() if _is_made(b, blocks)}
    room = facts.registers // 2 // share.threads
    for chosen in (every, made):
        if _registers([live[b] for b in chosen]) <= room:
            return chosen
    return {}


def _candidates(blocks: Sequence[Block], sch: Schedule, rank: int) -> dict[Buffer, list[int]]:
    """The buffers that several blocks touch, each at its own element alone, and that are no
    results; with the numbers of these blocks."""
    users: dict[Buffer, list[int]] = {}
    others: set[Buffer] = set()
    for block in blocks_of(sch.func):
        number = next((n for n, b in enumerate(blocks) if b is block), None)
        for access in _accesses(block):
            if number is not None and _at_own_element(access, block, rank):
                users.setdefault(access.buffer, []).append(number)
            else:
                others.add(access.buffer)
    return {
        buffer: sorted(set(numbers))
        for buffer, numbers in users.items()
        if buffer not in others
        and buffer.scope == "global"
        and len(set(numbers)) > 1
        and not (_is_made(buffer, blocks) and buffer in sch.func.params)
    }


def _is_made(buffer: Buffer, blocks: Sequence[Block]) -> bool:
    return any(w.buffer is buffer for b in blocks for w in b.writes)


def _accesses(block: Block) -> Iterator[BufferLoad | BufferStore]:
    parts = (block.body,) if block.init is None else (block.body, block.init)
    return (n for part in parts for n in walk(part) if isinstance(n, BufferLoad | BufferStore))


def _at_own_element(access: BufferLoad | BufferStore, block: Block, rank: int) -> bool:
    """True if an access is at the block's axes, and these go over the whole row."""
    axes = block.iter_vars
    row = [constant(it.dom.extent) for it in axes[rank:]]
    whole = row == [constant(d) for d in access.buffer.shape[rank:]] and None not in row
    return whole and access.indices == tuple(it.var for it in axes) and math.prod(row) > 1  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Live:
    """The registers of a thread that a buffer takes, from its first block to its last reader."""

    registers: int
    first: int
    last: int


def _registers(kept: Sequence[_Live]) -> int:
    """The registers that buffers take together behind the block where they take most."""
    blocks = range(max((x.last for x in kept), default=0) + 1)
    return max(sum(x.registers for x in kept if x.first <= n < x.last) for n in blocks)


def _size(buffer: Buffer, rank: int, share: Share) -> int:
    elements = math.prod(constant(d) or 1 for d in buffer.shape[rank:])
    return share.own(elements) * bytes_of(buffer.dtype) // REGISTER_BYTES
