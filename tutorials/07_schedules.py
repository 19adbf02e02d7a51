# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 7. Schedules, and why they are faster
#
# The loops of lesson 1 are correct and slow. A *schedule* changes how they run and leaves alone
# what they compute. In this lesson a matrix product becomes about a hundred times faster, in five
# steps, and each step has a reason that you can measure.
#
# After this lesson you can
#
# - transform loops with `split`, `reorder`, `vectorize`, `unroll`, `parallel`, `cache_write`,
# - explain what caches, vectors, registers and threads have to do with it,
# - read why a step was refused.

# %%
import time

import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson7

# %% [markdown]
# ## The program, and a way to measure it
#
# `tir.is_scheduled` tells the compiler to keep its hands off these loops: we want to do the work
# ourselves.

# %%
def product_of(size):
    """A module that multiplies two matrices of size x size numbers."""

    @I.ir_module
    class Module:
        @T.prim_func
        def product(
            A: T.Buffer((size, size), "float32"),
            B: T.Buffer((size, size), "float32"),
            C: T.Buffer((size, size), "float32"),
        ):
            T.func_attr({"tir.is_scheduled": True, "tir.noalias": True})
            for i, j, k in T.grid(size, size, size):
                with T.sblock("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

        @R.function
        def main(a: R.Tensor((size, size), "float32"), b: R.Tensor((size, size), "float32")):
            cls = Module
            c = R.call_tir(cls.product, (a, b), out_ty=R.Tensor((size, size), "float32"))
            return c

    return Module


N = 512
Product = product_of(N)
Small = product_of(8)  # to look at
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, (N, N)).astype("float32") for _ in range(2))
results = {}  # seconds


def measure(title, call):
    """Check the result, then call for a quarter of a second and keep the best round."""
    assert np.allclose(call(), a @ b, atol=1e-3)
    seconds = []
    while sum(seconds) < 0.25:
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    results[title] = min(seconds)
    gflops = 2 * N**3 / min(seconds) / 1e9
    print(f"{title:32} {min(seconds) * 1e3:8.2f} ms  {gflops:7.1f} GFLOP/s")


def run(title, sch, threads=1):
    """Compile the product with this schedule, and measure it."""
    exe = rl.compile(Product.with_functions({"product": sch.func}), threads=threads)
    measure(title, lambda: exe["main"](a, b))


sch = rl.Schedule(Product["product"])
run("as written", sch)
measure("NumPy", lambda: a @ b)

# %% [markdown]
# NumPy calls a library that experts have tuned for many years. That is the mark to aim at. A
# `GFLOP/s` is a billion additions or multiplications of floating-point numbers per second; this
# product takes 2 · 512³ of them.
#
# ## Step 1: walk through memory in order
#
# A processor never fetches a single number from memory. It fetches 64 bytes, a *cache line*,
# and keeps it in the cache for a while. Whoever uses all 16 numbers of a line pays once for all
# of them.
#
# In the program as written the innermost loop is `k`. It reads `B[k, j]`, then `B[k + 1, j]`: 512
# numbers further on. Every read fetches a line, takes 4 bytes of it, and goes on. If `j` is the
# innermost loop instead, `B` and `C` are walked through in order.

# %%
sch = rl.Schedule(Product["product"])
block = sch.get_block("C")
i, j, k = sch.get_loops(block)
sch.reorder(i, k, j)
run("1. loops in the order i, k, j", sch)

# %% [markdown]
# One line, and nothing is computed differently. `rl.Schedule` takes a loop function. `get_block`
# and `get_loops` give handles to its parts. `reorder` is one of the **primitives**. Each of them
# makes a new loop function, and first proves that it computes the same.

# %% [markdown] tags=["explorer"]
# See for yourself. The explorer runs a small product of both kinds and shows which elements are
# touched, in which order, and how many other elements are touched until one is needed again: the
# *reuse distance*. What comes back soon is still in the cache.

# %% tags=["explorer"]
small = rl.Schedule(Small["product"])
i, j, k = small.get_loops(small.get_block("C"))
small.reorder(i, k, j)
rl.explore.loops(small)

