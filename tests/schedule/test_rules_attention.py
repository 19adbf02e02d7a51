"""Attention over a cache, scheduled and compiled, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir import expr, loops
from relaxlab.ir.loops import BlockRealize, For, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.nn import loop_functions
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.schedule import Schedule
from relaxlab.schedule.rules import attention
from relaxlab.schedule.rules.context import Context

HEADS, KV_HEADS, WIDTH, POSITIONS = 6, 2, 32, 160
SHAPE = (KV_HEADS, WIDTH)
PLAIN = nn.Scores(WIDTH**-0.5)
WIDE = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64-v4", frozenset({"avx512f", "avx512vl"}))


class Attend(nn.Module):
    def __init__(self, dtype: str, scores: nn.Scores) -> None:
        self.dtype, self.scores = dtype, scores

    def main(self, q, past, keys, values):
        func = loop_functions.cached_attention(HEADS, 0, HEADS, SHAPE, self.dtype, self.scores)
        return q.builder.call_loops("attention", func, [q, keys, values], past)[0]


def reference(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, past: int, how: nn.Scores
) -> np.ndarray:
    """keys, values (kv_heads, positions, width); q (s, heads, width)."""
    length = q.shape[0]
    distance = past + np.arange(length)[:, None] - np.arange(POSITIONS)
    seen = (distance >= 0) & (distance < (how.window or POSITIONS))
    result = np.empty(q.shape)
    for h in range(HEADS):
        k, v = (x[h // (HEADS // KV_HEADS)].astype(np.float64) for x in (keys, values))
        score = q[:, h] @ k.T * how.scale
        if how.softcap is not None:
            score = how.softcap * np.tanh(score / how.softcap)
        score = np.where(seen, score, -np.inf)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        result[:, h] = weight @ v / weight.sum(axis=1, keepdims=True)
    return result


def exported(dtype: str, scores: nn.Scores) -> Module:
    spec = nn.spec.Tensor
    shapes = loop_functions.cache_shapes(SHAPE, POSITIONS)
    arguments = {
        "q": spec(("b", "s", HEADS, WIDTH)),
        "past": nn.spec.Shape(("p",)),
        "keys": spec(("b", *shapes[0]), dtype),
        "values": spec(("b", *shapes[1]), dtype),
    }
    return Attend(dtype, scores).export({"main": arguments})[0]


def blocked(keys: np.ndarray) -> np.ndarray:
    """Keys (b, kv_heads, positions, width) as the cache has them."""
    return keys.reshape(len(keys), KV_HEADS, -1, 16, WIDTH).swapaxes(3, 4).copy()


@pytest.mark.parametrize(
    ("dtype", "scores"),
    [
        ("float32", PLAIN),
        ("float16", PLAIN),
        ("float32", nn.Scores(0.3, window=1)),
        ("float32", nn.Scores(0.3, softcap=0.7, window=40)),
    ],
)
def test_any_number_of_positions_after_any_other(dtype, scores):
    rng = np.random.default_rng(11)
    exe = rl.compile(exported(dtype, scores), threads=2, use_cache=False)
    keys, values = (
        rng.normal(size=(2, KV_HEADS, POSITIONS, WIDTH)).astype(dtype) for _ in range(2)
    )
    for past, length in ((0, 1), (0, 8), (0, 33), (0, 160), (5, 1), (31, 2), (32, 9), (90, 70)):
        q = rng.normal(size=(2, length, HEADS, WIDTH)).astype(np.float32)
        got = np.asarray(exe["main"](q, (past,), blocked(keys), values))
        for b in range(2):
            want = reference(q[b], keys[b], values[b], past, scores)
            assert np.abs(got[b] - want).max() < 1e-5, (past, length)


def test_only_masked_steps_are_skipped():
    func = loop_functions.cached_attention(HEADS, 0, HEADS, SHAPE, "float32", PLAIN)
    assert chunks_depend_on_the_tile(func)
    # A mask that lets earlier rows see more: no chunk is masked for all rows of a tile.
    assert not chunks_depend_on_the_tile(rewrite(func, _turned))


def chunks_depend_on_the_tile(func: PrimFunc) -> bool:
    scheduled = attention.apply(Schedule(func), Context(WIDE))
    assert isinstance(scheduled, Schedule)
    chunks = [
        n for n in walk(scheduled.func.body)
        if isinstance(n, For) and isinstance(n.body, BlockRealize)
        and n.body.block.name == "attention_chunk"
    ]  # fmt: skip
    assert len(chunks) == 2  # for one row and for several
    return any("tile" in v.name for v in symbols_in(chunks[1].extent))


@pytest.mark.parametrize("window", [1, 24])
def test_steps_before_the_window_are_left_out(window):
    """Keys and values of positions that a window hides from a whole tile are not read at all."""
    exe = rl.compile(exported("float32", nn.Scores(0.3, window=window)), threads=1, use_cache=False)
    rng = np.random.default_rng(5)
    keys, values = (
        rng.normal(size=(1, KV_HEADS, POSITIONS, WIDTH)).astype("float32") for _ in range(2)
    )
    past = POSITIONS - 9
    for length in (1, 8):
        first = (past - window + 1) // 64 * 64  # a step is four vectors of up to 16 lanes
        assert first > 0
        hidden_keys, hidden_values = keys.copy(), values.copy()
        hidden_keys[:, :, :first], hidden_values[:, :, :first] = np.nan, np.nan
        q = rng.normal(size=(1, length, HEADS, WIDTH)).astype("float32")
        got = exe["main"](q, (past,), blocked(hidden_keys), hidden_values)
        want = reference(q[0], keys[0], values[0], past, nn.Scores(0.3, window=window))
        assert np.abs(got[0] - want).max() < 1e-5


def _turned(n: Node) -> Node | None:
    match n:
        case expr.LE(position, expr.Add(past, row)):
            return expr.LE(position, past - row)
        case _:
            return None


OPERATOR = """
@R.function
def main(q: R.Tensor(("b", "s", 6, 32), "float32"), k: R.Tensor(("b", "t", 2, 32), "float32"),
         v: R.Tensor(("b", "t", 2, 24), "float32")):
    R.func_attr({"tir_var_upper_bound": {"s": 80, "t": 80}})
    with R.dataflow():
        y = R.nn.attention(q, k, v, causal_mask=MASK)
        R.output(y)
    return y
