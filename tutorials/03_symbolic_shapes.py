# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 3. Symbolic shapes
#
# Sentences come in all lengths. A model must run for any number of words, and compiling takes
# longer than running. So a program is compiled once, for all sizes.
#
# After this lesson you can
#
# - write programs whose sizes are symbols,
# - follow how the compiler deduces the shape of every value,
# - tell what is proved, what is checked when the program runs, and what is refused,
# - bring back a shape that was lost.
#
# *About 75 minutes. You need lessons 1 and 2.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson3
from figures import lesson3 as figure

# %% [markdown]
# ## A loop function for every n
#
# In lesson 1 all shapes were numbers. Here one of them is a name, which is bound when the
# function is called: `T.match_buffer` gives a buffer to a parameter (`T.handle`) and names its
# sizes. Later in this lesson you also meet *graph functions* (`R.function`): functions of whole
# tensors, which call loop functions like this one. Lesson 4 is about them.


# %%
@I.ir_module
class Double:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2


for n in (1, 3, 1000):
    x, y = np.ones((n, 4), "float32"), np.empty((n, 4), "float32")
    rl.interpret(Double, "double", x, y)
    print(n, y.sum())

# %% [markdown]
# `n = T.int64()` declares a **symbol**: a whole number that is not known yet. `T.match_buffer` says
# which shape the arguments have. `n` stands in two of them, so both must agree. If they do not:

# %%
try:
    rl.interpret(Double, "double", np.ones((3, 4), "float32"), np.empty((2, 4), "float32"))
except Exception as error:
    print(error)

# %% [markdown]
# ## Shapes are deduced
#
# Next a **graph function**: it computes with whole tensors and does not mention loops. (More about
# them in lesson 4.) In its signature a symbol is a name in a string.


# %%
@I.ir_module
class Reshaped:
    @R.function
    def main(x: R.Tensor(("n", 6), "float32")):
        n = T.int64()
        a = R.reshape(x, (n * 2, 3))
        b = R.permute_dims(a)
        c = R.concat((b, b), axis=1)
        d = R.sum(c, axis=0)
        return d


# %% [markdown]
# You said what the shape of `x` is, and nothing else. Here is the same program after the first step
# of the compiler. Look at the types that it has added.

# %%
rl.trace(Reshaped).find("normalize").after

# %% [markdown]
# The compiler went from top to bottom. For every operator it knows a rule: what the result's shape
# is, given those of the arguments. This is called **deduction**. The shapes are *expressions*:
# `n * 2`, then `n * 4`. They say more than "some number", because two of them can be
# compared: `n * 2 + n * 2` is `n * 4`, for every `n`.

# %% tags=["figure"]
figure.shapes((1, 2, 4))

# %% [markdown] tags=["explorer"]
# Move the slider of `n` and see every shape and number of bytes follow. Each binding shows which
# rule was used.

# %% tags=["explorer"]
rl.explore.shapes(Reshaped)

# %% [markdown]
# ## Compiled once
#
# `rl.compile` makes machine code. One executable serves all sizes.

# %%
exe = rl.compile(Reshaped)
for n in (1, 2, 500):
    x = np.ones((n, 6), "float32")
    print(n, exe["main"](x).shape)

# %% [markdown]
# ## Proved, checked, refused
#
# A program makes claims about shapes. Three things can happen to a claim.

# %% tags=["figure"]
figure.claims()

# %% [markdown]
# The compiler can *prove* it: then nothing has to be done. It can prove the opposite: then the
# program is **refused**, before anything runs.

# %%
try:
    rl.parse("""
@I.ir_module
class Wrong:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((5, 8), "float32")):
        y = R.matmul(x, w)
        return y
""")
except rl.DiagnosticError as error:
    print(error)

# %% [markdown]
# Or it can do neither. Then the claim becomes a **check** when the program runs. Is `n` divisible
# by 3? Nobody knows until there is an `x`.


