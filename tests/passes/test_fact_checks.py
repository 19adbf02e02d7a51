"""Checks of index functions in host programs: before each kernel that counts on them, once."""

import numpy as np

import relaxlab as rl
from relaxlab.ir import host
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.script.parser import parse

ROWS = """
@T.prim_func
def pick(at_: T.handle, x: T.Buffer(("m", 4), "float32"), y: T.Buffer(("n", 4), "float32")):
    at = T.index_function(at_, (n,), "int64", facts=[T.range(0, m)])
    for i, j in T.grid(n, 4):
        y[i, j] = x[at[i], j]

@T.prim_func
def next(at: T.Buffer(("n",), "int64")):
    for i in range(n):
        at[i] = at[i] + 1

@R.function
def twice(at: R.Tensor(("n",), "int64"), x: R.Tensor(("m", 4), "float32"),
          z: R.Tensor(("k", 4), "float32")):
    with R.dataflow():
        a = R.call_tir(cls.pick, (at, x), out_ty=R.Tensor((n, 4), "float32"))
        b = R.call_tir(cls.pick, (R.reshape(at, (n,)), x + x), R.Tensor((n, 4), "float32"))
        c = R.call_tir(cls.pick, (at, z), out_ty=R.Tensor((n, 4), "float32"))
        R.output(a, b, c)
    return a, b, c

@R.function(pure=False)
def changed(at: R.Tensor(("n",), "int64"), x: R.Tensor(("m", 4), "float32")):
    own = at + R.const(0, "int64")
    a = R.call_tir(cls.pick, (own, x), out_ty=R.Tensor((n, 4), "float32"))
    other = R.call_tir_inplace(cls.next, (own,), [0], out_ty=R.Tensor((n,), "int64"))
    b = R.call_tir(cls.pick, (other, x), out_ty=R.Tensor((n, 4), "float32"))
    return a, b
"""


def calls(name: str) -> list[str]:
    program = lower_shapes(rl.trace(parse(ROWS)).result)
    instrs = host.walk_instrs(program.functions[name].instrs)
    return [i.function for i in instrs if isinstance(i, host.CallKernel)]


def test_an_array_is_checked_once_for_each_bound() -> None:
    """`at` is used three times, twice with rows below `m` and once with rows below `k`."""
    assert sum(name.endswith("_facts") for name in calls("twice")) == 2


def test_an_array_that_changed_is_checked_again() -> None:
    found = calls("changed")
    checks = [at for at, name in enumerate(found) if name.endswith("_facts")]
    assert len(checks) == 2 and checks[0] < found.index("next") < checks[1]


def test_programs_refuse_what_a_kernel_would_read_outside() -> None:
    exe = rl.compile(parse(ROWS))
    x, at = np.arange(12, dtype="float32").reshape(3, 4), np.array([2, 0])
    a, b, c = exe["twice"](at, x, x)
    assert np.array_equal(a, x[at]) and np.array_equal(b, 2 * x[at]) and np.array_equal(c, x[at])
    message = "not in T.range"
    for given in ((np.array([2, 3]), x, x), (np.array([-1, 0]), x, x), (at, x, x[:2])):
        try:
            exe["twice"](*given)
        except rl.CheckFailed as error:
            assert message in str(error)
        else:
            raise AssertionError(given[0])