"""


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("mask", ["TopLeft", "BottomRight", None])
def test_keys_between_heads_are_packed(
    mask: str | None, apart: bool, rng: np.random.Generator
) -> None:
    """All at once, or those of one head, which three heads of queries share, after the other."""
    mod = rl.parse(OPERATOR.replace("MASK", repr(mask)))
    chosen = {"attention": {"any s / heads_apart": apart}}
    trace = cpu_pipeline().with_options("schedule_kernels", decisions=chosen).run(mod)
    assert "scheduled by the rule attention" in [r.reason for p in trace.passes for r in p.remarks]
    (func,) = trace.result.loop_functions().values()
    assert [b.ndim for b in func.buffers] == [4, 4, 4, 4, 5]
    assert str(func.buffers[-1].shape[1]) == ("1" if apart else "2")
    exe = rl.compile(mod, decisions=chosen, threads=2)
    for b, s, t in ((1, 1, 1), (2, 3, 17), (1, 8, 16), (2, 9, 33), (1, 33, 80), (3, 80, 80)):
        q, k, v = (
            rng.standard_normal(n).astype("float32")
            for n in ((b, s, 6, 32), (b, t, 2, 32), (b, t, 2, 24))
        )
        seen = np.ones((s, t), bool)
        if mask is not None:
            seen = np.tril(seen, 0 if mask == "TopLeft" else t - s)
        wide_k, wide_v = (np.repeat(x, 3, axis=2).astype("float64") for x in (k, v))
        score = np.einsum("bihd,bjhd->bhij", q, wide_k) * 32**-0.5
        weight = np.exp(np.where(seen, score - score.max(axis=-1, keepdims=True), -np.inf))
        weight /= weight.sum(axis=-1, keepdims=True)
        want = np.einsum("bhij,bjhd->bihd", weight, wide_v)
        np.testing.assert_allclose(exe["main"](q, k, v), want, rtol=1e-4, atol=1e-5)


def test_a_single_position(rng: np.random.Generator) -> None:
    """Its weight is 1 for whoever sees it."""
    exe = rl.compile(rl.parse("""
