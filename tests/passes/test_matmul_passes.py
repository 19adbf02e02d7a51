"""expand_matmul_of_sum, adjust_matmul_order, combine_parallel_matmul."""

import numpy as np
import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.module import Module
from relaxlab.passes.adjust_matmul_order import adjust_matmul_order
from relaxlab.passes.combine_parallel_matmul import combine_parallel_matmul
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.passes.expand_matmul_of_sum import expand_matmul_of_sum
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import parse
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import (
    assert_same,
    check_pass,
    copy_value,
    random_arguments,
    remarks_of,
)
from tests.passes.graph_programs import Programs
from tests.passes.matmul_programs import matmul_program


def dataflow(params: dict[str, tuple], *bindings: str) -> Module:
    """A module with float32 parameters of these shapes; its main returns the variables in capital
    letters."""
    names = [b.partition(" = ")[0] for b in bindings]
    outputs = ", ".join(n for n in names if n.isupper())
    lines = [
        "@R.function",
        "def main(",
        *(f'    {name}: R.Tensor({shape}, "float32"),' for name, shape in params.items()),
        "):",
        "    with R.dataflow():",
        *(f"        {binding}" for binding in bindings),
        f"        R.output({outputs})",
        f"    return ({outputs})",
    ]
    return parse("\n".join(lines))


def test_low_rank_updates_are_not_multiplied_out():
    params = {"x": ("n", 64), "w": (64, 32), "a": (64, 2), "b": (2, 32)}
    before = dataflow(params, "d = R.matmul(a, b)", "s = R.add(w, d)", "Y = R.matmul(x, s)")
    expanded = dataflow(
        params, "d = R.matmul(a, b)", "p = R.matmul(x, w)", "q = R.matmul(x, d)", "Y = R.add(p, q)"
    )
    ordered = dataflow(
        params, "p = R.matmul(x, w)", "t = R.matmul(x, a)", "q = R.matmul(t, b)", "Y = R.add(p, q)"
    )
    check_pass(expand_matmul_of_sum, before, expanded)
    check_pass(adjust_matmul_order, expanded, ordered)


def test_the_weight_of_a_linear_is_reordered_too():
    params = {"x": ("n", 64), "a": (32, 2), "b": (2, 64)}
    before = dataflow(
        params, "w = R.matmul(a, b)", "Y = R.linear(x, w)", "v = R.matmul(a, b)",
        "vt = R.permute_dims(v)", "Z = R.matmul(x, vt)",
    )  # fmt: skip
    expected = dataflow(
        params, "w = R.linear(x, b)", "Y = R.linear(w, a)", "bt = R.permute_dims(b)",
        "p = R.matmul(x, bt)", "at = R.permute_dims(a)", "Z = R.matmul(p, at)",
    )  # fmt: skip
    check_pass(adjust_matmul_order, before, expected)


ORDER = """
@R.function
def main(
    x: R.Tensor(("n", 8), "float32"),
    a: R.Tensor((8, 100), "float32"),
    b: R.Tensor((100, 10), "float32"),
):
    R.func_attr({"tir_var_upper_bound": {"n": BOUND}})
    y = R.matmul(a, b)
    z = R.matmul(x, y)
    return z
"""


def order_program(bound):
    return normalize(parse(ORDER.replace("BOUND", str(bound))))


def test_the_order_may_depend_on_a_symbol():
    # Left first: 1800 n. Right first: 8000 + 80 n. They are equal at n = 4.65.
    free = order_program(1000000)
    assert adjust_matmul_order(free) is free
    ((_, reason, applied),) = remarks_of(adjust_matmul_order, free)
    assert not applied and "multiplications, the other order" in reason
    small = order_program(4)
    assert adjust_matmul_order(small) is not small
    large = order_program(5)
    assert adjust_matmul_order(large) is large


