"""`check` on programs that are compiled as they should be, and on ones it cannot speak about."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.types import LengthsType
from relaxlab.passes.bind_params import bind_params
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.check.check import CheckError
from relaxlab.runtime.check.inputs import random_arguments
from relaxlab.runtime.packed import register_func
from relaxlab.testing.mixed_programs import mixed_program
from tests.passes.graph_programs import Programs

ATTENTION = """
@R.function
def main(
    q: R.Tensor((1, "s", 2, 16), "float32"), k: R.Tensor((1, "t", 2, 16), "float32"),
    v: R.Tensor((1, "t", 2, 16), "float32"), w: R.Tensor((32, 24), "float32"),
):
    R.func_attr({"num_input": 3})
    with R.dataflow():
        a = R.nn.attention(q, k, v)
        b = R.reshape(a, (1, s, 32))
        c = R.matmul(b, w)
        d = R.nn.gelu(c)
        R.output(d)
    return d
"""

EVERYTHING = """
@R.function(private=True)
def half(x: R.Tensor(("p", "q"), "float32")) -> R.Tensor(("p", "q"), "float32"):
    with R.dataflow():
        y = R.multiply(x, R.const(0.5, "float32"))
        R.output(y)
    return y

@R.function
def main(
    x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool"), i: R.Tensor(("k",), "int32"),
    both: R.Tuple(R.Tensor(("n", 4), "float32"), R.Tensor(("m",), "float16")),
    shape: R.Shape(["a", "b"]),
):
    h = both[1]
    y = cls.half(x)
    if c:
        z = R.add(y, both[0])
    else:
        z = R.subtract(y, both[0])
    u = R.unique(i)
    w = R.match_cast(u, R.Tensor(("j",), "int32"))
    v = R.multiply(R.astype(w, "float32"), R.const(2.0, "float32"))
    f = R.full(shape, R.const(1.5, "float32"))
    return (z, v, R.exp(h), f, shape)

@R.function
def other(x: R.Tensor(("n",), "float32")):
    with R.dataflow():
        y = R.sum(x)
        R.output(y)
    return y
"""


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("text", [ATTENTION, EVERYTHING], ids=["attention", "everything"])
def test_agrees(text, target):
    report = rl.check(rl.parse(text), target=target, runs=2)
    assert report.ok, report
    assert report.stages > 5 and not report.left_out


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed):
    report = rl.check(Programs(seed).module(), "main", seed=seed, runs=2)
    assert report.ok, report


@pytest.mark.parametrize("seed, target", [(0, "cpu"), (1, "cpu"), (2, "cuda"), (3, "cuda")])
def test_mixed_random_programs(seed, target):
    report = rl.check(mixed_program(seed), "main", seed=seed, runs=1, target=target)
    assert report.ok, f"seed {seed}: {report}"


@pytest.mark.parametrize("wrong", [{"runs": 0}, {"seed": -1}])
def test_no_runs_and_negative_seeds_are_refused(wrong):
    with pytest.raises(CheckError, match="runs is at least 1 and seed at least 0; they are"):
        rl.check(rl.parse(EVERYTHING), **wrong)


def test_both_public_functions_are_checked():
    report = rl.check(rl.parse(EVERYTHING), runs=1, seed=5)
    assert report.functions == ("main", "other")
    assert "seed 5" in str(report)


def test_parameters_that_a_pass_binds_start_anew():
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
    with R.dataflow():
        y = R.matmul(x, w)
        R.output(y)
    return y
"""
    bound = bind_params.with_options(function="main", params={"w": np.eye(4, dtype="float32")})
    report = rl.check(rl.parse(text), pipeline=cpu_pipeline().after("normalize", bound))
    assert report.ok
    assert report.left_out == (
        "`main` is not compared across pass 2, bind_params: it changes the parameters",
    )


def test_transformed_weights_may_look_like_the_others():
    text = """
@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8,), "float32")):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        v = R.negative(R.cumsum(w))
        y = R.add(x, v)
        R.output(y)
    return y
"""
    report = rl.check(rl.parse(text), runs=1)
    assert report.ok, report


def test_a_pipeline_that_stops_early_is_not_compiled():
    report = rl.check(rl.parse(EVERYTHING), pipeline=rl.Pipeline(cpu_pipeline().passes[:10]))
    assert report.ok
    assert report.left_out == ("not compiled: the pipeline stops before `expand_calls`",)


def test_inputs_and_sizes():
    seen: list[tuple[int, ...]] = []

    def inputs(rng: np.random.Generator):
        x = rng.uniform(size=(6,)).astype("float32")
        seen.append(x.shape)
        return (x,)

    assert rl.check(rl.parse(EVERYTHING), "other", runs=2, inputs=inputs).ok
    assert seen == [(6,), (6,)]
    assert rl.check(rl.parse(EVERYTHING), "other", runs=2, sizes=(33,)).ok


