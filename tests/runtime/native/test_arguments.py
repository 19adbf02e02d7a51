"""Arguments that compiled functions accept, and errors for all others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.arguments import (
    ArgumentError,
    address_of,
    overlap,
    scalar_to_word,
    word_to_scalar,
)
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from tests.golden import Golden


@I.ir_module
class Calls:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        with R.dataflow():
            z: R.Tensor((n, 4), "float32") = R.add(x, y)
            R.output(z)
        return z

    @R.function
    def rows(s: R.Shape(["n", "m"])):
        n = T.int64()
        m = T.int64()
        z: R.Tensor((n, m), "float32") = R.zeros((n, m), "float32")
        return z

    @R.function
    def pair(t: R.Tuple(R.Tensor(("n",), "int32"), R.Tensor(("n",), "int32"))):
        z = R.subtract(t[0], t[1])
        return z

    @R.function
    def fixed(x: R.Tensor((2, 3), "float64")):
        z = R.multiply(x, x)
        return z

    @R.function
    def count(k: R.Prim(value="k")):
        k = T.int64()
        z = R.arange(0, k, 1)
        return z


@pytest.fixture(scope="module")
def exe() -> Executable:
    return rl.compile(Calls, use_cache=False, threads=2)


F4 = np.ones((3, 4), "float32")


REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "too few": ("main", (F4,)),
    "too many": ("main", (F4, F4, F4)),
    "another dtype": ("main", (F4, F4.astype("float64"))),
    "another byte order": ("main", (F4.astype(">f4"), F4)),
    "a dimension too few": ("main", (F4[0], F4)),
    "rows with gaps": ("main", (F4[:, :3], F4)),
    "transposed": ("main", (np.ones((4, 3), "float32").T, F4)),
    "every other row": ("main", (np.ones((6, 4), "float32")[::2], F4)),
    "another extent": ("main", (np.ones((3, 5), "float32"), F4)),
    "texts": ("main", ([["a"] * 4], F4)),
    "a dict": ("main", ({}, F4)),
    "None": ("main", (None, F4)),
    "a number for an array": ("main", (F4, 3.5)),
    "fractions for integers": ("pair", (([0.5], [1]),)),
    "a shape of one size": ("rows", ((3,),)),
    "a number for a shape": ("rows", (3,)),
    "a fraction as a size": ("rows", ((3, 2.0),)),
    "a negative size": ("rows", ((3, -1),)),
    "a size beyond int64": ("rows", ((1 << 63, 0),)),
    "a tuple too short": ("pair", ((np.ones(2, "int32"),),)),
    "an array for a tuple": ("pair", (np.ones(2, "int32"),)),
    "another dtype in a tuple": ("pair", ((np.ones(2, "int32"), np.ones(2, "int8")),)),
    "another fixed extent": ("fixed", (np.ones((3, 2)),)),
    "a fraction for an integer": ("count", (2.5,)),
    "a text for an integer": ("count", ("3",)),
    "an integer beyond int64": ("count", (1 << 63,)),
}
NUMPY_S_WORDS = (
    ("main", ([[1.0] * 4, [1.0]], F4), "`x` of `main`: a list of 2 is no array of type R"),
    ("pair", (([1 << 31], [1]),), "out of bounds|too large"),
)


def test_refused(exe: Executable, golden: Golden) -> None:
    texts: dict[str, str] = {}
    for title, (name, args) in REFUSED.items():
        with pytest.raises(ArgumentError, match=f"`{name}`") as caught:
            exe[name](*args)
        texts[title] = str(caught.value)
    golden.file("runtime/native/arguments", texts)
    for name, args, message in NUMPY_S_WORDS:
        with pytest.raises(ArgumentError, match=message):
            exe[name](*args)


def test_numbers_become_arrays_of_the_dtype(exe: Executable) -> None:
    rows = [[1.0, 2, 3, True]] * 3
    np.testing.assert_array_equal(exe["main"](rows, F4), np.asarray(rows, "float32") + F4)
    np.testing.assert_array_equal(exe["pair"](([1, 2], (3, np.int8(4)))), [-2, -2])
    np.testing.assert_array_equal(exe["fixed"]([[1, 2, 3], [4, 5, 6]])[1], [16.0, 25.0, 36.0])
    assert exe["main"](np.empty((0, 4), "float32"), F4[:0]).shape == (0, 4)


def test_arguments_by_name(exe: Executable) -> None:
    twice = F4 * 2
    for got in (
        exe["main"](x=F4, y=twice), exe["main"](F4, y=twice), exe.main(y=twice, x=F4),
        exe(F4, twice), exe(x=F4, y=twice),
    ):  # fmt: skip
        np.testing.assert_array_equal(got, F4 * 3)
    for args, named, message in (
        ((F4,), {"z": F4}, "`main` has no parameter `z`; it has: x, y"),
        ((F4,), {"x": F4}, "`main` got two values for `x`"),
        ((), {"y": F4}, "`main` needs a value for `x`"),
        ((), {"x": F4}, r"`main` takes 2 arguments \(x, y\), got 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            exe["main"](*args, **named)
    bound = rl.compile(Calls)["main"]
    bound.bind(twice)
    np.testing.assert_array_equal(bound(x=F4), F4 * 3)
    with pytest.raises(ArgumentError, match="`main` has no parameter `y`; it has: x"):
        bound(F4, y=F4)


def test_functions_by_name(exe: Executable) -> None:
    assert {"main", "pair", "threads"} <= set(dir(exe))
    for ask in (lambda: exe["mine"], lambda: exe.mine):
        with pytest.raises((KeyError, AttributeError), match="no function 'mine'; it has: count, "):
            ask()


def test_inconsistent_symbols_name_both_arguments(exe: Executable) -> None:
    with pytest.raises(CheckFailed) as error:
        exe["main"](F4, np.ones((4, 4), "float32"))
    assert str(error.value) == (
        "dimension 0 of parameter `y` of `main` is 4, expected n = 3 "
        "(n is dimension 0 of parameter `x` of `main`)"
    )
    with pytest.raises(CheckFailed, match=r"`t\[1\]` of `pair` is 2, expected n = 3 .*`t\[0\]`"):
        exe["pair"]((np.ones(3, "int32"), np.ones(2, "int32")))


def test_a_scalar_is_a_size(exe: Executable) -> None:
    assert exe["count"](np.int32(3)).tolist() == [0, 1, 2]
    assert exe["count"](True).tolist() == [0]
    with pytest.raises(CheckFailed, match=r"`k` of `count`.* not be negative \(it is -1\)"):
        exe["count"](-1)


def test_errors_leave_the_executable_usable(exe: Executable) -> None:
    for _ in range(3):
        with pytest.raises(ArgumentError):
            exe["main"](F4, F4[0])
        with pytest.raises(CheckFailed):
            exe["main"](F4, np.ones((4, 4), "float32"))
        np.testing.assert_array_equal(exe["main"](F4, F4), F4 * 2)


def test_lists_pass_for_tuples_and_shapes(exe: Executable) -> None:
    assert exe["rows"]([2, 3]).shape == (2, 3)
    assert exe["rows"]((np.int64(2), 3)).shape == (2, 3)
    assert exe["pair"]([np.ones(2, "int32"), np.ones(2, "int32")]).tolist() == [0, 0]


def test_read_only_inputs_are_fine(exe: Executable) -> None:
    x = F4.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(exe["main"](x, x), F4 * 2)


def test_zero_size_and_one_dimensional_edge_cases(exe: Executable) -> None:
    empty = np.ones((0, 4), "float32")
    assert exe["main"](empty, empty).shape == (0, 4)
    assert exe["rows"]((0, 5)).shape == (0, 5)
    assert exe["main"](np.ones((8, 4), "float32")[::8], F4[:1]).tolist() == [[2.0] * 4]


def test_misaligned_arrays_are_refused(exe: Executable) -> None:
    raw = np.zeros(3 * 4 * 4 + 1, np.uint8)
    x = raw[1:].view("float32").reshape(3, 4)
    with pytest.raises(ArgumentError, match=r"`x` of `main` starts in the middle of an element"):
        exe["main"](x, F4)


def test_element_aligned_arrays_give_the_same_bits(exe: Executable) -> None:
    raw = np.zeros(3 * 4 + 1, "float32")
    x = raw[1:].reshape(3, 4)
    x[...] = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_array_equal(exe["main"](x, F4), x + F4)


class Foreign:
    """An array of another library, as DLPack shows it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class Elsewhere(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory is on another device")


def test_dlpack(exe: Executable) -> None:
    np.testing.assert_array_equal(exe["main"](Foreign(F4), Foreign(F4)), F4 * 2)
    with pytest.raises(ArgumentError, match="`x` of `main`: an Elsewhere cannot be viewed: the"):
        exe["main"](Elsewhere(F4), F4)
    with pytest.raises(ArgumentError, match="not contiguous"):
        exe["main"](Foreign(np.ones((4, 3), "float32").T), F4)


class Lying(np.ndarray[Any, Any]):
    """Says that it is larger than it is, and elsewhere."""

    shape = property(lambda self: (1 << 30, 4))  # type: ignore[assignment]

    @property
    def __array_interface__(self) -> Any:
        return {"data": (8, False), "strides": None, "shape": self.shape, "typestr": "<f4"}


def test_subclasses_are_taken_for_the_arrays_that_they_are(exe: Executable) -> None:
    lying = F4.copy().view(Lying)
    np.testing.assert_array_equal(exe["main"](lying, F4), F4 * 2)
    np.testing.assert_array_equal(exe["main"](F4.view(np.matrix), F4), F4 * 2)
    masked = np.ma.masked_array(F4, F4 > 5)
    with pytest.raises(ArgumentError, match="`y` of `main` has masked elements; pass x.filled"):
        exe["main"](F4, masked)


class Broken(Foreign):
    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def __dlpack__(self, **options: Any) -> Any:
        if isinstance(self.problem, Exception):
            raise self.problem
        return self.problem

    def __dlpack_device__(self) -> Any:
        return (1, 0)


@pytest.mark.parametrize("problem", [ValueError("no"), KeyError("no"), AttributeError("no"), 5])
def test_arrays_of_other_libraries(exe: Executable, problem: Any) -> None:
    with pytest.raises(ArgumentError, match="`x` of `main`: a Broken cannot be viewed"):
        exe["main"](Broken(problem), F4)


def test_empty_results_that_numpy_has_no_shape_for(exe: Executable) -> None:
    with pytest.raises(MemoryError, match=r"\(0, 4611686018427387904\) is too large"):
        exe["rows"]((0, 1 << 62))
    assert exe["rows"]((0, 5)).shape == (0, 5)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int64", (0, -1, 2**63 - 1, -(2**63))),
        ("int32", (5, -5, 2**31 - 1, -(2**31))),
        ("int8", (127, -128)),
        ("uint8", (0, 255)),
        ("uint64", (2**64 - 1, 2**63, 1)),
        ("bool", (True, False)),
        ("float64", (1e300, -0.1, float("inf"))),
        ("float32", (0.5, -1.25)),
        ("float16", (0.5, -1.25)),
        ("bfloat16", (0.5, -1.25)),
    ],
)
def test_scalars_survive_the_border(dtype: str, values: tuple[Any, ...]) -> None:
    for value in values:
        word = scalar_to_word(value, dtype)
        assert word_to_scalar(word, dtype) == value
        assert type(word_to_scalar(word, dtype)) is type(value)


