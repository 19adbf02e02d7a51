"""Steps on blocks inside of blocks, axes of one value and fused loops, which TVM and relaxlab are to make
alike: as `schedule_cases`, of which this is a part."""
# ruff: noqa: E501

from __future__ import annotations

BLOCKS = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    B = T.sblock_alloc_buffer((128, 128), "float32")
    for i, j in T.grid(8, 8):
        with T.sblock("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            for a, b in T.grid(16, 16):
                with T.sblock("B"):
                    va = T.axis.spatial(128, vi * 16 + a)
                    vb = T.axis.spatial(128, vj * 16 + b)
                    B[va, vb] = A[va, vb] * T.float32(2)
    for i, j in T.grid(128, 128):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
"""

INSIDE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    for i, j in T.grid(8, 8):
        with T.sblock("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi * 16: vi * 16 + 16, vj * 16: vj * 16 + 16])
            T.writes(C[vi * 16: vi * 16 + 16, vj * 16: vj * 16 + 16])
            B = T.sblock_alloc_buffer((128, 128), "float32")
            for a, b in T.grid(16, 16):
                with T.sblock("B"):
                    va, vb = T.axis.remap("SS", [a, b])
                    B[vi * 16 + va, vj * 16 + vb] = A[vi * 16 + va, vj * 16 + vb] * T.float32(2)
            for a, b in T.grid(16, 16):
                with T.sblock("C"):
                    va, vb = T.axis.remap("SS", [a, b])
                    C[vi * 16 + va, vj * 16 + vb] = B[vi * 16 + va, vj * 16 + vb] + T.float32(1)
"""

UNIT = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((1, 64, 32), "float32"), B: T.Buffer((1, 32, 48), "float32"), C: T.Buffer((1, 64, 48), "float32")):
    for n, i, j, k in T.grid(1, 64, 48, 32):
        with T.sblock("C"):
            vn, vi, vj, vk = T.axis.remap("SSSR", [n, i, j, k])
            with T.init():
                C[vn, vi, vj] = T.float32(0)
            C[vn, vi, vj] = C[vn, vi, vj] + A[vn, vi, vk] * B[vn, vk, vj]
"""

CONV_PADDED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((1, 8, 14, 14), "float32"), W: T.Buffer((16, 8, 3, 3), "float32"), Y: T.Buffer((1, 16, 14, 14), "float32")):
    P = T.sblock_alloc_buffer((1, 8, 16, 16), "float32")
    for n, c, h, w in T.grid(1, 8, 16, 16):
        with T.sblock("P"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            P[vn, vc, vh, vw] = T.if_then_else(1 <= vh and vh < 15 and 1 <= vw and vw < 15, A[vn, vc, vh - 1, vw - 1], T.float32(0))
    for n, f, h, w, c, r, s in T.grid(1, 16, 14, 14, 8, 3, 3):
        with T.sblock("Y"):
            vn, vf, vh, vw, vc, vr, vs = T.axis.remap("SSSSRRR", [n, f, h, w, c, r, s])
            with T.init():
                Y[vn, vf, vh, vw] = T.float32(0)
            Y[vn, vf, vh, vw] = Y[vn, vf, vh, vw] + P[vn, vc, vh + vr, vw + vs] * W[vf, vc, vr, vs]
"""

SHIFTED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32"), E: T.Buffer((64, 64), "float32")):
    B = T.sblock_alloc_buffer((128, 128), "float32")
    for i, j in T.grid(64, 64):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi + 32, vj] = A[vi + 16, vj] * T.float32(2)
    for i, j in T.grid(64, 64):
        with T.sblock("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = B[vi + 32, vj] + T.float32(1)
    for i, j in T.grid(128, 128):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + T.float32(1)
"""

RED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    for i, j, k in T.grid(8, 8, 8):
        with T.sblock("outer"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi * 16: vi * 16 + 16, vk * 16: vk * 16 + 16], B[vj * 16: vj * 16 + 16, vk * 16: vk * 16 + 16])
            T.writes(C[vi * 16: vi * 16 + 16, vj * 16: vj * 16 + 16])
            with T.init():
                for a, b in T.grid(16, 16):
                    with T.sblock("init"):
                        va, vb = T.axis.remap("SS", [a, b])
                        C[vi * 16 + va, vj * 16 + vb] = T.float32(0)
            for a, b, c in T.grid(16, 16, 16):
                with T.sblock("upd"):
                    va, vb, vc = T.axis.remap("SSR", [a, b, c])
                    C[vi * 16 + va, vj * 16 + vb] = C[vi * 16 + va, vj * 16 + vb] + A[vi * 16 + va, vk * 16 + vc] * B[vj * 16 + vb, vk * 16 + vc]
"""

TWO_LOOPS = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((12, 20), "float32"), C: T.Buffer((12, 20), "float32")):
    for i, j in T.grid(12, 20):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
