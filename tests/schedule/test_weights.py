"""Products of an argument of any number of rows and a weight, which callers repack once."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import numpy_dtype
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
