"""Loop functions are read, printed and read again; TVM reads what is printed, and what TVM prints
means the same."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxlab.tvm as tvm
from relaxlab.codegen.errors import CodegenError
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.expr import Call
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script import parse
from relaxlab.tvm.accessors import script
from relaxlab.tvm.script import from_source
from tests.tvm.loop_programs import DIFFERENT, PROGRAMS, UNTRUE
from tests.tvm.wheel import needs_wheel, results

READ = tuple(name for name in PROGRAMS if name not in UNTRUE)


@pytest.mark.parametrize("name", READ)
def test_what_is_printed_is_the_same_program(name: str) -> None:
    mod = parse(PROGRAMS[name])
    assert structural_equal(parse(mod.script()), mod)


ALIKE = (
    """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    C = T.alloc_buffer((16,), "float32")
    if n > 3:
        B = T.alloc_buffer((16,), "float32", scope="local")
        for i in range(n):
            B[i] = A[i] + T.Cast("float32", i)
        for i in range(n):
            C[i] = B[n - i - 1]
    for i in range(16):
        D = T.alloc_buffer((1,), "float32")
        D[0] = C[i]
        if i < n:
            A[i] = D[0]
""",
    """
@T.prim_func
def main(A: T.Buffer((16,), "int32"), n: T.int32):
    for i in range(16):
        A[i] = i // 2 + A[(i * 4 + n) % 16] - n
        if n > i and i > 0:
            A[i - 1] = T.if_then_else(i > 3, 1, 0)
""",
    """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((T.int64(4), T.int64(8)), "float32"), B: T.Buffer((T.int64(4),), "float32")):
    for i, k in T.grid(T.int64(4), T.int64(8)):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    B[T.int64(0)] = A[T.int64(1), T.int64(2)]
""",
    """
@T.prim_func
def main(A: T.Buffer((64,), "float32")):
    T.func_attr({"target": T.target("llvm")})
    with T.launch_thread("blockIdx.x", 2) as bx:
        with T.launch_thread("threadIdx.x", 32) as tx:
            B = T.alloc_buffer((32,), "float32", scope="shared")
            B[tx] = A[bx * 32 + tx]
            A[bx * 32 + tx] = B[tx]
""",
    """
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle, m: T.int32):
    n = T.int32()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32", offset_factor=1)
    for i in range(n):
        for k in range(m):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk] * T.Cast("float32", vk + n)
""",
    """
@T.prim_func
def main(A: T.Buffer((16, 64), "float32"), B: T.Buffer((16,), "float32")):
    bx = T.launch_thread("blockIdx.x", 16)
    tx = T.launch_thread("threadIdx.x", 64)
    S = T.alloc_buffer((1,), "float32", scope="local")
    D = T.alloc_buffer((4,), "float32", scope="local")
    with T.attr(T.comm_reducer(lambda a, b: a + b, [T.float32(0)]), "reduce_scope", 0):
        T.tvm_thread_allreduce(T.uint32(1), A[bx, tx], T.bool(True), S[0], tx)
    for i in range(8):
        with T.attr(D.data, "double_buffer_scope", 1):
            for j in range(4):
                D[j] = A[bx, i * 4 + j]
        for j in range(4):
            B[bx] = B[bx] + D[j]
    B[bx] = B[bx] + S[0]
""",
)
"""Programs that are printed so that TVM reads the same ones, allocations and dtypes included."""


@needs_wheel
@pytest.mark.parametrize("number", range(len(ALIKE)))
def test_tvm_reads_the_program_that_was_printed(number: int) -> None:
    printed = tuple((text, from_source(text).script()) for text in ALIKE)
    assert results("tvm", "equal", printed)[number] == {"differs": ""}, printed[number][1]


@needs_wheel
@pytest.mark.parametrize("name", UNTRUE)
def test_claims_that_are_not_true_are_warned_of(name: str) -> None:
    with pytest.raises(DiagnosticError, match=UNTRUE[name]):
        parse(PROGRAMS[name])
    with pytest.warns(UserWarning, match=UNTRUE[name]):
        func = from_source(PROGRAMS[name])
    assert isinstance(func, PrimFunc)
    (answer,) = results("tvm", "print", ((func.script(), ""),))
    assert "script" in answer


def test_what_leaves_its_memory_is_not_compiled() -> None:
    with pytest.warns(UserWarning, match="goes from 0 to 14"):
        func = from_source(PROGRAMS["axis_beyond_its_loop"].replace("(16, i)", "(4, i * 2)"))
    with pytest.raises(DiagnosticError, match="goes from 0 to 14"):
        tvm.build(func)


def test_functions_that_return_scalars() -> None:
    func = parse(PROGRAMS["return_in_branches"])["main"]
    assert isinstance(func, PrimFunc) and func.ret_dtype == "int32"
    memory = np.full(16, 100, "int32")
    found = [interpret_prim_func(func, [n, memory]) for n in (1, 3, 4)]
    assert found == [6, 6, 100]
    with pytest.raises(CodegenError, match="ret"):
        tvm.build(func)
    assert interpret_prim_func(parse(PROGRAMS["clz_popcount"])["main"], [memory, memory]) is None


def test_floats_of_eight_bits() -> None:
    func = parse(PROGRAMS["float8"])["main"]
    found = np.zeros(16, ml_dtypes.float8_e4m3fn)
    given = np.linspace(-9, 9, 16).astype("float32")
    interpret_prim_func(func, [found, given])
    np.testing.assert_array_equal(found, given.astype(found.dtype))
    with pytest.raises(CodegenError, match="convert it to float16"):
        tvm.build(func)


@needs_wheel
@pytest.mark.parametrize("name", READ)
def test_tvm_reads_what_is_printed(name: str) -> None:
    printed = tuple((script(parse(PROGRAMS[n])), "") for n in READ)
    answer = results("tvm", "print", printed)[READ.index(name)]
    assert "script" in answer, f"{answer}\n{printed[READ.index(name)][0]}"


@needs_wheel
@pytest.mark.parametrize("name", READ)
def test_what_tvm_prints_is_the_same_program(name: str) -> None:
    answer = results("tvm", "print", tuple((PROGRAMS[n], "") for n in READ))[READ.index(name)]
    same = structural_equal(parse(answer["script"]), parse(PROGRAMS[name]))
    assert same == (name not in DIFFERENT), answer["script"]


def test_scalars_that_are_assigned_again() -> None:
    """They are elements of memory: what a loop assigns is seen after it."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((3,), "int32")):
    total: T.int32 = 0
    last: T.int32
    for i in range(8):
        if A[i] < 0:
            T.continue_loop()
        if A[i] > 50:
            T.break_loop()
        total += A[i]
        last = i
    B[0] = total
    B[1] = last
    total = total * 2
    B[2] = total
