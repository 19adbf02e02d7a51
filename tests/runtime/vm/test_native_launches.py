"""Launches by native code: a driver in C, compiled here, records them and what they are given."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.codegen.gpu.dialect import MAP_BYTES
from relaxlab.ir import host
from relaxlab.ir.module import Module
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.vm import cuda, native_launches, tensor_map
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.runtime.vm.straight_line import straight_line
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import random_arguments
from tests.codegen.cuda.on_cpu import COMPILER
from tests.passes.graph_programs import Programs
from tests.runtime.vm.cupy_stand_in import CupyStandIn, compile_as_text

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
DRIVER = """
#include <cstdint>
#include <cstring>
struct Record { uint64_t function, stream, arguments[24]; uint32_t sizes[7]; };
static Record records[4096];
static int counts[1024], bytes[1024][24];
extern "C" {
int launches, fails_at = -1;
Record* recorded() { return records; }
void describe(int function, int count, const int* of) {
  counts[function] = count;
  std::memcpy(bytes[function], of, count * sizeof(int));
}
int cuLaunchKernel(uint64_t function, uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e,
                   uint32_t f, uint32_t shared, uint64_t stream, void** given, void** extra) {
  if (launches == fails_at || extra != nullptr) return 700;
  Record& r = records[launches++];
  r = {function, stream, {}, {a, b, c, d, e, f, shared}};
  for (int i = 0; i < counts[function]; ++i) {
    if (bytes[function][i] <= 8) {
      std::memcpy(&r.arguments[i], given[i], bytes[function][i]);
      continue;
    }
    uint64_t hash = reinterpret_cast<uintptr_t>(given[i]) % 64;  // 0: aligned as it must be
    for (int n = 0; n < bytes[function][i]; ++n)
      hash = hash * 31 + static_cast<unsigned char*>(given[i])[n];
    r.arguments[i] = hash;
  }
  return 0;
}
int cuTensorMapEncodeTiled(uint64_t* to, int dtype, uint32_t rank, uint64_t address,
                           const uint64_t* sizes, const uint64_t* pitches, const uint32_t* box,
                           const uint32_t* steps, int a, int swizzle, int promote, int fill) {
  if (reinterpret_cast<uintptr_t>(to) % 64 || address % 16) return 1;
  uint64_t words[16] = {address, uint64_t(dtype), uint64_t(swizzle), uint64_t(promote)};
  for (uint32_t i = 0; i < rank; ++i)
    words[4 + i] = sizes[i] * 1000003 + (i + 1 < rank ? pitches[i] * 8191 : 0) + box[i] * 31 +
                   steps[i];
  std::memcpy(to, words, sizeof(words));
  return a + fill;
}
}
"""


class Record(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_uint64), ("stream", ctypes.c_uint64),
        ("arguments", ctypes.c_uint64 * 24), ("sizes", ctypes.c_uint32 * 7),
    )  # fmt: skip


def _is_array(value: Any) -> bool:
    """True for an array; numbers and descriptors are passed by value."""
    return isinstance(value, np.ndarray) and value.dtype.itemsize != MAP_BYTES


class Recorder(CupyStandIn):
    """A stand-in for CuPy whose kernels compute nothing. Memory is handed out in the same order
    after each `rewind`, so that equal calls have equal addresses."""

    def __init__(self, driver: ctypes.CDLL) -> None:
        super().__init__(lambda _: pytest.fail("kernels are not run"))
        self.driver, self.names = driver, list[str]()
        self.room, self.used = super().empty((1 << 24,), np.uint8), 0
        self.called: list[tuple[Any, ...]] = []

    def rewind(self) -> None:
        self.used, self.called, self.launches = 0, [], 0
        ctypes.c_int.in_dll(self.driver, "launches").value = 0

    def empty(self, shape: Any, dtype: Any) -> Any:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        start = self.used
        self.used += -(-max(size, 1) // 64) * 64
        return self.room[start : start + size].view(dtype).reshape(shape)

    def RawModule(self, path: str) -> Any:  # noqa: N802
        return SimpleNamespace(get_function=self.function)

    def function(self, name: str) -> Any:
        """A kernel, which records what Python launches it with."""
        if name not in self.names:
            self.names.append(name)
        number = self.names.index(name)

        def launch(grid: Any, block: Any, args: Sequence[Any], shared_mem: int) -> None:
            sizes = [8 if _is_array(a) else a.dtype.itemsize for a in args]
            self.driver.describe(number, len(sizes), (ctypes.c_int * len(sizes))(*sizes))
            given = [self._argument(a) for a in args]
            self.called.append((name, (*grid, *block, shared_mem), given))

        launch.kernel = SimpleNamespace(ptr=number)  # type: ignore[attr-defined]
        return launch

    def _argument(self, value: Any) -> int:
        if value.dtype.itemsize == MAP_BYTES:
            found = 0
            for byte in value.tobytes():
                found = (found * 31 + byte) % (1 << 64)
            return found
        if _is_array(value):
            return int(value.ctypes.data)
        return int.from_bytes(value.tobytes(), "little")

    def recorded(self) -> list[tuple[Any, ...]]:
        """The launches that reached the driver: names, sizes and arguments."""
        records = self.driver.recorded
        records.restype = ctypes.POINTER(Record)
        count = ctypes.c_int.in_dll(self.driver, "launches").value
        return [(self.names[r.function], tuple(r.sizes), list(r.arguments))
                for r in records()[:count]]  # fmt: skip


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("driver")
    source, library = folder / "driver.cpp", folder / "driver.so"
    source.write_text(DRIVER)
    subprocess.run([COMPILER or "", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture
def recorder(driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    found = Recorder(driver)
    addresses = tuple(
        ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
        for name in ("cuLaunchKernel", "cuTensorMapEncodeTiled")
    )
    monkeypatch.setattr(cuda, "require_cupy", lambda: found)
    monkeypatch.setattr(nvrtc, "compile_cuda", compile_as_text)
    monkeypatch.setattr(native_launches, "driver_functions", lambda: addresses)
    monkeypatch.setattr(tensor_map, "_driver", lambda: driver)
    tensor_map._encoded.cache_clear()
    yield found
    tensor_map._encoded.cache_clear()
    ctypes.c_int.in_dll(driver, "fails_at").value = -1


def compare(recorder: Recorder, exe: CudaExecutable, calls: Sequence[Sequence[Any]]) -> int:
    """Call a function with launches by Python and by native code; return how many there were."""
    machine, fn = exe.machine(), exe.program.functions["main"]
    begin, total = recorder.used, 0
    recorder.rewind()
    recorder.used = begin
    given = [[recorder.copy_of(a) if isinstance(a, np.ndarray) else a for a in c] for c in calls]
    begin = recorder.used
    by_python = straight_line(machine, fn)
    by_native = straight_line(machine, fn, exe._launcher)
    assert by_python is not None and by_native is not None
    kernels = sum(isinstance(i, host.CallKernel) for i in fn.instrs)
    native = [s for s in by_native.steps if isinstance(s, native_launches.NativeLaunches)]
    assert len(native) == (kernels > 0)
    for args in given:
        results = []
        for line in (by_python, by_native):
            recorder.rewind()
            recorder.used = begin
            results.append((line(args), recorder.called, recorder.recorded()))
        (_, wanted, none), (_, called, got) = results
        assert not none and not called and len(wanted) == len(got)
        for (name, sizes, arguments), made in zip(wanted, got, strict=True):
            assert made[:2] == (name, sizes)
            # NumPy gives a tensor without elements no place of its own.
            assert not args[0].size or made[2][: len(arguments)] == arguments, name
        total += len(got)
    return total


@pytest.mark.parametrize("seed", range(3000, 3008))
def test_random_programs(recorder: Recorder, seed: int) -> None:
    """The kernels, sizes and arguments of launches that Python makes one by one."""
    mod = Programs(seed).module()
    main = rl.trace(mod, "cuda").passes[0].after["main"]
    exe = rl.compile(mod, target="cuda:sm_80")
    fn = exe.program.functions["main"]
    if straight_line(exe.machine(), fn) is None:
        return
    rng = np.random.default_rng(seed)
    compare(recorder, exe, [random_arguments(main, rng) for _ in range(3)])


def product(rows: Any) -> Module:
    return parse(f"""
