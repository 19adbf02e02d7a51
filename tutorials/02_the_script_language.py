# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 2. The script language
#
# Programs in this course look like Python. This lesson is about what they really are.
#
# After this lesson you can
#
# - say what a decorated program becomes, and take it apart,
# - print a program, change the text, and read it back,
# - read an error of the compiler: where, what, and the way out,
# - write conditions, casts and mathematical functions inside blocks.
#
# *About 60 minutes. You need lesson 1.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import tir as T

from exercises import lesson2
from figures import lesson2 as figure

# %% [markdown]
# ## The text is read, not run
#
# Put a `print` into a program. If Python ran the function you would see the word.

# %%
try:

    @I.ir_module
    class Chatty:
        @T.prim_func
        def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            print("hello")
            for i in range(4):
                with T.sblock("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi]

except rl.DiagnosticError as error:
    print(error)

# %% [markdown]
# The decorator `@I.ir_module` looked up the source text of the class, took it apart with Python's
# own parser, and built a program from the pieces. `print` is not part of the language, so that was
# refused. Three names are always there: `T` for loop functions, `R` for functions on whole tensors
# (lesson 4), `I` for modules.

# %% tags=["figure"]
figure.round_trip()

# %% [markdown]
# What comes out is a value like any other. Look at one.


# %%
@I.ir_module
class Halve:
    @T.prim_func
    def halve(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] / 2


func = Halve["halve"]
print(type(Halve).__name__, list(Halve))
print(type(func).__name__, [buffer.name for buffer in func.buffers])

# %% [markdown]
# A module is a **tree of nodes**. The names on the left are those of the fields that hold a node.
# Point at a node, and its text lights up.

# %% tags=["explorer"]
rl.explore.tree(Halve)

# %% [markdown]
# You can walk the tree. Here are all the nodes that are loops, loads or stores.

# %%
for node in rl.walk(func.body):
    if isinstance(node, rl.loops.For | rl.loops.BufferLoad | rl.loops.BufferStore):
        print(type(node).__name__)

# %% [markdown]
# Nodes never change. A transformation builds a new program and leaves the old one as it was, so
# every step of the compiler can be kept and looked at afterwards.
#
# ## From program to text and back
#
# `script()` prints a program as text that can be read again. `rl.parse` reads it.

# %%
text = Halve.script()
again = rl.parse(text)
rl.structural_equal(Halve, again)

# %% [markdown]
# **Structurally equal** means: the same program up to the names of its variables. Renaming an axis
# changes nothing. Changing a number does, and `assert_structural_equal` says where.

# %%
renamed = rl.parse(text.replace("vi", "element"))
print(rl.structural_equal(Halve, renamed))

thirds = rl.parse(text.replace("2.0", "3.0"))
try:
    rl.assert_structural_equal(Halve, thirds)
except AssertionError as error:
    print(error)

# %% [markdown]
# Did you notice `T.float32(2.0)` in the printed text? You wrote `2`. A bare number takes the type
# of what it meets. There are no hidden conversions otherwise: what is printed is all there is.

# %%
print(text)

# %% [markdown]
# ## Names from around the program
#
# A program may use numbers and strings from the Python code around it. They become constants.

# %%
LIMIT = 6


@I.ir_module
class Relu6:
    @T.prim_func
    def relu6(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = T.min(T.max(A[vi], 0), LIMIT)


y = np.empty(4, "float32")
rl.interpret(Relu6, "relu6", np.array([-3, 2, 6, 9], "float32"), y)
y

# %% [markdown]
# ## What a block may contain
#
# | you write | it means |
# | --- | --- |
# | `T.if_then_else(c, x, y)` | `x` where `c` holds, else `y`; the other one is not computed |
# | `T.cast(x, "float32")` | conversion to another dtype |
# | `T.exp(x)`, `T.sqrt(x)`, `T.abs(x)`, `T.max(x, y)`, ... | mathematics |
# | `a // b`, `a % b` | integer division and remainder, as in Python |
# | `x = ...` | a name for a value; it never changes. What changes is kept in a buffer |
#
# A block uses its own axes, not the loops around it. This is what allows a later step to rearrange
# the loops without reading the block. Forget it, and you are told.

# %%
try:

    @I.ir_module
    class LoopVariable:
        @T.prim_func
        def ramp(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.sblock("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] * T.cast(i, "float32")

except rl.DiagnosticError as error:
    print(error)

# %% [markdown]
# ## Reading an error
#
# Every error has the same parts: a code with a documented example (`E0330`, see
# `docs/errors-loops.md`), one sentence, the place, and where possible a way out. All errors of a
# program are reported together, so you do not fix them one by one.

# %%
BROKEN = """
@I.ir_module
class Broken:
    @T.prim_func
    def distance(A: T.Buffer((5, 3), "float32"), B: T.Buffer((5,), "float32")):
        for i, k in T.grid(5, 3):
            with T.sblock("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi] * A[vi, vj]
        for i in range(5):
            with T.sblock("length"):
                vi = T.axis.spatial(5, i)
                B[vi] = T.squareroot(B[vi])
"""
try:
    rl.parse(BROKEN)
except rl.DiagnosticError as error:
    print(error)

# %% [markdown] tags=["explorer"]
# An explorer shows the same errors at their places in the text.

# %% tags=["explorer"]
rl.explore.pipeline(BROKEN)

# %% [markdown]
# ## Exercises
#
# **2.1** Repair the program above, in the text below. It should compute the length of each row of
# `A`: the square root of the sum of squares.

# %% tags=["exercise"]
REPAIRED = BROKEN

lesson2.repair(REPAIRED)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
REPAIRED_SOLUTION = BROKEN.replace("A[vi] * A[vi, vj]", "A[vi, vk] * A[vi, vk]").replace(
    "T.squareroot", "T.sqrt"
)

lesson2.repair(REPAIRED_SOLUTION)

# %% [markdown]
# **2.2** The *leaky* relu keeps positive numbers and multiplies negative ones by 0.1.


# %% tags=["exercise"]
@I.ir_module
class LeakyRelu:
    @T.prim_func
    def leaky_relu(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32")):
        for i in range(7):
            with T.sblock("B"):
                vi = T.axis.spatial(7, i)
                B[vi] = T.max(A[vi], 0)


lesson2.leaky_relu(LeakyRelu)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class LeakyReluSolution:
    @T.prim_func
    def leaky_relu(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32")):
        for i in range(7):
            with T.sblock("B"):
                vi = T.axis.spatial(7, i)
                B[vi] = T.if_then_else(A[vi] > 0, A[vi], A[vi] * 0.1)


lesson2.leaky_relu(LeakyReluSolution)

# %% [markdown]
# **2.3** A picture is stored as bytes (`uint8`, 0 to 255). Turn the bytes into numbers
# from 0 to 1. Convert before you divide: what would the largest byte divided by 255 be in integers?


# %% tags=["exercise"]
@I.ir_module
class FromBytes:
    @T.prim_func
    def from_bytes(A: T.Buffer((3, 5), "uint8"), B: T.Buffer((3, 5), "float32")):
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.cast(A[vi, vj] // T.uint8(255), "float32")


lesson2.from_bytes(FromBytes)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
@I.ir_module
class FromBytesSolution:
    @T.prim_func
    def from_bytes(A: T.Buffer((3, 5), "uint8"), B: T.Buffer((3, 5), "float32")):
        for i, j in T.grid(3, 5):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.cast(A[vi, vj], "float32") / 255


lesson2.from_bytes(FromBytesSolution)

# %% [markdown]
# **2.4** Write a function that counts the stores of a loop function: how many `BufferStore` nodes
# are in its body? (A block with `T.init()` has two.)


# %% tags=["exercise"]
def count_stores(func):
    return 1


lesson2.count_stores(count_stores)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def count_stores_solution(func):
    return sum(isinstance(node, rl.loops.BufferStore) for node in rl.walk(func.body))


lesson2.count_stores(count_stores_solution)

# %% [markdown]
# ## What to remember
#
# - A program is read from its text and becomes a tree of nodes that never change.
# - What is printed can be read again, and is the same program.
# - A block refers only to its own axes.
#
# Next: [symbolic shapes](03_symbolic_shapes.py).
