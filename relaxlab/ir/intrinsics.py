"""The intrinsic functions a scalar `Call` may name: arity and result dtype.

Their meaning lives with the executors: the NumPy interpreter and each code generator have a row
per intrinsic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """One intrinsic. `arity` -1 takes any number of arguments.

    `result` says where the result's dtype comes from: `same` as all arguments, the `first` or the
    `last` argument, `bool`, or `given` by whoever builds the call.
    """

    name: str
    arity: int
    result: Literal["same", "first", "last", "bool", "given"] = "same"
    pure: bool = True


_UNARY = (
    "exp exp2 exp10 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf sigmoid floor ceil round trunc nearbyint fabs abs bitwise_not popcount"
).split()

INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        *(Intrinsic(n, 1) for n in _UNARY),
        Intrinsic("pow", 2),
        Intrinsic("atan2", 2),
        Intrinsic("fmod", 2),
        Intrinsic("fma", 3),
        Intrinsic("isnan", 1, "bool"),
        Intrinsic("isinf", 1, "bool"),
        Intrinsic("isfinite", 1, "bool"),
        Intrinsic("if_then_else", 3, "last"),  # only the chosen side is evaluated
        Intrinsic("likely", 1),
        Intrinsic("reinterpret", 1, "given"),
        # Vector shuffles: vectorlow/high halves, concatenation, reduction of all lanes.
        Intrinsic("vector_reduce_add", 1, "given"),
        Intrinsic("vector_reduce_mul", 1, "given"),
        Intrinsic("vector_reduce_max", 1, "given"),
        Intrinsic("vector_reduce_min", 1, "given"),
        # llvm_intrin(StringImm name, args…): a target's own instruction, used by tensor intrinsics.
        Intrinsic("llvm_intrin", -1, "given"),
        # call_extern(StringImm symbol, args…): a C function of that name.
        Intrinsic("call_extern", -1, "given", pure=False),
        # Address of an element, as a handle: address_of(BufferLoad).
        Intrinsic("address_of", 1, "given"),
        # Hint that the cache line at a handle will be read: prefetch(address_of(BufferLoad)).
        Intrinsic("prefetch", 1, "given", pure=False),
        # Threads of a GPU block meet here: tvm_storage_sync(StringImm scope).
        Intrinsic("tvm_storage_sync", 1, "given", pure=False),
        # The value in the lane of a warp whose number is one's own xor the (constant) mask.
        Intrinsic("warp_shuffle_xor", 2, "first", pure=False),
    )
}
