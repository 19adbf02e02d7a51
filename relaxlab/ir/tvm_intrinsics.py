"""Intrinsics of TVM's run time and of GPU libraries, which scripts may name.

Programs with them are read, printed, scheduled and compared. To run one, its meaning has to be
registered (`relaxlab.register_intrinsic_meaning`): these functions work on structures that only TVM
has.
"""

from __future__ import annotations

from collections.abc import Iterator

_CALLS = "calls a function of TVM's registry"
_ROWS: dict[str, tuple[str, str]] = {
    # name: (dtype of the result, what it does)
    "tvm_call_packed": ("int32", _CALLS),
    "tvm_call_cpacked": ("int32", f"{_CALLS} by C's calling convention"),
    "tvm_call_packed_lowered": ("int32", f"{_CALLS} with a stack of arguments"),
    "tvm_call_cpacked_lowered": ("int32", f"{_CALLS} with a stack of arguments in C's convention"),
    "call_packed": ("int32", _CALLS),
    "call_cpacked": ("int32", f"{_CALLS} by C's calling convention"),
    "call_packed_lowered": ("int32", f"{_CALLS} with a stack of arguments"),
    "call_cpacked_lowered": ("int32", f"{_CALLS} with a stack of arguments in C's convention"),
    "call_function": ("given", "calls another loop function of the module"),
    "tvm_struct_get": ("given", "reads a field of a structure"),
    "tvm_struct_set": ("int32", "writes a field of a structure"),
    "tvm_stack_alloca": ("handle", "allocates structures on the stack"),
    "tvm_stack_make_shape": ("handle", "makes a shape on the stack"),
    "tvm_stack_make_array": ("handle", "makes the description of an array on the stack"),
    "tvm_throw_last_error": ("handle", "raises the last error of a call"),
    "tvm_tuple": ("handle", "makes a tuple of handles"),
    "tvm_access_ptr": ("handle", "is the address of a part of a buffer, and how it is accessed"),
    "type_annotation": ("void", "stands for a dtype among arguments"),
    "isnullptr": ("bool", "tests a handle for null"),
    "lookup_param": ("handle", "is the constant of a name"),
    "anylist_getitem": ("handle", "is an item of a list of values"),
    "anylist_resetitem": ("int32", "clears an item of a list of values"),
    "anylist_setitem_call_packed": ("int32", "stores what a function of the registry returns"),
    "anylist_setitem_call_cpacked": ("int32", "stores what a function in C's convention returns"),
    "TVMBackendAllocWorkspace": ("handle", "allocates memory of a device"),
    "TVMBackendFreeWorkspace": ("int32", "frees memory of a device"),
    "tvm_thread_allreduce": ("handle", "reduces a value over the threads of a block"),
    "tvm_thread_invariant": ("first", "says that a condition is the same in all threads"),
    "tvm_warp_activemask": ("uint32", "is the mask of the active lanes of a warp"),
    "tvm_warp_shuffle": ("second", "is the value in another lane of the warp"),
    "tvm_warp_shuffle_xor": ("second", "is the value in the lane whose number is xor a mask"),
    "tvm_warp_shuffle_up": ("second", "is the value some lanes before"),
    "tvm_warp_shuffle_down": ("second", "is the value some lanes behind"),
    "tvm_fill_fragment": ("handle", "fills a fragment of WMMA"),
    "tvm_load_matrix_sync": ("handle", "loads a fragment of WMMA"),
    "tvm_mma_sync": ("handle", "multiplies fragments of WMMA"),
    "tvm_bmma_sync": ("handle", "multiplies fragments of bits of WMMA"),
    "tvm_store_matrix_sync": ("handle", "stores a fragment of WMMA"),
    "start_profile_intrinsic": ("int32", "starts a measurement"),
    "end_profile_intrinsic": ("int32", "ends a measurement"),
    "ignore_loop_partition": ("first", "says that a condition is not to divide a loop"),
    "ret": ("first", "ends the function with a value"),
    "undef": ("int32", "is a value that nothing depends on"),
    "assume": ("bool", "says that a condition holds"),
    "vscale": ("int32", "is the factor by which vectors are longer than the shortest"),
    "vectorlow": ("given", "is the first half of a vector"),
    "vectorhigh": ("given", "is the second half of a vector"),
    "vectorcombine": ("given", "is the lanes of two vectors"),
    "get_active_lane_mask": ("given", "is the mask of the lanes below a limit"),
    "masked_load": ("given", "loads the lanes that a mask has"),
    "masked_store": ("void", "stores the lanes that a mask has"),
    "dp4a": ("int32", "is the sum of four products of bytes"),
    "handle_add_byte_offset": ("handle", "is an address some bytes behind another one"),
    "thread_return": ("void", "ends a thread"),
    "tvm_global_barrier_kinit": ("void", "prepares a barrier of all blocks of a GPU"),
    "tvm_kernel_replace_point": ("void", "marks where a kernel is taken apart"),
}
_LIBRARIES: dict[str, dict[str, str]] = {
    # name of a namespace: per dtype of the result, the names in it
    "cuda": {
        "void": "cluster_sync cta_sync float22half2 float8tohalf8 grid_sync half8tofloat8 "
        "iket.mark iket.range_end iket.range_pop iket.range_push mbarrier_wait "
        "mbarrier_wait_acquire_cluster nano_sleep printf runtime_instr_desc thread_fence "
        "timer_end timer_finalize timer_init timer_start trap_when_assert_failed wait_until "
        "warp_sync warpgroup_sync tcgen05.encode_matrix_descriptor wgmma.encode_matrix_descriptor "
        "wgmma.noop_barrier",
        "first": "warp_max warp_min warp_reduce warp_sum cta_max cta_min cta_reduce cta_sum",
        "second": "atomic_add atomic_cas",
        "int32": "any_sync ffs_u32 syncthreads_and syncthreads_or thread_rank",
        "uint32": "ballot_sync cvta_generic_to_shared elect_sync float22bfloat162_rn "
        "float22bfloat162_rn_from_float2 float_as_uint fp8x4_e4m3_from_float4 get_tmem_addr hmax2 "
        "hmin2 iket.official_event iket.range_start iket.sentinel_token reduce_add_sync_u32 "
        "reduce_min_sync_u32 sm100_2sm_leader_smem_addr smem_addr_from_uint64",
        "uint64": "bfloat1622float2 clock64 fadd2_rn fmul2_rn make_float2",
        "float32": "bfloat162float fdividef float2_x float2_y half2float uint_as_float",
        "given": "mma_fill mma_fill_legacy mma_store mma_store_legacy",
    },
    "metal": {
        "void": "make_filled_simdgroup_matrix simdgroup_load simdgroup_multiply_accumulate "
        "simdgroup_store",
        "first": "simd_shuffle simd_shuffle_down simd_shuffle_up",
    },
    "nvshmem": {
        "void": "barrier_all fence quiet signal_op wait_until getmem_nbi.block getmem_nbi.warp "
        "putmem_nbi.block putmem_nbi.warp putmem_signal_nbi.block putmem_signal_nbi.warp",
        "int32": "my_pe n_pes",
    },
    "ptx_legacy": {"void": "ldmatrix mma"},
    "s_tir": {"void": "cp_async_raw", "first": "ldg32"},
    "webgpu": {"first": "subgroup_shuffle subgroup_shuffle_down subgroup_shuffle_up"},
}


def tvm_rows() -> Iterator[tuple[str, str, str]]:
    """Name, documentation and result dtype of each."""
    for name, (dtype, what) in _ROWS.items():
        yield name, f"Read from programs of TVM: {what}.", dtype
    for space, kinds in _LIBRARIES.items():
        for dtype, names in kinds.items():
            for name in names.split():
                yield f"{space}.{name}", f"Read from programs of TVM: a function of {space}.", dtype


INTERPRETED = frozenset({
    "assume", "end_profile_intrinsic", "ignore_loop_partition", "start_profile_intrinsic",
    "tvm_thread_invariant", "undef",
})  # fmt: skip
"""Intrinsics that the interpreter has: hints and remarks, which change no value, and any value."""
DTYPE_LAST = frozenset({"tvm_struct_get"})
"""Intrinsics that scripts write with the dtype of the result behind the arguments; with others
whose dtype is given, it comes first."""
