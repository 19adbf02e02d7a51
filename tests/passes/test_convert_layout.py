"""Convolutions in another layout."""

import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import ops
from relaxlab.analysis.deduce import type_of
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.passes.base import Pipeline
from relaxlab.passes.convert_layout import convert_layout
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import parse
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import assert_same, check_pass, compare_runs

TEXT = """
@R.function
def main(
    x: R.Tensor((1, 4, HEIGHT, 9), "float32"),
    w: R.Tensor((8, 4, 3, 3), "float32"),
    b: R.Tensor((8, 1, 1), "float32"),
    v: R.Tensor((8, 8, 1, 1), "float32"),
):
    with R.dataflow():
        c = R.nn.conv2d(x, w, padding=1)
        d = R.add(c, b)
        e = R.nn.relu(d)
        f = R.nn.conv2d(e, v)
        g = R.concat((e, f), axis=1)
        p = R.nn.max_pool2d(g, pool_size=2, strides=2, padding=1)
        s = R.nn.softmax(p, axis=1)
        m = R.mean(p, axis=[2, 3], keepdims=True)
        R.output(s, m)
    return (s, m)
"""
Block, Symbolic = (parse(TEXT.replace("HEIGHT", h)) for h in ("7", '"h"'))


def test_convolutions_and_what_lies_between_them():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 4, 7, 9), "float32"),
            w: R.Tensor((8, 4, 3, 3), "float32"),
            b: R.Tensor((8, 1, 1), "float32"),
            v: R.Tensor((8, 8, 1, 1), "float32"),
        ):
            with R.dataflow():
                x_t = R.permute_dims(x, axes=[0, 2, 3, 1])
                w_t = R.permute_dims(w, axes=[0, 2, 3, 1])
                c = R.nn.conv2d(x_t, w_t, padding=1, data_layout="NHWC", kernel_layout="OHWI")
                b_4 = R.expand_dims(b, axis=[0])
                b_t = R.permute_dims(b_4, axes=[0, 2, 3, 1])
                d = R.add(c, b_t)
                e = R.nn.relu(d)
                v_t = R.permute_dims(v, axes=[0, 2, 3, 1])
                f = R.nn.conv2d(e, v_t, data_layout="NHWC", kernel_layout="OHWI")
                g = R.concat((e, f), axis=3)
                p_t = R.nn.max_pool2d(g, pool_size=2, strides=2, padding=1, layout="NHWC")
                p = R.permute_dims(p_t, axes=[0, 3, 1, 2])
                s = R.nn.softmax(p, axis=1)
                m_t = R.mean(p_t, axis=[1, 2], keepdims=True)
                m = R.permute_dims(m_t, axes=[0, 3, 1, 2])
                R.output(s, m)
            return (s, m)

    check_pass(convert_layout, Block, Expected)
    compare_runs(Symbolic, convert_layout(normalize(Symbolic)), sizes=(3, 4, 7))
    (record,) = Pipeline((convert_layout,)).run(normalize(Block)).passes
    remarks = {w.subject: w.reason for w in record.remarks}
    assert remarks["main.g: concat"] == "in NHWC"
    assert remarks["main.s: nn.softmax"] == "reads `p` in NCHW"


def test_compiled_programs_agree():
    exe = rl.compile(
        Symbolic, pipeline=cpu_pipeline().before("fuse_ops_by_pattern", convert_layout)
    )
    rng = np.random.default_rng(0)
    for h in (3, 8):
        shapes = (1, 4, h, 9), (8, 4, 3, 3), (8, 1, 1), (8, 8, 1, 1)
        args = [rng.uniform(-1, 1, s).astype("float32") for s in shapes]
        assert_same(exe["main"](*args), interpret(Symbolic, "main", *args), f"h = {h}", 1e-4)


def test_unchanged_operators_and_bad_layouts():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 5, 5, 4), "float32"), w: R.Tensor((8, 4, 3, 3), "float32")):
            c = R.nn.conv2d(x, w, data_layout="NHWC")
            d = R.exp(c)
            return d

    check_pass(convert_layout, Before)
    check_pass(convert_layout.with_options(data="NCHW"), Block)
    other = convert_layout.with_options(data="HWNC", kernel="HWIO")
    compare_runs(Symbolic, other(normalize(Symbolic)), sizes=(3, 5))
    with pytest.raises(ValueError, match="'NHW' must have each of the letters 'NCHW' once"):
        convert_layout.with_options(data="NHW")(Block)


