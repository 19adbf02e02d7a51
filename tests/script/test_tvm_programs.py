"""What programs written for TVM say in other words, and what it means."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.annotate import annotate
from relaxlab.ir import graph, loops, types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal, structural_equal
from relaxlab.ir.errors import UserError
from relaxlab.ir.module import Module
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.script import parse
from relaxlab.script import tir as T

HEADER = """\
import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import ir as I, relax as R, tirx as T
"""
PARAMS = 'A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")'


def loop(body: str, params: str = PARAMS) -> Module:
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return parse(f"{HEADER}\n@T.prim_func(s_tir=True)\ndef main({params}):\n{lines}\n")


def graph_function(body: str, params: str = 'x: R.Tensor((4,), "float32")') -> Module:
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return parse(f"{HEADER}\n@R.function\ndef main({params}):\n{lines}\n")


SAME = {
    "short dtypes": (
        """
        for i in range(16):
            k: T.i32 = T.Cast(T.i32, A[i])
            B[i] = T.f32(k) + T.FloatImm("float32", 2.0) * A[T.LShift(k, T.IntImm("int32", 1))]
        """,
        """
        for i in range(16):
            k: T.int32 = T.Cast("int32", A[i])
            B[i] = T.float32(k) + T.float32(2) * A[k << 1]
        """,
    ),
    "an axis of one loop": (
        """
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.remap("S", [i])
                B[vi] = A[vi]
        """,
        """
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi]
        """,
    ),
    "threads for the rest": (
        """
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 4)
        B[bx * 4 + tx] = A[bx * 4 + tx]
        """,
        """
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                B[bx * 4 + tx] = A[bx * 4 + tx]
        """,
    ),
    "threads for a block of statements": (
        """
        with T.launch_thread("threadIdx.x", 16) as tx:
            B[tx] = A[tx]
        """,
        """
        for tx in T.thread_binding(16, thread="threadIdx.x"):
            B[tx] = A[tx]
        """,
    ),
    "an axis declared before": (
        """
        tx = T.env_thread("threadIdx.x")
        T.launch_thread(tx, 16)
        B[tx] = A[tx]
        """,
        """
        for tx in T.thread_binding(16, thread="threadIdx.x"):
            B[tx] = A[tx]
        """,
    ),
    "the attribute of a thread axis": (
        """
        tx = T.env_thread("threadIdx.x")
        with T.attr(tx, "thread_extent", 16):
            B[tx] = A[tx]
        """,
        """
        for tx in T.thread_binding(16, thread="threadIdx.x"):
            B[tx] = A[tx]
        """,
    ),
    "an attribute of a loop": (
        """
        T.attr({"pragma_unroll": 4})
        for i in range(16):
            B[i] = A[i]
        """,
        """
        for i in T.serial(16, annotations={"pragma_unroll": 4}):
            B[i] = A[i]
        """,
    ),
    "another shape of the same memory": (
        """
        C = T.decl_buffer((4, 4), "float32", data=A.data)
        for i, j in T.grid(4, 4):
            B[i * 4 + j] = C[i, j]
        """,
        """
        for i, j in T.grid(4, 4):
            B[i * 4 + j] = A[i * 4 + j]
        """,
    ),
    "a part of the same memory": (
        """
        C = T.decl_buffer((8,), "float32", data=B.data, elem_offset=8)
        for i in range(8):
            C[i] = A[i]
        """,
        """
        for i in range(8):
            B[i + 8] = A[i]
        """,
    ),
    "a view": (
        """
        C = A.view(2, 8)
        for i in range(2):
            B[i * 8:i * 8 + 8] = C[i, 0:8]
        """,
        """
        for i in range(2):
            B[i * 8:i * 8 + 8] = A[i * 8:i * 8 + 8]
        """,
    ),
    "vectors by method": (
        """
        for i in range(4):
            B.vstore([T.Ramp(i * 4, 1, 4)], A.vload([i * 4], "float32x4"))
        """,
        """
        for i in range(4):
            B[i * 4:i * 4 + 4] = A[i * 4:i * 4 + 4]
        """,
    ),
    "memory of a scalar": (
        """
        x = T.local_scalar("int32")
        x = 3
        B[x] = A[x]
        """,
        """
        x = T.alloc_buffer((1,), "int32", scope="local")
        x[0] = 3
        B[x[0]] = A[x[0]]
        """,
    ),
    "the dtype of a call by its name": (
        """
        B[0] = T.reinterpret(T.int32(3), dtype="float32")
        B[1] = T.call_extern("f", B[0], dtype="float32")
        """,
        """
        B[0] = T.reinterpret("float32", T.int32(3))
        B[1] = T.call_extern("float32", "f", B[0])
        """,
    ),
    "memory of its own": (
        """
        C = T.decl_buffer((16,), "float32")
        for i in range(16):
            C[i] = A[i]
        for i in range(16):
            B[i] = C[i]
        """,
        """
        C = T.alloc_buffer((16,), "float32")
        for i in range(16):
            C[i] = A[i]
        for i in range(16):
            B[i] = C[i]
        """,
    ),
    "steps": (
        """
        for i in range(2, 15, 4):
            B[i] = A[i]
        for i in T.serial(0, 16, step=4):
            B[i] = A[i]
        """,
        """
        for k in range(4):
            B[2 + k * 4] = A[2 + k * 4]
        for k in range(4):
            B[k * 4] = A[k * 4]
        """,
    ),
    "one name for several loops": (
        """
        for at in T.grid(4, 4):
            B[at[0] * 4 + at[1]] = A[at[0] * 4 + at[1]]
        """,
        """
        for i, j in T.grid(4, 4):
            B[i * 4 + j] = A[i * 4 + j]
        """,
    ),
    "values of Python": (
        """
        n = T.meta_var(16)
        for i in range(n):
            x = T.bind(A[i])
            B[i] = x
        """,
        """
        for i in range(16):
            x = A[i]
            B[i] = x
        """,
    ),
    "stated dtypes": (
        """
        for i in range(16):
            B[i] = T.if_then_else(i < 4, T.exp(A[i], dtype="float32"), A[i], dtype="float32")
        """,
        """
        for i in range(16):
            B[i] = T.if_then_else(i < 4, T.exp(A[i]), A[i])
        """,
    ),
    "an integer as a condition": (
        """
        for i in range(16):
            if i % 2:
                B[i] = A[i]
        """,
        """
        for i in range(16):
            if i % 2 != 0:
                B[i] = A[i]
        """,
    ),
    "statements under a name": (
        """
        @T.inline
        def move(X, Y, i, by=0):
            Y[i] = X[i + by]

        for i in range(8):
            move(A, B, i, by=8)
            move(A, B, i + 8)
        """,
        """
        for i in range(8):
            B[i] = A[i + 8]
            B[i + 8] = A[i + 8 + 0]
        """,
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_other_words_for_the_same(name: str) -> None:
    one, two = map(loop, SAME[name])
    assert_structural_equal(one, two)
    assert_structural_equal(parse(one.script()), one)


JUMPS = {
    "break": (
        """
        for i in range(16):
            if A[i] > T.float32(3):
                break
            B[i] = A[i]
        """,
        lambda a: np.where(np.cumsum(a > 3) == 0, a, 0),
    ),
    "continue": (
        """
        for i in range(16):
            if A[i] > T.float32(3):
                continue
            B[i] = A[i]
        """,
        lambda a: np.where(a > 3, 0, a),
    ),
    "both, in an inner loop": (
        """
        for i in range(4):
            for j in range(4):
                if A[i * 4 + j] > T.float32(3):
                    break
                if A[i * 4 + j] < T.float32(0):
                    B[i * 4 + j] = T.float32(-1)
                    continue
                B[i * 4 + j] = A[i * 4 + j]
        """,
        lambda a: np.where(
            np.cumsum(a.reshape(4, 4) > 3, 1) == 0,
            np.where(a.reshape(4, 4) < 0, -1, a.reshape(4, 4)),
            0,
        ).reshape(16),
    ),
    "a while that ends before its condition reads too far": (
        """
        i = T.alloc_buffer((1,), "int64", scope="local")
        i[0] = 0
        while A[i[0]] < T.float32(100):
            B[i[0]] = A[i[0]]
            i[0] = i[0] + 1
            if i[0] == 16:
                break
        """,
        lambda a: a,
    ),
}


@pytest.mark.parametrize("name", JUMPS)
def test_jumps_skip_what_follows(name: str, rng: np.random.Generator) -> None:
    text, expected = JUMPS[name]
    mod = loop(text)
    exe = rl.compile(mod, checks="all")
    for _ in range(8):
        a = rng.normal(0, 3, 16).astype("float32")
        out = np.zeros(16, "float32")
        interpret_prim_func(mod["main"], [a, out])
        np.testing.assert_array_equal(out, expected(a))
        native = np.zeros(16, "float32")
        exe(a, native)
        np.testing.assert_array_equal(native, expected(a))


@pytest.mark.parametrize("kind", ["T.parallel(16)", 'T.thread_binding(16, "threadIdx.x")'])
def test_loops_that_are_not_in_order_cannot_be_left(kind: str) -> None:
    with pytest.raises(DiagnosticError, match="`break` leaves a single loop in order"):
        loop(f"for i in {kind}:\n    if A[i] > 0.0:\n        break\n    B[i] = A[i]")


@T.macro
def scaled(X, Y, i, factor):
    Y[i] = X[i] * T.float32(factor)


FACTOR = 2.5


def test_short_dtypes_where_python_sees_them() -> None:
    from relaxlab.script.tir import boolean, f32

    @T.prim_func
    def scaled(A: T.Buffer((4,), "float32"), s: T.f32, negate: boolean):
        for i in range(4):
            A[i] = A[i] * (s + f32(1))
            if negate:
                A[i] = -A[i]

    assert [p.dtype for p in scaled.params[1:]] == ["float32", "bool"]
    x = np.arange(4, dtype="float32")
    interpret_prim_func(scaled, [x, 2.0, True])
    np.testing.assert_array_equal(x, [-0.0, -3, -6, -9])


def test_macros_of_python() -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            scaled(A, B, i, FACTOR)

    a, b = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    interpret_prim_func(main, [a, b])
    np.testing.assert_array_equal(b, a * 2.5)


def test_macros_see_the_names_where_they_are_defined() -> None:
    mod = parse(f"""{HEADER}
