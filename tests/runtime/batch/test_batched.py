"""Batches of a small program that loops as often as each instance says."""

import cProfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic, nn
from relaxlab.codegen.llvm.flushing import ALIGN
from relaxlab.runtime.batch import arena
from relaxlab.runtime.batch.recorder import BatchError
from relaxlab.runtime.batch.records import ScheduleError
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.loaded import CheckFailed

PROGRAM = """
@T.prim_func(private=True)
def blend(
    x: T.Buffer((1, 5), "float32"),
    row: T.Buffer((5,), "float32"),
    w: T.Buffer((5,), "float32"),
    y: T.Buffer((1, 5), "float32"),
):
    # A kernel of one's own, with a sum in it: the rotated products of a row.
    total = T.sblock_alloc_buffer((1,), "float32")
    for i, k in T.grid(1, 5):
        with T.sblock("total"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] = total[vi] + x[vi, vk] * w[vk]
    for i, j in T.grid(1, 5):
        with T.sblock("blend"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.float32(0.5) * x[vi, 4 - vj] + row[vj] + T.float32(0.1) * total[vi]

@R.function(private=True)
def step(
    i: R.Tensor((), "int64"),
    places: R.Tensor(("n",), "int32"),
    rows: R.Tensor(("m", 5), "float32"),
    x: R.Tensor((1, 5), "float32"),
    w: R.Tensor((5,), "float32"),
) -> R.Tensor((1, 5), "float32"):
    if R.less(R.const(0, "int64"), i):
        before = R.subtract(i, R.const(1, "int64"))
        row = R.take(rows, R.take(places, before, axis=0), axis=0)
        y = R.call_tir(cls.blend, (x, row, w), R.Tensor((1, 5), "float32"))
        out = cls.step(before, places, rows, y, w)
    else:
        out = x
    return out

@R.function
def main(
    count: R.Tensor((), "int64"),
    places: R.Tensor(("n",), "int32"),
    rows: R.Tensor(("m", 5), "float32"),
    start: R.Tensor((1, 5), "float32"),
    w: R.Tensor((5,), "float32"),
) -> R.Tuple(R.Tensor((1, 5), "float32"), R.Tensor((), "int64")):
    R.func_attr({"num_input": 3})
    last = cls.step(count, places, rows, start, w)
    out = (R.nn.relu(last), R.multiply(count, R.const(3, "int64")))
    return out
"""


