"""A-normal form with types: every intermediate value gets a variable and every variable a type.

This is the deduction of the paper's section 4.1 applied to whole functions, forward, once per
binding. Claims of the program (result types, annotations of variables, `match_cast`) are proved,
refused when provably wrong, or kept as a `match_cast` that is checked at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from relaxlab.analysis.annotate_explain import explain_lost_result, explain_lost_shape
from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import (
    check_match,
    dim_pairs,
    field_types,
    fits_match,
    lca_of,
    signature_of,
    type_of,
)
from relaxlab.analysis.fit_loop_call import fit_loop_call
from relaxlab.analysis.fit_operator_call import as_claim, unproved_conditions
from relaxlab.analysis.ragged import Totals, check_counts, levels, stored
from relaxlab.analysis.subtype import Verdict, check_subtype, coarsen, defined_symbols
from relaxlab.ir import expr, graph
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.module import Module
from relaxlab.ir.names import fresh_name
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.op_table import has_trait
from relaxlab.ir.types import (
    Each,
    LengthsType,
    ObjectType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    lengths_in,
)
from relaxlab.tracing import remark
from relaxlab.tracing.deduction import Checked, Deduced, emit

LEAVES = (
    graph.Var,
    graph.GlobalVar,
    graph.ExternFunc,
    graph.Op,
    graph.Constant,
    graph.ShapeExpr,
    graph.PrimValue,
    graph.StringImm,
    graph.DataTypeImm,
)


MOST_LENGTH = 512
"""The longest sequence of which an error's suggestion speaks."""


def annotate(mod: Module, *, computable: bool = True) -> tuple[Module, list[Diagnostic]]:
    """Return `mod` in A-normal form with all types deduced, and its errors (codes E02xx): those of
    the types and, with `computable`, of what operators cannot compute.

    Returns `mod` itself when nothing changes. Functions without an annotated result are done when
    first called; one that calls itself needs the annotation.
    """
    state = _Annotator(mod, computable=computable)
    for name in mod.graph_functions():
        state.function(name)
    return state.mod, state.diagnostics


class _Failed(ObjectType):
    """The type of a value whose deduction failed: what depends on it is not reported again."""

    __slots__ = ()


_FAILED = _Failed()


def is_failed(ty: Type | None) -> bool:
    """True if a type marks a deduction that failed."""
    return isinstance(ty, _Failed)


@dataclass(slots=True)
class _Annotator:
    """The module annotated so far."""

    mod: Module
    computable: bool = field(kw_only=True)
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    done: set[str] = field(default_factory=set[str])
    running: list[str] = field(default_factory=list[str])

    def function(self, name: str) -> None:
        """Annotate the function of that name unless it is done."""
        fn = self.mod.get(name)
        if name in self.done or not isinstance(fn, graph.Function):
            return
        self.running.append(name)
        scope = _Scope(self, name, Analyzer(), bounds=self.bounds(name, fn))
        new = scope.function(fn)
        self.running.pop()
        self.done.add(name)
        self.mod = self.mod.with_functions({name: new})

    def bounds(self, name: str, fn: graph.Function) -> dict[str, int]:
        """The declared upper bounds of a function's symbols; those that make sense."""
        given: object = fn.attrs.get("tir_var_upper_bound", {})
        declared = cast(Mapping[str, int], given if isinstance(given, Mapping) else {})
        wrong = [f"{k!r}: {v!r}" for k, v in declared.items() if not _is_size(v)]
        if wrong or declared is not given:
            self.report(
                "E0311",
                f"`{name}`: tir_var_upper_bound maps names of symbols to sizes, "
                f"not {wrong[0] if wrong else given}",
                fn,
                suggestion='R.func_attr({"tir_var_upper_bound": {"n": 1024}})',
            )
        return {k: v for k, v in declared.items() if _is_size(v)}

    def require_signature(self, name: str, e: graph.Expr) -> None:
        """Make sure that the result type of a called function is known."""
        fn = self.mod.get(name)
        if not isinstance(fn, graph.Function) or fn.ret_ty is not None:
            return
        if name not in self.running:
            self.function(name)
            return
        self.report(
            "E0209",
            f"`{name}` calls itself, so its result type cannot be deduced",
            e,
            suggestion=f"annotate the result: def {name}(…) -> R.Tensor(…)",
        )

    def report(
        self, code: str, message: str, e: object, *, notes: tuple[str, ...] = (),
        suggestion: str | None = None,
    ) -> None:  # fmt: skip
        self.diagnostics.append(
            Diagnostic(code, message, getattr(e, "span", None), notes, suggestion)
        )


