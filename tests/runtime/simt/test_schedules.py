"""Random GPU schedules: whatever is not refused computes the same as before, without problems."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir import expr
from relaxlab.ir.expr import Var, const
from relaxlab.ir.loops import Block, Buffer, PrimFunc
from relaxlab.ops import te
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt_device_kernel
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule


@dataclass
class Chain:
    """Stages over a matrix of symbolically many rows: maps, stencils, sums and maxima of rows,
    and maps that read those."""

    rng: random.Random

    def __post_init__(self) -> None:
        rng, self.width = self.rng, self.rng.choice([8, 20, 33, 70])
        self.rows = Var("n")
        self.matrix = te.placeholder((self.rows, const(self.width)), "float32", "A")
        self.vectors: list[Buffer] = []
        self.names: list[str] = []
        current = self.matrix
        for i in range(rng.randint(2, 5)):
            choices = ["map", "stencil", "reduce", "reduce"] + ["use"] * len(self.vectors)
            kind = "use" if i and current.ndim == 1 else rng.choice(choices)
            name = f"S{i}"
            self.names.append(name)
            if kind == "reduce":
                current = self.reduce(current, name)
                self.vectors.append(current)
            else:
                current = self.map(kind, current, name)
        self.func = te.create_prim_func([self.matrix, current])

    def reduce(self, x: Buffer, name: str) -> Buffer:
        axis = te.reduce_axis(const(self.width), "r")
        fold = self.rng.choice([te.te_sum, te.te_max])
        return te.compute((self.rows,), lambda i: fold(x[i, axis.var], axis), name)

    def map(self, kind: str, x: Buffer, name: str) -> Buffer:
        shape = (self.rows, const(self.width))
        if kind == "use":
            v = self.rng.choice(self.vectors)
            x = x if x.ndim == 2 else self.matrix
            return te.compute(shape, lambda i, j: x[i, j] * 0.5 + v[i], name)
        if kind == "stencil":
            left = lambda j: expr.binary(expr.Max, j - 1, 0)  # noqa: E731
            return te.compute(shape, lambda i, j: x[i, j] + x[i, left(j)], name)
        return te.compute(shape, lambda i, j: x[i, j] * 2.0 + 1.0, name)

    def schedule(self) -> PrimFunc:
        """All stages of some rows by one block, each with threads of its own choice."""
        rng, sch = self.rng, Schedule(self.func)
        self.threads, rows = rng.choice([1, 4, 8, 16, 32, 64, 96]), rng.choice([1, 1, 3])
        outer, _ = sch.split(sch.get_loops(sch.get_block(self.names[-1]))[0], factors=[None, rows])
        stages = [self.names[-1]]
        for name in reversed(self.names[:-1]):
            block = sch.get_block(name)
            if _is_map(sch, block) and rng.random() < 0.15:
                sch.compute_inline(block)
                continue
            sch.compute_at(block, outer, preserve_unit_loops=True)
            sch.set_scope(block, 0, rng.choice(["shared"] * 6 + ["local"]))
            stages.append(name)
        sch.bind(outer, "blockIdx.x")
        for name in stages:
            if rng.random() < 0.85:  # else one thread does it
                self.spread(sch, sch.get_block(name), rows)
        return compact_buffers(sch.func)

    def spread(self, sch: Schedule, block: BlockRV, rows: int) -> None:
        rng, (row, *rest) = self.rng, sch.get_loops(block)[1:]
        if rows > 1 and rng.random() < 0.4:
            sch.bind(row, "threadIdx.y")
        elif _is_map(sch, block) and rest and rng.random() < 0.6:
            rest = [sch.fuse(row, *rest)]
        if _is_map(sch, block):
            _, thread = sch.split(rest[-1], factors=[None, self.threads])
            sch.bind(thread, "threadIdx.x")
        elif rng.random() < 0.8:  # a reduction across threads
            _, thread = sch.split(rest[-1], factors=[None, self.threads])
            sch.rfactor(thread)
            for part in (f"{_name(sch, block)}_rf", _name(sch, block)):
                loop = _over(sch, sch.get_block(part), self.threads)
                sch.bind(loop, "threadIdx.x")

    def arguments(self) -> list[np.ndarray]:
        n = self.rng.choice([1, 2, 3, 7])
        values = np.random.default_rng(self.rng.randrange(2**32)).standard_normal((n, self.width))
        shape = (n, self.width)[: self.func.buffers[-1].ndim]
        return [values.astype("float32"), np.zeros(shape, "float32")]


@dataclass
class Product:
    """A matrix product by tiles in shared memory, of random sizes."""

    rng: random.Random

    def __post_init__(self) -> None:
        self.dims = [Var("n"), Var("m"), Var("k")]
        n, m, k = self.dims
        a, b = te.placeholder((n, k), "float32", "A"), te.placeholder((k, m), "float32", "B")
        r = te.reduce_axis(k, "r")
        c = te.compute((n, m), lambda i, j: te.te_sum(a[i, r.var] * b[r.var, j], r), "C")
        self.func = te.create_prim_func([a, b, c])

    def schedule(self) -> PrimFunc:
        rng, sch = self.rng, Schedule(self.func)
        y, x, depth = rng.choice([2, 4, 8]), rng.choice([2, 8, 32]), rng.choice([1, 4, 8])
        rows, cols = (rng.choice([1, 2, 3]) for _ in range(2))
        block = sch.get_block("C")
        copies = [sch.cache_read(block, i, "shared") for i in rng.choice([(0, 1), (0, 1), (0,)])]
        store = sch.cache_write(block, 0, "local")
        i, j, r = sch.get_loops(block)
        by, ty, iy = sch.split(i, factors=[None, y, rows])
        bx, tx, ix = sch.split(j, factors=[None, x, cols])
        slices, r = sch.split(r, factors=[None, depth])
        sch.reorder(by, bx, slices, ty, tx, *rng.sample([r, iy, ix], 3))
        for copy in copies:
            sch.compute_at(copy, slices, preserve_unit_loops=True)
        sch.reverse_compute_at(store, bx, preserve_unit_loops=True)
        sch.bind(by, "blockIdx.y")
        sch.bind(bx, "blockIdx.x")
        init = sch.decompose_reduction(block, slices)
        for at in (ty, tx), sch.get_loops(init)[2:4]:
            for loop, axis in zip(at, "yx", strict=True):
                sch.bind(loop, f"threadIdx.{axis}")
        for copy in copies:
            self.fetch(sch, copy, y, x)
        *_, i, j = sch.get_loops(store)
        for loop, axis, factors in ((i, "y", [y, rows]), (j, "x", [x, cols])):
            sch.bind(sch.split(loop, factors=list(factors))[0], f"threadIdx.{axis}")
        return compact_buffers(sch.func)

    def fetch(self, sch: Schedule, copy: BlockRV, y: int, x: int) -> None:
        """All threads copy a slice together; some schedules leave it to a part of them."""
        flat = sch.fuse(*sch.get_loops(copy)[3:])
        kind = self.rng.choice(["both", "both", "vector", "x", "one"])
        if kind in ("both", "vector"):
            lanes = 4 if kind == "vector" else 1
            _, ty, tx, lane = sch.split(flat, factors=[None, y, x, lanes])
            sch.bind(ty, "threadIdx.y")
            sch.bind(tx, "threadIdx.x")
            sch.vectorize(lane)
        elif kind == "x":
            sch.bind(sch.split(flat, factors=[None, x])[1], "threadIdx.x")

    def arguments(self) -> list[np.ndarray]:
        n, m, k = (self.rng.choice([1, 3, 8, 17, 30]) for _ in range(3))
        rng = np.random.default_rng(self.rng.randrange(2**32))
        a, b = (rng.standard_normal(s).astype("float32") for s in ((n, k), (k, m)))
        return [a, b, np.zeros((n, m), "float32")]


def _name(sch: Schedule, rv: BlockRV) -> str:
    found = sch.get(rv)
    assert isinstance(found, Block)
    return found.name


def _is_map(sch: Schedule, rv: BlockRV) -> bool:
    found = sch.get(rv)
    assert isinstance(found, Block)
    return all(it.kind == "spatial" for it in found.iter_vars)


def _over(sch: Schedule, rv: BlockRV, extent: int) -> LoopRV:
    """The innermost loop around a block that has this extent."""
    return [x for x in sch.get_loops(rv) if sch.get(x).extent == const(extent)][-1]


def check(kind: type[Chain] | type[Product], count: int) -> None:
    """Run `count` random schedules that are neither refused by a primitive nor by lowering."""
    start = random.randrange(2**32)
    run = met = 0
    for seed in range(start, start + 6 * count):
        print(f"seed {seed}")
        program = kind(random.Random(seed))
        try:
            func = program.schedule()
            kernel = lower_launches(func, "f")
        except (ScheduleError, CodegenError) as e:
            print(e)
            continue
        args = program.arguments()
        want, got = ([a.copy() for a in args] for _ in range(2))
        interpret_prim_func(program.func, want)
        report = simt_device_kernel(func, kernel, got).check()
        np.testing.assert_allclose(got[-1], want[-1], rtol=1e-3, atol=1e-3)
        run += 1
        met += any(launch.barriers for launch in report.launches)
        if run == count:
            break
    assert run == count and met > count // 2


def test_chains_of_stages():
    check(Chain, 15)


def test_tiled_products():
    check(Product, 6)
