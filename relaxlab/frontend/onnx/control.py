"""Rows of conditionals and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.known import Known, constant, tensor
from relaxlab.frontend.loops import counted_loop
from relaxlab.frontend.onnx.rows import row, static
from relaxlab.frontend.onnx.walk import Env, Walk, free_names, tensors
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr

STACKED = "more iterations than are written out, or a number that is data: give it by `constants`"
MOST_UNROLLED = 16
"""The iterations of the longest loop that is written out."""


def _truth(value: Any) -> bool | None:
    """The value of a condition; None where it is data. One that is left out holds."""
    if value is None:
        return True
    found = constant(value) if isinstance(value, Known) else None
    return None if found is None else bool(found.reshape(-1)[0])


@row("If")
@static(0)
def if_(
    b: Emitter, condition: Any, *, then_branch: Any, else_branch: Any, walk: Walk, env: Env,
    **_: Any,
) -> Any:  # fmt: skip
    chosen = _truth(condition)
    if chosen is not None:
        return tuple(walk.subgraph(then_branch if chosen else else_branch, env, ()))
    scalar = b.reshape(tensor(b, condition), ())

    def branch(inner: Any) -> Callable[[], Any]:
        def built() -> Any:
            values = tensors(b, walk.subgraph(inner, env, ()))
            return values[0] if len(values) == 1 else tuple(values)

        return built

    result = b.cond(scalar, branch(then_branch), branch(else_branch))
    return result if len(then_branch.output) == 1 else b.fields(result)


class _Body:
    """The body of a loop as a function of the values that it gets: those around it that it reads
    are parameters of the loop, known ones stay known."""

    def __init__(self, walk: Walk, body: Any, env: Env) -> None:
        self.walk, self.body = walk, body
        outer = {n: env[n] for n in free_names(body) if n in env}
        self.known = {n: v for n, v in outer.items() if isinstance(v, Known)}
        self.names = [n for n in outer if n not in self.known]
        self.captured = [outer[n] for n in self.names]

    def __call__(self, inputs: Sequence[Any], captured: Sequence[Any]) -> list[Any]:
        around = {**self.known, **dict(zip(self.names, captured, strict=True))}
        return self.walk.subgraph(self.body, around, inputs)


@row("Loop")
@static(-1)
def loop(
    b: Emitter, most: Any = None, start: Any = None, *carried: Any, body: Any, walk: Walk, env: Env,
    **_: Any,
) -> Any:  # fmt: skip
    """Written out where the number of iterations is a small number, else a loop that counts or, for
    conditions that are data, one that asks each time."""
    run, count = _Body(walk, body, env), most.number if isinstance(most, Known) else most
    stacked = len(body.output) - 1 - len(carried)
    if isinstance(count, int) and count <= MOST_UNROLLED and _truth(start) is not None:
        unrolled = _written_out(b, run, count, start, carried, stacked)
        if unrolled is not None:
            return unrolled
    if stacked:
        counts = isinstance(count, int | PrimExpr) and _truth(start) is True
        found = _stacking(b, run, expr.as_expr(count), tensors(b, carried)) if counts else None
        if found is None:
            raise Refused(f"stacks values of {STACKED}")
        return found
    return _asking(b, run, most, start, tensors(b, carried))


def _written_out(
    b: Emitter, run: _Body, count: int, start: Any, carried: Sequence[Any], stacked: int
) -> Any:
    """The iterations one after the other; None where a condition is data."""
    rows: list[list[Any]] = []
    goes_on = _truth(start)
    condition: Any = Known.of(True, "bool")
    for i in range(count):
        if not goes_on:
            break
        condition, *values = run((Known.of(i, "int64"), condition, *carried), run.captured)
        carried, goes_on = values[: len(carried)], _truth(condition)
        if goes_on is None:
            return None
        rows.append(tensors(b, values[len(carried) :]))
    if stacked and not rows:
        raise Refused("stacks values of no iteration")
    stacks = [b.stack([r[k] for r in rows], axis=0) for k in range(stacked)]
    return (*tensors(b, carried), *stacks)


def _stacking(b: Emitter, run: _Body, count: PrimExpr, carried: list[Any]) -> Any:
    """A loop of a number of iterations that writes what they give in place; None where it ends
    earlier or its condition is data."""
    always, states = Known.of(True, "bool"), len(carried)
    goes_on, *values = run((Known.of(0, "int64"), always, *carried), run.captured)
    if _truth(goes_on) is not True:
        return None
    buffers = _buffers(b, count, tensors(b, values)[states:])

    def body(i: PrimExpr, *v: Any) -> list[Any]:
        now, whole, rest = v[:states], v[states : states + len(buffers)], v[states + len(buffers) :]
        _, *values = run((Known.of(i, "int64"), always, *now), rest)
        values = tensors(b, values)
        return [*values[:states], *_written(b, whole, values[states:], i)]

    updated = range(states, states + len(buffers))
    given = [b.builder.emit(v) if not isinstance(v, graph.Var) else v for v in carried]
    return counted_loop(b, count, body, (*given, *buffers), run.captured, updated)


def _buffers(b: Emitter, count: PrimExpr, values: Sequence[Any]) -> list[Any]:
    """Memory for as many values of some types, of which these are examples."""
    return [b.zeros((count, *shape_of(v)), dtype=dtype_of(v)) for v in values]


def _written(b: Emitter, whole: Sequence[Any], values: Sequence[Any], i: PrimExpr) -> list[Any]:
    """Buffers with the values at a place."""
    return [
        b.slice_scatter(w, b.expand_dims(y, axis=(0,)), i, i + 1, 1, axis=0)
        for w, y in zip(whole, values, strict=True)
    ]


def _asking(b: Emitter, run: _Body, most: Any, start: Any, carried: list[Any]) -> Any:
    limit = b.const(2**62, "int64") if most is None else b.reshape(tensor(b, most), ())
    first = b.const(True) if start is None else b.reshape(tensor(b, start), ())
    values = (b.const(0, "int64"), first, *carried)
    values = [b.builder.emit(v) if not isinstance(v, graph.Var) else v for v in values]
    inner = (limit, *run.captured)

    def condition(*v: Any) -> Any:
        return b.logical_and(b.less(v[0], v[len(values)]), v[1])

    def body(*v: Any) -> Any:
        i, goes_on, *state = v[: len(values)]
        again, *results = run((i, goes_on, *state), v[len(values) + 1 :])
        following = b.add(i, b.const(1, "int64"))
        return [following, b.reshape(tensor(b, again), ()), *tensors(b, results)]

    return b.while_loop(condition, body, values, inner)[2:]


@row("Scan")
@static(-1)
def scan8(b: Emitter, *_: Any, **__: Any) -> Any:
    raise Refused("Scan of version 8, with a batch dimension")


@row("Scan", since=9)
@static(-1)
def scan(
    b: Emitter, *inputs: Any, body: Any, num_scan_inputs: int, walk: Walk, env: Env,
    scan_input_axes: Any = None, scan_input_directions: Any = None, scan_output_axes: Any = None,
    scan_output_directions: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """A loop over one axis of each scanned input; what it yields is written in place."""
    run, states = _Body(walk, body, env), len(inputs) - num_scan_inputs
    start, xs = tensors(b, inputs[:states]), tensors(b, inputs[states:])
    for i, x in enumerate(xs):
        x = b.flip(x, axis=(scan_input_axes or [0] * len(xs))[i]) if (
            scan_input_directions or [0] * len(xs))[i] else x  # fmt: skip
        xs[i] = _first(b, x, (scan_input_axes or [0] * len(xs))[i])
    count = shape_of(xs[0])[0]
    yielded = body.output[states:]
    if isinstance(count, expr.IntImm) and count.value <= MOST_UNROLLED:
        results = _scan_written_out(b, run, count.value, start, xs, len(yielded))
    else:
        results = _scan_counted(b, run, count, start, xs, len(yielded))
    axes = scan_output_axes or [0] * len(yielded)
    turned = scan_output_directions or [0] * len(yielded)
    stacks = [b.flip(y, axis=0) if t else y for y, t in zip(results[states:], turned, strict=True)]
    moved = [_back(b, y, a) for y, a in zip(stacks, axes, strict=True)]
    return (*results[:states], *moved)


def _first(b: Emitter, x: Any, axis: int) -> Any:
    axis = axis % len(shape_of(x))
    others = tuple(d for d in range(len(shape_of(x))) if d != axis)
    return b.permute_dims(x, axes=(axis, *others)) if axis else x


def _back(b: Emitter, x: Any, axis: int) -> Any:
    ndim = len(shape_of(x))
    axis = axis % ndim
    order = list(range(1, ndim))
    order.insert(axis, 0)
    return b.permute_dims(x, axes=tuple(order)) if axis else x


def _at(b: Emitter, x: Any, i: PrimExpr) -> Any:
    one = b.strided_slice(x, [0], [i], [i + 1], [expr.const(1)], assume_inbound=True)
    return b.reshape(one, shape_of(x)[1:])


def _scan_written_out(
    b: Emitter, run: _Body, count: int, state: list[Any], xs: list[Any], yielded: int
) -> list[Any]:
    rows: list[list[Any]] = []
    for i in range(count):
        steps = [_at(b, x, expr.const(i)) for x in xs]
        values = tensors(b, run((*state, *steps), run.captured))
        state, row_ = values[: len(state)], values[len(state) :]
        rows.append(row_)
    return [*state, *(b.stack([r[k] for r in rows], axis=0) for k in range(yielded))]


def _scan_counted(
    b: Emitter, run: _Body, count: PrimExpr, state: list[Any], xs: list[Any], yielded: int
) -> list[Any]:
    states = len(state)
    steps = [_at(b, x, expr.const(0)) for x in xs]  # of one step, of which only types are read
    buffers = _buffers(b, count, tensors(b, run((*state, *steps), run.captured))[states:])
    carried = [b.builder.emit(v) if not isinstance(v, graph.Var) else v for v in (*state, *buffers)]

    def body(i: PrimExpr, *v: Any) -> list[Any]:
        now, whole, rest = v[:states], v[states : states + yielded], v[states + yielded :]
        steps = [_at(b, x, i) for x in rest[: len(xs)]]
        values = tensors(b, run((*now, *steps), rest[len(xs) :]))
        return [*values[:states], *_written(b, whole, values[states:], i)]

    updated = range(states, states + yielded)
    return list(counted_loop(b, count, body, carried, (*xs, *run.captured), updated))

