"""Loop functions that each use a part of TVM's script language, as its wheel reads them."""
# ruff: noqa: E501

from __future__ import annotations

import textwrap

PROGRAMS: dict[str, str] = {}
MATRICES = 'A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")'


def add(name: str, body: str, params: str = MATRICES, deco: str = "@T.prim_func(s_tir=True)") -> None:
    """Add a function with this body."""
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    PROGRAMS[name] = f"{deco}\ndef main({params}):\n{lines}\n"


add("grid_remap", """
for i, j in T.grid(16, 16):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * T.float32(2)
""")
add("tuple_axis", """
for i in range(16):
    with T.sblock("B"):
        vi = T.axis.remap("S", [i])
        B[vi, 0] = A[vi, 0]
""")
add("notes_on_unrolling", """
for i in T.serial(16, unroll=4):
    for j in T.serial(0, 16, unroll=False):
        B[i, j] = A[i, j] + T.float32(1)
for i in T.serial(16, unroll=True, annotations={"x": 1}):
    B[i, 0] = A[i, 0]
""", deco="@T.prim_func")
add("launch_thread", """
bx = T.launch_thread("blockIdx.x", 4)
tx = T.launch_thread("threadIdx.x", 4)
B[bx * 4 + tx, 0] = A[bx * 4 + tx, 0]
""", deco="@T.prim_func")
add("env_thread", """
bx = T.env_thread("blockIdx.x")
tx = T.env_thread("threadIdx.x")
with T.launch_thread(bx, 4):
    with T.launch_thread(tx, 4):
        B[bx * 4 + tx, 0] = A[bx * 4 + tx, 0]
""", deco="@T.prim_func")
add("decl_buffer", """
C = T.decl_buffer((256,), "float32", data=A.data)
for i in range(256):
    B[i // 16, i % 16] = C[i]
""", deco="@T.prim_func")
add("decl_buffer_offset", """
C = T.decl_buffer((4, 16), "float32", data=A.data, elem_offset=32)
for i, j in T.grid(4, 16):
    B[i, j] = C[i, j]
""", deco="@T.prim_func")
add("alloc_in_loop", """
for i in range(16):
    C = T.alloc_buffer((16,), "float32", scope="local")
    for j in range(16):
        C[j] = A[i, j] + T.float32(1)
    for j in range(16):
        B[i, j] = C[j] * C[15 - j]
""", deco="@T.prim_func")
add("attr_pragma", """
with T.attr(0, "pragma_unroll", 1):
    for i in range(16):
        B[i, 0] = A[i, 0]
""", deco="@T.prim_func")
add("attr_stmt", """
T.attr(0, "my_key", 3)
for i in range(16):
    B[i, 0] = A[i, 0]
""", deco="@T.prim_func")
add("annotated_loops", """
for i in T.serial(16, annotations={"pragma_auto_unroll_max_step": 16, "x": "y"}):
    for j in T.vectorized(16):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.sblock_attr({"a": 1, "b": [1, 2], "c": "s"})
            B[vi, vj] = A[vi, vj]
""")
add("thread_binding", """
for i in T.thread_binding(16, thread="blockIdx.x"):
    for j in T.thread_binding(16, thread="threadIdx.x"):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
""")
add("opaque_scan", """
for i, j in T.grid(16, 16):
    with T.sblock("B"):
        vi = T.axis.scan(16, i)
        vj = T.axis.opaque(16, j)
        T.reads(A[vi, vj])
        T.writes(B[vi, vj])
        B[vi, vj] = A[vi, vj]
""")
add("axis_domain", """
for i in range(2, 14):
    with T.sblock("B"):
        vi = T.axis.spatial((2, 14), i)
        B[vi, 0] = A[vi, 1]
""")
add("match_region", """
for i, j in T.grid(4, 4):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        T.reads(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
        T.writes(B[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4])
        SA = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), "float32", offset_factor=1)
        SB = T.match_buffer(B[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), "float32", offset_factor=1)
        for x, y in T.grid(4, 4):
            SB[x, y] = SA[x, y]
""")
add("match_strides", """
for i in range(4):
    with T.sblock("B"):
        vi = T.axis.spatial(4, i)
        T.reads(A[vi * 4:vi * 4 + 4, 0:16])
        T.writes(B[vi * 4:vi * 4 + 4, 0:16])
        SA = T.match_buffer(A[vi * 4:vi * 4 + 4, 0:16], (4, 16), "float32", strides=["s", 1], offset_factor=1)
        T.evaluate(T.call_extern("int32", "f", SA.access_ptr("r"), SA.strides[0], B.data))
""")
add("while_break", """
i = T.alloc_buffer((1,), "int32", scope="local")
i[0] = 0
while i[0] < 16:
    B[i[0], 0] = A[i[0], 0]
    i[0] = i[0] + 1
""", deco="@T.prim_func")
add("break_continue", """
for i in range(16):
    if i == 3:
        continue
    if i == 9:
        break
    B[i, 0] = A[i, 0]
""", deco="@T.prim_func")
add("if_else", """
for i, j in T.grid(16, 16):
    if i < 8 and j >= 4 or i == j:
        B[i, j] = A[i, j]
    elif i > 12:
        B[i, j] = T.float32(1)
    else:
        B[i, j] = T.float32(0)
""", deco="@T.prim_func")
add("let_bind", """
for i in range(16):
    x: T.let = i * 2 % 16
    B[i, 0] = A[x, 0]
""", deco="@T.prim_func")
add("let_expr", """
for i in range(16):
    v = T.int32()
    B[i, 0] = A[i, T.Let(v + v, where={v: i // 2})]
""", deco="@T.prim_func")
add("intrinsics", """
for i, j in T.grid(16, 16):
    B[i, j] = T.exp(A[i, j]) + T.sqrt(T.fabs(A[i, j])) + T.pow(A[i, j], T.float32(2)) + T.tanh(A[i, j]) + T.sigmoid(A[i, j]) + T.erf(A[i, j]) + T.rsqrt(A[i, j])
""", deco="@T.prim_func")
add("intrinsics2", """
for i, j in T.grid(16, 16):
    B[i, j] = T.floor(A[i, j]) + T.ceil(A[i, j]) + T.round(A[i, j]) + T.trunc(A[i, j]) + T.log(A[i, j]) + T.log2(A[i, j]) + T.sin(A[i, j]) + T.cos(A[i, j]) + T.atan(A[i, j]) + T.fmod(A[i, j], T.float32(3))
""", deco="@T.prim_func")
add("int_ops", """
for i in range(16):
    C[i] = T.shift_left(D[i], 2) + T.shift_right(D[i], 1) + T.bitwise_and(D[i], 3) + T.bitwise_or(D[i], 8) + T.bitwise_xor(D[i], 5) + T.bitwise_not(D[i]) + D[i] // 3 + D[i] % 3 + T.truncdiv(D[i], 4) + T.truncmod(D[i], 4)
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("select_cast", """
for i in range(16):
    C[i] = T.Select(D[i] > T.float32(0), T.Cast("int8", D[i]), T.int8(0)) + T.if_then_else(i < 4, T.int8(1), T.int8(-1))
""", params='C: T.Buffer((16,), "int8"), D: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("min_max", """
for i in range(16):
    C[i] = T.max(T.min(D[i], T.max_value("float32")), T.min_value("float32")) + T.infinity("float32")
""", params='C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("symbolic", """
n, m = T.int64(), T.int64()
A = T.match_buffer(a, (n, m), "float32")
B = T.match_buffer(b, (n, m), "float32")
for i, j in T.grid(n, m):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] + T.Cast("float32", n)
""", params="a: T.handle, b: T.handle")
add("symbolic32", """
n = T.int32()
A = T.match_buffer(a, (n, 4), "float32")
B = T.match_buffer(b, (4, n), "float32")
for i, j in T.grid(4, n):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vj, vi]
""", params="a: T.handle, b: T.handle")
add("scalar_params", """
for i in range(16):
    C[i] = D[i] * x + T.Cast("float32", n)
