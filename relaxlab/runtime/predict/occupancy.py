"""The number of blocks of a launch that a multiprocessor runs at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.cuda.nvrtc import Resources
from relaxlab.codegen.gpu.launch import Launch
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.gpus import Gpu
from relaxlab.ir.loops import Buffer

ADDRESSES = 24
"""Registers of a thread beside its private buffers, where no compiler has counted them: addresses,
loop variables, values in between."""
MOST_REGISTERS = 255
RESERVED = 1024
"""Bytes of shared memory that the system takes for each block (CUDA C++ Programming Guide,
*Compute Capability 8.x*)."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`blocks` that a multiprocessor runs at a time, of `warps` each, and what limits them:
    registers, shared memory, threads or blocks. `registers` are those of a thread, `counted` by the
    compiler or estimated; `shared` bytes those of a block."""

    blocks: int
    warps: int
    limit: str
    registers: int
    shared: int
    counted: bool


def occupancy(launch: Launch, threads: int, gpu: Gpu, resources: Resources | None) -> Occupancy:
    """Return the occupancy of a launch with so many threads in a block, by the compiler's report
    where there is one."""
    warps = math.ceil(threads / launch.facts.warp)
    registers = _estimated(launch) if resources is None else resources.registers
    shared = sum(map(_bytes, launch.shared))
    # Registers are given to warps in units of 256: eight a thread.
    of_block = math.ceil(registers / 8) * 8 * launch.facts.warp * warps
    limits = {
        "registers": gpu.registers // of_block,
        "shared memory": gpu.shared // (shared + RESERVED),
        "threads": gpu.threads // (warps * launch.facts.warp),
        "blocks": gpu.blocks,
    }
    limit = min(limits, key=lambda name: limits[name])
    counted = resources is not None
    return Occupancy(max(1, limits[limit]), warps, limit, registers, shared, counted)


def _estimated(launch: Launch) -> int:
    private = sum(math.ceil(_bytes(b) / 4) for b in launch.local)
    return min(MOST_REGISTERS, private + ADDRESSES)


def _bytes(buffer: Buffer) -> int:
    return bytes_of(buffer.dtype) * math.prod(int(evaluate(d, {})) for d in buffer.shape)
