"""The programs that `compile` takes: modules, and functions and schedules as modules of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import bytes_of, is_int, numpy_dtype
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    PrimFunc,
    SeqStmt,
)
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.node import Attrs, Node, children, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.bindings import TirCall
from relaxlab.runtime.arrays import Array
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.schedule.schedule import Schedule

Program: TypeAlias = Module | PrimFunc | graph.Function | Schedule
BOUNDS = "tir_var_upper_bound"


def as_module(program: Program) -> Module:
    """The program as a module. A function alone has the name under which it was defined, or `main`.

    Raises TypeError for what is no program.
    """
    match program:
        case Schedule():
            return program.mod
        case PrimFunc() | graph.Function():
            return Module.of({name_of(program): program})
        case _:
            Module.require(program)
            return program


def with_entries(mod: Module) -> tuple[Module, dict[str, PrimFunc]]:
    """A module that has loop functions alone, with a graph function for each to call it by, and
    those loop functions by name; any other module as it is. Private ones get none unless all are.

    The graph function has the loop function's name and parameters: buffers that are written to are
    updated in place and returned. Raises ValueError for a loop function that writes nothing.
    """
    funcs = mod.loop_functions()
    if not funcs or len(funcs) < len(mod):
        return mod, {}
    functions: dict[str, graph.Function | PrimFunc] = {**funcs}
    funcs = {name: func for name, func in funcs.items() if not func.private} or funcs
    for name, func in funcs.items():
        kernel = mod.fresh_name(f"{name}_kernel")
        # Its callers pass the layouts that its parameters have now: none are left to repack.
        inner = replace(func, attrs=func.attrs.with_(layout_rewrites=None))
        functions[name], functions[kernel] = _entry(name, func, kernel), inner
    return Module.of(functions, mod.attrs), funcs


def _entry(name: str, func: PrimFunc, kernel: str) -> graph.Function:
    # A symbol belongs to one function, so the new one has symbols of its own.
    symbols = {v: _symbol(v) for v in symbols_in((func.params, func.buffers))}
    params: list[graph.Var] = []
    for p in func.params:
        if isinstance(p, Buffer):
            shape = tuple(substitute(d, symbols) for d in p.shape)
            params.append(graph.Var(p.name, types.TensorType(shape, p.dtype)))
        else:
            value = symbols.setdefault(p, _symbol(p))
            params.append(graph.Var(p.name, types.PrimType(p.dtype, value)))
    pairs = list(zip(func.params, params, strict=True))
    tensors = [v for p, v in pairs if isinstance(p, Buffer)]
    written = written_buffers(func)
    if not written:
        raise ValueError(f"loop function `{name}` writes to none of its parameters")
    outs = tuple(v.ty for p, v in pairs if p in written if v.ty is not None)
    inplace = tuple(i for i, b in enumerate(func.buffers) if b in written)
    scalars = tuple(symbols[p] for p in func.params if isinstance(p, expr.Var))
    call = TirCall(kernel, tuple(tensors), scalars, outs, inplace).build()
    result = graph.Var("result", outs[0] if len(outs) == 1 else types.TupleType(outs))
    block = graph.BindingBlock((graph.VarBinding(call, result),))
    bounds = func.attrs.get(BOUNDS)
    attrs = Attrs({BOUNDS: bounds}) if bounds else Attrs()
    extents = symbols_in(tuple(b.shape for b in func.buffers))
    signed = tuple(p.name for p in func.params if isinstance(p, expr.Var) and p not in extents)
    if signed:
        attrs = attrs.with_(signed_scalars=signed)
    return graph.Function(tuple(params), graph.SeqExpr((block,), result), result.ty, attrs=attrs)


def _symbol(v: expr.Var) -> expr.Var:
    """A symbol for a parameter or an extent: int64, as extents are, unless it is no integer."""
    return expr.Var(v.name, "int64" if is_int(v.dtype) else v.dtype)


def written_buffers(func: PrimFunc) -> tuple[Buffer, ...]:
    """The parameters that the function writes to."""
    sources = _viewed(func)
    found = {_source(n.buffer, sources) for n in walk(func.body) if isinstance(n, BufferStore)}
    for block in _blocks(func):
        found |= {_source(region.buffer, sources) for region in block.writes}
    return tuple(b for b in func.buffers if b in found)


def fresh_buffers(func: PrimFunc) -> tuple[Buffer, ...]:
    """The parameters that the function writes to before it reads them: pure outputs, whose memory
    may hold anything before the call."""
    sources = _viewed(func)
    read = {_source(n.buffer, sources) for n in _loads_of_old_elements(func.body, frozenset())}
    first_reads: dict[Buffer, bool] = {}
    for block in _blocks(func):
        reads, writes = (
            {_source(region.buffer, sources) for region in regions}
            for regions in (block.reads, block.writes)
        )
        for buffer in reads | writes:
            first_reads.setdefault(buffer, buffer in reads)
    return tuple(b for b in written_buffers(func) if not first_reads.get(b, b in read))


_Element: TypeAlias = tuple[Buffer, tuple[expr.PrimExpr, ...]]


def _loads_of_old_elements(stmt: Node, stored: frozenset[_Element]) -> Iterator[BufferLoad]:
    """The loads of elements that no statement is known to have stored before: `stored` are those
    that were, at indices that still have the same values."""
    match stmt:
        case BufferLoad(buffer, indices):
            if (buffer, indices) not in stored:
                yield stmt
        case SeqStmt(stmts):
            for s in stmts:
                yield from _loads_of_old_elements(s, stored)
                match s:
                    case BufferStore(buffer, _, indices) if not _reads_memory(indices):
                        stored |= {(buffer, indices)}
                    case _:
                        pass
            return
        case _:
            pass
    for child in children(stmt):
        yield from _loads_of_old_elements(child, stored)


def _reads_memory(values: Sequence[expr.PrimExpr]) -> bool:
    return any(isinstance(n, BufferLoad) for v in values for n in walk(v))


def _blocks(func: PrimFunc) -> list[Block]:
    """The blocks in program order, without the root block, which declares nothing."""
    return [n.block for n in walk(func.body) if isinstance(n, BlockRealize) and n is not func.body]


def _viewed(func: PrimFunc) -> dict[Buffer, Buffer]:
    """The buffers that views inside blocks are parts of."""
    return {m.buffer: m.source.buffer for b in _blocks(func) for m in b.match_buffers}


def _source(buffer: Buffer, sources: dict[Buffer, Buffer]) -> Buffer:
    while buffer in sources:
        buffer = sources[buffer]
    return buffer


Check: TypeAlias = Callable[[int, Any], None]
"""Raises ArgumentError for a value that does not fit the parameter at a position."""


Make: TypeAlias = Callable[[tuple[int, ...], str], Any]
"""Makes an array of a shape and a dtype of the IR."""
Complete: TypeAlias = Callable[[Make, tuple[Any, ...]], tuple[Any, ...]]
"""Adds to the arguments of a call the arrays that it leaves out."""


def allocator(name: str, func: PrimFunc, check: Check) -> Complete:
    """Return the function that completes the arguments of a call of `name` that leaves out the
    outputs of a loop function, with arrays of the shapes that follow from those of the inputs.

    It raises ArgumentError for another number of arguments, for inputs that do not fit, and where a
    shape does not follow from the inputs.
    """
    outputs = fresh_buffers(func)
    updated = [p for p in written_buffers(func) if p not in outputs]
    inputs = [p for p in func.params if p not in outputs]
    first, last = (", ".join(p.name for p in some) for some in (inputs, outputs))
    takes = f"`{name}` takes {counted(len(inputs), 'argument')} ({first})"
    if outputs:
        takes += f", or {len(func.params)} with its outputs ({last})"
    also = ""
    if updated:
        of = ", ".join(f"`{p.name}`" for p in updated)
        also = f"; it may read {of} before writing there, so that a call gives the array"

    places = {p: func.params.index(p) for p in func.params}
    sizes = _sizes(inputs)
    known = {symbol for symbol, *_ in sizes}
    of_outputs = [(places[p], p, *_missing(p, known)) for p in outputs]

    def complete(make: Make, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(args) == len(func.params):
            return args
        if len(args) != len(inputs):
            raise ArgumentError(f"{takes}, got {len(args)}{also}")
        for p, arg in zip(inputs, args, strict=True):
            # Before sizes are read off them: an array that does not fit gives the error about
            # itself, not one about an output.
            check(places[p], arg)
        values = {
            symbol: args[number] if axis is None else np.shape(args[number])[axis]
            for symbol, number, axis in sizes
        }
        completed = list(args)
        for place, p, *missing in of_outputs:
            if missing:
                raise ArgumentError(
                    f"the size `{missing[0].name}` of the output `{p.name}` of `{name}` does not "
                    "follow from the inputs; pass the array to write to as well"
                )
            completed.insert(place, _allocated(name, p, values, make))
        return tuple(completed)

    return complete


def _sizes(params: Sequence[Buffer | expr.Var]) -> list[tuple[expr.Var, int, int | None]]:
    """The symbols that stand alone for a dimension or are parameters: each with the number of the
    parameter, and the dimension."""
    found: dict[expr.Var, tuple[int, int | None]] = {}
    for number, p in enumerate(params):
        if isinstance(p, expr.Var):
            found[p] = number, None
            continue
        for axis, dim in enumerate(p.shape):
            if isinstance(dim, expr.Var):
                found.setdefault(dim, (number, axis))
    return [(symbol, *place) for symbol, place in found.items()]


def _missing(buffer: Buffer, known: set[expr.Var]) -> list[expr.Var]:
    """The symbols of a buffer's shape that are not known."""
    return [s for s in symbols_in(buffer.shape) if s not in known]


def _allocated(name: str, buffer: Buffer, values: dict[expr.Var, int], make: Make) -> Any:
    shape = tuple(evaluate(d, values) for d in buffer.shape)
    # NumPy's own error would not say which output it is.
    if min(shape, default=0) < 0 or math.prod(shape) * bytes_of(buffer.dtype) >= 1 << 63:
        raise ArgumentError(f"the output `{buffer.name}` of `{name}` would have the shape {shape}")
    return make(shape, buffer.dtype)


def zeroed(shape: tuple[int, ...], dtype: str) -> Array:
    """A new array of zeros: what a function leaves unwritten is the same at every call, and nobody
    else's data."""
    return np.zeros(shape, numpy_dtype(dtype))
