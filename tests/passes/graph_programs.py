"""Random graph programs that can be run: what passes may be given."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import relaxlab.ops  # noqa: F401  the rows of the operators
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import TensorType
from relaxlab.ops import te
from relaxlab.ops.define import builder

UNARY = ("exp", "tanh", "sigmoid", "negative", "abs", "nn.relu", "nn.silu", "sin", "floor")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
REDUCE = ("sum", "mean", "max", "min")
FOUR = expr.const(4)


class Programs:
    """Makes modules with a function `main` over float32 tensors whose shapes mention n and m.

    `main` has dataflow blocks with a conditional between them, calls a function of the module,
    and updates values in place. Values stay of moderate size, so that results can be compared.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.n, self.m = expr.Var("n"), expr.Var("m")
        self.bindings: list[graph.Binding] = []
        self.values: list[graph.Var] = []
        self.count = 0

    def module(self, length: int = 12) -> Module:
        """A module with about `length` calls in `main`."""
        params = [
            graph.Var("x", TensorType((self.n, FOUR), "float32")),
            graph.Var("y", TensorType((self.n, self.m), "float32")),
            graph.Var("w", TensorType((FOUR, self.m), "float32")),
            graph.Var("b", TensorType((FOUR,), "float32")),
            graph.Var("c", TensorType((), "bool")),
        ]
        self.values = params[:-1]
        blocks = [self.block(length // 2)]
        if self.rng.random() < 0.5:
            blocks += [self.conditional(params[-1]), self.block(length // 2)]
        blocks = _merged(blocks)
        results = self.rng.sample(self.values[4:], min(3, len(self.values) - 4))
        seq = self.hide(graph.SeqExpr(tuple(blocks), graph.Tuple(tuple(results))), results)
        main = graph.Function(tuple(params), seq)
        return Module.of({"main": main, "half": _half(), "bump": _bump()})

    def hide(self, seq: graph.SeqExpr, results: list[graph.Var]) -> graph.SeqExpr:
        """Values that only their block reads become dataflow variables."""
        last = seq.blocks[-1]
        if not isinstance(last, graph.DataflowBlock):
            return seq
        local: dict[graph.Var, graph.Expr] = {
            b.var: graph.DataflowVar(b.var.name, b.var.ty)
            for b in last.bindings
            if b.var not in results
        }
        new = substitute(last, values=local)
        return graph.SeqExpr((*seq.blocks[:-1], new), seq.body)

    def block(self, length: int) -> graph.BindingBlock:
        """A dataflow block (or, at times, a plain one whose calls may overwrite values)."""
        flow = self.rng.random() < 0.8
        self.bindings = []
        for _ in range(length):
            self.step()
        kind = graph.DataflowBlock if flow else graph.BindingBlock
        return kind(tuple(self.bindings))

    def conditional(self, condition: graph.Var) -> graph.BindingBlock:
        """A block with one `If`, whose branches give values of one type."""
        x = self.pick()
        branches: list[graph.SeqExpr] = []
        for op in self.rng.sample(UNARY, 2):
            inner = graph.Var(self.name(), x.ty)
            outer = graph.Var(self.name(), x.ty)
            first = graph.VarBinding(builder(op)(x), inner)
            second = graph.VarBinding(builder("add")(inner, x), outer)
            branches.append(graph.SeqExpr((graph.BindingBlock((first, second)),), outer))
        var = graph.Var(self.name(), x.ty)
        self.values.append(var)
        choice = graph.If(condition, branches[0], branches[1])
        return graph.BindingBlock((graph.VarBinding(choice, var),))

    # --- Calls --------------------------------------------------------------------------------

    def step(self) -> None:
        """Add one call whose result has a known shape."""
        for _ in range(20):
            call = self.rng.choice(self.makers())()
            try:
                ty = type_of(call)
            except DiagnosticError:
                continue
            if _usable(ty):
                self.values.append(self.bind(call, ty))
                return

    def makers(self) -> list[Callable[[], graph.Expr]]:
        """The ways of making a call, the frequent ones repeated."""
        return [self.unary] * 4 + [self.binary] * 6 + [
            self.reduce, self.matmul, self.transpose, self.reshape, self.softmax, self.concat,
            self.constant, self.slice, self.shared, self.take, self.split, self.call, self.update,
        ]  # fmt: skip

    def name(self) -> str:
        """A fresh variable name."""
        self.count += 1
        return f"v{self.count}"

    def bind(self, call: graph.Expr, ty: types.Type) -> graph.Var:
        """A new variable bound to `call`."""
        var = graph.Var(self.name(), ty)
        self.bindings.append(graph.VarBinding(call, var))
        return var

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
        keep = self.rng.random() < 0.5
        return builder(self.rng.choice(REDUCE))(self.pick(), axis=-1, keepdims=keep)

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
        return builder("strided_slice")(self.pick(), axes=[0], begin=[0], end=[1])

    def take(self) -> graph.Call:
        ids = graph.Constant(np.zeros(self.rng.randint(1, 3), "int32"))
        return builder("take")(self.pick(), ids, axis=0)

    def reshape(self) -> graph.Call:
        if self.rng.random() < 0.5:
            return builder("flatten")(self.pick())
        return builder("expand_dims")(self.pick(), 0)

    def split(self) -> graph.Expr:
        fitting = [v for v in self.values if _shape(v)[-1:] == (FOUR,)]
        if not fitting:
            return self.unary()
        call = builder("split")(self.rng.choice(fitting), 2, axis=-1)
        return graph.TupleGetItem(self.bind(call, type_of(call)), self.rng.randint(0, 1))

    def call(self) -> graph.Expr:
        """A call of the module's function `half`, bound here with its type."""
        x = self.pick()
        if len(_shape(x)) != 2:
            return self.unary()
        y = self.bind(graph.Call(graph.GlobalVar("half"), (x,)), x.ty or types.ObjectType())
        return builder("add")(y, x)

    def update(self) -> graph.Expr:
        """A fresh value, overwritten in place."""
        x = self.pick()
        if len(_shape(x)) != 1:
            return self.unary()
        assert x.ty is not None
        fresh = self.bind(builder("tanh")(x), x.ty)
        args = (graph.GlobalVar("bump"), graph.Tuple((fresh,)))
        inplace = Attrs(inplace_indices=(0,))
        new = self.bind(graph.Call(graph.Op("call_tir_inplace"), args, inplace, (x.ty,)), x.ty)
        return builder("tanh")(new)


def _merged(blocks: list[graph.BindingBlock]) -> list[graph.BindingBlock]:
    """Neighbouring plain blocks as one, as the script has them."""
    found: list[graph.BindingBlock] = []
    for block in blocks:
        plain = not isinstance(block, graph.DataflowBlock)
        if found and plain and not isinstance(found[-1], graph.DataflowBlock):
            found[-1] = graph.BindingBlock((*found[-1].bindings, *block.bindings))
        elif block.bindings:
            found.append(block)
    return found


def _usable(ty: types.Type) -> bool:
    if not isinstance(ty, TensorType) or ty.shape is None:
        return False
    return ty.dtype == "float32" and ty.ndim <= 4


def _shape(v: graph.Var) -> tuple[expr.PrimExpr, ...]:
    assert isinstance(v.ty, TensorType) and v.ty.shape is not None
    return v.ty.shape


def _half() -> graph.Function:
    ty = TensorType((expr.Var("p"), expr.Var("q")), "float32")
    a, h, r = graph.Var("a", ty), graph.DataflowVar("h", ty), graph.Var("r", ty)
    scale = graph.Constant(np.asarray(0.5, "float32"))
    body = (
        graph.VarBinding(builder("multiply")(a, scale), h),
        graph.VarBinding(builder("sin")(h), r),
    )
    return graph.Function((a,), graph.SeqExpr((graph.DataflowBlock(body),), r), ty)


def _bump() -> loops.PrimFunc:
    """A[i] = A[i] + 1, for a vector of any length."""
    k = expr.Var("k")
    source = te.placeholder((k,), "float32", "A")
    made = te.compute((k,), lambda i: source[i] + expr.const(1.0), "bump")
    func = te.create_prim_func([source, made])
    old, new = func.buffers
    body = substitute(func.body, buffers={new: old})
    return loops.PrimFunc((old,), body)
