"""Networks whose own values decide how they go on: instances wait for these decisions."""

from __future__ import annotations

import numpy as np

from relaxlab.ir.module import Module
from relaxlab.models.dynamic.inputs import Array
from relaxlab.models.dynamic.program import program

_DRNN = """
@I.ir_module
class DRNN:
    @R.data
    class Tree:
        Nothing: ()
        Node: (R.Tensor((1, H), "float32"), "Tree", "Tree")

    @R.function(private=True)
    def grow(
        parent: R.Tensor((1, H), "float32"),
        sibling: R.Tensor((1, H), "float32"),
        left: R.Tensor((), "int64"),
        {weights}
    ) -> Tree:
        a = R.tanh(parent @ Wa)
        s = R.tanh(sibling @ Ws)
        h = R.tanh(R.concat((a, s), axis=1) @ U)
        if R.greater(left, R.const(0, "int64")):
            if R.greater(R.sum(h @ v), R.const(-0.1)):
                rest = R.subtract(left, R.const(1, "int64"))
                below = cls.grow(h, a - a, rest, {names})
                beside = cls.grow(parent, h, rest, {names})
                out = cls.Node(h, below, beside)
            else:
                out = cls.Nothing()
        else:
            out = cls.Nothing()
        return out

    @R.function
    def main(
        seed: R.Tensor((1, H), "float32"),
        {weights}
    ) -> Tree:
        R.func_attr({"num_input": 1})
        tree = cls.grow(seed, seed, R.const(most, "int64"), {names})
        return tree

"""
_NESTED_RNN = """
@I.ir_module
class NestedRNN:
    @R.function(private=True)
    def inner(
        k: R.Tensor((), "int64"),
        steps: R.Tensor((), "int64"),
        h: R.Tensor((1, H), "float32"),
        W: R.Tensor((H, H), "float32"),
        b: R.Tensor((H,), "float32"),
    ) -> R.Tensor((1, H), "float32"):
        if R.less(k, steps):
            new = R.tanh(h @ W + b)
            out = cls.inner(R.add(k, R.const(1, "int64")), steps, new, W, b)
        else:
            out = h
        return out

    @R.function(private=True)
    def outer(
        t: R.Tensor((), "int64"),
        steps: R.Tensor(("n",), "int64"),
        draws: R.Tensor(("n", 1), "float32"),
        length: R.Tensor((), "int64"),
        h: R.Tensor((1, H), "float32"),
        {weights}
    ) -> R.Tensor((1, H), "float32"):
        x = cls.inner(R.const(0, "int64"), R.take(steps, t, axis=0), h, W, b)
        g = R.split(R.sigmoid(R.concat((x, h), axis=1) @ G), 2, axis=1)
        new = R.tanh(R.concat((x, g[0] * h), axis=1) @ C)
        state = g[1] * h + (R.const(1.0) - g[1]) * new
        chance = R.sigmoid(state @ v)
        draw = R.reshape(R.take(draws, t, axis=0), (1, 1))
        after = R.add(t, R.const(1, "int64"))
        if R.less(after, length):
            if R.less(R.sum(draw), R.sum(chance) + R.const(0.4)):
                out = cls.outer(after, steps, draws, length, state, {names})
            else:
                out = state
        else:
            out = state
        return out

    @R.function
    def main(
        length: R.Tensor((), "int64"),
        steps: R.Tensor(("n",), "int64"),
        draws: R.Tensor(("n", 1), "float32"),
        start: R.Tensor((1, H), "float32"),
        {weights}
        V: R.Tensor((H, classes), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 4})
        h = cls.outer(R.const(0, "int64"), steps, draws, length, start, {names})
        logits = h @ V
        return logits

"""
_BERXIT = """
@I.ir_module
class BERxiT:
    @R.function(private=True)
    def layers(
        x: R.Tensor((L, H), "float32"),
        left: R.Tensor((), "int64"),
        {weights}
    ) -> R.Tensor((L, H), "float32"):
        parts = R.split(R.reshape(x @ Wqkv, (L, 3 * heads, H // heads)), 3, axis=1)
        q = R.permute_dims(parts[0], [1, 0, 2])
        k = R.permute_dims(parts[1], [1, 2, 0])
        v = R.permute_dims(parts[2], [1, 0, 2])
        scores = R.nn.softmax(R.matmul(q, k) * R.const(scale, "float32"), axis=2)
        mixed = R.reshape(R.permute_dims(R.matmul(scores, v), [1, 0, 2]), (L, H))
        a = R.nn.layer_norm(x + mixed @ Wo, g1, b1, axes=[1])
        new = R.nn.layer_norm(a + R.nn.gelu(a @ W1) @ W2, g2, b2, axes=[1])
        if R.greater(left, R.const(1, "int64")):
            first = R.strided_slice(new, axes=[0], begin=[0], end=[1])
            if R.less(R.sum(first @ exit), R.const(0.0)):
                rest = R.subtract(left, R.const(1, "int64"))
                out = cls.layers(new, rest, {names})
            else:
                out = new
        else:
            out = new
        return out

    @R.function
    def main(
        x: R.Tensor((L, H), "float32"),
        {weights}
        Wc: R.Tensor((H, classes), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 1})
        most = R.const(depth, "int64")
        y = cls.layers(x, most, {names})
        logits = R.mean(y, axis=0, keepdims=True) @ Wc
        return logits

"""
_PARSER_STATE = """
        at: R.Tensor((), "int64"),
        size: R.Tensor((), "int64"),
        stack: Stack,
        length: R.Tensor((), "int64"),
        tokens: R.Tensor(("n", H), "float32"),
        {weights}
    """
