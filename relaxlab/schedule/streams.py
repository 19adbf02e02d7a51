"""Results too large for caches: they are stored around them.

An ordinary store first reads the cache line that it writes to, and later evicts another. Where a
result is as large as several cores' caches, storing it non-temporally takes half the time, and who
reads it next does not wait longer. Of smaller results it would, so the kernel decides when it runs.

The size was measured on two machines: a Xeon that says its last-level cache has 480 MB, and a
Zen with 32 MB, half of which such a result leaves to what is read. What a virtual machine says of
a cache that it shares with others would not have told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.schedule import LoopRV, Schedule

NON_TEMPORAL = "non_temporal"
"""The annotation of a parallel loop with the names of the buffers it may store non-temporally."""
STREAM_BYTES = 1 << 24
"""The size from which on it does."""


def stream_results(sch: Schedule, loop: LoopRV, ahead: int = 0) -> None:
    """Annotate a parallel loop with the results that may be large and that the kernel itself does
    not read. What it reads then is fetched so many iterations `ahead`, if any."""
    nodes = list(walk(sch.func.body))
    read = {n.buffer for n in nodes if isinstance(n, BufferLoad)}
    stored = {n.buffer for n in nodes if isinstance(n, BufferStore)}
    results = [b for b in sch.func.buffers if b in stored - read and _may_be_large(sch.func, b)]
    if results:
        sch.annotate(loop, NON_TEMPORAL, _names(results))
        if ahead:
            fetched = _names(b for b in sch.func.buffers if b in read)
            sch.annotate(loop, "prefetch", (ahead, fetched))


def _names(buffers: Iterable[Buffer]) -> tuple[str, ...]:
    return tuple(b.name for b in buffers)


def _may_be_large(func: PrimFunc, buffer: Buffer) -> bool:
    count = shape_analyzer(func).upper_bound(math.prod(buffer.shape, start=expr.const(1)))
    return count is None or count * bytes_of(buffer.dtype) >= STREAM_BYTES
