"""Typical wrong answers get the hint that helps, and nothing raises.

That the answers given in the lessons are right, and the unfinished ones not, is tested by
running the lessons.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import jupytext
import numpy as np
import pytest
from exercises import (
    lesson1,
    lesson2,
    lesson3,
    lesson4,
    lesson5,
    lesson6,
    lesson7,
    lesson8,
    lesson9,
    lesson10,
    lesson11,
    lesson12,
    lesson13,
    lesson14,
)

import relaxlab as rl
from relaxlab.ir.loops import BufferLoad, BufferStore, For
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.passes.lower_shapes import lower_shapes
from tests.test_repo import ROOT

TUTORIALS = ROOT / "tutorials"


def program(lesson: str, name: str, *changes: tuple[str, str]) -> Module:
    """A program of a lesson, by the name of its class, with pieces of its text replaced."""
    (path,) = TUTORIALS.glob(f"{lesson}_*.py")
    cells = (c.source for c in jupytext.read(path).cells if c.cell_type == "code")
    (source,) = (text for text in cells if f"class {name}:" in text)
    text = re.split(r"\n\n\n(?=\S)", source[source.index("@I.ir_module") :])[0] + "\n"
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return rl.parse(text)


def hint(verdict: Any, text: str) -> None:
    assert not verdict.ok
    assert text in verdict.text


@pytest.mark.parametrize(
    ("check", "given", "form"),
    [
        (lesson2.repair, (), "str"),
        (lesson3.puzzle, ("PUZZLE",), "dict[str, object]"),
        (lesson5.puzzle, ("PUZZLE",), "Iterable[set[str]]"),
        (lesson10.sectors, ("PUZZLE",), "dict[str, int]"),
    ],
)
@pytest.mark.parametrize("answer", [3, 2.5, [1, 2], np.zeros(3)])
def test_answers_of_another_form_get_a_verdict(
    check: Any, given: tuple[str, ...], form: str, answer: Any
) -> None:
    """Whatever a learner writes there, the cell below ends with what is asked for."""
    mod = rl.parse(SUM)
    verdict = check(*(mod for _ in given), answer)
    assert not verdict.ok
    assert f"form {form} is asked for" in verdict.text or "is missing" in verdict.text


SUM = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.sum(y)
            R.output(z)
        return z
"""


def test_a_verdict_shows_itself() -> None:
    good = lesson9.no_predicate(4)
    assert repr(good).startswith("✓ ") and "<pre" in good._repr_html_()
    bad = lesson2.repair("<script>alert(1)</script>")
    assert repr(bad).startswith("✗ not yet: ")
    assert "<script>" not in bad._repr_html_() and "&lt;script&gt;" in bad._repr_html_()


@pytest.mark.parametrize("answer", [None, ...])
def test_no_answer(answer: object) -> None:
    hint(lesson1.scale_rows(answer), "there is no answer yet")


def test_not_a_module() -> None:
    hint(lesson1.scale_rows(3), "the answer must be a module, is an int")
    hint(lesson1.scale_rows(Module.of({})), "no loop function (`@T.prim_func`) called `scale_rows`")


def test_lesson_1() -> None:
    column = program("01", "ScaleRows", ("= A[vi, vj]", "= A[vi, vj] * s[vj % 3]"))
    hint(lesson1.scale_rows(column), "row i is to be multiplied by s[i]")
    shape = program("01", "ColumnSums", ("B: T.Buffer((3,)", "B: T.Buffer((4,)"))
    hint(lesson1.column_sums(shape), "declared as (4,), it must be (5,)")
    rounds = ("range(7)", "range(6)"), ("spatial(7, i)", "spatial(6, i)")
    short = program("01", "MovingSumSolution", *rounds)
    hint(lesson1.moving_sum(short), "element (6,) of the result is never written")
    zero = program("01", "LongestStepSolution", ('T.min_value("float32")', "T.float32(0)"))
    hint(lesson1.longest_step(zero), "All sums are smaller than 0 here: start the maximum from")
    swap = ("A[vi, vk] + B[vk, vj]", "A[vj, vk] + B[vk, vi]")
    hint(lesson1.longest_step(program("01", "LongestStepSolution", swap)), "the transpose")


