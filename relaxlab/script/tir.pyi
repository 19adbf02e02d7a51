"""The namespace `T` of the script: loop functions. Written by tools/write_reference.py."""

from __future__ import annotations

# pyright: reportUnusedImport=false, reportMissingModuleSource=false
# Names of the script hide those of Python: `R.sum`, `T.bool`.
from builtins import bool as _bool, float as _float, int as _int, str as _str
from collections.abc import Callable as _Callable, Iterator as _Iterator, Sequence as _Sequence
from contextlib import AbstractContextManager as _Context
from typing import Any as _Any, TypeVar as _TypeVar, overload as _overload

from relaxlab.ir.loops import PrimFunc as _PrimFunc
from relaxlab.script.stub_types import Argument as _Argument, Buffer as _Buffer, Value as _Value

@_overload
def prim_func(f: _Callable[..., _Any], /) -> _PrimFunc:
    """Read a Python function as a loop function.
    
    `s_tir=True` puts its body into a root block (done unasked when it has blocks or allocations).
    The options are read from the source. Raises DiagnosticError with everything that is wrong."""

@_overload
def prim_func(*, private: _bool = False, s_tir: _bool | None = None, check_well_formed: _bool = True) -> _Callable[[_Callable[..., _Any]], _PrimFunc]:
    """Read a Python function as a loop function.
    
    `s_tir=True` puts its body into a root block (done unasked when it has blocks or allocations).
    The options are read from the source. Raises DiagnosticError with everything that is wrong."""

class _axis:
    """The names T.axis.*"""

    @staticmethod
    def R(dom: _Any, binding: _Any, dtype: _Any = None) -> _Any:
        """A block axis that is reduced over: `T.axis.reduce`.

            v = T.axis.R(8, i)
        """

    @staticmethod
    def S(dom: _Any, binding: _Any, dtype: _Any = None) -> _Any:
        """A block axis whose points are independent of each other: `T.axis.spatial`.

            v = T.axis.S(8, i)
        """

    @staticmethod
    def opaque(dom: _Any, binding: _Any, dtype: _Any = None) -> _Any:
        """A block axis about which nothing is known.

            v = T.axis.opaque(8, i)
        """

    @staticmethod
    def reduce(dom: _Any, binding: _Any, dtype: _Any = None) -> _Any:
        """A block axis that is reduced over.

            v = T.axis.reduce(8, i)
        """

    @staticmethod
    def remap(kinds: _Any, bindings: _Any, dtype: _Any = None) -> _Any:
        """Several block axes, one per loop: a letter S (spatial) or R (reduce) for each.

            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        """

    @staticmethod
    def scan(dom: _Any, binding: _Any, dtype: _Any = None) -> _Any:
        """A block axis whose points must be visited in order.

            v = T.axis.scan(8, i)
        """

    @staticmethod
    def spatial(dom: _Any, binding: _Any, dtype: _Any = None) -> _Any:
        """A block axis whose points are independent of each other.

            v = T.axis.spatial(8, i)
        """

axis: _axis

