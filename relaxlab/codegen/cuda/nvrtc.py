"""CUDA C to PTX and machine code by NVRTC, NVIDIA's run-time compiler; no GPU is needed.

It comes with a CUDA toolkit, or from NVIDIA's wheels: `pip install 'relaxlab[cuda]'`.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from relaxlab.codegen.cuda.toolkit import find_toolkit, searched
from relaxlab.ir.errors import UserError

DEFAULT_ARCH = "sm_80"
"""The architecture to compile for on a machine without a GPU."""


class NvrtcError(UserError):
    """NVRTC is not there, or refuses a source. The message has its log."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The assembler's report on a kernel: registers per thread; bytes of spill stores and loads, of
    the stack and of shared memory per block."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled source: `ptx` text, the machine code `cubin` of architecture `arch` (`sm_90`), the
    resources of each kernel by name, and the compiler's `warnings`, such as of tensor instructions
    that it makes wait for each other."""

    arch: str
    ptx: str
    cubin: bytes
    resources: dict[str, Resources]
    warnings: tuple[str, ...] = ()


def compile_cuda(
    source: str, arch: str, *, contract: bool = True, line_info: bool = False
) -> Compiled:
    """Compile CUDA C for an architecture such as `sm_80`. `contract`: as in `Target`. With
    `line_info`, the PTX says which lines of the source it was made from.

    Raises NvrtcError where NVRTC is missing or the source is wrong.
    """
    nvrtc, include = _library()
    program = ctypes.c_void_p()
    nvrtc("CreateProgram", ctypes.byref(program), source.encode(), b"relaxlab.cu", 0, None, None)
    try:
        options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
        options.append(f"--fmad={'true' if contract else 'false'}")
        options.append(f"--include-path={include}")
        options += ["--generate-line-info"] if line_info else []
        values = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = nvrtc.run("CompileProgram", program, len(options), values)
        log = nvrtc.bytes_of(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if code:
            raise NvrtcError(f"NVRTC refuses the CUDA source for {arch}:\n{log}")
        ptx = nvrtc.bytes_of(program, "PTX").rstrip(b"\0").decode()
        cubin = nvrtc.bytes_of(program, "CUBIN")
        return Compiled(arch, ptx, cubin, _resources(log), _warnings(log))
    finally:
        nvrtc("DestroyProgram", ctypes.byref(program))


def is_available() -> bool:
    """True if NVRTC and the headers it needs are installed."""
    return find_toolkit() is not None


def version() -> str:
    """The version of NVRTC (`13.0`). Raises NvrtcError where it is missing."""
    nvrtc, _ = _library()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc("Version", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


class _Nvrtc:
    """The C interface; errors become exceptions."""

    def __init__(self, path: Path) -> None:
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as e:
            raise NvrtcError(f"{path} cannot be loaded: {e}") from e

    def run(self, name: str, *args: Any) -> int:
        return getattr(self.library, f"nvrtc{name}")(*args)

    def __call__(self, name: str, *args: Any) -> None:
        code = self.run(name, *args)
        if code:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            reason = self.library.nvrtcGetErrorString(code).decode()
            raise NvrtcError(f"nvrtc{name} failed: {reason}")

    def bytes_of(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self(f"Get{what}", program, buffer)
        return buffer.raw


@cache
def _library() -> tuple[_Nvrtc, Path]:
    """NVRTC and the folder of its headers."""
    toolkit = find_toolkit()
    if toolkit is None:
        raise NvrtcError(
            "NVRTC, which compiles CUDA sources, is not installed with its headers (not in "
            f"{searched()}); run: pip install 'relaxlab[cuda]'"
        )
    return _Nvrtc(toolkit.nvrtc), toolkit.include


def _warnings(log: str) -> tuple[str, ...]:
    """The lines of a log that warn of something."""
    words = ("warning", "Potential Performance Loss", "setmaxnreg ignored")
    return tuple(line for line in log.splitlines() if any(word in line for word in words))


def _resources(log: str) -> dict[str, Resources]:
    """The assembler's report, kernel by kernel."""
    found: dict[str, Resources] = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.partition("'")[0]
        numbers = {
            key: int(m.group(1)) if (m := re.search(pattern, part)) else 0
            for key, pattern in _PATTERNS.items()
        }
        found[name] = Resources(**numbers)
    return found


_PATTERNS = {
    "registers": r"Used (\d+) registers",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "stack": r"(\d+) bytes stack frame",
    "shared": r"(\d+) bytes smem",
}
