# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 2. Write your own pass, and watch it
#
# A pass is a function from a module to a module. You will write two: one with patterns, in three
# lines, and one by hand. Both are put into the compiler, watched at work, and checked.

# %%
import numpy as np

import relaxlab as rl
from relaxlab import is_const, is_op, rewrite_call, wildcard
from relaxlab.script import ir as I
from relaxlab.script import relax as R

# %% [markdown]
# ## A program with something to improve
#
# Two multiplications by constants, one after the other, and a relu of a relu.


# %%
@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            a = R.multiply(x, R.const(3.0, "float32"))
            b = R.multiply(a, R.const(0.5, "float32"))
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            e = R.nn.relu(d)
            R.output(e)
        return e


# %% [markdown]
# ## A pass of three lines
#
# `(x * p) * q` is `x * (p * q)`. Say what to look for, and what to put in its place. The constants
# are known now, so they are multiplied now.

# %%
x, p, q = wildcard(), is_const(), is_const()


def merged(call, match):
    product = np.asarray(match[p].data * match[q].data)
    return rl.graph.Call(call.op, (match[x], rl.graph.Constant(product)), call.attrs)


merge_scales = rewrite_call(
    is_op("multiply")(is_op("multiply")(x, p), q), merged, name="merge_scales"
)

# %% [markdown]
# Put it into the pipeline, after values have been named and before operators become loops. Then run
# the compiler and read what the pass says about itself.

# %%
pipeline = rl.cpu_pipeline().before("legalize_ops", merge_scales)
trace = rl.trace(Program, pipeline=pipeline)
record = trace.find("merge_scales")
for remark in record.remarks:
    print(remark.subject, "-", remark.reason)
record.after

# %% [markdown]
# One multiplication is left, by 1.5. `a` is gone, since nobody reads it any more.

# %% [markdown] tags=["explorer"]
# Both pipelines side by side, with and without your pass.

# %% tags=["explorer"]
rl.explore.compare(Program, rl.cpu_pipeline(), pipeline)

# %% [markdown]
# ## A pass by hand
#
# The second pass removes a relu of a relu. This time without patterns: we go through the bindings,
# and remember which values come out of a relu.
#
# Three rules make a good pass.
#
# - It is a pure function. What does not change is returned as it was, as the same object.
# - It asks `may_apply` right before it changes something, and gives the reason. So the change is in
#   the trace, and tools can leave it out to find out whether it was to blame.
# - It returns a valid module, whichever of its changes are made.

# %%
RELU = rl.graph.Op("nn.relu")


def is_relu(value):
    return isinstance(value, rl.graph.Call) and value.op == RELU


def relus_once(mod, options: rl.NoOptions):
    """relu(relu(x)) is relu(x)."""

    def block(old):
        positive, new = set(), []
        for binding in old.bindings:
            if is_relu(binding.value):
                (argument,) = binding.value.args
                where = binding.var.name
                reason = f"`{getattr(argument, 'name', argument)}` has no negative elements"
                if argument in positive and rl.may_apply("relus_once", where, reason):
                    binding = rl.replace(binding, value=argument)
                positive.add(binding.var)
            new.append(binding)
        return rl.with_bindings(old, new)

    functions = mod.graph_functions().items()
    return mod.with_functions({name: rl.map_blocks(f, block) for name, f in functions})


# A pass has a name, and says which passes it needs before it.
relus_once = rl.module_pass("relus_once", needs=("normalize",))(relus_once)

# %%
mine = pipeline.before(
    "legalize_ops", relus_once, rl.find_pass("canonicalize"), rl.find_pass("dead_code_elimination")
)
trace = rl.trace(Program, pipeline=mine)
for name in ("merge_scales", "relus_once", "canonicalize", "dead_code_elimination"):
    for remark in trace.find(name).remarks:
        print(f"{name}: {remark.subject} - {remark.reason}")
before = trace.find("legalize_ops").before
before

# %% [markdown]
# `relus_once` says that `e` is another name for `d`; `canonicalize` removes such names.

# %% [markdown] tags=["explorer"]
# Step through the rewrites of your passes.

# %% tags=["explorer"]
rl.explore.pipeline(trace)

# %% [markdown]
# ## Three tests that every pass should pass
#
# It does what was meant. It finds nothing to do in its own result. It keeps the meaning.

# %%
start = trace.find("merge_scales").after
once = rl.find_pass("canonicalize")(relus_once(start))
print("changes something:     ", once is not start)
print("twice changes no more: ", relus_once(once) is once)
print(rl.check(Program, pipeline=mine))

# %% [markdown]
# `rl.check` ran the program before and after every pass of the pipeline, and as native code, on
# random sizes and arguments. Lab 5 shows what it says when a pass is wrong.
#
# ## Your turn
#
# - `x + 0` is `x`. Write it with a pattern: `is_const(0)`. Is it also true of `-0.0`? Ask
#   `rl.check`.
# - `R.exp(R.log(x))` is *not* always `x`. Write that pass, and let `rl.check` find a
#   counterexample. (Give `inputs=` some negative numbers.)
# - Let `relus_once` know that `R.exp`, `R.abs` and `R.sigmoid` have no negative elements either.
