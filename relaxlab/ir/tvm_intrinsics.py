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
}


def tvm_rows() -> Iterator[tuple[str, str, str]]:
    """Name, documentation and result dtype of each."""
    for name, (dtype, what) in _ROWS.items():
        yield name, f"Read from programs of TVM: {what}.", dtype
