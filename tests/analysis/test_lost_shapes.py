"""Shape information that vanishes: where, why, and what brings it back.

Adding a tensor of shape (m,) to one of shape (n,) is legal (either may be 1) and gives a shape that
nobody knows. The trace says so, and its advice can be pasted into the program.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.bindings import all_bindings
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.function import CheckFailed

PROGRAM = """\
@R.function
def longer(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
    y = R.concat((x, x), axis=0)
    return y

@R.function
def main(x: R.Tensor(("m",), "float32"), y: R.Tensor(("n",), "float32"),
         c: R.Tensor((), "bool")):
    a = R.add(x, y)
    b = R.exp(a)
    d = R.unique(y)
    e = R.negative(d)
    f = cls.longer(y)
    if c:
        g = R.exp(x)
    else:
        g = R.exp(y)
    return (b, e, f, g)
"""
AFTER = {  # the line after which the advice about a variable belongs
    "a": "a = R.add(x, y)",
    "d": "d = R.unique(y)",
    "f": "f = Program.longer(y)",
    "g": "    g = R.exp(y)",
}


def advice(program: str) -> dict[str, tuple[str, str]]:
    """Return the trace's text and the line it proposes, by variable."""
    (normalized,) = (r for r in rl.trace(rl.parse(program)).passes if r.name == "normalize")
    found = [w for w in normalized.remarks if w.rule == "deduce"]
    pattern = re.compile(r"a match_cast brings it back: (.*)$")
    lines: dict[str, tuple[str, str]] = {}
    for w in found:
        match = pattern.search(w.reason)
        assert match is not None and not w.applied
        lines[w.subject.removeprefix("main.")] = (w.reason, match[1])
    return lines


def types_of(program: str) -> dict[str, str]:
    module = rl.trace(rl.parse(program)).find("normalize").after
    return {b.var.name: str(b.var.ty) for b in all_bindings(module["main"])}  # type: ignore


def mended(*names: str) -> str:
    """The program with the advice about some variables taken."""
    text, said = PROGRAM, advice(PROGRAM)
    for name in names:
        text = text.replace(AFTER[name], f"{AFTER[name]}\n    {said[name][1]}")
    return text


def test_remarks_name_place_and_reason() -> None:
    said = advice(PROGRAM)
    assert set(said) == {"a", "d", "f", "g"}  # not b and e, which only inherit it
    types = types_of(PROGRAM)
    assert types["b"] == types["a"] == types["e"] == "R.Tensor(dtype='float32', ndim=1)"
    reasons = {
        "a": "whether m equals n is not known",
        "d": "its shape depends on the values",
        "f": "the signature of longer says no more",
        "g": "which one is not known",
    }
    for name, reason in reasons.items():
        assert reason in said[name][0]


def test_the_advice_is_part_of_what_a_user_prints() -> None:
    text = str(rl.trace(rl.parse(PROGRAM)))
    assert 'a = R.match_cast(a, R.Tensor(("m",), "float32"))' in text


def test_the_advice_taken_brings_every_shape_back() -> None:
    program = mended("a", "d", "f", "g")
    types = types_of(program)
    assert types["b"] == "R.Tensor((m,), 'float32')"
    assert types["e"] == "R.Tensor((d_0,), 'float32')"
    assert not any("ndim" in types[name] for name in "beg")


@pytest.mark.parametrize("names", [(), ("a",), ("a", "d", "f", "g")])
def test_programs_mean_the_same_with_and_without(names: tuple[str, ...]) -> None:
    program = rl.parse(mended(*names))
    x, y = (np.arange(3, dtype="float32") for _ in range(2))
    for c in (True, False):
        want = (np.exp(x + y), -np.unique(y), np.concatenate((y, y)), np.exp(x if c else y))
        for got in (
            rl.interpret(program, "main", x, y, np.array(c)),
            rl.compile(program)["main"](x, y, np.array(c)),
        ):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_claim_that_does_not_hold_is_found_when_the_program_runs() -> None:
    x, y = np.ones(1, "float32"), np.ones(3, "float32")
    coarse = rl.compile(rl.parse(PROGRAM))["main"]
    assert coarse(x, y, np.array(True))[0].shape == (3,)  # broadcast, as NumPy does
    claimed = rl.parse(mended("a"))
    with pytest.raises(CheckFailed, match="m is 1, .*3|is 3, expected m = 1"):
        rl.compile(claimed)["main"](x, y, np.array(True))
    with pytest.raises(ExecutionError, match="`m` is 1 in dimension 0 of parameter `x` and 3 in"):
        rl.interpret(claimed, "main", x, y, np.array(True))
