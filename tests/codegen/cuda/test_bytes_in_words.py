"""Bytes that vectorized loops compute, four in a word: emitted code, compiled for the CPU, against
the interpreter."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.runtime.vm.vm import VirtualMachine
from tests.codegen.cuda.on_cpu import COMPILER, CpuCuda, kernels_on_cpu

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
ROWS = 24


def draw(rng: random.Random, depth: int) -> str:
    """A byte of the lanes `i`: of loads, of what all lanes share, and of operations on both."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice((
            "A[t, i]", "A[t, i]", 'T.reinterpret("uint8", B[t, i])', 'T.Cast("uint8", t % 8)',
            f"T.uint8({rng.randrange(256)})",
        ))  # fmt: skip
    a = draw(rng, depth - 1)
    if rng.random() < 0.5:
        amount = rng.choice((f"T.uint8({rng.randrange(8)})", 'T.Cast("uint8", t % 4 * 2)'))
        return f"({a} {rng.choice(('>>', '<<'))} {amount})"
    return f"({a} {rng.choice('&|^')} {draw(rng, depth - 1)})"


def program(value: str, lanes: int, scope: str) -> Module:
    """Bytes computed by lanes, in registers first where `scope` is local."""
    through = scope == "local"
    place = "L[i]" if through else "C[t, i]"
    more = "            for i in range(LANES):\n                C[t, i] = L[i]\n" if through else ""
    made = '            L = T.alloc_buffer((LANES,), "uint8", scope="local")\n' if through else ""
    return rl.parse(f"""
@T.prim_func
def main(A: T.Buffer(({ROWS}, LANES), "uint8"), B: T.Buffer(({ROWS}, LANES), "int8"),
         C: T.Buffer(({ROWS}, LANES), "uint8")):
    for t in T.thread_binding({ROWS}, thread="threadIdx.x"):
        with T.sblock("all"):
            T.reads(A[t, 0:LANES], B[t, 0:LANES])
            T.writes(C[t, 0:LANES])
{made}            for i in T.vectorized(LANES):
                {place} = {value}
{more}""".replace("LANES", str(lanes)))


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_random_bytes(lanes: int, scope: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    for case in range(4):
        value = draw(rng, 3)
        mod = program(value, lanes, scope)
        exe = rl.compile(mod, "cuda:sm_80")
        folder = tmp_path / str(case)
        folder.mkdir()
        kernels = kernels_on_cpu(exe.gpu, CpuCuda(exe.source(), folder))
        machine = VirtualMachine(exe.program, kernels)
        a = numbers.integers(0, 256, (ROWS, lanes), "uint8")
        b = numbers.integers(-128, 128, (ROWS, lanes), "int8")
        want, got = np.zeros_like(a), np.zeros_like(a)
        rl.interpret(mod, "main", a, b, want)
        machine.run("main", a, b, got)
        assert (want == got).all(), f"seed {seed}: {value}"
