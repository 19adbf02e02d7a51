"""Assertions whose messages show values."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.script.parser import parse

CLAIM = """
@T.prim_func
def claim(a_: T.handle, y_: T.handle):
    n = T.int64()
    a = T.match_buffer(a_, (n,), "int64")
    y = T.match_buffer(y_, (n,), "int64")
    for i in range(n):
        assert a[i] >= 0, "a[{}] is {}".format(i, a[i])
        y[i] = a[i]
"""


def test_values_are_read_and_printed() -> None:
    module = parse(CLAIM)
    assert rl.structural_equal(parse(module.script()), module)


def test_the_first_failure_is_shown() -> None:
    a = np.array([1, 2, -7, 4, -1])
    for run in (lambda y: rl.interpret(parse(CLAIM), "claim", a, y),
                lambda y: rl.compile(parse(CLAIM))["claim"](a, y)):  # fmt: skip
        with pytest.raises((rl.ExecutionError, rl.CheckFailed), match=r"a\[2\] is -7"):
            run(np.zeros(5, "int64"))


@pytest.mark.parametrize("message", ['"{}".format(i, i)', '"{} {} {}".format(i, i, i)', "i"])
def test_messages_that_do_not_fit_are_refused(message: str) -> None:
    with pytest.raises(rl.DiagnosticError, match="E0106"):
        parse(CLAIM.replace('"a[{}] is {}".format(i, a[i])', message))
