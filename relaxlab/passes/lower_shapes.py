"""Lower graph functions to host functions: symbols become integers, variables registers.

The last step of the paper's section 4.7: afterwards annotations are gone, and every check that
deduction left to run time is an instruction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.fit_operator_call import claimed_condition
from relaxlab.ir import expr, graph, host, loops, types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.data import data_types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.op_table import find_op
from relaxlab.ir.row_major import product
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import PipelineError
from relaxlab.passes.bindings import known_shape, leaf_type, parts_of
from relaxlab.passes.fact_checks import Checked
from relaxlab.passes.kernel_calls import argument_symbols, unproved_dimensions, written_buffers
from relaxlab.passes.liveness import PER_THREAD, liveness_of
from relaxlab.passes.mark_written import mark_written
from relaxlab.passes.match_types import Claim, Symbols, is_redundant, match_claims
from relaxlab.passes.new_functions import NewFunctions
from relaxlab.passes.wide_sizes import LARGEST_SIZE, may_be_wide, sizes_of

Values = dict[graph.Var, host.Value]
_TOO_EARLY = (
    "the pass `expand_calls` lowers it, which this pipeline lacks: take it from the default"
)


@names_arguments
def lower_shapes(mod: Module) -> host.HostProgram:
    """The host program of a module whose calls were expanded.

    Raises `DiagnosticError` for what no host function can express (an undetermined symbol, an
    operator without loops or reference), and PipelineError for functions without types.
    """
    checks = NewFunctions[loops.PrimFunc](mod)
    graphs = mod.graph_functions().items()
    functions = {n: _Lowerer(n, f, mod, Checked(checks)).lower() for n, f in graphs}
    mod = mod.with_functions(checks.made)
    mark_written(functions, mod)
    return host.HostProgram(functions, mod.loop_functions(), data_types(mod))


@dataclass(slots=True)
class _Lowerer:
    name: str
    fn: graph.Function
    mod: Module
    checked: Checked
    registers: list[host.Register] = field(default_factory=lambda: [])
    values: Values = field(default_factory=lambda: {})
    constants: list[np.ndarray[Any, Any]] = field(default_factory=lambda: [])
    symbols: Symbols = field(default_factory=Symbols)
    instrs: list[host.Instr] = field(default_factory=lambda: [])
    escaping: set[graph.Var] = field(default_factory=lambda: set())
    per_thread: set[int] = field(default_factory=lambda: set())
    allocated: set[int] = field(default_factory=lambda: set())  # tensors in memory made here
    sizes: dict[expr.PrimExpr, bool] = field(default_factory=lambda: {})  # proved not negative
    fitting: set[expr.PrimExpr] = field(default_factory=lambda: set())  # known to fit into 64 bits

    # --- Registers and values -----------------------------------------------------------------

    def emit(self, instr: host.Instr) -> None:
        if isinstance(instr, host.MatchShape):  # which may bind the symbols of what it expects
            self.instrs.append(instr)
        for what, size in sizes_of(instr, self.name):
            self.require_fit(size, what)
        if not isinstance(instr, host.MatchShape):
            self.instrs.append(instr)

    def require_fit(self, size: expr.PrimExpr, what: str) -> None:
        """Stop where a size that is calculated next does not fit into 64 bits."""
        if size in self.fitting or not may_be_wide(size):
            return
        self.fitting.add(size)
        fits = expr.LT(host.on_floats(size), expr.FloatImm(float(LARGEST_SIZE), "float64"))
        self.require_of(fits, size, f"{what}, must fit into 64 bits")

    def register(self, name: str, ty: types.Type) -> int:
        self.registers.append(host.Register(name, ty))
        return len(self.registers) - 1

    def nest(self, name: str, ty: types.Type) -> host.Value:
        """New registers for a value of type `ty`."""
        if isinstance(ty, types.TupleType):
            return tuple(self.nest(f"{name}[{i}]", f) for i, f in enumerate(ty.fields))
        return self.register(name, ty)

    def type_of(self, reg: int) -> types.Type:
        return self.registers[reg].ty

    def value(self, e: graph.Expr) -> host.Value:
        """The registers holding a leaf expression."""
        match e:
            case graph.Var():
                return self.values[e]
            case graph.Tuple(fields):
                return tuple(self.value(f) for f in fields)
            case graph.Constant(data):
                return self.constant(e, data)
            case graph.ShapeExpr(dims):
                dst = self.register("shape", types.ShapeType(dims))
                self.emit(host.MakeShape(dst, dims))
                return dst
            case graph.PrimValue(value):
                dst = self.register("scalar", types.PrimType(value.dtype, value))
                self.emit(host.MakeScalar(dst, value))
                return dst
            case graph.GlobalVar(name):
                dst = self.register(name, types.FuncType(None, types.ObjectType()))
                self.emit(host.LoadFunction(dst, name))
                return dst
            case _:
                raise self.error("E0503", f"{type(e).__name__} cannot be a value at run time", e)

    def constant(self, e: graph.Expr, data: np.ndarray[Any, Any]) -> int:
        # By identity: comparing elements would read all weights.
        found = [i for i, c in enumerate(self.constants) if c is data]
        if not found:
            self.constants.append(data)
        ty = leaf_type(e)
        assert ty is not None
        dst = self.register("const", ty)
        self.emit(host.LoadConst(dst, found[0] if found else len(self.constants) - 1))
        return dst

    def leaf(self, e: graph.Expr) -> int:
        """The one register of a value that is not a tuple."""
        value = self.value(e)
        if not isinstance(value, int):
            raise self.error("E0503", "a tuple stands where one value is wanted", e)
        return value

    def error(self, code: str, message: str, e: Any, fix: str | None = None) -> DiagnosticError:
        at = getattr(e, "span", None)
        text = f"in `{self.name}`: {message}"
        return DiagnosticError([Diagnostic(code, text, at, suggestion=fix)])

    # --- The function -------------------------------------------------------------------------

    def lower(self) -> host.HostFunction:
        self.symbols.signed = self.fn.attrs.get("signed_scalars", ())
        live = liveness_of(self.fn, self.mod)
        self.escaping = {v for v, i in live.intervals.items() if i.escapes is not None}
        params = tuple(self.parameter(p) for p in self.fn.params)
        self.values |= {v: p.value for v, p in zip(self.fn.params, params, strict=True)}
        self.match([c for p in params for c in self.claims(p.value, p.ty, p.name)], entry=True)
        for p in params:
            if isinstance(p.ty, types.LengthsType) and isinstance(p.value, int):
                self.emit(self.checked.of_lengths(p.name, p.value, p.ty))
        marks: list[int] = []
        for blk in self.fn.body.blocks:
            for b in blk.bindings:
                marks.append(len(self.instrs))
                self.binding(b)
        marks.append(len(self.instrs))
        regions: tuple[tuple[int, int], ...] = self.fn.attrs.get("capture_regions", ())
        captures = tuple((marks[first], marks[end]) for first, end in regions)
        result, result_type = self.returned()
        return host.HostFunction(
            self.name,
            params,
            tuple(self.registers),
            tuple(dict.fromkeys(self.symbols.bound)),
            tuple(self.constants),
            tuple(self.instrs),
            result,
            result_type,
            private=self.fn.private,
            captures=captures,
            num_input=self.fn.attrs.get("num_input"),
        )

    def parameter(self, p: graph.Var) -> host.HostParam:
        ty = p.ty or types.ObjectType()
        return host.HostParam(p.name, ty, self.nest(p.name, ty))

    def claims(self, value: host.Value, ty: types.Type, name: str) -> Iterator[Claim]:
        """Yield the claims that the type of a parameter makes about its registers."""
        if isinstance(value, tuple):
            assert isinstance(ty, types.TupleType)
            for i, (v, f) in enumerate(zip(value, ty.fields, strict=True)):
                yield from self.claims(v, f, f"{name}[{i}]")
        elif not isinstance(ty, types.ObjectType | types.FuncType):
            yield Claim(value, value, ty, f"parameter `{name}` of `{self.name}`")

    def match(self, claims: list[Claim], *, entry: bool = False) -> None:
        """Check claims, and the declared upper bounds of the symbols they define. On entry nothing
        is known of the registers: their types are the claims."""
        known = set(self.symbols.origin)

        def actual(reg: int) -> types.Type:
            return types.ObjectType() if entry else self.type_of(reg)

        match_claims(claims, self.symbols, self.emit, actual)
        declared = self.fn.attrs.get("tir_var_upper_bound", {})
        for s, origin in list(self.symbols.origin.items()):
            if s not in known and s.name in declared:
                most = declared[s.name]
                text = f"{s.name} ({origin}) may be at most {most}"
                self.emit(host.Require(expr.LE(s, expr.const(most)), s, text))

    def returned(self) -> tuple[host.Value, types.Type]:
        value = self.value(self.fn.body.body)
        ty = self.fn.ret_ty or leaf_type(self.fn.body.body)
        if ty is None:
            text = f"the result of `{self.name}` has no type"
            raise PipelineError(f"{text}: the pipeline needs `normalize`, which deduces them")
        claimed = self.claimed(value, ty, f"the result of `{self.name}`")
        return claimed, ty

    def claimed(self, value: host.Value, ty: types.Type, what: str) -> host.Value:
        """Return `value` under the type `ty`, and emit a check of the part of it that is not
        proved."""
        if isinstance(value, tuple):
            if not isinstance(ty, types.TupleType):
                return self.packed(value, what)
            pairs = enumerate(zip(value, ty.fields, strict=True))
            return tuple(self.claimed(v, t, f"field {i} of {what}") for i, (v, t) in pairs)
        if isinstance(ty, types.TupleType):
            raw = tuple(self.register(what, types.ObjectType()) for _ in ty.fields)
            self.emit(host.Unpack(raw, value, what))
            return self.claimed(raw, ty, what)
        known = self.type_of(value)
        if is_redundant(known, ty):
            return value
        dst = self.register(self.registers[value].name, ty)
        self.match([Claim(value, dst, ty, what)])
        if value in self.allocated:
            self.allocated.add(dst)
        return dst

    def packed(self, value: tuple[host.Value, ...], what: str) -> int:
        dst = self.register(what, types.ObjectType())
        self.emit(host.Pack(dst, value))
        return dst

    # --- Bindings -----------------------------------------------------------------------------

    def sequence(self, seq: graph.SeqExpr) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                self.binding(b)

    def binding(self, b: graph.Binding) -> None:
        if isinstance(b, graph.MatchCast):
            condition = claimed_condition(b.value, b.ty)
            if condition is not None:
                self.require(b.var.name, condition)
                self.values[b.var] = self.value(b.value)
                return
            of = ""
            if isinstance(b.value, graph.ShapeExpr):  # whose numbers have no other name
                of = f"of ({', '.join(map(str, b.value.values))}) "
            what = f"`{b.var.name}` (match_cast {of}in `{self.name}`)"
            self.values[b.var] = self.claimed(self.value(b.value), b.ty, what)
            return
        assert isinstance(b, graph.VarBinding)
        match b.value:
            case graph.TupleGetItem(source, index):
                whole = self.value(source)
                if isinstance(whole, int):
                    text = "a field is read of a value that is not known to be a tuple"
                    raise self.error("E0503", text, b.value)
                self.values[b.var] = whole[index]
            case graph.If():
                self.values[b.var] = self.conditional(b.var, b.value)
            case graph.Call():
                self.values[b.var] = self.call(b.var, b.value)
            case _:
                self.values[b.var] = self.value(b.value)

    def require(self, name: str, claim: expr.PrimExpr, why: str = "") -> None:
        """Stop unless a condition on symbols holds, which an operator takes for granted, or a loop
        function states and says why."""
        sizes = tuple(s for s in symbols_in(claim) if s.name not in self.symbols.signed)
        condition = Analyzer.for_shapes(sizes).simplify(claim)
        shown = claim if why or isinstance(condition, expr.IntImm) else condition
        text = f"`{name}` in `{self.name}` needs {shown}"
        if not isinstance(condition, expr.IntImm):
            self.require_of(condition, condition, text + why)
        elif not condition.value:
            text += f"; its truth is constant{why}"
            self.emit(host.Require(condition, expr.const(0), text))

    def require_of(self, condition: expr.PrimExpr, about: expr.PrimExpr, text: str) -> None:
        """Stop with a text unless a condition holds; says where the symbols of `about` are from,
        and the last one's value."""
        *others, last = symbols_in(about)
        given = "".join(f"{self.symbols.why(s)}, " for s in others) + self.symbols.why(last)
        self.emit(host.Require(condition, last, f"{text}; {given}"))

    def conditional(self, var: graph.Var, e: graph.If) -> host.Value:
        condition = self.leaf(e.condition)
        ty = var.ty or types.ObjectType()
        then_instrs, then_value = self.branch(e.true_branch, ty)
        else_instrs, else_value = self.branch(e.false_branch, ty)
        dst = self.nest(var.name, ty)
        self.emit(host.If(condition, then_instrs, then_value, else_instrs, else_value, dst))
        sides = (host.leaves(v) for v in (dst, then_value, else_value))
        for merged, *values in zip(*sides, strict=True):
            if self.allocated.issuperset(values):
                self.allocated.add(merged)
        return dst

    def branch(
        self, seq: graph.SeqExpr, ty: types.Type
    ) -> tuple[tuple[host.Instr, ...], host.Value]:
        outer, known, fitting = self.instrs, dict(self.symbols.origin), set(self.fitting)
        checked = set(self.checked.done)
        self.instrs = []
        self.sequence(seq)
        value = self.claimed(self.value(seq.body), ty, f"a branch of `{self.name}`")
        mine, self.instrs = tuple(self.instrs), outer
        # Symbols that a branch binds have no value in the other branch, nor after both.
        self.symbols.origin, self.fitting = known, fitting
        self.checked.done &= checked
        return mine, value

    # --- Calls --------------------------------------------------------------------------------

    def call(self, var: graph.Var, e: graph.Call) -> host.Value:
        match e.op:
            case graph.Op(name):
                return self.operator(var, e, name)
            case graph.GlobalVar(name):
                callee = self.mod.get(name)
                if isinstance(callee, loops.PrimFunc):
                    self.kernel(name, callee, e.args)
                    return ()
                if isinstance(callee, graph.ExternFunc):
                    return self.extern(var, callee.name, e.args)
                return self.function(var, name, e.args)
            case graph.ExternFunc(name):
                return self.extern(var, name, e.args, e.attrs.get("overwrites", ()))
            case _:
                return self.function(var, self.leaf(e.op), e.args)

    def operator(self, var: graph.Var, e: graph.Call, name: str) -> host.Value:
        args = e.args
        ty = var.ty or types.ObjectType()
        match name:
            case "builtin.alloc_tensor":
                self.require_sizes(var.name, ty)
                dst = self.register(var.name, ty)
                self.emit(host.Alloc(dst, var in self.escaping))
                self.allocated.add(dst)
                return dst
            case "memory.alloc_storage":
                dst = self.register(var.name, types.ObjectType())
                assert isinstance(args[0], graph.ShapeExpr)
                own = args[2] == PER_THREAD
                self.emit(host.AllocStorage(dst, args[0].values[0], own))
                if own:
                    self.per_thread.add(dst)
                return dst
            case "vm.alloc_storage":
                assert isinstance(args[0], graph.ShapeExpr)
                assert isinstance(args[2], graph.DataTypeImm)
                dst = self.register(var.name, types.ObjectType())
                size = product((*args[0].values, expr.const(bytes_of(args[2].value))))
                self.emit(host.AllocStorage(dst, size))
                return dst
            case "memory.alloc_tensor" | "vm.alloc_tensor":
                assert isinstance(args[1], graph.PrimValue)
                self.require_sizes(var.name, ty)
                dst = self.register(var.name, ty)
                self.allocated.add(dst)
                return self.view_at(dst, self.leaf(args[0]), args[1].value)
            case "reshape" if known_shape(leaf_type(args[0])) and known_shape(ty) is not None:
                return self.view(var, args[0], ty)
            case "shape_of" if isinstance(ty, types.ShapeType) and ty.values is not None:
                return self.value(graph.ShapeExpr(ty.values))
            case "phase":
                return ()  # one instance has no others to wait for
            case "memory.kill_tensor" if self.is_made_here(self.leaf(args[0])):
                self.emit(host.Kill(self.leaf(args[0])))
                return ()
            case "memory.kill_storage" | "memory.kill_tensor" | "vm.kill_object":
                return ()  # memory is reused by plan and given back when the function returns
            case "call_pure_packed":
                assert isinstance(args[0], graph.ExternFunc)
                return self.extern(var, args[0].name, args[1:])
            case "call_builtin_with_ctx":
                assert isinstance(args[0], graph.ExternFunc)
                return self.extern(var, args[0].name, parts_of(args[1]))
            case "vm.call_tir_dyn":
                return self.dynamic_kernel(e)
            case "make_closure":
                given = self.arguments(_name_of_function(args[0]), parts_of(args[1]))
                dst = self.register(var.name, types.FuncType(None, types.ObjectType()))
                self.emit(host.MakeClosure(dst, self.leaf(args[0]), given))
                return dst
            case "invoke_closure" | "invoke_pure_closure":
                return self.function(var, self.leaf(args[0]), parts_of(args[1]))
            case _:
                return self.reference(var, e, name)

    def is_made_here(self, reg: int) -> bool:
        """Return True for a tensor of known dtype and rank in memory that the function makes."""
        ty = self.type_of(reg)
        known = isinstance(ty, types.TensorType) and ty.dtype is not None and ty.ndim >= 0
        return known and reg in self.allocated

    def require_sizes(self, name: str, ty: types.Type) -> None:
        """Stop where a dimension of a tensor that is allocated next is negative, or does not fit
        into 64 bits."""
        for axis, d in enumerate(known_shape(ty) or ()):
            if d not in self.sizes:
                self.sizes[d] = Analyzer.for_shapes(d).prove(expr.GE(d, expr.const(0))) is True
            what = f"dimension {axis} of `{name}` in `{self.name}`, {d}"
            self.require_fit(d, what)
            if not self.sizes[d]:
                text = f"{what} ({self.symbols.why(d)}), must not be negative"
                self.emit(host.Require(expr.GE(d, expr.const(0)), d, text))

    def view(self, var: graph.Var, source: graph.Expr, ty: types.Type) -> int:
        base = self.leaf(source)
        old, new = known_shape(self.type_of(base)), known_shape(ty)
        assert old is not None and new is not None
        have, want = product(old), product(new)
        if Analyzer.for_shapes((have, want)).prove_equal(have, want) is not True:
            text = f"`{var.name}` of `{self.name}`: a reshape to {want} elements, given {have}"
            self.emit(host.Require(expr.EQ(have, want), have, text))
        for axis, d in enumerate(new):
            self.require_fit(d, f"dimension {axis} of `{var.name}` in `{self.name}`, {d}")
        view = self.view_at(self.register(var.name, ty), base, expr.const(0))
        self.checked.same[view] = base
        return view

    def view_at(self, dst: int, base: int, offset: expr.PrimExpr) -> int:
        self.emit(host.View(dst, base, offset))
        if base in self.allocated:
            self.allocated.add(dst)
        if base in self.per_thread:
            self.per_thread.add(dst)
        return dst

    def reference(self, var: graph.Var, e: graph.Call, name: str) -> host.Value:
        row = find_op(name)
        if row is None or row.reference is None:
            fix = _TOO_EARLY if row and "fills_outputs" in row.traits else None
            raise self.error("E0504", f"R.{name} has neither loops nor a reference", e, fix)
        attrs = json.dumps(_plain(e.attrs))
        has_scalars = any(isinstance(leaf_type(a), types.PrimType) for a in e.args)
        ty = var.ty if has_scalars else None
        dtype = (ty.dtype or "") if isinstance(ty, types.TensorType) else ""
        head: tuple[host.PackedArg, ...] = (name, attrs, dtype)
        return self.packed_call(var, "relaxlab.operator", (*head, *map(self.argument, e.args)))

    def argument(self, e: graph.Expr) -> host.PackedArg:
        """An argument of a packed call."""
        match e:
            case graph.PrimValue(value):
                return value
            case graph.StringImm(value) | graph.DataTypeImm(value):
                return value
            case _:
                return self.value(e)

    def extern(
        self,
        var: graph.Var,
        name: str,
        args: tuple[graph.Expr, ...],
        overwrites: tuple[int, ...] = (),
    ) -> host.Value:
        return self.packed_call(var, name, tuple(map(self.argument, args)), overwrites)

    def packed_call(
        self,
        var: graph.Var,
        name: str,
        args: tuple[host.PackedArg, ...],
        overwrites: tuple[int, ...] = (),
    ) -> host.Value:
        ty = var.ty or types.ObjectType()
        written = tuple(args[i] for i in overwrites)
        self.checked.forget(r for a in args if not isinstance(a, expr.PrimExpr | str)
                            for r in host.leaves(a))  # fmt: skip
        regs = tuple(r for r in written if isinstance(r, int))
        if isinstance(ty, types.TupleType) and not ty.fields:
            self.emit(host.CallPacked(name, args, None, regs))
            return ()
        # A value has had its fields checked when it was made.
        on_data = name == "relaxlab.operator" and str(args[0]).startswith("adt.")
        dst = self.nest(var.name, ty if on_data else _ranks(ty))
        self.emit(host.CallPacked(name, args, dst, regs))
        return self.claimed(dst, ty, f"the result `{var.name}` of `{name}` in `{self.name}`")

    def function(
        self, var: graph.Var, callee: str | int, args: tuple[graph.Expr, ...]
    ) -> host.Value:
        given = self.arguments(callee if isinstance(callee, str) else None, args)
        self.checked.forget(r for value in given for r in host.leaves(value))
        ty = var.ty or types.ObjectType()
        if isinstance(callee, str):
            dst = self.nest(var.name, ty)
            self.emit(host.CallFunction(callee, given, dst))
            return dst
        dst = self.nest(var.name, _ranks(ty))
        self.emit(host.CallFunction(callee, given, dst))
        return self.claimed(dst, ty, f"the result `{var.name}` of a call in `{self.name}`")

    def arguments(self, callee: str | None, args: tuple[graph.Expr, ...]) -> tuple[host.Value, ...]:
        """The first arguments of a function, nested as its parameters are if it is known."""
        fn = self.mod.get(callee) if callee is not None else None
        given: list[host.Value] = []
        for i, a in enumerate(args):
            value = self.value(a)
            if isinstance(fn, graph.Function) and i < len(fn.params):
                ty = fn.params[i].ty or types.ObjectType()
                value = self.fitted(value, ty, f"argument {i} of `{callee}`")
            given.append(value)
        return tuple(given)

    def fitted(self, value: host.Value, ty: types.Type, what: str) -> host.Value:
        """`value` nested as a parameter of type `ty` is; the callee checks the rest itself."""
        if isinstance(value, tuple) != isinstance(ty, types.TupleType):
            return self.claimed(value, _outline(ty), what)
        if isinstance(value, tuple) and isinstance(ty, types.TupleType):
            pairs = zip(value, ty.fields, strict=True)
            return tuple(self.fitted(v, t, what) for v, t in pairs)
        return value

    def kernel(self, name: str, func: loops.PrimFunc, args: tuple[graph.Expr, ...]) -> None:
        count = len(func.buffers)
        what = [f"argument {i} of loop function `{name}` in `{self.name}`" for i in range(count)]
        buffers = [self.shaped(self.leaf(a), w) for a, w in zip(args[:count], what, strict=True)]
        scalars = [a.value for a in args[count:] if isinstance(a, graph.PrimValue)]
        given = [self.type_of(r) for r in buffers]
        symbols = argument_symbols(func, given, scalars, name)
        wrong: dict[int, dict[int, expr.PrimExpr]] = {}
        for at, axis, expected in unproved_dimensions(func, given, scalars):
            wrong.setdefault(at, {})[axis] = expected
        for at, dims in wrong.items():
            checks = [
                host.CheckDim(dims[k], self.symbols.why(dims[k])) if k in dims else None
                for k in range(func.buffers[at].ndim)
            ]
            reg, ndim = buffers[at], len(checks)
            self.emit(host.MatchShape(reg, reg, "tensor", what[at], ndim=ndim, dims=tuple(checks)))
        values = tuple(symbols[s] for s in host.kernel_symbols(func))
        written = {buffers[i] for i in written_buffers(func)}
        alone = bool(written) and written <= self.per_thread
        for required in func.requires:
            claim = substitute(required, symbols)
            why = claim.text([f"`{v}`" for v in claim.values])
            self.require(name, claim.condition, f": {why}")
        check = self.checked.before(name, func, buffers, symbols)
        if check is not None:
            self.emit(check)
        self.checked.forget(written)
        self.emit(host.CallKernel(name, tuple(buffers), values, alone))

    def dynamic_kernel(self, e: graph.Call) -> host.Value:
        """Lower a call of a loop function that takes its scalars as a shape, the last argument."""
        callee, (*tensors, shape) = e.args[0], parts_of(e.args[1])
        func = self.mod.get(callee.name) if isinstance(callee, graph.GlobalVar) else None
        if not isinstance(func, loops.PrimFunc) or not isinstance(shape, graph.ShapeExpr):
            text = "R.vm.call_tir_dyn takes a loop function, its tensors, and a shape written there"
            raise self.error("E0503", text, e)
        assert isinstance(callee, graph.GlobalVar)
        self.kernel(callee.name, func, (*tensors, *map(graph.PrimValue, shape.values)))
        return ()

    def shaped(self, reg: int, what: str) -> int:
        """A tensor register of known shape: one that is not gets symbols for its dimensions."""
        ty = self.type_of(reg)
        if known_shape(ty) is not None:
            return reg
        if not isinstance(ty, types.TensorType) or ty.ndim < 0 or ty.dtype is None:
            text = f"{what} has type {ty}: rank and dtype must be known; use R.match_cast"
            raise self.error("E0505", text, ty)
        name = self.registers[reg].name
        dims = tuple(expr.Var(f"{name}_{i}") for i in range(ty.ndim))
        value = self.claimed(reg, types.TensorType(dims, ty.dtype), what)
        assert isinstance(value, int)
        return value


def _unchecked(ty: types.Type) -> types.Type:
    """Return the part of a type that a packed function's result is trusted to have: without
    dimensions."""
    match ty:
        case types.TensorType(_, dtype, ndim):
            return types.TensorType(None, dtype, ndim)
        case types.ShapeType(_, ndim):
            return types.ShapeType(None, ndim)
        case _:
            return ty


def _ranks(ty: types.Type) -> types.Type:
    """Return the part of a type that an unknown function is trusted to return: tuples of tensors
    and shapes without dimensions."""
    if isinstance(ty, types.TupleType):
        return types.TupleType(tuple(map(_ranks, ty.fields)))
    return _unchecked(ty)


def _name_of_function(e: graph.Expr) -> str | None:
    return e.name if isinstance(e, graph.GlobalVar) else None


def _outline(ty: types.Type) -> types.Type:
    """The tuples of a type, with fields of any type."""
    if isinstance(ty, types.TupleType):
        return types.TupleType(tuple(_outline(f) for f in ty.fields))
    return types.ObjectType()


def _plain(value: Any) -> Any:
    if isinstance(value, Attrs):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]  # type: ignore[reportUnknownVariableType]
    return value
