"""`contract` and `reassociate` of targets: with both off, additions, multiplications, divisions and
roots are those of the loops, bit for bit."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.equal import structural_key
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target, parse_target
from relaxlab.passes.base import Pipeline
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, OpCase, concrete_call

EXACT = "cpu,contract=off,reassociate=off"
ROUNDED_ONCE = {"sqrt", "fma", "if_then_else", "likely", "abs", "fabs", "floor", "ceil", "trunc"}
"""Functions that are the same wherever they are computed."""


def lowered(mod: Module) -> Module:
    """The program as loops, which the interpreter then takes at their word."""
    return Pipeline((normalize, legalize_ops)).run(mod).result


def is_basic(mod: Module) -> bool:
    """True if the loops compute with float32, by nothing but basic arithmetic."""
    nodes = [n for _, f in mod.items() if isinstance(f, loops.PrimFunc) for n in walk(f)]
    calls = {n.op for n in nodes if isinstance(n, expr.Call)}
    dtypes = {n.buffer.dtype for n in nodes if isinstance(n, loops.BufferStore)}
    return "float32" in dtypes and calls <= ROUNDED_ONCE and not dtypes & {"float16", "bfloat16"}


def assert_same_bits(got: Any, want: Any, what: str) -> None:
    """Equal to the last bit; which NaN it is does not count."""
    got, want = ([*x] if isinstance(x, tuple | list) else [x] for x in (got, want))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=what)


@pytest.mark.parametrize("family", FAMILIES)
def test_operators_equal_their_loops(family: str) -> None:
    """Those that compute with basic arithmetic, compiled as functions of one module."""
    functions: dict[str, graph.Function] = {}
    chosen: dict[str, tuple[OpCase, Module]] = {}
    for i, case in enumerate(FAMILIES[family]()):
        name, function = f"case{i}", CaseProgram(case, case.sizes[0], symbolic=True).function()
        as_loops = lowered(Module.of({name: function}))
        if is_basic(as_loops):
            functions[name], chosen[name] = function, (case, as_loops)
    if not chosen:
        return
    exe = rl.compile(Module.of(functions), EXACT, use_cache=False, threads=1)
    for name, (case, as_loops) in chosen.items():
        for seed, env in enumerate(case.sizes):
            arrays, _ = concrete_call(case, env, seed)
            args = (*arrays, tuple(env.values()))
            want = interpret(as_loops, name, *args)
            assert_same_bits(exe[name](*args), want, f"{case} with {dict(env)}, seed={seed}")


OPERATIONS = (
    "R.add({a}, {b})",
    "R.subtract({a}, R.mean({b}, axis=-1, keepdims=True))",
    "R.multiply({a}, {b})",
    "R.divide({a}, R.add(R.abs({b}), R.const(1, 'float32')))",
    "R.sqrt(R.abs({a}))",
    "R.add({a}, R.sum({b}, axis=0, keepdims=True))",
    "R.subtract({a}, R.max({b}, axis=-1, keepdims=True))",
    "R.matmul({a}, w)",
    "R.matmul(R.matmul({a}, R.permute_dims({b})), {a})",
    "R.multiply({a}, R.variance({b}, axis=-1, keepdims=True))",
)


def generated(seed: int) -> Module:
    """Eight operations on (n, m) matrices; values are brought back to about 1 after each."""
    choose = random.Random(seed)
    values, lines = ["x", "y"], list[str]()
    for i in range(8):
        a, b = choose.choice(values), choose.choice(values)
        big = choose.choice(OPERATIONS).format(a=a, b=b)
        lines += [f"    b{i} = {big}", f"    v{i} = R.divide(b{i}, R.max(R.abs(b{i})))"]
        values.append(f"v{i}")
    matrix = 'R.Tensor(("n", "m"), "float32")'
    text = f"""
@R.function
def main(x: {matrix}, y: {matrix}, w: R.Tensor(("m", "m"), "float32")):
{chr(10).join(lines)}
    return (v5, v6, v7)
