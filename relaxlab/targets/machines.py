"""The machines of the kind `cpu`: what is known of them by the names that LLVM has for them."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from relaxlab.ir.facts import KB, MB, MEASURED, Facts, FusionLimits
from relaxlab.ir.target import Target

MACHINES: Mapping[str, Target] = {
    # The features that all 64-bit Arm cores have.
    "aarch64": Target("cpu", "aarch64-unknown-linux-gnu", "generic", frozenset({"neon"})),
    # The profile RVA22 with vectors, which are of 128 bits at least.
    "riscv64": Target("cpu", "riscv64-unknown-linux-gnu", "generic-rv64",
                      frozenset({"m", "a", "f", "d", "c", "v", "zba", "zbb", "zbs", "zfhmin"})),
}  # fmt: skip
"""Usual machines by the names of their architectures."""

_VECTOR_BITS = (("avx512f", 512), ("avx2", 256), ("zvl512b", 512), ("zvl256b", 256))
"""Features, and the bits of their vectors; SSE2, NEON and RISC-V's `v` have 128."""

_MASKED_BITS = (("avx512bw", 8), ("v", 8), ("avx2", 32), ("avx512f", 32))
"""Features, and the bits of the smallest elements that their loads and stores can mask."""

_HALF_FEATURES = frozenset({"f16c", "zfh", "zfhmin"})
"""Features with instructions that convert float16 to and from float32; all 64-bit Arm has them."""

_REGISTERS = {"aarch64": 32, "riscv64": 32}
"""Vector registers, where there are more than 16; AVX-512 has 32, too."""


def cpu_facts(
    architecture: str, cpu: str, features: frozenset[str], caches: tuple[int, ...]
) -> Facts:
    """A CPU by the first part of its triple, LLVM's name and features of it, and its caches; by a
    table where these are not known."""
    bits = next((bits for name, bits in _VECTOR_BITS if name in features), 128)
    masked = next((bits for name, bits in _MASKED_BITS if name in features), 128)
    sizes = caches or _CACHES.get(cpu, MEASURED)
    known = Facts(caches=sizes)
    return Facts(
        vector_bits=bits,
        masked_bits=masked,
        # An instruction of BMI2 sets the lowest bits of such a mask.
        mask_registers={"avx512bw", "bmi2"} <= features,
        converts_halves=architecture == "aarch64" or bool(_HALF_FEATURES & features),
        vector_registers=_REGISTERS.get(architecture, 32 if bits == 512 else 16),
        caches=sizes,
        # Intel's cores can wait for more lines at once in the second level than in the first.
        prefetch_level=1 if cpu.startswith("znver") else 2,
        root_estimates="avx512f" in features and cpu in _INTEL,
        # With what is read and written, a row stays in a second-level cache.
        fusion=FusionLimits(row_bytes=known.cache(2) // 32),
    )


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

_INTEL = frozenset({"skylake-avx512", "cascadelake", "cooperlake", "icelake-client",
                    "icelake-server", "tigerlake", "rocketlake", "sapphirerapids",
                    "emeraldrapids", "graniterapids"})  # fmt: skip
"""Intel's CPUs with AVX-512: VRSQRT14PS gives the same bits on all of them, those of a C program
that Intel publishes. Of others it is only known how near they are."""


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


@cache
def host() -> Target:
    """The machine this process runs on."""
    import llvmlite.binding as llvm

    flags = llvm.get_host_cpu_features()
    features = frozenset(name for name, on in flags.items() if on)
    if not _may_use_tiles():
        features = frozenset(name for name in features if not name.startswith("amx"))
    triple = llvm.get_default_triple()
    name = llvm.get_host_cpu_name()
    return Target("cpu", triple, name, features, caches=system_caches())


def _may_use_tiles() -> bool:
    """Ask Linux for this process's permission to use matrix tiles (AMX), whose state is large."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request_permission, tile_data) == 0
