"""Facts about machines: the data that rules, passes and code generation go by."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.arguments import methods_name_arguments

KB, MB = 1 << 10, 1 << 20
MEASURED = (32 * KB, 1 * MB, 32 * MB)
"""The caches that schedules were measured with: the smallest first level of current cores, and the
second and last level of a Zen."""

BOX_DIMENSIONS = 5
"""The most dimensions of an array of which the copy engine of a Hopper GPU (TMA) copies boxes."""


@methods_name_arguments
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


@methods_name_arguments
@dataclass(frozen=True, slots=True)
class Facts:
    """A machine. Sizes are in bytes unless they say otherwise; 0 stands for what it does not have.

    vector_bits: of the widest vector register; a GPU's thread loads and stores so much at once.
    masked_bits: of the smallest elements that loads and stores can mask; more than any element has
    where nothing can be masked. mask_registers: masks of up to 64 lanes are registers of their
    own, made from integers. converts_halves: instructions convert float16 to and from float32.
    vector_registers: how many there are. cache_line: the unit of caches.
    caches: of the data caches that one core uses, first level first. prefetch_level: the cache
    that software prefetching fills. root_estimates: an instruction estimates 1 / sqrt(x) of float32
    by the same bits as Intel's, of which Newton's method makes exact roots. stack: of a thread, of
    which kernels may have a quarter and functions that call each other half. scratchpads: memories
    with storage scopes of their own, and the bytes that a kernel may have there. fusion: limits of
    fusion.

    Of GPUs: warp: threads that run in step. shuffles: they can exchange registers. block_threads:
    the most threads of a block. grid: the most blocks along x, y and z. multiprocessors: so many
    tiles a product should have at least. registers: of 32 bits, for the threads of a block
    together. shared: memory of a block that every GPU has; at the launch, up to shared_at_launch
    can be asked for. banks, bank_bytes: shared memory answers one request of so many bytes per bank
    at once. sector: the unit that main memory moves. tensor_cores: warps multiply tiles of matrices
    of 16-bit floats. warpgroups: four warps do so together, from shared memory that a copy engine
    fills. byte_dots: a thread adds the products of four pairs of bytes by one instruction.
    """

    vector_bits: int = 128
    masked_bits: int = 128
    mask_registers: bool = False
    converts_halves: bool = False
    vector_registers: int = 16
    cache_line: int = 64
    caches: tuple[int, ...] = MEASURED
    prefetch_level: int = 2
    root_estimates: bool = False
    stack: int = 4 * MB
    scratchpads: tuple[tuple[str, int], ...] = ()
    fusion: FusionLimits = FusionLimits()
    warp: int = 0
    shuffles: bool = False
    block_threads: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    multiprocessors: int = 0
    registers: int = 0
    shared: int = 0
    shared_at_launch: int = 0
    banks: int = 0
    bank_bytes: int = 0
    sector: int = 0
    tensor_cores: bool = False
    warpgroups: bool = False
    byte_dots: bool = False

    @property
    def most_shared(self) -> int:
        """Bytes of shared memory that a block may have, asked for at the launch or not."""
        return max(self.shared, self.shared_at_launch)

    def room(self, scope: str) -> int | None:
        """Bytes that the private buffers of a kernel may take together in a storage scope; None
        where there is no limit. On a GPU, a thread's own are registers, or main memory."""
        if scope == "local":
            return None if self.warp else self.stack // 4
        return dict(self.scratchpads, shared=self.most_shared or None).get(scope)

    def cache(self, level: int) -> int:
        """Bytes of the cache of a level, from 1, that schedules count on: no more than those of
        the machines that they were measured on. A virtual machine shares what a last level
        reports with others (NOTES, *Non-temporal stores*)."""
        last = len(self.caches)
        return min(self.caches[min(level, last) - 1], MEASURED[level - 1])


CUDA = Facts(
    warp=32, shuffles=True, block_threads=1024, grid=(2**31 - 1, 65535, 65535),
    multiprocessors=128, registers=64 * KB, shared=48 * KB, shared_at_launch=99 * KB, banks=32,
    bank_bytes=4, sector=32, tensor_cores=True, byte_dots=True,
)  # fmt: skip
"""Every GPU of CUDA from sm_80 on; an H100 has 132 multiprocessors."""
WEBGPU = Facts(
    vector_bits=32, warp=32, block_threads=256, grid=(65535, 65535, 65535),
    multiprocessors=128, registers=64 * KB, shared=16 * KB, banks=32, bank_bytes=4, sector=32,
)  # fmt: skip
"""Every GPU of WebGPU: the limits that its specification gives without asking for more. Elements of
buffers have one type, so accesses are of one element; how many threads run in step,
multiprocessors, registers, banks and sectors are those of most GPUs."""
