"""Conditions under which the iterations of a loop may run in any order, or at once."""

from __future__ import annotations

from collections import Counter

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir.loops import Block, BlockRealize, Buffer, BufferRegion, For, LetStmt
from relaxlab.schedule.determined import determines
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.exact_region import region_written
from relaxlab.schedule.ranges import (
    ONE,
    Span,
    analyzer_at,
    bind_stmt,
    covers_inside,
    loop_env,
    spans_under,
)
from relaxlab.schedule.scope import read, written
from relaxlab.schedule.tree import (
    LoopPlace,
    describe_loop,
    path_to,
    realizes_under,
    walk_stmts,
)


def require_order_free(primitive: str, place: LoopPlace) -> None:
    """Raise ScheduleError unless the iterations of the loop may run in any order.

    They may when each block under it has only spatial and reduce axes, touches the elements it
    both reads and writes at one place (an accumulation), and reads of other blocks under the loop
    only what they made before in the same iteration.
    """
    for s in walk_stmts(place.loop.body):
        if isinstance(s, BlockRealize):
            break
        if not realizes_under(s) and not isinstance(s, For | Block):
            raise ScheduleError(
                primitive, describe_loop(place.loop), "every statement under the loop is in a block"
            )
    blocks = realizes_under(place.loop.body)
    for r in blocks:
        fault = _order_fault(r.block)
        if fault is not None:
            raise ScheduleError(primitive, describe_loop(place.loop), fault, about=(r.block.name,))
    if len(blocks) > 1:
        _require_no_exchange(primitive, place, blocks)


def _order_fault(block: Block) -> str | None:
    for iv in block.iter_vars:
        if iv.kind not in ("spatial", "reduce"):
            return (
                f"all axes are spatial or reduce; axis {iv.var.name} of block {block.name!r} "
                f"is {iv.kind}"
            )
    for w in block.writes:
        for r in block.reads:
            if r.buffer is w.buffer and not same_region(r, w):
                return (
                    f"no iteration depends on another; block {block.name!r} reads "
                    f"{w.buffer.name} elsewhere than where it writes it"
                )
    return None


def same_region(a: BufferRegion, b: BufferRegion) -> bool:
    """True if two regions are the same, expression by expression."""
    pairs = zip(a.region, b.region, strict=True)
    return a.buffer is b.buffer and all(x.min == y.min and x.extent == y.extent for x, y in pairs)


def require_own_elements(primitive: str, place: LoopPlace) -> None:
    """Raise ScheduleError unless iterations that run at once write elements of their own.

    Two may store the same value to an element, as where compute_at has each make the neighbours
    that it reads. An element with several stages (an accumulation, or two blocks that write it)
    would be seen half made by the other iteration. Each has its own copy of a local buffer.
    """
    if place.loop.extent == ONE:
        return
    an = analyzer_at(place)
    blocks = realizes_under(place.loop.body)
    writers = Counter(b for r in blocks for b in set(written(r.block)))
    for r in blocks:
        shared = [w.buffer for w in r.block.writes if w.buffer.scope == "global"]
        staged = [b for b in shared if writers[b] > 1 or _accumulates(r.block, b)]
        if staged and not _different_elements(place, r, an):
            raise ScheduleError(
                primitive, describe_loop(place.loop),
                f"each iteration provably writes elements of {staged[0].name} that no other one "
                f"does; block {r.block.name!r} builds them up in several stores",
                suggestion=f"set_scope({r.block.name!r}, 0, 'local'), or run the loop serially",
                about=(r.block.name, staged[0]),
            )  # fmt: skip


def _accumulates(block: Block, buffer: Buffer) -> bool:
    return block.init is not None or buffer in read(block)


def _different_elements(place: LoopPlace, realize: BlockRealize, an: Analyzer) -> bool:
    """True if no two iterations of the loop run the block for the same spatial axes."""
    path = path_to(place.loop, lambda s: s is realize)
    assert path is not None
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    values = [value for iv, value in pairs if iv.kind == "spatial"]
    bound = {s.var: None for s in path if isinstance(s, LetStmt)}
    with an.scope():
        for s in path[:-1]:
            bind_stmt(an, s)
        env = loop_env([s for s in path if isinstance(s, For)], an, bound)
        return determines(values, place.loop.loop_var, env, an)


def _require_no_exchange(primitive: str, place: LoopPlace, blocks: list[BlockRealize]) -> None:
    """No iteration reads what another one writes."""
    an = analyzer_at(place)
    bind_stmt(an, place.loop)
    made_here = {b for r in blocks for b in written(r.block)}
    for i, reader in enumerate(blocks):
        for buffer in dict.fromkeys(read(reader.block)):
            others = [r for r in blocks if r is not reader and buffer in written(r.block)]
            if buffer not in made_here or not others:
                continue
            earlier = [r for r in blocks[:i] if buffer in written(r.block)]
            if not _made_before(buffer, reader, earlier, place, an):
                raise ScheduleError(
                    primitive, describe_loop(place.loop),
                    f"no iteration depends on another; what block {reader.block.name!r} reads of "
                    f"{buffer.name} is not all written before in the same iteration",
                    suggestion="compute_at the producer under the loop",
                    about=(reader.block.name, buffer),
                )  # fmt: skip


def _made_before(
    buffer: Buffer,
    reader: BlockRealize,
    writers: list[BlockRealize],
    place: LoopPlace,
    an: Analyzer,
) -> bool:
    """True if one of the writers makes all that the reader needs in one iteration."""
    made = [
        written
        for r in writers
        for w in r.block.writes
        if w.buffer is buffer and (written := region_written(w, r, place, an)) is not None
    ]
    needed = [spans_under(x, reader, place, an) for x in reader.block.reads if x.buffer is buffer]
    return all(any(_covers_region(m, n, buffer, an) for m in made) for n in needed)


def _covers_region(
    made: tuple[Span, ...], needed: tuple[Span, ...], buffer: Buffer, an: Analyzer
) -> bool:
    dims = zip(made, needed, buffer.shape, strict=True)
    return all(covers_inside(m, n, dim, an) for m, n, dim in dims)
