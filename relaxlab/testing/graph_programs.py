"""Random graph programs that can be run: what passes may be given."""

from __future__ import annotations

import random

import numpy as np

import relaxlab.ops  # noqa: F401  the rows of the operators
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import TensorType
from relaxlab.ops.define import builder

UNARY = ("exp", "tanh", "sigmoid", "negative", "abs", "nn.relu", "nn.silu", "sin", "floor")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
REDUCE = ("sum", "mean", "max", "min")


class Programs:
    """Makes modules with a function `main` over float32 tensors whose shapes mention n and m.

    Values stay of moderate size, so that results can be compared.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.n, self.m = expr.Var("n"), expr.Var("m")
        self.bindings: list[graph.Binding] = []
        self.values: list[graph.Var] = []

    def module(self, length: int = 12) -> Module:
        """A module with about `length` calls in `main`."""
        dims = (self.n, self.m, expr.const(4))
        params = [
            graph.Var("x", TensorType((dims[0], dims[2]), "float32")),
            graph.Var("y", TensorType((dims[0], dims[1]), "float32")),
            graph.Var("w", TensorType((dims[2], dims[1]), "float32")),
            graph.Var("b", TensorType((dims[2],), "float32")),
        ]
        self.values = list(params)
        for _ in range(length):
            self.step()
        results = self.rng.sample(self.values[4:], min(3, len(self.values) - 4))
        local = {v: v for v in self.values[:4]}
        for v in self.values[4:]:
            kind = graph.Var if v in results else graph.DataflowVar
            local[v] = kind(v.name, v.ty)
        bindings = [substitute(b, values=dict(local)) for b in self.bindings]
        body = graph.Tuple(tuple(local[v] for v in results))
        seq = graph.SeqExpr((graph.DataflowBlock(tuple(bindings)),), body)
        return Module.of({"main": graph.Function(tuple(params), seq)})

    def step(self) -> None:
        """Add one call that the deducer accepts with a known shape."""
        for _ in range(20):
            call = self.rng.choice(self.makers())()
            try:
                ty = type_of(call)
            except DiagnosticError:
                continue
            if self._usable(ty):
                self.bind(call, ty)
                return

    def makers(self):
        """The ways of making a call, the frequent ones repeated."""
        return [self.unary] * 4 + [self.binary] * 6 + [
            self.reduce, self.matmul, self.transpose, self.reshape, self.softmax, self.concat,
            self.constant, self.slice, self.shared,
        ]  # fmt: skip

    def bind(self, call: graph.Expr, ty: types.Type) -> None:
        var = graph.Var(f"v{len(self.values)}", ty)
        self.bindings.append(graph.VarBinding(call, var))
        self.values.append(var)

    def _usable(self, ty: types.Type) -> bool:
        if not isinstance(ty, TensorType) or ty.shape is None:
            return False
        return ty.dtype == "float32" and ty.ndim <= 4

    def pick(self) -> graph.Var:
        """A value, the later ones more often."""
        if self.rng.random() < 0.5:
            return self.rng.choice(self.values[-4:])
        return self.rng.choice(self.values)

    def unary(self) -> graph.Call:
        return builder(self.rng.choice(UNARY))(self.pick())

    def binary(self) -> graph.Call:
        return builder(self.rng.choice(BINARY))(self.pick(), self.pick())

    def shared(self) -> graph.Call:
        x = self.pick()
        return builder(self.rng.choice(BINARY))(x, x)

    def constant(self) -> graph.Call:
        value = np.float32(self.rng.choice([0.5, -1.0, 2.0]))
        return builder("multiply")(self.pick(), graph.Constant(np.asarray(value)))

    def reduce(self) -> graph.Call:
        x = self.pick()
        keep = self.rng.random() < 0.5
        return builder(self.rng.choice(REDUCE))(x, axis=-1, keepdims=keep)

    def softmax(self) -> graph.Call:
        return builder("nn.softmax")(self.pick(), axis=-1)

    def matmul(self) -> graph.Call:
        x = self.pick()
        matrices = [v for v in self.values if len(_shape(v)) == 2]
        fitting = [v for v in matrices if _shape(v)[:1] == _shape(x)[-1:]]
        return builder("matmul")(x, self.rng.choice(fitting)) if fitting else self.unary()

    def transpose(self) -> graph.Call:
        return builder("permute_dims")(self.pick())

    def concat(self) -> graph.Call:
        x = self.pick()
        fitting = [v for v in self.values if _shape(v)[1:] == _shape(x)[1:] and _shape(x)]
        return builder("concat")((x, self.rng.choice(fitting or [x])), axis=0)

    def slice(self) -> graph.Call:
        x = self.pick()
        return builder("strided_slice")(x, axes=[0], begin=[0], end=[1])

    def reshape(self) -> graph.Call:
        x = self.pick()
        name = self.rng.choice(["flatten", "expand_dims"])
        build = builder(name)
        return build(x) if name == "flatten" else build(x, 0)


def _shape(v: graph.Var) -> tuple[expr.PrimExpr, ...]:
    assert isinstance(v.ty, TensorType) and v.ty.shape is not None
    return v.ty.shape
