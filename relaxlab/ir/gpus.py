"""Published figures of NVIDIA's data-centre GPUs: a row for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxlab.ir.errors import expect
from relaxlab.ir.facts import KB, MB
from relaxlab.ir.names import among
from relaxlab.ir.target import Target

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. Sizes are in bytes, rates per second; those per clock are of one multiprocessor.

    arch:        the architecture that programs are compiled for.
    multiprocessors: how many it has.
    clock:       in Hz, at which its figures hold.
    bandwidth:   of main memory.
    cache:       second-level cache, with `cache_bandwidth` between it and the multiprocessors.
    shared:      memory of a multiprocessor for the blocks on it together; `near` is that with the
                 first-level cache.
    lanes:       fused multiply-adds of float32 per clock; `doubles` of float64.
    products:    floating-point operations of tensor cores on 16-bit floats, without sparsity.
    mma:         the share of these that `mma.sync` reaches.
    wgmma:       that which the instructions of warpgroups reach, 0 without them.
    """

    name: str
    arch: str
    multiprocessors: int
    clock: float
    bandwidth: float
    cache: int
    cache_bandwidth: float
    shared: int
    near: int
    lanes: int
    doubles: int
    products: float
    mma: float
    wgmma: float = 0.0

    threads: int = 2048
    blocks: int = 32
    registers: int = 64 * KB

    @property
    def target(self) -> Target:
        """The target to compile for."""
        return Target.cuda(self.arch)


GPUS: Mapping[str, Gpu] = {
    row.name: row
    for row in (
        Gpu("a100", "sm_80", 108, 1.41 * GIGA, 2.04 * TERA, 40 * MB, 7.2 * TERA, 164 * KB,
            192 * KB, lanes=64, doubles=32, products=312 * TERA, mma=1.0),
        Gpu("h100", "sm_90a", 132, 1.83 * GIGA, 3.35 * TERA, 50 * MB, 9.4 * TERA, 228 * KB,
            256 * KB, lanes=128, doubles=64, products=989 * TERA, mma=0.63, wgmma=0.8),
        Gpu("h200", "sm_90a", 132, 1.83 * GIGA, 4.8 * TERA, 50 * MB, 9.4 * TERA, 228 * KB,
            256 * KB, lanes=128, doubles=64, products=989 * TERA, mma=0.63, wgmma=0.8),
        Gpu("b200", "sm_100", 148, 1.85 * GIGA, 8.0 * TERA, 126 * MB, 10.5 * TERA, 228 * KB,
            256 * KB, lanes=128, doubles=64, products=2250 * TERA, mma=0.31),
    )
}  # fmt: skip
"""SXM modules, the A100 with 80 GB: NVIDIA's white papers and data sheets. Three are not from
there. Second-level caches after the A100's are taken to move as much per clock, 5120 bytes, the
B200's per multiprocessor, too. The share of `mma.sync` was measured on Hopper (arXiv 2501.12084);
on Blackwell it is taken to be as fast per multiprocessor. That of `wgmma` is cuBLAS's on random
numbers (NOTES, *Tensor cores by `mma.sync`*): their power lowers the clock."""


def gpu_named(name: str) -> Gpu:
    """The GPU of a name such as `h100`. Raises KeyError for an unknown one."""
    expect(name, str, f"a GPU is one of {', '.join(GPUS)}")
    found = GPUS.get(name.lower())
    if found is None:
        raise KeyError(f"no figures of a GPU named {name!r}; there are: {among(name, GPUS)}")
    return found
