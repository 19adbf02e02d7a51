"""The start of a CUDA source: the types and small functions that the kernels below it use."""

from __future__ import annotations

import re

from relaxlab.ir.facts import BOX_DIMENSIONS

C_TYPES = {
    "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double",
}  # fmt: skip

_TYPEDEFS = """\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""


def _ldmatrix(name: str, form: str) -> str:
    """The function for a form of PTX's ldmatrix."""
    return f"""\
// Four 8 x 8 matrices from shared memory to the lanes of a warp, see PTX's ldmatrix.
template <typename T>
__device__ __forceinline__ void {name}(T* to, const T* from) {{
  static_assert(sizeof(T) == 2, "of 16-bit elements");
  uint32_t* r = reinterpret_cast<uint32_t*>(to);
  asm volatile("ldmatrix.sync.aligned.{form}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((uint32_t)__cvta_generic_to_shared(from)) : "memory");
}}
"""


def _wgmma(columns: int, registers: bool) -> str:
    """The functions for a width of PTX's wgmma: c += a * b, for both types of elements; c = a * b
    where nothing is to be added. The left operand is in registers or in shared memory."""
    count = columns // 2
    sums = ", ".join(f"%{n}" for n in range(count))
    outputs = ", ".join(f'"+f"(c[{n}])' for n in range(count))
    name = f"wgmma_{'registers_' if registers else ''}m64n{columns}k16"
    if registers:
        left, after, ends = f"{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}", count + 4, ""
        inputs = ", ".join(f'"r"(reinterpret_cast<const uint32_t*>(a)[{n}])' for n in range(4))
    else:
        left, after, ends = f"%{count}", count + 1, " 0,"
        inputs = '"l"(tile_descriptor(a, 16))'
    forms = "\n".join(
        f"""\
template <>
__device__ __forceinline__ void {name}<{kind}, {trans}>(
    float* c, const {kind}* a, const {kind}* b, int distance, int add) {{
  asm volatile("{{.reg .pred p; setp.ne.b32 p, %{after + 1}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} "
      "{{{sums}}}, {left}, %{after}, p, 1, 1,{ends} {trans};}}"
      : {outputs}
      : {inputs}, "l"(tile_descriptor(b, distance)), "r"(add));
}}"""
        for kind, half in _MMA for trans in (0, 1)
    )  # fmt: skip
    return f"""\
template <typename T, int BY_ROWS>
__device__ __forceinline__ void {name}(
    float* c, const T* a, const T* b, int distance, int add);
{forms}
"""


def _tma_load(rank: int) -> str:
    """The function for arrays of so many dimensions, of which the last is the first coordinate."""
    names = [f"at{n}" for n in range(rank)]
    places = ", ".join(f"%{n + 3}" for n in range(rank))
    inputs = ", ".join(f'"r"({n})' for n in names)
    return f"""\
// A box of an array to shared memory, see PTX's cp.async.bulk.tensor.
__device__ __forceinline__ void tma_load_{rank}d(
    void* to, const TensorMap* from, {", ".join(f"int {n}" for n in names)}, uint64_t* barrier) {{
  asm volatile(
      "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {{{places}}}], [%2];"
      :: "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from),
         "r"((uint32_t)__cvta_generic_to_shared(barrier)), {inputs} : "memory");
}}
"""


_MMA = (("__half", "f16"), ("__nv_bfloat16", "bf16"))
"""The types of elements that matrices are multiplied in, and PTX's names of them."""
WGMMA_COLUMNS = tuple(range(8, 257, 8))
"""The widths of wgmma's right operand."""