""", params='C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32"), x: T.float32, n: T.int32', deco="@T.prim_func")
add("func_attr", """
T.func_attr({"global_symbol": "main", "tir.noalias": True, "op_pattern": 2, "t": T.target("llvm")})
for i in range(16):
    C[i] = D[i]
""", params='C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("assert_stmt", """
assert n == 16, "n must be sixteen"
for i in range(16):
    C[i] = T.float32(0)
""", params='C: T.Buffer((16,), "float32"), n: T.int32', deco="@T.prim_func")
add("call_extern", """
T.call_extern("int32", "memcpy", C.data, D.data, 64)
T.evaluate(T.call_extern("void", "g", T.address_of(C[3])))
""", params='C: T.Buffer((16,), "float32"), D: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("call_packed", """
T.call_packed("my.func", 1, "text")
""", params='C: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("storage", """
for i in T.thread_binding(16, thread="blockIdx.x"):
    S = T.alloc_buffer((16,), "float32", scope="shared")
    L = T.alloc_buffer((1,), "float32", scope="local")
    for j in T.thread_binding(16, thread="threadIdx.x"):
        S[j] = A[i, j]
        T.tvm_storage_sync("shared")
        L[0] = S[15 - j]
        B[i, j] = L[0]
""", deco="@T.prim_func")
add("dtypes", """
for i in range(16):
    C[i] = T.Cast("float16", D[i]) + T.float16(0.5)
    E[i] = T.bool(True)
    F[i] = T.uint8(255)
    G[i] = T.bfloat16(1.5)