N = 3
@T.macro
def fill(X, i):
    X[i] = T.float32(N)
@T.prim_func
def main({PARAMS}):
    N = 5
    for i in range(16):
        fill(B, i)
""")
    out = np.zeros(16, "float32")
    interpret_prim_func(mod["main"], [out, out])
    assert set(out) == {3.0}


@pytest.mark.parametrize(
    "body, message",
    [
        ("C = T.decl_buffer((8,), 'int16', data=A.data)\nB[0] = A[0]", "cannot be seen as int16"),
        ("C = T.decl_buffer((4, 4), 'float32', data=A)\nB[0] = A[0]", "such as `A.data`"),
        ("x = T.launch_thread(3, 4)\nB[0] = A[0]", "a thread axis such as 'threadIdx.x'"),
        ("T.attr(T.grid, 'k', 1)\nB[0] = A[0]", "cannot be an attribute"),
        ("T.attr(T.comm_reducer(lambda x: x, [1]), 'k', 1)", "1 parameters to combine"),
        ("T.attr(T.comm_reducer(lambda x, y: (x, y), [1]), 'k', 1)", "2 results for 1 values"),
        ("T.attr(T.comm_reducer(3, [1]), 'k', 1)", "takes a lambda and a list of values"),
        ("for i in range(4):\n    return A[i]", "returns a value at its end"),
        ("for i in range(0, 16, 0):\n    B[i] = A[i]", "must be positive"),
        ("B[0] = T.exp(A[0], dtype='float16')", "gives float32 here, not float16"),
        ("def f(X):\n    X[0] = 1.0\nf(A)", "defined inside a loop function"),
        ("@T.macro\ndef f(X):\n    X[0] = 1.0\nf(A, B)", "takes 1 argument, got 2"),
        ("@T.macro\ndef f(X):\n    f(X)\nf(A)", "more than 64 levels deep"),
    ],
)
def test_what_is_refused(body: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        loop(body)


KEPT = {
    "targets": 'T.func_attr({"target": T.target({"kind": "cuda", "arch": "sm_80"})})\nB[0] = A[0]',
    "addresses": 'T.evaluate(T.call_extern("int32", "f", T.address_of(A[0]), B.data))',
    "packed calls": 'T.evaluate(T.tvm_call_packed("my.func", A.data))\nB[0] = A[0]',
    "fragments": "T.evaluate(T.tvm_fill_fragment(A.data, 16, 16, 16, 0, T.float32(0)))",
    "reductions of threads": (
        "T.evaluate(T.tvm_thread_allreduce(T.uint32(1), A[0], T.bool(True), B.data, 0))"
    ),
    "parts of memory": 'T.evaluate(T.call_extern("int32", "f", A.access_ptr("r", offset=3)))',
}


@pytest.mark.parametrize("name", KEPT)
def test_what_only_targets_understand_is_kept(name: str) -> None:
    mod = loop(KEPT[name])
    assert_structural_equal(parse(mod.script()), mod)


def test_what_has_no_meaning_here_says_so() -> None:
    mod = loop(KEPT["packed calls"])
    with pytest.raises(UserError, match="tvm_call_packed"):
        rl.compile(mod)


def test_pointers_are_parameters() -> None:
    mod = parse(f"""{HEADER}