# %% [markdown]
# ## Step 2: vectors
#
# One instruction can add 4, 8 or 16 numbers at once, if they lie side by side. `split` makes two
# loops of one, and `vectorize` says that the inner one is to be one instruction.

# %%
i, k, j = sch.get_loops(block)
jo, ji = sch.split(j, factors=[None, 16])
sch.vectorize(ji)
run("2. vectors of 16", sch)

# %% [markdown]
# Not every loop may be a vector. Ask for the wrong one, and the primitive refuses, says why, and
# changes nothing.

# %%
wrong = rl.Schedule(Product["product"])
i, j, k = wrong.get_loops(wrong.get_block("C"))
try:
    wrong.vectorize(k)
except rl.ScheduleError as error:
    print(error)

# %% [markdown]
# ## Step 3: keep sums in registers
#
# Look at what the inner loop does now: load a vector of `C`, add to it, store it. And again for the
# next `k`. The fastest memory is the registers, but there are few of them: 16 or 32. A small
# *tile* of `C` fits: 8 rows of 2 vectors. So we make the tile's loops the innermost ones, keep its
# sums in registers for all `k`, and write them out once.

# %%
def tiled(mod, rows=8, vectors=2, lanes=16):
    """The schedule, and the loop over rows of tiles."""
    sch = rl.Schedule(mod["product"])
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    io, ii = sch.split(i, factors=[None, rows])
    jo, jv, jl = sch.split(j, factors=[None, vectors, lanes])
    sch.reorder(io, jo, k, ii, jv, jl)

    total = sch.cache_write(block, 0, "local")  # sums go to memory of their own,
    sch.reverse_compute_at(total, jo)  # which is copied to C once per tile
    sch.vectorize(sch.split(sch.get_loops(total)[-1], factors=[None, lanes])[-1])

    init = sch.decompose_reduction(block, k)  # set the tile to zero before k starts
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(jl)
    sch.unroll(ii)
    sch.unroll(jv)
    return sch, io


sch, io = tiled(Product)
run("3. sums in registers", sch)

# %% [markdown]
# Here is what that looks like. Read it from the outside in: tiles of `C`; a tile is set to zero;
# then for every `k` it is updated; then it is written.

# %%
sch.func

# %% [markdown]
# How many loads does a multiplication need? As written: two, a number of `A` and one of `B`. In the
# tile, 8 numbers of `A` and 2 vectors of `B` serve 16 vectors of sums.
#
# ## Step 4: threads
#
# The tiles do not depend on one another. `parallel` shares them out to the cores.

# %%
import os

threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
sch, io = tiled(Product)
sch.parallel(io)
run(f"4. {threads} threads", sch, threads=threads)

# %% [markdown]
# ## Step 5: let a rule do it
#
# Nobody writes this for every operation of a model. Rules do: they look at the blocks of a loop
# function and apply primitives like you just did. `R.matmul` gets its schedule from the rule
# `matmul`.

# %%
@I.ir_module
class ByRule:
    @R.function
    def main(a: R.Tensor((N, N), "float32"), b: R.Tensor((N, N), "float32")):
        return R.matmul(a, b)


exe = rl.compile(ByRule)
measure("5. by the rule `matmul`", lambda: exe["main"](a, b))

# %%
slowest, fastest = max(results.values()), min(results.values())
for title, seconds in results.items():
    bar = "▮" * round(30 * fastest / seconds)
    print(f"{title:32} {seconds * 1e3:8.2f} ms  {slowest / seconds:6.1f} times as fast  {bar}")

# %% [markdown]
# (The numbers are those of the machine that ran this page, and of what else it was doing.)
#
# ## A schedule is a value
#
# What you did was written down. The list can be printed, saved, and replayed on another function of
# the same structure.

# %%
sch.show()

# %% [markdown] tags=["explorer"]
# The explorer has a slider over such steps. Here they are applied to a product of 8 by 8 numbers,
# by tiles of 2 rows and 2 vectors of 4. Watch the loops change, and what they touch.