def test_lesson_1_does_not_insist_on_one_way() -> None:
    """Another order of the same sum is right; storing elsewhere as well is not."""
    order = ("for i, j in T.grid(3, 5)", "for j, i in T.grid(5, 3)")
    assert lesson1.column_sums(program("01", "ColumnSumsSolution", order)).ok
    store = "                B[vi, vj] = A"
    more = program("01", "ScaleRowsSolution", (store, f"                s[vi] = 2\n{store}"))
    hint(lesson1.scale_rows(more), "changes its input number 2")


def test_declarations_are_compared_with_what_is_asked_for() -> None:
    """The learner reads what is declared and what it must be, not what the check passes."""
    wide = ('B: T.Buffer((3, 5), "float32")', 'B: T.Buffer((3, 5), "float64")')
    cast = ("A[vi, vj] * s[vi]", 'T.Cast("float64", A[vi, vj] * s[vi])')
    double = lesson1.scale_rows(program("01", "ScaleRowsSolution", wide, cast))
    hint(double, "the result `B` is declared as float64, it must be float32")
    turned = ("A: T.Buffer((3, 5)", "A: T.Buffer((5, 3)"), ("A[vi, vj]", "A[vj, vi]")
    hint(lesson1.scale_rows(program("01", "ScaleRowsSolution", *turned)),
         "`A` is declared as (5, 3), it must be (3, 5)")  # fmt: skip
    scalar = ('s: T.Buffer((3,), "float32")', "s: T.float32"), ("s[vi]", "s")
    hint(lesson1.scale_rows(program("01", "ScaleRowsSolution", *scalar)),
         "the parameter `s` of `scale_rows` must be a buffer")  # fmt: skip
    half = lesson3.heads(program("03", "HeadsSolution", ("float32", "float16")))
    hint(half, "`x` is declared as float16, it must be float32")
    fixed = ("T.match_buffer(b, (n, m)", "T.match_buffer(b, (n, 5)")
    hint(lesson3.add_one(program("03", "AddOneSolution", fixed)),
         "the result `B` is declared as (n, 5), it must be (1, 7)")  # fmt: skip


def test_the_kinds_of_axes_are_explained() -> None:
    for kinds, text in (
        ("SS", "no axis of its block is declared as a reduction"),
        ("SR", "T.init() is run where vj is 0: only the axis that is summed"),
        ("RR", "T.init() is run where vi is 0 and vj is 0"),
    ):
        hint(lesson1.column_sums(program("01", "ColumnSumsSolution", ('"RS"', f'"{kinds}"'))), text)
    wrong = lesson1.scale_rows(program("01", "ScaleRowsSolution", ('"SS"', '"SR"')))
    hint(wrong, "nothing is summed over vj")
    start = ('T.min_value("float32")', "T.float32(-1)")
    hint(lesson1.longest_step(program("01", "LongestStepSolution", start)),
         "All sums are smaller than -1 here")  # fmt: skip
    one_less = ('        B: T.Buffer((3, 4), "float32"),\n', ""), (" + B[vk, vj]", "")
    hint(lesson1.longest_step(program("01", "LongestStepSolution", *one_less)),
         "must take 2 inputs and one output")  # fmt: skip


