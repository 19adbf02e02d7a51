"""`add_ghosts`: what follows branches of unequal length runs in one batch."""

import numpy as np

import relaxlab as rl
from relaxlab.passes import lower_recording

STEPS = """
@I.ir_module
class Steps:
    @R.function(private=True)
    def cell(x: R.Tensor((1, 4), "float32"), W: R.Tensor((4, 4), "float32")) -> R.Tensor(
        (1, 4), "float32"
    ):
        y = R.tanh(x @ W)
        return y

    @R.function(private=True)
    def walk(
        t: R.Tensor((), "int64"), long: R.Tensor(("n",), "int64"), x: R.Tensor((1, 4), "float32"),
        length: R.Tensor((), "int64"), W: R.Tensor((4, 4), "float32"),
        U: R.Tensor((4, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        if R.less(t, length):
            if R.equal(R.take(long, t, axis=0), R.const(1, "int64")):
                y = cls.cell(cls.cell(cls.cell(x, W), W), W)
            else:
                y = cls.cell(x, W)
            new = R.sin(y @ U)
            out = cls.walk(R.add(t, R.const(1, "int64")), long, new, length, W, U)
        else:
            out = x
        return out

    @R.function
    def main(
        length: R.Tensor((), "int64"), long: R.Tensor(("n",), "int64"),
        x: R.Tensor((1, 4), "float32"), W: R.Tensor((4, 4), "float32"),
        U: R.Tensor((4, 4), "float32"),
    ) -> R.Tensor((1, 4), "float32"):
        R.func_attr({"num_input": 3})
        y = cls.walk(R.const(0, "int64"), long, x, length, W, U)
        return y
"""


def compiled():
    return rl.compile(rl.parse(STEPS), pipeline=rl.batched_pipeline())


def test_branches_of_unequal_length_stay_aligned(monkeypatch):
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
    instances = [
        (np.int64(5), rng.integers(0, 2, 5), rng.standard_normal((1, 4)).astype(np.float32))
        for _ in range(12)
    ]
    with_ghosts = compiled()["main"].bind(*weights)
    results = with_ghosts.batch(instances)
    # Three batches of the cell and one of what follows, in each of five steps.
    assert with_ghosts.last_batch.batches == 20
    for given, found in list(zip(instances, results, strict=True))[:3]:
        expected = rl.interpret(rl.parse(STEPS), "main", *given, *weights)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(lower_recording, "add_ghosts", lambda functions: functions)
    without = compiled()["main"].bind(*weights)
    for found, expected in zip(without.batch(instances), results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert without.last_batch.batches > 20
