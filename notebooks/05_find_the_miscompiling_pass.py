# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # Lab 5. Find the pass that miscompiles
#
# The worst bug of a compiler is silent: the program runs, and computes something else. `rl.check`
# runs a program before and after every pass and says which pass, and which single rewrite of it,
# is to blame. In this lab you hunt two bugs. Both look right, and both survive a careless test.

# %%
import numpy as np

import relaxlab as rl
from relaxlab import is_op, rewrite_call, wildcard
from relaxlab.script import ir as I
from relaxlab.script import relax as R

# %% [markdown]
# ## The first suspect
#
# Two reorderings of axes in a row are one. This pass finds such pairs and puts the axes together.

# %%
x = wildcard()


def merged(call, match):
    first = match.definition(inner).attrs["axes"]
    second = call.attrs["axes"]
    return rl.graph.Call(call.op, (match[x],), rl.Attrs(axes=tuple(second[a] for a in first)))


inner = is_op("permute_dims")(x)
merge_permutes = rewrite_call(is_op("permute_dims")(inner), merged, name="merge_permutes")
suspect = rl.cpu_pipeline().before("legalize_ops", merge_permutes)

# %% [markdown]
# Does it work? Its author tested it like this:


# %%
@I.ir_module
class Author:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        with R.dataflow():
            y = R.permute_dims(x, axes=[1, 0])
            z = R.permute_dims(y, axes=[1, 0])
            R.output(z)
        return z


print(rl.check(Author, pipeline=suspect))

# %% [markdown]
# Nothing wrong. And here is a program of a user.


# %%
@I.ir_module
class User:
    @R.function
    def main(x: R.Tensor(("n", "n", "n"), "float32")):
        with R.dataflow():
            a = R.permute_dims(x, axes=[2, 1, 0])
            b = R.permute_dims(a, axes=[2, 1, 0])
            c = R.exp(b)
            d = R.permute_dims(c, axes=[1, 2, 0])
            e = R.permute_dims(d, axes=[0, 2, 1])
            R.output(e)
        return e


report = rl.check(User, pipeline=suspect)
report

# %% [markdown]
# Read it from top to bottom: the pass, the one rewrite (there were two, and the other one is
# innocent), the first wrong element, the sizes, and a call that reproduces it. All sizes are equal
# here, so no shape gave the bug away.
#
# Below the text are both sides of the pass. They are values, too: `report.finding.before` and
# `.after`.

# %% [markdown] tags=["explorer"]
# Side by side:

# %% tags=["explorer"]
rl.explore.compare(User, rl.cpu_pipeline(), suspect)

# %% [markdown]
# Which is right? Ask NumPy, on a small case. The result's axis `i` is axis `second[i]` of the value
# in between, and that is axis `first[second[i]]` of `x`. The pass has it the wrong way round. For
# swaps of two axes both are the same; that is why its author saw nothing.

# %%
a = np.arange(8).reshape(2, 2, 2)
first, second = (1, 2, 0), (0, 2, 1)
want = a.transpose(first).transpose(second)
print(
    np.array_equal(want, a.transpose([second[i] for i in first])),
    np.array_equal(want, a.transpose([first[i] for i in second])),
)


def repaired(call, match):
    first = match.definition(inner).attrs["axes"]
    second = call.attrs["axes"]
    return rl.graph.Call(call.op, (match[x],), rl.Attrs(axes=tuple(first[a] for a in second)))


merge_permutes = rewrite_call(is_op("permute_dims")(inner), repaired, name="merge_permutes")
print(rl.check(User, pipeline=rl.cpu_pipeline().before("legalize_ops", merge_permutes)))

# %% [markdown]
# ## The second suspect
#
# This one works on loops. Schedules split loops, and where the size is not a multiple, a
# condition keeps the last iteration in bounds. Conditions cost time. "Our sizes are always
# multiples of 16", says the author, and removes them.


# %%
def strip(mod, options: rl.NoOptions):
    """Remove the conditions of all blocks."""

    def unconditional(node):
        if isinstance(node, rl.loops.BlockRealize):
            return rl.replace(node, predicate=rl.expr.const(True))
        return None

    changed = {}
    for name, func in mod.loop_functions().items():
        new = rl.rewrite(func, unconditional)
        if new is not func and rl.may_apply("strip_conditions", name, "sizes are multiples of 16"):
            changed[name] = new
    return mod.with_functions(changed)


strip_conditions = rl.module_pass("strip_conditions", needs=("schedule_kernels",))(strip)
suspect = rl.cpu_pipeline().after("schedule_kernels", strip_conditions)


@I.ir_module
class Rows:
    @R.function
    def main(x: R.Tensor(("n", 32), "float32"), w: R.Tensor((32, 48), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.sum(y, axis=1)
            R.output(z)
        return z


# %% [markdown]
# With sizes that its author had in mind, all is well:

# %%
print(rl.check(Rows, pipeline=suspect, sizes=[48, 96]))

# %% [markdown]
# `rl.check` draws odd sizes unless it is told not to:

# %%
report = rl.check(Rows, pipeline=suspect)
print(report)

# %% [markdown]
# The interpreter refuses what would be a write outside the buffer. Natively it would sometimes
# have destroyed something else.
#
# ## How the one rewrite is found
#
# Every pass asks `may_apply` before a rewrite. `rl.check` allows the first one, the first two, ...,
# by bisection, until the result goes wrong. You can do the same by hand.

# %%
broken = rewrite_call(is_op("permute_dims")(inner), merged, name="merge_permutes")
start = rl.trace(User).find("legalize_ops").before
cube = np.random.default_rng(0).normal(size=(3, 3, 3)).astype("float32")
want = rl.interpret(User, "main", cube)
for count in range(3):
    with rl.first_rewrites(count) as made:
        module = broken(start)
    right = np.allclose(rl.interpret(module, "main", cube), want)
    print(f"the first {count} rewrites: {'right' if right else 'wrong'}")

# %% [markdown]
# ## Your turn
#
# - Write a pass that is right for all floats but `nan`: `x * 0` is `0`. Does `rl.check` find it?
#   What would its `inputs=` have to return?
# - Merge `R.reshape(R.reshape(x, a), b)` into one. Can that go wrong?
# - `relaxlab check FILE.py` does all of this on the command line.
