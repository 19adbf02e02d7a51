# pyright: basic
# The functions are programs of the script language, whose annotations are buffers.
"""`reduce_OP_DTYPE_L` folds L lanes into one value, `C = C op A[0] op A[1] …`; its code folds them
pairwise, so that floats may be rounded otherwise."""

from __future__ import annotations

from functools import partial

from relaxlab.schedule.tensor_intrin import Functions, declare
from relaxlab.script import parse

FOLDED = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64")
"""The dtypes whose lanes intrinsics fold: half precision is accumulated in float32."""
LANES = (2, 4, 8, 16, 32, 64)

_COMBINED = {
    "add": "{} + {}", "mul": "{} * {}", "max": "T.max({}, {})", "min": "T.min({}, {})",
}  # fmt: skip


def _define(op: str, dtype: str, lanes: int) -> Functions:
    combined = _COMBINED[op].format
    folded = f'T.call_intrin("{dtype}", "vector_reduce_{op}", A[0:{lanes}])'
    module = parse(f"""
from relaxlab.script import ir as I, tir as T

@I.ir_module
class Reduce:
    @T.prim_func
    def desc(A: T.Buffer(({lanes},), "{dtype}"), C: T.Buffer((), "{dtype}")):
        for i in range({lanes}):
            C[()] = {combined("C[()]", "A[i]")}

    @T.prim_func
    def impl(A: T.Buffer(({lanes},), "{dtype}"), C: T.Buffer((), "{dtype}")):
        C[()] = {combined("C[()]", folded)}
""")
    functions = module.loop_functions()
    return functions["desc"], functions["impl"]


for _op in _COMBINED:
    for _dtype in FOLDED:
        for _lanes in LANES:
            declare(f"reduce_{_op}_{_dtype}_{_lanes}", partial(_define, _op, _dtype, _lanes))
