# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 1. Tensors to loops
#
# NumPy lets you write `a + b` and hides the loops. A compiler has to write them.
#
# After this lesson you can
#
# - write a tensor operation as loops over individual elements,
# - read the parts of a loop function: buffers, loops, blocks, axes,
# - say which loops may run in any order, and which add something up.
#
# Run the cells from top to bottom with Shift-Enter.
#
# *About 60 minutes. You need NumPy and nothing else.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import tir as T

from exercises import lesson1
from figures import lesson1 as figure

# %% [markdown]
# ## One operation, three ways to write it
#
# First, the way you know.

# %%
a = np.arange(6, dtype="float32").reshape(2, 3)
b = np.full((2, 3), 10, "float32")
a + b

# %% [markdown]
# Now the same with the loops that NumPy hides. Somebody has to visit every element.

# %%
c = np.empty((2, 3), "float32")
for i in range(2):
    for j in range(3):
        c[i, j] = a[i, j] + b[i, j]
c

# %% [markdown]
# Memory is one long line of bytes; rows are only a way of counting them. NumPy stores one row after
# another. The distance in bytes from an element to the next one along an axis is the axis's
# **stride**.

# %% tags=["figure"]
figure.row_major(2, 3)

# %%
a.strides

# %% [markdown]
# And now in the language of the compiler. It looks like Python, but Python never runs it: relaxlab
# reads the text and builds a program from it.


# %%
@I.ir_module
class Add:
    @T.prim_func
    def add(
        A: T.Buffer((2, 3), "float32"),
        B: T.Buffer((2, 3), "float32"),
        C: T.Buffer((2, 3), "float32"),
    ):
        for i, j in T.grid(2, 3):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vi, vj]


# %% [markdown]
# `rl.interpret` runs it slowly and carefully, on NumPy arrays.

# %%
c = np.empty((2, 3), "float32")
rl.interpret(Add, "add", a, b, c)
c

# %% [markdown]
# Here are the names for what you just saw.
#
# - `add` is a **loop function** (TVM says *PrimFunc*). `Add` is a **module**: a set of functions,
#   each with a name.
# - `A`, `B`, `C` are **buffers**: memory with a shape and an element type. The last one is the
#   result: the caller allocates it, and the function stores into it. This is called
#   **destination-passing style**. That is why `interpret` returned nothing.
# - `for i, j in T.grid(2, 3)` is a **loop nest**: two loops, one inside the other.
# - `with T.sblock("C")` is a **block**. It says what is computed for one element.
# - `vi` and `vj` are the block's **axes**. `"SS"` says that both are *spatial*: each of their
#   values produces a different element, so they may be visited in any order.
#
# The loops say in which order elements are visited. The block says what an element is. Later
# lessons change the loops and leave the block alone. That is most of what makes programs fast.

# %% tags=["figure"]
figure.visiting_order(2, 3)

# %% [markdown]
# A module at the end of a cell is displayed. Click on a name to light up all of its uses. *Show
# all* adds what relaxlab inferred from the block's body: the regions that it reads and writes.

# %%
Add

# %% [markdown]
# ## Adding something up
#
# The sum of each row of a matrix is a vector. Each of its elements needs a loop of its own.