# %%
@I.ir_module
class Triples:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.reshape(x, (n // 3, 3))
        return y


exe = rl.compile(Triples)
print(exe["main"](np.arange(6, dtype="float32")))
try:
    exe["main"](np.arange(7, dtype="float32"))
except rl.CheckFailed as error:
    print(error)

# %% [markdown]
# Between "yes" and "no" most compilers guess. Here "unknown" is never taken for "yes".
#
# ## When a shape is lost
#
# How many different numbers are in `x`? That depends on the numbers, not on the shape. So deduction
# knows the rank, which is 1, and no more.


# %%
@I.ir_module
class Unique:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        a = R.unique(x)
        b = R.exp(a)
        return b


record = rl.trace(Unique).find("normalize")
for remark in record.remarks:
    print(remark.reason)
record.after

# %% [markdown]
# The compiler says where the shape was lost, and what would bring it back: `match_cast`. It gives
# the unknown size a name of its own. From there on everything is exact again.


# %%
@I.ir_module
class UniqueNamed:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        m = T.int64()
        a = R.match_cast(R.unique(x), R.Tensor((m,), "float32"))
        b = R.exp(a)
        c = R.concat((b, b), axis=0)
        return c


print(rl.compile(UniqueNamed)["main"](np.array([0, 0, 1], "float32")))
rl.trace(UniqueNamed).find("normalize").after

# %% [markdown]
# ## Exercises
#
# **3.1** This loop function adds 1 to a matrix of shape (3, 5). Make it work for every shape (n,
# m).


# %% tags=["exercise"]
@I.ir_module
class AddOne:
    @T.prim_func
    def add_one(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (3, 5), "float32")
        B = T.match_buffer(b, (3, 5), "float32")
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1


lesson3.add_one(AddOne)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class AddOneSolution:
    @T.prim_func
    def add_one(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + 1


lesson3.add_one(AddOneSolution)

# %% [markdown]
# **3.2** Be the compiler. `x` has the shape (n, 8). Which shapes do the values of this program
# have? Write them as strings in `n`. `a` is done for you.


# %%
@I.ir_module
class Puzzle:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((4, 5), "float32")):
        n = T.int64()
        a = R.reshape(x, (n * 2, 4))
        b = R.matmul(a, w)
        c = R.sum(b, axis=1)
        d = R.concat((c, c, c), axis=0)
        e = R.expand_dims(d, axis=0)
        return e


# %% tags=["exercise"]
shapes = {
    "a": "(n * 2, 4)",
    "b": ...,
    "c": ...,
    "d": ...,
    "e": ...,
}

lesson3.puzzle(Puzzle, shapes)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
shapes_solution = {
    "a": "(n * 2, 4)",
    "b": "(n * 2, 5)",
    "c": "(n * 2,)",
    "d": "(n * 6,)",
    "e": "(1, n * 6)",
}

lesson3.puzzle(Puzzle, shapes_solution)

# %% [markdown]
# **3.3** Attention splits every row of 12 numbers into 3 heads of 4, and moves the heads to the
# front: (n, 12) becomes (3, n, 4). The program below does it for five rows only, and it forgets the
# second half. `R.permute_dims(y, axes=[...])` reorders axes.


# %% tags=["exercise"]
@I.ir_module
class Heads:
    @R.function
    def heads(x: R.Tensor((5, 12), "float32")):
        y = R.reshape(x, (5, 3, 4))
        return y


lesson3.heads(Heads)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class HeadsSolution:
    @R.function
    def heads(x: R.Tensor(("n", 12), "float32")):
        n = T.int64()
        y = R.reshape(x, (n, 3, 4))
        z = R.permute_dims(y, axes=[1, 0, 2])
        return z


lesson3.heads(HeadsSolution)

# %% [markdown]
# **3.4** `R.nonzero(x)` gives the indices of all numbers that are not zero; its shape is (1, the
# number of them). From here on the shape of every value is lost. Add a `match_cast`, so that the
# shape of `q` is known exactly.


# %% tags=["exercise"]
@I.ir_module
class Places:
    @R.function
    def places(x: R.Tensor(("n",), "float32")):
        p = R.nonzero(x)
        q = R.flatten(p)
        return q


lesson3.places(Places)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class PlacesSolution:
    @R.function
    def places(x: R.Tensor(("n",), "float32")):
        m = T.int64()
        p = R.match_cast(R.nonzero(x), R.Tensor((1, m), "int64"))
        q = R.flatten(p)
        return q


lesson3.places(PlacesSolution)

# %% [markdown]
# ## What to remember
#
# - Sizes are expressions over symbols, in graph functions and in loops alike.
# - Deduction goes forward, operator by operator. It needs only what you say about the parameters.
# - A claim is proved, or refused, or checked when the program runs.
# - `match_cast` names a size that nobody can know in advance.
#
# Next: [the graph level](04_graph_level.py).
