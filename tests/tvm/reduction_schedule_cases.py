"""Steps of schedules of reductions, of one value and of several together, of blocks in blocks, and of
values with several readers, that TVM and relaxlab are to make alike: as `schedule_cases`."""
# ruff: noqa: E501

from __future__ import annotations

PROGRAMS: dict[str, str] = {}
PROGRAMS["argmax"] = """
@T.prim_func(s_tir=True)
def main(idx: T.Buffer((128, 128), "int32"), val: T.Buffer((128, 128), "float32"), ai: T.Buffer((128,), "int32"), av: T.Buffer((128,), "float32")):
    for i, k in T.grid(128, 128):
        with T.sblock("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(idx[vi, vk], val[vi, vk])
            T.writes(ai[vi], av[vi])
            with T.init():
                ai[vi] = -1
                av[vi] = T.min_value("float32")
            v_ai: T.let = T.Select(av[vi] >= val[vi, vk], ai[vi], idx[vi, vk])
            v_av: T.let = T.Select(av[vi] >= val[vi, vk], av[vi], val[vi, vk])
            ai[vi] = v_ai
            av[vi] = v_av
"""
PROGRAMS["meanvar"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 256), "float32"), S: T.Buffer((16,), "float32"), Q: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 256):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(A[vi, vk])
            T.writes(S[vi], Q[vi])
            with T.init():
                S[vi] = T.float32(0)
                Q[vi] = T.float32(0)
            a: T.let = S[vi] + A[vi, vk]
            b: T.let = Q[vi] + A[vi, vk] * A[vi, vk]
            S[vi] = a
            Q[vi] = b
"""
PROGRAMS["square_sum"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((16, 256, 256), "float32"), D: T.Buffer((16,), "float32")):
    C = T.sblock_alloc_buffer((16,), "float32")
    for b0, i0, j0 in T.grid(16, 256, 256):
        with T.sblock("C"):
            b, i, j = T.axis.remap("SRR", [b0, i0, j0])
            with T.init():
                C[b] = 0.0
            C[b] = C[b] + A[b, i, j] * A[b, i, j]
    for b0 in range(16):
        with T.sblock("D"):
            b = T.axis.S(16, b0)
            D[b] = T.sqrt(C[b])
"""
PROGRAMS["bmm"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 32, 32), "float32"), B: T.Buffer((4, 32, 32), "float32"), C: T.Buffer((4, 32, 32), "float32")):
    for b, i, j, k in T.grid(4, 32, 32, 32):
        with T.sblock("C"):
            vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
            with T.init():
                C[vb, vi, vj] = T.float32(0)
            C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vb, vk, vj]
