"""Finds the parts of CUDA on this machine: NVRTC with the headers of its version, and programs.

They come from NVIDIA's wheels, which have one folder for all parts since CUDA 13
(`nvidia/cu13/lib`, `nvidia/cu13/include`) and one for each part before (`nvidia/cuda_nvrtc/lib`,
`nvidia/cuda_runtime/include`), or from an installed toolkit.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HEADER = "cuda_fp16.h"
"""The header that a folder of headers is known by: kernels with half precision include it."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """NVRTC's library, and the folder of the headers that belong to it."""

    nvrtc: Path
    include: Path


@cache
def find_toolkit() -> Toolkit | None:
    """NVRTC with its headers, the wheels' before those of the system; None where there is none."""
    for libraries, headers in _places():
        found = [f for p in ("libnvrtc.so.*", "nvrtc64*.dll") for f in sorted(libraries.glob(p))]
        if found and (headers / HEADER).is_file():
            return Toolkit(found[0], headers)
    return None


def searched() -> str:
    """The folders that `find_toolkit` looks for NVRTC in, for messages."""
    return ", ".join(str(libraries) for libraries, _ in _places()) or "no folder"


@cache
def find_program(name: str) -> str | None:
    """The path of a program of CUDA, such as `nvdisasm`; None where it is not installed."""
    folders = [*_packages("nvidia.cu13"), *_installed()]
    programs = [folder / "bin" / name for folder in folders]
    found = next((str(p) for p in programs if p.is_file()), None)
    return found or shutil.which(name)


def _places() -> Iterator[tuple[Path, Path]]:
    """The folders of libraries and headers that belong together."""
    for folder in _packages("nvidia.cu13"):
        yield folder / "lib", folder / "include"
    for nvrtc in _packages("nvidia.cuda_nvrtc"):
        for runtime in _packages("nvidia.cuda_runtime"):
            yield nvrtc / ("bin" if os.name == "nt" else "lib"), runtime / "include"
    for folder in _installed():
        yield folder / ("bin" if os.name == "nt" else "lib64"), folder / "include"


def _packages(name: str) -> list[Path]:
    """The folders of an installed namespace package."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return []
    return [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []


def _installed() -> list[Path]:
    """The folders where toolkits are installed."""
    named = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    return [Path(folder) for folder in dict.fromkeys(named) if folder]
