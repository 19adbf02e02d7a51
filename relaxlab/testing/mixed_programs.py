"""Random programs over everything the language has, for `relaxlab.check`.

They mix dtypes, tuples, branches with results of different shapes, data-dependent shapes, functions
with symbolic signatures, hand-written loop functions, calls out of the program, and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.analysis.annotate import annotate
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import TensorType
from relaxlab.ops.define import builder
from relaxlab.passes.bindings import vars_in
from relaxlab.runtime.packed import register_func
from relaxlab.testing.loop_kernels import KERNELS, kernel, overwriting
from relaxlab.testing.mixed_operators import INTS, SMOOTH, Made, Operators, Value


def mixed_program(seed: int, length: int = 14) -> Module:
    """A module with a function `main` of about `length` calls."""
    return MixedProgram(seed).module(length)


class MixedProgram(Operators):
    """A program that is being made; `extra` are parameters that makers added."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.n, self.m, self.k = (expr.Var(s) for s in "nmk")
        self.functions: dict[str, BaseFunc] = {}
        self.extra: list[graph.Var] = []
        register_func("relaxlab.testing.scaled", _scaled, override=True)
        register_func("relaxlab.testing.doubled", _doubled, override=True)

    def makers(self) -> list[Callable[[], Made | None]]:
        """Return the makers of operator calls, and of calls of all other kinds."""
        others = [self.kernel, self.kernel, self.call, self.packed, self.update, self.field]
        return [*super().makers(), *others]

    def type_of(self, value: graph.Expr) -> types.Type:
        """The type of an expression, which may call functions that were made so far."""
        return type_of(value, Module.of(self.functions))

    # --- The program --------------------------------------------------------------------------

    def module(self, length: int) -> Module:
        rng, n, m, k = self.rng, self.n, self.m, self.k
        eight, pick = expr.const(8), rng.choice
        inputs = [
            self.param("x", (n, eight), "float32"),
            self.param("y", (n, m), pick(self.floats)),
            self.param("h", (pick((m, n, eight)), eight), pick(self.floats)),
            self.param("i", (k,), pick(INTS[:2])),
            self.param("q", (pick((n, m)), eight), pick(INTS)),
            self.param("b", (n, m), "bool"),
        ]
        if rng.random() < 0.5:
            inputs.append(self.param("z", (pick((1, 2, m)), n, eight), "float32"))
        self.flag = graph.Var("c", TensorType((), "bool"))
        self.pair = self.tuple_param()
        weights = [
            self.param("w", (eight, eight), pick(self.floats)),
            self.param("v", (eight,), "float32"),
        ]
        blocks = self.parts(length)
        inputs += self.extra
        given = {*inputs, *weights, self.flag, self.pair}
        body = self.sequence(_merged(blocks), given)
        params = (*inputs, self.flag, self.pair, *weights)
        main = graph.Function(params, body, attrs=self.attrs(len(params) - len(weights)))
        mod, problems = annotate(Module.of({"main": main, **self.functions}))
        if problems:
            raise DiagnosticError(problems)
        return mod

    def parts(self, length: int) -> list[graph.BindingBlock]:
        """The blocks of `main`: two of calls, at times a branch and a data-dependent shape."""
        blocks = [self.block(length // 2)]
        if self.rng.random() < 0.6:
            blocks.append(self.branch())
        if self.rng.random() < 0.4:
            blocks.append(self.data_dependent())
        blocks.append(self.block(length - length // 2))
        return blocks

    def sequence(
        self, blocks: tuple[graph.BindingBlock, ...], given: set[graph.Var]
    ) -> graph.SeqExpr:
        """Return the body. Its results are values that nothing reads, sometimes others, rarely an
        argument. Values that only their own block reads become dataflow variables."""
        rng = self.rng
        made = [v.var for v in self.values if v.var not in given]
        read = {v for blk in blocks for b in blk.bindings for v in vars_in(b.value)}
        last = [v for v in made if v not in read]
        results = rng.sample(last, min(len(last), 5)) + rng.sample(made, min(len(made), 1))
        if rng.random() < 0.1:
            results.append(rng.choice(self.values[:6]).var)
        results = list(dict.fromkeys(results))
        rng.shuffle(results)
        local: dict[graph.Var, graph.Expr] = {}
        for blk in blocks:
            outside = {v for o in blocks if o is not blk for b in o.bindings
                       for v in vars_in(b.value)} | set(results)  # fmt: skip
            if isinstance(blk, graph.DataflowBlock) and rng.random() < 0.8:
                local |= {b.var: graph.DataflowVar(b.var.name, b.var.ty)
                          for b in blk.bindings if b.var not in outside}  # fmt: skip
        seq = graph.SeqExpr(blocks, self.result(tuple(results)))
        return substitute(seq, values=local)

    def attrs(self, inputs: int) -> Attrs:
        given: dict[str, Any] = {}
        if self.rng.random() < 0.5:
            given["num_input"] = inputs
        if self.rng.random() < 0.3:
            given["tir_var_upper_bound"] = {"n": 17, "m": 33, "k": 40}
        return Attrs(given)

    def param(self, name: str, shape: Sequence[expr.ExprLike], dtype: str) -> graph.Var:
        var = graph.Var(name, TensorType(tuple(map(expr.as_expr, shape)), dtype))
        self.values.append(Value(var, 2.0))
        return var

    def tuple_param(self) -> graph.Var:
        fields = (
            TensorType((self.m,), self.rng.choice(self.floats)),
            types.TupleType((TensorType((self.n, expr.const(8)), "float32"),)),
        )
        return graph.Var("pair", types.TupleType(fields))

    def result(self, results: tuple[graph.Var, ...]) -> graph.Expr:
        if len(results) == 1:
            return results[0]
        if len(results) > 2 and self.rng.random() < 0.3:
            return graph.Tuple((results[0], graph.Tuple(results[1:])))
        return graph.Tuple(results)

    def block(self, length: int) -> graph.BindingBlock:
        """Calls; in a plain block some overwrite their argument, others choose between values."""
        self.bindings = []
        for _ in range(length):
            self.step()
        choices = any(isinstance(b.value, graph.If) for b in self.bindings)
        plain = self.rng.random() < 0.3 or choices
        return (graph.BindingBlock if plain else graph.DataflowBlock)(tuple(self.bindings))

    # --- Calls --------------------------------------------------------------------------------

    def kernel(self) -> Made | None:
        """A hand-written loop function on one or two values."""
        name = self.rng.choice(sorted(KERNELS))
        spec = KERNELS[name]
        a = self.pick(lambda v: (v.dtype != "bool" or spec.moves) and len(v.shape) == spec.ndim)
        if a is None:
            return None
        func = kernel(name, a.dtype)
        label = f"{name}_{a.dtype}"
        self.functions[label] = func
        outs = tuple(TensorType(shape, a.dtype) for shape in spec.outs(a.shape))
        args = graph.Tuple((a.var,) * spec.inputs)
        scalars = (graph.ShapeExpr(spec.scalars(a.shape)),) if spec.scalars else ()
        call: graph.Expr = graph.Call(
            graph.Op("call_tir"), (graph.GlobalVar(label), args, *scalars), ty_args=outs
        )
        if len(outs) > 1:
            call = graph.TupleGetItem(self.bind(call), self.rng.randrange(len(outs)))
        exact = a.exact and (spec.exact or not is_float(a.dtype))
        return call, spec.grows * a.most + 2, exact

    def call(self) -> Made | None:
        """A call of a function of the module, made when it is first called."""
        v = self.pick(lambda v: v.dtype == "float32" and len(v.shape) == 2)
        if v is None:
            return None
        kind = self.rng.choice(("flat", "coarse", "shaped"))
        if kind not in self.functions:
            self.functions[kind] = _callee(kind)
        args: tuple[graph.Expr, ...] = (v.var,)
        if kind == "shaped":
            args = (self.bind(builder("concat")((v.var, v.var), axis=0)),
                    graph.ShapeExpr((v.shape[0],)))  # fmt: skip
        found = self.bind_call(graph.Call(graph.GlobalVar(kind), args))
        if kind == "coarse":  # the result's shape is not in the signature
            cast = graph.Var(f"{found.name}_known", v.ty)
            self.bindings.append(graph.MatchCast(found, v.ty, cast))
            found = cast
        return builder("negative")(found), v.most + 1, False

    def bind_call(self, call: graph.Call) -> graph.Var:
        """A variable bound to a call of a function of the module, with the type that its
        signature gives."""
        assert isinstance(call.op, graph.GlobalVar)
        callee = self.functions[call.op.name]
        arg = call.args[0]
        assert isinstance(callee, graph.Function) and isinstance(arg, graph.Var)
        shape = arg.ty.shape if isinstance(arg.ty, TensorType) else None
        assert shape is not None
        match call.op.name:
            case "flat":
                ty = TensorType((shape[0] * shape[1],), "float32")
            case "shaped":
                given = call.args[1]
                assert isinstance(given, graph.ShapeExpr)
                ty = TensorType((given.values[0], shape[1]), "float32")
            case _:
                ty = TensorType(None, "float32", 2)
        self.count += 1
        var = graph.Var(f"v{self.count}", ty)
        self.bindings.append(graph.VarBinding(call, var))
        return var

    def packed(self) -> Made | None:
        v = self.floating(1)
        if v is None:
            return None
        if self.rng.random() < 0.5:
            call = graph.Call(
                graph.Op("call_dps_packed"),
                (graph.ExternFunc("relaxlab.testing.scaled"), graph.Tuple((v.var,))),
                ty_args=(v.ty,),
            )
        else:
            call = graph.Call(
                graph.Op("call_pure_packed"),
                (graph.ExternFunc("relaxlab.testing.doubled"), v.var),
                ty_args=(v.ty,),
            )
        return call, 2 * v.most, False

    def update(self) -> Made | None:
        """A value of its own, overwritten in place by a loop function: directly, or in a function
        that is called, at times one that may leave it as it is."""
        v = self.pick(lambda v: v.dtype != "bool" and len(v.shape) == 2)
        if v is None:
            return None
        kind = self.rng.choice(("direct", "always", "perhaps", "accumulated"))
        fresh = self.bind(builder("negative")(v.var))
        if kind == "accumulated":
            return self.accumulated(v, fresh)
        label = f"bump_{v.dtype}"
        self.functions[label] = overwriting("bump", v.dtype)
        match kind:
            case "direct":
                call = _bumped(label, fresh)
            case _:
                name = f"{kind}_{label}"
                self.functions[name] = _bumping(label, v.dtype, kind == "perhaps")
                call = graph.Call(graph.GlobalVar(name), (fresh, self.flag))
        self.count += 1
        new = graph.Var(f"v{self.count}", v.ty)
        self.bindings.append(graph.VarBinding(call, new))
        return builder("negative")(new), v.most + 1, v.exact and not is_float(v.dtype)

    def accumulated(self, v: Value, fresh: graph.Var) -> Made:
        """The variable `fresh`, negated `v`, to which another value is added in place, or the sums
        of its new rows, which are another result of that call."""
        other = self.pick(lambda o: o.ty == v.ty) or v
        label = f"accumulated_{v.dtype}"
        self.functions[label] = overwriting("accumulated", v.dtype)
        args = graph.GlobalVar(label), graph.Tuple((fresh, other.var))
        outs = v.ty, TensorType(v.shape[:1], v.dtype)
        inplace = Attrs(inplace_indices=(0, -1))
        both = self.bind(graph.Call(graph.Op("call_tir_inplace"), args, inplace, outs))
        at, most = self.rng.randrange(2), v.most + other.most
        exact = v.exact and other.exact and not is_float(v.dtype)
        return graph.TupleGetItem(both, at), most * 64 if at else most, exact

    def field(self) -> Made | None:
        first = graph.TupleGetItem(self.pair, 0)
        if self.rng.random() < 0.5:
            return first, 2.0, True
        inner = self.bind(graph.TupleGetItem(self.pair, 1))
        return graph.TupleGetItem(inner, 0), 2.0, True

    # --- Whole blocks -------------------------------------------------------------------------

    def branch(self) -> graph.BindingBlock:
        """An `If`: results of one type, or of two shapes that a `match_cast` names."""
        x = self.pick(lambda v: v.dtype == "float32" and len(v.shape) == 2)
        assert x is not None
        ops = self.rng.sample(SMOOTH, 2)
        differ = self.rng.random() < 0.5
        branches: list[graph.SeqExpr] = []
        for i, op in enumerate(ops):
            first = graph.Var(f"branch{i}", x.ty)
            made: list[graph.Binding] = [graph.VarBinding(builder(op)(x.var), first)]
            if differ and i:
                both = builder("concat")((first, first), axis=0)
                first = graph.Var("longer", type_of(both))
                made.append(graph.VarBinding(both, first))
            branches.append(graph.SeqExpr((graph.BindingBlock(tuple(made)),), first))
        ty: types.Type = TensorType(None, "float32", 2) if differ else x.ty
        chosen = graph.Var("chosen", ty)
        bound: list[graph.Binding] = [
            graph.VarBinding(graph.If(self.flag, branches[0], branches[1]), chosen)
        ]
        if differ:
            ty = TensorType((expr.Var("p"), x.shape[1]), "float32")
            known = graph.Var("known", ty)
            bound.append(graph.MatchCast(chosen, ty, known))
            chosen = known
        self.values.append(Value(chosen, math.exp(min(x.most, 4.2)) + 1, False))
        return graph.BindingBlock(tuple(bound))

    def data_dependent(self) -> graph.BindingBlock:
        """A data-dependent shape, named by a `match_cast`."""
        self.bindings = []
        v = self.pick(lambda v: v.dtype in ("int32", "int64") and len(v.shape) > 0)
        assert v is not None
        found = self.bind(builder("unique")(v.var))
        ty = TensorType((expr.Var("d"),), v.dtype)
        known = graph.Var("distinct", ty)
        self.bindings.append(graph.MatchCast(found, ty, known))
        self.values.append(Value(known, v.most, True))
        return graph.BindingBlock(tuple(self.bindings))


def _merged(blocks: list[graph.BindingBlock]) -> tuple[graph.BindingBlock, ...]:
    """Neighbouring plain blocks as one, as the script has them; empty ones left out."""
    found: list[graph.BindingBlock] = []
    for block in (b for b in blocks if b.bindings):
        plain = [not isinstance(b, graph.DataflowBlock) for b in (*found[-1:], block)]
        if plain == [True, True]:
            found[-1] = graph.BindingBlock((*found[-1].bindings, *block.bindings))
        else:
            found.append(block)
    return tuple(found)


def _callee(kind: str) -> graph.Function:
    """flat: (a, b) to (a * b,). coarse: any matrix to one of no known shape. shaped: (2 * a, b)
    and Shape((a,)), to (a, b)."""
    a, b = expr.Var("a"), expr.Var("b")
    x = graph.Var("x", TensorType((a, b), "float32"))
    params: tuple[graph.Var, ...] = (x,)
    ret: types.Type
    match kind:
        case "flat":
            value, ret = builder("flatten")(x), TensorType((a * b,), "float32")
        case "coarse":
            x = graph.Var("x", TensorType(None, "float32", 2))
            params, ret = (x,), TensorType(None, "float32", 2)
            value = builder("tanh")(x)
        case _:
            x = graph.Var("x", TensorType((a * 2, b), "float32"))
            params = (x, graph.Var("s", types.ShapeType((a,))))
            ret = TensorType((a, b), "float32")
            value = builder("strided_slice")(
                x, axes=[0], begin=[a], end=[a * 2], assume_inbound=True
            )
    y = graph.Var("y", type_of(value))
    block = graph.DataflowBlock((graph.VarBinding(value, y),))
    private = kind != "flat"
    return graph.Function(params, graph.SeqExpr((block,), y), ret, private=private)


def _bumped(label: str, x: graph.Var) -> graph.Call:
    """The call that adds 1 to `x` in place; `label` names the loop function."""
    assert x.ty is not None
    args, attrs = (graph.GlobalVar(label), graph.Tuple((x,))), Attrs(inplace_indices=(0,))
    return graph.Call(graph.Op("call_tir_inplace"), args, attrs, (x.ty,))


def _bumping(label: str, dtype: str, perhaps: bool) -> graph.Function:
    """A private function that adds 1 to its first argument in place and returns it; `perhaps`: only
    if its second argument is true."""
    ty = TensorType((expr.Var("a"), expr.Var("b")), dtype)
    x, c = graph.Var("x", ty), graph.Var("c", TensorType((), "bool"))
    new, chosen = graph.Var("new", ty), graph.Var("chosen", ty)
    body = graph.SeqExpr((graph.BindingBlock((graph.VarBinding(_bumped(label, x), new),)),), new)
    if perhaps:
        either = graph.If(c, body, graph.SeqExpr((), x))
        body = graph.SeqExpr((graph.BindingBlock((graph.VarBinding(either, chosen),)),), chosen)
    return graph.Function((x, c), body, ty, private=True)


def _scaled(x: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    out[...] = (x.astype("float32") * 1.5).astype(out.dtype)


def _doubled(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (x.astype("float32") * 2).astype(x.dtype)
