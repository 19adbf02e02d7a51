"""`T.ragged_buffer`: named dimensions, some of which are as long as an outer one says.

The slices of the outermost dimension lie behind each other, each row-major. Slice i begins at
`starts[i]`, the prefix sums of its ragged extents' product, times the product of the other extents
(CoRa, MLSys 2022, section 5.3, for one outer dimension). With two arrays of starts, the outermost
dimension is that of all slices (i, j), whose numbers are `o[i] + j`, and so on. A ragged buffer is
read as a buffer of its packed elements, and an access as the place in it: nothing after the parser
knows ragged buffers.
"""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import rewrite, walk
from relaxlab.ir.row_major import place, product
from relaxlab.ir.substitute import substitute
from relaxlab.script.annotations import dimension, expression_in_string
from relaxlab.script.convert import cast, dtype_of, scalar_of
from relaxlab.script.core import Arguments, Context
from relaxlab.script.values import (
    Arg,
    BufferDecl,
    Handle,
    RaggedBuffer,
    RaggedDecl,
    is_dict,
    is_sequence,
)

HELP = 'write {"i": b, "j": "s[i]", "d": 8}'


def ragged_buffer(cx: Context, c: Arguments) -> RaggedDecl:
    """The declaration in a call of `T.ragged_buffer`."""
    a = c.bind()
    param, dims, dtype, starts = (a[n] for n in ("param", "dims", "dtype", "starts"))
    assert param is not None and dims is not None and dtype is not None and starts is not None
    if not isinstance(param.value, Handle):
        c.wrong("describes a T.handle parameter", param.node)
    levels = tuple(starts.value) if is_sequence(starts.value) else (starts.value,)
    if not is_dict(dims.value) or len(dims.value) <= len(levels):
        c.wrong(f"needs named dimensions, {len(levels) + 1} or more", dims.node, HELP)
    names = tuple(expr.Var(name) for name in dims.value)
    outer, *inner = (_extent(cx, names[:n], Arg(d, dims.node))
                     for n, d in enumerate(dims.value.values()))  # fmt: skip
    extents = [_over_position(c, names, levels, n, e, dims) for n, e in enumerate(inner)]
    rows, slices = extents[: len(levels) - 1], extents[len(levels) - 1 :]
    ragged = [e for e in slices if _is_ragged(e)]
    if not ragged:
        deepest = names[len(levels) - 1]
        c.wrong(f"has no dimension whose extent depends on {deepest}", dims.node, HELP)
    total = outer
    for index, step in zip(levels, (*rows, product(ragged)), strict=True):
        total = _total(c, Arg(index, starts.node), total, step)
    fixed = [e for e in slices if not _is_ragged(e)]
    packed = _is_ragged(slices[0]) and len(ragged) == 1
    shape = (total, *fixed) if packed else (Analyzer().simplify(total * product(fixed)),)
    stored, facts = dtype_of(cx, dtype), a["facts"]
    stated = () if facts is None else facts_of(c, facts, shape, stored)
    fields = {"shape": shape, "dtype": stored, "facts": stated, "span": cx.span(c.node)}
    return RaggedDecl(BufferDecl("match", fields, param.value), (outer, *extents), levels)


def _extent(cx: Context, outer: tuple[expr.Var, ...], dim: Arg) -> PrimExpr:
    """The extent of a dimension, in terms of the indices along those outside of it."""
    if not isinstance(dim.value, str) or not outer:
        return dimension(cx, dim)
    with cx.frame():
        for v in outer:
            cx.define(v.name, v)
        value = expression_in_string(cx, dim.value, dim.node)
        return cast(scalar_of(cx, value, dim.node), "int64")


def _over_position(
    c: Arguments, names: tuple[expr.Var, ...], levels: tuple[loops.Buffer, ...], number: int,
    extent: PrimExpr, dims: Arg,
) -> PrimExpr:  # fmt: skip
    """The extent of inner dimension `number` over the position of a slice: its number among those
    of all the slices around it, such as `o[i] + j`."""
    level = min(number, len(levels) - 1)
    position = names[0]
    for starts, v in zip(levels[:level], names[1:], strict=False):
        position = _start(starts, position) + v
    one = expr.Var("position")
    if level == 0:
        found = substitute(extent, {names[0]: one})
    else:
        # The innermost index in terms of the position, which then has the others in it.
        last = one - (position - names[level])
        found = Analyzer().simplify(substitute(extent, {names[level]: last}))
    if any(n in names for n in walk(found)):
        known = ", ".join(v.name for v in names[: level + 1])
        c.wrong(
            f"has an extent {extent} that the number of the slice {known} does not tell", dims.node,
            f"let it depend on all of {known}, or on none; more `starts` are deeper slices",
        )  # fmt: skip
    return rewrite(found, lambda n: loops.Position() if n is one else None)


def facts_of(
    c: Arguments, given: Arg, shape: tuple[PrimExpr, ...], dtype: str
) -> tuple[loops.Fact, ...]:
    """The facts that are given of an index function of that shape. Fails where it is none."""
    if len(shape) != 1 or dtype not in ("int32", "int64"):
        c.wrong("is a one-dimensional array of int32 or int64", c.node)
    facts = given.value if is_sequence(given.value) else (given.value,)
    if not facts or not all(isinstance(f, loops.Fact) for f in facts):
        text = "needs a list of facts such as T.range(0, n)"
        c.wrong(text, given.node, "without facts, it is a T.match_buffer")
    return tuple(facts)


def _is_ragged(extent: PrimExpr) -> bool:
    return any(isinstance(n, loops.Position) for n in walk(extent))


def _total(c: Arguments, starts: Arg, count: PrimExpr, step: PrimExpr) -> PrimExpr:
    """The number of places that `starts` tells apart. Fails where it is no index function with the
    prefix sums of `step` for `count` slices."""
    index = starts.value
    facts = index.facts if isinstance(index, loops.Buffer) else ()
    sums = next((f for f in facts if isinstance(f, loops.PrefixSums)), None)
    i, an = expr.Var("i"), Analyzer()
    at = rewrite(step, lambda n: i if isinstance(n, loops.Position) else None)
    if sums is None or not an.prove_equal(sums.at(i), at):
        help = f"give an index function with T.prefix_sums(lambda i: {an.simplify(at)})"
        c.wrong("has starts that are not the prefix sums of its slices", starts.node, help)
    if not an.prove_equal(index.shape[0], count + 1):
        c.wrong(f"has {count} slices, and {index.shape[0]} starts", starts.node)
    last = next((f.last for f in facts if isinstance(f, loops.Nondecreasing) and f.last), None)
    if last is None:
        help = "add T.nondecreasing(first=0, last=t), t being the number of places"
        c.wrong("has starts without an end", starts.node, help)
    return last


def place_of(ragged: RaggedBuffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
    """The indices of an element of a ragged buffer in the memory behind it."""
    at, *inner = (cast(i, "int64") for i in indices)
    *rows, slices = ragged.starts
    for starts in rows:
        at = _start(starts, at) + inner.pop(0)
    start, extents = _start(slices, at), ragged.at(at)
    if len(ragged.buffer.shape) == len(inner):
        return (start + inner[0], *inner[1:])
    over = ragged.shape[len(ragged.starts) :]
    start = start * product([e for e, x in zip(extents, over, strict=True)
                              if not _is_ragged(x)])  # fmt: skip
    return (start + place(inner, extents),)


def _start(starts: loops.Buffer, position: PrimExpr) -> PrimExpr:
    return cast(loops.BufferLoad(starts, (position,)), "int64")