""", params='C: T.Buffer((16,), "float16"), D: T.Buffer((16,), "float64"), E: T.Buffer((16,), "bool"), F: T.Buffer((16,), "uint8"), G: T.Buffer((16,), "bfloat16")', deco="@T.prim_func")
add("float8", """
for i in range(16):
    C[i] = T.Cast("float8_e4m3fn", D[i])
""", params='C: T.Buffer((16,), "float8_e4m3fn"), D: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("buffer_strides", """
for i, j in T.grid(4, 4):
    C[i, j] = T.float32(1)
""", params='C: T.Buffer((4, 4), "float32", strides=(8, 1))', deco="@T.prim_func")
add("buffer_scope", """
A = T.match_buffer(a, (16,), "float32", strides=[1], elem_offset=0, scope="global", align=64, offset_factor=1)
for i in range(16):
    A[i] = T.float32(0)
""", params="a: T.handle", deco="@T.prim_func")
add("zero_dim", """
C[()] = D[()] + T.float32(1)
""", params='C: T.Buffer((), "float32"), D: T.Buffer((), "float32")', deco="@T.prim_func")
add("pointer_param", """
D = T.decl_buffer((16,), "float32", data=p)
for i in range(16):
    C[i] = D[i]
""", params='p: T.handle("float32"), C: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("parallel_step", """
for i in T.parallel(16):
    for j in T.unroll(16):
        for k in T.serial(0, 16):
            B[i, j] = A[i, k]
""", deco="@T.prim_func")
add("loop_step", """
for i in range(0, 16, 4):
    B[i, 0] = A[i, 0]
""", deco="@T.prim_func")
add("serial_step", """
for i in T.serial(0, 16, step=2):
    B[i, 0] = A[i, 0]
""", deco="@T.prim_func")
add("nested_blocks", """
for i in range(4):
    with T.sblock("outer"):
        vi = T.axis.spatial(4, i)
        T.reads(A[vi * 4:vi * 4 + 4, 0:16])
        T.writes(B[vi * 4:vi * 4 + 4, 0:16])
        C = T.sblock_alloc_buffer((4, 16), "float32", scope="local")
        for x, j in T.grid(4, 16):
            with T.sblock("copy"):
                vx, vj = T.axis.remap("SS", [x, j])
                C[vx, vj] = A[vi * 4 + vx, vj]
        for x, j in T.grid(4, 16):
            with T.sblock("inner"):
                vx, vj = T.axis.remap("SS", [x, j])
                B[vi * 4 + vx, vj] = C[vx, vj]
