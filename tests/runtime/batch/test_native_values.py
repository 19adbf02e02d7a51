"""Values of data types that instances give and programs return, in machine code and in Python."""

import cProfile
import gc
import sys
from unittest.mock import patch

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.data import DataValue
from relaxlab.runtime.batch import function, native_instances
from relaxlab.runtime.native import data_values
from relaxlab.runtime.native.value_tables import values_are_known

if not values_are_known():
    pytest.skip("this interpreter is not one that machine code reads", allow_module_level=True)

INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")
ARRAYS = ("float32", "float64", "float16", "int32", "int8")


def random_program(rng):
    """A program that returns what it is given: values of two data types with fields of all kinds,
    which hold each other."""
    lines = []
    for data, other in (("A", "B"), ("B", "A")):
        lines += ["    @R.data", f"    class {data}:", f"        {data}0: ()"]
        for k in range(1, 1 + rng.integers(1, 4)):
            fields = [f'R.Tensor((), "{d}")' for d in rng.choice(INTEGERS, rng.integers(3))]
            fields += [
                f'R.Tensor(({", ".join(map(str, rng.integers(0, 4, rng.integers(1, 3))))},), "{d}")'
                for d in rng.choice(ARRAYS, rng.integers(3))
            ]
            fields += [f'"{d}"' for d in rng.choice([data, other], rng.integers(1, 3))]
            lines.append(f"        {data}{k}: ({', '.join(fields)},)")
    text = "\n".join(
        ["@I.ir_module", "class Echo:", *lines,
         "    @R.function",
         f"    def main(a: A, n: R.Tensor((), '{rng.choice(INTEGERS)}'), b: B,",
         "        x: R.Tensor((1, 4), 'float32')):",
         "        R.func_attr({'num_input': 3})",
         "        y = R.add(x, x)",
         "        return (b, n, y, a)"]
    )  # fmt: skip
    return rl.parse(text)


def random_value(rng, mod, data, nodes):
    """A value with so many nodes at most, some of which several hold."""
    makers = list(rl.constructors(mod).values())
    pool = {d: [next(c for c in makers if c.data == d)()] for d in ("A", "B")}
    for _ in range(nodes):
        maker = makers[rng.integers(len(makers))]
        pool[maker.data].append(maker(*(random_field(rng, ty, pool) for ty in maker.fields)))
    return pool[data][-1]


def random_field(rng, ty, pool):
    if not hasattr(ty, "shape"):
        among = pool[ty.name][-3:]
        return among[rng.integers(len(among))]
    dims = tuple(d.value for d in ty.shape)
    if ty.dtype in ("float16", "float32", "float64"):
        return rng.standard_normal(dims).astype(ty.dtype)
    bits = rng.integers(0, 256, (*dims, 8), np.uint8).view(np.int64)[..., 0]
    return np.asarray(bits).astype(ty.dtype)


def same(found, expected, known):
    """True if two values are equal, and what one shares the other does."""
    pending = [(found, expected)]
    while pending:
        f, e = pending.pop()
        if not isinstance(e, DataValue):
            if type(f) is not np.ndarray or f.dtype != e.dtype or f.shape != e.shape:
                return False
            if not np.array_equal(f, e):
                return False
            continue
        if id(e) in known:
            if e.fields and known[id(e)] is not f:
                return False
            continue
        known[id(e)] = f
        if (f.data, f.constructor, f.tag) != (e.data, e.constructor, e.tag):
            return False
        pending += zip(f.fields, e.fields, strict=True)
    return True


def compiled(mod):
    exe = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1, use_cache=False)
    return exe["main"].bind(np.ones((1, 4), np.float32))


def instances_of(rng, mod):
    dtype = mod["main"].params[1].ty.dtype
    return [
        (random_value(rng, mod, "A", n), random_number(rng, dtype), random_value(rng, mod, "B", n))
        for n in rng.integers(0, 60, 5).tolist()
    ]


def random_number(rng, dtype):
    """A number in one of the forms in which Python has it."""
    number = np.array(rng.integers(-(2**63), 2**63 - 1)).astype(dtype)
    forms = [number, number[()], number.item()]
    if dtype != "bool" and number < 2**63:
        forms.append(np.int64(number))
    return forms[rng.integers(len(forms))]


def check(results, instances, dtype):
    for (b, n, y, a), (given_a, given_n, given_b) in zip(results, instances, strict=True):
        assert same(a, given_a, {}) and same(b, given_b, {})
        assert type(n) is np.dtype(dtype).type and n == given_n
        np.testing.assert_array_equal(y, np.full((1, 4), 2))


