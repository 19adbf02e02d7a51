"""Bytes and arithmetic operations of values and calls, as expressions of the symbols.

They are read off the loops, so a user's own loop function is understood like an operator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import fresh_symbols
from relaxlab.analysis.regions import access_regions, relax_index
from relaxlab.analysis.unify import DimPair, linear_in, unify
from relaxlab.ir import dtypes, expr, graph, loops
from relaxlab.ir.equal import structural_key
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.intrinsics import BY_NAME, INTRINSICS
from relaxlab.ir.module import Module
from relaxlab.ir.node import children, walk
from relaxlab.ir.op_table import OpRow, find_op
from relaxlab.ir.row_major import product
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import ObjectType, PrimType, ShapeType, TensorType, TupleType, Type

ZERO = expr.const(0)

NESTED = (graph.Call, graph.TupleGetItem, graph.If, graph.SeqExpr)
"""Arguments without types before normalisation."""


@dataclass(frozen=True, slots=True)
class Cost:
    """An upper bound on the cost of one run, in terms of the symbols.

    flops:         additions, multiplications, divisions, minima, maxima and functions (`exp`) of
                   data, one each; a fused multiply-add is two. Indices are no data; comparisons,
                   conversions and bit operations are not counted.
    bytes_read:    of the distinct elements of the parameters that are read.
    bytes_written: of the distinct elements of the parameters that are written.
    """

    flops: PrimExpr
    bytes_read: PrimExpr
    bytes_written: PrimExpr

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def with_symbols(self, symbols: Mapping[expr.Var, PrimExpr]) -> Cost:
        """The cost with symbols replaced, in normal form."""
        parts = (self.flops, self.bytes_read, self.bytes_written)
        new = [substitute(p, symbols) for p in parts]
        analyzer = Analyzer.for_shapes(tuple(new))
        return Cost(*map(analyzer.simplify, new))


NO_COST = Cost(ZERO, ZERO, ZERO)


def bytes_of(ty: Type | None) -> PrimExpr | None:
    """The bytes of a value of type `ty`; None where a shape or dtype is unknown."""
    match ty:
        case TensorType(shape, dtype) if shape is not None and dtype is not None:
            return _size(shape, dtype)
        case TupleType(fields):
            sizes = [bytes_of(f) for f in fields]
            known = [s for s in sizes if s is not None]
            return _sum(known) if len(known) == len(sizes) else None
        case PrimType(dtype):
            return expr.const(dtypes.bytes_of(dtype))
        case _:
            return None


def _size(shape: tuple[PrimExpr, ...], dtype: str) -> PrimExpr:
    return Analyzer.for_shapes(shape).simplify(product(shape) * dtypes.bytes_of(dtype))


def _sum(sizes: Iterable[PrimExpr]) -> PrimExpr:
    total = ZERO
    for s in sizes:
        total = total + s
    return Analyzer.for_shapes(total).simplify(total)


# --- Calls of graph functions ------------------------------------------------------------------


def call_cost(mod: Module, binding: graph.Binding) -> Cost | None:
    """Return the cost of a binding of a graph function in terms of its symbols: an operator's by
    its lowering, a loop function's by its loops, a graph function's by its bindings. None if it is
    not known: unknown shapes, conditionals, library functions."""
    value = binding.value
    match value:
        case graph.Call(graph.Op("call_tir" | "call_tir_inplace" | "call_tir_with_grad")):
            return _loop_call(mod, value)
        case graph.Call(graph.GlobalVar(name), args):
            callee = mod.get(name)
            if isinstance(callee, loops.PrimFunc):
                return _at(callee, list(map(_type_of, args)), (), 0)
            if isinstance(callee, graph.Function):
                return _graph_call(mod, callee, args)
            return None
        case graph.Call(graph.Op(name)):
            row = find_op(name)
            if row is None:
                return None
            if "free" in row.traits:
                return NO_COST
            return _operator(row, value, binding.var.ty)
        case graph.Call() | graph.If():
            return None
        case _:
            return NO_COST


def function_cost(mod: Module, fn: graph.Function) -> Cost | None:
    """Return the cost of all bindings of a graph function together; None if one is not known."""
    total = NO_COST
    for block in fn.body.blocks:
        for b in block.bindings:
            cost = call_cost(mod, b)
            if cost is None:
                return None
            total = total + cost
    return total.with_symbols({})


def _type_of(e: graph.Expr) -> Type | None:
    match e:
        case graph.Var(_, ty):
            return ty
        case graph.Constant(data):
            return TensorType(tuple(expr.const(d) for d in data.shape), data.dtype.name)
        case graph.PrimValue(value):
            return PrimType(value.dtype, value)
        case graph.ShapeExpr(values):
            return ShapeType(values)
        case graph.Tuple(fields):
            found = [t for t in map(_type_of, fields) if t is not None]
            return TupleType(tuple(found)) if len(found) == len(fields) else None
        case _:
            return None


def _tensors(ty: Type | None) -> Iterator[Type | None]:
    if isinstance(ty, TupleType):
        for f in ty.fields:
            yield from _tensors(f)
    else:
        yield ty


def _loop_call(mod: Module, call: graph.Call) -> Cost | None:
    callee, given = call.args[:2]
    func = mod.get(callee.name) if isinstance(callee, graph.GlobalVar) else None
    if not isinstance(func, loops.PrimFunc) or not isinstance(given, graph.Tuple):
        return None
    inplace: tuple[int, ...] = call.attrs.get("inplace_indices", (-1,) * len(call.ty_args))
    fresh = [t for t, i in zip(call.ty_args, inplace, strict=False) if i < 0]
    shape = call.args[2] if len(call.args) > 2 else None
    scalars = shape.values if isinstance(shape, graph.ShapeExpr) else ()
    return _at(func, [*map(_type_of, given.fields), *fresh], scalars, len(fresh))


def _at(
    func: loops.PrimFunc, given: list[Type | None], scalars: tuple[PrimExpr, ...], outputs: int
) -> Cost | None:
    """The cost of `func` called with tensors of the given types (inputs, then outputs)."""
    cost = cost_of(func, outputs)
    if cost is None or len(given) != len(func.buffers):
        return None
    params = [p for p in func.params if isinstance(p, expr.Var)]
    declared: list[tuple[PrimExpr, PrimExpr]] = list(zip(params, scalars, strict=False))
    for buffer, ty in zip(func.buffers, given, strict=True):
        if isinstance(ty, TensorType) and ty.shape is not None and ty.ndim == buffer.ndim:
            declared += zip(buffer.shape, ty.shape, strict=True)
    return _solved(cost, declared)


def _solved(cost: Cost, declared: list[tuple[PrimExpr, PrimExpr]]) -> Cost | None:
    """The cost with its symbols solved for, from pairs of declared and actual dimensions."""
    left, right = tuple(d for d, _ in declared), tuple(a for _, a in declared)
    renamed = fresh_symbols((left, cost.flops, cost.bytes_read, cost.bytes_written), right)
    pairs = [DimPair(substitute(d, renamed), a, "") for d, a in declared]
    found = unify(pairs, Analyzer.for_shapes(left, right)).bindings
    moved = cost.with_symbols(renamed)
    free = symbols_in((moved.flops, moved.bytes_read, moved.bytes_written))
    return moved.with_symbols(found) if all(s in found for s in free) else None


def _graph_call(mod: Module, fn: graph.Function, args: tuple[graph.Expr, ...]) -> Cost | None:
    cost = function_cost(mod, fn)
    if cost is None or len(args) != len(fn.params):
        return None
    declared: list[tuple[PrimExpr, PrimExpr]] = []
    for param, arg in zip(fn.params, args, strict=True):
        if isinstance(arg, graph.ShapeExpr):
            values = getattr(param.ty, "values", None) or ()
            declared += zip(values, arg.values, strict=False)
            continue
        both = zip(_tensors(param.ty), _tensors(_type_of(arg)), strict=False)
        for p, a in both:
            if isinstance(p, TensorType) and isinstance(a, TensorType):
                declared += zip(p.shape or (), a.shape or (), strict=False)
    return _solved(cost, declared)


_LOWERED: dict[str, tuple[Cost | None, tuple[expr.Var, ...]]] = {}
"""Costs of lowered operator calls by their structure, and the symbols they are in terms of."""


def _operator(row: OpRow, call: graph.Call, out: Type | None) -> Cost | None:
    if any(isinstance(a, NESTED) for a in call.args):
        return None
    types = [_type_of(a) or ObjectType() for a in call.args]
    tensors = [t for ty in (*types, out) for t in _tensors(ty) if isinstance(t, TensorType)]
    if row.lower is None or out is None or any(t.shape is None or not t.dtype for t in tensors):
        return None
    identity = (call.op, call.attrs, tuple(types), out, _baked(call))
    key, symbols = structural_key(identity), symbols_in(identity)
    if key not in _LOWERED:
        if len(_LOWERED) >= 4096:
            _LOWERED.clear()
        func = row.lower(call, tuple(types), out)
        _LOWERED[key] = (cost_of(func, len(list(_tensors(out)))), symbols)
    cost, before = _LOWERED[key]
    return None if cost is None else cost.with_symbols(dict(zip(before, symbols, strict=True)))


def _baked(call: graph.Call) -> tuple[graph.Expr, ...]:
    """The arguments whose values the lowering may look at."""
    return tuple(a for a in call.args if isinstance(a, graph.ShapeExpr | graph.PrimValue))


# --- Loops -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def cost_of(func: loops.PrimFunc, outputs: int = 0) -> Cost | None:
    """Return the cost of a loop function in terms of its symbols and scalar parameters.

    `outputs` is the number of the last buffers that hold nothing on entry: reads from those are of
    values that the function wrote itself, and are no traffic.

    Exact for loops without conditions whose bounds are at most linear in loops around them; of two
    branches the dearer one counts. None if the loops do not determine it: `while`, calls of other
    functions, tensor intrinsics.
    """
    made = frozenset(func.buffers[len(func.buffers) - outputs :])
    collector = _Collector(frozenset(func.buffers), made)
    try:
        flops = collector.stmt(func.body, ())
    except _Unknown:
        return None
    reads, writes = access_regions(func.body)
    return Cost(
        flops,
        _sum(_touched(b, collector.reads[b], reads) for b in collector.reads),
        _sum(_touched(b, collector.writes[b], writes) for b in collector.writes),
    ).with_symbols({})


class _Unknown(Exception):
    """The loops do not determine their cost."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop, or a block axis over its domain."""

    var: expr.Var
    min: PrimExpr
    extent: PrimExpr