"""
    return rl.parse(text)


@pytest.mark.parametrize("number", range(6))
def test_generated_programs_equal_their_loops(number: int) -> None:
    seed = random.getrandbits(32)
    print("seed", seed)
    mod, rng = generated(seed), np.random.default_rng(seed)
    exe, as_loops = rl.compile(mod, EXACT, use_cache=False, threads=2), lowered(mod)
    for n, m in ((1, 1), (1, 40), (7, 33), (16, 64)):
        shapes = ((n, m), (n, m), (m, m))
        args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        want = interpret(as_loops, "main", *args)
        assert_same_bits(exe["main"](*args), want, f"({n}, {m}), seed {seed}")


ROWS = """
@R.function
def main(x: R.Tensor(("n", 512), "float32"), w: R.Tensor((512, 64), "float32")):
    a = R.sum(x, axis=-1)
    b = R.matmul(x, w)
    return (a, b)
"""


def rounded_differently(target: str) -> list[bool]:
    """Return whether sums of rows, and products, differ from the loops' order of operations."""
    mod, rng = rl.parse(ROWS), np.random.default_rng(1)
    args = [rng.standard_normal(s).astype(np.float32) for s in ((9, 512), (512, 64))]
    got = rl.compile(mod, target, use_cache=False, threads=1)["main"](*args)
    want = interpret(lowered(mod), "main", *args)
    return [not np.array_equal(a, b) for a, b in zip(got, want, strict=True)]


@pytest.mark.parametrize(
    ("options", "sums", "products"),
    [("", True, True), (",contract=off", True, False), (",reassociate=off", False, True),
     (",contract=off,reassociate=off", False, False)],
)  # fmt: skip
def test_each_option_does_its_own(options: str, sums: bool, products: bool) -> None:
    if "fma" not in Target.host().features and products:
        pytest.skip("this processor has no fused multiply-add")
    assert rounded_differently("cpu" + options) == [sums, products]


@pytest.mark.parametrize("seed", range(2))
def test_gpu_kernels_keep_the_order(seed: int) -> None:
    mod, rng = generated(seed), np.random.default_rng(seed)
    exe, as_loops = rl.compile(mod, "cuda,reassociate=off"), lowered(mod)
    for n, m in ((1, 5), (3, 34)):
        args = [rng.standard_normal(s).astype(np.float32) for s in ((n, m), (n, m), (m, m))]
        want = interpret(as_loops, "main", *args)
        assert_same_bits(exe.simulate("main", *args), want, f"({n}, {m}), seed {seed}")


def test_maxima_are_still_taken_per_lane() -> None:
    text = 'def main(x: R.Tensor(("n", 512), "float32")):\n    y = R.max(x, axis=-1)\n    return y'
    mod = rl.parse(f"@R.function\n{text}\n")
    exact, free = (structural_key(rl.trace(mod, t).result) for t in (EXACT, "cpu"))
    assert exact == free


def test_options_for_nvrtc_forbid_contraction() -> None:
    from relaxlab.codegen.cuda import nvrtc

    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    mod = rl.parse(
        "@R.function\ndef main(x: R.Tensor(('n',), 'float32')):\n"
        "    y = R.add(R.multiply(x, x), x)\n    return y\n"
    )
    assert "fma.rn" in rl.compile(mod, "cuda:sm_80").ptx
    assert "fma.rn" not in rl.compile(mod, "cuda:sm_80,contract=off").ptx


def test_options_of_targets() -> None:
    assert parse_target("cpu") == Target.host()
    assert parse_target("cpu,contract=off") == replace(Target.host(), contract=False)
    assert parse_target("cuda:sm_90, reassociate=off,contract=on") == replace(
        Target.cuda("sm_90"), reassociate=False
    )
    for wrong in ("cpu,contract", "cpu,contract=0", "cpu,fast=on", "cpu,"):
        with pytest.raises(ValueError, match="known: contract=on, contract=off, reassociate=on"):
            parse_target(wrong)
    with pytest.raises(TypeError, match="`contract` of Target is True or False, not 'off'"):
        replace(Target.host(), contract="off")  # type: ignore[arg-type]


def test_options_are_part_of_the_cache_key() -> None:
    from relaxlab.runtime.cache import artifact_key

    host = Target.host()
    targets = (host, replace(host, contract=False), replace(host, reassociate=False))
    assert len({artifact_key("m", t, ()) for t in targets}) == 3
