"""docs/schedule.md is what tools/document_schedule.py writes, and its examples keep results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule.primitive import PRIMITIVES
from tools import document_schedule as docs

EXAMPLES = {name: e for section in docs.SECTIONS.values() for name, e in section.items()}


def outputs_of(func: PrimFunc, rng: np.random.Generator) -> Any:
    sizes = {"n": 5}
    buffers = [b for b in func.params if isinstance(b, Buffer)]
    shapes = [tuple(sizes.get(str(d)) or int(str(d)) for d in b.shape) for b in buffers]
    args = [rng.random(shape, dtype="float32") for shape in shapes]
    interpret_prim_func(func, args)
    return args[-1]


def test_the_page_is_current() -> None:
    assert docs.PAGE.read_text("utf-8") == docs.page(), "run python tools/document_schedule.py"


def test_every_primitive_is_described_once() -> None:
    assert docs.shown() == PRIMITIVES.keys()
    others = sum(map(len, docs.WITHOUT_EXAMPLE.values()))
    assert len(EXAMPLES) + others + len(docs.looking()) == len(PRIMITIVES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_changes_the_function_and_keeps_its_result(name: str) -> None:
    sch, before, after = docs.run(EXAMPLES[name])
    assert before != after and sch.trace[-1].name == name
    want = outputs_of(sch.original, np.random.default_rng(0))
    np.testing.assert_allclose(outputs_of(sch.func, np.random.default_rng(0)), want, rtol=1e-5)
