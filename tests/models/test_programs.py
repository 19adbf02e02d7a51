"""Programs found in the cache by their request: nothing is built, and little is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from relaxlab.models import programs, tiny
from relaxlab.models.generate import TextGenerator
from relaxlab.models.loader import Checkpoint, ModelError, open_model
from relaxlab.models.programs import program_for
from relaxlab.models.request import Request

REQUEST = Request("float32", "float32", rows=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXLAB_CACHE", str(folder))


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return open_model("tiny")


def test_a_program_is_found_without_building_it(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = program_for(checkpoint, REQUEST)
    with monkeypatch.context() as patch:
        patch.delattr(programs, "_built")
        second = program_for(checkpoint, REQUEST)
    assert not first.executable.from_cache and second.executable.from_cache
    assert second.sources == first.sources
    assert second.executable.artifact.code == first.executable.artifact.code
    again, once = second.executable.compiled_from, first.executable.compiled_from
    assert again is not None and once is not None
    assert again[0].script() == once[0].script()


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, activations="q16"),
        replace(REQUEST, kv_dtype="float16"),
        replace(REQUEST, rows=17),
        replace(REQUEST, sequences=2),
    ],
)
def test_requests_are_in_the_key(checkpoint: Checkpoint, other: Request) -> None:
    values = [programs._values(checkpoint, request) for request in (REQUEST, other)]
    assert json.dumps(values[0]) != json.dumps(values[1])


def test_the_model_is_in_the_key(checkpoint: Checkpoint) -> None:
    name = next(iter(checkpoint.formats))
    others = [
        replace(checkpoint, config=replace(checkpoint.config, norm_eps=1e-3)),
        replace(checkpoint, formats={**checkpoint.formats, name: "F16"}),
    ]
    texts = {json.dumps(programs._values(c, REQUEST)) for c in (checkpoint, *others)}
    assert len(texts) == 3


@pytest.mark.parametrize("damage", ["{", "{}", "[]", "null", '{"program": "x", "metadata": []}'])
def test_damaged_entries_of_the_index_are_rebuilt(
    checkpoint: Checkpoint, folder: Path, damage: str
) -> None:
    program_for(checkpoint, REQUEST)
    (entry,) = folder.glob("*.json")
    entry.write_text(damage + entry.stem)
    again = program_for(checkpoint, REQUEST)
    assert again.executable.from_cache  # the program itself is still there
    assert json.loads(entry.read_text().removesuffix(entry.stem))["program"] == again.executable.key


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(ModelError, match="unknown activations 'int3'; known: float32, q8, q16"):
        TextGenerator.load("tiny", activations="int3")


COMPILER = (
    "relaxlab.nn", "relaxlab.script", "relaxlab.passes", "relaxlab.schedule", "relaxlab.analysis",
    "relaxlab.ops", "relaxlab.tracing", "relaxlab.codegen.program", "relaxlab.runtime.build",
    "relaxlab.runtime.interpreter.interpreter", "relaxlab.ir.expr",
)  # fmt: skip


def test_a_found_program_runs_without_the_compiler(folder: Path) -> None:
    """In a process that generates with a model from the cache, no part of the compiler is
    imported."""
    code = (
        "import sys\n"
        "from relaxlab.models.generate import TextGenerator\n"
        f"g = TextGenerator.load({str(tiny.path())!r}, max_context=64)\n"
        "g.generate('hi', max_new_tokens=4)\n"
        f"found = [m for m in sys.modules if m.startswith({COMPILER})]\n"
        "print(g.executable.from_cache, found)\n"
    )
    environment = {**os.environ, "RELAXLAB_CACHE": str(folder)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=environment,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert outputs[0].startswith("False ") and outputs[1] == "True []"
