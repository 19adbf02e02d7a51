"""Algebraic data types in the language: reading, printing, types, errors, and the interpreter."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.data import DataValue
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import structural_equal
from relaxlab.runtime.check.check import CheckError
from relaxlab.script import ir as I
from relaxlab.script import relax as R

TREES = """
@I.ir_module
class Trees:
    @R.data
    class Tree:
        Leaf: (R.Tensor((), "int64"),)
        Node: ("Tree", "Tree")

    @R.function(private=True)
    def mirrored(t: Tree) -> Tree:
        match t:
            case cls.Leaf(w):
                return cls.Leaf(R.add(w, w))
            case cls.Node(left, right):
                return cls.Node(cls.mirrored(right), cls.mirrored(left))

    @R.function
    def main(t: Tree) -> R.Tuple(Tree, R.Tensor((), "int64")):
        match t:
            case cls.Leaf(_):
                n = R.const(1, "int64")
            case cls.Node(left, right):
                n = R.add(cls.main(left)[1], cls.main(right)[1])
        return (cls.mirrored(t), n)
"""


def in_words(tree):
    """A tree as nested tuples of numbers."""
    if tree.constructor == "Leaf":
        return int(tree.fields[0])
    return tuple(map(in_words, tree.fields))


def test_programs_on_trees_are_printed_parsed_and_run():
    mod = rl.parse(TREES)
    assert structural_equal(rl.parse(mod.script()), mod)
    leaf, node = (rl.constructors(mod)[name] for name in ("Leaf", "Node"))
    tree = node(node(leaf(1), leaf(2)), leaf(3))
    assert repr(tree) == "Node(Node(Leaf(1), Leaf(2)), Leaf(3))"
    mirrored, count = rl.interpret(mod, "main", tree)
    assert in_words(mirrored) == (6, (4, 2)) and count == 3


def test_decorated_classes_declare_data_types():
    @I.ir_module
    class Lists:
        @R.data
        class List:
            Nil: ()
            Cons: (R.Tensor((2,), "float32"), "List")  # noqa: F821

        @R.function
        def main(xs: List) -> R.Tensor((2,), "float32"):
            match xs:
                case cls.Nil():  # noqa: F821
                    total = R.zeros((2,), "float32")
                case cls.Cons(x, rest):  # noqa: F821
                    total = x + Lists.main(rest)
            return total

    nil, cons = (rl.constructors(Lists)[name] for name in ("Nil", "Cons"))
    ones = np.ones(2, np.float32)
    xs = cons(ones, cons(ones, nil()))
    np.testing.assert_array_equal(rl.interpret(Lists, "main", xs), [2, 2])


def test_virtual_machine_runs_programs_on_data():
    mod = rl.parse(TREES)
    leaf, node = (rl.constructors(mod)[name] for name in ("Leaf", "Node"))
    tree = node(leaf(1), node(leaf(5), leaf(7)))
    mirrored, count = rl.compile(mod, target="interpreter")["main"](tree)
    assert in_words(mirrored) == ((14, 10), 2) and count == 3


WRONG = [
    ("case cls.Leaf(_):", "case cls.Lef(_):", "E0102", "did you mean 'Leaf'"),
    ("case cls.Leaf(_):", "case 3:", "E0125", "a case is a constructor"),
    ("case cls.Node(left, right):\n                n", "case cls.Node(left):\n                n",
     "E0125", "has 2 fields, and the case names 1"),
    ("case cls.Node(left, right):", "case cls.Node(left, left):", "E0125", "called 'left'"),
    ("case cls.Leaf(_):", "case cls.Leaf(_, __):", "E0125", "has 1 field, and the case names 2"),
    ("case cls.Leaf(_):", "case cls.Node(_, __):", "E0211", "2 cases of `Node`"),
    ("main(left)[1]", "main(n)[1]", "E0102", "undefined name 'n'"),
    ('"Tree", "Tree"', '"Tree", "Tre"', "E0102", "no data type 'Tre'"),
    ('"Tree", "Tree"', '"Tree", R.Object', "E0125", "constant shape or a data type"),
    ("match t:\n            case cls.Leaf(_)",
     "match R.const(1):\n            case cls.Leaf(_)", "E0211", "no data type of the module"),
    ("cls.Leaf(R.add(w, w))", "cls.Leaf(t)", "E0203", "field 0 of `Leaf`"),
    ("cls.Leaf(R.add(w, w))", "cls.Leaf(w, w)", "E0105", "takes 1 field, got 2"),
    ("        Node: (", "        mirrored: (", "E0115", "twice"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "code", "text"), WRONG, ids=[w[1][:24] for w in WRONG])
def test_wrong_programs_are_reported(old, new, code, text):
    assert old in TREES
    with pytest.raises(DiagnosticError) as error:
        rl.parse(TREES.replace(old, new, 1))
    found = [(d.code, d.render()) for d in error.value.diagnostics]
    assert any(c == code and text in rendered for c, rendered in found), found


def test_fields_that_do_not_fit_are_refused():
    leaf, node = (rl.constructors(rl.parse(TREES))[name] for name in ("Leaf", "Node"))
    with pytest.raises(TypeError, match="has 2 fields, got 1"):
        node(leaf(1))
    with pytest.raises(TypeError, match=r"field 1 of `Node` is a `Tree`, got"):
        node(leaf(1), 2)
    for wrong in (np.zeros(3), 2.5):
        with pytest.raises(TypeError, match=r"field 0 of `Leaf` is a R\.Tensor.*, got"):
            leaf(wrong)
    other = DataValue("Bush", "Leaf", 0, (1,))
    with pytest.raises(rl.ExecutionError, match="must be a value of the data type `Tree`"):
        rl.interpret(rl.parse(TREES), "main", other)


def test_programs_on_data_are_checked_with_random_values():
    report = rl.check(rl.parse(TREES), runs=2)
    assert report.finding is None and not report.left_out
    endless = """
@I.ir_module
class Endless:
    @R.data
    class Stream:
        More: (R.Tensor((), "int64"), "Stream")

    @R.function
    def main(s: Stream) -> R.Tensor((), "int64"):
        match s:
            case cls.More(x, _):
                return x
"""
    with pytest.raises(CheckError, match="no random values of type Stream"):
        rl.check(rl.parse(endless))
