"""Effects of calls on memory, followed through branches."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.base import Pipeline
from relaxlab.passes.effects import overwritten_vars
from relaxlab.passes.pipeline import GRAPH_PASSES
from relaxlab.testing.pass_check import compare_runs
from tests.passes.inplace_programs import bumping


def nested(depth: int) -> str:
    """A function of `depth` branches inside each other, the innermost exp."""
    lines = [
        "@R.function",
        "def main(x: R.Tensor((3,), 'float32'), c: R.Tensor((), 'bool')):",
    ]
    lines += ["    " * i + "if c:" for i in range(1, depth + 1)]
    lines.append("    " * (depth + 1) + "y = R.exp(x)")
    for i in range(depth, 0, -1):
        lines += ["    " * i + "else:", "    " * (i + 1) + "y = x"]
    return "\n".join([*lines, "    return y"])


def test_the_work_does_not_double_with_each_branch() -> None:
    mod = rl.parse(nested(40))  # were it to double, this would not end
    assert overwritten_vars(mod["main"], mod) == set()  # type: ignore[arg-type]
    x = np.zeros(3, "float32")
    main = rl.compile(mod, use_cache=False)["main"]
    assert main(x, np.array(True)).tolist() == [1, 1, 1]
    assert main(x, np.array(False)).tolist() == [0, 0, 0]


ALIASING = """
@R.function(private=True)
def first(a: TENSOR, b: TENSOR) -> R.Tuple(TENSOR, TENSOR):
    t = R.cos(b)
    z = BUMP(a)
    u = R.cos(b)
    return (z, R.add(t, u))

@R.function(private=True)
def pair(p: R.Tuple(TENSOR, TENSOR)) -> TENSOR:
    b = p[1]
    t = R.cos(b)
    r = Module.first(p[0], b)
    return R.add(t, r[1])

@R.function(private=True)
def nested(a: TENSOR, b: TENSOR) -> R.Tuple(TENSOR, R.Tuple(TENSOR, TENSOR)):
    return (b, (R.cos(a), a))

@R.function(private=True)
def over(a: TENSOR) -> TENSOR:
    z = BUMP(a)
    return z

@R.function(private=True)
def perhaps(a: TENSOR) -> TENSOR:
    c = R.less(R.max(a), R.const(0.5, "float32"))
    if c:
        z = BUMP(a)
    else:
        z = a
    return z

@R.function(private=True)
def until(a: TENSOR) -> TENSOR:
    c = R.less(R.max(a), R.const(2, "float32"))
    if c:
        z = BUMP(a)
        r = Module.until(z)
    else:
        r = a
    return r

@R.function(private=True)
def same(a: TENSOR) -> TENSOR:
    return a

@R.function(private=True)
def apply(g: R.Callable((TENSOR,), TENSOR), a: TENSOR) -> TENSOR:
    z = g(a)
    return z

@R.function
def main(x: TENSOR, y: TENSOR):
    v0 = R.negative(x)
    v1 = R.negative(y)
BODY
"""
STEPS = (
    *["v = R.cos(A)"] * 5,
    "v = R.reshape(A, R.shape([4]))",
    "r = Module.first(A, B); v = r[0]",
    "r = Module.first(A, B); v = r[1]",
    "v = Module.pair((A, B))",
    "r = Module.nested(A, B); v = r[0]",
    "r = Module.nested(A, B); s = r[1]; v = s[1]",
    "v = Module.apply(Module.over, A)",
    "v = Module.apply(Module.same, A)",
    "v = Module.over(A)",
    "v = Module.perhaps(A)",
    "v = Module.until(A)",
    "p = Module.perhaps(A); v = R.cos(p)",
)


def aliasing_program(rng: np.random.Generator) -> str:
    """Return a program of random steps on values that may share memory: calls of functions that
    overwrite or return their arguments, and as many that do neither, so that many programs are
    accepted."""
    lines: list[str] = []
    count = int(rng.integers(3, 7))
    for k in range(2, 2 + count):
        a, b = (f"v{rng.integers(k)}" for _ in range(2))
        step = str(rng.choice(STEPS)).replace("A", a).replace("B", b)
        for name in "vrsp":
            step = re.sub(rf"\b{name}\b(?!\()", f"{name}{k}", step)
        lines += step.split("; ")
    kept = rng.choice(2 + count, 2, replace=False)
    lines.append(f"return ({', '.join(f'v{k}' for k in kept)})")
    return ALIASING.replace("BODY", "\n".join("    " + line for line in lines))


def test_programs_with_aliases_are_refused_or_mean_the_same(rng: np.random.Generator) -> None:
    outcomes: Counter[str] = Counter()
    for _ in range(60):
        text = aliasing_program(rng)
        mod = bumping(text)
        try:
            after = Pipeline(GRAPH_PASSES).run(mod).result
        except DiagnosticError as error:
            assert {d.code for d in error.diagnostics} == {"E0506"}, text
            outcomes["refused"] += 1
            continue
        outcomes["accepted"] += 1
        compare_runs(mod, after)
    assert min(outcomes["refused"], outcomes["accepted"]) > 0
