"""Random recursive programs in batches, against the interpreter."""

import os

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.models.dynamic.inputs import parse_tree, random_weights
from tests.runtime.batch.dynamic_programs import KINDS, WIDTH, random_dynamic_program

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
OPTIONS = ({}, {"coarse": False}, {"hoist": False})
LEFT_OUT = ("", "clone_by_weights", "split_concat_product", "split_phases")
RUNS = (None, None, None, rl.batches_by("critical"))
"""By which batches are chosen. The third of as many instances runs without Python."""


def tree(rng, leaves):
    root, left, right, _ = parse_tree(rng, leaves, 5)
    rows = rng.standard_normal((len(left), WIDTH)).astype(np.float32)
    return root, left, right, rng.integers(0, KINDS, len(left)), rows


@pytest.mark.parametrize("number", range(4))
def test_random_programs(number):
    seed = SEED * 1000 + number
    print(f"RELAXLAB_SEED={SEED}: program {number}")
    rng = np.random.default_rng(seed)
    mod = rl.parse(random_dynamic_program(rng))
    # Each switch is off in some of the programs.
    pipeline = rl.batched_pipeline().with_options("make_blocks", **OPTIONS[seed % 3])
    if LEFT_OUT[seed % 4]:
        pipeline = pipeline.without(LEFT_OUT[seed % 4])
    weights = random_weights(mod, rng, 0.5)
    main = rl.compile(mod, pipeline=pipeline, threads=1)["main"].bind(*weights)
    trees = [tree(rng, int(n)) for n in rng.integers(1, 9, 6)]
    expected = [rl.interpret(mod, "main", *t, *weights) for t in trees]
    for choose in RUNS:
        for found, wanted in zip(main.batch(trees, choose=choose), expected, strict=True):
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