def test_sums_that_are_read_elsewhere_or_broadcast_stay():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            a: R.Tensor((4, 4), "float32"),
            b: R.Tensor((4,), "float32"),
        ):
            s = R.add(a, a)
            y = R.matmul(x, s)
            z = R.matmul(y, s)
            t = R.add(a, b)
            u = R.matmul(z, t)
            return u

    start = normalize(Before)
    assert remarks_of(expand_matmul_of_sum, start) == [
        ("main.y", "`s` is read elsewhere, too", False),
        ("main.z", "`s` is read elsewhere, too", False),
        ("main.u", "the sum broadcasts", False),
    ]


def test_parallel_products_become_one():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, "n", 4), "float32"),
            q: R.Tensor((4, 6), "float32"),
            k: R.Tensor((4, "h"), "float32"),
            b: R.Tensor((8, 4), "float32"),
            c: R.Tensor((2, 4), "float32"),
            bb: R.Tensor((8,), "float32"),
            cc: R.Tensor((2,), "float32"),
        ):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                e = R.exp(x)
                y = R.matmul(e, q)
                s = R.sin(y)
                z = R.matmul(e, k)
                u = R.linear(e, b, bb)
                v = R.linear(e, c, cc)
                other = R.linear(e, c)
                R.output(s, z, u, v, other)
            return (s, z, u, v, other)

    start = normalize(Before)
    after = combine_parallel_matmul(start)
    text = after.script()
    assert text.count("R.matmul") == 1 and text.count("R.linear") == 2
    assert not check_well_formed(after) and combine_parallel_matmul(after) is after
    agrees(start, after, 3)
    note = ("main.y_all", "`y`, `z` become one product with 6 + h columns", True)
    assert note in remarks_of(combine_parallel_matmul, start)


def test_transposed_weights_are_combined_in_plain_blocks_too():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            q: R.Tensor((6, 4), "float32"),
            k: R.Tensor((2, 4), "float32"),
        ):
            qt = R.permute_dims(q)
            y = R.matmul(x, qt)
            kt = R.permute_dims(k)
            z = R.matmul(x, kt)
            return (y, z)

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            q: R.Tensor((6, 4), "float32"),
            k: R.Tensor((2, 4), "float32"),
        ):
            qt = R.permute_dims(q)
            a = R.permute_dims(q)
            b = R.permute_dims(k)
            w = R.concat((a, b), axis=1)
            p = R.matmul(x, w)
            y = R.strided_slice(p, axes=[-1], begin=[0], end=[6], assume_inbound=True)
            kt = R.permute_dims(k)
            z = R.strided_slice(p, axes=[-1], begin=[6], end=[8], assume_inbound=True)
            return (y, z)

    check_pass(combine_parallel_matmul, Before, Expected)


def test_blocks_of_one_format_are_combined_as_they_are_stored():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 32), "float32"),
            qd: R.Tensor((6, 1), "float16"),
            qs: R.Tensor((6, 1, 32), "int8"),
            kd: R.Tensor((2, 1), "float16"),
            ks: R.Tensor((2, 1, 32), "int8"),
            vd: R.Tensor((2, 1), "float16"),
            vs: R.Tensor((2, 1, 16), "uint8"),
        ):
            with R.dataflow():
                q = R.decode_blocks((qd, qs), format="Q8_0")
                y = R.linear(x, q)
                k = R.decode_blocks((kd, ks), format="Q8_0")
                z = R.linear(x, k)
                v = R.decode_blocks((vd, vs), format="Q4_0")
                u = R.linear(x, v)
                R.output(y, z, u)
            return (y, z, u)

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 32), "float32"),
            qd: R.Tensor((6, 1), "float16"),
            qs: R.Tensor((6, 1, 32), "int8"),
            kd: R.Tensor((2, 1), "float16"),
            ks: R.Tensor((2, 1, 32), "int8"),
            vd: R.Tensor((2, 1), "float16"),
            vs: R.Tensor((2, 1, 16), "uint8"),
        ):
            with R.dataflow():
                q = R.decode_blocks((qd, qs), format="Q8_0")
                d = R.concat((qd, kd), axis=0)
                s = R.concat((qs, ks), axis=0)
                w = R.decode_blocks((d, s), format="Q8_0")
                p = R.linear(x, w)
                y = R.strided_slice(p, axes=[-1], begin=[0], end=[6], assume_inbound=True)
                k = R.decode_blocks((kd, ks), format="Q8_0")
                z = R.strided_slice(p, axes=[-1], begin=[6], end=[8], assume_inbound=True)
                v = R.decode_blocks((vd, vs), format="Q4_0")
                u = R.linear(x, v)
                R.output(y, z, u)
            return (y, z, u)

    check_pass(combine_parallel_matmul, Before, Expected)
    note = ("main.u", "no other product of `x` fits", False)
    assert note in remarks_of(combine_parallel_matmul, normalize(Before))