@R.function
def main(q: R.Tensor(("b", "n", 2, 20), "float32"), k: R.Tensor(("b", 1, 2, 20), "float32"),
         v: R.Tensor(("b", 1, 2, 18), "float32")):
    y = R.nn.attention(q, k, v, causal_mask="TopLeft")
    return y
"""), checks="all")
    for n in (0, 1, 9):
        q, k, v = (
            rng.standard_normal(s).astype("float32")
            for s in ((3, n, 2, 20), (3, 1, 2, 20), (3, 1, 2, 18))
        )
        np.testing.assert_array_equal(exe["main"](q, k, v), np.repeat(v, n, axis=1))


@pytest.mark.parametrize("mask", ["TopLeft", None])
def test_heads_of_any_width(mask: str | None, rng: np.random.Generator) -> None:
    """Vectors of features end where a head does, and widths beyond the rule's have a version."""
    mod = rl.parse(f"""
@R.function
def main(q: R.Tensor(("b", "n", "h", "d"), "float32"), k: R.Tensor(("b", "m", "h", "d"), "float32"),
         v: R.Tensor(("b", "m", "h", "e"), "float32")):
    y = R.nn.attention(q, k, v, causal_mask={mask!r})
    return y
""")
    reasons = [r.reason for p in rl.trace(mod).passes for r in p.remarks]
    assert "scheduled by the rule attention" in reasons
    exe = rl.compile(mod, checks="all")
    wide = attention.MOST_FEATURES
    for n, m, d, e in (
        (1, 1, 1, 1), (3, 17, 15, 33), (9, 40, 33, 0), (1, 9, 16, 31), (8, 16, 17, 32),
        (3, 5, 8, wide), (2, 3, wide + 1, 5), (2, 3, 7, wide + 1), (0, 3, 4, 4),
    ):  # fmt: skip
        q, k, v = (
            rng.standard_normal(s).astype("float32")
            for s in ((2, n, 3, d), (2, m, 3, d), (2, m, 3, e))
        )
        seen = np.tril(np.ones((n, m), bool)) if mask else np.ones((n, m), bool)
        score = np.einsum("bihd,bjhd->bhij", q.astype("float64"), k) * d**-0.5
        weight = np.exp(np.where(seen, score - score.max(axis=-1, keepdims=True), -np.inf))
        weight /= weight.sum(axis=-1, keepdims=True)
        want = np.einsum("bhij,bjhe->bihe", weight, v)
        np.testing.assert_allclose(exe["main"](q, k, v), want, rtol=1e-4, atol=1e-5)


def test_one_position_is_not_a_tile() -> None:
    """The kernel is made of whole vectors of features, and copies no keys."""
    text = FREE.format(dtype="float32", heads=6, m="n", mask="None")
    (func,) = rl.trace(rl.parse(text)).result.loop_functions().values()
    branches = [n for n in walk(func.body) if isinstance(n, loops.IfThenElse)]
    (alone,) = (b.then_case for b in branches if isinstance(b.condition, expr.EQ))
    used = {n.buffer.name for n in walk(alone) if isinstance(n, loops.BufferLoad)}
    assert {"A", "B", "C"} <= used and not any("global" in name for name in used)
    assert not any(isinstance(n, loops.For) and n.kind == "unroll" for n in walk(alone))


FREE = """
@R.function
def main(q: R.Tensor(("b", "n", 6, 32), "{dtype}"),
         k: R.Tensor(("b", "{m}", {heads}, 32), "{dtype}"),
         v: R.Tensor(("b", "{m}", {heads}, 32), "{dtype}")):
    y = R.nn.attention(q, k, v, causal_mask={mask})
    return y
"""


