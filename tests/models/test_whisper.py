"""Whisper against transformers: random weights, several lengths and batches, greedy decoding."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest
import tokenizers

from relaxlab.models.keys import keys_of_json
from relaxlab.models.loader import ModelError
from relaxlab.models.mel import log_mel
from relaxlab.models.named_layers import NamedLayers, tensors_of_folder
from relaxlab.models.transcriber import Chooser, Rules, Transcriber
from relaxlab.models.whisper import Whisper, config_from_json, tensor_name
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.testing.replay import replay_kernels

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"
END, START, NO_STAMPS = 80, 81, 89


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A model as transformers saves it, and what it makes of some inputs."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; `make reference-env` makes it")
    found = tmp_path_factory.mktemp("whisper")
    program = pathlib.Path(__file__).with_name("whisper_answers.py")
    done = subprocess.run([PYTHON, program, found], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    words = {f"w{i} " if i < END else f"<|{i}|>": i for i in range(120)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0 "))
    tokenizer.add_special_tokens([word for word in words if word[0] == "<"])
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(found / "tokenizer.json"))
    return found


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path) -> dict[str, Any]:
    return dict(np.load(folder / "answers.npz"))


@pytest.fixture(scope="module")
def transcriber(folder: pathlib.Path) -> Transcriber:
    return Transcriber.from_pretrained(folder)


def assert_close(got, want):
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-5 * max(1, np.abs(want).max())


@pytest.mark.parametrize("number", range(5))
def test_logits(transcriber, answers, number):
    """Token by token from the cache, and the prompt in pieces: the same logits as all at once."""
    features, ids, want = (answers[f"{number}.{key}"] for key in ("features", "ids", "logits"))
    memory = transcriber.encode(features)
    cache = transcriber._caches(len(ids))
    for i in range(ids.shape[1]):
        assert_close(transcriber._logits(ids[:, i : i + 1], i, cache, memory), want[:, i])
    cut = ids.shape[1] // 2
    cache = transcriber._caches(len(ids))
    if cut:
        assert_close(transcriber._logits(ids[:, :cut], 0, cache, memory), want[:, cut - 1])
    assert_close(transcriber._logits(ids[:, cut:], cut, cache, memory), want[:, -1])


def test_greedy_texts(folder, transcriber, answers):
    rows = json.loads((folder / "texts.json").read_text())
    seen, whole = set(), 0
    for number, row in enumerate(rows):
        memory = transcriber.encode(answers[f"text.{number}"])
        prompts, _ = transcriber._prompts(memory, row["language"], "transcribe", row["timestamps"])
        got = transcriber.generate(memory, prompts, timestamps=row["timestamps"])
        want = [ids[: ids.index(END)] if END in ids else ids for ids in row["ids"]]
        for ours, theirs in zip(got, want, strict=True):
            # Where a text has several segments, transformers reads the audio after the last whole
            # one anew; here a recording is decoded once.
            pairs = [i for i in range(1, len(ours)) if min(ours[i - 1 : i + 1]) > NO_STAMPS]
            same = pairs[-1] if row["timestamps"] and pairs else len(ours)
            assert ours[:same] == theirs[:same], row
            assert same < len(ours) or len(theirs) == same
            whole += same == len(ours)
        seen |= {token for ids in got for token in ids}
        first = transcriber.generate(
            memory, prompts, timestamps=row["timestamps"], max_new_tokens=3
        )
        assert first == [ids[:3] for ids in got]
    assert len(seen) > 10 and whole > 20, "the texts hardly test anything"


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("number", range(3))
def test_log_mel_frames(answers, bands, number):
    name = f"mel.{bands}.{number}"
    got = log_mel(answers[f"{name}.audio"], bands, 48000)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, answers[f"{name}.exact"], atol=1e-5)
    np.testing.assert_allclose(got, answers[f"{name}.torch"], atol=1e-3)  # a float32 transform
    short = log_mel(answers[f"{name}.audio"], bands)
    assert short.shape == (bands, len(answers[f"{name}.audio"]) // 160)


def recording(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=samples).astype(np.float32)


def test_transcripts(transcriber):
    audio = [recording(9600), recording(5000, 1)]
    found = transcriber.transcribe(audio, timestamps=True, max_new_tokens=12)
    for one, text in zip(audio, found, strict=True):
        (alone,) = transcriber.transcribe([one], timestamps=True, max_new_tokens=12)
        assert alone == text
        assert text.language in ("en", "de", "fr")
        words = [i for i in text.ids if i < END]
        assert text.text == "".join(f"w{i} " for i in words)
        assert text.segments and text.ids[0] > NO_STAMPS
    (short,) = transcriber.transcribe([audio[1]], language="de", pad=False)
    assert short.language == "de" and not short.segments


def test_segments(transcriber):
    at = NO_STAMPS + 1
    text = transcriber._transcript([at, 5, 6, at + 7, at + 7, 9, at + 10, at + 10, 1], "en")
    pieces = [(s.start, s.end, s.text) for s in text.segments]
    assert pieces == [
        (0, pytest.approx(0.14), "w5 w6 "),
        (pytest.approx(0.14), pytest.approx(0.2), "w9 "),
        (pytest.approx(0.2), None, "w1 "),
    ]
    assert text.text == "w5 w6 w9 w1 "


def test_timestamps_come_in_pairs_and_do_not_fall(folder):
    choose = Chooser(Rules.read(folder / "generation_config.json"), 120, True)
    at, flat = NO_STAMPS + 1, np.zeros(120)
    assert choose(flat, []) == at
    assert choose(np.arange(120.0), []) == at + 20  # the latest that a text may begin with
    assert choose(flat, [at + 5]) == 0  # after the first, a word
    assert choose(np.where(np.arange(120) == 3, 9.0, 0), [at + 5]) == 0  # but no suppressed one
    assert choose(flat, [at + 5, 7]) == at + 6  # all timestamps together are likelier than a word
    assert choose(flat - 9 * (np.arange(120) >= at), [at + 5, 7]) == 0
    assert choose(flat, [at + 5, 7, at + 6]) == at + 6  # a segment ended: the next begins, or all


def test_no_kernel_is_left_to_the_fallback(folder):
    tensors = tensors_of_folder(folder, tensor_name)
    config = config_from_json(keys_of_json(folder / "config.json"))
    module, _ = Whisper(config, NamedLayers(tensors.formats)).build()
    trace = cpu_pipeline().run(module)
    assert replay_kernels(trace) and replay_kernels(cuda_pipeline().run(module))
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    rules = {w.subject: w.reason.rpartition(" ")[2] for w in remarks if w.applied}
    assert "fallback" not in rules.values(), rules
    assert {r for n, r in rules.items() if "attention" in n} == {"attention"}
    assert {r for n, r in rules.items() if "linear" in n} == {"matmul"}
    assert {r for n, r in rules.items() if "conv1d" in n} == {"contraction"}


def test_wrong_input_is_refused(folder, transcriber, tmp_path):
    with pytest.raises(ModelError, match="unknown language 'xx'; the model knows de, en, fr"):
        transcriber.transcribe([recording(800)], language="xx")
    with pytest.raises(ModelError, match="unknown task 'sing'; known: transcribe, translate"):
        transcriber.transcribe([recording(800)], task="sing")
    with pytest.raises(ValueError, match=r"of 0\.7 s does not fit into .* window of 0\.6 s"):
        transcriber.transcribe([recording(11000)])
    with pytest.raises(ValueError, match="there is no audio"):
        transcriber.transcribe([])
    with pytest.raises(ValueError, match="more than 200 samples, has 160"):
        transcriber.transcribe([recording(100)], pad=False)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Transcriber.from_pretrained(tmp_path / "nothing")
    values = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "model_type": "bert"}))
    with pytest.raises(ValueError, match="model_type 'bert' is not supported"):
        Transcriber.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 3}')
    with pytest.raises(ValueError, match="'decoder_start_token_id' is missing"):
        Transcriber.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (np.zeros(1000, "float32"), r"this is one recording; .*transcribe\(\[audio\]\)"),
        ([np.zeros((2, 1000), "float32")], r"recording 0 must be .* is float32 \(2, 1000\)"),
        ([np.zeros(1000, "int16")], r"recording 0 must be .* is int16 \(1000,\); divide whole"),
        ([np.zeros(9), np.array([0, 1, np.nan])], "recording 1 .* not finite, the first at 2"),
        ([], "there is no audio"),
    ],
)
def test_arrays_that_are_no_samples(transcriber, audio, message):
    with pytest.raises(ValueError, match=message):
        transcriber.transcribe(audio)


def test_samples_may_be_a_list(transcriber):
    samples = np.linspace(-1, 1, 800, dtype="float32")
    one, other = transcriber.features([samples]), transcriber.features([samples.tolist()])
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
