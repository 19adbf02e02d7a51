"""canonicalize_reduction: the body of a reduction as one store `X[…] = X[…] op value`.

That is the form that other primitives and rules know. What is added under a condition is added
always, and is the identity where the condition does not hold (if-conversion; Allen, Kennedy,
*Optimizing Compilers for Modern Architectures*, section 7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, is_float, is_int, is_uint
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import BufferLoad, BufferStore, IfThenElse, LetStmt, PrimFunc, Stmt
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.cache_index import DIVISIONS
from relaxlab.schedule.combiners import IDENTITY
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_inside
from relaxlab.schedule.order import keeps_order, require_reassociable
from relaxlab.schedule.ranges import by_data
from relaxlab.schedule.regions import refreshed
from relaxlab.schedule.tree import BlockPlace, describe_block, find_block

PRIMITIVE = "canonicalize_reduction"


def canonicalize_reduction(func: PrimFunc, name: str) -> PrimFunc:
    """Write the body of a reduction block as a store of `X[…] op value`, with all other terms of a
    step combined before the accumulator. Where floats keep their order, they stay as they are.

    Raises ScheduleError where it has that form, or cannot be brought to it."""
    place = find_block(func, name, PRIMITIVE)
    store = canonical_body(place, keep_order=keeps_order(func, place.block))
    if store is None:
        if canonical_body(place, keep_order=False) is not None:
            require_reassociable(PRIMITIVE, func, place.block)
        raise ScheduleError(
            PRIMITIVE, describe_block(place.block),
            "the block reduces, and its body is not, but can be, one store X[…] = X[…] op value",
        )  # fmt: skip
    block = refreshed(replace(place.block, body=store))
    return place.replaced(replace(place.realize, block=block))


def canonical_body(place: BlockPlace, *, keep_order: bool) -> BufferStore | None:
    """The body of a reduction in its form; None where it has it, or the block is no reduction."""
    block = place.block
    if all(iv.kind == "spatial" for iv in block.iter_vars):
        return None
    store = canonical_store(
        block.body, lambda load: _are_inside([load], place), keep_order=keep_order
    )
    if store is None:
        return None
    value, own = store.value, BufferLoad(store.buffer, store.indices)
    if isinstance(value, expr.Sub) and value.a == own and not is_uint(own.dtype) and not keep_order:
        # LLVM makes a multiply-add with the opposite sign of it.
        store = replace(store, value=own + value.b * expr.const(-1, own.dtype))
    value = _without_branches(store.value, place)
    is_as_it_was = isinstance(block.body, BufferStore) and block.body.value == value
    return None if is_as_it_was else replace(store, value=value)


def canonical_store(
    body: Stmt, is_inside: Callable[[BufferLoad], bool], *, keep_order: bool
) -> BufferStore | None:
    """The store that a statement makes, with values of variables in their places, what is stored
    under a condition as a choice, and sums, products, maxima and minima in the form `X[…] op
    value`. `is_inside` says whether an element may be read in any case. None where it is more than
    one store, or cannot be done without the condition."""
    match body:
        case BufferStore():
            store = _with_choice(body)
        case LetStmt(var, value, inner):
            return canonical_store(
                substitute(inner, {var: value}), is_inside, keep_order=keep_order
            )
        case IfThenElse(condition, then, None):
            inside = canonical_store(then, is_inside, keep_order=True)
            if inside is None:
                return None
            own = BufferLoad(inside.buffer, inside.indices)
            choice = replace(inside, value=expr.if_then_else(condition, inside.value, own))
            store = _with_choice(choice)
            if store is choice or not is_inside(own):
                return None
        case _:
            return None
    return store if keep_order else _terms_first(store)


def _with_choice(store: BufferStore) -> BufferStore:
    """`X[…] = X[…] op choice(condition, value, identity)` for a store of `X[…] op value` where a
    condition holds, and of the larger or smaller of two values."""
    own = BufferLoad(store.buffer, store.indices)
    match store.value:
        case expr.Select(condition, yes, no):
            pass
        case expr.Call(_, "if_then_else", (condition, yes, no)):
            pass
        case _:
            return store
    if yes == own:
        condition, yes, no = expr.Not(condition), no, yes
    if no != own:
        return store
    chosen = _larger_or_smaller(condition, yes, own)
    if chosen is not None:
        return replace(store, value=chosen)
    terms = _terms_first(replace(store, value=yes)).value
    if not isinstance(terms, expr.BinaryOp) or terms.a != own or _mentions(condition, own):
        return store
    op = expr.Add if isinstance(terms, expr.Sub) else type(terms)
    if op not in IDENTITY or _mentions(terms.b, own):
        return store
    nothing = IDENTITY[op](own.dtype)
    return replace(store, value=type(terms)(own, expr.if_then_else(condition, terms.b, nothing)))


def _larger_or_smaller(condition: PrimExpr, value: PrimExpr, own: PrimExpr) -> PrimExpr | None:
    """The maximum for `value if value > own else own`, the minimum for `<`; None for any other
    choice. Of floats a value that is no number is never chosen so."""
    match condition:
        case expr.GT(a, b) | expr.GE(a, b):
            above, below = a, b
        case expr.LT(a, b) | expr.LE(a, b):
            above, below = b, a
        case _:
            return None
    if {above, below} != {value, own} or _mentions(value, own):
        return None
    op = expr.Max if above == value else expr.Min
    if is_float(own.dtype):
        value = expr.Select(expr.EQ(value, value), value, IDENTITY[op](own.dtype))
    return op(own, value)


def _mentions(e: PrimExpr, own: PrimExpr) -> bool:
    return any(n == own for n in walk(e))


def _without_branches(value: PrimExpr, place: BlockPlace) -> PrimExpr:
    """The value with selections in place of choices by what memory holds, where both values may be
    computed in any case: the lanes of a vector choose for themselves."""

    def visit(n: Node) -> Node | None:
        match n:
            case expr.Call(_, "if_then_else", (condition, yes, no)) if by_data(condition):
                parts = [*walk(yes), *walk(no)]
                divides = any(isinstance(m, DIVISIONS) and not is_float(m.dtype) for m in parts)
                loads = [m for m in parts if isinstance(m, BufferLoad)]
                if not divides and _are_inside(loads, place):
                    return expr.Select(condition, yes, no)
                return None
            case _:
                return None

    return rewrite(value, visit)


def _are_inside(loads: Sequence[BufferLoad], place: BlockPlace) -> bool:
    """True if every instance of a block may read these elements."""
    try:
        require_inside(PRIMITIVE, place, loads)
    except ScheduleError:
        return False
    return True


def _terms_first(store: BufferStore) -> BufferStore:
    """`X[…] = X[…] + (a - b)` for `X[…] = X[…] + a - b`: what a store adds to its own element is
    added up first, and so are factors, maxima and minima. Integers that are added in a wider type
    are converted before: both wrap alike. Any other store as it is."""
    own = BufferLoad(store.buffer, store.indices)
    match store.value:
        case expr.Cast(_, expr.Add(expr.Cast(_, x), term) | expr.Add(term, expr.Cast(_, x))) if (
            x == own
            and _is_integer(own.dtype)
            and _is_integer(term.dtype)
            and bits_of(term.dtype) > bits_of(own.dtype)
        ):
            return replace(store, value=own + expr.Cast(own.dtype, term))
        case value:
            pass
    if not isinstance(value, expr.BinaryOp) or own in (value.a, value.b):
        return store
    if isinstance(value, expr.Add | expr.Sub):
        added, taken = _added_and_taken(value, own) or (None, None)
        if added is not None:
            return replace(store, value=own + (added if taken is None else added - taken))
        return store if taken is None else replace(store, value=own - taken)
    rest = _others(value, own) if type(value) in IDENTITY else None
    return store if rest is None else replace(store, value=type(value)(own, rest))


def _is_integer(dtype: str) -> bool:
    return is_int(dtype) or is_uint(dtype)


def _added_and_taken(e: PrimExpr, own: PrimExpr) -> tuple[PrimExpr | None, PrimExpr | None] | None:
    """The terms that `e` adds to `own`, and those that it takes away; None if `own` is no term."""
    if e == own:
        return None, None
    match e:
        case expr.Add(a, b) | expr.Sub(a, b):
            left = _added_and_taken(a, own)
            if left is not None:
                added, taken = left
                if isinstance(e, expr.Add):
                    return b if added is None else added + b, taken
                return added, b if taken is None else taken + b
            right = _added_and_taken(b, own) if isinstance(e, expr.Add) else None
            return right and (a if right[0] is None else a + right[0], right[1])
        case _:
            return None


def _others(e: PrimExpr, own: PrimExpr) -> PrimExpr | None:
    """The other operands of a chain of one operator, of which `own` is one; None if it is not."""
    assert isinstance(e, expr.BinaryOp)
    for side, other in ((e.a, e.b), (e.b, e.a)):
        if side == own:
            return other
        rest = _others(side, own) if type(side) is type(e) else None
        if rest is not None:
            return type(e)(rest, other) if side is e.a else type(e)(other, rest)
    return None


