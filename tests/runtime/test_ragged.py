"""Sequences of different lengths as arguments of programs."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.ragged import Ragged, RaggedError
from relaxlab.script.parser import parse

DOUBLE = """
@R.function
def main(s: R.Lengths("b", "t", at_most=8), x: R.Ragged({"i": "b", "j": "s[i]", "d": 4},
         "float32")) -> R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"):
    with R.dataflow():
        y = x + x
        R.output(y)
    return y
"""


def parts(*lengths: int) -> list[np.ndarray]:
    return [np.full((n, 4), i + 1, "float32") for i, n in enumerate(lengths)]


def test_a_list_of_sequences() -> None:
    r = rl.ragged(parts(3, 0, 2))
    assert r.lengths.tolist() == [3, 0, 2] and r.offsets.tolist() == [0, 3, 3, 5] and len(r) == 3
    assert [x.tolist() for x in r.to_list()] == [x.tolist() for x in parts(3, 0, 2)]
    assert repr(r) == "Ragged(3 sequences, 5 rows, float32[4])"


def test_rows_are_not_copied() -> None:
    data = np.zeros((5, 4), "float32")
    r = rl.ragged(data, lengths=np.array([3, 0, 2]))
    assert r.data is data and np.shares_memory(np.from_dlpack(r), data)
    cut = rl.ragged(data, offsets=np.array([1, 3, 4], "int32"))
    assert np.shares_memory(cut.data, data) and cut.lengths.tolist() == [2, 1]
    assert [len(x) for x in cut.to_list()] == [2, 1]


def test_rows_for_pairs_of_positions() -> None:
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s) for s in ((3, 2, 4), (0, 5, 4), (1, 1, 4), (2, 0, 4))]
    r = rl.ragged(given, dims=2)
    assert [x.tolist() for x in r.extents] == [[3, 0, 1, 2], [2, 5, 1, 0]]
    assert r.data.shape == (7, 4) and r.offsets.tolist() == [0, 6, 6, 7, 7]
    for back in (r.to_list(), rl.ragged(r.data, lengths=r.extents).to_list()):
        for a, b in zip(back, given, strict=True):
            np.testing.assert_array_equal(a, b)
    assert all(np.shares_memory(x, r.data) for x in r.to_list() if x.size)
    assert [x.shape for x in r.like(np.zeros(7)).to_list()] == [(3, 2), (0, 5), (1, 1), (2, 0)]


PAIRS = (
    (lambda: rl.ragged(np.zeros(7), lengths=([3, 1], [2, 2])), "products .* add up to 8, .* 7"),
    (lambda: rl.ragged(np.zeros(7), lengths=([3, 1], [2])), "2 lengths along one .* 1 along"),
    (lambda: rl.ragged(np.zeros(7), lengths=([3, 1], [2, -1])), r"lengths\[1\] is -1"),
    (lambda: rl.ragged([np.zeros((2, 3))], dims=3), r"sequence 0 is float64\[2, 3\]"),
    (lambda: rl.ragged([np.zeros((2, 3))], dims=0), "dims is 0"),
)


@pytest.mark.parametrize(("make", "message"), PAIRS, ids=[m for _, m in PAIRS])
def test_pairs_that_do_not_fit_are_refused(make: Callable[[], Ragged], message: str) -> None:
    with pytest.raises(RaggedError, match=message):
        make()


class Jagged:
    """What PyTorch's jagged tensors offer."""

    def values(self) -> np.ndarray:
        return np.arange(5)

    def offsets(self) -> np.ndarray:
        return np.array([0, 2, 5])


def test_an_array_of_another_dtype_is_made_of_them() -> None:
    made = np.asarray(rl.ragged(parts(2, 1)), "float64")
    assert made.dtype == "float64" and made[:, 0].tolist() == [1, 1, 2]


class Strided:
    """A stand-in for a nested tensor of PyTorch with the strided layout."""

    is_nested = True

    def unbind(self) -> tuple[np.ndarray, ...]:
        return np.ones((3, 2, 4)), np.ones((1, 5, 4))


def test_nested_tensors_with_several_ragged_dimensions() -> None:
    r = rl.ragged(Strided(), dims=2)
    assert [x.shape for x in r.to_list()] == [(3, 2, 4), (1, 5, 4)] and r.data.shape == (11, 4)
    with pytest.raises(RaggedError, match="dims is of a list"):
        rl.ragged(Jagged(), dims=2)


