"""Well-formedness of modules: all errors, not only the first.

Each code has a section with an example in `docs/errors-types.md` (graph functions) or
`docs/errors-loops.md` (loop functions).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.deduce import missing_function
from relaxlab.analysis.loops_check import check_loops
from relaxlab.analysis.ragged import Totals, stored
from relaxlab.analysis.subtype import defined_symbols, dims_of
from relaxlab.analysis.unify import determined_symbols
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.diagnostics import Diagnostic
from relaxlab.ir.intrinsics import has_effect
from relaxlab.ir.module import Module
from relaxlab.ir.node import children, walk
from relaxlab.ir.op_table import find_op, has_trait
from relaxlab.ir.substitute import symbols_in


def check_well_formed(mod: Module, *, computable: bool = True) -> list[Diagnostic]:
    """Return the errors of `mod`; empty if there are none.

    Definitions and effects come first (E03xx); types are deduced (E02xx) only when these hold, and
    `computable` is that of `annotate`. Loop functions are checked by `check_loops`.
    """
    found = check_graphs(mod, computable=computable)
    for name, func in mod.loop_functions().items():
        found += check_loops(name, func)
    return found


def check_graphs(mod: Module, *, computable: bool = True) -> list[Diagnostic]:
    """Return the errors of the graph functions of `mod`; `computable` is that of `annotate`."""
    found: list[Diagnostic] = []
    for name, fn in mod.graph_functions().items():
        _Checker(name, mod, found).function(fn)
    if not found:
        typed, found = annotate(mod, computable=computable)
        for name, fn in () if found else typed.graph_functions().items():
            _Checker(name, typed, found).function(fn)  # now the effects of local functions
    return found


def is_pure_call(call: graph.Call, mod: Module) -> bool:
    """True if a call has no effect besides its result, as far as types are known."""
    match call.op:
        case graph.Op(name):
            row = find_op(name)
            return row is None or row.pure
        case graph.GlobalVar(name):
            fn = mod.get(name)
            if isinstance(fn, loops.PrimFunc):
                return _computes_a_scalar(fn)
            return fn is None or (isinstance(fn, graph.Function) and fn.is_pure)
        case graph.Var(_, ty):
            return ty is None or (isinstance(ty, types.FuncType) and ty.is_pure)
        case _:
            return False


def _computes_a_scalar(fn: loops.PrimFunc) -> bool:
    """True if all that a loop function does is return a value of its scalar parameters."""
    scalars = all(isinstance(p, expr.Var) and p.dtype != "handle" for p in fn.params)
    return scalars and not any(
        isinstance(n, expr.Call) and n.op != "ret" and has_effect(n) for n in walk(fn.body)
    )


@dataclass(slots=True)
class _Checker:
    """A walk over one function, with the definitions at each point."""

    name: str
    mod: Module
    found: list[Diagnostic]
    visible: set[graph.Var] = field(default_factory=set[graph.Var])
    symbols: set[expr.Var] = field(default_factory=set[expr.Var])
    ever: set[graph.Var] = field(default_factory=set[graph.Var])
    totals: Totals = field(default_factory=Totals)
    reported: set[object] = field(default_factory=set[object])
    pure: bool = True
    in_dataflow: bool = False

    def report(
        self, code: str, message: str, at: object, *, notes: tuple[str, ...] = (),
        fix: str | None = None,
    ) -> None:  # fmt: skip
        span = getattr(at, "span", None)
        where = f"in `{self.name}`: "
        self.found.append(Diagnostic(code, where + message, span, notes, fix))

    def inner(self) -> _Checker:
        """Return a checker at the same point, for a branch or a local function, whose definitions
        stay there."""
        return _Checker(
            self.name, self.mod, self.found, set(self.visible), set(self.symbols), self.ever,
            self.totals.copy(), self.reported, self.pure,
        )  # fmt: skip

    def function(self, fn: graph.Function) -> None:
        # `relax.force_pure`: lowered; its effects are on memory that it allocated itself.
        self.pure = fn.is_pure and not fn.attrs.get("relax.force_pure")
        for p in fn.params:
            self.define(p)
        claims = [p.ty for p in fn.params if p.ty is not None]
        self.determine(claims, "the parameters' shapes", fn)
        self.sequence(fn.body)
        for s in () if fn.ret_ty is None else defined_symbols(fn.ret_ty):
            self.symbol(s, "the result type", fn.ret_ty)

    def determine(self, claims: list[types.Type], what: str, at: object) -> None:
        """Define the symbols of types that values are checked against at run time."""
        lengths = [ty for ty in claims if isinstance(ty, types.LengthsType)]
        for ty in lengths:
            self.totals.define(ty)
        dims = [d for ty in claims for d, _ in dims_of(ty, "")]
        # No lengths determine their sum, which tensors with the rows do.
        sizes = [stored(ty, self.totals) for ty in claims if ty not in lengths]
        given = [d for ty in sizes for d, _ in dims_of(ty, "")]
        given += [d for ty in lengths for d in (*(ty.shape or ()), ty.each) if d is not None]
        known = determined_symbols(given, self.symbols)
        mentioned = dict.fromkeys(s for d in dims for s in symbols_in(d))
        missing = [s.name for s in mentioned if s not in known]
        if missing:
            names = ", ".join(f'"{s}"' for s in missing)
            self.report(
                "E0308", f"{what} do not determine {', '.join(f'`{s}`' for s in missing)}", at,
                notes=("a symbol is determined where it stands alone or linearly: n, 2 * n",),
                fix=f"add a parameter that supplies it: size: R.Shape([{names}])",
            )  # fmt: skip
        self.symbols.update(mentioned)

    def define(self, var: graph.Var) -> None:
        if var in self.ever:
            self.report("E0302", f"`{var.name}` is defined twice", var)
        for d, where in () if var.ty is None else dims_of(var.ty, f"`{var.name}`"):
            if where.startswith("dimension") and isinstance(d, expr.IntImm) and d.value < 0:
                self.report("E0310", f"{where} is {d}", var)
        self.ever.add(var)
        self.visible.add(var)

    def sequence(self, seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            self.in_dataflow = isinstance(block, graph.DataflowBlock)
            for b in block.bindings:
                self.binding(b)
            self.in_dataflow = False
            self.visible = {v for v in self.visible if not isinstance(v, graph.DataflowVar)}
        self.expr(seq.body)

    def binding(self, b: graph.Binding) -> None:
        match b:
            case graph.MatchCast(value, ty, var):
                self.expr(value)
                self.determine([ty], f"the shapes of match_cast `{var.name}`", b)
                self.define(var)
            case graph.VarBinding(graph.Function() as fn, var):
                self.define(var)  # it may call itself
                inner = self.inner()
                inner.function(fn)
            case graph.VarBinding(value, var):
                self.expr(value)
                for s in () if var.ty is None else defined_symbols(var.ty):
                    self.symbol(s, f"the annotation of `{var.name}`", b)
                self.define(var)
            case _:
                raise TypeError(f"unknown binding {type(b).__name__}")

    def expr(self, e: graph.Expr) -> None:
        match e:
            case graph.Var():
                self.use(e)
            case graph.GlobalVar(name):
                if name not in self.mod:
                    self.found += missing_function(name, self.mod, e).diagnostics
            case graph.If(condition, yes, no):
                self.expr(condition)
                if self.in_dataflow:
                    self.report(
                        "E0309", "a conditional inside a dataflow block", e,
                        fix="move it out of `with R.dataflow():`",
                    )  # fmt: skip
                for branch in (yes, no):
                    self.inner().sequence(branch)
            case graph.Match(value, cases):
                self.expr(value)
                if self.in_dataflow:
                    self.report("E0309", "a match inside a dataflow block", e,
                                fix="move it out of `with R.dataflow():`")  # fmt: skip
                for case in cases:
                    inner = self.inner()
                    for f in case.fields:
                        inner.define(f)
                    inner.sequence(case.body)
            case graph.SeqExpr():
                inner = self.inner()
                inner.in_dataflow = self.in_dataflow
                inner.sequence(e)
            case graph.Function():
                self.inner().function(e)
            case graph.Call():
                self.call(e)
            case _:
                self.parts(e)

    def parts(self, e: graph.Expr) -> None:
        for c in children(e):
            if isinstance(c, graph.Expr):
                self.expr(c)
            elif isinstance(c, expr.PrimExpr | types.Type):
                for s in symbols_in(c):
                    self.symbol(s, "an expression", e)

    def call(self, call: graph.Call) -> None:
        self.parts(call)
        allocates = isinstance(call.op, graph.Op) and has_trait(call.op.name, "allocates")
        if allocates or is_pure_call(call, self.mod):
            return
        name = getattr(call.op, "name", "a function")
        # Only of functions outside does the caller know more than the compiler.
        packed = isinstance(call.op, graph.ExternFunc)
        stated = ", or state that it is pure: R.call_pure_packed" if packed else ""
        if self.in_dataflow:
            self.report(
                "E0304", f"`{name}` has effects and is called inside a dataflow block", call,
                fix=f"move the call out of `with R.dataflow():`{stated}",
            )  # fmt: skip
        elif self.pure:
            self.report(
                "E0305", f"`{name}` has effects, but `{self.name}` is declared pure", call,
                fix=f"declare the function @R.function(pure=False){stated}",
            )  # fmt: skip

    def use(self, var: graph.Var) -> None:
        if var in self.visible or var in self.reported:
            return
        self.reported.add(var)
        if isinstance(var, graph.DataflowVar) and var in self.ever:
            self.report(
                "E0303", f"`{var.name}` is used outside the dataflow block that defines it", var,
                fix=f"make it an output of the block: R.output({var.name})",
            )  # fmt: skip
        elif var in self.ever:
            self.report(
                "E0301", f"`{var.name}` is used outside the branch or function that defines it", var
            )
        else:
            self.report("E0301", f"`{var.name}` is used but not defined", var)

    def symbol(self, s: expr.Var, what: str, at: object) -> None:
        if s in self.symbols or s in self.reported:
            return
        self.reported.add(s)
        self.report(
            "E0306", f"{what} mentions `{s}`, which nothing defines", at,
            fix="a parameter's shape or R.match_cast defines a symbol",
        )  # fmt: skip
