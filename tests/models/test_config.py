"""Llama configurations from both sources, and clear errors where a key is missing or absurd."""

import json

import numpy as np
import pytest

from relaxlab.models.config import ConfigError, DecoderConfig, Rope
from relaxlab.models.families import config_from_gguf, config_from_json
from relaxlab.models.gguf import GGUFTensor, read_gguf, write_gguf

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
JSON = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
EXPECTED = DecoderConfig(
    hidden_size=32, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=8, ffn_size=64,
    vocab_size=96, context_length=64, norm_eps=float(np.float32(1e-5)),
    rope=Rope(10000.0, 8, interleaved=True), tied_embeddings=True,
)  # fmt: skip


def open_model(tmp_path, metadata, change=None, drop=()):
    shapes = {n: s for n, s in EXPECTED.tensor_shapes().items() if n not in drop} | (change or {})
    tensors = [GGUFTensor.quantised(n, np.ones(s, np.float32), "F32") for n, s in shapes.items()]
    path = tmp_path / "m.gguf"
    write_gguf(path, metadata, tensors)
    return read_gguf(path)


def open_json(tmp_path, values):
    path = tmp_path / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return config_from_json(path)


def test_from_gguf(tmp_path):
    model = open_model(tmp_path, METADATA)
    assert config_from_gguf(model) == EXPECTED
    untied = open_model(tmp_path, METADATA, {"output.weight": (96, 32)})
    assert not config_from_gguf(untied).tied_embeddings


def test_smollm2(smollm2):
    config = config_from_gguf(smollm2)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert (config.head_dim, config.vocab_size, config.rope.theta) == (64, 49152, 1e5)
    assert config.tied_embeddings


def test_from_json(tmp_path):
    config = open_json(tmp_path, JSON)
    assert (config.norm_eps, config.rope.interleaved) == (1e-5, False)
    assert config.tensor_shapes() == EXPECTED.tensor_shapes()


def test_frequencies():
    expected = [1, 10000**-0.25, 10000**-0.5, 10000**-0.75]
    np.testing.assert_allclose(EXPECTED.rope.inverse_frequencies(), expected, rtol=1e-6)


def test_linear_rope_scaling(tmp_path):
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = config_from_gguf(open_model(tmp_path, METADATA | scaling))
    np.testing.assert_allclose(
        config.rope.inverse_frequencies(), EXPECTED.rope.inverse_frequencies() / 4, rtol=1e-6
    )
    same = open_json(tmp_path, JSON | {"rope_scaling": {"type": "linear", "factor": 4.0}})
    assert same.rope.divisors == config.rope.divisors


def test_llama3_rope_scaling(tmp_path):
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    values = JSON | {"rope_scaling": scaling, "head_dim": 128, "rope_theta": 500000.0}
    config = open_json(tmp_path, values)
    for freq, got in zip(500000.0 ** -(np.arange(64) / 64), config.rope.divisors, strict=True):
        wavelength = 2 * np.pi / freq
        if wavelength < 8192 / 4:
            expected = 1
        elif wavelength > 8192:
            expected = 8
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            expected = freq / ((1 - smooth) * freq / 8 + smooth * freq)
        assert got == pytest.approx(expected)


def test_stored_rope_divisors(tmp_path):
    config = config_from_gguf(open_model(tmp_path, METADATA, {"rope_freqs.weight": (4,)}))
    assert config.rope.divisors == (1, 1, 1, 1)
    with pytest.raises(ConfigError, match="3 rope divisors for 4 pairs"):
        config_from_gguf(open_model(tmp_path, METADATA, {"rope_freqs.weight": (3,)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "the architecture 'mamba' is not supported; llama"),
        ({"llama.block_count": None}, "the key 'llama.block_count' is missing"),
        ({"llama.block_count": "x"}, "'llama.block_count' must be a number, is 'x'"),
        ({"llama.block_count": 0}, "num_layers must be positive"),
        ({"llama.block_count": 2**31}, "2147483648 layers, but only 11 tensors"),
        ({"llama.attention.key_length": 2**31}, "head_dim is 2147483648, more than 4096"),
        ({"llama.attention.head_count": 0}, "num_heads must be positive"),
        ({"llama.attention.head_count_kv": 3}, "4 attention heads cannot share 3"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "norm_eps must be positive"),
        ({"llama.attention.key_length": 7}, "an even number of features, is 7"),
        ({"llama.rope.dimension_count": 12}, "12 rotated features in heads of 8"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
    ],
)
def test_bad_metadata_is_named(change, message, tmp_path):
    metadata = {k: v for k, v in (METADATA | change).items() if v is not None}
    with pytest.raises(ConfigError, match=message):
        config_from_gguf(open_model(tmp_path, metadata))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("{", "not JSON"),
        ("[]", "must hold a JSON object"),
        ({"model_type": "bert"}, "model_type 'bert'"),
        ({"model_type": "llama"}, "config.json: the key 'vocab_size' is missing"),
        (JSON | {"rope_scaling": {"type": "yarn"}}, "rope scaling 'yarn'"),
        (JSON | {"rope_scaling": 3}, "rope_scaling must be an object"),
        (JSON | {"rope_scaling": {"type": "linear"}}, "rope_scaling: the key 'factor'"),
        (JSON | {"rope_scaling": {"type": "linear", "factor": 0}}, "divisor must be positive"),
    ],
)
def test_bad_json_is_named(values, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        open_json(tmp_path, values)


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        ({}, ["blk.0.attn_q.weight"], "no tensor 'blk.0.attn_q.weight'"),
        ({"blk.0.ffn_up.weight": (32, 64)}, [], r"shape \(32, 64\), expected \(64, 32\)"),
        ({"blk.0.attn_q.bias": (32,)}, [], "no tensor 'blk.0.attn_k.bias'"),
        ({"blk.0.attn_x.bias": (32,)}, [], "llama model has no use for: blk.0.attn_x.bias"),
    ],
)
def test_weights_are_checked(change, drop, message, tmp_path):
    model = open_model(tmp_path, METADATA, change, drop)
    with pytest.raises(ValueError, match=message):
        config_from_gguf(model)