@T.prim_func
def f(a: T.handle, p: T.handle("float32"), B: T.Buffer((4,), "float32")):
    T.evaluate(T.call_extern("int32", "g", a, B.data))
""")
    assert [getattr(p, "dtype", "") for p in mod["f"].params] == ["handle", "handle", "float32"]
    assert_structural_equal(parse(mod.script()), mod)


def test_strides_define_symbols() -> None:
    mod = parse(f"""{HEADER}
@T.prim_func
def f(a: T.handle, B: T.Buffer((4, 4), "float32")):
    A = T.match_buffer(a, (4, 4), "float32", strides=["s0", "s1"], offset_factor=1)
    for i, j in T.grid(4, 4):
        B[i, j] = A[i, j]
""")
    (strided, _) = mod["f"].buffers
    assert [s.name for s in strided.strides] == ["s0", "s1"]
    out = np.zeros((4, 4), "float32")
    data = np.arange(16, dtype="float32").reshape(4, 4)
    interpret_prim_func(mod["f"], [data, out])
    np.testing.assert_array_equal(out, data)


SAME_GRAPHS = {
    "operators by their module": (
        "y = relax.op.add(x, x)\nz = R.emit(tvm.relax.op.nn.relu(y))\nreturn z",
        "y = R.add(x, x)\nz = R.nn.relu(y)\nreturn z",
    ),
    "a method": ('y = x.astype("float16")\nreturn y', 'y = R.astype(x, "float16")\nreturn y'),
    "arrays of NumPy": (
        'y = R.add(x, R.const(np.array([1, 2, 3, 4], dtype="float32")))\n'
        "z = R.add(y, R.const(tvm.runtime.tensor(np.ones((4,), np.float32))))\nreturn z",
        'y = R.add(x, R.const([1, 2, 3, 4], "float32"))\n'
        'z = R.add(y, R.const([1, 1, 1, 1], "float32"))\nreturn z',
    ),
    "values in attributes": (
        "y = R.strided_slice(x, [0], (R.prim_value(0),), (R.prim_value(2),))\nreturn y",
        "y = R.strided_slice(x, [0], [0], [2])\nreturn y",
    ),
    "a map of indices": (
        "y = R.layout_transform(x, index_map=lambda i: (i // 2, i % 2))\nreturn y",
        "y = R.layout_transform(x, index_map=T.index_map(lambda i: (i // 2, i % 2)))\nreturn y",
    ),
    "shapes and tuples": (
        "y = R.reshape(x, R.ShapeExpr([2, 2]))\nt = R.tuple(x, y)\nz = R.TupleGetItem(t, 1)\n"
        "return z",
        "y = R.reshape(x, R.shape([2, 2]))\nt = (x, y)\nz = t[1]\nreturn z",
    ),
    "operators by their names": (
        'y = R.emit_with_ty("relax.call_pure_packed", (R.ExternFunc("f"), x), [R.Object])\n'
        'z = R.emit_with_type("relax.nn.relu", x)\n'
        'a = R.emit_with_sinfo("relax.add", [x, z], sinfo_args=(R.Tensor((4,), "float32"),))\n'
        'b = R.emit_match_cast(a, R.Tensor((4,), "float32"))\nreturn b',
        'y = R.call_pure_packed("f", x, ty_args=[R.Object])\n'
        "z = R.nn.relu(x)\n"
        'a = R.add(x, z, ty_args=(R.Tensor((4,), "float32"),))\n'
        'b = R.match_cast(a, R.Tensor((4,), "float32"))\nreturn b',
    ),
}


@pytest.mark.parametrize("name", SAME_GRAPHS)
def test_other_words_in_graph_functions(name: str) -> None:
    one, two = map(graph_function, SAME_GRAPHS[name])
    assert_structural_equal(one, two)


def test_a_pure_function_may_allocate() -> None:
    mod = graph_function("""
        s = R.memory.alloc_storage(
            R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        y = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
        z = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
        return (y, z)
    """)
    assert isinstance(mod["main"], graph.Function)
    assert_structural_equal(parse(mod.script()), mod)


def test_values_that_only_name_something() -> None:
    mod = parse("""
@I.ir_module
class M:
    I.module_global_infos({"dummy": [I.dummy_global_info(), I.dummy_global_info()]})

    @R.function
    def main(x: R.Tensor((2, 2), "float32")):
        y = R.hint_on_device(x, R.cuda(0))
        return R.nn.pad(y, pad_width=[1] * 2 + [0] * 2)
""")
    printed = mod.script()
    assert '{"dummy": [I.dummy_global_info(), I.dummy_global_info()]}' in printed
    assert '"cuda:0"' in printed and "[1, 1, 0, 0]" in printed
    assert_structural_equal(parse(printed), mod)


def test_branches_and_closures_in_normal_form_are_read_as_they_are_printed() -> None:
    mod, wrong = annotate(parse("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")):
    @R.function
    def inner(a: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.add(a, x)
    if c:
        w = inner(x)
        y = R.multiply(w, w)
    else:
        w = R.multiply(x, x)
        y = R.add(w, w)
    return y
"""))
    assert not wrong
    assert "inner: R.Callable" not in mod.script()  # which TVM does not read
    assert_structural_equal(annotate(parse(mod.script()))[0], mod)


