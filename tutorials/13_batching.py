# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 13. Batching what cannot be batched
#
# A layer of a network takes a batch of images as easily as one, since it does the same to all. A
# network over parse trees does something else for every sentence. Still, most of its work can be
# shared, if somebody finds out what may run together.
#
# After this lesson you can
#
# - draw the dataflow graph of a minibatch, and say how few batches it needs at least,
# - choose the next batch by depth, by agenda and by frontiers, and say what each gets wrong,
# - have a policy learned, and read its automaton.
#
# *About 60 minutes. You need lesson 4; lesson 12 helps.*

# %%
from collections import Counter

import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R

from exercises import lesson13
from figures import lesson13 as figure

# %% [markdown]
# ## Rows are cheap together
#
# A cell of a recurrent network is mostly a product with a matrix of weights. For one row, the
# machine reads the whole matrix to use each number once. More rows use it again.


# %%
@I.ir_module
class Cell:
    @R.function
    def main(x: R.Tensor(("n", 512), "float32"), w: R.Tensor((512, 1024), "float32")):
        return R.tanh(x @ w)


cell = rl.compile(Cell)
rng = np.random.default_rng(0)
x, w = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((32, 512), (512, 1024)))
one = rl.time(cell["main"], x[:1], w).seconds
all_ = rl.time(cell["main"], x, w).seconds
print(f"32 rows one by one take {32 * one / all_:.1f} times as long as together")

# %% [markdown]
# ## The graph of a minibatch
#
# A TreeLSTM has a cell for the words of a sentence, another one for the inner nodes of its parse
# tree, and here a classifier at the root. An inner cell reads the results of its two children. We
# draw random trees, and put the cells of several into one graph: for each node its **type**, and
# the nodes that it reads.

# %%
TYPES = ["leaf", "inner", "output"]


def add_tree(types, reads, leaves):
    """Add a random tree's nodes; the number of its root."""
    if leaves == 1:
        types.append(0)
        reads.append([])
    else:
        left = int(rng.integers(1, min(leaves, 4)))
        children = [add_tree(types, reads, n) for n in (left, leaves - left)]
        types.append(1)
        reads.append(children)
    return len(types) - 1


def trees(sizes):
    types, reads = [], []
    for leaves in sizes:
        root = add_tree(types, reads, leaves)
        types.append(2)
        reads.append([root])
    return rl.minibatch_graph(TYPES, types, reads)


forest = trees(rng.integers(2, 20, size=8))
print(forest)

# %% [markdown]
# A **batch** runs nodes of one type together; each must be **ready**: all that it reads has run.
# How many batches does the graph need? Nodes of one type that lie on one path never share a batch,
# since one waits for the other. So for each type there are at least as many batches as nodes of it
# on the path that has most of them. The sum over the types is a **lower bound**.

# %% tags=["figure"]
figure.two_trees()

# %%
print("bound:", rl.batch_bound(forest))
for name in ("depth", "agenda", "ratio"):
    print(f"{name}:", len(lesson13.schedule(forest, name)))

# %% [markdown]
# `depth` is TensorFlow Fold's policy: it runs what lies at one depth, type by type. Trees of
# different heights have their roots at different depths, so the classifiers run in several batches,
# though all could wait and run in one. `agenda` is DyNet's: it takes the type whose remaining nodes
# have the smallest average depth. That puts early work first, sometimes a classifier that had
# better wait.
#
# ## When it pays to wait
#
# The **frontier** of a type is the set of nodes that wait for no node of the same type: those that
# a batch could have, if everything of other types had run. If all of the frontier is ready, nothing
# is lost by running it: the longest chains of that type all become shorter by one. If a part is not
# ready, some chain may stay as long as it was. The part that is ready is a measure of how good a
# batch is, and `ratio` takes the type with the largest part.

# %% tags=["figure"]
figure.frontier()

# %% [markdown] tags=["explorer"]
# Step through the batches. Lost ones are crossed out: after them the bound of what is left is as
# high as before. Which batch does `depth` lose first? Choose *depth* for the drawing below.

# %% tags=["explorer"]
rl.explore.policy(None, [forest])

# %% [markdown]
# ## Where greed is not enough
#
# A lattice LSTM reads characters, and words that end at them. A word's cell goes on from the state
# before the word, and a sum puts together what comes in.

# %%
LATTICE = ["character", "word", "sum", "tag"]


