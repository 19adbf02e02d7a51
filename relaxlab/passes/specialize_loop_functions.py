"""Give loop functions that are called with constant dimensions copies for them."""

from __future__ import annotations

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import TirCall, leaf_type, map_blocks, tir_call, with_bindings
from relaxlab.passes.kernel_calls import argument_symbols
from relaxlab.tracing import may_apply


@module_pass("specialize_loop_functions")
def specialize_loop_functions(mod: Module, _: NoOptions) -> Module:
    """Call copies of loop functions in which symbols are replaced by the constants that a call
    passes for them. Calls with the same constants share a copy.

    A function that decodes one token calls kernels for one row, and pays for no other version.
    Scalar parameters stay parameters.
    """
    state = _Copies(mod)
    updates = {
        name: map_blocks(fn, lambda blk, n=name: state.block(n, blk))
        for name, fn in mod.graph_functions().items()
    }
    return mod.with_functions({**updates, **state.made}) if state.made else mod


class _Copies:
    def __init__(self, mod: Module) -> None:
        self.mod = mod
        self.loop_functions = mod.loop_functions()
        self.made: dict[str, loops.PrimFunc] = {}
        self.names: dict[tuple[str, tuple[tuple[expr.Var, expr.PrimExpr], ...]], str] = {}

    def block(self, caller: str, blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [self.binding(caller, b) for b in blk.bindings])

    def binding(self, caller: str, b: graph.Binding) -> graph.Binding:
        call = tir_call(b.value)
        if call is None:
            return b
        constants = self.constants(call)
        if not constants:
            return b
        values = f"{call.callee} for {', '.join(f'{s.name} = {v}' for s, v in constants)}"
        if not may_apply("specialize_loop_functions", f"{caller}.{b.var.name}", values):
            return b
        callee = self.copy(call.callee, constants)
        new = TirCall(callee, call.args, call.symbols, call.outs, call.inplace).build()
        return replace(b, value=replace(new, span=b.value.span))

    def constants(self, call: TirCall) -> tuple[tuple[expr.Var, expr.PrimExpr], ...]:
        """The symbols that the call's tensors give a constant."""
        func = self.loop_functions[call.callee]
        sources = call.inplace or (-1,) * len(call.outs)
        fresh = [t for t, i in zip(call.outs, sources, strict=True) if i < 0]
        given = [*map(leaf_type, call.args), *fresh]
        symbols = argument_symbols(func, given, call.symbols, call.callee)
        return tuple(
            (s, value)
            for s, value in symbols.items()
            if isinstance(value, expr.IntImm) and s not in func.params
        )

    def copy(self, callee: str, constants: tuple[tuple[expr.Var, expr.PrimExpr], ...]) -> str:
        key = (callee, constants)
        if key not in self.names:
            taken = Module.of({**dict(self.mod.functions), **self.made})
            name = taken.fresh_name(f"{callee}_{'_'.join(str(v) for _, v in constants)}")
            self.made[name] = substitute(self.loop_functions[callee], dict(constants))
            self.names[key] = name
        return self.names[key]
