"""Modules whose methods recurse over values of data types, one by one and in batches."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn

H = 6
ROW = nn.spec.Tensor((1, H))
Tree = nn.DataType("Tree", Leaf=[nn.spec.Tensor((), "int64")], Node=["Tree", "Tree"])
Shoots = nn.DataType("Shoots", Nothing=[], Shoot=[ROW, "Shoots", "Shoots"])


class TreeRNN(nn.Module):
    def __init__(self, words=10):
        self.size, self.words, self.join = H, nn.Embedding(words, H), nn.Linear(2 * H, H)
        self.classify = nn.Linear(H, 3)

    @nn.recursive(lambda self: nn.spec.Tensor((1, self.size)))
    def cell(self, tree):
        def node(left, right):
            both = nn.op("concat", [self.cell(left), self.cell(right)], axis=1)
            return self.join(both).tanh()

        return tree.match(Leaf=lambda word: self.words(word.reshape(1)), Node=node)

    def main(self, tree):
        return self.classify(self.cell(tree))


class Growing(nn.Module):
    """A network that makes a tree by its own decisions, and one that sums up what it made."""

    def __init__(self):
        self.down, self.aside, self.more = nn.Linear(H, H), nn.Linear(H, H), nn.Linear(H, 1)

    @nn.recursive(Shoots)
    def grow(self, h, left):
        def shoot():
            rest = left - 1
            return Shoots.Shoot(h, self.grow(self.down(h).tanh(), rest),
                                self.grow(self.aside(h).tanh(), rest))  # fmt: skip

        def decide():
            return nn.cond(self.more(h).sum() > -0.3, shoot, lambda: Shoots.Nothing())

        return nn.cond(left > 0, decide, lambda: Shoots.Nothing())

    @nn.recursive([ROW, nn.spec.Tensor((), "int64")])
    def total(self, shoots, zero):
        def shoot(h, down, aside):
            (a, n), (b, m) = self.total(down, zero), self.total(aside, zero)
            return h + a + b, n + m + 1

        return shoots.match(Nothing=lambda: (zero, zero.sum().astype("int64")), Shoot=shoot)

    def main(self, h, left):
        grown = self.grow(h, left)
        whole, count = self.total(grown, h - h)
        return grown, whole, count


def tree(rng, leaves):
    if leaves == 1:
        return Tree.Leaf(int(rng.integers(10)))
    left = int(rng.integers(1, leaves))
    return Tree.Node(tree(rng, left), tree(rng, leaves - left))


def numbers(value):
    return [*map(numbers, value.fields)] if hasattr(value, "fields") else np.asarray(value)


def check(found, expected):
    if isinstance(expected, list | tuple):
        for f, e in zip(found, expected, strict=True):
            check(f, e)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_network_over_trees_one_by_one_and_in_batches():
    model, rng = TreeRNN(), np.random.default_rng(0)
    mod, names = model.export({"main": {"tree": Tree}})
    assert rl.parse(mod.script()).script() == mod.script()
    weights = [model.state_dict()[n.removesuffix(".data")] for n in names]
    trees = [tree(rng, n) for n in (1, 7, 3, 12)]
    expected = [rl.interpret(mod, "main", t, *weights) for t in trees]
    state = model.state_dict()
    word = state["words.weight"][int(trees[0].fields[0])]
    by_hand = word @ state["classify.weight"].T
    np.testing.assert_allclose(expected[0][0], by_hand, rtol=1e-5)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"].bind(*weights)
    check(main.batch(trees), expected)
    assert max(rows for _, rows in main.last_batch.launches) > 4
    alone = rl.compile(mod, threads=1).load(model.state_dict())["main"]
    check([alone(t) for t in trees], expected)


def test_networks_that_decide_and_make_values():
    model, rng = Growing(), np.random.default_rng(1)
    mod, names = model.export({"main": {"h": ROW, "left": nn.spec.Tensor((), "int64")}})
    weights = [model.state_dict()[n.removesuffix(".data")] for n in names]
    given = [(rng.standard_normal((1, H)).astype(np.float32), np.int64(n)) for n in (0, 3, 5, 4)]
    expected = [rl.interpret(mod, "main", *g, *weights) for g in given]
    assert len({int(e[2]) for e in expected}) > 2
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"].bind(*weights)
    for found, wanted in zip(main.batch(given), expected, strict=True):
        check([numbers(f) for f in found], [numbers(w) for w in wanted])


def test_a_method_is_one_function_for_each_module():
    class Two(nn.Module):
        def __init__(self):
            self.a, self.b = TreeRNN(), TreeRNN()

        def main(self, tree):
            return self.a.cell(tree) + self.b.cell(tree) + self.a.cell(tree)

        def other(self, tree):
            return self.a.cell(tree)

    mod, _ = Two().export({"main": {"tree": Tree}, "other": {"tree": Tree}})
    recursive = [name for name, f in mod.graph_functions().items() if f.private]
    assert len(recursive) == 2


def test_a_recursive_method_may_be_exported_itself():
    model, value = TreeRNN(), tree(np.random.default_rng(3), 4)
    mod, _ = model.export({"cell": {"tree": Tree}, "main": {"tree": Tree}})
    assert [name for name, f in mod.graph_functions().items() if not f.private] == ["cell", "main"]
    weights = model.state_dict().values()
    row = rl.interpret(mod, "cell", value, *weights)
    logits = rl.interpret(mod, "main", value, *weights)
    np.testing.assert_allclose(row @ model.state_dict()["classify.weight"].T, logits, rtol=1e-5)


class Wrong(nn.Module):
    def __init__(self):
        self.linear = nn.Linear(H, H)

    def endless(self, tree):
        return tree.match(Leaf=lambda word: word, Node=lambda a, b: self.endless(a))

    @nn.recursive(ROW)
    def narrow(self, tree):
        return tree.match(Leaf=lambda word: word, Node=lambda a, b: self.narrow(a).sum())

    @nn.recursive(ROW)
    def outside(self, tree):
        return tree.match(Leaf=lambda word: self.x, Node=lambda a, b: self.outside(a) + self.x)

    def captures(self, tree):
        self.x = self.linear(self.narrow_row(tree))
        return self.outside(tree)

    @nn.recursive(ROW)
    def narrow_row(self, tree):
        return tree.match(
            Leaf=lambda word: word.astype("float32").broadcast_to((1, H)),
            Node=lambda a, b: self.narrow_row(a),
        )

    @nn.recursive(ROW)
    def numbers(self, tree, count):
        return self.numbers(tree, count)

    def missing(self, tree):
        return tree.match(Leaf=lambda word: word)

    def counts(self, tree):
        return self.numbers(tree, 3)


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("endless", RecursionError, "`endless` does not end: .* under @nn.recursive"),
        ("narrow", TypeError, r"`narrow1` returns R.Tensor.*says that it returns R.Tens.*1, 6"),
        ("captures", ValueError, "add reads tensors of different functions: a recursive method"),
        ("missing", TypeError, "one case for each of `Leaf`, `Node`; wrong or missing: `Node`"),
        ("counts", TypeError, "`numbers` is recursive: it takes tensors and values .* not an int"),
    ],
)
def test_wrong_methods(method, error, message):
    with pytest.raises(error, match=message):
        Wrong().export({method: {"tree": Tree}})


def test_wrong_data_types():
    with pytest.raises(AttributeError, match="no constructor 'Leef', but `Leaf`, `Node`"):
        Tree.Leef(3)
    with pytest.raises(TypeError, match="a field of `A` is 3; fields are"):
        nn.DataType("T", A=[3])
    with pytest.raises(TypeError, match="a field of `A` is 'Other'"):
        nn.DataType("T", A=["Other"])
    with pytest.raises(TypeError, match="`Node` has 2 fields|`Node` of `Tree` has 2 fields, got 1"):
        Tree.Node(Tree.Leaf(1))
    with pytest.raises(TypeError, match="needs to know what `cell` returns"):

        @nn.recursive
        def cell(self, tree):
            return tree

    model = TreeRNN()
    with pytest.raises(TypeError, match="`cell` is called while no program is built: export"):
        model.cell(Tree.Leaf(1))
