# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 12. Search
#
# In lesson 8 you changed the numbers of a tile by hand and looked at what was faster. A tuner does
# the same, many times, and has to know when to believe a measurement.
#
# After this lesson you can
#
# - list the decisions of a kernel, and say how many schedules they make,
# - tell a faster program from a lucky measurement,
# - compare two ways of searching, and say what no search will find.
#
# *About 60 minutes. You need lessons 8 and 9.*

# %%
import itertools
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

import relaxlab as rl
from relaxlab.script import ir as I
from relaxlab.script import relax as R

from exercises import lesson12
from figures import lesson12 as figure

# %% [markdown]
# ## A space of schedules
#
# A rule schedules this product. Where it could go on in more than one way, it asks for a
# **decision**: a name, candidates, and a default.


# %%
@I.ir_module
class Product:
    @R.function
    def main(x: R.Tensor(("n", 256), "float32"), w: R.Tensor((256, 256), "float32")):
        return R.matmul(x, w)


trace = rl.trace(Product)
decisions = rl.schedule_of(trace, "matmul").decisions
for d in decisions.values():
    print(f"{d.key}: {d.default} of {d.candidates}")

# %% [markdown]
# The schedules are all combinations of candidates. Their number grows with every decision:

# %%
count = 1
for d in decisions.values():
    count *= len(d.candidates)
print(f"{len(decisions)} decisions make {count:,} schedules")

# %% [markdown]
# A build and a measurement take about a second. Nobody tries them all.
#
# ## A measurement is not a number
#
# Here is the same program twice, measured again and again. Each pair of samples, one of either, is
# taken one right after the other, and gives a **ratio**. Both are the same program, so every ratio
# should be 1.

# %%
rng = np.random.default_rng(0)
x, w = (rng.uniform(-1, 1, shape).astype("float32") for shape in ((64, 256), (256, 256)))
product = rl.compile(Product)


def sample(function):
    return rl.time(function, x, w, samples=3).seconds


ratios = [sample(product["main"]) / sample(product["main"]) for _ in range(31)]
print(f"from {min(ratios):.3f} to {max(ratios):.3f}, median {median(ratios):.3f}")

# %% [markdown]
# Something else runs on the machine, the clock rate changes, memory lies elsewhere. That hits both
# samples of a pair in the same way more often than samples that are minutes apart. This is why a
# ratio of neighbours says more than two separate times do.
#
# Still, one ratio says little. The median of many is better, and the **confidence interval** says
# how well it is known: with 95 % confidence, the median of all the ratios that could be measured
# lies between its two ends. The interval needs no bell curve. It counts tosses of a coin: each
# ratio is above the true median with a chance of one half.

# %% tags=["figure"]
figure.interval(ratios[:15])

# %% [markdown]
# A tuner accepts a program if even the lower end of its interval is above 1, by a margin. If the
# interval contains 1, nothing was shown: neither that it is faster, nor that it is not.
#
# ## Luck
#
# Try a hundred programs that are all equally fast, and believe the best measurement of each: the
# winner will look faster than it is. Its luck is not repeated. So a tuner measures the winner once
# more, beside the default, and only that counts.

# %% tags=["figure"]
figure.luck(programs=100, noise=0.05)

# %% [markdown]
# ## Two ways through the space
#
# **Random search** draws every decision. **Coordinate descent** starts at the rule's choice and
# changes one decision at a time; what is faster becomes the new start.

# %% tags=["figure"]
figure.searches()

# %% [markdown]
# Coordinate descent needs a good start, and rules give one. It can get stuck where two decisions
# would have to change together. Random search gets stuck nowhere, but most of what it draws is bad.
# A third way is a **cost model**: it guesses the time of a schedule from what is known of its
# loops, and only the best guesses are measured. A guess can be wrong, so the measurement decides.
#
# Both have 10 trials here. `shapes` are the sizes for which the product is measured.

# %%
folder = Path(tempfile.mkdtemp())
results = {}
for search in ("coordinate", "random"):
    results[search] = rl.tune(
        Product, shapes={"n": [1, 64]}, trials=10, seconds=25, search=search,
        database=folder / f"{search}.db",
    )  # fmt: skip
    print(f"{search}: {results[search]}\n")

# %% [markdown] tags=["explorer"]
# The explorer shows all trials: the ratio with its interval, the decisions, and for failures the
# reason. Sort by *times as fast*. Look at *Decisions*: which one matters most? A trial opens its
# loops and its code beside those of the default.

# %% tags=["explorer"]
rl.explore.tuning(results["coordinate"], Product)

# %% [markdown]
# ## One winner, or several
#
# The product is compiled once, for every `n`. What is best for one row need not be best for 64.
# Rules therefore make **versions** of a kernel, each for some sizes; a key such as
# `n = 1 / split_k` is a decision of the version for one row. A tuner that measures one size alone
# finds a winner for that size, and may make the others slower. `rl.tune` measures all the sizes
# that you name, and takes nothing that is slower at one of them.

# %% tags=["figure"]
figure.sizes()

# %% [markdown]
# ## What tuning cannot fix
#
# - A search chooses among the candidates of a rule. A schedule that no candidate makes is never
#   found.
# - A kernel that waits for memory stays as fast as memory is. Lesson 5 helps there: fusion moves
#   fewer bytes.
# - Sizes that were not measured get what was best for others.
# - What was found holds for this machine, this number of threads and this version of the compiler.
#
# ## Exercises
#
# **12.1** Write the rule of acceptance: given the lower and the upper end of an interval of ratios
# (how many times as fast the new program is), say `"faster"`, `"slower"`, or `"unknown"`. Leave no
# margin.


# %% tags=["exercise"]
def verdict(low, high):
    return "faster" if (low + high) / 2 > 1 else "slower"


lesson12.verdict(verdict)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def verdict_solution(low, high):
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "unknown"


lesson12.verdict(verdict_solution)

# %% [markdown]
# **12.2** Write coordinate descent. `candidates` has a list of values for each name, `start` is a
# point (a dictionary with a value for each name), and `time(point)` returns seconds, without noise.
# Return a point that no change of a single decision makes faster, and call `time` for fewer points
# than there are combinations.


# %% tags=["exercise"]
def descend(candidates, start, time):
    points = itertools.product(*candidates.values())
    return min((dict(zip(candidates, p, strict=True)) for p in points), key=time)


lesson12.descend(descend)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def descend_solution(candidates, start, time):
    best, least = dict(start), time(start)
    improved = True
    while improved:
        improved = False
        for name, values in candidates.items():
            for value in values:
                point = {**best, name: value}
                if point != best and (seconds := time(point)) < least:
                    best, least, improved = point, seconds, True
    return best


lesson12.descend(descend_solution)

# %% [markdown]
# **12.3** `table[p][s]` says how many times as fast as the default the program `p` is at size `s`;
# program 0 is the default, 1 everywhere. Return the one program for all sizes: that with the
# largest product of ratios, among those that are slower than the default at no size.


# %% tags=["exercise"]
def one_for_all(table):
    return max(range(len(table)), key=lambda p: max(table[p]))


lesson12.one_for_all(one_for_all)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def one_for_all_solution(table):
    safe = [p for p, ratios in enumerate(table) if min(ratios) >= 1]
    return max(safe, key=lambda p: np.prod(table[p]))


lesson12.one_for_all(one_for_all_solution)

# %% [markdown]
# ## What to remember
#
# - Decisions span a space of schedules, far too large to try all of it.
# - Measure in turns, look at the interval, and measure a winner once more.
# - A winner is a winner at the sizes that were measured.
#
# Next: [batching what cannot be batched](13_batching.py).