def test_values_come_back_as_they_were_given(rng):
    for _ in range(4):
        mod = random_program(rng)
        main = compiled(mod)
        for _ in range(4):  # the first makes room; what follows is read and made natively
            instances = instances_of(rng, mod)
            check(main.batch(instances), instances, mod["main"].params[1].ty.dtype)


def test_python_reads_and_makes_them_alike(rng):
    mod = random_program(rng)
    with (
        patch.object(native_instances, "values_are_known", lambda: False),
        patch.object(function, "values_are_known", lambda: False),
        patch.object(data_values, "values_are_known", lambda: False),
    ):
        main = compiled(mod)
        instances = instances_of(rng, mod)
        for _ in range(2):
            check(main.batch(instances), instances, mod["main"].params[1].ty.dtype)


GROW = """
@I.ir_module
class Grow:
    @R.data
    class Tree:
        Leaf: (R.Tensor((), "int64"),)
        Node: ("Tree", R.Tensor((1, 4), "float32"), "Tree")

    @R.function(private=True)
    def grow(t: Tree, x: R.Tensor((1, 4), "float32"), w: R.Tensor((4,), "float32")) -> Tree:
        match t:
            case cls.Leaf(n):
                if R.equal(n, R.const(0, "int64")):
                    out = t
                else:
                    less = cls.Leaf(R.subtract(n, R.const(1, "int64")))
                    y = R.add(x, w)
                    out = cls.Node(cls.grow(less, y, w), y, t)
            case cls.Node(a, y, b):
                out = cls.Node(cls.grow(a, x, w), R.add(x, y), cls.grow(b, x, w))
        return out

    @R.function
    def main(t: Tree, x: R.Tensor((1, 4), "float32"), w: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 2})
        g = cls.grow(t, x, w)
        return (g, t)
"""


@pytest.fixture(scope="module")
def grow():
    mod = rl.parse(GROW)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    return mod, main.bind(np.ones(4, np.float32))


def functions_called(run):
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    names = [e.code.co_name for e in profile.getstats() if not isinstance(e.code, str)]
    return [name for name in names if name != "<lambda>"]


def test_values_given_and_returned_call_nothing_of_python(grow):
    mod, main = grow
    leaf, node = (rl.constructors(mod)[name] for name in ("Leaf", "Node"))
    x = np.zeros((1, 4), np.float32)
    one = (node(leaf(3), x, leaf(0)), x)
    for _ in range(3):  # the first makes room, the next see that there is
        main.batch([one, one])
    results = []
    other = [(leaf(2), x), (node(leaf(0), x, leaf(1)), x + 1)]
    assert not functions_called(lambda: results.extend(main.batch(other)))
    (first, given), (second, _) = results
    assert same(given, other[0][0], {})
    np.testing.assert_array_equal(first.fields[0].fields[1], np.full((1, 4), 2))
    np.testing.assert_array_equal(second.fields[1], np.ones((1, 4)))
    assert first.fields[2] is given  # both were given, as one


def test_more_values_than_there_is_room_for(grow):
    mod, main = grow
    leaf, x = rl.constructors(mod)["Leaf"], np.zeros((1, 4), np.float32)
    for _ in range(3):
        main.batch([(leaf(1), x)])
    ((grown, _),) = main.batch([(leaf(5000), x)])
    for n in range(5000, 0, -1):
        assert grown.constructor == "Node" and grown.fields[2].fields[0] == n
        grown = grown.fields[0]
    (_, large), (small, _) = main.batch([(leaf(700), x), (leaf(1), x)])
    assert large.fields[0] == 700 and small.fields[0].fields[0] == 0


def test_values_are_freed(grow):
    mod, main = grow
    leaf, x = rl.constructors(mod)["Leaf"], np.zeros((1, 4), np.float32)
    given = [(leaf(20), x), (leaf(3), x)]
    for _ in range(3):
        main.batch(given)

    def objects():
        gc.collect()
        return sum(isinstance(o, DataValue | np.ndarray | tuple) for o in gc.get_objects())

    before = objects()
    for _ in range(50):
        main.batch(given)
    assert objects() - before < 50
    main.batch(given)
    counted = x.dtype, DataValue, mod.attrs["data_types"][0].name
    counts = [sys.getrefcount(o) for o in counted]
    for _ in range(200):
        main.batch(given)
    after = [sys.getrefcount(o) for o in counted]
    assert all(abs(a - b) < 20 for a, b in zip(after, counts, strict=True))
