# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 8. Tiles and registers
#
# In lesson 7 the product got its order, its vectors and its threads. It is still far from NumPy.
# It lacks reuse: a number that was fetched should be used many times before it leaves the cache.
#
# After this lesson you can
#
# - say how many loads a multiplication costs, and how a tile lowers that,
# - keep sums in registers with `cache_write`, `reverse_compute_at` and `decompose_reduction`,
# - compare your schedule with that of a rule, and with NumPy.
#
# *About 75 minutes. You need lesson 7.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson8
from figures import lesson8 as figure

# %% [markdown]
# ## Why reuse?
#
# Between the arithmetic and main memory lie several memories. The nearer one is, the smaller and
# the faster it is. (The numbers are orders of magnitude.)

# %% tags=["figure"]
figure.memories()

# %% [markdown]
# The innermost loop of lesson 7 does three things for every vector: it loads a vector of `C`, adds
# to it, and stores it. The next `k` loads the same vector again. One multiplication costs two loads
# and a store, in whose time a processor could do several multiplications.
#
# The way out is a **tile**: a small piece of `C` that is finished before the next one is begun.

# %% tags=["figure"]
figure.tiles()

# %% [markdown]
# Registers are the fastest memory. A processor has 16 or 32 of them for vectors. A tile of 8 rows
# by 2 vectors takes 16.

# %% tags=["figure"]
figure.register_tile(rows=8, vectors=2)

# %% [markdown]
# ## The program
#
# It is the product of lesson 7. `loops` prints the loops and blocks of a schedule, and leaves out
# what the blocks compute.


# %%
def product_of(size):
    """A loop function that multiplies two matrices of size x size numbers."""

    @I.ir_module
    class Module:
        @T.prim_func
        def product(
            A: T.Buffer((size, size), "float32"),
            B: T.Buffer((size, size), "float32"),
            C: T.Buffer((size, size), "float32"),
        ):
            for i, j, k in T.grid(size, size, size):
                with T.sblock("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    return Module["product"]


def loops(sch):
    """Print the loops and the names of the blocks."""
    lines = sch.func.script().splitlines()
    shown = [line for line in lines if line.strip().startswith(("for ", "with T.sblock("))]
    print("\n".join(line.removeprefix("    ") for line in shown))


N = 512
product = product_of(N)
sch = rl.Schedule(product)
loops(sch)

# %% [markdown]
# ## Step 1: loops of a tile
#
# Split the rows by 8, the columns by 2 vectors of 16. The loops of the tile go inside, `k` outside
# of them: for every `k` the whole tile is updated.

# %%
block = sch.get_block("C")
i, j, k = sch.get_loops(block)
io, ii = sch.split(i, factors=[None, 8])
jo, jv, jl = sch.split(j, factors=[None, 2, 16])
sch.reorder(io, jo, k, ii, jv, jl)
loops(sch)

# %% [markdown]
# ## Step 2: memory for the sums
#
# `cache_write` gives the block's result a buffer of its own, here one that is `local`: small enough
# for registers. A new block copies it to `C`.

# %%
total = sch.cache_write(block, 0, "local")
loops(sch)

# %% [markdown]
# At first the copy comes after everything, so the buffer has to hold the whole matrix.
# `reverse_compute_at` moves a block that reads into a loop of the block that writes: now a tile is
# copied as soon as it is done. At any time only one tile of the buffer is in use, and the compiler
# allocates no more than that.

# %%
sch.reverse_compute_at(total, jo)
loops(sch)

# %% [markdown]
# ## Step 3: zeros before the sums
#
# The block stores zeros whenever `k` is 0: a test in every iteration. `decompose_reduction` moves
# that into a block of its own, in front of the loop `k`.

# %%
init = sch.decompose_reduction(block, k)
loops(sch)

# %% [markdown]
# ## Step 4: vectors, and no loops inside
#
# The innermost loops of the three blocks become vectors. `unroll` writes the loops over rows and
# vectors out, so that each sum gets a register of its own: a register has a name, not an index.

# %%
sch.vectorize(sch.split(sch.get_loops(total)[-1], factors=[None, 16])[-1])
sch.vectorize(sch.get_loops(init)[-1])
sch.vectorize(jl)
sch.unroll(ii)
sch.unroll(jv)
loops(sch)

# %% [markdown]
# How many loads does a multiplication need? In lesson 7: two, for one vector. In the tile, 8
# numbers of `A` and 2 vectors of `B` serve 16 vectors of sums.
#
# ## Step 5: threads, and the comparison
#
# The rows of tiles do not depend on one another: a team of threads can share them. Here are all
# steps once more as a function, to use with tiles of any size, and the schedule of lesson 7 beside
# it.


# %%
def tiles_of(func, rows, vectors, lanes):
    """All steps of this lesson but the threads."""
    sch = rl.Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, factors=[None, rows])
    jo, jv, jl = sch.split(j, factors=[None, vectors, lanes])
    sch.reorder(io, jo, k, ii, jv, jl)
    total = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(total, jo)
    init = sch.decompose_reduction(block, k)
    sch.vectorize(sch.split(sch.get_loops(total)[-1], factors=[None, lanes])[-1])
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(jl)
    sch.unroll(ii)
    sch.unroll(jv)
    return sch


