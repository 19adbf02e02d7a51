"""Batches like the one before run without Python, and all others as ever."""

import cProfile
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.data import DataValue
from relaxlab.runtime.batch.recorder import BatchError
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.direct_call import is_supported

if not is_supported():
    pytest.skip("this interpreter is not one that machine code reads", allow_module_level=True)

WALK = """
@T.prim_func(private=True)
def divide(
    x: T.Buffer((1, 4), "int64"), y: T.Buffer((1, 4), "int64"), z: T.Buffer((1, 4), "int64")
):
    for i, j in T.grid(1, 4):
        with T.sblock("divide"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = x[vi, vj] // y[vi, vj]

@R.function(private=True)
def step(
    i: R.Tensor((), "int64"), x: R.Tensor((1, 4), "int64"), by: R.Tensor((1, 4), "int64")
) -> R.Tensor((1, 4), "int64"):
    if R.equal(i, R.const(0, "int64")):
        out = x
    else:
        z = R.call_tir(cls.divide, (R.add(x, x), by), R.Tensor((1, 4), "int64"))
        out = cls.step(R.subtract(i, R.const(1, "int64")), z, by)
    return out

@R.function
def main(
    i: R.Tensor((), "int64"), x: R.Tensor((1, 4), "int64"), by: R.Tensor((1, 4), "int64"),
    w: R.Tensor((4,), "int64"),
) -> R.Tuple(R.Tensor((1, 4), "int64"), R.Tensor((1, 4), "int64")):
    R.func_attr({"num_input": 3})
    y = cls.step(i, R.add(x, w), by)
    out = (y, R.add(y, w))
    return out
"""


def instance(steps, by=1, start=0):
    x = np.arange(start, start + 4)[None]
    return np.int64(steps), x, np.full((1, 4), by)


def expected(steps, by=1, start=0, w=1):
    y = np.arange(start, start + 4)[None] + w
    for _ in range(steps):
        y = (y + y) // by
    return y, y + w


@pytest.fixture
def walk():
    main = rl.compile(rl.parse(WALK), pipeline=rl.batched_pipeline(), threads=1)["main"]
    return main.bind(np.ones(4, np.int64))


def check(found, wanted):
    assert isinstance(found, tuple) and len(found) == 2
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def functions_called(run):
    """The functions of Python that a call of `run` calls, beside itself."""
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    names = [e.code.co_name for e in profile.getstats() if not isinstance(e.code, str)]
    return [name for name in names if name != "<lambda>"]


def test_a_batch_like_the_one_before_calls_nothing_of_python(walk):
    given = [instance(3), instance(2, start=5)]
    for _ in range(2):  # the first makes room, the second sees that there is
        assert functions_called(lambda: walk.batch(given))
    assert walk.last_batch.nodes == 9  # looking at it changes nothing
    other = [instance(1, start=2), instance(0)]
    results = []
    assert not functions_called(lambda: results.extend(walk.batch(other)))
    check(results[0], expected(1, start=2))
    check(results[1], expected(0))
    report = walk.last_batch
    assert (report.instances, report.nodes, report.flushes) == (2, 5, 1)
    assert sum(rows for _, rows in report.launches) == 5
    assert walk.last_batch is report
    assert functions_called(lambda: walk.batch(other[:1]))  # another number of instances
    assert not functions_called(lambda: walk.batch(other[1:]))


RESULTS = {
    "y": lambda i, y, z: y,
    "(y,)": lambda i, y, z: (y,),
    "((y, (z, i)), (y,))": lambda i, y, z: ((y, (z, i)), (y,)),
    "(((i,),), z, (y, y))": lambda i, y, z: (((i,),), z, (y, y)),
    "(cls.Pair(y, i), (z, cls.One(z)))": lambda i, y, z: (("Pair", y, i), (z, ("One", z))),
}
NESTED = """
@I.ir_module
class Nested:
    @R.data
    class Value:
        One: (R.Tensor((1, 4), "float32"),)
        Pair: (R.Tensor((1, 4), "float32"), R.Tensor((), "int64"))

    @R.function
    def main(i: R.Tensor((), "int64"), x: R.Tensor((1, 4), "float32")):
        R.func_attr({"num_input": 2})
        y = R.add(x, x)
        z = R.multiply(y, x)
        out = RESULT
        return out
"""


def plain(value):
    """A result with lists for arrays, and tuples for values of data types."""
    if isinstance(value, DataValue):
        return (value.constructor, *map(plain, value.fields))
    return tuple(map(plain, value)) if isinstance(value, tuple) else np.asarray(value).tolist()


