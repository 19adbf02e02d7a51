"""Functions of JAX, each with the primitives that it is to cover, compared with what relaxlab makes
of them.

Run by a Python that has JAX: `python -m tests.frontend.jaxpr.programs SEED` imports each once, for
symbolic sizes, and interprets it at several; a few, drawn by the seed, are compiled. It prints a
JSON object: per function the primitives of its jaxpr and what differs, and what is wrong with the
promises of `interface.py`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # programs that run once

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import relaxlab as rl
from relaxlab.frontend.jaxpr.importer import traced
from relaxlab.frontend.jaxpr.walk import inner_jaxprs
from relaxlab.testing.import_uses import watched
from tests.frontend.jaxpr.interface import CHECKS

Sizes = Mapping[str, int]
SIZES: tuple[Sizes, ...] = ({"n": 3, "m": 5}, {"n": 1, "m": 2})
COMPILED = 6
"""The programs that are compiled, too."""


@dataclass(frozen=True)
class Program:
    """A function and its arguments: shapes with the symbols n and m, dtypes, ranges of values."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Arg, ...]
    covers: tuple[str, ...]
    sizes: tuple[Sizes, ...] = SIZES
    tolerance: float = 2e-5


@dataclass(frozen=True)
class Arg:
    """An argument."""

    shape: tuple[Any, ...] = ("n", 4)
    dtype: str = "float32"
    low: float = -2
    high: float = 2

    def spec(self) -> Any:
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def array(self, sizes: Sizes, rng: np.random.Generator) -> Any:
        shape = tuple(sizes[d] if isinstance(d, str) else d for d in self.shape)
        if self.dtype == "bool":
            return rng.integers(0, 2, shape).astype(bool)
        if np.dtype(self.dtype).kind in "iu":
            return rng.integers(int(self.low), int(self.high), shape).astype(self.dtype)
        return rng.uniform(self.low, self.high, shape).astype(self.dtype)


X, Y = Arg(), Arg(("n", "m", 4))
Y4 = Arg(("n", 4, 4))
INT, BOOL = Arg(dtype="int32", low=-9, high=9), Arg(dtype="bool")
INDEX = Arg(("n",), "int32", 0, 4)
NUMBER = Arg((), "int32", -1, 3)


def elementwise() -> Iterator[Program]:
    """One operand, then two."""
    unit, positive = Arg(low=-0.9, high=0.9), Arg(low=0.1, high=4)
    domains = dict.fromkeys(("asin", "acos", "atanh", "erf_inv"), unit)
    domains |= dict.fromkeys(("log", "sqrt", "rsqrt", "lgamma", "digamma"), positive)
    domains |= {"acosh": Arg(low=1.1, high=4), "log1p": Arg(low=-0.5, high=4)}
    names = """abs acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 expm1 log
        log1p floor ceil sqrt rsqrt square cbrt erf erfc erf_inv sign lgamma digamma neg logistic
        is_finite stop_gradient"""
    for name in names.split():
        yield Program(name, getattr(lax, name), (domains.get(name, X),), (name,))
    for name in ("add", "sub", "mul", "max", "min", "atan2", "rem", "div", "pow"):
        first = positive if name == "pow" else X
        yield Program(name, getattr(lax, name), (first, positive), (name,))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield Program(name, getattr(lax, name), (INT, INT), (name,))
    for name in ("eq_to", "lt_to", "le_to"):
        bind = getattr(lax, f"{name}_p").bind
        yield Program(name, bind, (Arg(low=-1, high=1), X), (name,))
    for kind, x in {"bits": INT, "bool": BOOL}.items():
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            yield Program(f"{name} of {kind}", getattr(lax, name), (x, x), (name[8:],))
        yield Program(f"not of {kind}", lax.bitwise_not, (x,), ("not",))
    amount = Arg(dtype="int32", low=-2, high=40)
    for name in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
        yield Program(name, getattr(lax, name), (INT, amount), (name,))
    unsigned = Arg(dtype="uint32", low=0, high=2**32 - 1)
    yield Program("shift of unsigned", lax.shift_right_arithmetic, (unsigned, unsigned), ())
    yield Program("population_count", lax.population_count, (INT,), ("population_count",))
    yield Program("clz", lax.clz, (INT,), ("clz",))
    yield Program("clz of unsigned", lax.clz, (unsigned,), ("clz",))
    yield Program("nextafter", lax.nextafter, (X, Arg(low=-0.1, high=0.1)), ("nextafter",))
    yield Program(
        "powers", lambda x: x**3 + x**-2 + lax.integer_pow(x, 0), (positive,), ("integer_pow",)
    )
    for away, method in enumerate(lax.RoundingMethod):
        halves = Arg(("n", 8), "int32", -9, 9)
        yield Program(
            f"round {away}",
            lambda x, m=method: lax.round(x.astype("float32") / 2, m),
            (halves,),
            ("round",),
        )
    yield Program("clamp", lambda x: lax.clamp(-1.0, x, 0.5), (X,), ("clamp",))
    yield Program("select", jnp.where, (BOOL, X, X), ("select_n",))
    which = Arg(dtype="int32", low=0, high=3)
    yield Program("select of three", lax.select_n, (which, X, X, X), ("select_n",))
    yield Program(
        "conversions",
        lambda x: (x.astype("int32"), x.astype("bool"), x.astype("bfloat16").astype("float32")),
        (X,),
        ("convert_element_type",),
    )
    yield Program(
        "bitcast", lambda x: lax.bitcast_convert_type(x, "int32"), (X,), ("bitcast_convert_type",)
    )
    yield Program(
        "reduce_precision", lambda x: lax.reduce_precision(x, 8, 7), (X,), ("reduce_precision",)
    )
    yield Program(
        "identities",
        lambda x: checkpoint_name(lax.optimization_barrier(jax.device_put(jnp.copy(x))), "x"),
        (X,),
        ("copy", "optimization_barrier", "name", "device_put"),
    )
    yield Program(
        "gradient of a sum", jax.grad(lambda x: jnp.sum(jax.nn.gelu(x) * x)), (X,), ("add_any",)
    )


