"""When each allocated tensor of a function is in use, aliases included."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.bindings import vars_in
from relaxlab.passes.kernel_calls import written_buffers

ALIASING = ("reshape",)
"""Operators whose result is a view of their argument."""
CLOSURES = ("make_closure", "invoke_closure", "invoke_pure_closure")
"""Operators whose result may hold on to their arguments."""
PER_THREAD = graph.StringImm("local")
"""The scope of an allocation of which every thread has a copy."""


@dataclass(slots=True)
class Interval:
    """An allocation: the variable, and the positions of its first and last use (both included).

    `escapes` says why it must outlive the function's own memory, if it must.
    """

    binding: graph.VarBinding
    start: int
    end: int
    escapes: str | None = None

    @property
    def var(self) -> graph.Var:
        """The variable bound to the allocation."""
        return self.binding.var


@dataclass(slots=True)
class Liveness:
    """Positions count the bindings of a function in order, those of branches before their `If`.

    `defined` says after which `match_cast` a symbol is known (None: at entry).
    """

    intervals: dict[graph.Var, Interval] = field(default_factory=lambda: {})
    positions: dict[graph.Binding, int] = field(default_factory=lambda: {})
    defined: dict[expr.Var, graph.MatchCast] = field(default_factory=lambda: {})


def liveness_of(fn: graph.Function, mod: Module) -> Liveness:
    """The live ranges of the `builtin.alloc_tensor`s of `fn`.

    A value that another value may share memory with (a view, a tuple, a `match_cast`, the result
    of a function that was given it) is in use as long as that one is.
    """
    walker = _Walker(mod, fn)
    walker.sequence(fn.body)
    walker.escape(fn.body.body, "it is returned")
    return walker.result


class _Walker:
    def __init__(self, mod: Module, fn: graph.Function) -> None:
        self.mod = mod
        self.result = Liveness()
        self.roots: dict[graph.Var, frozenset[graph.Var]] = {}
        self.fields: dict[graph.Var, list[frozenset[graph.Var]]] = {}
        self.entry = set(symbols_in(fn.params))
        self.at = 0
        self.per_thread: set[graph.Var] = set()
        self.read_alone: set[graph.Var] = set()

    def sequence(self, seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                self.binding(b)

    def binding(self, b: graph.Binding) -> None:
        value = b.value
        var = b.var
        if isinstance(value, graph.If):
            for branch in (value.true_branch, value.false_branch):
                self.sequence(branch)
                self.escape(branch.body, "it is the result of a branch")
        position = self.result.positions[b] = self.at
        self.at += 1
        for v in vars_in(value):
            self.use(v, position)
        self.wait(value, position)
        if is_allocation(value) and isinstance(b, graph.VarBinding):
            self.result.intervals[var] = Interval(b, position, position)
            self.roots[var] = frozenset((var,))
            if is_per_thread(value):
                self.per_thread.add(var)
        elif self.may_share(value):
            self.roots[var] = self.roots_in(value)
            if isinstance(value, graph.Tuple):
                self.fields[var] = [self.roots_in(f) for f in value.fields]
        if isinstance(b, graph.MatchCast):
            for s in symbols_in(b.ty):
                if s not in self.entry:
                    self.result.defined.setdefault(s, b)

    def wait(self, value: graph.Expr, position: int) -> None:
        """What a thread reads by itself is in use until all threads meet: at the end of the next
        call that is not each thread's own."""
        if not isinstance(value, graph.Call) or is_allocation(value):
            return
        self.read_alone.update(r for v in vars_in(value) for r in self.roots.get(v, ()))
        if not self.runs_alone(value):
            for root in self.read_alone:
                self.result.intervals[root].end = position
            self.read_alone.clear()

    def runs_alone(self, call: graph.Call) -> bool:
        """Whether every thread runs this call by itself, into memory of its own."""
        match call:
            case graph.Call(graph.GlobalVar(name), args):
                func = self.mod.get(name)
                if not isinstance(func, loops.PrimFunc):
                    return False
                made = {r for i in written_buffers(func) for r in self.roots_in(args[i])}
                return bool(made) and made <= self.per_thread
            case graph.Call(graph.Op(name)):
                return name in ALIASING
            case _:
                return False

    def may_share(self, value: graph.Expr) -> bool:
        match value:
            case graph.Call(graph.GlobalVar(name)):
                return not isinstance(self.mod.get(name), loops.PrimFunc)
            case graph.Call(graph.Op(name)):
                return name in ALIASING or name in CLOSURES or name.startswith("call_")
            case _:
                return True

    def roots_in(self, e: graph.Expr) -> frozenset[graph.Var]:
        """The allocations that the value of `e` may share memory with."""
        if isinstance(e, graph.TupleGetItem) and e.tuple_value in self.fields:
            return self.fields[e.tuple_value][e.index]  # type: ignore[index]
        return frozenset(root for v in vars_in(e) for root in self.roots.get(v, ()))

    def use(self, v: graph.Var, position: int) -> None:
        for root in self.roots.get(v, ()):
            self.result.intervals[root].end = position

    def escape(self, e: graph.Expr, reason: str) -> None:
        for root in self.roots_in(e):
            self.result.intervals[root].escapes = reason


def is_allocation(value: graph.Expr) -> bool:
    """Whether the expression makes a tensor's memory."""
    return isinstance(value, graph.Call) and value.op == graph.Op("builtin.alloc_tensor")


def is_per_thread(value: graph.Expr) -> bool:
    """Whether it makes memory of which every thread has a copy."""
    return isinstance(value, graph.Call) and value.args[-1] == PER_THREAD
