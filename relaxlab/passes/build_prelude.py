"""Let programs compute the index functions that calls of loop functions leave out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.prelude import given_buffers, prelude_of, without_prelude
from relaxlab.analysis.ragged import Totals, stored, totals_of
from relaxlab.ir import graph, loops
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import TensorType, Type
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import TirCall, leaf_type, map_blocks, tir_call, with_bindings
from relaxlab.passes.kernel_calls import argument_symbols
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.tracing import remark


@module_pass("build_prelude", needs=("normalize",))
def build_prelude(mod: Module, _: NoOptions) -> Module:
    """Compute the prefix sums, segments of rows and inverse permutations that follow from the
    arguments of a call of a loop function, before the call (CoRa, MLSys 2022, section 5.1).

    Each is a call of a loop function of its own, so that kernels and layers that need the same
    share it (`eliminate_common_subexpr`), and the memory plan and the profile know it.
    """
    state = _Builder(mod)
    updates: dict[str, graph.Function | loops.PrimFunc] = {}
    for name, fn in mod.graph_functions().items():
        place = partial(state.block, name, totals_of(fn))
        updates[name] = map_blocks(fn, place)
    return mod.with_functions({**updates, **state.functions.made})


class _Builder:
    """A module while the calls in it are completed."""

    def __init__(self, mod: Module) -> None:
        self.mod, self.functions = mod, NewFunctions[loops.PrimFunc](mod)

    def block(
        self, function: str, totals: Totals, block: graph.BindingBlock
    ) -> graph.BindingBlock:
        """The block with the index functions that its calls leave out. `totals` are the numbers of
        rows of ragged tensors, which loop functions take as they lie in memory."""
        var = graph.DataflowVar if isinstance(block, graph.DataflowBlock) else graph.Var
        new: list[graph.Binding] = []
        for b in block.bindings:
            call = tir_call(b.value) if isinstance(b, graph.VarBinding) else None
            func = None if call is None else self.mod.get(call.callee)
            if call is not None and isinstance(func, loops.PrimFunc) and _leaves_out(call, func):
                types = [
                    None if ty is None else stored(ty, totals)
                    for ty in (*map(leaf_type, call.args), *_new_outputs(call))
                ]
                subject = f"{function}.{b.var.name}"
                before, made = self.completed(subject, call, types, func, var)
                new += [*before, replace(b, value=made)]
            else:
                new.append(b)
        return with_bindings(block, new)

    def completed(
        self, subject: str, call: TirCall, types: Sequence[Type | None], func: loops.PrimFunc,
        var: type[graph.Var],
    ) -> tuple[list[graph.Binding], graph.Call]:  # fmt: skip
        """The bindings of what the call leaves out, and the call with all arguments. types: those
        of the arguments and outputs that it has."""
        symbols = argument_symbols(without_prelude(func), types, call.symbols, call.callee)
        values = dict(zip(given_buffers(func), call.args, strict=False))
        bindings: list[graph.Binding] = []
        for d in prelude_of(func):
            sizes = (substitute(size, symbols=symbols) for size in d.buffer.shape)
            shape = tuple(Analyzer.for_shapes((size,)).simplify(size) for size in sizes)
            out = TensorType(shape, d.buffer.dtype)
            name = self.functions.name_of(d.func, d.name)
            read = tuple(values[b] for b in d.inputs)
            bound = var(d.buffer.name, out)
            bindings.append(graph.VarBinding(TirCall(name, read, (), (out,)).build(), bound))
            values[d.buffer] = bound
            size = f"{shape[0] * bytes_of(d.buffer.dtype)} bytes"
            remark("build_prelude", subject, f"{d.buffer.name} is made by {name}: {size}")
        outputs = func.buffers[len(func.buffers) - len(_new_outputs(call)) :]
        inputs = [b for b in func.buffers if b not in outputs]
        given = given_buffers(func)
        inplace = tuple(i if i < 0 else inputs.index(given[i]) for i in call.inplace)
        args = tuple(values[b] for b in inputs)
        return bindings, dataclasses.replace(call, args=args, inplace=inplace).build()


def _new_outputs(call: TirCall) -> list[TensorType]:
    """The types of the outputs that are buffers of their own."""
    kept = call.inplace or (-1,) * len(call.outs)
    return [t for t, at in zip(call.outs, kept, strict=True)
            if at < 0 and isinstance(t, TensorType)]  # fmt: skip


def _leaves_out(call: TirCall, func: loops.PrimFunc) -> bool:
    """True if the call passes just the buffers that do not follow from others."""
    passed = len(call.args) + len(_new_outputs(call))
    return passed < len(func.buffers) and passed == len(given_buffers(func))