def shapes() -> Iterator[Program]:
    """Shapes, parts, margins, reductions, scans, windows, sorting."""
    yield Program(
        "broadcast",
        lambda x: x[:, None] + jnp.zeros((x.shape[0], 3, 4)),
        (X,),
        ("broadcast_in_dim",),
    )
    yield Program(
        "order",
        lambda x: lax.reshape(x, (x.shape[1], 4 * x.shape[0]), (1, 0, 2)),
        (Y,),
        ("reshape",),
    )
    yield Program("transpose", lambda x: lax.transpose(x, (2, 0, 1)), (Y,), ("transpose",))
    yield Program("squeeze", lambda x: jnp.squeeze(x, 1), (Arg(("n", 1, 3)),), ("squeeze",))
    yield Program(
        "concatenate", lambda x, y: jnp.concatenate([x, y, x], 1), (Y, Y), ("concatenate",)
    )
    yield Program("stacks", lambda x: jnp.stack([x, 2 * x], 1), (Y,), ("stack",))
    yield Program("unstack", lambda x: lax.unstack_p.bind(x, axis=2), (Y,), ("unstack",))
    yield Program("rev", lambda x: lax.rev(x, (0, 2)), (Y,), ("rev",))
    yield Program("tile", lambda x: lax.tile(x, (2, 1, 3)), (Y,), ("tile",))
    yield Program("iota", lambda x: lax.broadcasted_iota("int32", x.shape, 1), (Y,), ("iota",))
    yield Program(
        "empty", lambda x: jnp.zeros_like(lax.empty(x.shape, x.dtype)) + x, (Y,), ("empty",)
    )
    yield Program("slice", lambda x: x[:, 1::2, -3:], (Y,), ())
    yield Program(
        "strides", lambda x: lax.slice(x, (0, 1), (x.shape[0], 4), (2, 2)), (X,), ("slice",)
    )
    yield Program("halves", lambda x: x[:, : x.shape[1] // 2], (Y,), ("gather",))
    yield Program("last", lambda x: x[:, -1], (Y,), ("dim_as_value",))
    yield Program("split", lambda x: jnp.split(x, (1, 3), 2), (Y,), ("split",))
    yield Program("pad", lambda x: jnp.pad(x, ((0, 1), (2, 0), (1, 1))), (Y,), ("pad",))
    yield Program(
        "dilate", lambda x, v: lax.pad(x, v, ((0, 1, 2), (-1, -1, 0))), (X, Arg(())), ("pad",)
    )
    for name in ("sum", "max", "min", "prod"):
        yield Program(
            f"reduce {name}",
            lambda x, f=name: getattr(jnp, f)(x, axis=(0, 2)),
            (Y,),
            (f"reduce_{name}",),
        )
    yield Program(
        "all, any", lambda x: (jnp.all(x, 0), jnp.any(x, 1)), (BOOL,), ("reduce_and", "reduce_or")
    )
    yield Program(
        "reduce",
        lambda x: lax.reduce_p.bind(
            x,
            x[0, 0, 0],
            computation=lax.mul,
            jaxpr=jax.make_jaxpr(lax.mul)(1.0, 1.0),
            dimensions=(1,),
        ),
        (Y,),
        ("reduce",),
    )
    yield Program(
        "argmax", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 2)), (Y,), ("argmax", "argmin")
    )
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        yield Program(
            name,
            lambda x, name=name: (getattr(lax, name)(x, 1), getattr(lax, name)(x, 0, reverse=True)),
            (Y,),
            (name,),
        )
    for name, start, fn in (
        ("sum", 0.0, lax.add),
        ("max", -jnp.inf, lax.max),
        ("min", jnp.inf, lax.min),
    ):
        yield Program(
            f"windows {name}",
            lambda x, s=start, f=fn: lax.reduce_window(
                x, s, f, (1, 2, 2), (1, 2, 1), "SAME", base_dilation=(1, 1, 2)
            ),
            (Y,),
            (f"reduce_window_{name}",),
        )
    yield Program(
        "windows",
        lambda x: lax.reduce_window(
            x, 1.5, lax.mul, (1, 2, 3), (1, 1, 1), ((0, 0), (1, 0), (1, 1))
        ),
        (Y,),
        ("reduce_window",),
    )
    yield Program(
        "gradient of maxima",
        jax.grad(
            lambda x: jnp.sum(
                lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 2, 1), "VALID") ** 2
            )
        ),
        (Y,),
        ("select_and_scatter_add",),
    )
    yield Program("sort", lambda x: jnp.sort(x, 1), (Y,), ("sort",))
    yield Program(
        "sort by two keys",
        lambda x, y: lax.sort((x, x[::-1], y), num_keys=2),
        (Arg(("n",), "int32", 0, 2), Arg(("n",))),
        ("sort",),
    )
    yield Program("top_k", lambda x: lax.top_k(x, 3), (Y,), ("top_k",))
    yield Program("approx_max_k", lambda x: lax.approx_max_k(x, 2), (Y,), ("approx_top_k",))


