# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 7. Schedules: order, vectors, threads
#
# The loops of lesson 1 are correct and slow. A *schedule* changes how they run, but not what they
# compute. In this lesson three steps make a matrix product many times faster, and each step has a
# reason that you can measure. Lesson 8 goes on from there.
#
# After this lesson you can
#
# - transform loops with `reorder`, `split`, `vectorize` and `parallel`,
# - explain what cache lines, vectors and threads have to do with it,
# - read why a step was refused.
#
# *About 75 minutes. You need lessons 1 and 2.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import tir as T

from exercises import lesson7
from figures import lesson7 as figure

# %% [markdown]
# ## The program, and a way to measure it
#
# This function builds the program for any size: we want a large one to measure and a small one to
# look at.


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


N = 512
product, small = product_of(N), product_of(8)
rng = np.random.default_rng(0)
a, b = (rng.uniform(-1, 1, (N, N)).astype("float32") for _ in range(2))
programs = {}  # what is measured, by title


def run(title, program):
    """Measure a schedule or a function, and keep it for the comparison at the end."""
    programs[title] = rl.compile(program) if isinstance(program, rl.Schedule) else program
    seconds = rl.time(programs[title], a, b).seconds
    print(f"{title:32} {seconds * 1e3:8.2f} ms  {2 * N**3 / seconds / 1e9:7.1f} GFLOP/s")


run("as written", rl.Schedule(product))
run("NumPy", lambda a, b: a @ b)

# %% [markdown]
# NumPy calls a library that experts have tuned for many years. That is the target. A
# `GFLOP/s` is a billion additions or multiplications of floating-point numbers per second; this
# product takes 2 · 512³ of them.
#
# ## Step 1: walk through memory in order
#
# Main memory never delivers a single number. It delivers 64 bytes, a *cache line*, which stay in
# the cache for a while. A loop that uses all 16 numbers of a line pays for it once.

# %% tags=["figure"]
figure.cache_lines()

# %% [markdown]
# In the program as written the innermost loop is `k`. It reads `B[k, j]`, then `B[k + 1, j]`: 512
# numbers further on. Every read fetches a line, takes 4 bytes of it, and goes on. If `j` is the
# innermost loop instead, `B` and `C` are walked through in order.

# %%
sch = rl.Schedule(product)
block = sch.get_block("C")
i, j, k = sch.get_loops(block)
sch.reorder(i, k, j)
run("1. loops in the order i, k, j", sch)

# %% [markdown]
# One line, and nothing is computed differently. `rl.Schedule` takes a loop function. `get_block`
# and `get_loops` give handles to its parts. `reorder` is one of the **primitives**. Each of them
# makes a new loop function, and first proves that it computes the same.

# %% [markdown] tags=["explorer"]
# See for yourself. The explorer runs a small product with either order and shows which elements are
# touched, in which order, and how many other elements are touched until one is needed again: the
# *reuse distance*. What is used again soon is still in the cache.

# %% tags=["explorer"]
smaller = rl.Schedule(small)
i, j, k = smaller.get_loops(smaller.get_block("C"))
smaller.reorder(i, k, j)
rl.explore.loops(smaller)

# %% [markdown]
# ## Step 2: vectors
#
# One instruction can add 4, 8 or 16 numbers at once, if they lie side by side.

# %% tags=["figure"]
figure.lanes(8)

# %% [markdown]
# `split` makes two loops of one, and `vectorize` says that the inner one is to be one instruction.

# %%
i, k, j = sch.get_loops(block)
jo, ji = sch.split(j, factors=[None, 16])
sch.vectorize(ji)
run("2. vectors of 16", sch)

# %% [markdown]
# The machine code now loads, multiplies and stores 16 numbers with each instruction. (Processors
# with shorter registers take two or four instructions instead. LLVM takes care of that: see
# lesson 9.)
#
# Not every loop may be a vector. Ask for the wrong one, and the primitive refuses, says why, and
# changes nothing.

# %%
wrong = rl.Schedule(product)
i, j, k = wrong.get_loops(wrong.get_block("C"))
try:
    wrong.vectorize(k)
except rl.ScheduleError as error:
    print(error)

# %% [markdown]
# ## Step 3: threads
#
# The rows of the result do not depend on one another. `parallel` splits a loop among the cores.

# %% tags=["figure"]
figure.team(rows=8, threads=2)

# %%
sch.parallel(i)
run("3. rows to threads", sch)

# %% [markdown]
# Starting a team of threads and waiting for the last thread costs some microseconds. A loop that
# takes less than that is better left to one thread. With two cores the loop can be twice as fast
# at most, and less if the cores wait for the same memory.
#
# ## Side by side
#
# `rl.compare` measures all of them again, in turns, and checks that the results agree.

# %%
rl.compare(programs, a, b)

# %% [markdown]
# (The numbers depend on the machine that ran this page, and on what else it was doing.)
#
# ## A schedule is a value
#
# What you did was written down. The list can be printed, saved, and replayed on another function of
# the same structure.

# %%
sch.show()

# %% [markdown] tags=["explorer"]
# The explorer lists such steps; choose one to see the loops after it. Here the same steps are
# applied to a product of 8 by 8 numbers, with vectors of 4. Watch the loops change, and what they
# touch.

# %% tags=["explorer"]
i, k, j = smaller.get_loops(smaller.get_block("C"))
jo, ji = smaller.split(j, factors=[None, 4])
smaller.vectorize(ji)
smaller.parallel(i)
rl.explore.loops(smaller)

# %% [markdown]
# ## Exercises
#
# Here a function gets a schedule and applies primitives to it. The checks look at the loops that
# come out, and run them on sizes that do not divide evenly.
#
# **7.1** This function sums columns. The loops are in the order of the formula: for every column,
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
# **7.2** Give `add_bias` vectors of 8 numbers, and split its rows among the threads. 100 is
# not a multiple of 8. Look at what `split` does about it: `sch.func` shows the loops.


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
# **7.3** Two loops, one after the other: the squares are stored, then halved. Make one loop of them
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
# - A schedule changes how loops run, never what they compute. A step that cannot be proved is
#   refused.
# - Memory in order, vectors, threads: three reasons, measured one by one.
# - A schedule is a list of steps, which can be replayed.
#
# Next: [tiles and registers](08_tiles.py).
