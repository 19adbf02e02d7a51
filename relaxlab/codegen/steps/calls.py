"""A step that puts private loop functions in the place of calls of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.ir import expr, row_major
from relaxlab.ir.expr import PrimExpr, StringImm, Var
from relaxlab.ir.loops import (
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    PrimFunc,
    Stmt,
    returned_value,
)
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.regions import with_alloc
from relaxlab.schedule.tree import TRUE, normalized, with_fresh_binders


def private_calls_inlined(mod: Module) -> Module:
    """The module without the private loop functions that others call, where that can be: calls of
    them are their statements. A function stays that calls itself, returns a value, has buffers with
    strides or offsets, or is called with what is no address of an element."""
    inlined: set[str] = set()
    for name, func in mod.loop_functions().items():
        new = _Inlining(mod, name).all(func, inlined)
        if new is not func:
            mod = mod.with_functions({name: new})
    called = {n for f in mod.loop_functions().values() for n in _called(f)}
    return mod.without(*(n for n in inlined if n not in called))


def _called(func: PrimFunc) -> set[str]:
    return {str(n.args[0].value) for n in walk(func.body) if _is_call(n)}  # type: ignore[attr-defined]


def _is_call(n: Node) -> bool:
    return isinstance(n, expr.Call) and n.op == "call_function" and isinstance(n.args[0], StringImm)


class _Inlining:
    """Calls in the function `name` of a module."""

    def __init__(self, mod: Module, name: str) -> None:
        self.functions, self.name = mod.loop_functions(), name
        self.allocated: list[Buffer] = []

    def all(self, func: PrimFunc, inlined: set[str]) -> PrimFunc:
        """The function without calls; the names of what is inlined are added."""
        body: Stmt = func.body
        while True:
            new = rewrite(body, lambda n: self.inline(n, inlined))
            if new is body:
                break
            body = new
        if body is func.body:
            return func
        body = simplify_indices(body, symbols_in(func.params), values=False)
        func = replace(func, body=body)
        if self.allocated:
            func = normalized(func)
            for buffer in self.allocated:
                func = with_alloc(func, "root", buffer)
        return func

    def inline(self, n: Node, inlined: set[str]) -> Stmt | None:
        if not isinstance(n, Evaluate) or not _is_call(n.value):
            return None
        name, *args = cast("expr.Call", n.value).args
        callee = self.functions.get(str(cast("StringImm", name).value))
        if callee is None or not _can_be_inlined(callee, self.functions):
            return None
        made = self.instance(callee, args)
        if made is not None:
            inlined.add(str(cast("StringImm", name).value))
        return made

    def instance(self, callee: PrimFunc, args: list[PrimExpr]) -> Stmt | None:
        """The statements of a function for some arguments; None if these do not fit."""
        if len(args) != len(callee.params):
            return None
        scalars: dict[Var, PrimExpr] = {}
        memory: dict[Buffer, BufferLoad] = {}
        for param, arg in zip(callee.params, args, strict=True):
            match param, arg:
                case Buffer(), expr.Call(op="address_of", args=(BufferLoad() as first,)):
                    if first.buffer.dtype != param.dtype or first.buffer.strides:
                        return None
                    memory[param] = first
                case Var(), _ if arg.dtype == param.dtype:
                    scalars[param] = arg
                case Var(), _ if arg.dtype != "handle":
                    scalars[param] = expr.Cast(param.dtype, arg)
                case _:
                    return None
        body, own = callee.body, ()
        if isinstance(body, BlockRealize) and body.block.name == "root" and body.predicate == TRUE:
            own, body = body.block.alloc_buffers, body.block.body
        copies = {b: replace(b) for b in own}
        self.allocated += copies.values()
        body = with_fresh_binders(substitute(body, scalars, copies))
        return cast("Stmt", rewrite(body, lambda n: _elsewhere(n, memory)))


def _can_be_inlined(callee: PrimFunc, functions: Mapping[str, PrimFunc]) -> bool:
    nodes = list(walk(callee.body))
    returns = any(isinstance(n, Evaluate) and returned_value(n) is not None for n in nodes)
    plain = not any(b.strides or b.elem_offset is not None or b.facts for b in callee.buffers)
    addressed = any(isinstance(n, expr.Call) and n.op == "address_of" for n in nodes)
    reached, found = set[str](), _called(callee)
    while found - reached:
        reached |= found
        found = {c for name in found if name in functions for c in _called(functions[name])}
    recursive = any(functions.get(name) is callee for name in reached)
    blocks = any(isinstance(n, BlockRealize) for n in walk(callee.body) if n is not callee.body)
    symbols = bool({*symbols_in(callee.buffers)} - {*callee.params})
    fits = callee.private and plain and not callee.requires
    return fits and not (returns or recursive or addressed or blocks or symbols)


def _elsewhere(n: Node, memory: Mapping[Buffer, BufferLoad]) -> Node | None:
    """An access to a parameter, as one to the memory that it is given."""
    if not isinstance(n, BufferLoad | BufferStore) or n.buffer not in memory:
        return None
    first = memory[n.buffer]
    start = row_major.place(first.indices, first.buffer.shape)
    indices = [i if i.dtype == "int64" else expr.Cast("int64", i) for i in n.indices]
    number = start + row_major.place(indices, n.buffer.shape)
    shape = first.buffer.shape
    if n.buffer.shape == shape and start == expr.const(0):
        return replace(n, buffer=first.buffer)
    at = tuple(
        number // stride if i == 0 else number // stride % shape[i]
        for i, stride in enumerate(row_major.strides(shape))
    )
    return replace(n, buffer=first.buffer, indices=at)