def products() -> Iterator[Program]:
    """Matrix products and convolutions, and their gradients."""
    w, z = Arg((4, 3)), Arg(("m", 4, "n"))
    yield Program("matmul", lambda x, w: x @ w, (Y, w), ("dot_general",))
    yield Program("linear", lambda x, w: jnp.einsum("nmk,ok->nmo", x, w), (Y, Arg((3, 4))), ())
    yield Program("attention", lambda x: jnp.einsum("nqd,nkd->nqk", x, x), (Y,), ())
    yield Program("contraction", lambda x, z: jnp.einsum("nmk,mkn->km", x, z), (Y, z), ())
    yield Program("outer", lambda x, w: lax.dot_general(x, w, (((), ()), ((), ()))), (X, w), ())
    yield Program(
        "half precision",
        lambda x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), preferred_element_type="float32"),
        (Arg(dtype="bfloat16"),),
        (),
    )
    yield Program(
        "gradient of matmul",
        jax.grad(lambda x, w: jnp.sum(jnp.tanh(x @ w)), (0, 1)),
        (Y, w),
        ("dot_general",),
    )
    image, filters = Arg(("n", 3, 6, "m")), Arg((4, 3, 3, 3))
    wide: tuple[Sizes, ...] = ({"n": 2, "m": 5}, {"n": 1, "m": 8})

    def conv(x: Any, w: Any, **options: Any) -> Any:
        return lax.conv_general_dilated(x, w, **options)

    yield Program(
        "convolution",
        lambda x, w: conv(x, w, window_strides=(1, 2), padding="SAME"),
        (image, filters),
        ("conv_general_dilated",),
        wide,
    )
    numbers = ("NHWC", "HWIO", "NHWC")
    yield Program(
        "layouts",
        lambda x, w: conv(
            x,
            w,
            window_strides=(1, 1),
            padding=((1, 0), (0, 2)),
            dimension_numbers=numbers,
            rhs_dilation=(2, 1),
            feature_group_count=2,
        ),
        (Arg(("n", 6, "m", 4)), Arg((3, 2, 2, 6))),
        (),
        wide,
    )
    yield Program(
        "gradients of a convolution",
        jax.grad(
            lambda x, w: jnp.sum(
                conv(x, w, window_strides=(2, 1), padding=((1, 1), (0, 1)), feature_group_count=2)
                ** 2
            ),
            (0, 1),
        ),
        (Arg(("n", 4, 6, 5)), Arg((4, 2, 3, 2))),
        (),
        wide,
        2e-4,
    )
    yield Program(
        "sequence",
        lambda x, w: conv(x, w, window_strides=(1,), padding=((-1, 2),), lhs_dilation=(2,)),
        (Arg(("n", 2, "m")), Arg((3, 2, 2))),
        (),
        wide,
    )


