# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 5. Fusion
#
# Arithmetic is cheap. Moving numbers between memory and processor is not. Fusion merges operations,
# so that what one of them computes reaches the next one without a trip to memory.
#
# After this lesson you can
#
# - say why `exp`, then `add`, then `log` is slower as three loops than as one,
# - tell the pattern kinds apart, and what each may be merged with,
# - read why the compiler merged two calls, or refused to,
# - write loop functions that can be fused.
#
# *About 75 minutes. You need lessons 1 to 4.*

# %%
import time

import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson5
from figures import lesson5 as figure

# %% [markdown]
# ## Four operations, one loop


# %%
@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 1024), "float32")):
        with R.dataflow():
            a = x * 3.0
            b = R.nn.relu(a)
            c = b + 1.0
            d = R.sqrt(c)
            R.output(d)
        return d


def kernels(mod):
    """The names of the loop functions that are left at the end."""
    return list(rl.trace(mod).result.loop_functions())


kernels(Chain)

# %% [markdown]
# Four operators became one loop function. Its name tells what is in it. Let us look at it in two
# stages. First as it comes out of fusion: four blocks, one after the other, with memory in between.

# %%
trace = rl.trace(Chain)
fused = trace.find("fuse_tir").after
name = kernels(Chain)[0]
fused[name]

# %% [markdown]
# The three buffers in the middle are now private to this function. So the schedule can put
# everything into one loop, and the buffers disappear. (How it does this is lesson 7.)

# %%
trace.find("schedule_kernels").after[name]

# %% [markdown]
# ## Is it worth it?
#
# Measure it: the program with fusion, without it, and in NumPy, which also makes one pass over
# memory per operation. Both compiled programs use the same schedules and the same number of
# threads.


