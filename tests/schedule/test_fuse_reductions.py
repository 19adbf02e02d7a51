"""Cascades of reductions in one pass: the transformed function, and refusals."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import expr, loops
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.loops import Block, Buffer, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.types import TensorType
from relaxlab.nn import loop_functions
from relaxlab.ops import scalar, te
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, apply_trace
from relaxlab.schedule.cascade import axes_of, find_cascade
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import KEEP_ORDER
from relaxlab.schedule.rules.attention import find_attention
from tests.schedule.programs import softmax

PYTHON = pathlib.Path(__file__).parents[2] / ".venv-reference/bin/python"

PROGRAM = """
@R.function
def main(q: R.Tensor(("b", {n}, 4, 5), "{dtype}"), k: R.Tensor(("b", {m}, {heads}, 5), "{dtype}"),
         v: R.Tensor(("b", {m}, {heads}, 3), "{dtype}"){bias}):
    y = R.nn.attention{call}
    return y
"""
BIAS = ', bias: R.Tensor(("b", 4, {n}, {m}), "{dtype}")'


def program(n="'n'", m="'m'", heads=2, dtype="float32", bias=False, **options) -> Module:
    """Attention of four heads by the operator, up to the schedule."""
    given = "".join(f", {k}={v!r}" for k, v in options.items())
    fields = {"n": n, "m": m, "heads": heads, "dtype": dtype}
    call = f"_bias(q, k, v, bias{given})" if bias else f"(q, k, v{given})"
    text = PROGRAM.format(**fields, bias=BIAS.format(**fields) if bias else "", call=call)
    return rl.trace(rl.parse(text)).find("schedule_kernels").before


def kernel(mod: Module) -> tuple[str, PrimFunc]:
    ((name, func),) = mod.loop_functions().items()
    return name, func


def fused(
    sch: Schedule, rows: int, chunk: int, multiple: int = 1, width: int = 1, *more: int
) -> None:
    found = find_attention(sch.func)
    found.fused(sch, rows, chunk, multiple, width, *more)


def tiled(mod: Module, rows: int, chunk: int, *sizes: int) -> Module:
    name, func = kernel(mod)
    sch = Schedule(func)
    fused(sch, rows, chunk, *sizes)
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    new = mod.with_functions({name: sch.func})
    assert not check_well_formed(new)
    return new


def changed(mod: Module, fn: Callable[[Node], Node | None]) -> Module:
    name, func = kernel(mod)
    return mod.with_functions({name: rewrite(func, fn)})


def arguments(rng, mod: Module, b: int, n: int, m: int) -> list[np.ndarray]:
    sizes = {"b": b, "n": n, "m": m}
    ((_, main),) = mod.graph_functions().items()
    found: list[np.ndarray] = []
    for p in main.params:
        assert isinstance(p.ty, TensorType) and p.ty.shape is not None
        shape = [sizes.get(str(d)) or int(str(d)) for d in p.ty.shape]
        found.append(rng.normal(size=shape).astype(p.ty.dtype))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal_mask": "TopLeft", "heads": 1},
        {"causal_mask": "BottomRight", "heads": 4},
        {"causal_mask": "BottomRight", "window_size": 4},
        {"bias": True, "dtype": "float64"},
        {"bias": True, "causal_mask": "TopLeft"},
        {"n": 7, "m": 19, "dtype": "float16"},
        {"m": "'n'", "causal_mask": "TopLeft"},
    ],
    ids=str,
)
def test_tiles_agree_with_the_program(options, rng):
    mod = program(**options)
    rows, multiple, chunks, features = (int(n) for n in rng.integers(1, 5, 4))
    parts, workers = (int(n) for n in rng.choice([(1, 1), (2, 1), (1, 3), (3, 2)]))
    new = tiled(mod, rows, multiple * chunks, multiple, features, parts, workers)
    for _ in range(3):
        n, m = (int(x) for x in rng.integers(1, 14, 2))
        n, m = options.get("n", n), n if options.get("m") == "'n'" else options.get("m", m)
        print(rows, multiple, chunks, features, parts, workers, n, m)
        args = arguments(rng, mod, int(rng.integers(1, 3)), n, m)
        got, want = (rl.interpret(p, "main", *args) for p in (new, mod))
        tolerance = 2e-3 if want.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got, want, tolerance, tolerance)


SEQUENCES = """
@R.function
def main(q: R.Tensor(("n", 4, 5), "float32"), k: R.Tensor(("n", 2, 5), "float32"),
         v: R.Tensor(("n", 2, 3), "float32"), s: R.Tensor(("b",), "int32")):
    y = R.nn.ragged_attention(q, k, v, sMASK)
    return y
