"""Operators on tensors whose axes were moved: what is computed, and how it goes through memory."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.interpreter.interpreter import interpret

OPERATORS = {
    "sum": "R.sum(y, axis={a})",
    "sum of two axes": "R.sum(y, axis=[{a}, {b}])",
    "sum of all": "R.sum(y)",
    "kept axis": "R.max(y, axis={a}, keepdims=True)",
    "mean": "R.nn.relu(R.mean(y, axis={a}))",
    "variance": "R.variance(y, axis={a})",
    "index of the largest": "R.argmax(y, axis={a})",
    "softmax": "R.nn.softmax(y, axis={a})",
    "root mean square": "R.nn.rms_norm(y, R.sum(g, axis=[1, 2]), axes=[-1])",
    "running sums": "R.cumsum(y, axis={a})",
    "beside": "R.add(y, R.permute_dims(g, [2, 1, 0]))",
    "product": "R.matmul(y, R.permute_dims(y, [0, 2, 1]))",
    "weighted": "R.einsum((y, h), subscripts='abc,ac->ab')",
    "pooled": "R.nn.max_pool1d(y, pool_size=[3], strides=[1], padding=[1, 1])",
    "pooled in steps": "R.nn.avg_pool1d(y, pool_size=[2], strides=[2])",
}
ORDERS = list(itertools.permutations(range(3)))
CUTS = {
    "R.strided_slice(x, axes=[1], begin=[3], end=[43])": (17, 50, 36),
    "R.strided_slice(x, axes=[2], begin=[1], end=[72], strides=[2])": (17, 40, 75),
    "R.concat((x, R.exp(x)), axis=1)": (17, 20, 36),
    "R.tile(x, (1, 2, 1))": (17, 20, 36),
    "R.flip(x, axis=2)": (17, 40, 36),
    "R.broadcast_to(x, (17, 40, 36))": (17, 40, 1),
}
"""Calls that make `y` of shape (17, 40, 36), and the shape of what they take."""


def program(shapes: dict[str, tuple[object, ...]], y: str, operator: str) -> rl.Module:
    given = ", ".join(
        f'{name}: R.Tensor(({", ".join(map(repr, shape))}), "float32")'
        for name, shape in shapes.items()
    )
    return rl.parse(
        f"@R.function\ndef main({given}):\n    with R.dataflow():\n        y = {y}\n"
        f"        z = {operator}\n        R.output(z)\n    return z\n"
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_moved_tensors(name: str) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    rng, data = random.Random(seed), np.random.default_rng(seed)
    axes = dict(zip("ab", rng.sample(range(3), 2), strict=True))
    order, (cut, x) = rng.choice(ORDERS), rng.choice([*CUTS.items()])
    turned = [("n", "m", "k")[order.index(axis)] for axis in range(3)]
    sizes = {name: rng.randint(1, 60) for name in "nmk"}
    y, shape, known = rng.choice(
        [
            (cut, x, {"n": 17, "m": 40, "k": 36}),
            (f"R.permute_dims(x, {list(order)})", tuple(turned), sizes),
        ]
    )
    dims = {"x": shape, "g": ("k", "m", "n"), "h": ("n", "k")}
    constant = {v: tuple(known.get(d, d) for d in of) for v, of in dims.items()}  # type: ignore
    arrays = [data.standard_normal(of).astype(np.float32) for of in constant.values()]
    shapes = constant if y == cut else rng.choice([constant, dims])
    mod = program(shapes, y, OPERATORS[name].format(**axes))
    got = rl.compile(mod, threads=2, checks="all")["main"](*arrays)
    np.testing.assert_allclose(got, interpret(mod, "main", *arrays), rtol=2e-4, atol=2e-4)


def kernels(y: str, shape: tuple[int, ...], operator: str) -> dict[str, str]:
    """The rule of each kernel of a program."""
    shapes = {"x": shape, "g": (36, 40, 64), "h": (64, 36)}
    record = rl.trace(program(shapes, y, operator)).find("schedule_kernels")
    return {r.subject: r.reason.split()[-1] for r in record.remarks if r.applied}


def test_sums_go_through_moved_tensors_in_the_order_of_memory() -> None:
    turned = "R.permute_dims(x, [2, 1, 0])", (36, 40, 64)
    for axis, rule in ((0, "rows"), (1, "columns"), (2, "columns")):
        assert kernels(*turned, f"R.sum(y, axis={axis})") == {"fused_permute_dims_sum": rule}
    backwards = kernels("x", (36, 40, 64), "R.einsum((x, h), subscripts='cba,ac->ab')")
    assert backwards == {"einsum": "columns"}
    flipped = kernels("R.flip(x, axis=2)", (64, 40, 36), "R.sum(y, axis=0)")
    assert flipped == {"fused_flip_sum": "columns"}


@pytest.mark.parametrize(
    "operator", ["softmax", "root mean square", "pooled", "pooled in steps", "variance",
                 "index of the largest"],
)
def test_several_passes_over_a_moved_tensor_get_a_copy(operator: str) -> None:
    call = OPERATORS[operator].format(a=2)
    found = kernels("R.permute_dims(x, [0, 2, 1])", (64, 36, 40), call)
    assert found["permute_dims"] == "transpose"
    whole = kernels("R.negative(x)", (64, 40, 36), call)
    apart = operator in ("softmax", "root mean square")  # they reread what they are given
    assert len(whole) == len(found) - (not apart)


def test_products_take_batches_of_matrices_with_rows_apart() -> None:
    mod = "R.permute_dims(x, [1, 0, 2])", (40, 64, 36)
    (rule,) = kernels(*mod, OPERATORS["product"]).values()
    assert rule == "matmul"


def test_windows_of_scaled_images_are_windows() -> None:
    scaled = "R.multiply(x, R.mean(x, axis=[2], keepdims=True))"
    found = kernels(scaled, (64, 40, 36), OPERATORS["pooled in steps"])
    assert found.pop("fused_multiply_avg_pool1d") == "windows" and len(found) == 1


def test_windows_read_interpolated_images_from_memory() -> None:
    resized = "R.image.resize2d(x, (28, 28), layout='NCHW', method='linear')"
    mod = (
        '@R.function\ndef main(x: R.Tensor((4, 8, 14, 14), "float32"), '
        'w: R.Tensor((8, 1, 3, 3), "float32")):\n    with R.dataflow():\n'
        f"        y = {resized}\n        z = OPERATOR\n        R.output(z)\n    return z\n"
    )
    for operator, kernels in (
        ("R.nn.conv2d(y, w, padding=1, groups=8)", {"resize2d", "conv2d"}),
        ("R.nn.relu(y)", {"fused_resize2d_relu"}),
    ):
        record = rl.trace(rl.parse(mod.replace("OPERATOR", operator))).find("schedule_kernels")
        assert {r.subject for r in record.remarks if r.applied} == kernels


@pytest.mark.parametrize(
    "operator, name",
    [
        ("R.nn.pad(y, [0, 0, 1, 1, 0, 0])", "pad"),
        ("R.concat((y, y), axis=0)", "concat"),
        ("R.take(y, R.const([5, 0, 3, 3, 9], 'int64'), axis=1)", "take"),
    ],
)
def test_permutations_are_no_part_of_kernels_with_branches(operator: str, name: str) -> None:
    shape = (64, 36, 40)
    permuted = kernels("R.permute_dims(x, [0, 2, 1])", shape, operator)
    assert permuted.keys() == {"permute_dims", name} and permuted["permute_dims"] == "transpose"
    assert kernels("R.negative(x)", shape, operator).keys() == {f"fused_negative_{name}"}
    scaled = kernels("R.permute_dims(x, [0, 2, 1])", shape, "R.where(R.greater(y, y), y, y)")
    assert list(scaled.values()) == ["transpose"]
