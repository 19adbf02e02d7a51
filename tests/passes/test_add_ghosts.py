"""`add_ghosts`: what follows branches of unequal length runs in one batch."""

import numpy as np

import relaxlab as rl

STEPS = """
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


RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
INSTANCES = [
    (np.int64(5), RNG.integers(0, 2, 5), RNG.standard_normal((1, 4)).astype(np.float32))
    for _ in range(12)
]


def noted(**options):
    """How many batches the instances take, and how many depths on a block; their results are
    compared with the interpreter."""
    pipeline = rl.batched_pipeline()
    for name, values in options.items():
        pipeline = pipeline.with_options(name, **values)
    main = rl.compile(rl.parse(STEPS), pipeline=pipeline)["main"].bind(*WEIGHTS)
    results = main.batch(INSTANCES)
    for given, found in list(zip(INSTANCES, results, strict=True))[:3]:
        expected = rl.interpret(rl.parse(STEPS), "main", *given, *WEIGHTS)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    records = main.record(INSTANCES)
    depths = {*zip(records.type_of.tolist(), records.depth.tolist(), strict=True)}
    return main.last_batch.batches, len(depths)


def test_branches_of_unequal_length_stay_aligned():
    # Three batches of the cell and one of what follows, in each of five steps.
    assert noted() == (20, 20)
    # Batches are chosen by what notes read, whatever their depths.
    batches, depths = noted(annotate_recording={"ghosts": False})
    assert batches == 20 and depths > 20
