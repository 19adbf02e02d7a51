"""Windows over sequences, among them some that are shorter than a window, against NumPy."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import loops
from relaxlab.ir.node import walk
from relaxlab.passes.pipeline import default_pipeline

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((3, 4, 3)).astype(np.float32)
PROGRAM = """
@R.function
def main(s: R.Lengths("b", "n"), x: R.Ragged({"i": "b", "j": "s[i]", "d": 4}, "float32"),
         w: R.Tensor((3, 4, 3), "float32")):
    t = R.permute_dims(x, axes=[0, 2, 1])
    y = %s
    return y
"""
LENGTHS = ((3, 0, 1, 40, 2), (0, 0), ())


def windows(x, size, stride, padding, fill=0.0):
    """(windows, size, features) of a sequence; none where it is too short for one."""
    padded = np.pad(x, ((padding, padding), (0, 0)), constant_values=fill)
    starts = range(0, len(padded) - size + 1, stride)
    return np.array([padded[i : i + size] for i in starts]).reshape(-1, size, x.shape[1])


def convolved(x, stride, padding):
    return np.einsum("nsd,ods->on", windows(x, 3, stride, padding), WEIGHT)


STRIDED = "R.nn.conv1d(t, w, strides=2, padding=1)"
CASES = {
    "R.nn.conv1d(t, w, padding=1)": lambda x: convolved(x, 1, 1),
    STRIDED: lambda x: convolved(x, 2, 1),
    "R.nn.conv1d(t, w, strides=3)": lambda x: convolved(x, 3, 0),
    "R.nn.max_pool1d(t, pool_size=3, padding=1)":
        lambda x: windows(x, 3, 1, 1, -np.inf).max(1).T,
    "R.nn.avg_pool1d(t, pool_size=2, strides=2)": lambda x: windows(x, 2, 2, 0).mean(1).T,
}  # fmt: skip


def compiled(call):
    return rl.compile(rl.parse(PROGRAM % call), checks="all")


@pytest.mark.parametrize("call", CASES)
def test_sequences_that_are_shorter_than_a_window(call):
    main = compiled(call)["main"]
    for lengths in LENGTHS:
        parts = [RNG.standard_normal((n, 4)).astype(np.float32) for n in lengths]
        rows = np.concatenate([np.empty((0, 4), np.float32), *parts])
        found = main(np.array(lengths, np.int32), rows, WEIGHT)
        expected = np.concatenate([np.empty(0), *(CASES[call](x).reshape(-1) for x in parts)])
        np.testing.assert_allclose(np.asarray(found).reshape(-1), expected, 1e-4, 1e-5)


def test_convolutions_with_strides_are_vectors():
    mod = default_pipeline(rl.Target.host()).run(rl.parse(PROGRAM % STRIDED)).result
    kernel = dict(mod.functions)["ragged_conv1d"]
    vectors = [n for n in walk(kernel) if isinstance(n, loops.For) and n.kind == "vectorized"]
    sums = [v for v in vectors if any(_has_terms(n) for n in walk(v))]
    assert [v.extent.value for v in sums] == [2 * rl.Target.host().lanes("float32")]


def _has_terms(n):
    return isinstance(n, loops.Block) and any(iv.kind == "reduce" for iv in n.iter_vars)


def test_windows_that_lack_more_than_a_stride_are_refused():
    with pytest.raises(rl.DiagnosticError, match="smaller than the kernel's 3") as error:
        compiled("R.nn.conv1d(t, w)")
    assert "at_least=2" in str(error.value)  # one element less than the window has no result


def test_a_table_that_may_be_too_short_is_named():
    with pytest.raises(rl.DiagnosticError, match=r"no sequence is longer: .*at_most=3"):
        compiled("R.add(x, R.strided_slice(R.max(w, axis=2), axes=[0], begin=[0], end=[s[i]]))")