"""The parameters of each function of the parser: the state, and what stays the same."""
_STACK_RNN = """
@I.ir_module
class StackRNN:
    @R.data
    class Stack:
        Empty: ()
        Push: (R.Tensor((1, H), "float32"), "Stack")

    @R.function(private=True)
    def step({state}) -> R.Tensor((1, H), "float32"):
        if R.less(at, length):
            if R.less(size, R.const(2, "int64")):
                out = cls.shift(at, size, stack, length, tokens, {names})
            else:
                front = R.reshape(R.take(tokens, at, axis=0), (1, H))
                scores = R.concat((cls.top(stack, nothing), front), axis=1) @ Wd
                if R.equal(R.sum(R.argmax(scores, axis=1)), R.const(0, "int64")):
                    out = cls.shift(at, size, stack, length, tokens, {names})
                else:
                    out = cls.reduce(at, size, stack, length, tokens, {names})
        else:
            if R.less(size, R.const(2, "int64")):
                out = cls.top(stack, nothing)
            else:
                out = cls.reduce(at, size, stack, length, tokens, {names})
        return out

    @R.function(private=True)
    def top(stack: Stack, nothing: R.Tensor((1, H), "float32")) -> R.Tensor((1, H), "float32"):
        match stack:
            case cls.Empty():
                h = nothing
            case cls.Push(first, _):
                h = first
        return h

    @R.function(private=True)
    def rest(stack: Stack) -> Stack:
        match stack:
            case cls.Empty():
                left = cls.Empty()
            case cls.Push(_, others):
                left = others
        return left

    @R.function(private=True)
    def shift({state}) -> R.Tensor((1, H), "float32"):
        x = R.reshape(R.take(tokens, at, axis=0), (1, H))
        more = cls.Push(R.tanh(x @ Wi), stack)
        one = R.const(1, "int64")
        next_ = R.add(at, one)
        out = cls.step(next_, R.add(size, one), more, length, tokens, {names})
        return out

    @R.function(private=True)
    def reduce({state}) -> R.Tensor((1, H), "float32"):
        right = cls.top(stack, nothing)
        under = cls.rest(stack)
        left = cls.top(under, nothing)
        fewer = cls.Push(R.tanh(R.concat((left, right), axis=1) @ Wr), cls.rest(under))
        less = R.subtract(size, R.const(1, "int64"))
        out = cls.step(at, less, fewer, length, tokens, {names})
        return out

    @R.function
    def main(
        length: R.Tensor((), "int64"),
        tokens: R.Tensor(("n", H), "float32"),
        {weights}
        Wc: R.Tensor((H, classes), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 2})
        zero = R.const(0, "int64")
        h = cls.step(zero, zero, cls.Empty(), length, tokens, {names})
        logits = h @ Wc
        return logits

"""
_DRNN_WEIGHTS = {"Wa": "H, H", "Ws": "H, H", "U": "2 * H, H", "v": "H, 1"}
_NESTED_RNN_WEIGHTS = {"W": "H, H", "b": "H,", "G": "2 * H, 2 * H", "C": "2 * H, H", "v": "H, 1"}
_BERXIT_WEIGHTS = {
    "Wqkv": "H, 3 * H", "Wo": "H, H", "W1": "H, 4 * H", "W2": "4 * H, H", "g1": "H,", "b1": "H,",
    "g2": "H,", "b2": "H,", "exit": "H, 1",
}  # fmt: skip
_STACK_RNN_WEIGHTS = {"nothing": "1, H", "Wi": "H, H", "Wr": "2 * H, H", "Wd": "2 * H, 2"}


