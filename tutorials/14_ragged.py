# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 14. Loops whose lengths differ
#
# Sentences are not equally long. The usual way out is to pad: every sentence gets as many rows as
# the longest one has, and most of the work is done on zeros. This lesson keeps only the rows that
# exist, and schedules the loops over them.
#
# After this lesson you can
#
# - say how much padding costs for a batch of lengths,
# - write loops over sequences that lie behind each other, and state what is known of their lengths,
# - fuse such loops, cut them into whole tiles and a rest, and share them out to threads.
#
# *About 50 minutes. You need lessons 3 and 7.*

# %%
import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I, relax as R, tir as T

from exercises import lesson14
from figures import lesson14 as figure

# %% [markdown]
# ## The price of padding
#
# These are lengths like those of short sentences: most are near the mean, one is not.

# %%
rng = np.random.default_rng(0)
lengths = np.clip(np.round(rng.gamma(5.0, 2.4, size=16)), 1, 48).astype("int64")
lengths[3] = 48
rows, padded = int(lengths.sum()), len(lengths) * int(lengths.max())
print(lengths)
print(f"{rows} rows are needed; padded there are {padded}, {padded / rows:.1f} times as many")
print(f"attention: {padded * lengths.max() / (lengths**2).sum():.1f} times as many scores")

# %% [markdown]
# ## Rows one after another
#
# `rl.ragged` keeps the rows of all sequences in one array. Sequence `i` begins at row `starts[i]`:
# the **prefix sums** of the lengths. Element `j` of sequence `i` is found without a search.

# %% tags=["figure"]
figure.rows()

# %%
batch = rl.ragged([rng.standard_normal((n, 8), dtype="float32") for n in lengths])
print(batch)
print(batch.offsets)

# %% [markdown]
# A loop over them is a **variable loop**: it runs to `s[i]`, which is read from memory. What is
# known of the arrays `s`, `o` and so on are their **facts**. They are checked once, before the
# first row is touched; from then on the compiler may count on them.


# %%
@T.prim_func
def scale(
    s_: T.handle, o_: T.handle, segment_: T.handle, inverse_: T.handle, order_: T.handle,
    x_: T.handle, factor_: T.handle, y_: T.handle,
):
    b, t = T.int64(), T.int64()
    s = T.index_function(s_, (b,), "int64", facts=[T.range(0, 513)])
    o = T.index_function(
        o_, (b + 1,), "int64",
        facts=[T.nondecreasing(first=0, last=t), T.prefix_sums(lambda i: s[i])],
    )
    segment = T.index_function(segment_, (t,), "int64", facts=[T.segment_ids(lambda i: o[i])])
    inverse = T.match_buffer(inverse_, (b,), "int64")
    order = T.index_function(
        order_, (b,), "int64", facts=[T.permutation(lambda i: inverse[i])]
    )
    x = T.match_buffer(x_, (t, 8), "float32")
    factor = T.match_buffer(factor_, (b,), "float32")
    y = T.match_buffer(y_, (t, 8), "float32")
    for i in range(b):
        for j in range(s[i]):
            for k in range(8):
                with T.sblock("y"):
                    vi = T.axis.spatial(b, i)
                    vj = T.axis.spatial(s[vi], j)
                    vk = T.axis.spatial(8, k)
                    y[o[vi] + vj, vk] = x[o[vi] + vj, vk] * factor[vi]


# %% [markdown]
# Four arrays are made of the lengths, before anything else: the **prelude**.

# %%
starts = batch.offsets
segments = np.repeat(np.arange(len(lengths)), lengths)
longest_first = np.argsort(-lengths, kind="stable")
tables = (lengths, starts, segments, np.argsort(longest_first), longest_first)
factors = rng.standard_normal(len(lengths), dtype="float32")
expected = batch.data * factors[segments][:, None]


def check(program):
    y = np.zeros_like(batch.data)
    rl.compile(program)["scale"](*tables, batch.data, factors, y)
    return bool(np.allclose(y, expected))


print(check(rl.Schedule(scale)))

# %% [markdown]
# Lengths that do not fit their rows are refused by name and number.

# %%
wrong = starts.copy()
wrong[2] += 1
try:
    y = np.zeros_like(batch.data)
    rl.compile(scale)["scale"](lengths, wrong, *tables[2:], batch.data, factors, y)
except rl.CheckFailed as error:
    print(error)

# %% [markdown]
# ## One loop over all rows
#
# Rows `o[i] + j` of different sequences are different rows: that follows from the facts. So `fuse`
# can make one loop over all rows. Row `f` is element `f - o[segment[f]]` of sequence `segment[f]`,
# and `o[i] + j` is simply `f`. Only `factor[i]` has to look into the table.

# %%
sch = rl.Schedule(scale)
i, j, k = sch.get_loops(sch.get_block("y"))
row = sch.fuse(i, j)
sch.parallel(row)
sch.vectorize(k)
print("for " + sch.func.script().split("for ", 1)[1])
print(check(sch))

# %% [markdown]
# ## Whole tiles and a rest
#
# A tile of four rows does not divide most lengths. `split` guards the last tile of each sequence;
# `pad_loop` rounds the loop up; `partition` makes a loop over whole tiles, which needs no guard,
# and one over the rest.