@dataclass(frozen=True, slots=True)
class _Realize:
    """A block: its axes over their domains, and their bindings. If `whole`, it runs once for each
    point of the domains, whatever the loops around it (there is a predicate)."""

    axes: tuple[_Loop, ...]
    values: tuple[PrimExpr, ...]
    whole: bool


Around: TypeAlias = "tuple[_Loop | _Realize, ...]"
"""The loops and blocks around a statement, outermost first."""

Touched: TypeAlias = "dict[tuple[PrimExpr, ...], PrimExpr]"
"""The number of elements that accesses may touch, by the indices of the access."""


@dataclass(slots=True)
class _Collector:
    """The arithmetic of statements, and which elements of the parameters they access."""

    params: frozenset[loops.Buffer]
    made: frozenset[loops.Buffer]
    lets: dict[expr.Var, PrimExpr] = field(default_factory=dict[expr.Var, PrimExpr])
    reads: dict[loops.Buffer, Touched] = field(default_factory=dict[loops.Buffer, Touched])
    writes: dict[loops.Buffer, Touched] = field(default_factory=dict[loops.Buffer, Touched])

    def stmt(self, s: loops.Stmt, around: Around) -> PrimExpr:
        """The arithmetic of all runs of `s`."""
        match s:
            case loops.SeqStmt(stmts):
                total = ZERO
                for one in stmts:
                    total = total + self.stmt(one, around)
                return total
            case loops.For(var, low, extent, _, body):
                return self.stmt(body, (*around, _Loop(var, low, extent)))
            case loops.BlockRealize():
                return self.realize(s, around)
            case loops.BufferStore(buffer, value, indices):
                flops = self.value(value, around)
                for i in indices:
                    self.value(i, around)
                self.access(self.writes, buffer, indices, around)
                return _runs(expr.const(flops), around)
            case loops.LetStmt(var, value, body):
                flops = _runs(expr.const(self.value(value, around)), around)
                self.lets[var] = value
                return flops + self.stmt(body, around)
            case loops.IfThenElse(condition, then_case, else_case):
                flops = _runs(expr.const(self.value(condition, around)), around)
                yes = self.stmt(then_case, around)
                no = ZERO if else_case is None else self.stmt(else_case, around)
                return flops + (yes if no == ZERO else expr.binary(expr.Max, yes, no))
            case loops.Evaluate(value) | loops.AssertStmt(value):
                return _runs(expr.const(self.value(value, around)), around)
            case _:
                raise _Unknown

    def realize(self, s: loops.BlockRealize, around: Around) -> PrimExpr:
        block = s.block
        if block.match_buffers:
            raise _Unknown
        axes = tuple(_Loop(v.var, v.dom.min, v.dom.extent) for v in block.iter_vars)
        whole = s.predicate != expr.IntImm(1, "bool")
        flops = ZERO
        if block.init is not None:
            spatial = tuple(
                a for a, v in zip(axes, block.iter_vars, strict=True) if v.kind != "reduce"
            )
            flops = self.stmt(block.init, (*around, _Realize(spatial, s.iter_values, True)))
        return flops + self.stmt(block.body, (*around, _Realize(axes, s.iter_values, whole)))

    def value(self, e: PrimExpr, around: Around) -> int:
        """Return the arithmetic on data in one evaluation; records the reads."""
        match e:
            case loops.BufferLoad(buffer, indices):
                for i in indices:
                    self.value(i, around)
                if buffer not in self.writes and buffer not in self.made:
                    self.access(self.reads, buffer, indices, around)
                return 0
            case expr.Let(var, value, body):
                flops = self.value(value, around)
                self.lets[var] = value
                return flops + self.value(body, around)
            case expr.Call(_, "if_then_else", (condition, yes, no)):
                branches = max(self.value(yes, around), self.value(no, around))
                return self.value(condition, around) + branches
            case expr.Call(_, op) if op in BY_NAME or op == "address_of":
                raise _Unknown
            case _:
                parts = [c for c in children(e) if isinstance(c, PrimExpr)]
                flops = sum(self.value(c, around) for c in parts)
                return flops + (self.operations(e) if self.is_data(e) else 0)

    def operations(self, e: PrimExpr) -> int:
        """The arithmetic of the node alone."""
        match e:
            case expr.Call(_, op, (a,)) if op.startswith("vector_reduce_"):
                return dtypes.lanes_of(a.dtype) - 1
            case expr.Call(_, op):
                flops = INTRINSICS[op].flops if op in INTRINSICS else 0
                return flops * dtypes.lanes_of(e.dtype)
            case _:
                counts = isinstance(e, expr.BinaryOp) and e.row.arithmetic
                return dtypes.lanes_of(e.dtype) if counts else 0

    def is_data(self, e: PrimExpr) -> bool:
        """True if a value comes from memory or is a fraction: not an index."""
        if dtypes.is_float(e.dtype):
            return True
        return any(
            isinstance(n, loops.BufferLoad) or (n in self.lets and self.is_data(self.lets[n]))  # type: ignore[index]
            for n in walk(e)
        )

    def access(
        self,
        found: dict[loops.Buffer, Touched],
        buffer: loops.Buffer,
        indices: tuple[PrimExpr, ...],
        around: Around,
    ) -> None:
        if buffer not in self.params:
            return
        used = set(symbols_in(indices))
        pending = [v for v in used if v in self.lets]
        while pending:
            more = set(symbols_in(self.lets[pending.pop()])) - used
            used |= more
            pending += [v for v in more if v in self.lets]
        lanes = max((dtypes.lanes_of(i.dtype) for i in indices), default=1)
        found.setdefault(buffer, {})[indices] = _distinct(expr.const(lanes), around, used)


