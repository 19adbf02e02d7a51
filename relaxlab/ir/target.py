"""Descriptions of target machines and of the floating-point arithmetic allowed on them."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from dataclasses import dataclass, field, replace
from functools import cache

from relaxlab.ir.brief import Brief

FLOAT_OPTIONS = ("contract", "reassociate")
"""The options of `Target` for floating-point arithmetic."""
CACHE_LINE = 64
"""Bytes of a cache line, of all CPUs that kernels are tuned for."""
WARP = 32
"""Threads of a GPU that run in step and can exchange registers."""
BLOCK_THREADS = 1024
"""Most threads of a block, on every GPU of CUDA."""
SHARED_BYTES = 48 * 1024
"""Shared memory of a block that every GPU of CUDA has; more must be asked for at the launch."""
ACCESS_BYTES = 16
"""Bytes of the widest load or store of a GPU's thread."""


@dataclass(frozen=True, slots=True, repr=False)
class Target(Brief):
    """A machine to generate code for: a CPU, or a GPU (kind `cuda`), whose `cpu` is then its
    architecture (`sm_90`) or empty for that of the GPU that is there.

    `vector_bits` is the width of the widest vector registers; a GPU's thread moves 128 bits at
    once. `Target.host()` describes this machine, `Target.cuda()` a GPU. With the triple of another
    machine (`aarch64-unknown-linux-gnu`, `wasm32-unknown-unknown`) and its features, programs are
    compiled to object files, which do not run here.

    What may be done to floating-point arithmetic for speed: with `contract`, `a * b + c` may be
    rounded once instead of twice; with `reassociate`, reductions may be taken in any order, such as
    per vector lane. Both are on unless switched off. With both off, each addition, subtraction,
    multiplication, division and square root of float32 and float64 is the one that the loops say,
    rounded as IEEE 754 does. Integers are exact either way.
    """

    kind: str = "cpu"
    triple: str = ""
    cpu: str = "generic"
    features: frozenset[str] = field(default_factory=lambda: frozenset[str]())
    contract: bool = True
    reassociate: bool = True

    def __repr__(self) -> str:
        options = [f"{n}={'on' if getattr(self, n) else 'off'}" for n in FLOAT_OPTIONS]
        return f"Target({', '.join([self.kind, self.cpu or self.triple or 'any', *options])})"

    def __post_init__(self) -> None:
        for name in FLOAT_OPTIONS:
            value: object = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"{name} of a target is True or False, not {value!r}")

    @property
    def vector_bits(self) -> int:
        """512 for AVX-512, 256 for AVX2, else 128 (SSE2, NEON)."""
        for feature, bits in _VECTOR_BITS:
            if feature in self.features:
                return bits
        return 128

    def lanes(self, dtype: str) -> int:
        """Return the number of elements of `dtype` in a vector register."""
        from relaxlab.ir.dtypes import bits_of

        return self.vector_bits // bits_of(dtype)

    @property
    def masked_bits(self) -> int:
        """Bits of the smallest elements that loads and stores can mask: 8 with AVX-512BW, 32 with
        AVX2; more than any element has where nothing can be masked (SSE2, NEON)."""
        if "avx512bw" in self.features:
            return 8
        return 32 if self.vector_bits >= 256 else 128

    @property
    def has_mask_registers(self) -> bool:
        """True if masks of up to 64 lanes are registers of their own, made from integers
        (AVX-512BW), and an instruction sets the lowest bits of these (BMI2)."""
        return {"avx512bw", "bmi2"} <= self.features

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers: 32 with AVX-512 and NEON, else 16."""
        return 32 if self.vector_bits == 512 or self.triple.startswith("aarch64") else 16

    @property
    def prefetch_level(self) -> int:
        """The cache that software prefetching fills: the first level on AMD's Zen, elsewhere the
        second, which on Intel's cores can wait for more lines at once than the first."""
        return 1 if self.cpu.startswith("znver") else 2

    def feature_string(self) -> str:
        """LLVM's `+a,+b` spelling."""
        return ",".join(f"+{f}" for f in sorted(self.features))

    @staticmethod
    def host() -> Target:
        """The machine this process runs on."""
        return _host()

    @staticmethod
    def cuda(arch: str = "") -> Target:
        """A GPU of architecture `arch`, such as `sm_80`. Raises ValueError for anything else."""
        if arch and not re.fullmatch(r"sm_\d+a?", arch):
            hint = "write for example 'cuda:sm_80'"
            if arch.isdecimal():
                hint = (
                    "a target names an architecture, not a device: write 'cuda' for the GPU that "
                    "is there (CUDA_VISIBLE_DEVICES chooses it), or for example 'cuda:sm_80'"
                )
            raise ValueError(f"{arch!r} is no architecture of CUDA; {hint}")
        return Target("cuda", "nvptx64-nvidia-cuda", arch)


GENERIC = Target()
"""A CPU without any known features."""

_VECTOR_BITS = (("avx512f", 512), ("avx2", 256))


@cache
def _host() -> Target:
    import llvmlite.binding as llvm

    flags = llvm.get_host_cpu_features()
    features = frozenset(name for name, on in flags.items() if on)
    if not _may_use_tiles():
        features = frozenset(name for name in features if not name.startswith("amx"))
    triple = llvm.get_default_triple()
    return Target("cpu", triple, llvm.get_host_cpu_name(), features)


def _may_use_tiles() -> bool:
    """Ask Linux for this process's permission to use matrix tiles (AMX), whose state is large."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request_permission, tile_data) == 0


def parse_target(target: str | Target) -> Target:
    """`"cpu"` means the host, `"cuda"` the GPU that is there, `"cuda:sm_90"` one of that
    architecture. Options follow: `"cpu,contract=off,reassociate=off"`. Raises ValueError for
    anything not known."""
    if isinstance(target, Target):
        return target
    machine, *options = target.split(",")
    kind, _, arch = machine.partition(":")
    if kind == "cuda":
        chosen = Target.cuda(arch)
    elif machine == "cpu":
        chosen = Target.host()
    else:
        known = "known: 'cpu', 'cuda', 'cuda:sm_80' and its like"
        meant = _MEANT.get(machine.lower(), "")
        raise ValueError(f"unknown target {machine!r}; {meant and f'{meant}; '}{known}")
    return replace(chosen, **dict(_option(text, target) for text in options))


_CPU = "relaxlab compiles for CPUs through LLVM: write 'cpu'"
_NONE = "relaxlab has no code generator for it"
_MEANT = {
    "gpu": "relaxlab's GPUs are NVIDIA's: write 'cuda'", "nvidia": "write 'cuda'",
    "llvm": _CPU, "x86": _CPU, "x86_64": _CPU, "arm": _CPU, "aarch64": _CPU, "host": _CPU,
    "c": "write 'cpu', and Executable.export makes a library with a C interface",
    "metal": _NONE, "vulkan": _NONE, "webgpu": _NONE, "opencl": _NONE, "rocm": _NONE,
    "hip": _NONE,
}  # fmt: skip
"""Names that other compilers use for targets, and what to write here."""


def _option(text: str, target: str) -> tuple[str, bool]:
    name, _, value = text.strip().partition("=")
    if name not in FLOAT_OPTIONS or value not in ("on", "off"):
        known = ", ".join(f"{n}=on, {n}=off" for n in FLOAT_OPTIONS)
        raise ValueError(f"unknown option {text!r} of the target {target!r}; known: {known}")
    return name, value == "on"
