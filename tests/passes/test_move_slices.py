"""Splits and reshapes of slices, which kernels then read where they are."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import loops
from relaxlab.ir.module import Module
from relaxlab.passes.move_slices import move_slices
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs


def test_fields_of_a_split_and_heads_of_a_slice() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("b", "n", 24), "float32")):
            with R.dataflow():
                t = R.split(x, 3, axis=-1)
                k = R.reshape(t[1], (b, n, 2, 4))  # noqa: F821
                v = R.reshape(t[2], (b, n, 1, 8))  # noqa: F821
                # 10 is not the beginning of a head of 4.
                other = R.strided_slice(x, axes=[2], begin=[10], end=[18])
                stays = R.reshape(other, (b, n, 2, 4))  # noqa: F821
                R.output(k, v, stays)
            return (k, v, stays)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("b", "n", 24), "float32")):
            with R.dataflow():
                by4 = R.reshape(x, (b, n, 6, 4))  # noqa: F821
                k = R.strided_slice(by4, axes=[2], begin=[2], end=[4], assume_inbound=True)
                apart = R.reshape(x, (b, n, 1, 24))  # noqa: F821
                v = R.strided_slice(apart, axes=[3], begin=[16], end=[24], assume_inbound=True)
                other = R.strided_slice(x, axes=[2], begin=[10], end=[18])
                stays = R.reshape(other, (b, n, 2, 4))  # noqa: F821
                R.output(k, v, stays)
            return (k, v, stays)

    check_pass(move_slices, Before, Expected)


def test_a_split_that_is_read_whole_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 6), "float32")):
            with R.dataflow():
                t = R.split(x, 2, axis=1)
                first = t[0]
                R.output(t, first)
            return (t, first)

    check_pass(move_slices, Before, Before)


@pytest.mark.parametrize("shape", ["(n, 4, 0)", "(n, 0, 4)", "(0, n, 4)", "(n, 1, 0)"])
def test_a_reshape_of_an_empty_slice(shape: str) -> None:
    mod = normalize(
        rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", 32), "float32")):
    with R.dataflow():
        u = R.strided_slice(x, axes=[1], begin=[3], end=[3])
        v = R.reshape(u, {shape})
        R.output(v)
    return v
""")
    )
    check_module(move_slices, mod, move_slices(mod))
    compare_runs(mod, move_slices(mod), seed=0, sizes=(1, 3), runs=1)


ENCODER = """
@R.function
def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 32}, "float32"),
         w: R.Tensor((96, 32), "float32"), c: R.Tensor((96,), "float32")):
    with R.dataflow():
        t = R.split(R.linear(x, w, c), 3, axis=2)
        q = R.reshape(t[0], (0, 0, 2, 16))
        k = R.reshape(t[1], (0, 0, 2, 16))
        v = R.reshape(t[2], (0, 0, 2, 16))
        a = R.reshape(R.nn.attention(q, k, v), (0, 0, 32))
        R.output(a)
    return a
"""


def test_attention_of_sequences_reads_the_parts_of_a_projection() -> None:
    trace = rl.trace(rl.parse(ENCODER))
    fused = trace.result.loop_functions()
    (attention,) = (f for name, f in fused.items() if "attention_within" in name)
    # The ranges of keys and the starts of sequences are checked before it runs, as before.
    stated = [b for b in attention.buffers if b.facts]
    assert len(stated) == 3 and all(isinstance(b.facts[-1], loops.Nondecreasing) for b in stated)
    assert not any(name.startswith(("split", "strided_slice")) for name in fused)


GATHERED = """
@T.prim_func
def rows(s_: T.handle, x: T.Buffer((8, 4), "float32"), y: T.Buffer((6, 4), "float32")):
    s = T.index_function(s_, (6,), "int32", facts=[T.range(0, 8)])
    for i, j in T.grid(6, 4):
        with T.block("y"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[s[vi], vj]

@R.function
def main(at: R.Tensor((12,), "int32"), x: R.Tensor((4, 8), "float32")):
    with R.dataflow():
        s = R.strided_slice(at, axes=[0], begin=[6], end=[12])
        t = R.permute_dims(x)
        y = R.nn.relu(R.call_tir(cls.rows, (s, t), out_ty=R.Tensor((6, 4), "float32")))
        R.output(y)
    return y
"""


def test_index_functions_are_checked_before_a_kernel_that_reads_through_a_transpose() -> None:
    exe = rl.compile(rl.parse(GATHERED), use_cache=False)
    names = rl.trace(rl.parse(GATHERED)).result.loop_functions()
    assert set(names) == {"strided_slice", "fused_permute_dims_rows", "relu"}
    at, x = np.arange(12, dtype=np.int32) % 8, np.random.default_rng(0).normal(size=(4, 8))
    x = x.astype("float32")
    np.testing.assert_array_equal(exe["main"](at, x), np.maximum(x.T[at[6:]], 0))
    at[9] = 8
    with pytest.raises(rl.CheckFailed, match=r"s\[3\] is 8, not in T.range\(0, 8\)"):
        exe["main"](at, x)


# --- Random programs --------------------------------------------------------------------------

FORMS = ("(n, 12)", "(n, 3, 4)", "(n, 2, 6)", "(1, n, 12)", "(n, 6, 2)", "(n, 1, 12)")
"""Shapes of as many elements."""


def random_program(seed: int) -> Module:
    """Splits, slices, and reshapes of these."""
    rng = random.Random(seed)
    lines, results = list[str](), list[str]()
    for i, form in enumerate(FORMS):
        x = f"x{i}"
        rank = form.count(",") + 1
        axis = rng.choice([d for d in range(rank) if form.strip("()").split(", ")[d] not in "1n"])
        extent = int(form.strip("()").split(", ")[axis])
        parts = rng.choice([k for k in (1, 2, 3, 4, 6) if extent % k == 0])
        lines.append(f"t{i} = R.split({x}, {parts}, axis={axis - rank * rng.randrange(2)})")
        field = rng.randrange(parts)
        lines.append(f"p{i} = t{i}[{field}]")
        size = 12 // parts
        to = rng.choice([f"(n, {size})", f"(1, n, {size})", f"({size}, n)", f"(n, {size}, 1)",
                         *(f"(n, {size // k}, {k})" for k in (2, 3) if size % k == 0)])  # fmt: skip
        lines.append(f"r{i} = R.reshape(p{i}, {to})")
        lines.append(f"y{i} = R.nn.relu(r{i})")
        results.append(f"y{i}" if rng.random() < 0.7 else f"r{i}")
    params = ", ".join(
        f'x{i}: R.Tensor({form.replace("n", chr(34) + "n" + chr(34))}, "float32")'
        for i, form in enumerate(FORMS)
    )
    body = "\n        ".join([*lines, f"R.output({', '.join(results)})"])
    return rl.parse(f"""
@R.function
def main({params}):
    with R.dataflow():
        {body}
    return ({", ".join(results)},)
""")


def test_random_programs() -> None:
    for seed in range(20):
        start = normalize(random_program(seed))
        after = move_slices(start)
        assert after is not start
        check_module(move_slices, start, after)
        compare_runs(start, after, seed=seed, sizes=(1, 2, 5), runs=2)
