# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 10. GPUs
#
# A GPU runs thousands of threads at once. The loops stay the same; a schedule says which of them
# become threads. You need no GPU for this lesson: relaxlab runs the threads itself and watches
# them.
#
# After this lesson you can
#
# - turn loops into blocks and threads with `bind`,
# - say why neighbouring threads should read neighbouring numbers,
# - let the threads of a block share memory,
# - read the CUDA C that comes out.
#
# *About 60 minutes. You need lesson 7.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson10
from figures import lesson10 as figure

# %% [markdown]
# ## Blocks and threads
#
# A kernel is started by many threads, each of which does little. Threads come in **blocks**, all of
# the same size. A thread knows two numbers, that of its block and its own in the block, and
# computes from them what it has to do.

# %% tags=["figure"]
figure.grid(blocks=3, threads=8)

# %% [markdown]
# `bind` turns a loop into one of these numbers.


# %%
@I.ir_module
class Affine:
    @T.prim_func
    def affine(A: T.Buffer((96,), "float32"), B: T.Buffer((96,), "float32")):
        for i in range(96):
            with T.sblock("B"):
                vi = T.axis.spatial(96, i)
                B[vi] = A[vi] * 3 + 1


sch = rl.Schedule(Affine)
(i,) = sch.get_loops(sch.get_block("B"))
io, ii = sch.split(i, factors=[None, 32])
sch.bind(io, "blockIdx.x")
sch.bind(ii, "threadIdx.x")
sch.func

# %% [markdown]
# `rl.simt` runs the threads one by one and watches every access: it finds reads outside of an
# array, and elements that two threads write.

# %%
a, b = np.arange(96, dtype="float32"), np.zeros(96, "float32")
print(rl.simt(sch.mod, "affine", a, b))
print(np.array_equal(b, a * 3 + 1))

# %% [markdown]
# Not every loop may become blocks. Blocks run in any order and cannot wait for each other, so a sum
# cannot be split among them: all its iterations write to the same element.


# %%
@I.ir_module
class RowSums:
    @T.prim_func
    def row_sums(A: T.Buffer((64, 40), "float32"), B: T.Buffer((64,), "float32")):
        for i, k in T.grid(64, 40):
            with T.sblock("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


sch = rl.Schedule(RowSums)
i, k = sch.get_loops(sch.get_block("B"))
try:
    sch.bind(k, "blockIdx.x")
except rl.ScheduleError as error:
    print(error)

# %% [markdown]
# ## Neighbours read neighbours
#
# Main memory delivers **sectors** of 32 bytes: 8 numbers. Threads run in groups of 32, called
# **warps**, and the sectors that a warp asks for at the same time are fetched once.

# %% tags=["figure"]
figure.sectors()

# %% [markdown]
# So it matters which loop becomes the threads. Here a matrix is copied, first with a thread for
# each row, then with a thread for each column. `record` keeps what the first block did.


# %%
@I.ir_module
class Scale:
    @T.prim_func
    def scale(A: T.Buffer((32, 64), "float32"), B: T.Buffer((32, 64), "float32")):
        for i, j in T.grid(32, 64):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2


def threads_are(which):
    """A thread for each row, or for 32 columns."""
    sch = rl.Schedule(Scale)
    i, j = sch.get_loops(sch.get_block("B"))
    if which == "rows":
        sch.bind(i, "threadIdx.x")
    else:
        jo, ji = sch.split(j, factors=[None, 32])
        sch.reorder(jo, i, ji)
        sch.bind(jo, "blockIdx.x")
        sch.bind(ji, "threadIdx.x")
    return sch


x, y = np.ones((32, 64), "float32"), np.zeros((32, 64), "float32")
for which in ("rows", "columns"):
    print(f"--- threads are {which}")
    print(rl.simt(threads_are(which).mod, "scale", x, y, record=(0, 0, 0)))

# %% [markdown] tags=["explorer"]
# The explorer shows which thread touches which element, access by access, and what each access
# costs. Compare the two columns *moved* and *fewest*.

# %% tags=["explorer"]
rl.explore.loops(threads_are("rows"))

# %% [markdown]
# ## Shared memory
#
# The threads of a block have a small memory in common. It is fast, and it is where they
# exchange numbers.

# %% tags=["figure"]
figure.memories()

# %% [markdown]
# The sum of a row by the 8 threads of a block: each adds up a part of the row, and puts its sum
# into shared memory; then one of them adds the 8 sums. `rfactor` splits a reduction in this way: it
# makes a block for the partial sums, and leaves the rest to the old one. `compute_at` brings both
# into the same loop over rows.


# %%
def shared_sum():
    """A block of 8 threads for each row."""
    sch = rl.Schedule(RowSums)
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    ko, ki = sch.split(k, factors=[None, 8])
    partial = sch.rfactor(ki, 0)
    row = sch.get_loops(block)[0]
    sch.compute_at(partial, row)
    sch.set_scope(partial, 0, "shared")
    sch.bind(row, "blockIdx.x")
    sch.bind(sch.get_loops(partial)[1], "threadIdx.x")
    return sch


a, sums = np.ones((64, 40), "float32"), np.zeros(64, "float32")
print(rl.simt(shared_sum().mod, "row_sums", a, sums))
print(rl.compile(shared_sum(), target="cuda").source("row_sums_kernel"))

# %% [markdown]
# `__shared__` is the memory of the block. `__syncthreads()` is a **barrier**: no thread goes on
# before all threads of the block are there. The compiler has put it where one thread reads what
# another one wrote. Forget it in a kernel written by hand, and the result depends on luck: that is
# what lab 4 is about.

# %% [markdown] tags=["explorer"]
# Step through the accesses of a block. The tab *Threads* shows which thread writes which partial
# sum.

# %% tags=["explorer"]
rl.explore.loops(shared_sum())

# %% [markdown]
# ## Let the compiler do it
#
# A whole program for GPUs is one word away. The rules of lesson 8 have siblings for GPUs, which
# bind the loops. The code is CUDA C, and can be read.


# %%
@I.ir_module
class Smooth:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        return R.nn.relu(x)


exe = rl.compile(Smooth, target="cuda")
print(exe.source("relu"))

# %% [markdown]
# ## Exercises
#
# **10.1** A kernel for GPUs: one block per row, 64 threads in each. The rows have 100 numbers, so a
# thread handles at most two of them. (`split` the columns by 64. Which of the two loops is bound to
# threads?)


# %%
@I.ir_module
class Rows:
    @T.prim_func
    def rows(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 100), "float32")
        B = T.match_buffer(b, (n, 100), "float32")
        for i, j in T.grid(n, 100):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.exp(A[vi, vj])


