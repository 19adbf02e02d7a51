"""Weights of programs that a virtual machine runs: as the program was written, whatever passes
have made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.module import Module
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.vm.cuda import require_cupy

TARGETS = ("cuda", "wgsl", "interpreter")
W = np.full((4, 4), 0.5, np.float32)
X = np.ones((2, 4), np.float32)
WANT = X @ np.exp(W)


def of_exp(functions: int = 1) -> Module:
    """Products with exp(w), which has w's type and is made once."""

    class Product(nn.Module):
        def __init__(self) -> None:
            self.w = nn.Parameter((4, 4))

        def main(self, x):
            return x.op("matmul", x.builder.weight(self.w).op("exp"))

        def twice(self, x):
            return self.main(x) * 2

    x = {"x": nn.spec.Tensor((2, 4), "float32")}
    return Product().export({"main": x, "twice": x} if functions == 2 else {"main": x})[0]


def caller(exe: Any, name: str = "main") -> Callable[..., Any]:
    """A function as it can be called without a GPU."""
    if hasattr(exe, "simulate"):
        return lambda *args: exe.simulate(name, *args)
    return exe[name]


@pytest.mark.parametrize("target", TARGETS)
def test_calls_take_the_programs_weights(target: str) -> None:
    exe = rl.compile(of_exp(), target)
    assert "main_transform_params" in exe
    np.testing.assert_allclose(caller(exe)(X, W), WANT, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_transformation_returned_is_not_transformed_again(target: str) -> None:
    exe = rl.compile(of_exp(), target)
    packed = caller(exe, "main_transform_params")((W,))
    np.testing.assert_allclose(caller(exe)(X, *packed), WANT, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_a_call_without_weights_says_how_to_bind_them(target: str) -> None:
    with pytest.raises(ArgumentError, match=r"`main` was given no weights \(w\).*exe\.load"):
        caller(rl.compile(of_exp(), target))(X)


@pytest.mark.parametrize("params", [{"w": W}, [W]])
def test_weights_are_bound_once(params: Any) -> None:
    exe = rl.compile(of_exp(2), "interpreter").load(params)
    for name, factor in (("main", 1), ("twice", 2)):
        np.testing.assert_allclose(exe[name](X), factor * WANT, rtol=1e-6)
    np.testing.assert_allclose(exe["main"](X, 2 * W), X @ np.exp(2 * W), rtol=1e-6)


def test_weights_that_do_not_fit_are_named() -> None:
    exe = rl.compile(of_exp(), "interpreter")
    with pytest.raises(ArgumentError, match="the weight `w` of `main` is missing"):
        exe.load({})
    with pytest.raises(ArgumentError, match="no function has a weight 'v'"):
        exe.load({"w": W, "v": W})


def test_the_only_function_besides_its_transformation_is_called() -> None:
    mod = of_exp()
    exe = rl.compile(Module.of({"product": mod["main"]}), "interpreter")
    np.testing.assert_allclose(exe(X, W), WANT, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_normalisation_folded_into_a_convolution(target: str) -> None:
    """Convolution and batch normalisation, whose statistics become part of the weights."""
    mod = rl.parse("""
@R.function
def main(x: R.Tensor((1, 3, 6, 6), "float32"), w: R.Tensor((4, 3, 3, 3), "float32"),
         g: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32"),
         m: R.Tensor((4,), "float32"), v: R.Tensor((4,), "float32")):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        y = R.nn.conv2d(x, w)
        z = R.nn.batch_norm(y, g, b, m, v, axis=1, training=False)
        r = z[0]
        R.output(r)
    return r
""")
    rng = np.random.default_rng(0)
    args = [rng.random([d.value for d in p.ty.shape], np.float32) + 0.5 for p in mod["main"].params]
    want = rl.interpret(mod, "main", *args)
    np.testing.assert_allclose(caller(rl.compile(mod, target))(*args), want, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
def test_on_a_gpu(captured: bool) -> None:
    cupy = require_cupy()
    exe = rl.compile(of_exp(), "cuda")
    x, w = cupy.asarray(X), cupy.asarray(W)
    call = exe.captured("main") if captured else exe["main"]
    for _ in range(3):
        np.testing.assert_allclose(call(x, w).get(), WANT, rtol=1e-5)
    exe.load({"w": w})
    for _ in range(3):
        np.testing.assert_allclose(call(x).get(), WANT, rtol=1e-5)