@dataclass(slots=True)
class _Scope:
    """One function body, or one branch or local function inside it."""

    owner: _Annotator
    name: str
    analyzer: Analyzer
    symbols: set[expr.Var] = field(default_factory=set[expr.Var])
    renamed: dict[graph.Var, graph.Expr] = field(default_factory=dict[graph.Var, graph.Expr])
    taken: set[str] = field(default_factory=set[str])
    bounds: dict[str, int] = field(default_factory=dict[str, int])
    checked_equal: set[tuple[expr.PrimExpr, expr.PrimExpr]] = field(
        default_factory=set[tuple[expr.PrimExpr, expr.PrimExpr]]
    )  # dimensions that a match_cast compares: what is checked need not be checked again
    block: list[graph.Binding] = field(default_factory=list[graph.Binding])
    totals: Totals = field(default_factory=Totals)
    in_dataflow: bool = False

    def inner(self, name: str = "") -> _Scope:
        """Return a scope inside this one (a branch, a local function), whose definitions stay
        there."""
        return _Scope(
            self.owner, name or self.name, self.analyzer, set(self.symbols), dict(self.renamed),
            self.taken, self.bounds, set(self.checked_equal), totals=self.totals.copy(),
        )  # fmt: skip

    def define(self, ty: Type | None) -> None:
        """Take the symbols that `ty` determines to be known from here on."""
        for s in defined_symbols(ty) if ty is not None else ():
            if s not in self.symbols:
                self.symbols.add(s)
                self.analyzer.bind_shape(s, self.bounds.get(s.name))
        self.totals.define(ty)
        if isinstance(ty, LengthsType) and ty.each is not None:
            self.analyzer.bind(ty.each, ty.least, ty.most)

    def function(self, fn: graph.Function) -> graph.Function:
        """`fn` with its body annotated and its result type proved, checked or deduced."""
        params = tuple(p if p.ty is not None else replace(p, ty=ObjectType()) for p in fn.params)
        for old, new in zip(fn.params, params, strict=True):
            self.rename(old, new)
            self.define(new.ty)
            emit(Deduced(self.name, new, new, new.ty, "parameter"))
        known = set(self.symbols)
        self.taken |= {p.name for p in params}
        self.taken |= {
            v.name
            for b in fn.body.blocks
            for x in b.bindings
            for v in [x.var]  # type: ignore
        }
        blocks, result = self.sequence(fn.body)
        ret = fn.ret_ty
        actual = self.type_of(result)
        if ret is None:
            ret = coarsen(actual, known) if actual is not _FAILED else ObjectType()
            explain_lost_result(self.name, actual, ret, known)
            emit(Deduced(self.name, None, result, ret, "result"))
        else:
            result = self.claimed_result(result, actual, ret, fn)
            emit(Deduced(self.name, None, result, ret, "result"))
        body = self.rebuild(fn.body, blocks, result)
        if ret is fn.ret_ty and body is fn.body and _same_items(params, fn.params):
            return fn
        return replace(fn, params=params, body=body, ret_ty=ret)

    def rebuild(
        self, seq: graph.SeqExpr, blocks: list[graph.BindingBlock], result: graph.Expr
    ) -> graph.SeqExpr:
        """Return `seq` with other blocks, the pending bindings of `self.block`, and another
        result."""
        if self.block:
            blocks = _with_more(blocks, self.block)
            self.block = []
        if result is seq.body and _same_items(blocks, seq.blocks):
            return seq
        return replace(seq, blocks=tuple(blocks), body=result)

    def claimed_result(
        self, result: graph.Expr, actual: Type, claim: Type, fn: graph.Function
    ) -> graph.Expr:
        """`result`, checked at run time where the function's claim about it is not proved."""
        at = claim if claim.span is not None else fn
        if actual is _FAILED or self.undefined(claim, f"the result type of `{self.name}`", at):
            return result
        verdict = self.verdict(actual, claim)
        if verdict >= Verdict.STATIC_MISMATCH:
            self.owner.report(
                "E0207",
                f"`{self.name}` claims to return {claim}, but returns {actual}",
                at,
                notes=("the two can never be equal",),
                suggestion=f"write -> {coarsen(actual, self.symbols)}",
            )
            return result
        if verdict is Verdict.PASS:
            return result
        return self.checked(result, actual, claim, "result")

    def checked(self, value: graph.Expr, actual: Type, claim: Type, hint: str) -> graph.Expr:
        """A `match_cast` of `value` to `claim`; of a tuple, of those fields that need it."""
        if isinstance(value, graph.Tuple) and isinstance(claim, TupleType):
            fields: list[graph.Expr] = []
            for v, c in zip(value.fields, claim.fields, strict=True):
                a = self.type_of(v)
                proved = self.verdict(a, c) is Verdict.PASS
                fields.append(v if proved else self.checked(v, a, c, hint))
            return replace(value, fields=tuple(fields))
        remark(
            "deduce",
            f"{self.name}.{getattr(value, 'name', hint)}",
            f"{claim} is not proved from {actual}: checked at run time",
        )
        emit(Checked(str(claim), str(actual)))
        kind = graph.DataflowVar if self.in_dataflow else graph.Var
        var = kind(self.fresh(getattr(value, "name", hint)), claim)
        self.match_cast(graph.MatchCast(value, claim, var, span=getattr(value, "span", None)))
        return var

    def verdict(self, actual: Type, claim: Type) -> Verdict:
        """`check_subtype`; symbols that the claim itself defines are left to the run time."""
        with self.analyzer.scope():
            for s in defined_symbols(claim):
                if s not in self.symbols:
                    self.analyzer.bind_shape(s, self.bounds.get(s.name))
            return check_subtype(actual, claim, self.analyzer)

    def undefined(self, claim: Type, what: str, e: object) -> bool:
        """Report a claim about symbols that nothing defines."""
        unknown = [s.name for s in defined_symbols(claim) if s not in self.symbols]
        if unknown:
            self.owner.report(
                "E0306",
                f"{what} mentions {', '.join(f'`{s}`' for s in unknown)}, which nothing defines",
                e,
                suggestion="a parameter's shape or R.match_cast defines a symbol",
            )
        return bool(unknown)

    def sequence(self, seq: graph.SeqExpr) -> tuple[list[graph.BindingBlock], graph.Expr]:
        """The annotated blocks of `seq` and its result; pending bindings stay in `self.block`."""
        blocks: list[graph.BindingBlock] = []
        for old in seq.blocks:
            self.in_dataflow = isinstance(old, graph.DataflowBlock)
            for b in old.bindings:
                self.binding(b)
            self.in_dataflow = False
            if _same_items(self.block, old.bindings):
                blocks.append(old)
            elif self.block:
                blocks.append(replace(old, bindings=tuple(self.block)))
            self.block = []
        return blocks, self.leaf(seq.body, "result")

    def binding(self, b: graph.Binding) -> None:
        """Annotate one binding and append it, after the bindings of its operands."""
        if isinstance(b, graph.MatchCast):
            self.match_cast(b)
            return
        assert isinstance(b, graph.VarBinding)
        if isinstance(b.value, graph.SeqExpr):
            inner = self.splice(b.value)
            self.bind(replace(b, value=inner), inner, self.type_of(inner))
            return
        if isinstance(b.value, graph.Function):
            self.local_function(b, b.value)
            return
        value = self.value(b.value)
        self.bind(b, value, self.type_of(value))

    def bind(self, b: graph.VarBinding, value: graph.Expr, ty: Type) -> None:
        """Append `b.var = value` of type `ty`, checking what the variable's annotation claims."""
        claim = b.var.ty
        if claim is not None and ty is not _FAILED and not structural_equal(claim, ty):
            self.undefined(claim, f"the annotation of `{b.var.name}`", b)
            verdict = self.verdict(ty, claim)
            if verdict >= Verdict.STATIC_MISMATCH:
                self.owner.report(
                    "E0208", f"`{b.var.name}` is annotated {claim}, but its value is {ty}", b
                )
            elif verdict is Verdict.CHECK_AT_RUNTIME:
                kind = graph.DataflowVar if self.in_dataflow else graph.Var
                plain = kind(self.fresh(b.var.name), ty, span=b.var.span)
                emit(Deduced(self.name, plain, value, ty))
                self.block.append(replace(b, value=value, var=plain))
                self.match_cast(graph.MatchCast(plain, claim, b.var, span=b.span))
                return
        explain_lost_shape(self.name, b.var, value, ty, self.analyzer)
        var = self.typed(b.var, ty)
        emit(Deduced(self.name, var, value, ty))
        self.block.append(b if value is b.value and var is b.var
                          else replace(b, value=value, var=var))  # fmt: skip

    def typed(self, var: graph.Var, ty: Type) -> graph.Var:
        """`var` with type `ty`; itself when it has that type."""
        seen = self.renamed.get(var, var)
        new = seen if isinstance(seen, graph.Var) else var
        if ty is _FAILED:
            new = new if new.ty is not None else replace(new, ty=_FAILED)
        elif new.ty is None or not (new.ty is ty or structural_equal(new.ty, ty)):
            new = replace(new, ty=ty)
        self.rename(var, new)
        return new

    def rename(self, old: graph.Var, new: graph.Expr) -> None:
        if old is not new:
            self.renamed[old] = new

    def match_cast(self, b: graph.MatchCast) -> None:
        value = self.leaf(b.value, b.var.name)
        actual = self.type_of(value)
        claim = _with_dtype(b.ty, actual)
        rows, wanted = (actual, claim) if levels(actual) == levels(claim) else (
            stored(actual, self.totals), stored(claim, self.totals)
        )  # fmt: skip
        if actual is not _FAILED and self.verdict(rows, wanted) >= Verdict.STATIC_MISMATCH:
            self.owner.report(
                "E0208",
                f"match_cast to {claim} can never succeed: the value is {actual}",
                b,
            )
            actual = _FAILED
        self.define(claim)
        for pair in dim_pairs(wanted, rows, ""):  # true from here on
            if pair.actual is not None:
                self.checked_equal.add((pair.actual, pair.declared))
                self.analyzer.assume(expr.EQ(pair.declared, pair.actual))
        var = self.typed(b.var, claim)
        emit(Deduced(self.name, var, value, claim, "match_cast"))
        same = value is b.value and claim is b.ty and var is b.var
        self.block.append(b if same else replace(b, value=value, ty=claim, var=var))

    def local_function(self, b: graph.VarBinding, fn: graph.Function) -> None:
        if fn.ret_ty is not None:  # then it may call itself
            self.typed(b.var, signature_of(fn))
        with self.analyzer.scope():
            new = self.inner(f"{self.name}.{b.var.name}").function(fn)
        self.bind(b, new, signature_of(new))

    def splice(self, seq: graph.SeqExpr) -> graph.Expr:
        """Take the bindings of a nested sequence into the current block."""
        for old in seq.blocks:
            for b in old.bindings:
                var: graph.Var = b.var  # type: ignore[attr-defined]
                if isinstance(var, graph.DataflowVar) and not self.in_dataflow:
                    plain = graph.Var(var.name, var.ty, span=var.span)
                    self.renamed[var] = plain
                    b = replace(b, var=plain)
                self.binding(b)
                bound: graph.Var = b.var  # type: ignore[attr-defined]
                if bound is not var and bound in self.renamed:
                    self.renamed[var] = self.renamed[bound]
        return self.leaf(seq.body, "result")

    def value(self, e: graph.Expr) -> graph.Expr:
        """Return `e` with variables, constants and other leaves as operands."""
        match e:
            case graph.Call(op, args):
                new_op = self.leaf(op, "f")
                new_args = tuple(self.leaf(a, "lv") for a in args)
                if isinstance(new_op, graph.GlobalVar):
                    self.owner.require_signature(new_op.name, e)
                same = new_op is op and _same_items(new_args, args)
                call = e if same else replace(e, op=new_op, args=new_args)
                is_loops = isinstance(op, graph.Op) and has_trait(op.name, "calls_loops")
                return self.loop_call(call) if is_loops else self.operator_call(call)
            case graph.TupleGetItem(value):
                new = self.leaf(value, "lv")
                return e if new is value else replace(e, tuple_value=new)
            case graph.If(condition, yes, no):
                test = self.leaf(condition, "cond")
                first, second = self.branch(yes), self.branch(no)
                if test is condition and first is yes and second is no:
                    return e
                return replace(e, condition=test, true_branch=first, false_branch=second)
            case graph.Match():
                return self.match(e)
            case graph.SeqExpr():
                return self.splice(e)
            case _:
                return self.leaf(e, "lv")

    def match(self, e: graph.Match) -> graph.Expr:
        """`e` with its value as an operand and its cases annotated."""
        value = self.leaf(e.value, "data")
        ty = self.type_of(value)
        if not fits_match(e, ty, self.owner.mod):  # `type_of` says what is wrong with it
            return e if value is e.value else replace(e, value=value)
        cases = tuple(self.case(c, field_types(c, ty, self.owner.mod)) for c in e.cases)
        if value is e.value and _same_items(cases, e.cases):
            return e
        return replace(e, value=value, cases=cases)

    def case(self, case: graph.Case, tys: tuple[Type, ...]) -> graph.Case:
        inner = self.inner()
        fields: list[graph.Var] = []
        for old, ty in zip(case.fields, tys, strict=True):
            new = (
                old if old.ty is not None and structural_equal(old.ty, ty) else replace(old, ty=ty)
            )
            inner.rename(old, new)
            emit(Deduced(self.name, new, new, ty, "parameter"))
            fields.append(new)
        with self.analyzer.scope():
            blocks, result = inner.sequence(case.body)
            body = inner.rebuild(case.body, blocks, result)
        if body is case.body and _same_items(fields, case.fields):
            return case
        return replace(case, fields=tuple(fields), body=body)

    def loop_call(self, call: graph.Call) -> graph.Call:
        """`call` of a loop function with its shapes proved, or checked just before it."""
        if _mentions_failure(call):
            return call
        taken = {s.name for s in self.symbols}
        plan = fit_loop_call(call, self.owner.mod, self.analyzer, taken, self.totals)
        for message in plan.conflicts:
            self.owner.report("E0210", message, call)
        if plan.conflicts or not plan.claims:
            return call
        casts: dict[graph.Expr, graph.Expr] = {}
        for value, claim in plan.claims:
            now = casts.get(value, value)
            hint = getattr(value, "name", "shape")
            casts[value] = self.checked(now, self.type_of(now), claim, hint)
        packed = call.args[1]
        assert isinstance(packed, graph.Tuple)
        inputs = tuple(casts.get(f, f) for f in packed.fields)
        if _same_items(inputs, packed.fields):
            return call
        return replace(call, args=(call.args[0], graph.Tuple(inputs), *call.args[2:]))

    def operator_call(self, call: graph.Call) -> graph.Call:
        """Return `call`, after checks of its operator's conditions that are not proved."""
        if _mentions_failure(call):
            return call
        for condition, message in unproved_conditions(call, self.owner.mod, self.analyzer):
            value, claim = as_claim(condition)
            assert claim.values is not None
            if (value.values[0], claim.values[0]) in self.checked_equal:
                continue
            if lengths_in(condition):
                stated = ", ".join(("…", *_lengths_that_fit(condition, self.analyzer)))
                fix = f"state what lengths there are: R.Lengths({stated})"
                self.owner.report("E0203", message, call, suggestion=fix)
                continue
            if self.analyzer.prove(condition) is False:
                self.owner.report("E0203", message, call)
                continue
            remark("deduce", f"{self.name}: {message}", "not proved: checked at run time")
            emit(Checked(message, str(condition)))
            self.checked(value, ShapeType(value.values), claim, f"{_short_name(call)}_shape")
        return call

    def branch(self, seq: graph.SeqExpr) -> graph.SeqExpr:
        inner = self.inner()
        with self.analyzer.scope():
            blocks, result = inner.sequence(seq)
            return inner.rebuild(seq, blocks, result)

    def leaf(self, e: graph.Expr, hint: str) -> graph.Expr:
        """Return `e` as an operand: renamed, rebuilt (a tuple of leaves), or bound to a new
        variable."""
        match e:
            case graph.Var():
                return self.renamed.get(e, e)
            case graph.Tuple(fields):
                new = tuple(self.leaf(f, hint) for f in fields)
                return e if _same_items(new, fields) else replace(e, fields=new)
            case _ if isinstance(e, LEAVES):
                return e
            case _:
                kind = graph.DataflowVar if self.in_dataflow else graph.Var
                var = kind(self.fresh(hint), None, span=getattr(e, "span", None))
                self.binding(graph.VarBinding(e, var, span=getattr(e, "span", None)))
                return self.renamed.get(var, var)

    def type_of(self, e: graph.Expr) -> Type:
        """Return the type of an expression of leaves; `_FAILED`, reported once, when it has
        none."""
        if _mentions_failure(e):
            return _FAILED
        try:
            if isinstance(e, graph.If):
                return self.conditional(e)
            if isinstance(e, graph.Match):
                value = self.type_of(e.value)
                if value is _FAILED:
                    return _FAILED
                check_match(e, value, self.owner.mod)
                return self.joined([c.body.body for c in e.cases])
            computable = self.owner.computable
            ty = type_of(e, self.owner.mod, self.analyzer, computable=computable)
            called = isinstance(e, graph.Call) and not isinstance(e.op, graph.Op)
            check_counts(e, ty, self.totals)
            return coarsen(ty, self.symbols) if called else ty
        except DiagnosticError as error:
            self.owner.diagnostics += error.diagnostics
            return _FAILED

    def conditional(self, e: graph.If) -> Type:
        test = self.type_of(e.condition)
        kinds = (TensorType((), "bool"), PrimType("bool"))
        if min(check_subtype(test, k, self.analyzer) for k in kinds) >= Verdict.STATIC_MISMATCH:
            # The place of a variable is that of its definition, which may be another line.
            place = e if isinstance(e.condition, graph.Var) else e.condition
            self.owner.report("E0203", f"a condition must be a bool scalar, is {test}", place)
        return self.joined([e.true_branch.body, e.false_branch.body])

    def joined(self, results: list[graph.Expr]) -> Type:
        """The type of a value that is one of the results of branches."""
        tys = [self.type_of(r) for r in results]
        if any(ty is _FAILED for ty in tys):
            return _FAILED
        return coarsen(lca_of(tys, self.analyzer), self.symbols)

    def fresh(self, hint: str) -> str:
        """A variable name that the function does not use yet."""
        name = fresh_name(hint, self.taken.__contains__)
        self.taken.add(name)
        return name


