"""Random programs of both levels, made of IR nodes, to print and to parse."""

from __future__ import annotations

import random

import numpy as np

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, walk

ARITHMETIC = [expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max]
INTEGER = [expr.FloorDiv, expr.FloorMod, expr.Div, expr.Mod]
BITS = [expr.BitAnd, expr.BitOr, expr.BitXor, expr.ShiftLeft, expr.ShiftRight]
COMPARE = [expr.EQ, expr.NE, expr.LT, expr.LE, expr.GT, expr.GE]
DTYPES = ["int64", "int32", "uint8", "float32", "float16", "bool"]
NAMES = ["i", "n", "x", "A", "cls", "T", "lambda", "a.b", "1st", "_", "range", "Module", "tmp"]


class Scalars:
    """Random scalar expressions over variables and buffers in scope."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.vars: list[expr.Var] = []
        self.buffers: list[loops.Buffer] = []

    def bound(self) -> PrimExpr:
        """An end of a range. It is written twice, so it has no let of its own."""
        made = self.expr("int64", 1)
        return self.bound() if any(isinstance(n, expr.Let) for n in walk(made)) else made

    def expr(self, dtype: str = "int64", depth: int = 3) -> PrimExpr:
        if depth <= 0 or self.rng.random() < 0.15:
            return self.leaf(dtype)
        makers = [self._leafy, self._call, self._select, self._let, self._cast]
        makers += [self._logic] * 4 if dtype == "bool" else [self._binary] * 6
        return self.rng.choice(makers)(dtype, depth - 1)

    def _leafy(self, dtype: str, depth: int) -> PrimExpr:
        fitting = [b for b in self.buffers if b.dtype == dtype]
        if not fitting:
            return self.leaf(dtype)
        buffer = self.rng.choice(fitting)
        return loops.BufferLoad(buffer, tuple(self.expr("int64", depth) for _ in buffer.shape))

    def leaf(self, dtype: str) -> PrimExpr:
        known = [v for v in self.vars if v.dtype == dtype]
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        if dtype == "bool":
            return expr.IntImm(self.rng.randint(0, 1), "bool")
        if is_float(dtype):
            special = [0.0, -0.0, 1.5, -2.0, 1e-7, 0.1, float("inf"), float("-inf"), float("nan")]
            return expr.FloatImm(self.rng.choice(special), dtype)
        low = 0 if dtype.startswith("uint") else -5
        return expr.IntImm(self.rng.randint(low, 12), dtype)

    def _binary(self, dtype: str, depth: int) -> PrimExpr:
        classes = ARITHMETIC + ([expr.Div] if is_float(dtype) else INTEGER + BITS)
        a, b = self.expr(dtype, depth), self.expr(dtype, depth)
        return self.rng.choice(classes)(a, b)

    def _logic(self, dtype: str, depth: int) -> PrimExpr:
        kind = self.rng.random()
        if kind < 0.2:
            return expr.Not(self.expr("bool", depth))
        if kind < 0.6:
            of = self.rng.choice(["int64", "float32", "int32"])
            return self.rng.choice(COMPARE)(self.expr(of, depth), self.expr(of, depth))
        cls = self.rng.choice([expr.And, expr.Or])
        return cls(self.expr("bool", depth), self.expr("bool", depth))

    def _call(self, dtype: str, depth: int) -> PrimExpr:
        args: tuple[PrimExpr, ...]
        if is_float(dtype):
            op = self.rng.choice(["exp", "tanh", "pow", "fma"])
            count = {"pow": 2, "fma": 3}.get(op, 1)
            args = tuple(self.expr(dtype, depth) for _ in range(count))
            return expr.Call(dtype, op, args)
        if self.rng.random() < 0.4:
            args = (expr.StringImm('f"o\n'), self.expr("float32", depth), self.expr("int64", 0))
            return expr.Call(dtype, "call_extern", args)
        args = (self.expr("bool", depth), self.expr(dtype, depth), self.expr(dtype, depth))
        return expr.Call(dtype, "if_then_else", args)

    def _select(self, dtype: str, depth: int) -> PrimExpr:
        parts = (self.expr("bool", depth), self.expr(dtype, depth), self.expr(dtype, depth))
        return expr.Select(*parts)

    def _let(self, dtype: str, depth: int) -> PrimExpr:
        var = expr.Var(self.rng.choice(NAMES), self.rng.choice(DTYPES))
        value = self.expr(var.dtype, depth)
        self.vars.append(var)
        body = self.expr(dtype, depth)
        self.vars.pop()
        return expr.Let(var, value, body)

    def _cast(self, dtype: str, depth: int) -> PrimExpr:
        return expr.Cast(dtype, self.expr(self.rng.choice(DTYPES), depth))


class LoopPrograms(Scalars):
    """Random loop functions."""

    def prim_func(self) -> loops.PrimFunc:
        rng = self.rng
        symbols = [expr.Var(rng.choice(NAMES)) for _ in range(rng.randint(0, 2))]
        scalars = [expr.Var(rng.choice(NAMES), rng.choice(["int64", "float32"]))]
        self.vars, self.buffers = [*symbols, *scalars], []
        params: list[loops.Buffer | expr.Var] = [self.buffer() for _ in range(rng.randint(1, 3))]
        for s in symbols:  # every symbol has a buffer that binds it
            params.append(loops.Buffer(rng.choice(NAMES), (s, expr.IntImm(4)), "float32"))
        self.buffers = [p for p in params if isinstance(p, loops.Buffer)]
        if rng.random() < 0.5:
            params += scalars
        else:
            self.vars = list(symbols)
        body = self.stmt(3)
        if rng.random() < 0.6:
            allocs = tuple(b for b in [self.buffer()] if rng.random() < 0.6)
            self.buffers += allocs
            root = loops.Block("root", (), (), (), self.stmt(3), alloc_buffers=allocs)
            body = loops.BlockRealize((), expr.IntImm(1, "bool"), root)
        attrs = Attrs({"tir.noalias": True, "note": 'a"b', "list": [1, [2.5, None]]})
        attrs = attrs if rng.random() < 0.5 else Attrs()
        return loops.PrimFunc(tuple(params), body, attrs, private=rng.random() < 0.3)

    def buffer(self) -> loops.Buffer:
        rng = self.rng
        shape = tuple(self.expr("int64", 1) for _ in range(rng.randint(0, 3)))
        more = {}
        if rng.random() < 0.3:
            more = {"strides": tuple(self.leaf("int64") for _ in shape), "align": 16}
        if rng.random() < 0.2:
            more |= {"elem_offset": self.leaf("int64"), "scope": "local"}
        return loops.Buffer(rng.choice(NAMES), shape, rng.choice(DTYPES), **more)

    def stmt(self, depth: int) -> loops.Stmt:
        makers = [self._store] * 3 + [self._evaluate]
        if depth > 0:
            makers += [self._for] * 3 + [self._block] * 2
            makers += [self._seq] * 2 + [self._if, self._while, self._let_stmt, self._assert]
        return self.rng.choice(makers)(depth - 1)

    def _store(self, depth: int) -> loops.Stmt:
        buffer = self.rng.choice(self.buffers)
        indices = tuple(self.expr("int64", 2) for _ in buffer.shape)
        return loops.BufferStore(buffer, self.expr(buffer.dtype), indices)

    def _evaluate(self, depth: int) -> loops.Stmt:
        return loops.Evaluate(self.expr(self.rng.choice(DTYPES)))

    def _for(self, depth: int) -> loops.Stmt:
        rng = self.rng
        low = expr.IntImm(0) if rng.random() < 0.7 else self.bound()
        extent = self.expr("int64", 1)
        kinds = ["serial"] * 4 + ["parallel", "vectorized", "unrolled", "thread_binding"]
        kind = rng.choice(kinds)
        thread = "threadIdx.x" if kind == "thread_binding" else None
        notes = Attrs({"pragma": 1}) if rng.random() < 0.2 else Attrs()
        var = expr.Var(rng.choice(NAMES))
        self.vars.append(var)
        body = self.stmt(depth)
        self.vars.pop()
        return loops.For(var, low, extent, kind, body, thread, notes)  # type: ignore[arg-type]

    def _seq(self, depth: int) -> loops.Stmt:
        return loops.seq(*(self.stmt(depth) for _ in range(self.rng.randint(1, 3))))

    def _if(self, depth: int) -> loops.Stmt:
        other = self.stmt(depth) if self.rng.random() < 0.5 else None
        return loops.IfThenElse(self.expr("bool"), self.stmt(depth), other)

    def _while(self, depth: int) -> loops.Stmt:
        return loops.While(self.expr("bool"), self.stmt(depth))

    def _assert(self, depth: int) -> loops.Stmt:
        return loops.AssertStmt(self.expr("bool"), 'it\'s "so"\n')

    def _let_stmt(self, depth: int) -> loops.Stmt:
        var = expr.Var(self.rng.choice(NAMES), self.rng.choice(DTYPES))
        value = self.expr(var.dtype)
        self.vars.append(var)
        body = self.stmt(depth)
        self.vars.pop()
        return loops.LetStmt(var, value, body)

    def _region(self) -> loops.BufferRegion:
        buffer = self.rng.choice(self.buffers)
        ranges = (loops.Range(self.bound(), self.bound()) for _ in buffer.shape)
        return loops.BufferRegion(buffer, tuple(ranges))

    def _block(self, depth: int) -> loops.Stmt:
        rng = self.rng
        axes: list[loops.IterVar] = []
        values: list[PrimExpr] = []
        for _ in range(rng.randint(0, 3)):
            kind = rng.choice(["spatial", "reduce", "scan", "opaque"])
            low = expr.IntImm(0) if rng.random() < 0.8 else self.bound()
            dom = loops.Range(low, self.expr("int64", 1))
            var = expr.Var(rng.choice(NAMES))
            axes.append(loops.IterVar(var, dom, kind))  # type: ignore[arg-type]
            values.append(self.expr("int64", 1))
        outer_vars, outer_buffers = list(self.vars), list(self.buffers)
        notes = Attrs({"a": 1, "e": self.expr("int64", 1)}) if rng.random() < 0.3 else Attrs()
        predicate = self.expr("bool", 1) if rng.random() < 0.3 else expr.IntImm(1, "bool")
        self.vars += [a.var for a in axes]
        reads = tuple(self._region() for _ in range(rng.randint(0, 2)))
        writes = tuple(self._region() for _ in range(rng.randint(0, 1)))
        allocs = tuple(b for b in [self.buffer()] if rng.random() < 0.3)
        self.buffers += allocs
        views = tuple(
            loops.MatchBufferRegion(self.buffer(), self._region()) for _ in range(rng.randint(0, 1))
        )
        self.buffers += [v.buffer for v in views]
        init = self.stmt(0) if rng.random() < 0.4 else None
        name = rng.choice(["root", "update", 'b"l', ""])
        body = self.stmt(depth)
        self.vars, self.buffers = outer_vars, outer_buffers
        block = loops.Block(name, tuple(axes), reads, writes, body, init, allocs, views, notes)
        return loops.BlockRealize(tuple(values), predicate, block)


class GraphPrograms(Scalars):
    """Random graph functions over registered operators."""

    def module(self) -> Module:
        rng = self.rng
        loop_gen = LoopPrograms(rng)
        functions: dict[str, loops.PrimFunc | graph.Function | graph.ExternFunc] = {}
        self.callees = [f"kernel{i}" for i in range(rng.randint(1, 2))]
        for name in self.callees:
            functions[name] = loop_gen.prim_func()
        functions["lib"] = graph.ExternFunc("vendor.lib")
        functions["main"] = self.function()
        attrs = Attrs({"target": "cpu"}) if rng.random() < 0.3 else Attrs()
        return Module.of(functions, attrs)

    def function(self) -> graph.Function:
        rng = self.rng
        self.vars = [expr.Var(rng.choice(["n", "m", "x"])) for _ in range(2)]
        params = [graph.Var(rng.choice(NAMES), self.type()) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.5:
            own = expr.Var("k")
            params.append(graph.Var("k", types.PrimType("int64", own)))
            self.vars.append(own)
        self.values: list[graph.Var] = list(params)
        body = self.seq(2, top=True)
        ret = self.type() if rng.random() < 0.5 else None
        attrs = Attrs({"num_input": 1}) if rng.random() < 0.3 else Attrs()
        pure, private = rng.random() < 0.8, rng.random() < 0.3
        return graph.Function(tuple(params), body, ret, pure, private, attrs)

    def type(self, depth: int = 2) -> types.Type:
        rng = self.rng
        dims = tuple(self.expr("int64", 1) for _ in range(rng.randint(0, 3)))
        dims = tuple(d for d in dims if not _has_call(d))
        options: list[types.Type] = [
            types.TensorType(dims, "float32"),
            types.TensorType(dims, None),
            types.TensorType(None, "int64", 2),
            types.TensorType(),
            types.ShapeType(dims),
            types.ShapeType(None, 2),
            types.ShapeType(),
            types.PrimType("int64"),
            types.ObjectType(),
        ]
        if depth:
            fields = tuple(self.type(depth - 1) for _ in range(rng.randint(0, 2)))
            options += [
                types.TupleType(fields),
                types.FuncType(fields, self.type(depth - 1), rng.random() < 0.5),
                types.FuncType(None, types.ObjectType(), False),
            ]
        return rng.choice(options)

    def seq(self, depth: int, *, top: bool = False) -> graph.SeqExpr:
        outer = list(self.values)
        blocks: list[graph.BindingBlock] = []
        last_plain = False
        for _ in range(self.rng.randint(0, 3)):
            plain = last_plain is False and self.rng.random() < 0.5
            blocks.append(self._plain(depth) if plain else self._dataflow())
            last_plain = plain
        if self.rng.random() < 0.2 and depth:
            body: graph.Expr = self._conditional(depth - 1)
        else:
            body = self.value(2)
        self.values = outer
        return graph.SeqExpr(tuple(blocks), body)

    def _plain(self, depth: int) -> graph.BindingBlock:
        made = tuple(self._binding(graph.Var, depth) for _ in range(self.rng.randint(1, 3)))
        return graph.BindingBlock(made)

    def _dataflow(self) -> graph.DataflowBlock:
        outer = list(self.values)
        made: list[graph.Binding] = []
        for _ in range(self.rng.randint(0, 4)):
            kind = graph.Var if self.rng.random() < 0.4 else graph.DataflowVar
            made.append(self._binding(kind, 0))
        outputs = [b.var for b in made if type(b.var) is graph.Var]  # type: ignore
        self.values = outer + outputs
        return graph.DataflowBlock(tuple(made))

    def _binding(self, kind: type[graph.Var], depth: int) -> graph.Binding:
        rng = self.rng
        ty = self.type() if rng.random() < 0.5 else None
        var = kind(rng.choice(NAMES), ty)
        if depth and rng.random() < 0.3:
            bound: graph.Binding = graph.VarBinding(self._conditional(depth - 1), var)
        elif depth and rng.random() < 0.2:
            bound = graph.VarBinding(self._local_function(var, depth), var)
        elif rng.random() < 0.2:
            bound = graph.MatchCast(self.value(1), self.type(), var)
        else:
            bound = graph.VarBinding(self.value(2), var)
        self.values.append(var)
        return bound

    def _local_function(self, var: graph.Var, depth: int) -> graph.Function:
        outer_values, outer_vars = list(self.values), list(self.vars)
        self.vars = [*outer_vars, expr.Var("n")]
        params = [graph.Var(self.rng.choice(NAMES), self.type()) for _ in range(2)]
        self.values = [*outer_values, var, *params]  # it may call itself
        made = graph.Function(tuple(params), self.seq(depth - 1))
        self.values, self.vars = outer_values, outer_vars
        return made

    def _conditional(self, depth: int) -> graph.If:
        return graph.If(self.value(1), self.seq(depth), self.seq(depth))

    def value(self, depth: int) -> graph.Expr:
        rng = self.rng
        leaves = [
            lambda: rng.choice(self.values),
            lambda: graph.Constant(self._array()),
            lambda: graph.ShapeExpr(tuple(self.expr("int64", 1) for _ in range(2))),
            lambda: graph.PrimValue(self.expr(rng.choice(DTYPES), 1)),
            lambda: graph.StringImm("s'\"\n"),
            lambda: graph.DataTypeImm("float16"),
        ]
        if depth <= 0:
            return rng.choice(leaves)()
        makers = [
            *leaves,
            lambda: graph.Tuple(tuple(self.value(depth - 1) for _ in range(rng.randint(0, 3)))),
            lambda: graph.TupleGetItem(rng.choice(self.values), rng.randint(0, 3)),
            lambda: self._op(depth),
            lambda: self._op(depth),
            lambda: self._cross_level(depth),
            lambda: self._function_call(depth),
        ]
        made = rng.choice(makers)()
        if not isinstance(made, graph.TupleGetItem):
            return made
        match made.tuple_value:
            case graph.Var(_, types.TupleType(fields)):
                return graph.TupleGetItem(made.tuple_value, 0) if fields else made.tuple_value
            case graph.Var(_, None):
                return made
            case whole:
                return whole

    def _array(self) -> np.ndarray:
        shape = tuple(self.rng.randint(0, 3) for _ in range(self.rng.randint(0, 3)))
        dtype = self.rng.choice(["float32", "float16", "int64", "uint8", "bool"])
        data = np.array([self.rng.choice([0, 1, 0.1, 3]) for _ in range(int(np.prod(shape)))])
        out = data.reshape(shape).astype(dtype)
        if out.size and dtype == "float32" and self.rng.random() < 0.2:
            out.flat[0] = self.rng.choice([np.nan, np.inf, -0.0])
        return out

    def _op(self, depth: int) -> graph.Expr:
        name, count, attrs = self.rng.choice(
            [("add", 2, {}), ("exp", 1, {}), ("matmul", 2, {}), ("reshape", 2, {})]
        )
        args = tuple(self.value(depth - 1) for _ in range(count))
        return graph.Call(graph.Op(name), args, Attrs(attrs))

    def _tensor_type(self) -> types.TensorType:
        return types.TensorType((self.vars[0], expr.IntImm(4)), "float32")

    def _cross_level(self, depth: int) -> graph.Expr:
        rng = self.rng
        args = graph.Tuple(tuple(self.value(depth - 1) for _ in range(rng.randint(0, 2))))
        outs = tuple(self._tensor_type() for _ in range(rng.choice([1, 1, 2])))
        callee = graph.GlobalVar(rng.choice(self.callees))
        extra = (graph.ShapeExpr((self.expr("int64", 1),)),) if rng.random() < 0.4 else ()
        kind = rng.randint(0, 3)
        if kind == 0:
            return graph.Call(graph.Op("call_tir"), (callee, args, *extra), ty_args=outs)
        if kind == 1:
            attrs = Attrs(inplace_indices=(0,) * len(outs))
            return graph.Call(graph.Op("call_tir_inplace"), (callee, args), attrs, outs)
        extern = graph.ExternFunc("lib.f")
        if kind == 2:
            return graph.Call(graph.Op("call_dps_packed"), (extern, args), ty_args=outs)
        operands = (extern, *args.fields)
        return graph.Call(graph.Op("call_pure_packed"), operands, ty_args=outs[:1])

    def _function_call(self, depth: int) -> graph.Expr:
        args = tuple(self.value(depth - 1) for _ in range(self.rng.randint(0, 2)))
        if self.rng.random() < 0.5:
            return graph.Call(graph.ExternFunc("print"), args, ty_args=(types.ObjectType(),))
        return graph.Call(graph.GlobalVar("main"), args)


def _has_call(e: PrimExpr) -> bool:
    return any(isinstance(n, expr.Call | expr.Let) for n in walk(e))
