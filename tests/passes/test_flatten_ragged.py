"""Attention of sequences of different lengths on the rows of all of them."""

import os

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.simt.simt import simt
from relaxlab.script.parser import parse
from relaxlab.testing.op_cases import ragged
from relaxlab.testing.op_check import CaseProgram, OpCase, compare, concrete_call
from relaxlab.testing.pass_check import check_module

LAYERS = """
@R.function
def main(q: R.Tensor(("n", 2, 16), "float32"), k: R.Tensor(("n", 2, 16), "float32"),
         s: R.Tensor(("b",), "int32")) -> R.Tensor(("n", 2, 16), "float32"):
    with R.dataflow():
        a = R.nn.ragged_attention(q, k, k, s)
        c = R.nn.ragged_attention(a, k, k, s, causal_mask="TopLeft")
        d = R.nn.ragged_attention(c, k, k, s)
        R.output(d)
    return d
"""


ONE_LAYER = """
@R.function
def main(q: R.Tensor(("n", 2, 16), "float32"), k: R.Tensor(("n", 2, 16), "float32"),
         v: R.Tensor(("n", 2, 16), "float32"), s: R.Tensor(("b",), "int32")):
    with R.dataflow():
        a = R.nn.ragged_attention(q, k, v, sMASK)
        R.output(a)
    return a
"""
FOR_GPU = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))
SEED = int(os.environ.get("RELAXLAB_SEED", "1"))


@pytest.fixture(scope="module")
def layers() -> rl.Executable:
    return rl.compile(parse(LAYERS))


def calls(mod: Module, name: str) -> int:
    nodes = (n for f in mod.graph_functions().values() for n in walk(f))
    return sum(isinstance(n, graph.Call) and n.op == graph.Op(name) for n in nodes)


def test_rows_see_ranges_of_keys() -> None:
    mod = normalize(parse(LAYERS))
    flat = flatten_ragged(mod)
    assert calls(flat, "nn.ragged_attention") == 0 and calls(flat, "nn.attention_within") == 3
    check_module(flatten_ragged, mod, flat)


def test_layers_share_what_depends_on_the_lengths() -> None:
    result = rl.trace(parse(LAYERS)).result
    kernels = [
        n.op.name for f in result.graph_functions().values() for n in walk(f)
        if isinstance(n, graph.Call) and isinstance(n.op, graph.GlobalVar)
    ]  # fmt: skip
    assert sum(k.startswith("key_ranges") for k in kernels) == 2  # with and without a mask
    assert sum(k.startswith("cumsum") for k in kernels) == 1


def test_attention_is_scheduled_as_attention() -> None:
    remarks = [r for p in rl.trace(parse(LAYERS)).passes for r in p.remarks
               if p.name == "schedule_kernels" and r.applied]  # fmt: skip
    by_kernel = {r.subject: r.reason for r in remarks}
    assert by_kernel["attention_within"] == "scheduled by the rule attention"


@pytest.mark.parametrize("case", ragged(), ids=str)
def test_against_the_reference(case: OpCase) -> None:
    mod = Module.of({"main": CaseProgram(case, case.sizes[0], symbolic=True).function()})
    exe = rl.compile(mod)
    for env in case.sizes:
        arrays, (expected,) = concrete_call(case, env, seed=0)
        got = exe["main"](*arrays, tuple(env.values()))
        compare(np.asarray(got), expected, f"{case} with {env}")


LENGTHS = ([3, 1, 7], [0, 0, 5], [64, 100, 0, 3, 17], [1] * 20, [0], [130], [9] * 7, [40, 1])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_against_one_sequence_at_a_time(layers: rl.Executable, lengths: list[int]) -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((sum(lengths), 2, 16)).astype("float32") for _ in range(2))
    got = np.asarray(layers["main"](q, k, np.array(lengths, "int32")))
    expected, start = q.astype("float64"), 0
    for n in lengths:
        part = slice(start, start + n)
        for causal in (False, True, False):
            scores = np.einsum("ihd,jhd->hij", expected[part], k[part]) / 4
            if causal:
                scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
            weights /= weights.sum(-1, keepdims=True)
            expected[part] = np.einsum("hij,jhd->ihd", weights, k[part])
        start += n
    assert np.allclose(got, expected, atol=1e-5)


