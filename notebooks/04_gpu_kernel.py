# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 4. A kernel for a GPU, without a GPU
#
# A GPU runs thousands of threads and tells you nothing when two of them collide. The **SIMT
# interpreter** runs the same threads on your processor and watches every access. In this lab you
# will meet a race, a barrier that not all threads reach, slow memory access, and slow shared
# memory; and repair each of them.

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import tir as T

rng = np.random.default_rng(0)

# %% [markdown]
# ## Blocks and threads
#
# Threads come in **blocks**. Threads of a block can talk to each other through **shared memory**;
# blocks cannot. Here every element has its own thread. `n` need not be a multiple of 64.


# %%
@I.ir_module
class VectorAdd:
    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A, B, C = T.match_buffer(a, (n,)), T.match_buffer(b, (n,)), T.match_buffer(c, (n,))
        for bx in T.thread_binding((n + 63) // 64, thread="blockIdx.x"):
            for tx in T.thread_binding(64, thread="threadIdx.x"):
                if bx * 64 + tx <= n:
                    C[bx * 64 + tx] = A[bx * 64 + tx] + B[bx * 64 + tx]


a, b, c = (rng.normal(size=100).astype("float32") for _ in range(3))
print(rl.simt(VectorAdd, "add", a, b, c))

# %% [markdown]
# The result is right, and a real GPU would not complain either. One thread too many reads and
# writes past the end. The report names the thread and the element. Repair it: `<` instead of `<=`.

# %%
fixed = rl.parse(VectorAdd.script().replace("<= n", "< n"))
print(rl.simt(fixed, "add", a, b, c))

# %% [markdown]
# ## A race
#
# The sum of a row, by halving: 64 threads add 64 pairs, then 32 threads add 32 pairs, and so on.
# Each step reads what other threads have written in the step before.

# %%
TREE = """
@I.ir_module
class Tree:
    @T.prim_func
    def tree_sum(a: T.handle, b: T.handle):
        n = T.int64()
        A, B = T.match_buffer(a, (n, 128)), T.match_buffer(b, (n,))
        for bx in T.thread_binding(n, thread="blockIdx.x"):
            with T.sblock("row"):
                S = T.sblock_alloc_buffer((128,), scope="shared")
                for tx in T.thread_binding(128, thread="threadIdx.x"):
                    S[tx] = A[bx, tx]
                    T.evaluate(T.tvm_storage_sync("shared"))
                    for step in range(7):
                        if tx < T.shift_right(64, step):
                            with T.sblock("halve"):
                                S[tx] = S[tx] + S[tx + T.shift_right(64, step)]
                    if tx == 0:
                        B[bx] = S[0]
"""
x, sums = rng.normal(size=(3, 128)).astype("float32"), np.zeros(3, "float32")
report = rl.simt(rl.parse(TREE), "tree_sum", x, sums)
print(report)

# %% [markdown]
# A **data race**: one thread reads what another one writes, and nothing says who comes first. The
# report shows both statements. A **barrier** is missing: `T.tvm_storage_sync("shared")` lets every
# thread of the block wait for the others. It belongs in the loop. The first attempt puts it inside
# the `if`:

# %%
BARRIER = 'T.evaluate(T.tvm_storage_sync("shared"))'
inside_if = TREE.replace(
    '                            with T.sblock("halve"):',
    f'                            {BARRIER}\n                            with T.sblock("halve"):',
)
try:
    print(rl.simt(rl.parse(inside_if), "tree_sum", x, sums))
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# Not all threads reach this barrier: those with `tx` too large skip it, and the others wait
# for them forever. On a GPU the program would hang, or worse, not hang. Now in front of the `if`:

# %%
before_if = TREE.replace(
    "                        if tx < T.shift_right(64, step):",
    f"                        {BARRIER}\n                        if tx < T.shift_right(64, step):",
)
report = rl.simt(rl.parse(before_if), "tree_sum", x, sums)
print(report)
print(np.allclose(sums, x.sum(1), atol=1e-4))

# %% [markdown] tags=["explorer"]
# Which thread touches which element, step by step:

# %% tags=["explorer"]
rl.explore.loops(rl.parse(TREE)["tree_sum"], name="tree_sum", n=2)

# %% [markdown]
# ## Coalescing: 32 threads, how many bytes?
#
# Threads run in **warps** of 32. Main memory delivers **sectors** of 32 bytes. If the 32 threads of
# a warp read 32 neighbouring floats, 4 sectors are enough. If their floats are far apart, it takes
# 32. A transpose does one of each: it reads rows and writes columns.


# %%
@I.ir_module
class Naive:
    @T.prim_func
    def transpose(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A, B = T.match_buffer(a, (n, m)), T.match_buffer(b, (m, n))
        for by in T.thread_binding((n + 7) // 8, thread="blockIdx.y"):
            for bx in T.thread_binding((m + 31) // 32, thread="blockIdx.x"):
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(32, thread="threadIdx.x"):
                        if by * 8 + ty < n and bx * 32 + tx < m:
                            B[bx * 32 + tx, by * 8 + ty] = A[by * 8 + ty, bx * 32 + tx]


m = rng.normal(size=(64, 96)).astype("float32")
t = np.zeros((96, 64), "float32")
print(rl.simt(Naive, "transpose", m, t, record=(0, 0, 0)))

# %% [markdown]
# `record=(0, 0, 0)` keeps what the first block of threads did, and what it cost. Reading is
# perfect, writing takes eight times as many sectors as necessary. The way out goes through shared
# memory: a tile is read by rows, and written by rows, and turned in between.


# %%
def tiled(width):
    return rl.parse(f"""
@I.ir_module
class Tiled:
    @T.prim_func
    def transpose(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A, B = T.match_buffer(a, (n, m)), T.match_buffer(b, (m, n))
        for by in T.thread_binding((n + 31) // 32, thread="blockIdx.y"):
            for bx in T.thread_binding((m + 31) // 32, thread="blockIdx.x"):
                with T.sblock("tile"):
                    S = T.sblock_alloc_buffer((32, {width}), scope="shared")
                    for ty in T.thread_binding(8, thread="threadIdx.y"):
                        for tx in T.thread_binding(32, thread="threadIdx.x"):
                            for r in range(4):
                                if by * 32 + r * 8 + ty < n and bx * 32 + tx < m:
                                    S[r * 8 + ty, tx] = A[by * 32 + r * 8 + ty, bx * 32 + tx]
                            T.evaluate(T.tvm_storage_sync("shared"))
                            for r in range(4):
                                if bx * 32 + r * 8 + ty < m and by * 32 + tx < n:
                                    B[bx * 32 + r * 8 + ty, by * 32 + tx] = S[tx, r * 8 + ty]
""")


print(rl.simt(tiled(32), "transpose", m, t, record=(0, 0, 0)))
print(np.array_equal(t, m.T))

# %% [markdown]
# Main memory is perfect now. But look at the reads of `S`: **bank conflicts**. Shared memory has 32
# banks, and a bank delivers one number at a time. A column of a tile that is 32 wide lies in a
# single bank. Make the tile one number wider, and neighbours in a column are in different banks:

# %%
print(rl.simt(tiled(33), "transpose", m, t, record=(0, 0, 0)))

# %% [markdown]
# One unused column. It is one of the oldest tricks of the trade, and now you have seen why it
# works.
#
# ## Your turn
#
# - Write `tree_sum` for rows of any length: each thread first adds up every 128th element.
# - Leave out the last barrier of the tree that works. Which steps still race? (Threads of one warp
#   do *not* run in lockstep on today's GPUs.)
# - Let a rule do it: `rl.compile(mod, target="cuda").source()` of a graph function with `R.sum`.