def test_answers_in_other_ways_are_right() -> None:
    written_out = rl.parse("""
@I.ir_module
class M:
    @T.prim_func
    def column_sums(A: T.Buffer((3, 5), "float32"), B: T.Buffer((5,), "float32")):
        for j in range(5):
            with T.sblock("B"):
                vj = T.axis.spatial(5, j)
                B[vj] = A[0, vj] + A[1, vj] + A[2, vj]
""")
    assert lesson1.column_sums(written_out).ok
    method = ('T.cast(A[vi, vj], "float32")', 'A[vi, vj].astype("float32")')
    assert lesson2.from_bytes(program("02", "FromBytesSolution", method)).ok
    lists = {"a": ["n * 2", 4], "b": "[2 * n, 5]", "c": ["2 * n"], "d": "(n * 6,)", "e": (1, "n*6")}
    assert lesson3.puzzle(program("03", "Puzzle"), lists).ok
    no_sizes = ('R.Tensor(("n", 12), "float32")', 'R.Tensor("float32", ndim=2)')
    coarse = no_sizes, ("        n = T.int64()\n", ""), ("(n, 3, 4)", "(-1, 3, 4)")
    assert lesson3.heads(program("03", "HeadsSolution", *coarse)).ok
    two = program("07", "TwoLoops")
    assert lesson7.one_loop(two, lambda sch: sch.reverse_compute_inline(sch.get_block("halve"))).ok


def test_answers_that_are_only_nearly_right_are_not() -> None:
    loads = lambda f: sum(isinstance(n, BufferLoad) for n in walk(f))  # noqa: E731
    hint(lesson2.count_stores(loads), "has 1 store, your function counts 2")
    two_numbers = ("(1, m)", "(1, 2)"), ("        m = T.int64()\n", "")
    assert not lesson3.places(program("03", "PlacesSolution", *two_numbers)).ok

    def destroys(x: Any, out: Any) -> None:
        x[...] = out[...] = 0

    rl.register_func("course.running_max", destroys, override=True)
    hint(lesson4.running_max(program("04", "RunningMaxSolution")), "changes its argument `x`")
    rl.register_func("course.running_max", lambda x: x, override=True)
    one = lesson4.running_max(program("04", "RunningMaxSolution"))
    hint(one, "'course.running_max' does not take 2 arguments (`call_dps_packed` gives")
    hint(lesson4.loops_after_legalize(lambda mod: "exp, sum"), "must return a set of names")
    puzzle = program("05", "Puzzle")
    hint(lesson5.puzzle(puzzle, [{"a", "b", "e"}, {"c", "d"}]), "`b` and `e` stay apart")
    hint(lesson5.puzzle(puzzle, [{"a", "b", "x"}, {"c", "d"}, {"e"}]), "has no variable 'x'")
    call = 'R.call_tir(cls.clip, (y,), out_ty=R.Tensor((n, 32), "float32"))'
    hint(lesson5.clip(program("05", "ClipSolution", (call, "R.nn.relu(y)"))), "must call `clip`")
    hint(lesson5.bytes_saved(lambda n: 24 * 1024 * 7), "for n = 12 it is another number")
    hint(lesson6.arena_of_five(lambda n: 2 * 256 * 7), "for n = 12 it is another number")

    def vectors_of_rows(sch: Any) -> None:
        i, _ = sch.get_loops(sch.get_block("C"))
        rows, inner = sch.split(i, factors=[None, 8])
        sch.parallel(rows), sch.vectorize(inner)

    hint(lesson7.fast_bias(program("07", "AddBias"), vectors_of_rows), "runs down a column")


def test_a_result_that_is_no_tensor_is_named() -> None:
    both = ("return z", "return (y, z)")
    hint(lesson3.heads(program("03", "HeadsSolution", both)), "must return one tensor, it returns")
    none = ('x: R.Tensor(("n", 12), "float32")', ""), ("        n = T.int64()\n", ""), (
        "R.reshape(x, (n, 3, 4))", 'R.zeros((5, 3, 4), "float32")')  # fmt: skip
    hint(lesson3.heads(program("03", "HeadsSolution", *none)), "must take 1 argument, it takes 0")