PARTS = {
    "__half": "#include <cuda_fp16.h>\n",
    "__nv_bfloat16": "#include <cuda_bf16.h>\n",
    "INFINITY": """\
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
""",
    "NAN": """\
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
""",
    "Vec": """\
// N neighbours in memory, moved by accesses of up to 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T lane[N];
};
""",
    "floordiv": """\
// Division that rounds toward negative infinity, and its remainder.
template <typename T>
__device__ __forceinline__ T floordiv(T a, T b) {
  const T q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "floormod": """\
template <typename T>
__device__ __forceinline__ T floormod(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "minimum": """\
// NaN if either operand is NaN.
template <typename T>
__device__ __forceinline__ T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ float minimum<float>(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#endif
""",
    "maximum": """\
// NaN if either operand is NaN.
template <typename T>
__device__ __forceinline__ T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ float maximum<float>(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#endif
""",
    "truncate": """\
// The integer towards zero, or the nearest one that the type has; 0 for NaN.
template <typename To, typename From>
__device__ __forceinline__ To truncate(From x) {
  constexpr int bits = sizeof(To) * 8 - (To(-1) < To(0));
  constexpr uint64_t high = ~uint64_t(0) >> (64 - bits);
  constexpr From past = From(2) * From(uint64_t(1) << (bits - 1));
  constexpr To low = To(~high);
  if (!(x == x)) return To(0);
  return x >= past ? To(high) : x <= From(low) ? low : To(x);
}
""",
    "absolute": """\
template <typename T>
__device__ __forceinline__ T absolute(T x) {
  return x < 0 ? -x : x;
}
""",
    "ipow": """\
template <typename T>
__device__ __forceinline__ T ipow(T base, T exponent) {
  T result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}
""",
    "sigmoid": """\
template <typename T>
__device__ __forceinline__ T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}
""",
    "fast_exp": """\
__device__ __forceinline__ float fast_exp(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
  return r;
}
""",
    "fast_divide": """\
__device__ __forceinline__ float fast_divide(float a, float b) {
  return __fdividef(a, b);
}
""",
    "shift_left": """\
// Shifts by the width or more leave nothing but the sign.
template <typename T>
__device__ __forceinline__ T shift_left(T a, T n) {
  return n < 0 || n >= T(sizeof(T) * 8) ? T(0) : T(a << n);
}
""",
    "shift_right": """\
template <typename T>
__device__ __forceinline__ T shift_right(T a, T n) {
  return n < 0 || n >= T(sizeof(T) * 8) ? T(a < 0 ? -1 : 0) : T(a >> n);
}
""",
    "float_of_byte": """\
// A byte as a float. 2^23 plus it has it as its last bits, which takes one instruction and one
// subtraction, where to extract and convert it takes three.
template <int N>
__device__ __forceinline__ float float_of_byte(const Vec<uint32_t, N>& words, int n) {
  const uint32_t bits = __byte_perm(words.lane[n / 4], 0x4B000000u, 0x7650u + n % 4);
  return __uint_as_float(bits) - 8388608.0f;
}
""",
    "reinterpret": """\
// The same bits as another type.
template <typename To, typename From>
__device__ __forceinline__ To reinterpret(From value) {
  static_assert(sizeof(To) == sizeof(From), "the types have the same size");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}
""",
    "shared_memory": """\
extern __shared__ __align__(1024) unsigned char shared_memory[];
""",
    "cp_async": """\
// Copies from main to shared memory that the thread does not wait for, see PTX's cp.async.
template <int N>
__device__ __forceinline__ void cp_async(void* to, const void* from) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  const uint64_t source = (uint64_t)__cvta_generic_to_global(from);
  if (N == 16) {  // past the first-level cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(source) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :: "r"(at), "l"(source), "n"(N) : "memory");
  }
}
""",
    "cp_async_commit": """\
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
""",
    "cp_async_wait": """\
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}
""",
    "dp4a_u8s8": """\
// Adds the products of four unsigned and four signed bytes, see PTX's dp4a.
__device__ __forceinline__ void dp4a_u8s8(int32_t* c, const uint8_t* a, const int8_t* b) {
  const uint32_t x = *reinterpret_cast<const uint32_t*>(a);
  const uint32_t y = *reinterpret_cast<const uint32_t*>(b);
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(*c) : "r"(x), "r"(y));
}
""",
    "ldmatrix": _ldmatrix("ldmatrix", "m8n8.x4"),
    "ldmatrix_trans": _ldmatrix("ldmatrix_trans", "m8n8.x4.trans"),
    "mma_m16n8k16": """\
// c += a * b by the lanes of a warp, see PTX's mma.sync.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float* c, const T* a, const T* b);
#define RELAXLAB_MMA(T, NAME)                                                          \\
  template <>                                                                          \\
  __device__ __forceinline__ void mma_m16n8k16<T>(float* c, const T* a, const T* b) {  \\
    const uint32_t* x = reinterpret_cast<const uint32_t*>(a);                          \\
    const uint32_t* y = reinterpret_cast<const uint32_t*>(b);                          \\
    asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 "                 \\
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"              \\
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                               \\
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));           \\
  }
""",
    "TensorMap": """\
// What describes a matrix in main memory to the copies of boxes: a CUtensorMap.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};
""",
    "mbarrier_init": """\
__device__ __forceinline__ void mbarrier_init(uint64_t* at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :: "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(count) : "memory");
}
""",
    "mbarrier_fence": """\
__device__ __forceinline__ void mbarrier_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
""",
    "mbarrier_arrive": """\
__device__ __forceinline__ void mbarrier_arrive(uint64_t* at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :: "r"((uint32_t)__cvta_generic_to_shared(at)) : "memory");
}
""",
    "mbarrier_expect": """\
__device__ __forceinline__ void mbarrier_expect(uint64_t* at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(bytes) : "memory");
}
""",
    "mbarrier_wait": """\
__device__ __forceinline__ void mbarrier_wait(uint64_t* at, int parity) {
  asm volatile(
      "{.reg .pred p;\\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n"
      "@p bra done;\\n"
      "bra again;\\n"
      "done:}"
      :: "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(parity) : "memory");
}
""",
    **{f"tma_load_{n}d": _tma_load(n) for n in range(1, BOX_DIMENSIONS + 1)},
    "tile_descriptor": """\
// Lines of 128 bytes whose 16-byte parts are swizzled, one after the other; blocks of 64 columns of
// a matrix that is stored row by row are `distance` bytes apart. See PTX's matrix descriptors.
__device__ __forceinline__ uint64_t tile_descriptor(const void* at, int distance) {
  const uint64_t place = (uint32_t)__cvta_generic_to_shared(at);
  const uint64_t swizzle = 1, eight_lines = 1024;
  return (place & 0x3ffff) >> 4 | (uint64_t)(distance >> 4) << 16 | eight_lines >> 4 << 32
      | swizzle << 62;
}
""",
    "wgmma_fence": """\
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
""",
    "wgmma_commit": """\
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
""",
    "wgmma_wait": """\
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}
""",
    "setmaxnreg_inc": """\
template <int N>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}
""",
    "setmaxnreg_dec": """\
template <int N>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}
""",
    "checked_divisor": """\
// The divisor, or 1 after reporting failure `number` where it is 0.
template <typename T>
__device__ __forceinline__ T checked_divisor(T b, int* failed, int number) {
  if (b == 0) atomicCAS(failed, 0, number);
  return b == 0 ? T(1) : b;
}
""",
}


def prelude(code: str) -> str:
    """Return the types and functions here that `code` uses, as the start of its file."""
    words = set(re.findall(r"\w+", code))
    used = [text for name, text in PARTS.items() if name in words]
    wide = [
        (n, registers) for n in WGMMA_COLUMNS for registers in (False, True)
        if f"wgmma_{'registers_' if registers else ''}m64n{n}k16" in words
    ]  # fmt: skip
    if wide:
        # Specialisations name both types.
        halves = [PARTS[kind] for kind, _ in _MMA if kind not in words]
        used = [*halves, *used, PARTS["tile_descriptor"], *(_wgmma(*form) for form in wide)]
    if "mma_m16n8k16" in words:
        used += [f'RELAXLAB_MMA({kind}, "{name}")\n' for kind, name in _MMA if kind in words]
    includes = [t for t in used if t.startswith("#include")]
    return "\n".join(["".join(includes) + _TYPEDEFS, *(t for t in used if t not in includes)])