""")
add("root_attr", """
with T.sblock("root"):
    T.reads()
    T.writes()
    T.sblock_attr({"meta_schedule.unroll_explicit": 16})
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            B[vi, 0] = A[vi, 0]
""")
add("unit_axis", """
for i in range(16):
    with T.sblock("B"):
        vi = T.axis.spatial(16, i)
        vj = T.axis.spatial(1, 0)
        B[vi, vj] = A[vi, vj]
""")
add("reduce_tuple", """
for i, k in T.grid(16, 16):
    with T.sblock("argmax"):
        vi, vk = T.axis.remap("SR", [i, k])
        T.reads(A[vi, vk])
        T.writes(I0[vi], V0[vi])
        with T.init():
            I0[vi] = -1
            V0[vi] = T.min_value("float32")
        v_i: T.let = T.Select(V0[vi] >= A[vi, vk], I0[vi], vk)
        v_v: T.let = T.Select(V0[vi] >= A[vi, vk], V0[vi], A[vi, vk])
        I0[vi] = v_i
        V0[vi] = v_v
""", params='A: T.Buffer((16, 16), "float32"), I0: T.Buffer((16,), "int32"), V0: T.Buffer((16,), "float32")')
add("reduce_tuple_of_dtypes", """
for i, k in T.grid(16, 16):
    with T.sblock("argmax"):
        vi, vk = T.axis.remap("SR", [i, k])
        T.reads(A[vi, vk])
        T.writes(I0[vi], V0[vi])
        with T.init():
            I0[vi] = -1
            V0[vi] = T.min_value("float32")
        v_i: T.int32 = T.Select(V0[vi] >= A[vi, vk], I0[vi], vk)
        v_v: T.float32 = T.Select(V0[vi] >= A[vi, vk], V0[vi], A[vi, vk])
        I0[vi] = v_i
        V0[vi] = v_v
""", params='A: T.Buffer((16, 16), "float32"), I0: T.Buffer((16,), "int32"), V0: T.Buffer((16,), "float32")')
add("scalars_of_other_forms", """
for i in range(16):
    B[i, 0] = T.hypot(A[i, 0], A[i, 1]) + (A[i, 2] if A[i, 0] > 0.0 else A[i, 3] if i < 3 else 1.0)
    B[i, 1] = A[i, 0] > 1.0
    I0[i] = T.Not(A[i, 0] > 1.0)
    I0[i] = T.likely(I0[i] > 3)
    I0[i] = I0[i] + T.tvm_warp_shuffle(T.uint32(1), I0[i], 0, 32, 32)
    B[i, 2] = T.tvm_warp_shuffle_up(T.uint32(1), A[i, 0], 1, 32, 32)
    if T.tvm_thread_invariant(A[0, 0] > 1.0):
        B[i, 3] = 0.0
""", params='A: T.Buffer((16, 16), "float32"), I0: T.Buffer((16,), "int32"), B: T.Buffer((16, 16), "float32")', deco="@T.prim_func")
add("likely", """
for i in range(4):
    for j in range(5):
        if T.likely(i * 5 + j < 16):
            B[i * 5 + j, 0] = A[i * 5 + j, 0]
""", deco="@T.prim_func")
add("vload", """
B[0, T.Ramp(0, 1, 8)] = A.vload([0, 0], "float32x8")
""", deco="@T.prim_func")
add("vscale", """
for i in range(4):
    B[i, 0] = T.Cast("float32", T.vscale())
""", deco="@T.prim_func")
add("index_cast", """
for i in range(16):
    B[i, 0] = A[T.Cast("int64", I0[i]), 0]
