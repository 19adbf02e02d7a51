"""JAX: `jit`, specialised to the shape of every case; results in place of donated arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from benchmarks.kernels import cases
from benchmarks.kernels.cases import Case
from benchmarks.kernels.kind import EPS
from benchmarks.peers.kernels.base import Fetch, Kernels


class JAXKernels(Kernels):
    """JAX. It has as many threads as the process may use cores when it starts."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        self.about = {"version": jax.__version__, "devices": str(jax.devices())}

    def make(self, case: Case, arrays: Sequence[cases.Array]) -> tuple[Callable[[], Any], Fetch]:
        compute = FUNCTIONS[case.kind]
        held = [jnp.asarray(a) for a in arrays]
        if case.constant:
            # A constant of the program, which the compiler may lay out as it likes.
            *held, weight = held

            def with_weight(*x: Array) -> Array:
                return compute(*x, weight)

            function = with_weight
        else:
            function = compute
        if not case.planned:
            compiled = jax.jit(function)
            last: list[Array] = []

            def run() -> None:
                last[:] = [compiled(*held).block_until_ready()]

            return run, lambda: np.asarray(last[0])

        # The result takes the memory of the argument `out`, which is the last result.
        into = jax.jit(lambda out, *x: function(*x), donate_argnums=0, keep_unused=True)
        out = [jnp.zeros(jax.eval_shape(function, *held).shape, jnp.float32)]

        def run_into() -> None:
            out[0] = into(out[0], *held).block_until_ready()

        return run_into, lambda: np.array(out[0])


def softmax(x: Array) -> Array:
    return jax.nn.softmax(x, axis=-1)


def gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + EPS) * weight + bias


def rms_norm(x: Array, weight: Array) -> Array:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def attention(q: Array, k: Array, v: Array) -> Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "gemm": lambda a, b: a @ b,
    "matmul+bias+gelu": lambda a, bias, b: gelu(a @ b + bias),
    "attention": attention,
    "softmax": softmax,
    "layer norm": layer_norm,
    "rms norm": rms_norm,
    "rms norm(a@b + x)": lambda x, a, b, weight: rms_norm(a @ b + x, weight),
    "gelu(x)*x + 1": lambda x: gelu(x) * x + 1,
    "row sum": lambda x: x.sum(-1),
    "row max": lambda x: x.max(-1),
}
