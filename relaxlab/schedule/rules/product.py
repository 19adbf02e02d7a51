"""Matrix products that are summed in float32 or float64: which kernels are one, and their parts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from relaxlab.ir import loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, PrimFunc
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import blocks_of, inline_producers, is_spatial, sum_of_products
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Product:
    """The reduction block; the dtype of its sums; its row and column axis numbers; the decoding
    producer, and which of its axes make columns and terms (0 without one); the matrix of rows; the
    one that is to be copied panel by panel, and whether its columns are the vectors' lanes there;
    True if the matrix of rows is transposed, so that the terms of a row are not neighbours."""

    product: str
    dtype: str
    row: int
    col: int
    decode: str | None
    decoded: tuple[int, int]
    rows: Buffer
    copied: Buffer | None
    contiguous: bool
    across: bool

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
    loads, dtype = sum_of_products(product), product.writes[0].buffer.dtype
    if loads is None or dtype not in ("float32", "float64"):
        return f"{product.name} is no sum of products of two loads in float32 or float64"
    spatial = [i for i, it in enumerate(product.iter_vars) if it.kind == "spatial"]
    if len(product.iter_vars) - len(spatial) != 1 or len(spatial) < 2:
        return f"{product.name} has not one reduce axis and two or more spatial axes"
    # The last two axes of the result; axes before them are a batch, whose loops stay outside.
    row, col = spatial[-2], spatial[-1]
    left, right = loads
    # `acc += a * b` may have either operand first: `right` is the one with the columns.
    if product.iter_vars[col].var not in symbols_in(right.indices):
        left, right = right, left
    row_var, col_var = product.iter_vars[row].var, product.iter_vars[col].var
    # An operand indexed by both axes would be read once per result: nothing for a register tile to
    # share.
    if row_var in symbols_in(right.indices) or col_var in symbols_in(left.indices):
        return f"{product.name}: an operand is indexed by both {row_var} and {col_var}"
    decode = next((b for b in blocks if b.writes[0].buffer is right.buffer), None)
    decoded = _axes_of(decode, right, (col_var, product.iter_vars[-1].var)) if decode else (0, 0)
    if decoded is None:
        return f"{product.name}: {right.buffer.name} is not made element by element along its axes"
    contiguous = right.indices[-1] == col_var
    transposed = right.indices[-2:] == (col_var, product.iter_vars[-1].var)
    copied = None if decode or context.is_weight(func, right.buffer) else right.buffer
    # Any other order of axes is for the rule `contraction`, which packs it.
    if copied is not None and not (contiguous or transposed):
        return f"{product.name}: {col_var} and the terms are not last in {right.buffer.name}"
    made_by = decode.name if decode else None
    across = left.indices[-1] != product.iter_vars[-1].var
    matrices = left.buffer, copied
    return Product(product.name, dtype, row, col, made_by, decoded, *matrices, contiguous, across)


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