# %% tags=["exercise"]
def by_rows(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")


lesson10.by_rows(Rows, by_rows)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def by_rows_solution(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    jo, ji = sch.split(j, factors=[None, 64])
    sch.bind(i, "blockIdx.x")
    sch.bind(ji, "threadIdx.x")


lesson10.by_rows(Rows, by_rows_solution)

# %% [markdown]
# **10.2** These loops sum the columns of a matrix, with a thread for each column: in an iteration
# of `i`, the 32 threads of the warp read row `i`. How many sectors of 32 bytes is that? And how
# many would it be in one iteration of `k` if a thread summed each *row*, `A[i, k]` for thread
# `i`?


# %%
@I.ir_module
class ColumnSums:
    @T.prim_func
    def column_sums(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32,), "float32")):
        for j in T.thread_binding(32, thread="threadIdx.x"):
            for i in range(32):
                with T.sblock("B"):
                    vj, vi = T.axis.remap("SR", [j, i])
                    with T.init():
                        B[vj] = T.float32(0)
                    B[vj] = B[vj] + A[vi, vj]


# %% tags=["exercise"]
sectors = {"a thread for each column": 32, "a thread for each row": 32}

lesson10.sectors(ColumnSums, sectors)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
sectors_solution = {"a thread for each column": 4, "a thread for each row": 32}

lesson10.sectors(ColumnSums, sectors_solution)

# %% [markdown]
# **10.3** The largest number of each row, by 16 threads for each row: a block of threads finds 16
# partial maxima in shared memory, then one thread the largest of them. The lines of `shared_sum`
# help.


# %%
@I.ir_module
class RowMax:
    @T.prim_func
    def row_max(A: T.Buffer((24, 48), "float32"), B: T.Buffer((24,), "float32")):
        for i, k in T.grid(24, 48):
            with T.sblock("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.min_value("float32")
                B[vi] = T.max(B[vi], A[vi, vk])


# %% tags=["exercise"]
def shared_max(sch):
    i, k = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")


lesson10.shared_max(RowMax, shared_max)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def shared_max_solution(sch):
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    ko, ki = sch.split(k, factors=[None, 16])
    partial = sch.rfactor(ki, 0)
    row = sch.get_loops(block)[0]
    sch.compute_at(partial, row)
    sch.set_scope(partial, 0, "shared")
    sch.bind(row, "blockIdx.x")
    sch.bind(sch.get_loops(partial)[1], "threadIdx.x")


lesson10.shared_max(RowMax, shared_max_solution)

# %% [markdown]
# ## What to remember
#
# - `bind` turns loops into blocks and threads; the block of the loop function stays the same.
# - Neighbouring threads should access neighbouring numbers.
# - Threads of a block share memory, and wait for each other at barriers.
#
# Next: [a language model, end to end](11_language_model.py).
