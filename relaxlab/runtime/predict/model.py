"""Seconds of a launch from the work of its blocks and the figures of a GPU.

Every part of the GPU that a launch uses would take so long if nothing else did: main memory, the
second-level cache, and on the multiprocessor with the most blocks tensor cores, shared memory, the
pipes of arithmetic and the issue of instructions. The latter overlap the better, the more warps
there are to choose from: they add up by a norm with that as the exponent. Beside them stands the
time that threads wait for one load after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from relaxlab.ir.gpus import Gpu
from relaxlab.ir.loops import Buffer
from relaxlab.runtime.predict.occupancy import Occupancy
from relaxlab.runtime.predict.sampled import BlockWork
from relaxlab.runtime.simt.access import SECTORS_OF_LINE, Cost
from relaxlab.runtime.simt.counters import Pipe

COPY = 0.9
"""The share of main memory's bandwidth that copies reach: 3.01 TB/s of an H100's 3.35, 4.25 of an
H200's 4.8 (benchmarks/NOTES.md, *Kernels on an H200*)."""
LAUNCH = 2e-6
"""Seconds of a launch that does nothing, in a CUDA graph."""
MEMORY_CLOCKS, BARRIER_CLOCKS = 700, 40
"""Clocks until a load from main memory has its value, and of a barrier of a block."""
FILL = 64
"""Bytes per clock that a multiprocessor gets from the second-level cache."""
SECTOR = 32
FAR_OVERLAP = 4
"""The least exponent by which what a multiprocessor does and what memory moves add up: copies ahead
of their use need no warps to hide behind."""
SCHEDULERS = 4
"""Schedulers of a multiprocessor; each issues an instruction per clock."""
PIPES: Mapping[Pipe, float] = {"alu": 2.0, "xu": 0.5, "lsu": 1.0}
"""Warp instructions per clock of the pipes in which these GPUs are alike."""
PRODUCT = 4096
"""Floating-point operations of a tensor instruction of a warp, as far as its issue matters."""
KEPT = 0.7
"""The part of the second-level cache that keeps what is read again."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The blocks of a launch as a few of them: each of `works` counts for so many blocks. `sizes`
    are the bytes of the buffers; `shares` says of how many blocks of a wave, as a part of all, a
    buffer is read at places of their own."""

    blocks: int
    works: Sequence[tuple[BlockWork, float]]
    sizes: Mapping[Buffer, float]
    shares: Mapping[Buffer, float]

    def mean(self, of: Callable[[BlockWork], float]) -> float:
        """The mean of a figure over the blocks."""
        total = sum(times for _, times in self.works)
        return sum(of(work) * times for work, times in self.works) / total


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of a launch by what takes them: parts of a multiprocessor, and of the memory that
    all share. `overlap` is the exponent of the norm by which the former add up: the larger, the
    better they overlap. `bytes` are what main memory moves, `products` the floating-point
    operations of tensor cores."""

    near: Mapping[str, float]
    far: Mapping[str, float]
    overlap: float
    bytes: float
    products: float

    @property
    def parts(self) -> dict[str, float]:
        """All parts."""
        return {**self.near, **self.far}

    @property
    def seconds(self) -> float:
        """Those of the whole launch."""
        busy = _norm(self.near.values(), self.overlap)
        return LAUNCH + _norm([busy, *self.far.values()], max(self.overlap, FAR_OVERLAP))

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        parts = self.parts
        part = max(parts, key=lambda name: parts[name])
        return part if parts[part] > LAUNCH else "launch"


def _norm(times: Iterable[float], exponent: float) -> float:
    times = [t for t in times if t > 0]
    most = max(times, default=1.0)
    return most * sum((t / most) ** exponent for t in times) ** (1 / exponent)


def times_of(grid: Grid, fits: Occupancy, gpu: Gpu) -> Times:
    """Return the times of a launch."""
    # The multiprocessor with the most blocks is the last to end.
    turns = math.ceil(grid.blocks / gpu.multiprocessors)
    resident = min(fits.blocks, turns)
    wave = resident * gpu.multiprocessors
    room = gpu.near - resident * fits.shared
    copies = {b: _copies(share, wave, resident) for b, share in grid.shares.items()}
    cached = grid.mean(lambda work: _from_cache(work, room, copies, resident))
    moved = _main_memory(grid, wave, gpu.cache * KEPT)
    products = grid.mean(lambda work: work.counters.products)
    waves = max(1.0, grid.blocks / (gpu.multiprocessors * fits.blocks))
    busy = {
        name: grid.mean(clocks) * turns / gpu.clock
        for name, clocks in (
            ("tensor cores", lambda w: _tensor_clocks(w, gpu)),
            ("shared memory", lambda w: sum(map(_path_clocks, w.counters.costs.values()))),
            ("arithmetic", lambda w: _arithmetic_clocks(w, gpu)),
        )
    }
    filled = cached * turns / FILL / gpu.clock
    far = {
        "cache": max(filled, cached * grid.blocks / gpu.cache_bandwidth),
        "main memory": moved / (gpu.bandwidth * COPY),
        "latency": grid.mean(_waiting_clocks) * waves / gpu.clock,
    }
    overlap = 1 + resident * fits.warps / SCHEDULERS / 2
    return Times(busy, far, overlap, moved, products * grid.blocks)


def _tensor_clocks(work: BlockWork, gpu: Gpu) -> float:
    apart = work.warpgroup_products
    of_warps = (work.counters.products - apart) / gpu.mma if gpu.mma else 0.0
    of_warpgroups = apart / gpu.wgmma if gpu.wgmma else 0.0
    return (of_warps + of_warpgroups) / (gpu.products / gpu.multiprocessors / gpu.clock)


def _arithmetic_clocks(work: BlockWork, gpu: Gpu) -> float:
    """Those of the busiest pipe, or of the schedulers."""
    pipes = work.counters.pipes
    rates: dict[Pipe, float] = {**PIPES, "fma": gpu.lanes / 32, "fp64": gpu.doubles / 32}
    issued = sum(pipes.values()) + work.counters.products / PRODUCT
    return max([issued / SCHEDULERS, *(n / rates[pipe] for pipe, n in pipes.items())])


def _path_clocks(cost: Cost) -> float:
    """Clocks that an access has the path to shared memory and the first-level cache, which is one:
    128 bytes, or a line, per clock."""
    if cost.unit == "sectors":
        return max(cost.lines, cost.count / SECTORS_OF_LINE)
    return cost.count


def _copies(share: float, wave: int, resident: int) -> float:
    """The number of different parts of a buffer that the blocks on a multiprocessor read."""
    return min(resident, max(1.0, share * wave))


def _from_cache(
    work: BlockWork, room: float, copies: Mapping[Buffer, float], resident: int
) -> float:
    """The bytes that a block exchanges with the second-level cache. What it reads again comes from
    the first level, whose `room` is for the buffers of which the blocks on a multiprocessor read
    least."""
    written = 0.0
    read: dict[Buffer, float] = {}
    for site, cost in work.counters.costs.items():
        if cost.unit == "sectors" and site.buffer is not None:
            if site.write:
                written += cost.count * SECTOR
            else:
                read[site.buffer] = read.get(site.buffer, 0) + cost.count * SECTOR
    moved = written + work.boxes
    held = {b: once * copies.get(b, resident) for b, once in work.read.items() if b in read}
    for buffer in sorted(held, key=lambda b: held[b]):
        room -= held[buffer]
        moved += min(work.read[buffer], read[buffer]) if room >= 0 else read[buffer]
    return moved


def _waiting_clocks(work: BlockWork) -> float:
    return work.trips * MEMORY_CLOCKS + work.counters.barriers * BARRIER_CLOCKS


def _main_memory(grid: Grid, wave: int, room: float) -> float:
    """The bytes that main memory moves: those of a buffer once where it stays in the second-level
    cache, smaller ones first, else once for each wave of blocks that reads them."""
    read, written = _totals(grid, "read"), _totals(grid, "written")
    moved = sum(min(count, grid.sizes[b]) for b, count in written.items())
    once = {b: min(count, grid.sizes[b]) for b, count in read.items()}
    for buffer, count in sorted(once.items(), key=lambda item: item[1]):
        if count <= room:
            room -= count
            moved += count
            continue
        blocks = min(wave, grid.blocks)
        together = read[buffer] / grid.blocks * blocks * grid.shares.get(buffer, 1.0)
        again = min(together, count) * math.ceil(grid.blocks / wave)
        moved += min(max(count, again), read[buffer])
    return moved


def _totals(grid: Grid, field: str) -> dict[Buffer, float]:
    """The bytes of each buffer that all blocks touch, each block by itself."""
    found: dict[Buffer, float] = {}
    for work, times in grid.works:
        touched: Mapping[Buffer, float] = getattr(work, field)
        for buffer, count in touched.items():
            found[buffer] = found.get(buffer, 0) + count * times
    return found