"""

THREE_LOOPS = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 8, 8), "float32"), C: T.Buffer((8, 8, 8), "float32")):
    for i, j, k in T.grid(8, 8, 8):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            C[vi, vj, vk] = A[vi, vj, vk] * T.float32(2)
"""

TILED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((8, 8, 16, 16), "float32")):
    B = T.sblock_alloc_buffer((128, 128), "float32")
    for i, j in T.grid(128, 128):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j, k, l in T.grid(8, 8, 16, 16):
        with T.sblock("C"):
            vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
            C[vi, vj, vk, vl] = B[vi * 16 + vk, vj * 16 + vl] + T.float32(1)
"""

FLAT = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((16384,), "float32")):
    B = T.sblock_alloc_buffer((16384,), "float32")
    for i, j in T.grid(128, 128):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * 128 + vj] = A[vi, vj] * T.float32(2)
    for i in T.grid(16384):
        with T.sblock("C"):
            vi = T.axis.spatial(16384, i)
            C[vi] = B[vi] + T.float32(1)
"""

PACKED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((8, 8, 16, 16), "float32")):
    B = T.sblock_alloc_buffer((8, 8, 16, 16), "float32")
    for i, j in T.grid(128, 128):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi // 16, vj // 16, vi % 16, vj % 16] = A[vi, vj] * T.float32(2)
    for i, j, k, l in T.grid(8, 8, 16, 16):
        with T.sblock("C"):
            vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
            C[vi, vj, vk, vl] = B[vi, vj, vk, vl] + T.float32(1)
"""

UNPACKED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    B = T.sblock_alloc_buffer((8, 8, 16, 16), "float32")
    for i, j, k, l in T.grid(8, 8, 16, 16):
        with T.sblock("B"):
            vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
            B[vi, vj, vk, vl] = A[vi * 16 + vk, vj * 16 + vl] * T.float32(2)
    for i, j in T.grid(128, 128):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi // 16, vj // 16, vi % 16, vj % 16] + T.float32(1)
"""

REVERSED = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((64, 64), "float32"), D: T.Buffer((64, 64), "float32")):
    B = T.sblock_alloc_buffer((64, 64), "float32")
    C = T.sblock_alloc_buffer((64, 64), "float32")
    for i, j in T.grid(64, 64):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(64, 64):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + A[vi, vj]
    for i, j in T.grid(64, 64):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], B[vi, 63 - vj])
