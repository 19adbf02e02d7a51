"""Mark the runs of kernels that can be captured once and replayed.

A GPU replays a recorded graph of kernel launches far faster than a host launches them one by one.
That is right where every launch is the same at every call: the same addresses, the same sizes,
nothing decided on the host in between. Memory planning gives most launches fixed addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.tracing import may_apply, remark

RULE = "mark_capture_regions"


@module_pass(
    RULE,
    needs=("plan_memory",),
    ends=("canonicalize", "dead_code_elimination", "plan_memory"),
)
def mark_capture_regions(mod: Module, _: NoOptions) -> Module:
    """Set the attribute `capture_regions` of functions: (first, last + 1) for each region, where
    the top-level bindings of the function are counted from 0.

    A region has two kernels or more, whose arguments lie in planned memory of constant size,
    constants, or weights (the parameters from number `num_input` on), with constant dimensions.
    Symbols that the function's attribute `capture_symbols` names count as constant: a graph is
    then captured for each of their values. `lower_shapes` turns regions into ranges of
    instructions.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        regions = tuple(_Regions(name, fn, mod).find())
        if regions != fn.attrs.get("capture_regions", ()):
            attrs = fn.attrs.with_(capture_regions=regions or None)
            updates[name] = replace(fn, attrs=attrs)
    return mod.with_functions(updates)


@dataclass(frozen=True, slots=True)
class _Step:
    """The effect of a binding on a capture: a `kernel` is recorded, `reason` says why it ends a
    region (None: it does not)."""

    kernel: bool = False
    reason: str | None = None


class _Regions:
    """A walk over one function; `fixed` are the variables with the same address at every call."""

    def __init__(self, name: str, fn: graph.Function, mod: Module) -> None:
        self.name, self.fn, self.mod = name, fn, mod
        self.constant: set[str] = set(fn.attrs.get("capture_symbols", ()))
        inputs = fn.attrs.get("num_input", len(fn.params))
        self.fixed = {p for p in fn.params[inputs:] if self.is_static(p.ty)}

    def find(self) -> Iterator[tuple[int, int]]:
        """The regions, in order."""
        kernels: list[int] = []
        for at, b in enumerate([b for blk in self.fn.body.blocks for b in blk.bindings]):
            step = self.step(b)
            if step.kernel:
                kernels.append(at)
            elif step.reason is not None:
                remark(RULE, f"{self.name}.{b.var.name}", step.reason, applied=False)
                yield from self.closed(kernels)
                kernels = []
        yield from self.closed(kernels)

    def closed(self, kernels: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the region of these kernels, if it has enough of them for a capture."""
        if not kernels:
            return
        text = f"bindings {kernels[0]} to {kernels[-1]}: {len(kernels)} kernels"
        if len(kernels) < 2:
            remark(RULE, self.name, f"{text}: a capture of one kernel gains nothing", applied=False)
            return
        if may_apply(RULE, self.name, text):
            yield kernels[0], kernels[-1] + 1

    def step(self, b: graph.Binding) -> _Step:
        if not isinstance(b, graph.VarBinding):
            return _Step(reason="a check on the host")
        match b.value:
            case graph.Call(graph.GlobalVar(name), args) if isinstance(
                self.mod.get(name), loops.PrimFunc
            ):
                reason = self.varies(args) or self.checked(name)
                return _Step(kernel=reason is None, reason=reason and f"`{name}`: {reason}")
            case graph.Call(graph.Op("memory.alloc_storage"), (graph.ShapeExpr((size,)), *_)):
                if symbols_in(size):
                    return _Step(reason=f"the arena's size {size} varies")
                self.fixed.add(b.var)
                return _Step(reason="the arena is allocated here, once")
            case graph.Call(graph.Op("memory.alloc_tensor"), (storage, offset, *_)):
                still = isinstance(offset, graph.PrimValue) and self.is_constant(offset.value)
                self.keep(b.var, self.is_fixed(storage) and still)
                return _Step()
            case graph.Call(graph.Op("reshape"), (source, *_)) | (graph.Var() as source):
                self.keep(b.var, self.is_fixed(source))
                return _Step()
            case graph.Tuple(fields):
                self.keep(b.var, all(map(self.is_fixed, fields)))
                return _Step()
            case graph.TupleGetItem(source, _):
                self.keep(b.var, self.is_fixed(source))
                return _Step()
            case graph.Call(graph.Op("builtin.alloc_tensor")):
                return _Step()
            case graph.If():
                return _Step(reason="a branch on the host")
            case graph.Call(op):
                return _Step(reason=f"a call of {getattr(op, 'name', 'a value')} on the host")
            case _:
                return _Step()

    def keep(self, var: graph.Var, fixed: bool) -> None:
        if fixed:
            self.fixed.add(var)

    def varies(self, args: tuple[graph.Expr, ...]) -> str | None:
        """Return what may differ between two calls of a kernel, in words; None if nothing can."""
        for a in args:
            ty = leaf_type(a)
            if isinstance(a, graph.PrimValue):
                if not self.is_constant(a.value):
                    return f"the scalar {a.value} varies"
            elif not self.is_fixed(a):
                return f"`{getattr(a, 'name', '')}` has another address at every call"
            elif not self.is_static(ty):
                return f"the shape of `{getattr(a, 'name', '')}`, {ty}, varies"
        return None

    def checked(self, name: str) -> str | None:
        """Return that the host waits for a check of the kernel's index functions, if it does."""
        func = self.mod[name]
        assert isinstance(func, loops.PrimFunc)
        stated = any(b.facts for b in func.buffers)
        return "its index functions are checked before it runs" if stated else None

    def is_fixed(self, e: graph.Expr) -> bool:
        return isinstance(e, graph.Constant) or e in self.fixed

    def is_constant(self, e: expr.PrimExpr) -> bool:
        return all(s.name in self.constant for s in symbols_in(e))

    def is_static(self, ty: types.Type | None) -> bool:
        match ty:
            case types.TensorType(shape) if shape is not None:
                return all(map(self.is_constant, shape))
            case types.TupleType(fields):
                return all(map(self.is_static, fields))
            case _:
                return False