def _runs(each: PrimExpr, around: Around) -> PrimExpr:
    """Return `each` summed over all iterations of `around`."""
    if each == ZERO:
        return ZERO
    skipped: set[expr.Var] = set()
    for entry in reversed(around):
        if isinstance(entry, _Loop):
            if entry.var not in skipped:
                each = _over(each, entry)
        elif entry.whole:
            for axis in reversed(entry.axes):
                each = _over(each, axis)
            skipped.update(symbols_in(entry.values))
        else:
            each = substitute(each, _bound(entry))
    return each


def _bound(entry: _Realize) -> dict[expr.Var, PrimExpr]:
    return {a.var: v for a, v in zip(entry.axes, entry.values, strict=True)}


def _distinct(each: PrimExpr, around: Around, used: set[expr.Var]) -> PrimExpr:
    """Return the most elements that an access may touch whose indices mention the variables
    `used`."""
    used = set(used)
    for entry in reversed(around):
        for loop in reversed((entry,) if isinstance(entry, _Loop) else entry.axes):
            if loop.var in used:
                each = _over(each, loop)
                # A loop that begins elsewhere in each iteration of another touches other elements.
                used.update(symbols_in(loop.min))
            elif loop.var in symbols_in(each):
                each = _largest(each, loop)
    return each


