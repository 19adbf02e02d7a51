"""Drawings of lesson 11: a layer of a model, its cache, prompt and answer."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.lab.drawing import Drawing
from relaxlab.lab.view import View


def layer(layers: int = 30) -> View:
    """The way of a token through a decoder, and what of the lessons is in each part."""
    words = (
        "Tokens become vectors. Each layer adds what attention and a feed-forward part make of "
        "them. The last product gives the logits of the next token."
    )
    d = Drawing("A decoder", words, 700, 190)
    d.box((10, 70), (84, 40), "tokens\n→ vectors", "grey", mono=False)
    d.box((128, 30), (420, 122), "", None, dashed=True)
    d.text((134, 24), f"{layers} layers like this one", bold=True)
    parts = (
        ("norm", 140, 56), ("attention", 206, 84), ("norm", 336, 56), ("feed-forward", 402, 100),
    )  # fmt: skip
    for text, x, wide in parts:
        hue = "blue" if text == "norm" else "green"
        d.box((x, 72), (wide, 36), text, hue, mono=False)
    d.line((96, 90), (138, 90), arrow=True)
    d.line((198, 90), (204, 90), arrow=True)
    d.line((394, 90), (400, 90), arrow=True)
    for start, end in ((133, 314), (329, 522)):
        d.line((start, 90), (start, 50), (end, 50), (end, 80), arrow=True)
    for x in (314, 522):
        d.circle((x, 90), 8, "amber")
        d.text((x, 94), "+", anchor="middle", bold=True)
    d.line((292, 90), (305, 90), arrow=True)
    d.line((324, 90), (334, 90), arrow=True)
    d.line((504, 90), (513, 90), arrow=True)
    d.box((206, 118), (84, 26), "KV cache", "amber", mono=False)
    d.line((248, 116), (248, 110), arrow=True)
    d.line((531, 90), (578, 90), arrow=True)
    d.box((580, 70), (108, 40), "product\n→ logits", "grey", mono=False)
    d.text((10, 180), "amber: sums, and keys and values that are kept", muted=True)
    return d.view()


def cache(tokens: Sequence[str] = ("Why", "is", "the", "sky", "blue", "?"), room: int = 10) -> View:
    """The KV cache of a layer: a column for each token read, the next one to be written."""
    cell = 54.0
    count = len(tokens)
    words = (
        f"Keys and values of {count} tokens are in the cache. The next token reads all of them and "
        "adds a column of its own. What is free behind it belongs to the caller, too."
    )
    d = Drawing("The KV cache", words, 90 + room * cell, 158)
    for r, name in enumerate(("keys", "values")):
        y = 40 + r * 34
        d.text((10, y + 19), name)
        for i in range(room):
            hue = "blue" if i < count else "amber" if i == count else None
            d.box((70 + i * cell, y), (cell - 4, 28), "", hue, dashed=i > count)
    for i, token in enumerate((*tokens, "new")):
        x = 70 + (i + 0.5) * cell - 2
        d.text((x, 30), token, anchor="middle", size=11, muted=True)
    d.brace((70, 112), (66 + count * cell, 112), f"p = {count}: read by every later token")
    d.text((70 + count * cell, 131), "append_kv", mono=True, size=11)
    d.text((70 + (count + 1) * cell + 30, 131), "free", size=11, muted=True)
    return d.view()


def phases() -> View:
    """A weight that is fetched once: used for one token, or for all tokens of a prompt."""
    words = (
        "decode fetches every weight for one token: it waits for memory. prefill fetches every "
        "weight once for all tokens of the prompt: it computes."
    )
    d = Drawing("decode and prefill", words, 640, 142)
    for k, (name, tokens, says) in enumerate(
        (("decode", 1, "waits for memory"), ("prefill", 8, "computes"))
    ):
        y = 12 + k * 66
        d.text((10, y + 26), name, mono=True, bold=True)
        d.box((84, y + 6), (110, 32), "all weights", "amber", mono=False)
        d.line((196, y + 22), (266, y + 22), arrow=True)
        d.text((230, y + 16), "once", anchor="middle", size=11)
        for t in range(tokens):
            d.box((270 + t * 28, y + 8), (24, 28), "", "blue")
        d.text((274, y + 52), f"{tokens} token{'s' * (tokens > 1)}", size=11, muted=True)
        d.text((512, y + 26), says)
    return d.view()
