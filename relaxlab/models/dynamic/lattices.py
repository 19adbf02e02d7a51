"""Networks over sentences of words and of characters with words between them."""

from __future__ import annotations

import numpy as np

from relaxlab.ir.module import Module
from relaxlab.models.dynamic.inputs import Array
from relaxlab.models.dynamic.program import program

_LSTM = """
    @R.function(private=True)
    def lstm(
        x: R.Tensor((1, H), "float32"),
        h: R.Tensor((1, H), "float32"),
        c: R.Tensor((1, H), "float32"),
        W: R.Tensor((2 * H, 4 * H), "float32"),
        b: R.Tensor((4 * H,), "float32"),
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((1, H), "float32")):
        g = R.split(R.concat((x, h), axis=1) @ W + b, 4, axis=1)
        new = R.sigmoid(g[0]) * R.tanh(g[1]) + R.sigmoid(g[2]) * c
        out = (R.sigmoid(g[3]) * R.tanh(new), new)
        return out
"""
_TAGGER = """
@I.ir_module
class BiLSTMTagger:
    @R.data
    class Tags:
        End: ()
        Tag: (R.Tensor((1, classes), "float32"), "Tags")
{lstm}
    @R.function(private=True)
    def walk(
        t: R.Tensor((), "int64"),
        length: R.Tensor((), "int64"),
        tokens: R.Tensor(("n",), "int64"),
        h: R.Tensor((1, H), "float32"),
        c: R.Tensor((1, H), "float32"),
        {weights}
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((1, H), "float32"), Tags):
        if R.less(t, length):
            x = R.take(E, R.reshape(R.take(tokens, t, axis=0), (1,)), axis=0)
            forth = cls.lstm(x, h, c, Wf, bf)
            after = R.add(t, R.const(1, "int64"))
            rest = cls.walk(after, length, tokens, forth[0], forth[1], {names})
            back = cls.lstm(x, rest[0], rest[1], Wb, bb)
            logits = R.concat((forth[0], back[0]), axis=1) @ Wc + bc
            out = (back[0], back[1], cls.Tag(logits, rest[2]))
        else:
            out = (start, start, cls.End())
        return out

    @R.function
    def main(
        length: R.Tensor((), "int64"),
        tokens: R.Tensor(("n",), "int64"),
        {weights}
    ) -> Tags:
        R.func_attr({"num_input": 2})
        found = cls.walk(R.const(0, "int64"), length, tokens, start, start, {names})
        return found[2]

"""
_LATTICE = """
@I.ir_module
class LatticeLSTM:
    @R.data
    class States:
        Empty: ()
        State: (R.Tensor((1, H), "float32"), R.Tensor((1, H), "float32"), "States")
{lstm}
    @R.function(private=True)
    def before(states: States, steps: R.Tensor((), "int64"), start: R.Tensor((1, H), "float32")
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((1, H), "float32")):
        match states:
            case cls.Empty():
                found = (start, start)
            case cls.State(h, c, others):
                if R.less(steps, R.const(2, "int64")):
                    found = (h, c)
                else:
                    found = cls.before(others, R.subtract(steps, R.const(1, "int64")), start)
        return found

    @R.function(private=True)
    def arcs(
        k: R.Tensor((), "int64"),
        end: R.Tensor((), "int64"),
        x: R.Tensor((1, H), "float32"),
        states: States,
        span: R.Tensor(("m",), "int64"),
        word: R.Tensor(("m",), "int64"),
        {weights}
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((1, H), "float32")):
        w = R.take(Ew, R.reshape(R.take(word, k, axis=0), (1,)), axis=0)
        from_ = cls.before(states, R.take(span, k, axis=0), start)
        new = cls.lstm(w, from_[0], from_[1], Ww, bw)
        gate = R.exp(R.sigmoid(R.concat((x, new[1]), axis=1) @ G + bg))
        after = R.add(k, R.const(1, "int64"))
        if R.less(after, end):
            rest = cls.arcs(after, end, x, states, span, word, {names})
            out = (gate * new[1] + rest[0], gate + rest[1])
        else:
            out = (gate * new[1], gate)
        return out

    @R.function(private=True)
    def walk(
        t: R.Tensor((), "int64"),
        characters: R.Tensor(("n",), "int64"),
        first: R.Tensor(("f",), "int64"),
        span: R.Tensor(("m",), "int64"),
        word: R.Tensor(("m",), "int64"),
        length: R.Tensor((), "int64"),
        states: States,
        {weights}
    ) -> R.Tensor((1, H), "float32"):
        x = R.take(Ec, R.reshape(R.take(characters, t, axis=0), (1,)), axis=0)
        last = cls.before(states, R.const(1, "int64"), start)
        after = R.add(t, R.const(1, "int64"))
        k, end = R.take(first, t, axis=0), R.take(first, after, axis=0)
        new = cls.lstm(x, last[0], last[1], Wc, bc)
        if R.less(k, end):
            words_ = cls.arcs(k, end, x, states, span, word, {names})
            gate = R.exp(R.sigmoid(R.concat((x, new[1]), axis=1) @ G + bg))
            c = (gate * new[1] + words_[0]) / (gate + words_[1])
            state = (new[0] * R.tanh(c), c)
        else:
            state = (new[0], new[1])
        now = cls.State(state[0], state[1], states)
        if R.less(after, length):
            out = cls.walk(after, characters, first, span, word, length, now, {names})
        else:
            out = state[0]
        return out

    @R.function
    def main(
        length: R.Tensor((), "int64"),
        characters: R.Tensor(("n",), "int64"),
        first: R.Tensor(("f",), "int64"),
        span: R.Tensor(("m",), "int64"),
        word: R.Tensor(("m",), "int64"),
        {weights}
        V: R.Tensor((H, classes), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 5})
        none = cls.Empty()
        zero = R.const(0, "int64")
        h = cls.walk(zero, characters, first, span, word, length, none, {names})
        logits = h @ V
        return logits

"""
_TAGGER_WEIGHTS = {
    "start": "1, H", "E": "words, H", "Wf": "2 * H, 4 * H", "bf": "4 * H,",
    "Wb": "2 * H, 4 * H", "bb": "4 * H,", "Wc": "2 * H, classes", "bc": "classes,",
}  # fmt: skip
_LATTICE_WEIGHTS = {
    "start": "1, H", "Ec": "words, H", "Ew": "words, H", "Wc": "2 * H, 4 * H", "bc": "4 * H,",
    "Ww": "2 * H, 4 * H", "bw": "4 * H,", "G": "2 * H, H", "bg": "H,",
}  # fmt: skip