class _cuda:
    """The names T.cuda.*"""

    @staticmethod
    def any_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def atomic_add(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def atomic_cas(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def ballot_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def bfloat1622float2(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def bfloat162float(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def clock64(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cluster_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cta_max(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cta_min(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cta_reduce(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cta_sum(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cta_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def cvta_generic_to_shared(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def elect_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def fadd2_rn(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def fdividef(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def ffs_u32(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float22bfloat162_rn(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float22bfloat162_rn_from_float2(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float22half2(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float2_x(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float2_y(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float8tohalf8(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def float_as_uint(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def fmul2_rn(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def fp8x4_e4m3_from_float4(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def get_tmem_addr(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def grid_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def half2float(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def half8tofloat8(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def hmax2(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def hmin2(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def make_float2(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def mbarrier_wait(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def mbarrier_wait_acquire_cluster(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def mma_fill(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def mma_fill_legacy(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def mma_store(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def mma_store_legacy(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def nano_sleep(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def printf(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def reduce_add_sync_u32(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def reduce_min_sync_u32(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def runtime_instr_desc(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def sm100_2sm_leader_smem_addr(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def smem_addr_from_uint64(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def syncthreads_and(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def syncthreads_or(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def thread_fence(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def thread_rank(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def timer_end(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def timer_finalize(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def timer_init(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def timer_start(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def trap_when_assert_failed(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def uint_as_float(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def wait_until(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def warp_max(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def warp_min(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def warp_reduce(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def warp_sum(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def warp_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def warpgroup_sync(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    iket: _cuda_iket

    tcgen05: _cuda_tcgen05

    wgmma: _cuda_wgmma

cuda: _cuda

class _cuda_iket:
    """The names T.cuda.iket.*"""

    @staticmethod
    def mark(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def official_event(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def range_end(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def range_pop(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def range_push(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def range_start(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def sentinel_token(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

class _cuda_tcgen05:
    """The names T.cuda.tcgen05.*"""

    @staticmethod
    def encode_matrix_descriptor(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

class _cuda_wgmma:
    """The names T.cuda.wgmma.*"""

    @staticmethod
    def encode_matrix_descriptor(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

    @staticmethod
    def noop_barrier(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of cuda."""

class _metal:
    """The names T.metal.*"""

    @staticmethod
    def make_filled_simdgroup_matrix(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

    @staticmethod
    def simd_shuffle(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

    @staticmethod
    def simd_shuffle_down(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

    @staticmethod
    def simd_shuffle_up(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

    @staticmethod
    def simdgroup_load(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

    @staticmethod
    def simdgroup_multiply_accumulate(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

    @staticmethod
    def simdgroup_store(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of metal."""

metal: _metal

class _nvshmem:
    """The names T.nvshmem.*"""

    @staticmethod
    def barrier_all(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def fence(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def my_pe(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def n_pes(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def quiet(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def signal_op(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def wait_until(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    getmem_nbi: _nvshmem_getmem_nbi

    putmem_nbi: _nvshmem_putmem_nbi

    putmem_signal_nbi: _nvshmem_putmem_signal_nbi

nvshmem: _nvshmem

class _nvshmem_getmem_nbi:
    """The names T.nvshmem.getmem_nbi.*"""

    @staticmethod
    def block(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def warp(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

class _nvshmem_putmem_nbi:
    """The names T.nvshmem.putmem_nbi.*"""

    @staticmethod
    def block(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def warp(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

class _nvshmem_putmem_signal_nbi:
    """The names T.nvshmem.putmem_signal_nbi.*"""

    @staticmethod
    def block(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

    @staticmethod
    def warp(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of nvshmem."""

class _ptx_legacy:
    """The names T.ptx_legacy.*"""

    @staticmethod
    def ldmatrix(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of ptx_legacy."""

    @staticmethod
    def mma(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of ptx_legacy."""

ptx_legacy: _ptx_legacy

class _s_tir:
    """The names T.s_tir.*"""

    @staticmethod
    def cp_async_raw(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of s_tir."""

    @staticmethod
    def ldg32(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of s_tir."""

s_tir: _s_tir

class _webgpu:
    """The names T.webgpu.*"""

    @staticmethod
    def subgroup_shuffle(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of webgpu."""

    @staticmethod
    def subgroup_shuffle_down(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of webgpu."""

    @staticmethod
    def subgroup_shuffle_up(*args: _Any) -> _Value:
        """Read from programs of TVM: a function of webgpu."""

webgpu: _webgpu

def Add(a: _Any, b: _Any) -> _Value:
    """The sum `a + b`."""

def And(a: _Any, b: _Any) -> _Value:
    """Both conditions: `a and b`."""

def Assert(condition: _Any, message: _Any, error_kind: _Any = 'RuntimeError') -> _Context[_Value]:
    """Stops with the message unless the condition holds.

        T.Assert(n > 2, "n is small")
    """

def Bind(value: _Any, var: _Any = None) -> _Value:
    """A value that gets a name: `x = value`.

        x = T.Bind(n * 2)
    """

def BitwiseAnd(a: _Any, b: _Any) -> _Value:
    """The bitwise AND; `a & b` means the same."""

def BitwiseNot(x: _Any) -> _Value:
    """The bitwise complement; `~x` means the same."""

def BitwiseOr(a: _Any, b: _Any) -> _Value:
    """The bitwise OR; `a | b` means the same."""

def BitwiseXor(a: _Any, b: _Any) -> _Value:
    """The bitwise exclusive OR; `a ^ b` means the same."""

def Break() -> None:
    """Leaves the loop around it: `break`."""

def Broadcast(value: _Any, lanes: _Any) -> _Value:
    """A vector that has a value in each lane.

        T.Broadcast(0.0, 8)
    """

class Buffer(_Buffer):
    """A parameter that is memory: an array of a shape and dtype.

        A: T.Buffer((4, 8), "float32")
    """

    def __init__(self, shape: _Any, dtype: _Any = 'float32', data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None) -> None: ...

def Cast(dtype: _Any, value: _Any) -> _Value:
    """The value converted to a dtype.

        T.Cast("float32", n)
    """

def Continue() -> None:
    """Goes on with the next iteration: `continue`."""

def Div(a: _Any, b: _Any) -> _Value:
    """The quotient; of integers, rounded toward zero."""

def EQ(a: _Any, b: _Any) -> _Value:
    """The condition `a == b`."""

def Else() -> _Context[_Value]:
    """What a `T.If` does where its condition does not.

        with T.Else():
    """

def FloatImm(dtype: _Any, value: _Any) -> _Value:
    """A constant of a dtype, as `T.float32(3)`.

        T.FloatImm("float32", 3.0)
    """

def FloorDiv(a: _Any, b: _Any) -> _Value:
    """The quotient rounded down: `a // b`."""

def FloorMod(a: _Any, b: _Any) -> _Value:
    """The remainder of `T.FloorDiv`: `a % b`."""

def GE(a: _Any, b: _Any) -> _Value:
    """The condition `a >= b`."""

def GT(a: _Any, b: _Any) -> _Value:
    """The condition `a > b`."""

def If(condition: _Any) -> _Context[_Value]:
    """A choice, by `T.Then` and `T.Else` in it.

        with T.If(n > 2):
    """

def IntImm(dtype: _Any, value: _Any) -> _Value:
    """A constant of a dtype, as `T.int32(3)`.

        T.IntImm("int32", 3)
    """

def LE(a: _Any, b: _Any) -> _Value:
    """The condition `a <= b`."""

def LShift(a: _Any, b: _Any) -> _Value:
    """The bits of `a` shifted left by `b`; `a << b` means the same."""

def LT(a: _Any, b: _Any) -> _Value:
    """The condition `a < b`."""

def Let(body: _Any, where: _Any) -> _Value:
    """An expression with a name for a value in it.

        T.Let(m + 1, where={m: n * 2})
    """

def LetStmt(value: _Any) -> _Context[_Value]:
    """A name for a value inside the `with`.

        with T.LetStmt(n * 2) as m:
    """

def Max(a: _Any, b: _Any) -> _Value:
    """The larger of two scalars."""

def Min(a: _Any, b: _Any) -> _Value:
    """The smaller of two scalars."""

def Mod(a: _Any, b: _Any) -> _Value:
    """The remainder of `T.Div`: it has the sign of `a`."""

def Mul(a: _Any, b: _Any) -> _Value:
    """The product `a * b`."""

def NE(a: _Any, b: _Any) -> _Value:
    """The condition `a != b`."""

def Not(a: _Any) -> _Value:
    """The opposite of a condition; `not a` means the same.

        T.Not(i < n)
    """

def Or(a: _Any, b: _Any) -> _Value:
    """One condition or both: `a or b`."""

def RShift(a: _Any, b: _Any) -> _Value:
    """The bits of `a` shifted right by `b`; `a >> b` means the same."""

def Ramp(base: _Any, stride: _Any, lanes: _Any) -> _Value:
    """The vector base, base + stride, …: as an index, a vector of elements.

        A[T.Ramp(0, 1, 8)]
    """

def Range(begin: _Any, end: _Any = None) -> _Value:
    """The numbers from `begin` to `end`, which is excluded, as the domain of an axis.

        vi = T.axis.spatial(T.Range(2, n), i)
    """

def Select(condition: _Any, true_value: _Any, false_value: _Any) -> _Value:
    """One of two values; both are evaluated.

        T.Select(i < n, a, b)
    """

def Shuffle(vectors: _Any, indices: _Any) -> _Value:
    """Lanes of several vectors or scalars, counted one after the other.

        T.Shuffle([x, y], [1, 0])
    """

def Sub(a: _Any, b: _Any) -> _Value:
    """The difference `a - b`."""

def TVMBackendAllocWorkspace(*args: _Any) -> _Value:
    """Read from programs of TVM: allocates memory of a device."""

def TVMBackendFreeWorkspace(*args: _Any) -> _Value:
    """Read from programs of TVM: frees memory of a device."""

def Target(target: _Any, host: _Any = None) -> _Value:
    """The description of a target, as an attribute.

        T.func_attr({"target": T.Target("cuda")})
    """

def Then() -> _Context[_Value]:
    """What a `T.If` does where its condition holds.

        with T.Then():
    """

def Var(name: _Any = None, dtype: _Any = 'int64') -> _Value:
    """A symbol; `n = T.int64()` means the same.

        n = T.Var("int64")
    """

def While(condition: _Any) -> _Context[_Value]:
    """Statements that are repeated while it holds.

        with T.While(A[0] < n):
    """

def abs(x: _Any) -> _Value:
    """The absolute value."""

def acos(x: _Any) -> _Value:
    """The inverse cosine."""

def acosh(x: _Any) -> _Value:
    """The inverse hyperbolic cosine."""

def address_of(x: _Any) -> _Value:
    """The address of an element, as a handle."""

def alloc_buffer(shape: _Any, dtype: _Any = 'float32', data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None, annotations: _Any = None) -> _Buffer:
    """Memory that belongs to the block or function around it.

        B = T.alloc_buffer((4, 8), "float32")
    """

def alloc_local(shape: _Any, dtype: _Any = 'float32', data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None, annotations: _Any = None) -> _Buffer:
    """Memory of one thread: registers or stack.

        B = T.alloc_local((4, 8), "float32")
    """

def alloc_scalar(dtype: _Any = 'float32', scope: _Any = None) -> _Buffer:
    """Memory of one element, whose name stands for the element.

        x = T.alloc_scalar("int32")
    """

def alloc_shared(shape: _Any, dtype: _Any = 'float32', data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None, annotations: _Any = None) -> _Buffer:
    """Memory that the threads of a GPU block share.

        B = T.alloc_shared((4, 8), "float32")
    """

def anylist_getitem(*args: _Any) -> _Value:
    """Read from programs of TVM: is an item of a list of values."""

def anylist_resetitem(*args: _Any) -> _Value:
    """Read from programs of TVM: clears an item of a list of values."""

def anylist_setitem_call_cpacked(*args: _Any) -> _Value:
    """Read from programs of TVM: stores what a function in C's convention returns."""

def anylist_setitem_call_packed(*args: _Any) -> _Value:
    """Read from programs of TVM: stores what a function of the registry returns."""

def asin(x: _Any) -> _Value:
    """The inverse sine."""

def asinh(x: _Any) -> _Value:
    """The inverse hyperbolic sine."""

def assume(*args: _Any) -> _Value:
    """Read from programs of TVM: says that a condition holds."""

def atan(x: _Any) -> _Value:
    """The inverse tangent."""

def atan2(x: _Any, y: _Any) -> _Value:
    """The angle of the point (y, x), in radians."""

def atanh(x: _Any) -> _Value:
    """The inverse hyperbolic tangent."""

def attr(node: _Any, attr_key: _Any = None, value: _Any = None) -> _Iterator[_Any]:
    """Attributes of the statements that follow, or of those inside the `with`, kept as annotations of a loop.

        T.attr({"pragma_unroll": 1})
    """

bf16: _Any
"""A value as bfloat16. Without a value, a symbol of that dtype: `n = T.bf16()`. As an annotation, a scalar parameter.

    T.bf16(4)
"""

bfloat16: _Any
"""A value as bfloat16. Without a value, a symbol of that dtype: `n = T.bfloat16()`. As an annotation, a scalar parameter.

    T.bfloat16(4)
"""

def bind(value: _Any, var: _Any = None) -> _Value:
    """A value that gets a name: `x = value`.

        x = T.bind(n * 2)
    """

def bitwise_and(a: _Any, b: _Any) -> _Value:
    """The bitwise AND; `a & b` means the same."""

def bitwise_not(x: _Any) -> _Value:
    """The bitwise complement; `~x` means the same."""

def bitwise_or(a: _Any, b: _Any) -> _Value:
    """The bitwise OR; `a | b` means the same."""

def bitwise_xor(a: _Any, b: _Any) -> _Value:
    """The bitwise exclusive OR; `a ^ b` means the same."""

def block(name: _Any = '') -> _Context[_Value]:
    """A block: the older name of `T.sblock`.

        with T.block("C"):
    """

def block_attr(attrs: _Any) -> None:
    """Attributes of the block: the older name of `T.sblock_attr`.

        T.block_attr({"pragma": 1})
    """

bool: _Any
"""A value as bool. Without a value, a symbol of that dtype: `n = T.bool()`. As an annotation, a scalar parameter.

    T.bool(4)
"""

boolean: _Any
"""A value as bool. Without a value, a symbol of that dtype: `n = T.boolean()`. As an annotation, a scalar parameter.

    T.boolean(4)
"""

def break_loop() -> None:
    """Leaves the loop around it: `break`."""

def broadcast(value: _Any, lanes: _Any) -> _Value:
    """A vector that has a value in each lane.

        T.broadcast(0.0, 8)
    """

def call_cpacked(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry by C's calling convention."""

def call_cpacked_lowered(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry with a stack of arguments in C's convention."""

def call_extern(dtype: _Any, name: _Any, *args: _Any) -> _Value:
    """A call of a C function that may have effects.

        T.call_extern("int32", "f", 1)
    """

def call_function(*args: _Any) -> _Value:
    """Read from programs of TVM: calls another loop function of the module."""

def call_intrin(dtype: _Any, name: _Any, *args: _Any) -> _Value:
    """A call of an intrinsic by its name.

        T.call_intrin("float32", "exp", x)
    """

def call_llvm_intrin(dtype: _Any, name: _Any, *args: _Any) -> _Value:
    """A call of an LLVM intrinsic.

        T.call_llvm_intrin("float32", "llvm.fabs.f32", x)
    """

def call_llvm_pure_intrin(dtype: _Any, name: _Any, *args: _Any) -> _Value:
    """A call of an LLVM intrinsic without effects.

        T.call_llvm_pure_intrin("float32", "llvm.fabs.f32", x)
    """

def call_packed(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry."""

def call_packed_lowered(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry with a stack of arguments."""

def call_pure_extern(dtype: _Any, name: _Any, *args: _Any) -> _Value:
    """A call of a C function without effects, or of an intrinsic.

        T.call_pure_extern("float32", "f", x)
    """

def cast(value: _Any, dtype: _Any) -> _Value:
    """The value converted to a dtype.

        T.cast(n, "float32")
    """

def cbrt(x: _Any) -> _Value:
    """The cube root."""

def ceil(x: _Any) -> _Value:
    """The smallest integer that is not below `x`."""

def ceildiv(a: _Any, b: _Any) -> _Value:
    """The quotient of integers rounded up.

        T.ceildiv(n, 8)
    """

def clz(x: _Any) -> _Value:
    """The number of bits before the first that is 1, of 0 all, as int32."""

def comm_reducer(combiner: _Any, identity: _Any) -> _Value:
    """A commutative reduction, as an attribute for threads that reduce together.

        T.attr({"reduce_scope": T.comm_reducer(lambda x, y: x + y, [T.float32(0)])})
    """

def continue_loop() -> None:
    """Goes on with the next iteration: `continue`."""

def copysign(x: _Any, y: _Any) -> _Value:
    """The size of `x` with the sign of `y`, a zero or NaN too."""

def cos(x: _Any) -> _Value:
    """The cosine."""

def cosh(x: _Any) -> _Value:
    """The hyperbolic cosine."""

def cp_async(x: _Any, y: _Any, z: _Any) -> _Value:
    """A copy of `z` bytes, 4, 8 or 16, from main memory at `y` to shared memory at `x`, which the thread does not wait for."""

def cp_async_commit() -> _Value:
    """The end of a group of a thread's asynchronous copies."""

def cp_async_wait(x: _Any) -> _Value:
    """Waits until at most `x` groups of a thread's asynchronous copies, the last ones, are under way."""

def decl_buffer(shape: _Any, dtype: _Any = 'float32', data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None) -> _Buffer:
    """The elements of another buffer in another shape, where its memory is given; else memory, as `T.alloc_buffer`.

        C = T.decl_buffer((32,), "float32", data=B.data)
    """

def dp4a(*args: _Any) -> _Value:
    """Read from programs of TVM: is the sum of four products of bytes."""

def dp4a_u8s8(x: _Any, y: _Any, z: _Any) -> _Value:
    """Adds the products of four unsigned bytes at `y` and four signed ones at `z` to the int32 at `x`; sums wrap around."""

def end_profile_intrinsic(*args: _Any) -> _Value:
    """Read from programs of TVM: ends a measurement."""

def env_thread(thread_tag: _Any) -> _Iterator[_Any]:
    """A GPU axis that `T.launch_thread` gives its number of threads.

        tx = T.env_thread("threadIdx.x")
    """

def erf(x: _Any) -> _Value:
    """The error function."""

def erfc(x: _Any) -> _Value:
    """One minus the error function, exact for large `x`."""

def evaluate(value: _Any) -> None:
    """An expression evaluated for its effect.

        T.evaluate(T.call_extern("int32", "f", 1))
    """

def exp(x: _Any) -> _Value:
    """The exponential."""

def exp10(x: _Any) -> _Value:
    """10 to the power of `x`."""

def exp2(x: _Any) -> _Value:
    """2 to the power of `x`."""

def expm1(x: _Any) -> _Value:
    """The exponential minus one, exact for small `x`."""

f16: _Any
"""A value as float16. Without a value, a symbol of that dtype: `n = T.f16()`. As an annotation, a scalar parameter.

    T.f16(4)
"""

f32: _Any
"""A value as float32. Without a value, a symbol of that dtype: `n = T.f32()`. As an annotation, a scalar parameter.

    T.f32(4)
"""

f64: _Any
"""A value as float64. Without a value, a symbol of that dtype: `n = T.f64()`. As an annotation, a scalar parameter.

    T.f64(4)
"""

def fabs(x: _Any) -> _Value:
    """The absolute value."""

def fast_divide(x: _Any, y: _Any) -> _Value:
    """`x / y` in float32, off by two units in the last place; 0 where `y` is above 2 to the power of 126."""

def fast_exp(x: _Any) -> _Value:
    """The exponential, in float32, by the approximation of a GPU: off by one part in a million where `x` is above -16; 0 below -88."""

float16: _Any
"""A value as float16. Without a value, a symbol of that dtype: `n = T.float16()`. As an annotation, a scalar parameter.

    T.float16(4)
"""

float32: _Any
"""A value as float32. Without a value, a symbol of that dtype: `n = T.float32()`. As an annotation, a scalar parameter.

    T.float32(4)
"""

float64: _Any
"""A value as float64. Without a value, a symbol of that dtype: `n = T.float64()`. As an annotation, a scalar parameter.

    T.float64(4)
"""

def floor(x: _Any) -> _Value:
    """The largest integer that is not above `x`."""

def floordiv(a: _Any, b: _Any) -> _Value:
    """The quotient rounded down; `a // b` means the same."""

def floormod(a: _Any, b: _Any) -> _Value:
    """The remainder of `floordiv`; `a % b` means the same."""

def fma(x: _Any, y: _Any, z: _Any) -> _Value:
    """`x * y + z` with one rounding."""

def fmod(x: _Any, y: _Any) -> _Value:
    """The remainder of floating-point division: it has the sign of `x`."""

def func_attr(attrs: _Any) -> None:
    """Attributes of the function, as a dictionary.

        T.func_attr({"tir.noalias": True})
    """

def get_active_lane_mask(*args: _Any) -> _Value:
    """Read from programs of TVM: is the mask of the lanes below a limit."""

def grid(*extents: _Any) -> _Iterator[_Any]:
    """Nested loops; an extent is `n` or `(start, stop)`.

        for i, j in T.grid(4, 8):
    """

handle: _Any
"""A parameter whose shape `T.match_buffer` gives: needed for symbolic shapes.

    a: T.handle
"""

def handle_add_byte_offset(*args: _Any) -> _Value:
    """Read from programs of TVM: is an address some bytes behind another one."""

def hypot(x: _Any, y: _Any) -> _Value:
    """The distance of the point (x, y) from the origin."""

i16: _Any
"""A value as int16. Without a value, a symbol of that dtype: `n = T.i16()`. As an annotation, a scalar parameter.

    T.i16(4)
"""

i32: _Any
"""A value as int32. Without a value, a symbol of that dtype: `n = T.i32()`. As an annotation, a scalar parameter.

    T.i32(4)
"""

i64: _Any
"""A value as int64. Without a value, a symbol of that dtype: `n = T.i64()`. As an annotation, a scalar parameter.

    T.i64(4)
"""

i8: _Any
"""A value as int8. Without a value, a symbol of that dtype: `n = T.i8()`. As an annotation, a scalar parameter.

    T.i8(4)
"""

def if_then_else(condition: _Any, true_value: _Any, false_value: _Any) -> _Value:
    """One of two values; only that one is evaluated.

        T.if_then_else(i < n, A[i], 0.0)
    """

def ignore_loop_partition(*args: _Any) -> _Value:
    """Read from programs of TVM: says that a condition is not to divide a loop."""

def index_function(param: _Any, shape: _Any, dtype: _Any, facts: _Any) -> _Buffer:
    """An array of integers, one-dimensional and only read, behind a `T.handle` parameter, of which facts are stated. They are checked before the function runs, and used to prove what depends on the integers.

        s = T.index_function(s_, (b,), "int32", facts=[T.range(0, 513)])
    """

def index_map(map: _Any) -> _Value:
    """A map of indices, written as a lambda.

        T.index_map(lambda i, j: (j, i))
    """

def infinity(dtype: _Any) -> _Value:
    """Infinity.

        T.infinity("float32")
    """

def init() -> _Context[_Value]:
    """What a block does before the first round of its reduction.

        with T.init():
    """

def inline(function: _Any = None, hygienic: _Any = True) -> _Value:
    """The decorator of a function whose statements stand wherever it is called.

        @T.inline
    """

int16: _Any
"""A value as int16. Without a value, a symbol of that dtype: `n = T.int16()`. As an annotation, a scalar parameter.

    T.int16(4)
"""

int32: _Any
"""A value as int32. Without a value, a symbol of that dtype: `n = T.int32()`. As an annotation, a scalar parameter.

    T.int32(4)
"""

int64: _Any
"""A value as int64. Without a value, a symbol of that dtype: `n = T.int64()`. As an annotation, a scalar parameter.

    T.int64(4)
"""

int8: _Any
"""A value as int8. Without a value, a symbol of that dtype: `n = T.int8()`. As an annotation, a scalar parameter.

    T.int8(4)
"""

def isfinite(x: _Any) -> _Value:
    """True for neither an infinity nor NaN."""

def isinf(x: _Any) -> _Value:
    """True for an infinity."""

def isnan(x: _Any) -> _Value:
    """True for NaN."""

def isnullptr(*args: _Any) -> _Value:
    """Read from programs of TVM: tests a handle for null."""

def iter_var(var: _Any, dom: _Any = None, iter_type: _Any = 'ThreadIndex', thread_tag: _Any = '') -> _Value:
    """A GPU axis with its variable, for `T.attr` of its number of threads.

        T.attr(T.iter_var(T.int32(), (0, 4), "ThreadIndex", "vthread"), "virtual_thread", 4)
    """

def launch_thread(thread: _Any, extent: _Any) -> _Iterator[_Any]:
    """Starts the threads of a GPU axis for the statements that follow, or those inside the `with`.

        tx = T.launch_thread("threadIdx.x", 128)
    """

def ldexp(x: _Any, y: _Any) -> _Value:
    """`x` times 2 to the power of the integer `y`."""

def ldmatrix(x: _Any, y: _Any) -> _Value:
    """Four 8 x 8 matrices of 16-bit elements from shared memory: lane l gives at `y` the address of row l % 8 of matrix l // 8, and gets at `x` the elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l // 4 of each."""

def ldmatrix_trans(x: _Any, y: _Any) -> _Value:
    """As `ldmatrix`, of the transposed matrices."""

def let(body: _Any, where: _Any = None) -> _Value:
    """An expression with a name for a value in it; also the annotation of a value that never changes.

        m: T.let[T.int64] = n * 2
    """

def lgamma(x: _Any) -> _Value:
    """The logarithm of the absolute value of the gamma function."""

def likely(x: _Any) -> _Value:
    """The same condition, said to hold nearly always."""

def llvm_intrin(*args: _Any) -> _Value:
    """A call of an LLVM intrinsic; `T.call_llvm_intrin` writes it."""

def local_scalar(dtype: _Any = 'float32') -> _Buffer:
    """Memory of one element, whose name stands for the element.

        x = T.local_scalar("int32")
    """

def log(x: _Any) -> _Value:
    """The natural logarithm."""

def log10(x: _Any) -> _Value:
    """The logarithm to base 10."""

def log1p(x: _Any) -> _Value:
    """The natural logarithm of `1 + x`."""

def log2(x: _Any) -> _Value:
    """The logarithm to base 2."""

def lookup_param(*args: _Any) -> _Value:
    """Read from programs of TVM: is the constant of a name."""

def macro(function: _Any = None, hygienic: _Any = True) -> _Value:
    """The decorator of a function whose statements stand wherever it is called.

        @T.macro
    """

def masked_load(*args: _Any) -> _Value:
    """Read from programs of TVM: loads the lanes that a mask has."""

def masked_store(*args: _Any) -> _Value:
    """Read from programs of TVM: stores the lanes that a mask has."""

def match_buffer(param: _Any, shape: _Any = None, dtype: _Any = None, data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None) -> _Buffer:
    """The buffer behind a `T.handle` parameter, whose shape binds symbols; in a block, a view of a region.

        A = T.match_buffer(a, (n, 4), "float32")
    """

def max(a: _Any, b: _Any) -> _Value:
    """The larger of two scalars."""

def max_value(dtype: _Any) -> _Value:
    """The largest finite value of a dtype.

        T.max_value("float32")
    """

def mbarrier_arrive(x: _Any) -> _Value:
    """An arrival at the barrier at `x`."""

def mbarrier_expect(x: _Any, y: _Any) -> _Value:
    """An arrival at the barrier at `x`, whose phase ends when `y` more bytes were copied, too."""

def mbarrier_fence() -> _Value:
    """Makes barriers that were initialised known to asynchronous copies."""

def mbarrier_init(x: _Any, y: _Any) -> _Value:
    """Makes a barrier of `y` arrivals of an element of uint64 at `x` in shared memory."""

def mbarrier_wait(x: _Any, y: _Any) -> _Value:
    """Waits for the end of the last phase of parity `y` of the barrier at `x`."""

def meta_var(value: _Any) -> _Value:
    """A value of the surrounding Python, bound to a name as it is.

        tile = T.meta_var(32)
    """

def min(a: _Any, b: _Any) -> _Value:
    """The smaller of two scalars."""

def min_value(dtype: _Any) -> _Value:
    """The smallest finite value of a dtype.

        T.min_value("float32")
    """

def mma_m16n8k16(x: _Any, y: _Any, z: _Any) -> _Value:
    """At `x`, a 16 x 8 tile of float32, plus the product of a 16 x 16 and a 16 x 8 tile at `y` and `z`, in the layout of PTX's mma.sync: 4, 8 and 4 elements of each lane."""

def nearbyint(x: _Any) -> _Value:
    """The nearest integer; halves go to the even neighbour."""

def nextafter(x: _Any, y: _Any) -> _Value:
    """The next float after `x` in the direction of `y`."""

def nondecreasing(first: _Any = None, last: _Any = None) -> _Value:
    """The fact that no integer of an index function is less than the one before it, and where the integers begin and end.

        T.nondecreasing(first=0, last=n)
    """

def parallel(start: _Any, stop: _Any = None, thread: _Any = None, annotations: _Any = None, step: _Any = None) -> _Iterator[_Any]:
    """A loop whose rounds are shared out to the threads.

        for i in T.parallel(8):
    """

def permutation(of: _Any) -> _Value:
    """The fact that an index function has each of the numbers from 0 up to their count, shown by its inverse, another one.

        T.permutation(lambda i: inverse[i])
    """

def popcount(x: _Any) -> _Value:
    """The number of bits that are 1."""

def pow(x: _Any, y: _Any) -> _Value:
    """`x` to the power of `y`."""

def power(x: _Any, y: _Any) -> _Value:
    """`x` to the power of `y`."""

def prefetch(x: _Any) -> _Value:
    """A hint that the cache line at a handle will be read."""

def prefix_sums(of: _Any) -> _Value:
    """The fact that an index function begins with 0, and that integer i + 1 is integer i plus a function of i.

        T.prefix_sums(lambda i: s[i])
    """

def q_multiply_shift(x: _Any, y: _Any, z: _Any, a: _Any) -> _Value:
    """The product of the integers `x` and `y`, of which `z` bits are a fraction, times 2 to the power of the fourth argument: in int64, halves rounded up, as int32."""

def q_multiply_shift_per_axis(x: _Any, y: _Any, z: _Any, a: _Any, b: _Any, c: _Any, d: _Any) -> _Value:
    """The product of the integers `x` and `y`, shifted left by `z` and right by the fourth argument and the bits of the fraction, which follow, then whether to shift left; the last argument means nothing. In int64, halves rounded up, as int32."""

def ragged_buffer(param: _Any, dims: _Any, dtype: _Any, starts: _Any, facts: _Any = None) -> _Buffer:
    """The buffer behind a `T.handle` parameter, seen as slices of different extents behind each other. Dimensions have names; a string is an extent that depends on outer ones. `starts` is an index function with the prefix sums of the extents' products; several are those of slices in slices. With `facts`, it is an index function.

        x = T.ragged_buffer(x_, {"i": b, "j": "s[i]", "d": 8}, "float32", starts=o)
    """

def ramp(base: _Any, stride: _Any, lanes: _Any) -> _Value:
    """The vector base, base + stride, …: as an index, a vector of elements.

        A[T.ramp(0, 1, 8)]
    """

def range(low: _Any, high: _Any) -> _Value:
    """The fact that each integer of an index function is at least `low` and less than `high`.

        T.range(0, n)
    """

def reads(*regions: _Any) -> None:
    """The regions that the block reads; inferred from its body where it is left out.

        T.reads(A[vi, 0:8])
    """

def reinterpret(dtype: _Any, value: _Any) -> _Value:
    """The bits of a value as another dtype.

        T.reinterpret("int32", x)
    """

def ret(*args: _Any) -> _Value:
    """Read from programs of TVM: ends the function with a value."""

def round(x: _Any) -> _Value:
    """The nearest integer; halves go away from zero."""

def rsqrt(x: _Any) -> _Value:
    """One divided by the square root."""

def sblock(name: _Any = '') -> _Context[_Value]:
    """A block: the unit of scheduling. It declares its axes and the regions it reads and writes.

        with T.sblock("C"):
    """

def sblock_alloc_buffer(shape: _Any, dtype: _Any = 'float32', data: _Any = None, strides: _Any = None, elem_offset: _Any = None, scope: _Any = None, align: _Any = None, offset_factor: _Any = None, buffer_type: _Any = None, layout: _Any = None, name: _Any = None, annotations: _Any = None) -> _Buffer:
    """Memory that belongs to the block or function around it.

        B = T.sblock_alloc_buffer((4, 8), "float32")
    """

def sblock_attr(attrs: _Any) -> None:
    """Attributes of the block, as a dictionary.

        T.sblock_attr({"pragma": 1})
    """

def segment_ids(of: _Any) -> _Value:
    """The fact that integer f of an index function is the segment that f lies in, of those that begin at the integers of another one.

        T.segment_ids(lambda i: o[i])
    """

def serial(start: _Any, stop: _Any = None, thread: _Any = None, annotations: _Any = None, step: _Any = None, unroll: _Any = None) -> _Iterator[_Any]:
    """A loop in order; `range` means the same. `unroll` is a note for compilers.

        for i in T.serial(8):
    """

def setmaxnreg_dec(x: _Any) -> _Value:
    """Lowers the registers of each thread of a warpgroup to `x`."""

def setmaxnreg_inc(x: _Any) -> _Value:
    """Raises the registers of each thread of a warpgroup to `x`."""

def shared_scalar(dtype: _Any = 'float32') -> _Buffer:
    """Memory of one element, whose name stands for the element.

        x = T.shared_scalar("int32")
    """

def shift_left(a: _Any, b: _Any) -> _Value:
    """The bits of `a` shifted left by `b`; `a << b` means the same."""

def shift_right(a: _Any, b: _Any) -> _Value:
    """The bits of `a` shifted right by `b`; `a >> b` means the same."""

def shuffle(*args: _Any) -> _Value:
    """The lanes of several vectors or scalars, as many as the first argument says, whose constant numbers follow; `T.Shuffle` writes it."""

def sigmoid(x: _Any) -> _Value:
    """The logistic function `1 / (1 + exp(-x))`."""

def sin(x: _Any) -> _Value:
    """The sine."""

def sinh(x: _Any) -> _Value:
    """The hyperbolic sine."""

def sqrt(x: _Any) -> _Value:
    """The square root."""

def start_profile_intrinsic(*args: _Any) -> _Value:
    """Read from programs of TVM: starts a measurement."""

def tan(x: _Any) -> _Value:
    """The tangent."""

def tanh(x: _Any) -> _Value:
    """The hyperbolic tangent."""

def target(target: _Any, host: _Any = None) -> _Value:
    """The description of a target, as an attribute.

        T.func_attr({"target": T.target("cuda")})
    """

def thread_binding(start: _Any, stop: _Any = None, thread: _Any = None, annotations: _Any = None, step: _Any = None) -> _Iterator[_Any]:
    """A loop whose rounds are the threads of a GPU axis.

        for i in T.thread_binding(128, thread="threadIdx.x"):
    """

def thread_return(*args: _Any) -> _Value:
    """Read from programs of TVM: ends a thread."""

def tma_load(*args: _Any) -> _Value:
    """A copy to shared memory, at the first argument, of a box of an array in main memory, from the element at the second one on, of the extents that follow; the barrier at the last argument counts its bytes. The box is rows of 128 bytes, whose 16-byte parts are swizzled, and has zeros outside of the array."""

def trunc(x: _Any) -> _Value:
    """`x` rounded toward zero."""

def truncdiv(a: _Any, b: _Any) -> _Value:
    """The quotient of integers rounded toward zero."""

def truncmod(a: _Any, b: _Any) -> _Value:
    """The remainder of `truncdiv`: it has the sign of `a`."""

def tvm_access_ptr(*args: _Any) -> _Value:
    """Read from programs of TVM: is the address of a part of a buffer, and how it is accessed."""

def tvm_bmma_sync(*args: _Any) -> _Value:
    """Read from programs of TVM: multiplies fragments of bits of WMMA."""

def tvm_call_cpacked(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry by C's calling convention."""

def tvm_call_cpacked_lowered(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry with a stack of arguments in C's convention."""

def tvm_call_packed(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry."""

def tvm_call_packed_lowered(*args: _Any) -> _Value:
    """Read from programs of TVM: calls a function of TVM's registry with a stack of arguments."""

def tvm_fill_fragment(*args: _Any) -> _Value:
    """Read from programs of TVM: fills a fragment of WMMA."""

def tvm_global_barrier_kinit(*args: _Any) -> _Value:
    """Read from programs of TVM: prepares a barrier of all blocks of a GPU."""

def tvm_kernel_replace_point(*args: _Any) -> _Value:
    """Read from programs of TVM: marks where a kernel is taken apart."""

def tvm_load_matrix_sync(*args: _Any) -> _Value:
    """Read from programs of TVM: loads a fragment of WMMA."""

def tvm_mma_sync(*args: _Any) -> _Value:
    """Read from programs of TVM: multiplies fragments of WMMA."""

def tvm_stack_alloca(*args: _Any) -> _Value:
    """Read from programs of TVM: allocates structures on the stack."""

def tvm_stack_make_array(*args: _Any) -> _Value:
    """Read from programs of TVM: makes the description of an array on the stack."""

def tvm_stack_make_shape(*args: _Any) -> _Value:
    """Read from programs of TVM: makes a shape on the stack."""

def tvm_storage_sync(x: _Any) -> _Value:
    """A barrier of the threads of a GPU block."""

def tvm_store_matrix_sync(*args: _Any) -> _Value:
    """Read from programs of TVM: stores a fragment of WMMA."""

def tvm_struct_get(*args: _Any) -> _Value:
    """Read from programs of TVM: reads a field of a structure."""

def tvm_struct_set(*args: _Any) -> _Value:
    """Read from programs of TVM: writes a field of a structure."""

def tvm_thread_allreduce(*args: _Any) -> _Value:
    """Read from programs of TVM: reduces a value over the threads of a block."""

def tvm_thread_invariant(*args: _Any) -> _Value:
    """Read from programs of TVM: says that a condition is the same in all threads."""

def tvm_throw_last_error(*args: _Any) -> _Value:
    """Read from programs of TVM: raises the last error of a call."""

def tvm_tuple(*args: _Any) -> _Value:
    """Read from programs of TVM: makes a tuple of handles."""

def tvm_warp_activemask(*args: _Any) -> _Value:
    """Read from programs of TVM: is the mask of the active lanes of a warp."""

def tvm_warp_shuffle(*args: _Any) -> _Value:
    """Read from programs of TVM: is the value in another lane of the warp."""

def tvm_warp_shuffle_down(*args: _Any) -> _Value:
    """Read from programs of TVM: is the value some lanes behind."""

def tvm_warp_shuffle_up(*args: _Any) -> _Value:
    """Read from programs of TVM: is the value some lanes before."""

def tvm_warp_shuffle_xor(*args: _Any) -> _Value:
    """Read from programs of TVM: is the value in the lane whose number is xor a mask."""

def type_annotation(dtype: _Any) -> _Value:
    """A dtype among the arguments of a call.

        T.tvm_access_ptr(T.type_annotation("float32"), A.data, 0, 16, 1)
    """

u16: _Any
"""A value as uint16. Without a value, a symbol of that dtype: `n = T.u16()`. As an annotation, a scalar parameter.

    T.u16(4)
"""

u32: _Any
"""A value as uint32. Without a value, a symbol of that dtype: `n = T.u32()`. As an annotation, a scalar parameter.

    T.u32(4)
"""

u64: _Any
"""A value as uint64. Without a value, a symbol of that dtype: `n = T.u64()`. As an annotation, a scalar parameter.

    T.u64(4)
"""

u8: _Any
"""A value as uint8. Without a value, a symbol of that dtype: `n = T.u8()`. As an annotation, a scalar parameter.

    T.u8(4)
"""

uint16: _Any
"""A value as uint16. Without a value, a symbol of that dtype: `n = T.uint16()`. As an annotation, a scalar parameter.

    T.uint16(4)
"""

uint32: _Any
"""A value as uint32. Without a value, a symbol of that dtype: `n = T.uint32()`. As an annotation, a scalar parameter.

    T.uint32(4)
"""

uint64: _Any
"""A value as uint64. Without a value, a symbol of that dtype: `n = T.uint64()`. As an annotation, a scalar parameter.

    T.uint64(4)
"""

uint8: _Any
"""A value as uint8. Without a value, a symbol of that dtype: `n = T.uint8()`. As an annotation, a scalar parameter.

    T.uint8(4)
"""

def undef(*args: _Any) -> _Value:
    """Read from programs of TVM: is a value that nothing depends on."""

def unroll(start: _Any, stop: _Any = None, thread: _Any = None, annotations: _Any = None, step: _Any = None) -> _Iterator[_Any]:
    """A loop that is written out round by round.

        for i in T.unroll(4):
    """

def unrolled(start: _Any, stop: _Any = None, thread: _Any = None, annotations: _Any = None, step: _Any = None) -> _Iterator[_Any]:
    """A loop that is written out round by round.

        for i in T.unrolled(4):
    """

def var(name: _Any = None, dtype: _Any = 'int64') -> _Value:
    """A symbol; `n = T.int64()` means the same.

        n = T.var("int64")
    """

def vector_reduce_add(x: _Any) -> _Value:
    """The sum of the lanes of a vector, by `T.call_intrin`."""

def vector_reduce_max(x: _Any) -> _Value:
    """The largest lane of a vector, by `T.call_intrin`."""

def vector_reduce_min(x: _Any) -> _Value:
    """The smallest lane of a vector, by `T.call_intrin`."""

def vector_reduce_mul(x: _Any) -> _Value:
    """The product of the lanes of a vector, by `T.call_intrin`."""

def vector_shuffle(*args: _Any) -> _Value:
    """The lanes of two vectors, those of `x` before those of `y`, whose constant numbers follow, by `T.call_intrin`."""

def vectorcombine(*args: _Any) -> _Value:
    """Read from programs of TVM: is the lanes of two vectors."""

def vectorhigh(*args: _Any) -> _Value:
    """Read from programs of TVM: is the second half of a vector."""

def vectorized(start: _Any, stop: _Any = None, thread: _Any = None, annotations: _Any = None, step: _Any = None) -> _Iterator[_Any]:
    """A loop whose rounds are the lanes of vector instructions.

        for i in T.vectorized(8):
    """

def vectorlow(*args: _Any) -> _Value:
    """Read from programs of TVM: is the first half of a vector."""

def vscale(*args: _Any) -> _Value:
    """Read from programs of TVM: is the factor by which vectors are longer than the shortest."""

def warp_shuffle_xor(x: _Any, y: _Any) -> _Value:
    """The value in the lane of the warp whose number is one's own xor the mask."""

def wgmma(*args: _Any) -> _Value:
    """Adds to a tile of float32 of 64 rows, in the registers of 128 threads from that at the first argument on, the product of two tiles, at the next ones: swizzled in shared memory, the left one in registers or there. Then come the number of columns, 1 if the right tile is row by row, the bytes from 64 columns to the next ones in it, and 0 if the sums begin here. The warpgroup does not wait for it."""

def wgmma_commit() -> _Value:
    """The end of a group of a warpgroup's tensor instructions."""

def wgmma_fence() -> _Value:
    """Lets tensor instructions of a warpgroup use registers and shared memory that were written before."""

def wgmma_wait(x: _Any) -> _Value:
    """Waits until at most `x` groups of a warpgroup's tensor instructions, the last ones, are under way."""

def where(predicate: _Any) -> None:
    """The block runs only where this holds.

        T.where(i * 8 + j < n)
    """

def writes(*regions: _Any) -> None:
    """The regions that the block writes; inferred from its body where it is left out.

        T.writes(B[vi])
    """