""", params='A: T.Buffer((16, 16), "float32"), I0: T.Buffer((16,), "int32"), B: T.Buffer((16, 16), "float32")', deco="@T.prim_func")
add("gather", """
for i in range(16):
    with T.sblock("B"):
        vi = T.axis.spatial(16, i)
        T.reads(I0[vi], A[0:16, 0:16])
        T.writes(B[vi, 0:16])
        for j in range(16):
            B[vi, j] = A[I0[vi], j]
""", params='A: T.Buffer((16, 16), "float32"), I0: T.Buffer((16,), "int32"), B: T.Buffer((16, 16), "float32")')
add("negative", """
for i in range(16):
    B[i, 0] = -A[i, 0] + T.float32(-1.5) - T.float32(1e-5) + T.float32(float("inf")) * T.float32(3.4028234663852886e38)
""", deco="@T.prim_func")
add("comparisons", """
for i in range(16):
    C[i] = T.And(A[i, 0] < A[i, 1], T.Not(A[i, 0] == A[i, 2])) or A[i, 0] != A[i, 3]
""", params='A: T.Buffer((16, 16), "float32"), C: T.Buffer((16,), "bool")', deco="@T.prim_func")
add("reinterpret", """
for i in range(16):
    C[i] = T.reinterpret("int32", D[i])
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "float32")', deco="@T.prim_func")
add("return_value", """
return n * n + 1
""", params="n: T.int32", deco="@T.prim_func")
add("ceildiv", """
for i in range(T.ceildiv(n, 4)):
    C[i] = T.float32(0)
""", params='C: T.Buffer((16,), "float32"), n: T.int32', deco="@T.prim_func")
add("thread_allreduce", """
bx = T.launch_thread("blockIdx.x", 16)
tx = T.launch_thread("threadIdx.x", 16)
R = T.alloc_buffer((1,), "float32", scope="local")
with T.attr(T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))):
    T.tvm_thread_allreduce(T.uint32(1), A[bx, tx], T.bool(True), R[0], tx)
B[bx, 0] = R[0]
""", deco="@T.prim_func")
add("mma", """
with T.sblock("root"):
    T.reads()
    T.writes()
    for i in range(1):
        with T.sblock("m"):
            vi = T.axis.spatial(1, i)
            T.reads(A[0:16, 0:16])
            T.writes(B[0:16, 0:16])
            T.evaluate(T.tvm_load_matrix_sync(B.data, 16, 16, 16, 0, A.data, 16, "row_major"))
""")
add("vector_dtype_buffer", """
for i in range(4):
    C[i] = D[i] + T.Broadcast(T.float32(1), 4)
""", params='C: T.Buffer((4,), "float32x4"), D: T.Buffer((4,), "float32x4")', deco="@T.prim_func")
add("clz_popcount", """
for i in range(16):
    C[i] = T.popcount(D[i]) + T.clz(D[i])
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("floats_bit_by_bit", """
for i in range(16):
    A[i] = T.nextafter(A[i], T.float32(0)) + T.ldexp(A[i], D[i]) + T.ldexp(A[i], 3)
    D[i] = T.q_multiply_shift_per_axis(D[i], 5, D[i], 1, 31, T.bool(True), T.bool(True))
""", params='A: T.Buffer((16,), "float32"), D: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("q_multiply", """
for i in range(16):
    C[i] = T.q_multiply_shift(D[i], 1073741824, 31, 1)
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("nodes_by_their_names", """
for i in range(16):
    D[i] = T.BitwiseAnd(C[i], T.i32(12)) + T.BitwiseOr(C[i], 1) + T.BitwiseXor(C[i], T.IntImm("int32", 3))
    D[i] = T.LShift(D[i], 2) + T.RShift(C[i], 1)
    if T.boolean(True):
        E[i] = T.f32(1.5) * s + T.FloatImm("float32", 2.0)
    j: T.i32 = C[i]
    x = T.Bind(j + 1)
    D[i] = x
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32"), E: T.Buffer((16,), "float32"), s: T.f32', deco="@T.prim_func")
add("jumps_by_their_names", """
for i in range(16):
    if C[i] > 3:
        T.Continue()
    if C[i] > 5:
        T.Break()
    D[i] = C[i]
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("warp_shuffle_xor", """
tx = T.launch_thread("threadIdx.x", 16)
D[tx] = T.tvm_warp_shuffle_xor(T.uint32(1), C[tx], 1, 32, 32)
""", params='C: T.Buffer((16,), "int32"), D: T.Buffer((16,), "int32")', deco="@T.prim_func")

add("return_in_branches", """
if n > 3:
    return C[0]
if n > 2:
    C[1] = n
else:
    return n + 5
return C[1] * 2
""", params='n: T.int32, C: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("several_values_together", """
bx = T.launch_thread("blockIdx.x", 16)
tx = T.launch_thread("threadIdx.x", 16)
R = T.alloc_buffer((2,), "float32", scope="local")
with T.attr(T.comm_reducer(lambda a, b, c, d: (a + c, b * d), [T.float32(0), T.float32(1)]), "reduce_scope", T.reinterpret("handle", T.uint64(0))):
    T.tvm_thread_allreduce(T.uint32(2), A[bx, tx], A[bx, tx], T.bool(True), R[0], R[1], tx)
B[bx, 0] = R[0] + R[1]
""", deco="@T.prim_func")
add("attribute_of_memory", """
C = T.alloc_buffer((16,), "float32")
with T.attr(C.data, "double_buffer_scope", 1):
    for i in range(16):
        C[i] = A[i, 0]
B[0, 0] = C[3]
""", deco="@T.prim_func")
add("reduction_onto_an_argument", """
for i, k in T.grid(16, 16):
    with T.sblock("update"):
        vi, vk = T.axis.remap("SR", [i, k])
        B[vi, 0] = B[vi, 0] + A[vi, vk]
""")
add("axis_beyond_its_loop", """
for i in range(8):
    with T.sblock("B"):
        vi = T.axis.spatial(16, i)
        B[vi, 0] = A[vi, 0]
""")
add("lanes_of_vectors", """
V[0] = T.Shuffle([A[0, 0], A[0, 1], A[0, 2], A[0, 3]], [3, 2, 1, 0])
A[1, 0] = T.Shuffle([V[0]], [2])
""", params='A: T.Buffer((16, 16), "float32"), V: T.Buffer((4,), "float32x4")', deco="@T.prim_func")
add("attribute_of_a_thread_axis", """
with T.attr(T.iter_var(T.int32(), (0, 4), "ThreadIndex", "vthread"), "virtual_thread", 4):
    B[0, 0] = A[0, 0]
""", deco="@T.prim_func")
add("field_of_a_structure", """
n: T.let[T.int32] = T.tvm_struct_get(p, 0, 13, "int32")
C[0] = n
""", params='p: T.handle, C: T.Buffer((16,), "int32")', deco="@T.prim_func")
add("offset_without_a_name", """
C = T.match_buffer(c, (16, 16), "float32", strides=["s", 1], elem_offset=T.int32())
for i, j in T.grid(16, 16):
    with T.sblock("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = T.float32(0)
""", params="c: T.handle")
add("strides_of_a_dense_view", """
C = T.decl_buffer((8, 32), "float32", data=A.data, strides=(32, 1))
B[0, 0] = C[3, 5]
""", deco="@T.prim_func")

UNTRUE = {
    "reduction_onto_an_argument": "has no value yet",
    "axis_beyond_its_loop": "only goes from 0 to 7",
}
"""The programs that claim what is not true, which TVM reads, and a part of the warning."""
DIFFERENT = {
    "match_strides": "an access pointer is an address",
    "func_attr": "TVM prints all that it knows about a target",
    "buffer_scope": "TVM leaves out an offset of 0",
    "negative": "TVM folds a product of infinity",
    "offset_without_a_name": "the symbol has another name",
}
"""The programs that TVM prints in another form, and how."""
