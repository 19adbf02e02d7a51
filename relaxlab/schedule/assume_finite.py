"""assume_finite: a sum whose terms a mask leaves out, without asking the mask.

A masked weight is zero, and zero times a number is zero: only where a value is infinite or no
number does it matter that the term is left out. So all terms are added, and where the results are
not finite then, they are computed again with the mask.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    PrimFunc,
    Stmt,
    nested,
)
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ONE, ZERO
from relaxlab.schedule.regions import refreshed, with_alloc
from relaxlab.schedule.rfactor import Reduction, reduction_of
from relaxlab.schedule.scope import axis_kinds, is_reduction, producers_of
from relaxlab.schedule.tree import (
    TRUE,
    BlockPlace,
    describe_block,
    find_block,
    fresh_block_name,
    fresh_buffer_name,
    vars_in,
    with_fresh_binders,
)

PRIMITIVE = "assume_finite"


def masked_product(block: Block) -> tuple[Reduction, PrimExpr, expr.Mul] | None:
    """The sum that a block computes, its mask and its terms, where these are products that are zero
    where the mask holds: `X[…] = X[…] + select(mask, 0, a * b)`."""
    found = reduction_of(block)
    if found is None or found.op is not expr.Add:
        return None
    match found.value:
        case expr.Select(mask, expr.FloatImm(0), expr.Mul() as product):
            return found, mask, product
        case _:
            return None


def assume_finite(func: PrimFunc, name: str) -> tuple[PrimFunc, str, str, str]:
    """Add up all terms of a masked sum, and compute the results again where they are not finite.

    Returns the function and the names of the blocks that ask if results are finite (`X_finite`),
    and that initialise (`X_again_init`) and accumulate (`X_again`) what is computed again, all
    results of a term before the next one.
    """
    place = find_block(func, name, PRIMITIVE)
    sum_ = _masked_sum(place)
    buffer = sum_.reduction.buffer
    zero = Buffer(fresh_buffer_name(func, f"{buffer.name}_zero"), (ONE,), buffer.dtype,
                  scope="local")  # fmt: skip
    names = [fresh_block_name(func, f"{name}_{x}") for x in ("finite", "again_init", "again")]
    again = IfThenElse(
        expr.Call("bool", "isnan", (BufferLoad(zero, (ZERO,)),)),
        loops.seq(_initialised(sum_, names[1]), _accumulated(sum_, names[2])),
    )
    stmts = loops.seq(_plain(sum_), _asked(sum_, zero, names[0]), again)
    changed = place.replaced(stmts, _top(place))
    return with_alloc(changed, place.scope.name, zero), names[0], names[1], names[2]


@dataclass(frozen=True, slots=True)
class _MaskedSum:
    """A block that adds up masked products. weight: the factor that is zero where the mask holds.
    results, terms: the loops around it, by what they are over."""

    place: BlockPlace
    reduction: Reduction
    mask: PrimExpr
    product: expr.Mul
    weight: PrimExpr
    results: tuple[For, ...]
    terms: tuple[For, ...]

    @property
    def axes(self) -> list[tuple[IterVar, PrimExpr]]:
        """The axes of the results, and their values."""
        realize = self.place.realize
        pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        return [(iv, value) for iv, value in pairs if iv.kind == "spatial"]


def _masked_sum(place: BlockPlace) -> _MaskedSum:
    """Raise ScheduleError unless the block is a masked sum, alone in its loops."""
    block, what = place.block, describe_block(place.block)
    found = masked_product(block)
    if found is None or not is_reduction(block, place.scope):
        raise ScheduleError(
            PRIMITIVE, what,
            "the block sums products under a mask, X[…] = X[…] + select(mask, 0, a * b)",
        )  # fmt: skip
    reduction, mask, product = found
    weights = [side for side in (product.a, product.b) if _is_zero_where(place, side, mask)]
    if not weights:
        raise ScheduleError(
            PRIMITIVE, what, "a factor is what another block makes, and zero where the mask holds"
        )
    inside = place.path[_top(place) : -1]
    if inside != place.loops or place.realize.predicate != TRUE:
        raise ScheduleError(PRIMITIVE, what, "nothing but loops is around the block, for all terms")
    if not isinstance(block.init, BufferStore) or block.init.value != reduction.identity:
        raise ScheduleError(PRIMITIVE, what, "sums start at zero")
    kinds = {loop: axis_kinds(place.realize, loop.loop_var) for loop in place.loops}
    mixed = [loop for loop, kind in kinds.items() if len(kind) != 1]
    results = tuple(loop for loop, kind in kinds.items() if kind == {"spatial"})
    of_terms = {loop.loop_var for loop in place.loops if loop not in results}
    if mixed or any((vars_in(s.min) | vars_in(s.extent)) & of_terms for s in results):
        raise ScheduleError(PRIMITIVE, what, "each loop is over results or over terms")
    terms = tuple(loop for loop in place.loops if loop not in results)
    return _MaskedSum(place, reduction, mask, product, weights[0], results, terms)


def _top(place: BlockPlace) -> int:
    """The place in the path of the outermost loop around the block, or of the block."""
    return place.path.index(place.loops[0]) if place.loops else len(place.path) - 1


def _is_zero_where(place: BlockPlace, factor: PrimExpr, mask: PrimExpr) -> bool:
    """True if the factor is an element that its maker sets to zero where the mask holds."""
    if not isinstance(factor, BufferLoad):
        return False
    makers = [r.block for r in producers_of(place.block, place.scope)
              if any(w.buffer is factor.buffer for w in r.block.writes)]  # fmt: skip
    if len(makers) != 1:
        return False
    match makers[0].body:
        case BufferStore(_, expr.Select(own, expr.FloatImm(0), _), indices):
            axes = {i: at for i, at in zip(indices, factor.indices, strict=True)
                    if isinstance(i, Var)}  # fmt: skip
            return len(axes) == len(indices) and substitute(own, axes) == mask
        case _:
            return False


def _plain(s: _MaskedSum) -> Stmt:
    """The sum of all terms."""
    block, reduction = s.place.block, s.reduction
    total = BufferLoad(reduction.buffer, reduction.indices)
    store = BufferStore(reduction.buffer, reduction.combined(total, s.product), reduction.indices)
    block = refreshed(replace(block, body=store))
    return nested(s.place.loops, replace(s.place.realize, block=block))


def _asked(s: _MaskedSum, zero: Buffer, name: str) -> Stmt:
    """The sum of all results, each times zero: zero, or no number."""
    pairs = [(replace(iv, kind="reduce"), value) for iv, value in s.axes]
    total, none = BufferLoad(zero, (ZERO,)), expr.FloatImm(0.0, zero.dtype)
    result = BufferLoad(s.reduction.buffer, s.reduction.indices)
    store = BufferStore(zero, expr.Add(total, expr.Mul(result, none)), (ZERO,))
    init = BufferStore(zero, none, (ZERO,))
    block = refreshed(Block(name, tuple(iv for iv, _ in pairs), (), (), store, init))
    realize = BlockRealize(tuple(v for _, v in pairs), TRUE, block)
    return with_fresh_binders(nested(s.results, realize))


def _initialised(s: _MaskedSum, name: str) -> Stmt:
    init = s.place.block.init
    assert init is not None
    block = refreshed(Block(name, tuple(iv for iv, _ in s.axes), (), (), init))
    realize = BlockRealize(tuple(v for _, v in s.axes), TRUE, block)
    return with_fresh_binders(nested(s.results, realize))


def _accumulated(s: _MaskedSum, name: str) -> Stmt:
    """The sum of the terms that the mask leaves. The mask chooses the factor, not the product, so
    that products are added with one rounding as in the sum of all terms: finite results are the
    same to the last bit."""
    reduction, zero = s.reduction, expr.FloatImm(0.0, s.reduction.buffer.dtype)
    sides = (s.product.a, s.product.b)
    a, b = (x if x is s.weight else expr.Select(s.mask, zero, x) for x in sides)
    total = BufferLoad(reduction.buffer, reduction.indices)
    value = reduction.combined(total, replace(s.product, a=a, b=b))
    store = BufferStore(reduction.buffer, value, reduction.indices)
    block = refreshed(replace(s.place.block, name=name, init=None, body=store))
    realize = replace(s.place.realize, block=block)
    return with_fresh_binders(nested((*s.terms, *s.results), realize))