def in_order(func):
    """The schedule of lesson 7: order, vectors, threads."""
    sch = rl.Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)
    sch.vectorize(sch.split(j, factors=[None, 16])[1])
    sch.parallel(i)
    return sch


sch.parallel(io)
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, (N, N)).astype("float32") for _ in range(2))
rl.compare(
    {
        "lesson 7": in_order(product),
        "tiles, one thread": tiles_of(product, 8, 2, 16),
        "tiles and threads": sch,
        "NumPy": lambda a, b: a @ b,
    },
    a,
    b,
)

# %% [markdown]
# (The numbers are those of the machine that ran this page, and of what else it was doing.)

# %% [markdown] tags=["explorer"]
# The explorer shows what each step did, on a product of 8 by 8 numbers with tiles of 2 rows and 2
# vectors of 4. *Costs of the steps* counts the loads and stores that the loops ask for, and the
# cache lines that are fetched. Step on and watch them fall.

# %% tags=["explorer"]
rl.explore.loops(tiles_of(product_of(8), rows=2, vectors=2, lanes=4))

# %% [markdown]
# ## Let a rule do it
#
# Nobody writes this for every operation of a model. Rules do: they look at the blocks of a loop
# function and apply primitives as you just did. `R.matmul` gets its schedule from the rule
# `matmul`, which knows how many registers the processor has.


# %%
@I.ir_module
class ByRule:
    @R.function
    def main(a: R.Tensor((N, N), "float32"), b: R.Tensor((N, N), "float32")):
        return R.matmul(a, b)


rl.compare({"by hand": sch, "by the rule": ByRule, "NumPy": lambda a, b: a @ b}, a, b)

# %% [markdown]
# A contest: how close do you get to the rule? Change the three numbers of the tile. What happens
# when it needs more registers than there are?

# %%
for rows, vectors, lanes in ((4, 2, 16), (8, 2, 16), (12, 2, 16), (16, 4, 16)):
    mine = tiles_of(product, rows, vectors, lanes)
    print((rows, vectors, lanes), f"{rl.time(mine, a, b).flop_rate / 1e9:.0f} GFLOP/s")

# %% [markdown] tags=["explorer"]
# Rules have such numbers, too: their *decisions*, each with a name, candidates and a default. The
# explorer of a kernel in a trace has them as controls. Choose other vectors for this sum of two
# matrices and see which loops the rule makes then. With `.live()` after the call, each choice is
# also compiled, and timed beside the defaults.


# %% tags=["explorer"]
@I.ir_module
class Sum:
    @R.function
    def main(a: R.Tensor((4, 64), "float32"), b: R.Tensor((4, 64), "float32")):
        return R.add(a, b)


rl.explore.loops(rl.trace(Sum))

# %% [markdown]
# ## Exercises
#
# **8.1** A transpose reads rows and writes columns: one of the two is always out of order. Tiles of
# 16 by 16 help, because a tile of both matrices fits into the cache. Make the four loops (tile row,
# tile column, row in the tile, column in the tile), in this order.


# %%
@I.ir_module
class Transpose:
    @T.prim_func
    def transpose(A: T.Buffer((40, 70), "float32"), B: T.Buffer((70, 40), "float32")):
        for i, j in T.grid(70, 40):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]


# %% tags=["exercise"]
def in_tiles(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, 16])


lesson8.in_tiles(Transpose, in_tiles)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def in_tiles_solution(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, 16])
    jo, ji = sch.split(j, factors=[None, 16])
    sch.reorder(io, jo, ii, ji)


lesson8.in_tiles(Transpose, in_tiles_solution)

# %% [markdown]
# **8.2** Every iteration of this sum loads `B[i]` and stores it again. Keep the sum of a row in a
# `local` buffer, and copy it to `B` when the row is done. Two primitives are enough.


# %%
@I.ir_module
class RowSums:
    @T.prim_func
    def row_sums(A: T.Buffer((37, 50), "float32"), B: T.Buffer((37,), "float32")):
        for i, k in T.grid(37, 50):
            with T.sblock("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


# %% tags=["exercise"]
def local_sum(sch):
    block = sch.get_block("B")
    total = sch.cache_write(block, 0, "local")


lesson8.local_sum(RowSums, local_sum)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def local_sum_solution(sch):
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    total = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(total, i)


lesson8.local_sum(RowSums, local_sum_solution)

# %% [markdown]
# **8.3** Write the zeros of `row_sums` before the sums begin, in a block of their own: all of them
# first, so that the loops of the sums contain no test any more.


# %% tags=["exercise"]
def zeros_first(sch):
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    sch.decompose_reduction(block, k)


lesson8.zeros_first(RowSums, zeros_first)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def zeros_first_solution(sch):
    block = sch.get_block("B")
    i, k = sch.get_loops(block)
    sch.decompose_reduction(block, i)


lesson8.zeros_first(RowSums, zeros_first_solution)

# %% [markdown]
# ## What to remember
#
# - Tiles make sure that what was fetched is used often before it leaves the cache.
# - Sums that stay in registers need neither loads nor stores.
# - Rules do for every kernel what you did for one.
#
# Next: [code generation](09_code_generation.py).