PARTS = """
@R.function
def main(x: R.Tensor(("n", 12, 20), "DTYPE"), s: R.Tensor(("b",), "int32")):
    with R.dataflow():
        q, k, v = PARTS
        y = R.nn.ragged_attention(q, k, v, sMASK)
        R.output(y)
    return y
"""
ONE = "x, x, x"
MERGED, SHARED = (
    ", ".join(f"R.split(x, {at}, axis=1)[{n}]" for n in range(3)) for at in ("3", "[8, 10]")
)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("parts", [ONE, MERGED, SHARED], ids=["one", "merged", "shared"])
def test_queries_keys_and_values_of_one_tensor(
    parts: str, dtype: str, rng: np.random.Generator
) -> None:
    """Random lengths; heads that share keys, and a mask."""
    mask = str(rng.choice(["", ", causal_mask='BottomRight'"]))
    text = PARTS.replace("PARTS", parts).replace("DTYPE", dtype).replace("MASK", mask)
    mod = parse(text)
    exe = rl.compile(mod, threads=int(rng.integers(1, 3)))
    for _ in range(4):
        lengths = rng.choice([0, 1, 3, 4, 15, 16, 17, 40], int(rng.integers(1, 7))).astype("int32")
        print(mask, lengths)
        x = rng.standard_normal((int(lengths.sum()), 12, 20)).astype(dtype)
        got, want = exe["main"](x, lengths), rl.interpret(mod, "main", x, lengths)
        tolerance = 4e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(got, want, tolerance, tolerance)


def test_chunks_of_a_long_sequence(rng: np.random.Generator) -> None:
    """Several chunks of positions, and what is left of them, among short sequences."""
    mod = parse(ONE_LAYER.replace("MASK", ""))
    lengths = np.array([3, int(rng.integers(500, 600)), 1, 0, 20], "int32")
    print(lengths)
    q, k, v = (rng.standard_normal((int(lengths.sum()), 2, 16), "float32") for _ in range(3))
    got = rl.compile(mod)["main"](q, k, v, lengths)
    np.testing.assert_allclose(got, rl.interpret(mod, "main", q, k, v, lengths), 1e-5, 1e-5)


BAD = (([3, 1, 8], "ends with 12, not n = 11"), ([3, -1, 9], r"\[2\] is 2, less than"),
       ([3, 1], "ends with 4, not n = 11"), ([], "ends with 0, not n = 11"))  # fmt: skip


@pytest.mark.parametrize(("lengths", "message"), BAD, ids=lambda x: str(x))
def test_lengths_that_are_not_those_of_the_rows(
    layers: rl.Executable, lengths: list[int], message: str
) -> None:
    q = np.zeros((11, 2, 16), "float32")
    with pytest.raises(rl.CheckFailed, match=message):
        layers["main"](q, q, np.array(lengths, "int32"))


MASKS = ["", ", causal_mask='TopLeft'", ", causal_mask='BottomRight', window_size=3"]


