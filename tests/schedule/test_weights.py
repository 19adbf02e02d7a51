"""Products of an argument of any number of rows and a weight, which callers repack once."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.passes.bindings import known_shape
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.interpreter.interpreter import interpret

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 20, 24)
LARGEST = 20_000
"""Multiplications of a row at most."""
ERROR = {"float16": 3e-2, "float32": 1e-4, "float64": 1e-11, "int8": 0}


def program(rng: random.Random, dtype: str) -> tuple[str, list[int], list[int]]:
    """A product over one or two axes of rows `n`, most with axes in an order in which schedules
    join them; the other extents of its first operand, and those of the weight."""
    summed, rows = "pqr"[: rng.randint(1, 2)], "ab"[: rng.choice((0, 0, 1, 2))]
    columns, batch = "cde"[: rng.choice((1, 2, 2, 3))], "z" if rng.random() < 0.2 else ""
    names = [*summed, *rows, *columns, *batch]
    sizes = {name: rng.choice(EXTENTS) for name in names}
    while math.prod(sizes.values()) > LARGEST:
        name = rng.choice(names)
        sizes[name] = sizes[name] // 2 + 1
    words = [list("".join(w)) for w in ((rows, summed, batch), (summed, columns, batch))]
    result = ["n", *rows, *columns, *batch]
    if rng.random() < 0.3:
        for word in (*words, result):
            rng.shuffle(word)
    first, weight = ([sizes[name] for name in word] for word in words)
    text = f"n{''.join(words[0])},{''.join(words[1])}->{''.join(result)}"
    return (
        f'@R.function\ndef main(x: R.Tensor(("n", {", ".join(map(str, first))}), "{dtype}"),\n'
        f'         w: R.Tensor(({", ".join(map(str, weight))},), "{dtype}")):\n'
        '    R.func_attr({"num_input": 1})\n    with R.dataflow():\n'
        f'        y = R.einsum((x, w), subscripts="{text}")\n        R.output(y)\n    return y\n'
    ), first, weight  # fmt: skip


@pytest.mark.parametrize("number", range(20))
def test_repacked_weights_of_any_shape(number: int) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng, data = random.Random(seed), np.random.default_rng(seed)
    dtype = ("float32", "float64", "float32", "float64", "float16", "int8")[number % 6]
    source, first, weight = program(rng, dtype)
    mod = rl.parse(source)
    main = rl.compile(mod, use_cache=False)["main"]
    w = data.integers(-9, 9, weight).astype(numpy_dtype(dtype))
    for n in (0, 1, 5, 37):
        x = data.integers(-9, 9, (n, *first)).astype(numpy_dtype(dtype))
        got, want = main(x, w).astype("float64"), interpret(mod, "main", x, w).astype("float64")
        np.testing.assert_allclose(got, want, ERROR[dtype], ERROR[dtype], err_msg=source)


def rows(of: str, begin: int, end: int) -> str:
    return f"R.strided_slice({of}, axes=[0], begin=[{begin}], end=[{end}])"


@pytest.mark.parametrize(
    "made",
    [
        rows("w", 4, 12),
        f"R.permute_dims({rows('v', 4, 24)})",
        f"R.exp({rows('w', 0, 8)})",
        f"R.concat(({rows('w', 0, 3)}, {rows('w', 5, 10)}), axis=0)",
        "R.take(w, R.const([3, 1, 1, 0, 7, 2, 5, 9], 'int64'), axis=0)",
        f"R.multiply(R.permute_dims({rows('v', 1, 21)}), R.const(0.5, 'float32'))",
    ],
)
def test_values_of_weights_are_computed_and_packed_at_load(made: str) -> None:
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((12, 20), "float32"),'
        '\n         v: R.Tensor((24, 8), "float32")):\n    R.func_attr({"num_input": 1})\n'
        f"    with R.dataflow():\n        y = R.nn.relu(R.matmul(x, {made}))\n"
        "        R.output(y)\n    return y\n"
    )
    lowered = cpu_pipeline().run(mod).result
    main = lowered["main"]
    # Panels of the product's own weight are all that is left.
    assert [len(known_shape(p.ty) or ()) for p in main.params] == [2, 3]
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((12, 20), (24, 8))]
    loaded = rl.compile(mod, threads=1).load(weights)["main"]
    for n in (0, 1, 3, 9, 40):
        x = rng.standard_normal((n, 8)).astype(np.float32)
        expected = interpret(mod, "main", x, *weights)
        np.testing.assert_allclose(loaded(x), expected, rtol=1e-4, atol=1e-5)


def test_weights_that_others_read_or_that_would_grow_stay_in_the_kernel() -> None:
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((12, 20), "float32"),'
        '\n         h: R.Tensor((20, 5), "float16")):\n    R.func_attr({"num_input": 1})\n'
        "    with R.dataflow():\n"
        f"        y = R.matmul(x, {rows('w', 4, 12)})\n"
        "        z = R.matmul(y, R.astype(h, 'float32'))\n"
        "        tied = R.multiply(w, R.sum(x))\n"
        "        R.output(z, tied)\n    return (z, tied)\n"
    )
    trace = cpu_pipeline().run(mod)
    fused = {n for n in trace.find("fuse_tir").after if "matmul" in n and n.startswith("fused")}
    assert fused == {"fused_strided_slice_matmul", "fused_astype_matmul"}