def lattices(lengths):
    types, reads = [], []

    def add(of_type, *before):
        types.append(LATTICE.index(of_type))
        reads.append(list(before))
        return len(types) - 1

    for length in lengths:
        states = []
        for end in range(length):
            state = add("character", *states[-1:])
            if end > 1 and rng.random() < 0.5:
                span = 2 if rng.random() < 0.85 else 3
                word = add("word", *states[end - span : end - span + 1])
                state = add("sum", state, word)
            states.append(state)
            add("tag", state)
    return rl.minibatch_graph(LATTICE, types, reads)


minibatches = [lattices(rng.integers(5, 60, size=8)) for _ in range(6)]
for name in ("depth", "agenda", "ratio", "critical"):
    print(f"{name}:", sum(len(lesson13.schedule(g, name)) for g in minibatches))
print("bound:", sum(map(rl.batch_bound, minibatches)))

# %% [markdown]
# `critical` looks at chains instead of frontiers: a batch loses nothing if all heads of the
# *longest* chains of its type are ready; shorter ones may wait.
#
# What is best where every choice loses something? ED-Batch learns it. Its policy is an
# **automaton**: the state is the set of types that are ready, and for each state there is a type to
# run. Q-learning fills a table of values: it runs minibatches over and over, sometimes with a
# random choice, rewards each batch with -1 plus the part of the frontier that it runs, and moves
# the value of a choice towards the rewards that followed. Two of the six minibatches are held out.

# %%
learned = rl.learn_policy(minibatches, episodes=100)
print(learned)

# %% [markdown]
# The policy is a small file. A learned policy can meet a minibatch unlike all that it has seen;
# `rl.schedule_batches` compares with `agenda`, so that it never does worse than that.

# %%
print(learned.policy.to_json()[:420], "…")
print(len(rl.schedule_batches(minibatches[-1], learned.policy)), "batches")

# %% [markdown] tags=["explorer"]
# The automaton: choose a state to see what each choice is worth there, and which states follow.

# %% tags=["explorer"]
rl.explore.policy(learned, [lattices([12, 7]), *minibatches])

# %% [markdown]
# ## Exercises
#
# **13.1** Write the bound. `types[v]` is the type of node `v`, `reads[v]` the nodes that it reads,
# all of them before `v`. Return the sum over the types of the most nodes of that type on one path.


# %% tags=["exercise"]
def bound(types, reads):
    return max(Counter(types).values())


lesson13.bound(bound)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def bound_solution(types, reads):
    kinds = set(types)
    most = []
    for of_type, before in zip(types, reads, strict=True):
        counts = {k: max((most[p][k] for p in before), default=0) for k in kinds}
        counts[of_type] += 1
        most.append(counts)
    return sum(max(counts[k] for counts in most) for k in kinds)


lesson13.bound(bound_solution)

# %% [markdown]
# **13.2** Write a policy. `ready` and `frontier` have the number of nodes for each type that has
# ready ones. Return the type to run; on trees it should reach the bound.


# %% tags=["exercise"]
def choose(ready, frontier):
    return max(ready, key=lambda name: ready[name])


lesson13.choose(choose)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def choose_solution(ready, frontier):
    return max(ready, key=lambda name: ready[name] / frontier[name])


lesson13.choose(choose_solution)

# %% [markdown]
# **13.3** Write the update of Q-learning for one run. `values[state][action]` is the table;
# `steps` has a state, an action and a reward for each batch. For every step in order, the *outcome*
# is the sum of the rewards of this step and the next one, plus the largest value of the state two
# steps later, if there is one. Move the value of the action by 0.4 of the difference to that.


# %% tags=["exercise"]
def update(values, steps):
    for state, action, reward in steps:
        values[state][action] += 0.4 * (reward - values[state][action])


lesson13.update(update)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def update_solution(values, steps):
    for i, (state, action, _) in enumerate(steps):
        outcome = sum(reward for *_, reward in steps[i : i + 2])
        if i + 2 < len(steps):
            outcome += max(values[steps[i + 2][0]].values())
        values[state][action] += 0.4 * (outcome - values[state][action])


lesson13.update(update_solution)

# %% [markdown]
# ## What to remember
#
# - Cells of one type that are ready share a kernel; how often depends on the order.
# - Chains of one type give a lower bound. A batch that shortens all the longest ones loses nothing.
# - Depth runs too much too early. Where every choice loses, a policy can be learned.
#
# Next: [loops whose lengths differ](14_ragged.py).
