"""Live ranges of the allocated tensors of a function, aliases included."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import has_trait
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.bindings import vars_in
from relaxlab.passes.kernel_calls import written_buffers

PER_THREAD = graph.StringImm("local")
"""The scope of an allocation of which every thread has a copy."""


@dataclass(slots=True)
class Interval:
    """An allocation: the variable, and the positions of its first and last use (both included).

    `after` is the last `match_cast` that binds a symbol of its size, None if all are known at
    entry. `arms` are the branches around the allocation: the number of each `If`, and True for its
    true branch. `last` is the binding of the last use, and `holder` the variable that holds the
    allocation then: its own one, or one after an `If` in whose branch it was made. Both are None
    where that variable may hold other memory as well, which lives longer. `escapes` says why it
    must outlive the function's own memory, if it must.
    """

    binding: graph.VarBinding
    start: int
    end: int
    after: graph.MatchCast | None
    arms: frozenset[tuple[int, bool]]
    last: graph.Binding | None = None
    holder: graph.Var | None = None
    escapes: str | None = None

    @property
    def var(self) -> graph.Var:
        """The variable bound to the allocation."""
        return self.binding.var

    def excludes(self, other: Interval) -> bool:
        """Return True if a run of the function makes at most one of the two: they are made in
        different branches of one `If`."""
        return any((number, not arm) in other.arms for number, arm in self.arms)


@dataclass(slots=True)
class Liveness:
    """Positions count the bindings of a function in order, those of branches before their `If`,
    the true branch first.
    """

    intervals: dict[graph.Var, Interval] = field(default_factory=lambda: {})
    positions: dict[graph.Binding, int] = field(default_factory=lambda: {})


def liveness_of(fn: graph.Function, mod: Module) -> Liveness:
    """The live ranges of the `builtin.alloc_tensor`s of `fn`.

    A value that another value may share memory with (a view, a tuple, a `match_cast`, the result
    of a function that was given it) is in use as long as that one is.
    """
    walker = _Walker(mod, fn)
    walker.sequence(fn.body)
    walker.escape(fn.body.body, "it is returned")
    walker.find_last_uses()
    return walker.result


class _Walker:
    def __init__(self, mod: Module, fn: graph.Function) -> None:
        self.mod = mod
        self.result = Liveness()
        self.roots: dict[graph.Var, frozenset[graph.Var]] = {}
        self.fields: dict[graph.Var, list[frozenset[graph.Var]]] = {}
        self.owned: set[graph.Var] = set()  # whose memory is surely one of their roots
        self.owned_fields: dict[graph.Var, list[bool]] = {}
        self.entry = set(symbols_in(fn.params))
        self.defined: dict[expr.Var, graph.MatchCast] = {}
        self.at = self.ifs = 0
        self.arms: frozenset[tuple[int, bool]] = frozenset()
        self.arms_at: list[frozenset[tuple[int, bool]]] = []
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
            self.branches(value)
        position = self.result.positions[b] = self.at
        self.arms_at.append(self.arms)
        self.at += 1
        # What the branches use was counted where they use it.
        uses = _results(value) if isinstance(value, graph.If) else (value,)
        for v in (v for e in uses for v in vars_in(e)):
            self.use(v, position)
        self.wait(value, position)
        if is_allocation(value) and isinstance(b, graph.VarBinding):
            self.result.intervals[var] = Interval(
                b, position, position, self.known_after(var), self.arms
            )
            self.roots[var] = frozenset((var,))
            self.owned.add(var)
            if is_per_thread(value):
                self.per_thread.add(var)
        elif self.may_share(value):
            self.roots[var] = self.roots_in(value)
            fields = self.fields_of(value)
            if fields is not None:
                self.fields[var] = fields
            if self.is_owned(value):
                self.owned.add(var)
            owned = self.owned_fields_of(value)
            if owned is not None:
                self.owned_fields[var] = owned
        if isinstance(b, graph.MatchCast):
            for s in symbols_in(b.ty):
                if s not in self.entry:
                    self.defined.setdefault(s, b)

    def known_after(self, var: graph.Var) -> graph.MatchCast | None:
        casts = {self.defined[s] for s in symbols_in(var.ty) if s in self.defined}
        # The last of them: earlier ones have been passed by then.
        return max(casts, key=self.result.positions.__getitem__, default=None)

    def branches(self, value: graph.If) -> None:
        for v in vars_in(value.condition):
            self.use(v, self.at)
        number, around, alone = self.ifs, self.arms, frozenset(self.read_alone)
        defined = self.defined
        self.ifs += 1
        ended: set[graph.Var] = set()
        for arm, branch in ((True, value.true_branch), (False, value.false_branch)):
            self.arms, self.read_alone = around | {(number, arm)}, set(alone)
            self.defined = dict(defined)  # what a branch binds is unknown after it
            self.sequence(branch)
            # Either branch may have been taken: what threads still read after one counts after
            # both.
            ended |= self.read_alone
        self.arms, self.read_alone, self.defined = around, ended, defined

    def wait(self, value: graph.Expr, position: int) -> None:
        """Extend what threads read by themselves to the next barrier, which is the end of the next
        call that all threads take part in: until then a slower thread may still read it."""
        if not isinstance(value, graph.Call) or is_allocation(value):
            return
        self.read_alone.update(r for v in vars_in(value) for r in self.roots.get(v, ()))
        if not self.runs_alone(value):
            for root in self.read_alone:
                self.result.intervals[root].end = position
            self.read_alone.clear()

    def runs_alone(self, call: graph.Call) -> bool:
        """Return True if every thread runs this call by itself, into memory of its own."""
        match call:
            case graph.Call(graph.GlobalVar(name), args):
                func = self.mod.get(name)
                if not isinstance(func, loops.PrimFunc):
                    return False
                made = {r for i in written_buffers(func) for r in self.roots_in(args[i])}
                # All outputs must be private: one that is shared would be written by every thread.
                return bool(made) and made <= self.per_thread
            case graph.Call(graph.Op(name)):
                return has_trait(name, "view")
            case _:
                return False

    def may_share(self, value: graph.Expr) -> bool:
        match value:
            case graph.Call(graph.GlobalVar(name)):
                return not isinstance(self.mod.get(name), loops.PrimFunc)
            case graph.Call(graph.Op(name)):
                # A packed function may return one of its arguments.
                return has_trait(name, "view") or has_trait(name, "may_alias")
            case _:
                return True

    def roots_in(self, e: graph.Expr) -> frozenset[graph.Var]:
        """The allocations that the value of `e` may share memory with."""
        if isinstance(e, graph.If):
            return frozenset(root for body in _results(e) for root in self.roots_in(body))
        if isinstance(e, graph.TupleGetItem) and e.tuple_value in self.fields:
            return self.fields[e.tuple_value][e.index]  # type: ignore[index]
        return frozenset(root for v in vars_in(e) for root in self.roots.get(v, ()))

    def fields_of(self, e: graph.Expr) -> list[frozenset[graph.Var]] | None:
        """The allocations that each field of a tuple may share memory with, where they are known
        apart."""
        match e:
            case graph.Tuple(fields):
                return [self.roots_in(f) for f in fields]
            case graph.Var():
                return self.fields.get(e)
            case graph.If():
                yes, no = map(self.fields_of, _results(e))
                if yes is None or no is None:
                    return None
                return [a | b for a, b in zip(yes, no, strict=True)]
            case _:
                return None

    def is_owned(self, e: graph.Expr) -> bool:
        """Return True if the value of `e` is a tensor in the memory of one of its roots."""
        match e:
            case graph.Var():
                return e in self.owned
            case graph.If():
                return all(map(self.is_owned, _results(e)))
            case graph.TupleGetItem(graph.Var() as source, index) if source in self.owned_fields:
                return self.owned_fields[source][index]
            case graph.Call(graph.Op(name), args) if has_trait(name, "view"):
                return self.is_owned(args[0])
            case _:
                return False

    def owned_fields_of(self, e: graph.Expr) -> list[bool] | None:
        """Return `is_owned` of each field of a tuple."""
        match e:
            case graph.Tuple(fields):
                return [self.is_owned(f) for f in fields]
            case graph.Var():
                return self.owned_fields.get(e)
            case graph.If():
                yes, no = map(self.owned_fields_of, _results(e))
                if yes is None or no is None:
                    return None
                return [a and b for a, b in zip(yes, no, strict=True)]
            case _:
                return None

    def use(self, v: graph.Var, position: int) -> None:
        for root in self.roots.get(v, ()):
            self.result.intervals[root].end = position

    def find_last_uses(self) -> None:
        bindings = list(self.result.positions)
        for interval in self.result.intervals.values():
            if interval.arms <= self.arms_at[interval.end]:
                interval.last, interval.holder = bindings[interval.end], interval.var
        for position, b in enumerate(bindings):
            if b.var not in self.owned:
                continue
            held = [self.result.intervals[root] for root in self.roots[b.var]]
            end = max(i.end for i in held)
            if any(i.escapes for i in held) or not self.arms_at[position] <= self.arms_at[end]:
                continue
            for interval in held:
                if interval.holder is None and interval.end == end:
                    interval.last, interval.holder = bindings[end], b.var

    def escape(self, e: graph.Expr, reason: str) -> None:
        for root in self.roots_in(e):
            self.result.intervals[root].escapes = reason


def _results(value: graph.If) -> tuple[graph.Expr, graph.Expr]:
    return value.true_branch.body, value.false_branch.body


def is_allocation(value: graph.Expr) -> bool:
    """True if the expression makes a tensor's memory."""
    return isinstance(value, graph.Call) and value.op == graph.Op("builtin.alloc_tensor")


def is_per_thread(value: graph.Expr) -> bool:
    """True if it makes memory of which every thread has a copy."""
    return isinstance(value, graph.Call) and value.args[-1] == PER_THREAD
