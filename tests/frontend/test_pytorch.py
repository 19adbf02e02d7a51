"""Programs of PyTorch, in `.venv-reference`: imported, compiled and compared there."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
from typing import Any

import pytest

from relaxlab.frontend.pytorch.entry import PyTorchMissing, from_torch

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"


def run(command: list[str]) -> str:
    """The output of a program of the reference environment that imports this tree."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [str(PYTHON), "-W", "ignore", *command],
        capture_output=True, text=True, check=False, env=env, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `torch_answers.py` found out."""
    if not PYTHON.exists():
        pytest.skip("needs .venv-reference")
    file = tmp_path_factory.mktemp("torch") / "answers.json"
    run([str(pathlib.Path(__file__).with_name("torch_answers.py")), str(file)])
    return json.loads(file.read_text())


def test_a_compilation_serves_all_sizes_and_branches(answers: dict[str, Any]) -> None:
    found = answers["calling"]
    assert max(found["errors"]) < 1e-5
    assert found["names"] == ["x", "extra_bias", "linear_weight", "linear_bias", "mask"]
    assert found["bounds"] == {"batch": 64, "length": 15}
    assert found["shared"], "weights are the model's own memory"
    assert found["numpy"] == "ndarray"


def test_calls_outside_of_the_export_are_refused(answers: dict[str, Any]) -> None:
    found = answers["calling"]
    assert (
        "CheckFailed: length (dimension 1 of parameter `x` of `main`) may be at most 15"
        in found["too long"]
    )
    assert "length >= 2" in found["too short"]
    assert found["another scale"] == ("ValueError: the program was exported for scale=2.0, not 3.0")
    assert "TypeError: the program was exported for arguments" in found["another structure"]


def test_complex_numbers_and_whole_recurrent_layers(answers: dict[str, Any]) -> None:
    """At sizes other than those of the export."""
    found = answers["complex_numbers"]
    assert max(found["errors"]) < 1e-5 and found["dtype"] == "torch.complex64"
    assert len(answers["recurrent_layers"]) == 5
    assert max(map(max, answers["recurrent_layers"].values())) < 1e-5


def test_places_are_the_lines_of_the_model(answers: dict[str, Any]) -> None:
    lines = answers["calling"]["places"]
    assert 'y = self.linear(x) * scale + extra["bias"]' in lines
    assert any("torch.cond(" in line for line in lines)


def test_all_that_cannot_be_imported_is_reported(answers: dict[str, Any]) -> None:
    found = answers["refusals"]
    assert found["is listed"]
    assert "2 operators of this PyTorch program cannot be imported" in found["unsupported"]
    assert "aten.linalg_matrix_exp.default: it has no row" in found["unsupported"]
    assert "(2 calls)" in found["unsupported"]
    assert "y = torch.linalg.matrix_exp(x) + torch.linalg.matrix_exp(x + 1)" in found["unsupported"]
    assert "call model.eval() first" in found["dropout"]
    assert "expected a torch.nn.Module or an ExportedProgram" in found["kind"]
    assert "has its arguments and dynamic shapes already" in found["twice"]


def test_torch_compile(answers: dict[str, Any]) -> None:
    found = answers["backend"]
    assert max(found["errors"]) < 1e-5 and found["gradients"] < 1e-4
    assert found["graphs"] == 1, "no recompilation for a new length"
    assert "aten.linalg_matrix_exp.default: it has no row" in found["refused"]


def test_results_of_other_kinds(answers: dict[str, Any]) -> None:
    assert answers["results"] == {
        "half": "torch.bfloat16", "half is right": True, "again": "torch.bfloat16",
        "again is right": True, "size": 3, "sizes": [4], "wide": [1, 1, 6, 4],
        "bools": [True, False], "counts": True,
    }  # fmt: skip
    assert re.search(
        r"dense.*: its result is a number of Python, a SymFloat, that depends on data; "
        "compute with a tensor", answers["refusals"]["float of data"],
    )  # fmt: skip


def test_buffers_and_arguments_that_calls_change(answers: dict[str, Any]) -> None:
    assert answers["changes"]


def test_floats_of_sizes(answers: dict[str, Any]) -> None:
    assert len(answers["floats_of_sizes"]) == 13 and all(answers["floats_of_sizes"].values())


def test_sizes_for_which_another_program_would_be_traced_are_refused(
    answers: dict[str, Any],
) -> None:
    needed = {
        "even": r"\(s\d+ % 2\) .* is 1, expected 0", "other": r"s\d+ != 6", "both": "at most 9",
        "longer": r"s\d+ < s\d+", "claimed": r"s\d+ % 3 != 2", "derived": r"2 \* half",
        "alone": r"s\d+ >= 2", "of data": r"u0 <= s\d+",
    }  # fmt: skip
    for name, text in answers["conditions_on_sizes"].items():
        assert re.search(f"^CheckFailed: .*{needed[name]}", text), (name, text)
    assert answers["control_flow"] and answers["slices_by_data"]
    assert answers["sizes_of_one"] == []
    few, many = ["result, True"] * 4, ["CheckFailed, True"] * 3
    assert answers["too_few_elements"] == few + many


def test_sizes_and_arrays(answers: dict[str, Any]) -> None:
    found = answers["sizes"]
    assert found["texts"] == ["m * m + 2 * n", "n // 3", "n % 4", "max(m, n)", "n // 2"]
    assert "no expression of integers" in found["unknown"]
    assert found["bfloat16"] == [0, 1, 2, 3] and found["shared"]
    assert "layout torch.sparse_coo" in found["sparse"]


def test_samples_of_operators(answers: dict[str, Any]) -> None:
    found = answers["samples"]
    assert len(found) == 83
    assert {op: r for op, r in found.items() if r != "equal"} == {}


def test_programs_of_the_page_run(answers: dict[str, Any]) -> None:
    assert 'x: R.Tensor(("batch", "length", 16), "float32")' in answers["page"]
    assert "R.nn.gelu" in answers["page"] and "torch.Size([7, 300, 8])" in answers["page"]


@pytest.mark.skipif(not PYTHON.exists(), reason="needs .venv-reference")
def test_models_of_transformers() -> None:
    """A decoder and a network of convolutions; `torch_models` without names runs all."""
    lines = run(["-m", "relaxlab.testing.torch_models", "llama", "resnet"]).splitlines()
    errors = {entry["model"]: entry["errors"] for entry in map(json.loads, lines)}
    assert list(errors) == ["llama", "resnet"]
    assert all(len(e) == 3 and max(e) < 1e-4 for e in errors.values()), errors


def test_pytorch_is_asked_for_where_it_is_missing() -> None:
    with pytest.raises(PyTorchMissing, match="pip install torch"):
        from_torch(None)