def test_lesson_2() -> None:
    text = program("02", "LeakyReluSolution").script()
    hint(lesson2.leaky_relu(rl.parse(text.replace("0.1", "0.2"))), "something else than NumPy")
    negative = text.replace("A[vi] > T.float32(0.0)", "A[vi] < T.float32(0.0)")
    hint(lesson2.leaky_relu(rl.parse(negative)), "something else than NumPy")
    hint(lesson2.count_stores(lambda f: sum(isinstance(n, For) for n in walk(f.body))), "counts")
    hint(lesson2.count_stores(lambda f: f.nonsense), "the function fails: AttributeError")
    assert lesson2.count_stores(
        lambda f: [isinstance(n, BufferStore) for n in walk(f)].count(True)
    ).ok


def test_lesson_3() -> None:
    symbols = ("n, m = T.int64(), T.int64()", "n = T.int64()")
    half = program("03", "AddOneSolution", symbols, ("(n, m)", "(n, 5)"))
    hint(lesson3.add_one(half), "A still has the fixed size 5")
    puzzle = program("03", "Puzzle")
    right = {"a": "(n * 2, 4)", "b": "(2 * n, 5)", "c": "(n * 2,)", "d": "(n * 6,)",
             "e": "(1, n * 6)"}  # fmt: skip
    assert lesson3.puzzle(puzzle, right).ok
    tuples = {"b": ("n*2", 5), "c": ("n*2",), "e": (1, "n*6")}
    assert lesson3.puzzle(puzzle, {**right, **tuples}).ok
    for name, wrong, text in (
        ("b", "(n * 2, 4)", "for n = 5, `b` has the shape (10, 5)"),
        ("c", "(n * 2)", "lacks a comma"),
        ("d", "(n * 6, 1)", "`d` has 1 dimensions"),
        ("e", "(1, m)", "is no expression"),
        ("c", None, "the shape of `c`, the result of R.sum, is missing"),
    ):
        hint(lesson3.puzzle(puzzle, {**right, name: wrong}), text)
    same_order = program("03", "HeadsSolution", ("axes=[1, 0, 2]", "axes=[0, 1, 2]"))
    hint(lesson3.heads(same_order), "gives the shape (5, 3, 4), expected (3, 5, 4)")
    hint(lesson3.places(program("03", "Places")), "Put `R.match_cast")


def test_lesson_4() -> None:
    output = ("R.output(z)\n        return z", "R.output(y, z)\n        return y")
    unused = program("04", "SwishSolution", output)
    hint(lesson4.swish(unused), "something else than NumPy")
    unknown = program("04", "RunningMaxSolution", ("course.running_max", "course.nobody"))
    hint(lesson4.running_max(unknown), "nothing is registered under the name 'course.nobody'")
    rl.register_func("course.minimum", lambda x, out: np.minimum.accumulate(x, 1, out=out),
                     override=True)  # fmt: skip
    other = program("04", "RunningMaxSolution", ("course.running_max", "course.minimum"))
    hint(lesson4.running_max(other), "something else than NumPy")
    last = lambda mod: rl.trace(mod).result.loop_functions()  # noqa: E731
    hint(lesson4.loops_after_legalize(last), "Is it the module *after* the pass")


def test_lesson_5() -> None:
    puzzle = program("05", "Puzzle")
    for groups, text in (
        ([{"a", "b", "c", "d"}, {"e"}], "`b` and `c` stay apart"),
        ([{"a", "b"}, {"c", "d", "e"}], "`d` and `e` stay apart"),
        ([{"a", "b"}, {"c"}, {"d"}, {"e"}], "`c` and `d` are merged"),
        ([{"a", "b"}, {"c", "d"}], "`e` is in 0 groups"),
    ):
        hint(lesson5.puzzle(puzzle, groups), text)
    wrong = program("05", "ClipSolution", ("T.max(A[vi, vj], 0)", "T.min(A[vi, vj], 0)"))
    hint(lesson5.clip(wrong), "something else than NumPy")
    forgotten = program("05", "SoftmaxSolution", ("p * 2.0", "p * 1.0"))
    hint(lesson5.softmax(forgotten), "something else than NumPy")
    for answer, text in (
        (lambda n: 3 * n * 1024 * 4, "both are saved"),
        (lambda n: 4 * n * 1024 * 4 * 2, "the last one is still written"),
        (lambda n: n * 1024 * 4, "How many are there?"),
        (lambda n: 1, "another number than 1"),
    ):
        hint(lesson5.bytes_saved(answer), text)