"""


@pytest.mark.parametrize(
    "mask", ["", ", causal_mask='TopLeft'", ", causal_mask='BottomRight', window_size=3"]
)
def test_tiles_begin_where_sequences_do(mask, rng):
    mod = rl.trace(rl.parse(SEQUENCES.replace("MASK", mask))).find("schedule_kernels").before
    ((name, func),) = [x for x in mod.loop_functions().items() if "attention" in x[0]]
    rows, multiple, chunks, features = (int(n) for n in rng.integers(1, 5, 4))
    workers = int(rng.choice([1, 1, 3]))
    sch = Schedule(func)
    found = find_attention(sch.func)
    sizes = rows, multiple * chunks, multiple, features, 1, workers
    tile = found.fused(sch, *sizes, cuts="starts")
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    *_, pieces, tiles = sch.get_loops(tile)
    assert any(isinstance(n, loops.BufferLoad) for n in walk(sch.get(tiles).extent))
    sch.balance(pieces, tiles)  # no two tiles write one row
    new = mod.with_functions({name: sch.func})
    assert not check_well_formed(new)
    for _ in range(3):
        lengths = rng.choice([0, 1, 2, 5, 9], int(rng.integers(1, 6))).astype("int32")
        print(sizes, lengths)
        shapes = ((4, 5), (2, 5), (2, 3))
        args = [rng.normal(size=(lengths.sum(), *x)).astype("float32") for x in shapes]
        got, want = (rl.interpret(p, "main", *args, lengths) for p in (new, mod))
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["before", "last", "q", "nothing"])
def test_rows_are_cut_where_all_of_them_are_in_a_piece(name):
    mod = rl.trace(rl.parse(SEQUENCES.replace("MASK", ""))).find("schedule_kernels").before
    (func,) = [f for n, f in mod.loop_functions().items() if "attention" in n]
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=f"{name} is an index function that rises from 0 to n"):
        find_attention(sch.func).fused(sch, 4, 4, 1, 1, cuts=name)


def test_bounds_of_parts_depend_on_their_tile():
    """The keys of a part end where its tile's window does: no index leaves the keys, although it
    would if tile and part were chosen apart."""
    mod = program(causal_mask="BottomRight", window_size=4)
    tiled(mod, 2, 8, 4, 3, 2, 1)  # which checks that it is well formed


def test_keys_in_blocks_capped_scores_and_a_window(rng):
    """The attention of a KV cache; positions are rounded up to more than a block of keys."""
    heads, width, shape = 2, 4, (1, 4)
    scores = nn.Scores(0.5, softcap=0.7, window=9)
    func = loop_functions.cached_attention(heads, 0, heads, shape, "float32", scores)
    sch = Schedule(func)
    fused(sch, 3, 64, 32)
    shapes = loop_functions.cache_shapes(shape, 48)
    for past, length in ((0, 1), (0, 5), (14, 4), (41, 7)):
        q = rng.normal(size=(1, length, heads, width)).astype("float32")
        keys, values = (rng.normal(size=(1, *s)).astype("float32") for s in shapes)
        results = []
        for f in (func, sch.func):

            class Attend(nn.Module):
                def main(self, q, past, keys, values, f=f):
                    return q.builder.call_loops("attention", f, [q, keys, values], past)[0]

            spec = nn.spec.Tensor
            mod, _ = Attend().export({"main": {
                "q": spec((1, "s", heads, width)), "past": nn.spec.Shape(("p",)),
                "keys": spec(keys.shape), "values": spec(values.shape),
            }})  # fmt: skip
            results.append(rl.interpret(mod, "main", q, (past,), keys, values))
        np.testing.assert_allclose(results[1], results[0], 1e-5, 1e-5)


LOW = np.finfo("float32").min


@pytest.mark.parametrize("is_bare", [False, True], ids=["guarded", "bare"])
def test_rows_and_chunks_without_finite_scores(is_bare, rng):
    """If every score is minus infinity the result is zero, or not a number, as in the program; the
    lowest finite number is a score like others."""
    mod = program(bias=True, heads=4)
    if is_bare:
        mod = changed(mod, bare)
    new = tiled(mod, 2, 2, 2)
    q, k, v, bias = arguments(rng, mod, 1, 7, 6)
    bias[:, :, 0, :] = -np.inf
    bias[:, :, 1, :4] = -np.inf  # the first chunks of the tile, and not those of its other row
    bias[:, :, 2, 2:] = -np.inf
    bias[:, :, 3, :] = LOW
    bias[:, :, 4, :] = -np.inf
    bias[:, :, 4, 5] = LOW
    bias[:, :, 5, 3] = np.inf
    bias[:, :, 6, 2] = np.nan
    with np.errstate(invalid="ignore"):
        want = rl.interpret(mod, "main", q, k, v, bias)
        got = rl.interpret(new, "main", q, k, v, bias)
        compiled = rl.compile(mod, use_cache=False)["main"](q, k, v, bias)
    assert np.isnan(want[:, 0]).all() == is_bare and np.isfinite(want[:, 1:5]).all()
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    np.testing.assert_allclose(compiled, want, 1e-5, 1e-5)


def bare(n: Node) -> Node | None:
    """Weights and results without the conditions for rows that see nothing."""
    match n:
        case expr.Select(expr.EQ(_, expr.FloatImm()), expr.FloatImm(), value):
            return value
        case _:
            return None


def squared_weights(n: Node) -> Node | None:
    match n:
        case expr.Call(_, "exp", (e,)):
            return e * e
        case _:
            return None


def growing(n: Node) -> Node | None:
    match n:
        case expr.Call(_, "exp", (expr.Sub(a, b),)):
            return replace(n, args=(a + b,))
        case _:
            return None


def guarded_otherwise(n: Node) -> Node | None:
    match n:
        case expr.Select(expr.EQ(a, expr.FloatImm(value) as low), _, expr.Call()) if value < 0:
            return replace(n, condition=expr.EQ(a, replace(low, value=-1.0)))
        case _:
            return None


def other_start(n: Node) -> Node | None:
    match n:
        case Block("T_attention_expsum", init=loops.BufferStore() as init):
            return replace(n, init=replace(init, value=expr.const(1, "float32")))
        case _:
            return None


FACTOR = "its terms depend on T_attention_max by a factor exp(c * T_attention_max)"


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        (squared_weights, FACTOR),
        (growing, "terms shrink when T_attention_max moves on"),
        (guarded_otherwise, FACTOR),
        (other_start, "it begins with what changes nothing"),
    ],
)
def test_terms_without_a_correction_are_refused(change, condition):
    _, func = kernel(changed(program(), change))
    with pytest.raises(ScheduleError) as refused:
        fused(Schedule(func), 4, 16, 8)
    assert refused.value.refusal.condition.startswith(condition)


def half_bare(n: Node) -> Node | None:
    match n:
        case expr.Select(expr.EQ(_, expr.FloatImm(value)), _, other) if value == float("-inf"):
            return other
        case _:
            return None


def squares(n: Node) -> Node | None:
    match n:
        case Block("T_attention_expsum", body=loops.BufferStore(_, expr.Add(a, b)) as store):
            return replace(n, body=replace(store, value=a + b * b))
        case _:
            return None


def powers_of_two(n: Node) -> Node | None:
    return replace(n, op="exp2") if isinstance(n, expr.Call) and n.op == "exp" else None


@pytest.mark.parametrize("change", [half_bare, squares, powers_of_two])
def test_terms_of_other_forms_are_corrected_as_they_need(change, rng):
    """Rows without a finite score are not a number where the program's are; squares of weights
    fall by the square of the factor."""
    mod = changed(program(bias=True), change)
    new = tiled(mod, 2, 2, 2)
    q, k, v, bias = arguments(rng, mod, 2, 5, 7)
    bias[:, :, 0] = -np.inf
    bias[:, :, 1, :4] = -np.inf
    with np.errstate(invalid="ignore"):
        want, got = (rl.interpret(m, "main", q, k, v, bias) for m in (mod, new))
    assert np.isnan(want[:, 0]).all() == (change is half_bare)
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def storing_first(func, name: str) -> PrimFunc:
    """The function with a store to a buffer of that name before its blocks."""
    root = func.body
    assert isinstance(root, loops.BlockRealize) and isinstance(root.block.body, loops.SeqStmt)
    buffer = next(b for b in root.block.alloc_buffers if b.name == name)
    first = loops.BufferStore(buffer, expr.const(0, "float32"), (expr.const(0),) * buffer.ndim)
    body = loops.SeqStmt((first, *root.block.body.stmts))
    return replace(func, body=replace(root, block=replace(root.block, body=body)))


def test_buffers_that_other_statements_use(rng):
    """Scores stay outside of the reductions, which are fused all the same; results of these cannot
    be used before."""
    mod = program()
    name, func = kernel(mod)
    sch = Schedule(storing_first(func, "T_attention_score"))
    assert find_attention(sch.func) is None
    cascade = find_cascade(sch.func)
    assert cascade is not None and [b.name for b in cascade.inside] == ["T_attention_exp"]
    first = cascade.reductions[0]
    row = axes_of(first).index(cascade.outer[-1])
    sch.fuse_reductions(sch.get_block(first.name), row, 4, 6, 3)
    args = arguments(rng, mod, 2, 5, 13)
    got = rl.interpret(mod.with_functions({name: sch.func}), "main", *args)
    np.testing.assert_allclose(got, rl.interpret(mod, "main", *args), 1e-5, 1e-5)
    with pytest.raises(ScheduleError, match="T_attention_max is not used before the blocks"):
        find_attention(storing_first(func, "T_attention_max"))


def test_sums_that_keep_their_order_are_refused():
    _, func = kernel(program())
    with pytest.raises(ScheduleError, match="reassociate=True"):
        fused(Schedule(replace(func, attrs=func.attrs.with_(**{KEEP_ORDER: True}))), 4, 16)
    _, matmul = kernel(rl.trace(rl.parse("""
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
    y = R.matmul(x, w)
    return y
