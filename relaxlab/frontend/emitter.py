"""The emitter, with which rows of every source build graph functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.frontend.symbols import Symbols
from relaxlab.frontend.table import Problem, Refused, Row, UnsupportedOperators
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.op_table import find_op
from relaxlab.ir.span import Span
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import TensorType
from relaxlab.ops import te
from relaxlab.ops.block_builder import BlockBuilder
from relaxlab.ops.define import builder as operator
from relaxlab.runtime.native.weights import parameter_name

Tensor: TypeAlias = graph.Expr
"""A tensor operand of a row: a variable or a constant."""


class Emitter:
    """Builds one graph function of an imported program.

    Every operator is a method that binds a call and returns its variable: `b.add(x, 1)`; those of
    `R.nn` go without the prefix. Operands are variables, arrays, numbers (of the dtype of the other
    operands) and dimensions; `x.ty` is the deduced type of a variable.

    While a row runs, `b.out` are the types that the source states for the results of its
    primitive. Constants stand where they are used; all else that rows make is bound to variables.
    """

    def __init__(self, source: str, symbols: Symbols | None = None) -> None:
        self.source = source
        self.symbols = symbols or Symbols()
        self.builder = BlockBuilder()
        self.params: dict[str, np.ndarray[Any, Any]] = {}
        self.out: tuple[TensorType | None, ...] = ()
        self._problems: list[Problem] = []
        self._num_input, self._has_weights = 0, False
        self._checked: set[expr.Var] = set()
        self.builder.begin_function("main", dataflow=True)

    # --- Parameters and result --------------------------------------------------------------------

    def input(self, name: str, ty: types.Type) -> graph.Var:
        """A parameter that calls of the function give. All come before the weights."""
        if self._has_weights:
            raise ValueError("inputs are parameters before the weights")
        self._num_input += 1
        return self.builder.add_param(graph.Var(parameter_name(name), ty))

    def weight(self, path: str, value: np.ndarray[Any, Any]) -> graph.Var:
        """A parameter bound to an array, which is kept and not copied, under its dotted path."""
        self.params[path] = value
        shape = tuple(expr.const(d) for d in value.shape)
        return self.weight_param(path, TensorType(shape, value.dtype.name))

    def weight_param(self, path: str, ty: TensorType) -> graph.Var:
        """A parameter for an array that is bound when the program is loaded."""
        self._has_weights = True
        return self.builder.add_param(graph.Var(parameter_name(path), ty))

    def finish(self, result: Any) -> Module:
        """The module whose `main` returns `result`: a variable, or a tuple of variables.

        Raises UnsupportedOperators with all that rows refused.
        """
        if self._problems:
            raise UnsupportedOperators(self.source, self._problems)
        self._require_facts()
        value = tuple(result) if isinstance(result, list | tuple) else result
        self.builder.emit_func_output(self.builder.emit_output(value, "result"))
        # Without weights there is nothing that could be transformed ahead of calls.
        attrs: dict[str, Any] = {"num_input": self._num_input} if self._has_weights else {}
        used = {s.name for s in symbols_in(self.builder.params)}
        upper = {name: most for name, most in self.symbols.upper.items() if name in used}
        if upper:
            attrs["tir_var_upper_bound"] = Attrs(upper)
        main = self.builder.end_function(attrs)
        return Module.of({"main": main, **dict(self.builder.get().items())})

    # --- Primitives -------------------------------------------------------------------------------

    def apply(
        self,
        name: str,
        row: Row,
        args: Sequence[Any] = (),
        attrs: dict[str, Any] | None = None,
        *,
        out: Sequence[TensorType | None] = (),
        span: Span | None = None,
    ) -> Any:
        """The result of a primitive: a variable, or a tuple of variables.

        `out` are the types that the source states for its results, which those of the row have to
        be. What a row refuses is noted for `finish`, and the import goes on with values of the
        stated types, so that all refusals are found. None among them: nothing is stated.
        """
        self._require_facts()
        outer, self.out = self.out, tuple(out)
        try:
            with self.builder.at(span):
                return self._fitted(row(self, *args, **(attrs or {})))
        except (Refused, DiagnosticError) as error:
            unknown = self.refuse(name, error, out, span)
            return unknown[0] if len(unknown) == 1 else unknown
        finally:
            self.out = outer

    def refuse(
        self,
        name: str,
        error: Refused | DiagnosticError,
        out: Sequence[TensorType | None],
        span: Span | None,
    ) -> tuple[graph.Var, ...]:
        """Note that a primitive is refused, and return values of the types stated for its results.
        Raises UnsupportedOperators where none is stated."""
        self._problems.append(Problem(name, _reason(error), span))
        if not out:
            raise UnsupportedOperators(self.source, self._problems) from error
        return tuple(graph.Var("refused", ty) for ty in out)

    def _require_facts(self) -> None:
        """Check the facts about symbols that have values by now, those of parameters and of checked
        results."""
        facts, self.symbols.facts = self.symbols.facts, []
        for fact in facts:
            if self.has_value(fact):
                self.builder.require(fact)
            else:
                self.symbols.facts.append(fact)

    def has_value(self, value: PrimExpr) -> bool:
        """True if all symbols of an expression have values by now: they are of parameters, or of
        results that were checked."""
        known = {*symbols_in(self.builder.params), *self._checked}
        return known.issuperset(symbols_in(value))

    def _fitted(self, result: Any) -> Any:
        """Results whose types are what the source states."""
        if not self.out:
            return result
        if isinstance(result, graph.Var) and isinstance(result.ty, types.TupleType):
            result = self.fields(result)
        if isinstance(result, list | tuple):
            return tuple(map(self.fit, result, self.out))
        (stated,) = self.out
        return self.fit(result, stated)

    def fit(self, value: Any, stated: TensorType | None) -> Any:
        """A value of the stated type: proved, or checked by calls. Raises Refused for another."""
        if stated is None:
            return value
        if not isinstance(value, graph.Var):
            value = self.builder.emit(value)
        ty = value.ty
        same = _same_type(ty, stated)
        if same is False:
            raise Refused(f"its row computes {ty}, and {self.source} states {stated}")
        if same:
            return value
        return self.claim(value, stated)

    def claim(self, value: graph.Expr, ty: types.Type) -> graph.Var:
        """A value of a type that calls check, which gives symbols of the type their values."""
        self._checked.update(symbols_in(ty))
        return self.builder.match_cast(value, ty)

    # --- Values -----------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., graph.Var]:
        if not name.startswith("_"):
            for full in (name, f"nn.{name}", f"image.{name}"):
                if find_op(full) is not None:
                    return partial(self._operator, full)
        raise AttributeError(f"an emitter has no attribute or operator {name!r}")

    def _operator(self, name: str, *args: Any, **attrs: Any) -> graph.Var:
        return self.builder.emit(operator(name)(*args, **attrs))

    def te(self, fn: Callable[..., Any], *args: Any, name: str = "", **options: Any) -> Any:
        """Bind what tensor expressions compute; see `BlockBuilder.call_te`."""
        return self.builder.emit_te(fn, *args, name=name, **options)

    def fields(self, value: graph.Var) -> tuple[graph.Var, ...]:
        """The fields of a tuple."""
        return self.builder.emit_fields(value)

    def const(self, value: Any, dtype: str | None = None) -> graph.Constant:
        """A constant: an array, or a number of `dtype`."""
        return graph.Constant(np.asarray(value, numpy_dtype(dtype) if dtype else None))

    def scalar(self, value: PrimExpr | float, dtype: str) -> graph.Expr:
        """A tensor without dimensions that holds a number or an expression of symbols."""
        if isinstance(value, expr.IntImm | expr.FloatImm):
            value = value.value
        if not isinstance(value, PrimExpr):
            return self.const(value, dtype)
        return self.te(lambda: te.compute((), lambda: expr.Cast(dtype, value)), name="scalar")

    def cast(self, x: graph.Expr, dtype: str) -> graph.Expr:
        """The elements converted; `x` itself when they have that dtype."""
        return x if dtype_of(x) == dtype else self.astype(x, dtype=dtype)

    def cond(
        self, condition: Tensor, true: Callable[[], Any], false: Callable[[], Any]
    ) -> graph.Var:
        """Return the result of `true()` or of `false()`, whose calls are emitted into the branches
        of a conditional on a bool scalar."""
        return self.builder.emit_if(condition, true, false)

    def while_loop(
        self,
        condition: Callable[..., graph.Var],
        body: Callable[..., Sequence[graph.Var]],
        carried: Sequence[Tensor],
        captured: Sequence[Tensor] = (),
    ) -> tuple[graph.Var, ...]:
        """The values `carried` after `body` has replaced them for as long as `condition` holds.

        Both get the carried values, then the `captured` ones, and may use no other variables: the
        loop is a private function that calls itself. `condition` returns a bool scalar, `body` as
        many values as it gets carried ones, of the same types.
        """
        bb, symbols = self.builder, symbols_in(self.builder.params)
        tys = [bb.type_of(v) for v in carried]
        params = [
            graph.Var(getattr(v, "name", "value"), bb.type_of(v)) for v in (*carried, *captured)
        ]
        if symbols:  # so that the function knows those that no shape is by itself
            params.append(graph.Var("sizes", types.ShapeType(symbols)))
        shape = (graph.ShapeExpr(symbols),) if symbols else ()
        name = bb.get().fresh_name("loop")
        loop, inside = graph.GlobalVar(name), params[: len(carried) + len(captured)]

        def again() -> graph.Expr:
            return graph.Call(loop, (*body(*inside), *inside[len(carried) :], *shape))

        with bb.function(name, params, ret_ty=types.TupleType(tuple(tys)), private=True):
            with bb.dataflow():
                result = bb.emit_if(
                    condition(*inside), again, lambda: tuple(inside[: len(carried)])
                )
            bb.emit_func_output(result)
        return bb.emit_fields(graph.Call(loop, (*carried, *captured, *shape)))


def _same_type(ty: types.Type | None, stated: TensorType) -> bool | None:
    """True if a value of type `ty` is one of the stated type, None where calls have to check it."""
    if not isinstance(ty, TensorType) or ty.dtype != stated.dtype:
        return False
    if ty.ndim not in (-1, stated.ndim):
        return False
    if stated.shape is None or ty.shape is None:
        return True if stated.shape is None else None
    analyzer = Analyzer.for_shapes(ty, stated)
    pairs = zip(ty.shape, stated.shape, strict=True)
    proofs = [True if a == b else analyzer.prove(expr.EQ(a, b)) for a, b in pairs]
    return False if False in proofs else None if None in proofs else True


def tensor_type(x: graph.Expr) -> TensorType:
    """The type of a tensor: a variable or a constant. Raises Refused for other values."""
    if isinstance(x, graph.Constant):
        return TensorType(tuple(map(expr.const, x.data.shape)), x.data.dtype.name)
    ty = getattr(x, "ty", None)
    if not isinstance(ty, TensorType):
        raise Refused(f"needs a tensor, and was given {ty}")
    return ty


def shape_of(x: graph.Expr) -> tuple[PrimExpr, ...]:
    """The dimensions of a tensor. Raises Refused where only their number is known."""
    ty = tensor_type(x)
    if ty.shape is None:
        raise Refused(f"needs a tensor whose shape is known, and was given {ty}")
    return ty.shape


def dtype_of(x: graph.Expr) -> str:
    """The element type of a tensor. Raises Refused for other values."""
    ty = tensor_type(x)
    if ty.dtype is None:
        raise Refused(f"needs a tensor whose dtype is known, and was given {ty}")
    return ty.dtype


def _reason(error: Refused | DiagnosticError) -> str:
    if isinstance(error, DiagnosticError):
        return "; ".join(d.message for d in error.diagnostics)
    return str(error)
