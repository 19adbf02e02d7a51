"""Random programs: what was deduced must hold for the values that are computed.

The interpreter checks every value against the type of its variable, so running a normalised
program tests each deduced type; running the program as generated, where nothing has a type yet,
gives the result to compare with.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import relaxlab.ops  # noqa: F401  the operators' rows
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.module import Module
from relaxlab.ir.types import ShapeType, TensorType, TupleType, Type
from relaxlab.ops.define import builder
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret

UNARY = ("exp", "negative", "tanh", "nn.relu", "flatten", "nn.softmax", "unique", "sort", "cumsum")
SIZES = ((1, 1), (2, 3), (3, 3), (4, 2))
BINARY = ("add", "multiply", "maximum", "matmul", "subtract")


class Generator:
    """One random module: a main function and sometimes helpers that it calls."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.symbols = [Var("n"), Var("m")]
        self.functions: dict[str, graph.Function] = {}
        self.typed: dict[graph.Var, Type] = {}

    def dim(self) -> PrimExpr:
        n, m = self.symbols
        return self.rng.choice(
            [n, n, m, n * 2, n + m, n * m, expr.const(1), expr.const(2), expr.const(3), m * 4]
        )

    def tensor_type(self) -> TensorType:
        dims = tuple(self.dim() for _ in range(self.rng.randrange(4)))
        return TensorType(dims, "float32")

    def params(self) -> list[graph.Var]:
        shape = graph.Var("s", ShapeType(tuple(self.symbols)))
        return [shape, *(graph.Var(f"p{i}", self.tensor_type()) for i in range(3))]

    def value(self, scope: list[graph.Expr]) -> graph.Expr:
        """A random expression over the values in scope; may be one that no types exist for."""
        rng = self.rng
        x = rng.choice(scope)
        ty = self.types(x)
        match rng.randrange(12):
            case 0 | 1:
                return builder(rng.choice(UNARY))(x)
            case 2 | 3:
                return builder(rng.choice(BINARY))(x, rng.choice(scope))
            case 4:
                return builder("reshape")(x, self.new_shape(ty))
            case 5:
                return builder("concat")((x, rng.choice(scope)), axis=rng.randrange(-1, 2))
            case 6:
                axis = rng.choice([None, 0, -1])
                reduction = rng.choice(["sum", "max", "mean", "argmax"])
                return builder(reduction)(x, axis=axis, keepdims=rng.random() < 0.5)
            case 7:
                return builder(rng.choice(["permute_dims", "shape_of"]))(x)
            case 8:
                return builder("expand_dims")(x, axis=rng.randrange(-1, 2))
            case 9:
                return graph.TupleGetItem(builder("split")(x, 2, axis=-1), rng.randrange(2))
            case 10:
                return builder("broadcast_to")(x, tuple(self.dim() for _ in range(2)))
            case _:
                return self.call(x, rng.choice(scope))

    def types(self, e: graph.Expr) -> Type:
        return type_of(e)

    def new_shape(self, ty: Type) -> tuple[PrimExpr, ...]:
        dims = list(ty.shape) if isinstance(ty, TensorType) and ty.shape is not None else []
        self.rng.shuffle(dims)
        if len(dims) > 1 and self.rng.random() < 0.5:
            dims[:2] = [dims[0] * dims[1]]
        return tuple(dims) or (expr.const(1),)

    def call(self, x: graph.Expr, y: graph.Expr) -> graph.Expr:
        """A call of a helper whose parameters have shapes in symbols of its own."""
        a, b = Var("a"), Var("b")
        dims = [a, b, a * 2, a + b, a * 3 + 1, expr.const(2)]
        shapes = [tuple(self.rng.choice(dims) for _ in range(max(0, self.rank(v)))) for v in (x, y)]
        p = graph.Var("p", TensorType(shapes[0], "float32"))
        q = graph.Var("q", TensorType(shapes[1], "float32"))
        body = self.rng.choice([
            builder("concat")((builder("flatten")(p), builder("flatten")(q)), axis=0),
            builder("multiply")(p, q),
            graph.Tuple((q, builder("flatten")(p))),
        ])  # fmt: skip
        name = f"helper{len(self.functions)}"
        fn = graph.Function((p, q), graph.SeqExpr((), body))
        typed = normalize(Module.of({**self.functions, name: fn}))
        self.functions = dict(typed.graph_functions())
        return graph.Call(graph.GlobalVar(name), (x, y))

    def rank(self, v: graph.Expr) -> int:
        ty = self.types(v)
        return ty.ndim if isinstance(ty, TensorType) else 0

    def main(self) -> Module:
        params = self.params()
        scope: list[graph.Expr] = list(params[1:])
        bindings: list[graph.Binding] = []
        plain: dict[graph.Var, graph.Var] = {}  # what is generated carries no types
        while len(bindings) < 8:
            before = dict(self.functions)
            try:
                value = self.value(scope)
                ty = type_of(value, Module.of(dict(self.functions)))
            except DiagnosticError:
                self.functions = before
                continue
            typed = graph.Var(f"v{len(bindings)}", ty)
            bare = plain[typed] = graph.Var(typed.name)
            bindings.append(graph.VarBinding(_renamed(value, plain), bare))
            if isinstance(ty, TensorType):
                scope.append(typed)
            elif isinstance(ty, TupleType):
                scope += [graph.TupleGetItem(typed, i) for i in range(len(ty.fields))]
        last = graph.Tuple(tuple(b.var for b in bindings[-4:]))  # type: ignore[attr-defined]
        body = graph.SeqExpr((graph.BindingBlock(tuple(bindings)),), last)
        functions = {**self.functions, "main": graph.Function(tuple(params), body)}
        return Module.of(functions)