def instance(rng, count, length=None):
    """Inputs with so many steps."""
    length = max(count, 1) if length is None else length
    places = rng.integers(0, 3, length).astype(np.int32)
    return np.int64(count), places, rng.standard_normal((3, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def steps():
    mod = rl.parse(PROGRAM)
    exe = rl.compile(mod, pipeline=rl.batched_pipeline(), checks="all", threads=1)
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal(s).astype(np.float32) * 0.3 for s in ((1, 5), (5,))]
    return mod, exe["main"].bind(*weights), weights


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_a_batch_computes_what_its_instances_do(steps, count):
    mod, main, weights = steps
    rng = np.random.default_rng(count)
    instances = [instance(rng, int(rng.integers(0, 12))) for _ in range(count)]
    results = main.batch(instances)
    for given, (x, tripled) in zip(instances, results, strict=True):
        expected, number = rl.interpret(mod, "main", *given, *weights)
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
        assert tripled == number and x.shape == (1, 5)
    report = main.last_batch
    longest = max(int(i[0]) for i in instances)
    assert report.instances == count
    assert report.nodes == sum(int(i[0]) + 1 for i in instances)
    # At each depth the instances that still go on, and those whose end it is.
    assert longest + 1 <= report.batches <= 2 * longest + 1
    assert sum(rows for _, rows in report.launches) == report.nodes


def test_results_do_not_depend_on_the_order_of_instances(steps):
    _, main, _ = steps
    rng = np.random.default_rng(3)
    instances = [instance(rng, n) for n in (4, 0, 7, 1, 4)]
    forth = main.batch(instances)
    back = main.batch(instances[::-1])[::-1]
    for (x, _), (y, _) in zip(forth, back, strict=True):
        np.testing.assert_array_equal(x, y)


def test_an_empty_batch_has_no_results(steps):
    _, main, _ = steps
    assert main.batch([]) == []
    assert main.last_batch.nodes == 0


def test_one_instance_is_a_batch_of_one(steps):
    mod, main, weights = steps
    given = instance(np.random.default_rng(1), 3)
    x, _ = main(*given)
    expected, _ = rl.interpret(mod, "main", *given, *weights)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
    assert main.last_batch.batches == 4


def test_results_stay_when_the_next_batch_runs(steps):
    _, main, _ = steps
    rng = np.random.default_rng(2)
    ((first, _),) = main.batch([instance(rng, 5)])
    kept = first.copy()
    main.batch([instance(rng, 30) for _ in range(9)])
    np.testing.assert_array_equal(first, kept)


def test_a_chain_of_5000_steps(steps):
    _, main, _ = steps
    given = instance(np.random.default_rng(0), 5000)
    ((x, _),) = main.batch([given])
    assert np.isfinite(x).all() and main.last_batch.batches == 5001


def test_recursion_without_end_names_the_instance(steps):
    _, main, _ = steps
    rng = np.random.default_rng(0)
    endless = instance(rng, 10**9, length=2)  # places beyond the end are the last one
    with pytest.raises(BatchError, match=r"instance 1 of the batch: its recursion") as error:
        main.batch([instance(rng, 2), endless, instance(rng, 1)])
    assert error.value.instance == 1
    assert len(main.batch([instance(rng, 2)])) == 1


def test_all_others_are_computed_beside_those_that_fail(steps, monkeypatch):
    mod, main, weights = steps
    rng, recordings = np.random.default_rng(4), []
    prepare = type(main._recorder).prepare
    monkeypatch.setattr(
        type(main._recorder), "prepare", lambda *a: (recordings.append(1), prepare(*a))[1]
    )
    good = [instance(rng, int(n)) for n in rng.integers(0, 9, 12)]
    narrow = (*good[0][:2], good[0][2][:, :4])
    empty = instance(rng, 1, length=0)
    main.batch(good)  # room for all notes
    del recordings[:]
    with pytest.raises(BatchError, match="instance 3 of the batch .and 3 more.: dim.* 4,") as error:
        main.batch([*good[:3], narrow, empty, *good[3:9], empty, narrow, *good[9:]])
    found = [r for r in error.value.results if r is not None]
    assert [i for i, r in enumerate(error.value.results) if r is None] == [3, 4, 11, 12]
    for (x, number), given in zip(found, good, strict=True):
        expected, tripled = rl.interpret(mod, "main", *given, *weights)
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
        assert number == tripled
    assert len(recordings) == 1


def test_an_instance_that_memory_lacks_for_is_named(steps, monkeypatch):
    _, main, _ = steps
    rng = np.random.default_rng(5)
    small = instance(rng, 2)
    expected = main.batch([small, small])
    large = instance(rng, 1000 + len(main._arena.memory) // ALIGN)  # a step fills a line at least

    def refused(size):
        raise MemoryError(f"no {size} bytes")

    monkeypatch.setattr(arena, "new_bytes", refused)
    with pytest.raises(BatchError, match="instance 1 of the batch: no .* bytes") as error:
        main.batch([small, large, small])
    results = error.value.results
    assert results[1] is None
    for found in ((results[0], results[2]), main.batch([small, small])):
        for (x, number), (y, other) in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)
            assert number == other


def test_what_a_program_requires_is_checked_for_each_instance(steps):
    _, main, _ = steps
    rng = np.random.default_rng(0)
    with pytest.raises(BatchError, match="instance 2 of the batch.*n >= 1"):
        main.batch([instance(rng, 1), instance(rng, 0, length=0), instance(rng, 1, length=0)])


def test_arguments_that_do_not_fit(steps):
    _, main, _ = steps
    rng = np.random.default_rng(0)
    count, places, rows = good = instance(rng, 2)
    with pytest.raises(ArgumentError, match="`count` of instance 1 .* expected R.Tensor"):
        main.batch([good, (2.5, places, rows)])
    with pytest.raises(ArgumentError, match="`places` of instance 0 is an array of int64"):
        main.batch([(count, places.astype(np.int64), rows)])
    with pytest.raises(BatchError, match="dimension 1 of `rows` is 4, expected 5"):
        main.batch([good, (count, places, rows[:, :4])])
    with pytest.raises(ArgumentError, match="instance 1 has 2 arguments; `main` takes 3"):
        main.batch([good, good[:2]])
    with pytest.raises(ArgumentError, match="instance 1 is an int, expected a tuple"):
        main.batch([good, 3])
    with pytest.raises(ArgumentError, match="`rows` of instance 1 is no array"):
        main.batch([good, (count, places, [[1.0], [2.0, 3.0]])])
    for given, kind in ((3, "an int"), (None, "None"), ({"a": good}, "a dict")):
        with pytest.raises(ArgumentError, match=f"takes a list of instances, got {kind}; for a "):
            main.batch(given)
    with pytest.raises(ArgumentError, match="`choose` is 'depth', expected a function.*batches_by"):
        main.batch([good], "depth")
    assert len(main.batch(iter([good, good]))) == 2  # any iterable, and errors leave it usable


PLAIN = """
@R.function
def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
    y = R.add(x, w)
    return y
"""


def test_weights_are_needed_and_checked():
    exe = rl.compile(rl.parse(PROGRAM), pipeline=rl.batched_pipeline(), threads=1)
    main = exe["main"]
    with pytest.raises(ArgumentError, match="call `bind` first"):
        main.batch([instance(np.random.default_rng(0), 1)])
    for count in (1, 3):
        with pytest.raises(ArgumentError, match=f"takes 2 weights .start, w., got {count}"):
            main.bind(*[np.zeros((1, 5), np.float32)] * count)
    with pytest.raises((ArgumentError, CheckFailed)):
        main.bind(np.zeros((1, 5), np.float32), np.zeros(5))
    plain = rl.compile(rl.parse(PLAIN), pipeline=rl.batched_pipeline(), threads=1)["main"]
    with pytest.raises(ArgumentError, match='no weights: R.func_attr.*"num_input": 1.*, got 1'):
        plain.bind(np.zeros(4, np.float32))
    assert list(exe)[0] == "main" and "batched main" in repr(main)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x).relu())