def definite(x: Any) -> Any:
    """Symmetric matrices with eigenvalues that are apart."""
    n = x.shape[-1]
    return x @ x.swapaxes(-1, -2) / 8 + jnp.diag(jnp.arange(1.0, n + 1) * 4)


def algebra() -> Iterator[Program]:
    """Factorisations of matrices, with gradients, and products of groups."""
    s, v, r = Arg((4, 4)), Arg((4, 2)), Arg(("n", 5, 3))
    linalg = jnp.linalg
    functions: dict[str, tuple[Callable[..., Any], tuple[Arg, ...], str]] = {
        "cholesky": (lambda x: linalg.cholesky(definite(x)), (Y4,), "cholesky"),
        "inv": (lambda x: linalg.inv(definite(x)), (s,), "custom_linear_solve"),
        "solve": (lambda x, y: linalg.solve(definite(x), y), (s, v), "lu"),
        "slogdet": (lambda x: linalg.slogdet(definite(x)), (s,), "platform_index"),
        "det": (lambda x: linalg.det(definite(x)), (Y4,), "lu"),
        "qr": (lambda x: jnp.abs(linalg.qr(x)[1]), (r,), "qr"),
        "svd": (lambda x: linalg.svd(x, compute_uv=False), (r,), "svd"),
        "pinv": (linalg.pinv, (r,), "svd"),
        "eigh": (lambda x: (linalg.eigh(x)[0], jnp.abs(linalg.eigh(definite(x))[1])), (s,), "eigh"),
    }
    for left, lower, turned in itertools.product((True, False), repeat=3):
        options = {"left_side": left, "lower": lower, "transpose_a": turned}

        def triangular(x: Any, y: Any, options: Any = options) -> Any:
            y = y if options["left_side"] else y.T
            return lax.linalg.triangular_solve(definite(x), y, **options)

        functions[f"triangular {options}"] = triangular, (s, v), "triangular_solve"
    for name, (fn, args, primitive) in functions.items():
        yield Program(name, fn, args, (primitive,), tolerance=2e-4)
    losses: dict[str, Callable[[Any], Any]] = {
        "cholesky": linalg.cholesky, "inv": linalg.inv, "slogdet": lambda x: linalg.slogdet(x)[1],
        "eigh": lambda x: linalg.eigh(x)[0],
    }  # fmt: skip
    for name, loss in losses.items():
        gradient = jax.grad(lambda x, loss=loss: jnp.sum(loss(definite(x)) ** 2))
        yield Program(f"gradient of {name}", gradient, (s,), (), tolerance=2e-4)
    sizes = jnp.array([2, 0, 1], "int32")
    yield Program(
        "groups", lambda x, w: lax.ragged_dot(x, w, sizes), (Arg((5, 4)), Arg((3, 4, 2))),
        ("ragged_dot_general",),
    )  # fmt: skip


