# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 4. The graph level, and calls between the levels
#
# A model has thousands of operations. Nobody wants to write all of their loops. So there are two
# levels: one for whole tensors, one for single elements. This lesson is about how they meet.
#
# After this lesson you can
#
# - write a graph function out of operators,
# - call a loop function of your own, and a library, from a graph function,
# - run the compiler pass by pass and see an operator become loops.
#
# *About 60 minutes. You need lessons 1 to 3.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson4
from figures import lesson4 as figure

# %% [markdown]
# ## Operators on whole tensors


# %%
@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


rng = np.random.default_rng(0)
x, w = rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=(4, 8)).astype("float32")
rl.interpret(Layer, "main", x, w).round(2)

# %% [markdown]
# This is a **graph function** (TVM, and the paper that relaxlab follows, call this level *Relax*).
# Compare it with a loop function: it *returns* a new tensor, it has no buffers, and nothing in it
# is ever overwritten. Each line is a **binding**: a name for the result of one call.
#
# `with R.dataflow()` promises that the calls inside have no side effects. The compiler may then
# reorder them, merge them, or leave out what nobody reads. `R.output` says what can be seen
# outside.
#
# ## From operators to loops
#
# `R.matmul` says *what*, not *how*. Somewhere it must become loops. `rl.trace` runs the compiler
# and keeps the program after every step. The step that writes the loops is called `legalize_ops`.

# %%
trace = rl.trace(Layer)
for step in trace.passes:
    if step.changed:
        print(step.name)

# %%
lowered = trace.find("legalize_ops").after
lowered

# %% [markdown]
# Read `main` in this text. The operators are gone. In their place is `R.call_tir`: a call
# **across the levels**. It takes a loop function, its inputs, and the type of the result. It makes
# a new tensor of that type and has the loop function store into it. So a graph function keeps
# returning values, a loop function keeps writing into memory that it is given, and the two fit
# together.

# %% tags=["figure"]
figure.two_levels()

# %% [markdown]
# Both levels share their symbols. `n` in `main` and `n` in `matmul` are the same kind of thing.

# %% [markdown] tags=["explorer"]
# The explorer shows every pass that changed something, with the difference between before and
# after. Step through the rewrites of a pass, and read the reason of each.

# %% tags=["explorer"]
rl.explore.pipeline(trace)

# %% [markdown] tags=["explorer"]
# In JupyterLab, `rl.explore.pipeline(Layer).live()` lets you edit the program, and the passes
# follow.

# %% [markdown]
# ## Your own loop function in a graph
#
# What the compiler writes for its operators, you can write for yours. No registration, no plug-in:
# put the loop function into the same module and call it. Here is one that no library has.


# %%
@I.ir_module
class Gated:
    @T.prim_func
    def gate(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.max(A[vi, vj + 4], 0)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        n = T.int64()
        cls = Gated
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.call_tir(cls.gate, (y,), out_ty=R.Tensor((n, 4), "float32"))
            R.output(z)
        return z


y = x @ w
expected = y[:, :4] * np.maximum(y[:, 4:], 0)
print(np.allclose(rl.compile(Gated)["main"](x, w), expected, atol=1e-6))

# %% [markdown]
# The compiler checks calls across the levels, too. Claim that the result has five columns:

# %%
wrong = Gated.script().replace("out_ty=R.Tensor((n, 4)", "out_ty=R.Tensor((n, 5)")
try:
    rl.parse(wrong)
except rl.DiagnosticError as error:
    print(error.diagnostics[0].render())

# %% [markdown]
# ## Calling a library
#
# Some things are better left to somebody else's code. `R.call_dps_packed` calls a function by its
# name. (*dps*: destination-passing style, *packed*: arguments of any kind.) Here the library is one
# line of NumPy.


# %%
def sort_rows(x, result):
    result[...] = np.sort(x, axis=1)


rl.register_func("course.sort_rows", sort_rows, override=True)


@I.ir_module
class Sorted:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            y = R.nn.relu(x)
            z = R.call_dps_packed("course.sort_rows", (y,), out_ty=R.Tensor((n, 4), "float32"))
            R.output(z)
        return z


rl.compile(Sorted)["main"](x).round(2)

# %% [markdown]
# One graph function can mix all three: operators, your loops, a library. That is the point of
# having both levels in one module. Nothing has to be compiled separately and linked by hand.

# %% tags=["figure"]
figure.callees()

# %% [markdown]
# ## Exercises
#
# **4.1** `swish(x)` is `x / (1 + exp(-x))`. The loop function is there. Call it in `main` on the
# product.


# %% tags=["exercise"]
@I.ir_module
class Swish:
    @T.prim_func
    def swish(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] / (T.exp(-A[vi, vj]) + 1)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        n = T.int64()
        cls = Swish
        with R.dataflow():
            y = R.matmul(x, w)
            R.output(y)
        return y


lesson4.swish(Swish)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class SwishSolution:
    @T.prim_func
    def swish(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] / (T.exp(-A[vi, vj]) + 1)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        n = T.int64()
        cls = SwishSolution
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.call_tir(cls.swish, (y,), out_ty=R.Tensor((n, 8), "float32"))
            R.output(z)
        return z


lesson4.swish(SwishSolution)

# %% [markdown]
# **4.2** `np.maximum.accumulate(x, axis=1)` is the running maximum of every row. Register a
# function `"course.running_max"` that computes it, and call it in `main`. The result has the shape
# of `x`.


# %% tags=["exercise"]
@I.ir_module
class RunningMax:
    @R.function
    def main(x: R.Tensor(("n", 5), "float32")):
        n = T.int64()
        return x


lesson4.running_max(RunningMax)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def running_max(x, result):
    result[...] = np.maximum.accumulate(x, axis=1)


rl.register_func("course.running_max", running_max, override=True)


@I.ir_module
class RunningMaxSolution:
    @R.function
    def main(x: R.Tensor(("n", 5), "float32")):
        n = T.int64()
        y = R.call_dps_packed("course.running_max", (x,), out_ty=R.Tensor((n, 5), "float32"))
        return y


lesson4.running_max(RunningMaxSolution)

# %% [markdown]
# **4.3** Write a function that takes a module and returns the names of its loop functions after
# `legalize_ops`, as a set. `mod.loop_functions()` is a dictionary of them.


# %% tags=["exercise"]
def loops_after_legalize(mod):
    return set(mod.loop_functions())


lesson4.loops_after_legalize(loops_after_legalize)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def loops_after_legalize_solution(mod):
    return set(rl.trace(mod).find("legalize_ops").after.loop_functions())


lesson4.loops_after_legalize(loops_after_legalize_solution)

# %% [markdown]
# ## What to remember
#
# - Graph functions compute with values, loop functions with memory.
# - `call_tir` joins them: it makes the memory for a result and has a loop function fill it.
# - Operators become `call_tir` in the pass `legalize_ops`. From there on they are like your own
#   code.
#
# Next: [fusion](05_fusion.py).
