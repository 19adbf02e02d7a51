"""Descriptions of target machines and of the floating-point arithmetic allowed on them."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from relaxlab.ir.brief import Brief
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.facts import CUDA, Facts, cpu_facts, system_caches

FLOAT_OPTIONS = ("contract", "reassociate")
"""The options of `Target` for floating-point arithmetic."""


@dataclass(frozen=True, slots=True, repr=False)
class Target(Brief):
    """A machine to generate code for: a CPU, or a GPU (kind `cuda`), whose `cpu` is then its
    architecture (`sm_90`) or empty for that of the GPU that is there.

    `Target.host()` describes this machine, `Target.cuda()` a GPU. With the triple of another
    machine (`aarch64-unknown-linux-gnu`, `wasm32-unknown-unknown`) and its features, programs are
    compiled to object files, which do not run here. `facts` is what kernels are made for: widths,
    registers and caches. `caches` are the bytes of the data caches that one core uses, first level
    first; where they are not given, those of the CPU by a table.

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
    caches: tuple[int, ...] = ()

    def __repr__(self) -> str:
        options = [f"{n}={'on' if getattr(self, n) else 'off'}" for n in FLOAT_OPTIONS]
        return f"Target({', '.join([self.kind, self.cpu or self.triple or 'any', *options])})"

    def __post_init__(self) -> None:
        for name in FLOAT_OPTIONS:
            value: object = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"{name} of a target is True or False, not {value!r}")

    @property
    def facts(self) -> Facts:
        """The machine as rules, passes and code generation see it."""
        return _facts(self)

    def lanes(self, dtype: str) -> int:
        """Return the number of elements of `dtype` in a vector register."""
        return self.facts.vector_bits // bits_of(dtype)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them, for `from_json`."""
        return {**asdict(self), "features": sorted(self.features), "caches": [*self.caches]}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Target:
        """The target of these fields."""
        sets: dict[str, Any] = {
            "features": frozenset(fields["features"]), "caches": tuple(fields["caches"])
        }  # fmt: skip
        return Target(**{**fields, **sets})

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


@cache
def _facts(target: Target) -> Facts:
    if target.kind == "cuda":
        return CUDA
    architecture = target.triple.partition("-")[0]
    return cpu_facts(architecture, target.cpu, target.features, target.caches)


@cache
def _host() -> Target:
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
