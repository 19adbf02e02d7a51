"""Attention: a product, a softmax over its rows, and a product with the softmaxed rows.

If the scores of a query row have a bound that fits shared memory, or there is one row only, a block
of threads works on a row of one head. Else it works on a tile of rows, whose positions come in
chunks, with a running maximum (`online_softmax`): only a chunk's scores are stored.
"""

from __future__ import annotations

from relaxlab.schedule.attention_pattern import find_attention
from relaxlab.schedule.order import KEEP_ORDER
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    fitting,
    is_spatial,
    sum_of_products,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules_gpu import nested
from relaxlab.schedule.rules_gpu.rows import schedule_rows
from relaxlab.schedule.schedule import Schedule

_SHAPE = [False, True, False, True, False, False, True]
"""True for the spatial ones of product, epilogue, row maximum, weights, sum, product, epilogue."""
ROWS = 8
"""Query rows per tile: with `CHUNK` positions, the scores take 2 KB of shared memory."""
CHUNK = 64
"""Positions per chunk: two for each thread of a warp. Not measured."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits exactly these seven blocks, the results' axes being batch, row, head and feature."""
    func, blocks = sch.func, blocks_of(sch.func)
    if [is_spatial(b) for b in blocks] != _SHAPE:
        return "its blocks are not a product, a softmax over its rows, and a product"
    products = [sum_of_products(b) is not None for b in blocks]
    if not products[0] or products[4] == products[5] or len(blocks[-1].iter_vars) != 4:
        return f"{blocks[0].name}, or what {blocks[-1].name} reads, is no product of four axes"
    *_, row, position = (it.dom.extent for it in blocks[1].iter_vars)
    # Products, scores and weights of a row, in float32.
    room = context.target.facts.shared
    fits = (constant(position) or room) * 3 * 4 <= room
    if fits or func.attrs.get(KEEP_ORDER) or find_attention(func) is None:
        return _by_rows(sch, context)
    with_versions(
        sch,
        context,
        row,
        [1],
        lambda one, most: _by_tiles(one, context) if most is None else _by_rows(one, context),
    )
    return sch


def _by_rows(sch: Schedule, context: Context) -> Schedule:
    names = [b.name for b in blocks_of(sch.func)]
    rows = sch.get_loops(sch.get_block(names[-1]))[:3]
    for name in reversed(names[:-1]):
        sch.compute_at(sch.get_block(name), rows[-1], preserve_unit_loops=True)
    schedule_rows(sch, names, rows, context.target.facts)
    sch.compact_buffers()
    return sch


def _by_tiles(sch: Schedule, context: Context) -> Schedule:
    sch.online_softmax(ROWS, CHUNK, CHUNK)
    return fitting(nested.apply(sch, context))
