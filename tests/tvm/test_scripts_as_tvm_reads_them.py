"""Programs that TVM's parser reads and that ours refuses outside of `relaxlab.tvm`."""

from __future__ import annotations

import warnings
from itertools import permutations
from math import gcd
from typing import Any

import pytest

import relaxlab.tvm as tvm
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.script import parse
from relaxlab.tvm import relax
from relaxlab.tvm.script import from_source
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.script import relax as R
from relaxlab.tvm.script import tir as T
from tests.tvm.wheel import needs_wheel, results

DTYPES = ("int8", "int32", "int64", "uint8", "uint32", "float16", "float32", "bool")
OPERATORS = ("+", "<", "/", "//", "&", "<<")


def mixed(a: str, b: str, op: str) -> str:
    return f"""@T.prim_func
def main(A: T.Buffer((4,), "{a}"), B: T.Buffer((4,), "{b}"), C: T.Buffer((4,), "int64")):
    C[0] = T.Cast("int64", A[0] {op} B[0])
"""


@needs_wheel
def test_operands_of_two_dtypes_are_converted_as_tvm_converts_them() -> None:
    texts = [mixed(a, b, op) for a, b in permutations(DTYPES, 2) for op in OPERATORS]
    read = results("tvm", "print", tuple((t, "") for t in texts))
    taken = [t for t, answer in zip(texts, read, strict=True) if "script" in answer]
    assert len(taken) > 200
    printed = tuple((t, from_source(t).script()) for t in taken)
    wrong = [a for a in results("tvm", "equal", printed) if a["differs"]]
    assert not wrong, wrong[:3]


PROGRAMS = (
    """
@T.prim_func
def main(unused: T.handle, a: T.handle, p: T.handle("float32"), b: T.handle):
    first = T.int32()
    A = T.match_buffer(a, (8,), "float32", elem_offset=first)
    B = T.match_buffer(b, (8,), "float32")
    P = T.decl_buffer((8,), "float32", data=p)
    for i in range(8):
        B[i] = A[i] + P[i]
""",
    """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(4):
        with T.sblock("b"):
            v = T.axis.spatial(T.Range(0, 4), i)
            B[v] = A[v]
""",
    """
@T.prim_func
def main(A: T.Buffer((16, 4), "float32"), B: T.Buffer((), "int8")):
    T.call_packed("a.function", A, B, 3, "text")
""",
    """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(4):
        B.vstore([i * 4], A.vload([i * 4], "float32x4"))
""",
)


@pytest.mark.parametrize("text", PROGRAMS)
def test_what_is_printed_is_the_same_program(text: str) -> None:
    func = from_source(text)
    assert structural_equal(from_source(func.script()), func)


@needs_wheel
def test_tvm_reads_what_is_printed() -> None:
    answers = results("tvm", "print", tuple((from_source(t).script(), "") for t in PROGRAMS))
    assert all("script" in a for a in answers), answers


def test_python_functions_of_constants_are_called() -> None:
    widths = [4, 2]

    @T.prim_func
    def filled(A: T.Buffer((gcd(*widths) * 4,), "float32")):
        for i in range(gcd(8, widths[0])):
            A[i] = T.float32(gcd(6, 9))

    assert isinstance(filled, tvm.tir.PrimFunc)
    loop = filled.body
    assert isinstance(loop, tvm.tir.For) and int(loop.extent) == 4  # type: ignore[call-overload]
    text = 'A: T.Buffer((4,), "float32")):\n    A[0] = T.float32(gcd("x", 2))'
    with pytest.raises(DiagnosticError, match="gcd: 'str' object cannot be"):
        from_source(f"@T.prim_func\ndef main({text}", {"gcd": gcd})
    with pytest.raises(DiagnosticError, match="cannot be used in a program"):
        parse(f"@T.prim_func\ndef main({text}", names={"gcd": gcd})


def test_loop_functions_that_lie_are_read_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="only goes from 0 to 3"):

        @T.prim_func(s_tir=True)
        def short(A: T.Buffer((8,), "float32")):
            for i in range(4):
                with T.sblock("A"):
                    v = T.axis.spatial(8, i)
                    A[v] = T.float32(0)

    assert isinstance(short, tvm.tir.PrimFunc)


@I.ir_module
class Sum:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            b = R.nn.relu(a)
            R.output(b)
        return b


def test_a_class_of_a_pattern_and_its_replacement_is_a_rewriter() -> None:
    @R.rewriter
    class Joined:
        @R.function
        def pattern(A: R.Tensor([4], "float32"), B: R.Tensor([4], "float32")):
            C = R.add(A, B)
            return R.nn.relu(C)

        @R.function
        def replacement(A: R.Tensor([4], "float32"), B: R.Tensor([4], "float32")):
            return R.maximum(R.add(A, B), R.const(0, "float32"))

    main = Joined(Sum)["main"]
    assert "R.maximum" in main.script() and "R.nn.relu" not in main.script()


def test_names_that_are_not_there_have_no_items_to_loop_over() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(R.no_such_name(3))  # type: ignore[attr-defined]


def test_operators_have_tvms_names_where_programs_of_tvm_read_them() -> None:
    @relax.expr_functor.mutator
    class Subtracting(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if call.op.name == "relax.add":
                return relax.op.subtract(*call.args)
            return call

    bindings = Subtracting(Sum).visit_expr(Sum["main"]).body.blocks[0].bindings
    names = [b.value.op.name for b in bindings]
    assert names == ["relax.subtract", "relax.nn.relu"]
    assert {*names} == {"relax.nn.relu", "relax.subtract"} and "subtract" not in names
    of_the_core: dict[str, Any] = {"__name__": "program", "op": bindings[0].value.op}
    exec("name = op.name", of_the_core)
    assert of_the_core["name"] == "subtract"


def test_a_loop_function_for_given_values() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @T.prim_func
        def copy(a: T.handle, b: T.handle, n: T.int32):
            m = T.int32()
            A = T.match_buffer(a, (m, n), "float32")
            B = T.match_buffer(b, (m, n), "float32")
            for i, j in T.grid(m, n):
                B[i, j] = A[i, j]

    a, b, n = copy.params
    eight = copy.specialize({n: 8})
    assert [str(p.shape[1]) for p in eight.params] == ["8", "8"]
    both = copy.specialize({a: tvm.tir.decl_buffer((4, 8))})
    assert [[*map(str, p.shape)] for p in both.params] == [["4", "8"]] * 2
    with pytest.raises(ValueError, match="is given"):
        copy.specialize({a: tvm.tir.decl_buffer((4, 8)), b: tvm.tir.decl_buffer((4, 9))})
