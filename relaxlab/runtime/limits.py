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

ROW = (128, 8, 16)
"""64 KB of integers, summed to 8 vectors of 16."""
CHAINS = 12
"""Independent sums: latency times throughput of multiply-adds, in registers of every width."""
STEPS = 1 << 16
"""Multiply-adds of each chain in a call: 0.1 ms and more, beside which the call is nothing."""
MEMORY = 1 << 28
"""Bytes that are read to measure main memory: more than caches hold."""
CACHE = 1 << 20
"""Bytes per thread that are read again and again to measure caches."""

READ = """
@T.prim_func
def add_up(x: T.Buffer(("n", 128, 8, 16), "int32"), y: T.Buffer(("n", 8, 16), "int32")):
    for i in T.parallel(n):
        with T.block("row"):
            vi = T.axis.spatial(n, i)
            acc = T.alloc_buffer((8, 16), "int32", scope="local")
            for u in T.unroll(8):
                for v in T.vectorized(16):
                    with T.block("zero"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        acc[vu, vv] = 0
            for k in T.serial(128, annotations={"prefetch": (32, ("x",))}):
                for u in T.unroll(8):
                    for v in T.vectorized(16):
                        with T.block("add"):
                            vk, vu, vv = T.axis.remap("RSS", [k, u, v])
                            acc[vu, vv] = acc[vu, vv] + x[vi, vk, vu, vv]
            for u in T.unroll(8):
                for v in T.vectorized(16):
                    with T.block("store"):
                        vu, vv = T.axis.remap("SS", [u, v])
                        y[vi, vu, vv] = acc[vu, vv]

@R.function
def main(x: R.Tensor(("n", 128, 8, 16), "int32")):
    with R.dataflow():
        y = R.call_tir(cls.add_up, (x,), out_ty=R.Tensor((n, 8, 16), "int32"))
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
class Limits:
    """The best of some repetitions with `threads` threads: floating-point operations per second
    in float32 (a multiply-add is two), bytes per second from main memory and, of `cache_bytes`
    altogether, from caches."""

    flops: float
    memory: float
    cache: float
    cache_bytes: int
    threads: int


@lru_cache(maxsize=8)
def measure_limits(threads: int | None = None) -> Limits:
    """Measure this machine, once per process; takes a quarter of a second and 256 MB."""
    count = default_threads() if threads is None else threads
    read = compile_module(parse(READ), threads=count)["main"]
    rows = max(1, count * CACHE // (4 * int(np.prod(ROW))))
    small = np.arange(rows * int(np.prod(ROW)), dtype=np.int32).reshape(rows, *ROW)
    # A loop that leaves work out would be the fastest.
    if not np.array_equal(read(small), small.sum(1, dtype=np.int32)):
        raise RuntimeError("the loop that measures bandwidth computes wrong sums")
    # Written to, unlike zeros, whose pages the system would all map to the same one.
    large = np.ones((MEMORY // (4 * int(np.prod(ROW))), *ROW), np.int32)
    return Limits(
        _flops(count),
        large.nbytes / _best(lambda: read(large), 5),
        small.nbytes / _best(lambda: read(small), 1000),
        small.nbytes,
        count,
    )


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
