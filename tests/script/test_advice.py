"""Expressions that people try out of habit, and the advice in the error."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl

PROGRAM = """@R.function
def f(x: R.Tensor((4, 4), "float32"), s: R.Shape(["n"])):
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
        ("x.transpose()", "R.permute_dims(x)"),
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
    assert error.notes == ("visible here: n, s, x, z",)


def test_close_names_are_suggested() -> None:
    (error,) = errors("y = x.softplush()")
    assert re.search("did you mean .nn.softplus", error.suggestion or "")


@pytest.mark.parametrize(
    ("tried", "message", "advised"),
    [
        ("f'{x}'", "an f-string is not", "make the string before the program"),
        ("[x for i in range(2)]", "a comprehension is not", "write the items"),
        ("(lambda a: a)(x)", "a lambda is not", "cls.NAME"),
        ("R.exp(y := x)", "`:=` is not", "a line of its own"),
        ("R.cat([x, x], axis=0)", "no operator 'cat'", "did you mean 'R.concat'"),
        ("R.transpose(x)", "no operator 'transpose'", "did you mean 'R.permute_dims'"),
        ("R.nn.softmax(x, dim=1)", "no parameter 'dim'", "did you mean 'axis'"),
        ("R.reshape(x, (x.shape[0] * 4,))", "no attribute 'shape'", "x has the shape (4, 4)"),
        ("x + [1, 2, 3, 4]", "x2 must be a tensor, is R.Shape", "wrap numbers with R.const"),
        ("x * n", "dtypes float32 and int64", 'convert the scalar: T.cast(n, "float32")'),
        ("n * x", "dtypes int64 and float32", 'convert the scalar: T.cast(n, "float32")'),
        ("x + None", "a value is needed, not None", ""),
        ("enumerate(x)", "undefined name 'enumerate'", "`enumerate` is Python's"),
    ],
)
def test_python_that_is_no_script_is_named(tried: str, message: str, advised: str) -> None:
    (error,) = errors(f"y = {tried}")
    assert message in error.message
    assert advised in (error.suggestion or "")


@pytest.mark.parametrize(
    ("statement", "advised"),
    [
        ("z += x", "write `z = z + x`"),
        ("import math", "import before the program"),
        ("del x", "leave it out: values end with their last use"),
        ("print(x)", "`print` is Python's, and a program is read, not run; "
         "relaxlab.explore.run shows the values"),
    ],
)  # fmt: skip
def test_statements_that_are_no_script_have_advice(statement: str, advised: str) -> None:
    error = errors(f"{statement}\n    y = x")[0]
    assert error.suggestion == advised


def test_a_function_of_the_module_is_called_through_it() -> None:
    with pytest.raises(rl.DiagnosticError, match=r"called by `cls\.main"):
        rl.parse(
            "@I.ir_module\nclass M:\n    @R.function\n"
            '    def main(x: R.Tensor((4,), "float32")):\n        return main(x)\n'
        )


def test_self_and_constants_of_the_class_have_advice() -> None:
    with pytest.raises(rl.DiagnosticError) as caught:
        rl.parse(
            "@I.ir_module\nclass M:\n    scale = 2\n    @R.function\n"
            '    def main(self, x: R.Tensor((4,), "float32")):\n        return x\n'
        )
    found = [d.suggestion for d in caught.value.diagnostics]
    assert "write it before the class: programs know the names around them" in found
    assert "a function of a module takes no `self`: leave it out" in found


@pytest.mark.parametrize(
    ("line", "advised"),
    [
        ("for i in T.grid(4, 4):\n        B[0] = A[i]",
         "it is a tuple of variables: name each, as in `for i, j in T.grid(...)`"),
        ("B[0] = A[-1]", "write 3: indices do not count from the end"),
        ("B[0] = A[4]",
         "guard the access with T.if_then_else, or change the sizes of buffer or loop"),
    ],
)  # fmt: skip
def test_indices_of_loop_functions_have_advice(line: str, advised: str) -> None:
    text = '@T.prim_func\ndef f(A: T.Buffer((4,), "int8"), B: T.Buffer((4,), "int8")):\n    '
    with pytest.raises(rl.DiagnosticError) as caught:
        rl.parse(text + line)
    assert [d.suggestion for d in caught.value.diagnostics] == [advised]


def test_a_value_that_is_given_twice_is_described_once() -> None:
    (error,) = errors("y = R.matmul(R.sum(z), R.sum(z))")
    assert len(error.notes) == len(set(error.notes))
    (error,) = errors("y = R.where(x, x, x)")
    assert error.notes == ("argument `x` is R.Tensor((4, 4), 'float32')",)


def test_the_place_of_a_condition_is_where_it_is_asked_for() -> None:
    (error,) = errors("if z:\n        y = x\n    else:\n        y = z")
    assert error.message == "a condition must be a bool scalar, is R.Tensor((4, 4), 'float32')"
    assert error.span is not None and error.span.line == 4


def test_operators_on_bits_are_those_of_tensors() -> None:
    mod = rl.parse(
        '@R.function\ndef f(x: R.Tensor(("n",), "int64"), c: R.Tensor(("n",), "bool")):\n'
        "    return ((x & 6) | (x ^ 1) << 2 >> 1, c & (x > 2) | ~c ^ (x < 1))\n"
    )
    x = np.arange(7)
    c = x % 2 == 1
    bits, bools = rl.interpret(mod, "f", x, c)
    np.testing.assert_array_equal(bits, (x & 6) | (x ^ 1) << 2 >> 1)
    np.testing.assert_array_equal(bools, c & (x > 2) | ~c ^ (x < 1))