def test_lesson_6() -> None:
    for count, text in ((4, "without reuse"), (3, "one too many"), (1, "that it is reading")):
        hint(lesson6.arena_of_five(lambda n, c=count: c * n * 256), text)
    hint(lesson6.arena_of_five(lambda n: 2 * n * 64), "how many places of 1792 bytes")
    early, late = "            p = R.max(a, axis=1)\n", "            q = R.max(b, axis=1)\n"
    half = program("06", "OrderSolution", (early, ""), (late, early + late))
    hint(lesson6.order(half), "which is 2 of the large results")
    fewer = program("06", "OrderSolution", ("R.matmul(R.cos(x), w)", "R.multiply(a, a)"))
    hint(lesson6.order(fewer), "something else than NumPy")
    right = '{"n": 128, "m": 64}'
    swapped = program("06", "TranslatorSolution", (right, '{"n": 64, "m": 128}'))
    hint(lesson6.translator(swapped), "the bound of n should be 128, is 64")
    one = program("06", "TranslatorSolution", (right, '{"n": 128}'))
    hint(lesson6.translator(one), "the bound of m should be 64, is missing")


def vectors(sch: Any, block: str, lanes: int, which: int = -1) -> None:
    loops = sch.get_loops(sch.get_block(block))
    sch.vectorize(sch.split(loops[which], factors=[None, lanes])[-1])


def test_lesson_7() -> None:
    hint(lesson7.in_order(program("07", "ColumnSums"), lambda sch: None), "goes down a column")
    bias = program("07", "AddBias")
    hint(lesson7.fast_bias(bias, lambda sch: vectors(sch, "C", 8)), "not split among threads yet")
    hint(lesson7.fast_bias(bias, lambda sch: vectors(sch, "C", 4)), "has 4 iterations, not 8")
    hint(lesson7.fast_bias(bias, lambda sch: vectors(sch, "D", 8)), "ScheduleError")

    def threads_of_columns(sch: Any) -> None:
        i, j = sch.get_loops(sch.get_block("C"))
        jo, ji = sch.split(j, factors=[None, 8])
        sch.reorder(jo, i, ji)
        sch.parallel(jo)
        sch.vectorize(ji)

    hint(lesson7.fast_bias(bias, threads_of_columns), "they should share the n rows")
    two = program("07", "TwoLoops")
    wrong_block = lesson7.one_loop(two, lambda sch: sch.compute_inline(sch.get_block("halve")))
    hint(wrong_block, "ScheduleError")


def test_lesson_8() -> None:
    transpose = program("08", "Transpose")

    def by_rows(sch: Any) -> None:
        i, j = sch.get_loops(sch.get_block("B"))
        sch.split(i, factors=[None, 16]), sch.split(j, factors=[None, 16])

    def columns_first(sch: Any) -> None:
        (io, ii), (jo, ji) = (
            sch.split(loop, factors=[None, 16]) for loop in sch.get_loops(sch.get_block("B"))
        )
        sch.reorder(io, jo, ji, ii)

    hint(lesson8.in_tiles(transpose, by_rows), "still in the old order")
    hint(lesson8.in_tiles(transpose, columns_first), "the columns come before the rows")
    hint(lesson8.in_tiles(transpose, lambda sch: None), "there are 2 loops")
    sums = program("08", "RowSums")
    hint(lesson8.local_sum(sums, lambda sch: None), "no local buffer yet")
    kept = lambda sch: sch.cache_write(sch.get_block("B"), 0, "local")  # noqa: E731
    hint(lesson8.local_sum(sums, kept), "the sums of all 37 rows are kept")

    def keeps_a_row(sch: Any) -> None:
        block = sch.get_block("B")
        sch.compute_at(sch.cache_read(block, 0, "local"), sch.get_loops(block)[0])

    def keeps_eight_sums(sch: Any) -> None:
        block = sch.get_block("B")
        rows, _ = sch.split(sch.get_loops(block)[0], factors=[None, 8])
        sch.reverse_compute_at(sch.cache_write(block, 0, "local"), rows)

    hint(lesson8.local_sum(sums, keeps_a_row), "the sums are still stored in B")
    hint(lesson8.local_sum(sums, keeps_eight_sums), "the sums of all 8 rows are kept")
    hint(lesson8.zeros_first(sums, lambda sch: None), "still has its T.init()")

    def inside(sch: Any) -> None:
        block = sch.get_block("B")
        sch.decompose_reduction(block, sch.get_loops(block)[1])

    hint(lesson8.zeros_first(sums, inside), "inside the loop over rows")


