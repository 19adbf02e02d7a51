"""Non-temporal stores of results that exceed the caches.

An ordinary store first reads the cache line that it writes to, and later evicts another. For a
result as large as several cores' caches, non-temporal stores take half the time, and its next
reader is not slowed down. Readers of smaller results would be, so the kernel decides at run time.

The threshold was measured on two machines (benchmarks/NOTES.md, *Non-temporal stores*): a Xeon that
reports a last-level cache of 480 MB, and a Zen with 32 MB, of which input and result get half each.
The reported size would not do: a virtual machine shares the cache with others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.schedule import LoopRV, Schedule

NON_TEMPORAL = "non_temporal"
"""The annotation of a parallel loop with the names of the buffers it may store non-temporally."""


def streamed_bytes(facts: Facts) -> int:
    """Bytes from which on results are stored non-temporally: half of a last-level cache. Below,
    reading the result back took up to ten times as long."""
    return facts.cache(3) // 2


def stream_results(sch: Schedule, loop: LoopRV, facts: Facts, distance: int = 0) -> None:
    """Annotate a parallel loop with the results that may exceed the caches of a machine and that
    the kernel itself does not read. `distance`: iterations by which its inputs are then prefetched;
    0 for none."""
    large = streamed_bytes(facts)
    nodes = list(walk(sch.func.body))
    read = {n.buffer for n in nodes if isinstance(n, BufferLoad)}
    stored = {n.buffer for n in nodes if isinstance(n, BufferStore)}
    results = [b for b in sch.func.buffers if b in stored - read and _may_have(sch.func, b, large)]
    if results:
        sch.annotate(loop, NON_TEMPORAL, _names(results))
        if distance:
            fetched = _names(b for b in sch.func.buffers if b in read)
            sch.annotate(loop, "prefetch", (distance, fetched))


def _names(buffers: Iterable[Buffer]) -> tuple[str, ...]:
    return tuple(b.name for b in buffers)


def _may_have(func: PrimFunc, buffer: Buffer, size: int) -> bool:
    """True if nothing proves that a buffer has fewer bytes than these."""
    count = shape_analyzer(func).upper_bound(math.prod(buffer.shape, start=expr.const(1)))
    return count is None or count * bytes_of(buffer.dtype) >= size
