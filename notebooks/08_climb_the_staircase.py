# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 8. Climb the staircase
#
# A product of matrices on an H100, in seven steps, from one thread per result to tensor cores
# that are fed ahead of time. No GPU is needed: after each step the work of one block is
# **counted** on simulated threads, and `rl.predict` makes microseconds of it, by the published
# figures of the GPU. The predictions for products by tensor cores that were measured on real GPUs
# came within 8 %; two rules of the model were chosen with those products in view.
#
# You need lesson 10 and lab 4 (sectors, banks, barriers) and lesson 8 (tiles in registers).

# %%
import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import tir as T

from exercises import lab8


@I.ir_module
class Product:
    @T.prim_func
    def product(
        A: T.Buffer((1024, 1024), "float16"),
        B: T.Buffer((1024, 1024), "float16"),
        C: T.Buffer((1024, 1024), "float32"),
    ):
        for i, j, k in T.grid(1024, 1024, 1024):
            with T.sblock("sum"):
                y, x, z = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[y, x] = T.float32(0)
                C[y, x] = C[y, x] + T.Cast("float32", A[y, z]) * T.Cast("float32", B[z, x])


# %% [markdown]
# Each step is a function of a schedule. `climb` applies it, predicts, and prints a line:
# microseconds and what takes them; what one block asks for beside the least that could do, of
# main memory and of the banks of shared memory; how many loads and stores there are for each
# thousand multiply-adds; and how many warps a multiprocessor holds at a time.

# %%
staircase = lab8.Staircase(Product, "h100")


# %% [markdown]
# ## 1. A thread for each result

# %%
AXES = "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"


def bind(sch, *loops):
    for loop, axis in zip(loops, AXES, strict=True):
        sch.bind(loop, axis)


def one_each(sch):
    block = sch.get_block("sum")
    total = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i, y = sch.split(i, factors=[None, 16])
    j, x = sch.split(j, factors=[None, 16])
    sch.reorder(i, j, y, x)
    sch.reverse_compute_at(total, x)
    bind(sch, i, j, y, x)


staircase.climb("a thread each", one_each)

# %% [markdown]
# Two loads for each multiply-add. All of them are found in caches, but the path to the
# first-level cache takes one access per clock, and this kernel does little else.
#
# ## 2. Tiles in shared memory
#
# A block of threads copies 16 x 16 elements of both operands and uses each of them 16 times.


# %%
def copy(sch, block, operand, at):
    """Have all threads copy a slice into shared memory, an element each at a time."""
    part = sch.cache_read(block, operand, "shared")
    sch.compute_at(part, at)
    first, second = sch.get_loops(part)[-2:]
    loop = sch.fuse(first, second)
    _, y, x = sch.split(loop, factors=[None, 16, 16])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    return part


def shared_tiles(sch):
    block = sch.get_block("sum")
    total = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i, y = sch.split(i, factors=[None, 16])
    j, x = sch.split(j, factors=[None, 16])
    k, z = sch.split(k, factors=[None, 16])
    sch.reorder(i, j, y, x, k, z)
    sch.reverse_compute_at(total, x)
    bind(sch, i, j, y, x)
    for operand in (0, 1):
        copy(sch, block, operand, k)
    sch.unroll(z)


staircase.climb("shared tiles", shared_tiles)

# %% [markdown]
# Main memory and its caches are nearly idle now, and shared memory is what is busy: still two
# loads for each multiply-add.
#
# ## 3. Tiles in registers
#
# Lesson 8 again: a thread computes 4 x 2 results, so that an element that was loaded takes part
# in several multiply-adds.


# %%
def tile(sch, copies=copy, rows=4, columns=2):
    block = sch.get_block("sum")
    total = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block)
    i, y, r = sch.split(i, factors=[None, 16, rows])
    j, x, c = sch.split(j, factors=[None, 16, columns])
    k, z = sch.split(k, factors=[None, 16])
    sch.reorder(i, j, y, x, k, z, r, c)
    sch.reverse_compute_at(total, x)
    bind(sch, i, j, y, x)
    parts = [copies(sch, block, operand, k) for operand in (0, 1)]
    for loop in (z, r, c):
        sch.unroll(loop)
    return parts


staircase.climb("register tiles", tile)

# %% [markdown]
# ## 4. Wide copies
#
# An access of eight bytes takes the place of four of two bytes, or in the smaller slice of `B` one
# of four bytes the place of two.


# %%
def wide_copy(sch, block, operand, at):
    part = sch.cache_read(block, operand, "shared")
    sch.compute_at(part, at)
    first, second = sch.get_loops(part)[-2:]
    loop = sch.fuse(first, second)
    width = 4 if operand == 0 else 2
    _, y, x, lane = sch.split(loop, factors=[None, 16, 16, width])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    sch.vectorize(lane)
    return part


staircase.climb("wide copies", lambda sch: tile(sch, wide_copy))

# %% [markdown]
# ## 5. Tensor cores
#
# A tensor core multiplies a tile of 16 x 8 x 16 elements for a whole warp by one instruction.
# Whoever uses them holds tiles in registers in just the layout that the instruction wants, and
# loads them from shared memory by `ldmatrix`. relaxlab's rule `tensor_matmul` does all of it by
# primitives. First without two things that it does: storing slices by a **swizzle**, and copying
# ahead of time.

# %%
plain = {"pipeline_stages": 1, "fragments_ahead": False}
staircase.climb("tensor cores", lab8.by_rule(staircase, plain, leave_out="swizzle"))

# %% [markdown]
# `ldmatrix` reads rows of 16 bytes, eight at a time. Rows of a slice lie 128 bytes apart, so that
# the eight pieces of a column of pieces are in the same four banks: one after the other.
#
# ## 6. A swizzle
#
# Padding would move each row on by a piece. A swizzle takes no memory for that: piece `p` of row
# `r` is stored at `p ^ (r % 8)`.

# %%
staircase.climb("swizzle", lab8.by_rule(staircase, plain))

# %% [markdown]
# ## 7. Copies ahead of time
#
# Registers had to wait for main memory, and tensor cores for registers. `cp.async` copies past
# the registers; with three slices in shared memory two are under way while the third is
# multiplied. Fragments are loaded ahead of their products, too.

# %%
ahead = {"pipeline_stages": 3, "fragments_ahead": True}
staircase.climb("copies ahead", lab8.by_rule(staircase, ahead))

# %% [markdown]
# The whole way, and what each step was bound by:

# %%
staircase

# %% [markdown] tags=["explorer"]
# All of them under the roof of the GPU. What they fetch from main memory is the same; between it
# and the arithmetic lies everything else.

# %% tags=["explorer"]
rl.explore.predicted(staircase.steps)

# %% [markdown]
# **8.1** Step 3 has 4 x 2 results for a thread: for each term of the sum it loads 4 + 2 elements
# for 8 multiply-adds. Find factors with which it is expected to take at most 0.9 times as long.
# Larger ones load less, and need registers: fewer warps are there to hide each other's waiting.

# %% tags=["exercise"]
factors = {"rows": 4, "columns": 2}

lab8.factors(staircase, tile, factors)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
factors_solution = {"rows": 4, "columns": 4}

lab8.factors(staircase, tile, factors_solution)