# %% tags=["explorer"]
rl.explore.loops(tiled(Small, rows=2, vectors=2, lanes=4)[0])

# %% [markdown]
# ## Exercises
#
# Here a function gets a schedule and applies primitives to it. The checks look at the loops that
# come out, and run them on sizes that do not divide evenly.

# %%
@I.ir_module
class AddBias:
    @T.prim_func
    def add_bias(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 100), "float32")
        B = T.match_buffer(b, (100,), "float32")
        C = T.match_buffer(c, (n, 100), "float32")
        for i, j in T.grid(n, 100):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vj]


# %% [markdown]
# **7.1** Give `add_bias` vectors of 8 numbers, and split its rows among the threads. 100 is
# no multiple of 8. Look at what `split` does about it: `sch.func` shows the loops.

# %% tags=["exercise"]
def fast_bias(sch):
    i, j = sch.get_loops(sch.get_block("C"))
    sch.parallel(i)


lesson7.fast_bias(AddBias, fast_bias)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def fast_bias_solution(sch):
    i, j = sch.get_loops(sch.get_block("C"))
    jo, ji = sch.split(j, factors=[None, 8])
    sch.parallel(i)
    sch.vectorize(ji)


lesson7.fast_bias(AddBias, fast_bias_solution)

# %% [markdown]
# **7.2** This function sums columns. The loops are in the order of mathematics: for every column,
# walk down. Rearrange them so that memory is read in order. Do not vectorize; one primitive is
# enough.

# %%
@I.ir_module
class ColumnSums:
    @T.prim_func
    def column_sums(A: T.Buffer((37, 50), "float32"), B: T.Buffer((50,), "float32")):
        for j, i in T.grid(50, 37):
            with T.sblock("B"):
                vj, vi = T.axis.remap("SR", [j, i])
                with T.init():
                    B[vj] = T.float32(0)
                B[vj] = B[vj] + A[vi, vj]


# %% tags=["exercise"]
def in_order(sch):
    j, i = sch.get_loops(sch.get_block("B"))


lesson7.in_order(ColumnSums, in_order)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def in_order_solution(sch):
    j, i = sch.get_loops(sch.get_block("B"))
    sch.reorder(i, j)


lesson7.in_order(ColumnSums, in_order_solution)

# %% [markdown]
# **7.3** A transpose reads rows and writes columns: one of the two is always out of order. Tiles of
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


lesson7.in_tiles(Transpose, in_tiles)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def in_tiles_solution(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, 16])
    jo, ji = sch.split(j, factors=[None, 16])
    sch.reorder(io, jo, ii, ji)


lesson7.in_tiles(Transpose, in_tiles_solution)

# %% [markdown]
# **7.4** Two loops, one after the other: the squares are stored, then halved. Make one loop of it
# with `sch.compute_inline(block)`. Which of the two blocks can be inlined?

# %%
@I.ir_module
class TwoLoops:
    @T.prim_func
    def two_loops(A: T.Buffer((33,), "float32"), B: T.Buffer((33,), "float32")):
        squares = T.sblock_alloc_buffer((33,), "float32")
        for i in range(33):
            with T.sblock("square"):
                vi = T.axis.spatial(33, i)
                squares[vi] = A[vi] * A[vi]
        for i in range(33):
            with T.sblock("halve"):
                vi = T.axis.spatial(33, i)
                B[vi] = squares[vi] / 2


# %% tags=["exercise"]
def one_loop(sch):
    sch.get_block("square")


lesson7.one_loop(TwoLoops, one_loop)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def one_loop_solution(sch):
    sch.compute_inline(sch.get_block("square"))


lesson7.one_loop(TwoLoops, one_loop_solution)

# %% [markdown]
# ## What to remember
#
# - A schedule changes how, never what. A step that cannot be proved is refused.
# - Memory in order, vectors, registers, threads: four reasons, measured one by one.
# - Rules do for every kernel what you did for one.
#
# Next: [code generation](08_code_generation.py).
