import math

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import TensorType
from relaxlab.passes.expand_calls import expand_calls
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.plan_memory import memory_plan_of, pack, plan_memory, size_of
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import assert_same, check_module, compare_runs, random_arguments
from relaxlab.tracing import recording
from tests.passes.planned_bytes import bytes_planned


@I.ir_module
class Chain:
    @T.prim_func
    def inc(A: T.Buffer(("n", "m"), "float32"), B: T.Buffer(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        for i, j in T.grid(n, m):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    @T.prim_func
    def both(a: T.handle, b: T.handle, c: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        C = T.match_buffer(c, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * B[vi, vj]

    @R.function
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        n = T.int64()
        cls = Chain
        with R.dataflow():
            a = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((n, 16), "float32"))
            b = R.call_tir(cls.inc, (a,), out_sinfo=R.Tensor((n, 16), "float32"))
            c = R.call_tir(cls.inc, (b,), out_sinfo=R.Tensor((n, 16), "float32"))
            d = R.call_tir(cls.both, (a, c), out_sinfo=R.Tensor((n, 16), "float32"))
            e = R.call_tir(cls.inc, (d,), out_sinfo=R.Tensor((n, 16), "float32"))
            R.output(e)
        return e


def planned(mod, **options):
    """The planned module, checked; and the function `main` of it run on the virtual machine."""
    start = expand_calls(normalize(mod))
    one = plan_memory.with_options(**options)
    after = one(start)
    check_module(one, start, after)
    compare_runs(start, after)
    program = lower_shapes(after)
    fn = start["main"]
    rng = np.random.default_rng(0)
    for _ in range(3):
        args = random_arguments(fn, rng)
        want = interpret(mod, "main", *args)
        assert_same(VirtualMachine(program).run("main", *args), want, "the result")
    return after


def places(mod, name="main", *, use_bounds=True):
    """(name, offset, size) of each planned tensor, as text."""
    expanded = expand_calls(normalize(mod))
    plan = memory_plan_of(expanded[name], expanded, use_bounds=use_bounds)
    return [(p.var.name, str(p.offset), str(p.size)) for a in plan.arenas for p in a.placements]


def test_expanded_calls_compute_the_same():
    start = normalize(Chain)
    after = expand_calls(start)
    check_module(expand_calls, start, after)
    compare_runs(start, after)
    assert after["main"].attrs["relax.force_pure"]
    assert not any(isinstance(b, graph.DataflowBlock) for b in after["main"].body.blocks)


def test_dead_memory_is_reused_at_every_size():
    after = planned(Chain)
    assert str(bytes_planned(after["main"])) == "n * 192"
    assert places(Chain) == [
        ("a", "0", "n * 64"),
        ("b", "n * 64", "n * 64"),
        ("c", "n * 128", "n * 64"),
        ("d", "n * 64", "n * 64"),
    ]


def test_the_planned_program():
    @I.ir_module
    class Before:
        @T.prim_func
        def inc(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    vi = T.axis.spatial(16, i)
                    B[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            cls = Before
            a = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((16,), "float32"))
            b = R.call_tir(cls.inc, (a,), out_sinfo=R.Tensor((16,), "float32"))
            return b

    text = plan_memory(expand_calls(normalize(Before))).script()
    body = text[text.index("storage") : text.index("return")]
    assert body.count("R.memory.alloc_storage(R.shape([64])") == 1
    assert body.count("R.memory.alloc_tensor(storage") == 1
    assert body.count("R.builtin.alloc_tensor") == 1  # the result


def test_declared_bounds_make_sizes_constant():
    @I.ir_module
    class Before:
        @T.prim_func
        def inc(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
            n = T.int64()
            for i in range(n):
                with T.block("B"):
                    vi = T.axis.spatial(n, i)
                    B[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((100,), "float32")):
            R.func_attr({"tir_var_upper_bound": {"n": 64}})
            n = T.int64()
            cls = Before
            a = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((n,), "float32"))
            b = R.call_tir(cls.inc, (a,), out_sinfo=R.Tensor((n,), "float32"))
            c = R.call_tir(cls.inc, (y,), out_sinfo=R.Tensor((100,), "float32"))
            d = R.call_tir(cls.inc, (c,), out_sinfo=R.Tensor((100,), "float32"))
            return (b, d)

    assert places(Before) == [("a", "0", "256"), ("c", "0", "448")]
    assert places(Before, use_bounds=False) == [
        ("a", "448", "(n * 4 + 63) // 64 * 64"),
        ("c", "0", "448"),
    ]
    assert str(bytes_planned(planned(Before)["main"])) == "448"
    unbounded = bytes_planned(planned(Before, use_bounds=False)["main"])
    assert str(unbounded) == "448 + (n * 4 + 63) // 64 * 64"


def test_views_casts_and_tuples_keep_memory_in_use():
    @I.ir_module
    class Before:
        @T.prim_func
        def inc(A: T.Buffer(("n",), "float32"), B: T.Buffer(("n",), "float32")):
            n = T.int64()
            for i in range(n):
                with T.block("B"):
                    vi = T.axis.spatial(n, i)
                    B[vi] = A[vi] + T.float32(1)

        @T.prim_func
        def add(a: T.handle, b: T.handle, c: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n,), "float32")
            B = T.match_buffer(b, (n,), "float32")
            C = T.match_buffer(c, (n,), "float32")
            for i in range(n):
                with T.block("C"):
                    vi = T.axis.spatial(n, i)
                    C[vi] = A[vi] + B[vi]

        @R.function
        def main(x: R.Tensor((16,), "float32"), s: R.Shape(["m"])):
            R.func_attr({"tir_var_upper_bound": {"m": 16}})
            m = T.int64()
            cls = Before
            a = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((16,), "float32"))
            cast = R.match_cast(a, R.Tensor((m,), "float32"))
            view = R.reshape(cast, R.shape([m, 1]))
            pair = (view, x)
            b = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((16,), "float32"))
            c = R.call_tir(cls.inc, (b,), out_sinfo=R.Tensor((16,), "float32"))
            back = R.reshape(pair[0], R.shape([16]))
            d = R.call_tir(cls.add, (c, back), out_sinfo=R.Tensor((16,), "float32"))
            return d

    offsets = {name: offset for name, offset, _ in places(Before)}
    assert offsets == {"a": "0", "b": "64", "c": "128"}


def test_values_that_outlive_the_call_are_not_planned():
    @I.ir_module
    class Before:
        @T.prim_func
        def inc(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    vi = T.axis.spatial(16, i)
                    B[vi] = A[vi] + T.float32(1)

        @R.function
        def same(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            return x

        @R.function
        def main(x: R.Tensor((16,), "float32"), c: R.Tensor((), "bool")):
            cls = Before
            a = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((16,), "float32"))
            b = cls.same(a)
            if c:
                d = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((16,), "float32"))
                e = R.call_tir(cls.inc, (d,), out_sinfo=R.Tensor((16,), "float32"))
                r = e
            else:
                r = x
            f = R.call_tir(cls.inc, (r,), out_sinfo=R.Tensor((16,), "float32"))
            g = R.reshape(f, R.shape([4, 4]))
            return (b, g)

    with recording() as remarks:
        planned(Before)
    apart = {n.subject: n.reason for n in remarks if not n.applied and n.rule == "plan_memory"}
    assert apart == {
        "main.a": "allocated apart: it is returned",
        "main.f": "allocated apart: it is returned",
    }


def elementwise_steps(names, x, indent):
    """`names` computed one after the other from `x` as calls of `inc`."""
    lines = []
    for name in names:
        made = f"R.call_tir(cls.inc, ({x},), out_sinfo=R.Tensor((n, 16), 'float32'))"
        lines.append(f"{' ' * indent}{name} = {made}")
        x = name
    return "\n".join(lines)


def branching(true, false, after, returned):
    """A module whose `main` increments `x` step by step in two branches, then goes on with `r`."""
    return rl.parse(f"""
@I.ir_module
class Branching:
    @T.prim_func
    def inc(A: T.Buffer(("n", 16), "float32"), B: T.Buffer(("n", 16), "float32")):
        for i, j in T.grid(n, 16):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * A[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("n", 16), "float32"), c: R.Tensor((), "bool")):
        cls = Branching
        if c:
{elementwise_steps(true, "x", 12)}
            r = {true[-1]}
        else:
{elementwise_steps(false, "x", 12)}
            r = {false[-1]}
{elementwise_steps(after, "r", 8)}
        return {returned}
""")


def test_branches_share_their_memory():
    mod = branching(["a", "b", "c", "d"], ["e", "f", "g"], ["h"], "h")
    planned(mod)
    found = {name: offset for name, offset, _ in places(mod)}
    assert set(found) == set("abcdefg") and set(found.values()) == {"0", "n * 64"}


def test_the_result_of_a_branch_lives_as_long_as_that_of_the_if():
    mod = branching(["a", "b"], ["e"], ["h", "i", "j"], "(j, r)")
    planned(mod)
    assert [name for name, _, _ in places(mod)] == ["a", "h", "i"]  # b, e and j are returned
    mod = branching(["a", "b"], ["e"], ["h", "i", "j", "k"], "k")
    planned(mod)
    found = {name: offset for name, offset, _ in places(mod)}
    assert found["h"] not in (found["b"], found["e"]) and len(set(found.values())) == 2


def test_a_function_that_ends_with_an_if_is_planned():
    """Recursive functions do: what both branches return is allocated apart, the rest is not."""
    mod = branching(["a", "b", "c"], ["e", "f"], [], "r")
    planned(mod)
    assert [name for name, _, _ in places(mod)] == ["a", "b", "e"]


def test_tensors_whose_symbols_are_all_bounded_share_beside_others():
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 16), "float32"), y: R.Tensor(("m", 16), "float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 10}})
    with R.dataflow():
        a = R.sum(x, axis=1)
        b = R.exp(a)
        c = R.exp(R.sum(y, axis=1))
        d = R.exp(R.sum(x, axis=0))
        R.output(b, c, d)
    return (b, c, d)
""")
    planned_sizes = {size for _, _, size in places(legalize_ops(normalize(mod)))}
    assert "64" in planned_sizes and any("m" in size for size in planned_sizes)
    assert not any("n" in size for size in planned_sizes)


def test_sizes_that_a_match_cast_defines_get_a_storage_after_it():
    @I.ir_module
    class Before:
        @T.prim_func
        def inc(A: T.Buffer(("n",), "int64"), B: T.Buffer(("n",), "int64")):
            n = T.int64()
            for i in range(n):
                with T.block("B"):
                    vi = T.axis.spatial(n, i)
                    B[vi] = A[vi] + T.int64(1)

        @R.function
        def main(x: R.Tensor(("n",), "int64")):
            n, m = T.int64(), T.int64()
            cls = Before
            a = R.call_tir(cls.inc, (x,), out_sinfo=R.Tensor((n,), "int64"))
            u = R.unique(a)
            v = R.match_cast(u, R.Tensor((m,), "int64"))
            b = R.call_tir(cls.inc, (v,), out_sinfo=R.Tensor((m,), "int64"))
            c = R.call_tir(cls.inc, (b,), out_sinfo=R.Tensor((m,), "int64"))
            return c

    after = planned(Before)
    names = [b.var.name for block in after["main"].body.blocks for b in block.bindings]
    assert names.index("storage1") == names.index("v") + 1


@pytest.mark.parametrize("seed", range(20))
def test_blocks_in_use_together_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    blocks = []
    pairs = set()
    for _ in range(rng.integers(1, 25)):
        start = int(rng.integers(0, 30))
        blocks.append((start, start + int(rng.integers(0, 8)), int(rng.integers(0, 9)) * 64))
        pairs |= {(len(blocks) - 1, int(k)) for k in rng.integers(0, len(blocks), rng.integers(3))}
    pairs = {(i, j) for i, j in pairs if i != j} | {(j, i) for i, j in pairs if i != j}
    excluded = [frozenset(j for i, j in pairs if i == k) for k in range(len(blocks))]
    offsets, total = pack(blocks, excluded)
    for i, (s, e, size) in enumerate(blocks):
        assert offsets[i] + size <= total
        for j in range(i):
            s2, e2, size2 = blocks[j]
            if s <= e2 and s2 <= e and size and size2 and (i, j) not in pairs:
                apart = offsets[i] + size <= offsets[j] or offsets[j] + size2 <= offsets[i]
                assert apart, (seed, i, j)
    peak = max(sum(b[2] for b in blocks if b[0] <= t <= b[1]) for t in range(40))
    assert total <= sum(b[2] for b in blocks) and (pairs or peak <= total)


def test_sizes_are_constants_times_factors():
    n, m = expr.Var("n"), expr.Var("m")
    constant, factors, _ = size_of(TensorType((n * 4, m, expr.const(3)), "float32"), {})
    assert constant == 48 and dict(factors) == {n: 1, m: 1}
    constant, factors, _ = size_of(TensorType((n, m, expr.const(17)), "float32"), {})
    assert constant == 128 and dict(factors) == {n: 1, m: 1}
    assert size_of(TensorType((n + 1, n + 1), "int64"), {}) == (8, ((n + 1, 2),), 0)
    assert size_of(TensorType((n + 1, m), "int8"), {"n": 9, "m": 20}) == (256, (), 0)


def test_a_count_rounded_up_shares_memory_with_the_plain_one():
    n = expr.Var("n")
    whole = TensorType(((n + 15) // 16, expr.const(64), expr.const(16)), "float32")
    assert size_of(whole, {}) == (256, ((n, 1),), 3840)
    assert size_of(TensorType(((n + 15) // 16,), "float32"), {}) == (4, (((n + 15) // 16, 1),), 0)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 64), "float32")):
            n = T.int64()
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.call_dps_packed(
                    "pack", (a,), out_ty=R.Tensor(((n + 15) // 16, 64, 16), "float32")
                )
                c = R.call_dps_packed("unpack", (b,), out_ty=R.Tensor((n, 64), "float32"))
                d = R.call_dps_packed("unpack", (c,), out_ty=R.Tensor((n, 64), "float32"))
                R.output(d)
            return d

    start = expand_calls(legalize_ops(normalize(Before)))
    (arena,) = memory_plan_of(start["main"], start).arenas
    (rows,) = symbols_in(arena.size)
    assert [p.var.name for p in arena.placements] == ["a", "b", "c"]
    for count in range(1, 40):
        at = {rows: count}
        places = [[int(evaluate(e, at)) for e in (p.offset, p.size)] for p in arena.placements]
        (a, of_a), (b, of_b), (c, of_c) = places
        assert (of_a, of_c) == (256 * count, 256 * count) and of_b >= -(-count // 16) * 4096
        assert b >= a + of_a or a >= b + of_b
        assert b >= c + of_c or c >= b + of_b
        assert max(a + of_a, b + of_b, c + of_c) <= evaluate(arena.size, at) == 512 * count + 3840


def test_small_elements_of_many_symbols_waste_little():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            n, m = T.int64(), T.int64()
            with R.dataflow():
                a = R.cumsum(x, axis=0)
                b = R.astype(R.cumsum(a, axis=1), "int8")
                c = R.cumsum(b, axis=0, dtype="float64")
                d = R.cumsum(R.concat([c, c], axis=1), axis=0)
                R.output(d)
            return d

    mod = expand_calls(legalize_ops(normalize(Before)))
    fn = mod["main"]
    (arena,) = memory_plan_of(fn, mod).arenas
    assert len(arena.placements) == 5
    symbols = {s.name: s for s in symbols_in(fn.params)}
    for sizes in ({"n": 1, "m": 1}, {"n": 7, "m": 9}, {"n": 100, "m": 1001}):
        known = {symbols[name]: expr.const(value) for name, value in sizes.items()}

        def at(e, known=known):
            return Analyzer().simplify(substitute(e, known)).value

        blocks = [(p, at(p.offset), at(p.size)) for p in arena.placements]
        for p, offset, size in blocks:
            needed = math.prod(at(d) for d in p.var.ty.shape) * bytes_of(p.var.ty.dtype)
            assert offset % 64 == 0 and needed <= size < needed + 64 * 16
            assert offset + size <= at(arena.size)
            for q, offset2, size2 in blocks:
                if q is not p and p.start <= q.end and q.start <= p.end:
                    assert offset + size <= offset2 or offset2 + size2 <= offset


def test_in_place_results_are_the_argument():
    @I.ir_module
    class Before:
        @T.prim_func
        def bump(A: T.Buffer(("n",), "float32")):
            n = T.int64()
            for i in range(n):
                with T.block("A"):
                    vi = T.axis.spatial(n, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(cache: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            cls = Before
            new = R.call_tir_inplace(
                cls.bump, (cache,), out_sinfo=R.Tensor((n,), "float32"), inplace_indices=[0]
            )
            return new

    after = plan_memory(expand_calls(normalize(Before)))
    compare_runs(normalize(Before), after)
    program = lower_shapes(after)
    assert program.functions["main"].written
    cache = np.zeros(3, "float32")
    result = VirtualMachine(program).run("main", cache)
    assert result is cache and cache.tolist() == [1, 1, 1]


def random_dim(rng: np.random.Generator, symbols: list[expr.Var], depth: int) -> expr.PrimExpr:
    """Sums, products, quotients, minima and maxima, of either sign."""
    if depth == 0 or rng.random() < 0.2:
        return expr.const(int(rng.integers(-3, 4))) if rng.random() < 0.4 else rng.choice(symbols)
    op = rng.choice([expr.Add, expr.Sub, expr.Mul, expr.Min, expr.Max, expr.FloorDiv])
    a = random_dim(rng, symbols, depth - 1)
    if op is expr.FloorDiv:
        return a // int(rng.integers(1, 5))
    return expr.binary(op, a, random_dim(rng, symbols, depth - 1))


def test_no_size_is_less_than_what_is_stored(rng: np.random.Generator) -> None:
    symbols = [expr.Var("n"), expr.Var("m")]
    for _ in range(150):
        shape = tuple(random_dim(rng, symbols, 3) for _ in range(int(rng.integers(1, 3))))
        constant, factors, slack = size_of(TensorType(shape, "float32"), {})
        for _ in range(8):
            at = {s: int(rng.integers(0, 9)) for s in symbols}
            extents = [evaluate(d, at) for d in shape]
            planned = constant * math.prod(evaluate(f, at) ** power for f, power in factors)
            planned += slack
            assert planned >= 4 * math.prod(max(d, 0) for d in extents), (shape, at, factors)
