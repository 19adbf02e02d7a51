"""Graph functions by NumPy: each expression is evaluated where it stands.

Tensors are arrays, shapes tuples of int, scalars Python numbers, tuples tuples, functions Python
callables. Every value is checked against the type of the variable it is bound to, so a type that
was deduced wrongly shows up as an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.analysis.ragged import (
    combines_sequences,
    may_be_ragged,
    mentions_ragged,
    row_dims,
    tensors_in,
)
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.data import DataValue
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import counted
from relaxlab.ir.host import in_order
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.op_table import OpRow, TypeDeductionError, find_op, infer_type
from relaxlab.ir.types import (
    FuncType,
    ObjectType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    each_in,
    lengths_in,
)
from relaxlab.runtime.arrays import (
    Array,
    ExecutionError,
    OutOfMemory,
    apart,
    dtype_name,
    uninitialised,
)
from relaxlab.runtime.interpreter.check_values import Symbols, arguments, match_value
from relaxlab.runtime.interpreter.deep_calls import call_nested
from relaxlab.runtime.interpreter.ragged import Elements
from relaxlab.runtime.packed import call_func, get_func

LoopRunner = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Machine:
    """A module, how its loop functions are run, and whether its tensors may be ragged."""

    mod: Module
    run_loops: LoopRunner
    ragged: bool

    @staticmethod
    def of(mod: Module, run_loops: LoopRunner) -> Machine:
        """The machine of a module. Types are deduced where tensors may be ragged: what an operator
        does depends on them. Raises DiagnosticError where there are none."""
        ragged = may_be_ragged(mod)
        if ragged:
            mod, wrong = annotate(mod)
            if wrong:
                raise DiagnosticError(wrong)
        return Machine(mod, run_loops, ragged)

    def call(self, name: str, args: tuple[Any, ...]) -> Any:
        """Run the function of that name on Python arguments."""
        fn = self.mod.get(name)
        if isinstance(fn, graph.Function):
            if len(args) == len(fn.params):
                args = arguments(args, fn, name)
            return Closure(self, name, fn)(*args)
        if isinstance(fn, loops.PrimFunc):
            return self.run_loops(fn, args, name=name)
        return _packed(name)(*args)


@dataclass(frozen=True, slots=True)
class Closure:
    """A graph function as a value, with the values that it captured."""

    machine: Machine
    name: str
    fn: graph.Function
    values: Mapping[graph.Var, Any] = field(default_factory=dict[graph.Var, Any])
    symbols: Symbols = field(default_factory=Symbols)

    def __call__(self, *args: Any) -> Any:
        fn = self.fn
        if len(args) != len(fn.params):
            names = ", ".join(p.name for p in fn.params)
            takes = f"takes {counted(len(fn.params), 'argument')} ({names})"
            raise ExecutionError(f"`{self.name}` {takes}, got {len(args)}")
        return call_nested(self.name, lambda: self.run(args))

    def run(self, args: tuple[Any, ...]) -> Any:
        """Return the result for as many arguments as there are parameters."""
        fn = self.fn
        symbols = self.symbols.copy()
        symbols.signed = self.fn.attrs.get("signed_scalars", ())
        frame = _Frame(self.machine, self.name, dict(self.values), symbols)
        with _located(f"in `{self.name}`"):
            frame.enter(fn, args)
            result = frame.sequence(fn.body)
            if fn.ret_ty is not None:
                frame.bind(result, fn.ret_ty, "the result")
        return result


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A function passed for a parameter of function type, whose results are checked."""

    name: str
    fn: Callable[..., Any]
    ty: FuncType

    def __call__(self, *args: Any) -> Any:
        symbols = Symbols()
        pairs = zip(args, self.ty.params or (), strict=self.ty.params is not None)
        where = f"an argument of `{self.name}`"
        symbols.bind([d for a, t in pairs for d in match_value(a, t, where)])
        result = _plain(self.fn(*args))
        symbols.bind_known(match_value(result, self.ty.ret, f"the result of `{self.name}`"))
        return result


