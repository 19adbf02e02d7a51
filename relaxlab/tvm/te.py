"""`tvm.te`: tensor expressions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, as_expr
from relaxlab.ir.loops import Evaluate, PrimFunc
from relaxlab.ir.node import node
from relaxlab.ops import te as core
from relaxlab.ops.te import Tensor
from relaxlab.tvm.comparable import Index, plain
from relaxlab.tvm.names import names


@node
class IterVar(Index):
    """The axis of a reduction: an index from `first` with `extent` values."""

    first: PrimExpr = core.ZERO
    extent: PrimExpr = core.ZERO

    @property
    def var(self) -> IterVar:
        """The axis itself, as an index."""
        return self


def var(name: str = "tindex", dtype: str = "int32", span: object = None) -> expr.Var:
    """A symbol. Sizes and indices are int64 here."""
    return expr.Var(name, "int64" if dtype == "int32" else dtype)


size_var = var


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input tensor."""
    return core.placeholder(_dims(shape), dtype or "float32", name)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "", span: object = None) -> IterVar:
    """An axis to reduce over, of a domain `(first, end)`."""
    if hasattr(dom, "min"):
        first, extent = dom.min, dom.extent
    else:
        first, end = (expr.as_expr(e) for e in dom)
        extent = end - first
    return IterVar(name, "int64", first, extent)


@dataclass(frozen=True, eq=False)
class ThreadAxis:
    """An axis of threads: a variable, its domain if one is given, and what it is called."""

    var: expr.Var
    dom: Any
    thread_tag: str


def thread_axis(
    dom: Any = None, tag: str = "", name: str = "", span: object = None
) -> ThreadAxis:
    """The axis of threads `tag`, such as "threadIdx.x", which may be the only argument."""
    if isinstance(dom, str):
        dom, tag = None, dom
    if not tag:
        raise ValueError("an axis of threads has a tag such as 'threadIdx.x'")
    return ThreadAxis(var(name or tag), dom, tag)


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: object = None,
    varargs_names: Sequence[str] | None = None,
) -> Any:
    """The tensor whose element at each index is `fcompute(*index)`; a tuple of tensors where that
    is a tuple, or a reduction of one."""
    dims = _dims(shape)
    parameters = _parameters(fcompute, len(dims), varargs_names)
    indices = tuple(Index(n) for n in parameters)
    value = fcompute(*indices)
    several = isinstance(value, tuple | list) or (
        isinstance(value, core.Reduce) and len(value.sources) > 1
    )
    if isinstance(value, list):
        value = tuple(value)

    def element(*at: PrimExpr) -> Any:
        return _substituted(value, dict(zip(indices, at, strict=True)))

    element.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in parameters]
    )
    if not several:
        return core.compute(dims, element, name)
    count = len(value if isinstance(value, tuple) else value.sources)
    return core.compute_many(dims, element, tuple(f"{name}_v{i}" for i in range(count)), name)


def extern(
    shape: Any, inputs: Sequence[Tensor], fcompute: Callable[..., Any], name: str = "extern",
    dtype: Any = None, in_buffers: object = None, out_buffers: object = None, tag: str = "",
    attrs: object = None,
) -> Any:  # fmt: skip
    """The tensor that a statement fills, or the tuple of several: `fcompute(ins, outs)` returns the
    statement or the call, of buffers. The dtype is that of all inputs where none is given."""
    several = isinstance(shape[0], tuple | list) if isinstance(shape, tuple | list) else False
    shapes = [_dims(s) for s in shape] if several else [_dims(shape)]
    dtypes = list(dtype) if isinstance(dtype, tuple | list) else [dtype] * len(shapes)
    common = {t.dtype for t in inputs}
    if None in dtypes and len(common) != 1:
        raise ValueError("an external function of inputs of several dtypes states its own")
    outs = [(name, s, d or next(iter(common))) for s, d in zip(shapes, dtypes, strict=True)]

    def body(_: Any, buffers: Any) -> Any:
        done = fcompute([buffers[t] for t in inputs], [buffers[t] for t in filled])
        return Evaluate(done) if isinstance(done, PrimExpr) else done

    filled = core.compute_rows((), outs, inputs, body, name)
    return filled if several else filled[0]


def _dims(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, tuple | list) else (shape,)


def _parameters(
    fcompute: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None
) -> list[str]:
    """The names of the loops: those of the function's parameters."""
    given = inspect.signature(fcompute).parameters.values()
    found = [p.name for p in given if p.kind is not p.VAR_POSITIONAL]
    if len(found) == len(given):
        if len(found) != ndim:
            raise ValueError(f"the function takes {len(found)} indices of {ndim} dimensions")
        return found
    return [*found, *(varargs_names or [f"i{d}" for d in range(len(found), ndim)])]


