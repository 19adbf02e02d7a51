"""Vectors of texts as sentence-transformers folders describe them, against plain NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from relaxlab.models.config import ConfigError
from relaxlab.models.loader import ModelError
from relaxlab.models.sentence import POOLINGS, sentence_config
from relaxlab.models.text_encoder import BertEncoder

HIDDEN, VOCABULARY, POSITIONS = 32, 40, 24
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "rain", "it", "ed", "."]
TEXTS = ["a cat sat .", "rain", "it sat . it sat . it sat .", "cat " * 60, ""]


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A random BERT of two layers, as transformers stores it."""
    config = {
        "model_type": "bert", "hidden_size": HIDDEN, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS, "type_vocab_size": 2,
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        **norm("embeddings.LayerNorm"),
    }
    for i in range(2):
        at = f"encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= linear(f"{at}.attention.{name}", HIDDEN, HIDDEN)
        shapes |= linear(f"{at}.intermediate.dense", 48, HIDDEN)
        shapes |= linear(f"{at}.output.dense", HIDDEN, 48)
        shapes |= norm(f"{at}.attention.output.LayerNorm") | norm(f"{at}.output.LayerNorm")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    save_file(drawn(shapes, rng), tmp_path / "model.safetensors")
    return tmp_path


def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}


def drawn(shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {n: rng.normal(0, 0.3, shape).astype("float32") for n, shape in shapes.items()}


def write_modules(folder: Path, **modules: dict[str, Any] | None) -> None:
    """modules.json, and a configuration for each module (None: it has none)."""
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.Transformer"}]
    for i, (kind, config) in enumerate(modules.items(), 1):
        path = f"{i}_{kind}"
        full = f"sentence_transformers.models.{kind}"
        entries.append({"idx": i, "name": str(i), "path": path, "type": full})
        (folder / path).mkdir(exist_ok=True)
        if config is not None:
            (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(entries))


def pooled(hidden: np.ndarray, how: str) -> np.ndarray:
    """One text's hidden states (tokens, HIDDEN) as sentence-transformers pools them."""
    count = np.arange(1, len(hidden) + 1, dtype="float64")[:, None]
    hidden = hidden.astype("float64")
    return {
        "cls_token": lambda: hidden[0],
        "max_tokens": lambda: hidden.max(0),
        "mean_tokens": lambda: hidden.mean(0),
        "mean_sqrt_len_tokens": lambda: hidden.sum(0) / np.sqrt(len(hidden)),
        "weightedmean_tokens": lambda: (hidden * count).sum(0) / count.sum(),
        "lasttoken": lambda: hidden[-1],
    }[how]()


def hidden_states(encoder: BertEncoder) -> list[np.ndarray]:
    """The hidden states of each text by itself, without padding."""
    return [encoder.hidden(encoder.tokenize([text]))[0] for text in TEXTS]


@pytest.mark.parametrize("how", POOLINGS)
def test_poolings(folder: Path, how: str) -> None:
    write_modules(folder, Pooling={f"pooling_mode_{how}": True})
    encoder = BertEncoder.from_pretrained(folder)
    want = [pooled(h, how) for h in hidden_states(encoder)]
    np.testing.assert_allclose(encoder.encode(TEXTS), want, rtol=1e-4, atol=1e-5)


def test_several_poolings_a_map_and_a_length(folder: Path, rng: np.random.Generator) -> None:
    asked = {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": True}
    dense = {"in_features": 2 * HIDDEN, "out_features": 8, "bias": True}
    write_modules(folder, Pooling=asked, Dense=dense, Normalize=None)
    weights = drawn(linear("linear", 8, 2 * HIDDEN), rng)
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    limit = {"max_seq_length": 7, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limit))
    encoder = BertEncoder.from_pretrained(folder)
    assert max(map(len, hidden_states(encoder))) == 7
    want = []
    for hidden in hidden_states(encoder):
        x = np.concatenate([pooled(hidden, "mean_tokens"), pooled(hidden, "lasttoken")])
        x = np.tanh(weights["linear.weight"] @ x + weights["linear.bias"])
        want.append(x)
    np.testing.assert_allclose(encoder.encode(TEXTS, normalize=False), want, rtol=1e-4, atol=1e-5)
    unit = np.array(want) / np.linalg.norm(want, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), unit, rtol=1e-4, atol=1e-5)


def test_folders_of_later_versions(folder: Path) -> None:
    """They name the pooling, and keep the longest text in the tokenizer's configuration."""
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 7}')
    for short in ("mean", "weightedmean", "mean_sqrt_len_tokens", "lasttoken"):
        write_modules(folder, Pooling={"pooling_mode": short, "include_prompt": True})
        (how,) = sentence_config(folder).poolings
        assert how.startswith(short)
    assert sentence_config(folder).max_length == 7


def test_texts_are_lowered_by_option(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    upper = BertEncoder.from_pretrained(folder).tokenize(["A CAT"]).ids.tolist()
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    lower = BertEncoder.from_pretrained(folder).tokenize(["A CAT"]).ids.tolist()
    assert upper == [[2, 1, 1, 3]] and lower == [[2, 5, 6, 3]]


def test_unsupported_features_are_refused(folder: Path) -> None:
    write_modules(folder, LSTM={})
    with pytest.raises(ModelError, match=r"modules.json: a module LSTM is not supported; Trans"):
        sentence_config(folder)
    write_modules(folder, Pooling={"pooling_mode_first_three": True})
    with pytest.raises(ConfigError, match="pooling first_three is not supported; cls_token, max"):
        sentence_config(folder)
    dense = {"in_features": 5, "out_features": 2, "activation_function": "my.Own"}
    write_modules(folder, Pooling={}, Dense=dense)
    with pytest.raises(ConfigError, match="activation_function my.Own is not supported"):
        sentence_config(folder)
    (folder / "modules.json").write_text("[1]")
    with pytest.raises(ModelError, match="expected a list of modules with type and path"):
        sentence_config(folder)


def test_a_map_that_does_not_fit_is_refused(folder: Path, rng: np.random.Generator) -> None:
    write_modules(folder, Pooling={}, Dense={"in_features": 5, "out_features": 2})
    save_file(drawn(linear("linear", 2, 5), rng), folder / "2_Dense" / "model.safetensors")
    with pytest.raises(ConfigError, match="2_Dense takes vectors of 5 numbers, gets 32"):
        BertEncoder.from_pretrained(folder)


def test_layers_that_the_configuration_leaves_out_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"has no use for encoder.layer.1.* and \d+ more"):
        BertEncoder.from_pretrained(folder)