# %%
def milliseconds(call, rounds=7):
    """The best of several rounds: other work makes a program slower, never faster."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


x = np.random.default_rng(0).uniform(0, 1, (2048, 1024)).astype("float32")
with_fusion = rl.compile(Chain)
without_fusion = rl.compile(Chain, pipeline=rl.cpu_pipeline().without("fuse_ops"))
print(f"NumPy          {milliseconds(lambda: np.sqrt(np.maximum(x * 3, 0) + 1)):6.2f} ms")
print(f"four kernels   {milliseconds(lambda: without_fusion['main'](x)):6.2f} ms")
print(f"one kernel     {milliseconds(lambda: with_fusion['main'](x)):6.2f} ms")

# %% [markdown]
# The numbers depend on the machine that ran this page. The arithmetic is the same in all three.
# What differs is the memory traffic. `x` has 2048 * 1024 numbers of 4 bytes, 8 MB. Four kernels
# read and write 8 MB each: 64 MB. One kernel reads `x` and writes the result: 16 MB.

# %% tags=["figure"]
figure.traffic()

# %% [markdown]
# ## What may be merged with what
#
# It depends on how a loop function's writes relate to its reads.

# %% tags=["figure"]
figure.pattern_kinds()

# %% [markdown]
# The compiler finds out by looking at the loops. It does not know operators by name.


# %%
@I.ir_module
class Kinds:
    @T.prim_func
    def shift(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1

    @T.prim_func
    def spread(A: T.Buffer((8,), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj]

    @T.prim_func
    def transpose(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vj, vi]

    @T.prim_func
    def row_sums(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 8):
            with T.sblock("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]

    @T.prim_func
    def product(
        A: T.Buffer((8, 8), "float32"),
        B: T.Buffer((8, 8), "float32"),
        C: T.Buffer((8, 8), "float32"),
    ):
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


for name, func in Kinds.loop_functions().items():
    kind, reason = rl.pattern_kind_with_reason(func)
    print(f"{name:10} {kind.name:18} {reason}")

# %% [markdown]
# | pattern kind | each element of the result is made from | fuses |
# | --- | --- | --- |
# | `ELEMENTWISE` | the element at the same place | into what reads it, and after anything |
# | `BROADCAST` | an element that several places share | into what reads it |
# | `INJECTIVE` | one element at another place | into what reads it |
# | `REDUCTION` | many elements: a sum | takes elementwise operations along, before and after it |
# | `OUT_EWISE_FUSIBLE` | many elements, each used often: a product | the same |
# | `OPAQUE` | something the compiler cannot see through | with nothing |
#
# A kernel contains at most one reduction or product, together with the elementwise operations
# around it: a product includes its bias and its activation. This is the most useful fusion of all.
# (There is one exception: where each sum has only a few terms and a norm or a softmax reads whole
# rows of the result, both stay in one kernel.)


# %%
@I.ir_module
class Dense:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        w: R.Tensor((64, 32), "float32"),
        b: R.Tensor((32,), "float32"),
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.add(y, b)
            r = R.nn.relu(z)
            s = R.sum(r, axis=1)
            R.output(s)
        return s


for remark in rl.trace(Dense).find("fuse_ops").remarks:
    print("merged " if remark.applied else "refused", remark.subject, "-", remark.reason)

# %% [markdown] tags=["explorer"]
# The explorer shows the graph with its pattern kinds. Step through the decisions, forward and back,
# and watch how many bytes of intermediate results each of them saves.

# %% tags=["explorer"]
rl.explore.fusion(Dense)

# %% [markdown]
# ## Exercises
#
# **5.1** Be the compiler. Which calls end up in one kernel? Write the groups as sets of variable
# names. A call that stays alone is a set of one.


# %%
@I.ir_module
class Puzzle:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            c = R.matmul(b, w)
            d = R.sigmoid(c)
            e = R.sum(d, axis=1)
            R.output(e)
        return e


# %% tags=["exercise"]
groups = [{"a"}, {"b"}, {"c"}, {"d"}, {"e"}]

lesson5.puzzle(Puzzle, groups)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
groups_solution = [{"a", "b"}, {"c", "d"}, {"e"}]

lesson5.puzzle(Puzzle, groups_solution)

# %% [markdown]
# **5.2** This loop function clips negative numbers. It works, but the compiler calls it `OPAQUE`,
# so it stays a kernel of its own after the product. Rewrite it so that it fuses.


# %% tags=["exercise"]
@I.ir_module
class Clip:
    @T.prim_func
    def clip(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 32), "float32")
        B = T.match_buffer(b, (n, 32), "float32")
        for i, j in T.grid(n, 32):
            with T.sblock("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i, j in T.grid(n, 32):
            with T.sblock("clip"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.max(B[vi, vj], 0)

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")):
        n = T.int64()
        cls = Clip
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.call_tir(cls.clip, (y,), out_ty=R.Tensor((n, 32), "float32"))
            R.output(z)
        return z


lesson5.clip(Clip)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class ClipSolution:
    @T.prim_func
    def clip(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 32), "float32")
        B = T.match_buffer(b, (n, 32), "float32")
        for i, j in T.grid(n, 32):
            with T.sblock("clip"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.max(A[vi, vj], 0)

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")):
        n = T.int64()
        cls = ClipSolution
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.call_tir(cls.clip, (y,), out_ty=R.Tensor((n, 32), "float32"))
            R.output(z)
        return z


lesson5.clip(ClipSolution)

# %% [markdown]
# **5.3** Softmax in five steps takes several kernels: a row must be read whole before its first
# result can be written, and a group has one reduction at most. There is an operator whose loop
# function holds all of it, `R.nn.softmax(x, axis=1)`. Use it, and double its result in the same
# kernel.


# %% tags=["exercise"]
@I.ir_module
class Softmax:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        with R.dataflow():
            m = R.max(x, axis=1, keepdims=True)
            e = R.exp(x - m)
            s = R.sum(e, axis=1, keepdims=True)
            p = e / s
            r = p * 2.0
            R.output(r)
        return r


lesson5.softmax(Softmax)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class SoftmaxSolution:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        with R.dataflow():
            p = R.nn.softmax(x, axis=1)
            r = p * 2.0
            R.output(r)
        return r


lesson5.softmax(SoftmaxSolution)

# %% [markdown]
# **5.4** How many bytes of memory traffic are saved when `Chain` (at the top) is one kernel
# instead of four? Write a function of `n`. `x` has `n` rows of 1024 numbers. Think of who
# writes an intermediate result, and who reads it.


# %% tags=["exercise"]
def bytes_saved(n):
    return n * 1024


lesson5.bytes_saved(bytes_saved)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def bytes_saved_solution(n):
    intermediates, written_and_read = 3, 2
    return intermediates * written_and_read * n * 1024 * 4


lesson5.bytes_saved(bytes_saved_solution)

# %% [markdown]
# ## What to remember
#
# - Fusion saves memory traffic, not arithmetic.
# - Loop functions are sorted into pattern kinds by analysis, so yours fuse like those of
#   the built-in operators.
# - Every decision is in the trace, with its reason, refusals included.
#
# Next: [memory planning](06_memory_planning.py).