def complex_numbers() -> Iterator[Program]:
    """Transforms and arithmetic between real arguments and real results."""
    x = Arg(("n", 8))

    def arithmetic(x: Any) -> Any:
        z = lax.complex(x, x[:, ::-1] * 2) * (1 + 2j) - 3j
        w = z / (jnp.conj(z) + 4j) + jnp.exp(1j * x) + z**2 + jnp.square(z)
        y = jnp.where(w == z, w, jnp.concatenate([-w[:, 1:], w[:, :1]], 1)).reshape(-1, 2)
        return jnp.abs(w), (y.T @ y).real, jnp.sum(y, 0).imag, z != 0

    covers = ("complex", "div", "conj", "exp", "integer_pow", "square", "eq", "ne", "dot_general")
    yield Program("complex arithmetic", arithmetic, (x,), covers, tolerance=2e-4)
    fft = jnp.fft
    functions: dict[str, Callable[..., Any]] = {
        "fft": lambda x: fft.fft(x).imag, "ifft2": lambda x: fft.ifft2(x[:, None]).real,
        "rfft": lambda x: jnp.abs(fft.rfftn(x[None], axes=(2,))),
        "irfft": lambda x: fft.irfft(fft.rfft(x, 9) * 2j, 9),
        "irfft of fewer": lambda x: fft.irfft(fft.rfft(x), 6),
        "gradient of fft": jax.grad(lambda x: jnp.sum(jnp.abs(fft.fft(x)) ** 2)),
    }  # fmt: skip
    for name, fn in functions.items():
        yield Program(name, fn, (x,), ("fft",))


def places() -> Iterator[Program]:
    """Reading and writing at computed places."""
    yield Program("take", lambda x, i: x[:, i], (Y, Arg((2, 3), "int32", 0, 2)), ("gather",))
    yield Program("points", lambda x, i: x[i % x.shape[0], :, i], (Y, INDEX), ())
    yield Program("embedding", lambda i: jnp.arange(20.0).reshape(5, 4)[i], (INDEX,), ())
    yield Program("fill", lambda x, i: x.at[i].get(mode="fill"), (X, Arg((4,), "int32", -2, 9)), ())
    yield Program(
        "window per row",
        lambda x, i: jax.vmap(lambda r, a: lax.dynamic_slice(r, (a,), (2,)))(x, i),
        (X, Arg(("n",), "int32", -2, 6)),
        (),
    )
    yield Program(
        "take_along_axis",
        lambda x, i: jnp.take_along_axis(x, i, 1),
        (X, Arg(("n", 2), "int32", 0, 4)),
        (),
    )
    yield Program(
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 1),
        (X, NUMBER),
        ("dynamic_slice",),
    )
    yield Program(
        "dynamic_update_slice",
        lambda x, i: lax.dynamic_update_slice(x, 2 * x[:, :2], (0, i)),
        (X, NUMBER),
        ("dynamic_update_slice",),
    )
    yield Program("known rows from the end", lambda x: x[np.array([0, -1], "int32")], (X,), ())
    yield Program("known update", lambda x: x.at[:, 1:3].set(0.0), (X,), ())
    rows_twice = np.array([0, 0, 2], "int32")
    yield Program("known rows", lambda x: x.at[rows_twice].add(1.0), (X,), ())
    rows = Arg((4, 3), "int32", -2, 5)
    for name in ("set", "add", "subtract", "multiply", "min", "max"):
        kinds = {"set": "scatter", "subtract": "scatter-sub", "multiply": "scatter-mul"}
        covered = kinds.get(name, f"scatter-{name}")

        def write(x: Any, v: Any, i: Any, name: str = name) -> Any:
            where = jnp.arange(4)[:, None] * 0 + i if name != "set" else jnp.arange(4)[:, None]
            return getattr(x.at[where, jnp.arange(3)], name)(v)

        yield Program(
            f"scatter {name}", write, (Arg((5, 3)), Arg((4, 3)), rows), (covered,), SIZES[:1]
        )
    yield Program("rows", lambda x, v, i: x.at[i].add(v), (Arg(("m", 4)), X, INDEX), ())
    yield Program(
        "gradient of take",
        jax.grad(lambda x, i: jnp.sum(x[:, i] ** 2)),
        (Y, Arg((3,), "int32", 0, 2)),
        (),
    )
    yield Program(
        "gradient of windows",
        jax.grad(
            lambda x, i: jnp.sum(jax.vmap(lambda r, a: lax.dynamic_slice(r, (a,), (2,)))(x, i) ** 2)
        ),
        (X, Arg(("n",), "int32", 0, 3)),
        (),
    )