def test_lesson_9() -> None:
    affine = program("09", "Affine")
    hint(lesson9.full_vectors(affine, lambda sch: None), "stores 1 number at a time")
    for lanes, text in ((8, "100 is no multiple of 8"), (2, "longer"), (3, "no power of two")):
        hint(lesson9.no_predicate(lanes), text)
    for four in (4.0, np.int64(4)):
        assert lesson9.no_predicate(four).ok
    loops = lambda mod: len(rl.trace(mod).result.loop_functions())  # noqa: E731
    hint(lesson9.count_kernel_calls(loops), "this program calls 2 kernels, your function says 1")
    twice = lambda mod: 2 * len(rl.trace(mod).result.loop_functions())  # noqa: E731
    hint(lesson9.count_kernel_calls(twice), "your function says 2")
    instrs = lambda mod: lower_shapes(rl.trace(mod).result).functions["main"].instrs  # noqa: E731
    hint(lesson9.count_kernel_calls(lambda mod: len(instrs(mod))), "which of them call a kernel?")


def test_lesson_10() -> None:
    rows = program("10", "Rows")

    def outer(sch: Any) -> None:
        i, j = sch.get_loops(sch.get_block("B"))
        sch.bind(i, "blockIdx.x")
        sch.bind(sch.split(j, factors=[None, 64])[0], "threadIdx.x")

    hint(lesson10.by_rows(rows, outer), "a block has 2 threads, not 64")
    columns = program("10", "ColumnSums")
    both = ("a thread for each column", "a thread for each row")
    for numbers, text in (((4,), "row' is missing"), ((32, 32), "side by side: not 32"),
                          ((4, 4), "each from a row of its own: not 4")):  # fmt: skip
        hint(lesson10.sectors(columns, dict(zip(both, numbers, strict=False))), text)
    for of_numpy in (np.int64, np.float32):
        assert lesson10.sectors(columns, dict(zip(both, map(of_numpy, (4, 32)), strict=True))).ok

    def swapped(sch: Any) -> None:
        i, j = sch.get_loops(sch.get_block("B"))
        sch.bind(i, "threadIdx.x")
        sch.bind(sch.split(j, factors=[None, 64])[1], "blockIdx.x")

    hint(lesson10.by_rows(rows, swapped), "the program is refused:\nthe loop over j_1")
    largest = program("10", "RowMax")
    hint(lesson10.shared_max(largest, lambda sch: None), "no buffer is shared yet")

    def eight(sch: Any) -> None:
        block = sch.get_block("B")
        ko, ki = sch.split(sch.get_loops(block)[1], factors=[None, 8])
        partial = sch.rfactor(ki, 0)
        row = sch.get_loops(block)[0]
        sch.compute_at(partial, row)
        sch.set_scope(partial, 0, "shared")
        sch.bind(row, "blockIdx.x")
        sch.bind(sch.get_loops(partial)[1], "threadIdx.x")

    hint(lesson10.shared_max(largest, eight), "24 blocks of 8 threads, not 24 of 16")


