"""Networks over binary trees as values of a data type: a leaf has a word, a node two trees."""

from __future__ import annotations

from relaxlab.ir.data import DataValue, constructors
from relaxlab.ir.module import Module
from relaxlab.models.dynamic.inputs import Tree
from relaxlab.models.dynamic.program import program

_TREES = """
@I.ir_module
class Trees:
    @R.data
    class Tree:
        Leaf: (R.Tensor((), "int64"),)
        Node: ("Tree", "Tree")

    @R.function(private=True)
    def cell(
        t: Tree,
        {weights}
"""
"""The beginning of both networks: trees, and the parameters of a cell."""
_TREE_GRU = """\
    ) -> R.Tensor((1, H), "float32"):
        match t:
            case cls.Leaf(word):
                x = R.take(E, R.reshape(word, (1,)), axis=0)
                g = R.split(x @ Wl + bl, 2, axis=1)
                h = R.sigmoid(g[0]) * R.tanh(g[1])
            case cls.Node(left, right):
                a = cls.cell(left, {names})
                b = cls.cell(right, {names})
                g = R.split(R.sigmoid(R.concat((a, b), axis=1) @ U + bu), 3, axis=1)
                reset = R.concat((g[0] * a, g[1] * b), axis=1)
                new = R.tanh(reset @ C + bc)
                h = g[2] * (a + b) + (R.const(1.0) - g[2]) * new
        return h

    @R.function
    def main(
        t: Tree,
        {weights}
        Wc: R.Tensor((H, classes), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 1})
        h = cls.cell(t, {names})
        logits = h @ Wc
        return logits

"""
_TREE_FC = """\
    ) -> R.Tensor((1, H), "float32"):
        match t:
            case cls.Leaf(word):
                h = R.reshape(R.take(E, word, axis=0), (1, H))
            case cls.Node(left, right):
                both = R.concat((cls.cell(left, {names}), cls.cell(right, {names})), axis=1)
                h = R.nn.relu(both @ W + b)
        return h

    @R.function
    def main(
        t: Tree,
        {weights}
        Wc: R.Tensor((H, classes), "float32"),
    ) -> R.Tensor((1, classes), "float32"):
        R.func_attr({"num_input": 1})
        h = cls.cell(t, {names})
        logits = h @ Wc
        return logits

"""
_TREE_GRU_WEIGHTS = {
    "E": "words, H", "Wl": "H, 2 * H", "bl": "2 * H,", "U": "2 * H, 3 * H", "bu": "3 * H,",
    "C": "2 * H, H", "bc": "H,",
}  # fmt: skip
_TREE_FC_WEIGHTS = {"E": "words, H", "W": "2 * H, H", "b": "H,"}


def tree_gru(hidden: int, words: int = 1000, classes: int = 5) -> Module:
    """Return a binary tree network of gated recurrent units with a classifier at the root.

    `main` takes a `Tree`, then the weights; it returns the logits, (1, classes).
    """
    text = _TREES + _TREE_GRU
    return program(text, _TREE_GRU_WEIGHTS, H=hidden, words=words, classes=classes)


def tree_fc(hidden: int, words: int = 1000, classes: int = 5) -> Module:
    """Return a binary tree network whose cell is one fully connected layer (the example of
    TensorFlow Fold), with a classifier at the root.

    `main` takes what that of `tree_gru` takes, then the weights.
    """
    text = _TREES + _TREE_FC
    return program(text, _TREE_FC_WEIGHTS, H=hidden, words=words, classes=classes)


def tree_value(mod: Module, tree: Tree) -> DataValue:
    """Return a tree of arrays, as `parse_tree` makes them, as a value of the `Tree` of a module."""
    leaf, node = constructors(mod)["Leaf"], constructors(mod)["Node"]
    root, left, right, word = tree
    made: list[DataValue] = []
    for a, b, w in zip(left.tolist(), right.tolist(), word.tolist(), strict=True):
        made.append(leaf(w) if a < 0 else node(made[a], made[b]))  # children come first
    return made[int(root)]
