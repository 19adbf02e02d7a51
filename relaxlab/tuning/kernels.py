"""The kernels of a program, each as a program of its own that is scheduled just as it is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.ir import expr, graph, types
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import Attrs, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.bindings import TirCall, tir_call
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.schedule.bounds import UPPER_BOUNDS
from relaxlab.schedule.compiled import context_of, schedule_of, scheduled_kernels
from relaxlab.schedule.decisions import Decision, Made
from relaxlab.schedule.rules.context import Context
from relaxlab.tracing import Trace

FUNCTION, KERNEL = "main", "kernel"
"""The names in the program of a kernel alone."""
USUAL_SIZE = 256
"""The value of symbols for which none is given, at most their bounds."""


class TuneError(UserError, ValueError):
    """A program, or a size of it, that cannot be tuned."""


@dataclass(frozen=True, slots=True, repr=False)
class Kernel(Brief):
    """A kernel of a program. program: the function `main`, which calls `kernel` alone; its first
    parameter has the values of the symbols, the last ones are weights. key: see `Context.key_of`.
    sizes: the values of the symbols that it is to be measured for. calls: the number of its calls
    in the program. decisions: those that its schedule makes, with the rules' defaults."""

    name: str
    key: str
    program: Module
    sizes: tuple[dict[str, int], ...]
    calls: int
    decisions: tuple[Decision, ...]


def kernels_of(
    mod: Module, target: Target, shapes: Mapping[str, Sequence[int] | int]
) -> tuple[list[Kernel], dict[str, str]]:
    """The kernels of a program, and by name the reasons why others of them cannot be tuned. shapes:
    values for symbols of the program; each kernel is to be measured for all that follow from them.
    Kernels that are equal are one.

    Raises TuneError for a symbol that the program does not have, or a value beyond its bound.
    """
    passes = default_pipeline(target).passes
    before = Pipeline(passes[: _first_schedule(passes)]).run(mod).result
    trace = _scheduling(target).run(before)
    envs = {f: list(_environments(f, shapes)) for f in before.graph_functions().values()}
    unknown = shapes.keys() - {s.name for found in envs.values() for env in found for s in env}
    if unknown:
        known = sorted({s.name for found in envs.values() for env in found for s in env})
        raise TuneError(
            f"the program has no symbol `{min(unknown)}`; it has: {among(min(unknown), known)}"
        )
    found: dict[str, Kernel] = {}
    left: dict[str, str] = {}
    for name in scheduled_kernels(trace):
        decisions = tuple(schedule_of(trace, name).decisions.values())
        try:
            one = _alone(before, trace, name, decisions, envs, target)
        except (TuneError, CannotEvaluate) as error:
            left[name] = str(error)
            continue
        other = found.get(one.key)
        found[one.key] = one if other is None else _joined(other, one)
    return list(found.values()), left


def schedule_alone(program: Module, target: Target, made: Made) -> Trace:
    """Run the passes from scheduling on, with a schedule for the kernel of a program of its own."""
    passes = default_pipeline(target).passes
    rest = Pipeline(passes[_first_schedule(passes) :])
    return rest.with_options(schedule_kernels.name, decisions={KERNEL: made}).run(program)


def context_alone(program: Module, target: Target) -> Context:
    """The context in which the kernel of a program of its own is scheduled."""
    return context_of(_scheduling(target).run(program), KERNEL)


def _scheduling(target: Target) -> Pipeline:
    return Pipeline((schedule_kernels.with_options(target=target),))


def _first_schedule(passes: Sequence[Any]) -> int:
    return [p.name for p in passes].index(schedule_kernels.name)


def _environments(
    func: graph.Function, shapes: Mapping[str, Sequence[int] | int]
) -> Iterator[dict[expr.Var, int]]:
    """Yield the values of a function's symbols, for each requested combination."""
    symbols = list(dict.fromkeys(n for n in walk(func) if isinstance(n, expr.Var)))
    symbols += [s for s in symbols_in(func) if s not in symbols]
    bounds: Mapping[str, int] = func.attrs.get(UPPER_BOUNDS, {})
    values: list[Sequence[int]] = []
    for symbol in symbols:
        most = bounds.get(symbol.name)
        given = shapes.get(symbol.name)
        if isinstance(given, int):  # one value, 0 too, which would be taken for none
            given = (given,)
        for value in given or ():
            if value < 1 or (most is not None and value > most):
                raise TuneError(f"`{symbol.name}` cannot be {value}; it is at least 1 and at most "
                                f"{'any number' if most is None else most}")  # fmt: skip
        values.append(given or (min(USUAL_SIZE, most or USUAL_SIZE),))
    return (dict(zip(symbols, chosen, strict=True)) for chosen in product(*values))