def test_lesson_11() -> None:
    def no_append(logits: Any, ids: list[int], count: int) -> list[int]:
        return [int(np.argmax(logits(ids))) for _ in range(count)]

    def changes(logits: Any, ids: list[int], count: int) -> list[int]:
        for _ in range(count):
            ids.append(int(np.argmax(logits(ids))))
        return ids

    def with_prompt(logits: Any, ids: list[int], count: int) -> list[int]:
        return changes(logits, list(ids), count)

    def last_only(logits: Any, ids: list[int], count: int) -> list[int]:
        return with_prompt(lambda seen: logits(seen[-1:]), ids, count)[len(ids) :]

    for answer, text in (
        (no_append, "is the new token appended"),
        (changes, "work on a copy"),
        (with_prompt, "return the new ones only"),
        (last_only, "is the whole sequence passed on?"),
    ):
        hint(lesson11.greedy(answer), text)

    def one_by_one(logits: Any, ids: list[int], count: int) -> Any:
        ids = list(ids)
        for _ in range(count):
            ids.append(np.argmax(logits(ids)))
            yield ids[-1]

    for form in (iter, tuple, np.array, list):
        assert lesson11.greedy(lambda *given, form=form: form(list(one_by_one(*given)))).ok
    right = 2 * 4 * 5 * 2 * 16 * 7
    for part, text in ((2, "*and*"), (4, "four bytes"), (5, "one layer"), (1 / 3, "heads")):
        hint(lesson11.kv_bytes(lambda config, n, p=part: round(right / p)), text)
    hint(lesson11.most_tokens_per_second(lambda w, b, batch: w / b), "one divided by it")
    hint(lesson11.most_tokens_per_second(lambda w, b, batch: b / w), "read once, but give 4")
    hint(lesson11.most_tokens_per_second(lambda w, b, batch: "200"), "a number, not '200'")
    hint(lesson11.kv_bytes(lambda config, n: ...), "there is no answer yet")


def test_lesson_12() -> None:
    hint(lesson12.verdict(lambda low, high: "faster"), "all of the interval is below 1")
    hint(lesson12.descend(lambda candidates, start, time: start), "but with")
    hint(lesson12.descend(lambda candidates, start, time: 3), "a point with one value")

    def one_round(candidates, start, time):
        for name, values in candidates.items():
            start = min(({**start, name: value} for value in values), key=time)
        return start

    hint(lesson12.descend(one_round), "but with")

    def by_numbers(candidates, start, time):
        return time(list(start.values()))

    assert lesson12.descend(by_numbers).text.endswith("return time(list(start.values()))")

    def by_sum(table):
        return max((p for p, r in enumerate(table) if min(r) >= 1), key=lambda p: sum(table[p]))

    hint(lesson12.one_for_all(by_sum), "program 2 has a larger product than program 1")
    hint(lesson12.one_for_all(lambda table: 1), "program 1 is slower than the default")
    hint(lesson12.one_for_all(lambda table: 0), "has a larger product than program 0")
    hint(lesson12.one_for_all(lambda table: 9), "the number of a program, is 9")


