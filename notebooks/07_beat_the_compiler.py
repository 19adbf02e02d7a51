# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 7. Beat the compiler
#
# A compiler schedules a kernel by rules, in milliseconds, and never gets tired. You have an hour
# and a head. Here are two kernels, a **target rate** for each, as a multiple of the compiler's, and
# a **budget of primitives**. Looking at blocks and loops is free. The check runs your program and
# the compiler's in turns, compares what they compute, and measures.
#
# You need lessons 7 and 8 (schedules, tiles), and lesson 12 to know when to believe a measurement.

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import tir as T

from exercises import lab7

rng = np.random.default_rng(0)

# %% [markdown]
# ## A product of matrices


# %%
@I.ir_module
class Product:
    @T.prim_func
    def product(
        a: T.Buffer((256, 256), "float32"),
        b: T.Buffer((256, 256), "float32"),
        c: T.Buffer((256, 256), "float32"),
    ):
        for i, j, k in T.grid(256, 256, 256):
            with T.sblock("sum"):
                y, x, z = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[y, x] = T.float32(0)
                c[y, x] = c[y, x] + a[y, z] * b[z, x]


# %% [markdown]
# `rl.compare` times the compiler's schedule of these loops beside the loops as they are written:

# %%
a, b, c = (rng.uniform(-1, 1, (256, 256)).astype("float32") for _ in range(3))
programs = {"compiler": Product, "as written": rl.Schedule(Product["product"])}
rl.compare(programs, a, b, c)

# %% [markdown]
# Hundreds of times. The rule for products knows registers, vectors, caches and prefetching. These
# are its steps, with the loops before and after each one:

# %% tags=["explorer"]
trace = rl.trace(Product)
rl.explore.loops(rl.schedule_of(trace, "product"), name="product")

# %% [markdown]
# Most of what is gained is in a few of them. What each element of `c` needs is a row of `a` and a
# column of `b`. What keeps the processor waiting is that each product of the sum reads two numbers
# from memory. Compute a **tile** of `c` at a time instead, a few rows by a few vectors, and keep it
# in registers: then each number that is read takes part in several products.
#
# **7.1** Reach 0.4 times the compiler's rate with at most 10 primitives. Both cores may work.


# %% tags=["exercise"]
def product(sch):
    block = sch.get_block("sum")
    i, j, k = sch.get_loops(block)
    j, lane = sch.split(j, factors=[None, 16])
    sch.reorder(i, j, k, lane)
    sch.vectorize(lane)


lab7.product(Product, product)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def product_solution(sch):
    block = sch.get_block("sum")
    i, j, k = sch.get_loops(block)
    # Six rows of two vectors take 12 registers. AVX2 has 16, and the operands need some of them.
    i, row = sch.split(i, factors=[None, 6])
    j, lane = sch.split(j, factors=[None, 2 * rl.Target.host().lanes("float32")])
    sch.reorder(i, j, k, row, lane)
    # The tile is summed up in a local buffer, and stored once.
    tile = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(tile, j)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.decompose_reduction(block, k)
    sch.parallel(i)


lab7.product(Product, product_solution)

# %% [markdown]
# ## A blur
#
# Each number becomes the sum of its 3 neighbours in a row, and these sums are summed up over 3
# neighbours in a column. The image takes 32 MB, more than most caches hold.


# %%
@I.ir_module
class Blur:
    @T.prim_func
    def blur(
        image: T.Buffer((2050, 4098), "float32"),
        out: T.Buffer((2048, 4096), "float32"),
    ):
        rows = T.alloc_buffer((2050, 4096), "float32")
        for i, j, d in T.grid(2050, 4096, 3):
            with T.sblock("across"):
                y, x, k = T.axis.remap("SSR", [i, j, d])
                with T.init():
                    rows[y, x] = T.float32(0)
                rows[y, x] = rows[y, x] + image[y, x + k]
        for i, j, d in T.grid(2048, 4096, 3):
            with T.sblock("down"):
                y, x, k = T.axis.remap("SSR", [i, j, d])
                with T.init():
                    out[y, x] = T.float32(0)
                out[y, x] = out[y, x] + rows[y + k, x]


# %% [markdown]
# The compiler has rules for single reductions, and this kernel has two. Ask it what it does:

# %%
for remark in rl.trace(Blur).find("schedule_kernels").remarks:
    if remark.applied:
        print(f"{remark.subject}: {remark.reason}")

# %% [markdown]
# Each reduction is scheduled by itself, and well: vectors of neighbouring results, rows shared out
# among threads. But all of `rows` is written to memory before the first of it is read again.
# **7.2** Reach 1.2 times the compiler's rate with at most 10 primitives. Compute a strip of `rows`
# where it is needed, small enough for the cache, with `sch.compute_at`. Each thread needs a strip
# of its own: see what `sch.parallel` has to say about that.


# %% tags=["exercise"]
def blur(sch):
    for name in ("across", "down"):
        i, j, k = sch.get_loops(sch.get_block(name))
        sch.parallel(i)


lab7.blur(Blur, blur)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def blur_solution(sch):
    across, down = sch.get_block("across"), sch.get_block("down")
    # 18 rows of 16 KB, computed for every 16 of the result: two of them are computed twice.
    strip, _ = sch.split(sch.get_loops(down)[0], factors=[None, 16])
    sch.set_scope(across, 0, "local")
    sch.compute_at(across, strip)
    for block in (across, down):
        *_, j, k = sch.get_loops(block)
        _, lane = sch.split(j, factors=[None, 16])
        # The three terms in a row: their sum stays in a register.
        sch.unroll(k)
        sch.vectorize(lane)
    sch.parallel(strip)


lab7.blur(Blur, blur_solution)

# %% [markdown]
# ## Your turn
#
# - How far do you get with 7.1 without a budget? Pack the columns of a tile first, with
#   `sch.cache_read`; change the size of the tile. What is the best ratio that you can *confirm*?
# - How many rows make the best strip in 7.2, and why is it neither 1 nor 512? How far are you from
#   the time that reading and writing 32 MB takes?
# - Let a search try: `rl.tune(Blur, spaces={"blur": ...})` with a space of yours whose numbers of
#   lanes and rows are decisions. Does it find a better one than you?