class Holes(Jagged):
    """A jagged tensor of PyTorch with rows that belong to no sequence."""

    is_nested, shape = True, (2, object())

    def lengths(self) -> np.ndarray | None:
        return np.array([1, 2])

    def unbind(self) -> tuple[np.ndarray, ...]:
        return np.array([0]), np.array([2, 3])


class Turned(Holes):
    """A jagged tensor whose sequences differ in their second dimension."""

    shape = (2, 5, object())

    def lengths(self) -> None:
        return None

    def unbind(self) -> tuple[np.ndarray, ...]:
        return np.ones((5, 1)), np.ones((5, 3))


def test_jagged_tensors_with_other_rows_between_sequences() -> None:
    assert [x.tolist() for x in rl.ragged(Holes()).to_list()] == [[0], [2, 3]]
    with pytest.raises(RaggedError, match=r"sequence 1 is float64\[5, 3\]; rows are float64\[1\]"):
        rl.ragged(Turned())


def test_jagged_tensors() -> None:
    r = rl.ragged(Jagged())
    assert [x.tolist() for x in r.to_list()] == [[0, 1], [2, 3, 4]]
    assert r.lengths.dtype == "int32" and r.offsets.tolist() == [0, 2, 5]


BAD = (
    (dict(lengths=[3, -1, 3]), r"lengths\[1\] is -1"),
    (dict(lengths=[3, 1]), "add up to 4, and there are 5 rows"),
    (dict(lengths=[1 << 62, 1 << 62, 5]), "add up to 9223372036854775813"),
    (dict(offsets=[0, 3, 2, 5]), r"offsets\[2\] is 2, less than the one before it"),
    (dict(offsets=[0, 6]), r"offsets\[1\] is 6, and there are 5 rows"),
    (dict(offsets=[-1, 5]), r"offsets\[0\] is -1"),
    (dict(offsets=[]), "the end of the last sequence"),
    (dict(offsets=[0, 5], lengths=[5]), "not by both"),
    (dict(lengths=[2.6, 3.4]), "and have dtype float64"),
    (dict(offsets=[0.0, 5.0]), "and have dtype float64"),
    (dict(lengths=[1 << 63, 5]), "and have dtype"),
    (dict(lengths=["5"]), "and have dtype <U1"),
    (dict(lengths=[[2, 3]]), "and have 2 dimensions"),
    (dict(), "needs the lengths"),
)  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD, ids=str)
def test_what_does_not_fit_is_refused(given: dict, message: str) -> None:
    with pytest.raises(RaggedError, match=message):
        rl.ragged(np.zeros((5, 4), "float32"), **given)


def test_rows_of_other_shapes_are_refused() -> None:
    with pytest.raises(RaggedError, match=r"sequence 1 is float32\[2, 3\]"):
        rl.ragged([np.zeros((1, 4), "float32"), np.zeros((2, 3), "float32")])
    with pytest.raises(RaggedError, match="int32 or int64"):
        rl.ragged(np.zeros((5, 4)), lengths=np.array([2.0, 3.0]))
    with pytest.raises(RaggedError, match=r"rl.ragged\(rows, lengths="):
        rl.Ragged(np.zeros((5, 4)), [2, 3])  # type: ignore[arg-type]


def test_types_print_as_they_are_read() -> None:
    module = parse(DOUBLE)
    again = parse(module.script())
    assert rl.structural_equal(again, module) and "R.Lengths" in module.script()


def test_a_program_of_sequences() -> None:
    exe = rl.compile(parse(DOUBLE))
    r = rl.ragged(parts(3, 0, 2))
    result = r.like(exe["main"](r.lengths, r))
    assert isinstance(result, Ragged)
    for got, x in zip(result.to_list(), parts(3, 0, 2), strict=True):
        assert np.array_equal(got, 2 * x)
    cut = rl.ragged(r.data, offsets=np.array([0, 3, 3, 5]))  # int64, as PyTorch and Arrow have
    assert np.array_equal(exe["main"](cut.lengths, cut), result.data)
    expected = rl.interpret(parse(DOUBLE), "main", r.lengths, r)
    assert np.array_equal(result.data, expected)
    with pytest.raises(rl.CheckFailed, match=r"s\[1\] is 9, not in"):
        exe["main"](np.array([3, 9], "int32"), r)
    with pytest.raises(rl.CheckFailed, match=r"s\[1\] is -1, not in"):
        exe["main"](np.array([6, -1], "int32"), r)
