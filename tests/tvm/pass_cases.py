"""Programs that each pass of `relax.transform` is run on with TVM and with relaxlab."""

from __future__ import annotations

import textwrap
from pathlib import Path

EXP = """
@T.prim_func(private=True, s_tir=True)
def exp(A: T.Buffer((T.int64(2), T.int64(3)), "float32"), B: T.Buffer((T.int64(2), T.int64(3)), "float32")):
    T.func_attr({"tir.noalias": True})
    for i, j in T.grid(T.int64(2), T.int64(3)):
        with T.sblock("exp"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[vi, vj])
"""  # noqa: E501


def _case(text: str) -> tuple[str, tuple[str, str]]:
    """The name, the expression of the pass, and the module of a part of the file; where its
    functions refer to `Mod.exp` without defining it, `EXP` is added."""
    title, functions = text.split("\n", 1)
    name, expression = title.split(": ", 1)
    if "Mod.exp" in functions and "def exp(" not in functions:
        functions += EXP
    return name, (expression, "@I.ir_module\nclass Mod:\n" + textwrap.indent(functions, "    "))


_PARTS = Path(__file__).with_name("passes.txt").read_text("utf-8").split("=== ")[1:]
CASES: dict[str, tuple[str, str]] = dict(map(_case, _PARTS))
"""By name, the expression of a pass and the text of a module."""

MISSING = {
    "FastMath", "FoldBN",
    "MergeComposite", "InplaceCalls", "ComputePrim", "VMShapeLower",
}  # fmt: skip
"""The cases whose pass, or an option of it, relaxlab does not have."""

DIFFERENT = {
    "DecomposeTrain": "statistics that are used twice are computed twice",
    "BundleModelParams": "fields are taken before the block",
    "ReorderTake": "the bounds of indices are checked where the program took them",
    "AdjustMatmul": "a vector stays on its side",
    "CombineMatmul": "slices, not a split",
    "Legalize": "the names of functions and blocks",
    "FuseTIR": "the names of blocks",
    "CallTIRRewrite": "the result has its name at once",
    "FuseTranspose": "linear multiplies by the transposed matrix",
    "ToMixed": "products keep the dtype of their operands",
    "StaticPlan": "one storage with offsets",
    "KillAfter": "the form of the arguments of allocations",
    "LowerAlloc": "the form of the arguments of allocations",
    "ConvLayout": "attributes with one value for both axes",
}
"""The cases in which relaxlab's module differs, and how."""
