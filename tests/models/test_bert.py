"""BERT and RoBERTa against transformers: random weights, several lengths, batches and masks."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from relaxlab.models.bert import Bert, config_from_json, tensor_name
from relaxlab.models.gguf import GGUFTensor, write_gguf
from relaxlab.models.keys import keys_of_json
from relaxlab.models.loader import ModelError
from relaxlab.models.named_layers import NamedLayers, tensors_of_folder
from relaxlab.models.text_encoder import BertEncoder, Tokens
from relaxlab.models.tokenizer import TokenizerError
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.testing.replay import replay_kernels

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = ROOT / ".venv-reference/bin/python"
MODELS = (
    "bert-plain", "bert-lm", "bert-class", "tanh-lm", "roberta-plain", "roberta-lm",
    "roberta-class",
)  # fmt: skip
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "##s", "rain", ".", "é"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Models as transformers saves them, and what it makes of some inputs."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} does not exist; `make reference-env` makes it")
    found = tmp_path_factory.mktemp("bert")
    program = pathlib.Path(__file__).with_name("bert_answers.py")
    done = subprocess.run([PYTHON, program, found], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in found.glob("*/"):
        size = json.loads((path / "config.json").read_text())["vocab_size"]
        words = WORDS + [f"[unused{i}]" for i in range(size - len(WORDS))]
        (path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    return found


def cases(folder: pathlib.Path, model: str) -> list[dict[str, Any]]:
    answers = np.load(folder / "answers.npz")
    found: dict[str, dict[str, Any]] = {}
    for key in answers:
        name, number, array = key.split(".")
        if name == model:
            found.setdefault(number, {})[array] = answers[key]
    return list(found.values())


def tokens_of(case: dict[str, Any]) -> Tokens:
    return Tokens(case["input_ids"], case["token_type_ids"], case["attention_mask"])


def assert_close(got, want):
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-5 * max(1, np.abs(want).max())


@pytest.mark.parametrize("model", MODELS)
def test_as_transformers(folder, model):
    encoder, head = BertEncoder.from_pretrained(folder / model), model.rpartition("-")[2]
    found = cases(folder, model)
    assert len(found) == 5
    for case in found:
        tokens = tokens_of(case)
        hidden = encoder.hidden(tokens)
        assert_close(hidden, case["hidden"])
        if head == "plain":
            assert_close(encoder.pooled(hidden), case["pooled"])
        elif head == "lm":
            assert_close(encoder.word_logits(tokens), case["logits"])
        else:
            logits = encoder.executable["class_logits"](hidden)
            assert_close(logits, case["logits"])


@pytest.fixture(scope="module")
def encoder(folder: pathlib.Path) -> BertEncoder:
    return BertEncoder.from_pretrained(folder / "bert-class")


TEXTS = ["A cat sat.", "Rains", "a cat a cat a cat sat .", "x", ""]


def test_sentence_embeddings(encoder):
    """The mean over a text's own tokens, whatever it shares a batch with; first in, first out."""
    together = encoder.encode(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        alone = encoder.tokenize([text])
        assert_close(encoder.hidden(alone).mean(axis=1)[0], vector)
    assert_close(encoder.encode(TEXTS, batch_size=2), together)
    assert_close(encoder.encode(TEXTS[0]), together[:1])
    unit = encoder.encode(TEXTS, normalize=True)
    assert_close(unit, together / np.linalg.norm(together, axis=1, keepdims=True))
    assert encoder.encode([]).shape == (0, 48)


def test_tokens_of_texts(encoder):
    tokens = encoder.tokenize(["A cats\u00a0SAT", "é rain"])
    assert tokens.ids.tolist() == [[2, 5, 6, 8, 7, 3], [2, 1, 9, 3, 0, 0]]
    assert tokens.mask.tolist() == [[1] * 6, [1] * 4 + [0] * 2]
    pair = encoder.tokenize([("a cat", "sat")])
    assert pair.ids.tolist() == [[2, 5, 6, 3, 7, 3]]
    assert pair.types.tolist() == [[0, 0, 0, 0, 1, 1]]
    assert encoder.tokenize(["cat " * 100]).ids.shape == (1, 40)


def test_classes(encoder):
    (first, _) = encoder.classify([("a cat", "sat"), "rain"])
    assert list(first) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert abs(sum(first.values()) - 1) < 1e-6
    tokens = encoder.tokenize([("a cat", "sat")])
    logits = encoder.executable["class_logits"](encoder.hidden(tokens))[0]
    assert np.argmax(logits) == np.argmax(list(first.values()))


def test_the_first_token_for_models_that_want_it(folder, encoder, tmp_path):
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (tmp_path / name).write_bytes((folder / "bert-class" / name).read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    other = BertEncoder.from_pretrained(tmp_path)
    assert_close(other.encode(TEXTS[0])[0], encoder.hidden(encoder.tokenize(TEXTS[:1]))[0, 0])


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_gguf(folder, tmp_path, kind):
    """The same encoder from a GGUF file: matrices of 48 columns stay plain with Q8_0."""
    source = folder / "bert-plain"
    names = {
        "embeddings.word_embeddings": "token_embd", "embeddings.LayerNorm": "token_embd_norm",
        "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types",
        "attention.self.query": "attn_q", "attention.self.key": "attn_k",
        "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
    }  # fmt: skip
    tensors = []
    for name, array in load_file(source / "model.safetensors").items():
        if name.startswith("pooler"):
            continue
        path, _, field = name.rpartition(".")
        layer = path.split(".")[2] if path.startswith("encoder.layer.") else None
        short = names[path.split(".", 3)[3] if layer else path]
        fits = array.ndim == 2 and "embeddings" not in name and (kind != "Q8_0")
        new = f"blk.{layer}.{short}.{field}" if layer else f"{short}.{field}"
        tensors.append(GGUFTensor.quantised(new, array, kind if fits else "F32"))
    spelled = [w if w[0] == "[" else w[2:] if w[:2] == "##" else f"\u2581{w}" for w in WORDS]
    metadata = {
        "general.architecture": "bert", "bert.block_count": 2, "bert.embedding_length": 48,
        "bert.attention.head_count": 3, "bert.feed_forward_length": 80, "bert.context_length": 40,
        "bert.attention.layer_norm_epsilon": 1e-5, "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": spelled,
    }  # fmt: skip
    write_gguf(tmp_path / "bert.gguf", metadata, tensors)
    ours = BertEncoder.from_pretrained(tmp_path / "bert.gguf")
    theirs = BertEncoder.from_pretrained(source)
    got, want = ours.encode(TEXTS), theirs.encode(TEXTS)
    assert np.abs(got - want).max() <= (1e-2 if kind == "F16" else 1e-5) * np.abs(want).max()
    with pytest.raises(ModelError, match="the model has no head for 'pooled'"):
        ours.pooled(ours.hidden(ours.tokenize(TEXTS)))


def test_no_kernel_is_left_to_the_fallback(folder):
    tensors = tensors_of_folder(folder / "bert-lm", tensor_name)
    config = config_from_json(keys_of_json(folder / "bert-lm/config.json"), tensors.names)
    module, _ = Bert(config, NamedLayers(tensors.formats)).build()
    trace = cpu_pipeline().run(module)
    assert replay_kernels(trace) and replay_kernels(cuda_pipeline().run(module))
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    rules = {w.subject: w.reason.rpartition(" ")[2] for w in remarks if w.applied}
    assert "fallback" not in rules.values(), rules
    assert {r for n, r in rules.items() if "attention" in n} == {"attention"}
    assert {r for n, r in rules.items() if "linear" in n} == {"matmul"}


def test_wrong_input_is_refused(folder, encoder, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model"):
        BertEncoder.from_pretrained(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"ids must lie in 0\.\.99"):
        encoder.hidden(Tokens(*(np.full((1, 2), n, np.int32) for n in (100, 0, 1))))
    with pytest.raises(ValueError, match="there are no tokens"):
        encoder.classify([])
    with pytest.raises(ModelError, match="no head for 'word_logits'"):
        encoder.word_logits(encoder.tokenize(["a"]))
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / "bert-class" / name).read_bytes())
    with pytest.raises(TokenizerError, match="has neither tokenizer.json nor vocab.txt"):
        BertEncoder.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("a\nb")
    with pytest.raises(TokenizerError, match=r"lacks the token \[UNK\]"):
        BertEncoder.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    arrays = dict(load_file(tmp_path / "model.safetensors"))
    arrays["classifier.bias"] = np.zeros(7, np.float32)
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"classifier\.bias: .*\(7,\), expected .* \(3,\)"):
        BertEncoder.from_pretrained(tmp_path)
    del arrays["classifier.bias"]
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"no tensor 'classifier\.bias'"):
        BertEncoder.from_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"position_embedding_type": "relative_key"}, "'relative_key' is not supported"),
        ({"num_attention_heads": 5}, "48 features do not divide into 5 heads"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**values, **change}))
        with pytest.raises(ValueError, match=message):
            BertEncoder.from_pretrained(tmp_path)