# %%
@I.ir_module
class RowSums:
    @T.prim_func
    def row_sums(A: T.Buffer((2, 3), "float32"), B: T.Buffer((2,), "float32")):
        for i, k in T.grid(2, 3):
            with T.sblock("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


sums = np.empty(2, "float32")
rl.interpret(RowSums, "row_sums", a, sums)
print(sums, a.sum(axis=1))

# %% [markdown]
# Two things are new.
#
# - `vk` is a **reduction axis** (the `R` in `"SR"`): all its values contribute to the same element.
#   They cannot simply run in parallel.
# - `T.init()` says what is stored before the first value is added. Without it the sum would start
#   from whatever was in memory.

# %% tags=["figure"]
figure.reduction(2, 3)

# %% [markdown]
# A matrix product is the same with three axes: two that name an element, and one to sum over.


# %%
@I.ir_module
class Product:
    @T.prim_func
    def product(
        A: T.Buffer((4, 3), "float32"),
        B: T.Buffer((3, 5), "float32"),
        C: T.Buffer((4, 5), "float32"),
    ):
        for i, j, k in T.grid(4, 5, 3):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


x, y, z = np.ones((4, 3), "float32"), np.ones((3, 5), "float32"), np.empty((4, 5), "float32")
rl.interpret(Product, "product", x, y, z)
np.array_equal(z, x @ y)

# %% [markdown] tags=["explorer"]
# Watch it run. The explorer steps through the loops, one element at a time: what is read, what is
# written, in which order. Use the arrow keys. Notice how long it takes before an element of `B` is
# read again: this distance will matter in lesson 7.

# %% tags=["explorer"]
rl.explore.loops(Product["product"])

# %% [markdown]
# ## Reading too far
#
# In C, reading one element too far gives you whatever happens to lie there. Here a program that can
# do so is refused as soon as it is read, before it runs.

# %%
try:

    @I.ir_module
    class TooFar:
        @T.prim_func
        def differences(A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32")):
            for i in range(5):
                with T.sblock("B"):
                    vi = T.axis.spatial(5, i)
                    B[vi] = A[vi + 1] - A[vi]

except rl.DiagnosticError as error:
    print(error)

# %% [markdown]
# There are only four differences between five numbers: `B` must have four elements.
#
# ## Exercises
#
# Each exercise is a program that runs but is not right yet. Change it and run its cell: the check
# in the last line says what is wrong. Solutions are in the folded cells.
#
# **1.1** Multiply every row of `A` by a number of its own: `B[i, j] = A[i, j] * s[i]`.


# %% tags=["exercise"]
@I.ir_module
class ScaleRows:
    @T.prim_func
    def scale_rows(
        A: T.Buffer((3, 5), "float32"),
        s: T.Buffer((3,), "float32"),
        B: T.Buffer((3, 5), "float32"),
    ):
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]


lesson1.scale_rows(ScaleRows)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class ScaleRowsSolution:
    @T.prim_func
    def scale_rows(
        A: T.Buffer((3, 5), "float32"),
        s: T.Buffer((3,), "float32"),
        B: T.Buffer((3, 5), "float32"),
    ):
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * s[vi]


lesson1.scale_rows(ScaleRowsSolution)

# %% [markdown]
# **1.2** The program below sums the rows of a matrix of shape (3, 5). Make it sum the *columns*.
# Which axis is the reduction now? (Then leave out `T.init()` once, and read what relaxlab says
# about it.)


# %% tags=["exercise"]
@I.ir_module
class ColumnSums:
    @T.prim_func
    def column_sums(A: T.Buffer((3, 5), "float32"), B: T.Buffer((3,), "float32")):
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vj]


lesson1.column_sums(ColumnSums)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class ColumnSumsSolution:
    @T.prim_func
    def column_sums(A: T.Buffer((3, 5), "float32"), B: T.Buffer((5,), "float32")):
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("RS", [i, j])
                with T.init():
                    B[vj] = T.float32(0)
                B[vj] = B[vj] + A[vi, vj]


lesson1.column_sums(ColumnSumsSolution)

# %% [markdown]
# **1.3** The program below sums two neighbours. Make it sum three: `A[i] + A[i + 1] + A[i + 2]`.
# `A` keeps its 9 elements. How many elements does `B` have then?


# %% tags=["exercise"]
@I.ir_module
class MovingSum:
    @T.prim_func
    def moving_sum(A: T.Buffer((9,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + A[vi + 1]


lesson1.moving_sum(MovingSum)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class MovingSumSolution:
    @T.prim_func
    def moving_sum(A: T.Buffer((9,), "float32"), B: T.Buffer((7,), "float32")):
        for i in range(7):
            with T.sblock("B"):
                vi = T.axis.spatial(7, i)
                B[vi] = A[vi] + A[vi + 1] + A[vi + 2]


lesson1.moving_sum(MovingSumSolution)

# %% [markdown]
# **1.4** In a matrix product, replace the sum by a maximum and the product by a sum: `C[i, j]` is
# the largest of `A[i, k] + B[k, j]` over all `k`. (With distances in `A` and `B` this is the
# longest path of two steps.) `T.max(x, y)` is the larger of two numbers, and
# `T.min_value("float32")` the most negative float32.


# %% tags=["exercise"]
@I.ir_module
class LongestStep:
    @T.prim_func
    def longest_step(
        A: T.Buffer((4, 3), "float32"),
        B: T.Buffer((3, 4), "float32"),
        C: T.Buffer((4, 4), "float32"),
    ):
        for i, j, k in T.grid(4, 4, 3):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


lesson1.longest_step(LongestStep)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class LongestStepSolution:
    @T.prim_func
    def longest_step(
        A: T.Buffer((4, 3), "float32"),
        B: T.Buffer((3, 4), "float32"),
        C: T.Buffer((4, 4), "float32"),
    ):
        for i, j, k in T.grid(4, 4, 3):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.min_value("float32")
                C[vi, vj] = T.max(C[vi, vj], A[vi, vk] + B[vk, vj])


lesson1.longest_step(LongestStepSolution)

# %% [markdown]
# ## What to remember
#
# - An operation on tensors is a loop nest around a block. The block says what one element is.
# - Spatial axes name an element. Reduction axes combine many values into one, and need a start
#   value.
# - The result's memory comes from the caller.
#
# Next: [the script language](02_the_script_language.py).
