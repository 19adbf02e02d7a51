"""Networks over binary trees, which are arrays of child numbers: node i has the children `left[i]`
and `right[i]`, below it in the arrays; a leaf has -1 for both, and its word in `word[i]`."""

from __future__ import annotations

from relaxlab.ir.module import Module
from relaxlab.models.dynamic.program import program

_TREE_LSTM = """
@I.ir_module
class TreeLSTM:
    @R.function(private=True)
    def cell(
        i: R.Tensor((), "int64"),
        left: R.Tensor(("n",), "int64"),
        right: R.Tensor(("n",), "int64"),
        word: R.Tensor(("n",), "int64"),
        {weights}
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((1, H), "float32")):
        child = R.take(left, i, axis=0)
        if R.less(child, R.const(0, "int64")):
            w = R.take(word, i, axis=0)
            x = R.take(E, R.reshape(w, (1,)), axis=0)
            g = R.split(x @ Wl + bl, 3, axis=1)
            c = R.sigmoid(g[0]) * R.tanh(g[2])
            out = (R.sigmoid(g[1]) * R.tanh(c), c)
        else:
            a = cls.cell(child, left, right, word, {names})
            b = cls.cell(R.take(right, i, axis=0), left, right, word, {names})
            g = R.split(R.concat((a[0], b[0]), axis=1) @ U + bu, 5, axis=1)
            kept = R.sigmoid(g[1]) * a[1] + R.sigmoid(g[2]) * b[1]
            c = R.sigmoid(g[0]) * R.tanh(g[4]) + kept
            out = (R.sigmoid(g[3]) * R.tanh(c), c)
        return out

    @R.function
    def main(
        root: R.Tensor((), "int64"),
        left: R.Tensor(("n",), "int64"),
        right: R.Tensor(("n",), "int64"),
        word: R.Tensor(("n",), "int64"),
        {weights}
        Wc: R.Tensor((H, classes), "float32"),
        bc: R.Tensor((classes,), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 4})
        state = cls.cell(root, left, right, word, {names})
        logits = state[0] @ Wc + bc
        return logits

"""
_TREE_LSTM_WEIGHTS = {
    "E": "words, H", "Wl": "H, 3 * H", "bl": "3 * H,", "U": "2 * H, 5 * H", "bu": "5 * H,",
}  # fmt: skip


def tree_lstm(hidden: int, words: int = 1000, classes: int = 5) -> Module:
    """Return the binary TreeLSTM (Tai, Socher and Manning, 2015) with a classifier at the root.

    `main` takes the root's number and the arrays of a tree, int64, then the weights; it returns the
    logits, (1, classes).
    """
    return program(_TREE_LSTM, _TREE_LSTM_WEIGHTS, H=hidden, words=words, classes=classes)


_MV_RNN = """
@I.ir_module
class MVRNN:
    @R.function(private=True)
    def cell(
        i: R.Tensor((), "int64"),
        left: R.Tensor(("n",), "int64"),
        right: R.Tensor(("n",), "int64"),
        word: R.Tensor(("n",), "int64"),
        {weights}
    ) -> R.Tuple(R.Tensor((1, H), "float32"), R.Tensor((H, H), "float32")):
        child = R.take(left, i, axis=0)
        if R.less(child, R.const(0, "int64")):
            w = R.take(word, i, axis=0)
            v = R.reshape(R.take(vectors, w, axis=0), (1, H))
            out = (v, R.take(matrices, w, axis=0))
        else:
            a = cls.cell(child, left, right, word, {names})
            r = R.take(right, i, axis=0)
            b = cls.cell(r, left, right, word, {names})
            crossed = R.concat((a[0] @ b[1], b[0] @ a[1]), axis=1)
            out = (R.tanh(crossed @ V + bv), M @ R.concat((a[1], b[1]), axis=0))
        return out

    @R.function
    def main(
        root: R.Tensor((), "int64"),
        left: R.Tensor(("n",), "int64"),
        right: R.Tensor(("n",), "int64"),
        word: R.Tensor(("n",), "int64"),
        {weights}
        Wc: R.Tensor((H, classes), "float32"),
        bc: R.Tensor((classes,), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 4})
        node = cls.cell(root, left, right, word, {names})
        logits = node[0] @ Wc + bc
        return logits

"""
_MV_RNN_WEIGHTS = {
    "vectors": "words, H", "matrices": "words, H, H", "V": "2 * H, H", "bv": "H,", "M": "H, 2 * H",
}  # fmt: skip


def mv_rnn(hidden: int, words: int = 100, classes: int = 5) -> Module:
    """Return the matrix-vector network (Socher, Huval, Manning and Ng, 2012): a node is a vector
    and a matrix, and each child's matrix transforms the other's vector.

    `main` takes what that of `tree_lstm` takes, then the weights; it returns the logits at the
    root, (1, classes).
    """
    return program(_MV_RNN, _MV_RNN_WEIGHTS, H=hidden, words=words, classes=classes)