def _renamed(e: graph.Expr, table: dict[graph.Var, graph.Var]) -> graph.Expr:
    from relaxlab.ir.substitute import substitute

    return substitute(e, values=table)  # type: ignore[arg-type]


def _arguments(fn: graph.Function, sizes: tuple[int, int], rng: np.random.Generator) -> list[Any]:
    from relaxlab.analysis.evaluate import evaluate

    shape = fn.params[0].ty
    assert isinstance(shape, ShapeType)
    env = dict(zip(shape.values or (), sizes, strict=True))
    args: list[Any] = [sizes]
    for p in fn.params[1:]:
        assert isinstance(p.ty, TensorType)
        dims = [evaluate(d, env) for d in p.ty.shape or ()]  # type: ignore[arg-type]
        args.append(rng.standard_normal(dims).astype("float32"))
    return args


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def test_deduced_types_hold_for_the_values():
    seed = random.randrange(10**9)
    print("seed", seed)
    rng, data = random.Random(seed), np.random.default_rng(seed)
    ran = stopped = 0
    for _ in range(60):
        mod = Generator(rng).main()
        fn = mod["main"]
        try:
            typed = normalize(mod)
            assert normalize(typed) is typed
        except DiagnosticError:  # what two calls need can contradict each other
            for sizes in SIZES:
                with np.testing.assert_raises(ExecutionError):
                    interpret(mod, "main", *_arguments(fn, sizes, data))
            stopped += 1
            continue
        for sizes in SIZES:
            args = _arguments(fn, sizes, data)
            try:
                expected = interpret(mod, "main", *args)
            except ExecutionError as error:
                # Sizes that do not fit stop both, in an operator or at a function's entry.
                assert "R." in str(error) or "parameter" in str(error), error
                stopped += 1
                with np.testing.assert_raises(ExecutionError):
                    interpret(typed, "main", *args)
                continue
            ran += 1
            assert _equal(interpret(typed, "main", *args), expected)
    assert ran > 40, (ran, stopped)


def test_random_claims_are_judged_alike():
    """A claim about a variable: what is proved holds, what is refused never holds, and what is
    checked at run time stops exactly when it does not hold."""
    seed = random.randrange(10**9)
    print("seed", seed)
    rng, data = random.Random(seed), np.random.default_rng(seed)
    outcomes = {"held": 0, "stopped": 0, "refused": 0}
    for _ in range(150):
        gen = Generator(rng)
        params = gen.params()
        actual = params[1].ty
        assert isinstance(actual, TensorType)
        claim = TensorType(tuple(gen.dim() for _ in actual.shape or ()), "float32")
        fn = graph.Function(tuple(params), graph.SeqExpr((), params[1]), claim)
        mod = Module.of({"main": fn})
        try:
            typed = normalize(mod)
            assert normalize(typed) is typed
        except DiagnosticError:
            typed = None
        for sizes in ((0, 2), (1, 1), (1, 2), (2, 3), (3, 3)):
            args = _arguments(fn, sizes, data)
            try:
                interpret(mod, "main", *args)
            except ExecutionError:
                outcomes["stopped"] += 1
                if typed is not None:
                    with np.testing.assert_raises(ExecutionError):
                        interpret(typed, "main", *args)
                else:
                    outcomes["refused"] += 1
            else:
                assert typed is not None, "a claim that holds was refused"
                interpret(typed, "main", *args)
                outcomes["held"] += 1
    assert min(outcomes.values()) > 0, outcomes