def _alone(
    before: Module,
    trace: Trace,
    name: str,
    decisions: tuple[Decision, ...],
    envs: Mapping[graph.Function, Sequence[dict[expr.Var, int]]],
    target: Target,
) -> Kernel:
    func, context = before[name], context_of(trace, name)
    assert isinstance(func, PrimFunc)
    calls = [
        (found, call)
        for f, found in envs.items()
        for call in map(tir_call, (n for n in walk(f) if isinstance(n, graph.Call)))
        if call is not None and call.callee == name
    ]
    if not calls:
        raise TuneError("no function of the program calls it")
    sizes: list[dict[str, int]] = []
    for found, call in calls:
        for env in found:
            one = _sizes(func, call, env)
            if one not in sizes:
                sizes.append(one)
    bounds = dict(context.bounds)
    program = _program(func, calls[0][1], sorted(context.weights), bounds)
    key = context.key_of(func)
    if context_alone(program, target).key_of(func) != key:
        raise TuneError("alone it would be scheduled in another way than in the program")
    return Kernel(name, key, program, tuple(sizes), len(calls), decisions)


def _sizes(func: PrimFunc, call: TirCall, env: Mapping[expr.Var, int]) -> dict[str, int]:
    """The values of a kernel's symbols in a call. Raises CannotEvaluate or TuneError where they do
    not follow from those of the program."""
    shapes = [_shape_of(a) for a in call.args]
    shapes += [_shape(t) for t, i in zip(call.outs, _overwritten(call), strict=True) if i < 0]
    found: dict[str, int] = {}
    for buffer, shape in zip(func.buffers, shapes, strict=False):
        for dim, actual in zip(buffer.shape, shape, strict=False):
            if isinstance(dim, expr.Var):
                found.setdefault(dim.name, int(evaluate(actual, env)))
    scalars = (p for p in func.params if isinstance(p, expr.Var))
    for param, actual in zip(scalars, call.symbols, strict=False):
        found[param.name] = int(evaluate(actual, env))
    missing = [s.name for s in kernel_symbols(func) if s.name not in found]
    if missing:
        raise TuneError(f"the value of its symbol `{missing[0]}` does not follow from the program")
    return found


def _shape(ty: types.Type | None) -> tuple[expr.PrimExpr, ...]:
    return (ty.shape if isinstance(ty, types.TensorType) else None) or ()


def _shape_of(arg: graph.Expr) -> tuple[expr.PrimExpr, ...]:
    match arg:
        case graph.Var(ty=ty):
            return _shape(ty)
        case graph.Constant(data):
            return tuple(map(expr.const, data.shape))
        case _:
            return ()


def _overwritten(call: TirCall) -> tuple[int, ...]:
    """Per result, the argument that it is, -1 for a new one."""
    return call.inplace or (-1,) * len(call.outs)


def _program(
    func: PrimFunc, call: TirCall, weights: Iterable[int], bounds: Mapping[str, int]
) -> Module:
    """A program that calls a loop function as the given call does; `weights` are the numbers of the
    arguments that are weights."""
    own = kernel_symbols(func)
    # A symbol belongs to one function, so the new one has symbols of its own.
    symbols = {s: expr.Var(s.name) for s in own}

    def tensor(buffer: Buffer) -> types.TensorType:
        return types.TensorType(tuple(substitute(d, symbols) for d in buffer.shape), buffer.dtype)

    count = len(call.args)
    args = [graph.Var(f"x{i}", tensor(b)) for i, b in enumerate(func.buffers[:count])]
    fresh = iter(func.buffers[count:])
    outs = tuple(args[i].ty if i >= 0 else tensor(next(fresh)) for i in _overwritten(call))
    if len(args) != count or any(out is None for out in outs):
        raise TuneError("its arguments are not all tensors")
    scalars = tuple(symbols[p] for p in func.params if isinstance(p, expr.Var))
    made = TirCall(KERNEL, tuple(args), scalars, outs, call.inplace).build()  # type: ignore[reportArgumentType]
    ty = outs[0] if len(outs) == 1 else types.TupleType(outs)  # type: ignore[reportArgumentType]
    result = graph.Var("result", ty)
    block = graph.BindingBlock((graph.VarBinding(made, result),))
    first = [graph.Var("sizes", types.ShapeType(tuple(symbols[s] for s in own)))] if own else []
    last = [args[i] for i in weights]
    inputs = [*first, *(a for a in args if a not in last)]
    attrs = {"num_input": len(inputs)} if last else {}
    facts = {**attrs, UPPER_BOUNDS: Attrs(bounds)} if bounds else attrs
    main = graph.Function(
        (*inputs, *last), graph.SeqExpr((block,), result), ty, attrs=Attrs(facts)
    )  # fmt: skip
    return Module.of({FUNCTION: main, KERNEL: func})


def _joined(one: Kernel, other: Kernel) -> Kernel:
    """Two equal kernels as one, with the sizes and calls of both."""
    new = tuple(s for s in other.sizes if s not in one.sizes)
    return Kernel(
        one.name, one.key, one.program, (*one.sizes, *new), one.calls + other.calls, one.decisions
    )
