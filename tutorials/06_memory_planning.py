# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 6. Memory planning
#
# Every intermediate result needs memory, but not for long. A planner decides before the program
# runs which results may occupy the same memory, one after the other.
#
# After this lesson you can
#
# - see where a program allocates memory, and when each piece is in use,
# - follow how results of symbolic size share memory,
# - lower a program's peak memory by reordering it, or with upper bounds.
#
# *About 45 minutes. You need lesson 4.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R

from exercises import lesson6
from figures import lesson6 as figure

# %% [markdown]
# ## Allocation made visible
#
# Four products in a row. None of them can be fused with another.


# %%
@I.ir_module
class Four:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(a, w)
            c = R.matmul(b, w)
            d = R.matmul(c, w)
            R.output(d)
        return d


# %% [markdown]
# At the graph level there is no memory: `a` is simply a value. Near the end of the pipeline this
# changes. The pass `expand_calls` takes every `call_tir` apart, into an allocation and a call that
# writes into it. Here is `main` before and after.

# %%
trace = rl.trace(Four)
rl.Module.of({"main": trace.find("schedule_kernels").after["main"]})

# %%
expanded = trace.find("expand_calls").after
rl.Module.of({"main": expanded["main"]})

# %% [markdown]
# Now there are four allocations, one per product. How many are needed? Draw when each result is
# first written and last read.

# %% tags=["figure"]
figure.liveness("abcd")

# %% [markdown]
# When product 3 writes `c`, nobody will read `a` any more. So `c` may lie where `a` was. This is
# called **liveness**. `plan_memory` computes it, and places everything in one block of memory, the
# **arena**.

# %%
for remark in trace.find("plan_memory").remarks:
    print(remark.subject, "-", remark.reason)

# %% [markdown]
# Look at the sizes: `n * 256` bytes. Nobody knows `n`. But `a` and `c` have *the same* size,
# whatever `n` is, and that can be proved. So one plan is right for every `n`, and a call allocates
# at most once. `d` is returned: it belongs to the caller, so it gets memory of its own.
#
# The plan is a value that you can inspect.

# %%
plan = rl.memory_plan_of(expanded["main"], expanded)
arena = plan.arenas[0]
print("bytes:", arena.size, "  without reuse:", arena.apart)
for p in arena.placements:
    print(f"{p.var.name}: steps {p.start} to {p.end}, {p.size} bytes at {p.offset}")

# %% tags=["figure"]
figure.storage(plan, n=4)

# %% [markdown] tags=["explorer"]
# The explorer draws it: time from left to right, memory from bottom to top, each result a block.
# Move the slider of `n`.

# %% tags=["explorer"]
rl.explore.memory(Four)

# %% [markdown]
# And this is what a running program holds: `n * 512` bytes, plus 64 to align them to a cache line.

# %%
exe = rl.compile(Four)
w = np.ones((64, 64), "float32") / 64
for n in (1, 10, 100):
    exe["main"](np.ones((n, 64), "float32"), w)
    print(f"n = {n}: the arena has {exe.arena_bytes()} bytes")

# %% [markdown]
# ## When sizes cannot be compared
#
# Two symbols that have nothing to do with each other:


# %%
@I.ir_module
class TwoSymbols:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        y: R.Tensor(("m", 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
    ):
        with R.dataflow():
            a = R.sum(R.matmul(R.matmul(x, w), w), axis=[0, 1])
            b = R.sum(R.matmul(R.matmul(y, w), w), axis=[0, 1])
            c = R.add(a, b)
            R.output(c)
        return c


def arena_of(mod):
    """The sizes of the arenas of `main`, in bytes."""
    module = rl.trace(mod).find("plan_memory").before
    return [str(a.size) for a in rl.memory_plan_of(module["main"], module).arenas]


arena_of(TwoSymbols)

# %% [markdown]
# The results of the first line are dead when the second one starts. Yet they do not share: is
# `n * 256` larger than `m * 256`, or smaller? Nobody knows.
#
# You may know that a text never has more than 100 words. Say so with an **upper bound**. Then all
# sizes are numbers, and everything can share.


# %%
@I.ir_module
class Bounded:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        y: R.Tensor(("m", 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
    ):
        R.func_attr({"tir_var_upper_bound": {"n": 100, "m": 300}})
        with R.dataflow():
            a = R.sum(R.matmul(R.matmul(x, w), w), axis=[0, 1])
            b = R.sum(R.matmul(R.matmul(y, w), w), axis=[0, 1])
            c = R.add(a, b)
            R.output(c)
        return c


arena_of(Bounded)

# %% [markdown]
# The plan now always has the size of the largest allowed input. A longer one is refused, as it
# should be:

# %%
try:
    rl.compile(Bounded)["main"](np.ones((101, 64), "float32"), np.ones((1, 64), "float32"), w)
except rl.CheckFailed as error:
    print(error)

# %% [markdown]
# ## Exercises
#
# **6.1** A chain of *five* products like the four above. How big is its arena, in bytes,
# for `n` rows of 64 numbers? (The result belongs to the caller.)


# %% tags=["exercise"]
def arena_of_five(n):
    return 5 * n * 64 * 4


lesson6.arena_of_five(arena_of_five)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def arena_of_five_solution(n):
    # Two places take turns, however long the chain is.
    return 2 * n * 64 * 4


lesson6.arena_of_five(arena_of_five_solution)

# %% [markdown]
# **6.2** The compiler keeps the order of your bindings. This program makes three large results
# before it reads the first of them. Change the order of the lines, and nothing else, so that the
# arena becomes as small as possible.


# %% tags=["exercise"]
@I.ir_module
class Order:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 512), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.matmul(R.sin(x), w)
            c = R.matmul(R.cos(x), w)
            p = R.max(a, axis=1)
            q = R.max(b, axis=1)
            r = R.max(c, axis=1)
            s = R.stack((p, q, r), axis=0)
            R.output(s)
        return s


lesson6.order(Order)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class OrderSolution:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 512), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            p = R.max(a, axis=1)
            b = R.matmul(R.sin(x), w)
            q = R.max(b, axis=1)
            c = R.matmul(R.cos(x), w)
            r = R.max(c, axis=1)
            s = R.stack((p, q, r), axis=0)
            R.output(s)
        return s


lesson6.order(OrderSolution)

# %% [markdown]
# **6.3** An encoder reads `n` words, at most 128, and a decoder `m`, at most 64. Tell the compiler.


# %% tags=["exercise"]
@I.ir_module
class Translator:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        y: R.Tensor(("m", 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
    ):
        with R.dataflow():
            a = R.mean(R.matmul(R.nn.relu(R.matmul(x, w)), w), axis=0)
            b = R.matmul(R.nn.relu(R.matmul(y, w)), w)
            c = R.add(b, a)
            R.output(c)
        return c


lesson6.translator(Translator)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class TranslatorSolution:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        y: R.Tensor(("m", 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
    ):
        R.func_attr({"tir_var_upper_bound": {"n": 128, "m": 64}})
        with R.dataflow():
            a = R.mean(R.matmul(R.nn.relu(R.matmul(x, w)), w), axis=0)
            b = R.matmul(R.nn.relu(R.matmul(y, w)), w)
            c = R.add(b, a)
            R.output(c)
        return c


lesson6.translator(TranslatorSolution)

# %% [markdown]
# ## What to remember
#
# - Graph functions have values. Near the end of the pipeline, values get memory.
# - Two results may share a place if one is dead before the other is born, and if their sizes can be
#   compared.
# - How much memory a program takes depends on its order, and on what is known about its symbols.
#
# Next: [schedules](07_schedules.py).
