"""CUDA C on the CPU: a C++ compiler and a header that gives CUDA's words a meaning.

Every CUDA thread is a thread, the blocks run one after the other, a barrier is a barrier. This
checks the text that the emitter writes; the launches it writes them from are checked by the SIMT
interpreter.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relaxlab.codegen.gpu.kernel import KernelSource
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.program import GpuProgram
from relaxlab.ir.expr import Var
from relaxlab.runtime.vm.gpu import sizes_of

COMPILER = shutil.which("g++")

HEADER = """\
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <memory>
#include <pthread.h>
#include <thread>
#include <vector>
using std::exp;
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
// What NVRTC is told holds.
#define __builtin_assume(x) ((x) ? void() : std::abort())
struct Index { unsigned x, y, z; };
static thread_local Index threadIdx, blockIdx;
static thread_local unsigned number;
// C++'s own barrier spins before it sleeps, which takes long with 256 threads on few cores.
struct Barrier {
  pthread_barrier_t all;
  explicit Barrier(unsigned count) { pthread_barrier_init(&all, nullptr, count); }
  ~Barrier() { pthread_barrier_destroy(&all); }
  void arrive_and_wait() { pthread_barrier_wait(&all); }
};
static Barrier* block_barrier;
static std::vector<std::unique_ptr<Barrier>> warp_barriers;
static unsigned char exchange[1024][8];
static void __syncthreads() { block_barrier->arrive_and_wait(); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
  Barrier& warp = *warp_barriers[number / 32];
  std::memcpy(exchange[number], &value, sizeof(T));
  warp.arrive_and_wait();
  T other;
  std::memcpy(&other, exchange[number ^ mask], sizeof(T));
  warp.arrive_and_wait();
  return other;
}
static void atomicCAS(int* at, int expected, int value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
static unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned char bytes[8];
  std::memcpy(bytes, &a, 4);
  std::memcpy(bytes + 4, &b, 4);
  unsigned found = 0;
  for (int i = 0; i < 4; ++i) found |= unsigned(bytes[selector >> 4 * i & 7]) << 8 * i;
  return found;
}
static int __clzll(unsigned long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
struct __half {
  unsigned short bits;
  __half() = default;
  explicit __half(float x) : bits(_cvtss_sh(x, 0)) {}
  explicit operator float() const { return _cvtsh_ss(bits); }
};
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) {
    unsigned b;
    std::memcpy(&b, &x, 4);
    bits = x != x ? 0x7fff : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  }
  explicit operator float() const {
    unsigned b = unsigned(bits) << 16;
    float x;
    std::memcpy(&x, &b, 4);
    return x;
  }
};
static void launch(const unsigned* d, const std::function<void()>& kernel) {
  unsigned threads = d[3] * d[4] * d[5];
  Barrier barrier(threads);
  block_barrier = &barrier;
  warp_barriers.clear();
  for (unsigned first = 0; first < threads; first += 32)
    warp_barriers.push_back(std::make_unique<Barrier>(std::min(32u, threads - first)));
  std::vector<std::thread> team;
  for (unsigned t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      number = t;
      threadIdx = {t % d[3], t / d[3] % d[4], t / d[3] / d[4]};
      for (unsigned b = 0; b < d[0] * d[1] * d[2]; ++b) {
        blockIdx = {b % d[0], b / d[0] % d[1], b / d[0] / d[1]};
        kernel();
        barrier.arrive_and_wait();
      }
    });
  for (auto& t : team) t.join();
}
"""
# A copy that is made at once is there whenever it is waited for.
ASYNCHRONOUS = {
    "cp_async": "std::memcpy(to, from, N);", "cp_async_commit": "", "cp_async_wait": "",
}  # fmt: skip
_OWN_TYPES = "int64_t uint64_t int8_t uint8_t int16_t uint16_t int32_t uint32_t".split()


class CpuCuda:
    """The CUDA functions of `source`, compiled for the CPU."""

    def __init__(self, source: str, folder: Path) -> None:
        assert COMPILER is not None
        text = HEADER + "".join(f"#define {t} cuda_{t}\n" for t in _OWN_TYPES)
        text += re.sub(r"#include <cuda_\w+\.h>\n", "", source)
        for name, body in ASYNCHRONOUS.items():
            text = re.sub(
                rf"(void {name}\([^)]*\) )\{{\n.*?\n\}}\n",
                rf"\1{{ {body} }}\n",
                text,
                flags=re.DOTALL,
            )
        for name, params in re.findall(r"\n(\w+)\(([^{]*)\) \{\n", source):
            if f"\n{name}({params})" in source and "__global__" in source.split(name + "(")[0]:
                names = ", ".join(p.split()[-1] for p in params.split(",") if p.strip())
                text += (
                    f'extern "C" void launch_{name}(const unsigned* dims, {params})'
                    f"{{ launch(dims, [=] {{ {name}({names}); }}); }}\n"
                )
                kinds = [p.rpartition(" ")[0] for p in params.split(",") if p.strip()]
                given = ", ".join(
                    f"*(std::remove_cv_t<{k.replace('__restrict__', '')}>*)given[{n}]"
                    for n, k in enumerate(kinds)
                )
                text += (
                    f'extern "C" void driven_{name}(const unsigned* dims, void** given)'
                    f"{{ launch(dims, [=] {{ {name}({given}); }}); }}\n"
                )
        path = folder / "kernels.cpp"
        path.write_text(text)
        library = path.with_suffix(".so")
        options = "-std=c++20 -O1 -w -shared -fPIC -pthread -mf16c -fno-strict-aliasing".split()
        done = subprocess.run(
            [COMPILER, *options, "-o", str(library), str(path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
        self.library = ctypes.CDLL(str(library))

    def run(
        self,
        kernel: DeviceKernel,
        sources: Sequence[KernelSource],
        arrays: Sequence[Any],
        scalars: Sequence[int],
    ) -> int:
        """Launch a kernel on NumPy arrays; returns the number of a failure or 0."""
        by_buffer = dict(zip(kernel.buffers, arrays, strict=True))
        values: Mapping[Var, int] = dict(zip(kernel.scalars, scalars, strict=True))
        failed = ctypes.c_int(0)
        for launch, source in zip(kernel.launches, sources, strict=True):
            sizes = sizes_of(launch)(values)
            if sizes is None:
                continue
            dims = (ctypes.c_uint * 6)(*sizes[0], *sizes[1])
            args: list[Any] = [
                ctypes.c_void_p(by_buffer[b].__array_interface__["data"][0]) for b in launch.buffers
            ]
            args += [ctypes.c_int64(values[v]) for v in launch.scalars]
            if source.failures:
                args.append(ctypes.byref(failed))
            getattr(self.library, f"launch_{source.name}")(dims, *args)
        return failed.value


def kernels_on_cpu(cuda: GpuProgram, code: CpuCuda) -> dict[str, Callable[..., None]]:
    """The kernels of a program as a virtual machine calls them."""

    def kernel(name: str) -> Callable[..., None]:
        def run(buffers: Sequence[Any], scalars: Sequence[int]) -> None:
            failed = code.run(cuda.kernels[name], cuda.functions[name], buffers, scalars)
            assert failed == 0, name

        return run

    return {name: kernel(name) for name in cuda.kernels}
