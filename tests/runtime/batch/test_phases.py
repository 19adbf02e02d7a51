"""`R.phase()`: what follows runs after all that comes before it in every instance."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError

WALKS = """
@R.function(private=True)
def walk(
    t: R.Tensor((), "int64"), h: R.Tensor((1, 4), "float32"), W: R.Tensor((4, 4), "float32")
) -> R.Tensor((1, 4), "float32"):
    if R.less(R.const(0, "int64"), t):
        out = cls.walk(R.subtract(t, R.const(1, "int64")), R.tanh(h @ W), W)
    else:
        out = h
    return out

@R.function
def main(
    t: R.Tensor((), "int64"), h: R.Tensor((1, 4), "float32"),
    W: R.Tensor((4, 4), "float32"), V: R.Tensor((4, 4), "float32"),
) -> R.Tensor((1, 4), "float32"):
    R.func_attr({"num_input": 2})
    a = cls.walk(t, h, W)
    R.phase()
    b = R.sin(a @ V)
    c = cls.walk(t, b, W)
    return c
"""


def test_a_phase_waits_for_all_instances():
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
    instances = [
        (np.int64(n), rng.standard_normal((1, 4)).astype(np.float32)) for n in (1, 4, 2, 6)
    ]
    mod = rl.parse(WALKS)
    launches, depths = [], []
    for text in (WALKS, WALKS.replace("    R.phase()\n", "")):
        main = rl.compile(rl.parse(text), pipeline=rl.batched_pipeline())["main"].bind(*weights)
        for given, found in zip(instances, main.batch(instances), strict=True):
            expected = rl.interpret(mod, "main", *given, *weights)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        launches.append([name for name, _ in main.last_batch.launches])
        records = main.record(instances)
        of_main = records.type_of == records.types.index("main_block")
        depths.append(len(set(records.depth[of_main].tolist())))
    first, (walk, *others) = 6, dict.fromkeys(launches[0])
    assert others == ["main_block"]
    assert launches[0] == [*[walk] * first, "main_block", *[walk] * first]
    assert depths == [1, 4]
    # One by one there is nothing to wait for.
    found = rl.compile(mod)["main"](*instances[1], *weights)
    expected = rl.interpret(mod, "main", *instances[1], *weights)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_phases_inside_of_recursion_are_refused():
    text = WALKS.replace("        out = h\n", "        R.phase()\n        out = h\n")
    with pytest.raises(DiagnosticError, match=r"in `walk`: R\.phase\(\) is in a branch") as error:
        rl.compile(rl.parse(text), pipeline=rl.batched_pipeline())
    assert [d.code for d in error.value.diagnostics] == ["E0509"]
