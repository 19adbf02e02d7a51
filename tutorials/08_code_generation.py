# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 8. Code generation
#
# The loops are in shape. Now they become instructions of a processor.
#
# After this lesson you can
#
# - follow one statement from the script to LLVM's language and to assembly,
# - recognise a vector instruction when you see one,
# - say what the program around the kernels does,
# - write a kernel for a GPU, and take a compiled program out of Python.

# %%
import shutil
import tempfile
from pathlib import Path

import numpy as np

import relaxlab as rl
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from exercises import lesson8

# %% [markdown]
# ## From loops to LLVM
#
# relaxlab does not write machine code itself. It writes the language of **LLVM**, a compiler that
# many languages share. LLVM knows the processors.

# %%
@I.ir_module
class Affine:
    @T.prim_func
    def affine(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.func_attr({"tir.is_scheduled": True, "tir.noalias": True})
        for i in range(64):
            with T.sblock("B"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] * 3 + 1


def llvm_ir(func):
    """A loop function in the language of LLVM."""
    declarations = {}
    return emit_kernel(func, "kernel", declarations).text, declarations


print(llvm_ir(Affine["affine"])[0])

# %% [markdown]
# Read it slowly; it is less strange than it looks.
#
# - Every line is one operation, and names start with `%`. Each name gets its value once.
# - `body6:` and its like are labels; `br` jumps to them. The loop is the block that jumps back.
# - `getelementptr` computes an address, `load` and `store` move a number.
# - `fmul contract` multiplies; *contract* allows LLVM to merge it with an addition.
# - `%thread` and `%threads`: every thread of the team calls the kernel. A kernel without a parallel
#   loop is done by thread 0, and the others wait at the barrier.
#
# ## From LLVM to the processor
#
# Assembly is the readable form of machine code.

# %%
def assembly(func):
    """A loop function in the assembly language of this machine; the core of it."""
    text, declarations = llvm_ir(func)
    whole = jit.assembly(jit.module_text([text], declarations, rl.Target.host()), rl.Target.host())
    return whole.split("rl.kernel:")[1].split(".Lfunc_end0")[0]


print(assembly(Affine["affine"]))

# %% [markdown]
# On x86 look for the line with `vfmadd...ss`, on ARM for `fmadd`: one *fused multiply-add*, for one
# number (`ss` means a *single scalar*). It stands inside a loop of 64 rounds.
#
# Now the same with a vectorized loop.

# %%
host = rl.Target.host()
lanes = host.lanes("float32")
print(f"this machine has vectors of {host.vector_bits} bits: {lanes} float32 numbers")

sch = rl.Schedule(Affine["affine"])
(i,) = sch.get_loops(sch.get_block("B"))
io, ii = sch.split(i, factors=[None, lanes])
sch.vectorize(ii)
print(assembly(sch.func))

# %% [markdown]
# `ps` instead of `ss`: *packed singles*. One instruction does what a whole round of the loop did,
# for as many numbers as fit in a register (`xmm` has 128 bits, `ymm` 256, `zmm` 512).

# %% [markdown] tags=["explorer"]
# All stages side by side. Click a line, and its lines in the other stages light up.

# %% tags=["explorer"]
rl.explore.code(Affine.with_functions({"affine": sch.func}))

# %% [markdown]
# ## What is around the kernels
#
# A compiled program is more than kernels. Somebody has to read the sizes, get the memory, and
# call the kernels in order. This part is called the **host program**. It needs only a few kinds
# of instructions.

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


program = rl.lower_shapes(rl.trace(Layer).result)
for instruction in program.functions["main"].instrs:
    print(type(instruction).__name__)

# %% [markdown]
# - `MatchShape` reads the shape of an argument. It binds `n`, and checks what the signature claims.
# - `AllocStorage`, `View`, `Alloc` get memory: the arena of lesson 6, a place in it, the result.
# - `CallKernel` calls a kernel with pointers, and with the symbols that it needs, as numbers.
#
# There is no Python left in it. It becomes LLVM's language as well, and the whole program one piece
# of machine code. A **virtual machine** can run the same instructions one at a time.

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
# ## For a GPU
#
# A GPU runs thousands of threads, in blocks. A loop becomes threads by `bind`. The rest is the
# same: loops, a schedule, code. The code is CUDA C this time, and can be read.

# %%
sch = rl.Schedule(Affine["affine"])
(i,) = sch.get_loops(sch.get_block("B"))
io, ii = sch.split(i, factors=[None, 32])
sch.bind(io, "blockIdx.x")
sch.bind(ii, "threadIdx.x")
on_gpu = Affine.with_functions({"affine": sch.func})

a, b = np.arange(64, dtype="float32"), np.zeros(64, "float32")
report = rl.simt(on_gpu, "affine", a, b)
print(report)
print(np.array_equal(b, a * 3 + 1))

# %% [markdown]
# You need no GPU for this. `rl.simt` runs the threads one by one and watches them. A whole program
# for GPUs is one word away; the rules of schedules bind the loops.

# %%
@I.ir_module
class Smooth:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        return R.nn.relu(x)


print(rl.compile(Smooth, target="cuda").sources["relu"])

# %% [markdown]
# ## Exercises
#
# **8.1** Write a schedule for `affine`, so that every store in LLVM's language stores a full vector
# of this machine (`lanes` numbers).

# %% tags=["exercise"]
def full_vectors(sch):
    (i,) = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, 2])
    sch.vectorize(ii)