def test_a_module_of_layers_runs_in_batches_under_its_own_name():
    """Its weights are packed by functions that are public, too."""
    mod, _ = Layers().export({"forward": {"x": nn.spec.Tensor((1, 3), "float32")}})
    forward = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["forward"]
    rng = np.random.default_rng(0)
    weights = [rng.random(s, dtype="float32") for s in ((4, 3), (2, 4))]
    instances = [(rng.random((1, 3), dtype="float32"),) for _ in range(3)]
    results = forward.bind(*weights).batch(instances)
    for given, result in zip(instances, results, strict=True):
        expected = rl.interpret(mod, "forward", *given, *weights)
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert max(rows for _, rows in forward.last_batch.launches) == 3


def test_weights_are_bound_to_all_blocks_or_none(steps, monkeypatch):
    _, main, weights = steps
    given = [instance(np.random.default_rng(3), 4)]
    before = main.batch(given)
    last = max((b for b in main._flusher.blocks if b.of.shared), key=main._flusher.blocks.index)

    def refuse(shared):
        raise ArgumentError("no")

    monkeypatch.setattr(last, "prepared", refuse)
    with pytest.raises(ArgumentError, match="no"):
        main.bind(*(2 * w for w in weights))
    for (state, _), (kept, _) in zip(before, main.batch(given), strict=True):
        np.testing.assert_array_equal(state, kept)


def test_a_batch_waits_for_calls_of_other_threads(steps):
    """Blocks are functions of the same executable, which share words and arenas."""
    _, main, _ = steps
    given = [instance(np.random.default_rng(6), 3)]
    with ThreadPoolExecutor(1) as pool:
        with main._alone.lock:  # as a call of another function of the executable
            batch = pool.submit(main.batch, given)
            with pytest.raises(TimeoutError):
                batch.result(0.2)
        assert len(batch.result(60)) == 1


def test_threads_that_ask_first_at_once_get_one_function():
    exe = rl.compile(rl.parse(PROGRAM), pipeline=rl.batched_pipeline(), threads=1)
    with ThreadPoolExecutor(2) as pool:
        with exe._lock:  # both have asked before either function is made
            asked = [pool.submit(exe.__getitem__, "main") for _ in range(2)]
            with pytest.raises(TimeoutError):
                asked[0].result(0.1)
        one, other = (a.result(60) for a in asked)
    assert one is other


def test_the_function_that_runs_batches_is_found_as_the_others_are():
    exe = rl.compile(rl.parse(PROGRAM), pipeline=rl.batched_pipeline(), threads=1)
    assert exe.main is exe["main"]
    assert "main" in dir(exe)
    with pytest.raises(KeyError, match="no function 'nope'; it has: main, main_block_batched"):
        exe["nope"]
    with pytest.raises(AttributeError, match="no function 'nope'; it has: main, "):
        exe.nope  # noqa: B018