""")["main"]
    assert isinstance(func, PrimFunc)
    found = np.zeros(3, "int32")
    interpret_prim_func(func, [np.array([1, -7, 2, 3, 60, 4, 5, 6], "int32"), found])
    assert found.tolist() == [6, 3, 12]


CALLS = """
@I.ir_module
class M:
    @T.prim_func(private=True)
    def add(p: T.handle("int32"), i: T.int32):
        A = T.decl_buffer((16,), "int32", data=p)
        A[i] = M.square(i) + M.later(i)

    @T.prim_func(private=True)
    def square(n: T.int32) -> T.int32:
        return n * n

    @T.prim_func
    def main(A: T.Buffer((16,), "int32")):
        for i in range(16):
            M.add(A.data, i)

    @T.prim_func(private=True)
    def later(n: T.int32) -> T.int32:
        return n + 1
"""


def test_a_loop_function_calls_another_one() -> None:
    mod = parse(CALLS)
    assert structural_equal(parse(mod.script()), mod)
    calls = [n for n in walk(mod["add"]) if isinstance(n, Call) and n.op == "call_function"]
    assert [c.dtype for c in calls] == ["int32", "int32"]
    with pytest.raises(DiagnosticError, match="no function 'cube'"):
        parse(CALLS.replace("M.square(i)", "M.cube(i)"))
    with pytest.raises(CodegenError, match="call_function"):
        tvm.build(parse(CALLS.replace("M.add(A.data, i)", "A[i] = M.square(i)")))


@needs_wheel
def test_tvm_reads_calls_of_loop_functions() -> None:
    (answer,) = results("tvm", "print", ((script(parse(CALLS)), ""),))
    assert "script" in answer, answer


def test_lanes_are_chosen_by_their_numbers() -> None:
    a, v = np.arange(256, dtype="float32").reshape(16, 16), np.zeros(4, "float32")
    func = parse(PROGRAMS["lanes_of_vectors"].replace('(4,), "float32x4"', '(4,), "float32"')
                 .replace("V[0] =", "V[0:4] =").replace("[V[0]]", "[V[0:4]]"))["main"]  # fmt: skip
    assert isinstance(func, PrimFunc)
    interpret_prim_func(func, [a, v])
    assert v.tolist() == [3, 2, 1, 0] and a[1, 0] == 1
    with pytest.raises(DiagnosticError, match="picks lanes"):
        parse(PROGRAMS["lanes_of_vectors"].replace("[V[0]], [2]", "[V[0]], [4]"))


def test_a_slice_of_a_view_may_leave_a_row_of_the_buffer_behind_it() -> None:
    """Eight elements from `i * 8` on are a row; every eighth one lies in a row of its own."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    flat = T.decl_buffer((64,), data=A.data)
    for i in range(8):
        B[i, 0:8] = flat[i * 8:i * 8 + 8] + flat[i:i + 64:8]
""")["main"]
    assert isinstance(func, PrimFunc)
    a, b = np.arange(64, dtype="float32").reshape(8, 8), np.zeros((8, 8), "float32")
    interpret_prim_func(func, [a, b])
    np.testing.assert_array_equal(b, a + a.T)


def test_a_note_on_an_allocation_is_kept() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    C = T.alloc_buffer((8,), annotations={"tirx.volatile": True})
    C[0] = A[0]
"""
    mod = parse(text)
    assert 'annotations={"tirx.volatile": True}' in mod.script()
    assert structural_equal(parse(mod.script()), mod)
    assert not structural_equal(parse(text.replace("True", "False")), mod)