"""
PROGRAMS["nested"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 16:vi * 16 + 16, vj * 16:vj * 16 + 16])
            T.writes(B[vi * 16:vi * 16 + 16, vj * 16:vj * 16 + 16])
            for x, y in T.grid(16, 16):
                with T.sblock("inner"):
                    vx, vy = T.axis.remap("SS", [x, y])
                    B[vi * 16 + vx, vj * 16 + vy] = A[vi * 16 + vx, vj * 16 + vy] + T.float32(1)
"""
PROGRAMS["multi"] = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), D: T.Buffer((128, 128), "float32"), E: T.Buffer((128, 128), "float32")):
    B = T.sblock_alloc_buffer((128, 128), "float32")
    C = T.sblock_alloc_buffer((128, 128), "float32")
    for i, j in T.grid(128, 128):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i, j in T.grid(128, 128):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1.0
    for i, j in T.grid(128, 128):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] * B[vi, vj]
    for i, j in T.grid(128, 128):
        with T.sblock("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = B[vj, vi]
"""
CASES: tuple[tuple[str, str], ...] = (
    ('argmax', 'i,k=sch.get_loops("argmax"); a,b=sch.split(k,[None,32]); sch.rfactor(a,0)'),
    ('argmax', 'i,k=sch.get_loops("argmax"); a,b=sch.split(k,[None,32]); sch.rfactor(b,1)'),
    ('argmax', 'i,k=sch.get_loops("argmax"); sch.decompose_reduction("argmax",k)'),
    ('meanvar', 'i,k=sch.get_loops("s"); a,b=sch.split(k,[None,32]); sch.rfactor(b,0)'),
    ('meanvar', 'i,k=sch.get_loops("s"); sch.bind(i,"blockIdx.x"); a,b=sch.split(k,[None,32]); sch.bind(b,"threadIdx.x")'),
    ('square_sum', 'b,i,j=sch.get_loops("C"); f=sch.fuse(i,j); a,c=sch.split(f,[None,32]); r=sch.rfactor(c,0); print(sch.get(r).name_hint)'),
    ('square_sum', 'b,i,j=sch.get_loops("C"); r=sch.rfactor(j,1); sch.reverse_compute_at("C", sch.get_loops(r)[0])'),
    ('square_sum', 'b,i,j=sch.get_loops("C"); sch.rfactor(i,0)'),
    ('square_sum', 'b,i,j=sch.get_loops("C"); sch.compute_at("C", sch.get_loops("D")[0])'),
    ('square_sum', 'sch.reverse_compute_at("D", sch.get_loops("C")[0])'),
    ('square_sum', 'sch.rfactor(sch.get_loops("C")[0], 0)'),
    ('square_sum', 'b,i,j=sch.get_loops("C"); sch.rfactor(j, -1); '),
    ('square_sum', 'b,i,j=sch.get_loops("C"); sch.rfactor(j, 2)'),
    ('square_sum', 'b,i,j=sch.get_loops("C"); sch.rfactor(j, 5)'),
    ('bmm', 'b,i,j,k=sch.get_loops("C"); sch.cache_write("C",0,"local"); sch.cache_read("C",0,"shared"); sch.cache_read("C",1,"shared"); a,c=sch.split(i,[None,8]); sch.reverse_compute_at("C_local", a)'),
    ('bmm', 'sch.pad_einsum("C",[1,32,32,64])'),
    ('bmm', 'sch.transform_layout("C",("read",0),lambda b,i,k:(b,i//8,k,i%8))'),
    ('bmm', 'sch.transform_layout("C",("write",0),lambda b,i,k:(b*32+i,k))'),
    ('bmm', 'sch.transform_block_layout("C",lambda b,i,j,k:(b*32+i,j,k))'),
    ('bmm', 'sch.reindex("C",("read",0)); sch.reindex("C",("read",1)); sch.reindex("C",("write",0))'),
    ('bmm', 'sch.reorder_block_iter_var(sch.get_sblock("C"),[3,2,1,0])'),
    ('bmm', 'b,i,j,k=sch.get_loops("C"); x=sch.blockize(j); sch.annotate(x,"a",1)'),
    ('bmm', 'b,i,j,k=sch.get_loops("C"); a,c=sch.split(i,[None,8]); d,e=sch.split(j,[None,8]); f,g=sch.split(k,[None,8]); sch.reorder(b,a,d,f,c,e,g); x=sch.blockize(c); sch.decompose_reduction(x,f)'),
    ('nested', 'i,j=sch.get_loops("outer"); x,y=sch.get_loops("inner"); print(len(sch.get_loops("inner"))); sch.split(x,[None,4])'),
    ('nested', 'x,y=sch.get_loops("inner"); sch.reorder(y,x); sch.vectorize(x)'),
    ('nested', 'x,y=sch.get_loops("inner"); sch.fuse(x,y)'),
    ('nested', 'i,j=sch.get_loops("outer"); sch.cache_read("outer",0,"shared"); print([sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("outer"))])'),
    ('nested', 'print([sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_loops("outer")[0])])'),
    ('nested', 'i,j=sch.get_loops("outer"); sch.fuse(i,j); sch.bind(sch.get_loops("outer")[0],"blockIdx.x")'),
    ('multi', 'sch.compute_inline("B")'),
    ('multi', 'sch.compute_inline("C"); sch.compute_inline("B")'),
    ('multi', 'sch.compute_at("C", sch.get_loops("D")[1])'),
    ('multi', 'sch.compute_at("B", sch.get_loops("D")[0])'),
    ('multi', 'sch.cache_read("D",1,"local",[sch.get_sblock("D")])'),
    ('multi', 'sch.cache_read("C",0,"local",["C","D"])'),
    ('multi', 'sch.cache_read("C",0,"local",["E"])'),
    ('multi', 'sch.cache_write("B",0,"local",consumer_blocks=["C"])'),
    ('multi', 'sch.cache_write("B",0,"local")'),
    ('multi', 'sch.set_scope("B",0,"shared"); sch.storage_align("B",0,0,16,2)'),
    ('multi', 'sch.set_scope("B","B","shared.dyn")'),
    ('multi', 'sch.set_scope("E",0,"shared")'),
    ('multi', 'sch.unsafe_set_dtype("B",0,"float16")'),
    ('multi', 'i,j=sch.get_loops("B"); sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])'),
    ('multi', 'sch.reindex_cache_read("D",1,"shared",lambda i,j:(j,i))'),
    ('multi', 'sch.reindex_cache_write("B",0,"shared",lambda i,j:(i*128+j,))'),
    ('multi', 'sch.reindex_cache_read("C",0,"local",lambda i,j:(i//4,i%4,j))'),
    ('multi', 'i,j=sch.get_loops("B"); sch.annotate(i,"x",{"a":1,"b":"c"})'),
    ('multi', 'b=sch.get_sblock("B"); sch.annotate(b,"y",[1,2,3]); sch.unannotate(b,"y"); sch.annotate(b,"z",True)'),
    ('multi', 'b=sch.get_sblock("B"); sch.unannotate(b,"nope")'),
    ('multi', 'b=sch.get_sblock("nope")'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[16,16],preserve_unit_iters=False)'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[1,128],preserve_unit_iters=False)'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[2])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[128])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[None])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[-1,4])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[0,4])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.split(i,[None,256])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.fuse(i)'),
    ('multi', 'i,j=sch.get_loops("B"); sch.reorder(i,i)'),
    ('multi', 'i,j=sch.get_loops("B"); sch.reorder(i)'),
    ('multi', 'i,j=sch.get_loops("B"); sch.reorder(j, sch.get_loops("C")[0])'),
    ('multi', 'i,j=sch.get_loops("B"); sch.bind(i,"blockIdx.x"); sch.bind(j,"blockIdx.x")'),
    ('multi', 'i,j=sch.get_loops("B"); sch.bind(i,"vthread"); sch.bind(j,"threadIdx.z")'),
    ('multi', 'i,j=sch.get_loops("B"); sch.parallel(j); sch.unroll(i)'),
    ('multi', 'i,j=sch.get_loops("B"); sch.vectorize(i)'),
    ('multi', 'sch.read_at(sch.get_loops("C")[0], sch.get_sblock("C"), 0, "shared")'),
    ('multi', 'sch.write_at(sch.get_loops("B")[0], sch.get_sblock("B"), 0, "shared")'),
)

DIFFERENT = (
    ("square_sum", "sch.fuse(i,j)", "the form of a remainder"),
)
"""The cases in which relaxlab differs, by program and a part of the steps, and how."""