def test_virtual_devices_are_kept() -> None:
    text = f"""{HEADER}
@I.ir_module
class Module:
    I.module_attrs({{"attr": 10}})
    I.module_global_infos({{"vdevice": [I.vdevice("llvm"), I.vdevice({{"kind": "cuda"}}, 1)]}})
    @R.function
    def main(x: R.Tensor((2, 3), "float32", "llvm"), y: R.Tensor((2,), vdevice="cuda:1")):
        return x
"""
    mod = parse(text)
    printed = mod.script()
    assert 'I.vdevice("llvm", 0, "global"), I.vdevice({"kind": "cuda"}, 1, "global")' in printed
    assert 'vdevice="llvm:0:global"' in printed and 'vdevice="cuda:1:global"' in printed
    again = parse(printed)
    assert again.script() == printed
    assert_structural_equal(again, mod)


def test_options_of_a_module_are_those_of_its_loop_functions() -> None:
    text = """
from tvm.script import ir as I, tirx as T
@I.ir_module(s_tir={option})
class Module:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        A[0] = T.float32(1)
"""
    body = parse(text.format(option=True))["main"].body
    assert isinstance(body, loops.BlockRealize) and body.block.name == "root"
    assert isinstance(parse(text.format(option=False))["main"].body, loops.BufferStore)


