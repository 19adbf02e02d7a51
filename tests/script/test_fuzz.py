"""Whatever the text is, the parser gives a module or a DiagnosticError, and quickly."""

from __future__ import annotations

import random
import re
import time

import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.script import parse, print_module
from relaxlab.testing.script_corpus import PROGRAMS
from tests.script.programs import GraphPrograms

SEED = 7

PIECES = [
    "0", "-1", "1 << 70", "2.5", "None", "True", "'x'", "b'x'", "...", "()", "[]", "{}", "n", "A",
    "x", "T", "R", "I", "cls", "T.int64()", "T.handle", "T.float32", "T.Buffer((4,))", "R.Tensor",
    "R.Tensor(('q',))", "R.add", "R.output(x)", "T.grid(1)", "T.axis.spatial(1, 1)", "lambda: 0",
    "T.Ramp(0, 1, 4)", "A[0:4]", "A[()]", "x[0]", "cls.main", "cls.copy", "T.evaluate", "*x",
    "'n * '", "'((('", "float('nan')", "T.match_buffer(a, (4,))", "R.const([[1], [2, 3]])",
    "R.match_cast(x, R.Tensor((4,)))", "R.shape([1.5])", "T.Let(1, where={x: 2})", "if", "for",
    "T.int64(1) // T.int64(0)", "R.prim_value('x')", "R.call_tir(cls.copy, 3, 4)", "\\x00", "é",
]  # fmt: skip


def outcome(text: str) -> str:
    try:
        made = parse(text, name="fuzz")
    except DiagnosticError as error:
        assert error.diagnostics and str(error)
        return "refused"
    assert isinstance(made, Module)
    return "read"


def mutate(text: str, rng: random.Random) -> str:
    tokens = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(tokens))
        match rng.randrange(7):
            case 0:
                del tokens[at]
            case 1:
                tokens[at] = rng.choice(PIECES)
            case 2:
                tokens.insert(at, rng.choice(PIECES))
            case 3:
                tokens[at] = rng.choice(tokens)
            case 4:
                tokens.insert(at, tokens[rng.randrange(len(tokens))])
            case 5:
                other = rng.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                words = [i for i, t in enumerate(tokens) if re.fullmatch(r"\w+", t)]
                tokens[rng.choice(words)] = rng.choice(PIECES)
        if not tokens:
            return ""
    return "".join(tokens)


@pytest.mark.parametrize("name", PROGRAMS)
def test_mutated_programs(name: str) -> None:
    rng = random.Random(f"{SEED} {name}")
    print("seed", SEED)
    found = [outcome(mutate(PROGRAMS[name], rng)) for _ in range(400)]
    assert {"read", "refused"} == set(found)


def test_mutated_random_programs() -> None:
    for seed in range(60):
        print("seed", seed)
        text = print_module(GraphPrograms(random.Random(seed)).module())
        outcome(mutate(text, random.Random(seed)))


def test_characters() -> None:
    rng = random.Random(SEED)
    for _ in range(300):
        text = list(rng.choice(list(PROGRAMS.values())))
        for _ in range(rng.choice([1, 3, 10])):
            text[rng.randrange(len(text))] = chr(rng.choice([0, 9, 10, 32, 40, 34, 92, 233, 8364]))
        outcome("".join(text))


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 150 + "1" + ")" * 150,
        "(" * 5000 + "1" + ")" * 5000,
        "-" * 3000 + "1",
        "not " * 3000 + "True",
        "T.exp(" * 90 + "T.float32(1)" + ")" * 90,
        "T.exp(" * 1000 + "1" + ")" * 1000,
        "1" + " + n" * 3000,
        "n" + "**2" * 500,
        "A" + "[0]" * 2000,
        "T" + ".x" * 5000,
        "[" * 190 + "]" * 190,
        "1 if n else " * 500 + "2",
        "n < " * 2000 + "n",
        "9" * 5000,
        "'" + "x" * 100000 + "'",
        "{" + "1: " * 80 + "1" + "}",
    ],
    ids=lambda e: e[:12],
)
def test_depth(expression: str) -> None:
    for template in (
        "@T.prim_func\ndef f(A: T.Buffer((4,)), n: T.int64):\n    T.evaluate({})\n",
        "@R.function\ndef main(n: T.int64):\n    return ({})\n",
        "@R.function\ndef main(n: R.Tensor(({},))):\n    return n\n",
    ):
        begin = time.process_time()
        outcome(template.format(expression))
        assert time.process_time() - begin < 20


def test_statement_depth() -> None:
    for count in (10, 60, 120):
        for head in ("for i in range(4):", "if n > 0:", "while n > 0:", "with T.sblock('b'):"):
            body = "".join("    " * (k + 1) + head + "\n" for k in range(count))
            body += "    " * (count + 1) + "T.evaluate(0)\n"
            outcome(f"@T.prim_func\ndef f(n: T.int64):\n{body}")


def test_a_long_program() -> None:
    lines = ["    x = R.add(x, x)\n"] * 2000
    header = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n'
    assert outcome(header + "".join(lines) + "    return x\n") == "read"
    lets = [f"    x{i} = n + {i}\n" for i in range(300)]
    outcome("@T.prim_func\ndef f(n: T.int64):\n" + "".join(lets) + "    T.evaluate(x1)\n")
