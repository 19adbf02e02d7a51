"""The order in which floating-point values are accumulated.

Sums and products are rounded at each step, so another order gives another result. A loop function
with the attribute `KEEP_ORDER` keeps the order of its loops: what would change it is refused.
Integers wrap, maxima and minima pick, so their order is free.
"""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.loops import Block, BufferStore, PrimFunc
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.tree import describe_block

KEEP_ORDER = "keep_order"
"""The attribute of a loop function whose floating-point reductions keep their order."""


def depends_on_order(block: Block) -> bool:
    """True if the block accumulates and its result depends on the order of its iterations."""
    if isinstance(block.body, BufferStore) and isinstance(block.body.value, expr.Max | expr.Min):
        return False
    return any(is_float(region.buffer.dtype) for region in block.writes)


def keeps_order(func: PrimFunc, block: Block) -> bool:
    """True if the block is a reduction whose order must not change."""
    reduces = any(it.kind != "spatial" for it in block.iter_vars)
    return bool(func.attrs.get(KEEP_ORDER)) and reduces and depends_on_order(block)


def require_reassociable(primitive: str, func: PrimFunc, block: Block) -> None:
    """Raise ScheduleError where the block's order must not change."""
    if keeps_order(func, block):
        raise ScheduleError(
            primitive, describe_block(block),
            f"the block's values may be accumulated in another order; {KEEP_ORDER!r} forbids it",
            suggestion="compile for a target with reassociate=True", about=(block.name,),
        )  # fmt: skip
