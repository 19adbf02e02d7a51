"""Checks of lesson 11, a language model end to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .compare import Array
from relaxlab.lab.verdict import Hint, exercise, value_of

Logits = Callable[[Sequence[int]], Array]


def _next(ids: Sequence[int]) -> int:
    """A model of nine tokens that looks at the whole sequence."""
    return (sum(ids) + len(ids)) % 9


@exercise
def greedy(answer: Callable[[Logits, list[int], int], list[int]]) -> str:
    """The likeliest tokens, one after the other."""

    def logits(ids: Sequence[int]) -> Array:
        return np.eye(9, dtype="float32")[_next(ids)]

    prompt, count = [1, 2], 6
    given, want = list(prompt), list[int]()
    for _ in range(count):
        want.append(_next([*prompt, *want]))
    got = value_of(answer, logits, given, count)
    if given != prompt:
        raise Hint("the caller's list of tokens is changed; work on a copy: ids = list(ids)")
    if not isinstance(got, list):
        raise Hint(f"a list of tokens is expected, not {got!r}")
    tokens: list[Any] = got
    if tokens == [*prompt, *want]:
        raise Hint("these are the prompt and the new tokens; return the new ones only")
    if len(tokens) != count:
        raise Hint(f"{count} tokens were asked for, {len(tokens)} came back")
    if tokens == [want[0]] * count:
        raise Hint("every token is the same: is the new token appended before the next call?")
    if tokens != want:
        raise Hint(f"token {_first_wrong(tokens, want)} is wrong: is the whole sequence passed on?")
    return "this is how every chat program writes its answers."


def _first_wrong(got: list[Any], want: list[int]) -> int:
    return next(i for i, (g, w) in enumerate(zip(got, want, strict=True)) if g != w)


@dataclass(frozen=True)
class _Config:
    num_layers: int = 5
    hidden_size: int = 96
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 16


@exercise
def kv_bytes(answer: Callable[[Any, int], int]) -> str:
    """Bytes of keys and values of n tokens in float32."""
    config, n = _Config(), 7
    got = value_of(answer, config, n)
    numbers = config.num_layers * config.num_kv_heads * config.head_dim * n
    right = numbers * 2 * 4
    for wrong, why in (
        (right // 2, "there is a key *and* a value"),
        (right // 4, "a float32 has four bytes"),
        (right // config.num_layers, "this is one layer"),
        (right * config.num_heads // config.num_kv_heads,
         "keys and values have num_kv_heads heads, fewer than the queries"),
        (right // n, "this is one token"),
    ):  # fmt: skip
        if got == wrong:
            raise Hint(why)
    if got != right:
        raise Hint(
            f"for {config} and n = {n} it is another number than {got}: layers, keys and values, "
            "heads, numbers per head, bytes per number, tokens"
        )
    return "it grows with every token, which is why long texts need much memory."


@exercise
def most_tokens_per_second(answer: Callable[[float, float, int], float]) -> str:
    """batch * bandwidth / weight_bytes."""
    one, four = (value_of(answer, 100e6, 20e9, batch) for batch in (1, 4))
    if not (isinstance(one, int | float) and isinstance(four, int | float)):
        raise Hint(f"the function is to return a number, not {one!r}")
    if np.isclose(one, 1 / 200):
        raise Hint("this is seconds per token; tokens per second is one divided by it")
    if not np.isclose(one, 200):
        raise Hint(
            "for 100 MB and 20 GB/s a token takes 100e6 / 20e9 seconds; "
            f"how many is that per second? Your answer is {one:g}"
        )
    if np.isclose(four, one):
        raise Hint("with a batch of 4 the weights are still read once, but give 4 tokens")
    if not np.isclose(four, 800):
        raise Hint(f"for a batch of 4 your answer is {four:g}: four tokens in the time of one")
    return "a batch is almost free, until computing takes as long as reading."
