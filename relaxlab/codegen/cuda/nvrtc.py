"""CUDA C to PTX and machine code by NVRTC, NVIDIA's run-time compiler; no GPU is needed.

It comes from the wheels `nvidia-cuda-nvrtc-cu12` (the library) and `nvidia-cuda-runtime-cu12` (the
headers of half-precision types): `pip install 'relaxlab[cuda]'`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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
    """A compiled source: `ptx` text, the machine code `cubin` of architecture `arch` (`sm_90`), and
    the resources of each kernel by name."""

    arch: str
    ptx: str
    cubin: bytes
    resources: dict[str, Resources]


def compile_cuda(
    source: str, arch: str, *, contract: bool = True, line_info: bool = False
) -> Compiled:
    """Compile CUDA C for an architecture such as `sm_80`. `contract`: as in `Target`. With
    `line_info`, the PTX says which lines of the source it was made from.

    Raises NvrtcError where NVRTC is missing or the source is wrong.
    """
    nvrtc = _library()
    program = ctypes.c_void_p()
    nvrtc("CreateProgram", ctypes.byref(program), source.encode(), b"relaxlab.cu", 0, None, None)
    try:
        options = [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"]
        options.append(f"--fmad={'true' if contract else 'false'}")
        options += [f"--include-path={d}" for d in _include_dirs()]
        options += ["--generate-line-info"] if line_info else []
        values = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = nvrtc.run("CompileProgram", program, len(options), values)
        log = nvrtc.bytes_of(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if code:
            raise NvrtcError(f"NVRTC refuses the CUDA source for {arch}:\n{log}")
        ptx = nvrtc.bytes_of(program, "PTX").rstrip(b"\0").decode()
        return Compiled(arch, ptx, nvrtc.bytes_of(program, "CUBIN"), _resources(log))
    finally:
        nvrtc("DestroyProgram", ctypes.byref(program))


def is_available() -> bool:
    """True if NVRTC and the headers it needs are installed."""
    return _folder("nvidia.cuda_nvrtc", "lib") is not None and bool(_include_dirs())


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
def _library() -> _Nvrtc:
    folder = _folder("nvidia.cuda_nvrtc", "lib") or _folder("nvidia.cuda_nvrtc", "bin")
    found = (
        sorted(folder.glob("*nvrtc.so.*")) + sorted(folder.glob("nvrtc64*.dll")) if folder else []
    )
    if not found:
        raise NvrtcError(
            "NVRTC, which compiles CUDA sources, is not installed; "
            "run: pip install 'relaxlab[cuda]'"
        )
    return _Nvrtc(found[0])


def _include_dirs() -> list[Path]:
    folder = _folder("nvidia.cuda_runtime", "include")
    return [folder] if folder else []


def _folder(package: str, name: str) -> Path | None:
    """A folder inside an installed namespace package."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    places = [Path(p) / name for p in (spec.submodule_search_locations or [])] if spec else []
    return next((p for p in places if p.is_dir()), None)


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
