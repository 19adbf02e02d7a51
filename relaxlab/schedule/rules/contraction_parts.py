"""Contractions that a register tile computes: which kernels are one, and their parts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import Block, Buffer, BufferLoad, PrimFunc
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    is_spatial,
    output_dtype,
    sum_of_products,
)
from relaxlab.schedule.rules.context import Context

WASTE = 1.125
"""Most that an axis may grow when it is rounded up to whole vectors: the masked lanes take time
like the others, so an eighth more work at most."""
UNPACKED_WASTE = 1.4
"""The same for an axis along which the operand is read where it lies: packing takes longer than a
third more lanes. Images of 7 x 7 have 49 places, in four vectors of 16."""
SCATTER_TERMS = 64
"""Terms from which on a sum takes longer than storing it between others: a scatter of 16 results
costs as much as 100 multiply-adds. With 3 terms scattered results took 2.5 times as long, with 27
1.2 times."""
ROWS = 8
"""Rows that an axis needs to fill a register tile."""
UNROLLED = 3
"""Most terms along the last reduced axis that are unrolled: windows of 3 x 3 took 0.9 times as
long."""
PHASES = 4
"""Most phases with code of their own, in which the numbers of terms are constants: a transposed
convolution of 3 x 3 with a stride of 2 took 0.78 times as long."""
FEW_ROWS = 3
"""Rows that a constant axis needs to be preferred to a symbolic one."""
IMAGE_ROWS = 4
"""The same where the symbolic one is a side of an image: 3 x 3 of 7 x 9 with a stride of 2 has five
places along the other side."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The reduction block; the axes that are the rows and the columns of its tiles; the operand
    that the columns index; the reduced axes in the order in which the other operand is read;
    True if operands are read at axes, not in windows; True if the loop over the last of the reduced
    axes is unrolled; the axes each of whose values has code of its own."""

    product: str
    row: int
    col: int
    vectors: Buffer
    reduce: tuple[int, ...]
    is_einsum: bool
    unroll_last: bool
    phases: tuple[int, ...]


def find_parts(
    func: PrimFunc, context: Context, *, few_terms: bool = False, few_columns: bool = False
) -> Parts | str:
    """The parts of a kernel, or why it is not a contraction that the rule is for. few_terms: an
    unknown number of terms counts as few instead of many; few_columns: so do unknown extents of
    axes that may be columns beside windows."""
    reductions = [b for b in blocks_of(func) if not is_spatial(b)]
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions, not one"
    block = reductions[0]
    loads = sum_of_products(block)
    if loads is None:
        return f"{block.name} is no sum of products of two loads"
    lanes = context.target.lanes(output_dtype(block))
    deciding = deciding_axes(block)
    axes = [i for i, it in enumerate(block.iter_vars) if it.kind == "spatial"]
    spatial = [i for i in axes if i not in deciding]  # all results of a tile have as many terms
    # With one spatial axis there are no rows to share a vector of columns; without reduced ones no
    # sums.
    if len(spatial) < 2 or len(block.iter_vars) == len(axes):
        return f"{block.name} has fewer than two spatial axes, or no reduce axis"
    terms = [constant(it.dom.extent) for it in block.iter_vars if it.kind != "spatial"]
    columns = _columns(block, spatial, loads, lanes, few_columns)
    unknown = 1 if few_terms else SCATTER_TERMS
    if math.prod(unknown if n is None else n for n in terms) < SCATTER_TERMS:
        columns.insert(0, spatial[-1])
    for col in columns:
        var = block.iter_vars[col].var
        left, right = loads if var in symbols_in(loads[1].indices) else loads[::-1]
        row = _row_axis(block, [a for a in spatial if a != col], left, right)
        if var not in symbols_in(left.indices) and row is not None:
            # Terms in the order in which the operand without columns lies, so that its lines are
            # read through.
            reduce = _reading_order(block, left)
            phases = deciding if _are_few(block, deciding) else ()
            window = None
            if keeps_order(func, block):
                reduce = tuple(sorted(reduce))
            else:
                window = _window_axis(block, block.iter_vars[row].var, right)
            if window is not None:
                reduce = (*(a for a in reduce if a != window), window)
            plain = all(map(is_plain, loads))
            unrolled = window is not None or _is_short(block.iter_vars[reduce[-1]].dom.extent)
            return Parts(block.name, row, col, right.buffer, reduce, plain, unrolled, phases)
    return f"{block.name} has no axis that one operand alone depends on, or no rows beside it"


def deciding_axes(block: Block) -> tuple[int, ...]:
    """Return the axes on which the extents of others depend, as those of the phases of a transposed
    convolution, which have different numbers of terms."""
    used = symbols_in(tuple(it.dom.extent for it in block.iter_vars))
    return tuple(i for i, it in enumerate(block.iter_vars) if it.var in used)


def _are_few(block: Block, axes: tuple[int, ...]) -> bool:
    """True if a tile may have code of its own for each value of the axes."""
    sizes = [constant(block.iter_vars[i].dom.extent) for i in axes]
    return math.prod(PHASES + 1 if n is None else n for n in sizes) <= PHASES


def _is_short(extent: PrimExpr) -> bool:
    """True if so many terms are unrolled."""
    return (constant(extent) or UNROLLED + 1) <= UNROLLED


def _columns(
    block: Block, spatial: list[int], loads: tuple[BufferLoad, BufferLoad], lanes: int, few: bool
) -> list[int]:
    """Axes that may be the columns, best first: those that fill vectors and index an operand that
    can be packed in panels, or is read as vectors where it lies, the last axis of the result before
    others; then that one in any case, its vectors masked; then symbolic ones, which may be 1, as a
    batch may. Beside windows a symbolic extent is that of channels, and fills vectors unless they
    are `few` (NOTES, *Channels and strides of symbolic images*)."""
    plain = [load for load in loads if is_plain(load)]
    last, full, symbolic = spatial[-1], list[int](), list[int]()
    for axis in spatial:
        it = block.iter_vars[axis]
        size = constant(it.dom.extent)
        uses = [load for load in plain if it.var in load.indices]
        in_place = axis == last and all(load.indices[-1] == it.var for load in uses)
        waste = UNPACKED_WASTE if in_place else WASTE
        if uses and size is None:
            symbolic.append(axis)
        elif uses and size is not None and -(-size // lanes) * lanes <= waste * size:
            full.append(axis)
    # Elsewhere than along the last axis results are scattered, 1.5 times the time (NOTES, *Results
    # between others*).
    first = [last] if last in (*full, *symbolic) else []
    strided = _is_strided(loads, block.iter_vars[last].var)
    channels = len(plain) < len(loads) and (strided or not few)
    rest = (*symbolic, last) if channels else (last, *symbolic)
    return list(dict.fromkeys((*first, *full, *rest)))


def _is_strided(loads: tuple[BufferLoad, BufferLoad], axis: Var) -> bool:
    """True if neighbours along an axis are read from places further apart, as in a convolution with
    a stride."""
    an = Analyzer()
    found = [an.linear_in(load.indices[-1], (axis,)) for load in loads]
    return any(linear is None or constant(linear[0]) not in (0, 1) for linear in found)


def is_plain(load: BufferLoad) -> bool:
    """True if a load is at axes or fixed places, not in windows."""
    return all(isinstance(i, Var | IntImm) for i in load.indices)


def _row_axis(block: Block, axes: list[int], left: BufferLoad, right: BufferLoad) -> int | None:
    """Return the axis to tile as rows, whose values share loads: of vectors, or (in a depthwise
    convolution) of the factors that vectors are multiplied by. The last one that has a tile of
    rows, or else the longest."""
    places = window_places(i for load in (left, right) for i in load.indices)
    for load in (right, left):
        used = symbols_in(load.indices)
        extents = {
            a: constant(block.iter_vars[a].dom.extent)
            for a in axes
            if block.iter_vars[a].var not in used
        }
        # A symbolic extent, such as a batch, may be 1: every row of its tile but one is idle then.
        # Places of windows are those of an image, which has many, but how many is known of others.
        sides = {a for a in extents if block.iter_vars[a].var in places}
        # Rows of an image see vectors again that are loaded for those beside them, other images do
        # not: grouped 3 x 3 over eight of 56 x 56, both symbolic, took twice as long in their rows.
        most = FEW_ROWS if sides and load is left else ROWS
        sizes = {
            a: min(n or (IMAGE_ROWS if a in sides else FEW_ROWS), ROWS if a in sides else most)
            for a, n in extents.items()
            if n != 1
        }
        if sizes:
            return max(sizes, key=lambda a: (sizes[a], extents[a] is not None, a))
    return None


def window_places(indices: Iterable[PrimExpr]) -> set[Var]:
    """Return the variables of those indices that are sums of several, as places of windows are."""
    return {v for i in indices if len(symbols_in(i)) > 1 for v in symbols_in(i)}


def _window_axis(block: Block, row: Var, vectors: BufferLoad) -> int | None:
    """Return the reduced axis that is added to the rows where vectors are read, as the rows of a
    window are. With its loop unrolled, a vector is loaded once for all rows of a tile that see it:
    7 rows of a window of 7 load 13 vectors instead of 49."""
    for axis, it in enumerate(block.iter_vars):
        extent = constant(it.dom.extent)
        if it.kind == "spatial" or extent is None or not 1 < extent <= ROWS:
            continue
        if any({row, it.var} <= set(symbols_in(i)) for i in vectors.indices):
            return axis
    return None


def _reading_order(block: Block, load: BufferLoad) -> tuple[int, ...]:
    """The reduced axes, the one that moves fastest through the operand last."""

    def depth(axis: int) -> int:
        var = block.iter_vars[axis].var
        return max((d for d, i in enumerate(load.indices) if var in symbols_in(i)), default=-1)

    reduce = [i for i, it in enumerate(block.iter_vars) if it.kind != "spatial"]
    return tuple(sorted(reduce, key=depth))
