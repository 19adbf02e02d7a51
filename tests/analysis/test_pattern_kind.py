"""Pattern kinds of operators and of functions written by hand."""

import pytest

import relaxlab.ops  # noqa: F401  registers the operators
from relaxlab.analysis.pattern_kind import (
    PatternKind,
    pattern_kind_of,
    pattern_kind_with_reason,
)
from relaxlab.ir import expr, loops
from relaxlab.ops import te
from relaxlab.script.parser import parse

n, m = expr.Var("n"), expr.Var("m")
A = te.placeholder((n, m), "float32", "A")
B = te.placeholder((m,), "float32", "B")
W = te.placeholder((m, 64), "float32", "W")
I = te.placeholder((n,), "int64", "I")  # noqa: E741
r = te.reduce_axis(m, "k")
ONE = te.placeholder((n, 1), "float32", "ONE")
unit = te.reduce_axis(1, "u")
ROW_MAX = te.compute((n,), lambda i: te.te_max(A[i, r.var], r), "row_max")

K = PatternKind
COMPUTED = [
    ((A,), te.compute((n, m), lambda i, j: A[i, j] * 2.0), K.ELEMENTWISE, "reads where it writes"),
    ((A, B), te.compute((n, m), lambda i, j: A[i, j] + B[j]), K.ELEMENTWISE, "and others where"),
    ((B,), te.compute((n, m), lambda i, j: B[j]), K.BROADCAST, "B[vj], a subsequence of [vi, vj]"),
    ((A,), te.compute((m, n), lambda i, j: A[j, i]), K.INJECTIVE, "A[vj, vi], a function"),
    ((A,), te.compute((n * m,), lambda i: A[i // m, i % m]), K.INJECTIVE, "A[vi // m, vi % m]"),
    ((A,), te.compute((n, 2), lambda i, j: A[i, j]), K.INJECTIVE, "A[vi, vj], a function of"),
    ((A,), te.compute((m,), lambda j: A[0, j]), K.INJECTIVE, "A[0, vj], a function of [vj]"),
    ((A, W), te.compute((n, 64), lambda i, j: te.te_sum(A[i, r.var] * W[r.var, j], r)),
     K.OUT_EWISE_FUSIBLE, "sums products over vk"),
    ((A,), te.compute((n,), lambda i: te.te_sum(A[i, r.var] * A[i, r.var], r)),
     K.REDUCTION, "reduces over vk"),
    ((A,), te.compute((n,), lambda i: te.te_sum(A[i, r.var], r)), K.REDUCTION, "reduces over"),
    ((ONE,), te.compute((n,), lambda i: te.te_sum(ONE[i, unit.var], unit)), K.REDUCTION, "vu"),
    ((A,), te.compute((n,), lambda i: ROW_MAX[i] * 2.0), K.REDUCTION, "reduces over vk"),
    ((A,), te.compute((n, m), lambda i, j: A[i, j] - ROW_MAX[i]), K.OUT_EWISE_FUSIBLE,
     "applies row_max to whole rows"),
    ((A, I), te.compute((n, m), lambda i, j: A[I[i], j]), K.OPAQUE, "decided by data"),
    ((), te.compute((n,), lambda i: expr.Cast("float32", i)), K.ELEMENTWISE, "reads nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "output", "kind", "reason"), COMPUTED)
def test_computed(
    inputs: tuple[te.Tensor, ...], output: te.Tensor, kind: PatternKind, reason: str
) -> None:
    func = te.create_prim_func([*inputs, output])
    found, why = pattern_kind_with_reason(func)
    assert found is kind
    assert reason in why
    assert pattern_kind_of(func) is kind


def prim_func(body: str) -> loops.PrimFunc:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return parse(f"@I.ir_module\nclass M:\n    @T.prim_func\n{lines}")["f"]


DECODE = """
def f(data: T.Buffer((128, 16), "uint32"), scale: T.Buffer((128, 4), "float16"),
      out: T.Buffer((128, 128), "float16")):
    for i, j in T.grid(128, 128):
        with T.block("decode"):
            v_i, v_j = T.axis.remap("SS", [i, j])
            out[v_i, v_j] = T.Cast("float16", T.bitwise_and(
                T.shift_right(data[v_i, v_j // 8], T.Cast("uint32", v_j % 8 * 4)),
                T.uint32(15))) * scale[v_i, v_j // 32]
"""


def test_decoding_of_quantised_weights_is_injective() -> None:
    kind, why = pattern_kind_with_reason(prim_func(DECODE))
    assert kind is PatternKind.INJECTIVE
    assert "data[v_i, v_j // 8], a function of [v_i, v_j]" in why


OPAQUE = {
    "two different places": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            C[v] = A[v]
            C[v + 4] = A[v]
""",
    "a part of the output": """
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(4):
        with T.block("b"):
            v = T.axis.spatial(4, i)
            C[v * 2] = A[v]
""",
    "its own neighbours": """
def f(C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            C[v] = C[7 - v]
""",
    "in place": """
def f(C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            C[v] = C[v] + T.float32(1)
""",
    "where data say": """
def f(I: T.Buffer((8,), "int64"), A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            C[I[v]] = A[v]
""",
    "outputs of different blocks": """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            C[v] = A[v]
    for i in range(8):
        with T.block("d"):
            v = T.axis.spatial(8, i)
            D[v] = A[v]
""",
}


@pytest.mark.parametrize("name", OPAQUE)
def test_opaque(name: str) -> None:
    assert pattern_kind_of(prim_func(OPAQUE[name])) is PatternKind.OPAQUE


def test_functions_without_blocks() -> None:
    text = """
def f(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = T.float32(0)
        for k in range(4):
            C[i] = C[i] + A[i, k]
"""
    assert pattern_kind_of(prim_func(text)) is PatternKind.REDUCTION


def test_a_chain_of_variables_is_followed_as_long_as_it_is_short() -> None:
    head = """
def f(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        x0: T.float32 = A[i]
"""
    kinds: list[tuple[PatternKind, str]] = []
    for steps in (4, 60):
        chain = "".join(f"        x{k + 1}: T.float32 = x{k} * x{k}\n" for k in range(steps))
        kinds.append(pattern_kind_with_reason(prim_func(f"{head}{chain}        C[i] = x{steps}\n")))
    assert kinds[0][0] is PatternKind.ELEMENTWISE
    assert kinds[1][0] is PatternKind.OPAQUE
    assert "by too large an expression" in kinds[1][1]
