"""Every documented error of the passes is what its example says it is."""

import re
from pathlib import Path

import pytest

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.base import Pipeline
from relaxlab.passes.expand_calls import expand_calls
from relaxlab.passes.lower_recording import lower_recording
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES, batched_pipeline
from relaxlab.script import parse

ROOT = Path(__file__).parents[2]
SECTIONS = re.split(r"^## ", (ROOT / "docs/errors-passes.md").read_text(), flags=re.M)[1:]
EXAMPLES = [
    (section[:5], block.strip(), bool(remedy))
    for section in SECTIONS
    for remedy, block in enumerate(re.findall(r"```python\n(.*?)```", section, flags=re.S))
]


def lower(text, code):
    """Lower an example; one made of nodes is not normalised first. E0509 is about batches."""
    if code == "E0509":
        return lower_recording(batched_pipeline().run(parse(text, check=False)).result)
    if "@I.ir_module" in text:
        passes = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES))
        return lower_shapes(passes.run(parse(text, check=False)).result)
    namespace = {}
    exec(text, namespace)  # our own document
    return lower_shapes(expand_calls(namespace["mod"]))


@pytest.mark.parametrize(("code", "text", "remedy"), EXAMPLES)
def test_documented_examples(code, text, remedy):
    if remedy:
        assert lower(text, code).functions
        return
    with pytest.raises(DiagnosticError) as error:
        lower(text, code)
    assert {d.code for d in error.value.diagnostics} == {code}


def test_texts_of_documented_errors(golden):
    texts = {}
    for code, text, remedy in EXAMPLES:
        if not remedy:
            with pytest.raises(DiagnosticError) as error:
                lower(text, code)
            texts[code] = str(error.value)
    golden.file("passes/errors", texts)


def test_every_code_is_documented():
    used = set()
    for path in (ROOT / "relaxlab/passes").glob("*.py"):
        used |= set(re.findall(r'"(E05\d\d)"', path.read_text()))
    assert used == {section[:5] for section in SECTIONS}
