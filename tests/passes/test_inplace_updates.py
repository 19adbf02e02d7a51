import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.node import replace
from relaxlab.passes import inplace_updates as updates
from relaxlab.passes.effects import overlaps
from relaxlab.passes.inplace_updates import inplace_updates
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, compare_runs


@I.ir_module
class Cached:
    @R.function
    def main(
        cache: R.Tensor(("c", 3), "float32"),
        new: R.Tensor(("s", 3), "float32"),
        past: R.Shape(["p"]),
    ):
        R.func_attr({"donated": ["cache"]})
        p, s = T.int64(), T.int64()
        kept = R.slice_scatter(cache, new, p, p + s, axis=0)
        total = R.sum(kept, axis=0)
        return (kept, total)


def updated(program) -> set[str]:
    mod = normalize(program)
    return {v.name for fn in mod.graph_functions().values() for v in inplace_updates(fn, mod)}


def test_a_donated_parameter_is_overwritten():
    start = normalize(Cached)
    after = legalize_ops(start)
    check_module(legalize_ops, start, after)
    text = after.script()
    assert "R.call_tir_inplace(cls.slice_scatter_inplace, (cache, new, p)" in text
    (block,) = [line for line in text.split("\n") if "A[" in line and "= B[" in line]
    assert block.strip() == "A[T.min(p, c) + vi, vj] = B[vi, vj]"


@pytest.mark.parametrize("checks", ["default", "all"])
def test_only_the_slice_is_written(checks):
    exe = rl.compile(Cached, checks=checks)
    rng = np.random.default_rng(0)
    for c, s, p in [(8, 3, 2), (8, 0, 8), (1, 1, 0), (33, 31, 2), (5, 5, 0), (0, 0, 0)]:
        cache, new = (rng.standard_normal((n, 3), dtype=np.float32) for n in (c, s))
        want, total = interpret(Cached, "main", cache.copy(), new, (p,))
        kept, got = exe["main"](cache, new, (p,))
        assert np.shares_memory(kept, cache) or not c
        np.testing.assert_array_equal(cache, want)
        np.testing.assert_allclose(got, total, rtol=1e-5, atol=1e-5)


def test_check_knows_that_the_argument_is_given_up():
    assert rl.check(Cached).ok


def test_what_the_slice_does_not_fit_is_refused_before_it_is_written():
    exe = rl.compile(Cached)
    cache = np.zeros((4, 3), np.float32)
    with pytest.raises(ValueError, match="slice_scatter_shape.* is 2, expected s = 3"):
        exe["main"](cache, np.ones((3, 3), np.float32), (2,))
    assert not cache.any()


HEAD = """
@R.function
def main(x: R.Tensor((8, 4), "float32"), n: R.Tensor((2, 4), "float32"), b: R.Tensor((), "bool")):
"""


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("y = R.exp(x); z = R.slice_scatter(y, n, 1, 3); return z", {"z"}),
        # A chain in one piece of memory.
        ("y = R.exp(x); z = R.slice_scatter(y, n, 1, 3); w = R.slice_scatter(z, n, 3, 5); return w",
         {"z", "w"}),
        # Through a view of it.
        ("y = R.exp(x); v = R.reshape(y, R.shape([4, 8])); "
         "z = R.slice_scatter(v, R.reshape(n, R.shape([1, 8])), 1, 2); return z", {"z"}),
        # The caller's.
        ("z = R.slice_scatter(x, n, 1, 3); return z", set()),
        # Read afterwards, returned, read through a view.
        ("y = R.exp(x); z = R.slice_scatter(y, n, 1, 3); w = R.add(z, y); return w", set()),
        ("y = R.exp(x); z = R.slice_scatter(y, n, 1, 3); return (y, z)", set()),
        ("y = R.exp(x); v = R.reshape(y, R.shape([32])); z = R.slice_scatter(y, n, 1, 3); "
         "w = R.sum(v); return (z, w)", set()),
        ("y = R.exp(x); t = (y, x); z = R.slice_scatter(y, n, 1, 3); w = t[0]; return (z, w)",
         set()),
        # Read by the update itself.
        ("y = R.exp(x); z = R.slice_scatter(y, y, 0, 8); return z", set()),
        ("y = R.exp(x); v = R.strided_slice(y, axes=[0], begin=[0], end=[2]); "
         "z = R.slice_scatter(y, v, 1, 3); return z", {"z"}),
    ],
)  # fmt: skip
def test_when_memory_is_the_functions_own(body, names):
    lines = "".join(f"    {line.strip()}\n" for line in body.split(";"))
    program = rl.parse(HEAD + lines)
    assert updated(program) == names
    start = normalize(program)
    after = legalize_ops(start)
    check_module(legalize_ops, start, after)
    compare_runs(start, after)


def test_the_time_is_that_of_the_bindings(monkeypatch):
    """Comparisons of cells for each update: not with what all later bindings read."""
    compared = []

    def counting(cell, others):
        compared.append(cell)
        return overlaps(cell, others)

    monkeypatch.setattr(updates, "overlaps", counting)
    for count in (10, 40):
        lines = [f"y{i + 1} = R.slice_scatter(y{i}, u, 0, 8, axis=0)" for i in range(count)]
        program = rl.parse(f"""
@R.function
def main(y0: R.Tensor((8,), "float32"), u: R.Tensor((8,), "float32")):
    with R.dataflow():
        {"; ".join(lines)}
        R.output(y{count})
    return y{count}
""")
        compared.clear()
        assert updated(program) == {f"y{i}" for i in range(2, count + 1)}
        assert len(compared) <= 4 * count


def test_branches():
    program = rl.parse(HEAD + """
    y = R.exp(x)
    e = R.exp(y)
    if b:
        z = R.slice_scatter(y, n, 1, 3)
        w = R.slice_scatter(e, n, 1, 3)
        r = R.add(z, w)
    else:
        r = R.negative(e)
    m = R.slice_scatter(r, n, 0, 2)
    return m
""")  # fmt: skip
    # `e` is read by the other arm, which stands behind it; `r` is one of two values.
    assert updated(program) == {"z"}
    start = normalize(program)
    after = legalize_ops(start)
    check_module(legalize_ops, start, after)
    compare_runs(start, after)


def test_a_caller_does_not_read_what_it_donated():
    @I.ir_module
    class Calls:
        @R.function
        def put(x: R.Tensor((4,), "float32"), n: R.Tensor((2,), "float32")):
            R.func_attr({"donated": ["x"]})
            y = R.slice_scatter(x, n, 0, 2)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32"), n: R.Tensor((2,), "float32")):
            cls = Calls
            e = R.exp(x)
            y = cls.put(e, n)
            z = R.add(y, e)
            return z

    with pytest.raises(DiagnosticError, match="E0506.*e is read after it was overwritten"):
        rl.compile(Calls)


def test_a_list_of_names_is_asked_for():
    fn = Cached["main"]
    for wrong in ("cache", ("past",), (0,)):
        mod = Cached.with_functions({"main": replace(fn, attrs=fn.attrs.with_(donated=wrong))})
        with pytest.raises(DiagnosticError, match="E0508.*no tensor parameter"):
            rl.compile(mod)


def test_the_trace_says_so():
    trace = rl.trace(Cached)
    reasons = [r.reason for r in trace.find("legalize_ops").remarks]
    assert "lowered to slice_scatter_inplace, in place of cache" in reasons


def test_kernels_of_gpus_update_in_place():
    kernels = rl.trace(Cached, target="cuda").result.loop_functions()
    assert any(name.startswith("slice_scatter_inplace") for name in kernels)
