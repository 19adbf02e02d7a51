# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 9. Code generation
#
# The loops are in shape. Now they become instructions of a processor.
#
# After this lesson you can
#
# - follow one statement from the script to LLVM's language and to assembly,
# - recognise a vector instruction when you see one,
# - say which version of a kernel runs for which sizes,
# - say what the program around the kernels does, and take it out of Python.
#
# *About 75 minutes. You need lessons 1 and 7; lesson 6 helps.*

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson9
from figures import lesson9 as figure

# %% [markdown]
# ## From loops to LLVM
#
# relaxlab does not write machine code itself. It writes the language of **LLVM**, a compiler that
# many languages share. LLVM knows the processors. `rl.Schedule` here says: compile these loops as
# they are.


# %%
@I.ir_module
class Affine:
    @T.prim_func
    def affine(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.sblock("B"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] * 3 + 1


exe = rl.compile(rl.Schedule(Affine))
print(exe.llvm("affine_kernel"))

# %% [markdown]
# The executable has two functions: `affine`, which Python calls, and `affine_kernel`, the loops.
# Read the kernel slowly; it is less strange than it looks.
#
# - Every line is one operation, and names start with `%`. Each name gets its value once.
# - `body6:` and its like are labels; `br` jumps to them. The loop is the block that jumps back. In
#   front of it, `phi` chooses a value: one in the first iteration, another one later.
# - `getelementptr` computes an address, `load` and `store` move a number.
# - `fmul contract` multiplies; *contract* allows LLVM to merge it with an addition.
# - `%thread` and `%threads`: every thread of the team calls the kernel. A kernel without a parallel
#   loop is run by thread 0, and the others wait at the barrier.
#
# ## From LLVM to the processor
#
# Assembly is the readable form of machine code.

# %%
print(exe.assembly("affine_kernel"))

# %% [markdown]
# On x86 look for the line with `vfmadd...ss`, on ARM for `fmadd`: one *fused multiply-add*, for one
# number (`ss` means *scalar, single precision*). It is inside a loop of 64 iterations. This is what
# became of one statement:


# %%
def line_with(text, *words):
    """The first line that has one of the words."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for word in words for line in lines if word in line), "")


# %% tags=["figure"]
figure.forms(
    [
        ("script", "B[vi] = A[vi] * 3 + 1"),
        ("LLVM IR", line_with(exe.llvm("affine_kernel"), "fmul") + " …"),
        ("assembly", line_with(exe.assembly("affine_kernel"), "fmadd", "fmul", "mulss")),
    ]
)

# %% [markdown]
# Now the same with a vectorized loop.

# %%
host = rl.Target.host()
lanes = host.lanes("float32")
print(f"this machine has vectors of {host.facts.vector_bits} bits: {lanes} float32 numbers")

sch = rl.Schedule(Affine)
(i,) = sch.get_loops(sch.get_block("B"))
io, ii = sch.split(i, factors=[None, lanes])
sch.vectorize(ii)
print(rl.compile(sch).assembly("affine_kernel"))

# %% [markdown]
# `ps` instead of `ss`: *packed, single precision*. One instruction does what an iteration of the
# loop did, for as many numbers as fit in a register (`xmm` has 128 bits, `ymm` 256, `zmm` 512).

# %% [markdown] tags=["explorer"]
# All stages side by side. Click a line, and its lines in the other stages light up.

# %% tags=["explorer"]
rl.explore.code(sch)

# %% [markdown] tags=["explorer"]
# LLVM is a compiler with passes of its own. Here is each of them that changed this kernel, and what
# it changed.

# %% tags=["explorer"]
rl.explore.llvm(sch)

# %% [markdown]
# ## One kernel, several versions
#
# A kernel with a symbolic size must run for every size, but the best loops for one row are not the
# best ones for a thousand. So the compiler writes several versions, each behind a condition.


# %%
@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.sum(y, axis=1)
            R.output(z)
        return z


trace = rl.trace(Layer)

# %% tags=["figure"]
figure.guarded(trace.result["matmul"])

# %% [markdown]
# The conditions are checked once per call, not once per element. `trace.result["matmul"]` shows the
# loops of all versions.
#
# ## What is around the kernels
#
# A compiled program is more than kernels. Somebody has to read the sizes, get the memory, and
# call the kernels in order. This part is called the **host program**.

# %% tags=["figure"]
figure.host_program()

# %% [markdown]
# It needs only a few kinds of instructions. Here are those of `Layer`:

# %%
program = rl.lower_shapes(trace.result)
for instruction in program.functions["main"].instrs:
    print(type(instruction).__name__)

# %% [markdown]
# - `MatchShape` reads the shape of an argument. It binds `n`, and checks what the signature claims.
# - `AllocStorage`, `View`, `Alloc` get memory: the arena of lesson 6, a place in it, the result.
# - `CallKernel` calls a kernel with pointers, and with the symbols that it needs, as numbers.
#
# There is no Python left in it. It is compiled by LLVM as well, and the whole program becomes one
# piece of machine code. A **virtual machine** can run the same instructions one at a time.

# %% [markdown] tags=["explorer"]
# Step through it. Look at the registers after each instruction.

# %% tags=["explorer"]
x, w = np.ones((3, 64), "float32"), np.ones((64, 32), "float32")
rl.explore.run(Layer, "main", x, w)

# %% [markdown]
# ## Without Python
#
# Such a program does not need Python at all. `export` writes a shared library with a C interface.

# %%
if shutil.which("cc"):
    with tempfile.TemporaryDirectory() as folder:
        files = rl.compile(Layer).export(Path(folder) / "layer.so")
        print([file.name for file in files])
        header = (Path(folder) / "layer.h").read_text()
        print([line for line in header.splitlines() if "layer_main" in line])
else:
    print("this takes a C compiler")

# %% [markdown]
# ## Exercises
#
# **9.1** Write a schedule for `affine`, so that every store in LLVM's language stores a full vector
# of this machine (`lanes` numbers).


# %% tags=["exercise"]
def full_vectors(sch):
    (i,) = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, 2])
    sch.vectorize(ii)


lesson9.full_vectors(Affine, full_vectors)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def full_vectors_solution(sch):
    (i,) = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, lanes])
    sch.vectorize(ii)


lesson9.full_vectors(Affine, full_vectors_solution)

# %% [markdown]
# **9.2** 100 numbers by vectors: where the length of a vector does not divide 100, the last one
# needs a condition (a *predicate*), and that costs instructions in every iteration. Which is the
# longest vector that needs none, if its length is a power of two?

# %% tags=["exercise"]
longest = 16

lesson9.no_predicate(longest)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
longest_solution = 4

lesson9.no_predicate(longest_solution)

# %% [markdown]
# **9.3** How many kernels does a program call? Count the `CallKernel` instructions of `main` in the
# host program of a module.


# %% tags=["exercise"]
def count_kernel_calls(mod):
    program = rl.lower_shapes(rl.trace(mod).result)
    return len(program.functions["main"].instrs)


lesson9.count_kernel_calls(count_kernel_calls)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def count_kernel_calls_solution(mod):
    program = rl.lower_shapes(rl.trace(mod).result)
    return sum(type(i).__name__ == "CallKernel" for i in program.functions["main"].instrs)


lesson9.count_kernel_calls(count_kernel_calls_solution)

# %% [markdown]
# ## What to remember
#
# - Kernels come from scheduled loops alone: what you see in the loops is what you get.
# - A kernel of symbolic size has versions; conditions choose one per call.
# - Around the kernels runs a small host program without Python.
#
# Next: [GPUs](10_gpus.py).