@pytest.mark.parametrize("target", ["cpu", "interpreter", "cuda"])
def test_functions_that_run_no_batches_name_the_pipeline_that_makes_them(target):
    exe = rl.compile(rl.parse(PLAIN), target)
    for name in ("batch", "record"):
        with pytest.raises(AttributeError, match=r"main.* no batches.*rl.batched_pipeline\(\)"):
            getattr(exe["main"], name)
    with pytest.raises(AttributeError, match="Function' object has no attribute 'nope'"):
        exe["main"].nope  # noqa: B018


def _with(batches, at, notes):
    return [*batches[:at], (batches[at][0], notes), *batches[at + 1 :]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: None, "`choose` returned None, expected batches: the number of a block"),
        (lambda b: [*b, 3], "batch 5 is an int, expected the number of a block and a list"),
        (lambda b: [*b, (0, [0.5] * 999)], "0 and a list of float64, whose first is 0.5, expected"),
        (
            lambda b: [*b, (0, np.zeros((99, 9), np.int64))],
            "batch 5 holds 0 and an array of int64 with 2 dimensions, expected the number",
        ),
        (lambda b: [*b, ([0] * 999, [])], r"batch 5 holds \[0, 0, [0, ]{,80}… and \[\], exp"),
        (lambda b: [*b, (0, 1)], "batch 5 holds 0 and 1, expected"),
        (lambda b: [*b, (True, [])], "batch 5 holds True and"),
        (lambda b: [*b, ("step", [])], "batch 5 holds 'step' and"),
        (lambda b: [*b, (99, [])], "batch 5: there is no block 99, they are 0 to 1"),
        (lambda b: _with(b, 0, [-1, 0]), "batch 0: there is no note -1, they are 0 to 9"),
        (lambda b: _with(b, 0, [10]), "batch 0: there is no note 10"),
        (lambda b: [(1 - b[0][0], b[0][1]), *b[1:]], "batch 0 is of the block .*, its note"),
        (lambda b: _with(b, 0, [*b[0][1][:-1], b[0][1][0]]), "note . is in batch 0, and again"),
        (lambda b: [*b, b[0]], "note . is in batch 0, and again in batch 5"),
        (lambda b: b[:-1], "hold 8 of 10 notes; the first that they lack is 4"),
        (lambda b: [b[1], b[0], *b[2:]], "batch 0 runs note ., which reads the result of note"),
    ],
)
def test_batches_that_cannot_run_are_refused(steps, change, message):
    _, main, _ = steps
    given = [instance(np.random.default_rng(8), n) for n in (4, 4)]
    by_depth = rl.batches_by("depth")

    def choose(records):
        return change([(block, nodes.tolist()) for block, nodes in by_depth(records)])

    with pytest.raises(ScheduleError, match=message):
        main.batch(given, choose)
    assert len(main.batch(given, by_depth)) == 2


def test_a_batch_in_a_batch_is_refused(steps):
    _, main, _ = steps

    def choose(*_):
        return main.batch([instance(np.random.default_rng(7), 1)])

    with pytest.raises(RuntimeError, match="called by a function that its own batch called"):
        main.batch([instance(np.random.default_rng(8), 2)], choose)
    assert len(main.batch([instance(np.random.default_rng(9), 1)])) == 1


DIVISION = """
@T.prim_func(private=True)
def divide(
    x: T.Buffer((1, 4), "int64"), y: T.Buffer((1, 4), "int64"), z: T.Buffer((1, 4), "int64")
):
    for i, j in T.grid(1, 4):
        with T.sblock("divide"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = x[vi, vj] // y[vi, vj]

@R.function
def main(
    x: R.Tensor((1, 4), "int64"), y: R.Tensor((1, 4), "int64"), w: R.Tensor((4,), "int64")
) -> R.Tensor((1, 4), "int64"):
    R.func_attr({"num_input": 2})
    z = R.call_tir(cls.divide, (R.add(x, w), y), R.Tensor((1, 4), "int64"))
    return z
"""


