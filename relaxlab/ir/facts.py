"""Facts about machines: the data that rules, passes and code generation go by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KB, MB = 1 << 10, 1 << 20
_MEASURED = (32 * KB, 1 * MB, 32 * MB)
"""The caches that schedules were measured with: the smallest first level of current cores, and the
second and last level of a Zen."""


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """Limits for a product whose results are read where they are made, row by row. terms: the
    longest sum of such a product, which is unrolled; beyond 16, reading the shared operand again
    for every row cost more than to store and load rows (benchmarks/NOTES.md, *Products by a small
    matrix*). row_bytes: the widest row that stays near, on a thread's stack or in shared memory;
    exponentials that went through main memory instead cost more than computing them twice (NOTES,
    *Rows of symbolic width*)."""

    terms: int = 16
    row_bytes: int = 32 * KB


@dataclass(frozen=True, slots=True)
class Facts:
    """A machine. Sizes are in bytes unless they say otherwise; 0 stands for what it does not have.

    vector_bits: of the widest vector register; a GPU's thread loads and stores so much at once.
    masked_bits: of the smallest elements that loads and stores can mask; more than any element has
    where nothing can be masked. mask_registers: masks of up to 64 lanes are registers of their
    own, made from integers. vector_registers: how many there are. cache_line: the unit of caches.
    caches: of the data caches that one core uses, first level first. prefetch_level: the cache
    that software prefetching fills. stack: of a thread, of which kernels may have a quarter and
    functions that call each other half. fusion: limits of fusion.

    Of GPUs: warp: threads that run in step and can exchange registers. block_threads: the most
    threads of a block. grid: the most blocks along x, y and z. shared: memory of a block that
    every GPU has; more must be asked for at the launch. banks, bank_bytes: shared memory answers
    one request of so many bytes per bank at once. sector: the unit that main memory moves.
    """

    vector_bits: int = 128
    masked_bits: int = 128
    mask_registers: bool = False
    vector_registers: int = 16
    cache_line: int = 64
    caches: tuple[int, ...] = _MEASURED
    prefetch_level: int = 2
    stack: int = 4 * MB
    fusion: FusionLimits = FusionLimits()
    warp: int = 0
    block_threads: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    shared: int = 0
    banks: int = 0
    bank_bytes: int = 0
    sector: int = 0

    def cache(self, level: int) -> int:
        """Bytes of the cache of a level, from 1, that schedules count on: no more than those of
        the machines that they were measured on. A virtual machine shares what a last level
        reports with others (NOTES, *Non-temporal stores*)."""
        last = len(self.caches)
        return min(self.caches[min(level, last) - 1], _MEASURED[level - 1])


CUDA = Facts(
    warp=32, block_threads=1024, grid=(2**31 - 1, 65535, 65535), shared=48 * KB,
    banks=32, bank_bytes=4, sector=32,
)  # fmt: skip
"""Every GPU of CUDA."""


def cpu_facts(
    architecture: str, cpu: str, features: frozenset[str], caches: tuple[int, ...]
) -> Facts:
    """A CPU by the first part of its triple, LLVM's name and features of it, and its caches; by a
    table where these are not known."""
    bits = next((bits for name, bits in _VECTOR_BITS if name in features), 128)
    masked = 8 if "avx512bw" in features else 32 if bits >= 256 else 128
    sizes = caches or _CACHES.get(cpu, _MEASURED)
    known = Facts(caches=sizes)
    return Facts(
        vector_bits=bits,
        masked_bits=masked,
        # An instruction of BMI2 sets the lowest bits of such a mask.
        mask_registers={"avx512bw", "bmi2"} <= features,
        vector_registers=32 if bits == 512 or architecture == "aarch64" else 16,
        caches=sizes,
        # Intel's cores can wait for more lines at once in the second level than in the first.
        prefetch_level=1 if cpu.startswith("znver") else 2,
        # With what is read and written, a row stays in a second-level cache.
        fusion=FusionLimits(row_bytes=known.cache(2) // 32),
    )


_VECTOR_BITS = (("avx512f", 512), ("avx2", 256))
"""Features, the widest first, and the bits of their vectors; SSE2 and NEON have 128."""

_CACHES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("haswell", "broadwell", "skylake"), (32 * KB, 256 * KB, 8 * MB)),
    **dict.fromkeys(("skylake-avx512", "cascadelake"), (32 * KB, 1 * MB, 16 * MB)),
    "icelake-server": (48 * KB, 1280 * KB, 32 * MB),
    "sapphirerapids": (48 * KB, 2 * MB, 32 * MB),
    **dict.fromkeys(("znver1", "znver2"), (32 * KB, 512 * KB, 16 * MB)),
    "znver3": (32 * KB, 512 * KB, 32 * MB),
    "znver4": (32 * KB, 1 * MB, 32 * MB),
    "znver5": (48 * KB, 1 * MB, 32 * MB),
    **dict.fromkeys(("neoverse-n1", "neoverse-v1"), (64 * KB, 1 * MB, 32 * MB)),
}
"""Caches of CPUs by LLVM's names, as their makers give them; the last level of one of several
groups of cores."""


@cache
def system_caches(root: str = "/sys/devices/system/cpu/cpu0/cache") -> tuple[int, ...]:
    """The data caches that a core of this machine uses, first level first; empty where the system
    (one other than Linux) does not say."""
    found: dict[int, int] = {}
    for folder in sorted(Path(root).glob("index*")):
        level, kind, size = (
            (folder / name).read_text(encoding="ascii").strip()
            for name in ("level", "type", "size")
        )
        number = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind != "Instruction" and number is not None:
            found[int(level)] = int(number[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[number[2]]
    return tuple(found[level] for level in sorted(found))
