"""Generated programs on ragged tensors: the interpreter, which runs one sequence after the other,
against dense tensors and loops over the sequences."""

from __future__ import annotations

import os

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.flatten_ragged import flatten_ragged
from relaxlab.passes.normalize import normalize
from relaxlab.script.parser import parse

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
HEADS = "R.reshape({r}, (0, 0, 2, 4))"
STEPS = (
    ("r", "R.add({r}, {r})"),
    ("r", "R.multiply({r}, R.sigmoid({r}))"),
    ("r", "R.nn.softmax({r}, axis=1)"),
    ("r", "R.nn.softmax({r}, axis=2)"),
    ("r", "R.tanh(R.cumsum({r}, axis=1))"),
    ("r", "R.flip({r}, axis=1)"),
    ("r", "R.subtract({r}, R.expand_dims({v}, axis=1))"),
    ("r", "R.concat((R.split({r}, 2, axis=2)[1], R.split({r}, 2, axis=2)[0]), axis=2)"),
    ("r", "R.reshape(R.permute_dims({p}, axes=[0, 2, 1, 3]), (0, 0, 8))"),
    ("r", f"R.reshape(R.nn.attention({HEADS}, {HEADS}, {HEADS}), (0, 0, 8))"),
    ("p", f"R.permute_dims({HEADS}, axes=[0, 2, 1, 3])"),
    ("p", "R.maximum({p}, R.negative({p}))"),
    ("p", "R.nn.softmax({p}, axis=2)"),
    ("p", "R.multiply({p}, R.reshape({v}, (b, 2, 1, 4)))"),
    ("v", "R.sum({r}, axis=1)"),
    ("v", "R.tanh({v})"),
    ("v", "R.reshape(R.sum({p}, axis=2), (b, 8))"),
    ("a", "R.tanh(R.matmul({p}, R.permute_dims({p}, axes=[0, 1, 3, 2])))"),
    ("a", "R.permute_dims({a}, axes=[0, 1, 3, 2])"),
    ("a", "R.nn.softmax({a}, axis=3)"),
    ("a", "R.multiply({a}, R.expand_dims(R.sum({p}, axis=3), axis=2))"),
    ("p", "R.matmul({a}, {p})"),
    ("p", "R.multiply({p}, R.expand_dims(R.sum({a}, axis=2), axis=3))"),
)
"""Values of the kinds r (b, s[i], 8), p (b, 2, s[i], 4), a (b, 2, s[i], s[i]) and v (b, 8), by
values of such kinds."""
TOP = """
@R.function
def main(s: R.Lengths("b", "n", at_most=64),
         r0: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32"),
         v0: R.Tensor(("b", 8), "float32")):
    with R.dataflow():
        p0 = R.permute_dims(R.reshape(r0, (0, 0, 2, 4)), axes=[0, 2, 1, 3])
        a0 = R.matmul(p0, R.permute_dims(p0, axes=[0, 1, 3, 2]))
        LINES
        R.output(RESULTS)
    return (RESULTS,)
"""
LENGTHS = ([3, 1, 5], [0, 2, 0, 7], [1], [4, 4])


def drawn(seed: int, steps: int = 8) -> rl.Module:
    """A program of random steps, whose results are the last values of each kind."""
    print(f"RELAXLAB_SEED={seed}")
    rng = np.random.default_rng(seed)
    made, lines = {"r": ["r0"], "p": ["p0"], "a": ["a0"], "v": ["v0"]}, list[str]()
    for k in range(1, steps + 1):
        kind, text = STEPS[rng.integers(len(STEPS))]
        for of, names in made.items():
            while "{" + of + "}" in text:
                recent = names[-3:]
                text = text.replace("{" + of + "}", recent[rng.integers(len(recent))], 1)
        lines.append(f"{kind}{k} = {text}")
        made[kind].append(f"{kind}{k}")
    results = ", ".join(names[-1] for names in made.values() if len(names) > 1)
    return parse(TOP.replace("LINES", "\n        ".join(lines)).replace("RESULTS", results))


def compare(mod: rl.Module, lengths: list[int], *, native: bool) -> None:
    rng = np.random.default_rng(len(lengths))
    rows, each = (rng.standard_normal((k, 8), "float32") for k in (sum(lengths), len(lengths)))
    given = (np.array(lengths, "int32"), rows, each)
    want = rl.interpret(mod, "main", *given)
    runs = [rl.interpret(flatten_ragged(normalize(mod)), "main", *given)]
    runs += [rl.compile(mod)["main"](*given)] if native else []
    for got in runs:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, 1e-4, 1e-4)


@pytest.mark.parametrize("number", range(8))
def test_programs(number: int) -> None:
    compare(drawn(SEED * 1000 + number), LENGTHS[number % 4], native=False)


def test_a_program_in_native_code() -> None:
    compare(drawn(SEED * 1000 + 8, 3), LENGTHS[1], native=True)