def bi_lstm_tagger(hidden: int, words: int = 1000, classes: int = 9) -> Module:
    """Return a tagger: an LSTM in each direction, and a classifier for every token.

    `main` takes the length and the words, int64, then the weights. It returns the logits of each
    token, (1, classes), as a list: a value of `Tags`.
    """
    text = _TAGGER.replace("{lstm}", _LSTM)
    return program(text, _TAGGER_WEIGHTS, H=hidden, words=words, classes=classes)


def lattice_lstm(hidden: int, words: int = 1000, classes: int = 5) -> Module:
    """Return the lattice LSTM (Zhang and Yang, 2018): an LSTM over characters, whose cell also
    takes the cells of the words that end at a character, weighted by gates; the last state is
    classified.

    `main` takes the number of characters, the characters, for each character the number of its
    first word (and behind the last one the number of words), and for each word how many characters
    it has and which it is, all int64; then the weights. It returns the logits, (1, classes).
    """
    text = _LATTICE.replace("{lstm}", _LSTM)
    return program(text, _LATTICE_WEIGHTS, H=hidden, words=words, classes=classes)


def tagger_length(rng: np.random.Generator) -> int:
    """The number of words of a sentence in a corpus of tagged news: 23 on average."""
    return int(np.clip(round(rng.gamma(3, 7.7)), 2, 144))


def tagged_sentence(
    rng: np.random.Generator, length: int, words: int = 1000
) -> tuple[np.int64, Array]:
    """Return the inputs of `bi_lstm_tagger` for a sentence of this length."""
    return np.int64(length), rng.integers(0, words, length)


def lattice_length(rng: np.random.Generator) -> int:
    """The number of characters of a sentence in a corpus of Chinese news: 44 +- 28."""
    return int(np.clip(round(rng.gamma(2.55, 17.3)), 3, 211))


def lattice(
    rng: np.random.Generator, length: int, words: int = 1000
) -> tuple[np.int64, Array, Array, Array, Array]:
    """Return the inputs of `lattice_lstm` for a sentence of so many characters. As in such a
    corpus, a word ends at every second character, and most have two."""
    spans: list[int] = []
    first = [0]
    for j in range(length):
        for _ in range(rng.choice(4, p=[0.53, 0.417, 0.047, 0.006])):
            span = int(rng.choice([2, 3, 4, 5], p=[0.861, 0.112, 0.021, 0.006]))
            if span <= j + 1:
                spans.append(span)
        first.append(len(spans))
    spans = spans or [2]  # which no character reads: an array has an element
    columns = (rng.integers(0, words, length), first, spans, rng.integers(0, words, len(spans)))
    characters, first_of, span_of, word = (np.asarray(c, np.int64) for c in columns)
    return np.int64(length), characters, first_of, span_of, word
