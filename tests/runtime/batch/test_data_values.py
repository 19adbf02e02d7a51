"""Batches of programs on data types: what instances give, compute, and return."""

import numpy as np
import pytest

import relaxlab as rl

LISTS = """
@I.ir_module
class Lists:
    @R.data
    class List:
        Nil: ()
        Cons: (R.Tensor((1, 4), "float32"), R.Tensor((), "int64"), "List")

    @R.function(private=True)
    def states(xs: List, h: R.Tensor((1, 4), "float32"), W: R.Tensor((8, 4), "float32")) -> List:
        match xs:
            case cls.Nil():
                out = cls.Nil()
            case cls.Cons(x, n, rest):
                new = R.tanh(R.concat((x, h), axis=1) @ W)
                out = cls.Cons(new, R.add(n, R.const(1, "int64")), cls.states(rest, new, W))
        return out

    @R.function(private=True)
    def chosen(xs: List) -> R.Tensor((1, 4), "float32"):
        match xs:
            case cls.Nil():
                out = R.zeros((1, 4), "float32")
            case cls.Cons(x, n, rest):
                if R.less(n, R.const(4, "int64")):
                    out = x + cls.chosen(rest)
                else:
                    out = cls.chosen(rest)
        return out

    @R.function
    def main(
        xs: List, h: R.Tensor((1, 4), "float32"), W: R.Tensor((8, 4), "float32")
    ) -> R.Tuple(List, R.Tensor((1, 4), "float32")):
        R.func_attr({"num_input": 1})
        found = cls.states(xs, h, W)
        return (found, cls.chosen(found))
"""
MODULE = rl.parse(LISTS)
NIL, CONS = (rl.constructors(MODULE)[name] for name in ("Nil", "Cons"))
RNG = np.random.default_rng(0)
WEIGHTS = (np.zeros((1, 4), np.float32), RNG.standard_normal((8, 4)).astype(np.float32))


def random_list(length):
    made = NIL()
    for _ in range(length):
        made = CONS(RNG.standard_normal((1, 4)).astype(np.float32), int(RNG.integers(6)), made)
    return made


def items(xs):
    while xs.constructor == "Cons":
        yield xs.fields[:2]
        xs = xs.fields[2]


def compiled(**options):
    pipeline = rl.batched_pipeline().with_options("make_blocks", **options)
    return rl.compile(MODULE, pipeline=pipeline)["main"].bind(*WEIGHTS)


@pytest.fixture(scope="module")
def main():
    return compiled()


def check(results, instances):
    for (found, total), xs in zip(results, instances, strict=True):
        expected, wanted = rl.interpret(MODULE, "main", xs, *WEIGHTS)
        np.testing.assert_allclose(total, wanted, rtol=1e-4, atol=1e-5)
        for (h, n), (g, m) in zip(items(found), items(expected), strict=True):
            assert n == m
            np.testing.assert_allclose(h, g, rtol=1e-4, atol=1e-5)


def test_batches_compute_what_the_interpreter_does(main):
    instances = [random_list(n) for n in (0, 1, 5, 9, 3)]
    check(main.batch(instances), instances)
    check(main.batch(instances, choose=rl.batches_by("critical")), instances)


def test_blocks_of_single_operators_compute_the_same():
    instances = [random_list(n) for n in (4, 0, 2)]
    check(compiled(coarse=False).batch(instances), instances)


def test_long_lists_and_shared_tails(main):
    ((found, _),) = main.batch([random_list(3000)])  # more room than at first; no Python recursion
    assert sum(1 for _ in items(found)) == 3000
    tail = random_list(3)
    x = np.ones((1, 4), np.float32)
    instances = [CONS(x, 1, tail), CONS(x, 2, tail), tail]
    check(main.batch(instances), instances)


def test_values_that_contain_themselves_are_refused(main):
    xs = CONS(np.ones((1, 4), np.float32), 1, NIL())
    object.__setattr__(xs, "fields", (*xs.fields[:2], xs))
    with pytest.raises(rl.ArgumentError, match="`xs` of instance 1 contains itself"):
        main.batch([NIL(), xs])


def test_values_of_other_types_are_refused(main):
    text = "`xs` of instance 1 is .*expected a value of `List`"
    with pytest.raises(rl.ArgumentError, match=text):
        main.batch([NIL(), 3])


def test_fields_that_do_not_fit_are_refused(main):
    x = np.ones((1, 4), np.float32)
    for number in (2.5, np.zeros(3, np.int64), 2**70, "2"):
        xs = CONS(x, 1, NIL())
        object.__setattr__(xs, "fields", (x, number, xs.fields[2]))
        with pytest.raises(rl.ArgumentError, match="a field of `Cons` in `xs` of instance 1 is "):
            main.batch([NIL(), xs])
    unknown = rl.constructors(rl.parse(OTHER))["Twig"]()
    with pytest.raises(rl.ArgumentError, match="has `Twig`, .* in this program, but `Nil`, `Cons`"):
        main.batch([unknown])
    assert len(main.batch([NIL()])) == 1


OTHER = """
@I.ir_module
class Other:
    @R.data
    class List:
        Twig: ()
"""
