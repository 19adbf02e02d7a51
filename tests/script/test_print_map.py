"""The map from IR paths to text spans: every span holds what the path's node prints as."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from relaxlab.ir import expr, loops
from relaxlab.ir.module import Module
from relaxlab.ir.span import Span
from relaxlab.script import parse, print_module, print_with_map
from relaxlab.testing.script_corpus import PROGRAMS
from tests.script.programs import GraphPrograms


def node_at(root: Any, path: str) -> Any:
    """The node at a path such as `['main'].body.blocks[0]`."""
    for name, key, index in re.findall(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]", path):
        root = getattr(root, name) if name else root[key] if key else root[int(index)]
    return root


def text_at(text: str, span: Span) -> str:
    lines = text.splitlines()[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_col]
    lines[0] = lines[0][span.col :]
    return "\n".join(lines)


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_the_same_and_spans_fit(name: str) -> None:
    mod = parse(PROGRAMS[name])
    text, spans = print_with_map(mod)
    assert text == print_module(mod)
    assert text_at(text, spans[""]) == text[text.index("@I.ir_module") :].rstrip("\n")
    for path, span in spans.items():
        node, piece = node_at(mod, path), text_at(text, span)
        match node:
            case loops.For():
                assert piece.startswith("for ")
            case loops.BlockRealize():
                assert piece.startswith("with T.sblock(")
            case loops.BufferStore():
                assert re.fullmatch(r"\w+\[.*\] = .*", piece)
            case expr.Var(name):
                assert piece.startswith(name)
            case expr.IntImm(value, "int64"):
                assert str(value) in piece
            case _:
                assert piece


def test_random_programs_and_nesting() -> None:
    for seed in range(40):
        print("seed", seed)
        mod: Module = GraphPrograms(random.Random(seed)).module()
        text, spans = print_with_map(mod)
        assert text == print_module(mod)
        for path, span in spans.items():
            node_at(mod, path)
            outer = spans[path[: path.index("]") + 1]] if path else span
            assert (outer.line, outer.col) <= (span.line, span.col)
            assert (span.end_line, span.end_col) <= (outer.end_line, outer.end_col)


def test_a_binding() -> None:
    mod = parse(PROGRAMS["graph"])
    text, spans = print_with_map(mod)
    path = "['main'].body.blocks[0].bindings[0]"
    assert text_at(text, spans[path]).startswith("y = R.call_tir(cls.copy, (x,)")
    assert text_at(text, spans[path + ".var"]) == "y"
    assert text_at(text, spans[path + ".value.args[0]"]) == "cls.copy"