def control() -> Iterator[Program]:
    """Calls, conditionals, loops."""
    yield Program(
        "calls", jax.jit(lambda x: jax.nn.relu(jax.nn.silu(x))), (X,), ("jit", "custom_jvp_call")
    )

    @jax.custom_vjp
    def halved(x: Any) -> Any:
        return x / 2

    halved.defvjp(lambda x: (x / 2, None), lambda _, g: (g * 3,))
    yield Program("custom_vjp", halved, (X,), ("custom_vjp_call",))
    yield Program("its gradient", jax.grad(lambda x: jnp.sum(halved(x) ** 2)), (X,), ())
    again = jax.grad(lambda x: jnp.sum(jax.checkpoint(lambda x: jnp.sin(x) ** 2)(x)))
    yield Program("remat", again, (X,), ("remat2",))
    yield Program(
        "composite", lax.composite(lambda x: x * 2, name="my.double"), (X,), ("composite",)
    )
    yield Program(
        "cond",
        lambda x: lax.cond(jnp.sum(x) > 0, lambda x: (x + 1, x), lambda x: (x * 2, -x), x),
        (X,),
        ("cond",),
    )
    yield Program(
        "switch", lambda x, i: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), (X, NUMBER), ()
    )
    yield Program(
        "while",
        lambda x: lax.while_loop(
            lambda c: jnp.sum(c[0] ** 2) < 500, lambda c: (c[0] * 1.5 + x, c[1] + 1), (x, 0)
        ),
        (Arg(low=0.5),),
        ("while",),
    )
    def grown(row: Any, to: Any) -> Any:
        step = lambda c: (c[0] + jnp.abs(row), c[1] + 1)  # noqa: E731
        return lax.while_loop(lambda c: jnp.sum(c[0]) < to, step, (row, 0))

    ends = Arg(("n",), low=2.0, high=9.0)
    yield Program("rows that end at their own times", jax.vmap(grown), (X, ends), ("while",))
    yield Program(
        "fori", lambda x: lax.fori_loop(0, x.shape[1], lambda i, c: c + x[:, i], x[:, 0]), (Y,), ()
    )

    def step(carry: Any, x: Any) -> Any:
        carry = jnp.tanh(carry + x)
        return carry, (carry * 2, x)

    def over(x: Any, reverse: bool = False) -> Any:
        return lax.scan(step, jnp.zeros(x.shape[1:]), x, reverse=reverse)

    yield Program("scan", over, (Y,), ("scan",))
    yield Program("scan from a constant", lambda x: lax.scan(step, jnp.zeros(4), x), (X,), ())
    yield Program("reverse scan", lambda x: over(x, reverse=True), (Y,), ())
    yield Program("short scan", over, (Arg((3, "n")),), ())
    yield Program("gradient of a scan", jax.grad(lambda x: jnp.sum(over(x)[0] ** 2)), (Y,), ())
    yield Program(
        "searchsorted", lambda x, y: jnp.searchsorted(jnp.sort(x), y), (Arg((9,)), Arg(("n",))), ()
    )


def random_numbers() -> Iterator[Program]:
    """Random numbers, the same as JAX's."""
    yield Program(
        "normal",
        lambda x: jax.random.normal(jax.random.key(3), x.shape),
        (X,),
        ("random_seed", "random_bits"),
    )
    yield Program(
        "keys",
        lambda x: jax.random.bits(
            jax.random.fold_in(jax.random.split(jax.random.key(5))[1], 7), (4,)
        ),
        (X,),
        ("random_split", "random_fold_in"),
    )
    yield Program(
        "old keys",
        lambda k: jax.random.uniform(k, (5,)),
        (Arg((2,), "uint32", 0, 2**32 - 1),),
        ("random_wrap",),
        SIZES[:1],
    )
    unwrap = lambda x: jax.random.key_data(jax.random.clone(jax.random.key(1)))  # noqa: E731
    yield Program("unwrap", unwrap, (X,), ("random_unwrap", "random_clone"), SIZES[:1])
    yield Program(
        "threefry",
        lambda k, x: jax.extend.random.threefry_2x32(k, x),
        (Arg((2,), "uint32", 0, 2**32 - 1), Arg((8,), "uint32", 0, 2**32 - 1)),
        ("threefry2x32",),
        SIZES[:1],
    )


