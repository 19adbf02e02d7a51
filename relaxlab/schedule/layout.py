"""transform_layout: store a buffer's elements in another order, or in tiles.

The index map gives the new place of each element. A parameter's layout changes for the caller too:
the function's attribute `layout_rewrites` lists (parameter index, index map) for callers.
"""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.analysis.index_map import IndexMap, NotInvertible
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
    nest_over_axes,
)
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.instances import require_unrestricted
from relaxlab.schedule.ranges import ZERO, bind_stmt, shape_analyzer
from relaxlab.schedule.regions import (
    mentions,
    opaque_buffers,
    refreshed,
    with_alloc_as,
)
from relaxlab.schedule.scope import is_complete, is_output
from relaxlab.schedule.tree import (
    BlockPlace,
    describe_block,
    find_block,
    realizes_under,
    walk_stmts,
)

_E = PrimExpr
MapLike = (
    IndexMap
    | Callable[[_E], object]
    | Callable[[_E, _E], object]
    | Callable[[_E, _E, _E], object]
    | Callable[[_E, _E, _E, _E], object]
    | Callable[[_E, _E, _E, _E, _E], object]
)
"""An index map, or a function from the old indices to the new ones."""


def as_index_map(index_map: MapLike, ndim: int) -> IndexMap:
    """An index map, from one or from a Python function of the old indices."""
    return index_map if isinstance(index_map, IndexMap) else IndexMap.of(index_map, ndim)


def region_number(block: Block, buffer: tuple[str, int] | str | Buffer) -> tuple[str, int]:
    """The region of the block, as ("read" or "write", index), that a buffer or its name means."""
    if isinstance(buffer, tuple | list):
        kind, index = buffer
        if kind in ("read", "write"):
            return kind, int(index)
    for kind, regions in (("write", block.writes), ("read", block.reads)):
        for i, r in enumerate(regions):
            if r.buffer is buffer or r.buffer.name == buffer:
                return kind, i
    raise ScheduleError(
        "transform_layout", describe_block(block),
        f"the block touches the buffer {getattr(buffer, 'name', buffer)!r}",
        suggestion='name a buffer of the block, or give ("read", 0) or ("write", 0)',
    )  # fmt: skip


def padding_of(value: float | PrimExpr, buffer: Buffer, block: Block) -> PrimExpr:
    """A pad value as an expression of the buffer's dtype. Raises ScheduleError for one of another
    dtype, and for a fraction where the buffer holds integers. The dtype of a constant does not
    matter, since a trace in JSON keeps its value alone."""
    if isinstance(value, expr.IntImm | expr.FloatImm):
        value = value.value
    integer = not is_float(buffer.dtype)
    if integer and not isinstance(value, PrimExpr) and float(value).is_integer():
        value = int(value)
    pad = expr.as_expr(value, buffer.dtype)
    if pad.dtype != buffer.dtype:
        raise ScheduleError(
            "transform_layout", describe_block(block),
            f"the pad value has the dtype of {buffer.name}, {buffer.dtype}; {value} is {pad.dtype}",
            suggestion=f"give a number that {buffer.dtype} holds",
        )  # fmt: skip
    return pad


def pads(func: PrimFunc, buffer: Buffer, index_map: MapLike) -> bool:
    """True if a layout of a buffer has elements that no index maps to; False where the map is no
    layout at all."""
    try:
        made = as_index_map(index_map, buffer.ndim)
        found = made.inverse_with_padding(buffer.shape, shape_analyzer(func))
    except (NotInvertible, ValueError):
        return False
    return found[2] is not None


def transform_layout(
    func: PrimFunc,
    name: str,
    kind: str,
    index: int,
    index_map: IndexMap,
    pad_value: PrimExpr | None = None,
) -> PrimFunc:
    """Store the buffer of the block's read or write region number `index` by the index map.

    Elements of the new buffer that no old index maps to get `pad_value` (None: they stay
    undefined, and nothing reads them). With a pad value, one block writes the buffer, and its loops
    then run over the new indices.
    """
    place = find_block(func, name, "transform_layout")
    buffer = buffer_of(place.block, kind, index, "transform_layout")
    if buffer in opaque_buffers(func.body):
        raise ScheduleError(
            "transform_layout", describe_block(place.block),
            f"{buffer.name} is only loaded and stored, not matched or taken as an address",
            about=(buffer,),
        )  # fmt: skip
    if buffer.facts:
        raise ScheduleError(
            "transform_layout", describe_block(place.block),
            f"{buffer.name} is no index function: its facts are about its elements in order",
            suggestion="cache_read, and transform the copy", about=(buffer,),
        )  # fmt: skip
    try:
        inverse, shape, padding = index_map.inverse_with_padding(buffer.shape, shape_analyzer(func))
    except (NotInvertible, ValueError) as e:
        raise ScheduleError(
            "transform_layout", describe_block(place.block),
            f"the index map gives every element of {buffer.name} a place of its own; {e}",
        ) from None  # fmt: skip
    new = replace(buffer, shape=shape, strides=())
    parameter = is_output(buffer, func)
    if pad_value is not None and padding is not None:
        if not _writers(func, buffer):
            raise ScheduleError(
                "transform_layout", describe_block(place.block),
                f"the function writes the padded buffer; {buffer.name} is an input",
                suggestion="cache_read first, or leave pad_value out: callers pad with 0",
            )  # fmt: skip
        func = _padded_writer(func, buffer, index_map, inverse, shape, padding, pad_value)
    func = _with_accesses(func, buffer, new, index_map)
    if parameter:
        return _with_parameter(func, buffer, new, index_map)
    return with_alloc_as(func, buffer, new)


