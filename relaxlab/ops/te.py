"""Tensor expressions: a definition of each element becomes a loop function with blocks.

    A = te.placeholder((n, k), "float32", "A")
    B = te.placeholder((k, m), "float32", "B")
    r = te.reduce_axis(k, "k")
    C = te.compute((n, m), lambda i, j: te.te_sum(A[i, r.var] * B[r.var, j], r), "C")
    func = te.create_prim_func([A, B, C])

The names follow TVM's `te`. Extents may be symbolic; indices are int64.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.analysis.loops_check import check_loops
from relaxlab.ir import expr, loops
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import is_float, is_int
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import ExprLike, PrimExpr
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import Atom, Attrs, Node, node, replace, rewrite, walk
from relaxlab.ir.span import Span
from relaxlab.ir.substitute import free_symbols, substitute
from relaxlab.ops.scalar import isnan

ZERO = expr.const(0)
TRUE = expr.const(True)


@node
class Tensor(Atom):
    """A tensor of an expression: an input (`stage` None) or output `output` of a stage."""

    name: str
    shape: tuple[PrimExpr, ...]
    dtype: str
    stage: Stage | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> PrimExpr:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != self.ndim:
            dims = counted(self.ndim, "dimension")
            raise ValueError(f"{self.name} has {dims}, indexed with {len(items)}")
        at = tuple(expr.as_expr(i) for i in items)
        for i in at:
            if not is_int(i.dtype):
                raise TypeError(f"an index of {self.name} is {i.dtype}, and indices are integers")
        return TensorLoad(self, at)


@node
class TensorLoad(PrimExpr):
    """One element of a tensor; becomes a `BufferLoad` in the loop function."""

    tensor: Tensor
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:
        return self.tensor.dtype


@dataclass(frozen=True, slots=True)
class Combiner:
    """The operation of a reduction: `combine(accumulated, new)` on tuples of expressions, starting
    from `identity(dtypes)`."""

    name: str
    identity: Callable[[tuple[str, ...]], tuple[PrimExpr, ...]]
    combine: Callable[[tuple[PrimExpr, ...], tuple[PrimExpr, ...]], tuple[PrimExpr, ...]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a stage: the loop is called `name`, the block axis `v` + `name`."""

    name: str
    extent: PrimExpr
    var: expr.Var

    @staticmethod
    def named(name: str, extent: ExprLike) -> Axis:
        """A fresh axis."""
        return Axis(name, expr.as_expr(extent), expr.Var(f"v{name}"))


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction of `sources` over `axes`; what the function given to `compute` may return."""

    combiner: Combiner
    sources: tuple[PrimExpr, ...]
    axes: tuple[Axis, ...]


RowsBody = Callable[[tuple[expr.Var, ...], dict[Tensor, loops.Buffer]], loops.Stmt]


Facts = Mapping[Tensor, tuple[loops.Fact, ...]]
"""The facts of inputs that are index functions."""
NO_FACTS: Facts = {}


@dataclass(eq=False, slots=True)
class Stage:
    """One block: its spatial axes and either a value per output, or hand-written statements.
    `facts` are what it takes for granted about inputs of the loop function, which are checked.
    `place`: the element of the output for values of the axes, where these are not its indices."""

    name: str
    axes: tuple[Axis, ...]
    value: Reduce | tuple[PrimExpr, ...] | RowsBody
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...] = ()
    facts: Facts = field(default_factory=dict[Tensor, tuple[loops.Fact, ...]])
    place: tuple[PrimExpr, ...] | None = None


@names_arguments
def placeholder(shape: Sequence[ExprLike], dtype: str = "float32", name: str = "A") -> Tensor:
    """An input tensor."""
    return Tensor(name, tuple(expr.as_expr(d) for d in shape), dtype)


@names_arguments
def reduce_axis(extent: ExprLike, name: str = "r") -> Axis:
    """An axis to reduce over; index with it directly (`A[i, r.var]`)."""
    return Axis.named(name, extent)


@names_arguments
def compute(
    shape: Sequence[ExprLike],
    fn: Callable[..., ExprLike | Reduce],
    name: str = "compute",
    facts: Facts = NO_FACTS,
) -> Tensor:
    """A tensor whose element at `*indices` is `fn(*indices)`.

    The loops take the names of `fn`'s parameters; a variadic `fn` gets i, j, k, l or i0, i1, ….
    `facts` are those of inputs, which become index functions. Raises ValueError for a function of
    another number of indices.
    """
    (tensor,) = _stage(shape, fn, (name,), name, facts)
    return tensor


@names_arguments
def compute_many(
    shape: Sequence[ExprLike],
    fn: Callable[..., Reduce | tuple[PrimExpr, ...]],
    names: tuple[str, ...],
    name: str,
) -> tuple[Tensor, ...]:
    """As `compute`, for several results: a tuple of values, or a reduction that has several
    (`argmax`: value and index)."""
    return _stage(shape, fn, names, name)


def _stage(
    shape: Sequence[ExprLike],
    fn: Callable[..., ExprLike | Reduce | tuple[PrimExpr, ...]],
    names: tuple[str, ...],
    block: str,
    facts: Facts = NO_FACTS,
) -> tuple[Tensor, ...]:
    dims = tuple(expr.as_expr(d) for d in shape)
    names_of_axes = _axis_names(fn, len(dims))
    if len(names_of_axes) != len(dims):
        of, has = counted(len(names_of_axes), "index", "indices"), counted(len(dims), "dimension")
        raise ValueError(f"the function of {block!r} takes {of}, and its shape has {has}")
    axes = tuple(Axis.named(n, d) for n, d in zip(names_of_axes, dims, strict=True))
    result = fn(*(a.var for a in axes))
    value = _value(result)
    sources = value.sources if isinstance(value, Reduce) else value
    counts = [a.extent for a in value.axes] if isinstance(value, Reduce) else []
    stage = Stage(block, axes, value, _inputs(*sources, *counts), facts=facts)
    stage.outputs = tuple(
        Tensor(n, dims, s.dtype, stage) for n, s in zip(names, sources, strict=True)
    )
    return stage.outputs


@names_arguments
def compute_packed(
    shape: Sequence[ExprLike], axes: Sequence[Axis], place: Sequence[ExprLike], value: PrimExpr,
    name: str, facts: Facts = NO_FACTS,
) -> Tensor:  # fmt: skip
    """A tensor in which rows of several arrays lie behind each other: its element at `place` is
    `value`, for all values of the axes, whose extents may depend on axes before them. Each element
    has one place. `facts` are those of inputs, which become index functions."""
    at = tuple(expr.as_expr(i) for i in place)
    inputs = _inputs(value, *at, *(a.extent for a in axes))
    stage = Stage(name, tuple(axes), (value,), inputs, facts=facts, place=at)
    dims = tuple(expr.as_expr(d) for d in shape)
    stage.outputs = (Tensor(name, dims, value.dtype, stage),)
    return stage.outputs[0]


def _inputs(*values: PrimExpr) -> tuple[Tensor, ...]:
    """The tensors that are loaded from, in the order of first use, which a set would not keep:
    equal expressions give equal functions."""
    found = (n.tensor for v in values for n in walk(v) if isinstance(n, TensorLoad))
    return tuple(dict.fromkeys(found))


def _value(result: ExprLike | Reduce | tuple[PrimExpr, ...]) -> Reduce | tuple[PrimExpr, ...]:
    match result:
        case Reduce() | tuple():
            return result
        case _:
            return (expr.as_expr(result),)


@names_arguments
def compute_rows(
    rows: Sequence[ExprLike],
    outputs: Sequence[tuple[str, Sequence[ExprLike], str]],
    inputs: Sequence[Tensor],
    body: RowsBody,
    name: str,
    facts: Facts = NO_FACTS,
) -> tuple[Tensor, ...]:
    """Return tensors computed by hand-written statements, once per index of the `rows` dimensions.

    `outputs` lists (name, shape, dtype); scratch memory of an iteration is an output with the
    dimensions of the rows. `body(indices, buffers)` returns the statements, where `buffers` maps
    inputs and outputs to buffers. The iterations must be independent. `facts` are those of inputs,
    which become index functions.
    """
    dims = tuple(expr.as_expr(d) for d in rows)
    axes = tuple(Axis.named(n, d) for n, d in zip(_letters(len(dims)), dims, strict=True))
    stage = Stage(name, axes, body, tuple(inputs), facts=facts)
    stage.outputs = tuple(
        Tensor(n, tuple(expr.as_expr(d) for d in s), t, stage) for n, s, t in outputs
    )
    return stage.outputs


def _axis_names(fn: Callable[..., object], ndim: int) -> list[str]:
    parameters = inspect.signature(fn).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return _letters(ndim)
    return [p.name for p in parameters]


def _letters(ndim: int) -> list[str]:
    return list("ijkl"[:ndim]) if ndim <= 4 else [f"i{d}" for d in range(ndim)]


# --- Reductions -------------------------------------------------------------------------------


def _simple(name: str, identity: Callable[[str], PrimExpr], op: type[expr.BinaryOp]) -> Combiner:
    return Combiner(
        name,
        lambda dtypes: (identity(dtypes[0]),),
        lambda acc, new: (expr.binary(op, acc[0], new[0]),),
    )


SUM = _simple("sum", lambda d: expr.const(0, d), expr.Add)
PROD = _simple("prod", lambda d: expr.const(1, d), expr.Mul)
MAX = _simple("max", expr.lowest, expr.Max)
MIN = _simple("min", expr.highest, expr.Min)


def _add_terms(acc: PrimExpr, new: PrimExpr) -> PrimExpr:
    if isinstance(new, expr.Add):
        return expr.Add(_add_terms(acc, new.a), new.b)
    return expr.Add(acc, new)


SUM_OF_TERMS = Combiner("sum", SUM.identity, lambda acc, new: (_add_terms(acc[0], new[0]),))
"""Adds the terms of a sum one after the other: each product among them is a fused multiply-add,
where the sum of two products, added as one value, takes a multiplication and an addition more."""


def _reduction(combiner: Combiner) -> Callable[..., Reduce]:
    def reduce(value: PrimExpr, *axes: Axis) -> Reduce:
        return Reduce(combiner, (value,), axes)

    return reduce


te_sum = _reduction(SUM)
te_prod = _reduction(PROD)
te_max = _reduction(MAX)
te_min = _reduction(MIN)


def _arg_combiner(name: str, better: type[expr.BinaryOp], worst: Callable[[str], PrimExpr]):
    """(value, index) pairs: the better value wins, then the lower index; NaN beats all (NumPy)."""

    def combine(acc: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        earlier = expr.LT(acc[1], new[1])
        tie = expr.And(expr.EQ(acc[0], new[0]), earlier)
        keep: PrimExpr = expr.Or(better(acc[0], new[0]), tie)
        if is_float(acc[0].dtype):
            # Comparisons with NaN are false, so it has to be asked for.
            new_ok = expr.Not(isnan(new[0]))
            keep = expr.Or(
                expr.And(isnan(acc[0]), expr.Or(new_ok, earlier)), expr.And(new_ok, keep)
            )
        return (expr.Select(keep, acc[0], new[0]), expr.Select(keep, acc[1], new[1]))

    return Combiner(name, lambda dtypes: (worst(dtypes[0]), expr.highest(dtypes[1])), combine)


ARGMAX = _arg_combiner("argmax", expr.GT, expr.lowest)


# --- Loop functions ---------------------------------------------------------------------------


@names_arguments
def create_prim_func(
    params: Sequence[Tensor], names: Mapping[Tensor, str] | None = None
) -> loops.PrimFunc:
    """The loop function that computes the stages behind the outputs among `params`.

    Inputs are the tensors without a stage, outputs those with one and all that stand among `params`
    a second time, which are copied. One block per stage; tensors between stages are allocated in
    the root block. Symbols that no parameter's shape binds by itself become scalar
    parameters at the end. `names` are those of index functions in messages. ValueError when an
    input is missing from `params`.
    """
    params = _without_repetition(params)
    stages = _ordered([p.stage for p in params if p.stage is not None])
    buffers = _declare(params, stages, names or {})
    _check_inputs(params, stages)
    block_names = UniqueNames()
    nests = [_loop_nest(s, buffers, block_names(s.name)) for s in stages]
    own = set(params)
    local = tuple(buffers[t] for s in stages for t in s.outputs if t not in own)
    root = loops.Block("root", (), (), (), loops.seq(*nests), alloc_buffers=local)
    body = loops.BlockRealize((), TRUE, root)
    return _loop_function(tuple(buffers[p] for p in params), body)


@names_arguments
def check(name: str, func: loops.PrimFunc, span: Span | None = None) -> None:
    """Raises DiagnosticError for a loop function that is not well-formed, such as one that reads
    beside its arrays. `span`: the call that it is for."""
    problems = check_loops(name, func)
    if problems:
        raise DiagnosticError(dataclasses.replace(d, span=d.span or span) for d in problems)


def _without_repetition(params: Sequence[Tensor]) -> list[Tensor]:
    """The parameters, with a copy in the place of each that was there before: an input that is
    returned as it is, or a result that is returned twice. Each has memory of its own to fill."""
    seen: set[Tensor] = set()
    found: list[Tensor] = []
    for p in params:
        found.append(compute(p.shape, lambda *i, p=p: p[i], p.name) if p in seen else p)
        seen.add(p)
    return found


def _loop_function(buffers: tuple[loops.Buffer, ...], body: loops.Stmt) -> loops.PrimFunc:
    """The loop function of these parameters and, behind them, the symbols that they do not bind."""
    func = loops.PrimFunc(buffers, body, Attrs({"tir.noalias": True}))
    bound = {d for b in buffers for d in b.shape if isinstance(d, expr.Var)}
    # Symbols in expressions only (`n + 1` of a shape) are not determined by the arrays' shapes.
    free = tuple(s for s in free_symbols(func) if s not in bound)
    return replace(func, params=(*buffers, *free)) if free else func


@names_arguments
def create_update(
    inputs: Sequence[Tensor], values: Tensor, place: Callable[..., tuple[PrimExpr, ...]]
) -> loops.PrimFunc:
    """The loop function that takes `inputs` and writes `values`, computed of them, into the first:
    the value at `i` at the place `place(*i)`."""
    func = create_prim_func([*inputs, values])
    target, computed = func.buffers[0], func.buffers[len(inputs)]

    def placed(n: Node) -> Node | None:
        match n:
            case loops.BufferStore(buffer, value, at) if buffer is computed:
                return loops.BufferStore(target, value, place(*at))
            case loops.BufferRegion(buffer, region) if buffer is computed:
                at = place(*(r.min for r in region))
                return loops.BufferRegion(target, tuple(loops.Range(i, expr.const(1)) for i in at))
            case _:
                return None

    return _loop_function(func.buffers[: len(inputs)], rewrite(func.body, placed))


def _ordered(roots: Sequence[Stage]) -> list[Stage]:
    """The stages that `roots` need, producers first."""
    done: dict[int, Stage] = {}

    def visit(stage: Stage) -> None:
        if id(stage) in done:
            return
        for tensor in stage.inputs:
            if tensor.stage is not None:
                visit(tensor.stage)
        done[id(stage)] = stage

    for stage in roots:
        visit(stage)
    return list(done.values())


def _declare(
    params: Sequence[Tensor], stages: list[Stage], stated: Mapping[Tensor, str]
) -> dict[Tensor, loops.Buffer]:
    names = UniqueNames()
    tensors = dict.fromkeys((*params, *(t for s in stages for t in s.outputs)))
    facts = {t: known for s in stages for t, known in s.facts.items()}
    called = {t: stated.get(t, t.name) if t in facts else t.name for t in tensors}
    return {
        t: loops.Buffer(names(name), t.shape, t.dtype, facts=facts.get(t, ()))
        for t, name in called.items()
    }


def _check_inputs(params: Sequence[Tensor], stages: list[Stage]) -> None:
    for stage in stages:
        for tensor in stage.inputs:
            if tensor.stage is None and tensor not in params:
                raise ValueError(f"{stage.name} reads {tensor.name}, which is not a parameter")


def _all_axes(stage: Stage) -> tuple[Axis, ...]:
    return (*stage.axes, *(stage.value.axes if isinstance(stage.value, Reduce) else ()))


def _loop_nest(stage: Stage, buffers: dict[Tensor, loops.Buffer], name: str) -> loops.Stmt:
    """The loops around the block of one stage."""
    axes = _all_axes(stage)
    loop_vars = [expr.Var(a.name) for a in axes]
    extents = [_lower_loads(a.extent, buffers) for a in axes]
    iter_vars = tuple(
        loops.IterVar(a.var, loops.Range(ZERO, n), "spatial" if d < len(stage.axes) else "reduce")
        for d, (a, n) in enumerate(zip(axes, extents, strict=True))
    )
    values: tuple[PrimExpr, ...] = tuple(loop_vars)
    if not axes:  # a leaf block keeps one axis, which tells it from the root
        iter_vars = (loops.IterVar(expr.Var("vi"), loops.Range(ZERO, expr.const(1)), "spatial"),)
        values = (ZERO,)
    block = _block(stage, buffers, name, iter_vars)
    nest: loops.Stmt = loops.BlockRealize(values, TRUE, block)
    of_loops = dict(zip((a.var for a in axes), loop_vars, strict=True))
    for var, extent in reversed(list(zip(loop_vars, extents, strict=True))):
        nest = loops.For(var, ZERO, substitute(extent, of_loops), "serial", nest)
    return nest


def _block(
    stage: Stage,
    buffers: dict[Tensor, loops.Buffer],
    name: str,
    iter_vars: tuple[loops.IterVar, ...],
) -> loops.Block:
    outputs = tuple(buffers[t] for t in stage.outputs)
    indices: tuple[PrimExpr, ...] = tuple(a.var for a in stage.axes)
    if stage.place is not None:
        indices = tuple(_lower_loads(i, buffers) for i in stage.place)
    init: loops.Stmt | None = None
    if callable(stage.value):
        body = stage.value(tuple(a.var for a in stage.axes), buffers)
        reads = tuple(_row_region(body, buffers[t], loops.BufferLoad) for t in stage.inputs)
        writes = tuple(_row_region(body, b, loops.BufferStore) for b in outputs)
        return loops.Block(name, iter_vars, reads, writes, body)
    if isinstance(stage.value, Reduce):
        sources = tuple(_lower_loads(s, buffers) for s in stage.value.sources)
        combiner = stage.value.combiner
        identity = combiner.identity(tuple(b.dtype for b in outputs))
        init = loops.seq(
            *(loops.BufferStore(b, v, indices) for b, v in zip(outputs, identity, strict=True))
        )
        acc = tuple(loops.BufferLoad(b, indices) for b in outputs)
        body = _store_all(outputs, combiner.combine(acc, sources), indices)
    else:
        sources = tuple(_lower_loads(s, buffers) for s in stage.value)
        body = _store_all(outputs, sources, indices)
    reads = _point_regions(sources)
    writes = tuple(_point_region(b, indices) for b in outputs)
    return loops.Block(name, iter_vars, reads, writes, body, init)


def _store_all(
    outputs: tuple[loops.Buffer, ...], values: tuple[PrimExpr, ...], indices: tuple[PrimExpr, ...]
) -> loops.Stmt:
    """Store every value; several are computed before the first is stored."""
    if len(outputs) == 1:
        return loops.BufferStore(outputs[0], values[0], indices)
    new = [expr.Var(f"new_{b.name}", v.dtype) for b, v in zip(outputs, values, strict=True)]
    body = loops.seq(*(loops.BufferStore(b, v, indices) for b, v in zip(outputs, new, strict=True)))
    for var, value in reversed(list(zip(new, values, strict=True))):
        body = loops.LetStmt(var, value, body)
    return body


def _lower_loads(value: PrimExpr, buffers: dict[Tensor, loops.Buffer]) -> PrimExpr:
    def lower(n: object) -> PrimExpr | None:
        return loops.BufferLoad(buffers[n.tensor], n.indices) if isinstance(n, TensorLoad) else None

    return rewrite(value, lower)


def _point_regions(values: tuple[PrimExpr, ...]) -> tuple[loops.BufferRegion, ...]:
    """Return the regions that the loads in `values` read, each place once."""
    loads = (n for v in values for n in walk(v) if isinstance(n, loops.BufferLoad))
    distinct = dict.fromkeys((n.buffer, n.indices) for n in loads)
    return tuple(_point_region(buffer, indices) for buffer, indices in distinct)


def _point_region(buffer: loops.Buffer, indices: tuple[PrimExpr, ...]) -> loops.BufferRegion:
    """Return the region of one element; along a dimension indexed by data, all of it."""
    ranges: list[loops.Range] = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        # Analyses of regions know loop variables and symbols, and of arrays what facts state.
        by_data = any(isinstance(n, loops.BufferLoad) and not n.buffer.facts for n in walk(index))
        ranges.append(loops.Range(ZERO, extent) if by_data else loops.Range(index, expr.const(1)))
    return loops.BufferRegion(buffer, tuple(ranges))


def _row_region(
    body: loops.Stmt,
    buffer: loops.Buffer,
    access: type[loops.BufferLoad] | type[loops.BufferStore],
) -> loops.BufferRegion:
    """Return the region of `buffer` that `body` accesses: one index along the dimensions where
    every access has the same block axis, all of the others."""
    places = [n.indices for n in walk(body) if isinstance(n, access) and n.buffer is buffer]
    inner = {n.loop_var for n in walk(body) if isinstance(n, loops.For)}
    inner |= {n.var for n in walk(body) if isinstance(n, loops.LetStmt)}
    ranges: list[loops.Range] = []
    for d, extent in enumerate(buffer.shape):
        seen = {p[d] for p in places}
        index = seen.pop() if len(seen) == 1 else None
        fixed = isinstance(index, expr.Var) and index not in inner
        ranges.append(
            loops.Range(index, expr.const(1)) if fixed else loops.Range(ZERO, extent)  # type: ignore
        )
    return loops.BufferRegion(buffer, tuple(ranges))
