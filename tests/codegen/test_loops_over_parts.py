"""Loops whose sizes are not those of their buffers: over some of the rows, without iterations, or
beyond the end. Compiled programs do what the interpreter does, or refuse."""

import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.native.loaded import CheckFailed
from tests.schedule.test_form_blocks import RANKS, drawn_steps

PARAMS = ", ".join([*(f"p_{name}: T.handle" for name in RANKS), "n: T.int64", "z: T.int64"])
MATCHED = "".join(
    f'    {name} = T.match_buffer(p_{name}, ({"m, " * rank}), "int64")\n'
    for name, rank in RANKS.items()
)
SIZES = ("3", "n", "n", "z", "n - 2", "n - 1", "m - 4")
FOUND = (
    # The sum of no terms was added to an element that is not there.
    "    for i in range(n):\n        C[4, 3] = C[4, 3] + C[i, 1] * A[0, i]",
    "    for k in range(n - 2):\n        for l in range(n): C[1, 1] = C[1, 1] - E[l + 1]",
    # Memory between nests for a negative number of elements was refused, or of another size.
    "    for i in range(n - 2):\n        for j in range(n - 2):\n"
    "            D[i] = D[i] + T.max(E[i + 3], C[j + 3, j + 1])",
    # Memory of a negative number of elements was taken from that of the nest behind it.
    "    for i in range(z):\n        for j in range(z):\n            for k in range(n):\n"
    "                C[k, j + 3] = C[k, j + 3] + T.int64(1)\n"
    "    for l in range(n):\n        for p in range(z): E[l + 3] = T.max(E[l + 3], A[p, l])",
    # An element behind the end of its row was not reported: it is there in the row below.
    "    for i in range(n):\n        C[0, i + 2] = E[i]",
)


def compare(body: str, rng: np.random.Generator) -> None:
    """Run a program natively, as it is and with memory checks on, and interpreted."""
    text = f"@T.prim_func\ndef f({PARAMS}):\n    m = T.int64()\n{MATCHED}{body}\n"
    func = rl.parse(text)["f"]
    plain = rl.compile(func, "cpu", use_cache=False)
    exe = rl.compile(func, "cpu", checks="all", use_cache=False)
    for _ in range(6):
        n, z = (int(rng.integers(-3, 6)) for _ in range(2))
        m = int(rng.choice([0, 1, 3, 6, 14, 30]))
        where = f"n = {n}, z = {z}, m = {m}\n{body}"
        given = [rng.integers(-2, 3, (m,) * rank) for rank in RANKS.values()]
        fast, ours, theirs = ([x.copy() for x in given] for _ in range(3))
        try:
            interpret_prim_func(func, [*theirs, n, z])
        except ExecutionError:
            with pytest.raises(CheckFailed):
                exe(*ours, n, z)
            continue
        try:
            exe(*ours, n, z)
        except CheckFailed as error:
            # Sizes that fit no buffer are refused even where a loop around leaves them out.
            assert "needs" in str(error), f"{where}: {error}"
            assert min(n - 2, z, m - 4) <= 0, f"{where}: {error}"
            continue
        assert all(map(np.array_equal, ours, theirs)), where
        # Indices that take a flat index apart are joined where no access is checked.
        plain(*fast, n, z)
        assert all(map(np.array_equal, fast, theirs)), where


@pytest.mark.parametrize("body", FOUND)
def test_found_programs(body: str, rng: np.random.Generator) -> None:
    compare(body, rng)


def test_drawn_programs(rng: np.random.Generator) -> None:
    compared = 0
    while compared < 6:
        body = drawn_steps(random.Random(int(rng.integers(1 << 31))), SIZES)
        try:
            compare(body, rng)
        except DiagnosticError as error:
            # The parser refuses a program with an index that is always out of bounds.
            assert "E0334" in str(error), body
        else:
            compared += 1
