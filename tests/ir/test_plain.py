"""NumPy's numbers and arrays mean what Python's numbers and lists do, wherever a program or a
schedule is made by calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import te
from relaxlab.ir import expr
from relaxlab.ir.plain import plain
from relaxlab.schedule.trace import to_json
from relaxlab.script.recording import text_of

PRODUCT = rl.parse("""
@T.prim_func
def product(
    A: T.Buffer((32, 48), "float32"), B: T.Buffer((48, 64), "float32"),
    C: T.Buffer((32, 64), "float32"),
):
    for i, j, k in T.grid(32, 64, 48):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")["product"]
NUMBERS = [np.int64, np.int32, np.uint8]


@pytest.mark.parametrize(
    "value",
    [np.int8(3), np.float64(2.5), np.float16(2.5), np.longdouble(2.5), np.bool_(True),
     np.str_("a"), np.array(3), (np.int64(1), [np.float32(2.0)]), {"a": np.uint8(1)}],
)  # fmt: skip
def test_what_is_plain_stays_itself(value: Any) -> None:
    found = plain(value)
    assert found == value and plain(found) == found
    assert "np." not in repr(found) and "array" not in repr(found)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "steps",
    [
        lambda sch, block, loops, w: sch.split(loops[0], [None, w(8)]),
        lambda sch, block, loops, w: sch.split(loops[0], np.array([4, 8], w)),
        lambda sch, block, loops, w: sch.reorder_block_iter_var(block, np.array([1, 0, 2], w)),
        lambda sch, block, loops, w: sch.cache_read(block, w(1), "shared"),
        lambda sch, block, loops, w: sch.rfactor(loops[2], factor_axis=w(1)),
        lambda sch, block, loops, w: sch.pad_einsum(block, [w(16), w(16), w(32)]),
        lambda sch, block, loops, w: sch.annotate(block, "tile", [w(3), w(4)]),
        lambda sch, block, loops, w: sch.transform_block_layout(
            block, lambda i, j, k: (i * w(64) + j, k)
        ),
    ],
)
def test_steps_of_a_schedule(steps: Callable[..., Any], number: type) -> None:
    def made(kind: type) -> tuple[str, Any, list[str]]:
        sch = rl.Schedule(PRODUCT)
        block = sch.get_block("C")
        steps(sch, block, sch.get_loops(block), kind)
        return sch.func.script(), json.loads(to_json(sch.trace)), [*map(str, sch.trace)]

    assert made(number) == made(int)


@pytest.mark.parametrize("number", NUMBERS)
def test_computations(number: type) -> None:
    def made(kind: type) -> str:
        a = te.placeholder((kind(4), kind(3)), name="a")
        b = te.compute((kind(4), 3), lambda i, j: a[i, j] + kind(1), name="b")
        return te.create_prim_func([a, b]).script()

    assert made(number) == made(int)


def test_a_fraction_is_not_cut_off() -> None:
    n = expr.Var("n")
    for fraction in (2.5, np.float32(2.5), np.float64(2.5)):
        with pytest.raises(TypeError, match=r"Mul of int64 and float32: n and 2\.5"):
            n * fraction


def test_recorded_arguments() -> None:
    given = [np.float64(2.5), np.str_("a"), np.float64("inf"), (np.int64(1), np.longdouble(2))]
    assert list(map(text_of, given)) == ["2.5", "'a'", 'float("inf")', "(1, 2.0)"]


RELU = rl.parse(
    '@R.function\ndef main(x: R.Tensor(("n", 4), "float32")):\n    return R.nn.relu(x)\n'
)


@pytest.mark.parametrize("number", NUMBERS)
def test_sizes_and_counts(number: type) -> None:
    exe = rl.compile(RELU, threads=number(1))
    assert exe.threads == 1
    assert len(rl.time(exe, np.ones((2, 4), "float32"), samples=number(2)).samples) == 2
    view = rl.explore.loops(rl.trace(RELU), "relu", n=number(3))
    assert view.state["sizes"] == rl.explore.loops(rl.trace(RELU), "relu", n=3).state["sizes"]


@pytest.mark.parametrize("number", NUMBERS)
def test_layers(number: type) -> None:
    def weights(kind: type) -> list[tuple[str, object]]:
        both = kind(3), (kind(3), 3)
        layers = [rl.nn.Conv2d(kind(4), kind(8), k, padding=kind(1)) for k in both]
        layers.append(rl.nn.Linear(kind(3), kind(4)))
        return [(n, p.shape) for layer in layers for n, p in layer.named_parameters().items()]

    assert repr(weights(number)) == repr(weights(int))
    given = rl.nn.Parameter(np.array([3, 4], number), np.float32)
    assert repr(given) == repr(rl.nn.Parameter((3, 4)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.time(lambda: 1, samples=0), "samples must be at least 1, not 0"),
        (lambda: rl.nn.Parameter("ab"), "a shape is a tuple of dimensions"),  # type: ignore[arg-type]
        (lambda: rl.predict(RELU, "h100", n=4.0), "the value of n is a whole number, not 4.0"),
    ],
)
def test_what_is_no_size_or_count(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError, rl.ExecutionError), match=message):
        call()
