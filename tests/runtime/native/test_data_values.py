"""Values of data types in compiled programs."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.data import DataValue
from relaxlab.models.dynamic import parse_tree, random_weights, tree_gru, tree_value
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.testing.batch_check import differs

LISTS = """
@I.ir_module
class Lists:
    @R.data
    class List:
        Nil: ()
        Cons: (R.Tensor((2, 3), "float32"), R.Tensor((), "int64"), "List")

    @R.function(private=True)
    def reversed(l: List, done: List, w: R.Tensor((3,), "float32")) -> List:
        match l:
            case cls.Nil():
                out = done
            case cls.Cons(x, n, rest):
                more = R.add(n, R.const(1, "int64"))
                out = cls.reversed(rest, cls.Cons(R.multiply(x, w), more, done), w)
        return out

    @R.function
    def first(l: List, other: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        match l:
            case cls.Nil():
                out = other
            case cls.Cons(x, _, _):
                out = x
        return out

    @R.function
    def main(l: List, w: R.Tensor((3,), "float32")) -> R.Tuple(List, List, R.Tensor((), "int64")):
        back = cls.reversed(l, cls.Nil(), w)
        match back:
            case cls.Nil():
                n = R.const(0, "int64")
            case cls.Cons(_, count, _):
                n = count
        return (back, l, n)
"""
MODULE = rl.parse(LISTS)
NIL, CONS = (rl.constructors(MODULE)[n] for n in ("Nil", "Cons"))
RNG = np.random.default_rng(0)


def values(count):
    made = NIL()
    for n in range(count):
        made = CONS(RNG.standard_normal((2, 3)).astype(np.float32), n, made)
    return made


@pytest.fixture(scope="module", params=["default", "all"])
def exe(request):
    return rl.compile(MODULE, checks=request.param, use_cache=False, threads=2)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_values_go_in_and_out(exe, count):
    given, w = values(count), RNG.standard_normal(3).astype(np.float32)
    results = exe["main"](given, w)
    assert differs(results, rl.interpret(MODULE, "main", given, w), "the result") is None


def test_results_stay_when_the_next_call_runs(exe):
    given, w = values(3), np.ones(3, np.float32)
    back, _, _ = exe["main"](given, w)
    kept = back.fields[0].copy()
    exe["main"](values(20), w)
    np.testing.assert_array_equal(back.fields[0], kept)
    first = exe["first"](given, np.zeros((2, 3), np.float32))
    first[:] = 0  # a copy: the value is as it was
    assert given.fields[0].any()


def test_values_that_do_not_fit(exe):
    w = np.ones(3, np.float32)
    with pytest.raises(ArgumentError, match="argument `l` of `main` is a tuple, expected a value"):
        exe["main"]((1, 2), w)
    other = DataValue("List", "Snoc", 1, ())
    with pytest.raises(ArgumentError, match="`Snoc`, which is no constructor of `List`"):
        exe["main"](other, w)
    for wrong in (np.zeros((1, 3), np.float32), np.zeros((2, 3), np.float64)):
        other = DataValue("List", "Cons", 1, (wrong, np.array(0), NIL()))
        with pytest.raises(ArgumentError, match="field of `Cons` in argument `l` of `main` is an"):
            exe["main"](other, w)


def test_values_that_no_constructor_made(exe):
    given, w = values(1), np.ones(3, np.float32)
    listed = DataValue("List", "Cons", 1, list(given.fields))
    found, expected = (exe["main"](v, w)[0] for v in (listed, given))
    assert differs(found, expected, "the result") is None
    for other in (DataValue("List", 3, 1, ()), DataValue("List", "Cons", 1 << 70, ())):
        with pytest.raises(ArgumentError, match="which is no constructor of `List`"):
            exe["main"](other, w)
    with pytest.raises(AttributeError):
        exe["main"](DataValue.__new__(DataValue), w)


def test_programs_with_data_come_back_from_the_cache():
    mod = tree_gru(4, words=9)
    weights = random_weights(mod, RNG)
    tree = tree_value(mod, parse_tree(RNG, 6, words=9))
    expected = rl.interpret(mod, "main", tree, *weights)
    for number in range(2):
        exe = rl.compile(mod)
        found = exe["main"](tree, *exe.packed_weights("main", weights))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert exe.from_cache or not number


def test_they_have_no_form_in_c(tmp_path):
    exe = rl.compile(MODULE, use_cache=False)
    with pytest.raises(rl.ExportError, match="`l` of `reversed` is of the data type List"):
        exe.export(tmp_path / "lists.so")
