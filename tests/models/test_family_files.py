"""Every family as a GGUF file with llama.cpp's names: read back, run by llama.cpp, quantised."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxlab import nn
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.generate import TextGenerator
from relaxlab.models.gguf import GGUFTensor, read_gguf, write_gguf
from relaxlab.models.loader import Checkpoint, open_model
from tests.models.family_models import CASES, POSITIONS, ROOT, Case, write_as_gguf
from tests.models.test_families import Compiled, assert_close, check_all

LLAMA_CPP = ROOT / ".venv-bench/bin/python"
BY_NAME = {case.name: case for case in CASES}
IN_GGUF = [case for case in CASES if case.name != "qwen2-windows"]
"""Qwen's windows are no feature that GGUF files speak of."""


def gguf_of(folder: Path, case: Case, format: str = "F32") -> tuple[Checkpoint, Checkpoint]:
    """The model as safetensors and as a GGUF file."""
    opened, path = open_model(folder / case.name), folder / f"{case.name}-{format}.gguf"
    write_as_gguf(opened, case, path, format)
    return opened, open_model(path)


def in_float32(value: Any) -> Any:
    """Numbers as metadata of a GGUF file have them."""
    if isinstance(value, Rope | DecoderConfig):
        changed = {f.name: in_float32(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(in_float32(v) for v in value)
    return float(np.float32(value)) if isinstance(value, float) else value


@pytest.mark.parametrize("case", IN_GGUF, ids=lambda case: case.name)
def test_a_gguf_file_is_the_same_model(family_models: Path, case: Case) -> None:
    opened, again = gguf_of(family_models, case)
    config = again.config
    if case.family in ("Llama", "Mistral"):  # whose pairs are stored side by side
        assert config.rope.interleaved
        config = dataclasses.replace(
            config, rope=dataclasses.replace(config.rope, interleaved=False)
        )
    assert in_float32(config) == in_float32(opened.config)
    for name in config.tensor_shapes():
        a, b = (checkpoint.read(name)["data"] for checkpoint in (opened, again))
        if not (case.family in ("Llama", "Mistral") and (".attn_q." in name or ".attn_k." in name)):
            np.testing.assert_array_equal(a.astype(np.float32), b)


def test_pairs_side_by_side_turn_alike(family_models: Path) -> None:
    _, again = gguf_of(family_models, BY_NAME["llama"])
    answers = np.load(family_models / "llama.npz")
    check_all(Compiled(again), answers["ids"], answers["logits"])


def test_llama_cpp_gives_the_same_logits(family_models: Path, tmp_path: Path) -> None:
    if not LLAMA_CPP.exists():
        pytest.skip("no .venv-bench with llama.cpp (make bench-env)")
    # llama.cpp ignores the windows of Mistral and Phi-3, and has room for 256 positions at least.
    short = {"mistral": 7, "phi3": 11}
    cases = [case for case in IN_GGUF if case.name != "phi3-short"]
    requests: list[dict[str, Any]] = []
    for case in cases:
        gguf_of(family_models, case)
        ids = np.load(family_models / f"{case.name}.npz")["ids"][0, : short.get(case.name)]
        model = str(family_models / f"{case.name}-F32.gguf")
        # It has the betas of YaRN from its caller, not from the file.
        betas = ("yarn_beta_fast", "yarn_beta_slow")
        given = case.rope_metadata()
        options = {b: given[k] for b in betas if (k := f"rope.scaling.{b}") in given}
        requests.append({"model": model, "ids": ids.tolist(), "context": 64, "options": options})
    (tmp_path / "requests.json").write_text(json.dumps(requests))
    script = Path(__file__).with_name("llama_cpp_answers.py")
    command = [LLAMA_CPP, script, tmp_path / "requests.json", tmp_path / "logits.npz"]
    subprocess.run(command, check=True, capture_output=True)
    answers = np.load(tmp_path / "logits.npz")
    for number, case in enumerate(cases):
        got = answers[str(number)]
        want = np.load(family_models / f"{case.name}.npz")["logits"][0, : len(got)]
        # It looks the gelu up in a table of half precision.
        has_gelu = case.family in ("Gemma", "Gemma2", "Gemma3Text", "Phi")
        assert_close(got, want, 5e-3 if has_gelu else 1e-5)


def test_quantised_parts_of_fused_tensors(family_models: Path) -> None:
    _, quantised = gguf_of(family_models, BY_NAME["phi3"], "Q4_0")
    file = read_gguf(quantised.path)
    kinds = {t.name: t.format.name for t in file.tensors.values()}
    assert kinds["blk.0.attn_qkv.weight"] == "Q4_0" and kinds["output_norm.weight"] == "F32"
    plain = family_models / "phi3-of-Q4_0.gguf"
    tensors = [GGUFTensor.quantised(t.name, t.dequantise(), "F32") for t in file.tensors.values()]
    write_gguf(plain, file.metadata, tensors)
    ids = np.load(family_models / "phi3.npz")["ids"][:2]
    want, got = Compiled(open_model(plain)), Compiled(quantised)
    for length in (1, POSITIONS):
        assert_close(got.start(2)(ids[:, :length]), want.start(2)(ids[:, :length]))


def test_biases_after_integer_products(family_models: Path) -> None:
    _, quantised = gguf_of(family_models, BY_NAME["phi"], "Q8_0")
    answers = np.load(family_models / "phi.npz")
    model = Compiled(quantised, precision=nn.Precision("q8", "q8"))
    for length in (1, POSITIONS):
        got = model.start(2)(answers["ids"][:2, :length])
        assert_close(got, answers["logits"][:2, length - 1], 0.05)


def test_generation_beyond_the_window(family_models: Path) -> None:
    gguf_of(family_models, BY_NAME["gemma2"])
    answers = np.load(family_models / "gemma2.npz")
    generator = TextGenerator.load(family_models / "gemma2-F32.gguf", threads=2, use_cache=False)
    ids = answers["ids"][0].tolist()
    assert_close(generator.logits(ids), answers["logits"][0, -1])
    assert_close(generator.logits(ids[:20]), answers["logits"][0, 19])
    answer = generator.generate(ids[:5], max_new_tokens=30)
    assert answer.ids and (answer.stopped == "stop" or len(answer.ids) == 30)
    expected = int(answers["logits"][0, 4].argmax())
    assert answer.ids[0] == expected