LENGTHS = ((1, 1, 0), (2, 7, 0), (1, 8, 15), (1, 17, 8), (1, 33, 31), (0, 3, 0), (2, 0, 0))
"""Batch, rows, and how many positions there are more."""


@pytest.mark.parametrize(
    ("mask", "heads", "m", "dtype"),
    [
        ("TopLeft", 6, "n", "float32"),
        (None, 2, "m", "float32"),
        ("BottomRight", 1, "n + p", "float32"),
        ("BottomRight", 3, "m", "float16"),
    ],
)
def test_lengths_that_nothing_bounds(mask, heads, m, dtype, rng):
    text = FREE.format(dtype=dtype, heads=heads, m=m, mask=repr(mask))
    if m == "n + p":
        text = text.replace("def main(", 'def main(past: R.Shape(["p"]), ')
    mod = rl.parse(text)
    remarks = [w for w in rl.trace(mod).find("schedule_kernels").remarks if w.applied]
    assert any("by the rule attention" in w.reason for w in remarks)
    exe = rl.compile(mod, threads=2, use_cache=False)
    for b, n, past in LENGTHS:
        length = n if m == "n" else n + past
        q = rng.standard_normal((b, n, 6, 32)).astype(dtype)
        k, v = (rng.standard_normal((b, length, heads, 32)).astype(dtype) for _ in "kv")
        args = [(past,), q, k, v] if m == "n + p" else [q, k, v]
        got, want = exe["main"](*args), rl.interpret(mod, "main", *args)
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(np.asarray(got), want, tolerance, tolerance)


CACHED = """
@R.function
def main(q: R.Tensor((1, "s", 6, 32), "float32"), k: R.Tensor((1, "c", 2, 32), "float16"),
         v: R.Tensor((1, "c", 2, 32), "float16"), past: R.Shape(["p"])):
    with R.dataflow():
        keys = R.strided_slice(k, axes=[1], begin=[0], end=[p + s], assume_inbound=True)
        values = R.strided_slice(v, axes=[1], begin=[0], end=[p + s], assume_inbound=True)
        y = R.nn.attention(q, R.astype(keys, "float32"), R.astype(values, "float32"),
                           causal_mask="BottomRight")
        R.output(y)
    return y
"""