"""

PROGRAMS = {
    "blocks": BLOCKS,
    "inside": INSIDE,
    "unit": UNIT,
    "conv_padded": CONV_PADDED,
    "shifted": SHIFTED,
    "red": RED,
    "two_loops": TWO_LOOPS,
    "three_loops": THREE_LOOPS,
    "tiled": TILED,
    "flat": FLAT,
    "packed": PACKED,
    "unpacked": UNPACKED,
    "reversed": REVERSED,
}

_MATMUL = (
    'x=sch.split(i,[None,2,16,2]); y=sch.split(j,[None,2,16,2]); z=sch.split(k,[None,8,1]); sch.reorder(x[0],y[0],x[1],y[1],x[2],y[2],z[0],z[1],x[3],y[3],z[2]); sch.bind(sch.fuse(x[0],y[0]),"blockIdx.x"); sch.bind(sch.fuse(x[1],y[1]),"vthread.x"); t=sch.fuse(x[2],y[2]); sch.bind(t,"threadIdx.x"); c=sch.cache_write(b,0,"local"); sch.reverse_compute_at(c,t,preserve_unit_loops=True); sch.decompose_reduction(b,z[0])',
    'x=sch.split(i,[None,2,16,2]); y=sch.split(j,[None,2,16,2]); z=sch.split(k,[None,8,1]); sch.reorder(x[0],y[0],x[1],y[1],x[2],y[2],z[0],z[1],x[3],y[3],z[2]); sch.bind(sch.fuse(x[0],y[0]),"blockIdx.x"); sch.bind(sch.fuse(x[1],y[1]),"vthread.x"); t=sch.fuse(x[2],y[2]); sch.bind(t,"threadIdx.x"); r=sch.cache_read(b,0,"shared"); sch.compute_at(r,z[0],preserve_unit_loops=True); f=sch.fuse(*sch.get_loops(r)[-2:]); p=sch.split(f,[None,256,2]); sch.bind(p[1],"threadIdx.x"); sch.vectorize(p[2])',
    'x=sch.split(i,[None,2,16,2]); y=sch.split(j,[None,2,16,2]); sch.reorder(x[0],y[0],x[1],y[1],x[2],y[2],k,x[3],y[3]); f=sch.fuse(x[0],y[0],x[1],y[1]); sch.parallel(f)',
    'x=sch.split(i,[None,16]); y=sch.split(j,[None,16]); sch.reorder(x[0],y[0],x[1],y[1],k); f=sch.fuse(x[0],y[0]); g=sch.fuse(x[1],y[1]); sch.bind(f,"blockIdx.x"); sch.bind(g,"threadIdx.x"); a=sch.cache_read(b,0,"shared"); sch.compute_at(a,f); h=sch.fuse(*sch.get_loops(a)[1:]); p=sch.split(h,[None,256]); sch.bind(p[1],"threadIdx.x")',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); sch.bind(x[0],"blockIdx.x"); sch.bind(x[1],"threadIdx.x"); sch.decompose_reduction(b,k)',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); c=sch.cache_write(b,0,"local"); sch.reverse_compute_at(c,x[1])',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); c=sch.cache_write(b,0,"local"); sch.reverse_compute_at(c,x[0])',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); a=sch.cache_read(b,0,"local"); sch.compute_at(a,x[0])',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); a=sch.cache_read(b,0,"local"); sch.compute_at(a,x[1])',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); y=sch.split(k,[None,8]); sch.rfactor(y[1],0)',
    'f=sch.fuse(i,j); x=sch.split(f,[None,256]); sch.reorder(x[1],x[0],k)',
    'f=sch.fuse(i,j); x=sch.split(f,[None,100]); sch.decompose_reduction(b,k)',
    'f=sch.fuse(i,j); x=sch.split(f,[None,100]); sch.parallel(x[0]); sch.vectorize(x[1])',
    'f=sch.fuse(i,j); x=sch.split(f,[None,64]); sch.transform_layout(b,("write",0),lambda i,j:(i//4,j,i%4))',
    'x=sch.split(i,[None,32]); y=sch.split(j,[None,32]); z=sch.split(k,[None,4]); sch.reorder(x[0],y[0],z[0],z[1],x[1],y[1]); sch.vectorize(y[1]); d=sch.decompose_reduction(b,z[0])',
    'x=sch.split(i,[None,32]); y=sch.split(j,[None,32]); z=sch.split(k,[None,4]); sch.reorder(x[0],y[0],z[0],x[1],z[1],y[1]); p=sch.transform_layout(b,("read",1),lambda i,j:(j//32,i,j%32)); sch.vectorize(y[1]); sch.decompose_reduction(b,z[0])',
    'a=sch.reindex(b,("read",0)); c=sch.reindex(b,("read",1)); d=sch.reindex(b,("write",0)); sch.transform_layout(b,("read",0),lambda i,k:(i,k)); sch.transform_block_layout(b,lambda i,j,k:(i//16,j//16,k//16,i%16,j%16,k%16))',
    'x=sch.split(i,[None,16]); y=sch.split(j,[None,16]); z=sch.split(k,[None,16]); sch.reorder(x[0],y[0],z[0],x[1],y[1],z[1]); o=sch.blockize(x[1]); sch.annotate(o,"warp",True); a=sch.cache_read(o,0,"shared"); sch.compute_at(a,z[0]); c=sch.cache_read(o,1,"shared"); sch.compute_at(c,z[0]); d=sch.decompose_reduction(o,z[0])',
    'x=sch.split(i,[None,16]); y=sch.split(j,[None,16]); z=sch.split(k,[None,16]); sch.reorder(x[0],y[0],z[0],x[1],y[1],z[1]); o=sch.blockize(x[1]); w=sch.cache_write(o,0,"wmma.accumulator"); sch.reverse_compute_at(w,y[0]); l=sch.get_loops(w); print(len(l)); sch.blockize(l[2])',
    'f=sch.fuse(i,j); x=sch.split(k,[None,32]); sch.bind(f,"blockIdx.x"); sch.bind(x[1],"threadIdx.x")',
    'r=sch.read_at(k,b,0,"shared")',
    'r=sch.read_at(j,b,1,"shared"); w=sch.write_at(j,b,0,"local")',
    'x=sch.split(i,[8,16]); y=sch.split(j,[8,16]); sch.reorder(x[0],y[0],x[1],y[1]); r=sch.read_at(y[0],b,0,"shared"); q=sch.read_at(y[0],b,1,"shared"); w=sch.write_at(y[0],b,0,"shared")',
    'x=sch.split(i,[8,16]); y=sch.split(j,[8,16]); z=sch.split(k,[8,16]); sch.reorder(x[0],y[0],z[0],x[1],y[1],z[1]); r=sch.read_at(z[0],b,0,"shared.dyn")',
    'sch.annotate(b,"x",1); sch.decompose_reduction(b,k)',
    'sch.annotate(b,"x",1); x=sch.split(k,[None,8]); r=sch.rfactor(x[1],0)',
    'sch.annotate(b,"x",1); x=sch.split(k,[None,8]); r=sch.rfactor(x[0],0)',
    'sch.annotate(b,"x",1); sch.blockize(j)',
    'sch.annotate(b,"x",1); sch.cache_write(b,0,"local")',
    'sch.annotate(b,"x",1); sch.pad_einsum(b,[100,100,100])',
    'sch.annotate(b,"x",1); sch.reindex(b,("read",0))',
    'sch.annotate(b,"x",1); sch.transform_block_layout(b,lambda i,j,k:(j,i,k))',
    'sch.annotate(i,"x",1); sch.split(i,[2,64])',
    'sch.annotate(i,"x",1); sch.fuse(i,j)',
    'sch.annotate(i,"x",1); sch.reorder(j,i)',
    'sch.parallel(i); sch.decompose_reduction(b,k)',
    'sch.parallel(i); sch.vectorize(j); sch.decompose_reduction(b,i)',
    'sch.annotate(i,"x",1); sch.decompose_reduction(b,i)',
    'sch.annotate(j,"x",1); sch.decompose_reduction(b,i)',
    'sch.annotate(j,"x",1); r=sch.rfactor(k,0)',
    'sch.unroll(j); sch.blockize(j)',
    'sch.annotate(j,"x",1); sch.blockize(j)',
    'sch.annotate(i,"x",1); sch.pad_einsum(b,[100,100,100])',
    'sch.parallel(i); sch.pad_einsum(b,[100,100,100])',
    'sch.parallel(i); sch.transform_block_layout(b,lambda i,j,k:(j,i,k))',
    'c=sch.cache_read(b,0,"shared.dyn"); print(sch.get(c).name_hint); sch.get_sblock("A_shared.dyn")',
    'c=sch.cache_write(b,0,"wmma.accumulator"); print(sch.get(c).name_hint); sch.get_sblock("C_wmma.accumulator")',
    'c=sch.cache_read(b,0,"shared"); d=sch.cache_read(b,0,"local"); print(sch.get(c).name_hint,sch.get(d).name_hint)',
    'c=sch.cache_read(b,0,"global"); d=sch.cache_read(b,0,"global"); print(sch.get(c).name_hint,sch.get(d).name_hint)',
    'r=sch.reindex(b,("read",0)); print(sch.get(r).name_hint)',
    'x=sch.split(k,[None,8]); r=sch.rfactor(x[1],0); print(sch.get(r).name_hint, sch.get(b).name_hint)',
    'd=sch.decompose_reduction(b,k); print(sch.get(d).name_hint, sch.get(b).name_hint)',
    'o=sch.blockize(j); print(sch.get(o).name_hint, sch.get(b).name_hint)',
    'c=sch.reindex_cache_read(b,0,"shared.dyn",lambda i,j,k:(k,i)); print(sch.get(c).name_hint)',
    'c=sch.cache_inplace(b,0,"shared"); print(c)',
    'x=sch.split(i,[None,4]); print([sch.get(q).loop_var.name for q in x]); f=sch.fuse(*x); print(sch.get(f).loop_var.name)',
    'u=sch.add_unit_loop(i); print(sch.get(u).loop_var.name)',
    'r=sch.reindex(b,("read",0)); print([sch.get(q).loop_var.name for q in sch.get_loops(r)])',
    'r=sch.read_at(j,b,0,"shared"); print(sch.get(r).name_hint)',
    'sch.pad_einsum(b,[100,100,100]); print([sch.get(q).name_hint for q in sch.get_child_blocks(sch.get_sblock("root"))])',
    'sch.reorder(i,k,j); sch.bind(j,"threadIdx.x"); sch.decompose_reduction(b,k)',
    'sch.reorder(i,k,j); sch.parallel(j); sch.decompose_reduction(b,k)',
    'sch.reorder(i,k,j); sch.unroll(j); sch.decompose_reduction(b,k)',
    'sch.bind(i,"blockIdx.x"); sch.bind(j,"threadIdx.x"); sch.decompose_reduction(b,i)',
    'sch.bind(i,"blockIdx.x"); sch.bind(j,"threadIdx.x"); sch.rfactor(k,0)',
    'sch.unroll(j); sch.rfactor(k,0)',
    'sch.vectorize(j); sch.rfactor(k,0)',
    'sch.parallel(i); x=sch.split(k,[None,8]); sch.unroll(x[0]); sch.rfactor(x[1],0)',
    'sch.bind(i,"blockIdx.x"); sch.bind(j,"threadIdx.x"); sch.pad_einsum(b,[100,100,100])',
    'sch.bind(i,"blockIdx.x"); sch.bind(j,"threadIdx.x"); sch.blockize(j)',
    'sch.parallel(i); sch.transform_block_layout(b,lambda i,j,k:(j,i,k))',
    'sch.vectorize(j); sch.blockize(i)',
)
_LOOPS = 'b=sch.get_sblock("C"); i,j,k=sch.get_loops(b); '

CASES: tuple[tuple[str, str], ...] = (
    ("blocks", 'sch.cache_read("B", 0, "shared")'),
    ("blocks", 'sch.cache_read("C", 0, "shared")'),
    ("blocks", 'sch.cache_write("C", 0, "shared")'),
    ("blocks", 'sch.cache_write("outer", 0, "shared")'),
    ("blocks", 'sch.cache_read("outer", 0, "shared")'),
    ("blocks", 'l=sch.get_loops("outer"); sch.fuse(*l)'),
    ("blocks", 'print([sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("outer"))], [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))])'),
    ("blocks", 'print([sch.get(b).name_hint for b in sch.get_consumers("outer")],[sch.get(b).name_hint for b in sch.get_producers("C")], [sch.get(b).name_hint for b in sch.get_consumers("B")])'),
    ("inside", 'sch.cache_read("B", 0, "shared")'),
    ("inside", 'sch.cache_read("C", 0, "shared")'),
    ("inside", 'sch.cache_write("B", 0, "local")'),
    ("inside", 'sch.cache_write("C", 0, "local")'),
    ("inside", 'sch.cache_read("outer", 0, "local")'),
    ("inside", 'sch.cache_write("outer", 0, "local")'),
    ("inside", 'l=sch.get_loops("outer"); sch.blockize(l[1])'),
    ("inside", 'sch.reindex("B",("read",0))'),
    ("inside", 'sch.reindex("C",("write",0))'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[1], preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[1], preserve_unit_iters=True)'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[0], preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[0], preserve_unit_iters=True)'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[2], preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[3], preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.blockize(l[3], preserve_unit_iters=True)'),
    ("unit", 'l=sch.get_loops("C"); a,b=sch.split(l[1],[4,16]); c,d=sch.split(l[2],[3,16]); e,f=sch.split(l[3],[2,16]); sch.reorder(a,c,e,b,d,f); sch.blockize(b, preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); a,b=sch.split(l[1],[4,16]); c,d=sch.split(l[2],[3,16]); e,f=sch.split(l[3],[2,16]); sch.reorder(a,c,e,b,d,f); sch.blockize(b, preserve_unit_iters=True)'),
    ("unit", 'l=sch.get_loops("C"); a,b=sch.split(l[1],[4,16]); c,d=sch.split(l[2],[3,16]); sch.reorder(a,c,l[3],b,d); sch.blockize(b, preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); a,b=sch.split(l[1],[64,1]); c,d=sch.split(l[2],[3,16]); sch.reorder(a,c,b,d,l[3]); sch.blockize(b, preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); a,b=sch.split(l[1],[64,1]); c,d=sch.split(l[2],[3,16]); sch.reorder(a,c,b,d,l[3]); sch.blockize(b, preserve_unit_iters=True)'),
    ("unit", 'l=sch.get_loops("C"); a,b=sch.split(l[3],[32,1]); sch.blockize(b, preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); i=sch.decompose_reduction("C",l[3]); sch.blockize(sch.get_loops(i)[1], preserve_unit_iters=False); sch.blockize(sch.get_loops("C")[2], preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.fuse(l[0],l[1])'),
    ("unit", 'l=sch.get_loops("C"); sch.fuse(l[0],l[1],preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.fuse(l[1],l[2],preserve_unit_iters=False)'),
    ("unit", 'l=sch.get_loops("C"); sch.fuse(*l)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[3],0)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[3],-1)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[3],3)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[3],4)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[2],0)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[3],-4)'),
    ("unit", 'l=sch.get_loops("C"); sch.rfactor(l[3],-5)'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(n*64+i,j,k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(i,j,k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(i,n*48+j,k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(n,j,i,k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(n,i//16,j//16,i%16,j%16,k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(n,i,j,k//4,k%4))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(n,i,j*32+k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_block_layout("C", lambda n,i,j,k:(n,i//10,i%10,j,k))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_layout("C",("write",0),lambda n,i,j:(n,i//16,j//16,i%16,j%16))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_layout("C",("read",0),lambda n,i,j:(n*64+i,j))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_layout("C",("read",1),lambda n,i,j:(j,i,n))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_layout("C","A",lambda n,i,j:(n,j,i))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_layout("C","C",lambda n,i,j:(n,j,i))'),
    ("unit", 'l=sch.get_loops("C"); sch.transform_layout("C",("read",0),lambda n,i,j:(n,i,tvm.sym.IndexMap.AXIS_SEPARATOR,j) if 0 else (n,i,j))'),
    ("unit", 'l=sch.get_loops("C"); sch.pad_einsum("C",[1,32,32,32])'),
    ("unit", 'l=sch.get_loops("C"); sch.pad_einsum("C",[1,40,1,1])'),
    ("unit", 'l=sch.get_loops("C"); sch.pad_einsum("C",[1,40,20,20])'),
    ("unit", 'l=sch.get_loops("C"); sch.pad_einsum("C",[2,1,1,1])'),
    ("unit", 'l=sch.get_loops("C"); sch.pad_einsum("C",[1,1,1])'),
    ("unit", 'l=sch.get_loops("C"); sch.pad_einsum("C",[1,0,1,1])'),
    ("unit", 'l=sch.get_loops("C"); sch.get_loops(sch.get_sblock("root"))'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.compute_inline("P")'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.decompose_padding("P",p[0])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.decompose_padding("P",p[2])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.decompose_padding("P",p[3])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.compute_at("P",y[2])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.compute_at("P",y[6])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); a,b=sch.split(y[2],[2,7]); sch.compute_at("P",a); sch.decompose_padding("P",sch.get_loops("P")[4])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.compute_at("P",y[2]); sch.rolling_buffer("P",0)'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.reindex("Y",("read",0)); sch.reindex("Y",("read",1)); sch.reindex("Y",("write",0)); sch.transform_block_layout("Y",lambda n,f,h,w,c,r,s:(f,n*196+h*14+w,c*9+r*3+s))'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.transform_block_layout("Y",lambda n,f,h,w,c,r,s:(f,n*196+h*14+w,c*9+r*3+s))'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.transform_layout("Y",("read",0),lambda n,c,h,w:(n,c//4,h,w,c%4))'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.transform_layout("Y",("read",1),lambda o,i,h,w:(o//8,i//4,h,w,i%4,o%8))'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.transform_layout("P",("write",0),lambda n,c,h,w:(n,h,w,c))'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); sch.fuse(*y[4:]); sch.fuse(*y[:4])'),
    ("conv_padded", 'y=sch.get_loops("Y"); p=sch.get_loops("P"); f=sch.fuse(*y[4:]); a,b=sch.split(f,[None,8]); sch.rfactor(b,0)'),
    ("shifted", 'sch.cache_read("B", 0, "shared")'),
    ("shifted", 'sch.cache_read("C", 0, "shared", ["C"])'),
    ("shifted", 'sch.cache_write("B", 0, "local")'),
    ("shifted", 'sch.cache_read("E", 0, "shared")'),
    ("red", 'sch.cache_read("upd", 1, "shared")'),
    ("red", 'sch.cache_read("upd", 2, "shared")'),
    ("red", 'sch.cache_read("outer", 0, "shared")'),
    ("red", 'sch.cache_write("outer", 0, "shared")'),
    ("red", 'sch.decompose_reduction("outer", sch.get_loops("outer")[2])'),
    ("red", 'sch.decompose_reduction("outer", sch.get_loops("outer")[2]); sch.cache_read("upd", 1, "shared"); sch.cache_read("upd", 2, "shared")'),
    ("red", 'l=sch.get_loops("upd"); sch.decompose_reduction("upd",l[2])'),
    ("red", 'l=sch.get_loops("upd"); sch.rfactor(l[2], 0)'),
    ("red", 'l=sch.get_loops("outer"); sch.rfactor(l[2], 0)'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,8])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,16])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,32])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,64])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,256])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,5])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,100])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,4,8])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[2,None,16])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,2,64])'),
    ("two_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[4,None,3])'),
    ("two_loops", 'l=sch.get_loops("C"); a,b=sch.split(l[0],[None,4]); c,d=sch.split(l[1],[None,4]); sch.reorder(a,c,b,d); e=sch.fuse(a,c); f=sch.fuse(b,d); g,h=sch.split(f,[None,8])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,8])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,16])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,32])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,64])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,48])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(*l); sch.split(f,[None,5])'),
    ("three_loops", 'l=sch.get_loops("C"); sch.fuse(l[0],l[1])'),
    ("three_loops", 'l=sch.get_loops("C"); sch.fuse(l[1],l[2])'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(l[1],l[2]); g=sch.fuse(l[0],f)'),
    ("three_loops", 'l=sch.get_loops("C"); f=sch.fuse(l[0],l[1]); g=sch.fuse(f,l[2]); sch.split(g,[None,16])'),
    ("three_loops", 'l=sch.get_loops("C"); sch.reorder(l[2],l[0],l[1]); f=sch.fuse(l[2],l[0],l[1]); sch.split(f,[None,16])'),
    ("tiled", 'sch.compute_inline("B")'),
    ("tiled", 'sch.reverse_compute_inline("C")'),
    ("tiled", 'sch.cache_write("B",0,"shared")'),
    ("tiled", 'sch.cache_read("C",0,"shared")'),
    ("flat", 'sch.compute_inline("B")'),
    ("flat", 'sch.reverse_compute_inline("C")'),
    ("flat", 'sch.cache_write("B",0,"shared")'),
    ("flat", 'sch.cache_read("C",0,"shared")'),
    ("packed", 'sch.compute_inline("B")'),
    ("packed", 'sch.reverse_compute_inline("C")'),
    ("packed", 'sch.cache_write("B",0,"shared")'),
    ("packed", 'sch.cache_read("C",0,"shared")'),
    ("unpacked", 'sch.compute_inline("B")'),
    ("unpacked", 'sch.reverse_compute_inline("C")'),
    ("unpacked", 'sch.cache_write("B",0,"shared")'),
    ("unpacked", 'sch.cache_read("C",0,"shared")'),
    ("reversed", 'sch.cache_write("B",0,"local",["D"])'),
    ("blocks", 'sch.cache_write("B", 0, "local")'),
    ("reversed", 'sch.transform_layout("B",("write",0),lambda i,j:(i//8,j,i%8))'),
    ("unit", 'sch.get_loops("C"); print(sch.sample_compute_location("C", decision=-1) is None)'),
    ("conv_padded", 'l=sch.sample_compute_location("P",decision=-2); sch.compute_at("P",l)'),
    ("conv_padded", 'l=sch.sample_compute_location("P",decision=-1); sch.compute_at("P",l)'),
    ("conv_padded", 'l=sch.sample_compute_location("P",decision=3); sch.compute_at("P",l)'),
    ("shifted", 'sch.compute_inline("B")'),
    *(("matmul", _LOOPS + steps) for steps in _MATMUL),
)

DIFFERENT = (
    ("unpacked", 'sch.reverse_compute_inline("C")', "the order of the terms of an index"),
    ("packed", 'sch.compute_inline("B")', "the order of the terms of an index"),
    ("reversed", "sch.transform_layout", "the form of a negative index"),
    ("shifted", 'sch.compute_inline("B")', "TVM does not simplify the index"),
)
"""The cases in which relaxlab differs, by program and a part of the steps, and how."""
