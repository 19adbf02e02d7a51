"""Networks over sequences of different lengths."""

from __future__ import annotations

from relaxlab.ir.module import Module
from relaxlab.models.dynamic.program import program

_BI_RNN = """
@I.ir_module
class BiRNN:
    @R.function(private=True)
    def cell(
        x: R.Tensor((1, H), "float32"),
        h: R.Tensor((1, H), "float32"),
        W: R.Tensor((2 * H, H), "float32"),
        b: R.Tensor((H,), "float32"),
    ) -> R.Tensor((1, H), "float32"):
        out = R.sigmoid(R.concat((x, h), axis=1) @ W + b)
        return out

    @R.function(private=True)
    def walk(
        t: R.Tensor((), "int64"),
        length: R.Tensor((), "int64"),
        tokens: R.Tensor(("n", H), "float32"),
        h: R.Tensor((1, H), "float32"),
        {weights}
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((1, classes), "float32")):
        if R.less(t, length):
            x = R.reshape(R.take(tokens, t, axis=0), (1, H))
            forth = cls.cell(x, h, Wf, bf)
            after = R.add(t, R.const(1, "int64"))
            rest = cls.walk(after, length, tokens, forth, {names})
            back = cls.cell(x, rest[0], Wb, bb)
            logits = R.concat((forth, back), axis=1) @ Wc + bc
            out = (back, rest[1] + R.nn.log_softmax(logits, axis=1))
        else:
            out = (start, R.zeros((1, classes), "float32"))
        return out

    @R.function
    def main(
        length: R.Tensor((), "int64"),
        tokens: R.Tensor(("n", H), "float32"),
        {weights}
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 2})
        first = R.const(0, "int64")
        ends = cls.walk(first, length, tokens, start, {names})
        scores = ends[1]
        return scores

"""
_BI_RNN_WEIGHTS = {
    "start": "1, H", "Wf": "2 * H, H", "bf": "H,", "Wb": "2 * H, H", "bb": "H,",
    "Wc": "2 * H, classes", "bc": "classes,",
}  # fmt: skip


def bi_rnn(hidden: int, classes: int = 16) -> Module:
    """Return a recurrent network that reads a sequence in both directions and classifies every
    token; both directions are one function, called with other weights.

    `main` takes the length, int64, the tokens' vectors, (length, hidden), then the weights. It
    returns the sum of the tokens' log-probabilities, (1, classes).
    """
    return program(_BI_RNN, _BI_RNN_WEIGHTS, H=hidden, classes=classes)