# %%
sch = rl.Schedule(scale)
i, j, k = sch.get_loops(sch.get_block("y"))
main, rest = sch.partition(j, 4)
tiles, inner = sch.split(main, factors=[None, 4])
sch.unroll(inner)
print("for " + sch.func.script().split("for ", 1)[1])
print(check(sch))

# %% [markdown]
# ## Work for every thread
#
# If each thread gets as many sequences as the others, one may get all the long ones. `remap` runs
# them longest first; a split by the number of threads then deals them out in turn.

# %%
sch = rl.Schedule(scale)
i, j, k = sch.get_loops(sch.get_block("y"))
sch.remap(i, "order")
turns, thread = sch.split(i, factors=[None, 2])
sch.reorder(thread, turns)
sch.parallel(thread)
print(check(sch))

# %% [markdown] tags=["explorer"]
# Step through the ways to run these loops. Which wastes memory, which only work? Where does the
# busiest thread have least to do?

# %% tags=["explorer"]
rl.explore.ragged(batch, multiple=4, threads=2, row_bytes=32, quadratic=True)

# %% [markdown]
# ## Without writing loops
#
# Operators take **ragged tensors**, whose second dimension is as long as `s` says for each
# sequence. What works on rows becomes a dense kernel on all of them; the softmax and the sum over
# the rows of each sequence become loops like those above.


# %%
@I.ir_module
class Pool:
    @R.function
    def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32")):
        weights = R.nn.softmax(R.sum(x, axis=2, keepdims=True), axis=1)
        return R.sum(x * weights, axis=1)


pooled = rl.compile(Pool)["main"](lengths.astype("int32"), batch)
print(pooled.shape)

# %% [markdown]
# Several dimensions may be ragged, as those of the scores of all pairs of rows. Element `i` begins
# where the sum of `s[i] * s[i]` over the sequences before it says: one more table in the prelude.


# %%
@I.ir_module
class Scores:
    @R.function
    def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 8}, "float32")):
        return R.nn.softmax(R.einsum((x, x), "bid,bjd->bij"), axis=2)


scores = rl.compile(Scores)["main"](lengths.astype("int32"), batch)
squares = rl.ragged(scores, lengths=(batch.lengths, batch.lengths))
print([part.shape for part in squares.to_list()])

# %% [markdown]
# An extent may follow from the index `i` of the first dimension, too: row `i` of a triangle has
# `i + 1` elements. Slices to such an end are read where they are, so the product below visits no
# term above the diagonal, and copies nothing.


# %%
@I.ir_module
class Triangle:
    @R.function
    def main(x: R.Tensor(("n", "n"), "float32"), y: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        lower = R.strided_slice(x, axes=[1], begin=[0], end=[R.outer_index(n) + 1])
        rows = R.strided_slice(y, axes=[0], begin=[0], end=[R.outer_index(n) + 1])
        return R.matmul(lower, rows)


x, y = (rng.standard_normal((40, n), dtype="float32") for n in (40, 8))
print(np.allclose(rl.compile(Triangle)["main"](x, y), np.tril(x) @ y, atol=1e-4))

# %% [markdown]
# ## Exercises
#
# **14.1** Write the prelude. `lengths` is a list of whole numbers. Return two lists: the first row
# of each sequence, followed by the number of all rows; and for each row its sequence.


# %% tags=["exercise"]
def prelude(lengths):
    starts = [i * max(lengths) for i in range(len(lengths) + 1)]
    segments = [row // max(lengths) for row in range(starts[-1])]
    return starts, segments


lesson14.prelude(prelude)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def prelude_solution(lengths):
    starts, segments = [0], []
    for i, n in enumerate(lengths):
        starts.append(starts[-1] + n)
        segments += [i] * n
    return starts, segments


lesson14.prelude(prelude_solution)

# %% [markdown]
# **14.2** Return the largest multiple that lengths may be rounded up to so that at most `share` of
# the rows are padding. Try the powers of two up to 64; 1 wastes nothing.


# %% tags=["exercise"]
def largest_multiple(lengths, share):
    return 8


lesson14.largest_multiple(largest_multiple)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def largest_multiple_solution(lengths, share):
    best = 1
    for m in (1, 2, 4, 8, 16, 32, 64):
        padded = sum(-(-n // m) * m for n in lengths)
        if padded - sum(lengths) <= share * padded:
            best = m
    return best


lesson14.largest_multiple(largest_multiple_solution)

# %% [markdown]
# **14.3** Deal the sequences out. The work of a sequence is the square of its length. Return the
# thread of each sequence, so that the busiest thread has no more work than if each sequence,
# longest first, went to the thread with least to do.


# %% tags=["exercise"]
def deal(lengths, threads):
    return [i % threads for i in range(len(lengths))]


lesson14.deal(deal)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def deal_solution(lengths, threads):
    loads, chosen = [0] * threads, [0] * len(lengths)
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        chosen[i] = loads.index(min(loads))
        loads[chosen[i]] += lengths[i] ** 2
    return chosen


lesson14.deal(deal_solution)

# %% [markdown]
# ## What to remember
#
# - Padding costs in proportion to the longest sequence; attention pays twice.
# - Prefix sums find every row. What is known of them is stated, checked once, and then used.
# - Fused, the loops over rows are dense. Tiles need a guard, padding, or a loop for the rest.
# - Threads that get equally many sequences do not get equal work.
#
# You have seen every lesson. The labs in the folder `notebooks` go further.