lesson8.full_vectors(Affine, full_vectors)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def full_vectors_solution(sch):
    (i,) = sch.get_loops(sch.get_block("B"))
    io, ii = sch.split(i, factors=[None, lanes])
    sch.vectorize(ii)


lesson8.full_vectors(Affine, full_vectors_solution)

# %% [markdown]
# **8.2** 100 numbers by vectors: where the length of a vector does not divide 100, the last one
# needs a condition (a *predicate*), and that costs instructions in every round. What is the longest
# vector with a power of two of numbers that needs none?

# %% tags=["exercise"]
longest = 16

lesson8.no_predicate(longest)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
longest_solution = 4

lesson8.no_predicate(longest_solution)

# %% [markdown]
# **8.3** How many kernels does a program call? Count the `CallKernel` instructions of `main` in the
# host program of a module.

# %% tags=["exercise"]
def count_kernel_calls(mod):
    program = rl.lower_shapes(rl.trace(mod).result)
    return len(program.functions["main"].instrs)


lesson8.count_kernel_calls(count_kernel_calls)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def count_kernel_calls_solution(mod):
    program = rl.lower_shapes(rl.trace(mod).result)
    return sum(type(i).__name__ == "CallKernel" for i in program.functions["main"].instrs)


lesson8.count_kernel_calls(count_kernel_calls_solution)

# %% [markdown]
# **8.4** A kernel for GPUs: one block per row, 64 threads in each. The rows have 100 numbers, so a
# thread does at most two of them. (`split` the columns by 64. Which of the two loops is bound to
# threads?)

# %%
@I.ir_module
class Rows:
    @T.prim_func
    def rows(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 100), "float32")
        B = T.match_buffer(b, (n, 100), "float32")
        for i, j in T.grid(n, 100):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.exp(A[vi, vj])


# %% tags=["exercise"]
def by_rows(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    sch.bind(i, "blockIdx.x")


lesson8.by_rows(Rows, by_rows)

# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def by_rows_solution(sch):
    i, j = sch.get_loops(sch.get_block("B"))
    jo, ji = sch.split(j, factors=[None, 64])
    sch.bind(i, "blockIdx.x")
    sch.bind(ji, "threadIdx.x")


lesson8.by_rows(Rows, by_rows_solution)

# %% [markdown]
# ## What to remember
#
# - Kernels come from scheduled loops alone: what you see in the loops is what you get.
# - Around them runs a small host program without Python.
# - The same loops, bound to blocks and threads, are a program for GPUs.
#
# Next: [a language model, end to end](09_language_model.py).