def test_lesson_13() -> None:
    def longest(types, reads):
        depths = []
        for before in reads:
            depths.append(1 + max((depths[p] for p in before), default=0))
        return max(depths)

    hint(lesson13.bound(longest), "the bound is 4, not 2, for types ['a', 'a', 'b', 'b']")
    hint(lesson13.bound(lambda types, reads: len(types)), "nodes of one type count only if they")
    hint(lesson13.choose(lambda ready, frontier: min(ready, key=ready.get)), "batches where")
    hint(lesson13.choose(lambda ready, frontier: "word"), "the answer is 'word'")
    hint(lesson13.choose(lambda ready, frontier: ready["inner"]), "the function fails: KeyError")
    hint(lesson13.choose(lambda ready, frontier: ["leaf"]), "the answer is ['leaf']")

    def updating(best=max, ahead=2, last=2, key=0, number=float, read=lambda values: values):
        def answer(values, steps):
            read_from = read(values)
            for i, (state, action, _) in enumerate(steps):
                outcome = sum(reward for *_, reward in steps[i : i + 2])
                if i + last < len(steps):
                    outcome += best(read_from.get(steps[i + ahead][key], {"": 0}).values())
                values[state][action] += 0.4 * number(outcome - values[state][action])

        return answer

    assert lesson13.update(updating()).ok and lesson13.update(updating(number=np.float32)).ok
    assert not lesson13.update(updating(read=deepcopy)).ok  # values before the run
    hint(lesson13.update(lambda values, steps: deepcopy(values)), "the table is as before")
    hint(lesson13.update(updating(best=lambda _: 0)), "and after them state 'abc'")
    for other in ({"best": min}, {"ahead": -2}, {"last": 3}, {"key": 1}, {"ahead": 1}):
        assert not lesson13.update(updating(**other)).ok, other


def runs_into(error: Exception) -> Any:
    def library(x: Any, out: Any) -> None:
        raise error

    return library


def test_a_mistake_in_the_learner_s_own_code_is_shown_there() -> None:
    """Its line, where the check calls the function as where the program does."""
    text = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 5), "float32")):
        n = T.int64()
        return R.call_dps_packed("tests.exercise", (x,), out_ty=R.Tensor((n, 5), "DTYPE"))
"""
    rl.register_func("tests.exercise", runs_into(IndexError("axis 2")), override=True)
    mine = lesson4.running_max(rl.parse(text.replace("DTYPE", "float32")))
    hint(mine, "your code fails: IndexError: axis 2\n")
    assert mine.text.endswith("raise error")
    rl.register_func(
        "tests.exercise", lambda x, out: np.maximum.accumulate(x, 1, out=out), override=True
    )
    assert lesson4.running_max(rl.parse(text.replace("DTYPE", "float32"))).ok
    other = lesson4.running_max(rl.parse(text.replace("DTYPE", "float64")))
    hint(other, "`main` gives float64, expected float32")
    hint(lesson6.arena_of_five(lambda n: None), "the function returns None; does it end with")
    zero = lesson6.arena_of_five(lambda n: n // 0)
    hint(zero, "the function fails: ZeroDivisionError: integer division or modulo by zero\n")
    assert zero.text.endswith("zero = lesson6.arena_of_five(lambda n: n // 0)")


def test_lesson_14() -> None:
    hint(lesson14.prelude(lambda lengths: ([0], [])), "begins where the one before it ends")
    hint(lesson14.prelude(lambda lengths: [0]), "return two lists")

    def without_rows(lengths):
        return [sum(lengths[:i]) for i in range(len(lengths) + 1)], []

    hint(lesson14.prelude(without_rows), "the rows belong to [0, 0, 0, 1, 2, 2], not []")

    def by_numpy(lengths):
        return [np.cumsum([0, *lengths]), np.repeat(np.arange(len(lengths)), lengths)]

    assert lesson14.prelude(by_numpy).ok and lesson14.prelude(lambda n: map(list, by_numpy(n))).ok
    late = lesson14.prelude(lambda lengths: (np.cumsum(lengths), []))
    hint(late, "the starts are [0, 3, 4, 6], not [3, 4, 6]")
    small = lesson14.largest_multiple(lambda lengths, share: 1)
    hint(small, "it is 2 (of whose rows 25% are padding), not 1 (0% would be padding)")
    hint(lesson14.largest_multiple(lambda lengths, share: [8]), "a power of two up to 64, not [8]")
    hint(lesson14.largest_multiple(lambda lengths, share: 64), "would be padding")
    hint(lesson14.largest_multiple(lambda lengths, share: 3), "a power of two up to 64, not 3")
    hint(lesson14.deal(lambda lengths, threads: [0] * len(lengths)), "long sequences first")
    hint(lesson14.deal(lambda lengths, threads: [9] * len(lengths)), "a thread from 0 to 1")