@pytest.mark.parametrize("result", RESULTS)
def test_results_of_any_form_are_made_without_python(result):
    mod = rl.parse(NESTED.replace("RESULT", result))
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    given = [(np.int64(i), np.full((1, 4), i, np.float32)) for i in range(5)]
    for _ in range(2):
        main.batch(given)
    found = []
    assert not functions_called(lambda: found.extend(main.batch(given)))
    for (i, x), value in zip(given, found, strict=True):
        wanted = RESULTS[result](int(i), (x + x).tolist(), ((x + x) * x).tolist())
        assert plain(value) == wanted


def test_results_are_copies(walk):
    for _ in range(2):
        walk.batch([instance(1)])
    first = walk.batch([instance(1)])[0]
    walk.batch([instance(2, start=9)])
    check(first, expected(1))
    assert first[0].flags.owndata and first[0].flags.writeable


def test_what_is_not_as_before_is_left_to_python(walk):
    for _ in range(2):
        walk.batch([instance(1)])
    count, x, by = instance(1)
    with pytest.raises(ArgumentError, match="`x` of instance 0 is an array of int32"):
        walk.batch([(count, x.astype(np.int32), by)])
    check(walk.batch([(count, x.repeat(2, axis=1)[:, ::2], by)])[0], expected(1))  # not dense
    check(walk.batch([[count, x, by]])[0], expected(1))
    check(walk.batch([(1, x, by)])[0], expected(1))  # an integer of Python
    with pytest.raises(ArgumentError, match="instance 0 has 2 arguments"):
        walk.batch([(count, x)])
    with pytest.raises(ArgumentError, match="takes a list of instances"):
        walk.batch(3)
    assert walk.batch([]) == [] and walk.last_batch.nodes == 0
    check(walk.batch(instances=[instance(1)])[0], expected(1))


def test_more_than_there_is_room_for(walk):
    for _ in range(2):
        walk.batch([instance(1)])
    check(walk.batch([instance(700, by=2)])[0], expected(700, by=2))
    assert walk.last_batch.nodes == 702


def test_failures_name_the_instance(walk):
    good, bad, endless = instance(2), instance(2, by=0), instance(-1)
    for given, reason, at in (([good, bad], "zero", 1), ([endless, good], "recursion", 0)):
        for _ in range(2):
            walk.batch([good, good])
        with pytest.raises(BatchError, match=f"instance {at} of the batch: .*{reason}") as error:
            walk.batch(given)
        check(error.value.results[1 - at], expected(2))
        for result in walk.batch([good, good]):
            check(result, expected(2))


def test_other_weights(walk):
    for _ in range(3):
        check(walk.batch([instance(1)])[0], expected(1))
    walk.bind(np.full(4, 7))
    for _ in range(3):
        check(walk.batch([instance(1)])[0], expected(1, w=7))


def test_between_other_batches(walk):
    given = [instance(3), instance(1)]
    for run in (
        lambda: walk.record(given), lambda: walk.batch(given, rl.batches_by("agenda")),
        lambda: walk(*given[0]), lambda: walk.batch(iter(given)),
    ):  # fmt: skip
        for _ in range(3):
            for result, steps in zip(walk.batch(given), (3, 1), strict=True):
                check(result, expected(steps))
        run()


def test_threads_take_turns(walk):
    for _ in range(2):
        walk.batch([instance(0)])

    def many(start):
        return [walk.batch([instance(start % 5, start=start)])[0] for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        for start, results in enumerate(pool.map(many, range(8))):
            for result in results:
                check(result, expected(start % 5, start=start))


def test_a_single_argument_needs_no_tuple():
    mod = rl.parse("""
@R.function
def main(x: R.Tensor((1, 4), "float32"), w: R.Tensor((4,), "float32")):
    R.func_attr({"num_input": 1})
    y = R.add(x, w)
    return y
""")
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"]
    main.bind(np.ones(4, np.float32))
    rows = [np.full((1, 4), i, np.float32) for i in range(3)]
    for _ in range(2):
        main.batch(rows)
    results = []
    assert not functions_called(lambda: results.extend(main.batch([rows[2], (rows[1],), rows[0]])))
    assert [float(r[0, 0]) for r in results] == [3, 2, 1]


def test_nothing_is_kept(walk):
    given = [instance(1)]
    for _ in range(3):
        walk.batch(given)
    before = [sys.getrefcount(x) for x in given[0]], sys.getrefcount(np.dtype(np.int64))
    for _ in range(100):
        walk.batch(given)
    after = [sys.getrefcount(x) for x in given[0]], sys.getrefcount(np.dtype(np.int64))
    assert after[0] == before[0] and abs(after[1] - before[1]) < 20