def test_what_a_program_says_not_to_check_is_not_checked() -> None:
    text = """
@R.function
def f(x: R.Tensor((4, 5), "float32")) -> R.Tensor((3,), "float32"):
    return x
"""
    with pytest.raises(DiagnosticError, match="E0207"):
        parse(text)
    unchecked = parse(text.replace("@R.function", "@R.function(check_well_formed=False)"))
    assert unchecked["f"].params[0].name == "x"


def test_a_loop_function_that_only_returns_a_scalar_is_pure() -> None:
    text = """
@I.ir_module
class M:
    @T.prim_func(private=True)
    def double(n: T.int64) -> T.int64:
        return n * 2

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        m = M.double(R.prim_value(n))
        return m
"""
    main = annotate(parse(text))[0]["main"]
    assert isinstance(main, graph.Function) and structural_equal(
        main.ret_ty, types.PrimType("int64")
    )
    with pytest.raises(DiagnosticError, match="has effects"):
        parse(text.replace("n * 2", 'T.call_extern("int64", "f")'))


def test_devices_and_dtypes_are_written_as_tvm_reads_them() -> None:
    mod = parse("""
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    y = R.to_vdevice(x, I.vdevice("cuda", 0))
    s = R.memory.alloc_storage(R.shape([16]), 0, "global", "float32")
    return y
""")
    assert 'dst_vdevice="cuda:0:global"' in mod.script() and 'R.dtype("float32")' in mod.script()