def test_an_instance_for_which_a_kernel_fails_is_named():
    main = rl.compile(rl.parse(DIVISION), pipeline=rl.batched_pipeline())["main"]
    main.bind(np.arange(4))
    good = (np.full((1, 4), 8), np.array([[1, 2, 3, 4]]))
    bad = (good[0], np.array([[1, 0, 3, 4]]))
    expected = [[8, 4, 3, 2]]
    with pytest.raises(BatchError, match="instance 2 of the batch .and 1 more.*zero") as error:
        main.batch([good, good, bad, good, bad])
    results = error.value.results
    assert [r is None for r in results] == [False, False, True, False, True]
    for result in (results[0], results[3], *main.batch([good, good])):
        np.testing.assert_array_equal(result, expected)


STEPS_OF_DIVISION = """
@T.prim_func(private=True)
def divide(
    x: T.Buffer((4,), "int64"), y: T.Buffer((4,), "int64"), z: T.Buffer((4,), "int64")
):
    for i in range(4):
        with T.sblock("divide"):
            vi = T.axis.spatial(4, i)
            z[vi] = x[vi] // y[vi]

@R.function(private=True)
def step(
    i: R.Tensor((), "int64"), x: R.Tensor((4,), "int64"), y: R.Tensor((4,), "int64"),
    w: R.Tensor((4,), "int64"),
) -> R.Tensor((4,), "int64"):
    if {ends}:
        out = x
    else:
        z = R.call_tir(cls.divide, (R.add(x, w), y), R.Tensor((4,), "int64"))
        out = cls.step(R.subtract(i, R.const(1, "int64")), z, R.subtract(y, w), w)
    return out

@R.function
def main(
    i: R.Tensor((), "int64"), x: R.Tensor((4,), "int64"), y: R.Tensor((4,), "int64"),
    w: R.Tensor((4,), "int64"),
) -> R.Tensor((4,), "int64"):
    R.func_attr({"num_input": 3})
    return cls.step(i, x, y, w)
"""


@pytest.mark.parametrize("policy", [None, "agenda", "critical"])
@pytest.mark.parametrize(
    "ends", ['R.less(i, R.const(1, "int64"))', 'R.less(R.max(x), R.const(3, "int64"))']
)
def test_instances_whose_kernels_fail_after_some_steps_leave_the_others_alone(ends, policy):
    """By counts that are known, and by tensors that instances wait for."""
    mod, w = rl.parse(STEPS_OF_DIVISION.replace("{ends}", ends)), np.ones(4, "int64")
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"].bind(w)
    instances = [
        (np.int64(i), np.full(4, x), np.full(4, y))
        for i, x, y in ((3, 99, 9), (2, 1, 8), (3, 99, 2), (1, 50, 5), (5, 10**15, 3))
    ]
    choose = policy and rl.batches_by(policy)
    with pytest.raises(BatchError, match="instance 2 of the batch .and 1 more.*zero") as error:
        main.batch(instances, choose)
    for number, result in enumerate(error.value.results):
        if number in (2, 4):
            assert result is None
            continue
        expected = rl.interpret(mod, "main", *instances[number], w)
        np.testing.assert_array_equal(result, expected)


def test_every_pass_keeps_what_one_instance_computes():
    mod = dynamic.tree_lstm(8, words=9)

    def inputs(rng):
        return (*dynamic.parse_tree(rng, 3, words=9), *dynamic.random_weights(mod, rng))

    report = rl.check(mod, pipeline=rl.batched_pipeline(), inputs=inputs, runs=1)
    assert "forms agree" in str(report)


def test_a_batch_like_the_one_before_takes_few_calls_of_python(steps):
    _, main, _ = steps
    given = [instance(np.random.default_rng(0), 2)]
    for _ in range(2):  # the first makes room for all of it
        main.batch(given)
    profile = cProfile.Profile()
    profile.enable()
    main.batch(given)
    profile.disable()
    assert sum(entry.callcount for entry in profile.getstats()) < 100


def test_batches_of_all_sizes_follow_each_other(steps):
    _, main, _ = steps
    rng = np.random.default_rng(4)
    instances = [instance(rng, n) for n in (1, 9, 300, 0, 40)]
    expected = [main.batch([i])[0][0] for i in instances]
    by_policy = rl.batches_by("agenda")
    for numbers, choose in (
        ([2], None), ([0], by_policy), ([0], None), ([1, 2, 3], None), ([1], by_policy),
        ([4], None), ([1, 1, 0], by_policy), ([0, 1, 2], None), ([3], None), (range(5), None),
    ):  # fmt: skip
        results = main.batch([instances[n] for n in numbers], choose=choose)
        for number, (x, _) in zip(numbers, results, strict=True):
            np.testing.assert_allclose(x, expected[number], rtol=1e-5, atol=1e-5)