def test_scalars_out_of_range() -> None:
    for value, dtype in ((256, "uint8"), (-1, "uint8"), (2, "bool"), (2**31, "int32")):
        with pytest.raises(OverflowError, match=f"{value} is outside of the range of {dtype}"):
            scalar_to_word(value, dtype)
    assert word_to_scalar(scalar_to_word(1e300, "float32"), "float32") == float("inf")
    assert word_to_scalar(scalar_to_word(ml_dtypes.bfloat16(2.5), "bfloat16"), "bfloat16") == 2.5


def test_overlap_against_a_set_of_bytes() -> None:
    seed = 5
    print("seed", seed)
    rng = np.random.default_rng(seed)
    block = np.zeros(64, np.uint8)
    for _ in range(300):
        cuts = [sorted(rng.integers(0, 64, 2)) for _ in range(rng.integers(1, 6))]
        arrays = [block[a:b] for a, b in cuts]
        written = {i for i in range(len(arrays)) if rng.random() < 0.4}
        covered = [set(range(a, b)) for a, b in cuts]
        clashes = {
            (i, j)
            for i in range(len(arrays))
            for j in range(len(arrays))
            if i != j and (i in written or j in written) and covered[i] & covered[j]
        }
        found = overlap(arrays, written)
        assert (found in clashes) if clashes else found == (-1, -1)


def test_where_an_array_begins() -> None:
    raw = np.arange(24, dtype="float32")
    kept = raw.view()
    kept.flags.writeable = False
    arrays = (raw, raw[3:], raw[::-2], raw.reshape(4, 6).T, kept, np.zeros(()), np.zeros((0, 3)))
    for array in arrays:
        assert address_of(array) == array.__array_interface__["data"][0]


def test_numpy_scalars_are_tensors_without_dimensions() -> None:
    mod = rl.parse("@R.function\ndef main(x: R.Tensor((), 'int64')):\n    return R.add(x, x)\n")
    main = rl.compile(mod)["main"]
    assert main(np.int64(3)) == rl.interpret(mod, "main", np.int64(3)) == 6