def conv_program(seed):
    """Random convolutions, pools, and elementwise operators on values of rank four."""
    rng = random.Random(seed)
    n = expr.Var("n")

    def tensor(name, *dims):
        return graph.Var(name, types.TensorType(tuple(map(expr.as_expr, dims)), "float32"))

    params = [tensor("x", n, 4, 6, 5), tensor("y", 1, 4, 6, 5), tensor("b", 4, 1, 1)]
    params += [tensor(f"w{i}", 4, 4, k, k) for i, k in enumerate((1, 3))]
    values, bindings = params[:2], []
    while len(bindings) < 10:
        a, b = rng.choice(values[-4:]), rng.choice([*values, params[2]])
        makers = [
            lambda a=a: ops.nn.conv2d(a, rng.choice(params[3:]), padding=rng.randint(0, 1)),
            lambda a=a: ops.nn.conv2d(a, rng.choice(params[3:]), strides=[1, 2], padding=1),
            lambda a=a, b=b: rng.choice([ops.add, ops.multiply, ops.maximum])(a, b),
            lambda a=a: rng.choice([ops.tanh, ops.nn.relu, ops.sigmoid])(a),
            lambda a=a: ops.nn.avg_pool2d(a, pool_size=2, padding=1),
            lambda a=a: ops.nn.softmax(a, axis=rng.randint(-1, 3)),
            lambda a=a: rng.choice([ops.sum, ops.mean, ops.max])(
                a, axis=[rng.randint(-2, 3)], keepdims=True
            ),
            lambda a=a: ops.multiply(a, 0.5),
        ]
        try:
            call = rng.choice(makers)()
            ty = type_of(call)
        except (DiagnosticError, TypeError):
            continue
        if ty.shape is None or ty.ndim != 4:
            continue
        values.append(graph.DataflowVar(f"v{len(bindings)}", ty))
        bindings.append(graph.VarBinding(call, values[-1]))
    outs = [graph.Var(f"out{i}") for i in range(3)]
    ends = [graph.VarBinding(ops.negative(v), o) for v, o in zip(values[-3:], outs, strict=True)]
    body = graph.SeqExpr((graph.DataflowBlock((*bindings, *ends)),), graph.Tuple(tuple(outs)))
    return normalize(Module.of({"main": graph.Function(tuple(params), body)}))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_their_meaning(seed):
    start = conv_program(seed)
    after = convert_layout(start)
    assert not check_well_formed(after)
    compare_runs(start, after, seed=seed, sizes=(1, 2, 3), runs=1)


def test_random_programs_are_converted():
    programs = [conv_program(seed) for seed in range(10)]
    assert sum(convert_layout(p) is not p for p in programs) >= 6


def test_layouts_go_through_elementwise_operators_pools_and_reductions_of_any_name():
    def emit(call, out, x):
        return rl.te.compute(x.shape, lambda *i: x[i] + 1.0, "plus_one")

    rl.define(
        "test.plus_one", "x", lambda call, tys: tys[0], emit=emit, reference=lambda x: x + 1,
        traits=["elementwise"],
    )  # fmt: skip
    mod = normalize(
        parse("""
@R.function
def main(x: R.Tensor((1, 3, 6, 7), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
    a = R.nn.conv2d(x, w)
    b = R.test.plus_one(a)
    c = R.atan(b)
    d = R.nn.max_pool2d(c, pool_size=(2, 2))
    e = R.prod(d, axis=1, keepdims=True)
    f = R.variance(d, axis=(1, -1), keepdims=True)
    return e, f
""")
    )
    converted = convert_layout(mod)
    compare_runs(mod, converted, sizes=())
    (record,) = Pipeline((convert_layout,)).run(mod).passes
    assert not [n for n in record.remarks if "NCHW" in n.reason]