def _lengths_that_fit(condition: expr.PrimExpr, analyzer: Analyzer) -> Iterator[str]:
    """Yield the arguments of R.Lengths by which a condition on lengths holds, for lengths up to
    `MOST_LENGTH`; those of an example where none does by itself."""

    def of(n: Node, length: int) -> Node:
        if isinstance(n, Each):
            return expr.IntImm(length, n.dtype)
        return map_children(n, lambda child: of(child, length))

    fitting = [
        n for n in range(MOST_LENGTH + 1)
        if analyzer.prove(cast("expr.PrimExpr", of(condition, n)))
    ]  # fmt: skip
    if not fitting or fitting[0] > 0:
        yield f"at_least={fitting[0] if fitting else 1}"
    if not fitting or fitting[-1] < MOST_LENGTH:
        yield f"at_most={fitting[-1] if fitting else MOST_LENGTH}"


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _with_dtype(claim: Type, actual: Type) -> Type:
    """A claimed tensor type without a dtype gets the one that is known."""
    if isinstance(claim, TensorType) and isinstance(actual, TensorType) and claim.dtype is None:
        return claim if actual.dtype is None else replace(claim, dtype=actual.dtype)
    return claim


def _operands(e: graph.Expr) -> tuple[graph.Expr, ...]:
    match e:
        case graph.Call(op, args):
            return (op, *(x for a in args for x in _operands(a)))
        case graph.Tuple(fields):
            return tuple(x for f in fields for x in _operands(f))
        case graph.TupleGetItem(value):
            return (value,)
        case _:
            return (e,)


def _mentions_failure(e: graph.Expr) -> bool:
    return any(isinstance(x, graph.Var) and isinstance(x.ty, _Failed) for x in _operands(e))


def _short_name(call: graph.Call) -> str:
    return str(getattr(call.op, "name", "call")).rpartition(".")[2]


def _with_more(
    blocks: list[graph.BindingBlock], bindings: list[graph.Binding]
) -> list[graph.BindingBlock]:
    """The blocks with further bindings at the end, in the last block unless it is of dataflow."""
    if blocks and not isinstance(blocks[-1], graph.DataflowBlock):
        last = blocks[-1]
        return [*blocks[:-1], replace(last, bindings=(*last.bindings, *bindings))]
    return [*blocks, graph.BindingBlock(tuple(bindings))]


def _same_items(a: object, b: object) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))  # type: ignore