def _substituted(value: Any, at: dict[expr.Var, PrimExpr]) -> Any:
    match value:
        case tuple():
            return tuple(_substituted(v, at) for v in value)
        case core.Reduce(combiner, sources, axes):
            return core.Reduce(combiner, _substituted(sources, at), axes)
        case PrimExpr():
            return plain(value, at)
        case _:
            return expr.as_expr(value)


# --- Reductions


def _reduced(
    combiner: core.Combiner, values: tuple[Any, ...], axis: Any, where: Any, init: Any
) -> core.Reduce:
    chosen = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    for a in chosen:
        if not isinstance(a, IterVar):
            raise TypeError(f"a reduction is over axes of reduce_axis, not {a!r}")
    if init is not None:
        raise ValueError("a reduction starts from the identity of its operation; `init` is None")
    axes = tuple(core.Axis.named(a.name, a.extent) for a in chosen)
    at = {a: axis.var + a.first for a, axis in zip(chosen, axes, strict=True)}
    sources = tuple(expr.as_expr(v) for v in values)
    if where is not None:
        identity = combiner.identity(tuple(s.dtype for s in sources))
        pairs = zip(sources, identity, strict=True)
        sources = tuple(expr.Select(where, s, i) for s, i in pairs)
    return core.Reduce(combiner, _substituted(sources, at), axes)


def _reducer(combiner: core.Combiner) -> Callable[..., Any]:
    """A reduction over axes; of values alone, `max(a, b, c)`, the operation itself."""

    def reduce(
        expr: Any, axis: Any = None, where: Any = None, init: Any = None, *args: Any
    ) -> core.Reduce | PrimExpr:
        if isinstance(axis, PrimExpr | int | float) and not isinstance(axis, IterVar):
            more = (axis, *(v for v in (where, init) if v is not None), *args)
            return functools.reduce(functools.partial(_combined, combiner), more, as_expr(expr))
        values = tuple(expr) if isinstance(expr, tuple | list) else (expr,)
        return _reduced(combiner, values, axis, where, init)

    reduce.__name__ = combiner.name
    return reduce


def _combined(combiner: core.Combiner, a: PrimExpr, b: Any) -> PrimExpr:
    (value,) = combiner.combine((a,), (as_expr(b, a.dtype),))
    return value


sum = _reducer(core.SUM)  # noqa: A001 - TVM's name
max = _reducer(core.MAX)  # noqa: A001
min = _reducer(core.MIN)  # noqa: A001


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reduction by an operation: `fcombine(so far, new)` from `fidentity(dtype)`; both take and
    return tuples where it reduces tuples."""

    def one(value: Any, like: PrimExpr) -> PrimExpr:
        return expr.as_expr(value, like.dtype)

    def combine(acc: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        if len(acc) == 1:
            return (one(fcombine(acc[0], new[0]), acc[0]),)
        return tuple(one(v, a) for v, a in zip(fcombine(acc, new), acc, strict=True))

    def identity(dtypes: tuple[str, ...]) -> tuple[PrimExpr, ...]:
        found = fidentity(*dtypes)
        values = found if isinstance(found, tuple | list) else (found,)
        return tuple(expr.as_expr(v, d) for v, d in zip(values, dtypes, strict=True))

    return _reducer(core.Combiner(name, identity, combine))


def create_prim_func(
    ops: Sequence[Tensor | expr.Var], index_dtype_override: str | None = None
) -> PrimFunc:
    """The loop function that takes tensors, inputs and outputs in this order, and computes the
    outputs. Symbols that no shape gives are parameters behind them."""
    return core.create_prim_func([t for t in ops if isinstance(t, Tensor)])


_HOMES = {
    name: f"relaxlab.tvm.tir:{name}"
    for name in (
        "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atanh", "ceil", "const",
        "cos", "cosh", "div", "erf", "exp", "floor", "floordiv", "floormod", "fmod",
        "if_then_else", "indexdiv", "indexmod", "isfinite", "isinf", "isnan", "log", "log10",
        "log2", "max_value", "min_value", "nearbyint", "popcount", "power", "round", "rsqrt",
        "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "truncdiv", "truncmod",
    )
}  # fmt: skip

__path__: list[str] = []  # which lets imports look for submodules, of which `hook` has the names
__getattr__, __dir__ = names(__name__, _HOMES)
