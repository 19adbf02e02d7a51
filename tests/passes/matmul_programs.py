"""Random programs of matrix products, sums and transpositions."""

import random

from relaxlab import ops
from relaxlab.analysis.deduce import type_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.passes.normalize import normalize


def matmul_program(seed, length=14):
    """A module whose main multiplies matrices; every weight is a parameter."""
    rng = random.Random(seed)
    n, m = expr.Var("n"), expr.Var("m")
    dims = [n, m, expr.const(2), expr.const(50)]

    def matrix(name, *shape):
        return graph.Var(name, types.TensorType(shape, "float32"))

    params = [matrix(f"w{i}", rng.choice(dims), rng.choice(dims)) for i in range(12)]
    params += [matrix("x", n, m), matrix("y", m, n), matrix("b", expr.const(3), n, m)]
    values, bindings = list(params), []
    while len(bindings) < length:
        if bindings and rng.random() < 0.3:  # the last product meets a weight
            a, b = (values[-1], rng.choice(params)) if rng.random() < 0.5 else (
                rng.choice(params), values[-1])  # fmt: skip
            if a.ty.shape[-1] == b.ty.shape[-2]:
                call = ops.matmul(a, b)
                values.append(graph.DataflowVar(f"v{len(bindings)}", type_of(call)))
                bindings.append(graph.VarBinding(call, values[-1]))
            continue
        pool = values[-5:] + params if rng.random() < 0.7 else values
        a, b = rng.choice(pool), rng.choice(pool)
        op = rng.choice(["matmul"] * 4 + ["linear"] * 2 + ["add", "permute_dims"])
        inner = {"matmul": -2, "linear": -1}.get(op)
        if inner is not None and a.ty.shape[-1] != b.ty.shape[inner]:
            continue
        if op == "add" and rng.random() < 0.8 and a.ty.shape != b.ty.shape:
            continue
        try:
            call = ops.permute_dims(b) if op == "permute_dims" else getattr(ops, op)(a, b)
            ty = type_of(call)
        except DiagnosticError:
            continue
        if ty.shape is None or ty.ndim > 3:
            continue
        values.append(graph.DataflowVar(f"v{len(bindings)}", ty))
        bindings.append(graph.VarBinding(call, values[-1]))
    read = {v for b in bindings for v in b.value.args}
    ends = [b.var for b in bindings if b.var not in read][:4]
    outs = [graph.Var(f"out{i}", v.ty) for i, v in enumerate(ends)]
    zero = [graph.VarBinding(ops.multiply(v, 0.5), o) for v, o in zip(ends, outs, strict=True)]
    body = graph.SeqExpr((graph.DataflowBlock((*bindings, *zero)),), graph.Tuple(tuple(outs)))
    attrs = Attrs(tir_var_upper_bound={"n": 8, "m": 8})
    main = graph.Function(tuple(params), body, attrs=attrs)
    return normalize(Module.of({"main": main}))
