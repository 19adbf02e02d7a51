"""Well-formedness of loop functions.

Only what is provably wrong is reported; what is merely unknown passes. Every code has a section
with an example in `docs/errors-loops.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import NotAnIterMap, detect_iter_map
from relaxlab.analysis.regions import Bounds, relax_index
from relaxlab.ir import dtypes, expr, loops
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.node import Atom, Node, children, walk
from relaxlab.ir.span import Span
from relaxlab.ir.substitute import symbols_in

TRUE = expr.IntImm(1, "bool")
NO_VALUE_YET = "E0326"
"""The error of a reduction that adds to what has no value, as an output has none where a program
calls the function. Read alone, a function may add to what its caller passes with a value, as the
description of a tensor intrinsic does."""
UNTRUE_CLAIMS = ("E0321", "E0322", "E0323", "E0324", NO_VALUE_YET, "E0332", "E0333", "E0334")
"""The errors of functions that mean something, and other than they claim: axes that are not
reached or go too far, blocks that leave out what they write, indices outside of buffers. Programs
for TVM, which checks none of it, are read with a warning."""
OUTSIDE = ("E0322", "E0334")
"""Those among them with which a program may access memory that is not its own."""


def check_loops(name: str, func: loops.PrimFunc) -> list[Diagnostic]:
    """Return the errors of a loop function called `name`, in program order; empty if there are
    none."""
    checker = LoopsChecker(name, Analyzer.for_shapes(tuple(b.shape for b in func.buffers)))
    # Scalars first: a buffer's shape may mention a scalar that comes after it.
    for p in sorted(func.params, key=lambda p: isinstance(p, loops.Buffer)):
        checker.parameter(p)
    for p in func.buffers:
        checker.facts(p)
    checker.stmt(func.body)
    return checker.found


def require_accesses_inside(funcs: Mapping[str, loops.PrimFunc]) -> None:
    """Raise DiagnosticError for functions, by name, that provably access memory outside of their
    buffers."""
    found = [d for name, f in funcs.items() for d in check_loops(name, f) if d.code in OUTSIDE]
    if found:
        raise DiagnosticError(found)


@dataclass(slots=True)
class LoopsChecker:
    """A walk over the statements with the definitions at each."""

    name: str
    an: Analyzer
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    variables: set[expr.Var] = field(default_factory=set[expr.Var])
    buffers: set[loops.Buffer] = field(default_factory=set[loops.Buffer])
    params: set[loops.Buffer] = field(default_factory=set[loops.Buffer])
    written: set[loops.Buffer] = field(default_factory=set[loops.Buffer])
    outer_loops: set[expr.Var] = field(default_factory=set[expr.Var])
    private: dict[loops.Buffer, set[expr.Var]] = field(default_factory=dict)  # type: ignore
    allowed: set[expr.Var] = field(default_factory=set[expr.Var])
    nest: list[loops.For] = field(default_factory=list[loops.For])
    ranges: dict[expr.Var, Bounds] = field(default_factory=dict[expr.Var, Bounds])
    depends: dict[expr.Var, list[expr.Var]] = field(default_factory=dict)  # type: ignore
    guards: int = 0
    dead: bool = False
    block: str | None = None
    axes: dict[expr.PrimExpr, expr.Var] = field(default_factory=dict)  # type: ignore # by binding
    place: Node | None = None  # the innermost expression or store with a span
    seen: set[tuple[str, object]] = field(default_factory=set[tuple[str, object]])

    def report(
        self,
        code: str,
        message: str,
        at: Node,
        *notes: str,
        fix: str | None = None,
        once: object = None,
    ) -> None:
        """Add a diagnostic; of several with the same `once`, only the first."""
        key = (code, once if once is not None else (id(at), message))
        if key not in self.seen:
            self.seen.add(key)
            place = f"{self.name}: " if self.block is None else f"{self.name}, {self.block!r}: "
            span: Span | None = getattr(at, "span", None)
            self.found.append(Diagnostic(code, place + message, span, notes, fix))

    def parameter(self, p: loops.Buffer | expr.Var) -> None:
        if isinstance(p, expr.Var):
            self.define(p, p)
            return
        if p in self.buffers:
            self.report("E0327", f"buffer {p.name} is a parameter twice", p)
        self.buffers.add(p)
        self.params.add(p)
        offset = () if p.elem_offset is None else (p.elem_offset,)
        self.variables.update(symbols_in((*p.shape, *p.strides, *offset)))

    def facts(self, b: loops.Buffer) -> None:
        """Report facts of what is no index function, and facts about what is not there."""
        if b.facts and (b.ndim != 1 or b.dtype not in ("int32", "int64")):
            text = f"{b.name} has facts, and is no one-dimensional array of int32 or int64"
            self.report("E0335", text, b, fix="state facts of index arrays only")
        for fact in b.facts:
            stated = fact.at(expr.const(0)) if isinstance(fact, loops.FactOfEach) else fact
            for part in children(stated) if isinstance(stated, loops.Fact) else (stated,):
                if isinstance(part, expr.PrimExpr):
                    self.value(part)
            loads = [n for n in walk(fact) if isinstance(n, loops.BufferLoad)]
            named = isinstance(fact, loops.SegmentIds | loops.Permutation)
            if named and not _is_element(fact.of):
                text = f"a fact of {b.name} needs the element at the position of another array"
                self.report("E0335", text, b, fix="write `lambda i: a[i]`")
            if any(n.buffer is b or n.buffer.ndim != 1 or n.buffer not in self.params
                   for n in loads):  # fmt: skip
                text = f"a fact of {b.name} is about another array than a parameter beside it"
                self.report("E0335", text, b, fix="mention other one-dimensional parameters only")

    def define(self, v: expr.Var, at: Node) -> None:
        if v in self.variables:
            self.report(
                "E0327",
                f"{v.name} is defined again where it is already in use",
                at,
                fix="give the inner definition a variable of its own",
            )
        self.variables.add(v)

    @contextmanager
    def defining(self, v: expr.Var, at: Node) -> Generator[None]:
        was = v in self.variables
        self.define(v, at)
        yield
        if not was:
            self.variables.discard(v)

    def stmt(self, s: loops.Stmt) -> None:
        match s:
            case loops.SeqStmt(stmts):
                for one in stmts:
                    self.stmt(one)
            case loops.For():
                self.loop(s)
            case loops.BlockRealize():
                self.realize(s)
            case loops.BufferStore():
                self.store(s)
            case loops.IfThenElse(condition, then_case, else_case):
                self.condition(condition)
                self.guarded(condition, then_case)
                if else_case is not None:
                    self.guarded(expr.Not(condition), else_case)
            case loops.While(condition, body):
                self.condition(condition)
                self.guarded(TRUE, body)
            case loops.LetStmt(var, value, body):
                self.value(value)
                with self.defining(var, s):
                    self.stmt(body)
            case loops.AssertStmt(condition):
                self.condition(condition)
                self.an.assume(condition)
            case loops.Evaluate(value):
                self.value(value)
            case _:
                raise TypeError(f"{type(s).__name__} outside a BlockRealize")

    @contextmanager
    def guard(self, condition: expr.PrimExpr) -> Generator[None]:
        """Assume the condition inside the block; where it never holds, nothing is out of bounds."""
        was, self.guards = (self.guards, self.dead), self.guards + 1
        self.dead = self.dead or self.an.prove(condition) is False
        with self.an.assuming(condition):
            yield
        self.guards, self.dead = was

    def guarded(self, condition: expr.PrimExpr, body: loops.Stmt) -> None:
        with self.guard(condition):
            self.stmt(body)

    def loop(self, s: loops.For) -> None:
        self.value(s.min)
        self.value(s.extent)
        for dtype in (s.loop_var.dtype, s.extent.dtype):
            if dtype != "int64":
                text = f"loop {s.loop_var.name} runs over {dtype}; loops run over int64"
                self.report("E0325", text, s, fix='convert its bounds: T.Cast("int64", …)')
                return
        lo = relax_index(s.min, self.ranges, self.an)
        hi = relax_index(s.min + s.extent - 1, self.ranges, self.an)
        before, was_dead = self.ranges, self.dead
        self.dead = was_dead or self.an.prove(expr.LE(s.extent, _zero(s.extent))) is True
        with self.an.scope(), self.defining(s.loop_var, s):
            self.an.bind(s.loop_var, s.min, s.min + s.extent - 1)
            if lo is not None and hi is not None:
                self.depend(s.loop_var, s.min, s.extent)
                self.ranges = {**before, s.loop_var: (lo[0], hi[1])}
            self.nest.append(s)
            self.stmt(s.body)
            self.nest.pop()
        self.ranges, self.dead = before, was_dead

    def store(self, s: loops.BufferStore) -> None:
        self.value(s.value)
        self.access(s.buffer, s.indices, s)
        if s.buffer.facts:
            text = f"{s.buffer.name} is written, and has facts that hold before"
            self.report("E0335", text, s, fix="write to another array, or state no facts")
        expected = loops.load_dtype(s.buffer, s.indices)
        if s.value.dtype != expected:
            self.report(
                "E0325",
                f"a value of {s.value.dtype} is stored in {s.buffer.name} of {expected}",
                s,
                fix=f"convert it: T.cast(…, {expected!r})",
            )
        self.written.add(s.buffer)

    def realize(self, s: loops.BlockRealize) -> None:
        block = s.block
        for v in s.iter_values:
            self.value(v)
        self.condition(s.predicate)
        outer = self.block, self.axes
        self.block = block.name
        self.axes = {v: iv.var for iv, v in zip(block.iter_vars, s.iter_values, strict=False)}
        if len(s.iter_values) != len(block.iter_vars):
            self.report("E0328", f"{len(block.iter_vars)} axes, {len(s.iter_values)} bindings", s)
        else:
            self.bindings(s)
        state = (self.nest, self.ranges, self.outer_loops, self.guards, self.dead)
        # As under any other guard, what never runs accesses nothing. Its axes are still checked.
        self.dead = self.dead or self.an.prove(s.predicate) is False
        if block.iter_vars:  # a block without axes is only a place for buffers
            loop_vars = {f.loop_var for f in self.nest}
            self.outer_loops = self.outer_loops | loop_vars
            self.ranges = {v: r for v, r in self.ranges.items() if v not in loop_vars}
            self.nest = []
        with self.an.scope():
            self.guards += s.predicate != TRUE
            self.body(block)
        self.nest, self.ranges, self.outer_loops, self.guards, self.dead = state
        self.block, self.axes = outer

    def body(self, block: loops.Block) -> None:
        new = [iv.var for iv in block.iter_vars]
        for iv in block.iter_vars:
            for part in (iv.dom.min, iv.dom.extent):
                self.value(part)
            self.define(iv.var, iv)
            self.an.bind_range(iv.var, iv.dom)
            last = self.an.simplify(iv.dom.min + iv.dom.extent - 1)
            self.depend(iv.var, iv.dom.min, iv.dom.extent)
            if not self.depends[iv.var]:
                self.ranges[iv.var] = (iv.dom.min, last)
        views = [m.buffer for m in block.match_buffers]
        own = [*block.alloc_buffers, *views]
        for m in block.match_buffers:
            offset = () if m.buffer.elem_offset is None else (m.buffer.elem_offset,)
            new += symbols_in((*m.buffer.shape, *m.buffer.strides, *offset))
        self.variables.update(new)
        self.buffers.update(own)
        around = self.outer_loops | {f.loop_var for f in self.nest}
        self.private.update((b, around) for b in block.alloc_buffers)
        self.written.update(views)
        self.uninitialised(block)
        if block.init is not None:
            self.stmt(block.init)
        self.stmt(block.body)
        self.declared_writes(block)
        self.variables.difference_update(new)
        self.buffers.difference_update(own)

    def declared_writes(self, block: loops.Block) -> None:
        if not block.writes and not block.iter_vars:  # as the root block, which says nothing
            return
        known = {r.buffer for r in block.writes} | {m.buffer for m in block.match_buffers}
        inner = [n for n in walk(block.body) if isinstance(n, loops.Block)]
        known |= {b for n in (block, *inner) for b in n.alloc_buffers}
        viewed = {m.buffer: m.source.buffer for n in inner for m in n.match_buffers}
        for view in list(viewed):  # a view of a view
            while viewed[view] in viewed:
                viewed[view] = viewed[viewed[view]]
        for n in walk(block.body):
            if isinstance(n, loops.BufferStore) and viewed.get(n.buffer, n.buffer) not in known:
                self.report(
                    "E0333",
                    f"{n.buffer.name} is written, but T.writes does not name it",
                    n,
                    fix="add it to T.writes, or leave T.writes out",
                    once=(block, n.buffer),
                )

    def uninitialised(self, block: loops.Block) -> None:
        """Report a reduction whose result has no initial value."""
        reduced = [iv.var.name for iv in block.iter_vars if iv.kind == "reduce"]
        if not reduced or block.init is not None:
            return
        started = set(self.written)
        for store in walk(block.body):
            if not isinstance(store, loops.BufferStore) or store.buffer in started:
                continue
            if not any(
                isinstance(n, loops.BufferLoad) and n.buffer is store.buffer
                for n in walk(store.value)
            ):
                started.add(store.buffer)  # perhaps under a condition, as in the first iteration
            else:
                self.report(
                    NO_VALUE_YET,
                    f"the reduction over {', '.join(reduced)} accumulates into "
                    f"{store.buffer.name}, which has no value yet",
                    store,
                    "outputs are passed uninitialised",
                    fix="add `with T.init():` that stores the starting value",
                    once=(block, store.buffer),
                )

    def bindings(self, s: loops.BlockRealize) -> None:
        """Report an axis that does not go through its whole domain, or goes beyond it."""
        with self.an.assuming(s.predicate):
            for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
                if value.dtype != iv.var.dtype:
                    self.report(
                        "E0325",
                        f"axis {iv.var.name} of {iv.var.dtype} is bound to {value.dtype}",
                        value if value.__class__ is not expr.Var else iv,
                    )
                    return
                if iv.var.dtype != "int64":
                    text = f"axis {iv.var.name} is of {iv.var.dtype}; axes are int64"
                    self.report("E0325", text, iv, fix='convert its extent: T.Cast("int64", …)')
                    return
                if iv.kind == "reduce":
                    self.races(s, iv, value)
        if self.dead or self.diagonal(s):  # conditions that contradict each other prove anything
            return
        bad = [
            self.axis_domain(s, iv, v)
            for iv, v in zip(s.block.iter_vars, s.iter_values, strict=True)
        ]
        if not any(bad):
            self.joint_domain(s)

    def axis_domain(self, s: loops.BlockRealize, iv: loops.IterVar, value: expr.PrimExpr) -> bool:
        """Compare one binding with its axis by the bounds of its value. Returns True for one that
        is wrong, which it has reported."""
        span = relax_index(value, self.ranges, self.an)
        first, last = iv.dom.min, self.an.simplify(iv.dom.min + iv.dom.extent - 1)
        if span is None:
            return False
        if self.less(span[1], last) or self.less(first, span[0]):
            self.uncovered(s, iv, value, span)
            return True
        exact = s.predicate == TRUE and not self.guards and self.is_attained(value)
        if exact and (self.less(last, span[1]) or self.less(span[0], first)):
            self.report(
                "E0322",
                f"axis {iv.var.name} has {iv.dom.extent} values from {iv.dom.min}, but its "
                f"binding {value} goes from {span[0]} to {span[1]}",
                _place(value, iv, s),
                fix=f"make the loops fit, or add T.where({value} < {last + 1})",
            )
            return True
        return False

    def uncovered(
        self, s: loops.BlockRealize, iv: loops.IterVar, value: expr.PrimExpr, span: Bounds
    ) -> None:
        if s.predicate != TRUE and all(w.buffer in self.written for w in s.block.writes):
            return  # it changes some of the elements that other blocks computed
        extent = iv.dom.extent
        at = [f for f in self.nest if f.loop_var in symbols_in(value)]
        what = f"its binding {value} only goes from {span[0]} to {span[1]}"
        self.report(
            "E0321",
            f"axis {iv.var.name} has {extent} values from {iv.dom.min}, but {what}",
            _place(value, iv, at[-1] if at else s),
            "the elements beyond are never computed",
            fix=f"let the loops reach {extent} iterations, or declare the axis shorter",
        )

    def diagonal(self, s: loops.BlockRealize) -> bool:
        """True if two axes are bound to the same expression."""
        pairs = list(zip(s.block.iter_vars, s.iter_values, strict=True))
        for k, (iv, value) in enumerate(pairs):
            for other, same in pairs[:k]:
                if (
                    value == same
                    and any(v in self.ranges for v in symbols_in(value))
                    and not any(self.an.prove_equal(x.dom.extent, 1) for x in (iv, other))
                ):
                    self.report(
                        "E0323",
                        f"axes {other.var.name} and {iv.var.name} are both bound to {value}",
                        _place(value, iv, s),
                        "only the elements where both are equal are computed",
                        fix="bind each axis to a loop of its own",
                    )
                    return True
        return False

    def joint_domain(self, s: loops.BlockRealize) -> None:
        """Compare all bindings together with the axes: as splits of the loops, then by count."""
        if self.guards or not s.iter_values:
            return
        ranges = {f.loop_var: loops.Range(f.min, f.extent) for f in self.nest}
        used = set(symbols_in(s.iter_values))
        try:
            found = detect_iter_map(s.iter_values, ranges, s.predicate, self.an)
        except NotAnIterMap as problem:
            runs, points = expr.const(1), expr.const(1)
            for v, r in ranges.items():
                runs = runs * r.extent if v in used else runs
            for iv in s.block.iter_vars:
                points = points * iv.dom.extent
            if self.less(runs, points):
                self.report(
                    "E0324",
                    f"the loops run {runs} times, the axes have {self.an.simplify(points)} points",
                    s,
                    str(problem),
                    fix="bind the axes so that every point is reached",
                )
            return
        for iv, value, extent in zip(s.block.iter_vars, s.iter_values, found.extents, strict=True):
            if self.less(extent, iv.dom.extent):
                span = (iv.dom.min, self.an.simplify(iv.dom.min + extent - 1))
                self.uncovered(s, iv, value, span)

    def races(self, s: loops.BlockRealize, iv: loops.IterVar, value: expr.PrimExpr) -> None:
        # Where a loop is a spatial axis, each iteration has elements of its own.
        own = {v for x, v in zip(s.block.iter_vars, s.iter_values, strict=True)
               if x.kind == "spatial" and isinstance(v, expr.Var)}  # fmt: skip
        for f in self.nest:
            mentions = f.loop_var in symbols_in(value) and f.loop_var not in own
            if f.kind == "parallel" and mentions:
                self.report(
                    "E0332",
                    f"reduce axis {iv.var.name} is bound to the parallel loop {f.loop_var.name}",
                    f,
                    "iterations that run at once would update the same element",
                    fix="run the loop serially, or split the reduction with rfactor",
                )

    def condition(self, e: expr.PrimExpr) -> None:
        self.value(e)
        if dtypes.element_of(e.dtype) != "bool":
            self.report("E0325", f"the condition {e} is of {e.dtype}, not bool", e)

    def value(self, e: expr.PrimExpr) -> None:
        with self.at(e):
            self.parts(e)

    @contextmanager
    def at(self, node: Node) -> Generator[None]:
        """Variables found inside are reported at `node`, if it has a span."""
        outer = self.place
        if not isinstance(node, expr.Var) and getattr(node, "span", None) is not None:
            self.place = node
        yield
        self.place = outer

    def parts(self, e: expr.PrimExpr) -> None:
        match e:
            case expr.Var():
                self.variable(e)
            case loops.BufferLoad(buffer, indices):
                self.access(buffer, indices, e)
            case expr.Let(var, value, body):
                self.value(value)
                with self.defining(var, e):
                    self.value(body)
            case expr.Select(condition, yes, no) | expr.Call(
                _, "if_then_else", (condition, yes, no)
            ):
                self.condition(condition)
                self.branch(condition, yes)
                self.branch(expr.Not(condition), no)
            case expr.BinaryOp(a, b):
                self.value(a)
                self.value(b)
                if a.dtype != b.dtype:
                    kind = type(e).__name__
                    self.report("E0325", f"{kind} of {a.dtype} and {b.dtype}: {e}", e)
            case expr.Call():
                self.call(e)
            case _:
                for c in children(e):
                    if isinstance(c, expr.PrimExpr):
                        self.value(c)

    def branch(self, condition: expr.PrimExpr, value: expr.PrimExpr) -> None:
        with self.guard(condition):
            self.value(value)

    def call(self, e: expr.Call) -> None:
        row = INTRINSICS.get(e.op)
        if row is None:
            self.report("E0331", f"there is no intrinsic named {e.op!r}", e)
        elif (problem := row.problem(e.args)) is not None:
            self.report("E0331", problem, e)
        # The axes of a reduction over threads are these themselves.
        threads = self.outer_loops if e.op == "tvm_thread_allreduce" else set[expr.Var]()
        for a in e.args:
            if a not in threads:
                self.value(a)

    def variable(self, v: expr.Var) -> None:
        if v not in self.variables:
            self.report(
                "E0329",
                f"{v.name} is not defined here",
                v if self.place is None else self.place,
                fix="define it with a loop, an axis, a parameter or a buffer's shape",
                once=v,
            )
        elif v in self.outer_loops - self.allowed:
            self.report(
                "E0330",
                f"the block uses the loop variable {v.name} of a loop around it",
                v if self.place is None else self.place,
                "a block may only use its own axes, so that schedules can move it",
                fix=f"use the axis {self.axes[v].name}, which is bound to {v.name}"
                if v in self.axes
                else f"bind an axis: v{v.name} = T.axis.spatial(extent, {v.name})",
                once=(self.block, v),
            )

    def access(self, buffer: loops.Buffer, indices: tuple[expr.PrimExpr, ...], at: Node) -> None:
        # What is allocated inside a loop belongs to one iteration, and is indexed from there.
        before, self.allowed = self.allowed, self.private.get(buffer, set())
        with self.at(at):
            for i in indices:
                self.value(i)
        self.allowed = before
        if buffer not in self.buffers:
            self.report(
                "E0329",
                f"buffer {buffer.name} is not defined here",
                at,
                fix="make it a parameter, or allocate it with T.alloc_buffer",
                once=buffer,
            )
        if len(indices) != buffer.ndim:
            self.report(
                "E0328",
                f"{buffer.name} has {buffer.ndim} dimensions, but {len(indices)} indices",
                at,
            )
            return
        for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            if not dtypes.is_int(index.dtype):
                self.report(
                    "E0325", f"an index of {buffer.name} is of {index.dtype}, not an integer", at
                )
            elif dtypes.lanes_of(index.dtype) == 1 and not self.dead:
                self.in_bounds(buffer, dim, index, extent, at)

    def in_bounds(
        self, buffer: loops.Buffer, dim: int, index: expr.PrimExpr, extent: expr.PrimExpr, at: Node
    ) -> None:
        """Report an index that provably leaves the buffer, in all or (unguarded) some iteration."""
        if index.dtype != extent.dtype:
            index = expr.Cast(extent.dtype, index)
        low, high = index, index
        if not self.guards and self.is_attained(self.an.simplify(index)):
            low, high = relax_index(index, self.ranges, self.an) or (index, index)
        below = self.less(low, _zero(low))
        if below or self.less(extent - 1, high):
            reaches = self.an.simplify(low if below else high)
            fix = "guard the access with T.if_then_else, or change the sizes of buffer or loop"
            if isinstance(index, expr.IntImm) and index.value < 0:
                from_front = self.an.simplify(expr.binary(expr.Add, extent, index))
                fix = f"write {from_front}: indices do not count from the end"
            self.report(
                "E0334",
                f"index {index} of dimension {dim} of {buffer.name} reaches {reaches}, "
                f"outside 0 to {self.an.simplify(extent - 1)}",
                at,
                fix=fix,
            )

    def less(self, a: expr.PrimExpr, b: expr.PrimExpr) -> bool:
        """True if `a < b` is proved, and `a >= b` is not: bounds that contradict each other prove
        both, of what never runs."""
        return self.an.prove(expr.LT(a, b)) is True and self.an.prove(expr.GE(a, b)) is not True

    def is_attained(self, e: expr.PrimExpr) -> bool:
        """True if some iteration gives `e` the bounds that interval arithmetic finds: each variable
        occurs once, those that bound a loop's variable included, and no loop inside has iterations
        for some values of it alone, as `range(i)` has none for the first i."""
        inexact = (expr.FloorMod, expr.Select, expr.Call, loops.BufferLoad)
        if any(isinstance(n, inexact) for n in walk(e)):
            return False
        names = [n for n in walk(e) if isinstance(n, expr.Var)]
        for v in names:  # which grows: the bounds of loops may have variables of further loops
            names += self.depends.get(v, ())
        inside = [f for f in self.nest if f.loop_var not in names]
        return len(names) == len(set(names)) and all(
            self.always_runs(f) for f in inside if not set(names).isdisjoint(symbols_in(f.extent))
        )

    def always_runs(self, s: loops.For) -> bool:
        """True if the loop has iterations for all values of the variables of loops around it."""
        shortest = relax_index(s.extent, self.ranges, self.an)
        return shortest is not None and self.an.prove(expr.binary(expr.GE, shortest[0], 1)) is True

    def depend(self, v: expr.Var, low: expr.PrimExpr, extent: expr.PrimExpr) -> None:
        """Keep which variables of loops around bound `v`, as often as they occur."""
        a, b = (
            Counter(n for n in walk(e) if isinstance(n, expr.Var) and n in self.ranges)
            for e in (low, self.an.simplify(extent))
        )
        self.depends[v] = list((a | b).elements())


def _zero(like: expr.PrimExpr) -> expr.PrimExpr:
    return expr.const(0, like.dtype)


def _is_element(e: expr.PrimExpr) -> bool:
    """True for the element of an array at the position that a fact is about."""
    load = e.value if isinstance(e, expr.Cast) else e
    return isinstance(load, loops.BufferLoad) and isinstance(load.indices[0], loops.Position)


def _place(value: expr.PrimExpr, iv: loops.IterVar, otherwise: Node) -> Node:
    """The node that has a span, the closest first. (A variable's span is its definition.)"""
    if not isinstance(value, Atom) and getattr(value, "span", None) is not None:
        return value
    return iv if iv.span is not None else otherwise