def _over(each: PrimExpr, loop: _Loop) -> PrimExpr:
    """Return the sum of `each` over the iterations of a loop; an upper bound of it where `each` is
    not linear in the loop variable."""
    if loop.var not in symbols_in(each):
        return each * loop.extent
    linear = linear_in(each, loop.var)
    if linear is None:
        return _largest(each, loop) * loop.extent
    factor, rest = linear
    ends = loop.min * 2 + loop.extent - 1
    return (loop.extent * ends // 2) * factor + rest * loop.extent


def _largest(each: PrimExpr, loop: _Loop) -> PrimExpr:
    analyzer = Analyzer.for_shapes(each, loop.min, loop.extent)
    bounds = relax_index(each, {loop.var: (loop.min, loop.min + loop.extent - 1)}, analyzer)
    if bounds is None:
        raise _Unknown
    return bounds[1]


def _touched(
    buffer: loops.Buffer, accesses: Touched, regions: tuple[loops.BufferRegion, ...]
) -> PrimExpr:
    """Return the bytes of the elements that accesses touch: their sum, at most those of the region
    around them and of the buffer."""
    most = _smaller(_sum(accesses.values()), product(buffer.shape))
    for r in regions:
        if r.buffer is buffer:
            most = _smaller(most, product(dim.extent for dim in r.region))
    return most * dtypes.bytes_of(buffer.dtype)


def _smaller(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The minimum, where one provably is for dimensions that are at least 1."""
    analyzer = Analyzer()
    for v in symbols_in((a, b)):
        analyzer.bind(v, 1)
    if analyzer.prove(expr.LE(a, b)):
        return a
    return b if analyzer.prove(expr.LE(b, a)) else expr.binary(expr.Min, a, b)
