# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 6. Your own accelerator
#
# Chips for neural networks have a unit that multiplies small matrices, and memories of their own to
# feed it from. Here you invent such a chip: its memories, its instructions, and how programs are
# cut up for it. Then the compiler compiles for it, and you never touch the compiler.
#
# You need lesson 8 (tiles) and a little of lesson 5 (fusion).

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T

from figures import lab6 as figure

rng = np.random.default_rng(0)

# %% [markdown]
# ## The machine
#
# It is called *mosaic*. Its unit multiplies tiles of 8 by 8 numbers. Tiles to be multiplied have to
# be in a **scratchpad** of 512 bytes, which is room for two of them. Sums are kept in
# **accumulators**, 256 bytes, which is one tile. An ordinary processor runs the loops and does
# everything that is no product.

# %% tags=["figure"]
figure.machine()

# %% [markdown]
# ## Its instructions
#
# To the compiler an instruction is a **tensor intrinsic**: two loop functions over the same
# buffers. `desc` says in plain loops what is computed. `impl` is the code: here a call of a
# function that would send the instruction to the chip.


# %%
@T.prim_func
def load_desc(to: T.Buffer((8, 8)), source: T.Buffer((8, 8))):
    for i, j in T.grid(8, 8):
        to[i, j] = source[i, j]


@T.prim_func
def load_impl(to: T.Buffer((8, 8)), source: T.Buffer((8, 8))):
    T.call_extern("void", "load", T.address_of(to[0, 0]), T.address_of(source[0, 0]))


@T.prim_func
def zero_desc(sums: T.Buffer((8, 8))):
    for i, j in T.grid(8, 8):
        sums[i, j] = 0.0


@T.prim_func
def zero_impl(sums: T.Buffer((8, 8))):
    T.call_extern("void", "zero", T.address_of(sums[0, 0]))


@T.prim_func
def multiply_desc(sums: T.Buffer((8, 8)), a: T.Buffer((8, 8)), b: T.Buffer((8, 8))):
    for i, j, k in T.grid(8, 8, 8):
        sums[i, j] += a[i, k] * b[k, j]


@T.prim_func
def multiply_impl(sums: T.Buffer((8, 8)), a: T.Buffer((8, 8)), b: T.Buffer((8, 8))):
    T.call_extern(
        "void", "multiply",
        T.address_of(sums[0, 0]), T.address_of(a[0, 0]), T.address_of(b[0, 0]),
    )  # fmt: skip


# `override` lets you change this cell and run it again.
rl.TensorIntrin.register("mosaic_load", load_desc, load_impl, override=True)
rl.TensorIntrin.register("mosaic_zero", zero_desc, zero_impl, override=True)
rl.TensorIntrin.register("mosaic_multiply", multiply_desc, multiply_impl, override=True)

# %% [markdown]
# ## Its rule
#
# A **rule** schedules kernels without being told their names. It gets a `Schedule` and returns it
# when it is done, or says in words why it does not fit. Ours wants a single product of matrices. It
# cuts the product into tiles; rows and columns that are lacking for whole tiles become zeros.

# %% tags=["figure"]
figure.tiles()


# %%
def matrix_unit(sch, context):
    blocks = [sch.get(block) for block in sch.get_child_blocks(sch.get_block("root"))]
    sums = [b for b in blocks if any(axis.kind == "reduce" for axis in b.iter_vars)]
    if len(sums) != 1 or len(sums[0].iter_vars) != 3:
        return f"it has {len(sums)} sums, not those of one product alone"
    product = sch.get_block(sums[0].name)
    sch.pad_einsum(product, [8, 8, 8])
    # The product stays in the accumulators, and what follows it is done where they are read.
    store = sch.cache_write(product, 0, "acc")
    while sch.get_consumers(store):
        (following,) = sch.get_consumers(store)
        sch.compute_inline(store)
        store = following
    # Tiles of rows, columns and depth.
    i, j, k = sch.get_loops(product)
    (row, i), (column, j), (step, k) = (sch.split(loop, [None, 8]) for loop in (i, j, k))
    sch.reorder(row, column, step, i, j, k)
    sch.reverse_compute_at(store, column)
    # Each step copies a tile of both operands to the scratchpad, the storage scope "tiles".
    for operand in (0, 1):
        copy = sch.cache_read(product, operand, "tiles")
        sch.compute_at(copy, step, preserve_unit_loops=True)
        sch.tensorize(sch.get_loops(copy)[-2], "mosaic_load")
    start = sch.decompose_reduction(product, step)
    sch.tensorize(sch.get_loops(start)[-2], "mosaic_zero")
    sch.tensorize(i, "mosaic_multiply")
    sch.compact_buffers()
    return sch


