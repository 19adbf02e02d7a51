"""Matrix products in float32 or float64, and reductions of anything else that is computed of a row
and a column: which kernels are one, and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from relaxlab.ir import loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Cast, PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.bind_expr import parts_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    blocks_of,
    follows_axis,
    found_block,
    inline_producers,
    is_spatial,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.elementwise import schedule_block
from relaxlab.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Product:
    """The reduction block; the dtype of its sums; its row and column axis numbers; the decoding
    producer, and which of its axes make columns and terms (0 without one); the matrix of rows; the
    one that is to be copied panel by panel, and the dimension that its columns are along, -1 for
    the last; True if the matrix of rows is transposed, so that the terms of a row are not
    neighbours; further matrices that are copied panel by panel."""

    product: str
    dtype: str
    row: int
    col: int
    decode: str | None
    decoded: tuple[int, int]
    rows: Buffer
    copied: Buffer | None
    columns: int
    across: bool
    further: tuple[Buffer, ...]

    @property
    def contiguous(self) -> bool:
        """True if the columns of the matrix that is copied are neighbours in memory."""
        return self.columns == -1

    @property
    def bytes(self) -> int:
        """Bytes of an element of the sums, which copied and decoded operands are taken to have."""
        return bytes_of(self.dtype)


def inlined(sch: Schedule) -> Schedule:
    """Inline transposes and other moves of operands, and what makes an operand into one block,
    which is kept; return the schedule."""
    for block in blocks_of(sch.func):
        if is_spatial(block) and _only_moves(block):
            with suppress(ScheduleError):
                sch.compute_inline(sch.get_block(block.name))
    blocks = blocks_of(sch.func)
    operands = {r.buffer for b in blocks if not is_spatial(b) for r in b.reads}
    inline_producers(sch, keep=[b.name for b in blocks if b.writes[0].buffer in operands])
    return sch


def _only_moves(block: Block) -> bool:
    return isinstance(block.body, loops.BufferStore) and isinstance(block.body.value, BufferLoad)


def find_product(func: PrimFunc, context: Context) -> Product | str:
    """The parts of a kernel, or why it is not a product that the rule is for."""
    blocks = blocks_of(func)
    reductions = [b for b in blocks if not is_spatial(b)]
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions, not one"
    product = reductions[0]
    dtype = product.writes[0].buffer.dtype
    if reduction_of(product) is None:
        return f"{product.name} is no reduction by one operator"
    if dtype not in ("float32", "float64", "int32", "int64"):
        return f"{product.name} is no reduction in 32 or 64 bits"
    spatial = [i for i, it in enumerate(product.iter_vars) if it.kind == "spatial"]
    if len(product.iter_vars) - len(spatial) != 1 or len(spatial) < 2:
        return f"{product.name} has not one reduce axis and two or more spatial axes"
    # The last two axes of the result; axes before them are a batch, whose loops stay outside.
    row, col = spatial[-2], spatial[-1]
    operands = _operands(product, row, col)
    if isinstance(operands, str):
        return operands
    left, right, *others = operands
    axes = [it.var for it in product.iter_vars]
    col_var, term = axes[col], axes[-1]
    decode = next((b for b in blocks if b.writes[0].buffer is right.buffer), None)
    decoded = _axes_of(decode, right, (col_var, term)) if decode else (0, 0)
    if decoded is None:
        return f"{product.name}: {right.buffer.name} is not made element by element along its axes"
    columns = _dimension_along(right, col_var, axes)
    transposed = _dimension_along(right, term, axes) == -1
    copied = None if decode or context.is_weight(func, right.buffer) else right.buffer
    # Any other order of axes is for the rule `contraction`, which packs it.
    if copied is not None and (columns is None or not (columns == -1 or transposed)):
        return f"{product.name}: neither {col_var} nor the terms are last in {right.buffer.name}"
    # Further matrices of columns are copied along with it, or read as vectors where they lie.
    further = [n for n in others if _dimension_along(n, col_var, axes) != -1]
    alike = all(n.indices[columns:] == right.indices[columns:] for n in further)
    if further and (copied is None or columns == -1 or not alike):
        return f"{product.name}: {col_var} is not last in {further[0].buffer.name}"
    made_by = decode.name if decode else None
    across = _dimension_along(left, term, axes) != -1
    return Product(
        product.name, dtype, row, col, made_by, decoded, left.buffer, copied, columns or 0, across,
        tuple(load.buffer for load in further),
    )  # fmt: skip


def _dimension_along(load: BufferLoad, axis: Var, axes: Sequence[Var]) -> int | None:
    """The dimension, -1 for the last, whose index follows an axis that no other index has; None if
    there is none."""
    along = [d for d, index in enumerate(load.indices) if axis in symbols_in(index)]
    if len(along) != 1 or not follows_axis(load.indices[along[0]], axis, axes):
        return None
    return along[0] - len(load.indices)


def _operands(block: Block, row: int, col: int) -> list[BufferLoad] | str:
    """The load of a matrix of rows and those of matrices of columns, or why there are none. What is
    computed of them, of further rows, and of what depends on one axis alone, is no matter to
    register tiles: `a * b` and `abs(a - b) * scale` have the same operands."""
    found = reduction_of(block)
    assert found is not None
    row_var, col_var, terms = (block.iter_vars[i].var for i in (row, col, -1))
    loads = dict.fromkeys(n for n in walk(found.value) if isinstance(n, BufferLoad))
    used = {load: set(symbols_in(load.indices)) for load in loads}
    # An operand indexed by both axes would be read once per result: nothing for a register tile to
    # share.
    if any({row_var, col_var} <= of for of in used.values()):
        return f"{block.name}: an operand is indexed by both {row_var} and {col_var}"
    left, right = (
        [load for load, of in used.items() if {axis, terms} <= of] for axis in (row_var, col_var)
    )
    if not left or not right:
        along = row_var if right else col_var
        return f"{block.name} reads no matrix along {along} and {terms}"
    return [left[0], *right]


def _axes_of(decode: Block, load: BufferLoad, read: tuple[Var, Var]) -> tuple[int, int] | None:
    """Return which of the block's axes make what a load reads along two variables; None if one of
    them does not go through consecutive elements of a dimension, or some axis is reduced."""
    made = [r.min for r in decode.writes[0].region]
    axes: list[PrimExpr] = [it.var for it in decode.iter_vars]
    if not is_spatial(decode) or not all(v in load.indices for v in read):
        return None
    found = [made[load.indices.index(v)] for v in read]
    if not all(e in axes for e in found):
        return None
    col, k = (axes.index(e) for e in found)
    return col, k


def product_of(func: PrimFunc, context: Context) -> Product:
    """Return the parts of a kernel known to be a product. Raises ScheduleError if a version is
    none."""
    parts = find_product(func, context)
    if isinstance(parts, str):
        raise ScheduleError("matmul", "kernel", f"the version is still a matrix product: {parts}")
    return parts


def with_rows_computed_once(
    sch: Schedule, parts: Product, columns: int | None, panel: int, context: Context
) -> Product:
    """Compute what a product takes of its rows, such as `a / scale`, before it and once, where more
    than two panels of columns would each compute it again; returns the parts of the product then.
    What is only converted or compared is left to the panels."""
    if columns is not None and columns <= 2 * panel:
        return parts
    block = found_block(sch, sch.get_block(parts.product))
    inside = [i for i in range(len(block.iter_vars)) if i != parts.col]
    values = parts_of(block, {block.iter_vars[i].var for i in inside})
    read = {n.buffer for value in values for n in walk(value) if isinstance(n, BufferLoad)}
    plain = all(isinstance(value, Cast) or value.dtype == "bool" for value in values)
    if len(values) != 1 or plain or parts.rows not in read:
        return parts
    with suppress(ScheduleError):
        sch.bind_expr(sch.get_block(parts.product), inside, "global")
    return product_of(sch.func, context)


def schedule_rows(sch: Schedule, parts: Product, context: Context) -> None:
    """Schedule the block that computes the matrix of rows, where there is one, by itself."""
    for block in blocks_of(sch.func):
        if is_spatial(block) and any(w.buffer is parts.rows for w in block.writes):
            schedule_block(sch, block, context)