""")).find("schedule_kernels").before)  # fmt: skip
    assert find_cascade(matmul) is None
    sch = Schedule(matmul)
    (product,) = (b.name for b in walk(matmul.body) if isinstance(b, Block) and b.init)
    with pytest.raises(ScheduleError, match="terms that depend on another's result"):
        sch.fuse_reductions(sch.get_block(product), 0, 4, 16)


def test_chunks_are_whole_multiples() -> None:
    _, func = kernel(program())
    with pytest.raises(ScheduleError, match="chunks are multiples of 8"):
        fused(Schedule(func), 4, 12, 8)


def rows_of(*outputs: str) -> PrimFunc:
    """Results per row of x (n, m): `m` the maximum, `l` the minimum, `s` the sum of
    exp(x - maximum), `r` that of exp(2 * (minimum - x)), `e` the logarithm of the first, `c` the
    mean and `q` the sum of squared distances from it."""
    n, width = expr.Var("n"), expr.Var("m")
    x = te.placeholder((n, width), "float32", "x")
    axes = {name: te.reduce_axis(width, f"k{name}") for name in "mlsrtq"}

    def reduced(name: str, combine, term=lambda value, i: value) -> te.Tensor:
        k = axes[name]
        return te.compute((n,), lambda i: combine(term(x[i, k.var], i), k), name)

    def exp(value: expr.PrimExpr) -> expr.PrimExpr:
        return scalar.call("exp", value)

    count = expr.Cast("float32", width)
    made = {"m": reduced("m", te.te_max), "l": reduced("l", te.te_min)}
    made["s"] = reduced("s", te.te_sum, lambda v, i: exp(v - made["m"][i]))
    made["r"] = reduced("r", te.te_sum, lambda v, i: exp((made["l"][i] - v) * 2.0))
    made["e"] = te.compute((n,), lambda i: made["m"][i] + scalar.call("log", made["s"][i]), "e")
    made["t"] = reduced("t", te.te_sum)
    made["c"] = te.compute((n,), lambda i: made["t"][i] / count, "c")
    made["q"] = reduced("q", te.te_sum, lambda v, i: (v - made["c"][i]) * (v - made["c"][i]))
    return te.create_prim_func([x, *(made[name] for name in outputs)])


@pytest.mark.parametrize("outputs", ["e", "ms", "se", "r", "lr", "q", "cq", "tcq"])
def test_results_by_rows_agree_with_the_program(outputs, rng):
    func = rows_of(*outputs)
    first = {"e": "m", "m": "m", "s": "m", "r": "l", "l": "l", "q": "t", "c": "t", "t": "t"}
    sch = Schedule(func)
    sch.fuse_reductions(sch.get_block(first[outputs[0]]), 0, int(rng.integers(1, 4)), 3)
    assert not check_well_formed(Module.of({"f": sch.func}))
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    for width in (0, 1, 2, 3, 10):
        x = (rng.normal(size=(7, width)) + 50).astype("float32")
        x[1, :2], x[2, width // 2 :], x[3] = -np.inf, np.inf, -np.inf
        x[4], x[5, 1:2] = np.inf, np.nan
        results: list[list[np.ndarray]] = []
        for f in (func, sch.func):
            results.append([np.zeros(7, "float32") for _ in outputs])
            with np.errstate(all="ignore"):
                interpret_prim_func(f, [x, *results[-1]])
        for want, got in zip(*results, strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-6)


@pytest.mark.parametrize(("parts", "workers"), [(3, 1), (1, 4), (2, 3)])
@pytest.mark.parametrize("outputs", ["e", "ms", "se", "r", "lr"])
def test_parts_and_workers_agree_with_the_program(outputs, parts, workers, rng):
    func = rows_of(*outputs)
    sch = Schedule(func)
    first = "l" if outputs in ("r", "lr") else "m"
    sch.fuse_reductions(sch.get_block(first), 0, 2, 3, workers, 1, parts, workers)
    assert not check_well_formed(Module.of({"f": sch.func}))
    assert_structural_equal(apply_trace(func, sch.trace_json()).func, sch.func)
    for width in (0, 1, 3, 10, 40):
        x = (rng.normal(size=(5, width)) + 50).astype("float32")
        x[1, :2], x[2, width // 2 :], x[3] = -np.inf, np.inf, -np.inf
        results: list[list[np.ndarray]] = []
        for f in (func, sch.func):
            results.append([np.zeros(5, "float32") for _ in outputs])
            with np.errstate(all="ignore"):
                interpret_prim_func(f, [x, *results[-1]])
        for want, got in zip(*results, strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-6)


@pytest.mark.parametrize("sizes", [{"parts": 2}, {"workers": 2}])
def test_parts_of_a_variance_are_refused(sizes):
    sch = Schedule(rows_of("q"))
    with pytest.raises(ScheduleError, match="partial results are combined by factors"):
        sch.fuse_reductions(sch.get_block("t"), 0, 2, 4, **sizes)


def test_distances_from_the_mean_keep_their_digits(rng):
    """The squares of values far from zero would lose them: the sum is about the mean so far."""
    func = rows_of("q")
    sch = Schedule(func)
    sch.fuse_reductions(sch.get_block("t"), 0, 2, 64)
    x = (rng.normal(size=(3, 1000)) + 3000).astype("float32")
    got = np.zeros(3, "float32")
    interpret_prim_func(sch.func, [x, got])
    np.testing.assert_allclose(got, 1000 * x.astype("float64").var(axis=1), 1e-4)


def test_a_mean_of_other_values_is_refused():
    func = rows_of("q")

    def other(n: Node) -> Node | None:
        match n:
            case Block("t", body=loops.BufferStore(_, expr.Add(a, b)) as store):
                return replace(n, body=replace(store, value=a + b * b))
            case _:
                return None

    sch = Schedule(rewrite(func, other))
    with pytest.raises(ScheduleError, match="or are squared distances from the mean"):
        sch.fuse_reductions(sch.get_block("t"), 0, 2, 4)


def test_weights_with_other_readers_are_refused():
    sch = Schedule(softmax(expr.Var("n"), expr.Var("m")))
    with pytest.raises(ScheduleError, match="X is used by the reductions alone"):
        sch.fuse_reductions(sch.get_block("M"), 0, 2, 4)
    sch.compute_inline(sch.get_block("X"))
    sch.fuse_reductions(sch.get_block("M"), 0, 2, 4)
    assert [b.name for b in walk(sch.func.body) if isinstance(b, Block)][:2] == ["root", "S_tile"]


def test_memory_does_not_grow_with_the_positions():
    mod = tiled(program(), 4, 16, 8)
    _, func = kernel(mod)
    private = [b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers]
    assert private and all(isinstance(d, expr.IntImm) for b in private for d in b.shape)
    assert not any(isinstance(b, Buffer) and b.scope == "global" for b in private)


TORCH = """
import sys, numpy as np, torch
q, k, v = (torch.from_numpy(np.load(f"{sys.argv[1]}/{x}.npy")).transpose(1, 2) for x in "qkv")
y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
np.save(f"{sys.argv[1]}/y.npy", y.transpose(1, 2).numpy())
"""


@pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-reference")
def test_nine_thousand_positions_like_pytorch(rng, tmp_path):
    text = PROGRAM.format(n="'n'", m="'n'", heads=4, dtype="float32", bias="",
                          call='(q, k, v, causal_mask="TopLeft")')  # fmt: skip
    args = [rng.normal(size=(1, 9001, 4, d)).astype("float32") for d in (5, 5, 3)]
    for name, x in zip("qkv", args, strict=True):
        np.save(tmp_path / f"{name}.npy", x)
    subprocess.run([PYTHON, "-c", TORCH, tmp_path], check=True)
    got = rl.compile(rl.parse(text), threads=2, use_cache=False)["main"](*args)
    np.testing.assert_allclose(got, np.load(tmp_path / "y.npy"), 1e-4, 1e-5)