# %% [markdown]
# `tensorize` compares the loops with `desc` and refuses what is not the same. A rule with a mistake
# in it therefore does not fit; it never gives a wrong program.
#
# ## The target
#
# A kind of machines is one value. We take the plainest there is, whose kernels the interpreter
# runs, and replace what is ours: its memories, and its rules, in the order in which they are tried.
# Whatever the matrix unit is not for is left to the rules of processors.


# %%
def facts(target):
    return rl.Facts(scratchpads=(("tiles", 512), ("acc", 256)))


plain = rl.target_kind("interpreter")
mosaic = rl.replace(
    plain, name="mosaic", facts=facts,
    rules=lambda: (("matrix_unit", matrix_unit), *plain.rules()),
)  # fmt: skip
rl.register_target(mosaic, override=True)


# %% [markdown]
# ## A model
#
# A small classifier with two products. `n`, the number of rows, is a symbol, and 10 columns are no
# multiple of 8.


# %%
@I.ir_module
class Classifier:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        w1: R.Tensor((64, 16), "float32"),
        b1: R.Tensor((16,), "float32"),
        w2: R.Tensor((16, 10), "float32"),
    ):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w1) + b1)
            y = R.nn.softmax(R.matmul(h, w2))
            R.output(y)
        return y


def decisions(mod):
    for remark in rl.trace(mod, "mosaic").find("schedule_kernels").remarks:
        if "matrix_unit" in remark.reason or remark.applied:
            print(f"{remark.subject}: {remark.reason}")


decisions(Classifier)

# %% [markdown]
# The first product is on the matrix unit, the second is not. The compiler has made one kernel of it
# and the softmax: on a processor, short sums are cheaper to compute where they are needed than to
# store. On our machine they are not. How long such sums may be is another fact about a machine, one
# of its **limits of fusion**:


# %%
def facts(target):
    limits = rl.FusionLimits(terms=0)
    return rl.Facts(scratchpads=(("tiles", 512), ("acc", 256)), fusion=limits)


rl.register_target(rl.replace(mosaic, facts=facts), override=True)
decisions(Classifier)

# %% [markdown]
# ## Compile and run
#
# Compiled once, for every `n`. No such chip exists, but each instruction has its `desc`, and the
# interpreter runs that.

# %%
exe = rl.compile(Classifier, target="mosaic")
shapes = (64, 16), (16,), (16, 10)
w1, b1, w2 = (rng.normal(scale=0.25, size=shape).astype("float32") for shape in shapes)
for n in (1, 8, 13):
    x = rng.normal(size=(n, 64)).astype("float32")
    scores = np.exp(np.maximum(x @ w1 + b1, 0) @ w2)
    want = scores / scores.sum(1, keepdims=True)
    print(n, np.allclose(exe["main"](x, w1, b1, w2), want, atol=1e-5))

# %% [markdown]
# And every pass on the way, for sizes of its own choice:

# %%
print(rl.check(Classifier, target="mosaic"))

# %% [markdown] tags=["explorer"]
# ## Look at it
#
# A kernel on the way to the chip. *Instructions* has the code of the intrinsics in place of their
# descriptions: it is what a driver would send. Point at a line to see where it comes from.

# %% tags=["explorer"]
rl.explore.code(Classifier, target="mosaic")

# %% [markdown] tags=["explorer"]
# The steps of your rule, one by one, with the loops before and after each:

# %% tags=["explorer"]
trace = rl.trace(Classifier, "mosaic")
kernel = next(name for name in trace.result.loop_functions() if "relu" in name)
rl.explore.loops(rl.schedule_of(trace, kernel), name=kernel, n=9)

# %% [markdown] tags=["explorer"]
# And all passes:

# %% tags=["explorer"]
rl.explore.pipeline(Classifier, target="mosaic")

# %% [markdown]
# ## Your turn
#
# - Every tile of `w1` is loaded again for each tile of rows. Move its copy out to the loop
#   `column` instead of `step` and run the cells again. What does `decisions` say, and how many
#   bytes would the scratchpad need?
# - Give the machine an instruction that stores a tile with a ReLU. Which steps of the rule change,
#   and what becomes of the bias?
# - The rule for processors has the same parts: registers instead of accumulators, a panel on the
#   stack instead of the scratchpad. Step through it, from `rl.trace(Classifier)`, and compare.