def _with_accesses(func: PrimFunc, old: Buffer, new: Buffer, index_map: IndexMap) -> PrimFunc:
    an = shape_analyzer(func)
    for s in walk_stmts(func.body):
        bind_stmt(an, s)

    def visit(n: Node) -> Node | None:
        match n:
            case BufferLoad(b, indices) | BufferStore(b, _, indices) if b is old:
                return replace(n, buffer=new, indices=index_map.apply(indices, an))
            case Block() if mentions(n, old):
                return refreshed(n)
            case _:
                return None

    return replace(func, body=rewrite(func.body, visit))


def _with_parameter(func: PrimFunc, old: Buffer, new: Buffer, index_map: IndexMap) -> PrimFunc:
    position = next(i for i, p in enumerate(func.params) if p is old)
    params = tuple(new if p is old else p for p in func.params)
    bound = {d for p in params if isinstance(p, Buffer) for d in p.shape if isinstance(d, Var)}
    bound |= {p for p in params if isinstance(p, Var)}
    # Symbols get their values from the shapes of arguments; a layout such as `(n // 16, 16)` alone
    # does not give n.
    lost = [v.name for v in symbols_in(old.shape) if v not in bound]
    if lost:
        raise ScheduleError(
            "transform_layout", f"parameter {old.name}",
            f"every symbol is still a dimension of some parameter; {', '.join(lost)} is not",
            about=(old,),
        )  # fmt: skip
    rewrites: dict[int, IndexMap] = dict(func.attrs.get("layout_rewrites", ()))
    before = rewrites.get(position)
    if before is not None:
        finals = index_map.apply(before.final_indices)
        # Callers convert each argument once, by one map from the original layout.
        index_map = IndexMap(before.initial_indices, finals)
    rewrites[position] = index_map
    attrs = func.attrs.with_(layout_rewrites=tuple(sorted(rewrites.items(), key=lambda r: r[0])))
    return replace(func, params=params, attrs=attrs)


def _padded_writer(
    func: PrimFunc,
    buffer: Buffer,
    index_map: IndexMap,
    inverse: IndexMap,
    shape: tuple[PrimExpr, ...],
    padding: PrimExpr,
    pad_value: PrimExpr,
) -> PrimFunc:
    """The writer over the new indices, storing the pad value where no old index maps to.

    Its store stays at old indices, beyond the old shape in the padding; rewriting the accesses
    turns them into the new ones.
    """
    place = _single_writer(func, buffer)
    require_unrestricted("transform_layout", place)
    store = place.block.body
    assert isinstance(store, BufferStore)
    new_axes = tuple(Var(f"v{d}") for d in range(len(shape)))
    at = dict(zip(inverse.initial_indices, new_axes, strict=True))
    old_axes: dict[Var, PrimExpr] = {}
    for d, e in zip(store.indices, inverse.final_indices, strict=True):
        assert isinstance(d, Var)
        old_axes[d] = substitute(e, at)
    value = substitute(store.value, old_axes)
    inside = shape_analyzer(func).simplify(expr.Not(substitute(padding, at)))
    value = expr.Call(value.dtype, "if_then_else", (inside, value, pad_value))
    body = BufferStore(buffer, value, tuple(old_axes[d] for d in store.indices))  # type: ignore[index]
    iter_vars = tuple(
        IterVar(v, Range(ZERO, e), "spatial") for v, e in zip(new_axes, shape, strict=True)
    )
    block = refreshed(replace(place.block, iter_vars=iter_vars, body=body))
    top = place.path[place.scope_depth + 1 :]
    depth = place.scope_depth + 1
    if not isinstance(top[0], For | BlockRealize):
        depth += 1
    return place.replaced(nest_over_axes(block), depth)


def _writers(func: PrimFunc, buffer: Buffer) -> list[Block]:
    return [
        b for b in (s for s in walk_stmts(func.body) if isinstance(s, Block))
        if any(w.buffer is buffer for w in b.writes)
    ]  # fmt: skip


def _single_writer(func: PrimFunc, buffer: Buffer) -> BlockPlace:
    writers = _writers(func, buffer)
    place = find_block(func, writers[0].name, "transform_layout")
    store = place.block.body
    simple = (
        len(writers) == 1
        and is_complete(place.block, place.scope)
        and isinstance(store, BufferStore)
        and len(set(store.indices)) == len(store.indices) == len(place.block.iter_vars)
        and all(isinstance(i, Var) for i in store.indices)
        and len(realizes_under(_top_nest(place))) == 1
    )
    if not simple:
        raise ScheduleError(
            "transform_layout", describe_block(writers[0]),
            f"one block writes {buffer.name}, elementwise over its axes, in loops of its own",
            suggestion="leave pad_value out, or cache_write first", about=(buffer,),
        )  # fmt: skip
    return place


def _top_nest(place: BlockPlace) -> Stmt:
    below = place.path[place.scope_depth + 1 :]
    return next(s for s in below if isinstance(s, For | BlockRealize))