@R.function
def main(x: R.Tensor(({rows!r}, 256), "bfloat16"), w: R.Tensor((256, 128), "bfloat16")):
    with R.dataflow():
        y = R.nn.gelu(R.matmul(x, w))
        z = R.matmul(R.permute_dims(y), x)
        R.output(z)
    return z
""")


def test_descriptors_of_boxes(recorder: Recorder) -> None:
    """Encoded where they are needed: for many rows, by warpgroups; none for no rows."""
    exe = rl.compile(product("n"), target="cuda:sm_90a")
    w = np.zeros((256, 128), ml_dtypes.bfloat16)
    calls = [[np.zeros((n, 256), ml_dtypes.bfloat16), w] for n in (0, 1, 40, 64, 700, 2500, 64)]
    assert compare(recorder, exe, calls) >= 2 * len(calls) - 1
    assert any(s.maps for sources in exe.gpu.functions.values() for s in sources)


def test_the_drivers_errors_are_named(recorder: Recorder) -> None:
    exe = rl.compile(product(64), target="cuda:sm_80")
    kernels = [s.name for sources in exe.gpu.functions.values() for s in sources]
    args = [recorder.zeros(s, ml_dtypes.bfloat16) for s in ((64, 256), (256, 128))]
    exe["main"](*args)  # kernels are described
    assert len(kernels) > 1
    recorder.rewind()
    ctypes.c_int.in_dll(recorder.driver, "fails_at").value = 1
    with pytest.raises(ExecutionError, match=r"refuses to launch \w+ of '\w+' \(error 700\)"):
        exe["main"](*args)
