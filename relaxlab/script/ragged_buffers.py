"""`T.ragged_buffer`: named dimensions, some of which are as long as an outer one says.

The slices of the outermost dimension lie behind each other, each row-major. Slice i begins at
`starts[i]`, the prefix sums of its ragged extents' product, times the product of the other extents
(CoRa, MLSys 2022, section 5.3, for one outer dimension). A ragged buffer is read as a buffer of its
packed elements, and an access as the place in it: nothing after the parser knows ragged buffers.
"""

from __future__ import annotations

from functools import reduce
from operator import mul

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import rewrite, walk
from relaxlab.ir.row_major import place
from relaxlab.script.annotations import dimension, expression_in_string
from relaxlab.script.convert import cast, dtype_of, scalar_of
from relaxlab.script.core import Arguments, Context
from relaxlab.script.values import Arg, BufferDecl, Handle, RaggedBuffer, RaggedDecl, is_dict

HELP = 'write {"i": b, "j": "s[i]", "d": 8}'


def ragged_buffer(cx: Context, c: Arguments) -> RaggedDecl:
    """The declaration in a call of `T.ragged_buffer`."""
    a = c.bind()
    param, dims, dtype, starts = (a[n] for n in ("param", "dims", "dtype", "starts"))
    assert param is not None and dims is not None and dtype is not None and starts is not None
    if not isinstance(param.value, Handle):
        c.wrong("describes a T.handle parameter", param.node)
    if not is_dict(dims.value) or len(dims.value) < 2:
        c.wrong("needs named dimensions, two or more", dims.node, HELP)
    (outer, count), *inner = dims.value.items()
    extents = [_extent(cx, outer, Arg(d, dims.node)) for _, d in inner]
    ragged = [e for e in extents if _is_ragged(e)]
    if not ragged:
        c.wrong(f"has no dimension whose extent depends on {outer}", dims.node, HELP)
    total = _total(c, starts, dimension(cx, Arg(count, dims.node)), _product(ragged))
    fixed = [e for e in extents if not _is_ragged(e)]
    packed = _is_ragged(extents[0]) and len(ragged) == 1
    shape = (total, *fixed) if packed else (Analyzer().simplify(total * _product(fixed)),)
    fields = {"shape": shape, "dtype": dtype_of(cx, dtype), "span": cx.span(c.node)}
    extents = (dimension(cx, Arg(count, dims.node)), *extents)
    return RaggedDecl(BufferDecl("match", fields, param.value), extents, starts.value)


def _extent(cx: Context, outer: str, dim: Arg) -> PrimExpr:
    """The extent of an inner dimension, over the position in the outermost one."""
    if not isinstance(dim.value, str):
        return dimension(cx, dim)
    with cx.frame():
        cx.define(outer, loops.Position())
        value = expression_in_string(cx, dim.value, dim.node)
        return cast(scalar_of(cx, value, dim.node), "int64")


def _is_ragged(extent: PrimExpr) -> bool:
    return any(isinstance(n, loops.Position) for n in walk(extent))


def _product(extents: list[PrimExpr]) -> PrimExpr:
    return reduce(mul, extents, expr.const(1))


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
    start = cast(loops.BufferLoad(ragged.starts, (at,)), "int64")
    extents = ragged.at(at)
    if len(ragged.buffer.shape) == len(inner):
        return (start + inner[0], *inner[1:])
    start = start * _product([e for e, x in zip(extents, ragged.shape[1:], strict=True)
                              if not _is_ragged(x)])  # fmt: skip
    return (start + place(inner, extents),)
