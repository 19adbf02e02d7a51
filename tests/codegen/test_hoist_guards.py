"""Guards that are tested before the loops that they are in."""

import numpy as np

import relaxlab as rl
from relaxlab.script import parse


def test_guards_on_elements_stay_in_unrolled_loops() -> None:
    """They may hold again after they failed, unlike those on places."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer(("n", 8), "float32"), C: T.Buffer((8,), "float32")):
    for j in range(n):
        for i in T.unroll(8):
            if A[j, i] < T.float32(3):
                C[i] = A[j, i]
""")
    a = np.float32([[1, 5, 2, 3, 0, 9, 9, 2]])
    c = np.full(8, 7, "float32")
    rl.compile(func)(a, c)
    assert c.tolist() == [1, 7, 2, 7, 0, 7, 7, 2]