def programs() -> list[Program]:
    """All of them."""
    families = (elementwise, shapes, products, algebra, complex_numbers, places, control)
    return [p for family in (*families, random_numbers) for p in family()]


def primitives(jaxpr: Any) -> Iterator[str]:
    """The primitives of a jaxpr and of those inside it."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for inner in inner_jaxprs(eqn):
            yield from primitives(inner)


def difference(theirs: Any, ours: Sequence[Any], tolerance: float) -> str | None:
    """What differs between the results of JAX and of relaxlab."""
    wanted = jax.tree_util.tree_leaves(theirs)
    if len(wanted) != len(ours):
        return f"{len(ours)} results in the place of {len(wanted)}"
    for i, (t, o) in enumerate(zip(wanted, ours, strict=True)):
        t, o = np.asarray(t), np.asarray(o)
        if (t.shape, t.dtype) != (o.shape, o.dtype):
            return f"result {i} is {o.dtype}{o.shape} in the place of {t.dtype}{t.shape}"
        scale = (
            tolerance * (1 + np.abs(t[np.isfinite(t)]).max(initial=0)) if t.dtype.kind == "f" else 0
        )
        if not np.allclose(o, t, rtol=0, atol=scale, equal_nan=True):
            return f"result {i} differs by {np.abs(np.subtract(o, t, dtype='float64')).max()}"
    return None


def arrays_of(program: Program, seed: int, number: int) -> list[Any]:
    """The arguments of a program at its size of that number."""
    rng = np.random.default_rng((seed, number))
    return [a.array(program.sizes[number], rng) for a in program.args]


def answers(every: Sequence[Program], seed: int) -> list[list[Any]]:
    """What JAX computes, per size and program; all programs are compiled together."""
    found: list[list[Any]] = []
    for number in range(max(len(p.sizes) for p in every)):
        here = [p for p in every if number < len(p.sizes)]
        given = [arrays_of(p, seed, number) for p in here]
        together = jax.jit(
            lambda many, here=here: [p.fn(*a) for p, a in zip(here, many, strict=True)]
        )
        results = dict(zip((p.name for p in here), together(given), strict=True))
        found.append([results.get(p.name) for p in every])
    return found


def checked(program: Program, theirs: Sequence[Any], seed: int, compiled: bool) -> dict[str, Any]:
    """The primitives of a program, and what differs at one of its sizes."""
    specs = [a.spec() for a in program.args]
    imported = rl.from_jax(program.fn, *specs)
    exe = imported.compile() if compiled else None
    names = sorted(set(primitives(traced(program.fn, specs)[0].jaxpr)))
    for number, sizes in enumerate(program.sizes):
        arrays = arrays_of(program, seed, number)
        if exe is not None:
            ours = jax.tree_util.tree_leaves(exe(*arrays))
        else:
            ours = rl.interpret(imported.module, "main", *arrays, *imported.params.values())
            ours = ours if isinstance(ours, tuple) else (ours,)
        problem = difference(theirs[number], ours, program.tolerance)
        if problem is not None:
            return {"primitives": names, "problem": f"at {dict(sizes)}: {problem}"}
    return {"primitives": names, "problem": None}


def main(seed: int) -> None:
    """Print what was found, as JSON."""
    every = programs()
    compiled = random.Random(seed).sample([p.name for p in every], COMPILED)
    report: dict[str, Any] = {}
    given = answers(every, seed)
    with watched() as uses:
        for program, *theirs in zip(every, *given, strict=True):
            try:
                found = checked(program, theirs, seed, program.name in compiled)
            except Exception as error:  # noqa: BLE001  any is a failure of this program alone
                found = {"primitives": [], "problem": f"{type(error).__name__}: {error}"}
            found |= {"covers": program.covers, "compiled": program.name in compiled}
            report[program.name] = found
    promises: dict[str, str | None] = {}
    for check in CHECKS:
        try:
            promises[check.__name__] = check()
        except Exception:  # noqa: BLE001
            promises[check.__name__] = traceback.format_exc()
    print(json.dumps({"programs": report, "interface": promises, "uses": uses}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