def test_slices_of_a_cache_are_read_where_they_are(rng: np.random.Generator) -> None:
    mod = rl.parse(CACHED)
    (func,) = rl.trace(mod).result.loop_functions().values()
    # One row reads the cache; more rows read keys that are packed as they are cut out.
    *_, packed = func.buffers
    lanes = rl.Target.host().lanes("float32")
    assert str(packed.shape[2]) == f"(p + s + {lanes - 1}) // {lanes}"
    exe = rl.compile(mod)
    for c, s, p in ((1, 1, 0), (40, 1, 16), (40, 1, 39), (40, 9, 31), (700, 20, 650)):
        q = rng.standard_normal((1, s, 6, 32)).astype(np.float32)
        k, v = (rng.standard_normal((1, c, 2, 32)).astype(np.float16) for _ in range(2))
        k[:, p + s :] = v[:, p + s :] = np.nan
        wide_k, wide_v = (np.repeat(x[:, : p + s], 3, axis=2).astype("float64") for x in (k, v))
        score = np.einsum("bihd,bjhd->bhij", q, wide_k) * 32**-0.5
        seen = np.tril(np.ones((s, p + s), bool), p)
        weight = np.exp(np.where(seen, score - score.max(axis=-1, keepdims=True), -np.inf))
        weight /= weight.sum(axis=-1, keepdims=True)
        want = np.einsum("bhij,bjhd->bihd", weight, wide_v)
        np.testing.assert_allclose(exe["main"](q, k, v, (p,)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "shared", "parts"),
    [(9, 3, 3, 4), (8, 2, 2, 2), (6, 2, 1, 2), (6, 1, 2, 4), (8, 8, 1, 1)],
)
def test_heads_of_one_query_share_keys(
    heads: int, kv_heads: int, shared: int, parts: int, rng: np.random.Generator
) -> None:
    """A tile has heads that read the same keys, as many as leave three tiles; of fewer than eight
    tiles, threads share parts."""
    mod = rl.parse(f"""
@R.function
def main(q: R.Tensor((1, 1, {heads}, 32), "float32"),
         k: R.Tensor((1, "t", {kv_heads}, 32), "float32"),
         v: R.Tensor((1, "t", {kv_heads}, 24), "float32")):
    y = R.nn.attention(q, k, v, causal_mask="BottomRight")
    return y
""")
    (func,) = rl.trace(mod).result.loop_functions().values()
    (tiles,) = (n for n in walk(func.body) if isinstance(n, For) and n.kind == "parallel")
    assert tiles.extent == expr.const(heads // shared * parts)
    exe = rl.compile(mod, threads=2)
    for t in (0, 1, 31, 32, 40, 600):
        q, k, v = (
            rng.standard_normal(s).astype("float32")
            for s in ((1, 1, heads, 32), (1, t, kv_heads, 32), (1, t, kv_heads, 24))
        )
        want = rl.interpret(mod, "main", q, k, v)
        np.testing.assert_allclose(exe["main"](q, k, v), want, rtol=1e-4, atol=1e-5)


def test_parts_of_the_positions_of_one_query(rng: np.random.Generator) -> None:
    """Of any number of positions, also fewer than parts and none that the mask lets be seen; the
    results are the same on any number of threads, and for other parts but for rounding."""
    mod = rl.parse("""
@R.function
def main(q: R.Tensor((1, 1, 6, 32), "float32"), k: R.Tensor((1, "t", 2, 32), "float32"),
         v: R.Tensor((1, "t", 2, 20), "float32"), mask: R.Tensor((1, 1, 1, "t"), "float32")):
    y = R.nn.attention(q, k, v, mask)
    return y
""")
    (name,) = rl.trace(mod).result.loop_functions()
    chosen = {parts: {name: {"position_parts": parts}} for parts in (1, 2, 8)}
    exes = [rl.compile(mod, decisions=d, threads=2) for d in chosen.values()]
    debug = rl.compile(mod, decisions=chosen[8], threads=1, checks="all")
    alone = rl.compile(mod, decisions=chosen[8], threads=1)
    for t in (0, 1, 3, 64, 65, 700):
        q, k, v = (
            rng.standard_normal(s).astype("float32")
            for s in ((1, 1, 6, 32), (1, t, 2, 32), (1, t, 2, 20))
        )
        some = np.where(rng.random((1, 1, 1, t)) < 0.3, -np.inf, 0).astype("float32")
        for mask in (some, np.full_like(some, -np.inf)):
            want = rl.interpret(mod, "main", q, k, v, mask)
            for exe in (*exes, debug):
                np.testing.assert_allclose(exe["main"](q, k, v, mask), want, rtol=1e-4, atol=1e-5)
            same = exes[-1]["main"](q, k, v, mask)
            np.testing.assert_array_equal(alone["main"](q, k, v, mask), same)


def test_queries_keys_and_values_of_one_permuted_tensor(rng: np.random.Generator) -> None:
    """The block that packs the keys makes what is read as queries and values, too."""
    exe = rl.compile(rl.parse("""
@R.function
def main(x: R.Tensor(("b", "s", 4), "float32")):
    b, s = T.int64(), T.int64()
    with R.dataflow():
        q = R.permute_dims(R.reshape(x, (b, 1, s, 4)), axes=[0, 2, 1, 3])
        z = R.nn.attention(q, q, q, causal_mask="TopLeft")
        R.output(z)
    return z
"""), checks="all")["main"]  # fmt: skip
    for b, s in ((3, 5), (1, 1), (2, 40)):
        x = rng.standard_normal((b, s, 4), np.float32)
        scores = np.where(np.tri(s, dtype=bool), x @ x.swapaxes(1, 2) / 2, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ x
        np.testing.assert_allclose(exe(x)[:, :, 0], expected, 1e-4, 1e-5)
