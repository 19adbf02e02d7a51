"""Races found on random programs are those that comparing all pairs of accesses finds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from relaxlab.codegen.gpu.launch import DeviceKernel, Launch, ThreadAxis
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import Call, IntImm, StringImm, Var, const
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Evaluate, IfThenElse, seq
from relaxlab.runtime.simt.simt import simt_device_kernel

ELEMENTS, BLOCKS = 300, 3


@dataclass(frozen=True)
class Touch:
    """One thread touching one element in one step of the program."""

    step: int
    thread: int
    element: tuple[str, int, int]  # memory, block (shared memory only), index
    write: bool


class RandomProgram:
    """Straight-line steps: loads and stores through random tables of indices, under conditions
    on the thread, and barriers of blocks and of warps."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.threads = rng.choice([1, 8, 32, 40, 64, 96])
        steps = rng.randint(2, 10)
        count = self.threads * BLOCKS
        self.bx, self.tx = Var("bx"), Var("tx")
        self.main = Buffer("G", (const(ELEMENTS),))
        self.table = Buffer("I", (const(steps), const(count)), "int64")
        self.out = Buffer("O", (const(steps), const(count)))
        self.tile = Buffer("S", (const(ELEMENTS),), scope="shared")
        self.indices = np.zeros((steps, count), np.int64)
        self.touches: list[Touch] = []
        self.barriers: dict[int, tuple[str, int]] = {}  # which threads meet, in how many blocks
        self.sparse = rng.random() < 0.6  # single threads and few elements
        number = self.bx * self.threads + self.tx
        body: list[loops.Stmt] = []
        for step in range(steps):
            kind = rng.choice(["barrier", "warp", "store", "load", "load"])
            if kind in ("barrier", "warp"):
                blocks = rng.choice([1, BLOCKS, BLOCKS])
                self.barriers[step] = kind, blocks
                scope = "shared" if kind == "barrier" else "warp"
                meet = Evaluate(Call("int32", "tvm_storage_sync", (StringImm(scope),)))
                body.append(IfThenElse(expr.LT(self.bx, const(blocks)), meet))
                continue
            self.indices[step] = self.pattern(rng, count)
            first, last = self.active(rng, count)
            memory = rng.choice([self.main, self.tile])
            at = (BufferLoad(self.table, (const(step), number)),)
            if kind == "store":
                stmt = BufferStore(memory, expr.FloatImm(1.0), at)
            else:
                stmt = BufferStore(self.out, BufferLoad(memory, at), (const(step), number))
            body.append(self.only(stmt, number, first, last))
            for n in range(first, last):
                where = n // self.threads if memory is self.tile else -1
                element = (memory.name, where, int(self.indices[step, n]))
                self.touches.append(Touch(step, n, element, kind == "store"))
        self.body = seq(*body) if body else Evaluate(const(0))

    def active(self, rng: random.Random, count: int) -> tuple[int, int]:
        """The threads that take part in a step: all, one block, one of a few, or any range."""
        kind = "one" if self.sparse else rng.choice(["all", "block", "one", "range"])
        if kind == "block":
            block = rng.randrange(BLOCKS)
            return block * self.threads, (block + 1) * self.threads
        if kind == "one":
            n = rng.choice([0, 1, 33, 39, self.threads, self.threads + 1]) % count
            return n, n + 1
        first, last = sorted(rng.choices(range(count + 1), k=2))
        return (0, count) if kind == "all" else (first, last)

    def only(self, stmt: loops.Stmt, number: expr.PrimExpr, first: int, last: int) -> loops.Stmt:
        if (first, last) == (0, self.threads * BLOCKS):
            return stmt
        inside = expr.And(expr.LE(const(first), number), expr.LT(number, const(last)))
        return IfThenElse(inside, stmt)

    def pattern(self, rng: random.Random, count: int) -> list[int]:
        """Element per thread: mostly without collisions within one step."""
        kinds = ["own", "own", "shift", "reverse", "warp", "same", "random"]
        kind = "same" if self.sparse else rng.choice(kinds)
        t, own = self.threads, list(range(count))
        if kind == "shift":
            return [n // t * t + (n + 1) % t for n in own]
        if kind == "reverse":
            return [n // t * t + t - 1 - n % t for n in own]
        if kind == "warp":  # swap neighbours in a warp
            return [min(n ^ 1, count - 1) if t % 2 == 0 else n for n in own]
        if kind == "same":
            return [rng.randrange(2)] * count
        if kind == "random":
            return [rng.randrange(ELEMENTS) for _ in own]
        return own

    def races(self) -> set[tuple[int, int, tuple[str, int, int]]]:
        """All pairs of threads and the element that they race for, by definition."""
        by_element: dict[tuple[str, int, int], list[Touch]] = {}
        for touch in self.touches:
            by_element.setdefault(touch.element, []).append(touch)
        return {
            (a.thread, b.thread, element)
            for element, touches in by_element.items()
            for a, b in combinations(touches, 2)
            if a.thread != b.thread and (a.write or b.write) and not self.ordered(a, b)
        }

    def ordered(self, a: Touch, b: Touch) -> bool:
        t = self.threads
        if a.thread // t != b.thread // t:
            return False
        block = a.thread // t
        between = {
            kind for s, (kind, n) in self.barriers.items() if a.step < s < b.step and block < n
        }
        same_warp = a.thread % t // 32 == b.thread % t // 32
        return "barrier" in between or ("warp" in between and same_warp)

    def run(self):
        axes = (
            ThreadAxis("blockIdx.x", self.bx, const(BLOCKS)),
            ThreadAxis("threadIdx.x", self.tx, const(self.threads)),
        )
        params = (self.main, self.table, self.out)
        launch = Launch("k", IntImm(1, "bool"), axes, params, (), (self.tile,), (), self.body)
        func = loops.PrimFunc(params, self.body)
        arrays = [
            np.zeros(ELEMENTS, "float32"),
            self.indices,
            np.zeros(self.indices.shape, "float32"),
        ]
        return simt_device_kernel(func, DeviceKernel("k", params, (), (), (launch,)), arrays)


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_random_programs(start: int):
    found = clean = 0
    for seed in range(start, start + 100):
        program = RandomProgram(seed)
        expected = program.races()
        report = program.run()
        reported = [p for p in report.problems if p.kind == "data race"]
        assert bool(reported) == bool(expected), f"seed {seed}:\n{report}\n{sorted(expected)[:5]}"
        for problem in reported:
            a, b = (_number(t, program.threads) for t in problem.threads)
            block = b // program.threads if problem.buffer == "S" else -1
            element = (problem.buffer, block, problem.index[0])
            pair = {(a, b, element), (b, a, element)}
            assert pair & expected, f"seed {seed}: {problem}"
        found += bool(expected)
        clean += not expected
    assert found > 5 and clean > 5


def _number(thread, threads: int) -> int:
    return thread.block[0] * threads + thread.index[0]