def drnn(hidden: int, most: int = 6) -> Module:
    """Return a doubly recurrent network (Alvarez-Melis and Jaakkola, 2017), which makes a tree: a
    node's state comes from its parent's and from the sibling's before it, and decides whether there
    is a node at all. `most` is the largest number of steps down and aside.

    `main` takes a vector, (1, hidden), then the weights; it returns a `Tree`, whose nodes have a
    state, the first child and the next sibling.
    """
    return program(_DRNN, _DRNN_WEIGHTS, H=hidden, most=most)


def nested_rnn(hidden: int, classes: int = 5) -> Module:
    """Return a recurrent network whose steps run another one: a GRU over items, each of which is
    read by an RNN of its own number of steps. After each item a draw decides whether it goes on.

    `main` takes the most items, the steps of each, int64, the draws, (items, 1), and the first
    state, (1, hidden), then the weights; it returns the logits, (1, classes).
    """
    return program(_NESTED_RNN, _NESTED_RNN_WEIGHTS, H=hidden, classes=classes)


def berxit(
    hidden: int, heads: int = 2, length: int = 16, depth: int = 6, classes: int = 5
) -> Module:
    """Return an encoder with early exits (BERxiT: Xin, Tang, Yu and Lin, 2021): one layer, shared
    by all depths, after each of which a classifier decides whether it is the last; `depth` at most.

    `main` takes the vectors of a sequence, (length, hidden), then the weights; it returns the
    logits, (1, classes).
    """
    return program(
        _BERXIT, _BERXIT_WEIGHTS, H=hidden, heads=heads, L=length, depth=depth, classes=classes,
        scale=(hidden // heads) ** -0.5,
    )  # fmt: skip


def stack_rnn(hidden: int, classes: int = 5) -> Module:
    """Return a shift-reduce parser with a stack of states: the top of the stack and the next token
    decide whether that is pushed, or the two topmost states become one. The last state left is
    classified.

    `main` takes the length, int64, and the tokens' vectors, (length, hidden), then the weights; it
    returns the logits, (1, classes).
    """
    text = _STACK_RNN.replace("{state}", _PARSER_STATE)
    return program(text, _STACK_RNN_WEIGHTS, H=hidden, classes=classes)


def nested_items(
    rng: np.random.Generator, hidden: int, most: int = 20, inner: tuple[int, int] = (20, 40)
) -> tuple[np.int64, Array, Array, Array]:
    """Return the inputs of `nested_rnn`: at most `most` items, each with a number of steps in the
    range `inner`, and uniform draws."""
    steps = rng.integers(*inner, most, endpoint=True)
    draws = rng.random((most, 1), dtype=np.float32)
    return np.int64(most), steps, draws, rng.standard_normal((1, hidden)).astype(np.float32)