def test_products_not_combined_and_reasons():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            p: R.Tensor((4, 6), "float32"),
            w: R.Tensor((4, 6), "float32"),
        ):
            R.func_attr({"num_input": 2})
            with R.dataflow():
                y = R.matmul(x, p)
                z = R.matmul(x, w)
                wt = R.exp(w)
                u = R.matmul(x, wt)
                R.output(y, z, u)
            return (y, z, u)

    start = normalize(Before)
    assert combine_parallel_matmul(start) is start
    assert remarks_of(combine_parallel_matmul, start) == [
        ("main.y", "`p` is neither a constant nor a weight", False),
        ("main.u", "`wt` is neither a constant nor a weight", False),
        ("main.z", "no other product of `x` fits", False),
    ]


# --- Random programs --------------------------------------------------------------------------

ALL = (expand_matmul_of_sum, adjust_matmul_order, combine_parallel_matmul)


def agrees(before, after, seed):
    """Products are summed in another order: values are compared relative to their largest."""
    rng = np.random.default_rng(seed)
    for _ in range(2):
        args = random_arguments(before["main"], rng, (1, 2, 3, 5, 8))
        want = interpret(before, "main", *copy_value(args))
        got = interpret(after, "main", *args)
        for g, w in zip(got, want, strict=True):
            scale = max(1.0, float(np.abs(w).max(initial=0)))
            assert_same(g / scale, w / scale, f"the result (seed {seed})", 1e-4)


@pytest.mark.parametrize("seed", range(25))
def test_random_products_keep_their_meaning(seed):
    start = matmul_program(seed)
    mod = start
    for one in ALL:
        mod = one(mod)
        assert not check_well_formed(mod)
    agrees(start, mod, seed)


def test_random_products_are_rewritten():
    programs = [matmul_program(seed) for seed in range(40)]
    counts = [sum(one(p) is not p for p in programs) for one in ALL]
    assert min(counts) >= 2, counts


@pytest.mark.parametrize("seed", range(10))
def test_random_programs_keep_their_meaning(seed):
    start = normalize(Programs(seed).module(16))
    mod = dead_code_elimination(start)
    for one in ALL:
        mod = one(mod)
    assert not check_well_formed(mod)
    agrees(start, mod, seed)


@pytest.mark.parametrize("split", [False, True])
def test_stacks_of_matrices_are_combined(split: bool) -> None:
    @I.ir_module
    class Stacks:
        @R.function
        def main(
            x: R.Tensor((2, 5, 4), "float32"),
            a: R.Tensor((2, 4, 3), "float32"),
            b: R.Tensor((2, 4, 2), "float32"),
        ):
            with R.dataflow():
                y = R.matmul(x, a)
                z = R.matmul(x, b)
                R.output(y, z)
            return (y, z)

    before = normalize(Stacks)
    after = combine_parallel_matmul.with_options(split=split)(before)
    text = after.script()
    assert text.count("R.matmul") == 1 and text.count("R.split") == split
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype("float32") for s in ((2, 5, 4), (2, 4, 3), (2, 4, 2))]
    results = (interpret(m, "main", *given) for m in (after, before))
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