@pytest.mark.parametrize("mask", MASKS, ids=["all", "causal", "window"])
def test_what_is_no_number_stays_in_its_sequence(mask: str) -> None:
    """NaN and infinities of one sequence reach no other one, tiles that hold rows of both
    included, nor rows of its own that do not see them."""
    mod = parse(ONE_LAYER.replace("MASK", mask))
    print(f"RELAXLAB_SEED={SEED}")
    exe = rl.compile(mod)
    lengths = np.array([5, 3, 0, 40, 1, 9], "int32")
    first = int(lengths[:3].sum())
    rng = np.random.default_rng(SEED)
    q, k, v = (rng.standard_normal((int(lengths.sum()), 2, 16), "float32") for _ in range(3))
    want = exe["main"](q, k, v, lengths)
    for bad in (np.nan, np.inf, -np.inf):
        dirty = [x.copy() for x in (q, k, v)]
        for x in dirty:
            x[first + 20 : first + 40] = bad
        clean = np.r_[0:first, first + 40 : len(q)]
        if "causal" in mask:
            clean = np.r_[clean, first : first + 20]
        got = exe["main"](*dirty, lengths)
        np.testing.assert_array_equal(got[clean], want[clean], err_msg=str(bad))
        of_numpy = rl.interpret(mod, "main", *dirty, lengths)
        np.testing.assert_allclose(of_numpy[clean], want[clean], 1e-5, 1e-5)
        for rows in (got, of_numpy):
            assert not np.isfinite(rows[first + 30 : first + 40]).any()


VAR_LEN = """
@R.function
def main(q: R.Tensor((1, "n", 2, 16), "float32"), k: R.Tensor((1, "n", 2, 16), "float32"),
         v: R.Tensor((1, "n", 2, 16), "float32"), o: R.Tensor(("b",), "int32")):
    most = R.const(512, "int32")
    return R.nn.attention_var_len(q, k, v, o, most)
"""
WITHIN = """
@R.function
def main(q: R.Tensor((1, "n", 2, 16), "float32"), k: R.Tensor((1, "n", 2, 16), "float32"),
         v: R.Tensor((1, "n", 2, 16), "float32"), o: R.Tensor(("b",), "int32"),
         before: R.Tensor(("n",), "int64"), last: R.Tensor(("n",), "int64")):
    return R.nn.attention_within(q, k, v, before, last)
"""


@pytest.mark.parametrize("text", [VAR_LEN, WITHIN], ids=["var_len", "within"])
def test_other_sequences_keep_their_bits(text: str) -> None:
    """Whatever one sequence holds, results of all others are the same to the last bit."""
    print(f"RELAXLAB_SEED={SEED}")
    exe, lengths = rl.compile(parse(text)), np.array([3, 0, 21, 1, 9])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ranges = [np.repeat(starts[:-1] - 1, lengths), np.repeat(starts[1:] - 1, lengths)]
    others = [starts.astype("int32"), *(ranges if text is WITHIN else ())]
    rng = np.random.default_rng(SEED)
    rows = [rng.standard_normal((1, 34, 2, 16), "float32") for _ in range(3)]
    want = exe["main"](*rows, *others)
    for at in (0, 2, 3):
        for bad in (np.nan, np.inf, -np.inf):
            dirty = [x.copy() for x in rows]
            mine = np.s_[starts[at] : starts[at + 1]]
            for x in dirty:
                x[:, mine] = bad
            got = exe["main"](*dirty, *others)
            kept = np.delete(np.arange(34), mine)
            np.testing.assert_array_equal(got[:, kept], want[:, kept], err_msg=f"{at}: {bad}")
            assert not np.isfinite(got[:, mine]).any()


def test_what_is_no_number_stays_in_its_sequence_on_a_gpu() -> None:
    mod = parse(ONE_LAYER.replace("MASK", ""))
    lengths = np.array([5, 3, 9], "int32")
    rng = np.random.default_rng(SEED)
    q, k, v = (rng.standard_normal((17, 2, 16), "float32") for _ in range(3))
    scheduled = FOR_GPU.run(mod).result
    want = rl.interpret(mod, "main", q, k, v, lengths)
    v[5:8] = np.nan
    got = simt(scheduled, "main", q, k, v, lengths).check().result
    clean = np.r_[0:5, 8:17]
    np.testing.assert_allclose(got[clean], want[clean], 1e-4, 1e-4)
    assert np.isnan(got[5:8]).all()
