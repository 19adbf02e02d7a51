"""Limits of this machine, measured by loop functions: multiply-adds per second and bandwidth.

The functions go through relaxlab's own code generator; their sums are checked once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from relaxlab.ir.target import parse_target
from relaxlab.runtime.build import compile as compile_module
from relaxlab.runtime.native.openmp import default_threads
from relaxlab.script import parse

LINE = (8, 16)
"""512 bytes of integers, which are added to 8 vectors of 16."""
CHAINS = 12
"""Independent sums: latency times throughput of multiply-adds, in registers of every width."""
STEPS = 1 << 16
"""Multiply-adds of each chain in a call: 0.1 ms and more, beside which the call is nothing."""
MEMORY = 1 << 28
"""Bytes that are read to measure main memory: more than caches hold."""
PER_CALL = 1 << 26
"""Bytes that a call reads at least, the same ones again and again where a cache holds them: 0.1 ms
and more, beside which the call is nothing."""
_READ = """
@T.prim_func
def add_up(a: T.handle, b: T.handle, rounds: T.int64):
    n = T.int64()
    k = T.int64()
    x = T.match_buffer(a, (n, k, 8, 16), "int32")
    y = T.match_buffer(b, (n, 8, 16), "int32")
    for i in T.parallel(n):
        with T.block("row"):
            vi = T.axis.spatial(n, i)
            acc = T.alloc_buffer((8, 16), "int32", scope="local")
            for u in T.unroll(8):
                for v in T.vectorized(16):
                    with T.block("zero"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        acc[vu, vv] = 0
            for r in range(rounds):
                for j in T.serial(k{prefetch}):
                    for u in T.unroll(8):
                        for v in T.vectorized(16):
                            with T.block("add"):
                                vr, vj, vu, vv = T.axis.remap("RRSS", [r, j, u, v])
                                acc[vu, vv] = acc[vu, vv] + x[vi, vj, vu, vv]
            for u in T.unroll(8):
                for v in T.vectorized(16):
                    with T.block("store"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        y[vi, vu, vv] = acc[vu, vv]

@R.function
def main(x: R.Tensor(("n", "k", 8, 16), "int32"), rounds: R.Shape(["r"])):
    with R.dataflow():
        y = R.call_tir(
            cls.add_up, (x,), out_ty=R.Tensor((n, 8, 16), "int32"), tir_vars=R.shape([r])
        )
        R.output(y)
    return y
"""

_MULTIPLY = """
@T.prim_func
def steps(start: T.handle, factors: T.handle, sums: T.handle):
    n = T.int64()
    x = T.match_buffer(start, (n, {chains}, {lanes}))
    f = T.match_buffer(factors, (2, {lanes}))
    y = T.match_buffer(sums, (n, {chains}, {lanes}))
    for i in T.parallel(n):
        with T.block("row"):
            vi = T.axis.spatial(n, i)
            acc = T.alloc_buffer(({chains}, {lanes}), scope="local")
            by = T.alloc_buffer((2, {lanes}), scope="local")
            for u in T.unroll(2):
                for v in T.vectorized({lanes}):
                    with T.block("factor"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        by[vu, vv] = f[vu, vv]
            for u in T.unroll({chains}):
                for v in T.vectorized({lanes}):
                    with T.block("start"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        acc[vu, vv] = x[vi, vu, vv]
            for k in range({steps}):
                for u in T.unroll({chains}):
                    for v in T.vectorized({lanes}):
                        with T.block("step"):
                            vk, vu, vv = T.axis.remap("RSS", [k, u, v])
                            acc[vu, vv] = acc[vu, vv] * by[0, vv] + by[1, vv]
            for u in T.unroll({chains}):
                for v in T.vectorized({lanes}):
                    with T.block("store"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        y[vi, vu, vv] = acc[vu, vv]

@R.function
def main(
    x: R.Tensor(("n", {chains}, {lanes}), "float32"), f: R.Tensor((2, {lanes}), "float32")
):
    with R.dataflow():
        y = R.call_tir(cls.steps, (x, f), out_ty=R.Tensor((n, {chains}, {lanes}), "float32"))
        R.output(y)
    return y
"""


@dataclass(frozen=True, slots=True)
class Level:
    """A level of memory: its name, the bytes that it holds for all threads (None of main memory),
    and how many bytes per second they read from it."""

    name: str
    holds: int | None
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The best of some repetitions with `threads` threads: floating-point operations per second
    in float32 (a multiply-add is two), and the levels of memory, the nearest first."""

    flops: float
    levels: tuple[Level, ...]
    threads: int


@lru_cache(maxsize=8)
def measure_limits(threads: int | None = None) -> Limits:
    """Measure this machine, once per process; takes half a second and 256 MB."""
    target = parse_target("cpu")
    count = default_threads() if threads is None else threads
    # A core has the first two levels for itself and shares the others.
    caches = [c * count if level < 2 else c for level, c in enumerate(target.facts.caches)]
    near = reader(count, prefetch=False)
    levels = [
        # The array is half of a level, which leaves room for the stack and the code.
        Level(f"L{level}", holds, _bandwidth(near, count, holds // 2, 20))
        for level, holds in enumerate(caches, 1)
    ]
    far = reader(count, prefetch=True)
    # Parts of 64 KB: a thread that is held up leaves its last ones to others.
    levels.append(Level("main memory", None, _bandwidth(far, MEMORY >> 16, MEMORY, 5)))
    return Limits(_flops(count), tuple(levels), count)


def reader(threads: int, *, prefetch: bool) -> Callable[..., Any]:
    """Return a function of x (n, k, 8, 16) int32 and (r,) whose result (n, 8, 16) is the sum of x
    over k, r times: threads that share n read all of x as often. `prefetch` is for main memory."""
    ahead = ', annotations={"prefetch": (32, ("x",))}' if prefetch else ""
    return compile_module(parse(_READ.format(prefetch=ahead)), threads=threads)["main"]


def _bandwidth(read: Callable[..., Any], parts: int, size: int, repeats: int) -> float:
    """Bytes per second at which `size` bytes are read, in parts that threads share."""
    lines = max(1, size // (4 * int(np.prod(LINE)) * parts))
    # Written to, unlike zeros, whose pages the system would all map to the same one.
    x = np.ones((parts, lines, *LINE), np.int32)
    rounds = max(1, PER_CALL // x.nbytes)
    # A loop that leaves work out would be the fastest.
    if not (read(x, (rounds,)) == rounds * lines).all():
        raise RuntimeError("the loop that measures bandwidth computes wrong sums")
    return rounds * x.nbytes / _best(lambda: read(x, (rounds,)), repeats)


def _flops(threads: int) -> float:
    lanes = parse_target("cpu").lanes("float32")
    text = _MULTIPLY.format(chains=CHAINS, lanes=lanes, steps=STEPS)
    run = compile_module(parse(text), threads=threads)["main"]
    start = np.zeros((4 * threads, CHAINS, lanes), np.float32)
    factors = np.full((2, lanes), 0.5, np.float32)
    if not np.allclose(run(start, factors), 1):  # x / 2 + 1 / 2, again and again
        raise RuntimeError("the loop that measures multiply-adds computes wrong sums")
    return 2 * STEPS * start.size / _best(lambda: run(start, factors), 50)


def _best(run: Callable[[], Any], repeats: int) -> float:
    """The seconds of the fastest of some runs."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