class _located:  # noqa: N801
    """Adds the place where an ExecutionError happened to its message, once: a recursive call has
    the same places at every level."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ExecutionError) and f"{self.where}: " not in str(error):
            raise type(error)(f"{self.where}: {error}") from error


@dataclass(slots=True)
class _Frame:
    """One call in progress."""

    machine: Machine
    name: str
    values: dict[graph.Var, Any]
    symbols: Symbols

    def enter(self, fn: graph.Function, args: tuple[Any, ...]) -> None:
        """Bind the parameters; check their types and the declared upper bounds."""
        both = list(zip(fn.params, args, strict=True))
        of_lengths = [self.symbols.define_lengths(a, p.ty, f"parameter `{p.name}`")
                      for p, a in both]  # fmt: skip
        known = [d for found in of_lengths for d in found]
        for ragged in (False, True):  # whose sizes may follow from what the others determine
            dims = [
                d
                for p, a in both
                if p.ty is not None and mentions_ragged(p.ty) is ragged
                for d in match_value(a, self.stored(p.ty), f"parameter `{p.name}`")
            ]
            self.symbols.bind([*dims, *(() if ragged else known)])
        bounds: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
        for symbol, value in self.symbols.values.items():
            if value > bounds.get(symbol.name, value):
                origin = self.symbols.origins.get(symbol, "in the shapes")
                raise ExecutionError(
                    f"{symbol} ({origin}) may be at most {bounds[symbol.name]} (it is {value})"
                )
        for p, a in zip(fn.params, args, strict=True):
            claim = p.ty if isinstance(p.ty, FuncType) else None
            self.values[p] = a if claim is None else _Claimed(p.name, a, claim)

    def bind(self, value: Any, ty: Type, what: str) -> None:
        """Check `value` against `ty`, binding the symbols it defines."""
        self.symbols.bind(match_value(value, self.stored(ty), what))

    def stored(self, ty: Type) -> Type:
        """The type of the arrays that values of type `ty` are."""
        return self.symbols.stored(ty)

    def verify(self, value: Any, ty: Type, what: str) -> None:
        """Check `value` against a deduced type, which defines no symbols."""
        self.symbols.bind_known(match_value(value, self.stored(ty), what))

    def sequence(self, seq: graph.SeqExpr) -> Any:
        for block in seq.blocks:
            for b in block.bindings:
                self.binding(b)
        return self.eval(seq.body)

    def branch(self, seq: graph.SeqExpr) -> Any:
        """Run a branch: the symbols that it binds are unknown after it."""
        outer = self.symbols
        self.symbols = outer.copy()
        try:
            return self.sequence(seq)
        finally:
            self.symbols = outer

    def binding(self, b: graph.Binding) -> None:
        match b:
            case graph.VarBinding(graph.Function() as fn, var):
                closure = Closure(self.machine, var.name, fn, self.values, self.symbols)
                self.values[var] = closure  # `values` is shared: the function may call itself
            case graph.VarBinding(value, var):
                with _located(f"computing `{var.name}`"):
                    result = self.computed(value)
                    if var.ty is not None:
                        self.verify(result, var.ty, f"`{var.name}`, of type {var.ty},")
                self.values[var] = result
            case graph.MatchCast(value, ty, var):
                result = self.eval(value)
                what = _name(value)
                with _located(f"match_cast `{var.name}`"):
                    self.bind(result, ty, what)
                self.values[var] = result
            case _:
                raise ExecutionError(f"the interpreter has no meaning for {type(b).__name__}")

    def computed(self, value: graph.Expr) -> Any:
        """Evaluate a value. Raises OutOfMemory for one that is too large."""
        try:
            return self.eval(value)
        except OutOfMemory:
            raise
        except MemoryError as error:
            raise OutOfMemory(f"there is no memory for it: {error}") from error

    def scalar(self, e: expr.PrimExpr) -> Any:
        try:
            value = evaluate(e, self.symbols.values)
        except CannotEvaluate as error:
            raise ExecutionError(f"{e}: {error}") from None
        if e.dtype == "int64" and not -(2**63) <= value < 2**63:
            raise ExecutionError(f"{e} is {value}, which must fit into 64 bits")
        return value

    def eval(self, e: graph.Expr) -> Any:
        match e:
            case graph.Var(name):
                if e not in self.values:
                    raise ExecutionError(f"`{name}` has no value yet")
                return self.values[e]
            case graph.Constant(data):
                return _read_only(data)
            case graph.Tuple(fields):
                return tuple(self.eval(f) for f in fields)
            case graph.TupleGetItem(value, index):
                return self.field(self.eval(value), index)
            case graph.ShapeExpr(values):
                return tuple(self.scalar(v) for v in values)
            case graph.PrimValue(value):
                return self.scalar(value)
            case graph.StringImm(value) | graph.DataTypeImm(value):
                return value
            case graph.GlobalVar(name):
                return self.function(name)
            case graph.ExternFunc(name):
                return _packed(name)
            case graph.Function():
                return Closure(self.machine, f"{self.name}.lambda", e, self.values, self.symbols)
            case graph.If(condition, yes, no):
                return self.branch(yes if self.truth(condition) else no)
            case graph.Match(value, cases):
                return self.case(self.eval(value), cases)
            case graph.SeqExpr():
                return self.sequence(e)
            case graph.Call():
                return self.call(e)
            case _:
                raise ExecutionError(f"the interpreter has no meaning for {type(e).__name__}")

    def case(self, value: Any, cases: tuple[graph.Case, ...]) -> Any:
        if not isinstance(value, DataValue):
            raise ExecutionError(f"a match of {type(value).__name__}, which is no value of a data "
                                 "type")  # fmt: skip
        for case in cases:
            if case.constructor == value.constructor:
                self.values.update(zip(case.fields, value.fields, strict=True))
                return self.branch(case.body)
        raise ExecutionError(f"there is no case for `{value.constructor}`")

    def field(self, value: Any, index: int) -> Any:
        if not isinstance(value, tuple) or not 0 <= index < len(value):
            raise ExecutionError(f"field {index} of {type(value).__name__}")
        return value[index]

    def truth(self, condition: graph.Expr) -> bool:
        value = np.asarray(self.eval(condition))
        if value.shape != () or value.dtype != np.bool_:
            raise ExecutionError(
                f"a condition must be a bool scalar, is {value.dtype} of shape {value.shape}"
            )
        return bool(value)

    def function(self, name: str) -> Any:
        fn = self.machine.mod.get(name)
        if isinstance(fn, graph.Function):
            return Closure(self.machine, name, fn)
        if isinstance(fn, loops.PrimFunc):
            return lambda *args: self.loop_function(fn, name, args)
        if fn is None:
            raise ExecutionError(f"the module has no function `{name}`")
        return _packed(fn.name)

    def loop_function(self, fn: loops.PrimFunc, name: str, args: tuple[Any, ...]) -> Any:
        """The scalar that a loop function returns; an empty tuple if it returns nothing. Its scalar
        parameters are last among the arguments, wherever it has them."""
        count = len(fn.buffers)
        found = self.machine.run_loops(fn, in_order(fn, args[:count], args[count:]), name=name)
        return () if found is None else np.asarray(found).item()

    def call(self, e: graph.Call) -> Any:
        match e.op:
            case graph.Op(
                "call_tir" | "call_tir_inplace" | "call_tir_with_grad" | "call_dps_packed"
            ):
                return self.destination_passing(e)
            case graph.Op("call_pure_packed"):
                return self.claimed(e, self.eval(e.args[0])(*map(self.eval, e.args[1:])))
            case graph.Op("call_inplace_packed"):
                return self.overwriting(e)
            case graph.Op("vm.call_tir_dyn"):
                *tensors, shape = self.eval(e.args[1])
                return self.claimed(e, self.eval(e.args[0])(*tensors, *shape))
            case graph.Op(
                "invoke_closure" | "invoke_pure_closure" | "call_py_func" | "call_builtin_with_ctx"
            ):
                return self.claimed(e, self.eval(e.args[0])(*self.eval(e.args[1])))
            case graph.Op(name):
                return self.operator(e, name)
            case _:
                return self.claimed(e, self.eval(e.op)(*map(self.eval, e.args)))

    def claimed(self, e: graph.Call, result: Any) -> Any:
        """`result`, checked against the type stated at the call."""
        result = () if result is None else _plain(result)  # a function that returns nothing
        if e.ty_args:
            claim = e.ty_args[0] if len(e.ty_args) == 1 else TupleType(e.ty_args)
            self.verify(result, claim, f"the result of {_callee(e)}")
        return result

    def operator(self, e: graph.Call, name: str) -> Any:
        row = find_op(name)
        if row is None or row.reference is None:
            raise ExecutionError(f"operator R.{name} has no NumPy meaning")
        rows: Type | None = None  # whose rows are combined, wherever a sequence ends
        if self.machine.ragged and not self.symbols.of_one:
            an = self.symbols.analyzer(e)
            out, *tys = (type_of(x, self.machine.mod, an) for x in (e, *e.args))
            rows = tys[0] if combines_sequences(e, tys) else None
            if mentions_ragged(out, *tys) and rows is None:
                return self.of_each_sequence(e, name, out, tys)
        args, reference = [self.eval(a) for a in e.args], row.reference
        if rows is not None:
            args[0] = _as_one_sequence(args[0], rows)
        attrs = {k: self.attribute(v) for k, v in e.attrs.items()}
        if name == "reshape" and 0 in args[0].shape:
            shape = self.deduced_shape(e)
            if shape is not None:
                reference, args[1] = np.reshape, shape
        try:
            with np.errstate(all="ignore"):
                result = _plain(reference(*args, **attrs))
                result = _in_deduced_dtype(result, row, e, args)
        except (ArithmeticError, AssertionError, IndexError, TypeError, ValueError) as error:
            raise ExecutionError(_refusal(row, e, args) or f"R.{name}: {error}") from error
        return result if "view" in row.traits or name in PARTS else apart(result, args)

    def of_each_sequence(self, e: graph.Call, name: str, out: Type, tys: Sequence[Type]) -> Any:
        """The result of an operator on ragged tensors, one sequence after the other."""
        outer, results = self.symbols, list[Any]()
        ragged = {v for v in walk(e) if isinstance(v, graph.Var) and mentions_ragged(v.ty)}
        used = [s for t in tensors_in(out, *tys) for s in lengths_in(t.shape)]
        used += each_in(e)
        elements = Elements.of(used, outer.lengths, outer.values)
        for k, sizes in enumerate(elements.sizes):
            batch = {v: elements.batch_of(self.values[v], v.ty, k) for v in ragged}
            alone = Symbols(sizes, outer.origins, of_one=True)  # in which all sequences are alike
            frame = _Frame(self.machine, self.name, {**self.values, **batch}, alone)
            results.append(frame.operator(e, name))
        return elements.joined(results, out, self.stored(out), self.scalar)

    def deduced_shape(self, e: graph.Call) -> tuple[int, ...] | None:
        """The shape that is deduced for a call's result; None where none is. The numbers alone do
        not say what -1 is for a tensor without elements, nor whether a 0 is the size of a symbol
        or stands for the old extent; the symbols do."""
        try:
            ty = type_of(e, self.machine.mod)
        except DiagnosticError:  # the program was not normalized: its variables have no types
            return None
        if not isinstance(ty, TensorType) or ty.shape is None:
            return None
        return tuple(map(self.scalar, ty.shape))

    def attribute(self, value: Any) -> Any:
        """An attribute with its scalar expressions evaluated (the bounds of a slice)."""
        if isinstance(value, expr.PrimExpr):
            return self.scalar(value)
        return tuple(map(self.attribute, value)) if isinstance(value, tuple) else value  # type: ignore

    def destination_passing(self, e: graph.Call) -> Any:
        """Allocate the outputs, call, and return them."""
        callee, packed = e.args[0], self.eval(e.args[1])
        inputs = packed if isinstance(packed, tuple) else (packed,)
        inplace: tuple[int, ...] = e.attrs.get("inplace_indices", (-1,) * len(e.ty_args))
        if e.op == graph.Op("call_tir_inplace") and "inplace_indices" not in e.attrs:
            inplace = (0,)
        pairs = zip(e.ty_args, inplace, strict=True)
        outputs = [self.allocate(self.stored(t)) if i < 0 else inputs[i] for t, i in pairs]
        fresh = [o for o, i in zip(outputs, inplace, strict=True) if i < 0]
        symbols = self.eval(e.args[2]) if len(e.args) > 2 else ()
        self.eval(callee)(*inputs, *fresh, *symbols)
        result = outputs[0] if len(outputs) == 1 else tuple(outputs)
        return self.claimed(e, result)

    def overwriting(self, e: graph.Call) -> Any:
        """Call a packed function that writes into its arguments, and return those as its
        results."""
        fn, *args = map(self.eval, e.args)
        indices: tuple[int, ...] = e.attrs["inplace_indices"]
        result = fn(*args)
        made = result if len(indices) > 1 and min(indices) < 0 else (None,) * len(indices)
        fields = tuple(args[i] if i >= 0 else m for i, m in zip(indices, made, strict=True))
        return self.claimed(e, fields[0] if len(fields) == 1 else fields)

    def allocate(self, ty: Type) -> Array:
        if not isinstance(ty, TensorType) or ty.shape is None or ty.dtype is None:
            raise ExecutionError(f"cannot allocate an output of type {ty}")
        return uninitialised([self.scalar(d) for d in ty.shape], ty.dtype)


PARTS = ("memory.alloc_tensor", "vm.alloc_tensor")
"""Operators whose results are parts of the storage that they are given."""


def _read_only(data: Array) -> Array:
    view = data.view()
    view.flags.writeable = False
    return view


def _in_deduced_dtype(result: Any, row: OpRow, e: graph.Call, args: Sequence[Any]) -> Any:
    """The result of an operator; with scalars among its arguments, which are Python's numbers and
    have no dtype for NumPy, in the dtype that is deduced for it."""
    scalars = [_scalar_type(a) for a in e.args]
    if not isinstance(result, np.ndarray) or not any(scalars):
        return result
    known = zip(args, scalars, strict=True)
    ty = infer_type(row, e, tuple(scalar or _type_of(a) for a, scalar in known), None)
    if not isinstance(ty, TensorType) or ty.dtype is None:
        return result
    # Not a copy: a tensor allocated in a storage is its memory.
    return result.astype(numpy_dtype(ty.dtype), copy=False)


def _scalar_type(e: graph.Expr) -> PrimType | None:
    match e:
        case graph.PrimValue(value):
            return PrimType(value.dtype, value)
        case graph.Var(_, PrimType() as ty):
            return ty
        case _:
            return None


def _refusal(row: OpRow, e: graph.Call, args: Sequence[Any]) -> str:
    """The words of the operator's rule for types on these shapes, which names them as NumPy does
    not; "" where it accepts them."""
    try:
        infer_type(row, e, tuple(map(_type_of, args)), None)
    except TypeDeductionError as refused:
        return str(refused)
    return ""


def _type_of(value: Any) -> Type:
    """The type of the value of an argument."""
    if isinstance(value, np.ndarray):
        return TensorType(tuple(map(expr.IntImm, value.shape)), dtype_name(value))
    if not isinstance(value, tuple):
        return ObjectType()
    if any(isinstance(field, np.ndarray) for field in value):  # pyright: ignore[reportUnknownVariableType]
        return TupleType(tuple(map(_type_of, value)))  # pyright: ignore[reportUnknownArgumentType]
    return ShapeType(tuple(map(expr.IntImm, value)))  # pyright: ignore[reportUnknownArgumentType]


def _plain(value: Any) -> Any:
    """NumPy scalars as arrays, lists as tuples."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(v) for v in value)
    return value


def _callee(e: graph.Call) -> str:
    """Return the name of a callee for messages."""
    through = isinstance(e.op, graph.Op) and e.op.name.startswith(("call_", "invoke_"))
    return _name(e.args[0] if through else e.op)


def _name(e: graph.Expr) -> str:
    """Return the text of an expression for messages."""
    if isinstance(e, graph.ShapeExpr):
        return f"shape ({', '.join(map(str, e.values))})"
    name = getattr(e, "name", "")
    return f"`{name}`" if name else "the value"


def _as_one_sequence(rows: Any, ty: Type) -> Any:
    """The rows of all sequences as those of one: (1, rows, ...) with all dimensions of `ty`."""
    assert isinstance(ty, TensorType) and ty.shape is not None
    others = (1,) * (row_dims(ty.shape) - 1)
    return rows.reshape(1, len(rows), *others, *rows.shape[1:])


def _packed(name: str) -> Callable[..., Any]:
    try:
        get_func(name)
    except KeyError as error:
        raise ExecutionError(str(error.args[0])) from None
    return partial(call_func, name)
