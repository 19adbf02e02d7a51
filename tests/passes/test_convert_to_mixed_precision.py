"""Products in half precision."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.passes.base import Pipeline
from relaxlab.passes.convert_to_mixed_precision import convert_to_mixed_precision
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import check_pass, random_arguments
from tests.passes.matmul_programs import matmul_program


@I.ir_module
class Block:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
        v: R.Tensor((8, 8), "float32"),
        ids: R.Tensor((3,), "int32"),
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.multiply(b, R.const(0.5, "float32"))
            d = R.linear(c, v)
            s = R.nn.softmax(d)
            t = R.add(s, d)
            p = R.split(d, 2, axis=1)
            q = p[1]
            u = R.take(q, ids, axis=1)
            R.output(t, u)
        return (t, u)


def test_products_and_what_lies_between_them():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"),
            w: R.Tensor((8, 8), "float32"),
            v: R.Tensor((8, 8), "float32"),
            ids: R.Tensor((3,), "int32"),
        ):
            with R.dataflow():
                x_half = R.astype(x, "float16")
                w_half = R.astype(w, "float16")
                a_half = R.matmul(x_half, w_half)
                b_half = R.nn.relu(a_half)
                const_half = R.const(0.5, "float16")
                c_half = R.multiply(b_half, const_half)
                v_half = R.astype(v, "float16")
                d_half = R.linear(c_half, v_half)
                d = R.astype(d_half, "float32")
                s = R.nn.softmax(d)
                t = R.add(s, d)
                p_half = R.split(d_half, 2, axis=1)
                q_half = p_half[1]
                u_half = R.take(q_half, ids, axis=1)
                u = R.astype(u_half, "float32")
                R.output(t, u)
            return (t, u)

    check_pass(convert_to_mixed_precision, Block, Expected, compare=False)
    (record,) = Pipeline((convert_to_mixed_precision,)).run(normalize(Block)).passes
    remarks = {w.subject: w.reason for w in record.remarks}
    assert remarks["main.a: matmul"] == "in half precision: 2 operands are converted"
    assert remarks["main.c: multiply"] == "in half precision: its operands are in it"
    assert remarks["main.t: add"] == "`s` is in float32"


def test_integers_stated_dtypes_and_other_programs_stay():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "int32"), y: R.Tensor((4, 4), "float32")):
            a = R.matmul(x, x)
            b = R.matmul(y, y, out_dtype="float32")
            c = R.add(b, b)
            return (a, c)

    check_pass(convert_to_mixed_precision, Before)
    with pytest.raises(ValueError, match="must be float16 or bfloat16, is int8"):
        convert_to_mixed_precision.with_options(dtype="int8")(Before)


def close(got, want, tolerance, what):
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        scale = max(1.0, float(np.abs(w).max(initial=0)))
        np.testing.assert_allclose(g / scale, w / scale, tolerance, tolerance, err_msg=what)


@pytest.mark.parametrize("dtype, tolerance", [("float16", 5e-3), ("bfloat16", 4e-2)])
def test_compiled_programs_compute_in_it(dtype, tolerance):
    half = convert_to_mixed_precision.with_options(dtype=dtype)
    exe = rl.compile(Block, pipeline=cpu_pipeline().before("fuse_ops_by_pattern", half))
    rng = np.random.default_rng(0)
    for n in (1, 7, 32):
        x, w, v = (rng.uniform(-1, 1, s).astype("float32") for s in ((n, 8), (8, 8), (8, 8)))
        ids = np.array([0, 2, 3], "int32")
        want = interpret(Block, "main", x, w, v, ids)
        close(exe["main"](x, w, v, ids), want, tolerance, f"n = {n}")


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_their_meaning(seed):
    start = matmul_program(seed)
    after = convert_to_mixed_precision.with_options(dtype="bfloat16")(start)
    assert after is not start and not check_well_formed(after)
    rng = np.random.default_rng(seed)
    args = random_arguments(start["main"], rng, (1, 3, 8))
    want, got = interpret(start, "main", *args), interpret(after, "main", *args)
    close(got, want, 0.1, f"seed {seed}")