REFUSED = [
    (
        "def main(f: R.Callable((R.Tensor((2,), 'float32'),), R.Tensor((2,), 'float32'))):\n"
        "        return f(R.const([1.0, 2.0], 'float32'))",
        r"no random values of type .*which `f` has; give it some that fit by `inputs`",
    ),
    (
        "def main(x: R.Tensor(ndim=1, dtype='float32')):\n"
        "        y = R.match_cast(x, R.Tensor((4,), 'float32'))\n"
        "        return y",
        r"`main` accepts none of 20 random arguments \(seed 0\): .*expected 4",
    ),
    (
        "def main(x: R.Tensor((4,), 'float32')):\n"
        "        y = R.call_pure_packed(\n"
        "            'test_check.counter', x, sinfo_args=R.Tensor((4,), 'float32'))\n"
        "        return y",
        "`main` gives another result each time it is called",
    ),
]


@pytest.mark.parametrize("body, message", REFUSED, ids=["callable", "match_cast", "counter"])
def test_refuses(body, message):
    calls = iter(range(10_000))
    register_func("test_check.counter", lambda x: x + np.float32(next(calls)))
    mod = rl.parse(f"@I.ir_module\nclass M:\n    @R.function\n    {body}\n")
    with pytest.raises(CheckError, match=message):
        rl.check(mod)


def test_private_functions_are_checked_where_there_are_no_others():
    mod = rl.parse(EVERYTHING).without("main", "other")
    assert rl.check(mod, runs=1).functions == tuple(mod.graph_functions())


def test_refuses_what_is_not_there():
    mod = rl.parse(EVERYTHING)
    with pytest.raises(CheckError, match="no graph function 'nowhere'"):
        rl.check(mod, "nowhere")
    with pytest.raises(CheckError, match="the module has no function to call"):
        rl.check(mod.without(*mod.graph_functions()))
    with pytest.raises(CheckError, match="has 1 parameter, `inputs` gave 0 arguments"):
        rl.check(mod, "other", inputs=lambda rng: ())


@pytest.mark.parametrize(
    ("dims", "dtype", "size"),
    [
        ("1048576, 1099511627776", "float32", "4,611,686,018,427,387,904"),
        ("1099511627776, 1099511627776", "int8", "1,208,925,819,614,629,174,706,176"),
    ],
)
def test_a_tensor_larger_than_memory_is_named(dims: str, dtype: str, size: str) -> None:
    mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(({dims}), "{dtype}")):
    y = R.add(x, x)
    return y
""")
    text = f"no memory for the {size} bytes of `x`, {dtype} of shape .*smaller numbers"
    with pytest.raises(CheckError, match=text):
        rl.check(mod, runs=1)


def test_a_value_larger_than_memory_is_named() -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor((1,), "float32")):
    y = R.add(R.broadcast_to(x, (1152921504606846976,)), x)
    return y
""")
    with pytest.raises(MemoryError, match="in `main`: computing `y`: there is no memory for it"):
        rl.interpret(mod, "main", np.zeros(1, "float32"))
    with pytest.raises(CheckError, match="computing `y`: .* smaller numbers"):
        rl.check(mod, runs=1)


@pytest.mark.parametrize(
    "lengths",
    ['"b", 1, at_least=1', '"b", 100, at_most=4', '"b", 100, at_least=30, at_most=34',
     "3, 8, at_least=2, at_most=3", '"b", "n", at_least=2, at_most=3', '"b", 0', '2, "n"'],
)  # fmt: skip
def test_random_lengths_keep_to_their_limits(lengths: str) -> None:
    """The first that are drawn, whatever the symbols: there may be but few that fit."""
    mod = rl.parse(f"""
@R.function
def main(s: R.Lengths({lengths}), _: R.Shape(["n"])):
    return s
""")
    fn = mod.graph_functions()["main"]
    ty = fn.params[0].ty
    assert isinstance(ty, LengthsType)
    for seed in range(20):
        found, rows = random_arguments(fn, np.random.default_rng(seed))
        most = 100 if ty.most is None else ty.most
        assert ((found >= ty.least) & (found <= most)).all()
        rl.interpret(mod, "main", found, rows)


PRODUCT = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("k", 3), "float32")):
    return R.matmul(x, w)
"""


def test_operands_that_do_not_fit_are_described_by_the_operator() -> None:
    """Not by NumPy, in whose words there are gufuncs and core dimensions."""
    x, w = np.zeros((2, 3), "float32"), np.zeros((4, 3), "float32")
    text = r"none of 20 arguments that `inputs` gave .*: in `main`: R.matmul: shapes \(2, 3\) and "
    with pytest.raises(CheckError, match=text + r"\(4, 3\) cannot be multiplied: .* 3 and 4$"):
        rl.check(rl.parse(PRODUCT), inputs=lambda rng: (x, w))
    joined = "@R.function\ndef main(x: R.Tensor(('n', 'm')), w: R.Tensor(('k', 'l'))):\n"
    with pytest.raises(rl.ExecutionError, match="R.concat: .*dimension 1"):
        rl.interpret(rl.parse(f"{joined}    return R.concat((x, w), axis=0)"), "main", x, w.T)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": lambda rng: np.zeros(3)}, "`inputs` returns a tuple of arguments, it returned"),
        ({"inputs": lambda rng: ()}, "`main` has 2 parameters, `inputs` gave 0 arguments"),
        ({"sizes": []}, "sizes are values for the symbols of the program; there are none"),
    ],
)
def test_options_that_draw_nothing_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        rl.check(rl.parse(PRODUCT), **options)
