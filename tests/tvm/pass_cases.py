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


_TEXTS = [p.read_text("utf-8") for p in sorted(Path(__file__).with_name("passes").glob("*.txt"))]
_PARTS = [part for text in _TEXTS for part in text.split("=== ")[1:]]
CASES: dict[str, tuple[str, str]] = dict(map(_case, _PARTS))
"""By name, the expression of a pass and the text of a module."""

MISSING: set[str] = set()
"""The cases, up to an underscore, whose pass, or an option of it, relaxlab does not have."""

DIFFERENT = {
    "DecomposeTrain": "statistics that are used twice are computed twice",
    "ReorderTake": "the bounds of indices are checked where the program took them",
    "ReorderTake_batch": "matrices that are selected are multiplied after it",
    "CombineMatmul_bias": "biases are added to each product",
    "Legalize": "the names of functions and blocks",
    "FuseTranspose": "linear multiplies by the transposed matrix",
    "FuseTranspose_batch": "linear multiplies by the transposed matrix",
    "ToMixed_matmul": "a weight that is in half precision is transposed there",
    "StaticPlan": "one storage with offsets",
    "StaticPlan_reuse": "one storage with offsets",
    "StaticPlan_sizes": "one storage with offsets",
    "StaticPlan_symbol": "one storage with offsets",
    "FastMath": "exp itself, which machine code computes by a polynomial",
    "InplaceCalls": "a function is given a value that it overwrites once",
    "InplaceCalls_chain": "silu is one statement",
    "ConvertToDataflow_cast": "a claim about an unknown symbol stays a check",
    "Canon_symbol": "a claim is checked where the program makes it",
    "CSE_cast": "what a claim is about is computed once, too",
    "LambdaLift_closure": "a function that is only called takes what it captured, with no closure",
    "LiftTransform_none": "a function that would transform nothing is not made",
    "LiftTransform_two": "a weight that is read twice is taken from the tuple once",
    "BindSym_two": "products are in another order",
    "RemoveUnusedParameters_symbol": "a symbol stays with the tensor that defines it",
    "ExpandTuple_nested": "fields of inner tuples are read at the call",
    "AdjustMatmul_left": "products of products are put in order from the last on",
    "Specialize": "the function of any size stays beside its copy",
    "ConvLayout_softmax": "softmax is computed in the layout of the program",
    "ToMixed_exp": "a constant is converted where it is made",
    "Gradient_nn": "the gradient of a convolution transposes, in place of other layouts",
}
"""The cases in which relaxlab's module differs, and how."""

WITHOUT_RUN = {
    "Canon_symbol": "its sizes contradict each other",
    "StaticPlan_sizes": "it calls an unknown function",
    "StaticPlan_symbol": "it calls an unknown function",
}
"""The cases among these whose programs cannot be run, and why."""
