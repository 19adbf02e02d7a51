"""Expressions that people try out of habit, and the advice in the error."""

from __future__ import annotations

import re

import pytest

import relaxlab as rl

PROGRAM = """@R.function
def f(x: R.Tensor((4, 4), "float32")):
    z = R.exp(x)
    {line}
    return y
"""


def errors(line: str) -> list[rl.Diagnostic]:
    with pytest.raises(rl.DiagnosticError) as caught:
        rl.parse(PROGRAM.format(line=line))
    return list(caught.value.diagnostics)


@pytest.mark.parametrize(
    ("tried", "advised"),
    [
        ("x.sum(axis=0)", "R.sum(x, axis=0)"),
        ("(x + z).mean(axis=1, keepdims=True)", "R.mean(x + z, axis=1, keepdims=True)"),
        ("x.relu()", "R.nn.relu(x)"),
        ("x.T", "R.permute_dims(x)"),
        ("z.view((16,))", "R.reshape(z, (16,))"),
        ("x[0:2]", "R.strided_slice(x, axes=[0], begin=[0], end=[2])"),
        ("z[:, 1:3]", "R.strided_slice(z, axes=[1], begin=[1], end=[3])"),
        ("x[0:4:2]", "R.strided_slice(x, axes=[0], begin=[0], end=[4], strides=[2])"),
        ("x[1]", "R.take(x, R.const(1), axis=0)"),
    ],
)
def test_the_advice_is_a_program(tried: str, advised: str) -> None:
    (error,) = errors(f"y = {tried}")
    assert error.suggestion == f"write `{advised}`"
    rl.parse(PROGRAM.format(line=f"y = {advised}"))


@pytest.mark.parametrize("call", ["R.mathmul(x, {})", "x.foo({})", "T.nothing({})", "later({})"])
def test_errors_of_a_call_and_of_its_arguments_are_reported_together(call: str) -> None:
    messages = [d.message for d in errors(f"y = {call.format('unheard')}")]
    assert len(messages) == 2
    assert any("undefined name 'unheard'" in m for m in messages)


def test_visible_names_are_those_of_the_program() -> None:
    (error,) = errors("y = unheard")
    assert error.notes == ("visible here: x, z",)


def test_close_names_are_suggested() -> None:
    (error,) = errors("y = x.softplush()")
    assert re.search("did you mean .nn.softplus", error.suggestion or "")
