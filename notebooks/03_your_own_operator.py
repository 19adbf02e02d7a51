# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 3. Your own operator, with a quantised format
#
# Weights of a model need not be floating-point numbers. Here each is -1, 0 or 1: four of them fit
# into a byte, sixteen times less than float32. No library has this format. You will define it, give
# the compiler an operator for it, and see that it fuses into products as if it had always been
# there.

# %%
import numpy as np

import relaxlab as rl
from relaxlab import expr, te
from relaxlab.script import ir as I
from relaxlab.script import relax as R

# %% [markdown]
# ## The format
#
# A weight is stored as 0, 1 or 2, and means that minus one. Four neighbours share a byte: the first
# has the lowest two bits. Every row has a scale. First in NumPy: this is the definition, and what
# everything else is compared with.


# %%
def pack(signs, scale):
    """signs in {-1, 0, 1} of shape (rows, columns) -> bytes of shape (rows, columns / 4)."""
    codes = (signs + 1).astype("uint8")
    parts = [codes[:, i::4] << np.uint8(2 * i) for i in range(4)]
    return np.bitwise_or.reduce(parts), scale.astype("float32")


def unpack(codes, scale):
    """The float32 matrix that the bytes stand for."""
    bits = (codes[:, :, None] >> np.array([0, 2, 4, 6], "uint8")) & 3
    return (bits.reshape(len(codes), -1).astype("float32") - 1) * scale[:, None]


rng = np.random.default_rng(0)
signs, scale = rng.integers(-1, 2, (6, 8)), rng.uniform(0.5, 1, 6).astype("float32")
codes, _ = pack(signs, scale)
weights = (signs * scale[:, None]).astype("float32")
print(codes.shape, codes.dtype, np.array_equal(unpack(codes, scale), weights))

# %% [markdown]
# ## The operator
#
# An operator is one row of a table. It needs a rule for its type, a lowering to loops, and a
# reference in NumPy. The lowering says what one element is: the compiler makes loops of it.


# %%
def infer(call, types):
    """(rows, columns / 4) bytes and (rows,) scales -> (rows, columns)."""
    rows, packed = rl.tensor_arg(call, types, 0).shape
    return rl.types.TensorType((rows, packed * 4), "float32")


def emit(call, out, codes, scale):
    def weight(i, j):
        shift = expr.Cast("uint8", j % 4 * 2)
        code = expr.BitAnd(expr.ShiftRight(codes[i, j // 4], shift), expr.const(3, "uint8"))
        return (expr.Cast("float32", code) - 1.0) * scale[i]

    return te.compute(out.shape, weight, "ternary")


# `override` lets you change this cell and run it again.
rl.define("ternary", "codes scale", infer, emit=emit, reference=unpack, override=True)

# %% [markdown]
# That is all. From now on `R.ternary` is part of the language.


# %%
@I.ir_module
class Layer:
    @R.function
    def main(
        x: R.Tensor(("n", 256), "float32"),
        codes: R.Tensor((512, 64), "uint8"),
        scale: R.Tensor((512,), "float32"),
    ):
        with R.dataflow():
            w = R.ternary(codes, scale)
            y = R.linear(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


trace = rl.trace(Layer)
trace.find("legalize_ops").after["ternary"]

# %% [markdown]
# Nobody told the compiler anything about fusion. It looked at the loops of `ternary`: each element
# is made from one byte and one scale.

# %%
for name in ("annotate_pattern_kind", "fuse_ops"):
    for remark in trace.find(name).remarks:
        print(f"{remark.subject}: {remark.reason}")
print("kernels:", list(trace.result.loop_functions()))

# %% [markdown] tags=["explorer"]
# The matrix of floating-point weights has vanished, and with it its bytes.

# %% tags=["explorer"]
rl.explore.fusion(Layer)

# %% [markdown]
# ## Is it right? What did it save?

# %%
signs, scale = rng.integers(-1, 2, (512, 256)), rng.uniform(0.5, 1, 512)
codes, scale = pack(signs, scale)
x = rng.normal(size=(5, 256)).astype("float32")
fused = rl.compile(Layer)
separate = rl.compile(Layer, pipeline=rl.cpu_pipeline().without("fuse_ops"))
want = np.maximum(x @ unpack(codes, scale).T, 0)
for title, exe in (("one kernel", fused), ("three kernels", separate)):
    assert np.allclose(exe["main"](x, codes, scale), want, atol=1e-4), f"{title} differs from NumPy"
    print(f"{title:14} holds {exe.arena_bytes():9,} bytes of intermediate results")
as_float32 = unpack(codes, scale).nbytes
print(f"the weights:   {codes.nbytes + scale.nbytes:9,} bytes, as float32 {as_float32:,}")

# %% [markdown]
# And the check of every pass, for every size it draws, with your operator in the middle:

# %%
print(rl.check(Layer))

# %% [markdown] tags=["explorer"]
# From the line in `emit` to machine code:

# %% tags=["explorer"]
rl.explore.code(Layer)

# %% [markdown]
# ## Your turn
#
# - A scale for each group of 32 columns instead of each row: `scale[i, j // 32]`. What changes in
#   `infer`?
# - Refuse what does not fit: `raise rl.TypeDeductionError("...")` where `codes` is not `uint8`.
#   Which place does the error point to?
# - Five values per weight need log2(5) = 2.3 bits; three weights fit into a byte of 125 codes.
#   Write that format. Does it still fuse? (It should: `//` and `%` on a byte are like any other
#   arithmetic.)
